#include <algorithm>
#include <map>

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

class Uses {
 public:
  explicit Uses(const onnx::GraphProto& graph) {
    for (const auto& input : graph.input())
      ranks_[input.name()] = input.type().tensor_type().shape().dim_size();
    // Outputs and what reads an input from within a branch or a body are no concatenations.
    for (const auto& output : graph.output())
      elsewhere_.insert(output.name());
    for (const auto& node : graph.node()) {
      for (const auto& attribute : node.attribute()) {
        if (attribute.has_g()) collect_used_names(attribute.g(), elsewhere_);
        for (const auto& inner : attribute.graphs())
          collect_used_names(inner, elsewhere_);
      }
      const bool is_query = node.domain().empty() && (node.op_type() == "Shape" || node.op_type() == "Size");
      if (is_query) continue;
      for (const std::string& name : node.input())
        if (ranks_.contains(name)) add(name, node);
    }
  }

  bool is_appended_to(const Axis& axis) const {
    const auto along = axes_.find(axis.first);
    return along != axes_.end() && along->second == std::set<int>{axis.second} &&
           !elsewhere_.contains(axis.first);
  }

 private:
  void add(const std::string& name, const onnx::NodeProto& node) {
    const onnx::AttributeProto* axis = find_attribute(node, "axis");
    if (!node.domain().empty() || node.op_type() != "Concat" || !axis) {
      elsewhere_.insert(name);
    } else {
      axes_[name].insert(static_cast<int>(axis->i() < 0 ? axis->i() + ranks_[name] : axis->i()));
    }
  }

  std::map<std::string, int> ranks_;
  std::map<std::string, std::set<int>> axes_;  // along which an input is concatenated
  std::set<std::string> elsewhere_;            // what is read by others than concatenations
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
