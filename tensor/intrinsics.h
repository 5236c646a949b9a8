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

// Random bits, which become integer arithmetic at the same place.
#define MCC_RANDOM_INTRINSICS(X) X(philox) X(philox_rest)

// Functions of floats that machines have instructions for.
#define MCC_FLOAT_INTRINSICS(X) \
  X(sqrt)                       \
  X(floor) X(ceil) X(round) X(trunc) X(fma) X(mul_sum) X(exp2_approx) X(reciprocal_approx) X(rsqrt_approx)

// What is left: of numbers, bits and conditions.
#define MCC_OTHER_INTRINSICS(X)                                                                  \
  X(abs)                                                                                         \
  X(is_nan)                                                                                      \
  X(is_inf) X(logical_not) X(bit_not) X(popcount) X(bit_cast) X(prefetch) X(likely) X(dot4_u8i8) \
      X(dot4_i8u8) X(dot4_i8i8) X(dot2_i16i8) X(dot2_bf16)

// Of the threads of a GPU's block: only there are instructions for them.
#define MCC_THREAD_INTRINSICS(X)                                                                            \
  X(barrier)                                                                                                \
  X(shuffle_xor) X(shuffle_down) X(shuffle_from) X(load_matrices) X(load_matrices_transposed) X(mma_f16)    \
      X(mma_bf16) X(mma_tf32) X(mma_i8) X(mma_u8i8) X(async_copy) X(async_commit) X(async_wait)             \
          X(wgmma_fence) X(wgmma_f16) X(wgmma_bf16) X(wgmma_tf32) X(wgmma_i8) X(wgmma_u8i8) X(wgmma_commit) \
              X(wgmma_wait) X(fence_async) X(bulk_init) X(bulk_expect) X(bulk_copy) X(bulk_wait)

// Of tiles of matrices.
#define MCC_TILE_INTRINSICS(X)                                                                         \
  X(tile_product_u8i8) X(tile_product_bf16) X(tile_configure) X(tile_zero) X(tile_load) X(tile_store) \
      X(tile_multiply_u8i8) X(tile_multiply_bf16)

// All that code generation has instructions for.
#define MCC_NATIVE_INTRINSICS(X) MCC_FLOAT_INTRINSICS(X) MCC_OTHER_INTRINSICS(X)

// What the arguments must be.
//   math        floats;  expanded into polynomials
//   float_op    floats;  instructions
//   random      u64; expanded into integer arithmetic
//   number      integers or floats
//   float_test  floats, giving a condition
//   boolean     conditions
//   integer     integers
//   bit_cast    anything of the same width
//   prefetch    a load
//   barrier     nothing
//   exchange    numbers that registers hold in 32 bits, and a constant or a thread's number
//   rows        16 bytes, and 1, 2 or 4
//   mma         i32x4 (or 8 elements), i32x2, and f32x4 or i32x4
//   async       two loads, nothing, or a constant
//   dot         i32xn, u8x4 or i8x4, and i8x4n; i32xn, i16x2 and i8x2n; or f32xn, bf16x2 and bf16x2n
//   wgmma       nothing; the sums (a load of f32 or i32), and a constant, or two operands, each a load and four constants
//   bulk        a load of i64, and a number or a box
//   tile        loads, and constants
enum class IntrinsicClass : uint8_t {
  math,
  float_op,
  random,
  number,
  float_test,
  boolean,
  integer,
  bit_cast,
  prefetch,
  barrier,
  exchange,
  rows,
  mma,
  async,
  dot,
  wgmma,
  bulk,
  tile
};

constexpr IntrinsicClass class_of(Intrinsic function) {
  switch (function) {
#define X(name) case Intrinsic::name:
    MCC_EXPANDED_INTRINSICS(X)
    return IntrinsicClass::math;
    MCC_FLOAT_INTRINSICS(X)
    return IntrinsicClass::float_op;
    MCC_RANDOM_INTRINSICS(X)
    return IntrinsicClass::random;
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
    case Intrinsic::shuffle_from:
      return IntrinsicClass::exchange;
    case Intrinsic::load_matrices:
    case Intrinsic::load_matrices_transposed:
      return IntrinsicClass::rows;
    case Intrinsic::mma_f16:
    case Intrinsic::mma_bf16:
    case Intrinsic::mma_tf32:
    case Intrinsic::mma_i8:
    case Intrinsic::mma_u8i8:
      return IntrinsicClass::mma;
    case Intrinsic::async_copy:
    case Intrinsic::async_commit:
    case Intrinsic::async_wait:
      return IntrinsicClass::async;
    case Intrinsic::dot4_u8i8:
    case Intrinsic::dot4_i8u8:
    case Intrinsic::dot4_i8i8:
    case Intrinsic::dot2_i16i8:
    case Intrinsic::dot2_bf16:
      return IntrinsicClass::dot;
    case Intrinsic::wgmma_fence:
    case Intrinsic::wgmma_f16:
    case Intrinsic::wgmma_bf16:
    case Intrinsic::wgmma_tf32:
    case Intrinsic::wgmma_i8:
    case Intrinsic::wgmma_u8i8:
    case Intrinsic::wgmma_commit:
    case Intrinsic::wgmma_wait:
    case Intrinsic::fence_async:
      return IntrinsicClass::wgmma;
    case Intrinsic::bulk_init:
    case Intrinsic::bulk_expect:
    case Intrinsic::bulk_copy:
    case Intrinsic::bulk_wait:
      return IntrinsicClass::bulk;
    case Intrinsic::tile_product_u8i8:
    case Intrinsic::tile_product_bf16:
    case Intrinsic::tile_configure:
    case Intrinsic::tile_zero:
    case Intrinsic::tile_load:
    case Intrinsic::tile_store:
    case Intrinsic::tile_multiply_u8i8:
    case Intrinsic::tile_multiply_bf16:
      return IntrinsicClass::tile;
  }
  MCC_UNREACHABLE("unknown intrinsic");
}

