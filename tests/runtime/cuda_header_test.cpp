// Our own declarations of the driver API against NVIDIA's header, where it is installed.
#include <gtest/gtest.h>

#include <type_traits>

#include "mcc/cuda_driver.h"

#if __has_include("/usr/local/cuda/include/cuda.h")
#include "/usr/local/cuda/include/cuda.h"

namespace {

// The same size and kind: what a call passes.
template <class A, class B>
constexpr bool is_like =
    sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>&& std::is_floating_point_v<A> ==
                                  std::is_floating_point_v<B>;

template <class R, class... A, class S, class... B>
constexpr bool is_same_call(R (*)(A...), S (*)(B...)) {
  if constexpr (sizeof...(A) == sizeof...(B)) {
    return (is_like<A, B> && ...);
  } else {
    return false;
  }
}

mcc_cuda_driver ours;

TEST(CudaHeader, FunctionsTakeWhatNvidiasTake) {
  // The header's macros give the plain names their versions.
#define MCC_CHECK_CALL(field, name) \
  EXPECT_TRUE(is_same_call(decltype(ours.field){}, decltype(&name){})) << #name
  MCC_CHECK_CALL(init, cuInit);
  MCC_CHECK_CALL(driver_version, cuDriverGetVersion);
  MCC_CHECK_CALL(error_name, cuGetErrorName);
  MCC_CHECK_CALL(error_string, cuGetErrorString);
  MCC_CHECK_CALL(device_count, cuDeviceGetCount);
  MCC_CHECK_CALL(device_get, cuDeviceGet);
  MCC_CHECK_CALL(device_name, cuDeviceGetName);
  MCC_CHECK_CALL(device_attribute, cuDeviceGetAttribute);
  MCC_CHECK_CALL(device_memory, cuDeviceTotalMem);
  MCC_CHECK_CALL(primary_retain, cuDevicePrimaryCtxRetain);
  MCC_CHECK_CALL(primary_release, cuDevicePrimaryCtxRelease);
  MCC_CHECK_CALL(context_current, cuCtxGetCurrent);
  MCC_CHECK_CALL(context_push, cuCtxPushCurrent);
  MCC_CHECK_CALL(context_pop, cuCtxPopCurrent);
  MCC_CHECK_CALL(context_device, cuCtxGetDevice);
  MCC_CHECK_CALL(module_load, cuModuleLoadDataEx);
  MCC_CHECK_CALL(module_unload, cuModuleUnload);
  MCC_CHECK_CALL(module_function, cuModuleGetFunction);
  MCC_CHECK_CALL(function_set_attribute, cuFuncSetAttribute);
  MCC_CHECK_CALL(allocate, cuMemAlloc);
  MCC_CHECK_CALL(release, cuMemFree);
  MCC_CHECK_CALL(host_allocate, cuMemHostAlloc);
  MCC_CHECK_CALL(host_release, cuMemFreeHost);
  MCC_CHECK_CALL(copy_to_device, cuMemcpyHtoDAsync);
  MCC_CHECK_CALL(copy_to_host, cuMemcpyDtoHAsync);
  MCC_CHECK_CALL(copy_on_device, cuMemcpyDtoDAsync);
  MCC_CHECK_CALL(pointer_attribute, cuPointerGetAttribute);
  MCC_CHECK_CALL(stream_create, cuStreamCreate);
  MCC_CHECK_CALL(stream_destroy, cuStreamDestroy);
  MCC_CHECK_CALL(stream_synchronize, cuStreamSynchronize);
  MCC_CHECK_CALL(stream_context, cuStreamGetCtx);
  MCC_CHECK_CALL(exchange_capture_mode, cuThreadExchangeStreamCaptureMode);
  MCC_CHECK_CALL(launch, cuLaunchKernel);
  MCC_CHECK_CALL(event_create, cuEventCreate);
  MCC_CHECK_CALL(event_destroy, cuEventDestroy);
  MCC_CHECK_CALL(event_record, cuEventRecord);
  MCC_CHECK_CALL(event_milliseconds, cuEventElapsedTime);
  MCC_CHECK_CALL(copy_between_devices, cuMemcpyPeerAsync);
  MCC_CHECK_CALL(fill, cuMemsetD8Async);
  MCC_CHECK_CALL(stream_is_capturing, cuStreamIsCapturing);
  MCC_CHECK_CALL(capture_begin, cuStreamBeginCapture);
  MCC_CHECK_CALL(capture_end, cuStreamEndCapture);
  MCC_CHECK_CALL(graph_instantiate, cuGraphInstantiateWithFlags);
  MCC_CHECK_CALL(graph_launch, cuGraphLaunch);
  MCC_CHECK_CALL(graph_destroy, cuGraphDestroy);
  MCC_CHECK_CALL(graph_exec_destroy, cuGraphExecDestroy);
#if CUDA_VERSION >= 12000
  MCC_CHECK_CALL(launch_with, cuLaunchKernelEx);
  MCC_CHECK_CALL(encode_tiles, cuTensorMapEncodeTiled);
#endif
#undef MCC_CHECK_CALL
}

TEST(CudaHeader, NumbersAreNvidias) {
#if CUDA_VERSION >= 12000
  EXPECT_EQ(sizeof(mcc_cu_tensor_map), sizeof(CUtensorMap));
  EXPECT_EQ(sizeof(mcc_cu_launch_attribute), sizeof(CUlaunchAttribute));
  EXPECT_EQ(offsetof(mcc_cu_launch_attribute, value), offsetof(CUlaunchAttribute, value));
  EXPECT_EQ(sizeof(mcc_cu_launch_config), sizeof(CUlaunchConfig));
  EXPECT_EQ(offsetof(mcc_cu_launch_config, grid_z), offsetof(CUlaunchConfig, gridDimZ));
  EXPECT_EQ(offsetof(mcc_cu_launch_config, block_x), offsetof(CUlaunchConfig, blockDimX));
  EXPECT_EQ(offsetof(mcc_cu_launch_config, shared_bytes), offsetof(CUlaunchConfig, sharedMemBytes));
  EXPECT_EQ(offsetof(mcc_cu_launch_config, stream), offsetof(CUlaunchConfig, hStream));
  EXPECT_EQ(offsetof(mcc_cu_launch_config, attributes), offsetof(CUlaunchConfig, attrs));
  EXPECT_EQ(offsetof(mcc_cu_launch_config, attributes_count), offsetof(CUlaunchConfig, numAttrs));
  EXPECT_EQ(int{MCC_CU_LAUNCH_BEFORE_PREVIOUS_ENDS}, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
  EXPECT_EQ(offsetof(CUlaunchAttributeValue, programmaticStreamSerializationAllowed), 0U);
  EXPECT_EQ(int{MCC_CU_TENSOR_UINT8}, CU_TENSOR_MAP_DATA_TYPE_UINT8);
  EXPECT_EQ(int{MCC_CU_TENSOR_UINT16}, CU_TENSOR_MAP_DATA_TYPE_UINT16);
  EXPECT_EQ(int{MCC_CU_TENSOR_UINT32}, CU_TENSOR_MAP_DATA_TYPE_UINT32);
  EXPECT_EQ(int{MCC_CU_TENSOR_UINT64}, CU_TENSOR_MAP_DATA_TYPE_UINT64);
  EXPECT_EQ(int{MCC_CU_TENSOR_SWIZZLE_32B}, CU_TENSOR_MAP_SWIZZLE_32B);
  EXPECT_EQ(int{MCC_CU_TENSOR_SWIZZLE_64B}, CU_TENSOR_MAP_SWIZZLE_64B);
  EXPECT_EQ(int{MCC_CU_TENSOR_SWIZZLE_128B}, CU_TENSOR_MAP_SWIZZLE_128B);
  EXPECT_EQ(int{MCC_CU_TENSOR_L2_256B}, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
  EXPECT_EQ(0, CU_TENSOR_MAP_INTERLEAVE_NONE);
  EXPECT_EQ(0, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
#endif
  EXPECT_EQ(int{MCC_CU_OUT_OF_MEMORY}, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(int{MCC_CU_NO_DEVICE}, CUDA_ERROR_NO_DEVICE);
  EXPECT_EQ(int{MCC_CU_INVALID_IMAGE}, CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(int{MCC_CU_INVALID_CONTEXT}, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(int{MCC_CU_NO_BINARY_FOR_GPU}, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(int{MCC_CU_INVALID_PTX}, CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(int{MCC_CU_UNSUPPORTED_PTX_VERSION}, CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
  EXPECT_EQ(int{MCC_CU_ILLEGAL_ADDRESS}, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(int{MCC_CU_ATTRIBUTE_THREADS_PER_BLOCK}, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  EXPECT_EQ(int{MCC_CU_ATTRIBUTE_SHARED_PER_BLOCK}, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  EXPECT_EQ(int{MCC_CU_ATTRIBUTE_WARP}, CU_DEVICE_ATTRIBUTE_WARP_SIZE);
  EXPECT_EQ(int{MCC_CU_ATTRIBUTE_CLOCK_KHZ}, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
  EXPECT_EQ(int{MCC_CU_ATTRIBUTE_MULTIPROCESSORS}, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  EXPECT_EQ(int{MCC_CU_ATTRIBUTE_COMPUTE_MODE}, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
  EXPECT_EQ(int{MCC_CU_COMPUTE_PROHIBITED}, CU_COMPUTEMODE_PROHIBITED);
  EXPECT_EQ(int{MCC_CU_COMPUTE_EXCLUSIVE_PROCESS}, CU_COMPUTEMODE_EXCLUSIVE_PROCESS);
  EXPECT_EQ(int{MCC_CU_ATTRIBUTE_MEMORY_CLOCK_KHZ}, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
  EXPECT_EQ(int{MCC_CU_ATTRIBUTE_MEMORY_BUS_BITS}, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  EXPECT_EQ(int{MCC_CU_ATTRIBUTE_L2_BYTES}, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  EXPECT_EQ(int{MCC_CU_ATTRIBUTE_THREADS_PER_MULTIPROCESSOR},
            CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
  EXPECT_EQ(int{MCC_CU_ATTRIBUTE_MAJOR}, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EXPECT_EQ(int{MCC_CU_ATTRIBUTE_MINOR}, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EXPECT_EQ(int{MCC_CU_ATTRIBUTE_SHARED_PER_MULTIPROCESSOR},
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
  EXPECT_EQ(int{MCC_CU_ATTRIBUTE_REGISTERS_PER_MULTIPROCESSOR},
            CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
  EXPECT_EQ(int{MCC_CU_ATTRIBUTE_SHARED_PER_BLOCK_OPTIN},
            CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  EXPECT_EQ(int{MCC_CU_ATTRIBUTE_BLOCKS_PER_MULTIPROCESSOR},
            CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR);
  EXPECT_EQ(int{MCC_CU_FUNCTION_MAX_DYNAMIC_SHARED}, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  EXPECT_EQ(int{MCC_CU_POINTER_MEMORY_TYPE}, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  EXPECT_EQ(int{MCC_CU_POINTER_IS_MANAGED}, CU_POINTER_ATTRIBUTE_IS_MANAGED);
  EXPECT_EQ(int{MCC_CU_POINTER_DEVICE_ORDINAL}, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
  EXPECT_EQ(int{MCC_CU_STREAM_DEFAULT}, CU_STREAM_DEFAULT);
  EXPECT_EQ(0, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(int{MCC_CU_INVALID_VALUE}, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(int{MCC_CU_LAUNCH_OUT_OF_RESOURCES}, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(int{MCC_CU_NO_JIT_COMPILER}, CUDA_ERROR_JIT_COMPILER_NOT_FOUND);
  EXPECT_EQ(int{MCC_CU_INVALID_SOURCE}, CUDA_ERROR_INVALID_SOURCE);
  EXPECT_EQ(int{MCC_CU_NOT_SUPPORTED}, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(int{MCC_CU_CAPTURE_UNSUPPORTED}, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(int{MCC_CU_CAPTURE_INVALIDATED}, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(int{MCC_CU_MEMORY_DEVICE}, CU_MEMORYTYPE_DEVICE);
  EXPECT_EQ(int{MCC_CU_STREAM_NON_BLOCKING}, CU_STREAM_NON_BLOCKING);
  EXPECT_EQ(int{MCC_CU_CAPTURE_GLOBAL}, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(int{MCC_CU_CAPTURE_THREAD_LOCAL}, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_EQ(int{MCC_CU_CAPTURE_RELAXED}, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(int{MCC_CU_NOT_INITIALIZED}, CUDA_ERROR_NOT_INITIALIZED);
  EXPECT_EQ(int{MCC_CU_DEINITIALIZED}, CUDA_ERROR_DEINITIALIZED);
#if CUDA_VERSION >= 12000
  EXPECT_EQ(int{MCC_CU_DEVICE_UNAVAILABLE}, CUDA_ERROR_DEVICE_UNAVAILABLE);
#endif
  EXPECT_EQ(int{MCC_CU_INVALID_HANDLE}, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(int{MCC_CU_ECC_UNCORRECTABLE}, CUDA_ERROR_ECC_UNCORRECTABLE);
  EXPECT_EQ(int{MCC_CU_NVLINK_UNCORRECTABLE}, CUDA_ERROR_NVLINK_UNCORRECTABLE);
  EXPECT_EQ(int{MCC_CU_LAUNCH_TIMEOUT}, CUDA_ERROR_LAUNCH_TIMEOUT);
  EXPECT_EQ(int{MCC_CU_CONTEXT_IS_DESTROYED}, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(int{MCC_CU_ASSERT}, CUDA_ERROR_ASSERT);
  EXPECT_EQ(int{MCC_CU_HARDWARE_STACK_ERROR}, CUDA_ERROR_HARDWARE_STACK_ERROR);
  EXPECT_EQ(int{MCC_CU_ILLEGAL_INSTRUCTION}, CUDA_ERROR_ILLEGAL_INSTRUCTION);
  EXPECT_EQ(int{MCC_CU_MISALIGNED_ADDRESS}, CUDA_ERROR_MISALIGNED_ADDRESS);
  EXPECT_EQ(int{MCC_CU_INVALID_ADDRESS_SPACE}, CUDA_ERROR_INVALID_ADDRESS_SPACE);
  EXPECT_EQ(int{MCC_CU_INVALID_PC}, CUDA_ERROR_INVALID_PC);
  EXPECT_EQ(int{MCC_CU_LAUNCH_FAILED}, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(int{MCC_CU_CAPTURED_EVENT}, CUDA_ERROR_CAPTURED_EVENT);
  EXPECT_EQ(int{MCC_CU_JIT_ERROR_LOG_BUFFER}, CU_JIT_ERROR_LOG_BUFFER);
  EXPECT_EQ(int{MCC_CU_JIT_ERROR_LOG_BUFFER_SIZE}, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
}

}  // namespace

#else

TEST(CudaHeader, FunctionsTakeWhatNvidiasTake) { GTEST_SKIP() << "NVIDIA's header is not here"; }

#endif
