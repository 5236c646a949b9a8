// Rewrites a graph to given layouts; which ones is choose_layouts's to say.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "graph/graph.h"
#include "tensor/target.h"

namespace mcc::graph {

struct AlgorithmChoices;

// How the activations of a convolution lie in memory, c the target's vector length; in one dimension H is 1, in three there is
// a D before it:
//   plain          [N, C, H, W], as ONNX has it
//   blocked        [N, C/c, H, W, c], the last block filled up with 0; not in three dimensions
//   channels_last  [N, 1, H, W, C]
enum class Layout : uint8_t { plain, blocked, channels_last };

// Where nothing is said: blocked, on GPUs channels last.
inline Layout first_layout(const tensor::Target& target) {
  return target.kind == tensor::TargetKind::cuda ? Layout::channels_last : Layout::blocked;
}

// By node of the graph before the rewriting.
using Layouts = std::map<NodeId, Layout>;

// Convolutions that should have one layout, as their activations meet in operators that follow them.
using Region = std::vector<NodeId>;

// Lays out the activations of convolutions and packs constant operands in the order in which kernels read them. What can
// follow in a layout does; a change stands only where one meets an operator that wants another. A convolution that its
// layout cannot serve stays plain. Returns the regions.
std::vector<Region> apply_layouts(Graph& graph, const Layouts& layouts, const tensor::Target& target,
                                  bool strict, const AlgorithmChoices& choices);

}  // namespace mcc::graph
