#include "frontend/ml/forest.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace mcc::frontend {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int kDeepest = 4096;
constexpr size_t kMostNodes = size_t{1} << 29;  // numbers of children fit 32 bits
constexpr int64_t kMostWeights = int64_t{1} << 28;
constexpr int32_t kUnseen = -1, kOpen = -2;

Diagnostic unsupported(std::string message) { return {ErrorKind::unsupported, "", std::move(message), ""}; }

class TableBuilder {
 public:
  explicit TableBuilder(const Forest& forest)
      : forest_(forest),
        branches_(forest.branches.size(), kUnseen),
        leaves_(forest.leaves.size(), kUnseen),
        depths_(forest.branches.size()) {}

  Result<TreeTables> build() {
    arrange();
    if (!problems_.empty()) return problems_;
    return std::move(t_);
  }

 private:
  // ---- Which tree stands where ----

  // The only target of all leaves of a tree; -1 where there are several.
  int64_t target_of(const Forest::Child& root) const {
    std::set<int64_t> targets;
    std::vector<Forest::Child> open{root};
    std::set<size_t> seen;
    while (!open.empty() && targets.size() < 2) {
      const Forest::Child at = open.back();
      open.pop_back();
      if (at.is_leaf) {
        for (const Forest::Weight& w : forest_.leaves[at.index])
          targets.insert(w.target);
      } else if (seen.insert(at.index).second) {
        open.push_back(forest_.branches[at.index].yes);
        open.push_back(forest_.branches[at.index].no);
      }
    }
    return targets.size() == 1 ? *targets.begin() : -1;
  }

  void arrange() {
    const int64_t count = static_cast<int64_t>(forest_.roots.size()), targets = forest_.targets;
    std::vector<std::vector<size_t>> trees(static_cast<size_t>(targets));
    bool is_sorted = targets > 1;
    for (size_t i = 0; i < forest_.roots.size() && is_sorted; ++i) {
      const int64_t target = target_of(forest_.roots[i]);
      is_sorted = target >= 0;
      if (is_sorted) trees[static_cast<size_t>(target)].push_back(i);
    }
    int64_t most = 0;
    for (const auto& of_target : trees)
      most = std::max(most, static_cast<int64_t>(of_target.size()));
    is_sorted = is_sorted && most * targets <= 2 * count + targets;
    t_.groups = is_sorted ? targets : 1;
    t_.trees = is_sorted ? most : count;
    t_.width = is_sorted ? 1 : targets;
    if (!is_sorted) {
      trees.assign(1, {});
      for (size_t i = 0; i < forest_.roots.size(); ++i)
        trees[0].push_back(i);
    }
    std::vector<int64_t> deepest(
        static_cast<size_t>(t_.trees));  // of the trees in the same place of their groups
    for (const auto& group : trees)
      add_group(group, deepest);
    divide(deepest);
  }

  // The shallow trees first. Where a group has fewer trees than others it begins with empty ones.
  void add_group(const std::vector<size_t>& trees, std::vector<int64_t>& deepest) {
    struct Tree {
      int32_t root = 0;
      int64_t depth = 0;
    };
    std::vector<Tree> group;
    for (size_t tree : trees) {
      const Forest::Child& root = forest_.roots[tree];
      const int32_t node = node_of(root, 0);
      group.push_back({node, depth_of(root)});
    }
    while (group.size() < deepest.size())
      group.push_back({empty_leaf(), 0});
    std::stable_sort(group.begin(), group.end(),
                     [](const Tree& a, const Tree& b) { return a.depth < b.depth; });
    for (size_t k = 0; k < group.size(); ++k) {
      t_.roots.push_back(group[k].root);
      deepest[k] = std::max(deepest[k], group[k].depth);
    }
  }

