#include "tensor/grid.h"
#include "tensor/intrinsics.h"
#include "tensor/verify/context.h"
#include "tensor/visit.h"

namespace mcc::tensor::verifier {
namespace {

// ---- The rules ----

bool is_number(ElementType t) { return is_int(t) || is_float(t); }
bool is_u64(ElementType t) { return t == ElementType::u64; }

const Rule<Binary> kBinaryRules[] = {
    {"arithmetic is of numbers",
     [](const Binary& n) { return n.op > BinaryOp::floor_mod || is_number(n.a.element()); }},
    {"&, | and ^ are of integers or bool",
     [](const Binary& n) {
       return n.op < BinaryOp::bit_and || n.op > BinaryOp::bit_xor || !is_float(n.a.element());
     }},
    {"shifts are of integers", [](const Binary& n) { return n.op < BinaryOp::shl || is_int(n.a.element()); }},
    {"a shift count is below the width",
     [](const Binary& n) {
       double count = 0;
       if (n.op < BinaryOp::shl || !as_number(n.b, &count)) return true;
       return 0 <= count && count < bit_width(n.a.element());
     }},
};

const Rule<VectorReduce> kVectorReduceRules[] = {
    {"arithmetic is of numbers",
     [](const VectorReduce& n) { return is_logical(n.op) == is_bool(n.type.element); }},
};

// A rule for calls of one class; others pass.
template <IntrinsicClass of, bool (*holds)(ElementType)>
bool argument(const Call& n) {
  return class_of(n.function) != of || holds(n.args[0].element());
}

const Rule<Call> kCallRules[] = {
    {"a mathematical function is of floats", argument<IntrinsicClass::math, mcc::is_float>},
    {"a mathematical function is of floats", argument<IntrinsicClass::float_op, mcc::is_float>},
    {"random bits are made of u64", argument<IntrinsicClass::random, is_u64>},
    {"abs is of numbers", argument<IntrinsicClass::number, is_number>},
    {"is_nan and is_inf are of floats", argument<IntrinsicClass::float_test, mcc::is_float>},
    {"logical_not and likely are of bool", argument<IntrinsicClass::boolean, mcc::is_bool>},
    {"bit_not and popcount are of integers", argument<IntrinsicClass::integer, mcc::is_int>},
    {"threads exchange scalars of 32 or 64 bits, at a constant distance of 1 to 31",
     [](const Call& n) {
       if (class_of(n.function) != IntrinsicClass::exchange || n.function == Intrinsic::shuffle_from)
         return true;
       int64_t distance = 0;
       return n.type.lanes == 1 && is_shuffled(n.type.element) && as_int(n.args[1], &distance) &&
              1 <= distance && distance < 32;
     }},
    {"a thread takes from one that it names scalars of 32 bits, or of 16 that are floats",
     [](const Call& n) {
       if (n.function != Intrinsic::shuffle_from) return true;
       const int bits = bit_width(n.type.element);
       return n.type.lanes == 1 && (bits == 32 || (bits == 16 && is_float(n.type.element))) && n.args[1].type() == kIndex;
     }},
    {"a row of a matrix has 16 bytes, of elements of 16 bits where the matrix is transposed",
     [](const Call& n) {
       if (class_of(n.function) != IntrinsicClass::rows) return true;
       const Type row = n.args[0].type();
       return byte_size(row.element) * row.lanes == 16 &&
              (n.function == Intrinsic::load_matrices || bit_width(row.element) == 16);
     }},
    {"matrices are multiplied as i32x4 (f16x8, bf16x8), i32x2, and f32x4 (i32x4 for integers)",
     [](const Call& n) {
       if (class_of(n.function) != IntrinsicClass::mma) return true;
       const Type sum{is_integer_mma(n.function) ? ElementType::i32 : ElementType::f32, 4}, left = n.args[0].type();
       const bool is_by_element = (n.function == Intrinsic::mma_f16 && left == Type{ElementType::f16, 8}) ||
                                  (n.function == Intrinsic::mma_bf16 && left == Type{ElementType::bf16, 8});
       return (left == Type{ElementType::i32, 4} || is_by_element) && n.args[1].type() == Type{ElementType::i32, 2} &&
              n.args[2].type() == sum;
     }},
    {"dot4_u8i8 (dot4_i8u8, dot4_i8i8) takes i32xn, u8x4 (i8x4) and i8x4n (u8x4n), dot2_i16i8 i32xn, i16x2 "
     "and i8x2n, dot2_bf16 f32xn, bf16x2 and bf16x2n, for n = 4, 8 or 16",
     [](const Call& n) {
       if (class_of(n.function) != IntrinsicClass::dot) return true;
       const Type sum = n.args[0].type();
       const ElementType left = left_element(n.function), right = right_element(n.function);
       return sum.element == sum_element(n.function) &&
              (sum.lanes == 4 || sum.lanes == 8 || sum.lanes == 16) &&
              n.args[1].type() == Type{left, dot_elements(n.function)} &&
              n.args[2].type() == Type{right, dot_elements(n.function) * sum.lanes};
     }},
    {"bit_cast keeps the width and the lanes",
     [](const Call& n) {
       if (n.function != Intrinsic::bit_cast) return true;
       const Type from = n.args[0].type();
       return (bit_width(from.element) == bit_width(n.type.element) && from.lanes == n.type.lanes);
     }},
    {"the type of a call follows from its arguments",
     [](const Call& n) {
       if (n.function == Intrinsic::bit_cast) return true;
       return n.type == Call::make(n.function, n.args).type();
     }},
    {"what has no value stands alone in an evaluate",
     [](const Call& n) { return !is_statement(n.function); }},
};

// ---- The walk ----

class CheckExpr : public Visitor {
 public:
  explicit CheckExpr(Context& context) : context_(context) {}

 protected:
  using Visitor::on;
  void on(const VarNode& n) override {
    if (!context_.vars.contains(&n)) context_.report("a variable is in sight where it is used", n.name);
  }
  void on(const Binary& n) override {
    context_.check(kBinaryRules, n);
    Visitor::on(n);
  }
  void on(const VectorReduce& n) override {
    context_.check(kVectorReduceRules, n);
    Visitor::on(n);
  }
  void on(const Call& n) override {
    context_.check(kCallRules, n);
    Visitor::on(n);
  }
  void on(const Load& n) override {
    check_access(context_, n.buffer);
    Visitor::on(n);
  }

 private:
  Context& context_;
};

}  // namespace

void check_expr(Context& context, const Expr& e) { CheckExpr(context).visit(e); }

void check_access(Context& context, const Buffer& buffer) {
  auto it = context.buffers.find(buffer.get());
  if (it == context.buffers.end()) {
    return context.report("a buffer is a parameter or allocated where it is used", buffer.name());
  }
  if (buffer.element() == ElementType::string) {
    context.report("strings are not computed with", buffer.name());
  }
  const bool is_private = buffer.scope() == Scope::local || buffer.scope() == Scope::registers;
  if (context.stage == Stage::lowered && is_private && it->second.parallel_depth < context.parallel_depth) {
    context.report("a local buffer is used only in the iteration that allocates it", buffer.name());
  }
}

}  // namespace mcc::tensor::verifier
