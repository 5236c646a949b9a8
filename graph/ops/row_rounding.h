// Rows of numbers rounded to bytes, each with a scale and a zero point of its own, as DynamicQuantizeLinear has them for a tensor.
#pragma once

#include <functional>

#include "graph/ops/common.h"

namespace mcc::graph {

// DynamicQuantizeLinear's scale of what lies between low and high, where the range includes 0; 0 where all is 0.
Expr scale_to_bytes(const Expr& low, const Expr& high);
// And its zero point, a whole number. scale: where it is 0, the result means nothing.
Expr zero_of_bytes(const Expr& low, const Expr& scale);

class RowRounding {
 public:
  // of: number k of a row. Adds blocks that find the rows' scales.
  RowRounding(tensor::FuncBuilder& builder, ElementType element, const Expr& rows, const Expr& length,
              const std::function<Expr(const Expr& row, const Expr& k)>& of);

  // The byte of a number of the row, as a float; it stands for (byte - zero) * scale.
  Expr byte(const Expr& x, const Expr& row) const;
  Expr scale(const Expr& row) const { return load(scale_, {row}); }
  Expr zero(const Expr& row) const { return load(zero_, {row}); }  // a float
  Expr rounded(const Expr& x, const Expr& row) const { return (byte(x, row) - zero(row)) * scale(row); }

 private:
  Buffer scale_, zero_;  // [rows]
};

}  // namespace mcc::graph
