// Gather, GatherElements, GatherND: elements picked by indices.
#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

// Constant indices must be in range; others are brought into it when the kernel runs.
bool check_indices(InferContext& c, int i, const Expr& extent) {
  if (!expect_type(c, i, TypeSet::index)) return false;
  const Constant* indices = c.constant(i);
  auto n = static_dim(extent);
  if (!indices || !n) return true;
  for (int64_t k = 0, count = indices->count(); k < count; ++k) {
    int64_t v = indices->int_at(k);
    if (!expect(c, v >= -*n && v < *n, "index ", v, " is out of range for a dimension of ", *n)) return false;
  }
  return true;
}

bool never_negative(const Constant* indices) {
  if (!indices) return false;
  for (int64_t k = 0, n = indices->count(); k < n; ++k) {
    if (indices->int_at(k) < 0) return false;
  }
  return true;
}

// Constant indices are known to be in range.
Expr picked(const ComputeContext& c, int i, const Expr& index, const Expr& extent) {
  if (never_negative(c.constant(i)) && static_dim(extent)) return cast(ElementType::i64, index);
  return gather_index(index, extent);
}

// ---- Gather: out[a..., i..., b...] = data[a..., indices[i...], b...] ----

void infer_gather(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::any)) return;
  auto axis = checked_axis(c, c.attributes().integer("axis", 0), c.rank(0));
  if (!axis || !check_indices(c, 1, c.input(0).shape[static_cast<size_t>(*axis)])) return;
  const Shape& data = c.input(0).shape;
  const Shape& indices = c.input(1).shape;
  Shape out(data.begin(), data.begin() + *axis);
  out.insert(out.end(), indices.begin(), indices.end());
  out.insert(out.end(), data.begin() + *axis + 1, data.end());
  c.set_output(0, {c.input(0).element, out});
}

void compute_gather(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const Shape& data = c.input_type(0).shape;
  auto axis = normal_axis(c.attributes().integer("axis", 0), static_cast<int>(data.size()));
  auto count = static_cast<std::ptrdiff_t>(c.input_type(1).shape.size());
  c.set_output(0, c.builder.compute("gather", out.element, out.shape, [&](Axes i) {
    auto middle = i.begin() + axis;
    std::vector<Expr> index(i.begin(), middle);
    index.push_back(picked(c, 1, c.at(1, {middle, middle + count}), data[static_cast<size_t>(axis)]));
    index.insert(index.end(), middle + count, i.end());
    return c.at(0, index);
  }));
}

// ---- GatherElements: out[i] = data[i with i[axis] replaced by indices[i]] ----

void infer_gather_elements(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::any) || !expect_rank(c, 1, c.rank(0))) return;
  auto axis = checked_axis(c, c.attributes().integer("axis", 0), c.rank(0));
  if (!axis || !check_indices(c, 1, c.input(0).shape[static_cast<size_t>(*axis)])) return;
  for (size_t k = 0; k < c.input(0).shape.size(); ++k) {
    auto data = static_dim(c.input(0).shape[k]), indices = static_dim(c.input(1).shape[k]);
    if (static_cast<int>(k) == *axis || !data || !indices) continue;
    if (!expect(c, *indices <= *data, "input 1: expected at most ", to_text(c.input(0)), ", got ",
                to_text(c.input(1)))) {
      return;
    }
  }
  c.set_output(0, {c.input(0).element, c.input(1).shape});
}

void compute_gather_elements(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const Shape& data = c.input_type(0).shape;
  auto axis =
      static_cast<size_t>(normal_axis(c.attributes().integer("axis", 0), static_cast<int>(data.size())));
  c.set_output(0, c.builder.compute("gather", out.element, out.shape, [&](Axes i) {
    std::vector<Expr> index = to_vector(i);
    index[axis] = picked(c, 1, c.at(1, to_vector(i)), data[axis]);
    return c.at(0, index);
  }));
}

// ---- GatherND: the last axis of the indices holds positions of the data's axes after the batch ----

void infer_gather_nd(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::any) || !expect_type(c, 1, TypeSet::index)) return;
  int64_t batch = c.attributes().integer("batch_dims", 0);
  const Shape& data = c.input(0).shape;
  const Shape& indices = c.input(1).shape;
  if (!expect(c, batch >= 0 && batch < c.rank(0) && batch < c.rank(1), "batch_dims of ", batch, " for ",
              to_text(c.input(0)), " and ", to_text(c.input(1)))) {
    return;
  }
  auto depth = need_static_dim(c, indices.back(), "the last dimension of input 1");
  if (!depth || !expect(c, *depth >= 1 && batch + *depth <= c.rank(0), "indices of ", *depth, " numbers for ",
                        to_text(c.input(0)))) {
    return;
  }
  for (size_t k = 0; k < static_cast<size_t>(batch); ++k) {
    if (!expect_same_dim(c, data[k], indices[k], text("batch dimension ", k, " of input 1"))) return;
  }
  Shape out(indices.begin(), indices.end() - 1);
  out.insert(out.end(), data.begin() + batch + *depth, data.end());
  c.set_output(0, {c.input(0).element, out});
}

void compute_gather_nd(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const Shape& data = c.input_type(0).shape;
  const Shape& indices = c.input_type(1).shape;
  auto batch = static_cast<std::ptrdiff_t>(c.attributes().integer("batch_dims", 0));
  int64_t depth = *static_dim(indices.back());
  auto outer = static_cast<std::ptrdiff_t>(indices.size()) - 1;
  c.set_output(0, c.builder.compute("gather", out.element, out.shape, [&](Axes i) {
    std::vector<Expr> index(i.begin(), i.begin() + batch);
    std::vector<Expr> position(i.begin(), i.begin() + outer);
    position.emplace_back(0);
    for (int64_t k = 0; k < depth; ++k) {
      position.back() = k;
      index.push_back(gather_index(c.at(1, position), data[static_cast<size_t>(batch + k)]));
    }
    index.insert(index.end(), i.begin() + outer, i.end());
    return c.at(0, index);
  }));
}

OpDef gathering(std::string_view name, void (*infer)(InferContext&), void (*compute)(ComputeContext&)) {
  OpDef op = onnx_op(name, FusionClass::injective, 2, infer, compute);
  op.scalar_inputs = 0b10;
  return op;
}

}  // namespace

std::span<const OpDef> gather_ops() {
  static const OpDef ops[] = {
      gathering("Gather", infer_gather, compute_gather),
      gathering("GatherElements", infer_gather_elements, compute_gather_elements),
      gathering("GatherND", infer_gather_nd, compute_gather_nd),
  };
  return ops;
}

}  // namespace mcc::graph
