#include "frontend/contrib/attention.h"

#include <algorithm>
#include <cmath>

namespace mcc::frontend {

namespace {

using onnx::AttributeProto;

// The lowest number of a type that f32 can write.
double lowest(ElementType element) { return element == ElementType::f16 ? -65504.0 : element == ElementType::bf16 ? -0x1.fep127 : -0x1.fffffep127; }

}  // namespace

Operand split_heads(Expansion& e, const Operand& x, int64_t batch, int64_t rows, int64_t heads, int64_t head) {
  return e.transposed(e.reshaped(x, {batch, rows, heads, head}), {0, 2, 1, 3});
}

Operand join_heads(Expansion& e, const Operand& x, const AttentionDims& d) {
  return e.reshaped(e.transposed(x, {0, 2, 1, 3}), {d.batch, d.queries, d.heads * d.value_head});
}

std::optional<Operand> key_mask(Expansion& e, int i, const AttentionDims& d, ElementType real) {
  if (!e.has(i)) return "";
  const std::vector<int64_t>& shape = e.sizes(i);
  const std::vector<int64_t> by_key{d.batch, d.total}, by_query{d.batch, d.queries, d.total};
  auto fits = [&](const std::vector<int64_t>& wanted) {
    return shape.size() == wanted.size() &&
           std::equal(shape.begin(), shape.end(), wanted.begin(), Expansion::may_be);
  };
  const bool has_spans = shape == std::vector<int64_t>{e.sum(d.batch, d.batch)};
  Operand is_seen;
  if (shape.size() == 2 && shape[1] == 1 && shape != by_key && (shape[0] == 1 || shape[0] == d.batch)) {
    return "";  // the same for all keys: it changes nothing
  } else if (fits(by_key) || fits(by_query)) {
    is_seen = e.op("Greater", {e.in(i), e.scalar(ElementType::i32, 0)});
    is_seen = e.op("Unsqueeze", {is_seen, shape.size() == 2 ? e.ints({1, 2}) : e.ints({1})});
  } else if (shape == std::vector<int64_t>{d.batch} || has_spans) {
    Operand place = e.count_up(d.total, ElementType::i32);
    auto limit = [&](const Operand& x) { return e.reshaped(x, {d.batch, 1, 1, 1}); };
    if (has_spans) {
      std::vector<Operand> ends =
          e.ops("Split", {e.in(i)}, {{"axis", int64_t{0}}, {"num_outputs", int64_t{2}}}, 2);
      is_seen = e.op(
          "And", {e.op("Less", {place, limit(ends[0])}), e.op("GreaterOrEqual", {place, limit(ends[1])})});
    } else {
      is_seen = e.op("Less", {place, limit(e.in(i))});
    }
  } else {
    e.supports(false, "a mask of shape ", shape_text(shape), " is not supported: expected ",
               shape_text({d.batch}), ", ", shape_text({e.sum(d.batch, d.batch)}), ", ", shape_text(by_key),
               " or ", shape_text(by_query));
    return std::nullopt;
  }
  return e.op("Where", {is_seen, e.scalar(real, 0), e.scalar(real, e.number("mask_filter_value"))});
}

bool expect_score_bias(Expansion& e, int i, const AttentionDims& d) {
  if (!e.has(i)) return true;
  const std::vector<int64_t>& b = e.sizes(i);
  const bool fits = b.size() == 4 && (b[0] == 1 || Expansion::may_be(b[0], d.batch)) &&
                    (b[1] == 1 || Expansion::may_be(b[1], d.heads)) && Expansion::may_be(b[2], d.queries) &&
                    Expansion::may_be(b[3], d.total);
  return e.expect(fits, "input 'attention_bias': expected shape ",
                  shape_text({d.batch, d.heads, d.queries, d.total}), ", with 1 for batch or heads, got ",
                  shape_text(b));
}

Operand with_past(Expansion& e, const Operand& past, const Operand& now, const AttentionDims& d) {
  return past.empty() || d.past == 0 ? now : e.op("Concat", {past, now}, {{"axis", int64_t{2}}});
}

Operand keys_before(Expansion& e, const AttentionDims& d) {
  if (d.queries == 1) return "";
  if (Expansion::is_open(d.queries) || Expansion::is_open(d.total)) {
    Operand query = e.op(
        "Add", {e.count_up(d.queries, ElementType::i32), e.converted(e.ints({d.past}), ElementType::i32)});
    return e.op("GreaterOrEqual",
                {e.op("Unsqueeze", {query, e.ints({1})}), e.count_up(d.total, ElementType::i32)});
  }
  std::vector<int32_t> is_seen;
  for (int64_t query = 0; query < d.queries; ++query)
    for (int64_t key = 0; key < d.total; ++key)
      is_seen.push_back(key <= d.past + query);
  return e.tensor(ElementType::boolean, {1, 1, d.queries, d.total}, is_seen);
}

namespace {

// Softmax over the last axis, where each row has one score more, which has no result.
Operand softmax_beside(Expansion& e, const Operand& s, const Operand& sink) {
  Operand last = e.ints({-1});
  Operand most = e.op("Max", {e.op("ReduceMax", {s, last}), sink});
  Operand powers = e.op("Exp", {e.op("Sub", {s, most})});
  return e.op(
      "Div",
      {powers, e.op("Add", {e.op("ReduceSum", {powers, last}), e.op("Exp", {e.op("Sub", {sink, most})})})});
}

}  // namespace

Operand attend(Expansion& e, const AttentionDims& d, const Operand& q, const Operand& k, const Operand& v, const Scores& scores,
               ElementType real) {
  Operand s = e.op("MatMul", {q, e.transposed(k, {0, 1, 3, 2})});
  const double scale = scores.scale != 0 ? scores.scale : 1 / std::sqrt(static_cast<double>(d.head));
  if (scores.cap == 0) {
    s = e.op("Mul", {s, e.scalar(real, scale)});
  } else {
    s = e.op("Tanh", {e.op("Mul", {s, e.scalar(real, scale / scores.cap)})});
    s = e.op("Mul", {s, e.scalar(real, scores.cap)});
  }
  if (!scores.bias.empty()) s = e.op("Add", {s, scores.bias});
  if (!scores.mask.empty()) s = e.op("Add", {s, scores.mask});
  if (!scores.seen.empty()) s = e.op("Where", {scores.seen, s, e.scalar(real, lowest(real))});
  s = scores.sink.empty() ? e.op("Softmax", {s}, {{"axis", int64_t{-1}}}) : softmax_beside(e, s, scores.sink);
  return e.op("MatMul", {s, v});
}

namespace {

// ---- Attention, QAttention: queries, keys and values are products of one input ----

struct SelfAttention {
  int mask, past, bias = -1;  // inputs; -1: none
  ElementType real;
};

// d.batch, d.heads, ... by the input and the sizes of the three parts of the product's columns.
std::optional<AttentionDims> self_dims(Expansion& e, int past, std::vector<int64_t> parts) {
  AttentionDims d;
  d.batch = e.sizes(0)[0];
  d.queries = d.keys = e.sizes(0)[1];
  d.heads = e.integer("num_heads");
  if (!e.expect(d.heads > 0, "attribute 'num_heads': expected a positive number, got ", d.heads)) return std::nullopt;
  for (int64_t part : parts) {
    if (!e.expect(part > 0 && part % d.heads == 0, "the columns of the weights, ", shape_text(parts), " for queries, keys and values, ",
                  "cannot be divided by ", d.heads, " heads"))
      return std::nullopt;
  }
  if (!e.expect(parts[0] == parts[1], "queries of ", parts[0], " and keys of ", parts[1], " columns: expected equal numbers"))
    return std::nullopt;
  d.head = parts[0] / d.heads;
  d.value_head = parts[2] / d.heads;
  d.total = d.keys;
  if (!e.has(past)) return d;
  if (!e.expect_rank(past, 5)) return std::nullopt;
  d.past = e.sizes(past)[3];
  d.total = e.sum(d.past, d.keys);
  if (!e.expect(d.head == d.value_head, "with a past, keys and values need equal sizes") ||
      !e.expect_fit(past, {2, d.batch, d.heads, d.past, d.head}))
    return std::nullopt;
  return d;
}

// qkv: [B, S, columns of queries, keys and values].
void self_attention(Expansion& e, const Operand& qkv, const AttentionDims& d, const SelfAttention& from) {
  std::optional<Operand> mask = key_mask(e, from.mask, d, from.real);
  if (!mask) return;
  const int64_t qk = d.heads * d.head, columns = d.heads * d.value_head;
  std::vector<Operand> parts = e.ops("Split", {qkv, e.ints({qk, qk, columns})}, {{"axis", int64_t{2}}}, 3);
  auto heads = [&](const Operand& x, int64_t head) { return split_heads(e, x, d.batch, d.keys, d.heads, head); };
  Operand q = heads(parts[0], d.head), k = heads(parts[1], d.head), v = heads(parts[2], d.value_head);
  if (e.has(from.past) && d.past != 0) {
    std::vector<Operand> before = e.ops("Split", {e.in(from.past)}, {{"axis", int64_t{0}}, {"num_outputs", int64_t{2}}}, 2);
    auto one = [&](const Operand& x) { return e.reshaped(x, {d.batch, d.heads, d.past, d.head}); };
    k = with_past(e, one(before[0]), k, d);
    v = with_past(e, one(before[1]), v, d);
  }
  Scores scores;
  scores.scale = e.is_given("scale") ? e.number("scale") : 0;
  scores.mask = *mask;
  if (e.integer("unidirectional") != 0) scores.seen = keys_before(e, d);
  if (!expect_score_bias(e, from.bias, d)) return;
  scores.bias = e.in(from.bias);
  e.result(0, join_heads(e, attend(e, d, q, k, v, scores, from.real), d));
  if (!e.has_output(1)) return;
  if (!e.expect(d.head == d.value_head, "output 'present': keys and values need equal sizes")) return;
  Operand zero = e.ints({0});
  e.result(1, e.op("Concat", {e.op("Unsqueeze", {k, zero}), e.op("Unsqueeze", {v, zero})}, {{"axis", int64_t{0}}}));
}

void attention(Expansion& e) {
  constexpr int kWeights = 1, kBias = 2, kMask = 3, kPast = 4, kScoreBias = 5, kPastLength = 6;
  if (!e.expect_rank(0, 3) || !e.expect_rank(kWeights, 2) || !e.supports_only("do_rotary", 0) ||
      !e.supports_only("past_present_share_buffer", 0) || !e.supports(!e.has(kPastLength), "input 'past_sequence_length' is not supported"))
    return;
  const int64_t columns = e.shape(kWeights)[1];
  std::vector<int64_t> parts(3, columns / 3);
  if (e.is_given("qkv_hidden_sizes")) parts = e.integers("qkv_hidden_sizes");
  if (!e.expect(parts.size() == 3 && parts[0] + parts[1] + parts[2] == columns, "input 'weights': expected columns for queries, keys and ",
                "values, ", shape_text(parts), ", got shape ", shape_text(e.shape(kWeights))) ||
      (e.has(kBias) && !e.expect_shape(kBias, {columns})))
    return;
  std::optional<AttentionDims> d = self_dims(e, kPast, parts);
  if (!d) return;
  Operand qkv = e.op("MatMul", {e.in(0), e.in(kWeights)});
  if (e.has(kBias)) qkv = e.op("Add", {qkv, e.in(kBias)});
  self_attention(e, qkv, *d, {kMask, kPast, kScoreBias, e.element(0)});
}

void quantized_attention(Expansion& e) {
  constexpr int kWeights = 1, kBias = 2, kScale = 3, kWeightScale = 4, kMask = 5, kZero = 6, kWeightZero = 7, kPast = 8;
  if (!e.expect_rank(0, 3) || !e.expect_rank(kWeights, 2) || !e.supports_only("do_rotary", 0) ||
      !e.supports_only("past_present_share_buffer", 0) || !e.expect_single({kScale, kZero}))
    return;
  const int64_t columns = e.shape(kWeights)[1];
  if (!e.expect(columns % 3 == 0, "input 'weight': expected columns for queries, keys and values, got shape ", shape_text(e.shape(kWeights))) ||
      !e.expect_shape(kBias, {columns}))
    return;
  for (int i : {kWeightScale, kWeightZero})
    if (e.has(i) && e.count(i) != 1 && !e.expect_shape(i, {columns})) return;
  std::optional<AttentionDims> d = self_dims(e, kPast, std::vector<int64_t>(3, columns / 3));
  if (!d) return;
  const ElementType real = e.element(kScale);
  Operand qkv = integer_product(e, {e.in(0), e.in(kWeights), e.in(kScale), e.in(kWeightScale), e.in(kZero), e.in(kWeightZero),
                                    e.in(kBias), real});
  self_attention(e, qkv, *d, {kMask, kPast, -1, real});
}

// ---- MultiHeadAttention: queries, keys and values are inputs ----

struct Operands {
  Operand q, k, v;  // [B, heads, rows, head]
};

// Reads the sizes off the inputs, in each of the forms that they may have.
std::optional<Operands> multi_head_operands(Expansion& e, AttentionDims* d) {
  constexpr int kKey = 1, kValue = 2, kBias = 3;
  const std::vector<int64_t>& q = e.sizes(0);
  d->heads = e.integer("num_heads");
  if (!e.expect(d->heads > 0, "attribute 'num_heads': expected a positive number, got ", d->heads)) return std::nullopt;
  d->batch = q[0];
  d->queries = q.size() > 1 ? q[1] : 0;
  auto heads_of = [&](const Operand& x, int64_t rows, int64_t head) { return split_heads(e, x, d->batch, rows, d->heads, head); };
  // Part i of [B, rows, heads, count, head].
  auto part = [&](int input, int64_t i, int64_t rows) {
    return heads_of(e.slice(e.in(input), 3, i, i + 1), rows, d->head);
  };
  if (q.size() == 5) {
    d->head = d->value_head = q[4];
    d->keys = d->queries;
    if (!e.expect_shape(0, {d->batch, d->queries, d->heads, 3, d->head}) ||
        !e.expect(!e.has(kKey) && !e.has(kValue), "inputs 'key' and 'value': expected none, as 'query' holds them") ||
        !e.supports(!e.has(kBias), "input 'bias' with keys and values in 'query' is not supported"))
      return std::nullopt;
    return Operands{part(0, 0, d->keys), part(0, 1, d->keys), part(0, 2, d->keys)};
  }
  if (!e.expect_rank(0, 3) || Expansion::is_open(e.last_size(0)) || !e.expect(e.has(kKey), "input 'key' is missing") ||
      !e.expect(q[2] % d->heads == 0, "input 'query': shape ", shape_text(q), " cannot be divided by ", d->heads, " heads"))
    return std::nullopt;
  d->head = q[2] / d->heads;
  const std::vector<int64_t>& k = e.sizes(kKey);
  if (k.size() == 5) {
    d->value_head = d->head;
    d->keys = k[1];
    if (!e.expect_shape(kKey, {d->batch, d->keys, d->heads, 2, d->head}) ||
        !e.expect(!e.has(kValue), "input 'value': expected none, as 'key' holds it") ||
        !e.supports(!e.has(kBias), "input 'bias' with values in 'key' is not supported"))
      return std::nullopt;
    return Operands{heads_of(e.in(0), d->queries, d->head), part(kKey, 0, d->keys), part(kKey, 1, d->keys)};
  }
  if (!e.expect(e.has(kValue), "input 'value' is missing")) return std::nullopt;
  const std::vector<int64_t>& v = e.sizes(kValue);
  if (k.size() == 4) {
    d->keys = k[2];
    d->value_head = v.back();
    if (!e.expect_shape(kKey, {d->batch, d->heads, d->keys, d->head}) || !e.expect_shape(kValue, {d->batch, d->heads, d->keys, d->value_head}) ||
        !e.supports(!e.has(kBias), "input 'bias' with keys of shape ", shape_text(k), " is not supported"))
      return std::nullopt;
    return Operands{heads_of(e.in(0), d->queries, d->head), e.in(kKey), e.in(kValue)};
  }
  if (!e.expect_rank(kKey, 3) || !e.expect_rank(kValue, 3) || Expansion::is_open(e.last_size(kValue)) ||
      !e.expect(v[2] % d->heads == 0, "input 'value': shape ", shape_text(v), " cannot be divided by ", d->heads, " heads"))
    return std::nullopt;
  d->keys = k[1];
  d->value_head = v[2] / d->heads;
  if (!e.expect_shape(kKey, {d->batch, d->keys, q[2]}) || !e.expect_shape(kValue, {d->batch, d->keys, v[2]}) ||
      (e.has(kBias) && !e.expect_shape(kBias, {2 * q[2] + v[2]})))
    return std::nullopt;
  auto biased = [&](int i, int64_t begin, int64_t width) {
    return e.has(kBias) ? e.op("Add", {e.in(i), e.slice(e.in(kBias), 0, begin, begin + width)}) : e.in(i);
  };
  return Operands{heads_of(biased(0, 0, q[2]), d->queries, d->head), heads_of(biased(kKey, q[2], q[2]), d->keys, d->head),
                  heads_of(biased(kValue, 2 * q[2], v[2]), d->keys, d->value_head)};
}

void multi_head(Expansion& e) {
  constexpr int kMask = 4, kScoreBias = 5, kPastKey = 6, kPastValue = 7, kPastLength = 8, kIndirection = 9;
  AttentionDims d;
  std::optional<Operands> x = multi_head_operands(e, &d);
  if (!x || !e.supports(!e.has(kPastLength) && !e.has(kIndirection), "inputs 'past_sequence_length' and 'cache_indirection' are not supported") ||
      !e.expect(e.has(kPastKey) == e.has(kPastValue), "inputs 'past_key' and 'past_value': expected both or none"))
    return;
  if (e.has(kPastKey)) {
    if (!e.expect_rank(kPastKey, 4)) return;
    d.past = e.sizes(kPastKey)[2];
    if (!e.expect_fit(kPastKey, {d.batch, d.heads, d.past, d.head}) ||
        !e.expect_fit(kPastValue, {d.batch, d.heads, d.past, d.value_head}))
      return;
  }
  d.total = e.sum(d.past, d.keys);
  std::optional<Operand> mask = key_mask(e, kMask, d, e.element(0));
  if (!mask) return;
  Operand k = with_past(e, e.in(kPastKey), x->k, d), v = with_past(e, e.in(kPastValue), x->v, d);
  Scores scores;
  scores.scale = e.is_given("scale") ? e.number("scale") : 0;
  scores.mask = *mask;
  if (e.integer("unidirectional") != 0) scores.seen = keys_before(e, d);
  if (!expect_score_bias(e, kScoreBias, d)) return;
  scores.bias = e.in(kScoreBias);
  e.result(0, join_heads(e, attend(e, d, x->q, k, v, scores, e.element(0)), d));
  e.result(1, k);
  e.result(2, v);
}

}  // namespace

std::span<const ContribOp> attention_ops() {
  const AttributeRule heads("num_heads", AttributeProto::INT, AttributeRule::required);
  const AttributeRule filter("mask_filter_value", -10000.0f), unidirectional("unidirectional", 0);
  const AttributeRule scale = optional("scale", AttributeProto::FLOAT), rotary = optional("do_rotary", AttributeProto::INT),
                      share = optional("past_present_share_buffer", AttributeProto::INT);
  static const std::vector<ContribOp> ops{
      // rotary_embedding_dim says nothing without do_rotary.
      {"Attention", "input weights bias? mask_index? past? attention_bias? past_sequence_length?", "output present?",
       {heads, filter, unidirectional, scale, rotary, share, optional("qkv_hidden_sizes", AttributeProto::INTS),
        optional("rotary_embedding_dim", AttributeProto::INT)},
       attention},
      {"QAttention", "input weight bias input_scale weight_scale mask_index? input_zero_point? weight_zero_point? past?", "output present?",
       {heads, filter, unidirectional, scale, rotary, share}, quantized_attention},
      {"MultiHeadAttention",
       "query key? value? bias? key_padding_mask? attention_bias? past_key? past_value? past_sequence_length? cache_indirection?",
       "output present_key? present_value? qk?", {heads, filter, unidirectional, scale}, multi_head},
  };
  return ops;
}

}  // namespace mcc::frontend
