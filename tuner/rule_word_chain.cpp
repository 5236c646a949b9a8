// Chains of products (rule_chain.cpp) whose factors are words of two bf16 (tuner/dot_product.h), by tiles of matrices or dot products:
//
//   for batch (parallel):
//     copies of the operands: keys, values in words; queries where they have to be filled up
//     for chunk of rows (two tiles, or as many as registers have sums for):
//       for panel: scores = tiles of queries * tiles of keys; their consumer (mask) where they are written
//       for row: what stands between, in vectors along the row; exponentials are rounded
//       for panel: result = tiles of exponentials * tiles of values; its consumer (1 / sum) where it is written
//
// Rows are filled up to whole tiles; a chunk's scores stay in the nearest caches.
#include <algorithm>

#include "support/text.h"
#include "tensor/instructions.h"
#include "tensor/intrinsics.h"
#include "tuner/answers.h"
#include "tuner/chain_parts.h"
#include "tuner/dot_product.h"
#include "tuner/rules.h"
#include "tuner/tile_parts.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

class WordChain {
 public:
  explicit WordChain(Draft& draft) : d_(draft), s_(draft.schedule), t_(draft.target), lanes_(t_.lanes(32)) {}

  // Whether the function has this form; changes nothing but for copies that are left out.
  bool find() {
    for (const std::string& name : s_.block_names()) {
      std::optional<BlockInfo> info = analyze(s_, name);
      if (!info || info->iterations() == 0) return false;
      blocks_.push_back(*info);
    }
    std::vector<const BlockInfo*> products;
    for (const BlockInfo& b : blocks_) {
      if (b.is_contraction) products.push_back(&b);
    }
    return products.size() == 2 && find_product(*products[0], &first_) &&
           find_product(*products[1], &second_) && find_rows() && find_others();
  }

  const std::string& block() const { return second_.info.name; }

  void schedule() {
    choose();
    tile_second();
    if (consumer_.empty()) {
      consumer_ = first_.info.name + ".out";
      must_step(d_, CacheWrite{first_.info.name, first_.info.store.buffer.name(), "global", consumer_});
    }
    for (size_t i = between_.size(); i-- > 0;)
      must_step(d_, ComputeAt{between_[i], chunk_});
    must_step(d_, ComputeAt{consumer_, chunk_});
    must_step(d_, ComputeAt{first_.info.name, chunk_});
    tile_first();
    place_rows_between(d_, blocks_, between_, lead_, row_, chunk_);
    place_copies();
  }

 private:
  // A product of words: [batch.., row, column | word, part].
  struct Product {
    BlockInfo info;           // with the parts as they are
    std::string instruction;  // of dot products
    ElementType left = ElementType::bf16;
    int64_t columns = 0, words = 0;
    int64_t vectors = 1;  // of columns (or tiles of them) that are made together
    const std::string& row_loop(size_t row) const { return info.axes[row].loop; }
    const std::string& column_loop(size_t row) const { return info.axes[row + 1].loop; }
    const std::string& word_loop(size_t row) const { return info.axes[row + 2].loop; }
    const std::string& part_loop() const { return info.axes.back().loop; }
  };

  const BlockInfo& info_of(const std::string& name) const {
    return *std::find_if(blocks_.begin(), blocks_.end(), [&](const BlockInfo& b) { return b.name == name; });
  }

  bool find_product(const BlockInfo& info, Product* product) {
    std::optional<DotProduct> dot = dot_product(info, t_);
    if (!dot || dot->left != ElementType::bf16 || info.axes.size() < 4) return false;
    const BlockInfo& words = dot->info;
    const size_t column = words.axes.size() - 2;
    if (!words.axes.back().is_reduce || words.axes[column].is_reduce || words.axes[column - 1].is_reduce)
      return false;
    const bool is_left = words.loads[0].strides[column] == 0;
    const Access &a = words.loads[is_left ? 0 : 1], &b = words.loads[is_left ? 1 : 0];
    if (words.store.strides[column] != 1 || a.strides[column] != 0 || a.strides[column + 1] != 1 ||
        a.strides[column - 1] <= 0 || b.strides[column] != 1 || b.strides[column - 1] != 0)
      return false;
    *product = {info, dot->instruction, dot->left, words.axes[column].extent, words.axes.back().extent};
    row_ = column - 1;
    return true;
  }

