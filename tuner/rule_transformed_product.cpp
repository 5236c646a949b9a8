// A contraction between computed blocks, as Winograd's convolutions have it. `rows`, `tiles`: the input's transform;
// `sums` and the function's last block: the output's, with all that follows the convolution.
//
//   for band of lines (parallel when there are enough):
//     for channels, tile: rows in registers -> tiles                      (or for all lines, parallel, before the loops)
//     for panel of output channels (parallel when there is one band):
//       product, in register tiles: batch, row tile, reduction
//       for channels, line, column of tiles: sums in registers -> the tile of the result, unrolled
//
// A band's transformed input stays in the second-level cache while the panels pass, and a panel's products while they are
// transformed. Weights are read once for each band.
#include <algorithm>

#include "tuner/rules.h"
#include "tuner/transformed_product.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

class Bands {
 public:
  Bands(Draft& draft, const TransformedProduct& blocks)
      : d_(draft),
        s_(draft.schedule),
        t_(draft.target),
        product_(blocks.product.name),
        input_(blocks.input.name),
        rows_(blocks.rows),
        sums_(blocks.sums.name),
        result_(blocks.result.name),
        pads_(blocks.pads),
        info_(blocks.product),
        sums_info_(blocks.sums),
        result_info_(blocks.result),
        line_axis_(blocks.line),
        column_axis_(blocks.column),
        tile_(blocks.tile) {}

  bool run() {
    if (!find_axes()) return false;
    choose();
    schedule_result();
    schedule_stage(sums_, column_loop_);
    must_step(d_, ComputeAt{product_, panel_loop_});
    schedule_input();
    if (d_.refusal && !schedule_nested_register_tile(d_, product_))
      give_up(d_, RefusalCode::not_injective, "the product has no register tile");
    make_parallel();
    return true;
  }

 private:
  // The result's axes: [image], [channel block], line, column, lane.
  bool find_axes() {
    size_t rank = result_info_.axes.size();
    if (!is_output(s_.func(), result_info_.store.buffer) || !s_.consumers(result_).empty()) return false;
    if (rank < 3 || rank > 5 || column_axis_ != rank - 2 || line_axis_ != rank - 3) return false;
    // sums: the same leading axes, then column of tiles, position, lane.
    if (sums_info_.axes.size() != rank + 1) return false;
    lane_ = loop(rank - 1);
    column_ = loop(rank - 2);
    line_ = loop(rank - 3);
    lanes_ = result_info_.axes[rank - 1].extent;
    lines_ = ceil_div64(result_info_.axes[rank - 3].extent, tile_);
    columns_ = ceil_div64(result_info_.axes[rank - 2].extent, tile_);
    if (lanes_ != t_.lanes(32) || result_info_.store.strides[rank - 1] != 1) return false;
    for (size_t a = 0; a + 3 < rank; ++a) {
      // Along channel blocks the product's result is read a vector further.
      if (result_info_.axes[a].extent != sums_info_.axes[a].extent) return false;
      bool is_channels = sums_info_.loads[0].strides[a] == lanes_;
      (is_channels ? block_ : image_) = loop(a);
      (is_channels ? blocks_ : images_) = result_info_.axes[a].extent;
    }
    return true;
  }

  const std::string& loop(size_t axis) const { return result_info_.axes[axis].loop; }

  int64_t positions() const { return (tile_ + 2) * (tile_ + 2); }

  // Bytes between the stages for one tile: transformed input, products of one panel, weights of all panels.
  void choose() {
    const int64_t bytes = info_.element_bits / 8, panel = std::min<int64_t>(2, blocks_) * lanes_;
    weights_ = positions() * info_.reduce * blocks_ * lanes_ * bytes;
    tile_bytes_ = positions() * (info_.reduce + panel) * bytes;
    // With small images all are one band: the weights are read once. Of an open number of lines each is one, as the last of higher bands
    // would have lines that are not there, and code for that.
    const int64_t most = d_.open_loops.count(line_) != 0 ? 1 : lines_;
    std::vector<int64_t> options;
    int64_t preferred = 1;
    double best = 0;
    for (int64_t n = 1; n <= most; ++n) {
      if (lines_ % n != 0) continue;
      options.push_back(n);
      const double lost = lost_us(n);
      if (options.size() == 1 || lost < best) {
        best = lost;
        preferred = n;
      }
    }
    band_ = d_.decide.choose(product_ + ".band", options, preferred);
    bands_ = lines_ / band_;
    images_inside_ = bands_ == 1 && images_ * lines_ * columns_ * tile_bytes_ <= t_.l2.bytes;
    us_ = compute_us(images_ * lines_ * columns_);
  }

  // Of so many tiles.
  double compute_us(int64_t tiles) const {
    const double tile =
        static_cast<double>(info_.iterations()) / static_cast<double>(images_ * lines_ * columns_);
    return static_cast<double>(tiles) * tile * 2 / (t_.peak_gflops() * 1e3);
  }

  // Of what moves between caches beside the products of an image, and what low tiles lose, where so many lines of tiles make a band. A band's
  // values lie in as many places as a tile has positions: what is not in caches any more is hardly fetched ahead.
  double lost_us(int64_t band) const {
    constexpr double kScattered = 0.25;
    const int64_t tiles = band * columns_, between = tiles * tile_bytes_, near = t_.l2.bytes * 3 / 4;
    const double of_weights = weights_ + between <= near    ? t_.l2.gb_per_s
                              : weights_ <= t_.l3.bytes / 2 ? t_.l3.gb_per_s
                                                            : t_.dram_gb_per_s,
                 of_between = between <= near                           ? t_.l2.gb_per_s
                              : between <= t_.l3.bytes / (2 * t_.cores) ? t_.l3.gb_per_s
                                                                        : kScattered * t_.dram_gb_per_s;
    // Few rows to a register tile leave latency open.
    const double few = std::max(0.0, 8 / static_cast<double>(tiles) - 1),
                 us = static_cast<double>(weights_) / (of_weights * 1e3) +
                      2 * static_cast<double>(between) / (of_between * 1e3);
    return static_cast<double>(lines_ / band) * us + few * compute_us(lines_ * columns_);
  }

