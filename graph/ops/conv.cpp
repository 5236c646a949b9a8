// Convolutions: Conv, ConvInteger, QLinearConv over [N, C, spatial...] with weights [M, C/group, kernel...].
#include "graph/ops/window.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

struct ConvShape {
  int64_t group = 1, out_channels = 0, group_in = 0;  // group_in: input channels of a group
  Window window;
};

std::optional<std::vector<int64_t>> static_kernel(InferContext& c, const TensorType& weights) {
  std::vector<int64_t> kernel;
  for (size_t k = 2; k < weights.shape.size(); ++k) {
    auto d = need_static_dim(c, weights.shape[k], "a dimension of the weights");
    if (!d) return std::nullopt;
    kernel.push_back(*d);
  }
  return kernel;
}

// x and w are input positions; on success the output's shape.
std::optional<Shape> infer_shape(InferContext& c, int x, int w) {
  const Shape& in = c.input(x).shape;
  const Shape& weights = c.input(w).shape;
  if (!expect_rank(c, x, 3, 5) || !expect_rank(c, w, c.rank(x))) return std::nullopt;
  auto kernel = static_kernel(c, c.input(w));
  auto channels = need_static_dim(c, in[1], "the number of input channels");
  auto m = need_static_dim(c, weights[0], "the number of output channels");
  auto group_in = need_static_dim(c, weights[1], "a dimension of the weights");
  if (!kernel || !channels || !m || !group_in) return std::nullopt;
  int64_t group = c.attributes().integer("group", 1);
  if (!expect(c, group >= 1 && *m % group == 0, "group of ", group, " for ", *m, " output channels") ||
      !expect(c, *channels == *group_in * group, "weights ", to_text(c.input(w)), " with group ", group,
              " want ", *group_in * group, " input channels, got ", *channels)) {
    return std::nullopt;
  }
  std::vector<int64_t> named = c.attributes().integers("kernel_shape", *kernel);
  if (!expect(c, named == *kernel, "kernel_shape is ", list_text(named), ", the weights' is ",
              list_text(*kernel))) {
    return std::nullopt;
  }
  auto window = checked_window(c, *kernel, spatial_dims(in));
  auto counts = window ? window_counts(c, *window, spatial_dims(in), false) : std::nullopt;
  if (!counts) return std::nullopt;
  Shape out{in[0], *m};
  out.insert(out.end(), counts->begin(), counts->end());
  return out;
}

ConvShape conv_shape(const ComputeContext& c, int x, int w) {
  std::vector<int64_t> weights = static_shape(c.input_type(w).shape);
  std::vector<int64_t> kernel(weights.begin() + 2, weights.end());
  return {c.attributes().integer("group", 1), weights[0], weights[1],
          window_of(c.attributes(), kernel, spatial_dims(c.input_type(x).shape))};
}

// The sum of products in the type `sum`; load_x and load_w make factors of it from elements of the input and the
// weights (given the output channel). Outside the input stands `outside`.
using Factor = std::function<Expr(const Expr& element, const Expr& out_channel)>;
Buffer sum_products(ComputeContext& c, int x, int w, ElementType sum, const Expr& outside,
                    const Factor& x_factor, const Factor& w_factor) {
  ConvShape s = conv_shape(c, x, w);
  const Shape& out = c.output_type(0).shape;
  Padded padded = pad_input(c, x, s.window, spatial_dims(out), outside);
  std::vector<Expr> extents{s.group_in};
  for (int64_t k : s.window.kernel)
    extents.emplace_back(k);
  int64_t group_out = s.out_channels / s.group;
  return c.builder.reduce("conv", sum, out, extents, Reducer::sum, [&](Axes i, Axes r) {
    Expr group = s.group == 1 ? Expr(0) : tensor::floor_div(i[1], group_out);
    Expr channel = s.group_in == 1 ? group : group * s.group_in + r[0];
    std::vector<Expr> w_index{i[1], r[0]};
    w_index.insert(w_index.end(), r.begin() + 1, r.end());
    std::vector<Expr> at = to_vector(i);
    at[1] = channel;
    Expr value = padded.element(c, window_index(s.window, at, r.subspan(1)));
    return x_factor(value, i[1]) * w_factor(c.at(w, w_index), i[1]);
  });
}

bool check_bias(InferContext& c, int i, const Expr& channels) {
  if (!c.has_input(i)) return true;
  return expect_rank(c, i, 1) && expect_same_dim(c, channels, c.input(i).shape[0], "length of the bias");
}

// ---- Conv ----

void infer_conv(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::floating) || !expect_same_type(c, 0, 1)) return;
  auto shape = infer_shape(c, 0, 1);
  if (!shape || !check_bias(c, 2, (*shape)[1])) return;
  const ElementType result = contraction_result(c);
  if (c.has_input(2) && result == c.input(0).element && !expect_same_type(c, 0, 2)) return;
  c.set_output(0, {result, *shape});
}

