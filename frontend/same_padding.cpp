// Windows whose padding depends on the size of what they slide over: auto_pad = SAME_* with a stride, of an open dimension. The padding is a
// node of its own, whose amounts follow from the size:
//   total = max((ceil(size / stride) - 1) * stride + reach - size, 0) = max(reach - 1 - (size - 1) mod stride, 0)
#include <algorithm>
#include <limits>
#include <optional>

#include "frontend/graph_builder.h"

namespace mcc::frontend {

using graph::Constant;
using graph::kNoValue;
using graph::Node;

namespace {

void drop_attribute(onnx::NodeProto& node, const std::string& name) {
  auto& attributes = *node.mutable_attribute();
  for (int i = attributes.size(); i-- > 0;)
    if (attributes[i].name() == name) attributes.DeleteSubrange(i, 1);
}

// Along each spatial axis.
struct CoveringWindow {
  bool is_upper = false;  // an odd element of padding goes to the end
  std::vector<int64_t> reach, strides;
};

// Nothing for other nodes, and those whose numbers do not fit together: the operator says what is wrong with them.
std::optional<CoveringWindow> covering_window(const graph::Graph& graph, const Node& node) {
  const std::string_view type = node.op->name;
  const graph::Attributes& a = node.attributes;
  const std::string mode = a.text("auto_pad", "");
  if ((type != "Conv" && type != "MaxPool" && type != "AveragePool") ||
      (mode != "SAME_UPPER" && mode != "SAME_LOWER") || node.inputs.empty() || node.inputs[0] == kNoValue)
    return std::nullopt;
  const graph::Shape& image = graph.value(node.inputs[0]).type.shape;
  if (graph::is_static(image) || image.size() < 3) return std::nullopt;
  const size_t rank = image.size() - 2;
  const std::vector<int64_t> ones(rank, 1), dilations = a.integers("dilations", ones);
  CoveringWindow window{mode == "SAME_UPPER", a.integers("kernel_shape", {}), a.integers("strides", ones)};
  if (window.reach.empty() && type == "Conv" && node.inputs.size() > 1 && node.inputs[1] != kNoValue) {
    const graph::Shape& weights = graph.value(node.inputs[1]).type.shape;
    if (weights.size() == rank + 2 && graph::is_static(weights))
      window.reach = graph::static_shape(graph::Shape(weights.begin() + 2, weights.end()));
  }
  if (window.reach.size() != rank || window.strides.size() != rank || dilations.size() != rank)
    return std::nullopt;
  for (size_t k = 0; k < rank; ++k) {
    if (window.reach[k] < 1 || window.strides[k] < 1 || dilations[k] < 1) return std::nullopt;
    window.reach[k] = (window.reach[k] - 1) * dilations[k] + 1;
  }
  return window;
}

}  // namespace

void Builder::spell_out_padding(Node& node) const {
  const std::optional<CoveringWindow> window = covering_window(graph_, node);
  if (!window) return;
  const size_t rank = window->reach.size();
  if (std::any_of(window->strides.begin(), window->strides.end(), [](int64_t stride) { return stride != 1; }))
    return;
  std::vector<int64_t> pads(2 * rank);
  for (size_t k = 0; k < rank; ++k) {
    const int64_t total = window->reach[k] - 1, half = total / 2;
    pads[k] = window->is_upper ? half : total - half;
    pads[rank + k] = total - pads[k];
  }
  node.attributes.erase("auto_pad");
  node.attributes.set("pads", pads);
}

bool Builder::pad_for_same(const Node& of, const onnx::NodeProto& node, Scope& scope, const Origin& origin) {
  const std::optional<CoveringWindow> window = covering_window(graph_, of);
  if (!window || node.output_size() != 1) return false;
  const std::vector<int64_t>&reach = window->reach, &strides = window->strides;
  const size_t rank = reach.size();
  const Entry x{Entry::value, of.inputs[0]};
  const ElementType element = graph_.value(x.id).type.element;
  const bool is_pool = of.op->name == "MaxPool", is_average = of.op->name == "AveragePool";

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
  const Entry outside = numbers({0, 0});
  const Entry pads = concatenate(
      {outside, window->is_upper ? half : rest, outside, window->is_upper ? rest : half}, 0, part);
  // Pooling takes floats and bytes.
  const double least = is_float(element)            ? -std::numeric_limits<double>::infinity()
                       : element == ElementType::u8 ? 0
                                                    : -128;
  const Entry filling =
      make_constant(Constant::scalar(element, is_pool ? least : 0), text(part.name, ".filling"));
  const auto padded = [&](const Entry& of) { return make("Pad", {of, pads, filling}, {}, part); };

  onnx::NodeProto plain = node;
  drop_attribute(plain, "auto_pad");
  drop_attribute(plain, "pads");
  const auto slide = [&](const Entry& over) {
    Scope inner;
    onnx::NodeProto explicit_node = plain;
    for (int i = 0; i < node.input_size(); ++i) {
      if (!node.input(i).empty()) inner.names[node.input(i)] = scope.find(node.input(i));
    }
    explicit_node.set_input(0, text(part.name, ".padded"));
    inner.names[explicit_node.input(0)] = over;
    add_node(explicit_node, inner, origin);
    return inner.find(explicit_node.output(0));
  };
  const size_t first = graph_.values.size();
  Entry result = slide(padded(x));
  if (is_average && result.kind == Entry::value && of.attributes.integer("count_include_pad", 0) == 0) {
    // A mean of what is inside: by the share of each window that is.
    const Entry ones = make("Expand",
                            {make_constant(Constant::scalar(element, 1), text(part.name, ".one")),
                             concatenate({numbers({1, 1}), size}, 0, part)},
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
