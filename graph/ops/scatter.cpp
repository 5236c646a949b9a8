// ScatterElements, ScatterND: a copy of a tensor with updates written (or combined) at given positions.
#include "graph/ops/common.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

using tensor::AxisKind;
using tensor::Stmt;
using tensor::Store;

bool check_reduction(InferContext& c) {
  std::string r = c.attributes().text("reduction", "none");
  return expect(c, r == "none" || r == "add" || r == "mul" || r == "min" || r == "max",
                "reduction: expected none, add, mul, min or max, got ", r);
}

Expr combined(const std::string& reduction, const Expr& old, const Expr& update) {
  if (reduction == "add") return cast(old.element(), widen(old) + widen(update));
  if (reduction == "mul") return cast(old.element(), widen(old) * widen(update));
  if (reduction == "min") return tensor::min(old, update);
  if (reduction == "max") return tensor::max(old, update);
  return update;
}

// out[at] = combination of out[at] and update, where at lies inside.
Stmt write(const ComputeContext& c, const Buffer& out, const std::vector<Expr>& at, const Expr& inside,
           const Expr& update) {
  std::string reduction = c.attributes().text("reduction", "none");
  Expr value = reduction == "none" ? update : combined(reduction, load(out, at), update);
  return tensor::If::make(inside, Store::make(out, at, value));
}

Buffer copy_of_data(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  return c.builder.compute("scatter", out.element, out.shape, [&](Axes i) { return c.at(0, to_vector(i)); });
}

// ---- ScatterElements: out[i with i[axis] = indices[i]] = updates[i] ----

void infer_scatter_elements(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::any) || !expect_type(c, 1, TypeSet::index) || !expect_same_type(c, 0, 2) ||
      !expect_rank(c, 1, c.rank(0)) || !expect_rank(c, 2, c.rank(0)) || !check_reduction(c)) {
    return;
  }
  auto axis = checked_axis(c, c.attributes().integer("axis", 0), c.rank(0));
  if (!axis) return;
  for (size_t k = 0; k < c.input(1).shape.size(); ++k) {
    const Expr& d = c.input(1).shape[k];
    if (!expect_same_dim(c, d, c.input(2).shape[k], text("dimension ", k, " of the updates"))) return;
    auto data = static_dim(c.input(0).shape[k]), indices = static_dim(d);
    bool fits = static_cast<int>(k) == *axis || !data || !indices || *indices <= *data;
    if (!expect(c, fits, "indices ", to_text(c.input(1)), " exceed ", to_text(c.input(0)))) return;
  }
  c.set_output(0, c.input(0));
}

void compute_scatter_elements(ComputeContext& c) {
  Buffer out = copy_of_data(c);
  const Shape& shape = c.input_type(1).shape;
  auto axis =
      static_cast<size_t>(normal_axis(c.attributes().integer("axis", 0), static_cast<int>(shape.size())));
  std::vector<tensor::FuncBuilder::AxisSpec> axes;
  for (size_t k = 0; k < shape.size(); ++k) {
    axes.push_back({text("i", k), shape[k], k == axis ? AxisKind::scan : AxisKind::spatial});
  }
  c.builder.block("update", axes, [&](Axes i) {
    CheckedIndex index = scatter_index(c.at(1, to_vector(i)), out.shape()[axis]);
    std::vector<Expr> at = to_vector(i);
    at[axis] = index.index;
    return write(c, out, at, index.in_range, c.at(2, to_vector(i)));
  });
  c.set_output(0, out);
}

// ---- ScatterND: out[indices[i...]][j...] = updates[i..., j...] ----

void infer_scatter_nd(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::any) || !expect_type(c, 1, TypeSet::index) || !expect_same_type(c, 0, 2) ||
      !expect_rank(c, 1, 1, 16) || !check_reduction(c)) {
    return;
  }
  const Shape& data = c.input(0).shape;
  const Shape& indices = c.input(1).shape;
  auto depth = need_static_dim(c, indices.back(), "the last dimension of input 1");
  if (!depth || !expect(c, *depth >= 1 && *depth <= c.rank(0), "indices of ", *depth, " numbers for ",
                        to_text(c.input(0)))) {
    return;
  }
  Shape wanted(indices.begin(), indices.end() - 1);
  wanted.insert(wanted.end(), data.begin() + *depth, data.end());
  if (!expect_shape(c, 2, wanted, "updates")) return;
  c.set_output(0, c.input(0));
}

