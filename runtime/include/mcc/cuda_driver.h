/* The part of the CUDA driver API that mcc uses, declared by ourselves: nothing of CUDA is needed to build mcc, and
 * libcuda.so.1 is loaded when a GPU is asked for. Names and numbers are NVIDIA's, stable since CUDA 11.
 */
#ifndef MCC_CUDA_DRIVER_H
#define MCC_CUDA_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MCC_CUDA_LIBRARY "libcuda.so.1"

typedef int mcc_cu_result; /* 0: success */
typedef int mcc_cu_device;
typedef uint64_t mcc_cu_pointer; /* an address in the device's memory */
typedef struct mcc_cu_context_s* mcc_cu_context;
typedef struct mcc_cu_module_s* mcc_cu_module;
typedef struct mcc_cu_function_s* mcc_cu_function;
typedef struct mcc_cu_stream_s* mcc_cu_stream;
typedef struct mcc_cu_event_s* mcc_cu_event;
typedef struct mcc_cu_graph_s* mcc_cu_graph;
typedef struct mcc_cu_graph_exec_s* mcc_cu_graph_exec;

/* CUtensorMap: what the copy engine knows of an array. The driver wants its address to be a multiple of 64. */
typedef struct mcc_cu_tensor_map {
  uint64_t opaque[16];
} mcc_cu_tensor_map;

/* CUlaunchAttribute; of its values the one that mcc uses. */
typedef struct mcc_cu_launch_attribute {
  uint32_t id;
  uint32_t reserved;
  union {
    int flag;
    uint64_t size[8];
  } value;
} mcc_cu_launch_attribute;

/* CUlaunchConfig */
typedef struct mcc_cu_launch_config {
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z;
  unsigned shared_bytes;
  mcc_cu_stream stream;
  mcc_cu_launch_attribute* attributes;
  unsigned attributes_count;
} mcc_cu_launch_config;

enum {
  MCC_CU_SUCCESS = 0,
  MCC_CU_INVALID_VALUE = 1,
  MCC_CU_OUT_OF_MEMORY = 2,
  MCC_CU_NOT_INITIALIZED = 3,
  MCC_CU_DEINITIALIZED = 4,
  MCC_CU_DEVICE_UNAVAILABLE = 46,
  MCC_CU_NO_DEVICE = 100,
  MCC_CU_INVALID_IMAGE = 200,
  MCC_CU_INVALID_CONTEXT = 201,
  MCC_CU_NO_BINARY_FOR_GPU = 209,
  MCC_CU_ECC_UNCORRECTABLE = 214,
  MCC_CU_INVALID_PTX = 218,
  MCC_CU_NVLINK_UNCORRECTABLE = 220,
  MCC_CU_NO_JIT_COMPILER = 221,
  MCC_CU_UNSUPPORTED_PTX_VERSION = 222,
  MCC_CU_INVALID_SOURCE = 300,
  MCC_CU_INVALID_HANDLE = 400,
  MCC_CU_ILLEGAL_ADDRESS = 700,
  MCC_CU_LAUNCH_OUT_OF_RESOURCES = 701,
  MCC_CU_LAUNCH_TIMEOUT = 702,
  MCC_CU_CONTEXT_IS_DESTROYED = 709,
  MCC_CU_ASSERT = 710,
  MCC_CU_HARDWARE_STACK_ERROR = 714,
  MCC_CU_ILLEGAL_INSTRUCTION = 715,
  MCC_CU_MISALIGNED_ADDRESS = 716,
  MCC_CU_INVALID_ADDRESS_SPACE = 717,
  MCC_CU_INVALID_PC = 718,
  MCC_CU_LAUNCH_FAILED = 719,
  MCC_CU_NOT_SUPPORTED = 801,
  MCC_CU_CAPTURE_UNSUPPORTED = 900, /* up to CAPTURED_EVENT: what the capture of a stream does not survive */
  MCC_CU_CAPTURE_INVALIDATED = 901,
  MCC_CU_CAPTURED_EVENT = 907
};

/* CUdevice_attribute */
enum {
  MCC_CU_ATTRIBUTE_THREADS_PER_BLOCK = 1,
  MCC_CU_ATTRIBUTE_SHARED_PER_BLOCK = 8,
  MCC_CU_ATTRIBUTE_WARP = 10,
  MCC_CU_ATTRIBUTE_CLOCK_KHZ = 13,
  MCC_CU_ATTRIBUTE_MULTIPROCESSORS = 16,
  MCC_CU_ATTRIBUTE_COMPUTE_MODE = 20,
  MCC_CU_ATTRIBUTE_MEMORY_CLOCK_KHZ = 36,
  MCC_CU_ATTRIBUTE_MEMORY_BUS_BITS = 37,
  MCC_CU_ATTRIBUTE_L2_BYTES = 38,
  MCC_CU_ATTRIBUTE_THREADS_PER_MULTIPROCESSOR = 39,
  MCC_CU_ATTRIBUTE_MAJOR = 75,
  MCC_CU_ATTRIBUTE_MINOR = 76,
  MCC_CU_ATTRIBUTE_SHARED_PER_MULTIPROCESSOR = 81,
  MCC_CU_ATTRIBUTE_REGISTERS_PER_MULTIPROCESSOR = 82,
  MCC_CU_ATTRIBUTE_SHARED_PER_BLOCK_OPTIN = 97,
  MCC_CU_ATTRIBUTE_BLOCKS_PER_MULTIPROCESSOR = 106
};

