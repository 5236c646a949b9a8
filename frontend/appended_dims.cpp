#include <algorithm>
#include <map>
#include <optional>

#include "frontend/contrib/contrib.h"
#include "frontend/graph_builder.h"
#include "frontend/model_prepare.h"

namespace mcc::frontend {

namespace {

using Axis = std::pair<std::string, int>;  // of an input, by its name

// The inputs' axes that have names, by these.
std::map<std::string, std::vector<Axis>> axes_by_dimension(const onnx::GraphProto& graph) {
  std::map<std::string, std::vector<Axis>> axes;
  for (const auto& input : graph.input()) {
    const auto& shape = input.type().tensor_type().shape();
    for (int axis = 0; axis < shape.dim_size(); ++axis)
      if (has_name(shape.dim(axis))) axes[shape.dim(axis).dim_param()].emplace_back(input.name(), axis);
  }
  return axes;
}

// The axis along which an operator appends to its input i; nothing where it does something else with it.
std::optional<int64_t> appending_axis(const onnx::NodeProto& node, int i, int rank) {
  const bool is_onnx = node.domain().empty();
  if (is_onnx && node.op_type() == "Concat") {
    const onnx::AttributeProto* axis = find_attribute(node, "axis");
    if (!axis) return std::nullopt;
    return axis->i() < 0 ? axis->i() + rank : axis->i();
  }
  struct Past {
    const char* op;
    bool is_onnx;
    int first, last;  // inputs
    int64_t axis;
  };
  static constexpr Past kPasts[] = {{"Attention", true, 4, 5, 2},
                                    {"Attention", false, 4, 4, 3},
                                    {"QAttention", false, 8, 8, 3},
                                    {"MultiHeadAttention", false, 6, 7, 2},
                                    {"GroupQueryAttention", false, 3, 4, 2}};
  if (!is_onnx && node.domain() != kContribDomain) return std::nullopt;
  for (const Past& past : kPasts)
    if (node.op_type() == past.op && is_onnx == past.is_onnx && past.first <= i && i <= past.last)
      return past.axis;
  return std::nullopt;
}

class Uses {
 public:
  explicit Uses(const onnx::GraphProto& graph) {
    Names names;
    for (const auto& input : graph.input()) {
      ranks_[input.name()] = input.type().tensor_type().shape().dim_size();
      names[input.name()] = input.name();
    }
    visit(graph, std::move(names));
  }

  bool is_appended_to(const Axis& axis) const {
    const auto along = axes_.find(axis.first);
    return along != axes_.end() && along->second == std::set<int>{axis.second} &&
           !elsewhere_.contains(axis.first);
  }

 private:
  using Names = std::map<std::string, std::string>;  // what is an input, or one in another type: the input

  // Of a graph, and of branches and bodies in it, which see the names around them.
  void visit(const onnx::GraphProto& graph, Names names) {
    for (const auto& node : graph.node()) {
      for (const auto& attribute : node.attribute()) {
        if (attribute.has_g()) visit_part(attribute.g(), names);
        for (const auto& part : attribute.graphs())
          visit_part(part, names);
      }
      std::string same = add_uses(node, names);
      for (const auto& output : node.output())
        names.erase(output);
      if (!same.empty()) names[node.output(0)] = std::move(same);
    }
    for (const auto& output : graph.output())  // to hand an input on is not to append to it
      if (const auto found = names.find(output.name()); found != names.end())
        elsewhere_.insert(found->second);
  }

  void visit_part(const onnx::GraphProto& graph, Names names) {
    for (const auto& input : graph.input())
      names.erase(input.name());
    visit(graph, std::move(names));
  }

  // The input that the node's output is in another type; "" if there is none.
  std::string add_uses(const onnx::NodeProto& node, const Names& names) {
    const auto is_one_of = [&](std::initializer_list<const char*> ops) {
      return node.domain().empty() && std::find(ops.begin(), ops.end(), node.op_type()) != ops.end();
    };
    if (is_one_of({"Shape", "Size"})) return "";
    for (int i = 0; i < node.input_size(); ++i) {
      const auto found = names.find(node.input(i));
      if (found == names.end()) continue;
      const std::string& input = found->second;
      if (is_one_of({"Cast", "Identity"})) return input;
      if (const auto axis = appending_axis(node, i, ranks_[input])) {
        axes_[input].insert(static_cast<int>(*axis));
      } else {
        elsewhere_.insert(input);
      }
    }
    return "";
  }

  std::map<std::string, int> ranks_;
  std::map<std::string, std::set<int>> axes_;  // along which something is appended to an input
  std::set<std::string> elsewhere_;            // what is read by what does not append to it
};

}  // namespace

std::set<std::string> appended_dimensions(const onnx::GraphProto& graph) {
  const Uses uses(graph);
  std::set<std::string> names;
  for (const auto& [name, axes] : axes_by_dimension(graph))
    if (std::all_of(axes.begin(), axes.end(), [&](const Axis& axis) { return uses.is_appended_to(axis); }))
      names.insert(name);
  return names;
}

}  // namespace mcc::frontend
