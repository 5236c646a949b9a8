// A model for GPUs on the stand-in driver, whose kernels are functions of this program.
#pragma once

#include <gmock/gmock.h>

#include "runtime/cuda.h"
#include "stand_in.h"
#include "test_model.h"

namespace mcc::test {

using codegen::DeviceDesc;
using codegen::DeviceKernelDesc;

inline float* floats_at(void** params, int i) { return *static_cast<float**>(params[i]); }

// x * w of all threads of the grid; y = x + 1.
inline void multiply_entry(const unsigned* grid, const unsigned* block, void** params) {
  for (unsigned i = 0; i < grid[0] * block[0]; ++i)
    floats_at(params, 2)[i] = floats_at(params, 0)[i] * floats_at(params, 1)[i];
}
inline void increment_entry(const unsigned* grid, const unsigned* block, void** params) {
  for (unsigned i = 0; i < grid[0] * block[0]; ++i)
    floats_at(params, 1)[i] = floats_at(params, 0)[i] + 1;
}

inline std::string ptx(const std::string& entry, const std::string& version = "7.0") {
  return ".version " + version + "\n.target sm_80\n.visible .entry " + entry + "(\n";
}

inline DeviceKernelDesc kernel(const std::string& entry, std::vector<uint32_t> arguments) {
  DeviceKernelDesc k;
  codegen::DeviceLaunchDesc launch;
  launch.entry = entry;
  launch.grid = {2, 1, 1};
  launch.block = {3, 1, 1};
  launch.arguments = std::move(arguments);
  launch.figures = {{"sm_80", 24, 128, 0, 4, 8}};
  k.launches = {launch};
  k.images = {{MCC_IMAGE_ptx, "sm_80", ptx(entry)}};
  return k;
}

// y = x * w + 1 over [2, 3], w = 1 .. 6, with the product in the arena.
inline void make_affine_on_device(TestModel& model) {
  make_affine(model);
  model.kernels.clear();
  model.device = DeviceDesc{{kernel("multiply", {0, 1, 2}), kernel("increment", {0, 1})}};
  for (PlanNode& node : model.plan.graphs[0].nodes) {
    node.kind = MCC_NODE_device;
    node.dims.clear();
  }
}

class Device : public testing::Test {
 protected:
  void SetUp() override {
    fake().reset();
    fake().kernels = {{"multiply", {multiply_entry, 3}}, {"increment", {increment_entry, 2}}};
    make_affine_on_device(model);
  }
  void TearDown() override { expect_nothing_held(); }
  // The error of making a session, or of running it.
  std::string failure() {
    return error_of([&] {
      Session session{Model(model.image())};
      session.set_input("x", x.data(), {2, 3});
      session.run();
    });
  }

  TestModel model;
  std::vector<float> x = {1, 1, 1, 2, 2, 2};
};

struct DeviceMemory {
  Session& session;
  void* data = nullptr;
  DeviceMemory(Session& s, size_t bytes) : session(s) {
    mcc_error error;
    EXPECT_EQ(mcc_session_device_alloc(s.handle(), bytes, &data, &error), MCC_OK) << error.message;
  }
  ~DeviceMemory() { mcc_session_device_free(session.handle(), data); }
  void copy(void* to, const void* from, size_t bytes) {
    mcc_error error;
    EXPECT_EQ(mcc_session_device_copy(session.handle(), to, from, bytes, &error), MCC_OK) << error.message;
  }
};

// A program's own use of a GPU, as CUDA's runtime does it.
struct Caller {
  const mcc_cuda_driver& cuda = *runtime::load_cuda(nullptr);
  mcc_cu_device device;
  mcc_cu_context context = nullptr;
  mcc_cu_stream stream = nullptr;
  explicit Caller(mcc_cu_device on = 0) : device(on) {
    EXPECT_EQ(cuda.primary_retain(&context, device), MCC_CU_SUCCESS);
    runtime::CurrentContext current(cuda, context);
    EXPECT_EQ(cuda.stream_create(&stream, MCC_CU_STREAM_NON_BLOCKING), MCC_CU_SUCCESS);
  }
  ~Caller() {
    runtime::CurrentContext current(cuda, context);
    cuda.stream_destroy(stream);
    cuda.primary_release(device);
  }
};

inline constexpr auto kExpected = [] { return ::testing::ElementsAre(2, 3, 4, 9, 11, 13); };

}  // namespace mcc::test
