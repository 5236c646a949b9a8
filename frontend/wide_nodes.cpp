// Nodes of more operands or results than a kernel takes, as several nodes. A GPU's kernel has 4 KiB for its parameters, eight bytes for
// each tensor; long before that, kernels of many tensors take long to schedule and to compile.
#include <algorithm>

#include "frontend/graph_builder.h"
#include "onnx/defs/attr_proto_util.h"

namespace mcc::frontend {

using graph::Constant;

namespace {

// Of a kernel that chooses among its operands.
constexpr size_t kMostParts = 128;
// With conversions of each of them there are still not more operations than fuse() puts into a kernel.
constexpr size_t kMostTerms = 64;
// Each is computed by a loop nest of its own: schedules of many of them take more than linear time.
constexpr int kMostResults = 64;

bool is_reduction(const std::string& type) {
  return type == "Sum" || type == "Mean" || type == "Max" || type == "Min";
}

}  // namespace

bool Builder::divide_wide_node(const onnx::NodeProto& node, Scope& scope, const Origin& origin) {
  const std::string& type = node.op_type();
  if (type == "Split" && node.output_size() > kMostResults) return divide_split(node, scope, origin);
  const bool is_concat = type == "Concat";
  const size_t most = is_concat ? kMostParts : kMostTerms;
  if ((!is_concat && !is_reduction(type)) || static_cast<size_t>(node.input_size()) <= most) return false;
  std::vector<Entry> operands;
  for (const std::string& name : node.input()) {
    operands.push_back(scope.find(name));
    if (operands.back().kind == Entry::value) continue;
    // As one node it is said what is wrong with it.
    return false;
  }
  const size_t first = graph_.values.size();
  const Origin part = part_of(node, origin);
  const Entry result = is_concat ? concatenate_in_groups(std::move(operands), node, part)
                                 : reduce_in_groups(operands, type, part);
  if (result.kind != Entry::value) {
    give_up(node, scope);
  } else {
    take_over(node.output(0), result, first, scope);
  }
  return true;
}

Entry Builder::concatenate_in_groups(std::vector<Entry> parts, const onnx::NodeProto& node,
                                     const Origin& origin) {
  const onnx::AttributeProto* axis = find_attribute(node, "axis");
  while (parts.size() > 1) {
    std::vector<Entry> joined;
    for (size_t i = 0; i < parts.size(); i += kMostParts) {
      const auto begin = parts.begin() + static_cast<std::ptrdiff_t>(i);
      const std::vector<Entry> group(
          begin, begin + static_cast<std::ptrdiff_t>(std::min(kMostParts, parts.size() - i)));
      joined.push_back(group.size() == 1 ? group[0] : concatenate(group, axis ? axis->i() : 0, origin));
      if (joined.back().kind != Entry::value) return {};
    }
    parts = std::move(joined);
  }
  return parts[0];
}

// From the first on, as the node itself goes: sums round alike. So that those of halves do, too, they are f32 on the way.
Entry Builder::reduce_in_groups(const std::vector<Entry>& operands, const std::string& type,
                                const Origin& origin) {
  const ElementType element = graph_.value(operands[0].id).type.element;
  const bool is_mean = type == "Mean",
             is_wide = (is_mean || type == "Sum") && is_float(element) && byte_size(element) < 4;
  auto converted = [&](const Entry& x, ElementType to) {
    return is_wide ? make("Cast", {x}, {"to", onnx_of_element(to)}, origin) : x;
  };
  std::vector<Entry> group;
  for (size_t i = 0; i < operands.size(); ++i) {
    group.push_back(converted(operands[i], ElementType::f32));
    if (group.back().kind != Entry::value) return {};
    if (group.size() < kMostTerms && i + 1 < operands.size()) continue;
    group = {make(is_mean ? "Sum" : type, group, {}, origin)};
    if (group[0].kind != Entry::value) return {};
  }
  if (is_mean) {
    const Constant count =
        Constant::scalar(is_wide ? ElementType::f32 : element, static_cast<double>(operands.size()));
    group[0] = make("Div", {group[0], make_constant(count, text(origin.name, ".count"))}, {}, origin);
    if (group[0].kind != Entry::value) return {};
  }
  return converted(group[0], element);
}

bool Builder::divide_split(const onnx::NodeProto& node, Scope& scope, const Origin& origin) {
  const Entry operand = scope.find(node.input_size() > 0 ? node.input(0) : "");
  const Entry given = scope.find(node.input_size() > 1 ? node.input(1) : "");
  const onnx::AttributeProto* attribute = find_attribute(node, "axis");
  const onnx::AttributeProto* named = find_attribute(node, "num_outputs");
  if (operand.kind != Entry::value || (named && named->i() != node.output_size())) return false;
  const graph::Shape& shape = graph_.value(operand.id).type.shape;
  const auto rank = static_cast<int64_t>(shape.size());
  int64_t axis = attribute ? attribute->i() : 0, extent = 0;
  if (axis < 0) axis += rank;
  // As one node it is said what is wrong with it.
  if (axis < 0 || axis >= rank || !tensor::as_int(shape[static_cast<size_t>(axis)], &extent)) return false;
  const std::optional<std::vector<int64_t>> sizes = sizes_of_split(given, node.output_size(), extent);
  if (!sizes) return false;

  const Origin part = part_of(node, origin);
  int64_t begin = 0;
  for (int first = 0; first < node.output_size(); first += kMostResults) {
    const int last = std::min(first + kMostResults, node.output_size());
    const std::vector<int64_t> own(sizes->begin() + first, sizes->begin() + last);
    int64_t end = begin;
    for (int64_t size : own)
      end += size;
    Scope inner;
    inner.names["operand"] = slice(operand, axis, begin, end, part);
    inner.names["sizes"] = make_constant(Constant::ints(own), text(part.name, ".sizes"));
    onnx::NodeProto some;
    some.set_op_type("Split");
    some.add_input("operand");
    some.add_input("sizes");
    *some.add_attribute() = onnx::MakeAttribute("axis", axis);
    for (int i = first; i < last; ++i)
      some.add_output(node.output(i));
    add_node(some, inner, part);
    for (const std::string& name : some.output())
      if (!name.empty()) scope.names[name] = inner.find(name);
    begin = end;
  }
  return true;
}

// Nothing where they are no sizes of parts of the extent.
std::optional<std::vector<int64_t>> Builder::sizes_of_split(const Entry& given, int parts,
                                                            int64_t extent) const {
  std::vector<int64_t> sizes;
  int64_t left = extent;
  if (given.kind == Entry::absent) {
    // The last one is smaller where they are not equal.
    const int64_t size = (extent + parts - 1) / parts;
    sizes.assign(static_cast<size_t>(parts), size);
    sizes.back() = extent - size * (parts - 1);
  } else if (const Constant* values = known(given)) {
    sizes = values->to_ints();
  }
  if (sizes.size() != static_cast<size_t>(parts)) return std::nullopt;
  for (int64_t size : sizes) {
    if (size < 0 || size > left) return std::nullopt;
    left -= size;
  }
  return left == 0 ? std::optional(sizes) : std::nullopt;
}

}  // namespace mcc::frontend
