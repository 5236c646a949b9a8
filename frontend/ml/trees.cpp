// TreeEnsemble, and TreeEnsembleClassifier and TreeEnsembleRegressor, which older models have.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "frontend/ml/forest.h"
#include "frontend/ml/ml_ops.h"

namespace mcc::frontend {

namespace {

using Mode = Forest::Mode;

constexpr int64_t kMostTargets = int64_t{1} << 20;
constexpr int64_t kMostFeatures = int64_t{1} << 30;

// ---- What all three have ----

std::vector<double> to_numbers(const graph::Constant& c) {
  std::vector<double> values;
  for (int64_t i = 0, n = c.count(); i < n; ++i)
    values.push_back(is_float(c.element()) ? c.number_at(i) : static_cast<double>(c.int_at(i)));
  return values;
}

// The numbers of an attribute, or of the tensor that may stand in its place: with f64 numbers all is computed in f64.
std::optional<std::vector<double>> numbers_of(Expansion& e, const std::string& name, ElementType* element) {
  const std::string as_tensor = name + "_as_tensor";
  if (!e.is_given(as_tensor)) return e.numbers(name);
  std::optional<graph::Constant> values = e.constant_of(as_tensor);
  if (!values) return std::nullopt;
  if (values->element() == ElementType::f64) *element = ElementType::f64;
  return to_numbers(*values);
}

// Scores [N, targets] of the forest, in its element type.
std::optional<Operand> scores_of(Expansion& e, const Forest& forest, const std::vector<double>& base) {
  std::optional<Rows> rows = rows_of(e, forest.element);
  if (!rows) return std::nullopt;
  if (!e.supports(rows->features < kMostFeatures, "trees over ", rows->features,
                  " features are not supported"))
    return std::nullopt;
  for (const Forest::Branch& b : forest.branches) {
    if (!e.expect(0 <= b.feature && b.feature < rows->features, "attribute 'nodes_featureids': ", b.feature,
                  " is none of ", rows->features, " features"))
      return std::nullopt;
  }
  for (const auto& leaf : forest.leaves) {
    for (const Forest::Weight& w : leaf) {
      if (!e.expect(0 <= w.target && w.target < forest.targets, "a leaf's target ", w.target, " is none of ",
                    forest.targets))
        return std::nullopt;
    }
  }
  if (!e.expect(!forest.roots.empty(), "has no trees")) return std::nullopt;
  const Result<TreeTables> tables = tables_of(forest);
  if (!tables.ok()) {
    for (const Diagnostic& problem : tables.errors()) {
      if (problem.kind == ErrorKind::bad_input) e.expect(false, problem.message);
      if (problem.kind == ErrorKind::unsupported) e.supports(false, problem.message);
    }
    return std::nullopt;
  }
  const TreeTables& t = *tables;
  const auto size = [](const auto& list) { return static_cast<int64_t>(list.size()); };
  const bool is_sum = forest.aggregate == Aggregate::sum || forest.aggregate == Aggregate::average;
  const char* reduce = is_sum ? "sum" : forest.aggregate == Aggregate::min ? "min" : "max";
  std::vector<Operand> inputs{
      rows->x,
      e.tensor(ElementType::i32, {t.groups, t.trees}, t.roots),
      e.tensor(ElementType::i32, {size(t.nodes)}, t.nodes),
      e.reals(forest.element, {size(t.weights) / t.width, t.width}, t.weights),
  };
  if (!t.thresholds.empty()) inputs.push_back(e.reals(forest.element, {size(t.thresholds)}, t.thresholds));
  Operand scores =
      e.reshaped(e.own("Trees", inputs, {{"counts", t.counts}, {"depths", t.depths}, {"reduce", reduce}}),
                 {rows->count, t.groups * t.width});
  if (forest.aggregate == Aggregate::average)
    scores = e.op("Div", {scores, e.scalar(forest.element, static_cast<double>(forest.roots.size()))});
  if (!is_sum && t.has_gaps)  // targets of which no tree says anything
    scores = e.op("Where", {e.op("IsInf", {scores}), e.scalar(forest.element, 0), scores});
  if (!t.results.empty()) {  // targets that no tree has are 0
    const Operand padded = e.op("Pad", {scores, e.ints({0, 0, 0, 1})});
    scores = e.op("Gather", {padded, e.ints(t.results)}, {{"axis", 1}});
  }
  if (!base.empty()) scores = e.op("Add", {scores, e.reals(forest.element, {size(base)}, base)});
  return scores;
}

// ---- Trees by the numbers of their nodes ----

std::optional<Mode> mode_of(const std::string& name) {
  constexpr std::pair<const char*, Mode> kModes[] = {{"BRANCH_LEQ", Mode::leq}, {"BRANCH_LT", Mode::lt},
                                                     {"BRANCH_GTE", Mode::gte}, {"BRANCH_GT", Mode::gt},
                                                     {"BRANCH_EQ", Mode::eq},   {"BRANCH_NEQ", Mode::neq}};
  for (const auto& [word, mode] : kModes)
    if (name == word) return mode;
  return std::nullopt;
}

using NodeKey = std::pair<int64_t, int64_t>;  // tree, node

class NumberedTrees {
 public:
  // word: "class" or "target", with which the names of the attributes of weights begin.
  NumberedTrees(Expansion& e, const std::string& word) : e_(e), word_(word) {}