  // Into the parts that take the fewest steps together; each of whole vectors, and of so few that code stays small.
  void divide(const std::vector<int64_t>& depths) {
    constexpr size_t kVector = 16, kMostParts = 4;
    const size_t chunks = (depths.size() + kVector - 1) / kVector;
    const auto end_of = [&](size_t chunk) { return std::min((chunk + 1) * kVector, depths.size()); };
    // best[p][c]: steps of chunks 0 to c - 1 in p parts at most, and where the last of these begins.
    struct Best {
      int64_t steps = 0;
      size_t begin = 0;
    };
    std::vector<std::vector<Best>> best(kMostParts + 1, std::vector<Best>(chunks + 1));
    for (size_t p = 1; p <= kMostParts; ++p) {
      for (size_t c = 1; c <= chunks; ++c) {
        const int64_t depth = depths[end_of(c - 1) - 1];
        best[p][c] = {static_cast<int64_t>(c) * depth, 0};
        for (size_t b = 1; b < c && p > 1; ++b) {
          const int64_t steps = best[p - 1][b].steps + static_cast<int64_t>(c - b) * depth;
          if (steps < best[p][c].steps) best[p][c] = {steps, b};
        }
      }
    }
    for (size_t p = kMostParts, c = chunks; c > 0; --p) {
      const size_t begin = best[p][c].begin;
      t_.counts.insert(t_.counts.begin(), static_cast<int64_t>(end_of(c - 1) - begin * kVector));
      t_.depths.insert(t_.depths.begin(), depths[end_of(c - 1) - 1]);
      c = begin;
    }
  }

  // ---- Nodes ----

  int32_t new_node(int64_t feature, bool missing_is_yes, double threshold) {
    if (t_.thresholds.size() >= kMostNodes) {
      fail(text("trees of more than ", kMostNodes, " nodes are not supported"));
      return 0;
    }
    const auto id = static_cast<int32_t>(t_.thresholds.size());
    t_.features.push_back(static_cast<int32_t>(2 * feature + (missing_is_yes ? 1 : 0)));
    t_.thresholds.push_back(threshold);
    t_.children.insert(t_.children.end(), {id, id});
    t_.rows.push_back(0);
    return id;
  }

  void set_children(int32_t node, int32_t yes, int32_t no) {
    t_.children[static_cast<size_t>(2 * node)] = yes;
    t_.children[static_cast<size_t>(2 * node + 1)] = no;
  }

  int64_t depth_of(const Forest::Child& at) const { return at.is_leaf ? 0 : depths_[at.index]; }

  void fail(std::string message) {
    if (problems_.empty()) problems_.push_back(unsupported(std::move(message)));
  }

  int32_t node_of(const Forest::Child& at, int depth) {
    if (at.is_leaf) return leaf(at.index);
    int32_t& known = branches_[at.index];
    if (known == kOpen) {
      if (problems_.empty())
        problems_.push_back(
            {ErrorKind::bad_input, "", text("node ", at.index, " of the trees is below itself"), ""});
      return 0;
    }
    if (known != kUnseen) return known;
    if (depth > kDeepest) {
      fail(text("trees of more than ", kDeepest, " levels are not supported"));
      return 0;
    }
    known = kOpen;
    known = branch(at.index, depth);
    return known;
  }

  // Numbers are those of the forest's type: the next smaller one; none is below the smallest.
  double below(double value) const {
    if (value == -kInfinity) return kNaN;
    if (forest_.element == ElementType::f64) return std::nextafter(value, -kInfinity);
    return std::nextafter(static_cast<float>(value), -std::numeric_limits<float>::infinity());
  }

  int32_t branch(size_t index, int depth) {
    using Mode = Forest::Mode;
    Forest::Branch b = forest_.branches[index];
    if (b.mode == Mode::neq) {  // x != v: not (x == v), but a missing value differs from everything
      std::swap(b.yes, b.no);
      b.mode = Mode::eq;
      b.missing_is_yes = false;
    }
    const bool is_set = b.mode == Mode::eq || b.mode == Mode::member;
    if (b.mode == Mode::eq) b.members = {b.value};
    const double threshold = b.mode == Mode::lt || b.mode == Mode::gte ? below(b.value) : b.value;
    // Not at most. To a threshold that is no number the answer is no, either way.
    if ((b.mode == Mode::gt || b.mode == Mode::gte) && !std::isnan(b.value)) {
      std::swap(b.yes, b.no);
      b.missing_is_yes = !b.missing_is_yes;
    }
    const int32_t node = is_set ? kUnseen : new_node(b.feature, b.missing_is_yes, threshold);
    const int32_t yes = node_of(b.yes, depth + 1), no = node_of(b.no, depth + 1);
    int64_t questions = 1;
    int32_t root = node;
    if (is_set) {
      root = members(b, yes, no, &questions);
    } else {
      set_children(node, yes, no);
    }
    depths_[index] = questions + std::max(depth_of(b.yes), depth_of(b.no));
    return root;
  }

