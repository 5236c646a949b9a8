// Products whose sums are made in blocks, each a dot product of words that gets a factor of its own (numbers of few bits, and rows that
// have been rounded to bytes, with a scale for each block of them):
//
//   for panel (parallel): for batch, where its items have weights of their own:
//     init sums of the panel
//     for part of the blocks:
//       the panel's words of this part, where they are packed
//       for row tile: for block of the part:
//         init dots; for word of the block: for rows, vectors (unrolled): dot[row, vector] += x[row, word] . w[word, vector]
//         for rows, vectors (unrolled): sum[row, vector] += (dot - zero) * scale
//     consumer: bias, activation
#include <algorithm>

#include "tensor/schedule/weight_order.h"
#include "tuner/dot_product.h"
#include "tuner/rules.h"
#include "tuner/tile_parts.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

class RoundedProduct {
 public:
  explicit RoundedProduct(Draft& draft)
      : d_(draft), s_(draft.schedule), t_(draft.target), lanes_(t_.lanes(32)) {}

  // Whether the draft has such a product; changes nothing.
  bool find() {
    for (const std::string& name : s_.block_names()) {
      const std::optional<BlockInfo> info = analyze(s_, name);
      if (info && find_dots(*info)) return true;
    }
    return false;
  }

  const std::string& block() const { return sum_.name; }

  void schedule() {
    choose();
    const std::string& b = block();
    panel_ = b + ".panel";
    part_ = b + ".part";
    const std::string turn = b + ".block";
    must_step(d_, Split{loop(sum_, axes_.column), {0, vectors_, lanes_}, {panel_, b + ".vecs", b + ".lane"}});
    must_step(d_, Split{loop(sum_, axes_.reduce), {0, blocks_}, {part_, turn}});
    std::vector<std::string> order{panel_}, unrolled;
    for (size_t a : items_)
      order.push_back(loop(sum_, a));
    const std::string item = order.back();
    order.push_back(part_);
    for (size_t a = 0; a + 1 < axes_.rows.size(); ++a)
      order.push_back(loop(sum_, axes_.rows[a]));
    if (!axes_.rows.empty()) {
      must_step(d_, Split{loop(sum_, axes_.rows.back()), {0, row_tile_}, {b + ".rows", b + ".row"}});
      order.push_back(b + ".rows");
      unrolled.push_back(b + ".row");
    }
    unrolled.push_back(b + ".vecs");
    order.push_back(turn);
    order.insert(order.end(), unrolled.begin(), unrolled.end());
    order.push_back(b + ".lane");
    must_step(d_, Reorder{order});
    if (choose_parallel(d_, b, us_)) try_step(d_, Parallel{panel_});
    must_step(d_, DecomposeReduction{b, part_});
    const std::string consumer = tile_consumer(d_, sum_, sum_.spatial);
    must_step(d_, ComputeAt{dots_.name, turn});
    if (!unpacked_.empty()) must_step(d_, ComputeAt{unpacked_, part_});
    if (!consumer.empty()) try_step(d_, ReverseComputeAt{consumer, item});
    tile_dots(turn);
    must_step(d_, Vectorize{b + ".lane"});
    for (const std::string& l : unrolled)
      must_step(d_, Unroll{l});
    vectorize_below_tile(d_, b + ".init", item, lanes_, false);
    if (!consumer.empty()) vectorize_below_tile(d_, consumer, item, lanes_, false);
    if (!unpacked_.empty()) unpack();
  }

 private:
  static const std::string& loop(const BlockInfo& info, size_t axis) { return info.axes[axis].loop; }

