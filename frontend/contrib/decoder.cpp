// What decoders have besides: rotary embeddings, attention whose keys and values several heads share.
#include <algorithm>
#include <optional>

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

// The places of rows that follow those of `start`, one number or [batch, 1] of type i32: [batch, rows], i64.
Operand positions_from(Expansion& e, const Operand& start, int64_t batch, int64_t rows) {
  Operand places = e.op("Add", {start, e.count_up(rows, ElementType::i32)});
  return e.op("Expand", {e.converted(places, ElementType::i64), e.ints({batch, rows})});
}

// What turns: x [batch, rows, hidden] or [batch, heads, rows, head], by tables [.., angles].
struct Rotation {
  int64_t batch = 0, rows = 0, heads = 0, dim = 0;
  bool is_interleaved = false;
};

constexpr int kTurnsBy = 1, kCosines = 2, kSines = 3;

// Nothing after an error.
std::optional<Rotation> read_rotation(Expansion& e) {
  const std::vector<int64_t>& x = e.sizes(0);
  if (!e.expect(x.size() == 3 || x.size() == 4, "input 'input': expected 3 or 4 dimensions, got shape ",
                shape_text(x)) ||
      !e.expect_rank(kCosines, 2) || !e.expect_rank(kSines, 2) || !e.supports_only("is_packed_batching", 0) ||
      !e.supports(e.number("scale") == 1, "attribute 'scale': only 1 is supported, got ", e.number("scale")))
    return std::nullopt;
  Rotation r{x[0], x.size() == 3 ? x[1] : x[2], e.integer("num_heads"), e.integer("rotary_embedding_dim"),
             e.integer("interleaved") != 0};
  if (!e.expect(r.dim == 0 || r.heads > 0 || x.size() == 4,
                "attribute 'rotary_embedding_dim': expected 'num_heads' with it"))
    return std::nullopt;
  if (r.heads != 0 || x.size() == 4) return r;
  if (Expansion::is_open(e.last_size(0)) || Expansion::is_open(e.last_size(kCosines))) return std::nullopt;
  const int64_t head = 2 * e.last_size(kCosines);
  if (!e.expect(head > 0 && x[2] % head == 0, "input 'input': shape ", shape_text(x),
                " has no whole heads of ", head))
    return std::nullopt;
  r.heads = x[2] / head;
  return r;
}

Operand turned(Expansion& e, const Rotation& r, const Operand& cos, const Operand& sin,
               const Operand& positions) {
  return turned(e, e.in(0), cos, sin, positions, r.heads, r.dim, r.is_interleaved);
}

// ---- RotaryEmbedding: position_ids are one for each row, or that of the first ----

void rotary(Expansion& e) {
  const std::optional<Rotation> r = read_rotation(e);
  if (!r) return;
  Operand positions = e.in(kTurnsBy);
  if (e.sizes(kTurnsBy) == std::vector<int64_t>{1}) {
    positions = positions_from(e, e.converted(positions, ElementType::i32), r->batch, r->rows);
  } else if (!e.expect_fit(kTurnsBy, {r->batch, r->rows})) {
    return;
  }
  e.result(0, turned(e, *r, e.in(kCosines), e.in(kSines), positions));
}

// ---- MRotaryEmbedding: three positions for each row (time, height, width), of which each angle has its own ----

void rotary_of_three(Expansion& e) {
  constexpr int64_t kInterleavedSections = 1;
  const std::optional<Rotation> r = read_rotation(e);
  if (!r || !e.expect_fit(kSines, e.sizes(kCosines)) || !e.expect_fit(kTurnsBy, {3, r->batch, r->rows}))
    return;
  const std::vector<int64_t> section = e.integers("mrope_section");
  const int64_t layout = e.integer("mrope_layout"), angles = e.last_size(kCosines);
  if (Expansion::is_open(angles) ||
      !e.expect(layout == 0 || layout == kInterleavedSections,
                "attribute 'mrope_layout': expected 0 or 1, got ", layout) ||
      !e.expect(section.size() == 3, "attribute 'mrope_section': expected 3 numbers, got ", section.size()) ||
      !e.expect(section[0] + section[1] + section[2] == angles &&
                    *std::min_element(section.begin(), section.end()) >= 0,
                "attribute 'mrope_section': expected parts of ", angles, ", got ", shape_text(section)))
    return;
  // Whose angle is that of which of the three.
  auto is_of = [&](int64_t which) {
    std::vector<int32_t> mask;
    for (int64_t a = 0; a < angles; ++a) {
      const int64_t by_part = a < section[0] ? 0 : a < section[0] + section[1] ? 1 : 2;
      const bool in_turn = a % 3 == which && a < 3 * section[static_cast<size_t>(which)];
      mask.push_back(layout == kInterleavedSections ? in_turn : by_part == which);
    }
    return e.converted(e.tensor(ElementType::u8, {angles}, mask), ElementType::boolean);
  };
  std::vector<Operand> positions;
  for (int64_t which = 0; which < 3; ++which)
    positions.push_back(e.reshaped(e.slice(e.in(kTurnsBy), 0, which, which + 1), {r->batch, r->rows}));
  auto of_rows = [&](int table) {
    Operand all = e.op("Gather", {e.in(table), positions[0]});
    for (int64_t which : {1, 2})
      all = e.op("Where",
                 {is_of(which), e.op("Gather", {e.in(table), positions[static_cast<size_t>(which)]}), all});
    return all;
  };
  e.result(0, turned(e, *r, of_rows(kCosines), of_rows(kSines), ""));
}

