// Operators that run along an axis in order: CumSum, CumProd; and ReverseSequence.
#include "graph/ops/common.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

using tensor::AxisKind;
using tensor::Store;

// ---- CumSum, CumProd: out[k] = x[0] op ... op x[k], or up to k-1 (exclusive), or from the end (reverse). Attribute part
// (passes/divide_scans.cpp): not element by element, but in parts of so many ----

constexpr const char* kPart = "part";

void infer_cumulative(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::number)) return;
  auto axis = constant_ints(c, 1, "axis");
  if (!axis || !expect(c, axis->size() == 1, "axis: expected one number, got ", list_text(*axis)) ||
      !checked_axis(c, (*axis)[0], c.rank(0))) {
    return;
  }
  c.set_output(0, c.input(0));
}

// Lines of elements of a tensor: element p of the one that index i stands on, whatever i has along the axis.
struct Lines {
  ElementType element;
  Shape shape;
  size_t axis;
  Reducer reducer;
  std::function<Expr(Axes i, const Expr& p)> at;
};

std::vector<Expr> with(Axes i, size_t axis, const Expr& position) {
  std::vector<Expr> at = to_vector(i);
  at[axis] = position;
  return at;
}

// What the elements of each part come to.
Buffer totals(ComputeContext& c, const Lines& x, const Expr& part) {
  const Expr& n = x.shape[x.axis];
  Shape shape = x.shape;
  shape[x.axis] = ceil_div(n, part);
  return c.builder.reduce("totals", x.element, shape, {part}, x.reducer, [&](Axes i, Axes r) {
    const Expr p = i[x.axis] * part + r[0];
    return select(p < n, x.at(i, p), tensor::identity(x.reducer, x.element));
  });
}

// For each element what those before it (reverse: behind it) come to, and itself unless that is exclusive. Each result goes through its
// part alone; what the parts before come to is found the same way.
Buffer cumulative_by_parts(ComputeContext& c, const Lines& x, int64_t part, bool exclusive, bool reverse) {
  const int64_t n = *static_dim(x.shape[x.axis]);
  const bool is_divided = n > 2 * part;
  Buffer before;
  if (is_divided) {
    const Buffer sums = totals(c, x, part);
    const Lines parts{x.element, sums.shape(), x.axis, x.reducer, [&](Axes i, const Expr& p) { return load(sums, with(i, x.axis, p)); }};
    before = cumulative_by_parts(c, parts, part, true, false);
  }
  // First what is before the part, then its elements.
  const int64_t first = is_divided ? 1 : 0;
  return c.builder.reduce("cumulative", x.element, x.shape, {is_divided ? part + 1 : n}, x.reducer, [&](Axes i, Axes r) {
    const Expr end = reverse ? n - 1 - i[x.axis] : i[x.axis];
    const Expr own = is_divided ? tensor::floor_div(end, part) : Expr(0);
    const Expr p = own * part + r[0] - first;
    const Expr element = select(exclusive ? p < end : p <= end, x.at(i, p), tensor::identity(x.reducer, x.element));
    return is_divided ? select(r[0] == 0, load(before, with(i, x.axis, own)), element) : element;
  });
}

template <BinaryOp operation>
void compute_cumulative_by_parts(ComputeContext& c, size_t axis, int64_t part) {
  const TensorType& in = c.input_type(0);
  const bool exclusive = c.attributes().integer("exclusive", 0) != 0, reverse = c.attributes().integer("reverse", 0) != 0;
  const Expr last = in.shape[axis] - 1;
  const Reducer reducer = operation == BinaryOp::mul ? Reducer::product : Reducer::sum;
  const Lines x{wide_type(in.element), in.shape, axis, reducer, [&](Axes i, const Expr& p) {
                  return widen(c.at(0, with(i, axis, reverse ? last - p : p)));
                }};
  c.set_output(0, cast_buffer(c, cumulative_by_parts(c, x, part, exclusive, reverse), in.element));
}

template <BinaryOp operation>
void compute_cumulative(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  auto axis = static_cast<size_t>(normal_axis(c.constant(1)->int_at(0), static_cast<int>(in.shape.size())));
  if (const int64_t part = c.attributes().integer(kPart, 0)) return compute_cumulative_by_parts<operation>(c, axis, part);
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
