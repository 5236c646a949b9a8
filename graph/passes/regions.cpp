#include "graph/passes/regions.h"

#include <algorithm>
#include <map>
#include <set>

#include "graph/op.h"
#include "graph/ops/control.h"

namespace mcc::graph {
namespace {

class DivideIntoRegions {
 public:
  DivideIntoRegions(const Graph& g, std::vector<KernelGroup> groups)
      : g_(g), groups_(std::move(groups)), group_of_(g.nodes.size(), -1) {
    for (size_t i = 0; i < groups_.size(); ++i)
      for (NodeId n : groups_[i].nodes)
        group_of_[static_cast<size_t>(n)] = static_cast<int>(i);
  }

  std::vector<KernelGroup> run() {
    find_uses();
    find_loops();
    for (size_t i = groups_.size(); i-- > 0;)
      groups_[i].region = region_of(i);
    emit({});
    return std::move(ordered_);
  }

 private:
  // A use of a group's result: by a group as such, or in a region that it decides.
  struct Use {
    size_t group;
    std::optional<int> branch;  // of the region that the group decides
  };

  void find_uses() {
    uses_.resize(groups_.size());
    is_result_.resize(groups_.size());
    for (ValueId v : g_.outputs)
      if (const int maker = maker_of(v); maker >= 0) is_result_[static_cast<size_t>(maker)] = true;
    for (size_t i = 0; i < groups_.size(); ++i) {
      for (NodeId id : groups_[i].nodes) {
        const Node& node = g_.node(id);
        for (size_t k = 0; k < node.inputs.size(); ++k)
          if (!is_embedded(g_, node, static_cast<int>(k)))
            add_use(node.inputs[k], {i, branch_of(groups_[i], node, k)});
        for (ValueId v : g_.dim_operands(node))
          add_use(v, {i, branch_of_dims(node)});
      }
    }
  }

  int maker_of(ValueId v) const {
    const NodeId producer = v == kNoValue ? -1 : g_.value(v).producer;
    return producer < 0 ? -1 : group_of_[static_cast<size_t>(producer)];
  }

  void add_use(ValueId v, const Use& use) {
    const int maker = maker_of(v);
    if (maker >= 0 && static_cast<size_t>(maker) != use.group)
      uses_[static_cast<size_t>(maker)].push_back(use);
  }

  static std::optional<int> branch_of(const KernelGroup& group, const Node& node, size_t input) {
    if (group.kind != KernelGroup::Kind::control) return std::nullopt;
    if (node.op->control == Control::loop_end) return 0;
    if (node.op->control == Control::choose) return branch_of_operand(node, input);
    return std::nullopt;
  }

  // What a loop's end asks for of its iterations is part of them, its begin also where no iteration reads it. How often it may run is
  // known in front of it all the same: no iteration changes that.
  static std::optional<int> branch_of_dims(const Node& node) {
    return node.op->control == Control::loop_end ? std::optional(0) : std::nullopt;
  }

  // The loops on whose iterations each group depends.
  void find_loops() {
    const std::vector<std::set<NodeId>> of_nodes = loops_of_nodes(g_);
    loops_.resize(groups_.size());
    for (size_t i = 0; i < groups_.size(); ++i)
      for (NodeId n : groups_[i].nodes)
        loops_[i].insert(of_nodes[static_cast<size_t>(n)].begin(), of_nodes[static_cast<size_t>(n)].end());
  }

  ControlRegion region_of(size_t index) const {
    std::optional<ControlRegion> region;
    auto meet = [&](const ControlRegion& other) { region = region ? common(*region, other) : other; };
    if (is_result_[index]) meet({});
    for (const Use& use : uses_[index]) {
      const KernelGroup& user = groups_[use.group];
      meet(use.branch ? ControlRegion{user.nodes[0], *use.branch} : user.region);
    }
    // What only a comparison of sizes asks for belongs to the innermost iteration that changes it: its end is the first one.
    const std::set<NodeId>& loops = loops_[index];
    ControlRegion result =
        region.value_or(loops.empty() ? ControlRegion{} : ControlRegion{*loops.begin(), 0});
    // Not again in each iteration.
    while (result.control >= 0 && g_.node(result.control).op->control == Control::loop_end &&
           !loops_[index].contains(result.control))
      result = around(result);
    return result;
  }

  ControlRegion around(const ControlRegion& region) const {
    return region.control < 0
               ? ControlRegion{}
               : groups_[static_cast<size_t>(group_of_[static_cast<size_t>(region.control)])].region;
  }

  ControlRegion common(ControlRegion a, const ControlRegion& b) const {
    for (;; a = around(a)) {
      for (ControlRegion other = b;; other = around(other)) {
        if (other == a) return a;
        if (other.control < 0) break;
      }
      if (a.control < 0) return a;
    }
  }

  void emit(const ControlRegion& region) {
    for (size_t i = 0; i < groups_.size(); ++i) {
      if (groups_[i].region != region) continue;
      if (groups_[i].kind == KernelGroup::Kind::control) {
        emit({groups_[i].nodes[0], 0});
        emit({groups_[i].nodes[0], 1});
      }
      ordered_.push_back(groups_[i]);
    }
  }

  const Graph& g_;
  std::vector<KernelGroup> groups_;
  std::vector<int> group_of_;
  std::vector<std::vector<Use>> uses_;
  std::vector<bool> is_result_;
  std::vector<std::set<NodeId>> loops_;  // by their ends
  std::vector<KernelGroup> ordered_;
};

}  // namespace

std::vector<KernelGroup> divide_into_regions(const Graph& graph, std::vector<KernelGroup> groups) {
  const bool has_any = std::any_of(groups.begin(), groups.end(),
                                   [](const KernelGroup& g) { return g.kind == KernelGroup::Kind::control; });
  return has_any ? DivideIntoRegions(graph, std::move(groups)).run() : std::move(groups);
}

std::vector<std::set<NodeId>> loops_of_nodes(const Graph& graph) {
  std::vector<std::set<NodeId>> loops(graph.nodes.size());
  const bool has_any = std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) {
    return !n.dead && n.op->control == Control::loop_begin;
  });
  for (size_t i = 0; has_any && i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.dead) continue;
    std::vector<ValueId> operands = graph.dim_operands(node);
    operands.insert(operands.end(), node.inputs.begin(), node.inputs.end());
    for (ValueId v : operands) {
      const NodeId producer = v == kNoValue ? -1 : graph.value(v).producer;
      if (producer >= 0)
        loops[i].insert(loops[static_cast<size_t>(producer)].begin(),
                        loops[static_cast<size_t>(producer)].end());
    }
    if (node.op->control == Control::loop_begin) loops[i].insert(end_of_loop(graph, node));
    if (node.op->control == Control::loop_end) loops[i].erase(static_cast<NodeId>(i));
  }
  return loops;
}

std::vector<StateCopy> state_copies(const Graph& graph, const Aliases& aliases, const Node& loop_end) {
  const Node& begin = graph.node(begin_of_loop(graph, loop_end));
  std::vector<StateCopy> copies;
  if (loop_end.inputs[1] != kNoValue) copies.push_back({loop_end.inputs[1], begin.outputs[0]});
  for (size_t i = 0; i < states_of(loop_end); ++i)
    copies.push_back({loop_end.inputs[2 + i], begin.outputs[1 + i]});
  for (StateCopy& copy : copies) {
    const ValueId owner = aliases.of(copy.from).owner;
    copy.is_traded = owner != copy.to &&
                     std::find(begin.outputs.begin(), begin.outputs.end(), owner) != begin.outputs.end();
  }
  return copies;
}

}  // namespace mcc::graph