// ---- GroupQueryAttention ----
//
// Each sequence of the batch has so many keys and values in the end (seqlens_k, one less): its new rows are the last of them, at their
// places behind what is remembered, and see the keys up to their own. Of a prompt, with nothing before it, shorter sequences have their
// padding behind them. What padding gives, and what is remembered of it, onnxruntime does not define.

constexpr int kKey = 1, kValue = 2, kPastKey = 3, kPastValue = 4, kLengths = 5, kTotal = 6, kCos = 7,
              kSin = 8, kPositions = 9, kScoreBias = 10, kSink = 11, kKeyScale = 12, kValueScale = 13,
              kQueryNorm = 14, kKeyNorm = 15;

struct Grouped {
  AttentionDims d;
  int64_t kv_heads = 0;
  Operand q, k, v;   // [B, rows, heads * head]
  Operand last;      // the place of the last row of each sequence, i32 [B]
  Operand start;     // and of its first new one
  int64_t rows = 0;  // of what is remembered then: as many as there were, or as there are keys
  int64_t window = 0;         // the last keys that queries see; 0: all
  bool keeps_window = false;  // what is remembered has room for some last keys, not less than the window
  Operand kept;               // then: how many there were of each sequence, i32 [B]
  Operand first_kept;         // the place of the first of those that there are in the end
  Operand first;              // and of the first that attention reads
};

// The attributes of what is remembered; false after an error.
bool read_window(Expansion& e, Grouped* g) {
  g->window = std::max<int64_t>(e.integer("local_window_size"), 0);
  g->keeps_window = e.integer("sliding_window_cache") != 0;
  return e.expect(e.integer("causal") != 0 || g->window == 0,
                  "attribute 'local_window_size': expected -1 where 'causal' is 0, got ", g->window) &&
         (!g->keeps_window ||
          (e.expect(g->window > 0,
                    "attribute 'sliding_window_cache': expected 'local_window_size' with it") &&
           e.expect(
               e.has(kPastKey),
               "attribute 'sliding_window_cache': expected inputs 'past_key' and 'past_value' with it") &&
           e.supports(!e.has(kPositions) && !e.has(kScoreBias),
                      "attribute 'sliding_window_cache' with input 'position_ids' or 'attention_bias' is not "
                      "supported")));
}

bool supports_attributes(Expansion& e) {
  if (!e.supports_only("qk_output", 0)) return false;
  for (const char* name : {"k_quant_type", "v_quant_type"})
    if (!e.supports(e.word(name) == "NONE", "attribute '", name, "': only NONE is supported, got ",
                    e.word(name)))
      return false;
  for (int i : {kKeyScale, kValueScale})
    if (!e.supports(!e.has(i),
                    "inputs 'k_scale' and 'v_scale', of quantised keys and values, are not supported"))
      return false;
  return e.expect(e.has(kQueryNorm) == e.has(kKeyNorm),
                  "inputs 'q_norm_weight' and 'k_norm_weight': expected both or none");
}

