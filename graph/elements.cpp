#include "graph/elements.h"

#include <algorithm>
#include <unordered_map>

#include "graph/op.h"
#include "tensor/numeric.h"
#include "tensor/text.h"
#include "tensor/visit.h"

namespace mcc::graph {
namespace {

using namespace tensor;

// Shapes have few elements; what is larger is computed when the model runs.
constexpr int64_t kMostElements = 1024;

// Runs an unscheduled function over integers that are expressions: i64 whatever their declared type, as sizes fit every type that a
// model computes them in. What it cannot say as an expression of the dimensions is undefined, and gives up the run (false) where all
// elements are wanted.
class SymbolicRun {
 public:
  // have_bounds: of all dimensions. Where there is none, numbers of 32 bits are taken to be large enough for what is computed in them:
  // the model is not for larger sizes.
  SymbolicRun(const Analyzer& facts, bool have_bounds, bool wants_all)
      : facts_(facts), have_bounds_(have_bounds), wants_all_(wants_all) {}

  using Elements = std::vector<Expr>;
  Elements& memory(const Buffer& buffer) { return memory_[buffer.get()]; }

  bool run(const Stmt& s) {
    return dispatch(s, [&](const auto& node) { return on(node); });
  }

 private:
  bool on(const For& loop) {
    int64_t min = 0, extent = 0;
    if (!is_known(loop.min, &min) || !is_known(loop.extent, &extent)) return false;
    for (int64_t i = min; i < min + extent; ++i) {
      variables_[loop.var.get()] = i;
      if (!run(loop.body)) return false;
    }
    return true;
  }

  bool on(const Block& block) {
    if (const Expr wanted = eval(block.predicate); !is_true(wanted))
      return wanted.defined() && is_false(wanted);
    bool is_first = true;
    for (size_t i = 0; i < block.axes.size(); ++i) {
      const Expr value = eval(block.values[i]), min = eval(block.axes[i].domain.min);
      if (!value.defined() || !min.defined()) return false;
      variables_[block.axes[i].var.get()] = value;
      if (block.axes[i].kind == block.kind_of_steps()) is_first &= is_true(facts_.simplify(value == min));
    }
    if (block.init.defined() && is_first && !run(block.init)) return false;
    return run(block.body);
  }

  bool on(const Store& store) {
    const Expr value = eval(store.value);
    const std::optional<size_t> at = position(store.buffer, store.indices);
    if ((wants_all_ && !value.defined()) || !at || store.predicate.defined()) return false;
    memory(store.buffer)[*at] = value;
    return true;
  }

  bool on(const Seq& seq) {
    return std::all_of(seq.stmts.begin(), seq.stmts.end(), [&](const Stmt& s) { return run(s); });
  }

  bool on(const If& n) {
    const Expr condition = eval(n.condition);
    if (!condition.defined() || (!is_true(condition) && !is_false(condition))) return false;
    if (is_true(condition)) return run(n.then_body);
    return !n.else_body.defined() || run(n.else_body);
  }

  bool on(const Let& n) {
    variables_[n.var.get()] = eval(n.value);
    return variables_[n.var.get()].defined() && run(n.body);
  }

  bool on(const Allocate&) { return false; }  // functions that are lowered have these
  bool on(const Evaluate&) { return false; }

  bool is_known(const Expr& e, int64_t* value) {
    const Expr x = eval(e);
    return x.defined() && as_int(x, value);
  }

  // Row-major, of a buffer that is there.
  std::optional<size_t> position(const Buffer& buffer, const std::vector<Expr>& indices) {
    int64_t at = 0;
    for (size_t k = 0; k < indices.size(); ++k) {
      int64_t index = 0, extent = 0;
      if (!is_known(indices[k], &index) || !as_int(buffer.shape()[k], &extent) || index < 0 ||
          index >= extent)
        return std::nullopt;
      at = at * extent + index;
    }
    return at < static_cast<int64_t>(memory(buffer).size()) ? std::optional(static_cast<size_t>(at))
                                                            : std::nullopt;
  }

  Expr eval(const Expr& e) {
    Expr value = dispatch(e, [&](const auto& node) { return value_of(node, e); });
    return value.defined() ? facts_.simplify(value) : value;
  }

