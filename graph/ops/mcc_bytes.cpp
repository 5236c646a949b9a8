// Products of bytes, so many to a dot product (the attribute word, tensor/instructions.h): four of bytes, or two of activations that
// are widened to 16 bits, where a target has no other; and what stands around them.
//
//   mcc.PackBytes    i8 [D..., K, N]  ->  [ceil(N/c), D..., ceil(K/w), c, w], 0 past the edges. Attributes block (c), word (w; 4)
//   mcc.MatMulBytes  u8 (or i8, on GPUs), or i16 [..., M, K], packed [ceil(N/c), ceil(K/w), c, w]  ->  i32 [..., M, N]
//   mcc.ConvBytes    u8 (or i8), or i16 [B, D..., C], packed [ceil(N/c), R..., ceil(C/w), c, w]  ->  i32 [B, D'..., N]: channels last,
//                    one or two spatial dimensions. Attributes strides, dilations, pads (begins, then ends), and padding,
//                    the number that stands around the input. With the attribute kernel (its extents) the last axis of the kernel and the
//                    words of channels are one, [.., R, S * ceil(C/w), c, w]. With the attribute group (g) each of so many parts of the
//                    columns is made of its part of the channels, as many as the packed weights have, 0 behind the last:  ->  i32 [B, D'..., g, N/g]
//   mcc.DepthwiseBytes  u8 or i8 [B, D..., C], i16 [R..., C]  ->  i32 [B, D'..., C]: each channel by itself, with ConvBytes' attributes
//                    of windows; with weights of f32, which are whole numbers, sums of f32, exact as long as they fit
//   mcc.WindowSums   i32 [B, D..., C]  ->  i32 [B, D'..., C]: sums over the windows of such a convolution. Attributes kernel_shape,
//                    strides, dilations, pads, and padding, the number that stands around the input
//   mcc.ToUnsigned   i8 -> u8: x + 128
//   mcc.LookUp       u8 or i8 [...], table [256]  ->  [...] of the table's type: the element whose number the bits of each byte are
//   mcc.Requantize   sum: i32 (or whole numbers of f32), offset: of the same type, scale: f32, bias: f32  ->  f32(sum + offset) * scale + bias; where the attribute
//                    `to` is an integer type, rounded to even, plus zero_point, and brought into low .. high
// The first two have the attribute columns: N, which is a multiple of the lanes of a vector of sums.
#include "graph/ops/window.h"

