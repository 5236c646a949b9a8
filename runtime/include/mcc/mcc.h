/* mcc runtime: loads a compiled model and runs it. C99.
 *
 *     mcc_error error;
 *     mcc_model* model;
 *     mcc_session* session;
 *     if (mcc_model_open("model.so", &model, &error) != MCC_OK) die(error.message);
 *     if (mcc_session_create(model, NULL, &session, &error) != MCC_OK) die(error.message);
 *     mcc_session_set_input(session, 0, &input, &error);
 *     mcc_session_run(session, &error);
 *     mcc_session_output(session, 0, &output, &error);
 *
 * A model is immutable and may be shared by threads. A session is used by one thread at a time. A
 * run after the first with the same shapes allocates nothing. No function throws, aborts or prints.
 * Every `error` may be null.
 */
#ifndef MCC_MCC_H
#define MCC_MCC_H

#include <stddef.h>
#include <stdint.h>

#include "mcc/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#define MCC_API
#else
#define MCC_API __attribute__((visibility("default")))
#endif

typedef enum mcc_status {
  MCC_OK = 0,
  MCC_INVALID_ARGUMENT = 1, /* the call or its tensors do not fit the model */
  MCC_BAD_MODEL = 2,        /* the file is not a model, is damaged, or is of an ABI that this runtime lacks */
  MCC_NOT_HERE = 3,         /* the model needs something that this machine does not have */
  MCC_OUT_OF_MEMORY = 4,
  MCC_RUN_FAILED = 5,   /* a node of the model reported an error */
  MCC_DEVICE_FAILED = 6 /* the GPU or its driver reported an error; the program's CUDA context may be lost with it */
} mcc_status;

#define MCC_ERROR_MESSAGE_SIZE 1024
typedef struct mcc_error {
  mcc_status status;
  char message[MCC_ERROR_MESSAGE_SIZE]; /* one line; names the input, output or node, expected and
                                           got */
} mcc_error;

typedef struct mcc_model mcc_model;
typedef struct mcc_session mcc_session;

/* A dense row-major tensor in memory, aligned to its element. */
typedef struct mcc_tensor {
  void* data;
  size_t size_bytes; /* memory at data; 0 = just what the shape needs */
  int32_t dtype;     /* an mcc_dtype */
  int32_t rank;
  const int64_t* dims;
} mcc_tensor;

/* "mcc 0.1.0"; what a mcc_status is called; the name of an element type
 * ("unknown": no such type) and the bytes of one element (0: no such type). */
MCC_API const char* mcc_runtime_version(void);
MCC_API const char* mcc_status_name(mcc_status status);
MCC_API const char* mcc_dtype_name(mcc_dtype dtype);
MCC_API uint32_t mcc_dtype_bytes(mcc_dtype dtype);

/* Models.
 * --------------------------------------------------------------------------------------------- */

/* Loads a model library. A path without a slash is taken from the current folder. */
MCC_API mcc_status mcc_model_open(const char* path, mcc_model** model, mcc_error* error);

/* The same for a model that is linked into the program. The image must outlive the model. */
MCC_API mcc_status mcc_model_from_image(const mcc_model_v1* image, mcc_model** model, mcc_error* error);

/* Gives up the caller's share; the model goes when its last session is gone too. Null is ignored.
 */
MCC_API void mcc_model_close(mcc_model* model);

typedef struct mcc_tensor_info {
  const char* name;
  mcc_dtype dtype;
  int32_t rank;
  const int64_t* dims;          /* -1: not fixed, */
  const char* const* dim_names; /* then its name here; null where fixed, "" where it depends on data */
} mcc_tensor_info;

MCC_API size_t mcc_model_input_count(const mcc_model* model);
MCC_API size_t mcc_model_output_count(const mcc_model* model);
MCC_API mcc_status mcc_model_input(const mcc_model* model, size_t index, mcc_tensor_info* info);
MCC_API mcc_status mcc_model_output(const mcc_model* model, size_t index, mcc_tensor_info* info);
MCC_API ptrdiff_t mcc_model_find_input(const mcc_model* model, const char* name); /* -1: none */
MCC_API ptrdiff_t mcc_model_find_output(const mcc_model* model, const char* name);

/* The range of a named dimension. */
MCC_API mcc_status mcc_model_dim_range(const mcc_model* model, const char* name, int64_t* min, int64_t* max);

/* Provenance: mcc.version, target, model.name, model.hash, log.hash, ... Null when absent. */
MCC_API const char* mcc_model_metadata(const mcc_model* model, const char* key);
MCC_API size_t mcc_model_metadata_count(const mcc_model* model);
MCC_API const char* mcc_model_metadata_key(const mcc_model* model, size_t index);

