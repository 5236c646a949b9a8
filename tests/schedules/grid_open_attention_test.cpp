// Attention whose batch, queries or keys are open: one schedule, one launch, right at every size, on the interpreter.
#include <gtest/gtest.h>

#include "schedules/grid_cases.h"
#include "schedules/optimized_kernels.h"
#include "tensor/sizes.h"
#include "tuner/default_schedule.h"

namespace mcc::test {
namespace {

using namespace tensor;

struct OpenCase {
  const char* name;
  const char* source;
  std::vector<std::vector<int64_t>> sizes;  // of the dimensions in the order of the kernel's
  bool is_by_cores = false;
  bool is_rolled = true;
};
void PrintTo(const OpenCase& c, std::ostream* out) { *out << c.name; }

// Heads of one projection, a mask for each sample's keys.
constexpr const char* kHeads = R"(graph g(%x: f16[N, S, 96], %m: f16[N, 1, 1, S]) {
  %parts: i64[3] = [32, 32, 32]
  %apart: i64[4] = [0, 0, 2, 16]
  %scale: f16[] = [0.25]
  %q0, %k0, %v0 = Split(%x, %parts) {axis = 2}
  %q1 = Reshape(%q0, %apart)
  %k1 = Reshape(%k0, %apart)
  %v1 = Reshape(%v0, %apart)
  %q = Transpose(%q1) {perm = [0, 2, 1, 3]}
  %k = Transpose(%k1) {perm = [0, 2, 3, 1]}
  %v = Transpose(%v1) {perm = [0, 2, 1, 3]}
  %s = MatMul(%q, %k)
  %c = Mul(%s, %scale)
  %a = Add(%c, %m)
  %p = Softmax(%a) {axis = -1}
  %o = MatMul(%p, %v)
  %y = Transpose(%o) {perm = [0, 2, 1, 3]}
  return %y
}
)";

// Queries of one length and keys of another, some of which each query does not see; keys lie transposed.
constexpr const char* kCross =
    R"(graph g(%q: bf16[B, Q, 24], %k: bf16[B, 24, K], %v: bf16[B, K, 40], %keep: bool[B, Q, K]) {
  %far: bf16[] = [-10000]
  %s = MatMul(%q, %k)
  %a = Where(%keep, %s, %far)
  %p = Softmax(%a) {axis = -1}
  %y = MatMul(%p, %v)
  return %y
}
)";

// Fewer keys than a part has.
constexpr const char* kKeys = R"(graph g(%q: f16[2, 24, 16], %k: f16[2, K, 16], %v: f16[2, K, 8]) {
  %kt = Transpose(%k) {perm = [0, 2, 1]}
  %s = MatMul(%q, %kt)
  %p = Softmax(%s) {axis = -1}
  %y = MatMul(%p, %v)
  return %y
}
)";

// Windows of pictures.
constexpr const char* kWindows =
    R"(graph g(%q: f16[N, 2, 49, 16], %k: f16[N, 2, 49, 16], %v: f16[N, 2, 49, 16], %bias: f16[1, 2, 49, 49]) {
  %kt = Transpose(%k) {perm = [0, 1, 3, 2]}
  %s = MatMul(%q, %kt)
  %a = Add(%s, %bias)
  %p = Softmax(%a) {axis = -1}
  %y = MatMul(%p, %v)
  return %y
}
)";

constexpr const char* kCores = R"(graph g(%q: f32[N, 20, 12], %k: f32[N, 30, 12], %v: f32[N, 30, 12]) {
  %kt = Transpose(%k) {perm = [0, 2, 1]}
  %s = MatMul(%q, %kt)
  %p = Softmax(%s) {axis = -1}
  %y = MatMul(%p, %v)
  return %y
}
)";

class GridOpenAttention : public ::testing::TestWithParam<OpenCase> {};

TEST_P(GridOpenAttention, IsOneLaunchAtEverySize) {
  const OpenCase& c = GetParam();
  const Target target = gpu_target("sm_80");
  const std::vector<Func> kernels = kernels_of(c.source, target);
  ASSERT_EQ(kernels.size(), 1u);
  const Func& f = kernels[0];
  ASSERT_FALSE(f.dims.empty());
  const tuner::DefaultSchedule made = tuner::explained_default_schedule(f, target);
  ASSERT_FALSE(made.is_plain);
  SCOPED_TRACE(to_text(f) + to_text(made.schedule.trace()));
  const Func lowered = lower(made.schedule.func(), target);
  const std::vector<std::string> broken = verify(lowered, Stage::lowered);
  ASSERT_TRUE(broken.empty()) << broken[0];
  EXPECT_EQ(launches_of(lowered), 1);
  EXPECT_EQ(count_calls(lowered, IntrinsicClass::mma) == 0, c.is_by_cores);
  EXPECT_EQ(to_text(f).find("rolled") != std::string::npos, c.is_rolled);
  for (const std::vector<int64_t>& sizes : c.sizes) {
    ASSERT_EQ(sizes.size(), f.dims.size());
    const Func instance = with_sizes(f, sizes), grid = with_sizes(lowered, sizes);
    const std::vector<std::string> excess = verify_launches(grid, target.gpu);
    EXPECT_TRUE(excess.empty()) << excess[0];
    graph::test::expect_close(run(grid, instance), run(instance, instance), 1e-2);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Forms, GridOpenAttention,
    ::testing::Values(OpenCase{"heads", kHeads, {{1, 1}, {2, 16}, {1, 63}, {1, 64}, {2, 65}, {1, 130}}},
                      OpenCase{"cross", kCross, {{1, 1, 1}, {2, 17, 65}, {1, 70, 3}, {3, 5, 129}}},
                      OpenCase{"keys", kKeys, {{1}, {63}, {64}, {100}}},
                      OpenCase{"windows", kWindows, {{1}, {3}}, false, false},
                      OpenCase{"cores", kCores, {{1}, {3}}, true, false}),
    [](const ::testing::TestParamInfo<OpenCase>& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace mcc::test
