// What is written along one axis and read along another, on the grid, on the interpreter: one launch of tiles in shared memory, whose
// warps read and write neighbours.
#include <gtest/gtest.h>

#include "schedules/grid_cases.h"

namespace mcc::test {
namespace {

using namespace tensor;

struct Moved {
  const char* name;
  std::string inputs, nodes;
  int tiles;
};
void PrintTo(const Moved& m, std::ostream* out) { *out << m.name; }

int count_shared(const Func& f) {
  int count = 0;
  for_each_stmt(f.body, [&](const Stmt& s) {
    const auto* allocate = s.as<Allocate>();
    count += allocate && allocate->buffer.scope() == Scope::shared;
  });
  return count;
}

class GridTransposition : public ::testing::TestWithParam<Moved> {};

TEST_P(GridTransposition, GoesByTilesInSharedMemory) {
  const Moved& m = GetParam();
  const Func f = fused_kernel(text("graph g(", m.inputs, ") {\n", m.nodes, "  return %y\n}\n"));
  for (const char* arch : {"sm_70", "sm_80"}) {
    tuner::PreferredDecider decide;
    const Target target = small_gpu_target(arch);
    tuner::Draft draft{Schedule(f), decide, target};
    Func lowered;
    ASSERT_NO_FATAL_FAILURE(expect_right_by_all_rules(draft, lowered));
    EXPECT_TRUE(draft.refused.empty()) << to_text(draft.refused[0]);
    EXPECT_EQ(launches_of(lowered), 1) << to_text(lowered);
    EXPECT_EQ(count_shared(lowered), m.tiles) << to_text(lowered);
  }
}

const std::string kTranspose = "  %y = Transpose(%r) {perm = [0, 2, 1]}\n", kOne = "%x: f32[2, 40, 37]",
                  kTwo = kOne + ", %z: f32[2, 40, 37]", kMask = ", %m: bool[2, 40, 37]";

INSTANTIATE_TEST_SUITE_P(
    OfResults, GridTransposition,
    ::testing::Values(Moved{"sum", kTwo, "  %r = Add(%x, %z)\n" + kTranspose, 1},
                      Moved{"sum_and_bias", kTwo + ", %b: f32[37]",
                            "  %s = Add(%x, %z)\n  %r = Add(%s, %b)\n" + kTranspose, 1},
                      Moved{"choice", kTwo + kMask, "  %r = Where(%m, %x, %z)\n" + kTranspose, 1},
                      Moved{"choice_of_a_number", kOne + kMask,
                            "  %n: f32[] = [2.5]\n  %r = Where(%m, %x, %n)\n" + kTranspose, 1},
                      Moved{"concatenation", kTwo, "  %r = Concat(%x, %z) {axis = 1}\n" + kTranspose, 1},
                      Moved{"concatenation_of_few", "%x: f16[1, 40, 37], %z: f16[1, 3, 37]",
                            "  %r = Concat(%x, %z) {axis = 1}\n" + kTranspose, 1},
                      Moved{"gather", "%x: f32[50, 40]",
                            "  %i: i64[20] = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 49, 0, 4, 6]\n"
                            "  %r = Gather(%x, %i) {axis = 0}\n  %y = Transpose(%r) {perm = [1, 0]}\n",
                            1},
                      Moved{"gather_with_an_axis_between", "%x: f32[11, 9, 40], %i: i64[24]",
                            "  %r = Gather(%x, %i) {axis = 1}\n  %y = Transpose(%r) {perm = [2, 0, 1]}\n",
                            1}),
    ::testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    OfOperands, GridTransposition,
    ::testing::Values(
        Moved{"one", kOne, "  %r = Exp(%x)\n" + kTranspose, 1},
        Moved{"one_twice", kOne, "  %s = Sigmoid(%x)\n  %r = Mul(%x, %s)\n" + kTranspose, 1},
        Moved{"padded", kOne,
              "  %p: i64[6] = [0, 1, 0, 0, 2, 3]\n  %r = Pad(%x, %p) {mode = \"constant\"}\n" + kTranspose,
              1},
        Moved{
            "patches_and_class", "%x: f32[1, 40, 36], %c: f32[1, 1, 40], %p: f32[1, 37, 40]",
            "  %t = Transpose(%x) {perm = [0, 2, 1]}\n  %r = Concat(%c, %t) {axis = 1}\n  %y = Add(%r, %p)\n",
            1},
        Moved{"two_and_one", kTwo + ", %p: f32[2, 37, 40]",
              "  %s = Add(%x, %z)\n  %t = Transpose(%s) {perm = [0, 2, 1]}\n  %y = Mul(%t, %p)\n", 2},
        Moved{
            "two_beside_one", "%x: f32[1, 40, 20], %z: f32[1, 40, 17], %p: f32[1, 37, 40]",
            "  %r = Concat(%x, %z) {axis = 2}\n  %t = Transpose(%r) {perm = [0, 2, 1]}\n  %y = Mul(%t, %p)\n",
            2}),
    ::testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    OfSplitAxes, GridTransposition,
    ::testing::Values(
        Moved{"flat", "%x: f16[6, 7, 40]",
              "  %t = Transpose(%x) {perm = [2, 0, 1]}\n  %n: i64[1] = [-1]\n  %y = Reshape(%t, %n)\n", 1},
        Moved{"flat_backwards", "%x: f32[9, 10, 12]",
              "  %t = Transpose(%x) {perm = [2, 1, 0]}\n  %n: i64[1] = [-1]\n  %y = Reshape(%t, %n)\n", 1},
        Moved{"rows", "%x: f32[3, 9, 10, 12]",
              "  %t = Transpose(%x) {perm = [0, 3, 2, 1]}\n  %n: i64[2] = [3, -1]\n  %y = Reshape(%t, %n)\n",
              1}),
    ::testing::PrintToStringParamName());

}  // namespace
}  // namespace mcc::test
