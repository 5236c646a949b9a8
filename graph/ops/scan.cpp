// Operators that run along an axis in order: CumSum, CumProd; and ReverseSequence.
#include "graph/ops/common.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

using tensor::AxisKind;
using tensor::Store;

// ---- CumSum, CumProd: out[k] = x[0] op ... op x[k], or up to k-1 (exclusive), or from the end (reverse) ----

void infer_cumulative(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::number)) return;
  auto axis = constant_ints(c, 1, "axis");
  if (!axis || !expect(c, axis->size() == 1, "axis: expected one number, got ", list_text(*axis)) ||
      !checked_axis(c, (*axis)[0], c.rank(0))) {
    return;
  }
  c.set_output(0, c.input(0));
}

template <BinaryOp operation>
void compute_cumulative(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  auto axis = static_cast<size_t>(normal_axis(c.constant(1)->int_at(0), static_cast<int>(in.shape.size())));
  bool exclusive = c.attributes().integer("exclusive", 0) != 0,
       reverse = c.attributes().integer("reverse", 0) != 0;
  ElementType wide = wide_type(in.element);
  const Expr& n = in.shape[axis];
  Buffer total = c.builder.new_buffer("cumulative", wide, in.shape);
  std::vector<tensor::FuncBuilder::AxisSpec> axes{{"k", n, AxisKind::scan}};
  for (size_t k = 0; k < in.shape.size(); ++k) {
    if (k != axis) axes.push_back({text("i", k), in.shape[k], AxisKind::spatial});
  }
  c.builder.block("scan", axes, [&](Axes i) {
    // Element at position p of the run.
    auto at = [&](const Expr& p) {
      std::vector<Expr> index = to_vector(i.subspan(1));
      index.insert(index.begin() + static_cast<std::ptrdiff_t>(axis), reverse ? n - 1 - p : p);
      return index;
    };
    Expr neutral = tensor::constant_int({wide, 1}, operation == BinaryOp::mul);
    Expr before = select(i[0] == 0, neutral, load(total, at(i[0] - 1)));
    Expr x = widen(c.at(0, at(exclusive ? i[0] - 1 : i[0])));
    if (exclusive) x = select(i[0] == 0, neutral, x);
    return Store::make(total, at(i[0]), binary(operation, before, x));
  });
  c.set_output(0, cast_buffer(c, total, in.element));
}

OpDef cumulative(std::string_view name, void (*compute)(ComputeContext&)) {
  OpDef op = onnx_op(name, FusionClass::opaque, 2, infer_cumulative, compute);
  op.constant_inputs = 0b10;
  return op;
}

// ---- ReverseSequence: the first sequence_lens[b] elements of each sequence backwards ----

void infer_reverse(InferContext& c) {
  int64_t batch = c.attributes().integer("batch_axis", 1), time = c.attributes().integer("time_axis", 0);
  if (!expect_type(c, 0, TypeSet::any) || !expect_rank(c, 0, 2, 16) || !expect_type(c, 1, TypeSet::index) ||
      !expect_rank(c, 1, 1) ||
      !expect(c, (batch == 0 && time == 1) || (batch == 1 && time == 0),
              "batch_axis and time_axis: expected 0 and 1, ", "in either order, got ", batch, " and ",
              time) ||
      !expect_same_dim(c, c.input(0).shape[static_cast<size_t>(batch)], c.input(1).shape[0],
                       "number of lengths")) {
    return;
  }
  c.set_output(0, c.input(0));
}

void compute_reverse(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  auto batch = static_cast<size_t>(c.attributes().integer("batch_axis", 1)), time = 1 - batch;
  c.set_output(0, c.builder.compute("reverse", out.element, out.shape, [&](Axes i) {
    std::vector<Expr> at = to_vector(i);
    Expr n = tensor::min(cast(ElementType::i64, c.at(1, {i[batch]})), out.shape[time]);
    at[time] = select(i[time] < n, n - 1 - i[time], i[time]);
    return c.at(0, at);
  }));
}

OpDef reverse_op() {
  return onnx_op("ReverseSequence", FusionClass::injective, 2, infer_reverse, compute_reverse);
}

}  // namespace

std::span<const OpDef> scan_ops() {
  static const OpDef ops[] = {
      cumulative("CumSum", compute_cumulative<BinaryOp::add>),
      cumulative("CumProd", compute_cumulative<BinaryOp::mul>),
      reverse_op(),
  };
  return ops;
}

}  // namespace mcc::graph