// Queries, keys and values, apart or in one tensor, with their sizes.
bool read_parts(Expansion& e, Grouped* g) {
  AttentionDims& d = g->d;
  d.heads = e.integer("num_heads");
  g->kv_heads = e.integer("kv_num_heads");
  if (!e.expect(d.heads > 0 && g->kv_heads > 0 && d.heads % g->kv_heads == 0,
                "attributes 'num_heads' and 'kv_num_heads': ", d.heads, " heads cannot share ",
                g->kv_heads) ||
      !e.expect_rank(0, 3) ||
      !e.expect(e.has(kKey) == e.has(kValue), "inputs 'key' and 'value': expected both or none"))
    return false;
  d.batch = e.sizes(0)[0];
  d.queries = d.keys = e.sizes(0)[1];
  const int64_t columns = e.last_size(0), all = e.has(kKey) ? d.heads : d.heads + 2 * g->kv_heads;
  if (Expansion::is_open(columns) ||
      !e.expect(columns % all == 0, "input 'query': shape ", shape_text(e.sizes(0)), " cannot be divided by ",
                all, " heads"))
    return false;
  d.head = d.value_head = columns / all;
  const int64_t width = g->kv_heads * d.head;
  if (e.has(kKey)) {
    g->q = e.in(0), g->k = e.in(kKey), g->v = e.in(kValue);
    return e.expect_fit(kKey, {d.batch, d.keys, width}) && e.expect_fit(kValue, {d.batch, d.keys, width});
  }
  std::vector<Operand> parts =
      e.ops("Split", {e.in(0), e.ints({d.heads * d.head, width, width})}, {{"axis", int64_t{2}}}, 3);
  g->q = parts[0], g->k = parts[1], g->v = parts[2];
  return true;
}

// ---- What is remembered of a window: the last keys, in order, from the first row on. There is room for more of them than the window has,
// so that they are moved once in so many steps; how many there are follows from how many there were altogether. ----

Operand i32(Expansion& e, int64_t value) { return e.converted(e.ints({value}), ElementType::i32); }

// Of so many keys altogether, i32 [B].
Operand kept_of(Expansion& e, const Grouped& g, const Operand& all) {
  Operand room = i32(e, g.d.past), one = i32(e, 1);
  // As many are given up at a time.
  Operand step = e.op("Max", {e.op("Sub", {room, i32(e, g.window - 1)}), one});
  Operand over = e.op("Max", {e.op("Sub", {all, room}), i32(e, 0)});
  Operand times = e.op("Div", {e.op("Add", {over, e.op("Sub", {step, one})}), step});
  return e.op("Sub", {all, e.op("Mul", {times, step})});
}

// How much is remembered, and where the new rows stand. A past of no rows says as much as none: its rows are all that there is.
bool read_past(Expansion& e, Grouped* g) {
  AttentionDims& d = g->d;
  g->rows = d.total = d.keys;
  const bool is_list = e.rank(kLengths) == 1 || (e.rank(kLengths) == 2 && e.sizes(kLengths)[1] == 1);
  if (!e.expect(is_list && Expansion::may_be(e.sizes(kLengths)[0], d.batch),
                "input 'seqlens_k': expected shape ", shape_text({d.batch}), ", got ",
                shape_text(e.sizes(kLengths))) ||
      !e.expect(e.count(kTotal) == 1, "input 'total_sequence_length': expected one number, got shape ",
                shape_text(e.sizes(kTotal))) ||
      !e.expect(e.has(kPastKey) == e.has(kPastValue),
                "inputs 'past_key' and 'past_value': expected both or none"))
    return false;
  g->last = e.converted(e.op("Reshape", {e.in(kLengths), e.ints({-1})}), ElementType::i32);
  if (!e.has(kPastKey)) return true;
  if (!e.expect_rank(kPastKey, 4)) return false;
  d.past = e.sizes(kPastKey)[2];
  for (int i : {kPastKey, kPastValue})
    if (!e.expect_fit(i, {d.batch, g->kv_heads, d.past, d.head}) ||
        !e.supports(e.element(i) == e.element(0), "a past of ", mcc::to_text(e.element(i)),
                    " beside queries of ", mcc::to_text(e.element(0)), " is not supported"))
      return false;
  if (g->keeps_window &&
      !e.expect(Expansion::is_open(d.past) || d.past >= g->window, "input 'past_key': expected room for ",
                g->window, " keys, got shape ", shape_text(e.sizes(kPastKey))))
    return false;
  if (d.past == 0) return true;
  // A prompt has no more keys than rows, whatever the past's length: its first row is the first of all.
  Operand one = e.scalar(ElementType::i32, 1), keys = e.converted(e.ints({d.keys}), ElementType::i32);
  Operand before = e.op("Add", {g->last, e.op("Sub", {one, keys})});
  g->start = e.op("Max", {before, e.scalar(ElementType::i32, 0)});
  if (g->keeps_window) {
    Operand all = e.op("Add", {g->last, i32(e, 1)});
    g->kept = kept_of(e, *g, g->start);
    g->first_kept = e.op("Sub", {all, kept_of(e, *g, all)});
    // One query sees no key that is given up; more of them read those that there were, and the new ones.
    const bool is_one = d.keys == 1;
    Operand most = e.op("ReduceMax", {g->kept, e.ints({0})});
    g->first = is_one ? g->first_kept : e.op("Sub", {g->start, g->kept});
    g->rows = d.total =
        is_one ? d.past : e.size_of(e.op("Add", {e.converted(most, ElementType::i64), e.ints({d.keys})}));
    return true;
  }
  Operand total = e.op("Reshape", {e.converted(e.in(kTotal), ElementType::i64), e.ints({1})});
  d.total = e.size_of(total);
  g->rows = e.size_of(e.op("Max", {total, e.ints({d.past})}));
  return true;
}

