#include "tensor/guarded_update.h"

#include <algorithm>

#include "tensor/text.h"
#include "tensor/visit.h"

namespace mcc::tensor {

const Select* guarded_update(const Store& store) {
  const auto* choice = store.value.as<Select>();
  const auto* kept = choice ? choice->on_false.as<Load>() : nullptr;
  if (!kept || store.predicate.defined() || kept->predicate.defined() ||
      !kept->buffer.same_as(store.buffer) ||
      !std::ranges::equal(kept->indices, store.indices,
                          [](const Expr& a, const Expr& b) { return structurally_equal(a, b); })) {
    return nullptr;
  }
  bool is_of_data = false, is_of_itself = false;
  for_each_expr(Evaluate::make(choice->condition), [&](const Expr& e) {
    const auto* load = e.as<Load>();
    is_of_data |= load != nullptr;
    is_of_itself |= load != nullptr && load->buffer.same_as(store.buffer);
  });
  return is_of_data && !is_of_itself ? choice : nullptr;
}

}  // namespace mcc::tensor