  std::optional<Forest> read(int64_t targets) {
    forest_.targets = targets;
    forest_.element = real_type(e_.element(0));
    if (!read_nodes() || !read_weights()) return std::nullopt;
    return std::move(forest_);
  }

 private:
  bool read_nodes() {
    const std::vector<int64_t> trees = e_.integers("nodes_treeids"), ids = e_.integers("nodes_nodeids"),
                               features = e_.integers("nodes_featureids"),
                               yes = e_.integers("nodes_truenodeids"), no = e_.integers("nodes_falsenodeids"),
                               missing = e_.integers("nodes_missing_value_tracks_true");
    const std::vector<std::string> modes = e_.words("nodes_modes");
    const std::optional<std::vector<double>> values = numbers_of(e_, "nodes_values", &forest_.element);
    const size_t n = trees.size();
    if (!values || !expect_count(e_, "nodes_nodeids", ids.size(), n) ||
        !expect_count(e_, "nodes_featureids", features.size(), n) ||
        !expect_count(e_, "nodes_truenodeids", yes.size(), n) ||
        !expect_count(e_, "nodes_falsenodeids", no.size(), n) ||
        !expect_count(e_, "nodes_modes", modes.size(), n) ||
        !expect_count(e_, "nodes_values", values->size(), n)) {
      return false;
    }
    if (!missing.empty() && !expect_count(e_, "nodes_missing_value_tracks_true", missing.size(), n))
      return false;
    // The first node of a tree is its root.
    std::set<int64_t> seen;
    for (size_t i = 0; i < n; ++i) {
      const bool is_leaf = modes[i] == "LEAF";
      const Forest::Child node{is_leaf, is_leaf ? forest_.leaves.size() : forest_.branches.size()};
      if (is_leaf) {
        forest_.leaves.emplace_back();
      } else {
        const std::optional<Mode> mode = mode_of(modes[i]);
        if (!e_.expect(mode.has_value(), "attribute 'nodes_modes': '", modes[i], "' is not known"))
          return false;
        forest_.branches.push_back(
            {*mode, features[i], (*values)[i], {}, !missing.empty() && missing[i] != 0, {}, {}});
      }
      if (!e_.expect(nodes_.emplace(NodeKey{trees[i], ids[i]}, node).second, "node ", ids[i], " of tree ",
                     trees[i], " is there twice"))
        return false;
      if (seen.insert(trees[i]).second) forest_.roots.push_back(node);
    }
    for (size_t i = 0, next = 0; i < n; ++i) {
      if (modes[i] == "LEAF") continue;
      Forest::Branch& b = forest_.branches[next++];
      for (const auto& [child, id] : {std::pair{&b.yes, yes[i]}, std::pair{&b.no, no[i]}}) {
        const auto found = nodes_.find({trees[i], id});
        if (!e_.expect(found != nodes_.end(), "node ", ids[i], " of tree ", trees[i], ": there is no node ",
                       id, " below it"))
          return false;
        *child = found->second;
      }
    }
    return true;
  }

