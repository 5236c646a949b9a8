#include "codegen/small_bytes.h"

#include "tensor/simplify.h"
#include "tensor/visit.h"

namespace mcc::codegen {

using namespace tensor;

std::unordered_set<const BufferNode*> buffers_of_small_bytes(const Func& func) {
  constexpr int64_t kLargest = 127;
  std::unordered_set<const BufferNode*> small;
  for_each_stmt(func.body, [&](const Stmt& s) {
    const auto* n = s.as<Allocate>();
    if (n && n->buffer.element() == ElementType::u8) small.insert(n->buffer.get());
  });
  for_each_stmt(func.body, [&](const Stmt& s) {
    const auto* n = s.as<Store>();
    if (n && small.contains(n->buffer.get()) &&
        Analyzer().bounds(n->value).high.value_or(kLargest + 1) > kLargest)
      small.erase(n->buffer.get());
  });
  return small;
}

}  // namespace mcc::codegen
