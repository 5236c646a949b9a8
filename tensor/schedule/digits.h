// Index expressions taken apart: the terms of a sum, the digits of a number, and the axes that follow from them.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "tensor/simplify.h"
#include "tensor/stmt.h"

namespace mcc::tensor {

// e as a sum of (coefficient, atom), atoms being neither sums nor products with a constant.
void split_sum(const Expr& e, std::vector<std::pair<int64_t, Expr>>* terms);

// Whether sums of c_i * x_i, each x_i taking all of 0..width_i independently, attain every value up to their total. Given:
// pairs of |c_i| and width_i.
bool is_dense(std::vector<std::pair<int64_t, Expr>> strides);

// An expression as (base // stride) %% modulus + offset; modulus 0 means none. Anything is at least its own base.
struct Digit {
  Expr base;
  int64_t stride = 1, modulus = 0, offset = 0;
};
Digit as_digit(const Expr& e);
// Whether digits of one base leave nothing out of a number below `extent` (undefined: of any number). Sorts them by stride.
struct PlacedDigit {
  size_t dimension;
  Digit digit;
};
bool is_complete(std::vector<PlacedDigit>* digits, const Expr& extent);

// How an axis follows from the elements of an access: axis = sum of stride * element[dimension] - offset.
struct AxisSolution {
  std::vector<std::pair<size_t, Expr>> terms;  // dimension, stride: a number, or a product of open sizes
  std::vector<Expr>
      moduli;  // of open digits, by term, all but the last; terms are those of the least stride first
  int64_t offset = 0;
};

// Solves indices such as (n, oc // 16, y + 1, oc %% 16), or (p // (H * W), p // W %% H, p %% W), for the axes; an axis that they do not
// determine has no solution.
// The axes' extents tell which digit is the last.
std::vector<std::optional<AxisSolution>> solve_axes(const std::vector<Expr>& indices,
                                                    const std::vector<Axis>& axes);
// analyzer: what is known of open sizes.
Expr apply_solution(const AxisSolution& solution, const std::vector<Expr>& elements,
                    const Analyzer& analyzer);

}  // namespace mcc::tensor
