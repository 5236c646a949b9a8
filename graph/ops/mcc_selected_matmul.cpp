// mcc.SelectedMatMul: x [B..., M, K] times one of several matrices w [E, K, N] (transposed = 1: [E, N, K]), of which an index says for each
//   batch item which one: s [B...], as Gather takes it -> [B..., M, N]
//
// Experts of language models: a row meets few of many matrices, those that are not asked for are not read.
#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

constexpr int kRows = 0, kMatrices = 1, kSelector = 2;

bool is_transposed(const Attributes& a) { return a.integer("transposed", 0) != 0; }

void infer_selected(InferContext& c) {
  if (!expect_type(c, kRows, TypeSet::number) || !expect_same_type(c, kRows, kMatrices) ||
      !expect_type(c, kSelector, TypeSet::index) || !expect_rank(c, kMatrices, 3) ||
      !expect_rank(c, kRows, c.rank(kSelector) + 2))
    return;
  const Shape &w = c.input(kMatrices).shape, &s = c.input(kSelector).shape;
  Shape out = c.input(kRows).shape;
  for (size_t i = 0; i < s.size(); ++i)
    if (!expect_same_dim(c, out[i], s[i], "matrices that are selected")) return;
  const bool transposed = is_transposed(c.attributes());
  if (!expect_same_dim(c, out.back(), w[transposed ? 2 : 1], "inner dimension")) return;
  out.back() = w[transposed ? 1 : 2];
  c.set_output(0, {contraction_result(c), out});
}

void compute_selected(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const Expr& count = c.input_type(kMatrices).shape[0];
  const bool transposed = is_transposed(c.attributes());
  const Buffer y =
      c.builder.reduce("matmul", wide_type(out.element), out.shape, {c.input_type(kRows).shape.back()},
                       Reducer::sum, [&](Axes s, Axes r) {
                         std::vector<Expr> row = to_vector(s);
                         row.back() = r[0];
                         std::vector<Expr> weight{selected_matrix(c, kSelector, s, count), r[0], s.back()};
                         if (transposed) std::swap(weight[1], weight[2]);
                         return widen(c.at(kRows, row)) * widen(c.at(kMatrices, weight));
                       });
  c.set_output(0, cast_buffer(c, y, out.element));
}

}  // namespace

std::span<const OpDef> mcc_selected_matmul_ops() {
  static const OpDef op = [] {
    OpDef def = own_op("SelectedMatMul", FusionClass::contraction, 3, infer_selected, compute_selected);
    def.layout = LayoutRole::matmul;
    return def;
  }();
  return {&op, 1};
}

}  // namespace mcc::graph
