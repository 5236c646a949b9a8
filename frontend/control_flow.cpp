// If, Loop and Scan: what they run becomes part of the graph, as often as it runs.
#include <algorithm>

#include "frontend/graph_builder.h"
#include "tensor/text.h"

namespace mcc::frontend {

using graph::Constant;

namespace {

// Of a graph with bodies in it: more are refused, as compiling them would not end.
constexpr size_t kMostNodes = 100'000;
constexpr int64_t kMostIterations = 100'000;

const onnx::GraphProto* body_of(const onnx::NodeProto& node) {
  const onnx::AttributeProto* body = find_attribute(node, "body");
  return body && body->has_g() ? &body->g() : nullptr;
}

}  // namespace

bool Builder::is_one_bool(graph::ValueId id) const {
  const graph::TensorType& type = graph_.value(id).type;
  return type.element == ElementType::boolean && graph::is_static(type.shape) && graph::static_count(type.shape) == 1;
}

bool Builder::is_one_integer(graph::ValueId id) const {
  const graph::TensorType& type = graph_.value(id).type;
  return is_int(type.element) && graph::is_static(type.shape) && graph::static_count(type.shape) == 1;
}

void Builder::add_if(const onnx::NodeProto& node, Scope& scope, const Origin& origin) {
  const Entry condition = scope.find(node.input_size() ? node.input(0) : "");
  if (is_reported(condition)) return give_up(node, scope);
  const Constant* value = known(condition);
  if (!value && condition.kind == Entry::value && is_one_bool(condition.id)) return add_choice(node, condition.id, scope, origin);
  if (!value || value->count() != 1) {
    report(ErrorKind::bad_input, where_of(node, origin), "expected one bool as its condition");
    return give_up(node, scope);
  }
  const onnx::AttributeProto* branch = find_attribute(node, value->int_at(0) ? "then_branch" : "else_branch");
  if (!branch || !branch->has_g() || branch->g().output_size() < node.output_size()) {
    report(ErrorKind::bad_input, where_of(node, origin), "a branch is missing or has too few outputs");
    return give_up(node, scope);
  }
  Scope inner;
  inner.parent = &scope;
  const size_t first = graph_.values.size();
  add_initializers(branch->g(), inner);
  add_nodes(branch->g(), inner, origin);
  for (int i = 0; i < node.output_size(); ++i)
    take_over(node.output(i), inner.find(branch->g().output(i).name()), first, scope);
}

Entry Builder::stack_parts(const std::vector<Entry>& parts, int64_t axis, const onnx::ValueInfoProto& output, const Origin& origin) {
  if (!parts.empty()) return stack(parts, axis, origin);
  std::optional<graph::TensorType> type = static_type_of(output.type());
  if (!type) {
    report(ErrorKind::unsupported, origin.where,
           text("it has no iterations, and the shape of its body's output '", output.name(), "' is not known"));
    return {};
  }
  std::vector<int64_t> shape = graph::static_shape(type->shape);
  shape.insert(shape.begin() + (axis < 0 ? axis + static_cast<int64_t>(shape.size()) + 1 : axis), 0);
  return make_constant(Constant::zeros(type->element, shape), origin.name);
}

bool Builder::add_iteration(const onnx::GraphProto& body, const Scope& around, const std::vector<Entry>& inputs,
                            const Origin& origin, std::vector<Entry>& outputs) {
  Scope inner;
  inner.parent = &around;
  for (size_t i = 0; i < inputs.size(); ++i) inner.names[body.input(static_cast<int>(i)).name()] = inputs[i];
  const size_t problems = problems_.size();
  add_nodes(body, inner, origin);
  outputs.clear();
  for (const auto& output : body.output()) outputs.push_back(inner.find(output.name()));
  // Further iterations would say the same again.
  return problems_.size() == problems;
}

void Builder::add_loop(const onnx::NodeProto& node, Scope& scope, const Origin& origin) {
  const std::string where = where_of(node, origin);
  const onnx::GraphProto* body = body_of(node);
  const int carried = node.input_size() - 2;
  if (!body || carried < 0 || body->input_size() != carried + 2 || body->output_size() <= carried ||
      node.output_size() >= body->output_size()) {
    report(ErrorKind::bad_input, where, "its body is missing, or has other inputs and outputs than the loop");
    return give_up(node, scope);
  }
  const Entry most = scope.find(node.input(0)), first = scope.find(node.input(1));
  if (is_reported(most) || is_reported(first)) return give_up(node, scope);
  const bool are_numbers = (most.kind == Entry::absent || is_one_integer(most.id)) && (first.kind == Entry::absent || is_one_bool(first.id));
  if (!are_numbers) {
    report(ErrorKind::bad_input, where, "expected an integer (how often it runs at most) and a bool (whether it begins)");
    return give_up(node, scope);
  }
  auto is_known = [&](const Entry& entry) { return entry.kind == Entry::absent || known(entry); };
  if (!is_known(most) || !is_known(first)) return add_run_time_loop(node, *body, scope, origin);
  std::vector<Entry> values{{}, {}}, outputs;
  for (int i = 2; i < node.input_size(); ++i) values.push_back(scope.find(node.input(i)));
  const int64_t end = most.kind == Entry::absent ? INT64_MAX : known(most)->int_at(0);
  bool goes_on = first.kind == Entry::absent || known(first)->int_at(0) != 0;
  const Origin part = part_of(node, origin);
  const size_t first_value = graph_.values.size();
  const Mark start = mark();
  Scope around;
  around.parent = &scope;
  add_initializers(*body, around);
  std::vector<std::vector<Entry>> parts(static_cast<size_t>(body->output_size() - 1 - carried));
  for (int64_t i = 0; i < end && goes_on; ++i) {
    if (i == kMostIterations || graph_.nodes.size() > kMostNodes) {
      go_back(start);
      return add_run_time_loop(node, *body, scope, origin);
    }
    values[0] = make_constant(Constant::of(ElementType::i64, {}, std::vector<int64_t>{i}), text(part.name, ".iteration"));
    values[1] = make_constant(Constant::scalar(ElementType::boolean, 1), text(part.name, ".condition"));
    if (!add_iteration(*body, around, values, origin, outputs)) return give_up(node, scope);
    const Constant* condition = known(outputs[0]);
    if (is_reported(outputs[0])) return give_up(node, scope);
    if (!condition || condition->count() != 1) {
      go_back(start);
      return add_run_time_loop(node, *body, scope, origin);
    }
    goes_on = condition->int_at(0) != 0;
    for (int k = 0; k < carried; ++k) values[static_cast<size_t>(k) + 2] = outputs[static_cast<size_t>(k) + 1];
    for (size_t k = 0; k < parts.size(); ++k) parts[k].push_back(outputs[k + 1 + static_cast<size_t>(carried)]);
  }
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty()) continue;
    const bool is_carried = i < carried;
    const Entry entry = is_carried ? values[static_cast<size_t>(i) + 2]
                                   : stack_parts(parts[static_cast<size_t>(i - carried)], 0, body->output(i + 1), part);
    take_over(node.output(i), entry, first_value, scope);
  }
}

