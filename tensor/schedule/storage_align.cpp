// storage_align(buffer="conv.a", factor=32, offset=4)
//
// Nothing changes in the loops. Lowering gives the shared memory of the buffer rows (of its last dimension) that are longer by
// as much as makes their length 4 more than a multiple of 32, so that elements of one column are in different banks.
//
// 1. The buffer is an intermediate.
// 2. factor is 1 to 1024, offset 0 to factor - 1.
#include "tensor/grid.h"
#include "tensor/schedule/step.h"

namespace mcc::tensor {

Outcome apply_step(const StorageAlign& step, Schedule& schedule) {
  Func result = schedule.func();
  Buffer buffer = find_buffer(result, step.buffer);
  if (!buffer || !is_intermediate(result, buffer)) {
    return refuse(RefusalCode::bad_argument,
                  text("expected the name of an intermediate, got \"", step.buffer, "\""));
  }
  if (step.factor < 1 || step.factor > 1024 || step.offset < 0 || step.offset >= step.factor) {
    return refuse(RefusalCode::bad_argument,
                  text("expected a factor of 1 to 1024 and an offset below it, got ", step.factor, " and ",
                       step.offset));
  }
  result.annotations[text(kStorageAlign, step.buffer)] = text(step.factor, ":", step.offset);
  schedule.set_func(std::move(result));
  return applied();
}

}  // namespace mcc::tensor
