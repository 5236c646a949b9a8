#include "graph/ops/row_rounding.h"

namespace mcc::graph {

Expr scale_to_bytes(const Expr& low, const Expr& high) {
  const Expr span = tensor::max(high, number_like(high, 0)) - tensor::min(low, number_like(low, 0));
  return span / number_like(span, 255);
}

Expr zero_of_bytes(const Expr& low, const Expr& scale) {
  const Expr position = -tensor::min(low, number_like(low, 0)) / scale;
  return call(Intrinsic::round, {tensor::min(tensor::max(position, 0), 255)});
}

RowRounding::RowRounding(tensor::FuncBuilder& builder, ElementType element, const Expr& rows,
                         const Expr& length, const std::function<Expr(const Expr& row, const Expr& k)>& of) {
  auto extreme = [&](const char* name, Reducer reducer) {
    return builder.reduce(name, element, {rows}, {length}, reducer,
                          [&](Axes i, Axes r) { return of(i[0], r[0]); });
  };
  const Buffer low = extreme("low", Reducer::min), high = extreme("high", Reducer::max);
  scale_ = builder.compute("scale", element, {rows}, [&](Axes i) {
    const Expr scale = scale_to_bytes(load(low, {i[0]}), load(high, {i[0]}));
    return select(scale == 0, number_like(scale, 1), scale);
  });
  zero_ = builder.compute("zero", element, {rows},
                          [&](Axes i) { return zero_of_bytes(load(low, {i[0]}), scale(i[0])); });
}

Expr RowRounding::byte(const Expr& x, const Expr& row) const {
  return tensor::max(tensor::min(call(Intrinsic::round, {x / scale(row)}) + zero(row), 255), 0);
}

}  // namespace mcc::graph
