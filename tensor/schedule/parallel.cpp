// parallel(loop="y")
//
//   for y in 0..56: ...
// becomes
//   parallel for y in 0..56: ...
//
// 1. The loop is serial, and no other parallel or bound loop is around or below it.
// 2. No reduce or scan axis is bound to it.
// 3. Each element written below it is written by one iteration only, unless the buffer is used below the loop only.
// 4. Buffers of scope local or registers used below it are not used outside.
#include "tensor/schedule/step.h"

namespace mcc::tensor {

Outcome apply_step(const Parallel& step, Schedule& schedule) {
  const Func& f = schedule.func();
  const For* loop = schedule.find_loop(step.loop);
  if (loop == nullptr) return refuse_loop(step.loop);
  if (Outcome o = require_serial(loop); !o) return o;
  if (Outcome o = check_parallel(f, loop); !o) return o;
  Func result = f;
  result.body = with_loop_kind(f, loop, LoopKind::parallel);
  if (Outcome o = check_scopes(result); !o) return o;
  schedule.set_func(std::move(result));
  return applied();
}

}  // namespace mcc::tensor