  // The products have their batch and rows in common, and the second sums over the first's columns.
  bool find_rows() {
    const BlockInfo &a = first_.info, &b = second_.info;
    if (a.axes.size() != b.axes.size() || first_.columns != 2 * second_.words) return false;
    for (size_t i = 0; i <= row_; ++i) {
      if (a.axes[i].extent != b.axes[i].extent) return false;
    }
    rows_ = a.axes[row_].extent;
    return true;
  }

  // Blocks that depend on the first product stand between the two, about the same rows, but for the last, which reads the result alone;
  // all others copy operands.
  bool find_others() {
    std::vector<Buffer> made{first_.info.store.buffer};
    auto reads = [](const BlockInfo& info, const Buffer& buffer) {
      return std::any_of(info.loads.begin(), info.loads.end(),
                         [&](const Access& l) { return l.buffer.same_as(buffer); });
    };
    for (const BlockInfo& b : blocks_) {
      if (b.name == first_.info.name) continue;
      if (std::none_of(made.begin(), made.end(), [&](const Buffer& m) { return reads(b, m); })) {
        const bool is_operand = reads(first_.info, b.store.buffer) || reads(second_.info, b.store.buffer);
        if (!b.is_injective || !b.is_movement || !is_operand) return false;
        copies_.push_back(b.name);
        continue;
      }
      made.push_back(b.store.buffer);
      if (b.name == second_.info.name || b.name == blocks_.back().name) continue;
      for (size_t i = 0; i <= row_; ++i) {
        if (i >= b.axes.size() || b.axes[i].is_reduce || b.axes[i].extent != first_.info.axes[i].extent)
          return false;
      }
      if (b.axes.size() > row_ + 2) return false;
      if (reads(second_.info, b.store.buffer)) lead_ = b.name;
      between_.push_back(b.name);
    }
    root_ = blocks_.back().name;
    consumer_ = tile_consumer(d_, first_.info, first_.info.spatial);
    between_.erase(std::remove(between_.begin(), between_.end(), consumer_), between_.end());
    return !lead_.empty() && lead_ != consumer_ && info_of(lead_).is_injective &&
           blocks_.back().is_injective &&
           s_.consumers(second_.info.name) == std::vector<std::string>{root_} &&
           is_output(s_.func(), blocks_.back().store.buffer);
  }

  // ---- Sizes ----

  void choose() {
    tile_rows_ = largest_divisor(rows_, kTileRows);
    first_k_ = largest_divisor(first_.words, kTileRows);
    second_k_ = largest_divisor(second_.words, kTileRows);
    const bool has_tiles = tile_instruction(t_, tile_rows_, first_k_, first_.left) &&
                           tile_instruction(t_, tile_rows_, second_k_, second_.left);
    is_tiled_ = has_tiles && d_.decide.choose(block() + ".tiles", {0, 1}, 1) != 0;
    if (is_tiled_) {
      choose_tiles();
    } else {
      choose_vectors();
    }
    double cycles = 0;
    for (const BlockInfo& b : blocks_) {
      const double work = static_cast<double>(b.iterations()) / static_cast<double>(lanes_);
      cycles += work * (b.is_contraction ? 0.1 : b.has_math_call ? 12 : 1);
    }
    us_ = cycles / (t_.ghz * 1e3);
  }

  // Two tiles of rows by two of columns use each operand twice.
  void choose_tiles() {
    constexpr int64_t kMostSums = 6;
    const int64_t tiles = rows_ / tile_rows_;
    std::vector<int64_t> heights{1};
    if (tiles % 2 == 0) heights.push_back(2);
    tiles_ = d_.decide.choose(block() + ".rows", heights, heights.back());
    for (Product* p : {&first_, &second_}) {
      std::vector<int64_t> widths;
      int64_t best = 1;
      for (int64_t n = 1; n * tiles_ <= kMostSums; ++n) {
        if (p->columns / kTileColumns % n != 0) continue;
        widths.push_back(n);
        if (n * tiles_ <= 4 || best == 1) best = n;
      }
      p->vectors = d_.decide.choose(p->info.name + ".columns", widths, best);
    }
  }

