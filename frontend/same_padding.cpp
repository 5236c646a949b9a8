// Windows whose padding depends on the size of what they slide over: auto_pad = SAME_* with a stride, of an open dimension. The padding is a
// node of its own, whose amounts follow from the size:
//   total = max((ceil(size / stride) - 1) * stride + reach - size, 0) = max(reach - 1 - (size - 1) mod stride, 0)
#include <limits>

#include "frontend/graph_builder.h"

namespace mcc::frontend {

using graph::Constant;

namespace {

std::vector<int64_t> integers(const onnx::NodeProto& node, const char* name, size_t count) {
  const onnx::AttributeProto* attribute = find_attribute(node, name);
  if (attribute == nullptr) return std::vector<int64_t>(count, 1);
  return {attribute->ints().begin(), attribute->ints().end()};
}

void drop_attribute(onnx::NodeProto& node, const std::string& name) {
  auto& attributes = *node.mutable_attribute();
  for (int i = attributes.size(); i-- > 0;)
    if (attributes[i].name() == name) attributes.DeleteSubrange(i, 1);
}

}  // namespace

void Builder::spell_out_padding(graph::Node& node) const {
  const std::string_view type = node.op->name;
  const std::string mode = node.attributes.text("auto_pad", "");
  if ((type != "Conv" && type != "MaxPool" && type != "AveragePool") ||
      (mode != "SAME_UPPER" && mode != "SAME_LOWER"))
    return;
  const graph::Shape& image = graph_.value(node.inputs[0]).type.shape;
  if (graph::is_static(image) || image.size() < 3) return;
  const size_t rank = image.size() - 2;
  const std::vector<int64_t> ones(rank, 1);
  std::vector<int64_t> reach = node.attributes.integers("kernel_shape", {});
  if (reach.empty() && type == "Conv" && node.inputs.size() > 1) {
    const graph::Shape& w = graph_.value(node.inputs[1]).type.shape;
    if (w.size() == rank + 2 && graph::is_static(w))
      reach = graph::static_shape(graph::Shape(w.begin() + 2, w.end()));
  }
  const std::vector<int64_t> dilations = node.attributes.integers("dilations", ones);
  if (reach.size() != rank || dilations.size() != rank || node.attributes.integers("strides", ones) != ones)
    return;
  std::vector<int64_t> pads(2 * rank);
  for (size_t k = 0; k < rank; ++k) {
    const int64_t total = (reach[k] - 1) * dilations[k], half = total / 2;
    pads[k] = mode == "SAME_UPPER" ? half : total - half;
    pads[rank + k] = total - pads[k];
  }
  node.attributes.erase("auto_pad");
  node.attributes.set("pads", pads);
}

bool Builder::pad_for_same(const onnx::NodeProto& node, Scope& scope, const Origin& origin) {
  const std::string& type = node.op_type();
  const bool is_average = type == "AveragePool";
  if ((type != "Conv" && type != "MaxPool" && !is_average) || node.output_size() != 1) return false;
  const onnx::AttributeProto* mode = find_attribute(node, "auto_pad");
  if (mode == nullptr || (mode->s() != "SAME_UPPER" && mode->s() != "SAME_LOWER")) return false;
  const Entry x = scope.find(node.input(0));
  if (x.kind != Entry::value) return false;
  const graph::TensorType image = graph_.value(x.id).type;
  if (image.shape.size() < 3) return false;
  const size_t rank = image.shape.size() - 2;
  std::vector<int64_t> reach = integers(node, "kernel_shape", 0);
  if (reach.empty() && type == "Conv") {
    const Entry w = scope.find(node.input(1));
    if (w.kind != Entry::value) return false;
    const graph::Shape& shape = graph_.value(w.id).type.shape;
    if (shape.size() != rank + 2 || !graph::is_static(shape)) return false;
    reach = graph::static_shape(graph::Shape(shape.begin() + 2, shape.end()));
  }
  const std::vector<int64_t> strides = integers(node, "strides", rank),
                             dilations = integers(node, "dilations", rank);
  if (reach.size() != rank || strides.size() != rank || dilations.size() != rank) return false;
  for (size_t k = 0; k < rank; ++k) {
    if (reach[k] < 1 || strides[k] < 1 || dilations[k] < 1) return false;
    reach[k] = (reach[k] - 1) * dilations[k] + 1;
  }

  const Origin part = part_of(node, origin);
  const auto numbers = [&](const std::vector<int64_t>& values) {
    return make_constant(Constant::ints(values), text(part.name, ".numbers"));
  };
  const auto compute = [&](const char* operation, const Entry& a, const Entry& b) {
    return make(operation, {a, b}, {}, part);
  };
  const Entry one = numbers({1}), two = numbers({2}), none = numbers({0});
  const Entry size = slice(make("Shape", {x}, {}, part), 0, 2, static_cast<int64_t>(rank) + 2, part);
  std::vector<int64_t> most(rank);
  bool may_step_over = false;  // the end of what is inside
  for (size_t k = 0; k < rank; ++k) {
    most[k] = reach[k] - 1;
    may_step_over |= reach[k] < strides[k];
  }
  const Entry last_step = compute("Mod", compute("Sub", size, one), numbers(strides));
  Entry total = compute("Sub", numbers(most), last_step);
  if (may_step_over) total = compute("Max", total, none);
  const Entry half = compute("Div", total, two), rest = compute("Sub", total, half);
  const bool is_upper = mode->s() == "SAME_UPPER";
  const Entry outside = numbers({0, 0});
  const Entry pads = concatenate({outside, is_upper ? half : rest, outside, is_upper ? rest : half}, 0, part);
  // Pooling takes floats and bytes.
  const double least = is_float(image.element)            ? -std::numeric_limits<double>::infinity()
                       : image.element == ElementType::u8 ? 0
                                                          : -128;
  const double value = type == "MaxPool" ? least : 0;
  const Entry filling = make_constant(Constant::scalar(image.element, value), text(part.name, ".filling"));
  const auto padded = [&](const Entry& of) { return make("Pad", {of, pads, filling}, {}, part); };

  onnx::NodeProto plain = node;
  drop_attribute(plain, "auto_pad");
  drop_attribute(plain, "pads");
  const auto slide = [&](const Entry& over) {
    Scope inner;
    onnx::NodeProto window = plain;
    for (int i = 0; i < node.input_size(); ++i) {
      if (!node.input(i).empty()) inner.names[node.input(i)] = scope.find(node.input(i));
    }
    window.set_input(0, text(part.name, ".padded"));
    inner.names[window.input(0)] = over;
    add_node(window, inner, origin);
    return inner.find(window.output(0));
  };
  const size_t first = graph_.values.size();
  Entry result = slide(padded(x));
  const onnx::AttributeProto* counts_padding = find_attribute(node, "count_include_pad");
  if (is_average && result.kind == Entry::value && (counts_padding == nullptr || counts_padding->i() == 0)) {
    // A mean of what is inside: by the share of each window that is.
    std::vector<Entry> extents{numbers({1, 1}), size};
    const Entry ones = make("Expand",
                            {make_constant(Constant::scalar(image.element, 1), text(part.name, ".one")),
                             concatenate(extents, 0, part)},
                            {}, part);
    result = compute("Div", result, slide(padded(ones)));
  }
  if (result.kind != Entry::value) {
    give_up(node, scope);
    return true;
  }
  take_over(node.output(0), result, first, scope);
  return true;
}

}  // namespace mcc::frontend
