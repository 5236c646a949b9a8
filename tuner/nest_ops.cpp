#include "tuner/nest_ops.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

class Counter {
 public:
  explicit Counter(const std::function<void(const Load&)>& on_load) : on_load_(on_load) {}
  NestOps ops;

  void count(const Expr& e, bool is_index) {
    switch (e.kind()) {
      case ExprKind::IntImm:
      case ExprKind::FloatImm:
      case ExprKind::Var:
        return;
      case ExprKind::Cast:
        (mcc::is_float(e.element()) ? ops.other : ops.int_other) += is_index ? 0 : 1;
        return count(e.as<Cast>()->value, is_index);
      case ExprKind::Binary:
        return count_binary(*e.as<Binary>(), is_index);
      case ExprKind::Select: {
        const Select& n = *e.as<Select>();
        ops.select += 1;
        count(n.condition, is_index);
        count(n.on_true, is_index);
        count(n.on_false, is_index);
        return;
      }
      case ExprKind::Load: {
        const Load& n = *e.as<Load>();
        on_load_(n);
        for (const Expr& i : n.indices)
          count(i, true);
        return;
      }
      case ExprKind::Ramp:
        return count(e.as<Ramp>()->base, is_index);
      case ExprKind::Broadcast:
        return count(e.as<Broadcast>()->value, is_index);
      case ExprKind::Shuffle:
        for (const Expr& v : e.as<Shuffle>()->vectors)
          count(v, is_index);
        return;
      case ExprKind::VectorReduce:
        return count(e.as<VectorReduce>()->value, is_index);
      case ExprKind::Call: {
        const Call& n = *e.as<Call>();
        count_call(n);
        for (const Expr& a : n.args)
          count(a, is_index);
        return;
      }
    }
  }

 private:
  void count_binary(const Binary& n, bool is_index) {
    bool is_real = mcc::is_float(n.a.element());
    auto is_product = [](const Expr& e) {
      const auto* b = e.as<Binary>();
      return b && b->op == BinaryOp::mul;
    };
    switch (n.op) {
      case BinaryOp::add:
      case BinaryOp::sub:
        if (!is_real) {
          ops.int_add += 1;
        } else if (is_product(n.a) || is_product(n.b)) {
          ops.fma += 1;
          ops.mul -= 1;
        } else {
          ops.add += 1;
        }
        break;
      case BinaryOp::mul:
        (is_real ? ops.mul : ops.int_mul) += 1;
        break;
      case BinaryOp::div:
      case BinaryOp::mod:
      case BinaryOp::floor_div:
      case BinaryOp::floor_mod:
        (is_real ? ops.div : ops.int_div) += 1;
        break;
      case BinaryOp::min:
      case BinaryOp::max:
      case BinaryOp::eq:
      case BinaryOp::ne:
      case BinaryOp::lt:
      case BinaryOp::le:
      case BinaryOp::gt:
      case BinaryOp::ge:
        (is_real ? ops.compare : ops.int_compare) += 1;
        break;
      case BinaryOp::logical_and:
      case BinaryOp::logical_or:
        ops.logical += 1;
        break;
      case BinaryOp::bit_and:
      case BinaryOp::bit_or:
      case BinaryOp::bit_xor:
      case BinaryOp::shl:
      case BinaryOp::shr:
        ops.int_other += 1;
        break;
    }
    count(n.a, is_index);
    count(n.b, is_index);
  }

  void count_call(const Call& n) {
    switch (n.function) {
      case Intrinsic::abs:
      case Intrinsic::floor:
      case Intrinsic::ceil:
      case Intrinsic::round:
      case Intrinsic::trunc:
      case Intrinsic::is_nan:
      case Intrinsic::is_inf:
        ops.other += 1;
        return;
      case Intrinsic::bit_not:
      case Intrinsic::popcount:
        ops.int_other += 1;
        return;
      case Intrinsic::logical_not:
        ops.logical += 1;
        return;
      case Intrinsic::bit_cast:
      case Intrinsic::prefetch:
      case Intrinsic::likely:
      case Intrinsic::barrier:
      case Intrinsic::shuffle_xor:
      case Intrinsic::shuffle_down:
      case Intrinsic::shuffle_from:
      case Intrinsic::load_matrices:
      case Intrinsic::load_matrices_transposed:
      case Intrinsic::async_copy:
      case Intrinsic::async_commit:
      case Intrinsic::async_wait:
      case Intrinsic::wgmma_fence:
      case Intrinsic::wgmma_f16:
      case Intrinsic::wgmma_bf16:
      case Intrinsic::wgmma_tf32:
      case Intrinsic::wgmma_i8:
      case Intrinsic::wgmma_u8i8:
      case Intrinsic::wgmma_commit:
      case Intrinsic::wgmma_wait:
      case Intrinsic::bulk_init:
      case Intrinsic::bulk_expect:
      case Intrinsic::bulk_copy:
      case Intrinsic::bulk_wait:
      case Intrinsic::fence_async:
        return;
      case Intrinsic::fma:
        ops.fma += 1;
        return;
      case Intrinsic::mul_sum:
        ops.fma += 2;
        return;
      case Intrinsic::sqrt:
      case Intrinsic::rsqrt:
        ops.div += 1;
        return;
      default:
        ops.math += 1;
        return;
    }
  }

  const std::function<void(const Load&)>& on_load_;
};

}  // namespace

NestOps ops_of(const Store& store, const std::function<void(const Load&)>& on_load) {
  Counter counter(on_load);
  counter.count(store.value, false);
  for (const Expr& i : store.indices)
    counter.count(i, true);
  return counter.ops;
}

}  // namespace mcc::tuner
