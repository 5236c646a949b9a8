// Sliding windows over spatial axes, as convolutions and poolings have them, in any layout whose spatial axes stand side by side.
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

// The first spatial axis of [N, C, spatial...]; of channels last, [N, spatial..., C], it is 1.
constexpr size_t kFirstSpatial = 2;

// From the attributes strides, dilations, pads, auto_pad (SAME_* needs static extents). Reports what is wrong.
std::optional<Window> checked_window(InferContext& c, const std::vector<int64_t>& kernel,
                                     const Shape& spatial);
// The same without reporting, for compute().
Window window_of(const Attributes& attributes, const std::vector<int64_t>& kernel, const Shape& spatial);

// Number of windows along axis k of an input of this extent.
Expr window_count(const Window& window, size_t k, const Expr& extent);
// The same along each axis, checked; with ceil_mode also one that begins inside the input or its begin padding but
// runs over the end.
std::optional<Shape> window_counts(InferContext& c, const Window& window, const Shape& spatial,
                                   bool ceil_mode);

// Where an input's spatial axes begin, and the multiple to which its last axis is filled.
struct PadShape {
  size_t first = kFirstSpatial;
  int64_t last_multiple = 1;
  std::optional<ElementType> element = {};  // what elements are converted to; else they keep their type
};

// The input as far as `counts` windows reach, with `value`, of its type, outside: a block "pad", or the input itself when every window lies
// inside.
struct Padded {
  Buffer buffer;  // undefined: nothing was padded
  // Element at an index from window_index().
  Expr element(const ComputeContext& c, const std::vector<Expr>& at) const;
  int input = 0;
};
Padded pad_input(ComputeContext& c, int input, const Window& window, const Shape& counts, const Expr& value, PadShape how = {});

// The index into the padded input at position `tap` of a window: `at` with the window's number along each spatial axis, from
// `first` on, exchanged for the element's, o*stride + t*dilation.
std::vector<Expr> window_index(const Window& window, std::vector<Expr> at, Axes tap, size_t first = kFirstSpatial);

// Number of taps of window o along axis k that count towards an average: those inside the input, and with include_pad also
// those in the padding. `count` is the number of windows.
Expr tap_count(const Window& window, size_t k, const Expr& extent, const Expr& count, const Expr& o, bool include_pad);

inline Shape spatial_dims(const Shape& shape) { return {shape.begin() + kFirstSpatial, shape.end()}; }

}  // namespace mcc::graph
