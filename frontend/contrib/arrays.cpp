// Operators on arrays that ONNX has by now, too, in the forms that onnxruntime had before, and some that it never had.
#include <algorithm>
#include <limits>

#include "frontend/contrib/expansion.h"

namespace mcc::frontend {

namespace {

using onnx::AttributeProto;

// ---- ONNX's operators, with other forms of their operands ----

void trilu(Expansion& e) {
  if (!e.has(1) || e.expect_single({1}))
    e.result(0, e.op("Trilu", {e.in(0), e.in(1)}, e.passed_on({"upper"})));
}

void expand_dims(Expansion& e) {
  if (!e.expect_single({1})) return;
  Operand axis = e.op("Reshape", {e.converted(e.in(1), ElementType::i64), e.ints({1})});
  e.result(0, e.op("Unsqueeze", {e.in(0), axis}));
}

void range(Expansion& e) {
  if (!e.expect_single({0, 1, 2})) return;
  auto number = [&](int i) { return e.rank(i) == 0 ? e.in(i) : e.op("Squeeze", {e.in(i)}); };
  Operand delta = e.has(2) ? number(2) : e.scalar(e.element(0), 1);
  e.result(0, e.op("Range", {number(0), number(1), delta}));
}

// The pads may be a row of a matrix.
void pad(Expansion& e) {
  const std::string mode = e.word("mode");
  const int64_t count = 2 * e.rank(0);
  const bool is_row = e.rank(1) == 2;
  const bool is_known = mode == "constant" || mode == "reflect" || mode == "edge" || mode == "wrap";
  if (!e.expect(is_known, "attribute 'mode': expected constant, reflect, edge or wrap, got ", mode) ||
      !e.expect_fit(1, is_row ? std::vector<int64_t>{1, count} : std::vector<int64_t>{count}) ||
      !e.expect_single({2}))
    return;
  Operand pads = is_row ? e.op("Reshape", {e.in(1), e.ints({count})}) : e.in(1);
  e.result(0, e.op("Pad", {e.in(0), pads, e.in(2)}, e.passed_on({"mode"})));
}

void gather_nd(Expansion& e) { e.result(0, e.op("GatherND", {e.in(0), e.in(1)})); }

// In the order in which they come first.
void unique(Expansion& e) {
  if (!e.expect_rank(0, 1)) return;
  constexpr size_t kItems = 0, kGroups = 2, kCounts = 3;  // among ONNX's results
  const std::vector<Operand> found = e.ops("Unique", {e.in(0)}, {{"sorted", int64_t{0}}}, 4);
  e.result(0, found[kItems]);
  e.result(1, found[kGroups]);
  e.result(2, found[kCounts]);
}

// ONNX has other words for two of the modes.
void grid_sample(Expansion& e) {
  const std::string mode = e.word("mode");
  if (!e.expect_rank(0, 4) ||
      !e.expect(mode == "bilinear" || mode == "nearest" || mode == "bicubic",
                "attribute 'mode': expected bilinear, nearest or bicubic, got ", mode))
    return;
  const Setting kind("mode", mode == "bilinear" ? "linear" : mode == "bicubic" ? "cubic" : "nearest");
  std::vector<Setting> settings = e.passed_on({"align_corners", "padding_mode"});
  settings.push_back(kind);
  e.result(0, e.op("GridSample", {e.in(0), e.in(1)}, settings));
}

void nhwc_max_pool(Expansion& e) {
  const int64_t rank = e.rank(0);
  if (!e.expect_element(0, {ElementType::i8, ElementType::u8}) ||
      !e.expect(rank >= 3, "input 'x': expected at least 3 dimensions, got shape ", shape_text(e.sizes(0))))
    return;
  Operand y = e.op("MaxPool", {e.channels_second(e.in(0), rank)},
                   e.passed_on({"auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides"}));
  e.result(0, e.channels_last(y, rank));
}

// ---- Products ----

// Integers of 16 bits, whose products fit into 32.
void integer_product_of_words(Expansion& e) {
  for (int i : {0, 1})
    if (!e.expect_element(i, {ElementType::i16, ElementType::u16})) return;
  const bool has_sign = e.element(0) == ElementType::i16 || e.element(1) == ElementType::i16;
  const ElementType wide = has_sign ? ElementType::i32 : ElementType::u32;
  e.result(0, e.op("MatMul", {e.converted(e.in(0), wide), e.converted(e.in(1), wide)}));
}

// Distances of all rows of a and b: |x - y|^2 = |x|^2 + |y|^2 - 2 x y, of rows whose common part, which would only cancel out, is
// subtracted before: the mean of b's.
void distances(Expansion& e) {
  const std::string metric = e.word("metric");
  if (!e.supports(metric == "euclidean" || metric == "sqeuclidean", "attribute 'metric': ", metric,
                  " is not supported") ||
      !e.expect_element(0, {ElementType::f32, ElementType::f64}) || !e.expect_element(1, {e.element(0)}) ||
      !e.expect_rank(0, 2) || !e.expect_rank(1, 2) || !e.expect_fit(1, {e.sizes(1)[0], e.sizes(0)[1]}))
    return;
  const Setting keeps("keepdims", int64_t{1});
  Operand common = e.op("ReduceMean", {e.in(1), e.ints({0})}, {keeps});
  Operand a = e.op("Sub", {e.in(0), common}), b = e.op("Sub", {e.in(1), common});
  auto squares = [&](const Operand& x) { return e.op("ReduceSumSquare", {x, e.ints({1})}, {keeps}); };
  Operand products = e.op("MatMul", {e.op("Mul", {a, e.scalar(e.element(0), -2)}), e.transposed(b, {1, 0})});
  Operand sum = e.op("Add", {e.op("Add", {products, squares(a)}), e.transposed(squares(b), {1, 0})});
  Operand square = e.op("Max", {sum, e.scalar(e.element(0), 0)});
  e.result(0, metric == "euclidean" ? e.op("Sqrt", {square}) : square);
}

}  // namespace

std::span<const ContribOp> array_ops() {
  static const std::vector<ContribOp> ops{
      {"Trilu", "X k?", "Y", {{"upper", 1}}, trilu},
      {"ExpandDims", "X axis", "Y", {}, expand_dims},
      {"Range", "start limit delta?", "Y", {}, range},
      {"Pad", "data pads value?", "output", {{"mode", "constant"}}, pad},
      {"GatherND", "data indices", "output", {}, gather_nd},
      {"Unique", "x", "y idx counts", {}, unique},
      {"GridSample",
       "X Grid",
       "Y",
       {{"align_corners", 0}, {"mode", "bilinear"}, {"padding_mode", "zeros"}},
       grid_sample},
      {"NhwcMaxPool",
       "x",
       "y",
       {{"auto_pad", "NOTSET"},
        {"ceil_mode", 0},
        required("kernel_shape", AttributeProto::INTS),
        optional("dilations", AttributeProto::INTS),
        optional("pads", AttributeProto::INTS),
        optional("strides", AttributeProto::INTS)},
       nhwc_max_pool},
      {"MatMulInteger16", "A B", "Y", {}, integer_product_of_words},
      {"CDist", "A B", "C", {{"metric", "sqeuclidean"}}, distances},
  };
  return ops;
}

}  // namespace mcc::frontend
