// Sampling at positions that come from data: GridSample, RoiAlign.
#include <cmath>

#include "graph/ops/common.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

Expr whole(const Expr& x) { return cast(ElementType::i64, x); }

// ---- GridSample: x [N, C, spatial...], grid [N, out..., n] with positions in [-1, 1], the last axis first ----

enum class Padding { zeros, border, reflection };

struct GridOptions {
  int taps = 2;  // 1 nearest, 2 linear, 4 cubic
  Padding padding = Padding::zeros;
  bool align_corners = false;
};

std::optional<GridOptions> grid_options(const Attributes& a) {
  GridOptions o;
  std::string mode = a.text("mode", "linear"), padding = a.text("padding_mode", "zeros");
  if (mode == "nearest") {
    o.taps = 1;
  } else if (mode == "cubic" || mode == "bicubic") {
    o.taps = 4;
  } else if (mode != "linear" && mode != "bilinear") {
    return std::nullopt;
  }
  if (padding == "border") {
    o.padding = Padding::border;
  } else if (padding == "reflection") {
    o.padding = Padding::reflection;
  } else if (padding != "zeros") {
    return std::nullopt;
  }
  o.align_corners = a.integer("align_corners", 0) != 0;
  return o;
}

void infer_grid_sample(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::floating) || !expect_type(c, 1, TypeSet::floating) ||
      !expect_rank(c, 0, 3, 5) || !expect_rank(c, 1, c.rank(0))) {
    return;
  }
  if (!expect(c, grid_options(c.attributes()).has_value(), "mode ", c.attributes().text("mode", "linear"),
              " with padding_mode ", c.attributes().text("padding_mode", "zeros"), " is not known")) {
    return;
  }
  const Shape& in = c.input(0).shape;
  const Shape& grid = c.input(1).shape;
  if (!expect_same_dim(c, in[0], grid[0], "batch of the grid") ||
      !expect_same_dim(c, static_cast<int64_t>(in.size()) - 2, grid.back(), "last dimension of the grid")) {
    return;
  }
  Shape out{in[0], in[1]};
  out.insert(out.end(), grid.begin() + 1, grid.end() - 1);
  c.set_output(0, {c.input(0).element, out});
}

// x mirrored at both ends of [low, high] until it lies inside.
Expr reflected(const Expr& x, const Expr& low, const Expr& high) {
  Expr span = high - low;
  Expr distance = call(Intrinsic::abs, {x - low});
  Expr turns = call(Intrinsic::floor, {distance / span});
  Expr rest = distance - turns * span;
  Expr is_odd = binary(BinaryOp::mod, turns, number_like(turns, 2)) == 1;
  return select(span == 0, low, select(is_odd, high - rest, low + rest));
}

Expr cubic_weight(const Expr& distance) {
  constexpr double a = -0.75;
  auto k = [&](double v) { return number_like(distance, v); };
  Expr d = call(Intrinsic::abs, {distance});
  Expr near = ((k(a + 2) * d - k(a + 3)) * d) * d + k(1);
  Expr far = ((k(a) * d - k(5 * a)) * d + k(8 * a)) * d - k(4 * a);
  return select(d <= k(1), near, select(d < k(2), far, k(0)));
}

// One spatial axis: where the taps of an output element stand, and their weights.
struct Tap {
  Expr index, inside, weight;
};

Tap tap_at(const GridOptions& o, const Expr& x, const Expr& extent, int tap) {
  Expr n = cast(x.element(), extent);
  Expr first = o.taps == 1 ? call(Intrinsic::round, {x}) : call(Intrinsic::floor, {x});
  Expr position = first + number_like(x, tap - (o.taps == 4 ? 1 : 0));
  Tap t;
  if (o.taps == 2) t.weight = number_like(x, 1) - call(Intrinsic::abs, {x - position});
  if (o.taps == 4) t.weight = cubic_weight(x - position);
  t.inside = tensor::true_value();
  if (o.padding == Padding::zeros) t.inside = position >= 0 && position <= n - 1;
  if (o.padding == Padding::reflection) {
    Expr half = number_like(x, o.align_corners ? 0.0 : 0.5);
    Expr mirrored = reflected(position, -half, n - 1 + half);
    bool may_leave = o.taps != 1;
    position = may_leave ? select(position >= 0 && position <= n - 1, position, mirrored) : position;
  }
  // Whatever the data, nothing outside the tensor is read.
  t.index = tensor::min(tensor::max(whole(position), 0), extent - 1);
  return t;
}

