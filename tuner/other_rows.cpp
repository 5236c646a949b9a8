#include "tuner/other_rows.h"

#include <algorithm>

#include "tensor/schedule/weight_order.h"
#include "tensor/simplify.h"
#include "tensor/sizes.h"
#include "tensor/text.h"
#include "tensor/visit.h"
#include "tuner/grid_product.h"
#include "tuner/rules.h"
#include "tuner/symbolic_schedule.h"
#include "tuner/tile_parts.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

// Numbers of rows that are scheduled alike: up to these, and more than the last. A single one is scheduled as two are, of which loops are
// left.
constexpr int64_t kBorders[] = {1, 8, 256};
constexpr int64_t kFewest = 2;
constexpr size_t kKinds = std::size(kBorders) + 1;
constexpr int64_t kShortSum = 512;
constexpr int64_t kManyOfEach = 1 << 12;    // of a dimension without a bound
constexpr int64_t kLeastWeights = 1 << 16;  // elements: of fewer a launch takes longer than to read them

// The loops of the function's only product, or of the longest of its other reductions, as far as they are of its rows, and of its sum.
struct Loops {
  std::string block;
  std::vector<std::string> rows, sum;
  bool is_product = false, are_others_open = false, has_batches = false;
  bool unpacks_weights = false, sums_integers = false;
  int64_t weights = 1;  // elements of the operand that all rows of a product share
};

// Whether a block writes real numbers that are made of weights of fewer bits.
bool has_unpacked_weights(const Schedule& s) {
  const std::vector<std::string> names = s.block_names();
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const std::optional<BlockInfo> info = analyze(s, name);
    return info && is_float(info->store.buffer.element()) && is_made_of_weights(s.func(), *info) &&
           !info->loads.empty() && !is_float(info->loads[0].buffer.element());
  });
}

std::optional<Loops> loops_of(const Func& f, const std::vector<int64_t>& sizes, const Target& target) {
  PreferredDecider decide;
  Draft draft{Schedule(with_sizes(f, sizes)), decide, target};
  const bool unpacks_weights = has_unpacked_weights(draft.schedule);
  inline_producers(draft);
  inline_for_grid(draft);
  std::optional<Product> product;
  std::optional<BlockInfo> info;
  for (const std::string& name : draft.schedule.block_names()) {
    const std::optional<BlockInfo> found = analyze(draft.schedule, name);
    if (!found || !found->is_reduction) continue;
    if (info && info->is_contraction && found->is_contraction) return std::nullopt;
    const bool is_longer =
        !info || (found->is_contraction == info->is_contraction && found->reduce > info->reduce);
    if (!found->is_contraction && !is_longer) continue;
    info = found;
  }
  if (!info) return std::nullopt;
  if (info->is_contraction) product = as_product(draft.schedule, info->name);
  if (info->is_contraction != product.has_value()) return std::nullopt;
  Loops out;
  out.block = info->name;
  out.is_product = product.has_value();
  out.unpacks_weights = unpacks_weights;
  out.sums_integers = !is_float(info->store.buffer.element());
  out.has_batches = product && !product->g.is_empty();
  out.weights = product ? product->j.extent * product->k.extent : 0;
  const std::set<std::string> open = loops_without_extent(f);
  for (size_t n = 0; n < info->axes.size(); ++n) {
    auto is_of = [&](const Side& side) {
      return std::find(side.axes.begin(), side.axes.end(), n) != side.axes.end();
    };
    const std::string& loop = info->axes[n].loop;
    const bool is_row = product ? is_of(product->i) : !info->axes[n].is_reduce;
    if (is_row) out.rows.push_back(loop);
    if (info->axes[n].is_reduce) out.sum.push_back(loop);
    out.are_others_open |= !is_row && !info->axes[n].is_reduce && open.count(loop) != 0;
  }
  return out;
}

// A number that depends on the function's dimensions: iterations of some of its loops.
class Count {
 public:
  Count(const Func& f, const std::vector<std::string>& loops) : f_(f) {
    const Schedule unscheduled(f);
    for (const std::string& loop : loops)
      value_ = value_ * unscheduled.find_loop(loop)->extent;
    value_ = simplify(value_);
  }
  const Expr& value() const { return value_; }
  bool is_open() const { return !value_.as<IntImm>(); }
  bool uses(size_t dim) const { return uses_var(value_, f_.dims[dim]); }
  int64_t at(const std::vector<int64_t>& sizes) const {
    VarMap values;
    for (size_t i = 0; i < f_.dims.size(); ++i)
      values.emplace(f_.dims[i].get(), Expr(sizes[i]));
    int64_t value = 0;
    return as_int(simplify(substitute(value_, values)), &value) ? value : kUnknown;
  }
  // The given sizes, but for those of the dimensions that it depends on.
  std::vector<int64_t> with(std::vector<int64_t> sizes, int64_t each, int64_t last) const {
    size_t behind = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (!uses(i)) continue;
      sizes[i] = each;
      behind = i;
    }
    if (is_open()) sizes[behind] = last;
    return sizes;
  }

  static constexpr int64_t kUnknown = int64_t{1} << 60;

 private:
  const Func& f_;
  Expr value_ = 1;
};

