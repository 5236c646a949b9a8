// What decoders have besides: rotary embeddings, attention whose keys and values several heads share.
#include "frontend/contrib/attention.h"

namespace mcc::frontend {

namespace {

using onnx::AttributeProto;

// x: [B, rows, hidden] or [B, heads, rows, head], turned by rows of the tables cos and sin at positions [B, rows].
Operand turned(Expansion& e, const Operand& x, const Operand& cos, const Operand& sin, const Operand& positions, int64_t heads,
               int64_t dim, bool is_interleaved) {
  return e.op("RotaryEmbedding", {x, cos, sin, positions},
              {{"interleaved", int64_t{is_interleaved}}, {"num_heads", heads}, {"rotary_embedding_dim", dim}});
}

// 0, 1, ... for each row of each sequence.
Operand row_numbers(Expansion& e, int64_t batch, int64_t rows) {
  std::vector<int64_t> places;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t row = 0; row < rows; ++row)
      places.push_back(row);
  return e.reshaped(e.ints(places), {batch, rows});
}

// ---- RotaryEmbedding: position_ids are one for each row, or that of the first ----

void rotary(Expansion& e) {
  constexpr int kPositions = 1, kCos = 2, kSin = 3;
  const std::vector<int64_t>& x = e.shape(0);
  if (!e.expect(x.size() == 3 || x.size() == 4, "input 'input': expected 3 or 4 dimensions, got shape ", shape_text(x)) ||
      !e.expect_rank(kCos, 2) || !e.expect_rank(kSin, 2) || !e.supports_only("is_packed_batching", 0) ||
      !e.supports(e.number("scale") == 1, "attribute 'scale': only 1 is supported, got ", e.number("scale")))
    return;
  const int64_t batch = x[0], rows = x.size() == 3 ? x[1] : x[2], dim = e.integer("rotary_embedding_dim");
  int64_t heads = e.integer("num_heads");
  if (!e.expect(dim == 0 || heads > 0 || x.size() == 4, "attribute 'rotary_embedding_dim': expected 'num_heads' with it")) return;
  if (heads == 0 && x.size() == 3) {
    const int64_t head = 2 * e.shape(kCos)[1];
    if (!e.expect(head > 0 && x[2] % head == 0, "input 'input': shape ", shape_text(x), " has no whole heads of ", head)) return;
    heads = x[2] / head;
  }
  Operand positions = e.in(kPositions);
  if (e.shape(kPositions) == std::vector<int64_t>{1}) {
    positions = e.op("Add", {row_numbers(e, batch, rows), positions});
  } else if (!e.expect_shape(kPositions, {batch, rows})) {
    return;
  }
  e.result(0, turned(e, e.in(0), e.in(kCos), e.in(kSin), positions, heads, dim, e.integer("interleaved") != 0));
}

// ---- GroupQueryAttention, of a whole prompt ----
// Nothing lies before the prompt, and sequences that are shorter have their padding behind them: a query of a sequence sees keys up to
// its own place, so that seqlens_k says nothing more about its result. What padding gives, onnxruntime does not define.

// Queries, keys and values [B, rows, heads * head], apart or in one tensor.
struct Parts {
  Operand q, k, v;
};

std::optional<Parts> parts_of(Expansion& e, AttentionDims* d, int64_t kv_heads) {
  constexpr int kKey = 1, kValue = 2;
  if (!e.expect_rank(0, 3) || !e.expect(e.has(kKey) == e.has(kValue), "inputs 'key' and 'value': expected both or none"))
    return std::nullopt;
  d->batch = e.shape(0)[0];
  d->queries = d->keys = e.shape(0)[1];
  const int64_t columns = e.shape(0)[2], all = e.has(kKey) ? d->heads : d->heads + 2 * kv_heads;
  if (!e.expect(columns % all == 0, "input 'query': shape ", shape_text(e.shape(0)), " cannot be divided by ", all, " heads"))
    return std::nullopt;
  d->head = d->value_head = columns / all;
  const int64_t width = kv_heads * d->head;
  if (!e.has(kKey)) {
    std::vector<Operand> parts = e.ops("Split", {e.in(0), e.ints({d->heads * d->head, width, width})}, {{"axis", int64_t{2}}}, 3);
    return Parts{parts[0], parts[1], parts[2]};
  }
  if (!e.expect_shape(kKey, {d->batch, d->keys, width}) || !e.expect_shape(kValue, {d->batch, d->keys, width})) return std::nullopt;
  return Parts{e.in(0), e.in(kKey), e.in(kValue)};
}

void group_query(Expansion& e) {
  constexpr int kPastKey = 3, kPastValue = 4, kCos = 7, kSin = 8, kPositions = 9, kScoreBias = 10, kFirstNewer = 11;
  AttentionDims d;
  d.heads = e.integer("num_heads");
  const int64_t kv_heads = e.integer("kv_num_heads");
  if (!e.expect(d.heads > 0 && kv_heads > 0 && d.heads % kv_heads == 0, "attributes 'num_heads' and 'kv_num_heads': ", d.heads,
                " heads cannot share ", kv_heads))
    return;
  if (!e.supports_only("causal", 1)) return;
  for (int i = kFirstNewer; i < e.num_inputs(); ++i)
    if (!e.supports(!e.has(i), "inputs behind 'attention_bias' are not supported")) return;
  std::optional<Parts> parts = parts_of(e, &d, kv_heads);
  if (!parts || !e.supports(e.number("softcap") == 0, "attribute 'softcap': only 0 is supported, got ", e.number("softcap")) ||
      !e.supports(e.integer("smooth_softmax") <= 0, "attribute 'smooth_softmax': only 0 is supported, got 1"))
    return;
  for (int i : {kPastKey, kPastValue})
    if (e.has(i) && !e.supports(e.count(i) == 0, "a past of shape ", shape_text(e.shape(i)), " is not supported: expected none")) return;
  if (e.integer("do_rotary") != 0) {
    if (!e.expect(e.has(kCos) && e.has(kSin), "attribute 'do_rotary': expected inputs 'cos_cache' and 'sin_cache' with it")) return;
    Operand positions = e.has(kPositions) ? e.in(kPositions) : row_numbers(e, d.batch, d.queries);
    if (e.has(kPositions) && !e.expect_shape(kPositions, {d.batch, d.queries})) return;
    const int64_t dim = 2 * e.shape(kCos).back();
    auto turn = [&](const Operand& x, int64_t heads) {
      return turned(e, x, e.in(kCos), e.in(kSin), positions, heads, dim == d.head ? 0 : dim, e.integer("rotary_interleaved") != 0);
    };
    parts->q = turn(parts->q, d.heads);
    parts->k = turn(parts->k, kv_heads);
  }
  if (!expect_score_bias(e, kScoreBias, d)) return;
  Operand q = split_heads(e, parts->q, d.batch, d.queries, d.heads, d.head);
  Operand k = split_heads(e, parts->k, d.batch, d.keys, kv_heads, d.head), v = split_heads(e, parts->v, d.batch, d.keys, kv_heads, d.head);
  e.result(1, k);
  e.result(2, v);
  // Each head of keys and values beside all the queries that share it.
  auto repeated = [&](const Operand& x) {
    const int64_t times = d.heads / kv_heads;
    if (times == 1) return x;
    Operand apart = e.reshaped(x, {d.batch, kv_heads, 1, d.keys, d.head});
    return e.reshaped(e.op("Expand", {apart, e.ints({d.batch, kv_heads, times, d.keys, d.head})}), {d.batch, d.heads, d.keys, d.head});
  };
  Scores scores;
  scores.scale = e.is_given("scale") ? e.number("scale") : 0;
  scores.bias = e.in(kScoreBias);
  scores.is_causal = true;
  scores.window = e.integer("local_window_size");
  e.result(0, join_heads(e, attend(e, d, q, repeated(k), repeated(v), scores, e.element(0)), d));
}

}  // namespace

std::span<const ContribOp> decoder_ops() {
  static const std::vector<ContribOp> ops{
      {"RotaryEmbedding", "input position_ids cos_cache sin_cache", "output",
       {{"interleaved", 0}, {"num_heads", 0}, {"rotary_embedding_dim", 0}, {"is_packed_batching", 0}, {"scale", 1.0f}}, rotary},
      {"GroupQueryAttention",
       "query key? value? past_key? past_value? seqlens_k total_sequence_length cos_cache? sin_cache? position_ids? attention_bias? "
       "head_sink? k_scale? v_scale? q_norm_weight? k_norm_weight?",
       "output present_key? present_value? output_qk?",
       {required("num_heads", AttributeProto::INT), required("kv_num_heads", AttributeProto::INT), {"do_rotary", 0}, {"rotary_interleaved", 0}, {"causal", 1}, {"local_window_size", -1},
        {"softcap", 0.0f}, {"smooth_softmax", -1}, AttributeRule("scale", AttributeProto::FLOAT, AttributeRule::optional)},
       group_query},
  };
  return ops;
}

}  // namespace mcc::frontend
