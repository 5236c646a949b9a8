// LinearAttention: a state for each head of keys and values, a matrix [size of a key, size of a value], to which each row of a sequence adds
// key x value, and which its queries read (Katharopoulos et al., 2020). Before that it decays, and what is already there for the key is
// replaced (Yang et al., Gated Delta Networks, 2024), as the rule says:
//   linear        S += k v                         gated         S = e^g S + k v
//   delta         S += k b (v - k S)               gated_delta   S = e^g S;  S += k b (v - k S)
// Columns of the state do not see each other: each goes through all rows by itself.
//   query [B, T, heads * K], key [B, T, kv * K], value [B, T, kv * V], past_state [B, kv, K, V], decay g [B, T, kv * K] or [B, T, kv],
//   beta b [B, T, kv] or [B, T, 1]  ->  [B, T, heads * V], present_state
#include <algorithm>
#include <cmath>

#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

using tensor::For;
using tensor::If;
using tensor::Seq;
using tensor::Stmt;
using tensor::Store;
using tensor::Var;

constexpr int kQuery = 0, kKey = 1, kValue = 2, kPast = 3, kDecay = 4, kBeta = 5;

struct Rule {
  bool decays, replaces;
};

std::optional<Rule> rule_of(const Attributes& a) {
  const std::string name = a.text("update_rule", "gated_delta");
  if (name == "linear") return Rule{false, false};
  if (name == "gated") return Rule{true, false};
  if (name == "delta") return Rule{false, true};
  if (name == "gated_delta") return Rule{true, true};
  return std::nullopt;
}

// How many heads there are, and how wide.
struct Heads {
  int64_t queries, states, key, value;
};

std::optional<int64_t> width_of_head(InferContext& c, int i, int64_t heads, const char* name) {
  const auto width = need_static_dim(c, c.input(i).shape[2], text("the last dimension of '", name, "'"));
  if (!width || !expect(c, *width % heads == 0, "input '", name, "': ", *width, " cannot be divided by ",
                        heads, " heads"))
    return std::nullopt;
  return *width / heads;
}

std::optional<Heads> heads_of(InferContext& c) {
  Heads h{c.attributes().integer("q_num_heads", 0), c.attributes().integer("kv_num_heads", 0), 0, 0};
  if (!expect(c, h.queries > 0 && h.states > 0 && h.queries % h.states == 0,
              "q_num_heads, kv_num_heads: ", h.queries, " heads cannot share ", h.states))
    return std::nullopt;
  const auto query = width_of_head(c, kQuery, h.queries, "query"),
             key = width_of_head(c, kKey, h.states, "key"),
             value = width_of_head(c, kValue, h.states, "value");
  if (!query || !key || !value ||
      !expect(c, *query == *key, "heads of 'query' have ", *query, " numbers, those of 'key' ", *key))
    return std::nullopt;
  h.key = *key, h.value = *value;
  return h;
}

// An input [B, T, one of the widths].
bool expect_rows(InferContext& c, int i, const char* name, std::initializer_list<int64_t> widths) {
  const Shape& q = c.input(kQuery).shape;
  if (!expect(c, c.has_input(i), "input '", name, "' is missing: update_rule asks for it") ||
      !expect_same_type(c, kQuery, i) || !expect_rank(c, i, 3) ||
      !expect_same_dim(c, q[0], c.input(i).shape[0], text("the batch of '", name, "'")) ||
      !expect_same_dim(c, q[1], c.input(i).shape[1], text("the rows of '", name, "'")))
    return false;
  const auto width = need_static_dim(c, c.input(i).shape[2], text("the last dimension of '", name, "'"));
  return width && expect(c, std::find(widths.begin(), widths.end(), *width) != widths.end(), "input '", name,
                         "': expected ", list_text(std::vector<int64_t>(widths)), " columns, got ", *width);
}

