// If and Loop whose course data decides: nodes that choose, and that begin and end iterations (graph/ops/control.h). Branches and bodies
// become part of the graph once.
#include <algorithm>

#include "frontend/graph_builder.h"
#include "graph/elements.h"
#include "tensor/text.h"

namespace mcc::frontend {

using graph::Constant;
using graph::DimRange;
using graph::DimSource;
using graph::kNoValue;
using graph::Node;
using graph::TensorType;
using graph::ValueId;
using tensor::Expr;

namespace {

// How often a loop may run that says nothing.
constexpr int64_t kEndless = int64_t{1} << 40;

// The position of the body's input that its output is, through Identity; -1 if it is none.
int passed_input(const onnx::GraphProto& body, std::string name) {
  for (int steps = 0; steps <= body.node_size(); ++steps) {
    for (int i = 0; i < body.input_size(); ++i)
      if (body.input(i).name() == name) return i;
    const auto maker = std::find_if(body.node().begin(), body.node().end(), [&](const onnx::NodeProto& node) {
      return node.output_size() > 0 && node.output(0) == name;
    });
    if (maker == body.node().end() || maker->op_type() != "Identity" || maker->input_size() != 1) return -1;
    name = maker->input(0);
  }
  return -1;
}

// Whether anything of the body, or inside of it, reads the name.
bool reads(const onnx::GraphProto& body, const std::string& name) {
  const auto is_it = [&](const auto& item) { return item.name() == name; };
  if (std::any_of(body.output().begin(), body.output().end(), is_it)) return true;
  return std::any_of(body.node().begin(), body.node().end(), [&](const onnx::NodeProto& node) {
    const auto is_inside = [&](const onnx::AttributeProto& a) { return a.has_g() && reads(a.g(), name); };
    return std::find(node.input().begin(), node.input().end(), name) != node.input().end() ||
           std::any_of(node.attribute().begin(), node.attribute().end(), is_inside);
  });
}

// Whether its type says that the dimension is that size.
bool declares_size(const onnx::ValueInfoProto& output, size_t d, const Expr& size) {
  const auto& shape = output.type().tensor_type().shape();
  int64_t known = 0;
  if (!tensor::as_int(size, &known) || !output.type().has_tensor_type() ||
      d >= static_cast<size_t>(shape.dim_size()))
    return false;
  const auto& dim = shape.dim(static_cast<int>(d));
  return dim.has_dim_value() && dim.dim_value() == known;
}

// Whether ONNX's type for it is a tensor of one dimension, as some exporters give the number of an iteration.
bool is_declared_as_vector(const onnx::ValueInfoProto& input) {
  return input.type().has_tensor_type() && input.type().tensor_type().has_shape() &&
         input.type().tensor_type().shape().dim_size() == 1;
}

// A tensor of zeros whose shape no data decides.
ValueId zeros(graph::Graph& graph, const std::string& name, const TensorType& type) {
  if (graph::is_static(type.shape))
    return graph.add_constant(name, Constant::zeros(type.element, graph::static_shape(type.shape)));
  Node of;
  of.name = name;
  of.outputs = {
      graph.add_value(text(name, ".shape"), {ElementType::i64, {static_cast<int64_t>(type.shape.size())}})};
  graph::set_elements(graph, of, {type.shape});
  graph::Attributes a;
  a.set("value", Constant::zeros(type.element, {1}));
  const graph::NodeId node =
      graph.add_node(*graph::find_op("", "ConstantOfShape"), name, of.outputs, a, {type});
  return graph.node(node).outputs[0];
}

}  // namespace

// ---- If ----

Builder::Branch Builder::build_branch(const onnx::GraphProto& graph, int results, ValueId condition,
                                      bool is_then, const Scope& scope, const Origin& origin) {
  Branch branch;
  const Mark start = mark();
  Scope inner;
  inner.parent = &scope;
  add_initializers(graph, inner);
  add_nodes(graph, inner, origin);
  for (int i = 0; i < results; ++i)
    branch.results.push_back(inner.find(graph.output(i).name()));
  branch.problems.assign(problems_.begin() + static_cast<std::ptrdiff_t>(start.problems), problems_.end());
  if (!branch.problems.empty()) {
    go_back(start);
  } else {
    make_conditional(start, condition, is_then);
  }
  return branch;
}

// Nothing for a condition that is no single element.
Expr Builder::truth_of(ValueId condition) {
  const graph::Value& value = graph_.value(as_sizes(condition));
  if (value.elements.size() != 1) return {};
  const Expr& truth = value.elements.front();
  return truth.type().element == ElementType::boolean ? truth : truth != Expr(0);
}

void Builder::make_conditional(const Mark& since, ValueId condition, bool is_then) {
  const auto is_new = [&] {
    return graph_.equalities.size() > since.equalities || conditional_.size() > since.conditional;
  };
  if (!is_new()) return;
  const Expr yes = truth_of(condition);
  if (!yes.defined()) return;
  const Expr holds = is_then ? yes : tensor::logical_not(yes);
  conditional_.insert(conditional_.end(),
                      graph_.equalities.begin() + static_cast<std::ptrdiff_t>(since.equalities),
                      graph_.equalities.end());
  graph_.equalities.resize(since.equalities);
  for (size_t i = since.conditional; i < conditional_.size(); ++i)
    conditional_[i].a = tensor::select(holds, conditional_[i].a, conditional_[i].b);
}

// What several branches ask for is asked for in any case: what they have in common may be computed in front of them.
void Builder::add_conditional_equalities() {
  for (const graph::DimEquality& equality : conditional_) {
    const graph::DimEquality plain{graph::in_branch(equality.a), equality.b, equality.where};
    const auto is_same = [&](const graph::DimEquality& other) {
      return tensor::structurally_equal(graph::in_branch(other.a), plain.a) &&
             tensor::structurally_equal(other.b, plain.b);
    };
    const bool is_alone = std::count_if(conditional_.begin(), conditional_.end(), is_same) == 1;
    graph_.equalities.push_back(is_alone ? equality : plain);
  }
}

void Builder::add_choice(const onnx::NodeProto& node, ValueId condition, Scope& scope, const Origin& origin) {
  const std::string where = where_of(node, origin);
  const onnx::AttributeProto *then_branch = find_attribute(node, "then_branch"),
                             *else_branch = find_attribute(node, "else_branch");
  for (const onnx::AttributeProto* branch : {then_branch, else_branch}) {
    if (branch && branch->has_g() && branch->g().output_size() >= node.output_size()) continue;
    report(ErrorKind::bad_input, where, "a branch is missing or has too few outputs");
    return give_up(node, scope);
  }
  const Branch yes = build_branch(then_branch->g(), node.output_size(), condition, true, scope, origin),
               no = build_branch(else_branch->g(), node.output_size(), condition, false, scope, origin);
  // A branch that cannot run with these shapes is one that the model does not take with them; the run sees to that.
  for (const Branch* branch : {&yes, &no}) {
    const Branch& other = branch == &yes ? no : yes;
    if (branch->is_impossible() && other.problems.empty())
      return take_only_branch(node, condition, branch == &no, other, branch->problems.front(), scope);
  }
  if (!yes.problems.empty() || !no.problems.empty()) {
    for (const Branch* branch : {&yes, &no})
      problems_.insert(problems_.end(), branch->problems.begin(), branch->problems.end());
    return give_up(node, scope);
  }
  // Exporters write "squeeze, if there is one element" for dimensions that they do not know: a model is written for one of the ranks.
  if (const std::optional<int> branch = narrower_branch(condition, yes, no)) {
    const Diagnostic problem{ErrorKind::unsupported, "its result",
                             "it has more dimensions than in the other branch; give the dimensions values "
                             "for a model that takes this branch",
                             ""};
    return take_only_branch(node, condition, *branch == 0, *branch == 0 ? yes : no, problem, scope);
  }
  choose(node, condition, yes, no, scope, origin);
}

// Where sizes alone decide between results of different ranks: the branch (0: then) whose results have fewer dimensions.
std::optional<int> Builder::narrower_branch(ValueId condition, const Branch& yes, const Branch& no) const {
  if (graph_.value(condition).elements.empty()) return std::nullopt;
  const auto is_single = [](const graph::Shape& shape) {
    return graph::is_static(shape) && graph::static_count(shape) == 1;
  };
  for (size_t i = 0; i < yes.results.size(); ++i) {
    if (yes.results[i].kind != Entry::value || no.results[i].kind != Entry::value) continue;
    const graph::Shape &a = graph_.value(yes.results[i].id).type.shape,
                       &b = graph_.value(no.results[i].id).type.shape;
    if (a.size() != b.size() && !(is_single(a) && is_single(b))) return a.size() < b.size() ? 0 : 1;
  }
  return std::nullopt;
}

void Builder::take_only_branch(const onnx::NodeProto& node, ValueId condition, bool is_then,
                               const Branch& branch, const Diagnostic& problem, Scope& scope) {
  const Expr holds = truth_of(condition);
  if (!holds.defined()) {
    report(ErrorKind::bad_input, text("node '", name_of(node), "' (If)"),
           "its condition is not one truth value");
    return give_up(node, scope);
  }
  graph_.equalities.push_back({Expr(is_then ? 1 : 0), tensor::select(holds, 1, 0),
                               text("node '", name_of(node), "' (If): its ", is_then ? "else" : "then",
                                    " branch cannot run with the shapes that the model is compiled for: ",
                                    problem.where, ": ", problem.message)});
  for (int i = 0; i < node.output_size(); ++i)
    scope.names[node.output(i)] = branch.results[static_cast<size_t>(i)];
}

Entry Builder::chosen(Entry a, Entry b, const std::string& name, const onnx::NodeProto& node,
                      const Origin& origin, Choices& choices) {
  if (is_reported(a) || is_reported(b)) return {};
  const auto refuse = [&](const std::string& of_yes, const std::string& of_no) {
    report(ErrorKind::unsupported, where_of(node, origin),
           text("its condition is not known at compile time, and its result '", name, "' is ", of_yes,
                " in one branch and ", of_no, " in the other"));
    return Entry{};
  };
  if (a.kind == Entry::absent && b.kind == Entry::absent) return a;
  if (a.kind == Entry::sequence && b.kind == Entry::sequence) {
    const size_t length = a.items->size();
    if (b.items->size() != length)
      return refuse(text("a sequence of ", length, length == 1 ? " tensor" : " tensors"),
                    text("one of ", b.items->size()));
    std::vector<Entry> items;
    for (size_t i = 0; i < length; ++i) {
      items.push_back(chosen((*a.items)[i], (*b.items)[i], item_name(name, static_cast<int64_t>(i)), node,
                             origin, choices));
      if (items.back().kind == Entry::unknown) return {};
    }
    return sequence_of(std::move(items));
  }
  if (a.kind != Entry::value || b.kind != Entry::value) return refuse(kind_of_entry(a), kind_of_entry(b));
  if (a.id == b.id) return a;
  if (!match_single_elements(a, b, part_of(node, origin))) return {};
  const std::optional<TensorType> type = common_type(a.id, b.id);
  if (!type) return refuse(to_text(graph_.value(a.id).type), to_text(graph_.value(b.id).type));
  const ValueId result = graph_.add_value(name, *type);
  set_own_dims(result, a.id, b.id);
  choices.of_yes.push_back(a.id);
  choices.of_no.push_back(b.id);
  choices.results.push_back(result);
  return {Entry::value, result};
}

void Builder::choose(const onnx::NodeProto& node, ValueId condition, const Branch& yes, const Branch& no,
                     Scope& scope, const Origin& origin) {
  Choices choices;
  for (int i = 0; i < node.output_size(); ++i) {
    const std::string& name = node.output(i);
    if (name.empty()) continue;
    const Entry result = chosen(yes.results[static_cast<size_t>(i)], no.results[static_cast<size_t>(i)], name,
                                node, origin, choices);
    if (result.kind == Entry::unknown) return give_up(node, scope);
    scope.names[name] = result;
  }
  if (choices.results.empty()) return;
  Node choice;
  choice.op = graph::find_op("mcc", "Choose");
  choice.name = name_of(node);
  choice.origins = {choice.name};
  choice.inputs = {condition};
  choice.inputs.insert(choice.inputs.end(), choices.of_yes.begin(), choices.of_yes.end());
  choice.inputs.insert(choice.inputs.end(), choices.of_no.begin(), choices.of_no.end());
  choice.outputs = choices.results;
  append(std::move(choice));
}

// Exporters mix numbers and vectors of one element: of the two, the one with fewer dimensions gets those of the other.
bool Builder::match_single_elements(Entry& a, Entry& b, const Origin& origin) {
  const bool is_longer = graph_.value(a.id).type.shape.size() > graph_.value(b.id).type.shape.size();
  Entry& shorter = is_longer ? b : a;
  shorter = with_rank_of(shorter, (is_longer ? a : b).id, origin);
  return shorter.kind == Entry::value;
}

// Of tensors with one element each; others stay as they are.
Entry Builder::with_rank_of(const Entry& v, ValueId like, const Origin& origin) {
  const graph::Shape shape = graph_.value(v.id).type.shape, wanted = graph_.value(like).type.shape;
  const auto is_single = [](const graph::Shape& s) {
    return graph::is_static(s) && graph::static_count(s) == 1;
  };
  if (shape.size() == wanted.size() || !is_single(shape) || !is_single(wanted)) return v;
  const Entry ones =
      make_constant(Constant::ints(std::vector<int64_t>(wanted.size(), 1)), text(origin.name, ".shape"));
  return make("Reshape", {v, ones}, {}, origin);
}

std::optional<TensorType> Builder::common_type(ValueId a, ValueId b) const {
  const TensorType &x = graph_.value(a).type, &y = graph_.value(b).type;
  return x.element == y.element && x.shape.size() == y.shape.size() ? std::optional(x) : std::nullopt;
}

void Builder::set_own_dims(ValueId result, ValueId a, ValueId b) {
  const graph::Shape x = graph_.value(a).type.shape, y = graph_.value(b).type.shape;
  const tensor::Analyzer facts = graph_.facts();
  for (size_t d = 0; d < x.size(); ++d) {
    if (tensor::structurally_equal(x[d], y[d])) continue;
    const tensor::Interval p = facts.bounds(x[d]), q = facts.bounds(y[d]);
    const int64_t low = std::min(p.low.value_or(0), q.low.value_or(0)),
                  high = std::max(p.high.value_or(kEndless), q.high.value_or(kEndless));
    const DimRange range{std::max<int64_t>(low, 0), std::max<int64_t>(high, 0)};
    const Expr dim = graph_.add_data_dim(text(graph_.value(result).name, ".", d), range,
                                         {DimSource::Kind::node, result, 0, {}});
    graph_.value(result).type.shape[d] = dim;
  }
}

// ---- Loop ----

Builder::Mark Builder::mark() const {
  return {graph_.values.size(),
          graph_.nodes.size(),
          graph_.dims.size(),
          graph_.equalities.size(),
          conditional_.size(),
          problems_.size(),
          streams_,
          sizes_,
          tainted_};
}

void Builder::go_back(const Mark& mark) {
  graph_.values.resize(mark.values);
  graph_.nodes.resize(mark.nodes);
  graph_.dims.erase(graph_.dims.begin() + static_cast<std::ptrdiff_t>(mark.dims), graph_.dims.end());
  graph_.dim_ranges.resize(mark.dims);
  graph_.dim_sources.resize(mark.dims);
  graph_.equalities.resize(mark.equalities);
  conditional_.resize(mark.conditional);
  problems_.resize(mark.problems);
  streams_ = mark.streams;
  sizes_ = mark.sizes;
  tainted_ = mark.tainted;
}

// The number of the iteration, for the body: what is computed of it may be a size.
Entry Builder::iteration_number(const std::string& name, ValueId begin, int64_t most, bool is_vector) {
  const Expr dim = graph_.add_data_dim(text(name, ".iteration"), {0, std::max<int64_t>(most - 1, 0)},
                                       {DimSource::Kind::node, begin, 0, {}});
  const graph::Shape shape(is_vector ? 1 : 0, Expr(1));
  Node number;
  number.name = text(name, ".iteration");
  number.origins = {name};
  number.outputs = {graph_.add_value(number.name, {ElementType::i64, shape})};
  graph::set_elements(graph_, number, {{dim}});
  return {Entry::value, number.outputs[0]};
}

bool Builder::is_known_to_hold(const Entry& condition) const {
  const Constant* value = known(condition);
  return value && value->count() == 1 && value->int_at(0) != 0;
}

void Builder::add_run_time_loop(const onnx::NodeProto& node, const onnx::GraphProto& body, Scope& scope,
                                const Origin& origin) {
  RunTimeLoop loop{node,
                   body,
                   origin,
                   where_of(node, origin),
                   name_of(node),
                   scope.find(node.input(0)),
                   scope.find(node.input(1))};
  const Constant* bound = known(loop.most);
  if (bound && bound->count() == 1) loop.limit = std::clamp<int64_t>(bound->int_at(0), 0, kEndless);
  if (!bound && loop.most.kind == Entry::value && graph_.value(loop.most.id).elements.size() == 1) {
    const tensor::Interval range = graph_.facts().bounds(graph_.value(loop.most.id).elements.front());
    loop.limit = std::clamp<int64_t>(range.high.value_or(kEndless), 0, kEndless);
  }
  Scope around;
  around.parent = &scope;
  add_initializers(body, around);
  if (!find_states(loop, scope)) return give_up(node, scope);
  // Which dimensions of states change is seen behind an iteration; each round finds some.
  for (size_t found = loop.changing.size() - 1; found != loop.changing.size();) {
    found = loop.changing.size();
    const Mark start = mark();
    begin_loop(loop);
    std::vector<Entry> outputs;
    if (!iterate(loop, around, outputs)) return give_up(node, scope);
    find_changing_dims(loop, outputs);
    if (found != loop.changing.size()) {
      go_back(start);
    } else if (!end_loop(loop, outputs, scope)) {
      return give_up(node, scope);
    }
  }
}

// What every iteration gets as it was is no state.
bool Builder::find_states(RunTimeLoop& loop, const Scope& scope) {
  for (int k = 0; k < loop.carried(); ++k) {
    const std::string& name = loop.node.input(k + 2);
    loop.initial.push_back(scope.find(name));
    if (loop.initial.back().kind == Entry::unknown) return false;
    if (passed_input(loop.body, loop.body.output(k + 1).name()) == k + 2) continue;
    if (loop.initial.back().kind != Entry::value) {
      report(ErrorKind::unsupported, loop.where,
             text("how often it runs is not known at compile time, and its state '", name, "' is no tensor"));
      return false;
    }
    loop.states.push_back(k);
  }
  return true;
}

void Builder::begin_loop(RunTimeLoop& loop) {
  Node begin;
  begin.op = graph::find_op("mcc", "LoopBegin");
  begin.name = text(loop.name, ".begin");
  begin.origins = {loop.name};
  loop.begin = static_cast<graph::NodeId>(graph_.nodes.size());
  begin.attributes.set("loop", static_cast<int64_t>(loop.begin));
  const Entry begins =
      loop.first.kind == Entry::value
          ? loop.first
          : make_constant(Constant::scalar(ElementType::boolean, 1), text(loop.name, ".condition"));
  begin.inputs = {begins.id};
  begin.outputs = {graph_.add_value(text(loop.name, ".goes_on"), graph_.value(begins.id).type)};
  for (size_t i = 0; i < loop.states.size(); ++i) {
    const ValueId initial = loop.initial[static_cast<size_t>(loop.states[i])].id;
    const TensorType type = graph_.value(initial).type;
    begin.inputs.push_back(initial);
    begin.outputs.push_back(graph_.add_value(loop.state_name(i), type));
    for (const auto& [state, axis] : loop.changing)
      if (state == i) give_own_dim(begin.outputs.back(), axis);
  }
  loop.in_iteration = begin.outputs;
  append(std::move(begin));
}

void Builder::give_own_dim(ValueId v, size_t axis) {
  const Expr dim = graph_.add_data_dim(text(graph_.value(v).name, ".", axis), {0, kEndless},
                                       {DimSource::Kind::node, v, 0, {}});
  graph_.value(v).type.shape[axis] = dim;
}

bool Builder::iterate(const RunTimeLoop& loop, const Scope& around, std::vector<Entry>& outputs) {
  std::vector<Entry> values(static_cast<size_t>(loop.carried()) + 2);
  values[0] = iteration_number(loop.name, loop.in_iteration[0], loop.limit,
                               is_declared_as_vector(loop.body.input(0)));
  const bool begins = loop.first.kind == Entry::absent || is_known_to_hold(loop.first);
  values[1] = begins && passed_input(loop.body, loop.body.output(0).name()) == 1
                  ? make_constant(Constant::scalar(ElementType::boolean, 1), text(loop.name, ".condition"))
                  : Entry{Entry::value, loop.in_iteration[0]};
  std::copy(loop.initial.begin(), loop.initial.end(), values.begin() + 2);
  for (size_t i = 0; i < loop.states.size(); ++i)
    values[static_cast<size_t>(loop.states[i]) + 2] = {Entry::value, loop.in_iteration[i + 1]};
  iterations_.push_back({Entry::value, loop.in_iteration[0]});
  const bool is_built = add_iteration(loop.body, around, values, loop.origin, outputs);
  iterations_.pop_back();
  if (!is_built) return false;
  for (size_t i = 0; i < loop.states.size(); ++i) {
    Entry& next = outputs[static_cast<size_t>(loop.states[i]) + 1];
    if (is_reported(next)) return false;
    if (next.kind != Entry::value) {
      report(ErrorKind::unsupported, loop.where,
             text("its state '", loop.state_name(i), "' is no tensor behind an iteration"));
      return false;
    }
    next = with_rank_of(next, loop.in_iteration[i + 1], part_of(loop.node, loop.origin));
    if (next.kind != Entry::value) return false;
    if (!reads(loop.body, loop.state_name(i))) begin_as(loop, i + 1, next.id);
  }
  return true;
}

// Those which a state has in another size behind an iteration, or may have: where data decides, and the body does not say that it stays.
void Builder::find_changing_dims(RunTimeLoop& loop, const std::vector<Entry>& outputs) const {
  const tensor::Analyzer facts = graph_.facts();
  for (size_t i = 0; i < loop.states.size(); ++i) {
    const graph::Shape& before = graph_.value(loop.in_iteration[i + 1]).type.shape;
    const graph::Shape& after = graph_.value(outputs[static_cast<size_t>(loop.states[i]) + 1].id).type.shape;
    for (size_t d = 0; d < before.size() && before.size() == after.size(); ++d) {
      const std::optional<int64_t> difference = facts.constant_difference(after[d], before[d]);
      const bool may_differ = !difference && !graph_.are_equal(after[d], before[d]) &&
                              !declares_size(loop.body.output(loop.states[i] + 1), d, before[d]);
      if (may_differ || (difference && *difference != 0)) loop.changing.insert({i, d});
    }
  }
}

bool Builder::end_loop(const RunTimeLoop& loop, const std::vector<Entry>& outputs, Scope& scope) {
  Node end;
  end.op = graph::find_op("mcc", "LoopEnd");
  end.name = loop.name;
  end.origins = {loop.name};
  end.attributes.set("loop", static_cast<int64_t>(loop.begin));
  end.attributes.set("states", static_cast<int64_t>(loop.states.size()));
  end.inputs = {loop.most.kind == Entry::value ? as_sizes(loop.most.id) : kNoValue, kNoValue};
  // Where both hold, nobody asks for them.
  const bool holds =
      (loop.first.kind != Entry::value || is_known_to_hold(loop.first)) && is_known_to_hold(outputs[0]);
  if (outputs[0].kind == Entry::value && !holds) end.inputs[1] = outputs[0].id;
  if (loop.most.kind == Entry::absent && end.inputs[1] == kNoValue) {
    report(ErrorKind::bad_input, loop.where,
           "it has no end: no number of iterations, and its condition holds throughout");
    return false;
  }
  for (size_t i = 0; i < loop.states.size(); ++i) {
    const ValueId next = outputs[static_cast<size_t>(loop.states[i]) + 1].id;
    if (!keeps_type(loop, i, next)) return false;
    end.inputs.push_back(next);
    end.outputs.push_back(
        graph_.add_value(text(loop.name, ".", i), graph_.value(loop.in_iteration[i + 1]).type));
    for (const auto& [state, axis] : loop.changing)
      if (state == i) give_own_dim(end.outputs.back(), axis);
  }
  for (int k = loop.carried(); k < loop.node.output_size(); ++k) {
    const Entry& part = outputs[static_cast<size_t>(k) + 1];
    if (is_reported(part)) return false;
    if (part.kind != Entry::value) {
      report(ErrorKind::unsupported, loop.where, text("its output ", k, " is no tensor"));
      return false;
    }
    end.inputs.push_back(part.id);
    end.outputs.push_back(graph_.add_value(text(loop.name, ".", k), graph_.value(part.id).type));
    use_declared_dims(end.outputs.back(), loop.body.output(k + 1), loop.where);
  }
  add_trips(end, loop.states.size(), loop.limit);
  for (int k = 0; k < loop.carried(); ++k)
    if (!loop.node.output(k).empty()) scope.names[loop.node.output(k)] = loop.initial[static_cast<size_t>(k)];
  for (size_t i = 0; i < loop.states.size(); ++i)
    name_result(loop.node.output(loop.states[i]), end.outputs[i], scope);
  for (int k = loop.carried(); k < loop.node.output_size(); ++k)
    name_result(loop.node.output(k),
                end.outputs[loop.states.size() + static_cast<size_t>(k - loop.carried())], scope);
  append(std::move(end));
  return true;
}

// A state that no iteration reads may be anything before the first one, also of another type: where there is none, the run says so.
void Builder::begin_as(const RunTimeLoop& loop, size_t state, ValueId next) {
  const TensorType type = graph_.value(next).type;
  const ValueId in_iteration = loop.in_iteration[state];
  const TensorType& before = graph_.value(in_iteration).type;
  if ((before.element == type.element && before.shape.size() == type.shape.size()) ||
      graph_.depends_on_data(type.shape))
    return;
  graph_.value(in_iteration).type = type;
  const ValueId begin = zeros(graph_, text(graph_.value(in_iteration).name, ".begin"), type);
  graph_.node(loop.begin).inputs[state] = begin;
  for (const Entry& limit : {loop.most, loop.first}) {
    if (limit.kind != Entry::value || known(limit)) continue;
    const Expr times = graph_.value(as_sizes(limit.id)).elements.front();
    graph_.equalities.push_back({tensor::min(times, 1), Expr(1),
                                 text(loop.where, ": it has no iteration, and its state '",
                                      graph_.value(in_iteration).name, "' no value then")});
  }
}

// Dimensions that data decides have the sizes that the body says they have.
void Builder::use_declared_dims(ValueId v, const onnx::ValueInfoProto& output, const std::string& where) {
  graph::Shape& shape = graph_.value(v).type.shape;
  const auto& declared = output.type().tensor_type().shape();
  if (!output.type().has_tensor_type() || static_cast<size_t>(declared.dim_size()) != shape.size()) return;
  for (int d = 0; d < declared.dim_size(); ++d) {
    Expr& size = shape[static_cast<size_t>(d)];
    if (!declared.dim(d).has_dim_value() || declared.dim(d).dim_value() < 0 || !graph_.depends_on_data(size))
      continue;
    const Expr wanted = declared.dim(d).dim_value();
    graph_.equalities.push_back({size, wanted,
                                 text(where, ": its body's output '", output.name(), "': dimension ", d,
                                      " is not ", declared.dim(d).dim_value())});
    size = wanted;
  }
}

void Builder::name_result(const std::string& name, ValueId id, Scope& scope) {
  if (name.empty()) return;
  graph_.value(id).name = name;
  scope.names[name] = {Entry::value, id};
}

// Tensors of all iterations have their number as a first dimension.
void Builder::add_trips(const Node& end, size_t states, int64_t limit) {
  Expr trips;
  for (size_t i = states; i < end.outputs.size(); ++i) {
    if (!trips.defined())
      trips = graph_.add_data_dim(text(end.name, ".iterations"), {0, limit},
                                  {DimSource::Kind::node, end.outputs[i], 0, {}});
    graph::Shape shape = graph_.value(end.outputs[i]).type.shape;
    // Those of the last iteration; the run sees to it that all have the same.
    for (size_t d = 0; d < shape.size(); ++d)
      if (graph_.depends_on_data(shape[d]))
        shape[d] = graph_.add_data_dim(text(end.name, ".", i, ".", d + 1), {0, kEndless},
                                       {DimSource::Kind::node, end.outputs[i], 0, {}});
    shape.insert(shape.begin(), trips);
    graph_.value(end.outputs[i]).type.shape = shape;
  }
}

// Dimensions that data decides are compared in the run.
bool Builder::keeps_type(const RunTimeLoop& loop, size_t state, ValueId after) {
  const TensorType x = graph_.value(loop.in_iteration[state + 1]).type, y = graph_.value(after).type;
  if (x.element != y.element || x.shape.size() != y.shape.size()) {
    report(ErrorKind::unsupported, loop.where,
           text("how often it runs is not known at compile time, and its state '", loop.state_name(state),
                "' changes its type: ", to_text(x), " before an iteration, ", to_text(y), " behind it"));
    return false;
  }
  for (size_t d = 0; d < x.shape.size(); ++d) {
    if (loop.changing.contains({state, d}) || graph_.are_equal(x.shape[d], y.shape[d])) continue;
    graph_.equalities.push_back(
        {x.shape[d], y.shape[d],
         text(loop.where, ": its state '", loop.state_name(state), "' changes its shape: dimension ", d)});
  }
  return true;
}

}  // namespace mcc::frontend
