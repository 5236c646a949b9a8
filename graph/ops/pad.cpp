// Pad in its four modes. Pads are input 1, the value input 2, the axes input 3; before opset 11 attributes.
#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

// Begin and end padding of each axis (negative values crop).
struct Pads {
  Shape begin, end;
};

Pads no_pads(size_t rank) { return {Shape(rank, Expr(0)), Shape(rank, Expr(0))}; }

Pads spread(const Shape& pads, const std::vector<int64_t>& axes, int rank) {
  Pads result = no_pads(static_cast<size_t>(rank));
  size_t n = axes.empty() ? static_cast<size_t>(rank) : axes.size();
  for (size_t k = 0; k < n; ++k) {
    size_t axis = axes.empty() ? k : static_cast<size_t>(normal_axis(axes[k], rank));
    result.begin[axis] = pads[k];
    result.end[axis] = pads[n + k];
  }
  return result;
}

// A reflected index must find the element after one reflection at each end.
bool check_extent(InferContext& c, const std::string& mode, const Expr& d, const Expr& begin, const Expr& end) {
  if (mode == "constant" || (static_dim(begin).value_or(1) <= 0 && static_dim(end).value_or(1) <= 0)) return true;
  auto extent = static_dim(d);
  if (!extent) return true;
  return expect(c, *extent > 0, "mode ", mode, " cannot pad an empty dimension");
}

void infer_pad(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::any)) return;
  std::string mode = c.attributes().text("mode", "constant");
  if (!expect(c, mode == "constant" || mode == "reflect" || mode == "edge" || mode == "wrap",
              "mode: expected constant, reflect, edge or wrap, got ", mode)) {
    return;
  }
  bool has_axes = false;
  const bool found = c.has_input(1) || c.attributes().has("pads");
  const std::optional<Shape> pads = c.has_input(1) ? known_ints(c, 1, "pads") : make_shape(c.attributes().integers("pads"));
  auto axes = ints_of(c, 3, "axes", &has_axes);
  if (!pads || !axes || !expect(c, found, "pads are missing") || !checked_axes(c, *axes, c.rank(0))) return;
  size_t padded = has_axes ? axes->size() : static_cast<size_t>(c.rank(0));
  if (!expect(c, pads->size() == 2 * padded, "pads: expected ", 2 * padded, " numbers, got ",
              dims_text(*pads))) {
    return;
  }
  if (c.has_input(2) && (!expect_same_type(c, 0, 2) || !expect_rank(c, 2, 0, 1))) return;
  Pads p = has_axes && axes->empty() ? no_pads(c.input(0).shape.size()) : spread(*pads, *axes, c.rank(0));
  Shape out = c.input(0).shape;
  for (size_t k = 0; k < out.size(); ++k) {
    if (!check_extent(c, mode, out[k], p.begin[k], p.end[k])) return;
    out[k] = out[k] + p.begin[k] + p.end[k];
  }
  c.set_output(0, {c.input(0).element, out});
}

// What is left of an axis with n elements begins again where it ends.
Expr wrapped(const Expr& i, const Expr& n, const Expr& begin, const Expr& end) {
  const Expr cropped = tensor::max(-begin, 0);
  return tensor::floor_mod(i - cropped, n - cropped + tensor::min(end, 0)) + cropped;
}

// The input position that position i of the padded axis (counted from the input's start) shows.
Expr mirrored(const std::string& mode, const Expr& i, const Expr& n) {
  if (mode == "edge") return tensor::min(tensor::max(i, 0), n - 1);
  if (tensor::is_int(n, 1)) return 0;
  Expr period = n * 2 - 2;
  Expr k = tensor::floor_mod(i, period);
  return select(k < n, k, period - k);
}

Expr padding_value(const ComputeContext& c, ElementType element) {
  if (c.has_input(2)) return c.at(2, std::vector<Expr>(c.input_type(2).shape.size(), 0));
  return tensor::constant(element, c.attributes().number("value", 0));
}

void compute_pad(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const Shape& in = c.input_type(0).shape;
  int rank = static_cast<int>(in.size());
  std::string mode = c.attributes().text("mode", "constant");
  bool has_axes = false;
  std::vector<int64_t> axes = ints_of(c, 3, "axes", &has_axes);
  const Shape pads = c.has_input(1) ? c.elements(1) : make_shape(c.attributes().integers("pads"));
  Pads p = has_axes && axes.empty() ? no_pads(in.size()) : spread(pads, axes, rank);
  c.set_output(0, c.builder.compute("pad", out.element, out.shape, [&](Axes i) {
    std::vector<Expr> index = to_vector(i);
    Expr inside = tensor::true_value();
    std::vector<Expr> outside_index = index;
    for (size_t k = 0; k < in.size(); ++k) {
      if (tensor::is_int(p.begin[k], 0) && tensor::is_int(p.end[k], 0)) continue;
      index[k] = index[k] - p.begin[k];
      outside_index[k] = index[k];
      // What lies inside of a row is said by itself, so that vectors can read it.
      bool is_last = k + 1 == in.size();
      if (mode == "wrap") {
        outside_index[k] = wrapped(index[k], in[k], p.begin[k], p.end[k]);
      } else if (mode != "constant") {
        outside_index[k] = mirrored(mode, index[k], in[k]);
      }
      if (mode != "constant" && !is_last) {
        index[k] = outside_index[k];
        continue;
      }
      if (static_dim(p.begin[k]).value_or(1) > 0) inside = inside && index[k] >= 0;
      if (static_dim(p.end[k]).value_or(1) > 0) inside = inside && index[k] < in[k];
    }
    Expr outside = mode == "constant" ? padding_value(c, out.element) : c.at(0, outside_index);
    return select(inside, c.at(0, index), outside);
  }));
}

}  // namespace

std::span<const OpDef> pad_ops() {
  static const OpDef op = [] {
    OpDef pad = onnx_op("Pad", FusionClass::injective, 1, infer_pad, compute_pad);
    pad.constant_inputs = 0b1010;
    pad.scalar_inputs = 0b100;
    return pad;
  }();
  return {&op, 1};
}

}  // namespace mcc::graph