  // As many sums as hide the latency of a multiplication, in registers.
  void choose_vectors() {
    const int64_t registers = t_.vector_registers - 4;
    for (Product* p : {&first_, &second_})
      p->vectors = p->columns / lanes_ % 2 == 0 ? 2 : 1;
    const int64_t vectors = std::max(first_.vectors, second_.vectors);
    std::vector<int64_t> heights;
    int64_t best = 1, least = 0;
    for (int64_t r = 1; r <= std::min<int64_t>(rows_, 16) && r * vectors + vectors <= registers; ++r) {
      const int64_t chunks = ceil_div64(rows_, r);
      if (ceil_div64(rows_, chunks) != r) continue;
      heights.push_back(r);
      const int64_t cost = chunks * (r * vectors + vectors + 2);
      if (least == 0 || cost < least) best = r, least = cost;
    }
    tile_rows_ = d_.decide.choose(block() + ".rows", heights, best);
    tiles_ = 1;
  }

  // ---- Products ----

  // A product's loops below one; those that are unrolled are given back.
  std::vector<std::string> split_product(const Product& p, const std::vector<std::string>& outer, int64_t k,
                                         std::string* tile_loop) {
    const std::string& b = p.info.name;
    const std::string panel = b + ".panel";
    must_step(d_, Split{p.column_loop(row_), {0, p.vectors, lanes_}, {panel, b + ".columns", b + ".column"}});
    std::vector<std::string> order = outer, unrolled{b + ".columns"};
    order.push_back(panel);
    if (is_tiled_) {
      must_step(d_, Split{p.word_loop(row_), {0, k}, {b + ".depth", b + ".k"}});
      unrolled.push_back(b + ".tile");
      for (const std::string& l :
           {b + ".depth", b + ".columns", b + ".tile", b + ".row", b + ".column", b + ".k"})
        order.push_back(l);
    } else {
      order.push_back(p.word_loop(row_));
      const std::string row = b + ".row";
      if (s_.find_loop(row) != nullptr) {
        unrolled.push_back(row);
        order.push_back(row);
      }
      order.insert(order.end(), {b + ".columns", b + ".column"});
    }
    order.push_back(p.part_loop());
    must_step(d_, Reorder{order});
    *tile_loop = panel;
    return unrolled;
  }

  void finish_product(const Product& p, int64_t k, const std::vector<std::string>& unrolled,
                      const std::string& write_back, const std::string& tile_loop) {
    const std::string& b = p.info.name;
    must_step(d_, DecomposeReduction{b, is_tiled_ ? b + ".depth" : p.word_loop(row_)});
    if (is_tiled_) {
      must_step(d_, Tensorize{b + ".row", tile_instruction(t_, tile_rows_, k, p.left)->name});
    } else {
      must_step(d_, Tensorize{b + ".column", p.instruction});
    }
    for (const std::string& l : unrolled)
      must_step(d_, Unroll{l});
    vectorize_below_tile(d_, b + ".init", tile_loop, lanes_, !is_tiled_);
    vectorize_below_tile(d_, write_back, tile_loop, lanes_, !is_tiled_);
  }

  void tile_second() {
    const BlockInfo& b = second_.info;
    std::vector<std::string> batch;
    int64_t batches = 1;
    for (size_t i = 0; i < row_; ++i) {
      batch.push_back(b.axes[i].loop);
      batches *= b.axes[i].extent;
    }
    chunk_ = b.name + ".chunk";
    if (is_tiled_) {
      must_step(d_, Split{second_.row_loop(row_),
                          {0, tiles_, tile_rows_},
                          {chunk_, b.name + ".tile", b.name + ".row"}});
    } else {
      must_step(d_, Split{second_.row_loop(row_), {0, tile_rows_}, {chunk_, b.name + ".row"}});
    }
    std::vector<std::string> outer = batch;
    outer.push_back(chunk_);
    std::string tile_loop;
    const std::vector<std::string> unrolled = split_product(second_, outer, second_k_, &tile_loop);
    const ChainLoops loops = share_out(d_, b.name, batch, batches, chunk_, us_);
    batch_ = loops.batch, chunk_ = loops.chunk;
    must_step(d_, ReverseComputeAt{root_, tile_loop});
    must_step(d_, SetScope{b.store.buffer.name(), is_tiled_ ? "local" : "registers"});
    finish_product(second_, second_k_, unrolled, root_, tile_loop);
  }

