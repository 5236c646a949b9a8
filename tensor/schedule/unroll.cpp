// unroll(loop="x.1")
//
//   for x.1 in 0..4: ...
// becomes
//   unrolled for x.1 in 0..4: ...
//
// 1. The loop is serial.
// 2. Its extent is a constant of at most 1024.
#include "tensor/schedule/step.h"

namespace mcc::tensor {

Outcome apply_step(const Unroll& step, Schedule& schedule) {
  constexpr int64_t kMaxCopies = 1024;
  const Func& f = schedule.func();
  const For* loop = schedule.find_loop(step.loop);
  if (loop == nullptr) return refuse_loop(step.loop);
  if (Outcome o = require_serial(loop); !o) return o;
  int64_t extent = 0;
  if (!as_int(loop->extent, &extent) || extent > kMaxCopies) {
    return refuse(RefusalCode::bad_argument, text("expected a constant extent of at most ", kMaxCopies,
                                                  " of loop ", step.loop, ", got ", to_text(loop->extent)));
  }
  Func result = f;
  result.body = with_loop_kind(f, loop, LoopKind::unrolled);
  schedule.set_func(std::move(result));
  return applied();
}

}  // namespace mcc::tensor
