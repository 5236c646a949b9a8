// DeformConv: a convolution whose taps are moved by offsets, one for each tap of each window, and weighed by a mask. Between elements
// values are interpolated linearly; outside of the input stands 0.
#include "graph/ops/window.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

// Positions of the inputs: x [N, C, spatial...], weights [M, C / group, kernel...], offsets [N, offset groups * taps * axes, out...],
// bias [M], mask [N, offset groups * taps, out...].
constexpr int kX = 0, kW = 1, kOffset = 2, kBias = 3, kMask = 4;

std::vector<int64_t> kernel_of(const Shape& weights) {
  std::vector<int64_t> kernel;
  for (size_t k = kFirstSpatial; k < weights.size(); ++k)
    kernel.push_back(*static_dim(weights[k]));
  return kernel;
}

int64_t count_of(const std::vector<int64_t>& kernel) {
  int64_t count = 1;
  for (int64_t k : kernel)
    count *= k;
  return count;
}

bool expect_places(InferContext& c, int i, const Expr& channels, const Shape& out) {
  if (!expect_rank(c, i, static_cast<int>(out.size())) ||
      !expect_same_dim(c, out[0], c.input(i).shape[0], text("batch of input ", i)) ||
      !expect_same_dim(c, channels, c.input(i).shape[1], text("dimension 1 of input ", i))) {
    return false;
  }
  for (size_t k = kFirstSpatial; k < out.size(); ++k)
    if (!expect_same_dim(c, out[k], c.input(i).shape[k], text("dimension ", k, " of input ", i)))
      return false;
  return true;
}

void infer_deform_conv(InferContext& c) {
  for (int i : {kW, kOffset, kBias, kMask})
    if (c.has_input(i) && !expect_same_type(c, kX, i)) return;
  if (!expect_type(c, kX, TypeSet::floating) || !expect_rank(c, kX, 3, 5) || !expect_rank(c, kW, c.rank(kX)))
    return;
  const Shape& in = c.input(kX).shape;
  const Shape& weights = c.input(kW).shape;
  const Attributes& a = c.attributes();
  std::vector<int64_t> sizes;
  for (const Expr& d : weights) {
    const auto size = need_static_dim(c, d, "a dimension of the weights");
    if (!size) return;
    sizes.push_back(*size);
  }
  const auto channels = need_static_dim(c, in[1], "the number of input channels");
  const std::vector<int64_t> kernel = kernel_of(weights);
  const int64_t group = a.integer("group", 1), offset_group = a.integer("offset_group", 1);
  if (!channels ||
      !expect(c, group >= 1 && sizes[0] % group == 0, "group of ", group, " for ", sizes[0],
              " output channels") ||
      !expect(c, *channels == sizes[1] * group, "weights ", to_text(c.input(kW)), " with group ", group,
              " want ", sizes[1] * group, " input channels, got ", *channels) ||
      !expect(c, offset_group >= 1 && *channels % offset_group == 0, "offset_group of ", offset_group,
              " for ", *channels, " input channels") ||
      !expect(c, a.integers("kernel_shape", kernel) == kernel, "kernel_shape is ",
              list_text(a.integers("kernel_shape", kernel)), ", the weights' is ", list_text(kernel))) {
    return;
  }
  const auto window = checked_window(c, kernel, spatial_dims(in));
  const auto counts = window ? window_counts(c, *window, spatial_dims(in), false) : std::nullopt;
  if (!counts) return;
  Shape out{in[0], sizes[0]};
  out.insert(out.end(), counts->begin(), counts->end());
  const int64_t taps = offset_group * count_of(kernel);
  if (!expect_places(c, kOffset, taps * static_cast<int64_t>(kernel.size()), out)) return;
  if (c.has_input(kMask) && !expect_places(c, kMask, taps, out)) return;
  if (c.has_input(kBias) && (!expect_rank(c, kBias, 1) ||
                             !expect_same_dim(c, sizes[0], c.input(kBias).shape[0], "length of the bias")))
    return;
  c.set_output(0, {c.input(kX).element, out});
}

