// Products with few rows (a vector times a matrix): each element of the large operand is used so seldom that how it is
// read decides. It is read in its own order, in long runs that hardware prefetchers follow.
//
//   for columns (parallel):
//     init sums
//     for k in steps of several:
//       for vector: for k's rows, rows (unrolled): sum[row, vector] += a[row, k] * w[k, vector]
//
// The sums stand in the first-level cache. A transposed operand (keys, for the scores of one query) is read along the reduction, in
// vectors of partial sums, also where each batch item has its own:
//
//   for batch, columns (parallel):
//     for k in vectors: for columns, rows (unrolled): part[lane] += a[row, k] * w[column, k]; sum of lanes
#include <algorithm>

#include "tuner/rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr int64_t kMostRows = 4;

struct Streamed {
  int column = -1, reduce = -1;
  std::vector<int> rows, batch;
  size_t load = 0;
};

// y[batch, rows, column] += a[batch, rows, k] * w[batch, k, column], with nothing else that moves.
std::optional<Streamed> streamed_product(const BlockInfo& info) {
  if (!info.is_contraction || info.is_nested || info.loads.size() != 2) return std::nullopt;
  Streamed p;
  std::vector<int> others;
  for (size_t a = 0; a < info.axes.size(); ++a) {
    auto axis = static_cast<int>(a);
    if (info.axes[a].is_reduce) {
      if (p.reduce >= 0) return std::nullopt;
      p.reduce = axis;
    } else if (info.store.strides[a] == 1 && info.axes[a].extent > 1) {
      p.column = axis;
    } else {
      others.push_back(axis);
    }
  }
  if (p.column < 0 || p.reduce < 0) return std::nullopt;
  auto column = static_cast<size_t>(p.column), k = static_cast<size_t>(p.reduce);
  p.load = info.loads[0].strides[column] != 0 ? 0 : 1;
  const Access& moving = info.loads[p.load];
  const Access& still = info.loads[1 - p.load];
  if (moving.strides[column] == 0 || still.strides[column] != 0 || moving.strides[k] == 0)
    return std::nullopt;
  int64_t rows = 1;
  for (int a : others) {
    const bool has_own =
        moving.strides[static_cast<size_t>(a)] != 0 && info.axes[static_cast<size_t>(a)].extent > 1;
    (has_own ? p.batch : p.rows).push_back(a);
    if (!has_own) rows *= info.axes[static_cast<size_t>(a)].extent;
  }
  return rows <= kMostRows ? std::optional(p) : std::nullopt;
}

class StreamedProduct {
 public:
  StreamedProduct(Draft& draft, const BlockInfo& info, const Streamed& p)
      : d_(draft), info_(info), p_(p), t_(draft.target) {}

  bool run() {
    auto column = static_cast<size_t>(p_.column), k = static_cast<size_t>(p_.reduce);
    const Access& w = info_.loads[p_.load];
    const int64_t columns = info_.axes[column].extent, bytes = byte_size(w.buffer.element());
    for (int a : p_.rows)
      rows_ *= info_.axes[static_cast<size_t>(a)].extent;
    for (int a : p_.batch)
      batch_ *= info_.axes[static_cast<size_t>(a)].extent;
    us_ = static_cast<double>(count_of(w.buffer) * bytes) / (t_.l3.gb_per_s * 1e3);
    // What lies in the nearest caches may be read in any order.
    bool is_large = count_of(w.buffer) * bytes > t_.l1.bytes;
    if (w.strides[column] == 1 && w.runs[column] == columns && w.strides[k] >= columns) {
      bool is_spread = w.strides[k] * bytes >= 1024 && count_of(w.buffer) * bytes > t_.l2.bytes;
      return p_.batch.empty() && columns >= lanes() && ask(is_spread) && by_rows();
    }
    bool is_along =
        w.strides[k] == 1 && info_.loads[1 - p_.load].strides[k] <= 1 && info_.axes[k].extent >= lanes();
    return is_along && ask(is_large || rows_ == 1) && by_columns();
  }

 private:
  int64_t lanes() const { return t_.lanes(std::max(info_.element_bits, 32)); }
  bool ask(bool preferred) {
    return d_.decide.choose(info_.name + ".streamed", {0, 1}, preferred ? 1 : 0) != 0;
  }
  const std::string& loop(int a) const { return info_.axes[static_cast<size_t>(a)].loop; }

