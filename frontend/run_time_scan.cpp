// Scan whose number of iterations a run decides, as a Loop that picks its slices of the operands.
#include <climits>
#include <numeric>

#include "frontend/graph_builder.h"
#include "graph/elements.h"
#include "onnx/defs/attr_proto_util.h"
#include "tensor/text.h"

namespace mcc::frontend {

using graph::Constant;
using tensor::Expr;

namespace {

// Of what the model does not name: nothing else in the loop is called that.
std::string own_name(const std::string& what, int k = 0) { return text("mcc.scan.", what, ".", k); }

onnx::NodeProto* add_step(onnx::GraphProto& body, const std::string& type,
                          const std::vector<std::string>& inputs, const std::string& output) {
  onnx::NodeProto* step = body.add_node();
  step->set_op_type(type);
  for (const std::string& input : inputs)
    step->add_input(input);
  step->add_output(output);
  return step;
}

// As the model calls the scan: what is said of the loop is said of its node.
onnx::NodeProto loop_of(const onnx::NodeProto& scan, int states) {
  onnx::NodeProto loop;
  loop.set_op_type(scan.op_type());
  loop.set_domain(scan.domain());
  loop.set_name(scan.name());
  loop.add_input(own_name("length"));
  loop.add_input("");
  for (int k = 0; k < states; ++k)
    loop.add_input(scan.input(k));
  *loop.mutable_output() = scan.output();
  while (loop.output_size() < states)
    loop.add_output("");
  return loop;
}

}  // namespace

// The body of the loop: inputs (number, condition, states), outputs (condition, states, what is collected).
onnx::GraphProto Builder::loop_body_of(const ScanOperands& scan) {
  onnx::GraphProto body = scan.body;
  body.clear_input();
  const std::string number = own_name("number"), condition = own_name("condition"), back = own_name("back");
  onnx::ValueInfoProto* of_number = body.add_input();
  of_number->set_name(number);
  of_number->mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::INT64);
  of_number->mutable_type()->mutable_tensor_type()->mutable_shape();
  body.add_input()->set_name(condition);
  for (int k = 0; k < scan.states; ++k)
    *body.add_input() = scan.body.input(k);
  // Slices come first, as names of the body may be those of what is around it.
  body.clear_node();
  add_step(body, "Sub", {own_name("last"), number}, back);
  for (size_t k = 0; k < scan.axes.size(); ++k) {
    const auto position = static_cast<int>(k);
    onnx::NodeProto* pick =
        add_step(body, "Gather", {own_name("operand", position), scan.is_backward[k] ? back : number},
                 scan.body.input(scan.states + position).name());
    *pick->add_attribute() = onnx::MakeAttribute("axis", scan.axes[k]);
  }
  body.mutable_node()->MergeFrom(scan.body.node());
  body.clear_output();
  body.add_output()->set_name(condition);
  body.mutable_output()->MergeFrom(scan.body.output());
  return body;
}

void Builder::add_run_time_scan(const onnx::NodeProto& node, const ScanOperands& scan, Scope& scope,
                                const Origin& origin) {
  const Origin part = part_of(node, origin);
  const std::string name = name_of(node);
  Scope around;
  around.parent = &scope;
  // -1 counts from the end, as Gather does.
  around.names[own_name("last")] =
      make_constant(Constant::of(ElementType::i64, {}, std::vector<int64_t>{-1}), text(name, ".last"));
  for (size_t k = 0; k < scan.axes.size(); ++k)
    around.names[own_name("operand", static_cast<int>(k))] = scan.scanned(static_cast<int>(k));
  graph::Node most;
  most.name = text(name, ".length");
  most.origins = {name};
  most.outputs = {graph_.add_value(most.name, {ElementType::i64, {}})};
  graph::set_elements(graph_, most, {{scan.length}});
  around.names[own_name("length")] = {Entry::value, most.outputs[0]};

  const onnx::NodeProto loop = loop_of(node, scan.states);
  const onnx::GraphProto body = loop_body_of(scan);
  const size_t first_value = graph_.values.size();
  add_run_time_loop(loop, body, around, origin);

  for (int k = 0; k < node.output_size(); ++k) {
    if (node.output(k).empty()) continue;
    Entry result = around.find(loop.output(k));
    if (is_reported(result)) return give_up(node, scope);
    if (k >= scan.states) {
      // One iteration for each slice: who knows the length of the operands, knows that of the results.
      const Expr trips = graph_.value(result.id).type.shape.front();
      if (!graph_.are_equal(trips, scan.length))
        graph_.equalities.push_back({trips, scan.length, text(part.where, ": its number of iterations")});
      result = as_scanned(node, k - scan.states, result, part);
    }
    if (is_reported(result)) return give_up(node, scope);
    take_over(node.output(k), result, first_value, scope);
  }
}

// What a loop has collected, in the order and along the axis that the node's attributes say.
Entry Builder::as_scanned(const onnx::NodeProto& node, int output, Entry collected, const Origin& origin) {
  const auto rank = static_cast<int64_t>(graph_.value(collected.id).type.shape.size());
  int64_t axis = scan_number(node, "scan_output_axes", output);
  if (axis < -rank || axis >= rank) {
    report(ErrorKind::bad_input, origin.where,
           text("scan_output_axes: expected an axis of ", to_text(graph_.value(collected.id).type), ", got ",
                axis));
    return {};
  }
  if (axis < 0) axis += rank;
  if (scan_number(node, "scan_output_directions", output) != 0) {
    const auto list = [&](int64_t v) {
      return make_constant(Constant::ints({v}), text(origin.name, ".reverse"));
    };
    collected = make("Slice", {collected, list(-1), list(INT64_MIN), list(0), list(-1)}, {}, origin);
    if (is_reported(collected)) return collected;
  }
  if (axis == 0) return collected;
  std::vector<int64_t> perm(static_cast<size_t>(rank));
  std::iota(perm.begin(), perm.end(), 0);
  std::rotate(perm.begin(), perm.begin() + 1, perm.begin() + axis + 1);
  Scope scope;
  scope.names["collected"] = collected;
  onnx::NodeProto moved;
  moved.set_op_type("Transpose");
  moved.add_input("collected");
  moved.add_output(text(origin.name, ".Transpose"));
  *moved.add_attribute() = onnx::MakeAttribute("perm", perm);
  add_node(moved, scope, origin);
  return scope.find(moved.output(0));
}

}  // namespace mcc::frontend
