// Schedules for a GPU, lowered: each is checked after every pass, its launches on the interpreter's grid, and kept as text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <sstream>

#include "golden.h"
#include "tensor/passes/async_copies.h"
#include "tensor/passes/lower.h"
#include "tensor/schedule/schedule.h"
#include "tensor/text.h"
#include "tensor/verify.h"
#include "tensor_passes/equivalence.h"

namespace mcc::tensor {
namespace {

Target gpu_target(std::string_view arch) {
  Target t;
  t.kind = TargetKind::cuda;
  t.vector_bits = 128;
  t.gpu = *find_gpu(arch);
  return t;
}

// The text between the line "=== NAME" and the next such line.
std::string section(const std::string& file, const std::string& name) {
  size_t begin = file.find("=== " + name + "\n");
  if (begin == std::string::npos) return "";
  begin += name.size() + 5;
  return file.substr(begin, file.find("=== ", begin) - begin);
}

// Of the symbolic dimensions, in order.
std::vector<int64_t> numbers(const std::string& line) {
  std::istringstream words(line);
  return {std::istream_iterator<int64_t>(words), {}};
}

// What it is lowered for, where that is another than sm_80.
std::string architecture(const std::string& file) {
  std::istringstream words(section(file, "arch"));
  std::string arch = "sm_80";
  words >> arch;
  return arch;
}

class LaunchFile : public ::testing::TestWithParam<const char*> {};

TEST_P(LaunchFile, RunsOnTheGridAndMatchesItsGolden) {
  const std::string path = text("tensor_passes/data/launch/", GetParam(), ".txt");
  const std::string file = read_file(test_data(path));
  const std::string source = section(file, "func"), steps = section(file, "trace"),
                    sizes = section(file, "sizes"), arch = section(file, "arch");
  const std::vector<int64_t> dims = numbers(sizes);
  Func f = parse(source);
  Result<Trace> trace = parse_trace(steps);
  ASSERT_TRUE(trace.ok()) << to_text(trace.errors());
  Schedule schedule(f);
  Outcome outcome = schedule.replay(*trace);
  ASSERT_TRUE(outcome) << outcome.detail;
  // Tensor cores round a sum less often; it may be of 128 products.
  const Tolerance tolerance = {.absolute = 2e-5};
  expect_equivalent(f, schedule.func(), dims);
  Func lowered = expect_lowers(schedule.func(), dims, tolerance, gpu_target(architecture(file)));
  EXPECT_THAT(verify(lowered, Stage::lowered), testing::ElementsAre());
  EXPECT_THAT(verify_launches(lowered, Gpu()), testing::ElementsAre()) << to_text(lowered);
  expect_lowers(schedule.func(), dims);  // the same schedule on a CPU
  const std::string of_run =
      (sizes.empty() ? "" : "=== sizes\n" + sizes) + (arch.empty() ? "" : "=== arch\n" + arch);
  expect_golden(path,
                text("=== func\n", source, of_run, "=== trace\n", steps, "=== lowered\n", to_text(lowered)));
}

INSTANTIATE_TEST_SUITE_P(
    Files, LaunchFile,
    ::testing::Values("pointwise", "scalar", "matmul", "softmax", "recurrence", "row_sums",
                      "row_sums_of_three_warps", "transposition", "warp_exchange", "mma_held_f16",
                      "mma_held_bf16", "mma_f16", "mma_bf16", "mma_tf32", "mma_i8", "mma_u8i8", "rolling",
                      "dot4_u8i8", "dot4_i8i8", "async_f16", "async_f32", "async_converted", "async_held",
                      "staged_f16", "wgmma_f16", "wgmma_bf16", "wgmma_waits", "wgmma_exchanged_f16",
                      "wgmma_exchanged_bf16", "wgmma_bulk_f16", "wgmma_bulk_bf16", "wgmma_u8i8",
                      "wgmma_exchanged_i8", "wgmma_bulk_u8i8", "wgmma_exchanged_tf32", "wgmma_bulk_tf32",
                      "grouped_loads", "open_batches", "open_range", "steps", "padded_transposition"),
    [](const auto& info) { return std::string(info.param); });

// A copy's condition is computed as a whole: what part of it loads may be out of reach where the rest does not hold.
TEST(AsyncCopies, HaveNoConditionsThatLoadUnderOthers) {
  auto copied = [](const std::string& value) {
    const Func f = parse(
        "func f(place: i64[32], table: i64[2], x: f32[32]) -> (y: f32[32]) { alloc s: f32[32] shared { for i "
        "in 32 { s[i] = " +
        value + " } for i in 32 { y[i] = s[i] } } }");
    Func out = f;
    out.body = make_async(f.body);
    return to_text(out).find("async_copy") != std::string::npos;
  };
  EXPECT_TRUE(copied("select(i < 9, select(1 < i, x[i], 0.0), 0.0)"));
  EXPECT_TRUE(copied("select(place[i] < 2, x[i], 0.0)"));
  EXPECT_FALSE(copied("select(place[i] < 2, select(0 < table[place[i]], x[i], 0.0), 0.0)"));
}

// ---- What is wrong with launches ----

std::vector<std::string> violations(const std::string& source) {
  return verify_launches(parse(source), Gpu());
}

TEST(VerifyLaunches, ReportsWhatIsNotBound) {
  EXPECT_THAT(violations("func f(x: f32[4]) -> (y: f32[4]) { for i in 4 { y[i] = x[i] } }"),
              testing::ElementsAre(
                  testing::HasSubstr("kernel part for i, which computes y is not bound to the grid")));
}

TEST(VerifyLaunches, LoopsAroundThemHaveKnownBounds) {
  const std::string launch =
      "bound for b in 2 @{thread=\"block.x\"} { bound for t in 32 @{thread=\"thread.x\"} { y[b * 32 + t] = "
      "1.0 } }";
  auto of = [&](const std::string& loop, const std::string& end = " }") {
    return violations("func f<n>(x: i64[4]) -> (y: f32[64]) { " + loop + " { " + launch + end + " }");
  };
  EXPECT_THAT(of("for s in 3"), testing::IsEmpty());
  EXPECT_THAT(of("for s in n + 1"), testing::IsEmpty());
  EXPECT_THAT(of("for s in n { for t in 2", " } }"), testing::IsEmpty());
  const auto refused = [](const char* name) {
    return testing::ElementsAre(
        testing::HasSubstr(text("a loop around launches has bounds that are known before the run: ", name)));
  };
  EXPECT_THAT(of("for s in x[0]"), refused("s"));
  EXPECT_THAT(of("for s in 2 { for u in n", " } }"), refused("u"));
}

TEST(VerifyLaunches, ReportsLimitsAndOrder) {
  EXPECT_THAT(violations(R"(func f(x: f32[4]) -> (y: f32[4]) {
    bound for b in 4 @{thread="block.x"} { bound for c in 1 @{thread="block.y"} {
      alloc s: f32[50000] shared {
        bound for t in 64 @{thread="thread.y"} { bound for u in 32 @{thread="thread.x"} {
          if u == 0 { y[b] = x[b] }
        } }
      }
    } }
  })"),
              testing::UnorderedElementsAre(testing::HasSubstr("stand in order: block.y"),
                                            testing::HasSubstr("2048 threads, 1024 is the limit"),
                                            testing::HasSubstr("200000 bytes of shared memory")));
}

TEST(VerifyLaunches, ReportsDivergentBarriers) {
  EXPECT_THAT(violations(R"(func f(x: f32[4]) -> (y: f32[4]) {
    bound for b in 4 @{thread="block.x"} { bound for t in 32 @{thread="thread.x"} {
      if b < 3 { evaluate barrier() }
      if t < 3 { for k in 2 { evaluate barrier() } }
      for k in t + 1 { evaluate barrier() }
    } }
  })"),
              testing::ElementsAre(testing::HasSubstr("barrier under condition t < 3"),
                                   testing::HasSubstr("barrier under loop k")));
}

}  // namespace
}  // namespace mcc::tensor
