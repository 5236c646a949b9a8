// Activations, with biases ahead of them.
#include "frontend/contrib/expansion.h"

namespace mcc::frontend {

namespace {

using onnx::AttributeProto;

Operand gelu(Expansion& e, const Operand& x, const char* approximate) { return e.op("Gelu", {x}, {{"approximate", approximate}}); }

// Input 0 with input 1, a vector along the last axis, where that is there.
Operand biased(Expansion& e) { return e.has(1) ? e.op("Add", {e.in(0), e.in(1)}) : e.in(0); }

bool expect_bias(Expansion& e) {
  return !e.has(1) || (e.expect(e.rank(0) >= 1, "input 0: expected at least one dimension") && e.expect_shape(1, {e.last_size(0)}));
}

void biased_gelu(Expansion& e, const char* approximate) {
  if (expect_bias(e)) e.result(0, gelu(e, biased(e), approximate));
}

// x * sigmoid(alpha * x)
void quick_gelu(Expansion& e) { e.result(0, e.op("Swish", {e.in(0)}, e.passed_on({"alpha"}))); }

void bias_add(Expansion& e) {
  if (expect_bias(e) && e.expect_shape(2, e.shape(0))) e.result(0, e.op("Add", {biased(e), e.in(2)}));
}

// The left half of the last axis times the gelu of the right one.
void split_gelu(Expansion& e) {
  if (!expect_bias(e)) return;
  const int64_t width = e.last_size(0);
  if (!e.expect(width % 2 == 0, "input 'X': expected an even last dimension, got shape ", shape_text(e.sizes(0)))) return;
  std::vector<Operand> halves = e.ops("Split", {biased(e)}, {{"axis", int64_t{-1}}, {"num_outputs", int64_t{2}}}, 2);
  e.result(0, e.op("Mul", {halves[0], gelu(e, halves[1], "none")}));
}

void bias_softmax(Expansion& e) {
  const std::optional<int64_t> axis = e.expect_axis("axis");
  if (!axis || !e.expect(e.rank(1) <= e.rank(0), "input 'bias': expected at most ", e.rank(0), " dimensions, got shape ", shape_text(e.sizes(1))))
    return;
  e.result(0, softmax_of_rest(e, biased(e), e.sizes(0), *axis));
}

}  // namespace

std::span<const ContribOp> activation_ops() {
  static const std::vector<ContribOp> ops{
      {"Gelu", "X", "Y", {}, [](Expansion& e) { e.result(0, gelu(e, e.in(0), "none")); }},
      {"BiasGelu", "A B", "C", {}, [](Expansion& e) { biased_gelu(e, "none"); }},
      {"FastGelu", "X bias?", "Y", {}, [](Expansion& e) { biased_gelu(e, "tanh"); }},
      {"QuickGelu", "X", "Y", {{"alpha", 1.702f}}, quick_gelu},
      {"BiasAdd", "X bias skip", "Y", {}, bias_add},
      {"BiasSplitGelu", "X bias", "Y", {}, split_gelu},
      // Along which axes the bias is repeated, its shape says.
      {"BiasSoftmax", "data bias", "output",
       {{"axis", 1}, AttributeRule("is_inner_broadcast", AttributeProto::INT, AttributeRule::required)}, bias_softmax},
  };
  return ops;
}

}  // namespace mcc::frontend
