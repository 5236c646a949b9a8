// set_scope(buffer="conv", scope="registers")
//
//   buffers { conv: f32[1, 64, 56, 56] }
// becomes
//   buffers { conv: f32[1, 64, 56, 56] in registers }
//
// 1. The buffer is an intermediate.
// 2. The scope is global, local, registers, shared or warp.
// 3. A buffer that is private to a thread is used in one iteration of a parallel loop only; one of scope local, registers or warp as
//    rules 6 and 7 of bind.cpp say.
#include <algorithm>

#include "tensor/schedule/step.h"

namespace mcc::tensor {

Outcome apply_step(const SetScope& step, Schedule& schedule) {
  const Func& f = schedule.func();
  Buffer old = find_buffer(f, step.buffer);
  if (!old) return refuse_buffer(step.buffer);
  if (!is_intermediate(f, old)) {
    return refuse(RefusalCode::is_output,
                  text("expected an intermediate buffer, got parameter ", step.buffer));
  }
  Scope scope = Scope::global;
  if (Outcome o = parse_scope(step.scope, &scope); !o) return o;
  Buffer buffer(old.name(), old.element(), old.shape(), scope, old->alignment);
  Func result = f;
  std::replace_if(
      result.allocs.begin(), result.allocs.end(), [&](const Buffer& b) { return b.same_as(old); }, buffer);
  result.body = replace_buffers(f.body, {{old.get(), buffer}});
  return commit(schedule, std::move(result));
}

}  // namespace mcc::tensor