/* CUcomputemode */
enum { MCC_CU_COMPUTE_PROHIBITED = 2, MCC_CU_COMPUTE_EXCLUSIVE_PROCESS = 3 };

/* CUfunction_attribute, CUpointer_attribute, CUmemorytype, CUstreamCaptureMode, CUlaunchAttributeID, CUjit_option */
enum {
  MCC_CU_FUNCTION_MAX_DYNAMIC_SHARED = 8,
  MCC_CU_POINTER_MEMORY_TYPE = 2,
  MCC_CU_POINTER_IS_MANAGED = 8,
  MCC_CU_POINTER_DEVICE_ORDINAL = 9,
  MCC_CU_MEMORY_DEVICE = 2,
  MCC_CU_STREAM_DEFAULT = 0,
  MCC_CU_STREAM_NON_BLOCKING = 1,
  MCC_CU_CAPTURE_GLOBAL = 0,
  MCC_CU_CAPTURE_THREAD_LOCAL = 1,
  MCC_CU_CAPTURE_RELAXED = 2,
  MCC_CU_LAUNCH_BEFORE_PREVIOUS_ENDS = 6, /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */
  MCC_CU_JIT_ERROR_LOG_BUFFER = 5,
  MCC_CU_JIT_ERROR_LOG_BUFFER_SIZE = 6
};

/* CUtensorMapDataType, CUtensorMapSwizzle, CUtensorMapL2promotion */
enum {
  MCC_CU_TENSOR_UINT8 = 0,
  MCC_CU_TENSOR_UINT16 = 1,
  MCC_CU_TENSOR_UINT32 = 2,
  MCC_CU_TENSOR_UINT64 = 4,
  MCC_CU_TENSOR_SWIZZLE_32B = 1,
  MCC_CU_TENSOR_SWIZZLE_64B = 2,
  MCC_CU_TENSOR_SWIZZLE_128B = 3,
  MCC_CU_TENSOR_L2_256B = 3
};

