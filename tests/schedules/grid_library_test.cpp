// Schedules that leave a product to a library: which kernels they are for, and that they are right, with what is around the product.
#include <gmock/gmock.h>

#include "schedules/grid_cases.h"
#include "schedules/optimized_kernels.h"
#include "tensor/grid.h"
#include "tensor/library_product.h"
#include "tuner/library_schedules.h"

namespace mcc::test {
namespace {

using namespace tensor;

Schedule replayed(const Func& f, const tuner::Candidate& candidate) {
  Schedule schedule(f);
  const Outcome outcome = schedule.replay(candidate.trace);
  EXPECT_TRUE(outcome) << outcome.detail;
  return schedule;
}

std::vector<const For*> library_nests(const Func& lowered) {
  std::vector<const For*> nests;
  for_each_stmt(lowered.body, [&](const Stmt& s) {
    if (is_library_nest(s)) nests.push_back(s.as<For>());
  });
  return nests;
}

class GridLibrary : public ::testing::TestWithParam<graph::test::Case> {};

TEST_P(GridLibrary, IsRightForEveryKernel) {
  const Target target = gpu_target("sm_80");
  for (const Func& f : kernels_of(GetParam().graph, target)) {
    SCOPED_TRACE(to_text(f));
    const std::vector<tuner::Candidate> candidates = tuner::library_candidates(f, target);
    if (candidates.empty()) continue;
    EXPECT_THAT(candidates.size(), testing::AnyOf(3U, 4U));
    EXPECT_TRUE(tuner::calls_library(candidates[2].trace));
    for (const tuner::Candidate& candidate : {candidates.front(), candidates.back()}) {
      SCOPED_TRACE(to_text(candidate.trace));
      Func lowered;
      ASSERT_NO_FATAL_FAILURE(lower_and_compare(f, replayed(f, candidate), target, lowered));
      EXPECT_EQ(library_nests(lowered).size(), 1U);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, GridLibrary,
    ::testing::ValuesIn(graph::test::read_cases(test_data("schedules/data/kernels.txt"))),
    [](const auto& info) {
      std::string name = info.param.name;
      std::replace_if(
          name.begin(), name.end(), [](unsigned char ch) { return !std::isalnum(ch); }, '_');
      return name;
    });

// How many products a model's kernels leave to the library, and launches of ours in those kernels.
std::pair<size_t, size_t> parts_of(const std::string& graph) {
  const Target target = gpu_target("sm_80");
  std::pair<size_t, size_t> parts;
  for (const Func& f : kernels_of(graph, target)) {
    for (const tuner::Candidate& candidate : tuner::library_candidates(f, target)) {
      const Func lowered = lower(replayed(f, candidate).func(), target);
      parts.first += library_nests(lowered).size();
      for_each_stmt(lowered.body,
                    [&](const Stmt& s) { parts.second += s.as<For>() && is_block_loop(*s.as<For>()); });
      break;
    }
  }
  return parts;
}

TEST(LibraryCandidates, AreForKernelsOfOneProduct) {
  using Parts = std::pair<size_t, size_t>;
  EXPECT_EQ(parts_of("graph g(%x: f32[8, 40], %w: f32[40, 9]) {\n  %y = MatMul(%x, %w)\n  return %y\n}\n"),
            (Parts{1, 0}));
  EXPECT_EQ(parts_of("graph g(%x: f32[8, 40], %r: f32[8, 9]) {\n  %w: f32[40, 9] random\n  %b: f32[9] "
                     "random\n  %m = Gemm(%x, %w, %b)\n"
                     "  %y = Add(%m, %r)\n  return %y\n}\n"),
            (Parts{1, 0}));
  EXPECT_EQ(parts_of("graph g(%x: f32[8, 40]) {\n  %w: f32[40, 9] random\n  %m = MatMul(%x, %w)\n  %y = "
                     "Relu(%m)\n  return %y\n}\n"),
            (Parts{1, 1}));
  EXPECT_EQ(parts_of("graph g(%x: f32[1, 16, 9, 9]) {\n  %w: f32[8, 16, 3, 3] random\n  %y = Conv(%x, %w)\n  "
                     "return %y\n}\n"),
            (Parts{0, 0}));
  EXPECT_EQ(parts_of("graph g(%x: f32[8, 40]) {\n  %y = Softmax(%x)\n  return %y\n}\n"), (Parts{0, 0}));
  const Func f = kernels_of(
      "graph g(%x: f32[8, 40], %w: f32[40, 9]) {\n  %y = MatMul(%x, %w)\n  return %y\n}\n", Target())[0];
  EXPECT_TRUE(tuner::library_candidates(f, Target()).empty()) << "there is none for CPUs";
}

}  // namespace
}  // namespace mcc::test
