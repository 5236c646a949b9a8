// vectorize(loop="oc.1")
//
//   for oc.1 in 0..16: ...
// becomes
//   vectorized for oc.1 in 0..16: ...
//
// 1. The loop is serial; its extent is a constant of 1 to 1024.
// 2. No vectorized loop is around or below it, and no parallel or bound loop below it.
// 3. The blocks below write different elements in different iterations; or they reduce along the loop, with their init
//    decomposed, by an update b[i] = b[i] op x (op: + * min max && ||) and with no condition on the loop.
#include "tensor/schedule/step.h"

namespace mcc::tensor {

Outcome apply_step(const Vectorize& step, Schedule& schedule) {
  const Func& f = schedule.func();
  const For* loop = schedule.find_loop(step.loop);
  if (loop == nullptr) return refuse_loop(step.loop);
  if (Outcome o = require_serial(loop); !o) return o;
  if (Outcome o = check_vectorized(f, loop); !o) return o;
  Func result = f;
  result.body = with_loop_kind(f, loop, LoopKind::vectorized);
  schedule.set_func(std::move(result));
  return applied();
}

}  // namespace mcc::tensor