/* X(field, exported name, parameters). The names with _v2 are those that the header of CUDA 11 and later call. */
#define MCC_CUDA_FUNCTIONS(X)                                                                              \
  X(init, "cuInit", (unsigned flags))                                                                      \
  X(driver_version, "cuDriverGetVersion", (int* version))                                                  \
  X(error_name, "cuGetErrorName", (mcc_cu_result code, const char** name))                                 \
  X(error_string, "cuGetErrorString", (mcc_cu_result code, const char** text))                             \
  X(device_count, "cuDeviceGetCount", (int* count))                                                        \
  X(device_get, "cuDeviceGet", (mcc_cu_device * device, int ordinal))                                      \
  X(device_name, "cuDeviceGetName", (char* name, int size, mcc_cu_device device))                          \
  X(device_attribute, "cuDeviceGetAttribute", (int* value, int attribute, mcc_cu_device device))           \
  X(device_memory, "cuDeviceTotalMem_v2", (size_t* bytes, mcc_cu_device device))                           \
  X(primary_retain, "cuDevicePrimaryCtxRetain", (mcc_cu_context * context, mcc_cu_device device))          \
  X(primary_release, "cuDevicePrimaryCtxRelease_v2", (mcc_cu_device device))                               \
  X(context_current, "cuCtxGetCurrent", (mcc_cu_context * context))                                        \
  X(context_push, "cuCtxPushCurrent_v2", (mcc_cu_context context))                                         \
  X(context_pop, "cuCtxPopCurrent_v2", (mcc_cu_context * context))                                         \
  X(context_device, "cuCtxGetDevice", (mcc_cu_device * device))                                            \
  X(module_load, "cuModuleLoadDataEx",                                                                     \
    (mcc_cu_module * module, const void* image, unsigned count, int* options, void** values))              \
  X(module_unload, "cuModuleUnload", (mcc_cu_module module))                                               \
  X(module_function, "cuModuleGetFunction",                                                                \
    (mcc_cu_function * function, mcc_cu_module module, const char* name))                                  \
  X(function_set_attribute, "cuFuncSetAttribute", (mcc_cu_function function, int attribute, int value))    \
  X(allocate, "cuMemAlloc_v2", (mcc_cu_pointer * address, size_t bytes))                                   \
  X(release, "cuMemFree_v2", (mcc_cu_pointer address))                                                     \
  X(host_allocate, "cuMemHostAlloc", (void** address, size_t bytes, unsigned flags))                       \
  X(host_release, "cuMemFreeHost", (void* address))                                                        \
  X(copy_to_device, "cuMemcpyHtoDAsync_v2",                                                                \
    (mcc_cu_pointer to, const void* from, size_t bytes, mcc_cu_stream stream))                             \
  X(copy_to_host, "cuMemcpyDtoHAsync_v2",                                                                  \
    (void* to, mcc_cu_pointer from, size_t bytes, mcc_cu_stream stream))                                   \
  X(copy_on_device, "cuMemcpyDtoDAsync_v2",                                                                \
    (mcc_cu_pointer to, mcc_cu_pointer from, size_t bytes, mcc_cu_stream stream))                          \
  X(copy_between_devices, "cuMemcpyPeerAsync",                                                             \
    (mcc_cu_pointer to, mcc_cu_context to_context, mcc_cu_pointer from, mcc_cu_context from_context,       \
     size_t bytes, mcc_cu_stream stream))                                                                  \
  X(fill, "cuMemsetD8Async", (mcc_cu_pointer to, unsigned char value, size_t bytes, mcc_cu_stream stream)) \
  X(pointer_attribute, "cuPointerGetAttribute", (void* value, int attribute, mcc_cu_pointer address))      \
  X(stream_create, "cuStreamCreate", (mcc_cu_stream * stream, unsigned flags))                             \
  X(stream_destroy, "cuStreamDestroy_v2", (mcc_cu_stream stream))                                          \
  X(stream_synchronize, "cuStreamSynchronize", (mcc_cu_stream stream))                                     \
  X(stream_context, "cuStreamGetCtx", (mcc_cu_stream stream, mcc_cu_context * context))                    \
  X(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", (int* mode))                               \
  X(launch, "cuLaunchKernel",                                                                              \
    (mcc_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,        \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, mcc_cu_stream stream, void** params,       \
     void** extra))                                                                                        \
  X(event_create, "cuEventCreate", (mcc_cu_event * event, unsigned flags))                                 \
  X(event_destroy, "cuEventDestroy_v2", (mcc_cu_event event))                                              \
  X(event_record, "cuEventRecord", (mcc_cu_event event, mcc_cu_stream stream))                             \
  X(event_milliseconds, "cuEventElapsedTime", (float* ms, mcc_cu_event begin, mcc_cu_event end))           \
  X(stream_is_capturing, "cuStreamIsCapturing", (mcc_cu_stream stream, int* status))                       \
  X(capture_begin, "cuStreamBeginCapture_v2", (mcc_cu_stream stream, int mode))                            \
  X(capture_end, "cuStreamEndCapture", (mcc_cu_stream stream, mcc_cu_graph * graph))                       \
  X(graph_instantiate, "cuGraphInstantiateWithFlags",                                                      \
    (mcc_cu_graph_exec * exec, mcc_cu_graph graph, unsigned long long flags))                              \
  X(graph_launch, "cuGraphLaunch", (mcc_cu_graph_exec exec, mcc_cu_stream stream))                         \
  X(graph_destroy, "cuGraphDestroy", (mcc_cu_graph graph))                                                 \
  X(graph_exec_destroy, "cuGraphExecDestroy", (mcc_cu_graph_exec exec))

/* Those that only some models need, of newer drivers; null where they are not there. */
#define MCC_CUDA_NEWER_FUNCTIONS(X)                                                                    \
  X(launch_with, "cuLaunchKernelEx",                                                                   \
    (const mcc_cu_launch_config* config, mcc_cu_function function, void** params, void** extra))       \
  X(encode_tiles, "cuTensorMapEncodeTiled",                                                            \
    (mcc_cu_tensor_map * map, int type, uint32_t rank, void* address, const uint64_t* extents,         \
     const uint64_t* strides, const uint32_t* box, const uint32_t* steps, int interleave, int swizzle, \
     int l2_promotion, int fill))

/* The functions, as dlsym finds them. */
typedef struct mcc_cuda_driver {
#define MCC_CUDA_FIELD(field, name, parameters) mcc_cu_result(*field) parameters;
  MCC_CUDA_FUNCTIONS(MCC_CUDA_FIELD)
  MCC_CUDA_NEWER_FUNCTIONS(MCC_CUDA_FIELD)
#undef MCC_CUDA_FIELD
} mcc_cuda_driver;

#ifdef __cplusplus
}
#endif

#endif
