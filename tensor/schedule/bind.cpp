// bind(loop="y.1", thread="thread.x")
//
//   for y.0 in 4: for y.1 in 256: ...
// becomes
//   for y.0 in 4: bound for y.1 in 256 @{thread="thread.x"}: ...
//
// Loops over blocks are the outermost of a nest; below them stand serial loops and, one after the other, nests of loops over
// threads. Iterations of one axis in two such nests are carried out by the same thread, and a nest begins when all
// threads have finished the nests before it.
//
// 1. The loop is serial; thread is block.x, block.y, block.z, thread.x, thread.y or thread.z.
// 2. Around a loop over blocks are loops over blocks only, and around these serial loops whose iterations are launches one after the
//    other, from a constant on, as many as depends on nothing but dimensions; loops over threads are directly nested in each other.
//    An axis stands once on the way in. No parallel or vectorized loop is around, no parallel one below.
// 3. A loop over threads has a constant extent: 1 to 1024 (64 for thread.z), loops nested in each other together at most 1024.
//    That of a loop over blocks does not depend on other loops, and is at most 65535 for block.y and block.z.
// 4. No reduce or scan axis is bound to it, unless its extent is 1, or threads combine their values: the loop is over thread.x,
//    the innermost of its nest, of 2, 4, .. 1024 iterations; right inside is a block without init that updates
//    b[i] = b[i] op x (op: + * min max && ||) of 32 or 64 bits, of which it is the only reduce loop; all nests have as many threads.
// 5. Each element written below it is written by one iteration only; except in buffers that are used in one iteration only:
//    of scope local or registers, or not shared and used below one nest of threads, or (loops over blocks) of scope shared.
// 6. An element of a buffer of scope local or registers that several nests use is written and read by the same thread.
// 7. An element of a buffer of scope warp is written and read by the same warp: thread.y and thread.x of all its nests are the 32 threads
//    of one. One block writes it, where an index each is thread.y and thread.x, which say which thread has an element, and no other
//    index knows them; blocks in other nests read it, whose other indices, conditions and loops do not know them either.
#include "tensor/grid.h"
#include "tensor/schedule/step.h"

namespace mcc::tensor {

Outcome apply_step(const Bind& step, Schedule& schedule) {
  const Func& f = schedule.func();
  const For* loop = schedule.find_loop(step.loop);
  if (loop == nullptr) return refuse_loop(step.loop);
  if (Outcome o = require_serial(loop); !o) return o;
  if (!parse_grid_axis(step.thread)) {
    return refuse(RefusalCode::bad_argument,
                  text("expected block.x, block.y, block.z, thread.x, thread.y or thread.z, got \"",
                       step.thread, "\""));
  }
  Annotations annotations = loop->annotations;
  annotations["thread"] = step.thread;
  if (axes_bound_below(loop->body, loop->var).reduce && !is_int(loop->extent, 1)) annotations[kCross] = 1;
  Func result = f;
  result.body = replace_stmt(
      f.body, loop,
      For::make(loop->var, loop->min, loop->extent, LoopKind::bound, loop->body, std::move(annotations)));
  return commit(schedule, std::move(result));
}

}  // namespace mcc::tensor
