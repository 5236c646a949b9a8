// Expressions of the tensor IR: immutable, shared, made only by a checking make().
//
// Index arithmetic is in i64. A scalar expression has one lane; a vector has more. Variables and
// buffers are identities: two of the same name are two. Semantics stand at each node.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "support/check.h"
#include "support/element_type.h"
#include "support/ref.h"

namespace mcc::tensor {

// Element type and number of vector lanes.
struct Type {
  ElementType element = ElementType::i64;
  int lanes = 1;

  bool operator==(const Type&) const = default;
  bool is_vector() const { return lanes > 1; }
  Type with_lanes(int n) const { return {element, n}; }
  Type scalar() const { return {element, 1}; }
};

inline constexpr Type kIndex{ElementType::i64, 1};
inline constexpr Type kBool{ElementType::boolean, 1};

// One list gives the enum, dispatch, printer, equality and hash.
#define MCC_EXPR_NODES(X) \
  X(IntImm)               \
  X(FloatImm)             \
  X(Var)                  \
  X(Cast)                 \
  X(Binary)               \
  X(Select)               \
  X(Load)                 \
  X(Ramp)                 \
  X(Broadcast)            \
  X(Shuffle)              \
  X(VectorReduce)         \
  X(Call)

enum class ExprKind : uint8_t {
#define X(Name) Name,
  MCC_EXPR_NODES(X)
#undef X
};

struct ExprNode : RefCounted {
  ExprNode(ExprKind k, Type t) : kind(k), type(t) {}
  const ExprKind kind;
  const Type type;
};

class Expr : public Ref<const ExprNode> {
 public:
  Expr() = default;
  Expr(std::nullptr_t) {}
  explicit Expr(const ExprNode* node) : Ref(node) {}
  Expr(int64_t value);  // an i64 constant
  Expr(int value) : Expr(static_cast<int64_t>(value)) {}

  // Deleted so that "if (a == b)", which builds an expression, does not compile. Use defined().
  explicit operator bool() const = delete;

  Type type() const { return get()->type; }
  ElementType element() const { return get()->type.element; }
  int lanes() const { return get()->type.lanes; }
  ExprKind kind() const { return get()->kind; }