// Queries or keys, normalised and turned as the attributes say: [B, heads, rows, head].
Operand prepared(Expansion& e, const Grouped& g, Operand x, int64_t heads, int norm,
                 const Operand& positions) {
  const AttentionDims& d = g.d;
  if (e.has(norm)) {
    const Setting epsilon("epsilon", static_cast<float>(e.number("qk_norm_epsilon")));
    x = e.op("RMSNormalization", {e.reshaped(x, {d.batch, d.keys, heads, d.head}), e.in(norm)},
             {{"axis", int64_t{-1}}, epsilon});
    x = e.reshaped(x, {d.batch, d.keys, heads * d.head});
  }
  x = split_heads(e, x, d.batch, d.keys, heads, d.head);
  if (positions.empty()) return x;
  const int64_t dim = 2 * e.last_size(kCos);
  return turned(e, x, e.in(kCos), e.in(kSin), positions, heads, dim == d.head ? 0 : dim,
                e.integer("rotary_interleaved") != 0);
}

// Of each row of each sequence: [B, rows], i64; "" where nothing turns; nothing after an error.
std::optional<Operand> row_positions(Expansion& e, const Grouped& g) {
  if (e.integer("do_rotary") == 0) return "";
  if (!e.expect(e.has(kCos) && e.has(kSin),
                "attribute 'do_rotary': expected inputs 'cos_cache' and 'sin_cache' with it") ||
      !e.expect_rank(kCos, 2) || !e.expect_rank(kSin, 2) || Expansion::is_open(e.last_size(kCos)))
    return std::nullopt;
  if (!e.has(kPositions)) {
    Operand start =
        g.start.empty() ? e.scalar(ElementType::i32, 0) : e.op("Unsqueeze", {g.start, e.ints({1})});
    return positions_from(e, start, g.d.batch, g.d.keys);
  }
  if (!e.expect_fit(kPositions, {g.d.batch, g.d.keys})) return std::nullopt;
  // Of a prompt onnxruntime takes the first number alone.
  Operand first = e.slice(e.op("Reshape", {e.in(kPositions), e.ints({-1})}), 0, 0, 1);
  Operand along =
      e.op("Add", {e.op("Unsqueeze", {first, e.ints({1})}), e.count_up(g.d.keys, ElementType::i64)});
  if (g.start.empty()) return e.op("Expand", {along, e.ints({g.d.batch, g.d.keys})});
  return e.op("Where", {e.op("Equal", {e.ints({g.d.keys}), e.ints({g.d.total})}), along, e.in(kPositions)});
}

// Which keys queries see: [1 or B, 1, 1 or queries, total]; "" for all.
Operand seen_keys(Expansion& e, const Grouped& g) {
  const AttentionDims& d = g.d;
  auto of_batch = [&](const Operand& x) { return e.op("Unsqueeze", {x, e.ints({1, 2, 3})}); };
  Operand key = e.count_up(d.total, ElementType::i32);
  if (g.keeps_window) key = e.op("Add", {key, of_batch(g.first)});
  if (e.integer("causal") == 0) return e.op("LessOrEqual", {key, of_batch(g.last)});
  if (g.start.empty() && g.window == 0) return keys_before(e, d);
  Operand query = e.op("Unsqueeze", {e.count_up(d.queries, ElementType::i32), e.ints({1})});
  if (!g.start.empty()) query = e.op("Add", {of_batch(g.start), query});
  Operand seen = e.op("LessOrEqual", {key, query});
  if (g.window == 0) return seen;
  Operand window = e.scalar(ElementType::i32, static_cast<double>(g.window));
  return e.op("And", {seen, e.op("Greater", {key, e.op("Sub", {query, window})})});
}