  Expr value_of(const IntImm& n, const Expr& self) { return is_bool(n.type.element) ? self : Expr(n.value); }
  Expr value_of(const VarNode&, const Expr& self) {
    const auto known = variables_.find(self.get());
    return known == variables_.end() ? self : known->second;  // a dimension
  }

  Expr value_of(const Cast& n, const Expr&) {
    const Expr value = eval(n.value);
    if (!value.defined() || n.type.is_vector()) return nullptr;
    const ElementType to = n.type.element;
    if (is_bool(to)) return is_bool(value.element()) ? value : value != 0;
    if (!is_int(to)) return nullptr;
    if (is_bool(value.element())) return select(value, 1, 0);
    return fits(value, to) ? value : nullptr;
  }

  bool fits(const Expr& value, ElementType type) const {
    if (bit_width(type) == 64) return true;
    if (bit_width(type) != 32) return false;
    const Interval range = facts_.bounds(value);
    const int64_t most = type == ElementType::u32 ? int64_t{UINT32_MAX} : int64_t{INT32_MAX};
    return range.low && (!have_bounds_ || (range.high && *range.high <= most)) &&
           *range.low >= (type == ElementType::u32 ? 0 : int64_t{INT32_MIN});
  }

  // What reductions to the largest and the smallest begin with.
  static bool is_neutral(const Binary& n, const Expr& e) {
    int64_t value = 0;
    return is_int(n.type.element) && as_int(e, &value) &&
           ((n.op == BinaryOp::max && value == int_limits(n.type.element).low) ||
            (n.op == BinaryOp::min && value == int_limits(n.type.element).high));
  }

  // Of a negative number it is toward minus infinity of up to b - 1 more.
  static Expr quotient_toward_zero(const Expr& a, const Expr& b) {
    return floor_div(a + tensor::min(tensor::max(0 - a, 0), b - 1), b);
  }

  Expr value_of(const Binary& n, const Expr&) {
    const Expr a = eval(n.a), b = eval(n.b);
    if (!a.defined() || !b.defined() || a.element() != b.element()) return nullptr;
    if (is_neutral(n, a)) return b;
    if (is_neutral(n, b)) return a;
    switch (n.op) {
      case BinaryOp::div:
      case BinaryOp::mod: {  // the same as toward minus infinity where nothing is negative
        if (!facts_.can_prove(b > 0)) return nullptr;
        const bool is_floor = facts_.can_prove(a >= 0);
        if (n.op == BinaryOp::mod) return is_floor ? floor_mod(a, b) : a - quotient_toward_zero(a, b) * b;
        return is_floor ? floor_div(a, b) : quotient_toward_zero(a, b);
      }
      case BinaryOp::floor_div:
      case BinaryOp::floor_mod:
        if (!facts_.can_prove(b > 0)) return nullptr;
        break;
      case BinaryOp::bit_and:
      case BinaryOp::bit_or:
      case BinaryOp::bit_xor:
      case BinaryOp::shl:
      case BinaryOp::shr:
        return nullptr;
      default:
        break;
    }
    return Binary::make(n.op, a, b);
  }

  Expr value_of(const Select& n, const Expr&) {
    const Expr condition = eval(n.condition);
    if (!condition.defined()) return nullptr;
    if (is_true(condition)) return eval(n.on_true);
    if (is_false(condition)) return eval(n.on_false);
    const Expr x = eval(n.on_true), y = eval(n.on_false);
    return x.defined() && y.defined() && x.element() == y.element() ? select(condition, x, y) : nullptr;
  }

  Expr value_of(const Load& n, const Expr&) {
    if (n.predicate.defined() || n.type.is_vector()) return nullptr;
    const std::optional<size_t> at = position(n.buffer, n.indices);
    return at ? memory(n.buffer)[*at] : nullptr;
  }

  Expr value_of(const Call& n, const Expr&) {
    if (n.function != Intrinsic::logical_not) return nullptr;
    const Expr value = eval(n.args[0]);
    return value.defined() ? Call::make(n.function, {value}) : nullptr;
  }

  Expr value_of(const FloatImm&, const Expr&) { return nullptr; }
  Expr value_of(const Ramp&, const Expr&) { return nullptr; }
  Expr value_of(const Broadcast&, const Expr&) { return nullptr; }
  Expr value_of(const Shuffle&, const Expr&) { return nullptr; }
  Expr value_of(const VectorReduce&, const Expr&) { return nullptr; }