  bool by_rows() {
    const std::string& b = info_.name;
    int64_t vectors = (info_.axes[static_cast<size_t>(p_.column)].extent + lanes() - 1) / lanes();
    int64_t depth = info_.axes[static_cast<size_t>(p_.reduce)].extent;
    // Half of the nearest cache for the sums of a piece, and a piece at least for each core.
    int64_t most = std::max<int64_t>(1, t_.l1.bytes / 2 / (rows_ * t_.vector_bits / 8));
    bool parallel = choose_parallel(d_, b, us_);
    int64_t pieces =
        std::max<int64_t>((vectors + most - 1) / most, parallel ? std::min<int64_t>(t_.cores, vectors) : 1);
    std::vector<int64_t> options;
    for (int64_t n : {4, 8, 16}) {
      if (n == 4 || n * rows_ <= 16) options.push_back(n);
    }
    int64_t steps = std::min(depth, d_.decide.choose(b + ".steps", options, rows_ <= 2 ? 8 : 4));
    must_step(d_, Split{loop(p_.column),
                        {0, (vectors + pieces - 1) / pieces, lanes()},
                        {b + ".piece", b + ".vec", b + ".lane"}});
    must_step(d_, Split{loop(p_.reduce), {0, steps}, {b + ".k", b + ".step"}});
    std::vector<std::string> order{b + ".piece", b + ".k", b + ".vec", b + ".step"}, unrolled{b + ".step"};
    for (int a : p_.rows) {
      order.push_back(loop(a));
      unrolled.push_back(loop(a));
    }
    order.push_back(b + ".lane");
    must_step(d_, Reorder{order});
    if (parallel) try_step(d_, Parallel{b + ".piece"});
    must_step(d_, DecomposeReduction{b, b + ".k"});
    for (const std::string& l : unrolled)
      must_step(d_, Unroll{l});
    must_step(d_, Vectorize{b + ".lane"});
    try_step(d_, Vectorize{b + ".init.lane"});
    return true;
  }

  // Several columns at once, so that as many runs are read and the vectors of the few rows are loaded once for all.
  bool by_columns() {
    const std::string& b = info_.name;
    const std::string part = b + ".part", column = b + ".column", lane = b + ".lane";
    int64_t columns = info_.axes[static_cast<size_t>(p_.column)].extent;
    int64_t vectors = info_.axes[static_cast<size_t>(p_.reduce)].extent / lanes();
    std::vector<int64_t> groups, widths;
    for (int64_t n : {1, 2, 4, 8}) {
      if (n * rows_ <= 8 && n <= columns) groups.push_back(n);
      if (n <= std::min<int64_t>(4, vectors)) widths.push_back(n);
    }
    int64_t group =
        d_.decide.choose(b + ".columns", groups, std::min(groups.back(), std::max<int64_t>(1, 4 / rows_)));
    int64_t width = d_.decide.choose(b + ".width", widths, widths.size() > 1 && group * rows_ <= 4 ? 2 : 1);
    bool parallel = choose_parallel(d_, b, us_);
    int64_t turns = (columns + group - 1) / group;
    int64_t pieces = parallel ? std::min(ceil_div64(t_.cores, batch_), turns) : 1;
    must_step(d_, Split{loop(p_.column),
                        {0, (turns + pieces - 1) / pieces, group},
                        {b + ".piece", column, b + ".group"}});
    std::vector<std::string> outer, inner{b + ".vec", b + ".group"};
    for (int a : p_.batch)
      outer.push_back(loop(a));
    outer.push_back(b + ".piece");
    std::vector<std::string> order = outer;
    order.insert(order.end(), {column, b + ".group"});
    for (int a : p_.rows) {
      order.push_back(loop(a));
      inner.push_back(loop(a));
    }
    order.push_back(loop(p_.reduce));
    inner.push_back(lane);
    must_step(d_, Reorder{order});
    if (outer.size() > 1) {
      must_step(d_, Fuse{outer, b + ".outer"});
      outer = {b + ".outer"};
    }
    if (parallel) try_step(d_, Parallel{outer[0]});
    must_step(d_, Split{loop(p_.reduce), {0, width * lanes()}, {b + ".vec", lane}});
    must_step(d_, Rfactor{b, lane, part, static_cast<int64_t>(info_.store.buffer.rank())});
    must_step(d_, Reorder{inner});
    if (!d_.refusal) return true;
    // Where one turn takes the whole of k, there is nothing to add to.
    const bool has_turns = d_.schedule.find_block(part)->init.defined();
    if (has_turns) must_step(d_, DecomposeReduction{part, b + ".vec"});
    must_step(d_, ReverseComputeAt{b, column});
    if (!d_.refusal) return true;
    must_step(d_, SetScope{d_.schedule.find_block(part)->writes[0].buffer.name(), "registers"});
    must_step(d_, DecomposeReduction{b, inside(b, column).back()});
    if (has_turns) vectorize_inside(part + ".init", column);
    vectorize_inside(part, b + ".vec");
    vectorize_inside(b, column);
    return true;
  }

  // The loops of a block inside of another loop.
  std::vector<std::string> inside(const std::string& block, const std::string& outer) const {
    std::vector<std::string> loops = d_.schedule.loop_names_of(block);
    return {std::find(loops.begin(), loops.end(), outer) + 1, loops.end()};
  }
  void vectorize_inside(const std::string& block, const std::string& outer) {
    std::vector<std::string> loops = inside(block, outer);
    try_step(d_, Vectorize{loops.back()});
    loops.pop_back();
    for (const std::string& l : loops)
      try_step(d_, Unroll{l});
  }

  Draft& d_;
  BlockInfo info_;
  Streamed p_;
  const Target& t_;
  int64_t rows_ = 1, batch_ = 1;
  double us_ = 0;
};

}  // namespace

bool schedule_streamed_product(Draft& draft, const std::string& block) {
  std::optional<BlockInfo> info = analyze(draft.schedule, block);
  if (!info || info->iterations() == 0) return false;
  std::optional<Streamed> p = streamed_product(*info);
  const RuleScope scope(draft, {"products of few rows", block});
  return p && StreamedProduct(draft, *info, *p).run();
}

}  // namespace mcc::tuner
