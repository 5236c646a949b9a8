// Scan of opset 8: for each sequence of a batch the body runs as often as the sequence is long. What it runs becomes part of the graph.
//
//   inputs: lengths of the sequences (may be left out), states [batch, ...], operands that are scanned [batch, time, ...]
//   outputs: states [batch, ...], what iterations make [batch, time, ...], which is 0 behind the end of a sequence
#include "frontend/graph_builder.h"

namespace mcc::frontend {

using graph::Constant;

struct Builder::BatchedScan {
  const onnx::NodeProto& node;
  const onnx::GraphProto& body;
  const Origin& origin;
  Origin part;
  std::string where;
  Entry lengths;
  std::vector<Entry> states, scanned;
  int64_t batch = 0, time = 0;
};

namespace {

constexpr size_t kMostNodes = 100'000;

bool goes_backwards(const onnx::NodeProto& node, size_t k) {
  const onnx::AttributeProto* directions = find_attribute(node, "directions");
  return directions && static_cast<int>(k) < directions->ints_size() &&
         directions->ints(static_cast<int>(k)) != 0;
}

}  // namespace

std::optional<Builder::BatchedScan> Builder::read_batched_scan(const onnx::NodeProto& node,
                                                               const Scope& scope, const Origin& origin) {
  const std::string where = where_of(node, origin);
  const onnx::AttributeProto *body = find_attribute(node, "body"),
                             *count = find_attribute(node, "num_scan_inputs");
  const int64_t scanned = count ? count->i() : 0, states = node.input_size() - 1 - scanned;
  if (!body || !body->has_g() || scanned < 1 || states < 0 ||
      body->g().input_size() != node.input_size() - 1 || body->g().output_size() < states ||
      node.output_size() > body->g().output_size()) {
    report(ErrorKind::bad_input, where, "its body is missing, or has other inputs and outputs than the scan");
    return std::nullopt;
  }
  BatchedScan scan{node, body->g(), origin, part_of(node, origin), where, scope.find(node.input(0)), {}, {}};
  if (is_reported(scan.lengths)) return std::nullopt;
  for (int i = 1; i < node.input_size(); ++i) {
    const bool is_state = i <= states;
    const size_t own_dims = is_state ? 1 : 2;
    const Entry operand = scope.find(node.input(i));
    if (is_reported(operand)) return std::nullopt;
    if (operand.kind != Entry::value || graph_.value(operand.id).type.shape.size() < own_dims) {
      report(ErrorKind::bad_input, where,
             text("expected a tensor with ",
                  is_state ? "a dimension of the batch" : "dimensions of the batch and of time",
                  " as its operand '", node.input(i), "'"));
      return std::nullopt;
    }
    const graph::Shape& shape = graph_.value(operand.id).type.shape;
    const bool is_first = i == 1, is_first_scanned = i == states + 1;
    for (size_t d = 0; d < own_dims; ++d) {
      int64_t extent = 0;
      if (!tensor::as_int(shape[d], &extent)) {
        report_open(where, shape[d]);
        return std::nullopt;
      }
      int64_t& expected = d == 0 ? scan.batch : scan.time;
      if (d == 0 ? is_first : is_first_scanned) expected = extent;
      if (extent == expected) continue;
      report(
          ErrorKind::bad_input, where,
          text("expected operands of one ", d == 0 ? "batch" : "time", ", got ", expected, " and ", extent));
      return std::nullopt;
    }
    (is_state ? scan.states : scan.scanned).push_back(operand);
  }
  return scan;
}

bool Builder::check_lengths(const BatchedScan& scan) {
  if (scan.lengths.kind == Entry::absent) return true;
  const bool are_lengths = scan.lengths.kind == Entry::value &&
                           is_int(graph_.value(scan.lengths.id).type.element) &&
                           graph_.value(scan.lengths.id).type.shape.size() == 1 &&
                           tensor::is_int(graph_.value(scan.lengths.id).type.shape[0], scan.batch);
  if (!are_lengths) {
    report(ErrorKind::bad_input, scan.where,
           text("expected ", scan.batch, " integers as the lengths of its sequences"));
    return false;
  }
  const Constant* lengths = known(scan.lengths);
  for (int64_t i = 0; lengths && i < lengths->count(); ++i) {
    if (lengths->int_at(i) >= 0 && lengths->int_at(i) <= scan.time) continue;
    report(ErrorKind::bad_input, scan.where,
           text("expected lengths of sequences from 0 to ", scan.time, ", got ", lengths->int_at(i)));
    return false;
  }
  return true;
}

// Backwards is from the end of each sequence.
Entry Builder::reversed_sequences(const BatchedScan& scan, const Entry& operand) {
  Entry lengths = scan.lengths;
  if (lengths.kind == Entry::absent)
    lengths = make_constant(Constant::ints(std::vector<int64_t>(static_cast<size_t>(scan.batch), scan.time)),
                            text(scan.part.name, ".lengths"));
  Scope scope;
  scope.names = {{"x", operand}, {"lengths", lengths}};
  onnx::NodeProto node;
  node.set_op_type("ReverseSequence");
  node.add_input("x");
  node.add_input("lengths");
  node.add_output(text(scan.part.name, ".reversed"));
  for (const auto& [name, axis] : {std::pair{"batch_axis", 0}, std::pair{"time_axis", 1}}) {
    onnx::AttributeProto& a = *node.add_attribute();
    a.set_name(name);
    a.set_type(onnx::AttributeProto::INT);
    a.set_i(axis);
  }
  add_node(node, scope, scan.part);
  return scope.find(node.output(0));
}

Entry Builder::while_in_sequence(const Entry& is_in, const Entry& of_iteration, const Entry& otherwise,
                                 const Origin& origin) {
  const Constant* value = known(is_in);
  if (value) return value->int_at(0) != 0 ? of_iteration : otherwise;
  return make("Where", {is_in, of_iteration, otherwise}, {}, origin);
}

bool Builder::scan_sequence(const BatchedScan& scan, int64_t batch, const Scope& around,
                            std::vector<std::vector<Entry>>& results) {
  const Origin& part = scan.part;
  std::vector<Entry> states, operands, outputs;
  for (const Entry& state : scan.states)
    states.push_back(slice_at(state, 0, batch, part));
  for (const Entry& operand : scan.scanned)
    operands.push_back(slice_at(operand, 0, batch, part));
  const bool may_end = scan.lengths.kind != Entry::absent;
  const Entry length = may_end ? slice_at(scan.lengths, 0, batch, part) : Entry{};
  std::vector<std::vector<Entry>> rows(results.size() - states.size());
  for (int64_t t = 0; t < scan.time; ++t) {
    if (graph_.nodes.size() > kMostNodes) {
      report(ErrorKind::unsupported, scan.where,
             text("its iterations become part of the graph, and there are too many of them: ", scan.batch,
                  " x ", scan.time));
      return false;
    }
    std::vector<Entry> inputs = states;
    for (const Entry& operand : operands)
      inputs.push_back(slice_at(operand, 0, t, part));
    if (!add_iteration(scan.body, around, inputs, scan.origin, outputs)) return false;
    for (const Entry& output : outputs)
      if (output.kind != Entry::value) return false;
    Entry is_in;
    if (may_end) {
      const graph::TensorType type = graph_.value(length.id).type;
      is_in = make(
          "Less",
          {make_constant(Constant::scalar(type.element, static_cast<double>(t)), text(part.name, ".time")),
           length},
          {}, part);
    }
    for (size_t i = 0; i < states.size(); ++i)
      states[i] = may_end ? while_in_sequence(is_in, outputs[i], states[i], part) : outputs[i];
    for (size_t k = 0; k < rows.size(); ++k) {
      Entry row = outputs[states.size() + k];
      if (may_end) {
        const Constant* value = known(is_in);
        const Entry zero =
            make_constant(Constant::zeros(graph_.value(row.id).type.element, {}), text(part.name, ".zero"));
        if (!value || value->int_at(0) == 0) row = make("Where", {is_in, row, zero}, {}, part);
      }
      rows[k].push_back(row);
    }
  }
  for (size_t i = 0; i < states.size(); ++i)
    results[i].push_back(states[i]);
  for (size_t k = 0; k < rows.size(); ++k)
    results[states.size() + k].push_back(
        stack_parts(rows[k], 0, scan.body.output(static_cast<int>(states.size() + k)), part));
  return true;
}

void Builder::add_batched_scan(const onnx::NodeProto& moved, Scope& scope, const Origin& origin) {
  onnx::NodeProto node = moved;
  node.clear_domain();  // as the model has it, for what is said of it
  std::optional<BatchedScan> scan = read_batched_scan(node, scope, origin);
  if (!scan || !check_lengths(*scan)) return give_up(node, scope);
  if (scan->batch == 0) {
    report(ErrorKind::unsupported, scan->where, "a batch of no sequences is not supported");
    return give_up(node, scope);
  }
  const size_t first_value = graph_.values.size();
  Scope around;
  around.parent = &scope;
  add_initializers(scan->body, around);
  for (size_t k = 0; k < scan->scanned.size(); ++k)
    if (goes_backwards(node, k)) scan->scanned[k] = reversed_sequences(*scan, scan->scanned[k]);
  // Of each result, that of each sequence.
  std::vector<std::vector<Entry>> results(static_cast<size_t>(scan->body.output_size()));
  for (int64_t b = 0; b < scan->batch; ++b)
    if (!scan_sequence(*scan, b, around, results)) return give_up(node, scope);
  for (int i = 0; i < node.output_size(); ++i)
    if (!node.output(i).empty())
      take_over(node.output(i), stack(results[static_cast<size_t>(i)], 0, scan->part), first_value, scope);
}

}  // namespace mcc::frontend