int64_t scan_number(const onnx::NodeProto& node, const std::string& name, int i) {
  const onnx::AttributeProto* a = find_attribute(node, name);
  return a && i < a->ints_size() ? a->ints(i) : 0;
}

std::optional<Builder::ScanOperands> Builder::read_scan(const onnx::NodeProto& node, const Scope& scope,
                                                        const std::string& where) {
  const onnx::GraphProto* body = body_of(node);
  const onnx::AttributeProto* count = find_attribute(node, "num_scan_inputs");
  const int64_t scanned = count ? count->i() : 0;
  const int64_t states = node.input_size() - scanned;
  if (!body || scanned < 1 || states < 0 || body->input_size() != node.input_size() || body->output_size() < states ||
      node.output_size() > body->output_size()) {
    report(ErrorKind::bad_input, where, "its body is missing, or has other inputs and outputs than the scan");
    return std::nullopt;
  }
  ScanOperands scan{*body, static_cast<int>(states), {}, {}, {}, {}};
  for (const std::string& name : node.input()) {
    scan.inputs.push_back(scope.find(name));
    const Entry::Kind kind = scan.inputs.back().kind;
    if (kind != Entry::value && kind != Entry::unknown)
      report(ErrorKind::bad_input, where, text("expected a tensor as its operand '", name, "'"));
    if (kind != Entry::value) return std::nullopt;
  }
  for (int k = 0; k < scanned; ++k) {
    const graph::TensorType& type = graph_.value(scan.scanned(k).id).type;
    const auto rank = static_cast<int64_t>(type.shape.size());
    int64_t axis = scan_number(node, "scan_input_axes", k);
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank) {
      report(ErrorKind::bad_input, where, text("scan_input_axes: expected an axis of ", to_text(type)));
      return std::nullopt;
    }
    scan.axes.push_back(axis);
    scan.is_backward.push_back(scan_number(node, "scan_input_directions", k) != 0);
  }
  return find_length(scan, where) ? std::optional(std::move(scan)) : std::nullopt;
}

