// RoiAlign: boxes of x, cut into a grid of bins, each the mean or maximum of bilinear samples. mcc.RoiAlign: the same of an x whose channels are
// last, [N, H, W, C], which gives [boxes, height, width, C].
#include <cmath>

#include "graph/ops/sample.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

Expr whole(const Expr& x) { return cast(ElementType::i64, x); }

void infer(InferContext& c, SampleLayout layout) {
  if (!expect_type(c, 0, TypeSet::floating) || !expect_rank(c, 0, 4) || !expect_same_type(c, 0, 1) ||
      !expect_rank(c, 1, 2) || !expect_type(c, 2, TypeSet::index) || !expect_rank(c, 2, 1) ||
      !expect_same_dim(c, 4, c.input(1).shape[1], "numbers of a box") ||
      !expect_same_dim(c, c.input(1).shape[0], c.input(2).shape[0], "number of batch indices")) {
    return;
  }
  const Attributes& a = c.attributes();
  std::string mode = a.text("mode", "avg"),
              coordinates = a.text("coordinate_transformation_mode", "half_pixel");
  int64_t height = a.integer("output_height", 1), width = a.integer("output_width", 1);
  if (!expect(c, mode == "avg" || mode == "max", "mode: expected avg or max, got ", mode) ||
      !expect(c, coordinates == "half_pixel" || coordinates == "output_half_pixel",
              "coordinate_transformation_mode: expected half_pixel or output_half_pixel, got ",
              coordinates) ||
      !expect(c, height >= 1 && width >= 1 && height < (1 << 20) && width < (1 << 20), "an output of ",
              height, " by ", width)) {
    return;
  }
  if (a.integer("sampling_ratio", 0) <= 0)
    return c.unsupported("sampling_ratio = 0 (as many samples as the data says)");
  c.set_output(0, {c.input(0).element, layout.joined({c.input(1).shape[0]},
                                                     c.input(0).shape[layout.channel(4)], {height, width})});
}

