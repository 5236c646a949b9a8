// Slice: a strided box of a tensor. Bounds are inputs 1 to 4, before opset 10 attributes.
#include <limits>

#include "graph/ops/common.h"
#include "tensor/simplify.h"

namespace mcc::graph {
namespace {

struct AxisSlice {
  int axis = 0;
  Expr start, length;
  int64_t step = 1;
};

// Exporters write "to the end" and "to the beginning" as the largest and least numbers of 32 or 64 bits, or one less. Of an axis
// of open size they are known to lie outside; sums with them would be beyond what programs of sizes compute.
constexpr int64_t kOutside = std::numeric_limits<int32_t>::max();

// Bounds count from the end when negative, and are clamped to the axis; a negative step runs down to `end` exclusive: an end below
// -extent means that element 0 is included.
AxisSlice clamped(int axis, const Expr& extent, const Expr& start, const Expr& end, int64_t step) {
  const bool is_open = !static_dim(extent);
  auto within = [&](const Expr& bound, const Expr& low, const Expr& high) {
    const std::optional<int64_t> v = static_dim(bound);
    if (is_open && v && *v >= kOutside) return high;
    if (is_open && v && *v <= -kOutside) return low;
    const Expr place = !v ? select(bound < 0, extent + bound, bound) : *v < 0 ? extent + *v : bound;
    return tensor::min(tensor::max(place, low), high);
  };
  const Expr high = step > 0 ? extent : extent - 1;
  const Expr first = within(start, 0, high), last = within(end, step > 0 ? Expr(0) : Expr(-1), high);
  const Expr distance = step > 0 ? last - first : first - last;
  const Expr length = tensor::max(tensor::ceil_div(distance, step > 0 ? step : -step), 0);
  return {axis, tensor::simplify(first), tensor::simplify(length), step};
}

struct Bounds {
  Shape starts, ends;
  std::vector<int64_t> axes, steps;
};

// Absent axes are the first ones; absent steps are 1.
void fill_defaults(Bounds& b) {
  if (b.axes.empty()) {
    for (size_t k = 0; k < b.starts.size(); ++k)
      b.axes.push_back(static_cast<int64_t>(k));
  }
  if (b.steps.empty()) b.steps.assign(b.starts.size(), 1);
}

std::vector<AxisSlice> slices(const Bounds& b, const Shape& shape) {
  std::vector<AxisSlice> result;
  for (size_t k = 0; k < b.starts.size(); ++k) {
    int axis = normal_axis(b.axes[k], static_cast<int>(shape.size()));
    result.push_back(clamped(axis, shape[static_cast<size_t>(axis)], b.starts[k], b.ends[k], b.steps[k]));
  }
  return result;
}

std::optional<Shape> bounds_of(InferContext& c, int i, const std::string& attribute, bool* found) {
  *found = c.has_input(i) || c.attributes().has(attribute);
  if (c.has_input(i)) return known_ints(c, i, attribute);
  return make_shape(c.attributes().integers(attribute));
}

Shape bounds_of(const ComputeContext& c, int i, const std::string& attribute) {
  return c.has_input(i) ? c.elements(i) : make_shape(c.attributes().integers(attribute));
}

void infer_slice(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::any)) return;
  bool found[4];
  auto starts = bounds_of(c, 1, "starts", &found[0]), ends = bounds_of(c, 2, "ends", &found[1]);
  auto axes = ints_of(c, 3, "axes", &found[2]), steps = ints_of(c, 4, "steps", &found[3]);
  if (!starts || !ends || !axes || !steps || !expect(c, found[0] && found[1], "starts and ends are missing"))
    return;
  Bounds b{*starts, *ends, *axes, *steps};
  fill_defaults(b);
  size_t n = b.starts.size();
  if (!expect(c, b.ends.size() == n && b.axes.size() == n && b.steps.size() == n,
              "starts, ends, axes and steps have ", n, ", ", b.ends.size(), ", ", b.axes.size(), " and ",
              b.steps.size(), " elements")) {
    return;
  }
  if (!checked_axes(c, b.axes, c.rank(0))) return;
  for (int64_t step : b.steps) {
    if (!expect(c, step != 0 && step != std::numeric_limits<int64_t>::min(), "a step of ", step)) return;
  }
  Shape out = c.input(0).shape;
  for (const AxisSlice& s : slices(b, c.input(0).shape))
    out[static_cast<size_t>(s.axis)] = s.length;
  c.set_output(0, {c.input(0).element, out});
}

void compute_slice(ComputeContext& c) {
  Bounds b{bounds_of(c, 1, "starts"), bounds_of(c, 2, "ends"), ints_of(c, 3, "axes"), ints_of(c, 4, "steps")};
  fill_defaults(b);
  std::vector<AxisSlice> parts = slices(b, c.input_type(0).shape);
  const TensorType& out = c.output_type(0);
  c.set_output(0, c.builder.compute("slice", out.element, out.shape, [&](Axes i) {
    std::vector<Expr> index = to_vector(i);
    for (const AxisSlice& s : parts) {
      Expr& k = index[static_cast<size_t>(s.axis)];
      k = s.start + k * s.step;
    }
    return c.at(0, index);
  }));
}

}  // namespace

std::span<const OpDef> slice_ops() {
  static const OpDef op = [] {
    OpDef slice = onnx_op("Slice", FusionClass::injective, 1, infer_slice, compute_slice);
    slice.layout = LayoutRole::slice;
    slice.constant_inputs = 0b11110;
    return slice;
  }();
  return {&op, 1};
}

}  // namespace mcc::graph
