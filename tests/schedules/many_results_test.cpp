// Kernels of many results, each by a loop nest of its own.
#include <gtest/gtest.h>

#include "schedules/grid_cases.h"
#include "schedules/optimized_kernels.h"
#include "tuner/default_schedule.h"

namespace mcc::test {
namespace {

TEST(ManyResults, HaveALaunchEach) {
  constexpr int kResults = 256;
  std::string results = "%y0";
  for (int i = 1; i < kResults; ++i)
    results += text(", %y", i);
  const tensor::Target gpu = small_gpu_target("sm_80");
  const std::vector<tensor::Func> kernels =
      kernels_of(text("graph g(%x: f32[32, ", kResults, ", 33]) {\n  ", results,
                      " = Split(%x) {axis = 1}\n  return ", results, "\n}\n"),
                 gpu);
  ASSERT_EQ(kernels.size(), 1u);
  const tensor::Schedule schedule = tuner::default_schedule(kernels[0], gpu);
  EXPECT_EQ(launches_of(tensor::lower(schedule.func(), gpu)), kResults);
}

}  // namespace
}  // namespace mcc::test