  // dots[batch.., row, block, column] += x[.., row, word, 4] . w[panel, word, column, 4], whose one reader sums over blocks.
  bool find_dots(const BlockInfo& info) {
    const std::optional<DotProduct> dot = dot_product(info, t_);
    if (!dot || info.is_nested || info.iterations() == 0) return false;
    const std::vector<std::string> readers = s_.consumers(info.name);
    const std::optional<BlockInfo> sum = readers.size() == 1 ? analyze(s_, readers[0]) : std::nullopt;
    if (!sum || !sum->is_reduction || !sums_blocks(*sum, info.store.buffer)) return false;
    const BlockInfo& words = dot->info;
    const size_t right = words.loads[0].buffer.element() == dot->left ? 1 : 0;
    const Access& w = words.loads[right];
    const std::vector<Expr>& shape = w.buffer.shape();
    if (shape.size() < kWordsRank || !as_int(shape[shape.size() - 2], &width_) || width_ % lanes_ != 0)
      return false;
    dots_ = info;
    words_ = w.buffer;
    sum_ = *sum;
    instruction_ = dot->instruction;
    unpacked_.clear();
    if (is_weight(s_.func(), w.buffer)) return true;
    for (const std::string& name : s_.producers(info.name)) {
      const std::optional<BlockInfo> made = analyze(s_, name);
      if (!made || !made->store.buffer.same_as(w.buffer)) continue;
      unpacked_ = name;
      unpacked_info_ = *made;
      return is_made_of_weights(s_.func(), *made) && made->axes.size() == kWordsRank + items_.size() &&
             s_.consumers(name).size() == 1;
    }
    return false;
  }

  // Whether columns are neighbours in the dot products, and blocks, which are summed, are not.
  bool sums_blocks(const BlockInfo& sum, const Buffer& dots) {
    const std::optional<SumAxes> axes = sum_axes(sum);
    if (!axes) return false;
    axes_ = *axes;
    // Along a batch whose items have weights of their own scales move, too.
    items_.clear();
    std::erase_if(axes_.rows, [&](size_t a) {
      const bool is_item = std::any_of(sum.loads.begin(), sum.loads.end(), [&](const Access& l) {
        return !l.buffer.same_as(dots) && l.strides[axes_.column] != 0 && l.strides[a] != 0;
      });
      if (is_item) items_.push_back(a);
      return is_item;
    });
    return std::any_of(sum.loads.begin(), sum.loads.end(), [&](const Access& l) {
      return l.buffer.same_as(dots) && l.strides[axes_.column] == 1 && l.strides[axes_.reduce] > 1;
    });
  }

  void choose() {
    vectors_ = width_ / lanes_;
    const int64_t all = sum_.axes[axes_.reduce].extent,
                  bytes = width_ * dots_.reduce;  // of a block in a panel
    const bool has_rows = !axes_.rows.empty();
    const int64_t rows = has_rows ? sum_.axes[axes_.rows.back()].extent : 1;
    const bool is_open = has_rows && d_.open_loops.count(loop(sum_, axes_.rows.back())) != 0;
    std::vector<int64_t> parts, tiles;
    int64_t preferred = 1;
    for (int64_t n = 1; n <= all; ++n) {
      if (all % n != 0 || (n < all && n * bytes > t_.l2.bytes / 2)) continue;
      parts.push_back(n);
      if (n * bytes <= t_.l1.bytes / 2) preferred = n;
    }
    blocks_ = d_.decide.choose(block() + ".part", parts, preferred);
    // Dots and sums of a tile, and a word of each vector.
    for (int64_t n : {1, 2, 3, 4, 6, 8}) {
      if (n == 1 || (n <= (is_open ? 8 : rows) && (2 * n + 1) * vectors_ < t_.vector_registers))
        tiles.push_back(n);
    }
    row_tile_ = d_.decide.choose(block() + ".rows", tiles, tiles.back());
    us_ = static_cast<double>(dots_.iterations()) / (t_.peak_gflops() * 2e3);
    us_ = std::max(us_, static_cast<double>(count_of(words_)) / (t_.l3.gb_per_s * 1e3));
  }

