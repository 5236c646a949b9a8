// Products with weights that are computed of other ones: numbers of few bits, with a scale for each block of them.
//
//   for panel (parallel): for batch, where its items have weights of their own:
//     init sums of the panel
//     for part of the sum:
//       the panel's weights of this part, in vectors
//       for row tile: for k: for rows, vectors (unrolled): sum[row, vector] += x[row, k] * w[k, vector]
//     consumer: bias, activation
//
// Weights are unpacked once for all rows, and so many at a time that they stay in the first-level cache. Of a single row they are unpacked
// where they are multiplied:
//
//   for panel (parallel): for batch:
//     init sums of the panel
//     for block of the sum: for word of the block: for weights of the word, vectors (unrolled): sum[vector] += x[k] * (word's weight)[vector]
//     consumer
#include <algorithm>
#include <set>

#include "tensor/schedule/weight_order.h"
#include "tensor/visit.h"
#include "tuner/register_tile_size.h"
#include "tuner/rules.h"
#include "tuner/tile_parts.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

// Numbers that a variable is divided by in a block's indices, ascending: how many of its values follow each other in one place.
class FindDivisors : public Visitor {
 public:
  explicit FindDivisors(const Var& var) : var_(var) {}
  std::set<int64_t> divisors;

 protected:
  using Visitor::on;
  void on(const Binary& n) override {
    int64_t divisor = 0;
    if (n.op == BinaryOp::floor_div && n.a.same_as(var_) && as_int(n.b, &divisor)) divisors.insert(divisor);
    Visitor::on(n);
  }

 private:
  const Var& var_;
};

class UnpackedProduct {
 public:
  explicit UnpackedProduct(Draft& draft) : d_(draft), s_(draft.schedule), t_(draft.target) {}

  // Whether the draft has such a product; changes nothing.
  bool find() {
    for (const std::string& name : s_.block_names()) {
      std::optional<BlockInfo> info = analyze(s_, name);
      if (info && find_product(*info)) return true;
    }
    return false;
  }

  const std::string& block() const { return info_.name; }

  void schedule() {
    if (const std::optional<Words> words = words_in_place();
        words && d_.decide.choose(block() + ".in_place", {0, 1}, 1) != 0)
      return schedule_in_place(*words);
    choose();
    split_and_order();
    must_step(d_, ComputeAt{weights_.name, part_});
    finish();
    unpack();
  }

 private:
  // Below the loops over parts: the first sums, what follows the last ones, vectors.
  void finish() {
    const std::string consumer = tile_consumer(d_, info_, info_.spatial);
    must_step(d_, DecomposeReduction{block(), part_});
    if (!consumer.empty()) try_step(d_, ReverseComputeAt{consumer, item_});
    must_step(d_, Vectorize{block() + ".lane"});
    for (const std::string& loop : unrolled_)
      must_step(d_, Unroll{loop});
    vectorize_below_tile(d_, block() + ".init", item_, lanes_, false);
    if (!consumer.empty()) vectorize_below_tile(d_, consumer, item_, lanes_, false);
  }

  const AxisInfo& axis(int a) const { return info_.axes[static_cast<size_t>(a)]; }

  // y[batch.., row, column] += x[batch.., row, k] * w[column // width, k, column %% width], where w is computed of weights alone.
  bool find_product(const BlockInfo& info) {
    if (!info.is_contraction || info.is_nested || info.loads.size() != 2 || info.iterations() == 0)
      return false;
    const std::optional<SumAxes> axes = sum_axes(info);
    if (!axes) return false;
    column_ = static_cast<int>(axes->column);
    reduce_ = static_cast<int>(axes->reduce);
    const auto column = static_cast<size_t>(column_);
    const size_t load = info.loads[0].strides[column] != 0 ? 0 : 1;
    const Access& w = info.loads[load];
    if (info.loads[1 - load].strides[column] != 0 || w.strides[column] != 1) return false;
    items_.clear();
    others_.clear();
    for (size_t a : axes->rows)
      (w.strides[a] != 0 ? items_ : others_).push_back(static_cast<int>(a));
    row_ = others_.empty() ? -1 : others_.back();
    if (!others_.empty()) others_.pop_back();
    lanes_ = t_.lanes(32);
    width_ = w.strides[static_cast<size_t>(reduce_)];
    if (width_ % lanes_ != 0 || w.runs[column] != std::min(width_, info.axes[column].extent)) return false;
    info_ = info;
    return find_weights(w.buffer);
  }