void group_query(Expansion& e) {
  Grouped g;
  if (!supports_attributes(e) || !read_window(e, &g) || !read_parts(e, &g) || !read_past(e, &g)) return;
  const AttentionDims& d = g.d;
  const std::optional<Operand> positions = row_positions(e, g);
  if (!positions || !expect_score_bias(e, kScoreBias, d) || (e.has(kSink) && !e.expect_fit(kSink, {d.heads})))
    return;
  Operand q = prepared(e, g, g.q, d.heads, kQueryNorm, *positions);
  Operand k = prepared(e, g, g.k, g.kv_heads, kKeyNorm, *positions);
  Operand v = split_heads(e, g.v, d.batch, d.keys, g.kv_heads, d.head);
  auto remembered = [&](int past, int result, const Operand& now) {
    Operand all = now, end = now;
    if (g.keeps_window) {
      Operand given_up = e.op("Sub", {g.first_kept, e.op("Sub", {g.start, g.kept})});
      end = e.own("AppendFrom", {e.in(past), now, g.kept, e.ints({d.past}), given_up});
      all = d.keys == 1 ? end : e.own("Append", {e.in(past), now, g.kept, e.ints({g.rows})});
    } else if (!g.start.empty()) {
      all = end = e.own("Append", {e.in(past), now, g.start, e.ints({g.rows})});
    }
    e.result(result, end);
    return all;
  };
  k = remembered(kPastKey, 1, k);
  v = remembered(kPastValue, 2, v);
  // A number of keys that data decides is that of the rows, rather than one more number that may be another.
  constexpr int64_t kAsManyAsThereAre = -1;
  // Each head of keys and values beside all the queries that share it. What is remembered may have room for more than there is.
  auto repeated = [&](Operand x) {
    const int64_t times = d.heads / g.kv_heads;
    if (g.rows != d.total) x = e.op("Slice", {x, e.ints({0}), e.ints({d.total}), e.ints({2})});
    if (times == 1) return x;
    x = e.op("Expand", {e.op("Unsqueeze", {x, e.ints({2})}), e.ints({1, 1, times, 1, 1})});
    return e.reshaped(x, {d.batch, d.heads, kAsManyAsThereAre, d.head});
  };
  Scores scores;
  scores.scale = e.is_given("scale") ? e.number("scale") : 0;
  scores.cap = e.number("softcap");
  scores.bias = e.in(kScoreBias);
  scores.seen = seen_keys(e, g);
  if (e.has(kSink)) {
    scores.sink = e.reshaped(e.in(kSink), {d.heads, 1, 1});
  } else if (e.integer("smooth_softmax") > 0) {
    scores.sink = e.scalar(e.element(0), 0);
  }
  e.result(0, join_heads(e, attend(e, d, q, repeated(k), repeated(v), scores, e.element(0)), d));
}

}  // namespace

std::span<const ContribOp> decoder_ops() {
  static const std::vector<ContribOp> ops{
      {"RotaryEmbedding",
       "input position_ids cos_cache sin_cache",
       "output",
       {{"interleaved", 0},
        {"num_heads", 0},
        {"rotary_embedding_dim", 0},
        {"is_packed_batching", 0},
        {"scale", 1.0f}},
       rotary},
      {"MRotaryEmbedding",
       "input position_ids cos_cache sin_cache",
       "output",
       {required("mrope_section", AttributeProto::INTS),
        {"interleaved", 0},
        {"num_heads", 0},
        {"rotary_embedding_dim", 0},
        {"mrope_layout", 0},
        {"is_packed_batching", 0},
        {"scale", 1.0f}},
       rotary_of_three},
      {"GroupQueryAttention",
       "query key? value? past_key? past_value? seqlens_k total_sequence_length cos_cache? sin_cache? "
       "position_ids? attention_bias? "
       "head_sink? k_scale? v_scale? q_norm_weight? k_norm_weight?",
       "output present_key? present_value? output_qk?",
       {required("num_heads", AttributeProto::INT),
        required("kv_num_heads", AttributeProto::INT),
        {"do_rotary", 0},
        {"rotary_interleaved", 0},
        {"causal", 1},
        {"local_window_size", -1},
        {"softcap", 0.0f},
        {"smooth_softmax", -1},
        {"qk_output", 0},
        {"sliding_window_cache", 0},
        {"qk_norm_epsilon", 1e-6f},
        {"k_quant_type", "NONE"},
        {"v_quant_type", "NONE"},
        optional("kv_cache_bit_width", AttributeProto::INT),
        optional("scale", AttributeProto::FLOAT)},
       group_query},
  };
  return ops;
}

}  // namespace mcc::frontend