// A number, where one of the operands has one; a run compares the others with it.
bool Builder::find_length(ScanOperands& scan, const std::string& where) {
  std::vector<tensor::Expr> lengths;
  for (size_t k = 0; k < scan.axes.size(); ++k)
    lengths.push_back(
        graph_.value(scan.scanned(static_cast<int>(k)).id).type.shape[static_cast<size_t>(scan.axes[k])]);
  int64_t number = 0, other = 0;
  const auto known = std::find_if(lengths.begin(), lengths.end(),
                                  [&](const tensor::Expr& e) { return tensor::as_int(e, &number); });
  scan.length = known == lengths.end() ? lengths.front() : *known;
  for (const tensor::Expr& length : lengths) {
    if (known != lengths.end() && tensor::as_int(length, &other)) {
      if (other == number) continue;
      report(ErrorKind::bad_input, where,
             text("expected operands of equal length along their axes, got ", number, " and ", other));
      return false;
    }
    if (!graph_.are_equal(length, scan.length))
      graph_.equalities.push_back({length, scan.length,
                                   text(where, ": expected operands of equal length along their axes, ",
                                        tensor::to_text(length), " and ", tensor::to_text(scan.length))});
    scan.is_open = true;
  }
  return true;
}

void Builder::add_scan(const onnx::NodeProto& node, Scope& scope, const Origin& origin) {
  const std::optional<ScanOperands> scan = read_scan(node, scope, where_of(node, origin));
  if (!scan) return give_up(node, scope);
  if (scan->is_open) return add_run_time_scan(node, *scan, scope, origin);
  int64_t length = 0;
  tensor::as_int(scan->length, &length);
  const Origin part = part_of(node, origin);
  const size_t first_value = graph_.values.size();
  const Mark start = mark();
  Scope around;
  around.parent = &scope;
  add_initializers(scan->body, around);
  const auto states = static_cast<size_t>(scan->states);
  std::vector<Entry> values(scan->inputs.begin(), scan->inputs.begin() + scan->states), outputs;
  std::vector<std::vector<Entry>> parts(static_cast<size_t>(scan->body.output_size()) - states);
  for (int64_t i = 0; i < length; ++i) {
    if (i == kMostIterations || graph_.nodes.size() > kMostNodes) {
      go_back(start);
      return add_run_time_scan(node, *scan, scope, origin);
    }
    values.resize(states);
    for (size_t k = 0; k < scan->axes.size(); ++k)
      values.push_back(slice_at(scan->scanned(static_cast<int>(k)), scan->axes[k],
                                scan->is_backward[k] ? length - 1 - i : i, part));
    if (!add_iteration(scan->body, around, values, origin, outputs)) return give_up(node, scope);
    std::copy_n(outputs.begin(), states, values.begin());
    for (size_t k = 0; k < parts.size(); ++k)
      parts[k].push_back(outputs[k + states]);
  }
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty()) continue;
    if (i < scan->states) {
      take_over(node.output(i), values[static_cast<size_t>(i)], first_value, scope);
      continue;
    }
    const int k = i - scan->states;
    std::vector<Entry>& of_output = parts[static_cast<size_t>(k)];
    if (scan_number(node, "scan_output_directions", k) != 0) std::reverse(of_output.begin(), of_output.end());
    take_over(node.output(i),
              stack_parts(of_output, scan_number(node, "scan_output_axes", k), scan->body.output(i), part),
              first_value, scope);
  }
}

}  // namespace mcc::frontend