  void schedule_result() {
    const std::string& b = result_;
    band_loop_ = b + ".band";
    panel_loop_ = b + ".panel";
    column_loop_ = b + ".tile";
    must_step(d_, Split{line_, {0, band_, tile_}, {band_loop_, b + ".line", b + ".y"}});
    must_step(d_, Split{column_, {0, tile_}, {column_loop_, b + ".x"}});
    std::vector<std::string> order;
    if (!image_.empty() && !images_inside_) order.push_back(image_);
    order.push_back(band_loop_);
    std::string in_panel;
    if (!block_.empty()) {
      in_panel = b + ".block";
      must_step(d_, Split{block_, {0, std::min<int64_t>(2, blocks_)}, {panel_loop_, in_panel}});
      order.push_back(panel_loop_);
      if (!image_.empty() && images_inside_) order.push_back(image_);
      order.push_back(in_panel);
    } else {
      panel_loop_ = band_loop_;
      if (!image_.empty() && images_inside_) order.push_back(image_);
    }
    order.insert(order.end(), {b + ".line", column_loop_, b + ".y", b + ".x", lane_});
    must_step(d_, Reorder{order});
    must_step(d_, Unroll{b + ".y"});
    must_step(d_, Unroll{b + ".x"});
    must_step(d_, Vectorize{lane_});
  }

  // One step of a transform goes to where its values are used, in registers.
  void schedule_stage(const std::string& block, const std::string& at) {
    must_step(d_, ComputeAt{block, at});
    if (!d_.refusal) return;
    std::vector<std::string> loops = s_.loop_names_of(block);
    auto own = std::find(loops.begin(), loops.end(), at);
    loops.erase(loops.begin(), own + 1);
    must_step(d_, SetScope{s_.find_block(block)->writes[0].buffer.name(), "registers"});
    must_step(d_, Vectorize{loops.back()});
    for (size_t i = 0; i + 1 < loops.size(); ++i)
      must_step(d_, Unroll{loops[i]});
  }

  void schedule_input() {
    bool at_band = bands_ > 1 || (!image_.empty() && !images_inside_);
    if (at_band) must_step(d_, ComputeAt{input_, band_loop_});
    std::optional<BlockInfo> info = analyze_nested(s_, input_);
    if (!info || info->axes.size() < 4)
      return give_up(d_, RefusalCode::not_injective, "the input's transform has another form");
    // [(channel block), position, position, tile, lane]: positions inside.
    std::vector<std::string> loops;
    for (const AxisInfo& a : info->axes)
      loops.push_back(a.loop);
    size_t tile = loops.size() - 2;
    std::vector<std::string> positions{loops[tile - 2], loops[tile - 1]},
        order(loops.begin(), loops.begin() + tile - 2);
    order.push_back(loops[tile]);
    order.insert(order.end(), positions.begin(), positions.end());
    order.push_back(loops.back());
    must_step(d_, Reorder{order});
    schedule_stage(rows_, loops[tile]);
    for (const std::string& position : positions)
      must_step(d_, Unroll{position});
    must_step(d_, Vectorize{loops.back()});
    if (!at_band && worth_parallel(us_ / 4, t_)) try_step(d_, Parallel{order[0]});
    for (const std::string& pad : pads_) {
      if (at_band && try_step(d_, ComputeAt{pad, band_loop_})) {
        try_step(d_, Vectorize{s_.loop_names_of(pad).back()});
      }
    }
  }

  void make_parallel() {
    if (!worth_parallel(us_, t_)) return;
    int64_t outside = bands_ * (images_inside_ ? 1 : images_);
    if (balance(outside, t_.cores) >= 0.8 && outside >= t_.cores) {
      std::string outer = band_loop_;
      if (!image_.empty() && !images_inside_) {
        outer = result_ + ".outer";
        if (!try_step(d_, Fuse{{image_, band_loop_}, outer})) return;
      }
      try_step(d_, Parallel{outer});
    } else {
      try_step(d_, Parallel{panel_loop_});
    }
  }

  Draft& d_;
  Schedule& s_;
  const Target& t_;
  std::string product_, input_, rows_, sums_, result_;
  std::vector<std::string> pads_;
  BlockInfo info_, sums_info_, result_info_;
  std::string image_, block_, line_, column_, lane_;  // loops of the result
  size_t line_axis_, column_axis_;
  int64_t tile_, lanes_ = 0, lines_ = 0, columns_ = 0, blocks_ = 1, images_ = 1;
  int64_t band_ = 1, bands_ = 1;
  int64_t weights_ = 0, tile_bytes_ = 0;  // bytes
  bool images_inside_ = false;
  double us_ = 0;
  std::string band_loop_, panel_loop_, column_loop_;
};

}  // namespace

bool schedule_transformed_product(Draft& draft, const std::string& product) {
  std::optional<TransformedProduct> blocks = as_transformed_product(draft.schedule, product);
  const RuleScope scope(draft, {"products between transforms", product});
  return blocks && Bands(draft, *blocks).run();
}

}  // namespace mcc::tuner