typedef struct mcc_model_sizes {
  uint32_t struct_size; /* set by the caller */
  uint32_t reserved;
  int64_t arena_bytes; /* -1: depends on the shapes of the inputs, some of which have no largest size. A session
                          takes more memory when larger ones come; with the caller's arena, a run that needs more is
                          refused, and the error says how much that is */
  uint64_t weights_bytes;
  uint64_t scratch_bytes_per_thread;
  uint64_t plan_bytes;
  uint64_t kernel_count;
  uint64_t node_count;
} mcc_model_sizes;

MCC_API void mcc_model_get_sizes(const mcc_model* model, mcc_model_sizes* sizes);

typedef struct mcc_node_info {
  uint32_t struct_size; /* set by the caller */
  uint32_t source_count;
  const char* name;     /* of the kernel */
  const char* kind;     /* "kernel", "host", "copy", "shape", "if", "loop", "device", "text", "draw" */
  const char* schedule; /* how the kernel was scheduled, as text; may be "" */
  int64_t flops;        /* of one execution; -1: depends on shapes */
  int64_t bytes;
} mcc_node_info;

MCC_API mcc_status mcc_model_node(const mcc_model* model, size_t node, mcc_node_info* info);
/* A model for GPUs: its images (PTX, or machine code for one architecture), and what a launch of a device node takes. */
typedef struct mcc_image_info {
  uint32_t struct_size; /* set by the caller */
  uint32_t sm;          /* 80: compute capability 8.0 */
  const char* kind;     /* "ptx", "cubin" */
  const char* arch;     /* "sm_80", "sm_90a" */
  uint64_t kernels;     /* that have such an image */
  uint64_t bytes;       /* of all of them */
} mcc_image_info;

/* Images of the same kind and architecture count as one; 0 for a model of a CPU. */
MCC_API size_t mcc_model_image_count(const mcc_model* model);
MCC_API mcc_status mcc_model_image(const mcc_model* model, size_t image, mcc_image_info* info);

/* In a grid: as many blocks as the shapes of a run take. */
#define MCC_BLOCKS_OF_RUN 0xffffffffu

typedef struct mcc_launch_info {
  uint32_t struct_size; /* set by the caller */
  uint32_t shared_bytes; /* of a block */
  const char* entry;
  uint32_t grid[3], block[3];
  uint32_t figures_count; /* architectures that the next fields are known of */
  uint32_t variant; /* of the kernel's launches for different architectures; those of one follow each other */
  const char* library;   /* that computes it, "cublasLt"; null: a kernel of the model's */
  uint64_t product[4];   /* of the library: how many products, of how many rows and columns, summing how many terms */
  uint64_t times;        /* in a run, as a step of a loop; 0: as often as its shapes say */
} mcc_launch_info;

/* The assembler's figures of a launch's entry. */
typedef struct mcc_launch_figures {
  uint32_t struct_size; /* set by the caller */
  uint32_t registers;   /* of a thread */
  const char* arch;
  uint32_t shared_bytes; /* of a block, without what the launch asks for */
  uint32_t stack_bytes;  /* of a thread, as the next two */
  uint32_t spill_stores, spill_loads;
} mcc_launch_figures;

/* 0 for a node of another kind. */
MCC_API size_t mcc_model_node_launch_count(const mcc_model* model, size_t node);
MCC_API mcc_status mcc_model_node_launch(const mcc_model* model, size_t node, size_t launch, mcc_launch_info* info);
MCC_API mcc_status mcc_model_node_figures(const mcc_model* model, size_t node, size_t launch, size_t index,
                                          mcc_launch_figures* figures);

/* The names of the ONNX nodes that a node came from. */
MCC_API const char* mcc_model_node_source(const mcc_model* model, size_t node, size_t source);

/* Sessions.
 * ------------------------------------------------------------------------------------------- */

