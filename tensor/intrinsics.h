// What the intrinsics (MCC_INTRINSICS in tensor/expr.h) take, and who carries them out. A new one has a row there and a
// name in one of the lists here; the compiler names a list that lacks it.
#pragma once

#include "tensor/expr.h"

namespace mcc::tensor {

// Functions of floats that become polynomials before code generation (tensor/passes/lower_math).
#define MCC_EXPANDED_INTRINSICS(X)                                                                         \
  X(exp)                                                                                                   \
  X(exp2)                                                                                                  \
  X(log)                                                                                                   \
  X(log2)                                                                                                  \
  X(log1p)                                                                                                 \
  X(expm1)                                                                                                 \
  X(pow)                                                                                                   \
  X(rsqrt)                                                                                                 \
  X(tanh) X(erf) X(sigmoid) X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(asinh) X(acosh) \
      X(atanh)

// Functions of floats that machines have instructions for.
#define MCC_FLOAT_INTRINSICS(X) X(sqrt) X(floor) X(ceil) X(round) X(trunc) X(fma)

// What is left: of numbers, bits and conditions.
#define MCC_OTHER_INTRINSICS(X) \
  X(abs) X(is_nan) X(is_inf) X(logical_not) X(bit_not) X(popcount) X(bit_cast) X(prefetch) X(likely)

// Of the threads of a GPU's block: only there are instructions for them.
#define MCC_THREAD_INTRINSICS(X) X(barrier) X(shuffle_xor) X(shuffle_down)

// All that code generation has instructions for.
#define MCC_NATIVE_INTRINSICS(X) MCC_FLOAT_INTRINSICS(X) MCC_OTHER_INTRINSICS(X)

// What the arguments must be.
//   math        floats;  expanded into polynomials
//   float_op    floats;  instructions
//   number      integers or floats
//   float_test  floats, giving a condition
//   boolean     conditions
//   integer     integers
//   bit_cast    anything of the same width
//   prefetch    a load
//   barrier     nothing
//   exchange    32-bit numbers, and a constant
enum class IntrinsicClass : uint8_t {
  math,
  float_op,
  number,
  float_test,
  boolean,
  integer,
  bit_cast,
  prefetch,
  barrier,
  exchange
};

constexpr IntrinsicClass class_of(Intrinsic function) {
  switch (function) {
#define X(name) case Intrinsic::name:
    MCC_EXPANDED_INTRINSICS(X)
    return IntrinsicClass::math;
    MCC_FLOAT_INTRINSICS(X)
    return IntrinsicClass::float_op;
#undef X
    case Intrinsic::abs:
      return IntrinsicClass::number;
    case Intrinsic::is_nan:
    case Intrinsic::is_inf:
      return IntrinsicClass::float_test;
    case Intrinsic::logical_not:
    case Intrinsic::likely:
      return IntrinsicClass::boolean;
    case Intrinsic::bit_not:
    case Intrinsic::popcount:
      return IntrinsicClass::integer;
    case Intrinsic::bit_cast:
      return IntrinsicClass::bit_cast;
    case Intrinsic::prefetch:
      return IntrinsicClass::prefetch;
    case Intrinsic::barrier:
      return IntrinsicClass::barrier;
    case Intrinsic::shuffle_xor:
    case Intrinsic::shuffle_down:
      return IntrinsicClass::exchange;
  }
  MCC_UNREACHABLE("unknown intrinsic");
}

// Whether lower_math expands it.
constexpr bool is_expanded(Intrinsic function) { return class_of(function) == IntrinsicClass::math; }
// Whether threads wait for each other there.
constexpr bool is_exchange(Intrinsic function) { return class_of(function) == IntrinsicClass::exchange; }
// Whether it takes many times as long as an addition.
constexpr bool is_slow(Intrinsic function) { return is_expanded(function) || function == Intrinsic::sqrt; }

}  // namespace mcc::tensor
