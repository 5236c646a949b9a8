// Mixtures of experts: each row is sent to a few of many small networks, as a router's scores say, and gets their weighted sum. Here each
// pair of row and expert is a product of its own; graph/passes/tile_selected_rows.cpp puts many of them in tiles.
#include "frontend/contrib/expansion.h"

namespace mcc::frontend {

namespace {

using onnx::AttributeProto;

constexpr int kInput = 0, kRouter = 1;

// ---- What an expert is ----

// A layer of each expert: rows [pairs, 1, K] -> [pairs, 1, N].
struct Layer {
  Operand weights;  // [experts, N, K]
  Operand bias;     // [experts, N]; may be left out
};

Operand applied(Expansion& e, const Layer& layer, const Operand& rows, const Operand& expert,
                bool may_round) {
  Operand x = may_round ? e.own("MayRound", {rows}) : rows;
  Operand y = e.own("SelectedMatMul", {x, layer.weights, expert}, {{"transposed", int64_t{1}}});
  if (layer.bias.empty()) return y;
  return e.op("Add", {y, e.op("Unsqueeze", {e.op("Gather", {layer.bias, expert}), e.ints({1})})});
}

// Where the second factor of a gated layer comes from.
enum class Gate { none, separate, alternating, halves };

struct Activation {
  std::string name;
  Gate gate = Gate::none;
  double alpha = 1, beta = 0;
  std::optional<double> limit;
};

std::optional<Activation> activation_of(Expansion& e, bool has_third) {
  Activation a;
  a.name = e.word("activation_type");
  const int64_t fusion = e.integer("swiglu_fusion");
  const bool is_gated = a.name == "swiglu" || a.name == "geglu";
  const bool is_known = is_gated || a.name == "relu" || a.name == "relu2" || a.name == "gelu" ||
                        a.name == "silu" || a.name == "identity";
  if (!e.expect(
          is_known,
          "attribute 'activation_type': expected relu, relu2, gelu, geglu, silu, swiglu or identity, got ",
          a.name) ||
      !e.expect(0 <= fusion && fusion <= 2, "attribute 'swiglu_fusion': expected 0, 1 or 2, got ", fusion) ||
      !e.expect(!is_gated || (fusion == 0) == has_third, "attribute 'swiglu_fusion' is ", fusion,
                ", and there is ", has_third ? "an" : "no", " input 'fc3_experts_weights'") ||
      !e.supports_only("swiglu_limit_after_activation", 0) || !e.supports_only("use_sparse_mixer", 0))
    return std::nullopt;
  if (is_gated) a.gate = fusion == 0 ? Gate::separate : fusion == 1 ? Gate::alternating : Gate::halves;
  if (!is_gated && has_third) a.gate = Gate::separate;
  a.alpha = e.number("activation_alpha");
  a.beta = e.number("activation_beta");
  if (e.is_given("swiglu_limit")) a.limit = e.number("swiglu_limit");
  return a;
}

Operand activated(Expansion& e, const Activation& a, Operand gate, Operand linear, ElementType type) {
  auto number = [&](double value) { return e.scalar(type, value); };
  if (a.name == "swiglu") {
    if (a.limit) {
      gate = e.op("Min", {gate, number(*a.limit)});
      linear = e.op("Clip", {linear, number(-*a.limit), number(*a.limit)});
    }
    Operand inner = a.alpha == 1 ? gate : e.op("Mul", {gate, number(a.alpha)});
    gate = e.op("Mul", {gate, e.op("Sigmoid", {inner})});
    if (a.beta != 0) linear = e.op("Add", {linear, number(a.beta)});
  } else if (a.name == "gelu" || a.name == "geglu") {
    gate = e.op("Gelu", {gate}, {{"approximate", std::string("tanh")}});
  } else if (a.name == "silu") {
    gate = e.op("Mul", {gate, e.op("Sigmoid", {gate})});
  } else if (a.name != "identity") {
    gate = e.op("Relu", {gate});
    if (a.name == "relu2") gate = e.op("Mul", {gate, gate});
  }
  return linear.empty() ? gate : e.op("Mul", {gate, linear});
}

// Rows [experts, 2 I, ..] that take turns become halves.
Operand in_halves(Expansion& e, const Operand& x, std::vector<int64_t> shape) {
  std::vector<int64_t> apart = shape, perm{0, 2, 1};
  apart[1] = 2;
  apart.insert(apart.begin() + 1, shape[1] / 2);
  for (size_t i = 3; i < apart.size(); ++i)
    perm.push_back(static_cast<int64_t>(i));
  return e.reshaped(e.transposed(e.reshaped(x, apart), perm), shape);
}

// ---- The whole ----

struct LayerSizes {
  int64_t experts = 0, columns = 0, depth = 0;
  bool alternates = false;  // the columns of both halves take turns
};
// Layer 0 (from the input), 1 (to the output) or 2 (the gate's second factor) with these sizes, or an error.
using MakeLayer = std::function<std::optional<Layer>(int layer, const LayerSizes& sizes)>;

// How much each choice counts, [tokens, choices], and which expert it is.
struct Choices {
  Operand share, expert;
};

// router_weights: with which results count; empty: with the router's scores.
Choices choose(Expansion& e, const Operand& router_weights) {
  const Operand scores = wide(e, kRouter);
  const std::vector<Setting> along{{"axis", int64_t{1}}};
  const std::vector<Operand> top = e.ops("TopK", {scores, e.ints({e.integer("k")})}, along, 2);
  const bool is_normal = e.integer("normalize_routing_weights") != 0;
  if (is_normal && router_weights.empty()) return {e.op("Softmax", {top[0]}, along), top[1]};
  Operand of_all = router_weights.empty() ? e.op("Softmax", {scores}, along) : router_weights;
  Operand share = e.op("GatherElements", {of_all, top[1]}, along);
  if (is_normal) share = e.op("Div", {share, e.op("ReduceSum", {share, e.ints({1})})});
  return {share, top[1]};
}

struct Experts {
  Activation activation;
  Layer first, second, third;    // the third where the gate's second factor is apart
  int64_t width = 0, inner = 0;  // of the tokens, and between the layers
  bool may_round = false;        // the rows of products, to bytes