  // The node if it is of this kind, else null.
  template <class T>
  const T* as() const {
    return get() && get()->kind == T::kKind ? static_cast<const T*>(get()) : nullptr;
  }
};

// An integer or boolean constant (also of vector type: every lane the same, as a Broadcast is).
// Always scalar; value is sign- or zero-extended from the element's width.
struct IntImm : ExprNode {
  static constexpr ExprKind kKind = ExprKind::IntImm;
  IntImm(Type t, int64_t v) : ExprNode(kKind, t), value(v) {}
  static Expr make(Type type, int64_t value);
  const int64_t value;
};

// A floating-point constant; value is already rounded to the element type.
struct FloatImm : ExprNode {
  static constexpr ExprKind kKind = ExprKind::FloatImm;
  FloatImm(Type t, double v) : ExprNode(kKind, t), value(v) {}
  static Expr make(Type type, double value);
  const double value;
};

// A variable: loop index, block axis, symbolic dimension, or let-bound value. Identity is the node.
struct VarNode : ExprNode {
  static constexpr ExprKind kKind = ExprKind::Var;
  VarNode(Type t, std::string n) : ExprNode(kKind, t), name(std::move(n)) {}
  const std::string name;
};

class Var : public Expr {
 public:
  Var() = default;
  explicit Var(std::string name, Type type = kIndex);
  explicit Var(const VarNode* node) : Expr(node) {}
  const VarNode* node() const { return static_cast<const VarNode*>(get()); }
  const std::string& name() const { return node()->name; }
};

// Conversion by value. float -> int truncates toward zero and saturates (NaN gives 0); int -> narrower int wraps; anything -> bool is
// "!= 0"; float -> narrower float rounds to nearest even; to bf16 numbers below the smallest normal one may become 0.
// bit_cast is a Call.
struct Cast : ExprNode {
  static constexpr ExprKind kKind = ExprKind::Cast;
  Cast(Type t, Expr v) : ExprNode(kKind, t), value(std::move(v)) {}
  static Expr make(Type type, Expr value);  // same number of lanes; the value itself if same type
  const Expr value;
};

// Both operands have the same type. Comparisons and logical operators give bool.
//   div, mod       floats: IEEE division, C's fmod. Integers: toward zero, remainder with the sign of
//                  the dividend; a zero divisor gives 0 (never traps).
//   floor_div/mod  integers only; toward minus infinity, remainder with the sign of the divisor.
//   min, max       floats: a NaN operand gives NaN.
//   add, sub, mul  integers wrap. Floats may be contracted into an FMA.
//   shl, shr       integers; shr is arithmetic for signed types; shift counts are below the width.
#define MCC_BINARY_OPS(X)                                                                                \
  X(add, "+")                                                                                            \
  X(sub, "-")                                                                                            \
  X(mul, "*")                                                                                            \
  X(div, "/") X(mod, "%") X(floor_div, "//") X(floor_mod, "%%") X(min, "min") X(max, "max") X(eq, "==")  \
      X(ne, "!=") X(lt, "<") X(le, "<=") X(gt, ">") X(ge, ">=") X(logical_and, "&&") X(logical_or, "||") \
          X(bit_and, "&") X(bit_or, "|") X(bit_xor, "^") X(shl, "<<") X(shr, ">>")

enum class BinaryOp : uint8_t {
#define X(name, text) name,
  MCC_BINARY_OPS(X)
#undef X
};

inline constexpr bool is_comparison(BinaryOp op) { return op >= BinaryOp::eq && op <= BinaryOp::ge; }
inline constexpr bool is_logical(BinaryOp op) { return op == BinaryOp::logical_and || op == BinaryOp::logical_or; }

struct Binary : ExprNode {
  static constexpr ExprKind kKind = ExprKind::Binary;
  Binary(Type t, BinaryOp o, Expr l, Expr r) : ExprNode(kKind, t), op(o), a(std::move(l)), b(std::move(r)) {}
  static Expr make(BinaryOp op, Expr a, Expr b);
  const BinaryOp op;
  const Expr a, b;
};

// condition ? on_true : on_false, lane by lane. Both sides are values and may be evaluated, except that a
// Load under a scalar Select is only done when its side is taken (a guard against reading outside).
struct Select : ExprNode {
  static constexpr ExprKind kKind = ExprKind::Select;
  Select(Type t, Expr c, Expr x, Expr y)
      : ExprNode(kKind, t), condition(std::move(c)), on_true(std::move(x)), on_false(std::move(y)) {}
  static Expr make(Expr condition, Expr on_true, Expr on_false);
  const Expr condition, on_true, on_false;
};

// Where a buffer lives.
//   global     a parameter, or an intermediate in the kernel's workspace (shared by its threads)
//   local      private to the thread that runs the enclosing iteration (stack or thread workspace)
//   registers  private and small; every access has constant indices once loops are unrolled
//   shared     a GPU block's shared memory
//   warp       spread over a GPU's warp: each element is with the thread that writes it, which hands it to those that read it. In
//              schedules only: form_launches leaves none
enum class Scope : uint8_t { global, local, registers, shared, warp };

struct BufferNode : RefCounted {
  std::string name;
  ElementType element;
  std::vector<Expr> shape;  // row-major, dense
  Scope scope = Scope::global;
  int alignment = 64;  // bytes, of the first element
};

// A buffer is an identity; the name is only for printing.
class Buffer : public Ref<const BufferNode> {
 public:
  Buffer() = default;
  Buffer(std::string name, ElementType element, std::vector<Expr> shape, Scope scope = Scope::global,
         int alignment = 64);
  const std::string& name() const { return get()->name; }
  ElementType element() const { return get()->element; }
  const std::vector<Expr>& shape() const { return get()->shape; }
  Scope scope() const { return get()->scope; }
  int rank() const { return static_cast<int>(get()->shape.size()); }
};

// Reads one element per lane. All indices have the lanes of the type, or one lane. predicate is
// undefined (always) or a bool with the same lanes: a lane whose predicate is false is not read and gives 0.
struct Load : ExprNode {
  static constexpr ExprKind kKind = ExprKind::Load;
  Load(Type t, Buffer b, std::vector<Expr> i, Expr p)
      : ExprNode(kKind, t), buffer(std::move(b)), indices(std::move(i)), predicate(std::move(p)) {}
  static Expr make(Buffer buffer, std::vector<Expr> indices, Expr predicate = nullptr);
  const Buffer buffer;
  const std::vector<Expr> indices;
  const Expr predicate;
};

// base, base + stride, base + 2*stride, ...  (scalar integer base and stride)
struct Ramp : ExprNode {
  static constexpr ExprKind kKind = ExprKind::Ramp;
  Ramp(Type t, Expr b, Expr s) : ExprNode(kKind, t), base(std::move(b)), stride(std::move(s)) {}
  static Expr make(Expr base, Expr stride, int lanes);
  const Expr base, stride;
};

// A scalar in every lane.
struct Broadcast : ExprNode {
  static constexpr ExprKind kKind = ExprKind::Broadcast;
  Broadcast(Type t, Expr v) : ExprNode(kKind, t), value(std::move(v)) {}
  static Expr make(Expr value, int lanes);
  const Expr value;
};

// Concatenates the vectors and picks lanes; one index gives a scalar.
struct Shuffle : ExprNode {
  static constexpr ExprKind kKind = ExprKind::Shuffle;
  Shuffle(Type t, std::vector<Expr> v, std::vector<int> i)
      : ExprNode(kKind, t), vectors(std::move(v)), indices(std::move(i)) {}
  static Expr make(std::vector<Expr> vectors, std::vector<int> indices);
  const std::vector<Expr> vectors;
  const std::vector<int> indices;
};

// Reduces all lanes to a scalar, in any order (reassociation is licensed). op: add, mul, min, max,
// logical_and, logical_or.
struct VectorReduce : ExprNode {
  static constexpr ExprKind kKind = ExprKind::VectorReduce;
  VectorReduce(Type t, BinaryOp o, Expr v) : ExprNode(kKind, t), op(o), value(std::move(v)) {}
  static Expr make(BinaryOp op, Expr value);
  const BinaryOp op;
  const Expr value;
};

// A call of a named intrinsic, lane by lane. Mathematical functions take and give floats of one type.
//   is_nan, is_inf         float -> bool
//   bit_cast               same bits, other type (the Call's type)
//   logical_not            bool -> bool;  bit_not, popcount: int -> int
//   round                  to nearest even;  fma(a, b, c) = a*b+c rounded once
//   mul_sum(a, b, c)       fma(a, b, a*c): a times the sum of b and a much smaller c, which is not rounded
//   philox(a, b, key)      Philox 4x32-10 (tensor/philox.h) of the counter (a, b), four words from a's low one on, and the key, all u64: the
//                          first two words of the block, the first one low;  philox_rest: the last two
// Instructions of GPUs, of f32 within 2 ULP:
//   exp2_approx            2^x; 0 for results below the smallest normal number
//   reciprocal_approx      1 / x; subnormal x count as 0, and results below the smallest normal number are 0
//   rsqrt_approx           1 / sqrt(x)
//   rem: IEEE remainder is not here; see Binary mod
//   prefetch(load, k)      a hint for the address of a Load, k = 0 (one use) .. 3 (keep); statement only
//   likely(cond)           the condition is expected to hold
// Of words, 32 bits that hold four bytes or two elements of 16 bits, of which a sum takes all:
//   dot4_u8i8(c, a, b)     c (i32xn) + a (u8x4) . the four of b (i8x4n) at each lane; exact, wrapping as i32 does
//   dot4_i8u8(c, a, b)     the same with a of i8 and b of u8
//   dot4_i8i8(c, a, b)     the same of i8 alone
//   dot2_i16i8(c, a, b)    c (i32xn) + a (i16x2) . the two of b (i8x2n) at each lane; exact, wrapping as i32 does
//   dot2_bf16(c, a, b)     c (f32xn) + a (bf16x2) . the two of b (bf16x2n) at each lane; products are exact, summed in any order, numbers
//                          below the smallest normal one may count as 0
// Of tiles, eight registers of a CPU's thread that hold a matrix each (AMX). All are statements only. Sums are tiles of `rows` rows of 16
// i32 or f32; left operands have `rows` rows of k words, right ones k rows of 16: a word of each column. What
// stands for a tile in memory is a load of its first element, and the elements from one row to the next:
//   tile_product_T(c, c_row, a, a_row, b, b_row, rows, k)  in memory: c += a * b, rows and k from 1 to 16. T = u8i8: c of i32, a of u8, b of
//                          i8, as dot4_u8i8; bf16: c of f32, as dot2_bf16. The pass keep_tiles makes those below of it
//   tile_configure(rows, k, sums, lefts)  from now on tiles 0 .. sums - 1 are sums, the next `lefts` left operands, the rest right ones.
//                          With rows 0: there are no tiles any more
//   tile_zero(t)           tile t is all 0
//   tile_load(x, row, t)   tile t is what stands at x;  tile_store(x, row, t): and back
//   tile_multiply_T(c, a, b)  of tiles by their numbers: c += a * b
// Of the threads of a GPU's block; where all of them come (shuffles: all of a warp of 32 that are there):
//   barrier()              a statement only: goes on when all threads are here and sees what they wrote
//   shuffle_xor(x, k)      x of the thread whose number in the warp is this one's ^ k (a constant, i64)
//   shuffle_down(x, k)     x of the thread whose number in the warp is k greater; of this one where there is none
//   shuffle_from(x, k)     x of the thread whose number in the warp is k (i64, 0 to 31, each thread's own)
// Of matrices that a warp holds together, in 32-bit registers of 4 / (bytes of an element) = e elements. Thread t holds in
// register 0 row t // 4, elements e * (t %% 4) and on (as PTX's mma fragments):
//   load_matrices(x, n)    x: 16 bytes, a row of one of n = 1, 2, 4 matrices of 8 rows; row r of matrix m is thread 8 * m + r's.
//                          Gives i32xn: register m of each thread's part of matrix m. A load from shared memory
//   load_matrices_transposed(x, n)  the same of the transposed matrices, of elements of 16 bits
//   mma_T(a, b, c)         c + A * B, of matrices of T = f16, bf16, tf32, i8 (u8i8: A of u8): A of 16 rows and K = 8 * e columns, B of
//                          8 columns, c (f32x4; i32x4 for integers) of 16 x 8. Registers of a (i32x4): rows from 0, then from 8, of the first K / 2
//                          columns, then the other half; of b (i32x2): the halves of B's columns as rows; c: two neighbours
//                          of row t // 4, from column 2 * (t %% 4), then of row t // 4 + 8. Products are exact, summed in
//                          any order. a may also be the elements of its registers, one by one (f16x8, bf16x8)
// Copies that run beside the threads, from global to shared memory. A thread waits for its own; others see them after a barrier:
//   async_copy(to, from)   a statement only: to, a load that stands for a place in shared memory, gets what the load `from` gives;
//                          4, 8 or 16 bytes. Neither is used by anyone before the wait
//   async_commit()         a statement only: what this thread copied since the last one is a group
//   async_wait(n)          a statement only: goes on when all groups of this thread but the last n are there
// Boxes that the copy engine moves (PTX's bulk tensor copies), for any thread to see that waits for them. `bar` is a load that stands
// for an i64 in shared memory. All are statements only:
//   bulk_init(bar)         from the next barrier on it counts phases, from 0
//   bulk_expect(bar, n)    its phase ends when the boxes that are copied for it have n bytes; once in each phase
//   bulk_copy(bar, to, swizzle, from, pitch, height, width, column, row)  a box of a matrix with that many rows of `pitch` elements,
//                          of which `from` loads the first, beginning at that place: `height` rows of `width` elements, zeros
//                          where the matrix has none. `to`, a load, stands for where it goes in shared memory: row by row, in
//                          units that are exchanged as wgmma_T's operands are. Nobody uses that before the phase has ended
//   bulk_wait(bar, p)      goes on when the last phase whose number is p (mod 2) has ended
// Products that four neighbouring warps (a warpgroup: threads 128 * g to 128 * g + 127) have made beside them (PTX's wgmma). All
// are statements only. `sums`, a load, stands for N / 2 places of this thread's that hold its part of 64 x N sums: warp w of the
// four has 16 rows from 16 * w, and of each 8 columns what mma_T's c has. Between wgmma_T and the wait neither the sums nor the
// operands are used by anyone:
//   wgmma_fence(sums)      what this thread wrote there before is there for the products that follow
//   wgmma_T(sums, a, a_side, a_k, a_across, a_swizzle, b, b_side, b_k, b_across, b_swizzle)  sums += A * B, of T = f16, bf16,
//                          tf32, i8 (u8i8: A of u8): A of 64 rows and 2 * u columns, B of 2 * u rows and N columns (u: elements of 16
//                          bytes), in shared memory in one of these orders, the same for all 128 threads. a, b: loads of the
//                          first element; _across: 0: neighbours follow each other along k, 1: along A's rows (B's columns; of
//                          elements of 16 bits only). Products are exact, integers summed in i32
//      swizzle 0           squares of 8 x u elements; _side, _k: elements from one to the next along A's rows (B's columns), along k
//      swizzle 32, 64, 128  rows of that many bytes, one behind the other, whose units of 16 bytes are exchanged: what an order
//                          without that has at byte x of the buffer is at x ^ (x // 128 %% (swizzle // 16)) * 16. Along k:
//                          _side: elements from 8 of A's rows (B's columns) to the next 8; _k is u. Across it: _side: from one
//                          row's worth of A's rows (B's columns) to the next; _k: from 8 rows (along k) to the next 8
//   wgmma_commit()         the products since the last one are a group
//   wgmma_wait(sums, n)    goes on when all groups of this thread but the last n are done
//   fence_async()          what this thread wrote to shared memory before is there for products behind the next barrier
#define MCC_INTRINSICS(X)                                                                                    \
  X(exp, 1)                                                                                                  \
  X(exp2, 1)                                                                                                 \
  X(log, 1)                                                                                                  \
  X(log2, 1)                                                                                                 \
  X(log1p, 1)                                                                                                \
  X(expm1, 1)                                                                                                \
  X(pow, 2)                                                                                                  \
  X(sqrt, 1)                                                                                                 \
  X(rsqrt, 1)                                                                                                \
  X(tanh, 1) X(erf, 1) X(sigmoid, 1) X(sin, 1) X(cos, 1) X(tan, 1) X(asin, 1) X(acos, 1) X(atan, 1)          \
      X(sinh, 1) X(cosh, 1) X(asinh, 1) X(acosh, 1) X(atanh, 1) X(abs, 1) X(floor, 1) X(ceil, 1) X(round, 1) \
          X(trunc, 1) X(fma, 3) X(mul_sum, 3) X(exp2_approx, 1) X(reciprocal_approx, 1) X(rsqrt_approx, 1)   \
              X(is_nan, 1) X(is_inf, 1) X(logical_not, 1) X(bit_not, 1) X(popcount, 1) X(bit_cast, 1)        \
                  X(prefetch, 2) X(likely, 1) X(barrier, 0) X(shuffle_xor, 2) X(shuffle_down, 2)             \
                      X(shuffle_from, 2) X(load_matrices, 2) X(load_matrices_transposed, 2) X(mma_f16, 3)    \
                          X(mma_bf16, 3) X(mma_tf32, 3) X(mma_i8, 3) X(mma_u8i8, 3) X(async_copy, 2)         \
                              X(async_commit, 0) X(async_wait, 1) X(dot4_u8i8, 3) X(dot4_i8u8, 3)            \
                                  X(dot4_i8i8, 3) X(dot2_i16i8, 3) X(dot2_bf16, 3) X(wgmma_fence, 1)         \
                                      X(wgmma_f16, 11) X(wgmma_bf16, 11) X(wgmma_tf32, 11) X(wgmma_i8, 11)   \
                                          X(wgmma_u8i8, 11) X(wgmma_commit, 0) X(wgmma_wait, 2)              \
                                              X(fence_async, 0) X(bulk_init, 1) X(bulk_expect, 2)            \
                                                  X(bulk_copy, 9) X(bulk_wait, 2) X(tile_product_u8i8, 8)    \
                                                      X(tile_product_bf16, 8) X(tile_configure, 4)           \
                                                          X(tile_zero, 1) X(tile_load, 3) X(tile_store, 3)   \
                                                              X(tile_multiply_u8i8, 3)                       \
                                                                  X(tile_multiply_bf16, 3) X(philox, 3)      \
                                                                      X(philox_rest, 3)

enum class Intrinsic : uint8_t {
#define X(name, arity) name,
  MCC_INTRINSICS(X)
#undef X
};

struct Call : ExprNode {
  static constexpr ExprKind kKind = ExprKind::Call;
  Call(Type t, Intrinsic f, std::vector<Expr> a) : ExprNode(kKind, t), function(f), args(std::move(a)) {}
  // The result type follows from the arguments; bit_cast needs it given.
  static Expr make(Intrinsic function, std::vector<Expr> args);
  static Expr make(Type type, Intrinsic function, std::vector<Expr> args);
  const Intrinsic function;
  const std::vector<Expr> args;
};

std::string_view to_text(BinaryOp op);
std::string_view to_text(Intrinsic function);
std::string_view to_text(Scope scope);
std::string to_text(Type type);  // "f32", "f32x16"

// ---- Convenience ----

// Constants of a given type: 0, 1, ... converted to the type's element, broadcast to its lanes.
Expr constant(Type type, double value);
Expr constant(ElementType element, double value);
Expr constant_int(Type type, int64_t value);
Expr true_value();
Expr false_value();

// The value of an integer or boolean constant; false if it is none.
bool as_int(const Expr& e, int64_t* value);
bool is_int(const Expr& e, int64_t value);
bool is_true(const Expr& e);
bool is_false(const Expr& e);
// The value of a constant of any type, looking through Broadcast.
bool as_number(const Expr& e, double* value);

// Arithmetic. Integer constants adapt to the other side's type and lanes, scalars are broadcast; the obvious
// identities (constant folding, x+0, x*1, x*0 for ints, ...) are applied to integers only.
Expr operator+(const Expr& a, const Expr& b);
Expr operator-(const Expr& a, const Expr& b);
Expr operator*(const Expr& a, const Expr& b);
Expr operator/(const Expr& a, const Expr& b);  // BinaryOp::div
Expr operator-(const Expr& a);
Expr floor_div(const Expr& a, const Expr& b);
Expr floor_mod(const Expr& a, const Expr& b);
Expr ceil_div(const Expr& a, const Expr& b);
Expr min(const Expr& a, const Expr& b);
Expr max(const Expr& a, const Expr& b);
Expr operator==(const Expr& a, const Expr& b);
Expr operator!=(const Expr& a, const Expr& b);
Expr operator<(const Expr& a, const Expr& b);
Expr operator<=(const Expr& a, const Expr& b);
Expr operator>(const Expr& a, const Expr& b);
Expr operator>=(const Expr& a, const Expr& b);
Expr operator&&(const Expr& a, const Expr& b);
Expr operator||(const Expr& a, const Expr& b);
Expr logical_not(const Expr& a);
Expr select(const Expr& condition, const Expr& on_true, const Expr& on_false);
Expr cast(ElementType element, const Expr& value);
Expr call(Intrinsic function, std::vector<Expr> args);
Expr load(const Buffer& buffer, std::vector<Expr> indices);
// The terms of a conjunction, without those that are true; and back (true when there are none).
std::vector<Expr> conjuncts(const Expr& condition);
Expr conjunction(const std::vector<Expr>& terms);
// Combines with any binary operator, with the same adaptation and identities.
Expr binary(BinaryOp op, const Expr& a, const Expr& b);

}  // namespace mcc::tensor
