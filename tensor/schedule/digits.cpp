#include "tensor/schedule/digits.h"

#include <algorithm>

namespace mcc::tensor {

namespace {

void flatten(const Expr& e, int64_t scale, std::vector<std::pair<int64_t, Expr>>* terms) {
  const auto* b = e.as<Binary>();
  int64_t c = 0;
  if (b != nullptr && b->op == BinaryOp::add) {
    flatten(b->a, scale, terms);
    flatten(b->b, scale, terms);
  } else if (b != nullptr && b->op == BinaryOp::sub) {
    flatten(b->a, scale, terms);
    flatten(b->b, -scale, terms);
  } else if (b != nullptr && b->op == BinaryOp::mul && as_int(b->b, &c)) {
    flatten(b->a, scale * c, terms);
  } else if (b != nullptr && b->op == BinaryOp::mul && as_int(b->a, &c)) {
    flatten(b->b, scale * c, terms);
  } else {
    terms->emplace_back(scale, e);
  }
}

}  // namespace

void split_sum(const Expr& e, std::vector<std::pair<int64_t, Expr>>* terms) { flatten(e, 1, terms); }

// By ascending stride, no stride may leave a gap.
bool is_dense(std::vector<std::pair<int64_t, Expr>> strides) {
  std::sort(strides.begin(), strides.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  int64_t reach = 0;
  for (size_t i = 0; i < strides.size(); ++i) {
    if (strides[i].first > reach + 1) return false;
    int64_t width = 0;
    if (!as_int(strides[i].second, &width)) return i + 1 == strides.size();
    reach += strides[i].first * width;
  }
  return true;
}

Digit as_digit(const Expr& e) {
  Digit d{e};
  int64_t c = 0;
  if (const auto* b = e.as<Binary>()) {
    bool sum = b->op == BinaryOp::add || b->op == BinaryOp::sub;
    if (sum && as_int(b->b, &c) && !b->a.as<IntImm>()) {
      d.base = b->a;
      d.offset = b->op == BinaryOp::add ? c : -c;
    } else if (b->op == BinaryOp::add && as_int(b->a, &c)) {
      d.base = b->b;
      d.offset = c;
    }
  }
  const auto* outer = d.base.as<Binary>();
  if (outer == nullptr || !as_int(outer->b, &c) || c <= 0) return d;
  const auto* inner = outer->a.as<Binary>();
  int64_t k = 0;
  bool has_inner = inner != nullptr && as_int(inner->b, &k) && k > 0;
  if (outer->op == BinaryOp::floor_mod) {
    bool divides = has_inner && inner->op == BinaryOp::floor_div;
    d.base = divides ? inner->a : outer->a;
    d.stride = divides ? k : 1;
    d.modulus = c;
  } else if (outer->op == BinaryOp::floor_div) {
    bool wraps = has_inner && inner->op == BinaryOp::floor_mod && k % c == 0;
    d.base = wraps ? inner->a : outer->a;
    d.stride = c;
    d.modulus = wraps ? k / c : 0;
  }
  return d;
}

bool is_complete(std::vector<PlacedDigit>* digits, const Expr& extent) {
  std::sort(digits->begin(), digits->end(),
            [](const PlacedDigit& a, const PlacedDigit& b) { return a.digit.stride < b.digit.stride; });
  int64_t next = 1, limit = 0;
  for (const PlacedDigit& d : *digits) {
    if (next == 0 || d.digit.stride != next) return false;
    next = d.digit.modulus * d.digit.stride;
  }
  return next == 0 || (extent.defined() && as_int(extent, &limit) && limit <= next);
}

namespace {

// base // stride %% modulus, of sizes that only a run knows; modulus undefined: none.
struct OpenDigit {
  size_t dimension;
  Expr stride = 1, modulus = {};
};

std::optional<OpenDigit> as_open_digit(const Expr& e, size_t dimension, const Var& base) {
  const auto* outer = e.as<Binary>();
  if (outer == nullptr) return std::nullopt;
  if (outer->op == BinaryOp::floor_div && outer->a.same_as(base)) return OpenDigit{dimension, outer->b};
  if (outer->op != BinaryOp::floor_mod) return std::nullopt;
  if (outer->a.same_as(base)) return OpenDigit{dimension, 1, outer->b};
  const auto* inner = outer->a.as<Binary>();
  const bool divides = inner != nullptr && inner->op == BinaryOp::floor_div && inner->a.same_as(base);
  return divides ? std::optional(OpenDigit{dimension, inner->b, outer->b}) : std::nullopt;
}

// The axis as the sum of its digits where each begins where the one before it ends, and the last has no end.
std::optional<AxisSolution> solve_open(const std::vector<Expr>& indices, const Axis& axis) {
  std::vector<OpenDigit> digits;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (std::optional<OpenDigit> digit = as_open_digit(indices[d], d, axis.var))
      digits.push_back(std::move(*digit));
  }
  AxisSolution solution;
  Expr next = 1;
  while (next.defined()) {
    auto it = std::find_if(digits.begin(), digits.end(),
                           [&](const OpenDigit& d) { return is_int(simplify(d.stride - next), 0); });
    if (it == digits.end()) return std::nullopt;
    solution.terms.emplace_back(it->dimension, it->stride);
    next = it->modulus.defined() ? simplify(it->modulus * it->stride) : Expr();
    if (next.defined()) solution.moduli.push_back(it->modulus);
    digits.erase(it);
  }
  return solution;
}

}  // namespace

std::vector<std::optional<AxisSolution>> solve_axes(const std::vector<Expr>& indices,
                                                    const std::vector<Axis>& axes) {
  std::vector<std::optional<AxisSolution>> solutions(axes.size());
  for (size_t a = 0; a < axes.size(); ++a) {
    std::vector<PlacedDigit> digits;
    const PlacedDigit* whole = nullptr;
    for (size_t d = 0; d < indices.size(); ++d) {
      Digit digit = as_digit(indices[d]);
      if (digit.base.same_as(axes[a].var)) digits.push_back({d, digit});
    }
    for (const PlacedDigit& d : digits) {
      if (d.digit.stride == 1 && d.digit.modulus == 0 && whole == nullptr) whole = &d;
    }
    AxisSolution solution;
    if (whole != nullptr) {
      solution.terms = {{whole->dimension, 1}};
      solution.offset = whole->digit.offset;
    } else {
      bool from_zero = is_int(axes[a].domain.min, 0);
      if (digits.empty() || !from_zero || !is_complete(&digits, axes[a].domain.extent)) {
        if (from_zero) solutions[a] = solve_open(indices, axes[a]);
        continue;
      }
      for (const PlacedDigit& d : digits) {
        solution.terms.emplace_back(d.dimension, d.digit.stride);
        solution.offset += d.digit.stride * d.digit.offset;
      }
    }
    solutions[a] = std::move(solution);
  }
  return solutions;
}

Expr apply_solution(const AxisSolution& solution, const std::vector<Expr>& elements,
                    const Analyzer& analyzer) {
  if (!solution.moduli.empty()) {
    // Digit by digit, from the greatest: what was taken apart comes together again.
    Expr value = elements[solution.terms.back().first];
    for (size_t n = solution.moduli.size(); n-- > 0;)
      value = analyzer.simplify(value * solution.moduli[n] + elements[solution.terms[n].first]);
    return value;
  }
  Expr sum = 0;
  for (const auto& [dimension, stride] : solution.terms)
    sum = sum + elements[dimension] * stride;
  return sum - solution.offset;
}

}  // namespace mcc::tensor
