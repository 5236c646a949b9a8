#include "tensor/settling.h"

#include <algorithm>

#include "tensor/intrinsics.h"
#include "tensor/text.h"
#include "tensor/visit.h"

namespace mcc::tensor {

namespace {

// Whether a result follows from the arguments alone, and not from what other threads do.
bool is_of_arguments(const Call& call) {
  switch (class_of(call.function)) {
    case IntrinsicClass::number:
    case IntrinsicClass::float_test:
    case IntrinsicClass::boolean:
    case IntrinsicClass::integer:
    case IntrinsicClass::bit_cast:
      return true;
    default:
      return false;
  }
}

}  // namespace

const Store* settling_store(const For& loop) {
  const auto* store = loop.body.as<Store>();
  if (loop.loop != LoopKind::serial || !store || store->predicate.defined() || uses_var(loop.body, loop.var))
    return nullptr;
  // Of floats -0 and 0 are equal, and are not the same.
  if (!is_int(store->buffer.element())) return nullptr;
  const auto same = [](const Expr& a, const Expr& b) { return structurally_equal(a, b); };
  bool is_of_itself = false, is_of_others = false;
  for_each_expr(loop.body, [&](const Expr& e) {
    const auto* call = e.as<Call>();
    is_of_others |= call && !is_of_arguments(*call);
    const auto* load = e.as<Load>();
    if (!load || !load->buffer.same_as(store->buffer)) return;
    const bool is_same =
        !load->predicate.defined() && std::ranges::equal(load->indices, store->indices, same);
    (is_same ? is_of_itself : is_of_others) = true;
  });
  return is_of_itself && !is_of_others ? store : nullptr;
}

}  // namespace mcc::tensor
