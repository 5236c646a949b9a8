/* What a compiled model and its runtime agree on. C, no dependency beyond <stdint.h>.
 *
 * A model library exports one data symbol, MCC_MODEL_SYMBOL, of type mcc_model_v1. Everything else
 * in it is hidden. A model that is linked in statically has the same structure under its own name.
 * The layout of these structures never changes within one ABI version; a structure that starts with
 * struct_size may grow at its end.
 */
#ifndef MCC_ABI_H
#define MCC_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MCC_ABI_VERSION 1u
#define MCC_MODEL_SYMBOL "mcc_model_v1"

/* Alignment of the arena, the weights, the per-thread scratch and every offset into them. Buffers
 * that the caller passes in are aligned to their element only. */
#define MCC_BUFFER_ALIGNMENT 64u

#define MCC_MAX_RANK 16u
#define MCC_MAX_THREADS 1024

/* Element types: X(enumerator, value, bytes of one element). Elements of less than 8 bits are kept
 * one to a byte. A string element is an mcc_string. Values are permanent. */
#define MCC_DTYPES(X)  \
  X(f64, 1, 8)         \
  X(f32, 2, 4)         \
  X(f16, 3, 2)         \
  X(bf16, 4, 2)        \
  X(f8e4m3, 5, 1)      \
  X(f8e5m2, 6, 1)      \
  X(i4, 7, 1)          \
  X(i8, 8, 1)          \
  X(i16, 9, 2)         \
  X(i32, 10, 4)        \
  X(i64, 11, 8)        \
  X(u4, 12, 1)         \
  X(u8, 13, 1)         \
  X(u16, 14, 2)        \
  X(u32, 15, 4)        \
  X(u64, 16, 8)        \
  X(bool, 17, 1)       \
  X(string, 18, 16)    \
  X(c64, 19, 8)        \
  X(c128, 20, 16)      \
  X(f8e4m3fnuz, 21, 1) \
  X(f8e5m2fnuz, 22, 1) \
  X(f8e8m0, 23, 1)     \
  X(f4e2m1, 24, 1)     \
  X(i2, 25, 1)         \
  X(u2, 26, 1)

typedef enum mcc_dtype {
#define MCC_DTYPE_ENUM(name, value, bytes) MCC_DTYPE_##name = value,
  MCC_DTYPES(MCC_DTYPE_ENUM)
#undef MCC_DTYPE_ENUM
} mcc_dtype;

/* One element of a string tensor; UTF-8, not terminated. Strings in inputs belong to the caller,
 * strings in outputs to the session until its next run. */
typedef struct mcc_string {
  const char* data;
  uint64_t size;
} mcc_string;

/* CPU features that a model may require, under LLVM's names. Features that do not change which
 * instructions kernels contain (cache hints, virtualisation, ...) are not listed. */
#define MCC_CPU_FEATURES(X) \
  X("sse3")                 \
  X("ssse3")                \
  X("sse4.1")               \
  X("sse4.2")               \
  X("popcnt")               \
  X("avx")                  \
  X("avx2")                 \
  X("fma")                  \
  X("f16c")                 \
  X("bmi")                  \
  X("bmi2")                 \
  X("lzcnt")                \
  X("movbe")                \
  X("adx")                  \
  X("avxvnni")              \
  X("avxvnniint8")          \
  X("avxifma")              \
  X("avxneconvert")         \
  X("gfni")                 \
  X("avx512f")              \
  X("avx512cd")             \
  X("avx512bw")             \
  X("avx512dq")             \
  X("avx512vl")             \
  X("avx512ifma")           \
  X("avx512vbmi")           \
  X("avx512vbmi2")          \
  X("avx512vnni")           \
  X("avx512bitalg")         \
  X("avx512vpopcntdq")      \
  X("avx512bf16")           \
  X("avx512fp16")           \
  X("avx512vp2intersect")   \
  X("amx-tile")             \
  X("amx-int8")             \
  X("amx-bf16")             \
  X("amx-fp16")

/* Threads.
 * ------------------------------------------------------------------------------------------ */

typedef struct mcc_executor mcc_executor;

/* Does the items [begin, end) of a parallel region. */
typedef void (*mcc_task_fn)(void* context, int64_t begin, int64_t end, int32_t worker);

/* How kernels get threads; a caller may bring its own. parallel_for calls task on ranges that
 * together cover [0, count) once, and returns when all are done. worker is in [0, num_threads), and
 * two calls that run at the same time never have the same worker. Regions are never nested, and
 * only the thread that runs the session opens them. */
struct mcc_executor {
  void (*parallel_for)(mcc_executor* self, mcc_task_fn task, void* context, int64_t count);
  int32_t num_threads;
  int32_t reserved;
  void* user; /* for the implementation; kernels do not read it */
};

/* Kernels and host functions.
 * ------------------------------------------------------------------------ */

/* 0 = done; anything else stops the run and is reported with the node's name. buffers and dims are
 * in the order of the node's lists in the plan. */
typedef int32_t (*mcc_kernel_fn)(void* const* buffers, const int64_t* dims, mcc_executor* executor);

typedef struct mcc_host_tensor {
  void* data;        /* null for an optional input that is absent */
  int64_t* dims;     /* outputs: filled with the dimensions that are known; the function sets the others */
  uint64_t capacity; /* bytes at data */
  int32_t dtype;
  int32_t rank;
} mcc_host_tensor;

typedef struct mcc_host_call mcc_host_call;
struct mcc_host_call {
  uint32_t struct_size;
  int32_t input_count;  /* args[0 .. input_count) */
  int32_t output_count; /* the args after them */
  int32_t reserved;
  mcc_host_tensor* args;
  const void* attributes; /* the bytes that the compiler stored with the node, 8-byte aligned */
  uint64_t attributes_size;
  mcc_executor* executor;
  /* Gives output `arg`, whose storage must be a heap block, at least `bytes` bytes, and updates its
   * data and capacity. Old contents are lost. Returns null when memory is short or the storage is
   * fixed. */
  void* (*resize)(mcc_host_call* self, int32_t arg, uint64_t bytes);
  char* message; /* the function may print here why it fails */
  uint64_t message_size;
  void* runtime; /* for the implementation of resize */
};

/* An operator that allocates by data (NonZero, Unique, strings, ...). Same return value as a
 * kernel. */
typedef int32_t (*mcc_host_fn)(mcc_host_call* call);

/* The model.
 * ------------------------------------------------------------------------------------------ */

typedef struct mcc_model_v1 {
  uint32_t struct_size;
  uint32_t abi_version;
  const void* plan; /* position-independent; layout in mcc/plan_format.h */
  uint64_t plan_size;
  const mcc_kernel_fn* kernels;
  uint64_t kernel_count;
  const void* weights; /* aligned to a page; null when the plan names a side file, or without weights */
  uint64_t weights_size;
  const mcc_host_fn* host_functions;
  uint64_t host_function_count;
  /* From here on: only if struct_size says so. */
  const void* device; /* the code for GPUs; layout in mcc/device_format.h */
  uint64_t device_size;
} mcc_model_v1;

/* The struct_size of a model without code for GPUs. */
#define MCC_MODEL_V1_BASE_SIZE 72u

#ifdef __cplusplus
}
#endif

#endif