constexpr int64_t kAnyNumber = int64_t{1} << 61;

// Runs that are scheduled alike, by their rows and what else holds, and sizes that stand for them: prime numbers, so that nothing is cut
// evenly which only happens to be divisible there.
struct Regime {
  int64_t above = 0, up_to = kAnyNumber;  // rows
  Expr beside;
  std::vector<int64_t> sizes;
  Point answers = {};  // to questions of the rules
};

class Regimes {
 public:
  Regimes(const Func& f, const std::vector<SizeRange>& ranges, const std::vector<int64_t>& typical,
          const Loops& loops, bool is_gpu)
      : facts_(size_facts(f)), typical_(typical), rows_(f, loops.rows), sum_(f, loops.sum) {
    for (const SizeRange& range : ranges) {
      fewest_.push_back(range.min);
      most_.push_back(range.has_bound() ? range.max : std::max(range.typical, kManyOfEach));
    }
    constexpr int64_t kMostRowsOfSums = 64, kMostRowsOfReductions = 256;
    constexpr size_t kFewRows = 1;
    // Without weights that all rows share few rows alone are another case: queries, each with keys of its own.
    const bool has_weights = !loops.has_batches && !loops.are_others_open && !sum_.is_open();
    if (!is_gpu) {
      // Weights are in the order of one schedule. Of tiles for many queries one alone would be a row; weights that tiles share are unpacked
      // for them.
      if (!loops.is_product || !rows_.is_open()) return;
      if (!has_weights || loops.unpacks_weights) {
        add_single();
      } else if (!loops.sums_integers) {
        add_many(loops.block);
      }
      return;
    }
    if (sum_.is_open()) add_long_sums(loops.is_product ? kMostRowsOfSums : kMostRowsOfReductions);
    if (!loops.is_product || !rows_.is_open()) return;
    const Expr beside = list_.empty() ? true_value() : sum_.value() <= Expr(kShortSum);
    if (!has_weights || loops.weights >= kLeastWeights)
      add_by_rows(has_weights ? 0 : kFewRows, has_weights ? kKinds - 1 : kFewRows, beside);
  }

  const std::vector<Regime>& list() const { return list_; }

  Expr condition(const Regime& r) const {
    const Expr least = r.above > 0 ? rows_.value() > Expr(r.above) : true_value();
    const Expr most = r.up_to < kAnyNumber ? rows_.value() <= Expr(r.up_to) : true_value();
    return facts_.simplify(least && most && r.beside);
  }

  // Makes both one; false where they are not neighbours.
  static bool join(Regime& a, const Regime& b) {
    if (a.up_to != b.above || !structurally_equal(a.beside, b.beside)) return false;
    a.up_to = b.up_to;
    return true;
  }

 private:
  // By numbers of rows, other than the typical one, of these kinds: the first has those of the kinds before it, too.
  void add_by_rows(size_t first_kind, size_t last_kind, const Expr& beside) {
    const size_t typical = kind(rows_.at(typical_));
    const size_t most = std::min(kind(rows_.at(most_)), last_kind);
    for (size_t k = std::max(kind(rows_.at(fewest_)), first_kind); k <= most; ++k) {
      const bool is_typical = k == typical || (k == first_kind && typical < k);
      std::optional<std::vector<int64_t>> sizes = is_typical ? std::nullopt : sizes_of(k);
      if (sizes)
        list_.push_back({k == first_kind ? 0 : kBorders[k - 1], k == kKinds - 1 ? kAnyNumber : kBorders[k],
                         beside, std::move(*sizes)});
    }
  }

  // One row, or what shares its operand with it.
  void add_single() {
    const std::vector<int64_t> sizes = rows_.with(typical_, 1, 1);
    const int64_t single = rows_.at(sizes);
    if (rows_.at(fewest_) <= single && single < rows_.at(typical_))
      list_.push_back({0, single, true_value(), sizes});
  }

