#include "codegen/small_bytes.h"

#include <algorithm>

#include "tensor/build.h"
#include "tensor/visit.h"

namespace mcc::codegen {

using namespace tensor;

namespace {

constexpr int64_t kLargest = 127, kAny = 255;

// What an expression of u8 is at most.
int64_t most(const Expr& e) {
  int64_t number = 0;
  if (const auto* same = e.as<Broadcast>()) return most(same->value);
  if (as_int(e, &number)) return number;
  const auto* n = e.as<Binary>();
  if (n && n->op == BinaryOp::bit_and) return std::min(most(n->a), most(n->b));
  return kAny;
}

}  // namespace

std::unordered_set<const BufferNode*> buffers_of_small_bytes(const Func& func) {
  std::unordered_set<const BufferNode*> small;
  for_each_stmt(func.body, [&](const Stmt& s) {
    const auto* n = s.as<Allocate>();
    if (n && n->buffer.element() == ElementType::u8) small.insert(n->buffer.get());
  });
  for_each_stmt(func.body, [&](const Stmt& s) {
    const auto* n = s.as<Store>();
    if (n && small.contains(n->buffer.get()) && most(n->value) > kLargest) small.erase(n->buffer.get());
  });
  return small;
}

}  // namespace mcc::codegen