  bool is_fused() const { return activation.gate == Gate::alternating || activation.gate == Gate::halves; }
};

// What comes of each pair of token and choice. rows [pairs, 1, width], expert [pairs] -> the same as rows.
Operand results(Expansion& e, const Experts& x, const Operand& rows, const Operand& expert) {
  auto apply = [&](const Layer& layer, const Operand& to) {
    return applied(e, layer, to, expert, x.may_round);
  };
  Operand gate = apply(x.first, rows), linear;
  if (x.activation.gate == Gate::separate) linear = apply(x.third, rows);
  if (x.is_fused()) {
    linear = e.slice(gate, 2, x.inner, 2 * x.inner);
    gate = e.slice(gate, 2, 0, x.inner);
  }
  return apply(x.second, activated(e, x.activation, gate, linear, e.element(kInput)));
}

// inner: columns between the layers.
void mix(Expansion& e, int64_t inner, bool has_third, bool may_round, const Operand& router_weights,
         const MakeLayer& make) {
  const int64_t tokens = e.sizes(kRouter)[0], choices = e.integer("k"), count = e.last_size(kRouter),
                width = e.last_size(kInput);
  const ElementType type = e.element(kInput);
  const std::optional<Activation> a = activation_of(e, has_third);
  if (!a || !e.expect(inner > 0, "input 'fc2_experts_weights': expected columns")) return;
  Experts x{*a, {}, {}, {}, width, inner, may_round};
  const auto first = make(0, {count, x.is_fused() ? 2 * inner : inner, width, a->gate == Gate::alternating}),
             second = make(1, {count, width, inner}),
             third = a->gate == Gate::separate ? make(2, {count, inner, width}) : Layer();
  if (!first || !second || !third) return;
  x.first = *first;
  x.second = *second;
  x.third = *third;
  const Choices chosen = choose(e, router_weights);
  Operand rows =
      e.op("Expand", {e.reshaped(e.in(kInput), {tokens, 1, width}), e.ints({tokens, choices, width})});
  rows = e.op("Reshape", {rows, e.ints({-1, 1, width})});
  Operand made = e.reshaped(results(e, x, rows, e.reshaped(chosen.expert, {-1})), {tokens, choices, width});
  if (type != ElementType::f32) made = e.converted(made, ElementType::f32);
  Operand weighted = e.op("Mul", {made, e.op("Unsqueeze", {chosen.share, e.ints({2})})});
  Operand sum = e.op("ReduceSum", {weighted, e.ints({1})}, {{"keepdims", int64_t{0}}});
  e.result(0, e.reshaped(narrowed(e, sum, type), e.sizes(kInput)));
}

bool expect_tokens(Expansion& e) {
  const int64_t rank = e.rank(kInput);
  if (!e.expect(rank == 2 || rank == 3, "input 'input': expected 2 or 3 dimensions, got shape ",
                shape_text(e.sizes(kInput))) ||
      !e.expect_rank(kRouter, 2))
    return false;
  const int64_t experts = e.last_size(kRouter), width = e.last_size(kInput), k = e.integer("k");
  return !Expansion::is_open(experts) && !Expansion::is_open(width) &&
         e.expect(1 <= k && k <= experts, "attribute 'k': expected 1 to ", experts, " (experts), got ", k);
}

// ---- MoE: weights [experts, columns, depth] as they are ----

constexpr int kFirst = 2, kSecond = 4, kThird = 6;

std::optional<Layer> plain_layer(Expansion& e, int i, const LayerSizes& sizes) {
  const auto [experts, columns, depth, alternates] = sizes;
  if (!e.expect_shape(i, {experts, columns, depth}) ||
      (e.has(i + 1) && !e.expect_shape(i + 1, {experts, columns})))
    return std::nullopt;
  Layer layer{e.in(i), e.in(i + 1)};
  if (alternates) {
    layer.weights = in_halves(e, layer.weights, {experts, columns, depth});
    if (!layer.bias.empty()) layer.bias = in_halves(e, layer.bias, {experts, columns});
  }
  return layer;
}

void mixture_of_experts(Expansion& e) {
  if (!expect_tokens(e) || !e.expect_rank(kSecond, 3)) return;
  mix(e, e.last_size(kSecond), e.has(kThird), false, "",
      [&](int layer, const LayerSizes& sizes) { return plain_layer(e, kFirst + 2 * layer, sizes); });
}

// ---- QMoE: weights of few bits, [experts, columns, bytes], with a scale for each column or each block of one ----

// Of its layers, one behind the other.
constexpr int kWeightsOf[] = {2, 5, 8}, kZerosOf[] = {11, 12, 13};
constexpr int kRouterWeights = 14, kFirstGlobal = 15, kLastInput = 19;
constexpr const char* kBitsOf[] = {"fc1_expert_weight_bits", "fc2_expert_weight_bits",
                                   "fc3_expert_weight_bits"};

// Nothing after an error.
std::optional<int64_t> bits_of(Expansion& e, int layer) {
  const int64_t bits =
      e.is_given(kBitsOf[layer]) ? e.integer(kBitsOf[layer]) : e.integer("expert_weight_bits");
  const bool is_known = e.supports(bits == 2 || bits == 4 || bits == 8, "fc", layer + 1, ": weights of ",
                                   bits, " bits: expected 2, 4 or 8");
  return is_known ? std::optional(bits) : std::nullopt;
}

// What its inputs are, and how long a column's blocks.
struct FewBits {
  int weights, scales, bias, zeros;  // inputs
  int64_t bits, block;
  bool has_blocks;
  std::vector<int64_t> packed, packed_zeros, by_block;  // shapes: of bytes, and a number for each block

