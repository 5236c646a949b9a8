// Expand (broadcast to a shape) and Tile (repeat).
#include <algorithm>

#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

void infer_expand(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::any)) return;
  auto wanted = known_ints(c, 1, "shape");
  if (!wanted) return;
  // A number that only a run knows may be 1 where the operand has more.
  const Shape& in = c.input(0).shape;
  for (size_t k = 1; k <= std::min(wanted->size(), in.size()); ++k) {
    Expr& size = (*wanted)[wanted->size() - k];
    const Expr& own = in[in.size() - k];
    if (c.depends_on_data(size) && !tensor::is_int(own, 1)) size = select(size == 1, own, size);
  }
  if (auto shape = broadcast_shapes(c, c.input(0).shape, *wanted)) {
    c.set_output(0, {c.input(0).element, *shape});
  }
}

void compute_expand(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  c.set_output(
      0, c.builder.compute("expand", out.element, out.shape, [&](Axes i) { return broadcast_at(c, 0, i); }));
}

void infer_tile(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::any)) return;
  auto repeats = known_ints(c, 1, "repeats");
  if (!repeats || !expect(c, static_cast<int>(repeats->size()) == c.rank(0), "repeats: expected ", c.rank(0),
                          " numbers, got ", dims_text(*repeats))) {
    return;
  }
  Shape out = c.input(0).shape;
  for (size_t k = 0; k < out.size(); ++k) {
    const std::optional<int64_t> count = static_dim((*repeats)[k]);
    if (!expect(c, !count || *count >= 0, "repeats: a count of ", count.value_or(0))) return;
    out[k] = out[k] * (*repeats)[k];
  }
  c.set_output(0, {c.input(0).element, out});
}

void compute_tile(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const Shape& in = c.input_type(0).shape;
  const Shape repeats = c.elements(1);
  c.set_output(0, c.builder.compute("tile", out.element, out.shape, [&](Axes i) {
    std::vector<Expr> index;
    for (size_t k = 0; k < in.size(); ++k) {
      bool is_one = tensor::is_int(in[k], 1);
      index.push_back(is_one ? Expr(0) : tensor::is_int(repeats[k], 1) ? i[k] : tensor::floor_mod(i[k], in[k]));
    }
    return c.at(0, index);
  }));
}

OpDef repeating(std::string_view name, void (*infer)(InferContext&), void (*compute)(ComputeContext&)) {
  OpDef op = onnx_op(name, FusionClass::injective, 2, infer, compute);
  op.constant_inputs = 0b10;
  op.scalar_inputs = 0b1;
  return op;
}

}  // namespace

std::span<const OpDef> expand_ops() {
  static const OpDef ops[] = {
      repeating("Expand", infer_expand, compute_expand),
      repeating("Tile", infer_tile, compute_tile),
  };
  return ops;
}

}  // namespace mcc::graph