// The position along an axis of this extent that the grid's value in [-1, 1] means, before taps are taken.
Expr denormalized(const GridOptions& o, const Expr& value, const Expr& extent) {
  Expr n = cast(value.element(), extent), one = number_like(value, 1), half = number_like(value, 0.5);
  Expr x = o.align_corners ? (value + one) * half * (n - one) : ((value + one) * n - one) * half;
  if (o.taps == 1) x = call(Intrinsic::round, {x});
  if (o.padding == Padding::border) x = tensor::min(tensor::max(x, number_like(x, 0)), n - one);
  if (o.padding == Padding::reflection) {
    Expr edge = number_like(x, o.align_corners ? 0.0 : 0.5);
    Expr low = -edge, high = n - one + edge;
    x = select(x < low || x > high, reflected(x, low, high), x);
  }
  return x;
}

void compute_grid_sample(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  const TensorType& out = c.output_type(0);
  const TensorType& grid = c.input_type(1);
  GridOptions o = *grid_options(c.attributes());
  size_t rank = in.shape.size() - 2;
  ElementType wide = wide_type(in.element);
  Shape position_shape(grid.shape.begin(), grid.shape.end());
  Buffer positions = c.builder.compute("position", wide, position_shape, [&](Axes i) {
    Expr value = cast(wide, c.at(1, to_vector(i)));
    Expr result = denormalized(o, value, in.shape.back());
    for (size_t k = 1; k < rank; ++k) {
      // Component k of the grid belongs to the k-th axis from the end.
      result = select(i.back() == static_cast<int64_t>(k),
                      denormalized(o, value, in.shape[in.shape.size() - 1 - k]), result);
    }
    return result;
  });
  c.set_output(0, c.builder.compute("sample", out.element, out.shape, [&](Axes i) {
    std::vector<Expr> x;
    for (size_t k = 0; k < rank; ++k) {
      std::vector<Expr> at{i[0]};
      at.insert(at.end(), i.begin() + 2, i.end());
      at.emplace_back(static_cast<int64_t>(rank - 1 - k));
      x.push_back(load(positions, at));
    }
    // All combinations of the taps of the axes, the last axis fastest.
    std::function<Expr(size_t, std::vector<Expr>, Expr)> sum = [&](size_t k, std::vector<Expr> at,
                                                                   const Expr& inside) -> Expr {
      if (k == rank) return select(inside, cast(wide, c.at(0, at)), tensor::constant(wide, 0));
      Expr total;
      for (int tap = 0; tap < o.taps; ++tap) {
        Tap t = tap_at(o, x[k], in.shape[k + 2], tap);
        std::vector<Expr> next = at;
        next.push_back(t.index);
        Expr value = sum(k + 1, next, inside && t.inside);
        if (t.weight.defined()) value = value * t.weight;
        total = total.defined() ? total + value : value;
      }
      return total;
    };
    return cast(out.element, sum(0, {i[0], i[1]}, tensor::true_value()));
  }));
}

// ---- RoiAlign: boxes of x, cut into a grid of bins, each the mean or maximum of bilinear samples ----

void infer_roi_align(InferContext& c) {
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
  c.set_output(0, {c.input(0).element, {c.input(1).shape[0], c.input(0).shape[1], height, width}});
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

void compute_roi_align(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  const TensorType& out = c.output_type(0);
  const Attributes& a = c.attributes();
  int64_t samples = a.integer("sampling_ratio", 1);
  bool mean = a.text("mode", "avg") == "avg";
  int64_t height = a.integer("output_height", 1), width = a.integer("output_width", 1);
  ElementType wide = wide_type(in.element);
  auto value = [&](Axes i, Axes r) {
    Neighbours y = neighbours(sample_position(c, i[0], 1, i[2], r[0], height, samples), in.shape[2]);
    Neighbours x = neighbours(sample_position(c, i[0], 0, i[3], r[1], width, samples), in.shape[3]);
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
      total = mean ? total + corners[k] : tensor::max(total, corners[k]);
    return select(y.valid && x.valid, total, number_like(total, 0));
  };
  Buffer pooled = c.builder.reduce("pool", wide, out.shape, {samples, samples},
                                   mean ? Reducer::sum : Reducer::max, value);
  if (!mean) return c.set_output(0, cast_buffer(c, pooled, out.element));
  c.set_output(0, c.builder.compute("average", out.element, out.shape, [&](Axes i) {
    Expr total = load(pooled, to_vector(i));
    return cast(out.element, total / number_like(total, static_cast<double>(samples * samples)));
  }));
}

}  // namespace

std::span<const OpDef> sample_ops() {
  static const OpDef ops[] = {
      onnx_op("GridSample", FusionClass::opaque, 2, infer_grid_sample, compute_grid_sample),
      onnx_op("RoiAlign", FusionClass::opaque, 3, infer_roi_align, compute_roi_align),
  };
  return ops;
}

}  // namespace mcc::graph
