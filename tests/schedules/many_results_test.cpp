// Kernels of many results, each by a loop nest of its own.
#include <gtest/gtest.h>

#include <ctime>

#include "schedules/grid_cases.h"
#include "schedules/optimized_kernels.h"
#include "tuner/default_schedule.h"

namespace mcc::test {
namespace {

// A fifth of a second; with a check of all of the function for each nest at each step it is a minute.
TEST(ManyResults, TakeLittleTimeToSchedule) {
  constexpr int kResults = 256;
  constexpr double kMostSeconds = 15;
  std::string results = "%y0";
  for (int i = 1; i < kResults; ++i)
    results += text(", %y", i);
  const tensor::Target gpu = small_gpu_target("sm_80");
  const std::vector<tensor::Func> kernels =
      kernels_of(text("graph g(%x: f32[32, ", kResults, ", 33]) {\n  ", results,
                      " = Split(%x) {axis = 1}\n  return ", results, "\n}\n"),
                 gpu);
  ASSERT_EQ(kernels.size(), 1u);
  const std::clock_t begin = std::clock();
  const tensor::Schedule schedule = tuner::default_schedule(kernels[0], gpu);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, kMostSeconds);
  EXPECT_EQ(launches_of(tensor::lower(schedule.func(), gpu)), kResults);
}

}  // namespace
}  // namespace mcc::test
