#include "graph/ops/operand_view.h"

namespace mcc::graph {

Expr extent_along(const std::vector<int64_t>& view, const Shape& shape, size_t axis) {
  const size_t rank = shape.size(), axes = view.size() / rank - 1;
  for (size_t d = 0; d < rank; ++d) {
    bool is_alone = view[d] == 0;
    for (size_t n = 0; n < axes; ++n)
      is_alone = is_alone && view[(1 + n) * rank + d] == (n == axis ? 1 : 0);
    if (is_alone) return shape[d];
  }
  return Expr();
}

Expr viewed_element(const ComputeContext& c, int input, const std::vector<int64_t>& view,
                    const std::vector<Expr>& index) {
  const size_t rank = c.input_type(input).shape.size();
  std::vector<Expr> at;
  for (size_t d = 0; d < rank; ++d) {
    at.emplace_back(view[d]);
    for (size_t k = 0; k < index.size(); ++k) {
      const int64_t step = view[(k + 1) * rank + d];
      if (rank == 1 || step != 0) at[d] = at[d] + index[k] * Expr(step);
    }
  }
  return c.at(input, at);
}

}  // namespace mcc::graph
