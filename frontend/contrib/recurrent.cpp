// Recurrent layers whose weights are bytes.
#include "frontend/contrib/expansion.h"

namespace mcc::frontend {

namespace {

using onnx::AttributeProto;

// ---- DynamicQuantizeLSTM: LSTM of weights [direction, input, gate], with a scale and a zero point for each direction, or each of its gates ----

constexpr int kX = 0, kW = 1, kR = 2, kPeephole = 7, kWScale = 8,
              kRScale = 10;  // zero points follow the scales

// Weights as LSTM has them, [direction, gate, input]; false where their scale or zero point is none for them.
bool read_weights(Expansion& e, const std::string& name, int i, int scale, Operand& weights) {
  const int zero = scale + 1;
  const std::vector<int64_t>& shape = e.shape(i);
  const std::vector<int64_t> each_direction{shape[0]}, each_gate{shape[0], shape[2]};
  const auto has_shape = [&](int p, const char* kind) {
    return e.expect(e.sizes(p) == each_direction || e.sizes(p) == each_gate, "input '", name, kind,
                    "': expected shape ", shape_text(each_direction), " or ", shape_text(each_gate), ", got ",
                    shape_text(e.sizes(p)));
  };
  if (!has_shape(scale, "_scale") || !has_shape(zero, "_zero_point") ||
      !e.expect(e.element(scale) == ElementType::f32, "input '", name, "_scale': expected type f32, got ",
                to_text(e.element(scale))) ||
      !e.expect(e.element(zero) == e.element(i), "input '", name, "_zero_point': expected type ",
                to_text(e.element(i)), ", got ", to_text(e.element(zero))))
    return false;
  // Bytes stay what they are for those who multiply them, where DequantizeLinear can say their scales.
  const bool is_along_gates = e.sizes(scale) == each_gate;
  if (e.sizes(zero) == e.sizes(scale) && (shape[0] == 1 || !is_along_gates)) {
    const int64_t axis = is_along_gates && shape[0] == 1 ? 1 : 0;
    const auto flat = [&](int p) { return e.reshaped(e.in(p), {axis == 1 ? shape[2] : shape[0]}); };
    weights = e.op("DequantizeLinear", {e.transposed(e.in(i), {0, 2, 1}), flat(scale), flat(zero)},
                   {{"axis", axis}});
    return true;
  }
  const auto along_gates = [&](int p) {
    return e.reshaped(e.in(p), {shape[0], 1, e.sizes(p) == each_gate ? shape[2] : 1});
  };
  const auto real = [&](const Operand& x) { return e.converted(x, ElementType::f32); };
  const Operand centred = e.op("Sub", {real(e.in(i)), real(along_gates(zero))});
  weights = e.transposed(e.op("Mul", {centred, along_gates(scale)}), {0, 2, 1});
  return true;
}

bool expect_bytes(Expansion& e, const std::string& name, int i) {
  return e.expect(e.element(i) == ElementType::u8 || e.element(i) == ElementType::i8, "input '", name,
                  "': expected type u8 or i8, got ", to_text(e.element(i))) &&
         e.expect_rank(i, 3);
}

// The inputs of all steps are rounded to bytes together, the state in each step, every row by itself (onnxruntime: all rows of a batch
// together, or by itself, which depends on the number of threads).
void lstm(Expansion& e) {
  if (!e.expect_rank(kX, 3) || !expect_bytes(e, "W", kW) || !expect_bytes(e, "R", kR)) return;
  for (int i : {kW, kR})
    for (int64_t size : e.shape(i))
      if (Expansion::is_open(size)) return;
  const std::vector<int64_t> w = e.shape(kW), r = e.shape(kR);
  if (!e.expect_shape(kR, {r[0], r[1], 4 * r[1]}) || !e.expect_shape(kW, {r[0], w[1], 4 * r[1]})) return;
  std::vector<Operand> inputs;
  for (int i = kX; i <= kPeephole; ++i)
    inputs.push_back(e.in(i));
  if (!read_weights(e, "W", kW, kWScale, inputs[kW]) || !read_weights(e, "R", kR, kRScale, inputs[kR]))
    return;
  const std::vector<Operand> bytes = e.ops("DynamicQuantizeLinear", {inputs[kX]}, {}, 3);
  inputs[kX] = e.op("DequantizeLinear", bytes);
  std::vector<Setting> settings = e.passed_on({"activation_alpha", "activation_beta", "activations", "clip",
                                               "direction", "hidden_size", "input_forget", "layout"});
  settings.push_back({"mcc_rounds_state", int64_t{1}});
  const std::vector<Operand> y = e.ops("LSTM", inputs, settings, 3);
  for (int i = 0; i < 3; ++i)
    e.result(i, y[static_cast<size_t>(i)]);
}

}  // namespace

std::span<const ContribOp> recurrent_ops() {
  static const std::vector<ContribOp> ops{
      {"DynamicQuantizeLSTM",
       "X W R B? sequence_lens? initial_h? initial_c? P? W_scale W_zero_point R_scale R_zero_point",
       "Y? Y_h? Y_c?",
       {optional("activation_alpha", AttributeProto::FLOATS),
        optional("activation_beta", AttributeProto::FLOATS),
        optional("activations", AttributeProto::STRINGS),
        optional("clip", AttributeProto::FLOAT),
        {"direction", "forward"},
        optional("hidden_size", AttributeProto::INT),
        {"input_forget", 0},
        {"layout", 0}},
       lstm},
  };
  return ops;
}

}  // namespace mcc::frontend
