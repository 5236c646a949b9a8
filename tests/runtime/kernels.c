// Kernels of the hand-made models. Buffers and dims of each are in its comment.
#include "mcc/abi.h"

// x [n], w [n], y [n]; dims n: y = relu(x * w)
int32_t scale_relu(void* const* buffers, const int64_t* dims, mcc_executor* executor);
int32_t scale_relu(void* const* buffers, const int64_t* dims, mcc_executor* executor) {
  const float* x = buffers[0];
  const float* w = buffers[1];
  float* y = buffers[2];
  (void)executor;
  for (int64_t i = 0; i < dims[0]; ++i) {
    const float product = x[i] * w[i];
    y[i] = product > 0 ? product : 0;
  }
  return 0;
}

struct add_one_context {
  const float* x;
  float* y;
};

static void add_one_part(void* context, int64_t begin, int64_t end, int32_t worker) {
  const struct add_one_context* c = context;
  (void)worker;
  for (int64_t i = begin; i < end; ++i)
    c->y[i] = c->x[i] + 1;
}

// x [n], y [n]; dims n: y = x + 1, in parallel
int32_t add_one(void* const* buffers, const int64_t* dims, mcc_executor* executor);
int32_t add_one(void* const* buffers, const int64_t* dims, mcc_executor* executor) {
  struct add_one_context context = {buffers[0], buffers[1]};
  executor->parallel_for(executor, add_one_part, &context, dims[0]);
  return 0;
}