// Corner of a box (k: 0 left, 1 top, 2 right, 3 bottom) in pixels.
Expr corner(const ComputeContext& c, const Expr& box, int64_t k) {
  const Attributes& a = c.attributes();
  Expr value = widen(c.at(1, {box, k}));
  bool half_pixel = a.text("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  return value * number_like(value, a.number("spatial_scale", 1)) -
         number_like(value, half_pixel ? 0.5 : 0.0);
}

// Position of sample `sample` of bin `bin` along an axis (0: x, 1: y).
Expr sample_position(const ComputeContext& c, const Expr& box, int axis, const Expr& bin, const Expr& sample,
                     int64_t bins, int64_t samples) {
  Expr start = corner(c, box, axis), extent = corner(c, box, axis + 2) - start;
  bool half_pixel = c.attributes().text("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  if (!half_pixel) extent = tensor::max(extent, number_like(extent, 1));
  Expr size = extent / number_like(extent, static_cast<double>(bins));
  Expr inner = (cast(size.element(), sample) + number_like(size, 0.5)) /
               number_like(size, static_cast<double>(samples));
  return start + (cast(size.element(), bin) + inner) * size;
}

struct Neighbours {
  Expr low, high, high_weight, valid;
};

Neighbours neighbours(const Expr& position, const Expr& extent) {
  Expr n = cast(position.element(), extent);
  Neighbours result;
  result.valid = position >= number_like(position, -1) && position <= n;
  Expr last = n - number_like(position, 1);
  Expr x = tensor::min(tensor::max(position, number_like(position, 0)), last);
  result.low = tensor::min(tensor::max(whole(x), 0), extent - 1);
  result.high = tensor::min(result.low + 1, extent - 1);
  result.high_weight = x - cast(x.element(), result.low);
  return result;
}

// Mean of the sums, converted.
void set_result(ComputeContext& c, const Buffer& pooled, bool mean, int64_t samples) {
  const TensorType& out = c.output_type(0);
  if (!mean) return c.set_output(0, cast_buffer(c, pooled, out.element));
  c.set_output(0, c.builder.compute("average", out.element, out.shape, [&](Axes i) {
    Expr total = load(pooled, to_vector(i));
    return cast(out.element, total / number_like(total, static_cast<double>(samples * samples)));
  }));
}

struct RoiOptions {
  int64_t samples, height, width;
  bool mean;
  Reducer reducer() const { return mean ? Reducer::sum : Reducer::max; }
};

RoiOptions roi_options(const Attributes& a) {
  return {a.integer("sampling_ratio", 1), a.integer("output_height", 1), a.integer("output_width", 1),
          a.text("mode", "avg") == "avg"};
}

void compute_roi_align(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  const RoiOptions o = roi_options(c.attributes());
  const ElementType wide = wide_type(in.element);
  auto value = [&](Axes i, Axes r) {
    Neighbours y = neighbours(sample_position(c, i[0], 1, i[2], r[0], o.height, o.samples), in.shape[2]);
    Neighbours x = neighbours(sample_position(c, i[0], 0, i[3], r[1], o.width, o.samples), in.shape[3]);
    Expr batch = gather_index(c.at(2, {i[0]}), in.shape[0]);
    Expr one = number_like(x.high_weight, 1);
    auto pixel = [&](const Expr& row, const Expr& column, const Expr& wy, const Expr& wx) {
      return cast(wide, c.at(0, {batch, i[1], row, column})) * (wy * wx);
    };
    Expr corners[] = {pixel(y.low, x.low, one - y.high_weight, one - x.high_weight),
                      pixel(y.low, x.high, one - y.high_weight, x.high_weight),
                      pixel(y.high, x.low, y.high_weight, one - x.high_weight),
                      pixel(y.high, x.high, y.high_weight, x.high_weight)};
    Expr total = corners[0];
    for (int k = 1; k < 4; ++k)
      total = o.mean ? total + corners[k] : tensor::max(total, corners[k]);
    return select(y.valid && x.valid, total, number_like(total, 0));
  };
  set_result(
      c, c.builder.reduce("pool", wide, c.output_type(0).shape, {o.samples, o.samples}, o.reducer(), value),
      o.mean, o.samples);
}

// ---- By tables: of each box and axis, where the taps of its samples stand and what they weigh, [boxes, bins, 2 * samples]: two neighbours
// for each sample, the lower one first. All channels read them ----

struct AxisTable {
  Buffer place, weight;
};

// Axis 0: x, 1: y.
AxisTable tabulate(ComputeContext& c, int axis, const Expr& extent, int64_t bins, int64_t samples) {
  const Shape shape{c.input_type(1).shape[0], bins, 2 * samples};
  auto at = [&](Axes i) {
    return neighbours(sample_position(c, i[0], axis, i[1], tensor::floor_div(i[2], 2), bins, samples),
                      extent);
  };
  auto is_high = [](Axes i) { return tensor::floor_mod(i[2], 2) == 1; };
  AxisTable table;
  table.place = c.builder.compute("place", ElementType::i32, shape, [&](Axes i) {
    const Neighbours n = at(i);
    return cast(ElementType::i32, select(is_high(i), n.high, n.low));
  });
  table.weight = c.builder.compute("weight", wide_type(c.input_type(0).element), shape, [&](Axes i) {
    const Neighbours n = at(i);
    const Expr weight = select(is_high(i), n.high_weight, number_like(n.high_weight, 1) - n.high_weight);
    return select(n.valid, weight, number_like(weight, 0));
  });
  return table;
}

void compute_by_tables(ComputeContext& c, SampleLayout layout) {
  const TensorType& in = c.input_type(0);
  const RoiOptions o = roi_options(c.attributes());
  const size_t first = layout.first_spatial(), channel = layout.channel(4);
  const AxisTable y = tabulate(c, 1, in.shape[first], o.height, o.samples);
  const AxisTable x = tabulate(c, 0, in.shape[first + 1], o.width, o.samples);
  auto value = [&](Axes i, Axes r) {
    const std::vector<Expr> row{i[0], i[first], r[0]}, column{i[0], i[first + 1], r[1]};
    const Expr batch = gather_index(c.at(2, {i[0]}), in.shape[0]);
    const std::vector<Expr> place{cast(ElementType::i64, load(y.place, row)),
                                  cast(ElementType::i64, load(x.place, column))};
    return widen(c.at(0, layout.joined({batch}, i[channel], place))) *
           (load(y.weight, row) * load(x.weight, column));
  };
  const Shape taps{2 * o.samples, 2 * o.samples};
  set_result(
      c, c.builder.reduce("pool", wide_type(in.element), c.output_type(0).shape, taps, o.reducer(), value),
      o.mean, o.samples);
}

void infer_roi_align(InferContext& c) { infer(c, kChannelsSecond); }
void infer_laid_out(InferContext& c) { infer(c, kChannelsLast); }
void compute_plain(ComputeContext& c) {
  if (c.attributes().has(kTabulated)) return compute_by_tables(c, kChannelsSecond);
  compute_roi_align(c);
}
void compute_laid_out(ComputeContext& c) { compute_by_tables(c, kChannelsLast); }

}  // namespace

std::span<const OpDef> roi_align_ops() {
  static const OpDef ops[] = {
      onnx_op("RoiAlign", FusionClass::opaque, 3, infer_roi_align, compute_plain),
      own_op("RoiAlign", FusionClass::opaque, 3, infer_laid_out, compute_laid_out),
  };
  return ops;
}

}  // namespace mcc::graph
