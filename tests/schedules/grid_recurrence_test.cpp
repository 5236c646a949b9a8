// Recurrences whose rows have nothing to do with each other: a block of threads each, or a thread, on the interpreter.
#include <gtest/gtest.h>

#include "schedules/grid_cases.h"

namespace mcc::test {
namespace {

using namespace tensor;

struct Recurrence {
  const char *name, *inputs, *nodes;
  const char *has, *has_not;  // of the trace
};
void PrintTo(const Recurrence& r, std::ostream* out) { *out << r.name; }

class GridRecurrence : public ::testing::TestWithParam<Recurrence> {};

TEST_P(GridRecurrence, IsRight) {
  const Func f = fused_kernel(text("graph g(", GetParam().inputs, ") {\n", GetParam().nodes, "  return %y\n}\n"));
  const Target target = gpu_target("sm_80");
  tuner::PreferredDecider decide;
  tuner::Draft draft{Schedule(f), decide, target};
  Func lowered;
  ASSERT_NO_FATAL_FAILURE(expect_right_by_all_rules(draft, lowered));
  const std::string trace = to_text(draft.schedule.trace());
  EXPECT_NE(trace.find(GetParam().has), std::string::npos) << trace;
  EXPECT_EQ(trace.find(GetParam().has_not), std::string::npos) << trace;
}

constexpr const char* kTop = "  %k: i64[1] = [3]\n  %v, %y = TopK(%x, %k)\n";
constexpr const char* kRnn = "%x: f32[5, 3, 8], %w: f32[1, 32, 8], %r: f32[1, 32, 32]";

INSTANTIATE_TEST_SUITE_P(
    Rows, GridRecurrence,
    ::testing::Values(
        Recurrence{"top_k_of_rows", "%x: f32[6, 150]", kTop, "bind(loop=\"t.row\", thread=\"block.x\")", "t.row.thread"},
        Recurrence{"top_k_of_rows_of_two_axes", "%x: f32[2, 3, 150]", kTop, "hoist(", "t.row.thread"},
        Recurrence{"top_k_of_short_rows", "%x: f32[100, 7]", kTop, "bind(loop=\"t.row.thread\", thread=\"thread.x\")", ".part"},
        Recurrence{"top_k_of_one_row", "%x: f32[1, 150]", kTop, "rfactor(", "t.row.thread"},
        Recurrence{"batch", kRnn, "  %all, %y = RNN(%x, %w, %r) {hidden_size = 32}\n", "hoist(", "t.row.thread"},
        Recurrence{"sums_by_parts", "%x: f32[3, 700]", "  %a: i64[] = [1]\n  %y = CumSum(%x, %a) {part = 16}\n",
                   "thread=\"thread.x\"", "t.row"},
        Recurrence{"ranks", "%x: f32[2, 150]",
                   "  %k: i64[1] = [120]\n  %v, %y = TopK(%x, %k) {by_rank = 1}\n", "rank", "hoist("},
        Recurrence{"ranks_that_neighbours_find_together", "%x: f32[1, 900]",
                   "  %k: i64[1] = [20]\n  %v, %y = TopK(%x, %k) {by_rank = 1}\n", "bind(loop=\"rank.part.k.t\", thread=\"thread.y\")", "hoist("},
        Recurrence{"ranks_in_parts", "%x: f32[2, 700]",
                   "  %k: i64[1] = [50]\n  %v, %y = TopK(%x, %k) {gap = 8, part = 32}\n", "rank.k.t", "hoist("}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace mcc::test