  void tile_first() {
    const std::string& b = first_.info.name;
    const std::string& row = first_.row_loop(row_);
    if (is_tiled_) {
      must_step(d_, Split{row, {0, tile_rows_}, {b + ".tile", b + ".row"}});
    } else if (s_.find_loop(row) != nullptr) {
      must_step(d_, Split{row, {0, tile_rows_}, {b + ".rows", b + ".row"}});
    }
    std::string tile_loop;
    const std::vector<std::string> unrolled = split_product(first_, {}, first_k_, &tile_loop);
    must_step(d_, ReverseComputeAt{consumer_, tile_loop});
    if (!d_.refusal) return;
    must_step(d_, SetScope{s_.find_block(b)->writes[0].buffer.name(), is_tiled_ ? "local" : "registers"});
    finish_product(first_, first_k_, unrolled, consumer_, tile_loop);
  }

  // ---- The rest ----

  void place_copies() {
    for (const std::string& name : copies_) {
      const BlockInfo& copy = info_of(name);
      const bool is_in_words = copy.axes.back().extent == word_elements(copy.store.buffer.element());
      if (!batch_.empty()) try_step(d_, ComputeAt{name, batch_});
      if (is_in_words) {
        make_words(copy);
        const double us = estimate_us(
            0, static_cast<double>(2 * count_of(copy.store.buffer) * byte_size(copy.store.buffer.element())),
            t_);
        if (batch_.empty() && choose_parallel(d_, name, us))
          try_step(d_, Parallel{s_.loop_names_of(name).front()});
      } else if (batch_.empty()) {
        schedule_pointwise(d_, name);
      } else {
        vectorize_row_map(d_, name, batch_);
      }
    }
  }

  // Keys or values [word, column, part] in panels as wide as a tile, each in one piece.
  void make_words(const BlockInfo& copy) {
    const size_t rank = copy.axes.size();
    const Product& p = std::any_of(first_.info.loads.begin(), first_.info.loads.end(),
                                   [&](const Access& l) { return l.buffer.same_as(copy.store.buffer); })
                           ? first_
                           : second_;
    const int64_t width = is_tiled_ ? kTileColumns : p.vectors * lanes_;
    const std::string word = copy.axes[rank - 3].loop, column = copy.axes[rank - 2].loop,
                      part = copy.axes[rank - 1].loop;
    must_step(d_, Split{column, {0, lanes_}, {column + ".tile", column + ".lane"}});
    // Words that are neighbours in memory are transposed in square tiles.
    const bool is_across = std::all_of(copy.loads.begin(), copy.loads.end(), [&](const Access& l) {
      return l.strides[rank - 1] == 1 && l.strides[rank - 3] == 2 && l.strides[rank - 2] != 1;
    });
    if (is_across) {
      must_step(d_, Split{word, {0, lanes_}, {word + ".tile", word + ".in"}});
      must_step(d_, Reorder{{word + ".tile", column + ".tile", word + ".in", part, column + ".lane"}});
      must_step(d_, Unroll{word + ".in"});
    } else {
      must_step(d_, Reorder{{word, column + ".tile", part, column + ".lane"}});
    }
    must_step(d_, Unroll{part});
    must_step(d_, Vectorize{column + ".lane"});
    if (p.columns <= width || copy.store.buffer.rank() != static_cast<int>(rank)) return;
    std::string from, to;
    for (size_t i = 0; i < rank; ++i) {
      from += text(i == 0 ? "i" : ", i", i);
      if (i + 3 < rank) to += text("i", i, ", ");
    }
    to +=
        text("i", rank - 2, " // ", width, ", i", rank - 3, ", i", rank - 2, " %% ", width, ", i", rank - 1);
    try_step(d_, TransformLayout{copy.store.buffer.name(), text("(", from, ") -> (", to, ")")});
  }

  Draft& d_;
  Schedule& s_;
  const Target& t_;
  int64_t lanes_;
  std::vector<BlockInfo> blocks_;
  Product first_, second_;
  size_t row_ = 0;  // an axis of all
  int64_t rows_ = 1;
  std::string consumer_, lead_, root_;
  std::vector<std::string> between_, copies_;
  bool is_tiled_ = false;
  int64_t tile_rows_ = 1, tiles_ = 1;   // of a tile; tiles of a chunk
  int64_t first_k_ = 1, second_k_ = 1;  // words of a tile
  double us_ = 0;
  std::string batch_, chunk_;
};

}  // namespace

bool schedule_word_chain(Draft& draft) {
  WordChain chain(draft);
  if (!chain.find()) return false;
  const RuleScope scope(draft, {"chains of products of words", chain.block()});
  chain.schedule();
  return true;
}

}  // namespace mcc::tuner