// Whether lower_math expands it.
constexpr bool is_expanded(Intrinsic function) {
  return class_of(function) == IntrinsicClass::math || class_of(function) == IntrinsicClass::random;
}
// Whether the threads of a warp come there together: each gets what others have.
constexpr bool is_exchange(Intrinsic function) {
  IntrinsicClass of = class_of(function);
  return of == IntrinsicClass::exchange || of == IntrinsicClass::rows || of == IntrinsicClass::mma;
}
// Whether it is a statement, without a value.
constexpr bool is_statement(Intrinsic function) {
  IntrinsicClass of = class_of(function);
  return of == IntrinsicClass::prefetch || of == IntrinsicClass::barrier || of == IntrinsicClass::async ||
         of == IntrinsicClass::wgmma || of == IntrinsicClass::bulk || of == IntrinsicClass::tile;
}
// Whether it has a warpgroup make a product.
constexpr bool is_wgmma(Intrinsic function) {
  return function == Intrinsic::wgmma_f16 || function == Intrinsic::wgmma_bf16 ||
         function == Intrinsic::wgmma_tf32 || function == Intrinsic::wgmma_i8 ||
         function == Intrinsic::wgmma_u8i8;
}
// Bytes to which operands of products are aligned whose units are exchanged (swizzle): the longest period of an order.
inline constexpr int kSwizzleAlign = 1024;
// Elements of such a unit of 16 bytes: of those that stand along k, an instruction takes two units of each row.
inline int64_t unit_elements(ElementType type) { return 16 / byte_size(type); }
// What a product of words (a dot product, of tiles) or by a warp or warpgroup takes on its left and on its right, and sums in.
constexpr ElementType right_element(Intrinsic function) {
  if (function == Intrinsic::mma_f16 || function == Intrinsic::wgmma_f16) return ElementType::f16;
  if (function == Intrinsic::mma_tf32 || function == Intrinsic::wgmma_tf32) return ElementType::tf32;
  if (function == Intrinsic::dot4_i8u8) return ElementType::u8;
  const bool is_bf16 = function == Intrinsic::dot2_bf16 || function == Intrinsic::tile_product_bf16 ||
                       function == Intrinsic::tile_multiply_bf16 || function == Intrinsic::mma_bf16 ||
                       function == Intrinsic::wgmma_bf16;
  return is_bf16 ? ElementType::bf16 : ElementType::i8;
}
constexpr ElementType left_element(Intrinsic function) {
  const bool is_unsigned = function == Intrinsic::dot4_u8i8 || function == Intrinsic::mma_u8i8 ||
                           function == Intrinsic::wgmma_u8i8 || function == Intrinsic::tile_product_u8i8 ||
                           function == Intrinsic::tile_multiply_u8i8;
  if (function == Intrinsic::dot4_i8u8) return ElementType::i8;
  if (function == Intrinsic::dot2_i16i8) return ElementType::i16;
  return is_unsigned ? ElementType::u8 : right_element(function);
}
constexpr ElementType sum_element(Intrinsic function) {
  const ElementType right = right_element(function);
  return right == ElementType::i8 || right == ElementType::u8 ? ElementType::i32 : ElementType::f32;
}
// Elements of a word.
inline int word_elements(ElementType element) { return 32 / bit_width(element); }
// Those that a product of words takes along the sum: a word of its left operand.
inline int dot_elements(Intrinsic function) { return word_elements(left_element(function)); }
// Tiles that a thread has, and what one has at most: rows, and columns of 32 bits.
inline constexpr int kTiles = 8, kTileRows = 16, kTileColumns = 16;
// Whether it multiplies tiles, in memory or in registers.
constexpr bool is_tile_product(Intrinsic function) {
  return function == Intrinsic::tile_product_u8i8 || function == Intrinsic::tile_product_bf16;
}
// Whether a product of matrices sums in i32.
constexpr bool is_integer_mma(Intrinsic function) {
  return function == Intrinsic::mma_i8 || function == Intrinsic::mma_u8i8;
}
// Whether it goes lane by lane, over arguments of one type.
constexpr bool is_lanewise(Intrinsic function) {
  return !is_statement(function) && !is_exchange(function) && class_of(function) != IntrinsicClass::dot;
}
// Whether it takes many times as long as an addition.
constexpr bool is_slow(Intrinsic function) { return is_expanded(function) || function == Intrinsic::sqrt; }

}  // namespace mcc::tensor
