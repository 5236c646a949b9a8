// Taps of windows that only ever read padding are taken away: those of convolutions with a wide dilation on small images,
// whose outer taps all lie outside, and those of poolings in ceil mode with a window larger than the image.
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

using Ints = std::vector<int64_t>;

struct Axis {
  int64_t extent, count;  // of the input; windows
  int64_t stride, dilation, kernel, begin, end;
};

Axis axis_of(const Graph& g, const Node& node, const Ints& kernel, size_t k) {
  const size_t rank = kernel.size();
  const Ints ones(rank, 1), pads = node.attributes.integers("pads", Ints(2 * rank, 0));
  return {static_shape(g.value(node.inputs[0]).type.shape)[2 + k],
          static_shape(g.value(first_result(node)).type.shape)[2 + k],
          node.attributes.integers("strides", ones)[k],
          node.attributes.integers("dilations", ones)[k],
          kernel[k],
          pads[k],
          pads[rank + k]};
}

bool is_static_window(const Graph& g, const Node& node) {
  return is_explicit(node) && is_static(g.value(node.inputs[0]).type.shape) &&
         is_static(g.value(first_result(node)).type.shape);
}

// Takes the outer taps of an axis away as long as no window has them on the input, and their padding, which has to be
// there, with them. Returns the first tap that stays.
int64_t trim(Axis& a) {
  const int64_t begin = a.begin;
  int64_t first = 0, last = a.kernel - 1;
  // Of tap t, windows read (o * stride - begin + t * dilation) for o = 0 .. count - 1.
  while (first < last && a.begin >= a.dilation && (a.count - 1) * a.stride - begin + first * a.dilation < 0) {
    a.begin -= a.dilation;
    ++first;
  }
  while (first < last && a.end >= a.dilation && last * a.dilation - begin >= a.extent) {
    a.end -= a.dilation;
    --last;
  }
  a.kernel = last - first + 1;
  return first;
}

void trim_convolution(Graph& g, NodeId id) {
  const Node node = g.node(id);
  const ValueId w = node.inputs[1];
  if (!g.value(w).constant || !is_static_window(g, node)) return;
  const Ints ws = static_shape(g.value(w).type.shape);
  const Ints kernel(ws.begin() + 2, ws.end());
  Ints axes, starts, ends, trimmed, begins, pads;
  for (size_t k = 0; k < kernel.size(); ++k) {
    Axis a = axis_of(g, node, kernel, k);
    axes.push_back(static_cast<int64_t>(2 + k));
    starts.push_back(trim(a));
    ends.push_back(starts.back() + a.kernel);
    trimmed.push_back(a.kernel);
    begins.push_back(a.begin);
    pads.push_back(a.end);
  }
  if (trimmed == kernel) return;
  pads.insert(pads.begin(), begins.begin(), begins.end());
  auto ints = [&](const char* what, const Ints& values) {
    return g.add_constant(node.name + what, Constant::ints(values));
  };
  std::vector<ValueId> inputs = node.inputs;
  inputs[1] = emit(g, "", "Slice", node.name, {w, ints(".starts", starts), ints(".ends", ends), ints(".axes", axes)});
  Attributes attributes = node.attributes;
  attributes.set("kernel_shape", trimmed);
  attributes.set("pads", pads);
  const ValueId y = emit(g, "", "Conv", node.name, inputs, attributes);
  g.node(g.value(y).producer).origins = node.origins;
  take_place(g, node.outputs[0], y);
  g.node(id).dead = true;
}

// There is one window along an axis that a window is larger than, so that strides do not matter.
void trim_pooling(Graph& g, NodeId id) {
  Node& node = g.node(id);
  if (!is_static_window(g, node)) return;
  Ints kernel = node.attributes.integers("kernel_shape");
  for (size_t k = 0; k < kernel.size(); ++k) {
    const Axis a = axis_of(g, node, kernel, k);
    kernel[k] = std::min(a.kernel, (a.extent + a.begin + a.end + a.dilation - 1) / a.dilation);
  }
  if (kernel != node.attributes.integers("kernel_shape")) node.attributes.set("kernel_shape", kernel);
}

}  // namespace

void trim_windows(Graph& graph) {
  const size_t count = graph.nodes.size();
  for (size_t n = 0; n < count; ++n) {
    const auto id = static_cast<NodeId>(n);
    if (!graph.node(id).op->domain.empty()) continue;
    if (is_op(graph.node(id), "Conv")) {
      trim_convolution(graph, id);
    } else if (is_op(graph.node(id), "MaxPool") || is_op(graph.node(id), "AveragePool")) {
      trim_pooling(graph, id);
    }
  }
  eliminate_dead_code(graph);
}

}  // namespace mcc::graph
