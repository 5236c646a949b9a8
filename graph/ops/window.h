// Sliding windows over spatial axes, as convolutions and poolings have them.
#pragma once

#include "graph/ops/common.h"

namespace mcc::graph {

// One number for each spatial axis: position t of the window of output o stands at o*stride - begin + t*dilation.
struct Window {
  std::vector<int64_t> kernel, stride, dilation, begin, end;

  size_t rank() const { return kernel.size(); }
  // Elements from the first to the last one of a window.
  int64_t reach(size_t k) const { return (kernel[k] - 1) * dilation[k] + 1; }
};

// From the attributes strides, dilations, pads, auto_pad (SAME_* needs static extents). Reports what is wrong.
std::optional<Window> checked_window(InferContext& c, const std::vector<int64_t>& kernel,
                                     const Shape& spatial);
// The same without reporting, for compute().
Window window_of(const Attributes& attributes, const std::vector<int64_t>& kernel, const Shape& spatial);

// Number of windows along each axis; with ceil_mode also one that begins inside the input or its begin padding but
// runs over the end.
std::optional<Shape> window_counts(InferContext& c, const Window& window, const Shape& spatial,
                                   bool ceil_mode);

// The input [N, C, spatial...] as far as `counts` windows reach, with `value` outside: a block "pad", or the input
// itself when every window lies inside. read gives an element of the input at an index inside it.
struct Padded {
  Buffer buffer;  // undefined: nothing was padded
  // Element at window position `at` (already o*stride + t*dilation, counted from the begin padding on).
  Expr element(const ComputeContext& c, const std::vector<Expr>& at) const;
  int input = 0;
};
Padded pad_input(ComputeContext& c, int input, const Window& window, const Shape& counts, const Expr& value);

// Indices [n, c, spatial...] of the padded input for output position `out` (n, c ignored) and window position `tap`.
std::vector<Expr> window_index(const Window& window, const Expr& n, const Expr& channel, Axes out_spatial,
                               Axes tap);

inline Shape spatial_dims(const Shape& shape) { return {shape.begin() + 2, shape.end()}; }

}  // namespace mcc::graph
