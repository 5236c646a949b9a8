// A conversion to a wider type whose result several kernels read becomes one for each of them, at its beginning
// (graph/passes/fuse.h): each reads the narrower tensor then, and nobody writes the wider one.
#include <algorithm>

#include "graph/op.h"
#include "graph/passes/fuse.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

class RepeatConversions {
 public:
  RepeatConversions(Graph& g, bool in_rows)
      : g_(g), users_(g.users()), groups_(fuse(g, in_rows)), group_of_(g.nodes.size(), -1) {
    for (size_t k = 0; k < groups_.size(); ++k) {
      for (NodeId id : groups_[k].nodes)
        group_of_[static_cast<size_t>(id)] = static_cast<int>(k);
    }
  }

  void run() {
    const size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n)
      repeat(static_cast<NodeId>(n));
    g_.compact();
  }

 private:
  void repeat(NodeId id) {
    const Node node = g_.node(id);
    if (node.dead || widened_operand(g_, node) == kNoValue || g_.is_output(node.outputs[0])) return;
    const std::vector<NodeId>& users = users_[static_cast<size_t>(node.outputs[0])];
    if (!std::all_of(users.begin(), users.end(), [&](NodeId user) { return reads_elements_once(user); }))
      return;
    std::vector<int> kernels;
    for (NodeId user : users) {
      const int kernel = group_of_[static_cast<size_t>(user)];
      if (std::find(kernels.begin(), kernels.end(), kernel) == kernels.end()) kernels.push_back(kernel);
    }
    for (size_t k = 1; k < kernels.size(); ++k) {
      const ValueId copy = emit(g_, node.op->domain, node.op->name, node.name, node.inputs, node.attributes);
      g_.node(g_.value(copy).producer).origins = node.origins;
      for (NodeId user : users) {
        std::vector<ValueId>& inputs = g_.node(user).inputs;
        if (group_of_[static_cast<size_t>(user)] == kernels[k])
          std::replace(inputs.begin(), inputs.end(), node.outputs[0], copy);
      }
    }
  }

  // And can be in one kernel with what makes its operand.
  bool reads_elements_once(NodeId id) const {
    return groups_[static_cast<size_t>(group_of_[static_cast<size_t>(id)])].kind ==
               KernelGroup::Kind::kernel &&
           graph::reads_elements_once(*g_.node(id).op);
  }

  Graph& g_;
  const std::vector<std::vector<NodeId>> users_;
  const std::vector<KernelGroup> groups_;
  std::vector<int> group_of_;
};

}  // namespace

void repeat_conversions(Graph& graph, const tensor::Target& target) {
  RepeatConversions(graph, target.kind == tensor::TargetKind::cuda).run();
}

}  // namespace mcc::graph
