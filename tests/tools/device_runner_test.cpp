// Candidates on the GPU of a measuring process, which is the stand-in driver: warm clocks, shared and poisoned workspaces.
#include "tools/measure/device_runner.h"

#include <gtest/gtest.h>

#include <thread>

#include "codegen/codegen.h"
#include "runtime/stand_in.h"
#include "tensor/text.h"

namespace mcc::tools {
namespace {

using test::fake;
using tuner::TrialError;

class DeviceRunner : public testing::Test {
 protected:
  void SetUp() override {
    fake().reset();
    fake().runs_ptx = 1;
    Result<std::unique_ptr<DeviceContext>> opened = DeviceContext::open();
    ASSERT_TRUE(opened.ok()) << to_text(opened.errors());
    device = std::move(*opened);
  }
  void TearDown() override {
    device.reset();
    test::expect_nothing_held();
    fake().runs_ptx = 0;
  }
  std::unique_ptr<DeviceContext> device;
};

TEST_F(DeviceRunner, AGpuIsWarmedUpUntilItIsFast) {
  EXPECT_TRUE(device->has_cooled()) << "it has done nothing yet";
  fake().slow_fills = 100;
  device->warm_up();
  EXPECT_EQ(fake().slow_fills, 0);
  EXPECT_FALSE(device->has_cooled());
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  EXPECT_TRUE(device->has_cooled());
}

TEST_F(DeviceRunner, WorkspacesAreSharedAndGrow) {
  const int64_t before = fake().device_blocks;
  ASSERT_EQ(device->reserve_workspaces({1000}), MCC_CU_SUCCESS);
  const int64_t version = device->workspace_version();
  ASSERT_EQ(device->reserve_workspaces({500}), MCC_CU_SUCCESS);
  EXPECT_EQ(device->workspace_version(), version);
  ASSERT_EQ(device->reserve_workspaces({800, 2000}), MCC_CU_SUCCESS);
  EXPECT_NE(device->workspace_version(), version);
  EXPECT_EQ(fake().device_blocks, before + 2);
  EXPECT_TRUE(device->workspace(0) != 0 && device->workspace(1) != 0);
  // Too much is an error, and what is there is given up for other memory.
  EXPECT_EQ(device->reserve_workspaces({fake().memory + 1}), MCC_CU_OUT_OF_MEMORY);
  ASSERT_EQ(device->reserve_workspaces({fake().memory / 2}), MCC_CU_SUCCESS);
  mcc_cu_result code = MCC_CU_SUCCESS;
  const mcc_cu_pointer large = device->allocate(fake().memory / 4 * 3, &code);
  EXPECT_NE(large, 0U);
  device->release(large);
}

constexpr const char* kTwoSteps = R"(func two(x: f32[64]) -> (y: f32[64]) {
  alloc t: f32[64]
  for i in 64 {
    block t(a = i: spatial 64)
      reads x[a]
      writes t[a] {
      t[a] = x[a] + 1.0
    }
  }
  for j in 64 {
    block y(a = j: spatial 64)
      reads t[a]
      writes y[a] {
      y[a] = t[a] * 2.0
    }
  }
})";

// Both candidates hand over by way of a workspace; the second does so before the first is timed.
TEST_F(DeviceRunner, CandidatesTakeTurnsInOneWorkspace) {
  Result<tensor::Target> gpu = codegen::make_target("cuda:sm_80"), cpu = codegen::make_target("cpu");
  ASSERT_TRUE(gpu.ok() && cpu.ok());
  Result<std::unique_ptr<MeasuredTask>> task = MeasuredTask::create(kTwoSteps, 1, 1 << 20);
  ASSERT_TRUE(task.ok()) << to_text(task.errors());
  Result<std::unique_ptr<codegen::Jit>> jit = codegen::Jit::create(*cpu);
  ASSERT_TRUE(jit.ok());
  const codegen::EmitOptions emit;
  ASSERT_TRUE((*task)->compute_reference({(*task)->func(), *cpu, emit, **jit}).ok());
  mcc_cu_result code = MCC_CU_SUCCESS;
  const std::unique_ptr<DeviceTask> on_device = DeviceTask::create(*device, **task, &code);
  ASSERT_NE(on_device, nullptr);
  const DeviceBuildContext context{(*task)->func(), *gpu, emit, nullptr};
  tuner::MeasureOptions options;
  const std::unique_ptr<KernelRunner> runner = make_device_runner(options, *device, *on_device);
  std::vector<BuiltKernel> built;
  for (const char* threads : {"32", "64"}) {
    std::string trace;
    for (const char* loop : {"i", "j"})
      trace += text("split(loop=\"", loop, "\", factors=[0, ", threads, "], names=[\"", loop, ".b\", \"",
                    loop, ".t\"])\nbind(loop=\"", loop, ".b\", thread=\"block.x\")\nbind(loop=\"", loop,
                    ".t\", thread=\"thread.x\")\n");
    built.push_back(build_device_candidate(context, trace, nullptr));
    ASSERT_EQ(built.back().error, TrialError::none) << built.back().message;
    ASSERT_EQ(built.back().memory.workspaces.size(), 1U);
    const RunOutcome loaded = runner->load(built.back());
    ASSERT_EQ(loaded.error, TrialError::none) << loaded.message;
  }
  const int64_t blocks = fake().device_blocks;
  fake().calls.clear();
  for (int turn = 0; turn < 2; ++turn) {
    for (BuiltKernel& kernel : built) {
      const RunOutcome outcome = runner->run(kernel);
      ASSERT_EQ(outcome.error, TrialError::none) << outcome.message;
      ASSERT_EQ(runner->fetch_outputs().error, TrialError::none);
      const OutputCheck check = (*task)->check_outputs();
      EXPECT_TRUE(check.ok) << check.message;
    }
    // The memory moves when somebody needs more of it.
    ASSERT_EQ(device->reserve_workspaces({1 << 20}), MCC_CU_SUCCESS);
  }
  EXPECT_EQ(fake().device_blocks, blocks) << "one workspace, whoever uses it";
  EXPECT_EQ(fake().count("cuMemsetD8Async"), 4 * 2)
      << "before each run the output and the workspace are poison";
}

}  // namespace
}  // namespace mcc::tools