typedef struct mcc_session_options {
  uint32_t struct_size;   /* sizeof(mcc_session_options) */
  int32_t threads;        /* 0 = all CPUs that the process may use; ignored with an executor */
  mcc_executor* executor; /* the caller's threads; must outlive the session. Null: the session's own */
  void* arena;            /* the caller's memory for intermediate tensors, aligned to MCC_BUFFER_ALIGNMENT;
                   null: allocated */
  size_t arena_size;
  int32_t profile; /* nonzero: profiling starts switched on */
  /* Of a model for GPUs; threads, executor and arena are then not used. */
  int32_t
      cuda_device; /* 1 + the number of the GPU; 0: that of cuda_stream, of the calling thread's current context, else the first */
  void* cuda_stream;   /* a CUstream (or cudaStream_t) of the caller that the runs go to; null: one of the session's own,
                           which comes after what is in the default stream. While the caller captures it, runs whose
                           inputs and outputs are on the GPU become a part of the caller's graph */
  /* Of a model that draws random numbers (RandomNormal, Dropout in training mode, ...). A session's k-th run gives the k-th numbers of
   * its seed, on any machine (up to rounding) and with any number of threads. Nodes with a seed of their own depend on that alone. */
  int32_t has_seed; /* nonzero: seed is given; 0: every session has another one, from the system */
  int32_t reserved;
  uint64_t seed;
} mcc_session_options;

/* Null options: all CPUs, everything allocated by the session. A model for GPUs uses the CUDA context of cuda_stream, else the
 * calling thread's if there is one, else the device's primary context, as CUDA's runtime does: pointers of the program's CUDA code
 * are good here. A child of a process that has used the GPU (fork without exec) cannot use it. */
MCC_API mcc_status mcc_session_create(mcc_model* model, const mcc_session_options* options,
                                      mcc_session** session, mcc_error* error);
MCC_API void mcc_session_destroy(mcc_session* session);
MCC_API int32_t mcc_session_threads(const mcc_session* session);

/* Inputs are used in place: the memory must stay valid and unchanged until the runs with it are
 * over. */
MCC_API mcc_status mcc_session_set_input(mcc_session* session, size_t index, const mcc_tensor* tensor,
                                         mcc_error* error);
/* All inputs, in the model's order. */
MCC_API mcc_status mcc_session_set_inputs(mcc_session* session, const mcc_tensor* tensors, size_t count,
                                          mcc_error* error);

/* Gives memory to an output, which must not overlap an input or another output. It may be that of the input which the metadata
 * "output.NAME.in_place" names, as a whole and with the same shape: then the model writes what is new there, and copies nothing (what
 * a decoder remembers, in a buffer with room for all of it). With size_bytes 0
 * it must hold the full shape; with a shape that is not fixed, rank and dims may be 0 and null, and
 * size_bytes is what there is. Null tensor: back to memory of the session, which is also where outputs go
 * that are never set. */
MCC_API mcc_status mcc_session_set_output(mcc_session* session, size_t index, const mcc_tensor* tensor,
                                          mcc_error* error);

/* The shape that output `index` will have with the inputs that are set now, all of them: `dims` has room for MCC_MAX_RANK, or is
 * null. -1 where data decides, which only a run finds. */
MCC_API mcc_status mcc_session_next_output_shape(mcc_session* session, size_t index, int64_t* dims,
                                                 int32_t* rank, mcc_error* error);

/* With a model for GPUs, inputs and outputs may be in the host's memory or in the GPU's, each by itself. When all of them are in
 * the GPU's memory and the caller gave the stream, the run is only put into the stream: the caller waits for it. */
MCC_API mcc_status mcc_session_run(mcc_session* session, mcc_error* error);

/* After a run: where output `index` is and its shape. Valid until the next run or change of the
 * session. */
MCC_API mcc_status mcc_session_output(mcc_session* session, size_t index, mcc_tensor* tensor,
                                      mcc_error* error);

/* Memory of the session's GPU, for inputs and outputs that stay there. Errors with a model of a CPU. */
MCC_API mcc_status mcc_session_device_alloc(mcc_session* session, size_t bytes, void** memory, mcc_error* error);
MCC_API void mcc_session_device_free(mcc_session* session, void* memory);
/* Between memory of the host and of the GPU, in any direction; done when the call returns. */
MCC_API mcc_status mcc_session_device_copy(mcc_session* session, void* to, const void* from, size_t bytes,
                                           mcc_error* error);

/* Profile. Of a model for GPUs by events of its stream.
 * -------------------------------------------------------------------------------------------- */

typedef struct mcc_node_profile {
  uint32_t struct_size; /* set by the caller */
  uint32_t reserved;
  uint64_t executions;
  uint64_t total_ns;
  uint64_t min_ns; /* of one execution */
  int64_t flops;   /* of one execution with the shapes of the last run */
  int64_t bytes;
} mcc_node_profile;

MCC_API void mcc_session_set_profiling(mcc_session* session, int on);
MCC_API void mcc_session_reset_profile(mcc_session* session);
MCC_API mcc_status mcc_session_node_profile(const mcc_session* session, size_t node,
                                            mcc_node_profile* profile);

#ifdef __cplusplus
}
#endif

#endif
