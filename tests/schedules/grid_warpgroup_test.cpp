// Products by warpgroups of sm_90a in many tiles, of odd extents, of all types and orders in memory, on the interpreter.
#include <gtest/gtest.h>

#include "schedules/grid_cases.h"
#include "schedules/optimized_kernels.h"
#include "tuner/default_schedule.h"

namespace mcc::test {
namespace {

using namespace tensor;

constexpr ElementType f32 = ElementType::f32;
using Case = ProductCase;

// Few multiprocessors, slow at a warp's instructions: small products are worth a warpgroup's, too.
Target target_of(const char* arch) {
  Target target = gpu_target("sm_90");
  target.gpu.arch = arch;
  target.gpu.multiprocessors = 1;
  target.gpu.matrix_fmas = 16;
  return target;
}

class GridWarpgroups : public ::testing::TestWithParam<Case> {};

TEST_P(GridWarpgroups, AreRightInAnyTile) {
  for (auto [batches, m, n, k] : {std::tuple{1, 64, 64, 128}, {1, 72, 72, 64}, {1, 72, 136, 72}, {2, 72, 64, 72}}) {
    // Matrices as they are come by the copy engine, but for batches of parts of tiles, which would run into each other, and rows that
    // do not begin at units of 16 bytes.
    const bool is_bulk =
        batches == 1 && GetParam().stored == GetParam().factor && k * byte_size(GetParam().factor) % 16 == 0;
    expect_right_in_tiles(
        product(batches, m, n, k, GetParam()), target_of("sm_90a"), 3, 2, 2,
        [](tuner::Draft& draft) { return tuner::schedule_grid_warpgroups(draft, "sum"); },
        [&](const Func& lowered) {
          EXPECT_GT(count_calls(lowered, is_wgmma), 0) << to_text(lowered);
          EXPECT_EQ(count_calls(lowered, IntrinsicClass::bulk) > 0, is_bulk) << to_text(lowered);
        });
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GridWarpgroups,
                         ::testing::Values(Case{"f16_nn", ElementType::f16, ElementType::f16, true, false},
                                           Case{"f16_nt", ElementType::f16, ElementType::f16, true, true},
                                           Case{"bf16_tn", ElementType::bf16, ElementType::bf16, false,
                                                false},
                                           Case{"bf16_tt_converted", ElementType::bf16, f32, false, true},
                                           Case{"tf32_nt", ElementType::tf32, ElementType::tf32, true, true},
                                           Case{"tf32_nt_converted", ElementType::tf32, f32, true, true},
                                           Case{"i8_nt", ElementType::i8, ElementType::i8, true, true},
                                           Case{"u8i8_nt", ElementType::u8, ElementType::u8, true, true}),
                         [](const auto& info) { return std::string(info.param.name); });

// The code of sm_90 runs on later GPUs, too; tf32 and bytes across the sum, and small products, are left to a warp's instructions.
TEST(GridWarpgroupsOrNot, AreLeftToOtherRules) {
  const Case f16{"f16", ElementType::f16, ElementType::f16, true, false};
  auto takes = [](const char* arch, const Func& f) {
    tuner::PreferredDecider decide;
    const Target target = target_of(arch);
    tuner::Draft draft{Schedule(f), decide, target};
    return tuner::schedule_grid_warpgroups(draft, "sum");
  };
  EXPECT_TRUE(takes("sm_90a", product(1, 128, 128, 128, f16)));
  EXPECT_FALSE(takes("sm_90", product(1, 128, 128, 128, f16)));
  EXPECT_FALSE(takes("sm_90a", product(1, 32, 128, 128, f16)));
  for (ElementType type : {ElementType::tf32, ElementType::i8, ElementType::u8}) {
    EXPECT_TRUE(takes("sm_90a", product(1, 128, 128, 128, {"along", type, type, true, true})));
    EXPECT_FALSE(takes("sm_90", product(1, 128, 128, 128, {"along", type, type, true, true})));
    EXPECT_FALSE(takes("sm_90a", product(1, 32, 128, 128, {"along", type, type, true, true})));
    EXPECT_FALSE(takes("sm_90a", product(1, 128, 128, 128, {"across", type, type, true, false})));
    EXPECT_FALSE(takes("sm_90a", product(1, 128, 128, 128, {"across", type, type, false, true})));
  }
}

// What the figures of the GPU say: large products, and those of many columns, are worth a warpgroup's, of bytes too; small ones are not.
TEST(GridWarpgroupsOrNot, IsDecidedByTheEstimate) {
  Target target = gpu_target("sm_90");
  target.gpu.arch = "sm_90a";
  auto takes = [&](int64_t m, int64_t n, int64_t k, const Case& c) {
    tuner::PreferredDecider decide;
    tuner::Draft draft{Schedule(product(1, m, n, k, c)), decide, target};
    return tuner::schedule_grid_warpgroups(draft, "sum");
  };
  for (const Case& c : {Case{"f16", ElementType::f16, ElementType::f16, true, true},
                        {"tf32", ElementType::tf32, ElementType::tf32, true, true},
                        {"i8", ElementType::i8, ElementType::i8, true, true},
                        {"u8i8", ElementType::u8, ElementType::u8, true, true}}) {
    SCOPED_TRACE(c.name);
    EXPECT_TRUE(takes(1024, 1024, 1024, c));
    EXPECT_TRUE(takes(128, 3072, 768, c));
    EXPECT_TRUE(takes(784, 256, 2304, c));
    EXPECT_FALSE(takes(64, 64, 256 / byte_size(c.factor), c));
    EXPECT_FALSE(takes(128, 128, 64, c));
  }
}

// Quantised operators as the passes of the graph make products of them: words along the sum, zero points, results rounded to bytes.
struct Quantized {
  const char *name, *source;
  bool is_bulk;  // both operands are matrices
};
void PrintTo(const Quantized& q, std::ostream* out) { *out << q.name; }

class GridWarpgroupsOfBytes : public ::testing::TestWithParam<Quantized> {};

TEST_P(GridWarpgroupsOfBytes, AreExactInParts) {
  const Target target = target_of("sm_90a");
  int products = 0;
  for (const Func& f : kernels_of(GetParam().source, target)) {
    PartsDecider decide;
    tuner::Draft draft{Schedule(f), decide, target};
    Func lowered;
    ASSERT_NO_FATAL_FAILURE(expect_right_by_all_rules(draft, lowered));
    products += launches_of(lowered) > 1 && count_calls(lowered, is_wgmma) > 0;
    graph::test::expect_close(run(lowered, f), run(f, f), 0);
  }
  EXPECT_EQ(products, 1);
}

TEST_P(GridWarpgroupsOfBytes, AreExact) {
  const Target target = target_of("sm_90a");
  int products = 0;
  for (const Func& f : kernels_of(GetParam().source, target)) {
    Schedule schedule = tuner::default_schedule(f, target);
    SCOPED_TRACE(text(to_text(f), to_text(schedule.trace())));
    Func lowered;
    ASSERT_NO_FATAL_FAILURE(lower_and_compare(f, schedule, target, lowered));
    graph::test::expect_close(run(lowered, f), run(f, f), 0);
    if (count_calls(lowered, is_wgmma) == 0) continue;
    ++products;
    expect_in_registers(lowered);
    EXPECT_EQ(count_calls(lowered, IntrinsicClass::bulk) > 0, GetParam().is_bulk) << to_text(lowered);
  }
  EXPECT_EQ(products, 1);
}

INSTANTIATE_TEST_SUITE_P(Graphs, GridWarpgroupsOfBytes,
                         ::testing::Values(Quantized{"matrices_of_u8", R"(graph g(%a: u8[70, 144]) {
  %s: f32[1] = [0.5]
  %z: u8[1] = [3]
  %b: i8[144, 72] random
  %bs: f32[72] random 0.001 0.002
  %bz: i8[1] = [0]
  %y = QLinearMatMul(%a, %s, %z, %b, %bs, %bz, %s, %z)
  return %y
})",
                                                     true},
                                           Quantized{"sums_of_i8", R"(graph g(%a: i8[64, 128]) {
  %b: i8[128, 96] random
  %y = MatMulInteger(%a, %b)
  return %y
})",
                                                     true},
                                           Quantized{"windows_of_u8", R"(graph g(%x: u8[1, 64, 9, 8]) {
  %z: u8[1] = [3]
  %s: f32[1] = [0.5]
  %w: i8[72, 64, 3, 3] random
  %ws: f32[72] random 0.001 0.002
  %wz: i8[1] = [0]
  %y = QLinearConv(%x, %s, %z, %w, %ws, %wz, %s, %z) {pads = [1, 1, 1, 1]}
  return %y
})",
                                                     false},
                                           Quantized{"points_of_i8", R"(graph g(%x: i8[1, 64, 9, 8]) {
  %z: i8[1] = [0]
  %s: f32[1] = [0.5]
  %w: i8[64, 64, 1, 1] random
  %ws: f32[64] random 0.001 0.002
  %wz: i8[1] = [0]
  %y = QLinearConv(%x, %s, %z, %w, %ws, %wz, %s, %z)
  return %y
})",
                                                     true}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace mcc::test
