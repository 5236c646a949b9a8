// Products and convolutions with what onnxruntime's graph optimiser fuses into them.
#include <algorithm>

#include "frontend/contrib/expansion.h"

namespace mcc::frontend {

namespace {

using onnx::AttributeProto;

// ---- Activations by name; their parameters in the order in which the fused operators have them ----

struct Activation {
  const char* name;
  std::vector<const char*> parameters;
};

const std::vector<Activation>& activations() {
  static const std::vector<Activation> all{
      {"Relu", {}},          {"Tanh", {}},      {"Sigmoid", {}},
      {"Softplus", {}},      {"Softsign", {}},  {"LeakyRelu", {"alpha"}},
      {"Elu", {"alpha"}},    {"Celu", {"alpha"}}, {"ThresholdedRelu", {"alpha"}},
      {"HardSigmoid", {"alpha", "beta"}},       {"Clip", {"min", "max"}},
  };
  return all;
}

// Parameters that are not given are ONNX's defaults.
Operand activated(Expansion& e, const Operand& x, const std::string& name, const std::vector<double>& parameters, ElementType element) {
  const auto& all = activations();
  auto known = std::find_if(all.begin(), all.end(), [&](const Activation& a) { return a.name == name; });
  if (!e.supports(known != all.end(), "attribute 'activation': ", name, " is not supported") ||
      !e.expect(parameters.size() <= known->parameters.size(), "activation ", name, ": expected at most ", known->parameters.size(),
                " parameters, got ", parameters.size()))
    return x;
  if (name == "Clip") {
    std::vector<Operand> inputs{x};
    for (double bound : parameters)
      inputs.push_back(e.scalar(element, bound));
    return e.op("Clip", inputs);
  }
  std::vector<Setting> settings;
  for (size_t i = 0; i < parameters.size(); ++i)
    settings.emplace_back(known->parameters[i], static_cast<float>(parameters[i]));
  return e.op(known->name, {x}, settings);
}

// activation, activation_alpha, ... of a fused product.
Operand activated(Expansion& e, const Operand& x) {
  if (!e.is_given("activation")) return x;
  std::vector<double> parameters;
  for (const char* name : {"activation_alpha", "activation_beta", "activation_gamma"}) {
    if (!e.is_given(name)) break;
    parameters.push_back(e.number(name));
  }
  return activated(e, x, e.word("activation"), parameters, e.element(0));
}

// ---- FusedMatMul: alpha * A B; with transBatch the rows are the first axis, and the batch stands behind it ----

Operand arranged(Expansion& e, int i, const char* trans, const char* trans_batch) {
  const int64_t rank = e.rank(i);
  if (rank < 2) return e.in(i);
  std::vector<int64_t> perm;
  for (int64_t d = 0; d < rank; ++d)
    perm.push_back(d);
  if (e.integer(trans_batch) != 0) std::rotate(perm.begin(), perm.begin() + 1, perm.end() - 1);
  if (e.integer(trans) != 0) std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return std::is_sorted(perm.begin(), perm.end()) ? e.in(i) : e.transposed(e.in(i), perm);
}

Operand fused_matmul(Expansion& e) {
  Operand y = e.op("MatMul", {arranged(e, 0, "transA", "transBatchA"), arranged(e, 1, "transB", "transBatchB")});
  return e.number("alpha") == 1 ? y : e.op("Mul", {y, e.scalar(e.element(0), e.number("alpha"))});
}

void gemm(Expansion& e) {
  Operand y = e.op("Gemm", {e.in(0), e.in(1), e.in(2)}, e.passed_on({"alpha", "beta", "transA", "transB"}));
  e.result(0, activated(e, y));
}

void gemm_fast_gelu(Expansion& e) {
  Operand y = e.op("MatMul", {e.in(0), e.in(1)});
  if (e.has(2)) y = e.op("Add", {y, e.in(2)});
  e.result(0, e.op("Gelu", {y}, {{"approximate", "tanh"}}));
}

// ---- Convolutions: what Z has is added ahead of the activation ----

std::vector<Setting> window(const Expansion& e) {
  return e.passed_on({"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"});
}

void conv(Expansion& e) {
  Operand y = e.op("Conv", {e.in(0), e.in(1), e.in(2)}, window(e));
  if (e.has(3)) y = e.op("Add", {y, e.in(3)});
  if (e.is_given("activation")) y = activated(e, y, e.word("activation"), e.numbers("activation_params"), e.element(0));
  e.result(0, y);
}

}  // namespace

std::span<const ContribOp> product_ops() {
  const std::vector<AttributeRule> activation{
      optional("activation", AttributeProto::STRING), optional("activation_alpha", AttributeProto::FLOAT),
      optional("activation_beta", AttributeProto::FLOAT), optional("activation_gamma", AttributeProto::FLOAT)};
  const std::vector<AttributeRule> product{{"alpha", 1.0f}, {"transA", 0}, {"transB", 0}};
  auto and_more = [](std::vector<AttributeRule> rules, const std::vector<AttributeRule>& more) {
    rules.insert(rules.end(), more.begin(), more.end());
    return rules;
  };
  const std::vector<AttributeRule> batched = and_more(product, {{"transBatchA", 0}, {"transBatchB", 0}});
  static const std::vector<ContribOp> ops{
      {"FusedMatMul", "A B", "Y", batched, [](Expansion& e) { e.result(0, fused_matmul(e)); }},
      {"TransposeMatMul", "A B", "Y", batched, [](Expansion& e) { e.result(0, fused_matmul(e)); }},
      {"FusedMatMulActivation", "A B", "Y", and_more(batched, activation),
       [](Expansion& e) { e.result(0, activated(e, fused_matmul(e))); }},
      {"FusedGemm", "A B C?", "Y", and_more(and_more(product, {{"beta", 1.0f}}), activation), gemm},
      {"GemmFastGelu", "X W bias?", "Y", {}, gemm_fast_gelu},
      {"FusedConv", "X W B? Z?", "Y",
       {optional("activation", AttributeProto::STRING), optional("activation_params", AttributeProto::FLOATS), {"auto_pad", "NOTSET"},
        optional("dilations", AttributeProto::INTS), {"group", 1}, optional("kernel_shape", AttributeProto::INTS),
        optional("pads", AttributeProto::INTS), optional("strides", AttributeProto::INTS)},
       conv},
  };
  return ops;
}

}  // namespace mcc::frontend
