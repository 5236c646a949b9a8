// softmax(q k' ...) v as one operator, mcc.Attention, which keeps the scores of a few rows in the nearest cache.
//
// The pattern, by structure: a product whose left operand is a softmax along its last axis of a chain of scalings, masks
// (additions) and selections, in any order, of another product; nobody else reads what lies between. Queries, keys and
// values are followed up through the data movement before them (heads split off, parts of a common projection, keys
// transposed), and a transposition behind the last product (heads merged) becomes the order in which it is written: the
// operator reads and writes at strides where the graph copied.
//
// With open dimensions, on GPUs, operands keep their dimensions, and the operator makes parts of the keys one after the other
// (divide_attention.h).
//
// Models of 16-bit floats, which convert the scores for the softmax and back, have the same form on GPUs, whose tensor cores take
// such operands and give sums in f32: what lies between the products is in f32 then, and the result is converted.
#include <algorithm>

#include "graph/ops/common.h"
#include "graph/ops/operand_view.h"
#include "graph/passes/divide_attention.h"
#include "graph/passes/open_view.h"
#include "graph/passes/passes.h"
#include "graph/passes/repeated_heads.h"
#include "graph/passes/rewrite.h"
#include "graph/passes/strided_view.h"

namespace mcc::graph {
namespace {

// On CPUs packing keys and values costs about as much as multiplying some rows with them, which products by themselves read where they
// lie: more rows where the packed ones of a head do not stay in the second-level cache with what passes over them, fewer where they
// are packed in words. GPUs read them where they lie.
constexpr int64_t kMinRows = 24, kMinRowsBeyondCache = 512, kMinRowsInWords = 4;

struct Step {
  std::string kind;
  double factor = 0;
  ValueId input = kNoValue;
};

struct Match {
  NodeId scores = -1, mix = -1;  // the two products
  std::vector<Step> steps;       // from the product to the softmax
  std::vector<NodeId> nodes;     // all that disappear
};

class FuseAttention {
 public:
  FuseAttention(Graph& g, const tensor::Target& target, ElementType precision)
      : g_(g),
        t_(target),
        is_gpu_(target.kind == tensor::TargetKind::cuda),
        precision_(precision),
        users_(g.users()) {}

  void run() {
    size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n) {
      auto id = static_cast<NodeId>(n);
      std::optional<Match> match = find(id);
      if (match && is_gpu_) match = grouped(std::move(*match));
      if (match && pays(*match)) rewrite(*match);
    }
    g_.compact();
  }

 private:
  const TensorType& type(ValueId v) const { return g_.value(v).type; }
  const Shape& shape(ValueId v) const { return g_.value(v).type.shape; }
  const std::vector<int64_t> dims(ValueId v) const { return static_shape(shape(v)); }