  const Analyzer& facts_;
  const bool have_bounds_, wants_all_;
  VarMap variables_;
  std::unordered_map<const BufferNode*, Elements> memory_;
};

// Nothing where it is not static, or large.
std::optional<size_t> small_count(const Shape& shape) {
  if (!is_static(shape) || static_count(shape) > kMostElements) return std::nullopt;
  return static_cast<size_t>(static_count(shape));
}

bool is_whole(ElementType element) { return is_int(element) || is_bool(element); }

// Inputs that the node's function has parameters for, in their order.
std::vector<ValueId> passed_inputs(const Graph& graph, const Node& node) {
  std::vector<ValueId> passed;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId id = node.inputs[i];
    const bool is_passed = id != kNoValue && !is_embedded(graph, node, static_cast<int>(i));
    if (is_passed && std::find(passed.begin(), passed.end(), id) == passed.end()) passed.push_back(id);
  }
  return passed;
}

bool are_few_integers(const TensorType& type) {
  return is_whole(type.element) && bit_width(type.element) >= 8 && small_count(type.shape);
}

bool are_all_defined(const std::vector<Expr>& elements) {
  return std::all_of(elements.begin(), elements.end(), [](const Expr& e) { return e.defined(); });
}

bool gives_few_integers(const Graph& graph, const Node& node) {
  return node.op->compute && std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) {
           return id == kNoValue || are_few_integers(graph.value(id).type);
         });
}

// The elements of the results of the node's function, of which the inputs hold `arguments`.
std::optional<std::vector<std::vector<Expr>>> run_over(const Graph& graph, const Node& node,
                                                       std::vector<std::vector<Expr>> arguments,
                                                       bool wants_all) {
  const Func func = build_node_func(graph, node);
  const Analyzer facts = graph.facts();
  const bool have_bounds = std::all_of(graph.dim_ranges.begin(), graph.dim_ranges.end(),
                                       [](const DimRange& r) { return r.has_bound(); });
  SymbolicRun run(facts, have_bounds, wants_all);
  for (size_t i = 0; i < func.params.size(); ++i) {
    if (i < arguments.size()) {
      run.memory(func.params[i]) = std::move(arguments[i]);
    } else {
      run.memory(func.params[i]).resize(*small_count(func.params[i].shape()));
    }
  }
  for (const Buffer& buffer : func.allocs) {
    const std::optional<size_t> count = small_count(buffer.shape());
    if (!count) return std::nullopt;
    run.memory(buffer).resize(*count);
  }
  if (func.body.defined() && !run.run(func.body)) return std::nullopt;
  std::vector<std::vector<Expr>> results(node.outputs.size());
  for (size_t i = 0, next = arguments.size(); i < node.outputs.size(); ++i)
    if (node.outputs[i] != kNoValue) results[i] = run.memory(func.params[next++]);
  return results;
}

// Without the limits of runs, which memory is not planned for.
Analyzer planning_facts(const Graph& graph) {
  Analyzer facts;
  for (size_t i = 0; i < graph.dims.size(); ++i)
    learn_size(facts, graph.dims[i], graph.dim_ranges[i]);
  return facts;
}

}  // namespace

std::vector<Expr> elements_of_constant(const Constant& constant) {
  std::vector<Expr> elements;
  for (int64_t element : constant.to_ints())
    elements.push_back(is_bool(constant.element()) ? constant_int(kBool, element) : Expr(element));
  return elements;
}

std::optional<std::vector<std::vector<Expr>>> elements_of(const Graph& graph, const Node& node) {
  if (graph.dims.empty() || !gives_few_integers(graph, node)) return std::nullopt;
  std::vector<std::vector<Expr>> arguments;
  for (const ValueId id : passed_inputs(graph, node)) {
    const Value& value = graph.value(id);
    arguments.push_back(value.elements);
    // Shape and Size look at the type of their input alone.
    if (node.op->fold || !value.elements.empty()) continue;
    if (!value.constant || !are_few_integers(value.type)) return std::nullopt;
    arguments.back() = elements_of_constant(*value.constant);
  }
  auto results = run_over(graph, node, std::move(arguments), true);
  if (results && !std::all_of(results->begin(), results->end(), are_all_defined)) return std::nullopt;
  return results;
}