  // Between the bounds below(v) and v, for each member v, the answer is yes: a search among them.
  int32_t members(const Forest::Branch& b, int32_t yes, int32_t no, int64_t* depth) {
    std::vector<double> values;
    for (double v : b.members)
      if (!std::isnan(v)) values.push_back(v);
    std::sort(values.begin(), values.end());
    values.erase(std::unique(values.begin(), values.end()), values.end());
    std::vector<double> bounds;
    std::vector<int32_t> results{no};  // of what is at most each bound, and of what is more than the last
    for (double v : values) {
      const double low = below(v);
      if (bounds.empty() || bounds.back() != low) {
        if (std::isnan(low)) {
          results.back() = yes;  // nothing is below the smallest
        } else {
          bounds.push_back(low);
          results.push_back(yes);
        }
      } else {
        results.back() = yes;  // members side by side
      }
      bounds.push_back(v);
      results.push_back(no);
    }
    int32_t found = search(b.feature, bounds, results, 0, bounds.size(), depth);
    if (!b.missing_is_yes) return found;
    // Every number is at most infinity.
    const int32_t node = new_node(b.feature, false, kInfinity);
    set_children(node, found, yes);
    ++*depth;
    return node;
  }

  // Missing values go the way of the largest ones, which are none of the members.
  int32_t search(int64_t feature, const std::vector<double>& bounds, const std::vector<int32_t>& results,
                 size_t begin, size_t end, int64_t* depth) {
    if (begin == end) {
      *depth = 0;
      return results[begin];
    }
    const size_t middle = begin + (end - begin) / 2;
    const int32_t node = new_node(feature, false, bounds[middle]);
    int64_t left = 0, right = 0;
    const int32_t less = search(feature, bounds, results, begin, middle, &left);
    const int32_t more = search(feature, bounds, results, middle + 1, end, &right);
    set_children(node, less, more);
    *depth = 1 + std::max(left, right);
    return node;
  }

  // ---- Leaves ----

  double identity() const {
    return forest_.aggregate == Aggregate::min   ? kInfinity
           : forest_.aggregate == Aggregate::max ? -kInfinity
                                                 : 0;
  }
  double combined(double a, double b) const {
    return forest_.aggregate == Aggregate::min   ? std::min(a, b)
           : forest_.aggregate == Aggregate::max ? std::max(a, b)
                                                 : a + b;
  }

  int32_t leaf(size_t index) {
    int32_t& known = leaves_[index];
    if (known != kUnseen) return known;
    known = new_leaf(forest_.leaves[index]);
    return known;
  }

  int32_t empty_leaf() {
    if (empty_ == kUnseen) empty_ = new_leaf({});
    return empty_;
  }

  int32_t new_leaf(const std::vector<Forest::Weight>& weights) {
    const int32_t node = new_node(0, false, 0);
    const auto width = static_cast<size_t>(t_.width);
    const size_t begin = t_.weights.size();
    t_.rows.back() = static_cast<int32_t>(begin / width);
    if (static_cast<int64_t>(begin + width) > kMostWeights) {
      fail(text("trees whose leaves have more than ", kMostWeights, " weights are not supported"));
      return node;
    }
    t_.weights.resize(begin + width, identity());
    std::vector<bool> has(width);
    for (const Forest::Weight& w : weights) {
      const size_t k = width == 1 ? 0 : static_cast<size_t>(w.target);
      t_.weights[begin + k] = has[k] ? combined(t_.weights[begin + k], w.value) : w.value;
      has[k] = true;
    }
    t_.has_gaps |= std::find(has.begin(), has.end(), false) != has.end();
    return node;
  }

  const Forest& forest_;
  TreeTables t_;
  std::vector<int32_t> branches_, leaves_;  // nodes of the tables
  std::vector<int64_t> depths_;
  int32_t empty_ = kUnseen;
  Diagnostics problems_;  // one at most
};

}  // namespace

Result<TreeTables> tables_of(const Forest& forest) { return TableBuilder(forest).build(); }

}  // namespace mcc::frontend