  // Of a large batch, where tiles are for the few rows of a typical one, and would each read the weights again. (512 rows of 2816 x 1024 on a
  // Zen 3: 38.9 ms in tiles of 2 x 4 vectors, 30.3 in those of 6 x 2; 12 rows 0.89 and 0.69.) How large it is nobody knows, so that sums stay
  // whole: parts of them would take several times the memory of the results. Bytes take a quarter of the weights' reads: 33 rows were slower.
  void add_many(const std::string& block) {
    constexpr int64_t kFew = kBorders[1], kMany = 127;
    const std::vector<int64_t> sizes = rows_.with(typical_, 1, kMany);
    if (rows_.at(typical_) <= kFew && rows_.at(most_) > kFew && rows_.at(sizes) > kFew)
      list_.push_back({kFew, kAnyNumber, true_value(), sizes, {{block + ".parts", {1}}}});
  }

  // Long sums of few rows (a step of a language model over all words before it): a few blocks, or threads, would have all of them.
  void add_long_sums(int64_t most_rows) {
    constexpr int64_t kLong = 2039;
    const std::vector<int64_t> sizes = sum_.with(rows_.with(typical_, kFewest, kFewest), kFewest, kLong);
    const bool may_be = rows_.at(fewest_) <= most_rows && sum_.at(most_) > kShortSum;
    const bool are_typical = rows_.at(typical_) <= most_rows && sum_.at(typical_) > kShortSum;
    if (may_be && !are_typical && rows_.at(sizes) <= most_rows && sum_.at(sizes) > kShortSum)
      list_.push_back({0, most_rows, sum_.value() > Expr(kShortSum), sizes});
  }

  static size_t kind(int64_t rows) {
    return static_cast<size_t>(std::lower_bound(std::begin(kBorders), std::end(kBorders), rows) -
                               std::begin(kBorders));
  }

  std::optional<std::vector<int64_t>> sizes_of(size_t k) const {
    // The last dimension is the long one, as there are batches of sequences.
    constexpr int64_t kLast[] = {1021, 127, 61, 7, 5, 3, 2};
    for (int64_t each : {2, 1}) {
      for (int64_t last : kLast) {
        const std::vector<int64_t> sizes = rows_.with(typical_, each, last);
        const int64_t count = rows_.at(sizes);
        if (k == 0 ? count == kFewest : kind(count) == k && count < Count::kUnknown) return sizes;
      }
    }
    return std::nullopt;
  }

  const Analyzer facts_;
  const std::vector<int64_t> typical_;
  const Count rows_, sum_;
  std::vector<int64_t> fewest_, most_;
  std::vector<Regime> list_;
};

// The schedule for such runs, where it is possible for all and another than those that there are.
std::optional<DefaultSchedule> schedule_for(const Func& f, const Regime& regime, const Target& target,
                                            const Schedule& known) {
  DefaultSchedule made = default_schedule_of_instance(f, regime.sizes, target, regime.answers);
  Schedule schedule(f);
  if (made.is_plain || !replay_for_all_sizes(schedule, f, made.schedule.trace(), target)) return std::nullopt;
  made.schedule = std::move(schedule);
  const bool is_other = to_text(made.schedule.trace()) != to_text(known.trace()) &&
                        weight_orders(f, made.schedule.trace()).empty();
  return is_other ? std::optional(std::move(made)) : std::nullopt;
}

}  // namespace

std::vector<OtherRows> schedule_other_rows(const Func& f, const Target& target, const Schedule& known,
                                           const std::vector<int64_t>& sizes) {
  const std::optional<std::vector<SizeRange>> ranges = sizes_of(f);
  // All read the weights where they are.
  if (f.dims.empty() || !ranges || !weight_orders(f, known.trace()).empty()) return {};
  const bool is_for_sizes =
      sizes.size() == f.dims.size() && to_text(default_schedule(f, target).trace()) != to_text(known.trace());
  const std::vector<int64_t> typical = is_for_sizes ? sizes : sizes_to_schedule(f);
  const std::optional<Loops> loops = loops_of(f, typical, target);
  if (!loops) return {};
  const Regimes regimes(f, *ranges, typical, *loops, target.kind == TargetKind::cuda);
  std::vector<OtherRows> others;
  std::vector<Regime> taken;
  for (const Regime& regime : regimes.list()) {
    std::optional<DefaultSchedule> made = schedule_for(f, regime, target, known);
    if (!made) continue;
    const bool is_known =
        !others.empty() && to_text(others.back().made.schedule.trace()) == to_text(made->schedule.trace());
    if (is_known && Regimes::join(taken.back(), regime)) {
      others.back().condition = regimes.condition(taken.back());
    } else {
      taken.push_back(regime);
      others.push_back({regimes.condition(regime), std::move(*made)});
    }
  }
  return others;
}

}  // namespace mcc::tuner
