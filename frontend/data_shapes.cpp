// Nodes whose results have as many elements as data say: an operator of our own gives as many as there may be and their number, and
// what the node gives is the beginning of it.
#include <cmath>

#include "frontend/graph_builder.h"

namespace mcc::frontend {

using graph::Constant;

bool Builder::add_data_shaped_node(const onnx::NodeProto& node, Scope& scope, const Origin& origin) {
  const std::string& type = node.op_type();
  const size_t first = graph_.values.size();
  const Origin part = part_of(node, origin);
  std::vector<Entry> inputs, results;
  for (const std::string& name : node.input())
    inputs.push_back(scope.find(name));
  if (type == "NonMaxSuppression") {
    results = {select_boxes(node, inputs, part)};
  } else if (type == "Unique") {
    results = find_unique(node, inputs, part);
  } else if (type == "NonZero") {
    results = {find_nonzero(inputs, part)};
  } else if (type == "Range") {
    results = {range_of_integers(inputs, part)};
    if (results[0].kind == Entry::absent) return false;
  } else if (type == "Compress") {
    results = {compress(node, inputs, part)};
  } else {
    return false;
  }
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty()) continue;
    const Entry result = static_cast<size_t>(i) < results.size() ? results[static_cast<size_t>(i)] : Entry{};
    if (result.kind != Entry::value) {
      give_up(node, scope);
      return true;
    }
  }
  for (int i = 0; i < node.output_size(); ++i)
    if (!node.output(i).empty()) take_over(node.output(i), results[static_cast<size_t>(i)], first, scope);
  return true;
}

Entry Builder::select_boxes(const onnx::NodeProto& node, const std::vector<Entry>& inputs,
                            const Origin& origin) {
  const std::vector<Entry> found = make_own("SelectBoxes", inputs, node, {true, true}, origin);
  return beginning(found[0], found[1], 0, origin);
}

std::vector<Entry> Builder::find_unique(const onnx::NodeProto& node, const std::vector<Entry>& inputs,
                                        const Origin& origin) {
  constexpr int kResults = 4, kGroup = 2;  // of each item there is its group
  std::vector<bool> wanted;
  for (int i = 0; i < kResults; ++i)
    wanted.push_back(i < node.output_size() && !node.output(i).empty());
  wanted.push_back(true);
  std::vector<Entry> found = make_own("Unique", inputs, node, wanted, origin);
  const onnx::AttributeProto* axis = find_attribute(node, "axis");
  for (int i = 0; i < kResults; ++i) {
    Entry& result = found[static_cast<size_t>(i)];
    if (wanted[static_cast<size_t>(i)] && i != kGroup)
      result = beginning(result, found[kResults], i == 0 && axis ? axis->i() : 0, origin);
  }
  return found;
}

Entry Builder::flatten(const Entry& x, const Origin& origin) {
  return make("Reshape", {x, make_constant(Constant::ints({-1}), text(origin.name, ".shape"))}, {}, origin);
}

// Of the elements that are not 0, of a tensor with one axis: neighbours are found faster than by their coordinates.
Entry Builder::set_positions(const Entry& x, const Origin& origin) {
  const std::vector<Entry> found = make_own("SetPositions", {x}, {}, {true, true}, origin);
  return beginning(found[0], found[1], 0, origin);
}

Entry Builder::find_nonzero(const std::vector<Entry>& inputs, const Origin& origin) {
  const Entry positions = set_positions(flatten(inputs[0], origin), origin);
  if (positions.kind != Entry::value) return {};
  const Entry shape = make("Shape", {inputs[0]}, {}, origin);
  return make_own("Coordinates", {positions, shape}, {}, {true}, origin)[0];
}

Entry Builder::compress(const onnx::NodeProto& node, const std::vector<Entry>& inputs, const Origin& origin) {
  const Entry positions = set_positions(inputs[1], origin);
  if (positions.kind != Entry::value) return {};
  if (const onnx::AttributeProto* axis = find_attribute(node, "axis"))
    return make("Gather", {inputs[0], positions}, {"axis", axis->i()}, origin);
  return make("Gather", {flatten(inputs[0], origin), positions}, {"axis", 0}, origin);
}

// Of floats that are integers converted: the range of these, converted. The start may have a fraction, which is added after. Absent: they
// are not.
Entry Builder::range_of_integers(const std::vector<Entry>& inputs, const Origin& origin) {
  double fraction = 0;
  std::vector<Entry> integers;
  for (const Entry& input : inputs) {
    if (input.kind != Entry::value) return {Entry::absent};
    const graph::Value& value = graph_.value(input.id);
    if (const Constant* number = known(input)) {
      double x = number->count() == 1 ? number->number_at(0) : 0.5;
      const Constant* step = known(inputs[2]);
      // An integer limit is as many integer steps from the whole number before it.
      if (integers.empty() && step && step->count() == 1) {
        const double whole = step->number_at(0) > 0 ? std::floor(x) : std::ceil(x);
        fraction = x - whole;
        x = whole;
      }
      if (x != std::floor(x) || std::fabs(x) >= 0x1p53) return {Entry::absent};
      integers.push_back(make_constant(Constant::scalar(ElementType::i64, x), text(origin.name, ".number")));
      continue;
    }
    const graph::Node* cast = value.producer < 0 ? nullptr : &graph_.node(value.producer);
    if (!is_float(value.type.element) || !cast || cast->op->name != "Cast") return {Entry::absent};
    const Entry source{Entry::value, cast->inputs[0]};
    const ElementType element = graph_.value(source.id).type.element;
    if (!is_int(element)) return {Entry::absent};
    integers.push_back(element == ElementType::i64
                           ? source
                           : make("Cast", {source}, {"to", onnx_of_element(ElementType::i64)}, origin));
  }
  const ElementType element = graph_.value(inputs[0].id).type.element;
  const Entry range = make("Range", integers, {}, origin);
  if (range.kind != Entry::value) return {};
  const Entry numbers = make("Cast", {range}, {"to", onnx_of_element(element)}, origin);
  if (fraction == 0) return numbers;
  return make("Add",
              {numbers, make_constant(Constant::scalar(element, fraction), text(origin.name, ".fraction"))},
              {}, origin);
}

std::vector<Entry> Builder::make_own(const std::string& type, const std::vector<Entry>& inputs,
                                     const onnx::NodeProto& like, const std::vector<bool>& outputs,
                                     const Origin& origin) {
  Scope scope;
  onnx::NodeProto node;
  node.set_op_type(type);
  node.set_domain("mcc");
  *node.mutable_attribute() = like.attribute();
  for (const Entry& input : inputs) {
    const std::string name = input.kind == Entry::absent ? "" : text("input_", node.input_size());
    if (!name.empty()) scope.names[name] = input;
    node.add_input(name);
  }
  for (const bool is_wanted : outputs)
    node.add_output(is_wanted ? text(origin.name, ".", type, "_", node.output_size()) : "");
  add_node(node, scope, origin);
  std::vector<Entry> results;
  for (const std::string& output : node.output())
    results.push_back(scope.find(output));
  return results;
}

Entry Builder::beginning(const Entry& padded, const Entry& count, int64_t axis, const Origin& origin) {
  if (padded.kind != Entry::value || count.kind != Entry::value) return {};
  const std::string name = text(origin.name, ".beginning");
  const Entry from = make_constant(Constant::ints({0}), name),
              along = make_constant(Constant::ints({axis}), name);
  const Entry end = make("Unsqueeze", {count, from}, {}, origin);
  if (end.kind != Entry::value) return {};
  return make("Slice", {padded, from, end, along}, {}, origin);
}

}  // namespace mcc::frontend