void compute_conv(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  auto factor = [](const Expr& value, const Expr&) { return widen(value); };
  Buffer sum = sum_products(c, 0, 1, wide_type(out.element), tensor::constant(c.input_type(0).element, 0),
                            factor, factor);
  if (!c.has_input(2)) return c.set_output(0, cast_buffer(c, sum, out.element));
  c.set_output(0, c.builder.compute("bias", out.element, out.shape, [&](Axes i) {
    return cast(out.element, load(sum, to_vector(i)) + widen(c.at(2, {i[1]})));
  }));
}

// ---- Integers: i32 sums of (x - x_zero) * (w - w_zero) ----

// A zero point: one for the tensor, or one for each output channel of the weights.
Expr zero_point(const ComputeContext& c, int i, const Expr& channel) {
  if (!c.has_input(i)) return 0;
  const Shape& shape = c.input_type(i).shape;
  bool per_channel = shape.size() == 1 && !tensor::is_int(shape[0], 1);
  return c.at(i, shape.empty() ? std::vector<Expr>{} : std::vector<Expr>{per_channel ? channel : Expr(0)});
}

Expr minus_zero(const ComputeContext& c, const Expr& value, int zero, const Expr& channel) {
  Expr wide = cast(ElementType::i32, value);
  return c.has_input(zero) ? wide - cast(ElementType::i32, zero_point(c, zero, channel)) : wide;
}

bool check_zero_point(InferContext& c, int i, int of, const Expr& channels) {
  if (!c.has_input(i)) return true;
  if (!expect_same_type(c, of, i) || !expect_rank(c, i, 0, 1)) return false;
  if (c.rank(i) == 0 || tensor::is_int(c.input(i).shape[0], 1)) return true;
  return expect_same_dim(c, channels, c.input(i).shape[0], text("length of input ", i));
}

bool expect_byte(InferContext& c, int i) {
  ElementType t = c.input(i).element;
  return expect(c, t == ElementType::u8 || t == ElementType::i8, "input ", i, ": expected u8 or i8, got ",
                mcc::to_text(t));
}

Buffer sum_integers(ComputeContext& c, int x, int w, int x_zero, int w_zero) {
  ElementType element = c.input_type(x).element;
  Expr outside = c.has_input(x_zero) ? zero_point(c, x_zero, 0) : tensor::constant_int({element, 1}, 0);
  return sum_products(
      c, x, w, ElementType::i32, outside,
      [&](const Expr& value, const Expr&) { return minus_zero(c, value, x_zero, 0); },
      [&](const Expr& value, const Expr& channel) { return minus_zero(c, value, w_zero, channel); });
}

void infer_conv_integer(InferContext& c) {
  if (!expect_byte(c, 0) || !expect_byte(c, 1)) return;
  auto shape = infer_shape(c, 0, 1);
  if (!shape || !check_zero_point(c, 2, 0, 1) || !check_zero_point(c, 3, 1, (*shape)[1])) return;
  c.set_output(0, {ElementType::i32, *shape});
}

void compute_conv_integer(ComputeContext& c) { c.set_output(0, sum_integers(c, 0, 1, 2, 3)); }

// ---- QLinearConv: x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias ----

void infer_qlinear_conv(InferContext& c) {
  if (!expect_byte(c, 0) || !expect_byte(c, 3) || !expect_byte(c, 7)) return;
  auto shape = infer_shape(c, 0, 3);
  if (!shape || !check_zero_point(c, 2, 0, 1) || !check_zero_point(c, 5, 3, (*shape)[1]) ||
      !check_zero_point(c, 7, 7, 1) || !check_bias(c, 8, (*shape)[1])) {
    return;
  }
  for (int i : {1, 4, 6}) {
    if (!expect_type(c, i, TypeSet::floating) || !expect_rank(c, i, 0, 1)) return;
  }
  c.set_output(0, {c.input(7).element, *shape});
}

void compute_qlinear_conv(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  Buffer sum = sum_integers(c, 0, 3, 2, 5);
  c.set_output(0, c.builder.compute("requantize", out.element, out.shape, [&](Axes i) {
    Expr total = load(sum, to_vector(i));
    if (c.has_input(8)) total = total + c.at(8, {i[1]});
    auto scale = [&](int k) { return cast(ElementType::f32, zero_point(c, k, i[1])); };
    Expr factor = scale(1) * scale(4) / scale(6);
    Expr rounded = call(Intrinsic::round, {cast(ElementType::f32, total) * factor});
    return cast(out.element, rounded + cast(ElementType::f32, zero_point(c, 7, 0)));
  }));
}

OpDef convolution(std::string_view name, void (*infer)(InferContext&), void (*compute)(ComputeContext&),
                  int required, uint32_t scalars) {
  OpDef op = onnx_op(name, FusionClass::contraction, required, infer, compute);
  op.scalar_inputs = scalars;
  return op;
}

}  // namespace

std::span<const OpDef> conv_ops() {
  static const OpDef ops[] = {
      laid_out(convolution("Conv", infer_conv, compute_conv, 2, 0), LayoutRole::convolution),
      convolution("ConvInteger", infer_conv_integer, compute_conv_integer, 2, 0b1100),
      convolution("QLinearConv", infer_qlinear_conv, compute_qlinear_conv, 8, 0b10100100),
  };
  return ops;
}

}  // namespace mcc::graph
