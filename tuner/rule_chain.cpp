// Two contractions with rows between them, where the second reads what is made of the first along its reduction
// (attention: scores, softmax, product with the values).
//
//   for batch (parallel):
//     copies of the operands (keys, values)
//     for row block:
//       for panel: first contraction in registers; its consumer (scale, mask) where the tile is written
//       for row: what stands between, in vectors along the row (maximum, exponential, sum)
//       for panel: second contraction in registers; its consumer (1 / sum) where the tile is written
//
// What the row block makes between the contractions (a few rows by all columns) stays in the first-level cache.
#include <algorithm>
#include <cmath>

#include "support/text.h"
#include "tuner/chain_parts.h"
#include "tuner/rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

bool reads(const BlockInfo& info, const Buffer& buffer) {
  return std::any_of(info.loads.begin(), info.loads.end(),
                     [&](const Access& l) { return l.buffer.same_as(buffer); });
}

bool has_axis(const BlockInfo& info, size_t a, int64_t extent, bool is_reduce) {
  return a < info.axes.size() && info.axes[a].extent == extent && info.axes[a].is_reduce == is_reduce;
}

class Chain {
 public:
  explicit Chain(Draft& draft) : d_(draft), s_(draft.schedule), t_(draft.target) {}

  // Whether the function has this form; changes nothing.
  bool find() {
    for (const std::string& name : s_.block_names()) {
      std::optional<BlockInfo> info = analyze(s_, name);
      if (!info || info->iterations() == 0) return false;
      blocks_.push_back(*info);
    }
    std::vector<size_t> contractions;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (blocks_[i].is_contraction) contractions.push_back(i);
    }
    if (contractions.size() != 2) return false;
    first_ = contractions[0], second_ = contractions[1];
    return find_axes() && find_between() && find_root();
  }

  const std::string& block() const { return second().name; }

  void schedule() {
    choose_tile();
    tile_second();
    if (consumer_.empty()) add_copy();
    for (size_t i = between_.size(); i-- > 0;)
      must_step(d_, ComputeAt{between_[i], chunk_});
    must_step(d_, ComputeAt{consumer_, chunk_});
    must_step(d_, ComputeAt{first().name, chunk_});
    tile_first();
    place_rows_between(d_, blocks_, between_, lead_, row_, chunk_);
    place_copies();
  }

 private:
  const BlockInfo& first() const { return blocks_[first_]; }
  const BlockInfo& second() const { return blocks_[second_]; }
  const BlockInfo& info_of(const std::string& name) const {
    return *std::find_if(blocks_.begin(), blocks_.end(), [&](const BlockInfo& b) { return b.name == name; });
  }

  // first: [batch..., row, column | depth...], second: [batch..., row, ... | column].
  bool find_axes() {
    const BlockInfo &a = first(), &b = second();
    if (a.axes.size() < 3 || b.axes.size() < 3 || b.axes.size() < 1) return false;
    size_t spatial_a = 0, spatial_b = 0;
    while (spatial_a < a.axes.size() && !a.axes[spatial_a].is_reduce)
      ++spatial_a;
    while (spatial_b < b.axes.size() && !b.axes[spatial_b].is_reduce)
      ++spatial_b;
    if (spatial_a < 2 || spatial_a != spatial_b || b.axes.size() != spatial_b + 1 ||
        a.axes.size() != spatial_a + 1)
      return false;
    row_ = spatial_a - 2, column_ = spatial_a - 1;
    for (size_t i = 0; i <= row_; ++i) {
      if (a.axes[i].extent != b.axes[i].extent) return false;
    }
    columns_ = a.axes[column_].extent;
    bool contiguous = a.store.strides[column_] == 1 && b.store.strides[column_] == 1;
    for (const BlockInfo* c : {&a, &b}) {
      bool has_vector = false;
      for (const Access& l : c->loads) {
        contiguous &= l.strides[column_] <= 1;
        has_vector |= l.strides[column_] == 1;
      }
      contiguous &= has_vector;
    }
    return contiguous && b.axes.back().extent == columns_;
  }

  bool same_rows(const BlockInfo& info) const {
    for (size_t i = 0; i <= row_; ++i) {
      if (!has_axis(info, i, first().axes[i].extent, false)) return false;
    }
    return true;
  }

  // Everything that depends on the first contraction, up to the second: the one consumer that takes the tiles over, and
  // blocks about whole rows. What does not depend on it copies operands.
  bool find_between() {
    std::vector<Buffer> made{first().store.buffer};
    auto depends = [&](const BlockInfo& b) {
      return std::any_of(made.begin(), made.end(), [&](const Buffer& m) { return reads(b, m); });
    };
    std::vector<size_t> dependent;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (i == first_) continue;
      if (!depends(blocks_[i])) {
        bool feeds = reads(first(), blocks_[i].store.buffer) || reads(second(), blocks_[i].store.buffer);
        if (!blocks_[i].is_injective || !blocks_[i].is_movement || !feeds) return false;
        copies_.push_back(blocks_[i].name);
        continue;
      }
      made.push_back(blocks_[i].store.buffer);
      if (i != second_ && i + 1 != blocks_.size()) dependent.push_back(i);
    }
    std::vector<std::string> consumers = s_.consumers(first().name);
    if (consumers.size() == 1 && info_of(consumers[0]).is_injective &&
        info_of(consumers[0]).spatial == first().spatial) {
      consumer_ = consumers[0];
    }
    for (size_t i : dependent) {
      const BlockInfo& b = blocks_[i];
      if (!same_rows(b)) return false;
      size_t last = b.axes.size() - 1;
      bool is_whole =
          last == row_ + 1 && b.axes[last].extent == columns_ && (b.is_reduction || b.axes[last].extent > 1);
      bool is_scalar = last == row_ && !b.is_reduction;
      if (!is_whole && !is_scalar) return false;
      if (is_whole) {
        for (const Access& l : b.loads) {
          if (l.strides[last] > 1 && b.is_reduction) return false;
        }
      }
      if (reads(second(), b.store.buffer)) lead_ = b.name;
      if (b.name != consumer_) between_.push_back(b.name);
    }
    return !lead_.empty() && lead_ != consumer_ && info_of(lead_).is_injective;
  }

  // The last block writes the result of the second contraction, one to one.
  bool find_root() {
    const BlockInfo& root = blocks_.back();
    root_ = root.name;
    return blocks_.size() - 1 != second_ && root.is_injective && root.spatial == second().spatial &&
           s_.consumers(second().name) == std::vector<std::string>{root_} &&
           is_output(s_.func(), root.store.buffer);
  }

  // Cycles of one reduction step of a tile.
  double step_cycles(int64_t rows) const {
    double fma = static_cast<double>(rows * vectors_) / t_.fma_ports,
           loads = static_cast<double>(rows + vectors_) / 2;
    return std::max({fma, loads, static_cast<double>(t_.fma_latency)}) + 1;
  }

  void choose_tile() {
    lanes_ = t_.lanes(32);
    int64_t rows = first().axes[row_].extent,
            registers = t_.vector_registers - (t_.vector_registers >= 32 ? 2 : 1);
    int64_t widest =
        std::max(ceil_div64(columns_, lanes_), ceil_div64(second().axes[column_].extent, lanes_));
    std::vector<int64_t> widths{1};
    if (widest >= 2) widths.push_back(2);
    if (widest >= 4) widths.push_back(4);
    vectors_ = d_.decide.choose(second().name + ".vectors", widths, widest >= 2 ? 2 : 1);
    std::vector<int64_t> heights;
    int64_t best = 1;
    double best_cycles = 0;
    for (int64_t r = 1; r <= std::min<int64_t>(rows, 16) && r * vectors_ + vectors_ <= registers; ++r) {
      // Spread evenly over the tiles that this many at most make.
      int64_t tiles = ceil_div64(rows, r);
      if (ceil_div64(rows, tiles) != r) continue;
      heights.push_back(r);
      int64_t tail = rows - (tiles - 1) * r;
      double cycles = static_cast<double>(tiles - 1) * step_cycles(r) + step_cycles(tail);
      // Rows between the contractions should stay in the first-level cache.
      if (r * columns_ * 8 > t_.l1.bytes / 2 && heights.size() > 1) cycles *= 1.2;
      if (heights.size() == 1 || cycles < best_cycles) best = r, best_cycles = cycles;
    }
    rows_ = d_.decide.choose(second().name + ".rows", heights, best);
    double cycles = 0;
    for (const BlockInfo& b : blocks_) {
      cycles +=
          static_cast<double>(b.iterations()) / static_cast<double>(lanes_) * (b.has_math_call ? 12 : 1);
    }
    us_ = cycles / (t_.ghz * 1e3);
  }

  // Splits the vector axis of a tile; gives the loops that are unrolled, the vector last.
  std::vector<std::string> split_vectors(const std::string& block, const std::string& loop, int64_t extent,
                                         std::string* panel) {
    if (extent <= lanes_) return {loop};
    int64_t vectors = std::min(vectors_, ceil_div64(extent, lanes_));
    *panel = block + ".panel";
    must_step(d_, Split{loop, {0, vectors, lanes_}, {*panel, block + ".vecs", block + ".lane"}});
    return {block + ".vecs", block + ".lane"};
  }

  void finish_tile(const std::string& block, const std::string& reduce,
                   const std::vector<std::string>& unrolled, const std::string& write_back,
                   const std::string& tile_loop) {
    must_step(d_, DecomposeReduction{block, reduce});
    must_step(d_, Vectorize{unrolled.back()});
    for (size_t i = 0; i + 1 < unrolled.size(); ++i)
      must_step(d_, Unroll{unrolled[i]});
    vectorize_below(block + ".init", tile_loop);
    vectorize_below(write_back, tile_loop);
  }

  // The loops of a block below one: the last in vectors, the others unrolled.
  void vectorize_below(const std::string& block, const std::string& loop) {
    std::vector<std::string> loops = s_.loop_names_of(block);
    auto at = std::find(loops.begin(), loops.end(), loop);
    if (at == loops.end()) return;
    loops.erase(loops.begin(), at + 1);
    if (loops.empty()) return;
    int64_t extent = 0;
    if (!as_int(s_.find_loop(loops.back())->extent, &extent)) return;
    std::string vector = loops.back();
    loops.pop_back();
    if (extent > lanes_) {
      if (!try_step(d_, Split{vector, {0, lanes_}, {vector + ".vec", vector + ".lane"}})) return;
      loops.push_back(vector + ".vec");
      vector += ".lane";
    }
    if (!try_step(d_, Vectorize{vector})) return;
    for (const std::string& l : loops)
      try_step(d_, Unroll{l});
  }

  void tile_second() {
    const BlockInfo& b = second();
    std::vector<std::string> batch;
    int64_t batches = 1;
    for (size_t i = 0; i < row_; ++i) {
      batch.push_back(b.axes[i].loop);
      batches *= b.axes[i].extent;
    }
    chunk_ = b.name + ".chunk";
    std::string row = b.name + ".row", panel;
    must_step(d_, Split{b.axes[row_].loop, {0, rows_}, {chunk_, row}});
    std::vector<std::string> unrolled =
        split_vectors(b.name, b.axes[column_].loop, b.axes[column_].extent, &panel);
    const std::string& reduce = b.axes.back().loop;
    std::vector<std::string> order = batch;
    order.push_back(chunk_);
    if (!panel.empty()) order.push_back(panel);
    order.push_back(reduce);
    unrolled.insert(unrolled.begin(), row);
    order.insert(order.end(), unrolled.begin(), unrolled.end());
    must_step(d_, Reorder{order});
    const ChainLoops loops = share_out(d_, b.name, batch, batches, chunk_, us_);
    batch_ = loops.batch, chunk_ = loops.chunk;
    std::string tile_loop = panel.empty() ? chunk_ : panel;
    must_step(d_, ReverseComputeAt{root_, tile_loop});
    must_step(d_, SetScope{b.store.buffer.name(), "registers"});
    finish_tile(b.name, reduce, unrolled, root_, tile_loop);
  }

  void add_copy() {
    consumer_ = first().name + ".out";
    must_step(d_, CacheWrite{first().name, first().store.buffer.name(), "global", consumer_});
  }

  void tile_first() {
    const BlockInfo& b = first();
    const std::string &row = b.axes[row_].loop, &reduce = b.axes.back().loop;
    std::string panel;
    std::vector<std::string> unrolled = split_vectors(b.name, b.axes[column_].loop, columns_, &panel), order;
    if (!panel.empty()) order.push_back(panel);
    order.push_back(reduce);
    if (s_.find_loop(row) != nullptr) unrolled.insert(unrolled.begin(), row);
    order.insert(order.end(), unrolled.begin(), unrolled.end());
    must_step(d_, Reorder{order});
    std::string tile_loop = panel.empty() ? chunk_ : panel;
    if (!panel.empty()) must_step(d_, ReverseComputeAt{consumer_, panel});
    if (!d_.refusal) return;
    const Block* block = s_.find_block(b.name);
    must_step(d_, SetScope{block->writes[0].buffer.name(), "registers"});
    finish_tile(b.name, reduce, unrolled, consumer_, tile_loop);
  }

  void place_copies() {
    for (const std::string& name : copies_) {
      make_panels(info_of(name));
      if (batch_.empty()) {
        schedule_pointwise(d_, name);
        continue;
      }
      if (!try_step(d_, ComputeAt{name, batch_}) || !tile_transposition(d_, info_of(name)).empty()) continue;
      vectorize_row_map(d_, name, batch_);
    }
  }

  // A copy lies as the tiles read it: panels as wide as a tile, each in one piece.
  void make_panels(const BlockInfo& copy) {
    size_t rank = copy.axes.size();
    int64_t width = vectors_ * lanes_;
    if (rank < 2 || copy.axes.back().extent <= width || copy.store.buffer.rank() != static_cast<int>(rank))
      return;
    std::string from, to;
    for (size_t i = 0; i < rank; ++i) {
      from += text(i == 0 ? "i" : ", i", i);
      if (i + 2 < rank) to += text("i", i, ", ");
    }
    std::string last = text("i", rank - 1);
    to += text(last, " // ", width, ", i", rank - 2, ", ", last, " %% ", width);
    try_step(d_, TransformLayout{copy.store.buffer.name(), text("(", from, ") -> (", to, ")")});
  }

  Draft& d_;
  Schedule& s_;
  const Target& t_;
  std::vector<BlockInfo> blocks_;
  size_t first_ = 0, second_ = 0;  // the contractions
  size_t row_ = 0, column_ = 0;    // axes of both
  int64_t columns_ = 1;
  std::string consumer_, lead_, root_;
  std::vector<std::string> between_, copies_;
  int64_t lanes_ = 16, vectors_ = 1, rows_ = 1;
  double us_ = 0;
  std::string batch_, chunk_;
};

}  // namespace

bool schedule_chain(Draft& draft) {
  Chain chain(draft);
  if (!chain.find()) return false;
  const RuleScope scope(draft, {"chains of products", chain.block()});
  chain.schedule();
  return true;
}

}  // namespace mcc::tuner
