#include "frontend/ml/forest.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "graph/ops/tree_words.h"

namespace mcc::frontend {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr int kDeepest = 4096;
constexpr size_t kMostNodes = size_t{1} << 28;  // places fit 32 bits
constexpr int64_t kMostWeights = int64_t{1} << 28;
constexpr int32_t kUnseen = -1, kOpen = -2;
using graph::kWords;

Diagnostic unsupported(std::string message) { return {ErrorKind::unsupported, "", std::move(message), ""}; }

// A node of the tables before it has its place there. Several may lead to one.
struct Question {
  int64_t feature = 0;
  bool missing_is_yes = false;
  double threshold = 0;
  int32_t yes = kUnseen, no = kUnseen;  // none of a leaf
  int64_t row = 0;
  int64_t place = kUnseen;
};

class TableBuilder {
 public:
  explicit TableBuilder(const Forest& forest)
      : forest_(forest), branches_(forest.branches.size(), kUnseen), leaves_(forest.leaves.size(), kUnseen) {}

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
    int64_t most = 0, groups = 0;
    for (const auto& of_target : trees) {
      most = std::max(most, static_cast<int64_t>(of_target.size()));
      t_.results.push_back(of_target.empty() ? -1 : groups++);
    }
    is_sorted = is_sorted && most * groups <= 2 * count + groups;
    if (is_sorted) {
      std::erase_if(trees, [](const auto& of_target) { return of_target.empty(); });
    } else {
      trees.assign(1, {});
      for (size_t i = 0; i < forest_.roots.size(); ++i)
        trees[0].push_back(i);
    }
    if (!is_sorted || groups == targets) t_.results.clear();
    t_.groups = static_cast<int64_t>(trees.size());
    t_.trees = is_sorted ? most : count;
    t_.width = is_sorted ? 1 : targets;
    std::vector<int64_t> deepest(
        static_cast<size_t>(t_.trees));  // of the trees in the same place of their groups
    for (const auto& group : trees)
      add_group(group, deepest);
    new_places(1);  // no place is the last one, behind which there is none for no
    divide(deepest);
  }

  // The shallow trees first. Where a group has fewer trees than others it begins with empty ones.
  void add_group(const std::vector<size_t>& trees, std::vector<int64_t>& deepest) {
    struct Tree {
      int64_t root = 0, depth = 0;
    };
    std::vector<Tree> group;
    for (size_t tree : trees) {
      const int32_t node = node_of(forest_.roots[tree], 0);
      if (!problems_.empty()) return;
      const int64_t root = place(node);
      group.push_back({root, steps_at(root)});
    }
    while (group.size() < deepest.size())
      group.push_back({place(empty_leaf()), 0});
    std::stable_sort(group.begin(), group.end(),
                     [](const Tree& a, const Tree& b) { return a.depth < b.depth; });
    for (size_t k = 0; k < group.size(); ++k) {
      t_.roots.push_back(static_cast<int32_t>(group[k].root));
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
    if (questions_.size() >= kMostNodes) {
      fail(text("trees of more than ", kMostNodes, " nodes are not supported"));
      return 0;
    }
    questions_.push_back({feature, missing_is_yes, threshold});
    return static_cast<int32_t>(questions_.size()) - 1;
  }

  void set_children(int32_t node, int32_t yes, int32_t no) {
    questions_[static_cast<size_t>(node)].yes = yes;
    questions_[static_cast<size_t>(node)].no = no;
  }

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
    if (is_set) return members(b, yes, no);
    set_children(node, yes, no);
    return node;
  }

  // Between the bounds below(v) and v, for each member v, the answer is yes: a search among them.
  int32_t members(const Forest::Branch& b, int32_t yes, int32_t no) {
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
    const int32_t found = search(b.feature, bounds, results, 0, bounds.size());
    if (!b.missing_is_yes) return found;
    // Every number is at most infinity.
    const int32_t node = new_node(b.feature, false, kInfinity);
    set_children(node, found, yes);
    return node;
  }

  // Missing values go the way of the largest ones, which are none of the members.
  int32_t search(int64_t feature, const std::vector<double>& bounds, const std::vector<int32_t>& results,
                 size_t begin, size_t end) {
    if (begin == end) return results[begin];
    const size_t middle = begin + (end - begin) / 2;
    const int32_t node = new_node(feature, false, bounds[middle]);
    const int32_t less = search(feature, bounds, results, begin, middle);
    const int32_t more = search(feature, bounds, results, middle + 1, end);
    set_children(node, less, more);
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
    questions_.back().row = static_cast<int64_t>(begin / width);
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

  // ---- Places ----

  int64_t new_places(int64_t nodes) {
    const auto begin = static_cast<int64_t>(t_.nodes.size());
    if (begin / kWords + nodes > static_cast<int64_t>(kMostNodes)) {
      fail(text("trees of more than ", kMostNodes, " nodes are not supported"));
      return 0;
    }
    t_.nodes.resize(static_cast<size_t>(begin + nodes * kWords));
    steps_.resize(steps_.size() + static_cast<size_t>(nodes));
    if (forest_.element == ElementType::f64) t_.thresholds.resize(steps_.size());
    return begin;
  }

  void set_words(int64_t place, double threshold, int64_t feature, int64_t yes, int64_t row) {
    const bool is_wide = forest_.element == ElementType::f64;
    const int32_t bits = is_wide ? 0 : std::bit_cast<int32_t>(static_cast<float>(threshold));
    const auto set = [&](int word, int64_t value) {
      t_.nodes[static_cast<size_t>(place + word)] = static_cast<int32_t>(value);
    };
    set(graph::kThreshold, bits);
    set(graph::kFeature, feature);
    set(graph::kYes, yes);
    set(graph::kRow, row);
    if (is_wide) t_.thresholds[static_cast<size_t>(place / kWords)] = threshold;
  }
  // What every number is at most, as a missing one is.
  void set_always(int64_t place, int64_t yes, int64_t row) { set_words(place, kInfinity, 1, yes, row); }

  int64_t& steps_at(int64_t place) { return steps_[static_cast<size_t>(place / kWords)]; }

  int64_t place(int32_t node) {
    const Question& q = questions_[static_cast<size_t>(node)];
    if (q.place == kUnseen) fill(new_places(1), node);
    return q.place;
  }

  // Nodes below a node stand side by side: one that has its place already, below another, is led to from there; leaves are there again.
  void fill(int64_t at, int32_t node) {
    Question& q = questions_[static_cast<size_t>(node)];
    const bool is_leaf = q.yes == kUnseen, is_known = q.place != kUnseen;
    if (!problems_.empty()) return;
    if (!is_known) q.place = at;
    if (is_leaf) {
      set_always(at, at, q.row);
    } else if (is_known) {
      set_always(at, q.place, 0);
      steps_at(at) = 1 + steps_at(q.place);
    } else {
      const int64_t yes = new_places(2), no = yes + kWords;
      set_words(at, q.threshold, 2 * q.feature + (q.missing_is_yes ? 1 : 0), yes, 0);
      fill(yes, q.yes);
      fill(no, q.no);
      steps_at(at) = 1 + std::max(steps_at(yes), steps_at(no));
    }
  }

  const Forest& forest_;
  TreeTables t_;
  std::vector<Question> questions_;
  std::vector<int32_t> branches_, leaves_;  // nodes by what they are of the forest
  std::vector<int64_t> steps_;              // from each place down
  int32_t empty_ = kUnseen;
  Diagnostics problems_;  // one at most
};

}  // namespace

Result<TreeTables> tables_of(const Forest& forest) { return TableBuilder(forest).build(); }

}  // namespace mcc::frontend
