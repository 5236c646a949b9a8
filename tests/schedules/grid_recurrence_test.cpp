// Recurrences on the interpreter: rows that have nothing to do with each other, a block of threads each, or a thread; steps as launches.
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

// Wide enough for launches: steps of 5, a batch of B rows, 160 states (two columns of a gate for a block of threads), 150 of some.
constexpr const char* kLstm = "%x: f32[5, 1, 8], %w: f32[1, 640, 8], %r: f32[1, 640, 160], %b: f32[1, 1280]";
constexpr const char* kBatches =
    "%x: f32[4, 12, 8], %w: f32[1, 512, 8], %r: f32[1, 512, 128], %b: f32[1, 1024]";
constexpr const char* kBoth =
    "%x: f32[4, 2, 8], %w: f32[2, 512, 8], %r: f32[2, 512, 128], %b: f32[2, 1024], %n: i32[2], %h: f32[2, 2, "
    "128]";
constexpr const char* kGru = "%x: f32[4, 2, 8], %w: f32[1, 450, 8], %r: f32[1, 450, 150], %b: f32[1, 900]";
constexpr const char* kRnnOfWarps = "%x: f32[4, 3, 8], %w: f32[1, 256, 8], %r: f32[1, 256, 256]";

INSTANTIATE_TEST_SUITE_P(
    Steps, GridRecurrence,
    ::testing::Values(
        Recurrence{"lstm", kLstm, "  %all, %h, %y = LSTM(%x, %w, %r, %b) {hidden_size = 160}\n",
                   "fuse_siblings(", "hoist("},
        Recurrence{"lstm_of_batches", kBatches, "  %all, %h, %y = LSTM(%x, %w, %r, %b) {hidden_size = 128}\n",
                   "bind(loop=\"recurrent.step.b.o\", thread=\"block.y\")", "hoist("},
        Recurrence{"lstm_both_ways", kBoth,
                   "  %y = LSTM(%x, %w, %r, %b, %n, %h) {hidden_size = 128, direction = \"bidirectional\"}\n",
                   "recurrent_1.step.c.o", "hoist("},
        Recurrence{"gru", kGru, "  %all, %y = GRU(%x, %w, %r, %b) {hidden_size = 150}\n",
                   "candidate.step.c.o", "hoist("},
        Recurrence{"gru_that_resets_behind_the_product", kGru,
                   "  %all, %y = GRU(%x, %w, %r, %b) {hidden_size = 150, linear_before_reset = 1}\n",
                   "recurrent.step.c.o", "hoist("},
        Recurrence{"rnn", kRnnOfWarps, "  %all, %y = RNN(%x, %w, %r) {hidden_size = 256}\n",
                   "recurrent.step.c.o", "hoist("},
        Recurrence{"one_step", "%x: f32[1, 1, 8], %w: f32[1, 640, 8], %r: f32[1, 640, 160]",
                   "  %all, %h, %y = LSTM(%x, %w, %r) {hidden_size = 160}\n", "recurrent.step.c.o",
                   "hoist("}),
    ::testing::PrintToStringParamName());

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