namespace mcc::graph {
namespace {

// ---- PackBytes ----

int64_t word_of_packed(const Attributes& a) { return a.integer("word", 4); }

void infer_pack(InferContext& c) {
  const Shape& w = c.input(0).shape;
  const Expr block(c.attributes().integer("block", 16)), word(word_of_packed(c.attributes()));
  Shape shape{tensor::ceil_div(w.back(), block)};
  shape.insert(shape.end(), w.begin(), w.end() - 2);
  shape.insert(shape.end(), {tensor::ceil_div(w[w.size() - 2], word), block, word});
  c.set_output(0, {c.input(0).element, shape});
}

void compute_pack(ComputeContext& c) {
  const TensorType& w = c.input_type(0);
  const Expr block(c.attributes().integer("block", 16)), word(word_of_packed(c.attributes()));
  const size_t depth = w.shape.size() - 2;
  c.set_output(0, c.builder.compute("pack", w.element, c.output_type(0).shape, [&](Axes i) {
    std::vector<Expr> index(i.begin() + 1, i.begin() + 1 + static_cast<std::ptrdiff_t>(depth));
    index.push_back(i[depth + 1] * word + i[depth + 3]);
    index.push_back(i[0] * block + i[depth + 2]);
    Expr inside = index[depth] < w.shape[depth] && index[depth + 1] < w.shape[depth + 1];
    return select(inside, c.at(0, index), tensor::constant_int({w.element, 1}, 0));
  }));
}

// ---- MatMulBytes, ConvBytes ----

// The spatial axes of activations [B, D..., C].
constexpr size_t kFirst = 1;

Window window_of_taps(const Attributes& a, Axes taps) { return window_of(a, static_shape(to_vector(taps)), {}); }

// Of windows over x: with so many columns.
Shape windowed(Shape x, const Window& w, const Expr& columns) {
  for (size_t k = 0; k < w.rank(); ++k)
    x[kFirst + k] = window_count(w, k, x[kFirst + k]);
  x.back() = columns;
  return x;
}

// Input 0 with the attribute padding around it, its channels filled to groups of so many.
Padded padded_input(ComputeContext& c, const Window& w, int64_t group,
                    std::optional<ElementType> element = {}) {
  const TensorType& x = c.input_type(0);
  const Shape& out = c.output_type(0).shape;
  const auto first = out.begin() + kFirst;
  return pad_input(c, 0, w, {first, first + static_cast<std::ptrdiff_t>(w.rank())},
                   tensor::constant_int({x.element, 1}, c.attributes().integer("padding", 0)),
                   {kFirst, group, element});
}

Expr widened(const Expr& e) { return cast(ElementType::i32, e); }

// The taps of packed weights, along each spatial dimension: none of a matrix.
Shape packed_taps(const Attributes& a, const Shape& packed) {
  const std::vector<int64_t> kernel = a.integers("kernel");
  if (!kernel.empty()) return {kernel.begin(), kernel.end()};
  return {packed.begin() + 1, packed.end() - 3};
}

void infer_product(InferContext& c) {
  const Shape taps = packed_taps(c.attributes(), c.input(1).shape);
  const Expr columns(c.attributes().integer("columns", 0));
  Shape shape = windowed(c.input(0).shape, window_of_taps(c.attributes(), taps), columns);
  if (const int64_t groups = c.attributes().integer("group", 1); groups > 1) {
    shape.back() = Expr(groups);
    shape.push_back(tensor::floor_div(columns, Expr(groups)));
  }
  c.set_output(0, {ElementType::i32, shape});
}

void compute_product(ComputeContext& c, const char* name) {
  const Shape& w = c.input_type(1).shape;
  const Window window = window_of_taps(c.attributes(), packed_taps(c.attributes(), w));
  const bool joins_row = c.attributes().has("kernel");
  // Of the reduction's axes: the words of channels, behind the taps, or those of a row's taps.
  const size_t words = window.rank() - (joins_row ? 1 : 0);
  const Expr &block = w[w.size() - 2], &parts = w.back();
  const int64_t groups = c.attributes().integer("group", 1);
  const Expr& row_words = w[w.size() - 3];
  const Expr tap_words = joins_row ? tensor::floor_div(row_words, Expr(window.kernel.back()))
                                   : row_words;  // of a group's channels
  const Padded x = padded_input(c, window, *static_dim(parts) * *static_dim(tap_words));
  std::vector<Expr> reduce(w.begin() + 1, w.end() - 2);
  reduce.push_back(parts);
  c.set_output(0, c.builder.reduce(name, ElementType::i32, c.output_type(0).shape, reduce, Reducer::sum, [&](Axes s, Axes r) {
    // Panels of one column (a GPU's) are the columns themselves.
    const bool is_one = tensor::is_int(block, 1);
    std::vector<Expr> taps = to_vector(r), place = to_vector(s),
                      weight{is_one ? s.back() : floor_div(s.back(), block)};
    Expr word = r[words], first(0);  // the channel with which the group begins
    if (joins_row) {
      taps[words] = floor_div(r[words], tap_words);
      word = floor_mod(r[words], tap_words);
    }
    if (groups > 1) {
      place.pop_back();
      first = place.back() * (tap_words * parts);
      weight[0] = weight[0] + place.back() * floor_div(c.output_type(0).shape.back(), block);
    }
    std::vector<Expr> at = window_index(window, place, taps, kFirst);
    weight.insert(weight.end(), r.begin(), r.begin() + static_cast<std::ptrdiff_t>(words));
    at.back() = first + word * parts + r[words + 1];
    weight.insert(weight.end(), {r[words], is_one ? Expr(0) : floor_mod(s.back(), block), r[words + 1]});
    return widened(x.element(c, at)) * widened(c.at(1, weight));
  }));
}

// ---- DepthwiseBytes, WindowSums ----

// Weights that are left out are 1; their taps are an attribute then.
Shape taps_of(const Attributes& a, const Shape* weights) {
  if (weights != nullptr) return {weights->begin(), weights->end() - 1};
  const std::vector<int64_t> kernel = a.integers("kernel_shape", {});
  return {kernel.begin(), kernel.end()};
}

ElementType sum_of_each_channel(const TensorType* weights) {
  return weights != nullptr && is_float(weights->element) ? weights->element : ElementType::i32;
}

void infer_of_each_channel(InferContext& c) {
  const Shape taps = taps_of(c.attributes(), c.has_input(1) ? &c.input(1).shape : nullptr);
  const Shape& x = c.input(0).shape;
  const ElementType sum = sum_of_each_channel(c.has_input(1) ? &c.input(1) : nullptr);
  c.set_output(0, {sum, windowed(x, window_of_taps(c.attributes(), taps), x.back())});
}

void compute_of_each_channel(ComputeContext& c, const char* name) {
  const Shape taps = taps_of(c.attributes(), c.has_input(1) ? &c.input_type(1).shape : nullptr);
  const Window window = window_of_taps(c.attributes(), taps);
  const ElementType sum = c.output_type(0).element;
  // Converted once, not for each window.
  const Padded x = padded_input(c, window, 1, is_float(sum) ? std::optional(sum) : std::nullopt);
  c.set_output(0,
               c.builder.reduce(name, sum, c.output_type(0).shape, taps, Reducer::sum, [&](Axes s, Axes r) {
                 const Expr element = cast(sum, x.element(c, window_index(window, to_vector(s), r, kFirst)));
                 if (!c.has_input(1)) return element;
                 std::vector<Expr> weight = to_vector(r);
                 weight.push_back(s.back());
                 return element * cast(sum, c.at(1, weight));
               }));
}

// ---- ToUnsigned ----

void infer_to_unsigned(InferContext& c) { c.set_output(0, {ElementType::u8, c.input(0).shape}); }

void compute_to_unsigned(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  c.set_output(0, c.builder.compute("to_unsigned", out.element, out.shape, [&](Axes i) {
    Expr x = tensor::Call::make({ElementType::u8, 1}, Intrinsic::bit_cast, {c.at(0, to_vector(i))});
    return tensor::binary(BinaryOp::bit_xor, x, tensor::constant_int({ElementType::u8, 1}, 128));
  }));
}

// ---- LookUp ----

void infer_look_up(InferContext& c) { c.set_output(0, {c.input(1).element, c.input(0).shape}); }

void compute_look_up(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  c.set_output(0, c.builder.compute("look_up", out.element, out.shape, [&](Axes i) {
    Expr byte = c.at(0, to_vector(i));
    if (byte.element() != ElementType::u8)
      byte = tensor::Call::make({ElementType::u8, 1}, Intrinsic::bit_cast, {byte});
    return c.at(1, {cast(tensor::kIndex.element, byte)});
  }));
}

// ---- Requantize ----

ElementType requantized_type(const Attributes& a) {
  std::optional<ElementType> to = parse_element_type(a.text("to", ""));
  MCC_CHECK(to, "mcc.Requantize to ", a.text("to", ""));
  return *to;
}

void infer_requantize(InferContext& c) { c.set_output(0, {requantized_type(c.attributes()), c.input(0).shape}); }

void compute_requantize(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const Attributes& a = c.attributes();
  c.set_output(0, c.builder.compute("requantize", out.element, out.shape, [&](Axes i) {
    auto parameter = [&](int k) { return c.at(k, broadcast_index(c.input_type(k).shape, i)); };
    Expr sum = c.at(0, to_vector(i)) + parameter(1);
    Expr value = cast(ElementType::f32, sum) * parameter(2) + parameter(3);
    if (is_float(out.element)) return value;
    value = call(Intrinsic::round, {value}) + number_like(value, static_cast<double>(a.integer("zero_point", 0)));
    auto bound = [&](const char* name) { return number_like(value, static_cast<double>(a.integer(name, 0))); };
    return cast(out.element, tensor::max(tensor::min(value, bound("high")), bound("low")));
  }));
}

OpDef on_axes(AxisUse use, OpDef op) {
  op.axis_use = use;
  return op;
}

}  // namespace

std::span<const OpDef> mcc_bytes_ops() {
  static const OpDef ops[] = {
      own_op("PackBytes", FusionClass::injective, 1, infer_pack, compute_pack),
      own_op("MatMulBytes", FusionClass::contraction, 2, infer_product,
             [](ComputeContext& c) { compute_product(c, "matmul"); }),
      own_op("ConvBytes", FusionClass::contraction, 2, infer_product,
             [](ComputeContext& c) { compute_product(c, "conv"); }),
      own_op("DepthwiseBytes", FusionClass::contraction, 2, infer_of_each_channel,
             [](ComputeContext& c) { compute_of_each_channel(c, "depthwise"); }),
      own_op("WindowSums", FusionClass::reduction, 1, infer_of_each_channel,
             [](ComputeContext& c) { compute_of_each_channel(c, "windows"); }),
      on_axes(AxisUse::any,
              own_op("ToUnsigned", FusionClass::elementwise, 1, infer_to_unsigned, compute_to_unsigned)),
      on_axes(AxisUse::first, own_op("LookUp", FusionClass::elementwise, 2, infer_look_up, compute_look_up)),
      own_op("Requantize", FusionClass::elementwise, 4, infer_requantize, compute_requantize),
  };
  return ops;
}

}  // namespace mcc::graph
