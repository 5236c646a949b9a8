// Operators on bytes that stand for real numbers: dequantised, ONNX's operator, quantised again. Joining and choosing need no
// arithmetic in between: each operand by itself takes the result's scale, which nothing has to be done for where it has that already.
#include "frontend/contrib/expansion.h"

namespace mcc::frontend {

namespace {

using onnx::AttributeProto;

// ---- QuantizeLinear, DequantizeLinear: without an axis there is one scale for all ----

void linear(Expansion& e, const char* type) {
  if (!e.is_given("axis") && !e.expect_single({1, 2})) return;
  e.result(0, e.op(type, {e.in(0), e.in(1), e.in(2)}, e.passed_on({"axis"})));
}

// ---- Of one operand: x, its scale and zero point, those of the result ----

constexpr int kResultScale = 3;

Operand requantized(Expansion& e, const Operand& y) { return quantized(e, y, kResultScale, e.element(0)); }

void of_one(Expansion& e, const char* type, const std::vector<Setting>& settings) {
  if (!e.expect_single({1, 2, kResultScale, kResultScale + 1})) return;
  e.result(0, requantized(e, e.op(type, {dequantized(e, 0)}, settings)));
}

void softmax(Expansion& e) {
  if (!e.expect_single({1, 2, kResultScale, kResultScale + 1})) return;
  constexpr int64_t kAxisAlone = 13;  // before this opset all axes from `axis` on were one
  const std::optional<int64_t> axis = e.expect_axis("axis");
  if (!axis) return;
  Operand x = dequantized(e, 0);
  Operand y = e.integer("opset") < kAxisAlone ? softmax_of_rest(e, x, e.sizes(0), *axis) : e.op("Softmax", {x}, {{"axis", *axis}});
  e.result(0, requantized(e, y));
}

void reduce_mean(Expansion& e) {
  if (!e.expect_single({1, 2, kResultScale, kResultScale + 1})) return;
  const std::vector<int64_t> axes = e.integers("axes");
  Operand y = e.op("ReduceMean", {dequantized(e, 0), axes.empty() ? "" : e.ints(axes)}, {{"keepdims", e.integer("keepdims")}});
  e.result(0, requantized(e, y));
}

// ---- Pooling, with channels second or last ----

void pool(Expansion& e, const char* type, const std::vector<Setting>& settings) {
  const int64_t rank = e.rank(0);
  if (!e.expect_single({1, 2, kResultScale, kResultScale + 1}) ||
      !e.expect(rank >= 3, "input 'X': expected at least 3 dimensions, got shape ", shape_text(e.sizes(0))))
    return;
  const bool is_last = e.integer("channels_last") != 0;
  Operand x = is_last ? e.channels_second(e.in(0), rank) : e.in(0);
  Operand y = e.op(type, {e.op("DequantizeLinear", {x, e.in(1), e.in(2)})}, settings);
  y = requantized(e, y);
  e.result(0, is_last ? e.channels_last(y, rank) : y);
}

// ---- Of two operands ----

void of_two(Expansion& e, const char* type) {
  if (!e.expect_single({1, 2, 4, 5, 6, 7})) return;
  e.result(0, quantized(e, e.op(type, {dequantized(e, 0), dequantized(e, 3)}), 6, e.element(0)));
}

void where(Expansion& e) {
  if (!e.expect_single({2, 3, 5, 6, 7, 8})) return;
  auto operand = [&](int i) { return quantized(e, dequantized(e, i), 7, e.element(i)); };
  e.result(0, e.op("Where", {e.in(0), operand(1), operand(4)}));
}

// Y_scale, Y_zero_point, then for each operand itself, its scale and its zero point.
void concat(Expansion& e) {
  constexpr int kFirst = 2, kEach = 3;
  const int count = e.num_inputs() - kFirst;
  if (!e.expect(count > 0 && count % kEach == 0, "expected a scale and a zero point for each operand, got ", count, " inputs"))
    return;
  std::vector<Operand> parts;
  for (int i = kFirst; i < e.num_inputs(); i += kEach) {
    if (!e.expect(e.has(i) && e.has(i + 1) && e.has(i + 2), "operand ", parts.size(), ": expected a tensor, a scale and a zero point") ||
        !e.expect_single({0, 1, i + 1, i + 2}))
      return;
    parts.push_back(quantized(e, dequantized(e, i), 0, e.element(i)));
  }
  e.result(0, e.op("Concat", parts, {{"axis", e.integer("axis")}}));
}

}  // namespace

std::span<const ContribOp> quantized_ops() {
  constexpr const char* kOne = "X X_scale X_zero_point? Y_scale Y_zero_point?";
  constexpr const char* kTwo = "A A_scale A_zero_point? B B_scale B_zero_point? C_scale C_zero_point?";
  const AttributeRule channels_last("channels_last", 0);
  static const std::vector<ContribOp> ops{
      {"QuantizeLinear", "x y_scale y_zero_point?", "y", {optional("axis", AttributeProto::INT)},
       [](Expansion& e) { linear(e, "QuantizeLinear"); }},
      {"DequantizeLinear", "x x_scale x_zero_point?", "y", {optional("axis", AttributeProto::INT)},
       [](Expansion& e) { linear(e, "DequantizeLinear"); }},
      {"QLinearAdd", kTwo, "C", {}, [](Expansion& e) { of_two(e, "Add"); }},
      {"QLinearMul", kTwo, "C", {}, [](Expansion& e) { of_two(e, "Mul"); }},
      {"QLinearSigmoid", kOne, "Y", {}, [](Expansion& e) { of_one(e, "Sigmoid", {}); }},
      {"QLinearLeakyRelu", kOne, "Y", {{"alpha", 0.01f}}, [](Expansion& e) { of_one(e, "LeakyRelu", e.passed_on({"alpha"})); }},
      {"QLinearSoftmax", "X X_scale x_zero_point? y_scale y_zero_point", "Y", {{"axis", -1}, required("opset", AttributeProto::INT)},
       softmax},
      {"QLinearReduceMean", "data data_scale data_zero_point? reduced_scale reduced_zero_point?", "reduced",
       {required("axes", AttributeProto::INTS), required("keepdims", AttributeProto::INT)}, reduce_mean},
      {"QLinearGlobalAveragePool", "X x_scale x_zero_point y_scale y_zero_point", "Y", {channels_last},
       [](Expansion& e) { pool(e, "GlobalAveragePool", {}); }},
      {"QLinearAveragePool", "X x_scale x_zero_point? y_scale y_zero_point?", "Y",
       {channels_last, {"auto_pad", "NOTSET"}, {"ceil_mode", 0}, {"count_include_pad", 0}, required("kernel_shape", AttributeProto::INTS),
        optional("pads", AttributeProto::INTS), optional("strides", AttributeProto::INTS)},
       [](Expansion& e) {
         pool(e, "AveragePool", e.passed_on({"auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides"}));
       }},
      {"QLinearConcat", "Y_scale Y_zero_point inputs...", "Y", {required("axis", AttributeProto::INT)}, concat},
      {"QLinearWhere", "condition X x_scale x_zero_point Y y_scale y_zero_point z_scale z_zero_point", "Z", {}, where},
  };
  return ops;
}

}  // namespace mcc::frontend
