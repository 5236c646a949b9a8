// Products of CPUs with weights of few bits, which are unpacked for all rows of a tile, or where a single row is multiplied.
#include <gmock/gmock.h>

#include "schedules/grid_cases.h"
#include "schedules/joined_rows.h"
#include "tensor/schedule/weight_order.h"

namespace mcc::test {
namespace {

using namespace tensor;

Target machine(int vector_bits) {
  Target t;
  t.vector_bits = vector_bits;
  t.vector_registers = vector_bits == 512 ? 32 : 16;
  t.has_fma = true;
  return t;
}

struct Problem {
  std::string rows;  // of x, before its last dimension
  int64_t columns, depth, block, bits, width;
  bool has_zeros = true;
  int64_t matrices = 0;  // of which an input says one for each item of the first dimension; 0: there is one
};

// x times words (bytes: of 8 bits) in panels, with a bias.
Func unpacked(const Problem& p) {
  const int64_t each = p.bits == 8 ? 1 : 32 / p.bits, panels = (p.columns + p.width - 1) / p.width,
                blocks = (p.depth + p.block - 1) / p.block, words = (p.depth + each - 1) / each;
  const std::string several = p.matrices > 0 ? text(p.matrices, ", ") : "",
                    by_block = text(several, panels, ", ", blocks, ", ", p.width);
  std::string source = text("graph g(%x: f32[", p.rows, ", ", p.depth, "], %w: ", p.bits == 8 ? "u8" : "u32",
                            "[", several, panels, ", ", words, ", ", p.width, "], %s: f32[", by_block, "]");
  if (p.has_zeros) source += text(", %z: u8[", by_block, "]");
  if (p.matrices > 0) source += text(", %e: i64[", p.rows.substr(0, p.rows.find(',')), "]");
  source +=
      text(", %b: f32[", p.columns, "]) {\n  %p = mcc.MatMulNBits(%x, %w, %s, ", p.has_zeros ? "%z" : "_");
  if (p.matrices > 0) source += ", %e";
  source += text(") {bits = ", p.bits, ", block = ", p.block, ", columns = ", p.columns,
                 ", zero = 5}\n  %y = Add(%p, %b)\n  return %y\n}\n");
  Func f = fused_kernel(source);
  std::vector<std::string> weights{"x1", "x2"};
  if (p.has_zeros) weights.emplace_back("x3");
  mark_weights(f, weights);
  return f;
}

// Expects the default schedule to be right, and to unpack the weights where they are multiplied or in parts before.
void expect_right(const Problem& p, bool in_place) {
  for (int bits : {256, 512}) {
    const Func f = unpacked(p);
    SCOPED_TRACE(text(bits, "-bit vectors\n", to_text(f)));
    const tuner::DefaultSchedule made = tuner::explained_default_schedule(f, machine(bits));
    EXPECT_FALSE(made.is_plain);
    EXPECT_THAT(made.refused, testing::IsEmpty());
    const std::string trace = to_text(made.schedule.trace());
    EXPECT_EQ(trace.find("compute_inline(block=\"weights\")") != std::string::npos, in_place) << trace;
    EXPECT_EQ(trace.find("compute_at(block=\"weights\"") == std::string::npos, in_place) << trace;
    Func lowered;
    ASSERT_NO_FATAL_FAILURE(lower_and_compare(f, made.schedule, machine(bits), lowered));
  }
}

TEST(UnpackedProducts, OfOneRowAreMultipliedWhereTheyAreUnpacked) {
  // Blocks, one for a column, whose words are a prime number; words of 2 bits; bytes.
  expect_right({"1", 80, 64, 32, 4, 48}, true);
  expect_right({"1, 1", 80, 64, 32, 4, 48, false}, true);
  expect_right({"1", 64, 56, 56, 4, 32}, true);
  expect_right({"1", 64, 64, 32, 2, 32}, true);
  expect_right({"1", 64, 64, 16, 8, 32, false}, true);
}

TEST(UnpackedProducts, WithRestsOfBlocksAreUnpackedInParts) {
  expect_right({"1", 64, 80, 32, 4, 32}, false);
  expect_right({"1", 64, 60, 30, 4, 32}, false);
}

TEST(UnpackedProducts, OfOneWordForAColumn) {
  expect_right({"1", 64, 8, 8, 4, 32}, false);
  expect_right({"3", 64, 5, 5, 4, 32}, false);
}

TEST(UnpackedProducts, OfSeveralRowsAreUnpackedInParts) {
  expect_right({"7", 80, 64, 32, 4, 48}, false);
  expect_right({"2, 5", 64, 64, 16, 8, 32}, false);
}

TEST(UnpackedProducts, OfMatricesThatDataSelects) {
  expect_right({"5, 1", 80, 64, 32, 4, 48, true, 3}, true);
  expect_right({"3, 4", 80, 64, 32, 4, 48, false, 2}, false);
}

TEST(UnpackedProducts, OfAnOpenNumberOfRowsHaveOneForOneRow) {
  Func f = unpacked({"S", 80, 64, 32, 4, 48});
  f.annotations["sizes"] = "1..~128";
  const Joined made = joined(f, machine(512));
  EXPECT_THAT(made.conditions, testing::ElementsAre(testing::AnyOf("S == 1", "S < 2")));
  expect_right_at(f, made.func, {{1}, {2}, {7}, {33}});
}

}  // namespace
}  // namespace mcc::test