// What tap `tap` of the window at `place` reads of a channel: the weighed sum of the elements around the moved position.
Expr sampled(const ComputeContext& c, const Window& window, const Expr& n, const Expr& channel, Axes tap,
             Axes place) {
  const Shape& in = c.input_type(kX).shape;
  const auto axes = static_cast<int64_t>(window.rank());
  const int64_t per_group = *static_dim(in[1]) / c.attributes().integer("offset_group", 1);
  Expr number = floor_div(channel, Expr(per_group));
  for (size_t k = 0; k < window.rank(); ++k)
    number = number * window.kernel[k] + tap[k];
  auto index = [&](const Expr& at) {
    std::vector<Expr> i{n, at};
    i.insert(i.end(), place.begin(), place.end());
    return i;
  };
  std::vector<Expr> positions;
  for (size_t k = 0; k < window.rank(); ++k) {
    const Expr offset = widen(c.at(kOffset, index(number * axes + static_cast<int64_t>(k))));
    positions.push_back(
        cast(offset.element(), place[k] * window.stride[k] - window.begin[k] + tap[k] * window.dilation[k]) +
        offset);
  }
  // Both neighbours along each axis.
  std::function<Expr(size_t, std::vector<Expr>)> sum = [&](size_t k, std::vector<Expr> at) -> Expr {
    if (k == window.rank()) return widen(c.at(kX, at));
    const Expr& x = positions[k];
    const Expr low = call(Intrinsic::floor, {x}), extent = cast(x.element(), in[kFirstSpatial + k]);
    Expr total;
    for (int side = 0; side < 2; ++side) {
      const Expr p = low + number_like(x, side);
      const Expr weight = side == 0 ? number_like(x, 1) - (x - low) : x - low;
      std::vector<Expr> next = at;
      // Whatever the data, nothing outside the tensor is read.
      next.push_back(tensor::min(tensor::max(cast(ElementType::i64, p), 0), in[kFirstSpatial + k] - 1));
      const Expr value = sum(k + 1, next) * weight;
      const Expr inside = select(p >= number_like(x, 0) && p < extent, value, number_like(value, 0));
      total = total.defined() ? total + inside : inside;
    }
    return total;
  };
  const Expr value = sum(0, {n, channel});
  return c.has_input(kMask) ? value * widen(c.at(kMask, index(number))) : value;
}

void compute_deform_conv(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const Shape& in = c.input_type(kX).shape;
  const Shape& weights = c.input_type(kW).shape;
  const std::vector<int64_t> kernel = kernel_of(weights);
  const Window window = window_of(c.attributes(), kernel, spatial_dims(in));
  const ElementType wide = wide_type(out.element);
  const auto rank = static_cast<std::ptrdiff_t>(window.rank());
  Shape shape{in[0], in[1]};
  for (int64_t k : kernel)
    shape.emplace_back(k);
  shape.insert(shape.end(), out.shape.begin() + kFirstSpatial, out.shape.end());
  Buffer taps = c.builder.compute("sample", wide, shape, [&](Axes i) {
    return sampled(c, window, i[0], i[1], i.subspan(2, window.rank()), i.subspan(2 + window.rank()));
  });
  std::vector<Expr> extents(weights.begin() + 1, weights.end());
  const int64_t group_in = *static_dim(weights[1]),
                group_out = *static_dim(weights[0]) / c.attributes().integer("group", 1);
  Buffer sum = c.builder.reduce("conv", wide, out.shape, extents, Reducer::sum, [&](Axes i, Axes r) {
    std::vector<Expr> at{i[0], floor_div(i[1], Expr(group_out)) * group_in + r[0]}, w{i[1]};
    at.insert(at.end(), r.begin() + 1, r.begin() + 1 + rank);
    at.insert(at.end(), i.begin() + 2, i.end());
    w.insert(w.end(), r.begin(), r.end());
    return load(taps, at) * widen(c.at(kW, w));
  });
  if (!c.has_input(kBias)) return c.set_output(0, cast_buffer(c, sum, out.element));
  c.set_output(0, c.builder.compute("bias", out.element, out.shape, [&](Axes i) {
    return cast(out.element, load(sum, to_vector(i)) + widen(c.at(kBias, {i[1]})));
  }));
}

}  // namespace

std::span<const OpDef> deform_conv_ops() {
  static const OpDef ops[] = {
      onnx_op("DeformConv", FusionClass::opaque, 3, infer_deform_conv, compute_deform_conv)};
  return ops;
}

}  // namespace mcc::graph
