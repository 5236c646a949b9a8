#include <array>

#include "tensor/passes/math/builder.h"
#include "tensor/philox.h"

namespace mcc::tensor::math {

// Words stand in 64 bits each, so that a product is one multiplication of vectors' lower halves.
Expr philox(MathBuilder& b, const Expr& low, const Expr& high, const Expr& key, bool is_rest) {
  const Type type = low.type();
  auto number = [&](uint64_t value) { return constant_int(type, static_cast<int64_t>(value)); };
  auto word = [&](const Expr& x) { return binary(BinaryOp::bit_and, x, number(UINT32_MAX)); };
  auto upper = [&](const Expr& x) { return binary(BinaryOp::shr, x, number(32)); };
  auto exclusive = [](const Expr& x, const Expr& y) { return binary(BinaryOp::bit_xor, x, y); };
  std::array<Expr, 4> c = {b.let("c0", word(low)), b.let("c1", upper(low)), b.let("c2", word(high)),
                           b.let("c3", upper(high))};
  std::array<Expr, 2> k = {b.let("k0", word(key)), b.let("k1", upper(key))};
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const Expr p = b.let("p", c[0] * number(kPhiloxMultipliers[0])),
               q = b.let("q", c[2] * number(kPhiloxMultipliers[1]));
    c = {b.let("c0", exclusive(exclusive(upper(q), c[1]), k[0])), b.let("c1", word(q)),
         b.let("c2", exclusive(exclusive(upper(p), c[3]), k[1])), b.let("c3", word(p))};
    if (round + 1 < kPhiloxRounds)
      k = {b.let("k0", word(k[0] + number(kPhiloxSteps[0]))),
           b.let("k1", word(k[1] + number(kPhiloxSteps[1])))};
  }
  const size_t first = is_rest ? 2 : 0;
  return binary(BinaryOp::bit_or, binary(BinaryOp::shl, c[first + 1], number(32)), c[first]);
}

}  // namespace mcc::tensor::math
