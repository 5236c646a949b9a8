// Sequences of tensors, and optional values. They exist while the graph is built: a sequence is the list of its tensors' entries, an
// optional value is what it holds or absent, so that operators on them are done here, and nothing of them is left for run time.
#include <algorithm>

#include "frontend/graph_builder.h"

namespace mcc::frontend {

using graph::Constant;

namespace {

int64_t integer_of(const onnx::NodeProto& node, const std::string& name, int64_t otherwise) {
  const onnx::AttributeProto* a = find_attribute(node, name);
  return a ? a->i() : otherwise;
}

}  // namespace

bool Builder::is_sequence_node(const onnx::NodeProto& node, const Scope& scope) const {
  static const std::set<std::string> kOperators = {"SequenceConstruct", "SequenceEmpty",      "SequenceInsert",
                                                   "SequenceErase",     "SequenceAt",         "SequenceLength",
                                                   "SplitToSequence",   "ConcatFromSequence", "Optional",
                                                   "OptionalHasElement", "OptionalGetElement"};
  if (kOperators.contains(node.op_type())) return true;
  if (node.op_type() != "Identity" || node.input_size() != 1 || node.input(0).empty()) return false;
  const Entry::Kind kind = scope.find(node.input(0)).kind;
  return kind == Entry::sequence || kind == Entry::absent;
}

void Builder::add_sequence_node(const onnx::NodeProto& node, Scope& scope, const Origin& origin) {
  std::vector<Entry> inputs;
  for (const std::string& name : node.input()) {
    inputs.push_back(scope.find(name));
    if (inputs.back().kind == Entry::unknown) return give_up(node, scope);
  }
  const size_t first = graph_.values.size(), problems = problems_.size();
  const Origin part = part_of(node, origin);
  Entry result = sequence_result(node, inputs, where_of(node, origin), part);
  // A tensor that was put in has a name already.
  if (result.kind == Entry::value && static_cast<size_t>(result.id) < first) result = make("Identity", {result}, {}, part);
  if (result.kind == Entry::unknown || problems_.size() > problems) return give_up(node, scope);
  take_over(node.output(0), result, first, scope);
}

Entry Builder::sequence_result(const onnx::NodeProto& node, const std::vector<Entry>& inputs, const std::string& where,
                               const Origin& part) {
  const std::string& type = node.op_type();
  auto refuse = [&](ErrorKind kind, std::string message) {
    report(kind, where, std::move(message));
    return Entry{};
  };
  if (type.starts_with("Optional")) return optional_result(type, inputs, where, part);
  if (type == "Identity") return inputs[0];
  if (type == "SequenceEmpty") return sequence_of({});
  if (type == "SequenceConstruct" || type == "SplitToSequence") {
    const bool are_tensors = std::all_of(inputs.begin(), inputs.end(), [](const Entry& e) { return e.kind != Entry::sequence && e.kind != Entry::labelled; });
    if (inputs.empty() || !are_tensors || inputs[0].kind != Entry::value) return refuse(ErrorKind::bad_input, "expected tensors");
    return type == "SequenceConstruct" ? sequence_of(inputs) : split_to_sequence(node, inputs, where, part);
  }
  if (inputs.empty() || inputs[0].kind != Entry::sequence) return refuse(ErrorKind::bad_input, "expected a sequence as its first operand");
  std::vector<Entry> items = *inputs[0].items;
  if (type == "SequenceLength") {
    const auto length = static_cast<int64_t>(items.size());
    return make_constant(Constant::of(ElementType::i64, {}, std::vector<int64_t>{length}), part.name);
  }
  if (type == "ConcatFromSequence") return join(items, node, where, part);
  // What is left takes a position: of what is there, or behind the last where something is put in.
  const bool is_insert = type == "SequenceInsert";
  const size_t at_input = is_insert ? 2 : 1;
  const int64_t count = static_cast<int64_t>(items.size()) + (is_insert ? 1 : 0);
  int64_t position = count - 1;
  if (inputs.size() > at_input && inputs[at_input].kind != Entry::absent) {
    const Constant* value = known(inputs[at_input]);
    if (!value || value->count() != 1) return refuse(ErrorKind::unsupported, "its position is not known at compile time");
    position = value->int_at(0);
    // From the end; behind the last is the length itself.
    if (position < 0) position += static_cast<int64_t>(items.size());
  }
  if (position < 0 || position >= count)
    return refuse(ErrorKind::bad_input, text("position ", position, " is not in a sequence of ", items.size()));
  if (type == "SequenceAt") return items[static_cast<size_t>(position)];
  if (is_insert && (inputs.size() < 2 || inputs[1].kind != Entry::value)) return refuse(ErrorKind::bad_input, "expected a tensor");
  if (is_insert) {
    items.insert(items.begin() + position, inputs[1]);
  } else {
    items.erase(items.begin() + position);
  }
  return sequence_of(std::move(items));
}

Entry Builder::optional_result(const std::string& type, const std::vector<Entry>& inputs, const std::string& where, const Origin& part) {
  const Entry held = inputs.empty() ? Entry{Entry::absent} : inputs[0];
  if (type == "Optional") return held;
  const bool is_there = held.kind != Entry::absent;
  if (type == "OptionalHasElement")
    return make_constant(Constant::of(ElementType::boolean, {}, std::vector<uint8_t>{is_there ? uint8_t{1} : uint8_t{0}}), part.name);
  if (!is_there) report(ErrorKind::bad_input, where, "its operand is an optional value that holds none");
  return is_there ? held : Entry{};
}

Entry Builder::sequence_of(std::vector<Entry> items) {
  Entry out;
  out.kind = Entry::sequence;
  out.items = std::make_shared<const std::vector<Entry>>(std::move(items));
  return out;
}

Entry Builder::join(const std::vector<Entry>& items, const onnx::NodeProto& node, const std::string& where, const Origin& part) {
  if (items.empty()) {
    report(ErrorKind::unsupported, where, "the sequence is empty");
    return {};
  }
  const int64_t axis = integer_of(node, "axis", 0);
  return integer_of(node, "new_axis", 0) != 0 ? stack(items, axis, part) : concatenate(items, axis, part);
}

Entry Builder::split_to_sequence(const onnx::NodeProto& node, const std::vector<Entry>& inputs, const std::string& where,
                                 const Origin& part) {
  const graph::Shape shape = graph_.value(inputs[0].id).type.shape;
  const auto rank = static_cast<int64_t>(shape.size());
  int64_t axis = integer_of(node, "axis", 0), extent = 0;
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) {
    report(ErrorKind::bad_input, where, text("axis: expected one of a tensor of rank ", rank, ", got ", integer_of(node, "axis", 0)));
    return {};
  }
  if (!tensor::as_int(shape[static_cast<size_t>(axis)], &extent)) {
    report_open(where, shape[static_cast<size_t>(axis)]);
    return {};
  }
  const bool is_even = inputs.size() < 2 || inputs[1].kind == Entry::absent;
  const Constant* split = is_even ? nullptr : known(inputs[1]);
  if (!is_even && !split) {
    report(ErrorKind::unsupported, where, "the sizes of its parts are not known at compile time");
    return {};
  }
  std::vector<int64_t> sizes;
  const bool is_list = split && split->shape().size() == 1;
  for (int64_t i = 0, left = extent; is_list ? i < split->count() : left > 0; ++i) {
    const int64_t size = split ? split->int_at(is_list ? i : 0) : 1;
    // The last of parts of one size may be smaller.
    if (size < (is_list ? 0 : 1) || (is_list && size > extent)) {
      report(ErrorKind::bad_input, where, text("split: expected sizes of parts of ", extent, ", got ", size));
      return {};
    }
    sizes.push_back(is_list ? size : std::min(size, left));
    left -= sizes.back();
  }
  // Without sizes, parts of one position may go without the axis.
  const bool keeps_axis = !is_even || integer_of(node, "keepdims", 1) != 0;
  std::vector<Entry> items;
  int64_t begin = 0;
  for (int64_t size : sizes) {
    items.push_back(keeps_axis ? slice(inputs[0], axis, begin, begin + size, part) : slice_at(inputs[0], axis, begin, part));
    if (items.back().kind != Entry::value) return {};
    begin += size;
  }
  if (begin != extent) {
    report(ErrorKind::bad_input, where, text("split: expected sizes that add up to ", extent, ", got ", begin));
    return {};
  }
  return sequence_of(std::move(items));
}

}  // namespace mcc::frontend