std::vector<Expr> known_elements(const Graph& graph, const Node& node, size_t output,
                                 const std::function<std::vector<Expr>(ValueId)>& elements) {
  if (node.op->fold || !gives_few_integers(graph, node)) return {};
  std::vector<std::vector<Expr>> arguments;
  for (const ValueId id : passed_inputs(graph, node)) {
    if (!are_few_integers(graph.value(id).type)) return {};
    arguments.push_back(elements(id));
    if (arguments.back().empty()) arguments.back().resize(*small_count(graph.value(id).type.shape));
  }
  auto results = run_over(graph, node, std::move(arguments), false);
  return results ? std::move((*results)[output]) : std::vector<Expr>{};
}

namespace {

// Of elements that are all known after all.
std::optional<Constant> constant_of(const TensorType& type, const std::vector<Expr>& elements) {
  std::vector<std::byte> bytes;
  for (const Expr& element : elements) {
    int64_t value = 0;
    if (!as_int(element, &value)) return std::nullopt;
    const auto* from = reinterpret_cast<const std::byte*>(&value);  // little-endian
    bytes.insert(bytes.end(), from, from + byte_size(type.element));
  }
  return Constant::copy_of(type.element, static_shape(type.shape), bytes);
}

}  // namespace

void set_elements(Graph& graph, const Node& of, const std::vector<std::vector<Expr>>& elements) {
  for (size_t i = 0; i < of.outputs.size(); ++i) {
    const ValueId id = of.outputs[i];
    if (id == kNoValue) continue;
    Value& value = graph.value(id);
    if ((value.constant = constant_of(value.type, elements[i]))) continue;
    value.elements = elements[i];
    value.producer = static_cast<NodeId>(graph.nodes.size());
    value.output_index = 0;
    std::vector<std::string> texts;
    for (const Expr& element : elements[i])
      texts.push_back(tensor::to_text(element));
    Node node;
    node.op = find_op("mcc", "Elements");
    node.name = of.name;
    node.origins = of.origins;
    node.outputs = {id};
    node.attributes.set("type", std::string(mcc::to_text(value.type.element)));
    node.attributes.set("shape", static_shape(value.type.shape));
    node.attributes.set("elements", std::move(texts));
    graph.nodes.push_back(std::move(node));
  }
}

std::optional<int64_t> largest_count(const Graph& graph, const Shape& shape) {
  const Analyzer facts = planning_facts(graph);
  int64_t count = 1;
  for (const Expr& d : shape) {
    const Interval range = facts.bounds(d);
    if (!range.high) return std::nullopt;
    if (__builtin_mul_overflow(count, std::max<int64_t>(*range.high, 0), &count)) return std::nullopt;
  }
  return count;
}

std::optional<int64_t> least_count(const Graph& graph, const Shape& shape) {
  const Analyzer facts = graph.facts();
  int64_t count = 1;
  for (const Expr& d : shape)
    if (__builtin_mul_overflow(count, std::max<int64_t>(facts.bounds(d).low.value_or(0), 0), &count)) return std::nullopt;
  return count;
}

Expr planned_size(const Graph& graph, const Expr& size) {
  const std::optional<int64_t> largest = graph.depends_on_data(size) ? std::nullopt : largest_count(graph, {size});
  return largest ? Expr(*largest) : graph.facts().simplify(size);
}

Expr planned_bytes(const Graph& graph, ValueId value) {
  const TensorType& type = graph.value(value).type;
  const std::optional<int64_t> count = graph.depends_on_data(type.shape) ? std::nullopt : largest_count(graph, type.shape);
  if (count) return *count * byte_size(type.element);
  Expr bytes = byte_size(type.element);
  for (const Expr& d : type.shape)
    bytes = bytes * d;
  return graph.facts().simplify(bytes);
}