void infer_linear(InferContext& c) {
  if (!expect_type(c, kQuery, TypeSet::floating)) return;
  for (int i : {kQuery, kKey, kValue})
    if (!expect_rank(c, i, 3)) return;
  const auto rule = rule_of(c.attributes());
  if (!expect(c, rule.has_value(), "update_rule: expected linear, gated, delta or gated_delta, got ",
              c.attributes().text("update_rule", "")))
    return;
  const std::optional<Heads> h = heads_of(c);
  if (!h || !expect_rows(c, kKey, "key", {h->states * h->key}) ||
      !expect_rows(c, kValue, "value", {h->states * h->value}) ||
      (rule->decays && !expect_rows(c, kDecay, "decay", {h->states * h->key, h->states})) ||
      (rule->replaces && !expect_rows(c, kBeta, "beta", {h->states, 1})))
    return;
  const Shape& q = c.input(kQuery).shape;
  const Shape state{q[0], h->states, h->key, h->value};
  if (c.has_input(kPast)) {
    if (!expect_type(c, kPast, TypeSet::floating) || !expect_rank(c, kPast, 4)) return;
    for (size_t d = 0; d < state.size(); ++d)
      if (!expect_same_dim(c, state[d], c.input(kPast).shape[d], text("dimension ", d, " of 'past_state'")))
        return;
  }
  const ElementType element = c.input(kQuery).element;
  c.set_output(0, {element, {q[0], q[1], h->queries * h->value}});
  c.set_output(1, {c.has_input(kPast) ? c.input(kPast).element : element, state});
}

// One column of a state: [b, h, panel, j].
class Column {
 public:
  Column(ComputeContext& c, const Heads& heads, Rule rule)
      : c_(c), heads_(heads), rule_(rule), type_(wide_type(c.input_type(kQuery).element)) {
    // Columns that are computed together lie together, so that they take all of a cache, rather than every other line of it.
    constexpr int64_t kPanel = 64;
    width = heads.value > kPanel && heads.value % kPanel == 0 ? kPanel : heads.value;
    const Shape& q = c.input_type(kQuery).shape;
    batch = q[0], rows_ = q[1];
    const double given = c.attributes().number("scale", 0);
    scale_ = given != 0 ? given : 1 / std::sqrt(static_cast<double>(heads.key));
    present = c.builder.new_buffer("present", type_, {batch, heads.states, heads.key, heads.value});
    if (is_in_panels())
      state_ =
          c.builder.new_buffer("state", type_, {batch, heads.states, heads.value / width, heads.key, width});
    read = c.builder.new_buffer("read", type_, {batch, rows_, heads.queries * heads.value});
    if (rule.replaces) change_ = c.builder.new_buffer("change", type_, {batch, heads.states, heads.value});
    if (!rule.decays) return;
    const Shape& decay = c.input_type(kDecay).shape;
    has_own_decays_ = heads.key != 1 && tensor::is_int(decay[2], heads.states * heads.key);
    kept_ = c.builder.compute("kept", type_, decay, [&](Axes i) {
      return call(Intrinsic::exp, {widen(c.at(kDecay, to_vector(i)))});
    });
  }

  Stmt steps(Axes at) const {
    const Var t = variable("t");
    // The first step reads the past, the last one writes the present.
    Stmt first = step(at, t, true, false), other = step(at, t, false, false);
    if (is_in_panels()) {
      first = If::make(rows_ == 1, step(at, t, true, true), first);
      other = If::make(t == rows_ - 1, step(at, t, false, true), other);
    }
    return serial(t, rows_, If::make(t == 0, first, other));
  }

  Expr batch;
  int64_t width;
  Buffer present, read;

 private:
  Var variable(const char* name) const { return Var(c_.builder.unique_name(name)); }

  static Stmt serial(const Var& v, const Expr& extent, const Stmt& body) {
    return For::make(v, 0, extent, tensor::LoopKind::serial, body);
  }

  bool is_in_panels() const { return width != heads_.value; }
  Expr column(Axes at) const { return at[2] * width + at[3]; }
  std::vector<Expr> place_in_present(Axes at, const Expr& i) const { return {at[0], at[1], i, column(at)}; }
  std::vector<Expr> place_in_state(Axes at, const Expr& i) const { return {at[0], at[1], at[2], i, at[3]}; }

  Expr old_state(Axes at, const Expr& i, bool is_first) const {
    if (is_first)
      return c_.has_input(kPast) ? widen(c_.at(kPast, place_in_present(at, i))) : tensor::constant(type_, 0);
    return is_in_panels() ? load(state_, place_in_state(at, i)) : load(present, place_in_present(at, i));
  }

