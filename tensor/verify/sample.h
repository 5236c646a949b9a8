// Integer expressions evaluated at sample points of loops and axes.
#pragma once

#include <functional>
#include <optional>
#include <unordered_map>

#include "tensor/stmt.h"

namespace mcc::tensor::verifier {

using Point = std::unordered_map<const ExprNode*, int64_t>;

// The value of a scalar integer or boolean expression; none if it depends on more than the point (a dimension, a load).
std::optional<int64_t> evaluate(const Expr& e, const Point& point);

struct SampledVar {
  Var var;
  Expr min, extent;  // over the variables before this one
};

// Calls visit at corners and random points of the variables' ranges, the same ones in every run, until it returns false.
// Not at all if a range is empty or not known.
void for_each_sample(const std::vector<SampledVar>& vars, const std::function<bool(const Point&)>& visit);

// Whether all conditions are known to hold.
bool all_hold(const std::vector<Expr>& conditions, const Point& point);

// "i = 3, j = 0"
std::string point_text(const std::vector<SampledVar>& vars, const Point& point);

}  // namespace mcc::tensor::verifier
