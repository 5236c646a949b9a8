// A model for GPUs on the stand-in driver, whose kernels are functions of this program.
#pragma once

#include <gmock/gmock.h>

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

inline constexpr auto kExpected = [] { return ::testing::ElementsAre(2, 3, 4, 9, 11, 13); };

}  // namespace mcc::test
