// Kernels that wait for those before them by themselves, and begin early, on the stand-in driver.
#include <gmock/gmock.h>

#include "stand_in.h"
#include "test_model.h"

namespace mcc::test {
namespace {

using ::testing::ElementsAre;

float* floats_at(void** params, int i) { return *static_cast<float**>(params[i]); }

void increment(const unsigned* grid, const unsigned* block, void** params) {
  for (unsigned i = 0; i < grid[0] * block[0]; ++i)
    floats_at(params, 1)[i] = floats_at(params, 0)[i] + 1;
}

codegen::DeviceLaunchDesc launch(const std::string& entry, std::vector<uint32_t> arguments, bool waits_itself) {
  codegen::DeviceLaunchDesc l;
  l.entry = entry;
  l.grid = {2, 1, 1};
  l.block = {3, 1, 1};
  l.arguments = std::move(arguments);
  l.waits_itself = waits_itself;
  return l;
}

// y = x + 3 in three launches, the first of one node, the others of the next; what is after each of them: whether it waits.
class EarlyLaunch : public testing::Test {
 protected:
  void SetUp() override {
    fake().reset();
    for (const char* entry : {"a", "b", "c"})
      fake().kernels[entry] = {increment, 2};
  }
  void TearDown() override { expect_nothing_held(); }

  void make(bool a, bool b, bool c) {
    make_affine(model);
    model.kernels.clear();
    codegen::DeviceKernelDesc first, second;
    first.launches = {launch("a", {0, 2}, a)};
    second.launches = {launch("b", {0, 1}, b), launch("c", {1, 1}, c)};
    for (codegen::DeviceKernelDesc* kernel : {&first, &second}) {
      std::string ptx = ".version 7.8\n.target sm_80\n";
      for (const codegen::DeviceLaunchDesc& l : kernel->launches)
        ptx += ".visible .entry " + l.entry + "(\n";
      kernel->images = {{MCC_IMAGE_ptx, "sm_80", ptx}};
    }
    model.device = codegen::DeviceDesc{{first, second}};
    for (PlanNode& node : model.plan.graphs[0].nodes) {
      node.kind = MCC_NODE_device;
      node.dims.clear();
    }
  }

  // The launches of a run by itself, of the one that a graph is made of, and of one by the graph.
  void expect_launches(const std::vector<std::string>& expected, bool is_profiled = false) {
    Session session{Model(model.image())};
    session.set_input("x", x.data(), {2, 3});
    session.set_profiling(is_profiled);
    for (int run = 0; run < 3; ++run) {
      fake().calls.clear();
      session.run();
      EXPECT_THAT(floats(session.output(0)), ElementsAre(4, 5, 6, 7, 8, 9)) << run;
      std::vector<std::string> found;
      for (const std::string& call : fake().calls)
        if (call.starts_with("cuLaunch")) found.push_back(call.substr(0, call.find(' ', call.find(' ') + 1)));
      EXPECT_EQ(found, run < 2 || is_profiled ? expected : std::vector<std::string>()) << run;
    }
  }

  TestModel model;
  std::vector<float> x = {1, 2, 3, 4, 5, 6};
};

TEST_F(EarlyLaunch, IsForKernelsBehindKernels) {
  make(true, true, true);
  expect_launches({"cuLaunchKernel a", "cuLaunchKernelEx b", "cuLaunchKernelEx c"});
}

TEST_F(EarlyLaunch, IsNotForKernelsThatDoNotWait) {
  make(true, false, true);
  expect_launches({"cuLaunchKernel a", "cuLaunchKernel b", "cuLaunchKernelEx c"});
}

TEST_F(EarlyLaunch, IsNotInProfiledRuns) {
  make(true, true, true);
  expect_launches({"cuLaunchKernel a", "cuLaunchKernel b", "cuLaunchKernel c"}, true);
}

TEST_F(EarlyLaunch, IsNotWithDriversWhoseGraphsDoNotHaveIt) {
  make(true, true, true);
  fake().driver_version = 12020;
  expect_launches({"cuLaunchKernel a", "cuLaunchKernel b", "cuLaunchKernel c"});
}

TEST_F(EarlyLaunch, FailuresNameTheKernel) {
  make(true, true, true);
  fake().failures["cuLaunchKernelEx"] = 1;
  Session session{Model(model.image())};
  session.set_input("x", x.data(), {2, 3});
  EXPECT_THAT(error_of([&] { session.run(); }), testing::HasSubstr("it cannot be launched"));
}

}  // namespace
}  // namespace mcc::test