void compute_scatter_nd(ComputeContext& c) {
  Buffer out = copy_of_data(c);
  const Shape& indices = c.input_type(1).shape;
  const Shape& updates = c.input_type(2).shape;
  int64_t depth = *static_dim(indices.back());
  auto outer = static_cast<std::ptrdiff_t>(indices.size()) - 1;
  std::vector<tensor::FuncBuilder::AxisSpec> axes;
  for (size_t k = 0; k < updates.size(); ++k) {
    bool picks = static_cast<std::ptrdiff_t>(k) < outer;
    axes.push_back({text("i", k), updates[k], picks ? AxisKind::scan : AxisKind::spatial});
  }
  c.builder.block("update", axes, [&](Axes i) {
    std::vector<Expr> position(i.begin(), i.begin() + outer), at;
    position.emplace_back(0);
    Expr inside = tensor::true_value();
    for (int64_t k = 0; k < depth; ++k) {
      position.back() = k;
      CheckedIndex index = scatter_index(c.at(1, position), out.shape()[static_cast<size_t>(k)]);
      at.push_back(index.index);
      inside = inside && index.in_range;
    }
    at.insert(at.end(), i.begin() + outer, i.end());
    return write(c, out, at, inside, c.at(2, to_vector(i)));
  });
  c.set_output(0, out);
}

// ---- TensorScatter: a sequence written into a cache along an axis, from write_indices[batch] on ----

void infer_tensor_scatter(InferContext& c) {
  int64_t axis_attribute = c.attributes().integer("axis", -2);
  std::string mode = c.attributes().text("mode", "linear");
  if (!expect_type(c, 0, TypeSet::any) || !expect_same_type(c, 0, 1) || !expect_rank(c, 1, c.rank(0)) ||
      !expect(c, mode == "linear" || mode == "circular", "mode: expected linear or circular, got ", mode)) {
    return;
  }
  auto axis = checked_axis(c, axis_attribute, c.rank(0));
  if (!axis || !expect(c, *axis != 0, "axis 0 is the batch")) return;
  for (size_t k = 0; k < c.input(0).shape.size(); ++k) {
    const Expr& cache = c.input(0).shape[k];
    const Expr& update = c.input(1).shape[k];
    if (static_cast<int>(k) != *axis &&
        !expect_same_dim(c, cache, update, text("dimension ", k, " of the update"))) {
      return;
    }
  }
  if (c.has_input(2) &&
      (!expect_type(c, 2, TypeSet::index) || !expect_rank(c, 2, 1) ||
       !expect_same_dim(c, c.input(0).shape[0], c.input(2).shape[0], "number of write indices"))) {
    return;
  }
  c.set_output(0, c.input(0));
}

void compute_tensor_scatter(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  int rank = static_cast<int>(out.shape.size());
  auto axis = static_cast<size_t>(normal_axis(c.attributes().integer("axis", -2), rank));
  bool circular = c.attributes().text("mode", "linear") == "circular";
  const Expr& length = c.input_type(1).shape[axis];
  if (c.attributes().integer("in_place", 0) != 0) {
    c.set_output(0, write_in_place(c, "scatter", c.input_type(1).shape, [&](Axes i) {
                   std::vector<Expr> at = to_vector(i);
                   if (c.has_input(2)) at[axis] = at[axis] + cast(ElementType::i64, c.at(2, {i[0]}));
                   if (circular) at[axis] = tensor::floor_mod(at[axis], out.shape[axis]);
                   return Written{at, c.at(1, to_vector(i)), at[axis] >= 0 && at[axis] < out.shape[axis]};
                 }));
    return;
  }
  c.set_output(0, c.builder.compute("scatter", out.element, out.shape, [&](Axes i) {
    std::vector<Expr> at = to_vector(i);
    if (c.has_input(2)) at[axis] = at[axis] - cast(ElementType::i64, c.at(2, {i[0]}));
    if (circular) at[axis] = tensor::floor_mod(at[axis], out.shape[axis]);
    return select(at[axis] >= 0 && at[axis] < length, c.at(1, at), c.at(0, to_vector(i)));
  }));
}

OpDef tensor_scatter_op() {
  OpDef op =
      onnx_op("TensorScatter", FusionClass::injective, 2, infer_tensor_scatter, compute_tensor_scatter);
  op.updates_first_input = true;
  return op;
}

OpDef scatter(std::string_view name, void (*infer)(InferContext&), void (*compute)(ComputeContext&)) {
  OpDef op = onnx_op(name, FusionClass::opaque, 3, infer, compute);
  op.scalar_inputs = 0b10;
  return op;
}

}  // namespace

std::span<const OpDef> scatter_ops() {
  static const OpDef ops[] = {
      scatter("ScatterElements", infer_scatter_elements, compute_scatter_elements),
      scatter("Scatter", infer_scatter_elements, compute_scatter_elements),
      scatter("ScatterND", infer_scatter_nd, compute_scatter_nd),
      tensor_scatter_op(),
  };
  return ops;
}

}  // namespace mcc::graph