  bool find_weights(const Buffer& buffer) {
    for (const std::string& name : s_.producers(info_.name)) {
      const std::optional<BlockInfo> made = analyze(s_, name);
      if (!made || !made->store.buffer.same_as(buffer)) continue;
      if (!is_made_of_weights(s_.func(), *made) || made->axes.size() != 3 + items_.size()) return false;
      if (s_.consumers(name) != std::vector<std::string>{info_.name}) return false;
      weights_ = *made;
      const Block* block = s_.find_block(name);
      FindDivisors found(block->axes[step_axis()].var);
      found.visit(block->body);
      divisors_.assign(found.divisors.begin(), found.divisors.end());
      return true;
    }
    return false;
  }

  bool are_words() const { return byte_size(weights_.loads[0].buffer.element()) > 1; }

  // How many weights are in a word (of bytes: are multiplied in one turn), and how many words are one part: those that share a scale, where
  // some do.
  struct Words {
    int64_t each, steps;
  };

  // Of a single row, whose parts are all whole.
  std::optional<Words> words_in_place() const {
    constexpr int64_t kMostSteps = 16;
    const bool has_rows =
        (row_ >= 0 && axis(row_).extent > 1) ||
        std::any_of(others_.begin(), others_.end(), [&](int a) { return axis(a).extent > 1; });
    if (has_rows) return std::nullopt;
    constexpr int64_t kBytes = 4;
    const int64_t depth = axis(reduce_).extent;
    if (are_words() && divisors_.empty()) return std::nullopt;  // one word has the whole sum
    const int64_t each = are_words() ? divisors_.front() : kBytes,
                  block = divisors_.empty() ? each : divisors_.back();
    if (depth % each != 0) return std::nullopt;
    if (block > each) {
      if (depth % block != 0 || block % each != 0) return std::nullopt;
      return Words{each, block / each};
    }
    int64_t steps = kMostSteps;
    while (depth / each % steps != 0)
      --steps;
    return Words{each, steps};
  }

  void schedule_in_place(const Words& words) {
    const std::string& b = block();
    vectors_ = width_ / lanes_;
    us_ = static_cast<double>(weights_.spatial) / (t_.l3.gb_per_s * 1e3);
    must_step(d_, ComputeInline{weights_.name});
    split_columns();
    must_step(d_, Split{axis(reduce_).loop, {0, words.steps, words.each}, {part_, b + ".word", b + ".in"}});
    std::vector<std::string> order = outer_loops();
    order.push_back(part_);
    for (int a : others_)
      order.push_back(axis(a).loop);
    if (row_ >= 0) order.push_back(axis(row_).loop);
    unrolled_ = {b + ".in", b + ".vecs"};
    order.insert(order.end(), {b + ".word", b + ".in", b + ".vecs", b + ".lane"});
    must_step(d_, Reorder{order});
    if (choose_parallel(d_, b, us_)) try_step(d_, Parallel{panel_});
    finish();
  }

  // The weights' axis along the sum.
  size_t step_axis() const { return weights_.axes.size() - 2; }

  void choose() {
    vectors_ = width_ / lanes_;
    const int64_t depth = axis(reduce_).extent;
    // Of weights that share a scale none are in different parts, where that is possible.
    const int64_t least = divisors_.empty() || depth % divisors_.back() != 0 ? 1 : divisors_.back();
    std::vector<int64_t> parts;
    int64_t preferred = 0;
    for (int64_t n = least; n <= depth; n += least) {
      if (depth % n != 0) continue;
      const int64_t bytes = n * width_ * 4;
      if (n < depth && (n < 16 || bytes > t_.l2.bytes / 2)) continue;
      parts.push_back(n);
      if (preferred == 0 || bytes <= t_.l1.bytes * 3 / 4) preferred = n;
    }
    steps_ = d_.decide.choose(block() + ".part", parts, preferred);
    TileProblem tile;
    tile.rows = row_ < 0 ? 1 : axis(row_).extent;
    tile.vectors = ceil_div64(axis(column_).extent, width_) * vectors_;
    tile.vector_choices = {vectors_};
    tile.steps = steps_;
    tile.has_open_rows = row_ >= 0 && d_.open_loops.count(axis(row_).loop) != 0;
    row_tile_ = choose_tile_size(tile, t_, block(), d_.decide).rows;
    us_ = 2.0 * static_cast<double>(info_.iterations()) / (t_.peak_gflops() * 1e3);
    us_ = std::max(us_, static_cast<double>(weights_.spatial) / (t_.l3.gb_per_s * 1e3));
  }

