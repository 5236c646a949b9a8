// mcc.MatMul: x [..., M, K] times a matrix packed by mcc.PackMatrix [ceil(N/c), K, c], or in words [ceil(N/c), K/n, c, n]
// -> [..., M, N]. Attribute columns: N. With an index input 2, of x's batch [...], there are several such matrices, [E, ceil(N/c), K, c], of
// which it says one for each batch item (mcc.SelectedMatMul).
#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

constexpr int kMatrix = 1, kSelector = 2;

void infer_matmul(InferContext& c) {
  TensorType type = c.input(0);
  type.shape.back() = Expr(c.attributes().integer("columns", 0));
  type.element = contraction_result(c);
  c.set_output(0, type);
}

void compute_matmul(ComputeContext& c) {
  const Shape& given = c.input_type(kMatrix).shape;
  const bool is_selected = c.has_input(kSelector);
  const Shape w(given.begin() + (is_selected ? 1 : 0), given.end());
  const TensorType& out = c.output_type(0);
  const Expr& block = w[2];
  const bool in_words = w.size() == 4;
  std::vector<Expr> reduce{w[1]};
  if (in_words) reduce.push_back(w[3]);
  Buffer y = c.builder.reduce(
      "matmul", wide_type(out.element), out.shape, reduce, Reducer::sum, [&](Axes s, Axes r) {
        std::vector<Expr> at = to_vector(s);
        at.back() = in_words ? r[0] * w[3] + r[1] : Expr(r[0]);
        std::vector<Expr> weight{floor_div(s.back(), block), r[0], floor_mod(s.back(), block)};
        if (in_words) weight.push_back(r[1]);
        if (is_selected) weight.insert(weight.begin(), selected_matrix(c, kSelector, s, given[0]));
        return widen(c.at(0, at)) * widen(c.at(kMatrix, weight));
      });
  c.set_output(0, cast_buffer(c, y, out.element));
}

}  // namespace

std::span<const OpDef> mcc_matmul_ops() {
  static const OpDef ops[] = {own_op("MatMul", FusionClass::contraction, 2, infer_matmul, compute_matmul)};
  return ops;
}

}  // namespace mcc::graph
