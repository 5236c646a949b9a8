// Products on tensor cores in many tiles, of odd extents, of all types and orders in memory, on the interpreter.
#include <gtest/gtest.h>

#include <algorithm>

#include "schedules/grid_cases.h"
#include "tensor/instructions.h"

namespace mcc::test {
namespace {

using namespace tensor;

constexpr ElementType f32 = ElementType::f32;
using Case = ProductCase;

// The rule's schedules of a few products, with instructions of that class.
void expect_right_in_any_tile(const Case& c, const Target& target, bool (*rule)(tuner::Draft&, const std::string&),
                              IntrinsicClass instruction) {
  for (auto [batches, m, n, k] : {std::tuple{1, 32, 32, 32}, {2, 33, 20, 40}, {1, 19, 45, 21}, {1, 33, 2, 40}}) {
    expect_right_in_tiles(
        product(batches, m, n, k, c), target, 4, 2, 2, [&](tuner::Draft& draft) { return rule(draft, "sum"); },
        [&](const Func& lowered) { EXPECT_GT(count_calls(lowered, instruction), 0) << to_text(lowered); });
    if (::testing::Test::HasFailure()) return;
  }
}

class GridMatrices : public ::testing::TestWithParam<Case> {};

TEST_P(GridMatrices, AreRightInAnyTile) {
  expect_right_in_any_tile(GetParam(), gpu_target("sm_80"), tuner::schedule_grid_matrices, IntrinsicClass::mma);
}

// Without asynchronous copies, of what sm_75 multiplies.
TEST_P(GridMatrices, AreRightInAnyTileByWayOfRegisters) {
  const Target target = gpu_target("sm_75");
  if (!multiplies_matrices(target.gpu, GetParam().factor)) return;
  expect_right_in_any_tile(GetParam(), target, tuner::schedule_grid_matrices, IntrinsicClass::mma);
}

TEST_P(GridMatrices, AreLeftToOtherRulesWithoutTensorCores) {
  Func f = product(1, 32, 32, 32, GetParam());
  tuner::PreferredDecider decide;
  tuner::Draft draft{Schedule(f), decide, gpu_target("sm_70")};
  EXPECT_FALSE(tuner::schedule_grid_matrices(draft, "sum"));
  EXPECT_TRUE(tuner::schedule_grid_product(draft, "sum")) << draft.refusal.detail;
}

// Tensor cores of sm_75 multiply f16 and bytes.
TEST(GridMatricesOfTypes, AreThoseOfTheArchitecture) {
  const std::vector<std::pair<ElementType, int>> first = {{ElementType::f16, 75},  {ElementType::i8, 75},
                                                          {ElementType::u8, 75},   {ElementType::bf16, 80},
                                                          {ElementType::tf32, 80}, {ElementType::f32, 0}};
  for (const auto& [type, sm] : first) {
    EXPECT_EQ(first_matrix_sm(type), sm) << to_text(type);
    for (const Gpu& gpu : all_gpus())
      EXPECT_EQ(multiplies_matrices(gpu, type), sm > 0 && gpu.sm() >= sm) << to_text(type) << gpu.name;
  }
}

// Bytes without tensor cores: four at a time.
TEST_P(GridMatrices, OfBytesAreDotProductsInAnyTileWithoutTensorCores) {
  if (!is_int(GetParam().factor)) return;
  expect_right_in_any_tile(GetParam(), gpu_target("sm_70"), tuner::schedule_grid_product,
                           IntrinsicClass::dot);
}

INSTANTIATE_TEST_SUITE_P(Cases, GridMatrices,
                         ::testing::Values(Case{"f16_nn", ElementType::f16, ElementType::f16, true, false},
                                           Case{"f16_nt", ElementType::f16, ElementType::f16, true, true},
                                           Case{"bf16_tn", ElementType::bf16, ElementType::bf16, false,
                                                false},
                                           Case{"bf16_tt_converted", ElementType::bf16, f32, false, true},
                                           Case{"f16_nn_converted", ElementType::f16, f32, true, false},
                                           Case{"i8_nt", ElementType::i8, ElementType::i8, true, true},
                                           Case{"u8i8_nt", ElementType::u8, ElementType::u8, true, true},
                                           Case{"u8i8_tn", ElementType::u8, ElementType::u8, false, false},
                                           Case{"tf32_nn", ElementType::tf32, f32, true, false},
                                           Case{"tf32_nt", ElementType::tf32, f32, true, true},
                                           Case{"tf32_tn", ElementType::tf32, f32, false, false}),
                         [](const auto& info) { return std::string(info.param.name); });

// Parts of the sum in shared memory at once, at most, as the rule offers them.
int64_t most_stages(const Case& c) {
  struct Asked : tuner::PreferredDecider {
    tuner::Answer answer(const tuner::Choice& choice, const tuner::Answer& preferred) override {
      if (choice.name.ends_with(".stages"))
        most = std::max(most, *std::max_element(choice.options.begin(), choice.options.end()));
      return preferred;
    }
    int64_t most = 0;
  } decide;
  tuner::Draft draft{Schedule(product(1, 512, 96, 1024, c)), decide, gpu_target("sm_80")};
  EXPECT_TRUE(tuner::schedule_grid_matrices(draft, "sum"));
  return decide.most;
}

TEST(GridMatricesInStages, AreFetchedAheadUnlessConverted) {
  EXPECT_EQ(most_stages({"f16_nt", ElementType::f16, ElementType::f16, true, true}), 4);
  EXPECT_EQ(most_stages({"u8i8_nt", ElementType::u8, ElementType::u8, true, true}), 4);
  EXPECT_EQ(most_stages({"f16_nn_converted", ElementType::f16, f32, true, false}),
            0);  // always two: no question
}

// In any tile, with what threads fetch beyond one.
TEST(GridMatricesInSharedMemory, FitIntoIt) {
  const Target target = gpu_target("sm_86");
  const Func f = product(1, 512, 96, 512, {"f16_nt", ElementType::f16, ElementType::f16, true, true});
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    TileDecider decide(seed);
    tuner::Draft draft{Schedule(f), decide, target};
    ASSERT_TRUE(tuner::schedule_grid_matrices(draft, "sum"));
    const std::vector<std::string> broken = verify_launches(lower(draft.schedule.func(), target), target.gpu);
    ASSERT_TRUE(broken.empty()) << broken[0] << to_text(draft.schedule.trace());
  }
}

// f32 stays f32.
TEST(GridMatricesOfF32, AreLeftToOtherRules) {
  Func f = product(1, 32, 32, 32, {"f32", f32, f32, true, false});
  tuner::PreferredDecider decide;
  tuner::Draft draft{Schedule(f), decide, gpu_target("sm_80")};
  EXPECT_FALSE(tuner::schedule_grid_matrices(draft, "sum"));
}

}  // namespace
}  // namespace mcc::test
