// DFT and STFT: products with the matrix of roots of unity. Complex numbers are a last axis of two: real, imaginary.
#include "graph/ops/fourier.h"

#include <cmath>

#include "graph/ops/common.h"
#include "tensor/text.h"

namespace mcc::graph {

Transform dft_of(const Attributes& a, int64_t extent, int64_t parts, std::optional<int64_t> given) {
  bool inverse = a.integer("inverse", 0) != 0, onesided = a.integer("onesided", 0) != 0;
  Transform t;
  t.inverse = inverse;
  t.from_half = inverse && onesided;
  t.length = given.value_or(t.from_half ? 2 * (extent - 1) : extent);
  int64_t half = t.length / 2 + 1;
  t.terms = std::min(extent, t.from_half ? half : t.length);
  t.results = onesided && !inverse ? half : t.length;
  t.complex_input = parts == 2;
  t.complex_output = !t.from_half;
  return t;
}

namespace {

// ---- The transform ----

// cos and sin of the angles 2 pi k / length.
struct Roots {
  Buffer cosine, sine;
};

Roots roots_of_unity(ComputeContext& c, int64_t length, ElementType wide) {
  auto table = [&](const std::string& name, Intrinsic f) {
    return c.builder.compute(name, wide, {length}, [&](Axes i) {
      double step = 2 * M_PI / static_cast<double>(length);
      Expr angle = cast(ElementType::f64, i[0]) * tensor::constant(ElementType::f64, step);
      return cast(wide, call(f, {angle}));
    });
  };
  return {table("cosine", Intrinsic::cos), table("sine", Intrinsic::sin)};
}

// out[i...] where i[axis] is the frequency (or time) and the last axis the part: the sum over n of the rotated input.
// input(i, n, part) gives the parts of term n for the output indices i.
using Input = std::function<Expr(Axes i, const Expr& n, int part)>;
Buffer transform(ComputeContext& c, const Transform& t, const Shape& shape, size_t axis, ElementType wide,
                 const Input& input) {
  Roots roots = roots_of_unity(c, t.length, wide);
  // The matrix of factors, so that the sum is a plain product of matrices.
  auto matrix = [&](const std::string& name, const Buffer& table) {
    return c.builder.compute(name, wide, {t.results, t.terms}, [&](Axes i) {
      Expr factor = load(table, {tensor::floor_mod(i[0] * i[1], t.length)});
      if (!t.from_half) return factor;
      // A term between the ends of the half stands for itself and its mirror image.
      bool has_middle = t.length % 2 == 0;
      Expr is_end = i[1] == 0;
      if (has_middle) is_end = is_end || i[1] == t.length / 2;
      return select(is_end, factor, factor * number_like(factor, 2));
    });
  };
  Buffer cosine = matrix("cosines", roots.cosine), sine = matrix("sines", roots.sine);
  double sign = t.inverse ? 1 : -1;
  return c.builder.reduce("transform", wide, shape, {t.terms}, Reducer::sum, [&](Axes i, Axes r) {
    Expr co = load(cosine, {i[axis], r[0]});
    Expr si = number_like(co, sign) * load(sine, {i[axis], r[0]});
    Expr re = cast(wide, input(i, r[0], 0));
    Expr real = re * co, imaginary = re * si;
    if (t.complex_input) {
      Expr im = cast(wide, input(i, r[0], 1));
      real = real - im * si;
      imaginary = imaginary + im * co;
    }
    return t.complex_output ? select(i.back() == 0, real, imaginary) : real;
  });
}

// ---- DFT: inputs x, length, axis (before opset 20 an attribute) ----

std::optional<int64_t> scalar_of(InferContext& c, int i, const char* what) {
  auto values = constant_ints(c, i, what);
  if (!values || !expect(c, values->size() == 1, what, ": expected one number, got ", list_text(*values))) {
    return std::nullopt;
  }
  return (*values)[0];
}

template <class Context>
int64_t axis_of(const Context& c) {
  if (c.has_input(2) && c.constant(2)) return c.constant(2)->int_at(0);
  return c.attributes().integer("axis", -2);
}

void infer_dft(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::floating) || !expect_rank(c, 0, 2, 16)) return;
  std::optional<int64_t> length;
  if (c.has_input(1) && !(length = scalar_of(c, 1, "dft_length"))) return;
  if (c.has_input(2) && !scalar_of(c, 2, "axis")) return;
  auto axis = checked_axis(c, axis_of(c), c.rank(0));
  if (!axis || !expect(c, *axis != c.rank(0) - 1, "the last axis holds the parts of complex numbers")) return;
  const Shape& in = c.input(0).shape;
  auto extent = need_static_dim(c, in[static_cast<size_t>(*axis)], "the transformed dimension");
  auto parts = need_static_dim(c, in.back(), "the last dimension");
  if (!extent || !parts ||
      !expect(c, *parts == 1 || *parts == 2, "the last dimension: expected 1 or 2, got ", *parts)) {
    return;
  }
  Transform t = dft_of(c.attributes(), *extent, *parts, length);
  if (!expect(c, t.length >= 1 && t.length < (1 << 30) && *extent >= 1, "a transform of ", t.length,
              " points"))
    return;
  Shape out = in;
  out[static_cast<size_t>(*axis)] = t.results;
  out.back() = t.complex_output ? 2 : 1;
  c.set_output(0, {c.input(0).element, out});
}

