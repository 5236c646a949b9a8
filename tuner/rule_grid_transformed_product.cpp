// A contraction between computed blocks on a GPU (Winograd's convolutions), in three launches:
//
//   bound @{block.x}, @{thread.x}: channel and tile    a tile of the input in registers: pad, rows; its transform -> tiles
//   product                                            as of rule_grid_product.cpp, a matrix product for each position
//   bound @{block.x}, @{thread.x}: channel and tile    products of a tile in registers: sums; a tile of the result
//
// Tiles lie together in memory, so that neighbouring threads read and write neighbours. Of few tiles the product has its channels
// so: a block then has enough columns.
#include <algorithm>

#include "tensor/product_time.h"
#include "tensor/schedule/tree.h"
#include "tuner/grid_rules.h"
#include "tuner/transformed_product.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

class GridTransforms {
 public:
  GridTransforms(Draft& draft, const TransformedProduct& blocks)
      : d_(draft), s_(draft.schedule), b_(blocks) {}

  bool run() {
    // tiles: channel, two positions, tile; product: tile, two positions, channel.
    if (b_.input.axes.size() != 4 || b_.product.axes.size() != 5 || b_.column + 1 != b_.result.axes.size() ||
        b_.line + 1 != b_.column || b_.line == 0)
      return false;
    order_products();
    schedule_input();
    const std::string thread = schedule_result();
    if (!d_.refusal) return false;
    if (!schedule_grid_product_of_parts(d_, b_.product.name)) {
      give_up(d_, RefusalCode::no_match, "no rule takes the product between the transforms on");
      return false;
    }
    // Parts of the sums are added up where they are read.
    if (s_.find_block(b_.product.name + ".part") != nullptr) keep_in_registers(b_.product.name, thread);
    return static_cast<bool>(d_.refusal);
  }

 private:
  void order_products() {
    const Gpu& gpu = d_.target.gpu;
    const std::vector<AxisInfo>& axes = b_.product.axes;
    ProductExtents by_tiles{
        .g = axes[1].extent * axes[2].extent, .i = axes[3].extent, .j = axes[0].extent, .k = axes[4].extent};
    ProductExtents by_channels = by_tiles;
    std::swap(by_channels.i, by_channels.j);
    const bool prefers_tiles = best_product_time(by_tiles, gpu) <= best_product_time(by_channels, gpu);
    is_by_tiles_ = d_.decide.choose(b_.product.name + ".by_tiles", {0, 1}, prefers_tiles ? 1 : 0) != 0;
    if (is_by_tiles_)
      must_step(d_, TransformLayout{b_.product.store.buffer.name(), "(t, a, b, k) -> (a, b, k, t)"});
  }

  // The loops, in this order, become the grid; the loop over threads.
  std::string bind(const std::string& block, const std::vector<std::string>& loops, int64_t results) {
    const std::string all = block + ".all", grid = block + ".block", thread = block + ".thread";
    const int64_t threads =
        d_.decide.choose(block + ".threads", {32, 64, 128, 256}, choose_threads(d_.target.gpu, results));
    must_step(d_, Fuse{loops, all});
    must_step(d_, Split{all, {0, threads}, {grid, thread}});
    must_step(d_, Bind{grid, "block.x"});
    must_step(d_, Bind{thread, "thread.x"});
    return thread;
  }

  // What one thread needs of the block, in its registers.
  void keep_in_registers(const std::string& block, const std::string& thread) {
    must_step(d_, ComputeAt{block, thread});
    if (!d_.refusal) return;
    must_step(d_, SetScope{only_buffer_written(*s_.find_block(block)).name(), "registers"});
    unroll_below(block, thread);
  }

  void unroll_below(const std::string& block, const std::string& thread) {
    if (!d_.refusal) return;
    std::vector<std::string> loops = s_.loop_names_of(block);
    for (auto at = std::find(loops.begin(), loops.end(), thread) + 1; at != loops.end(); ++at) {
      // The sides of a tile, and few parts of a sum.
      constexpr int64_t kStraight = 8;
      int64_t extent = 0;
      if (as_int(s_.find_loop(*at)->extent, &extent) && extent <= kStraight) must_step(d_, Unroll{*at});
    }
  }

  void schedule_input() {
    const std::vector<AxisInfo>& axes = b_.input.axes;
    const std::string &channel = axes[0].loop, &tile = axes[3].loop;
    must_step(d_, Reorder{{channel, tile, axes[1].loop, axes[2].loop}});
    const std::string thread = bind(b_.input.name, {channel, tile}, axes[0].extent * axes[3].extent);
    keep_in_registers(b_.rows, thread);
    for (const std::string& pad : b_.pads)
      keep_in_registers(pad, thread);
    unroll_below(b_.input.name, thread);
  }

  // The loop over threads.
  std::string schedule_result() {
    const std::string line = b_.result.axes[b_.line].loop, column = b_.result.axes[b_.column].loop,
                      y = b_.result.name + ".y", x = b_.result.name + ".x";
    must_step(d_, Split{line, {0, b_.tile}, {line + ".t", y}});
    must_step(d_, Split{column, {0, b_.tile}, {column + ".t", x}});
    std::vector<std::string> outer;
    int64_t tiles = ceil_div64(b_.result.axes[b_.line].extent, b_.tile) *
                    ceil_div64(b_.result.axes[b_.column].extent, b_.tile);
    for (size_t n = 0; n < b_.line; ++n) {
      outer.push_back(b_.result.axes[n].loop);
      tiles *= b_.result.axes[n].extent;
    }
    outer.insert(outer.end(), {line + ".t", column + ".t"});
    // Neighbouring threads read neighbouring products.
    if (!is_by_tiles_) std::rotate(outer.begin() + b_.line - 1, outer.begin() + b_.line, outer.end());
    std::vector<std::string> order = outer;
    order.insert(order.end(), {y, x});
    must_step(d_, Reorder{order});
    const std::string thread = bind(b_.result.name, outer, tiles);
    const std::string products = b_.product.name + ".tile";
    must_step(d_, CacheRead{b_.sums.name, b_.product.store.buffer.name(), "global", products});
    keep_in_registers(b_.sums.name, thread);
    keep_in_registers(products, thread);
    unroll_below(b_.result.name, thread);
    return thread;
  }

  Draft& d_;
  Schedule& s_;
  const TransformedProduct& b_;
  bool is_by_tiles_ = true;
};

}  // namespace

bool schedule_grid_transformed_product(Draft& draft) {
  for (const std::string& block : draft.schedule.block_names()) {
    std::optional<TransformedProduct> blocks = as_transformed_product(draft.schedule, block);
    if (!blocks) continue;
    auto transforms = [&] { return GridTransforms(draft, *blocks).run(); };
    if (try_all(draft, {"products between transforms", block}, transforms)) return true;
  }
  return false;
}

}  // namespace mcc::tuner