  // The block's own loops: rows, of which the last tile may have fewer, the block itself, columns, words and their bytes.
  void tile_dots(const std::string& turn) {
    if (!d_.refusal) return;
    const std::string& b = dots_.name;
    std::vector<std::string> own = s_.loop_names_of(b);
    own.erase(own.begin(), std::find(own.begin(), own.end(), turn));
    constexpr size_t kInner = 3;
    if (own.size() <= kInner)
      return give_up(d_, RefusalCode::not_nested, "the dot products of a block are none under its loop");
    const std::string byte = own.back(), word = own[own.size() - 2], column = own[own.size() - 3];
    std::vector<std::string> rows(own.begin() + 1, own.end() - kInner);
    std::erase_if(rows, [&](const std::string& l) { return is_int(s_.find_loop(l)->extent, 1); });
    std::vector<std::string> order{word}, unrolled = rows;
    order.insert(order.end(), rows.begin(), rows.end());
    std::string lane = column;
    if (vectors_ > 1) {
      must_step(d_, Split{column, {0, lanes_}, {b + ".vec", b + ".lane"}});
      order.push_back(b + ".vec");
      unrolled.push_back(b + ".vec");
      lane = b + ".lane";
    }
    order.insert(order.end(), {lane, byte});
    must_step(d_, Reorder{order});
    must_step(d_, DecomposeReduction{b, word});
    must_step(d_, SetScope{dots_.store.buffer.name(), "registers"});
    must_step(d_, Tensorize{lane, instruction_});
    for (const std::string& l : unrolled)
      must_step(d_, Unroll{l});
    constexpr int64_t kMostUnrolled = 128;
    if (dots_.reduce / 4 * row_tile_ * vectors_ <= kMostUnrolled) try_step(d_, Unroll{word});
    vectorize_below_tile(d_, b + ".init", turn, lanes_, true);
  }

  // Two words of each, a vector of bytes at a time.
  void unpack() {
    const size_t panel = unpacked_info_.axes.size() - kWordsRank;
    const std::string &word = unpacked_info_.axes[panel + 1].loop,
                      &column = unpacked_info_.axes[panel + 2].loop,
                      &byte = unpacked_info_.axes[panel + 3].loop;
    const std::string bytes = unpacked_ + ".bytes";
    if (s_.find_loop(word) == nullptr || s_.find_loop(column) == nullptr || s_.find_loop(byte) == nullptr)
      return;
    if (try_step(d_, Split{word, {0, 2}, {word + ".pair", word + ".half"}})) {
      try_step(d_, Unroll{word + ".half"});
      // The next part comes from memory while this one is multiplied.
      const std::string& from = unpacked_info_.loads[0].buffer.name();
      if (d_.decide.choose(block() + ".prefetch", {0, 1}, 1) != 0)
        try_step(d_, Annotate{"", word + ".pair", "prefetch_next", from + " " + part_});
    }
    if (!try_step(d_, Fuse{{column, byte}, bytes})) return;
    const int64_t lanes = t_.lanes(8);
    if (width_ * 4 > lanes) {
      if (!try_step(d_, Split{bytes, {0, lanes}, {bytes + ".vec", bytes + ".lane"}})) return;
      try_step(d_, Vectorize{bytes + ".lane"});
      try_step(d_, Unroll{bytes + ".vec"});
    } else {
      try_step(d_, Vectorize{bytes});
    }
  }

  Draft& d_;
  Schedule& s_;
  const Target& t_;
  BlockInfo dots_, sum_, unpacked_info_;
  Buffer words_;
  std::string instruction_, unpacked_, panel_, part_;
  static constexpr size_t kWordsRank = 4;  // panel, word, column, byte

  SumAxes axes_;               // of the sum
  std::vector<size_t> items_;  // its axes along a batch whose items have weights of their own
  int64_t lanes_, width_ = 16, vectors_ = 1, blocks_ = 1, row_tile_ = 1;
  double us_ = 0;
};

}  // namespace

bool schedule_rounded_product(Draft& draft) {
  RoundedProduct product(draft);
  if (!product.find()) return false;
  return try_all(draft, {"sums of blocks", product.block()}, [&] {
    product.schedule();
    return true;
  });
}

}  // namespace mcc::tuner
