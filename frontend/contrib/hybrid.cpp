// What language models have that remember by states of one size: linear attention, convolutions along time, gates and norms.
#include <algorithm>

#include "frontend/contrib/expansion.h"

namespace mcc::frontend {

namespace {

using onnx::AttributeProto;

// x * sigmoid(x), or sigmoid(x) alone.
Operand gate_of(Expansion& e, const Operand& x, bool is_sigmoid) {
  Operand sigmoid = e.op("Sigmoid", {x});
  return is_sigmoid ? sigmoid : e.op("Mul", {x, sigmoid});
}

// ---- LinearAttention: ONNX's, but for fewer heads of queries or keys than of states: each is that of several states then ----

// [B, T, heads * width] with each head as often as makes `states` of them.
Operand repeated_heads(Expansion& e, int i, int64_t heads, int64_t width, int64_t states) {
  if (heads >= states) return e.in(i);
  const int64_t batch = e.sizes(i)[0], rows = e.sizes(i)[1];
  Operand apart = e.reshaped(e.in(i), {batch, rows, heads, 1, width});
  return e.reshaped(e.op("Expand", {apart, e.ints({1, 1, 1, states / heads, 1})}),
                    {batch, rows, states * width});
}

void linear_attention(Expansion& e) {
  constexpr int kQuery = 0, kKey = 1;
  const int64_t heads = e.integer("q_num_heads"), states = e.integer("kv_num_heads");
  if (!e.supports_only("state_window", 0) || !e.expect_rank(kQuery, 3) || !e.expect_rank(kKey, 3) ||
      !e.expect(heads > 0 && states > 0 && (heads % states == 0 || states % heads == 0),
                "attributes 'q_num_heads' and 'kv_num_heads': ", heads, " heads cannot share ", states))
    return;
  const int64_t query = e.last_size(kQuery), key = e.last_size(kKey);
  if (Expansion::is_open(query) || Expansion::is_open(key) ||
      !e.expect(query > 0 && query % heads == 0, "input 'query': ", query, " cannot be divided by ", heads,
                " heads"))
    return;
  const int64_t width = query / heads, keys = key / width;
  if (!e.expect(keys > 0 && key % width == 0 && states % keys == 0, "input 'key': ", key,
                " columns are no heads of ", width, " that ", states, " states can share"))
    return;
  std::vector<Operand> inputs{repeated_heads(e, kQuery, heads, width, states),
                              repeated_heads(e, kKey, keys, width, states)};
  for (int i = 2; i < e.num_inputs(); ++i)
    inputs.push_back(e.in(i));
  std::vector<Setting> settings = e.passed_on({"kv_num_heads", "scale", "update_rule"});
  settings.emplace_back("q_num_heads", std::max(heads, states));
  std::vector<Operand> results = e.ops("LinearAttention", inputs, settings, 2);
  for (int i = 0; i < 2; ++i)
    e.result(i, results[static_cast<size_t>(i)]);
}

// ---- LinearAttentionGate: what a state keeps, and how much of it is replaced ----

void linear_attention_gate(Expansion& e) {
  constexpr int kA = 0, kBias = 1, kScale = 2, kB = 3;
  Operand softplus = e.op("Softplus", {e.op("Add", {wide(e, kA), wide(e, kBias)})});
  e.result(0, narrowed(e, e.op("Mul", {wide(e, kScale), softplus}), e.element(kA)));
  if (!e.has_output(1)) return;
  if (e.expect(e.has(kB), "output 'beta': expected input 'b' for it"))
    e.result(1, e.op("Sigmoid", {e.in(kB)}));
}

// ---- CausalConvWithState: each channel's window over itself and what was before, of which the end is handed on ----

void causal_convolution(Expansion& e) {
  constexpr int kInput = 0, kWeight = 1, kBias = 2, kPast = 3;
  const bool is_last = e.integer("channels_last") != 0;
  const int64_t dilation = e.integer("dilation");
  const std::string activation = e.word("activation");
  const bool is_plain = activation == "none";
  if (!e.supports_only("ndim", 1) || !e.supports_only("state_window", 0) ||
      !e.expect(dilation >= 1, "attribute 'dilation': expected a number from 1 on, got ", dilation) ||
      !e.expect(is_plain || activation == "silu" || activation == "swish",
                "attribute 'activation': expected silu, swish or none, got ", activation) ||
      !e.expect_rank(kWeight, 3) ||
      !e.expect(is_last ? e.rank(kInput) >= 3 : e.rank(kInput) == 3,
                "input 'input': expected 3 dimensions, got shape ", shape_text(e.sizes(kInput))))
    return;
  const std::vector<int64_t>& x = e.sizes(kInput);
  const int64_t channels = e.shape(kWeight)[0], taps = e.shape(kWeight)[2], before = (taps - 1) * dilation;
  if (!is_last && !e.expect(Expansion::may_be(x[1], channels), "input 'weight': expected ", x[1],
                            " channels, got shape ", shape_text(e.shape(kWeight))))
    return;
  std::vector<int64_t> state = x;
  state[is_last ? 1 : 2] = before;
  if (e.has(kPast) && !e.expect_fit(kPast, state)) return;
  // [B, C, L], whatever the order is.
  auto channels_second = [&](const Operand& v, int64_t length) {
    return is_last ? e.transposed(e.reshaped(v, {x[0], length, channels}), {0, 2, 1}) : v;
  };
  auto as_given = [&](const Operand& v, const std::vector<int64_t>& shape) {
    return is_last ? e.reshaped(e.transposed(v, {0, 2, 1}), shape) : v;
  };
  Operand rows = channels_second(e.in(kInput), x[1]);
  Operand past = e.has(kPast)
                     ? channels_second(e.in(kPast), before)
                     : e.op("Expand", {e.scalar(e.element(kInput), 0), e.ints({x[0], channels, before})});
  Operand all = e.op("Concat", {past, rows}, {{"axis", int64_t{2}}});
  Operand y = e.op("Conv", {all, e.in(kWeight), e.in(kBias)},
                   {{"group", channels},
                    {"dilations", std::vector<int64_t>{dilation}},
                    {"kernel_shape", std::vector<int64_t>{taps}}});
  e.result(0, as_given(is_plain ? y : gate_of(e, y, false), x));
  if (!e.has_output(1)) return;
  // As many of the last as windows reach back.
  constexpr int64_t kEnd = int64_t{1} << 62;
  Operand last = before == 0 ? e.slice(all, 2, 0, 0) : e.slice(all, 2, -before, kEnd);
  e.result(1, as_given(last, state));
}

// ---- Norms by the root of the mean square, of groups of neighbours ----

// Of x [.., groups, width], in f32, with a scale [width].
Operand root_mean_square_norm(Expansion& e, const Operand& x, const Operand& scale) {
  return e.op("RMSNormalization", {x, scale}, e.passed_on({"epsilon"}));
}

// [.., groups * width] as [.., groups, width].
std::vector<int64_t> in_groups(const std::vector<int64_t>& shape, int64_t groups, int64_t width) {
  std::vector<int64_t> apart = shape;
  apart.back() = groups;
  apart.push_back(width);
  return apart;
}

void gated_norm(Expansion& e) {
  constexpr int kX = 0, kScale = 1, kGate = 2;
  const std::string activation = e.word("activation");
  if (!e.expect(activation == "silu" || activation == "swish" || activation == "sigmoid",
                "attribute 'activation': expected silu, swish or sigmoid, got ", activation) ||
      !e.expect(e.rank(kX) >= 1, "input 'X': expected at least one dimension") || !e.expect_rank(kScale, 1) ||
      !e.expect_fit(kGate, e.sizes(kX)))
    return;
  const int64_t columns = e.last_size(kX), width = e.count(kScale);
  if (Expansion::is_open(columns) || !e.expect(width > 0 && columns % width == 0, "input 'X': ", columns,
                                               " columns have no whole groups of ", width))
    return;
  const std::vector<int64_t> apart = in_groups(e.sizes(kX), columns / width, width);
  Operand y = root_mean_square_norm(e, e.reshaped(wide(e, kX), apart), wide(e, kScale));
  y = e.op("Mul", {e.reshaped(y, e.sizes(kX)), gate_of(e, wide(e, kGate), activation == "sigmoid")});
  e.result(0, narrowed(e, y, e.element(kX)));
}

void branchwise_norm(Expansion& e) {
  constexpr int kX = 0, kScale = 1;
  int64_t branches = e.integer("num_branches");
  const bool is_flat = branches > 0;
  if (!e.expect(e.rank(kX) >= (is_flat ? 1 : 2), "input 'X': expected branches, got shape ",
                shape_text(e.sizes(kX))))
    return;
  const int64_t columns = e.last_size(kX);
  if (!is_flat) branches = e.sizes(kX)[static_cast<size_t>(e.rank(kX)) - 2];
  if (Expansion::is_open(columns) || Expansion::is_open(branches)) {
    e.refuse_open(kX);
    return;
  }
  if (!e.expect(!is_flat || columns % branches == 0, "input 'X': ", columns, " columns are no ", branches,
                " branches"))
    return;
  const int64_t width = is_flat ? columns / branches : columns;
  const std::vector<int64_t> given = e.has(kScale) ? e.shape(kScale) : std::vector<int64_t>{width};
  const bool is_each = given == std::vector<int64_t>{branches * width} ||
                       given == std::vector<int64_t>{branches, width},
             is_same = given == std::vector<int64_t>{width};
  if (!e.expect(is_each || is_same, "input 'scale': expected shape ", shape_text({branches * width}), ", ",
                shape_text({branches, width}), " or ", shape_text({width}), ", got ", shape_text(given)))
    return;
  Operand x = wide(e, kX);
  if (is_flat) x = e.reshaped(x, in_groups(e.sizes(kX), branches, width));
  Operand scale = e.has(kScale) && is_same ? wide(e, kScale)
                                           : e.op("Expand", {e.scalar(ElementType::f32, 1), e.ints({width})});
  Operand y = root_mean_square_norm(e, x, scale);
  if (!is_same) y = e.op("Mul", {y, e.reshaped(wide(e, kScale), {branches, width})});
  e.result(0, narrowed(e, is_flat ? e.reshaped(y, e.sizes(kX)) : y, e.element(kX)));
}

// ---- Sums and activations with a gate ----

void gated_sum(Expansion& e) { e.result(0, e.op("Add", {e.in(0), e.op("Mul", {e.in(1), e.in(2)})})); }

void scaled_silu(Expansion& e) {
  constexpr int kX = 0, kScale = 1;
  if (e.has(kScale) && !e.expect(e.count(kScale) == 1, "input 'scale': expected one number, got shape ",
                                 shape_text(e.shape(kScale))))
    return;
  Operand scale = e.has(kScale) ? e.reshaped(e.converted(e.in(kScale), ElementType::f32), {})
                                : e.scalar(ElementType::f32, e.number("alpha"));
  Operand scaled = narrowed(e, e.op("Mul", {wide(e, kX), scale}), e.element(kX));
  e.result(0, gate_of(e, scaled, false));
}

}  // namespace

std::span<const ContribOp> hybrid_ops() {
  static const std::vector<ContribOp> ops{
      {"LinearAttention",
       "query key value past_state? decay? beta?",
       "output present_state",
       {required("q_num_heads", AttributeProto::INT),
        required("kv_num_heads", AttributeProto::INT),
        {"update_rule", "gated_delta"},
        {"scale", 0.0f},
        {"chunk_size", 64},
        {"state_window", 0}},
       linear_attention},
      {"LinearAttentionGate", "a dt_bias decay_scale b?", "decay beta?", {}, linear_attention_gate},
      {"CausalConvWithState",
       "input weight bias? past_state?",
       "output present_state",
       {{"activation", "none"}, {"ndim", 1}, {"dilation", 1}, {"channels_last", 0}, {"state_window", 0}},
       causal_convolution},
      {"GatedRMSNorm", "X scale gate", "Y", {{"activation", "silu"}, {"epsilon", 1e-5f}}, gated_norm},
      {"BranchwiseRMSNorm", "X scale?", "Y", {{"num_branches", 0}, {"epsilon", 1e-5f}}, branchwise_norm},
      {"GatedAdd", "X Y gate", "output", {}, gated_sum},
      {"ScaledSiLU", "X scale?", "Y", {{"alpha", 1.0f}}, scaled_silu},
  };
  return ops;
}

}  // namespace mcc::frontend