namespace {

// number: of dimensions that data decides, where it is possible.
Graph instance_of(const Graph& graph, int64_t number) {
  VarMap sizes;
  for (size_t i = 0; i < graph.dims.size(); ++i) {
    const DimRange& range = graph.dim_ranges[i];
    const DimSource& source = graph.dim_sources[i];
    int64_t size = source.kind == DimSource::Kind::input ? typical_size(range) : std::clamp(number, range.min, range.max);
    if (source.kind == DimSource::Kind::expression) as_int(simplify(substitute(source.expression, sizes)), &size);
    // Dimensions that are taken to be equal.
    for (const DimEquality& equality : graph.equalities) {
      const Expr& other = graph.dims[i].same_as(equality.a) ? equality.b : equality.a;
      const bool is_of_two = graph.dims[i].same_as(equality.a) || graph.dims[i].same_as(equality.b);
      if (const auto known = sizes.find(other.get()); is_of_two && known != sizes.end()) as_int(known->second, &size);
    }
    sizes[graph.dims[i].get()] = size;
  }
  Graph instance = graph;
  for (Value& value : instance.values) {
    for (auto* expressions : {&value.type.shape, &value.elements})
      for (Expr& e : *expressions)
        e = simplify(substitute(e, sizes));
  }
  instance.dims.clear();
  instance.dim_ranges.clear();
  instance.dim_sources.clear();
  instance.equalities.clear();
  instance.nonnegative.clear();
  return instance;
}

}  // namespace

void raise_typical_sizes(Graph& graph) {
  // More than what any window, filter or hop of a signal is long.
  constexpr int64_t kMost = 1 << 17;
  // As few steps along a signal leave schedules nothing to choose.
  constexpr int64_t kFewSteps = 16;
  std::vector<bool> is_length(graph.dims.size());
  for (const ValueId input : graph.inputs) {
    const Shape& shape = graph.value(input).type.shape;
    for (size_t axis = 1; axis < shape.size() && shape.size() <= 3; ++axis)
      for (size_t i = 0; i < graph.dims.size(); ++i)
        if (graph.dims[i].same_as(shape[axis])) is_length[i] = !graph.dim_ranges[i].has_bound();
  }
  // Expressions that have a name are dimensions of their own, of those before them.
  const auto by_inputs = [&](Expr extent) {
    for (size_t i = graph.dims.size(); i-- > 0;)
      if (graph.dim_sources[i].kind == DimSource::Kind::expression && tensor::uses_var(extent, graph.dims[i]))
        extent = substitute(extent, {{graph.dims[i].get(), graph.dim_sources[i].expression}});
    return extent;
  };
  const auto is_small = [&](const Expr& extent, const std::vector<DimRange>& ranges, int64_t least) {
    VarMap sizes;
    for (size_t i = 0; i < graph.dims.size(); ++i)
      if (graph.dim_sources[i].kind == DimSource::Kind::input)
        sizes[graph.dims[i].get()] = typical_size(ranges[i]);
    int64_t size = 0;
    return as_int(simplify(substitute(extent, sizes)), &size) && size < least;
  };
  for (const Value& value : graph.values)
    for (const Expr& dim : value.type.shape) {
      if (int64_t known = 0; as_int(dim, &known)) continue;
      const Expr extent = by_inputs(dim);
      const auto raise = [&](int64_t least, const auto& may_grow) {
        std::vector<DimRange> raised = graph.dim_ranges;
        for (bool is_grown = true; is_grown && is_small(extent, raised, least);) {
          is_grown = false;
          for (size_t i = 0; i < graph.dims.size(); ++i) {
            const int64_t typical = typical_size(raised[i]), larger = std::min(2 * typical, raised[i].max);
            if (typical >= kMost || larger == typical || !may_grow(i) ||
                !tensor::uses_var(extent, graph.dims[i]))
              continue;
            raised[i].typical = larger;
            is_grown = true;
          }
        }
        if (!is_small(extent, raised, least)) graph.dim_ranges = std::move(raised);
      };
      raise(kFewSteps, [&](size_t i) { return is_length[i]; });
      raise(1, [](size_t) { return true; });
    }
}

std::optional<Graph> typical_instance(const Graph& graph) {
  if (!graph.has_data_dims() && graph.equalities.empty()) return instance_of(graph, 0);
  // Which numbers go together only a run knows.
  for (int64_t number : {64, 16, 1}) {
    Graph instance = instance_of(graph, number);
    if (verify(instance).empty()) return instance;
  }
  return std::nullopt;
}

Graph likely_instance(const Graph& graph) {
  std::optional<Graph> typical = typical_instance(graph);
  return typical ? std::move(*typical) : instance_of(graph, 64);
}

}  // namespace mcc::graph
