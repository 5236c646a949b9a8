#include "tensor/passes/exchanged.h"

#include "tensor/visit.h"

namespace mcc::tensor {
namespace {

const Binary* find_exchange(const Expr& index) {
  const Binary* found = nullptr;
  for_each_expr(Evaluate::make(index), [&](const Expr& e) {
    const auto* n = e.as<Binary>();
    if (n && n->op == BinaryOp::bit_xor) found = n;
  });
  return found;
}

}  // namespace

std::optional<Exchanged> exchanged(const Analyzer& known, const Expr& whole, int64_t of_unit) {
  const int64_t period = 8 * of_unit;  // 128 bytes
  const Expr index = known.simplify(whole);
  const Binary* flip = find_exchange(index);
  if (!flip) return Exchanged{index};
  const Expr self(flip);
  auto is_same = [&](const Expr& a, const Expr& b) { return known.constant_difference(a, b) == 0; };
  for (const auto& [unit, by] : {std::pair{flip->a, flip->b}, {flip->b, flip->a}}) {
    const Expr plain = known.simplify(index + (unit - self) * of_unit);
    const Interval range = known.bounds(unit);
    if (find_exchange(plain) || !range.low || !range.high || *range.low < 0) continue;
    for (int64_t units : {2, 4, 8}) {
      // The unit is the one of the row, and what it is exchanged by follows from the address.
      if (*range.high < units && is_same(floor_mod(floor_div(plain, of_unit), units), unit) &&
          is_same(floor_mod(floor_div(plain, period), units), by))
        return Exchanged{plain, units * 16};
    }
  }
  return std::nullopt;
}

}  // namespace mcc::tensor