  bool read_weights() {
    const std::vector<int64_t> trees = e_.integers(word_ + "_treeids"),
                               nodes = e_.integers(word_ + "_nodeids"), targets = e_.integers(word_ + "_ids");
    const std::optional<std::vector<double>> values = numbers_of(e_, word_ + "_weights", &forest_.element);
    const size_t n = targets.size();
    if (!values || !expect_count(e_, word_ + "_treeids", trees.size(), n) ||
        !expect_count(e_, word_ + "_nodeids", nodes.size(), n) ||
        !expect_count(e_, word_ + "_weights", values->size(), n)) {
      return false;
    }
    for (size_t i = 0; i < n; ++i) {
      const auto found = nodes_.find({trees[i], nodes[i]});
      if (!e_.expect(found != nodes_.end(), "attribute '", word_, "_nodeids': tree ", trees[i],
                     " has no node ", nodes[i]))
        return false;
      // Old exporters wrote weights of inner nodes, too: they mean nothing.
      if (found->second.is_leaf) forest_.leaves[found->second.index].push_back({targets[i], (*values)[i]});
    }
    return true;
  }

  Expansion& e_;
  std::string word_;
  Forest forest_;
  std::map<NodeKey, Forest::Child> nodes_;
};

// ---- TreeEnsembleRegressor ----

void regressor(Expansion& e) {
  const std::optional<Transform> transform = transform_of(e);
  const int64_t targets = e.is_given("n_targets") ? e.integer("n_targets") : 1;
  if (!transform || !e.expect(targets >= 1 && targets < kMostTargets,
                              "attribute 'n_targets': expected at least 1, got ", targets))
    return;
  std::optional<Forest> forest = NumberedTrees(e, "target").read(targets);
  if (!forest) return;
  const std::string aggregate = e.word("aggregate_function");
  constexpr std::pair<const char*, Aggregate> kAggregates[] = {{"SUM", Aggregate::sum},
                                                               {"AVERAGE", Aggregate::average},
                                                               {"MIN", Aggregate::min},
                                                               {"MAX", Aggregate::max}};
  const auto* known = std::find_if(std::begin(kAggregates), std::end(kAggregates),
                                   [&](const auto& a) { return aggregate == a.first; });
  if (!e.expect(known != std::end(kAggregates),
                "attribute 'aggregate_function': expected SUM, AVERAGE, MIN or MAX, got ", aggregate))
    return;
  forest->aggregate = known->second;
  const std::optional<std::vector<double>> base = numbers_of(e, "base_values", &forest->element);
  if (!base ||
      (!base->empty() && !expect_count(e, "base_values", base->size(), static_cast<size_t>(targets))))
    return;
  if (std::optional<Operand> scores = scores_of(e, *forest, *base))
    give_targets(e, *scores, forest->element, targets, *transform, ElementType::f32);
}

// ---- TreeEnsembleClassifier ----

// What leaves weigh: which classes, and whether no weight is negative (a binary model's score is a probability then).
struct ClassWeights {
  std::set<int64_t> classes;
  bool are_positive = true;
};

ClassWeights weights_of(const Forest& forest) {
  ClassWeights w;
  for (const auto& leaf : forest.leaves) {
    for (const Forest::Weight& weight : leaf) {
      w.classes.insert(weight.target);
      w.are_positive &= weight.value >= 0;
    }
  }
  return w;
}

// Two classes, and weights of one of them.
void binary_classifier(Expansion& e, const Forest& forest, const ClassLabels& labels,
                       std::vector<double> base, Transform transform) {
  const ClassWeights weights = weights_of(forest);
  const bool is_first = weights.classes.contains(0);
  const size_t given = base.size();
  if (!e.expect(given <= 2, "attribute 'base_values': expected 2 values, got ", given) ||
      !e.supports(
          is_first || given == 0,
          "attribute 'base_values' of two classes is not supported where only the second one has weights")) {
    return;
  }
  if (given == 1) base.push_back(0);  // a score that has no other beside it
  if (given == 2) base[1] = 0;        // as in onnxruntime
  const std::optional<Operand> scores = scores_of(e, forest, base);
  if (!scores) return;
  const int64_t column = is_first ? 0 : 1;
  const Operand score = e.slice(*scores, 1, column, column + 1);
  const Operand label = label_by_threshold(e, score, forest.element, weights.are_positive ? 0.5 : 0,
                                           labels.numbers[1], labels.numbers[0]);
  const bool are_both_there = !is_first || given == 2;
  give_classes(e, labels, label,
               are_both_there ? transformed(e, *scores, forest.element, transform)
                              : both_scores(e, score, forest.element, weights.are_positive, transform),
               forest.element);
}

void classifier(Expansion& e) {
  const std::optional<Transform> transform = transform_of(e);
  if (!transform) return;
  const ClassLabels labels = class_labels(e, "classlabels_int64s");
  const auto count = static_cast<int64_t>(labels.numbers.size());
  if (!e.expect(count >= 1, "attribute 'classlabels_int64s': expected at least one class")) return;
  std::optional<Forest> forest = NumberedTrees(e, "class").read(count);
  if (!forest) return;
  const std::optional<std::vector<double>> base = numbers_of(e, "base_values", &forest->element);
  if (!base) return;
  const ClassWeights weights = weights_of(*forest);
  if (count == 2 && weights.classes.size() == 1)
    return binary_classifier(e, *forest, labels, *base, *transform);
  if (!base->empty() && !expect_count(e, "base_values", base->size(), labels.numbers.size())) return;
  const std::optional<Operand> scores = scores_of(e, *forest, *base);
  if (!scores) return;
  if (count == 1) {
    if (!e.supports(labels.words.empty(), "attribute 'classlabels_strings': of one class only numbers are supported")) return;
    const Operand label = label_by_threshold(e, *scores, forest->element, 0, 1, 0);
    return give_classes(
        e, labels, label,
        *transform == Transform::probit ? transformed(e, *scores, forest->element, *transform) : *scores,
        forest->element);
  }
  // Classes of which no tree says anything are nobody's.
  Operand candidates = *scores;
  if (base->empty() && static_cast<int64_t>(weights.classes.size()) < count) {
    std::vector<double> bounds;
    for (int64_t k = 0; k < count; ++k)
      bounds.push_back(weights.classes.contains(k) ? 0 : -HUGE_VAL);
    candidates = e.op("Add", {candidates, e.reals(forest->element, {count}, bounds)});
  }
  give_classes(e, labels, best_label(e, candidates, labels.numbers), transformed(e, *scores, forest->element, *transform),
               forest->element);
}

// ---- TreeEnsemble ----

// Tells how many there are of each node's list of members: they follow each other, each ended by a NaN.
bool read_members(Expansion& e, Forest& forest) {
  const auto is_set = [](const Forest::Branch& b) { return b.mode == Mode::member; };
  if (std::none_of(forest.branches.begin(), forest.branches.end(), is_set)) return true;
  if (!e.expect(e.is_given("membership_values"),
                "attribute 'membership_values' is missing; there are nodes that ask for members of a set"))
    return false;
  const std::optional<graph::Constant> given = e.constant_of("membership_values");
  if (!given) return false;
  const std::vector<double> values = to_numbers(*given);
  size_t next = 0;
  for (Forest::Branch& b : forest.branches) {
    if (!is_set(b)) continue;
    while (next < values.size() && !std::isnan(values[next]))
      b.members.push_back(values[next++]);
    if (!e.expect(next < values.size(),
                  "attribute 'membership_values': expected a list that ends with a NaN for each node that "
                  "asks for members"))
      return false;
    ++next;
  }
  return e.expect(next == values.size(), "attribute 'membership_values': expected ", next, " values, got ",
                  values.size());
}

std::optional<Forest> read_ensemble(Expansion& e) {
  const std::optional<graph::Constant> modes = e.constant_of("nodes_modes"),
                                       splits = e.constant_of("nodes_splits"),
                                       weights = e.constant_of("leaf_weights");
  if (!modes || !splits || !weights) return std::nullopt;
  const std::vector<int64_t> features = e.integers("nodes_featureids"),
                             missing = e.integers("nodes_missing_value_tracks_true"),
                             targets = e.integers("leaf_targetids"), roots = e.integers("tree_roots");
  const std::vector<int64_t> ids[] = {e.integers("nodes_truenodeids"), e.integers("nodes_falsenodeids")};
  const std::vector<int64_t> are_leaves[] = {e.integers("nodes_trueleafs"), e.integers("nodes_falseleafs")};
  const size_t n = features.size();
  auto counted = [](const graph::Constant& c) { return static_cast<size_t>(c.count()); };
  if (!expect_count(e, "nodes_modes", counted(*modes), n) ||
      !expect_count(e, "nodes_splits", counted(*splits), n) ||
      !expect_count(e, "nodes_truenodeids", ids[0].size(), n) ||
      !expect_count(e, "nodes_falsenodeids", ids[1].size(), n) ||
      !expect_count(e, "nodes_trueleafs", are_leaves[0].size(), n) ||
      !expect_count(e, "nodes_falseleafs", are_leaves[1].size(), n) ||
      !expect_count(e, "leaf_weights", counted(*weights), targets.size())) {
    return std::nullopt;
  }
  if (!missing.empty() && !expect_count(e, "nodes_missing_value_tracks_true", missing.size(), n))
    return std::nullopt;
  Forest forest;
  forest.targets = e.is_given("n_targets") ? e.integer("n_targets") : 1;
  if (!e.expect(forest.targets >= 1 && forest.targets < kMostTargets,
                "attribute 'n_targets': expected at least 1, got ", forest.targets))
    return std::nullopt;
  forest.element = real_type(e.element(0));
  if (splits->element() == ElementType::f64 || weights->element() == ElementType::f64)
    forest.element = ElementType::f64;
  for (size_t i = 0; i < targets.size(); ++i)
    forest.leaves.push_back({{targets[i], weights->number_at(static_cast<int64_t>(i))}});
  for (size_t i = 0; i < n; ++i) {
    const auto at = static_cast<int64_t>(i);
    const int64_t mode = modes->int_at(at);
    constexpr auto kMost =
        static_cast<int64_t>(Mode::member);  // ONNX's numbers are in the order of our modes
    if (!e.expect(0 <= mode && mode <= kMost, "attribute 'nodes_modes': expected 0 to ", kMost, ", got ",
                  mode))
      return std::nullopt;
    Forest::Branch b{static_cast<Mode>(mode),
                     features[i],
                     splits->number_at(at),
                     {},
                     !missing.empty() && missing[i] != 0,
                     {},
                     {}};
    for (int k = 0; k < 2; ++k) {
      const bool is_leaf = are_leaves[k][i] != 0;
      const int64_t id = ids[k][i];
      const auto most = static_cast<int64_t>(is_leaf ? targets.size() : n);
      if (!e.expect(0 <= id && id < most, "attribute '", k == 0 ? "nodes_truenodeids" : "nodes_falsenodeids",
                    "': ", id, " is none of ", most, is_leaf ? " leaves" : " nodes")) {
        return std::nullopt;
      }
      (k == 0 ? b.yes : b.no) = {is_leaf, static_cast<size_t>(id)};
    }
    forest.branches.push_back(std::move(b));
  }
  for (int64_t root : roots) {
    if (!e.expect(0 <= root && root < static_cast<int64_t>(n), "attribute 'tree_roots': ", root,
                  " is none of ", n, " nodes"))
      return std::nullopt;
    forest.roots.push_back({false, static_cast<size_t>(root)});
  }
  if (!read_members(e, forest)) return std::nullopt;
  return forest;
}

void ensemble(Expansion& e) {
  std::optional<Forest> forest = read_ensemble(e);
  if (!forest) return;
  constexpr Aggregate kAggregates[] = {Aggregate::average, Aggregate::sum, Aggregate::min, Aggregate::max};
  constexpr Transform kTransforms[] = {Transform::none, Transform::softmax, Transform::logistic,
                                       Transform::softmax_zero, Transform::probit};
  const int64_t aggregate = e.integer("aggregate_function"), transform = e.integer("post_transform");
  if (!e.expect(0 <= aggregate && aggregate < 4, "attribute 'aggregate_function': expected 0 to 3, got ",
                aggregate) ||
      !e.expect(0 <= transform && transform < 5, "attribute 'post_transform': expected 0 to 4, got ",
                transform)) {
    return;
  }
  forest->aggregate = kAggregates[aggregate];
  if (std::optional<Operand> scores = scores_of(e, *forest, {}))
    give_targets(e, *scores, forest->element, forest->targets, kTransforms[transform], e.element(0));
}

}  // namespace

std::span<const MlOp> tree_ops() {
  static constexpr MlOp kOps[] = {
      {"TreeEnsemble", ensemble},
      {"TreeEnsembleClassifier", classifier},
      {"TreeEnsembleRegressor", regressor},
  };
  return kOps;
}

}  // namespace mcc::frontend