  void split_columns() {
    const std::string& b = block();
    panel_ = b + ".panel";
    part_ = b + ".part";
    must_step(d_, Split{axis(column_).loop, {0, vectors_, lanes_}, {panel_, b + ".vecs", b + ".lane"}});
  }

  // Around parts.
  std::vector<std::string> outer_loops() {
    std::vector<std::string> order{panel_};
    for (int a : items_)
      order.push_back(axis(a).loop);
    item_ = order.back();
    return order;
  }

  void split_and_order() {
    const std::string& b = block();
    split_columns();
    must_step(d_, Split{axis(reduce_).loop, {0, steps_}, {part_, b + ".k"}});
    std::vector<std::string> order = outer_loops();
    order.push_back(part_);
    for (int a : others_)
      order.push_back(axis(a).loop);
    if (row_ >= 0) {
      must_step(d_, Split{axis(row_).loop, {0, row_tile_}, {b + ".rows", b + ".row"}});
      order.push_back(b + ".rows");
      unrolled_.push_back(b + ".row");
    }
    unrolled_.push_back(b + ".vecs");
    order.push_back(b + ".k");
    order.insert(order.end(), unrolled_.begin(), unrolled_.end());
    order.push_back(b + ".lane");
    must_step(d_, Reorder{order});
    if (choose_parallel(d_, b, us_)) try_step(d_, Parallel{panel_});
  }

  // The weights of a part: those of a byte, and those with a scale in common, one behind the other.
  void unpack() {
    const std::string& k = weights_.axes[step_axis()].loop;
    std::string steps = k, around = part_;
    if (s_.find_loop(k) != nullptr) {
      const int64_t each = divisors_.empty() || !are_words() ? 1 : divisors_.front(),
                    block = divisors_.empty() ? 1 : divisors_.back();
      if (block > each && steps_ % block == 0 && steps_ > block &&
          try_step(d_, Split{k, {0, block}, {k + ".block", k + ".in"}}))
        steps = k + ".in";
      if (each > 1 && try_step(d_, Split{steps, {0, each}, {k + ".byte", k + ".bits"}})) {
        try_step(d_, Unroll{k + ".bits"});
        steps = k + ".byte";
        around = k + ".bits";
      }
      // The next part comes from memory while this one is multiplied.
      const std::string& from = weights_.loads[0].buffer.name();
      if (d_.decide.choose(info_.name + ".prefetch", {0, 1}, 1) != 0)
        try_step(d_, Annotate{"", steps, "prefetch_next", from + " " + part_});
    }
    vectorize_below_tile(d_, weights_.name, around, lanes_, around != part_);
  }

  Draft& d_;
  Schedule& s_;
  const Target& t_;
  BlockInfo info_, weights_;
  int column_ = -1, reduce_ = -1, row_ = -1;
  std::vector<int> items_, others_;  // of a batch whose items have weights of their own; further rows
  std::vector<int64_t> divisors_;
  int64_t lanes_ = 16, width_ = 16, vectors_ = 1, steps_ = 1, row_tile_ = 1;
  double us_ = 0;
  std::string panel_, item_, part_;  // item_: the innermost loop around parts
  std::vector<std::string> unrolled_;
};

}  // namespace

bool schedule_unpacked_product(Draft& draft) {
  UnpackedProduct product(draft);
  if (!product.find()) return false;
  return try_all(draft, {"products with unpacked weights", product.block()}, [&] {
    product.schedule();
    return true;
  });
}

}  // namespace mcc::tuner
