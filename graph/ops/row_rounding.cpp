#include "graph/ops/row_rounding.h"

namespace mcc::graph {

RowRounding::RowRounding(tensor::FuncBuilder& builder, ElementType element, const Expr& rows,
                         const Expr& length, const std::function<Expr(const Expr& row, const Expr& k)>& of) {
  auto extreme = [&](const char* name, Reducer reducer) {
    return builder.reduce(name, element, {rows}, {length}, reducer,
                          [&](Axes i, Axes r) { return of(i[0], r[0]); });
  };
  const Buffer low = extreme("low", Reducer::min), high = extreme("high", Reducer::max);
  // The range includes 0.
  auto least = [&](const Expr& row) { return tensor::min(load(low, {row}), 0); };
  scale_ = builder.compute("scale", element, {rows}, [&](Axes i) {
    const Expr span = tensor::max(load(high, {i[0]}), 0) - least(i[0]);
    return select(span == 0, number_like(span, 1), span / number_like(span, 255));
  });
  zero_ = builder.compute("zero", element, {rows}, [&](Axes i) {
    return call(Intrinsic::round, {tensor::min(tensor::max(-least(i[0]) / scale(i[0]), 0), 255)});
  });
}

Expr RowRounding::byte(const Expr& x, const Expr& row) const {
  return tensor::max(tensor::min(call(Intrinsic::round, {x / scale(row)}) + zero(row), 255), 0);
}

}  // namespace mcc::graph
