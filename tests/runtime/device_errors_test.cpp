// What may go wrong with models for GPUs: each refusal of the driver is a status and a sentence, and damaged code is found.
#include "device_model.h"
#include "runtime/cuda.h"
#include "runtime/device_code.h"

namespace mcc::test {
namespace {

using ::testing::HasSubstr;

TEST_F(Device, NoGpu) {
  fake().devices = 0;
  EXPECT_THAT(failure(), HasSubstr("the model needs an NVIDIA GPU, and the driver finds none"));
}

TEST_F(Device, NoImageForTheGpu) {
  fake().sm = 75;
  EXPECT_EQ(failure(),
            "the model has no code for this GPU (Stand-in GPU, sm_75): it was compiled for ptx sm_80; "
            "compile it with "
            "--target cuda:sm_75");
}

TEST_F(Device, DriverTooOldForThePtx) {
  fake().newest_ptx = 65;
  fake().driver_version = 10020;
  EXPECT_THAT(failure(), HasSubstr("the NVIDIA driver (for CUDA 10.2) is too old for the model's PTX"));
}

TEST_F(Device, BadPtx) {
  fake().failures["cuModuleLoadDataEx"] = 218;
  EXPECT_EQ(
      failure(),
      "the driver cannot load the model's code: another error (CUDA_ERROR_OTHER, 218): ptxas: line 7: no");
}

TEST_F(Device, DriverWithoutItsCompiler) {
  fake().failures["cuModuleLoadDataEx"] = 221;
  EXPECT_THAT(failure(), HasSubstr("libnvidia-ptxjitcompiler.so.1"));
}

TEST_F(Device, OutOfMemory) {
  fake().memory = 16;
  EXPECT_EQ(failure(), "out of memory on the GPU: 24 bytes for the weights");
  fake().memory = 24;
  EXPECT_EQ(failure(), "out of memory on the GPU: 128 bytes for the arena of intermediate tensors");
  fake().memory = 160;
  EXPECT_EQ(failure(), "out of memory on the GPU: 24 bytes for an output");
}

// Code for sm_80 runs on GPUs of its generation that give a block less.
TEST_F(Device, TooMuchSharedMemory) {
  codegen::DeviceLaunchDesc& launch = model.device->kernels[1].launches[0];
  launch.shared_bytes = launch.dynamic_shared_bytes = 110592;
  EXPECT_EQ(failure(), "");
  fake().sm = 86;
  EXPECT_EQ(failure(),
            "kernel increment needs 110592 bytes of shared memory, and this GPU (sm_86) gives a block 101376 "
            "at most: "
            "compile the model with --target cuda:sm_86");
}

TEST_F(Device, AnotherProcessHasTheGpu) {
  fake().failures = {{"cuDevicePrimaryCtxRetain", MCC_CU_DEVICE_UNAVAILABLE}};
  EXPECT_THAT(failure(), HasSubstr("another process has GPU 0 for itself, or its compute mode lets none use "
                                   "it; wait for that process, or "
                                   "let several use it (nvidia-smi -i 0 -c DEFAULT)"));
}

TEST_F(Device, IllegalAddress) {
  Session session{Model(model.image())};
  session.set_input("x", x.data(), {2, 3});
  fake().failures["cuStreamSynchronize"] = 700;
  EXPECT_EQ(error_of([&] { session.run(); }),
            "the model's kernels failed on the GPU: an illegal memory access was encountered "
            "(CUDA_ERROR_ILLEGAL_ADDRESS, 700)");
  fake().failures.clear();
}

TEST_F(Device, FailedLaunchNamesItsNode) {
  fake().failures["cuLaunchKernel"] = 701;
  EXPECT_EQ(
      failure(),
      "node \"multiply\" (multiply_onnx): it cannot be launched: another error (CUDA_ERROR_OTHER, 701)");
}

TEST_F(Device, EveryCallMayFail) {
  // Whatever the driver refuses: an error or, where something else serves, the right result. Never a crash, nothing lost.
  for (const char* name :
       {"cuDeviceGetCount", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuModuleLoadDataEx",
        "cuModuleGetFunction", "cuFuncSetAttribute", "cuMemAlloc_v2", "cuMemHostAlloc",
        "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuStreamCreate", "cuStreamSynchronize",
        "cuLaunchKernel", "cuEventCreate", "cuEventRecord", "cuStreamBeginCapture_v2", "cuStreamEndCapture",
        "cuGraphLaunch", "cuPointerGetAttribute"}) {
    for (int code : {1, 2, 700, 999}) {
      for (bool is_profiled : {false, true}) {
        SCOPED_TRACE(std::string(name) + " " + std::to_string(code) + (is_profiled ? " profiled" : ""));
        fake().failures = {{name, code}};
        SessionOptions options;
        options.profile = is_profiled;
        std::vector<float> y;
        const std::string error = error_of([&] {
          Session session{Model(model.image()), options};
          session.set_input("x", x.data(), {2, 3});
          for (int i = 0; i < 3; ++i)
            session.run();
          y = floats(session.output(0));
        });
        if (!error.empty()) y = {2, 3, 4, 9, 11, 13};
        EXPECT_THAT(y, kExpected());
        fake().failures.clear();
        expect_nothing_held();
      }
    }
  }
}

TEST_F(Device, DamagedCodeIsRefused) {
  model.image();
  const std::vector<std::byte> good = model.device_bytes();
  EXPECT_EQ(error_of([&] { Model{model.set_device_bytes(good)}; }), "");
  // Any byte that is flipped: the checksum finds it.
  for (size_t at = 0; at < good.size(); at += 7) {
    std::vector<std::byte> bad = good;
    bad[at] ^= std::byte{1};
    EXPECT_NE(error_of([&] { Model{model.set_device_bytes(bad)}; }), "") << at;
  }
  for (size_t size : {size_t{0}, size_t{31}, good.size() / 2, good.size() - 1}) {
    std::vector<std::byte> cut(good.begin(), good.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_NE(error_of([&] { Model{model.set_device_bytes(cut)}; }), "") << size;
  }
  // With the right checksum: every number is checked for itself.
  for (size_t at = MCC_DEVICE_CHECKED_FROM; at + 4 <= good.size(); at += 4) {
    std::vector<std::byte> bad = good;
    std::memset(bad.data() + at, 0xff, 4);
    const uint64_t sum =
        mcc_plan_checksum(reinterpret_cast<const unsigned char*>(bad.data()) + MCC_DEVICE_CHECKED_FROM,
                          bad.size() - MCC_DEVICE_CHECKED_FROM);
    std::memcpy(bad.data() + offsetof(mcc_device_header, checksum), &sum, sizeof sum);
    model.set_device_bytes(bad);
    error_of([&] {
      Session session{Model(model.set_device_bytes(bad))};
      session.set_input("x", x.data(), {2, 3});
    });
  }
}

TEST_F(Device, PlansOfAGpuAreOfOneKind) {
  model.plan.graphs[0].nodes[1].kind = MCC_NODE_kernel;
  model.kernels.push_back(increment);
  model.plan.graphs[0].nodes[1].target = 0;
  EXPECT_THAT(failure(), HasSubstr("node 1 among those for a GPU"));
}

TEST(TensorMaps, NeedADriverThatMakesThem) {
  const mcc_cuda_driver old = {};
  const mcc_device_map map = {64, 64, 0, 2, 64, 64, 128, 0};
  mcc_cu_tensor_map out;
  mcc_error error;
  EXPECT_EQ(runtime::encode_map(old, map, 0, &out, &error), MCC_NOT_HERE);
  EXPECT_STREQ(error.message, "the NVIDIA driver is too old: it has no cuTensorMapEncodeTiled");
}

TEST_F(Device, HostModelsHaveNoDeviceMemory) {
  TestModel host;
  make_affine(host);
  Session session{Model(host.image())};
  void* memory = nullptr;
  mcc_error error;
  EXPECT_EQ(mcc_session_device_alloc(session.handle(), 4, &memory, &error), MCC_INVALID_ARGUMENT);
  EXPECT_STREQ(error.message, "the session's model is not for GPUs");
}

}  // namespace
}  // namespace mcc::test
