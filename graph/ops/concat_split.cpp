// Concat and Split along an axis.
#include "graph/ops/common.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

// ---- Concat ----

void infer_concat(InferContext& c) {
  auto axis = checked_axis(c, c.attributes().integer("axis", 0), c.rank(0));
  if (!axis || !expect_type(c, 0, TypeSet::any)) return;
  Shape out = c.input(0).shape;
  for (int i = 1; i < c.num_inputs(); ++i) {
    if (!expect(c, c.has_input(i), "input ", i, " is missing") || !expect_same_type(c, 0, i) ||
        !expect_rank(c, i, c.rank(0))) {
      return;
    }
    for (size_t k = 0; k < out.size(); ++k) {
      const Expr& d = c.input(i).shape[k];
      if (static_cast<int>(k) == *axis) {
        out[k] = out[k] + d;
      } else if (!expect_same_dim(c, out[k], d, text("dimension ", k, " of input ", i))) {
        return;
      }
    }
  }
  c.set_output(0, {c.input(0).element, out});
}

// Element at position i[axis] of inputs first..last, which start at starts[first..last]: a balanced tree of choices.
Expr choose(const ComputeContext& c, const std::vector<int>& pieces, const std::vector<Expr>& starts,
            size_t first, size_t last, std::vector<Expr> i, size_t axis) {
  if (first == last) {
    i[axis] = i[axis] - starts[first];
    return c.at(pieces[first], i);
  }
  size_t middle = (first + last + 1) / 2;
  return select(i[axis] < starts[middle], choose(c, pieces, starts, first, middle - 1, i, axis),
                choose(c, pieces, starts, middle, last, i, axis));
}

void compute_concat(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  auto axis =
      static_cast<size_t>(normal_axis(c.attributes().integer("axis", 0), static_cast<int>(out.shape.size())));
  std::vector<int> pieces;
  std::vector<Expr> starts;
  Expr start = 0;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const Expr& extent = c.input_type(i).shape[axis];
    if (tensor::is_int(extent, 0)) continue;
    pieces.push_back(i);
    starts.push_back(start);
    start = start + extent;
  }
  if (pieces.empty()) {
    pieces.push_back(0);
    starts.push_back(0);
  }
  c.set_output(0, c.builder.compute("concat", out.element, out.shape, [&](Axes i) {
    return choose(c, pieces, starts, 0, pieces.size() - 1, to_vector(i), axis);
  }));
}

OpDef concat_op() {
  OpDef op = onnx_op("Concat", FusionClass::injective, 1, infer_concat, compute_concat);
  op.axis_use = AxisUse::one;
  op.layout = LayoutRole::concat;
  return op;
}

// ---- Split: sizes are input 1 (before opset 13 the attribute split), or equal parts ----

// Of so many parts, the last of which may be smaller.
Shape equal_parts(const Expr& extent, int64_t parts) {
  const Expr size = tensor::floor_div(extent + (parts - 1), parts);
  Shape sizes(static_cast<size_t>(parts), size);
  sizes.back() = extent - size * (parts - 1);
  return sizes;
}

std::optional<Shape> split_sizes(InferContext& c, const Expr& extent) {
  int64_t parts = c.num_outputs();
  if (c.has_input(1) || c.attributes().has("split")) {
    const std::optional<Shape> sizes = c.has_input(1) ? known_ints(c, 1, "split") : make_shape(c.attributes().integers("split"));
    if (!sizes) return std::nullopt;
    if (!expect(c, static_cast<int64_t>(sizes->size()) == parts, "split: expected ", parts, " sizes, got ",
                dims_text(*sizes))) {
      return std::nullopt;
    }
    Expr total = 0;
    for (const Expr& s : *sizes) {
      const std::optional<int64_t> size = static_dim(s);
      if (!expect(c, !size || *size >= 0, "split: a size of ", size.value_or(0))) return std::nullopt;
      total = total + s;
    }
    if (!expect_same_dim(c, extent, total, "sum of the sizes of split")) return std::nullopt;
    return sizes;
  }
  int64_t named = c.attributes().integer("num_outputs", parts);
  if (!expect(c, named == parts, "num_outputs is ", named, ", the node has ", parts, " outputs")) return std::nullopt;
  Shape sizes = equal_parts(extent, parts);
  if (const std::optional<int64_t> last = static_dim(sizes.back())) {
    if (!expect(c, *last >= 0, "cannot split ", tensor::to_text(extent), " into ", parts, " parts")) return std::nullopt;
  } else if (parts > 2 && !expect_same_dim(c, tensor::min(sizes.back(), 0), 0, "what the last part lacks")) {
    return std::nullopt;
  }
  return sizes;
}

void infer_split(InferContext& c) {
  auto axis = checked_axis(c, c.attributes().integer("axis", 0), c.rank(0));
  if (!axis || !expect_type(c, 0, TypeSet::any)) return;
  auto sizes = split_sizes(c, c.input(0).shape[static_cast<size_t>(*axis)]);
  if (!sizes) return;
  for (int i = 0; i < c.num_outputs(); ++i) {
    TensorType type = c.input(0);
    type.shape[static_cast<size_t>(*axis)] = (*sizes)[static_cast<size_t>(i)];
    c.set_output(i, type);
  }
}

// Sizes again: an absent output has no type to take its size from.
Shape sizes_of(const ComputeContext& c, const Expr& extent) {
  if (c.has_input(1)) return c.elements(1);
  if (c.attributes().has("split")) return make_shape(c.attributes().integers("split"));
  return equal_parts(extent, static_cast<int64_t>(c.node().outputs.size()));
}

void compute_split(ComputeContext& c) {
  const Shape& in = c.input_type(0).shape;
  auto axis =
      static_cast<size_t>(normal_axis(c.attributes().integer("axis", 0), static_cast<int>(in.size())));
  const Shape sizes = sizes_of(c, in[axis]);
  Expr start = 0;
  for (size_t k = 0; k < sizes.size(); ++k) {
    auto output = static_cast<int>(k);
    if (c.has_output(output)) {
      const TensorType& out = c.output_type(output);
      c.set_output(output, c.builder.compute("split", out.element, out.shape, [&](Axes i) {
        std::vector<Expr> index = to_vector(i);
        index[axis] = index[axis] + start;
        return c.at(0, index);
      }));
    }
    start = start + sizes[k];
  }
}

OpDef split_op() {
  OpDef op = onnx_op("Split", FusionClass::injective, 1, infer_split, compute_split);
  op.axis_use = AxisUse::one;
  op.layout = LayoutRole::split;
  op.constant_inputs = 0b10;
  return op;
}

}  // namespace

std::span<const OpDef> concat_split_ops() {
  static const OpDef ops[] = {concat_op(), split_op()};
  return ops;
}

}  // namespace mcc::graph