  FewBits(Expansion& e, int layer, const LayerSizes& s, int64_t bits_of_weights)
      : weights(kWeightsOf[layer]),
        scales(weights + 1),
        bias(weights + 2),
        zeros(kZerosOf[layer]),
        bits(bits_of_weights) {
    const int64_t given = e.is_given("block_size") ? e.integer("block_size") : 0;
    has_blocks = given > 0;
    block = has_blocks ? given : std::max<int64_t>(s.depth, 1);
    const int64_t blocks = s.depth / block;
    packed = {s.experts, s.columns, s.depth * bits / 8};
    by_block = {s.experts, s.columns, blocks};
    // Without blocks the zero points of all columns are packed together.
    packed_zeros = has_blocks ? std::vector<int64_t>{s.experts, s.columns, (blocks * bits + 7) / 8}
                              : std::vector<int64_t>{s.experts, (s.columns * bits + 7) / 8};
  }
};

bool expect_layer(Expansion& e, int layer, const LayerSizes& s, const FewBits& q) {
  const std::string name = text("fc", layer + 1);
  const std::vector<int64_t> by_column{s.experts, s.columns};
  return e.expect(s.depth % q.block == 0 && s.depth * q.bits % 8 == 0, name, ": blocks of ", q.block,
                  " do not divide ", s.depth, " rows") &&
         e.expect_shape(q.weights, q.packed) && e.expect_element(q.weights, {ElementType::u8}) &&
         e.expect(e.has(q.scales), "input '", name, "_scales' is missing") &&
         e.expect_shape(q.scales, q.has_blocks ? q.by_block : by_column) &&
         (!e.has(q.bias) || e.expect_shape(q.bias, by_column)) &&
         (!e.has(q.zeros) ||
          (e.expect_element(q.zeros, {ElementType::u8}) && e.expect_shape(q.zeros, q.packed_zeros)));
}

std::optional<Layer> quantized_layer(Expansion& e, int layer, const LayerSizes& s) {
  const std::optional<int64_t> bits = bits_of(e, layer);
  if (!bits) return std::nullopt;
  const FewBits q(e, layer, s, *bits);
  if (!expect_layer(e, layer, s, q)) return std::nullopt;
  auto in_order = [&](const Operand& x, const std::vector<int64_t>& shape) {
    return s.alternates ? in_halves(e, x, shape) : x;
  };
  const ElementType number = number_of_bits(q.bits);
  const Operand numbers =
      in_order(unpacked(e, e.in(q.weights), q.packed, q.bits), {s.experts, s.columns, s.depth});
  Operand scale = e.reshaped(e.in(q.scales), q.by_block), zero;
  if (e.element(q.scales) != e.element(kInput)) scale = e.converted(scale, e.element(kInput));
  if (e.has(q.zeros)) {
    zero = unpacked(e, e.in(q.zeros), q.packed_zeros, q.bits);
    zero = q.has_blocks ? e.slice(zero, 2, 0, q.by_block[2])
                        : e.reshaped(e.slice(zero, 1, 0, s.columns), q.by_block);
  } else {
    const auto half = static_cast<double>(int64_t{1} << (q.bits - 1));
    zero = e.op("Expand", {e.scalar(ElementType::u8, half), e.ints(q.by_block)});
  }
  Operand real = e.op("DequantizeLinear",
                      {e.converted(numbers, number), in_order(scale, q.by_block),
                       e.converted(in_order(zero, q.by_block), number)},
                      {{"axis", int64_t{2}}, {"block_size", q.block}});
  return Layer{real, e.has(q.bias) ? in_order(e.in(q.bias), {s.experts, s.columns}) : ""};
}

void quantized_mixture(Expansion& e) {
  if (!expect_tokens(e) || !e.expect_rank(kWeightsOf[1], 3)) return;
  const std::string kind = e.word("quant_type");
  const int64_t prepacked = e.integer("weights_prepacked");
  if (!e.supports(kind == "int", "attribute 'quant_type': expected int, got ", kind) ||
      !e.supports(prepacked == 0 || prepacked == -1, "attribute 'weights_prepacked': expected -1 or 0, got ",
                  prepacked))
    return;
  const std::optional<int64_t> bits = bits_of(e, 1);
  if (!bits) return;
  for (int i = kFirstGlobal; i <= kLastInput; ++i)
    if (!e.supports(!e.has(i),
                    "global scales and scales of activations are of other kinds of numbers than integers"))
      return;
  if (e.has(kRouterWeights) && !e.expect_fit(kRouterWeights, e.sizes(kRouter))) return;
  const int64_t bytes = e.last_size(kWeightsOf[1]);
  if (Expansion::is_open(bytes)) return;
  mix(e, bytes * 8 / *bits, e.has(kWeightsOf[2]), e.integer("accuracy_level") == kBytesWillDo,
      e.has(kRouterWeights) ? wide(e, kRouterWeights) : "",
      [&](int layer, const LayerSizes& sizes) { return quantized_layer(e, layer, sizes); });
}

// What both have, and some more.
std::vector<AttributeRule> attributes_with(std::vector<AttributeRule> more) {
  std::vector<AttributeRule> all{{"k", 1},
                                 {"activation_type", "relu"},
                                 {"normalize_routing_weights", 0},
                                 {"use_sparse_mixer", 0},
                                 {"swiglu_fusion", 0},
                                 optional("swiglu_limit", AttributeProto::FLOAT),
                                 {"swiglu_limit_after_activation", 0},
                                 {"activation_alpha", 1.0f},
                                 {"activation_beta", 0.0f}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

std::span<const ContribOp> expert_ops() {
  static const std::vector<ContribOp> ops{
      {"MoE",
       "input router_probs fc1_experts_weights fc1_experts_bias? fc2_experts_weights fc2_experts_bias? "
       "fc3_experts_weights? fc3_experts_bias?",
       "output", attributes_with({}), mixture_of_experts},
      {"QMoE",
       "input router_probs fc1_experts_weights fc1_scales? fc1_experts_bias? fc2_experts_weights fc2_scales? "
       "fc2_experts_bias? fc3_experts_weights? fc3_scales? fc3_experts_bias? fc1_zero_points? "
       "fc2_zero_points? "
       "fc3_zero_points? router_weights? fc1_global_scale? fc2_global_scale? fc1_act_scale? fc2_act_scale? "
       "fc1_act_block_scale?",
       "output",
       attributes_with({{"quant_type", "int"},
                        {"expert_weight_bits", 4},
                        optional("fc1_expert_weight_bits", AttributeProto::INT),
                        optional("fc2_expert_weight_bits", AttributeProto::INT),
                        optional("fc3_expert_weight_bits", AttributeProto::INT),
                        optional("block_size", AttributeProto::INT),
                        {"weights_prepacked", -1},
                        {"accuracy_level", 0}}),
       quantized_mixture},
  };
  return ops;
}

}  // namespace mcc::frontend