void compute_dft(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  const TensorType& out = c.output_type(0);
  auto axis = static_cast<size_t>(normal_axis(axis_of(c), static_cast<int>(in.shape.size())));
  std::optional<int64_t> length;
  if (c.has_input(1)) length = c.constant(1)->int_at(0);
  Transform t = dft_of(c.attributes(), *static_dim(in.shape[axis]), *static_dim(in.shape.back()), length);
  ElementType wide = wide_type(in.element);
  Buffer sum = transform(c, t, out.shape, axis, wide, [&](Axes i, const Expr& n, int part) {
    std::vector<Expr> at = to_vector(i);
    at[axis] = n;
    at.back() = part;
    return c.at(0, at);
  });
  if (!t.inverse) return c.set_output(0, cast_buffer(c, sum, out.element));
  c.set_output(0, c.builder.compute("scale", out.element, out.shape, [&](Axes i) {
    Expr value = load(sum, to_vector(i));
    return cast(out.element, value / number_like(value, static_cast<double>(t.length)));
  }));
}

// ---- STFT: inputs signal [batch, time, 1 or 2], frame_step, window, frame_length ----

template <class Context>
int64_t frame_length(const Context& c, const Expr& window_extent) {
  if (c.has_input(3) && c.constant(3)) return c.constant(3)->int_at(0);
  return static_dim(window_extent).value_or(0);
}

void infer_stft(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::floating) || !expect_rank(c, 0, 2, 3)) return;
  if (c.has_input(2) && (!expect_same_type(c, 0, 2) || !expect_rank(c, 2, 1))) return;
  const Shape& in = c.input(0).shape;
  auto step = scalar_of(c, 1, "frame_step");
  if (!step || (c.has_input(3) && !scalar_of(c, 3, "frame_length"))) return;
  const Expr& time = in[1];
  const std::optional<int64_t> known_time = static_dim(time);
  int64_t parts = in.size() == 3 ? static_dim(in[2]).value_or(0) : 1;
  if (!expect(c, parts == 1 || parts == 2, "the last dimension: expected 1 or 2") ||
      !expect(c, c.has_input(2) || c.has_input(3), "neither a window nor a frame length is given")) {
    return;
  }
  int64_t length = frame_length(c, c.has_input(2) ? c.input(2).shape[0] : Expr(0));
  if (!expect(c, *step >= 1 && length >= 1 && (!known_time || length <= *known_time), "frames of ", length,
              " every ", *step, " of ", tensor::to_text(time))) {
    return;
  }
  if (c.has_input(2) && !expect_same_dim(c, length, c.input(2).shape[0], "length of the window")) return;
  bool onesided = c.attributes().integer("onesided", 1) != 0;
  if (!expect(c, !onesided || parts == 1, "onesided needs a real signal")) return;
  const Expr frames = tensor::simplify(tensor::floor_div(time - length, *step) + 1);
  c.set_output(0, {c.input(0).element, {in[0], frames, onesided ? length / 2 + 1 : length, 2}});
}

void compute_stft(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  const TensorType& out = c.output_type(0);
  int64_t step = c.constant(1)->int_at(0);
  Transform t;
  t.length = frame_length(c, c.has_input(2) ? c.input_type(2).shape[0] : Expr(0));
  t.terms = t.length;
  t.results = *static_dim(out.shape[2]);
  t.complex_input = in.shape.size() == 3 && tensor::is_int(in.shape[2], 2);
  ElementType wide = wide_type(in.element);
  Shape frames{out.shape[0], out.shape[1], t.length, t.complex_input ? 2 : 1};
  Buffer windowed = c.builder.compute("frames", wide, frames, [&](Axes i) {
    std::vector<Expr> at{i[0], i[1] * step + i[2]};
    if (in.shape.size() == 3) at.push_back(i[3]);
    Expr x = widen(c.at(0, at));
    return c.has_input(2) ? x * widen(c.at(2, {i[2]})) : x;
  });
  Buffer sum = transform(c, t, out.shape, 2, wide, [&](Axes i, const Expr& n, int part) {
    return load(windowed, {i[0], i[1], n, part});
  });
  c.set_output(0, cast_buffer(c, sum, out.element));
}

OpDef fourier(std::string_view name, void (*infer)(InferContext&), void (*compute)(ComputeContext&),
              int required, uint32_t constants) {
  OpDef op = onnx_op(name, FusionClass::contraction, required, infer, compute);
  op.constant_inputs = constants;
  return op;
}

}  // namespace

std::span<const OpDef> fourier_ops() {
  static const OpDef ops[] = {
      fourier("DFT", infer_dft, compute_dft, 1, 0b110),
      fourier("STFT", infer_stft, compute_stft, 2, 0b1010),
  };
  return ops;
}

}  // namespace mcc::graph