  bool is_product(NodeId id) const {
    if (id < 0) return false;
    const Node& n = g_.node(id);
    if (!is_op(n, "MatMul") || !n.op->domain.empty() || n.inputs.size() != 2) return false;
    return std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) {
      const TensorType& t = g_.value(v).type;
      return is_multiplied(t.element) && (is_gpu_ || is_static(t.shape)) && t.shape.size() >= 2;
    });
  }

  bool is_multiplied(ElementType element) const {
    return element == ElementType::f32 || (is_gpu_ && (element == ElementType::f16 || element == ElementType::bf16));
  }

  // A conversion between the floats that are multiplied here.
  bool is_conversion(const Node& n) const {
    return is_op(n, "Cast") && is_multiplied(type(n.inputs[0]).element) && is_multiplied(type(n.outputs[0]).element);
  }

  // The value before the conversions that make it, as long as nobody else reads what they make; these are added to nodes.
  ValueId unconverted(ValueId v, std::vector<NodeId>* nodes) const {
    for (NodeId id = private_producer(v); id >= 0 && is_conversion(g_.node(id)); id = private_producer(v)) {
      nodes->push_back(id);
      v = g_.node(id).inputs[0];
    }
    return v;
  }

  // The producer of a value that nobody else reads.
  NodeId private_producer(ValueId v) const {
    if (v == kNoValue || single_user(g_, users_, v) < 0) return -1;
    return g_.value(v).producer;
  }

  std::optional<Match> find(NodeId mix) const {
    if (!is_product(mix)) return std::nullopt;
    std::vector<NodeId> nodes{mix};
    NodeId softmax = private_producer(unconverted(g_.node(mix).inputs[0], &nodes));
    if (softmax < 0 || !is_op(g_.node(softmax), "Softmax")) return std::nullopt;
    const Node& s = g_.node(softmax);
    auto rank = static_cast<int64_t>(shape(s.inputs[0]).size());
    int64_t axis = s.attributes.integer("axis", -1);
    if (axis != -1 && axis != rank - 1) return std::nullopt;
    nodes.push_back(softmax);
    Match match{-1, mix, {}, std::move(nodes)};
    if (!climb(s.inputs[0], 0, &match)) return std::nullopt;
    std::reverse(match.steps.begin(), match.steps.end());
    return match;
  }

  // Of GPUs, where keys and values are repeated for groups of heads: the same with an axis for these, so that nothing needs to be repeated.
  std::optional<Match> grouped(Match match) {
    const std::optional<RepeatedHeads> keys = repeated_heads(g_, users_, match.scores),
                                       values = repeated_heads(g_, users_, match.mix);
    if (!keys || !values || !keys->is_like(*values)) return match;
    const ValueId y = with_groups(g_.node(match.mix).outputs[0], match, *keys, *values);
    take_grouped_result(g_, users_, match.mix, *keys, y);
    for (NodeId id : match.nodes)
      g_.node(id).dead = true;
    users_ = g_.users();
    return find(g_.value(y).producer);
  }

  // A value on the way from the product of queries and keys to that with the values.
  ValueId with_groups(ValueId v, const Match& match, const RepeatedHeads& keys, const RepeatedHeads& values) {
    const NodeId id = g_.value(v).producer;
    const Node node = g_.node(id);
    std::vector<ValueId> inputs = node.inputs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (is_product(id) && i == 1) {
        inputs[i] = (id == match.scores ? keys : values).operand;
        continue;
      }
      const NodeId maker = g_.value(inputs[i]).producer;
      const bool is_on_the_way =
          std::find(match.nodes.begin(), match.nodes.end(), maker) != match.nodes.end();
      inputs[i] = is_on_the_way && id != match.scores
                      ? with_groups(inputs[i], match, keys, values)
                      : beside_groups(node.name, inputs[i], keys, g_.value(v).type.shape.size());
    }
    Attributes attributes = node.attributes;
    if (is_op(node, "Softmax")) attributes.set("axis", int64_t{-1});
    const ValueId y = emit(g_, node.op->domain, node.op->name, node.name, inputs, attributes);
    add_origins(g_.node(g_.value(y).producer), node);
    return y;
  }

  // What broadcasts to a value of so many axes, to the same with groups.
  ValueId beside_groups(const std::string& name, ValueId v, const RepeatedHeads& heads, size_t rank) {
    Shape s = shape(v);
    const size_t missing = rank - s.size();
    if (heads.axis < missing) return v;
    const size_t axis = heads.axis - missing;
    auto is_one = [](const Expr& extent) { return extent_of(extent) == 1; };
    if (std::all_of(s.begin(), s.begin() + static_cast<std::ptrdiff_t>(axis) + 1, is_one)) return v;
    if (is_one(s[axis])) {
      s.insert(s.begin() + static_cast<std::ptrdiff_t>(axis), Expr(1));
    } else {
      RepeatedHeads own = heads;
      own.axis = axis;
      s = own.split(s);
    }
    return reshaped(g_, name, v, s);
  }

  static constexpr int kMaxSteps = 8;

  // From a value up to the product of queries and keys. The steps are collected on the way, the last first.
  bool climb(ValueId v, int depth, Match* match) const {
    v = unconverted(v, &match->nodes);
    NodeId id = private_producer(v);
    if (id < 0 || depth > kMaxSteps) return false;
    const Node& n = g_.node(id);
    if (is_product(id)) {
      match->scores = id;
      match->nodes.push_back(id);
      return true;
    }
    auto via = [&](size_t input, Step step) {
      if (!same_shape(shape(n.inputs[input]), shape(v))) return false;
      Match longer = *match;
      longer.steps.push_back(std::move(step));
      longer.nodes.push_back(id);
      if (!climb(n.inputs[input], depth + 1, &longer)) return false;
      *match = std::move(longer);
      return true;
    };
    if (is_op(n, "Mul") || is_op(n, "Div")) {
      for (size_t side = 0; side < (is_op(n, "Mul") ? 2 : 1); ++side) {
        std::optional<double> c = uniform_value(g_, n.inputs[1 - side]);
        if (c && via(side, {"scale", is_op(n, "Mul") ? *c : 1 / *c})) return true;
      }
    } else if (is_op(n, "Add")) {
      for (size_t side : {0, 1}) {
        if (via(side, {"add", 0, n.inputs[1 - side]})) return true;
      }
    } else if (is_op(n, "Where")) {
      for (size_t side : {1, 2}) {
        std::optional<double> fill = uniform_value(g_, n.inputs[3 - side]);
        if (fill && via(side, {side == 1 ? "keep" : "drop", *fill, n.inputs[0]})) return true;
      }
    }
    return false;
  }

  // One kernel pays when there are rows enough for the packed operands; batches are those of the result.
  bool pays(const Match& match) const {
    const Node& scores = g_.node(match.scores);
    const Node& mix = g_.node(match.mix);
    if (type(scores.inputs[0]).element != type(mix.inputs[1]).element) return false;
    if (is_open(match)) return is_possible(match);
    std::vector<int64_t> s = dims(scores.outputs[0]), y = dims(mix.outputs[0]);
    if (s.size() != y.size() || !std::equal(s.begin(), s.end() - 1, y.begin())) return false;
    bool is_empty = std::any_of(s.begin(), s.end(), [](int64_t d) { return d == 0; }) || y.back() == 0 ||
                    dims(scores.inputs[0]).back() == 0;
    return !is_empty &&
           (is_gpu_ || s[s.size() - 2] >= min_rows(s.back() * (dims(scores.inputs[0]).back() + y.back())));
  }

  // Of keys and values with so many numbers.
  int64_t min_rows(int64_t packed) const {
    if (precision_ != ElementType::f32) return kMinRowsInWords;
    return packed * 4 <= t_.l2.bytes * 3 / 4 ? kMinRows : kMinRowsBeyondCache;
  }

  bool is_open(const Match& match) const {
    const Node &scores = g_.node(match.scores), &mix = g_.node(match.mix);
    return !is_static(shape(scores.outputs[0])) || !is_static(shape(mix.outputs[0])) ||
           !is_static(shape(scores.inputs[0]));
  }

  // Whether there is a way to make it with open dimensions, and the operands say how long these are.
  bool is_possible(const Match& match) const {
    constexpr int64_t kMostBatches = int64_t{1} << 20;
    const Node &scores = g_.node(match.scores), &mix = g_.node(match.mix);
    const Shape &s = shape(scores.outputs[0]), &y = shape(mix.outputs[0]);
    if (s.size() != y.size() || !same_shape({s.begin(), s.end() - 1}, {y.begin(), y.end() - 1})) return false;
    const ElementType own = type(scores.inputs[0]).element;
    AttentionExtents a{1, extent_of(s[s.size() - 2]), extent_of(s.back()),
                       extent_of(shape(scores.inputs[0]).back()), extent_of(y.back())};
    if (a.depth < 1 || a.columns < 1 || a.queries == 0 || a.keys == 0) return false;
    int64_t open_batches = 0;
    for (size_t axis = 0; axis + 2 < s.size(); ++axis) {
      const int64_t extent = extent_of(s[axis]);
      open_batches += extent == kOpenExtent ? 1 : 0;
      if (extent != kOpenExtent) a.batches *= extent;
      if (extent == 0 || a.batches > kMostBatches) return false;
    }
    if (open_batches > 1) return false;
    const OpenOperands o = open_operands(match);
    for (size_t axis = 0; axis + 2 < s.size(); ++axis) {
      auto stands = [&](int i) {
        const size_t rank = shape(o.views[i].source).size();
        const auto step = o.steps[i].begin() + static_cast<std::ptrdiff_t>((1 + axis) * rank);
        return extent_of(s[axis]) != 1 &&
               std::all_of(step, step + static_cast<std::ptrdiff_t>(rank), [](int64_t n) { return n == 0; });
      };
      if (stands(1) != stands(2)) return false;
      if (!stands(1)) continue;
      if (extent_of(s[axis]) == kOpenExtent) return false;
      a.has_shared_keys = true;
    }
    if (!has_open_attention(a, own == ElementType::f32 ? precision_ : own, t_.gpu)) return false;
    auto is_found = [&](size_t axis, const Expr& extent, std::initializer_list<int> of) {
      if (extent_of(extent) != kOpenExtent) return true;
      for (int i : of) {
        const Shape& source = shape(o.views[i].source);
        const Expr found = extent_along(o.steps[i], source, axis);
        if (found.defined()) return same_shape({found}, {extent});
      }
      return false;
    };
    for (size_t axis = 0; axis + 2 < s.size(); ++axis)
      if (!is_found(axis, s[axis], {0, 1, 2})) return false;
    return is_found(s.size() - 2, s[s.size() - 2], {0}) &&
           (o.input_with_keys.has_value() || is_found(s.size() - 2, s.back(), {1, 2}));
  }

  static int64_t extent_of(const Expr& extent) {
    int64_t n = 0;
    return as_int(extent, &n) ? n : kOpenExtent;
  }
  static std::vector<int64_t> extents_of(Shape::const_iterator begin, Shape::const_iterator end) {
    std::vector<int64_t> extents;
    std::transform(begin, end, std::back_inserter(extents), extent_of);
    return extents;
  }

  // Which of the inputs of steps says how many keys there are, in its last dimension: the first that does.
  std::optional<int64_t> input_of_steps_with_keys(const Match& match) const {
    int64_t input = 0;
    for (const Step& step : match.steps) {
      if (step.input == kNoValue) continue;
      const Shape &own = shape(step.input), &scores = shape(g_.node(match.scores).outputs[0]);
      if (!own.empty() && extent_of(own.back()) != 1 && same_shape({own.back()}, {scores.back()}))
        return input;
      ++input;
    }
    return std::nullopt;
  }

  // Queries, keys and values, and the operator's views of them. What else says how many keys there are, their tensors need not.
  struct OpenOperands {
    OpenView views[3];
    std::vector<int64_t> steps[3];
    std::optional<int64_t> input_with_keys;  // of the steps
  };
  OpenOperands open_operands(const Match& match) const {
    const Node &scores = g_.node(match.scores), &mix = g_.node(match.mix);
    const size_t batch_rank = shape(scores.outputs[0]).size() - 2;
    OpenOperands o;
    const std::optional<int64_t> input_with_keys = input_of_steps_with_keys(match);
    const ValueId operands[] = {scores.inputs[0], scores.inputs[1], mix.inputs[1]};
    for (int i = 0; i < 3; ++i) {
      OpenView& view = o.views[i] = follow_open_view(g_, operands[i], i < 2);
      if (i > 0 && input_with_keys) {
        const ValueId source = view.source;
        view = follow_open_view(g_, operands[i], i < 2, true);
        if (view.source != source) o.input_with_keys = input_with_keys;
      }
      const Shape& own = shape(operands[i]);
      o.steps[i] = product_view(view, own, batch_rank);
      // The last two axes of keys are those of the scores.
      const auto rank = static_cast<std::ptrdiff_t>(view.start.size());
      if (i == 1) std::rotate(o.steps[i].end() - 2 * rank, o.steps[i].end() - rank, o.steps[i].end());
    }
    return o;
  }

  // The view of an operand [batch..., row, column]: offset, strides of the result's batch axes, of rows and of columns
  // (swapped: of columns and of rows).
  std::vector<int64_t> view_of(const StridedView& view, ValueId operand, size_t batch_rank,
                               bool swapped) const {
    std::vector<int64_t> own = dims(operand), result{view.offset};
    for (size_t axis = 0; axis < batch_rank; ++axis) {
      size_t missing = batch_rank + 2 - own.size();
      bool stands = axis < missing || own[axis - missing] == 1;
      result.push_back(stands ? 0 : view.strides[axis - missing]);
    }
    int64_t row = view.strides[own.size() - 2], column = view.strides[own.size() - 1];
    result.push_back(swapped ? column : row);
    result.push_back(swapped ? row : column);
    return result;
  }

  ValueId flat(const std::string& name, ValueId v) {
    if (shape(v).size() == 1) return v;
    return reshaped(g_, name, v, std::vector{static_count(shape(v))});
  }

  // Queries, keys and values of the operator, and its views of them. factor: of the scores.
  std::vector<ValueId> open_inputs(const Match& match, Attributes* a, double* factor) const {
    const OpenOperands o = open_operands(match);
    const char* names[] = {"q_view", "k_view", "v_view"};
    for (int i = 0; i < 3; ++i)
      a->set(names[i], o.steps[i]);
    *factor = o.views[0].factor * o.views[1].factor;
    constexpr int64_t kFirstOfSteps = 3;
    if (o.input_with_keys) a->set("keys_from", kFirstOfSteps + *o.input_with_keys);
    return {o.views[0].source, o.views[1].source, o.views[2].source};
  }

  // The same with flat ones.
  std::vector<ValueId> flat_inputs(const Match& match, Attributes* a, double* factor) {
    const Node scores = g_.node(match.scores), mix = g_.node(match.mix);
    const size_t batch_rank = shape(scores.outputs[0]).size() - 2;
    ValueId q = scores.inputs[0], k = scores.inputs[1], v = mix.inputs[1];
    StridedView q_view = follow_view(g_, q, true), k_view = follow_view(g_, k, true),
                v_view = follow_view(g_, v, false);
    a->set("q_view", view_of(q_view, q, batch_rank, false));
    a->set("k_view", view_of(k_view, k, batch_rank, true));
    a->set("v_view", view_of(v_view, v, batch_rank, false));
    *factor = q_view.factor * k_view.factor;
    return {flat(scores.name, q_view.source), flat(scores.name, k_view.source),
            flat(mix.name, v_view.source)};
  }

  void rewrite(const Match& match) {
    const Node scores = g_.node(match.scores), mix = g_.node(match.mix);
    const Shape s = shape(scores.outputs[0]);
    ValueId q = scores.inputs[0], v = mix.inputs[1];

    Attributes a;
    a.set("batch", extents_of(s.begin(), s.end() - 2));
    std::vector<int64_t> extents = extents_of(s.end() - 2, s.end());
    extents.insert(extents.end(), {extent_of(shape(q).back()), extent_of(shape(v).back())});
    a.set("extents", extents);
    double factor = 1;
    std::vector<ValueId> inputs =
        is_open(match) ? open_inputs(match, &a, &factor) : flat_inputs(match, &a, &factor);
    std::vector<Step> steps = match.steps;
    if (factor != 1) steps.insert(steps.begin(), {"scale", factor, kNoValue});
    std::vector<std::string> kinds;
    std::vector<double> factors;
    for (const Step& step : steps) {
      // Neighbouring scalings are one.
      if (step.kind == "scale" && !kinds.empty() && kinds.back() == "scale") {
        factors.back() *= step.factor;
        continue;
      }
      kinds.push_back(step.kind);
      factors.push_back(step.factor);
      if (step.input != kNoValue) inputs.push_back(step.input);
    }
    a.set("steps", kinds);
    a.set("factors", factors);

    // A transposition of the result alone decides where it is written.
    std::vector<int64_t> perm;
    for (size_t axis = 0; axis < s.size(); ++axis)
      perm.push_back(static_cast<int64_t>(axis));
    NodeId last = match.mix, user = single_user(g_, users_, mix.outputs[0]);
    if (user >= 0 && is_op(g_.node(user), "Transpose")) {
      std::vector<int64_t> order = g_.node(user).attributes.integers("perm", {perm.rbegin(), perm.rend()});
      for (int64_t& axis : order)
        axis = axis < 0 ? axis + static_cast<int64_t>(s.size()) : axis;
      if (order.back() == static_cast<int64_t>(s.size()) - 1) perm = order, last = user;
    }
    a.set("y_perm", perm);

    const ElementType element = type(mix.outputs[0]).element;
    if (element != ElementType::f32) a.set(kWideResult, int64_t{1});
    ValueId y = emit(g_, "mcc", "Attention", mix.name, inputs, a);
    NodeId maker = g_.value(y).producer;
    for (NodeId id : match.nodes)
      absorb(g_, id, maker);
    if (last != match.mix) absorb(g_, last, maker);
    y = converted(g_, mix.name, y, element);
    // The new value takes the place of the old one, name, uses and all.
    take_place(g_, g_.node(last).outputs[0], y);
    users_ = g_.users();
  }

  Graph& g_;
  const tensor::Target& t_;
  const bool is_gpu_;
  const ElementType precision_;
  std::vector<std::vector<NodeId>> users_;
};

}  // namespace

void fuse_attention(Graph& graph, const tensor::Target& target, ElementType precision) {
  FuseAttention(graph, target, precision).run();
}

}  // namespace mcc::graph