  Stmt step(Axes at, const Expr& t, bool is_first, bool is_last) const {
    const Expr &b = at[0], &h = at[1], j = column(at);
    const Expr value = widen(c_.at(kValue, {b, t, h * heads_.value + j}));
    if (!rule_.replaces) return update(at, t, value, is_first, is_last);
    const Var i = variable("i");
    const Expr there = load(change_, {b, h, j});
    const Expr kept = old_state(at, i, is_first) * key(at, t, i);
    const Expr beta =
        widen(c_.at(kBeta, {b, t, tensor::is_int(c_.input_type(kBeta).shape[2], 1) ? Expr(0) : h}));
    const Expr sum = rule_.decays && !has_own_decays_ ? there * decay(at, t, i) : there;
    return Seq::make({
        Store::make(change_, {b, h, j}, number_like(there, 0)),
        serial(i, heads_.key,
               Store::make(change_, {b, h, j}, there + (has_own_decays_ ? kept * decay(at, t, i) : kept))),
        Store::make(change_, {b, h, j}, beta * (value - sum)),
        update(at, t, there, is_first, is_last),
    });
  }

  // What is added for each number of the key, and what the queries read then.
  Stmt update(Axes at, const Expr& t, const Expr& change, bool is_first, bool is_last) const {
    const Expr &b = at[0], &h = at[1], j = column(at);
    const Var i = variable("i");
    const bool to_state = is_in_panels() && !is_last;
    const Buffer& to = to_state ? state_ : present;
    const std::vector<Expr> there = to_state ? place_in_state(at, i) : place_in_present(at, i);
    const Expr old = old_state(at, i, is_first);
    std::vector<Stmt> before, inside, behind;
    inside.push_back(
        Store::make(to, there, (rule_.decays ? old * decay(at, t, i) : old) + key(at, t, i) * change));
    const int64_t sharing = heads_.queries / heads_.states;
    for (int64_t g = 0; g < sharing; ++g) {
      const Expr head = h * sharing + g;
      const std::vector<Expr> place{b, t, head * heads_.value + j};
      const Expr so_far = load(read, place), query = widen(c_.at(kQuery, {b, t, head * heads_.key + i}));
      before.push_back(Store::make(read, place, number_like(so_far, 0)));
      inside.push_back(Store::make(read, place, so_far + query * load(to, there)));
      behind.push_back(Store::make(read, place, so_far * number_like(so_far, scale_)));
    }
    before.push_back(serial(i, heads_.key, Seq::make(inside)));
    before.insert(before.end(), behind.begin(), behind.end());
    return Seq::make(before);
  }

  Expr key(Axes at, const Expr& t, const Expr& i) const {
    return widen(c_.at(kKey, {at[0], t, at[1] * heads_.key + i}));
  }
  Expr decay(Axes at, const Expr& t, const Expr& i) const {
    return load(kept_, {at[0], t, has_own_decays_ ? at[1] * heads_.key + i : at[1]});
  }

  ComputeContext& c_;
  const Heads heads_;
  const Rule rule_;
  const ElementType type_;
  Expr rows_;
  double scale_ = 1;
  bool has_own_decays_ = false;  // each number of a key, not each head
  Buffer state_, kept_, change_;
};

void compute_linear(ComputeContext& c) {
  const Attributes& a = c.attributes();
  const int64_t states = a.integer("kv_num_heads", 1);
  const auto width = [&](int i) { return *static_dim(c.input_type(i).shape[2]) / states; };
  const Heads heads{a.integer("q_num_heads", 1), states, width(kKey), width(kValue)};
  const Column column(c, heads, *rule_of(a));
  c.builder.block(
      "steps", {{"b", column.batch}, {"h", states}, {"p", heads.value / column.width}, {"j", column.width}},
      [&](Axes at) { return column.steps(at); });
  c.set_output(0, cast_buffer(c, column.read, c.output_type(0).element));
  if (c.has_output(1)) c.set_output(1, cast_buffer(c, column.present, c.output_type(1).element));
}

}  // namespace

std::span<const OpDef> linear_attention_ops() {
  static const OpDef ops[] = {
      onnx_op("LinearAttention", FusionClass::opaque, 3, infer_linear, compute_linear)};
  return ops;
}

}  // namespace mcc::graph
