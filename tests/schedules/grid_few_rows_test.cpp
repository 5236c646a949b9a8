// Products of few rows on the grid, and functions whose schedules differ between numbers of rows, on the interpreter.
#include <gmock/gmock.h>

#include "schedules/grid_cases.h"
#include "schedules/joined_rows.h"
#include "tensor/schedule/weight_order.h"
#include "tensor/sizes.h"

namespace mcc::test {
namespace {

using namespace tensor;

constexpr ElementType f32 = ElementType::f32;

// The one kernel of a graph whose product has weights x1 and further ones.
Func with_weights(const std::string& source, const std::vector<std::string>& weights) {
  Func f = fused_kernel(source);
  mark_weights(f, weights);
  return f;
}

// x times words of so many bits, with a bias.
Func unpacked(int64_t rows, int64_t columns, int64_t depth, int64_t block, int64_t bits,
              const char* x = "f32") {
  const int64_t words = (depth * bits + 31) / 32, blocks = (depth + block - 1) / block;
  return with_weights(
      text("graph g(%x: ", x, "[", rows, ", ", depth, "], %w: u32[", columns, ", ", words, ", 1], %s: f32[",
           columns, ", ", blocks, ", 1], %z: u8[", columns, ", ", blocks, ", 1], %b: f32[", columns, R"(]) {
  %p = mcc.MatMulNBits(%x, %w, %s, %z) {bits = )",
           bits, ", block = ", block, ", columns = ", columns, R"(, zero = 0, in_type_of_rows = 1, mcc.wide_result = 1}
  %y = Add(%p, %b)
  return %y
})"),
      {"x1", "x2", "x3"});
}

bool takes_few_rows(tuner::Draft& draft) {
  const std::vector<std::string> blocks = draft.schedule.block_names();
  const bool is_taken = std::any_of(blocks.begin(), blocks.end(), [&](const std::string& block) {
    return draft.schedule.find_block(block) != nullptr && tuner::schedule_grid_few_rows(draft, block);
  });
  tuner::schedule_grid_rest(draft);
  for (const tuner::RefusedRule& refused : draft.refused)
    ADD_FAILURE() << to_text(refused);
  return is_taken && draft.refusal;
}

void expect_right_for_few_rows(const Func& f) {
  for (const char* arch : {"sm_70", "sm_90"}) {
    expect_right_in_draws(f, gpu_target(arch), {.seeds = 6, .asked = 1}, takes_few_rows,
                          [](const Func& lowered) {
                            EXPECT_EQ(launches_of(lowered), 1) << to_text(lowered);
                            EXPECT_GT(count_calls(lowered, IntrinsicClass::exchange), 0) << to_text(lowered);
                          });
  }
}

TEST(GridFewRows, OfUnpackedWeightsAreRight) {
  // Parts of several turns, of one, and of fewer threads than a warp has; columns that no block's divide; odd depths.
  for (auto [columns, depth, block, bits] :
       {std::tuple{16, 2048, 32, 4}, {11, 512, 128, 4}, {24, 96, 32, 8}, {9, 320, 64, 2}, {7, 38, 38, 4}, {16, 64, 32, 4}}) {
    SCOPED_TRACE(text(columns, " columns, ", depth, " deep, blocks of ", block, ", ", bits, " bits"));
    expect_right_for_few_rows(unpacked(1, columns, depth, block, bits));
    if (HasFailure()) return;
  }
  expect_right_for_few_rows(unpacked(2, 11, 512, 128, 4));
}

TEST(GridFewRows, OfHalvesAreRight) {
  for (ElementType type : {ElementType::f16, ElementType::bf16}) {
    for (auto [columns, depth] : {std::pair{16, 512}, {11, 300}, {5, 34}}) {
      Func f = product(1, 1, columns, depth, {"", type, type, true, true});
      mark_weights(f, {"w"});
      expect_right_for_few_rows(f);
      if (HasFailure()) return;
    }
  }
}

// More rows share what is read or unpacked; of an odd depth no thread has several numbers.
TEST(GridFewRows, AreOneOrTwoOfAnEvenDepth) {
  for (const Func& f : {unpacked(3, 64, 128, 32, 4), unpacked(1, 64, 127, 127, 4), unpacked(1, 64, 32, 32, 4)}) {
    tuner::PreferredDecider decide;
    tuner::Draft draft{Schedule(f), decide, gpu_target("sm_80")};
    EXPECT_FALSE(takes_few_rows(draft));
  }
}

// Weights are unpacked as tiles fetch them; with tensor cores to what these multiply.
TEST(GridUnpackedProducts, AreRightInOneLaunch) {
  for (const char* arch : {"sm_70", "sm_75", "sm_80", "sm_90"}) {
    for (const char* type : {"f32", "f16"}) {
      for (auto [rows, columns, depth] : {std::tuple{5, 40, 96}, {37, 45, 70}}) {
        const Func f = unpacked(rows, columns, depth, 32, 4, type);
        tuner::PreferredDecider decide;
        tuner::Draft draft{Schedule(f), decide, gpu_target(arch)};
        Func lowered;
        ASSERT_NO_FATAL_FAILURE(expect_right_by_all_rules(draft, lowered));
        EXPECT_EQ(launches_of(lowered), 1) << to_text(lowered);
        const bool is_on_tensor_cores = type == std::string("f16") && draft.target.gpu.sm() >= 75;
        EXPECT_EQ(count_calls(lowered, IntrinsicClass::mma) > 0, is_on_tensor_cores)
            << arch << to_text(lowered);
      }
    }
  }
}

// Warpgroups take what a launch before them has unpacked.
TEST(GridUnpackedProducts, OfManyRowsAreUnpackedBefore) {
  const Func f = unpacked(2048, 2048, 2048, 32, 4, "f16");
  tuner::PreferredDecider decide;
  Target target = gpu_target("sm_90");
  target.gpu.arch = "sm_90a";
  tuner::Draft draft{Schedule(f), decide, target};
  tuner::apply_grid_rules(draft);
  ASSERT_TRUE(draft.refusal) << draft.refusal.detail;
  const Func lowered = lower(draft.schedule.func(), draft.target);
  EXPECT_EQ(launches_of(lowered), 2);
  EXPECT_GT(count_calls(lowered, [](Intrinsic i) { return i == Intrinsic::bulk_copy; }), 0);
}

// Up to 8 rows are columns of the transposed product.
TEST(GridFewRows, AreRightOnTensorCores) {
  for (const ProductCase& c : {ProductCase{"f16_nt", ElementType::f16, ElementType::f16, true, true},
                               ProductCase{"bf16_nn", ElementType::bf16, ElementType::bf16, true, false},
                               ProductCase{"tf32_tt", ElementType::tf32, f32, false, true}}) {
    for (auto [batches, m, n, k] :
         {std::tuple{1, 8, 48, 64}, {1, 3, 33, 40}, {2, 5, 20, 32}, {1, 2, 40, 32}}) {
      SCOPED_TRACE(text(c.name, ", ", m, " rows"));
      expect_right_in_tiles(
          product(batches, m, n, k, c), gpu_target("sm_80"), 4, 2, 2,
          [](tuner::Draft& draft) {
            const bool is_taken = tuner::schedule_grid_matrices(draft, "sum");
            for (const tuner::RefusedRule& refused : draft.refused)
              ADD_FAILURE() << to_text(refused);
            return is_taken;
          },
          [](const Func& lowered) {
            EXPECT_GT(count_calls(lowered, IntrinsicClass::mma), 0) << to_text(lowered);
          });
      if (HasFailure()) return;
    }
  }
}

// ---- One function, several schedules ----

// How many of the launches have blocks, at sizes of the dimensions.
int launches_with_blocks(const Func& f, const std::vector<int64_t>& sizes) {
  VarMap values;
  for (size_t i = 0; i < f.dims.size(); ++i)
    values.emplace(f.dims[i].get(), Expr(sizes[i]));
  int count = 0;
  for_each_stmt(f.body, [&](const Stmt& s) {
    const auto* loop = s.as<For>();
    if (!loop || grid_axis(*loop) != GridAxis::block_x) return;
    int64_t blocks = 0;
    EXPECT_TRUE(as_int(simplify(substitute(loop->extent, values)), &blocks));
    count += blocks > 0;
  });
  return count;
}

Func open_product(const char* sizes) {
  Func f = fused_kernel(R"(graph g(%x: f32[N, 256], %w: f32[256, 256], %b: f32[256]) {
  %p = MatMul(%x, %w)
  %q = Add(%p, %b)
  %y = Relu(%q)
  return %y
})");
  mark_weights(f, {"x1"});
  f.annotations["sizes"] = std::string(sizes);
  return f;
}

TEST(GridOtherRows, AreRightAtEverySize) {
  const Func f = open_product("1..~128");
  const Joined made = joined(f, gpu_target("sm_80"));
  EXPECT_THAT(made.conditions, testing::Contains("N >= 257"));
  EXPECT_THAT(made.conditions, testing::Contains(testing::HasSubstr("N < 9")));
  expect_right_at(f, made.func, {{1}, {2}, {8}, {9}, {257}});
  // Of each run the launches of one schedule.
  for (int64_t n : {1, 8, 9, 256, 257, 4000}) {
    EXPECT_GE(launches_with_blocks(made.func, {n}), 1) << n;
    EXPECT_LE(launches_with_blocks(made.func, {n}), 2) << n;
  }
}

// One row by warps along the sum, up to 8 as columns on tensor cores: of an open number, whatever stands for it.
TEST(GridOtherRows, OfHalvesAreRight) {
  for (bool are_weights : {true, false}) {
    Func f = fused_kernel(R"(graph g(%x: f16[N, 256], %w: f16[256, 256], %b: f32[256]) {
  %p = MatMul(%x, %w) {mcc.wide_result = 1}
  %y = Add(%p, %b)
  return %y
})");
    if (are_weights) mark_weights(f, {"x1"});
    f.annotations["sizes"] = std::string("1..~128");
    const Joined made = joined(f, gpu_target("sm_80"));
    EXPECT_GE(made.conditions.size(), 2U);
    expect_right_at(f, made.func, {{1}, {2}, {3}, {5}, {8}, {9}});
  }
}

TEST(GridOtherRows, AreNoneWhereAllRunsAreAlike) {
  for (const char* sizes : {"1..8", "9..200", "300..1000"})
    EXPECT_THAT(joined(open_product(sizes), gpu_target("sm_80")).conditions, testing::IsEmpty()) << sizes;
  Func small = fused_kernel(R"(graph g(%x: f32[N, 16], %w: f32[16, 16]) {
  %y = MatMul(%x, %w)
  return %y
})");
  mark_weights(small, {"x1"});
  small.annotations["sizes"] = std::string("1..~128");
  EXPECT_THAT(joined(small, gpu_target("sm_80")).conditions, testing::IsEmpty());
}

// Values of all words before a step, in parts of which there are as many as a run needs.
TEST(GridOtherRows, OfLongSumsAreInParts) {
  Func f = fused_kernel(R"(graph g(%a: f32[48, S, T], %b: f32[48, T, 32]) {
  %y = MatMul(%a, %b)
  return %y
})");
  f.annotations["sizes"] = std::string("1..~128 1..~128");
  const Joined made = joined(f, gpu_target("sm_80"));
  EXPECT_THAT(made.conditions, testing::ElementsAre("S < 65 && T >= 513", "S < 9 && T < 513"));
  expect_right_at(f, made.func, {{1, 1}, {3, 100}, {9, 30}, {1, 513}, {2, 700}});
  EXPECT_EQ(launches_with_blocks(made.func, {1, 512}), 1);
  EXPECT_EQ(launches_with_blocks(made.func, {64, 4000}), 2);
  EXPECT_EQ(launches_with_blocks(made.func, {65, 4000}), 1);
}

// Softmax of few rows of many numbers, and the scores of a few queries.
TEST(GridOtherRows, OfLongRowsAndFewScores) {
  Func softmax = fused_kernel(R"(graph g(%x: f32[S, T]) {
  %y = Softmax(%x) {axis = -1}
  return %y
})");
  softmax.annotations["sizes"] = std::string("1..~128 1..~128");
  const Joined rows = joined(softmax, gpu_target("sm_80"));
  EXPECT_THAT(rows.conditions, testing::ElementsAre("S < 257 && T >= 513"));
  expect_right_at(softmax, rows.func, {{1, 1}, {3, 512}, {2, 513}, {1, 3000}, {257, 600}});
  Func scores = fused_kernel(R"(graph g(%q: f32[64, S, 32], %k: f32[64, 32, T]) {
  %y = MatMul(%q, %k)
  return %y
})");
  scores.annotations["sizes"] = std::string("1..~128 1..~128");
  const Joined few = joined(scores, gpu_target("sm_80"));
  EXPECT_THAT(few.conditions, testing::ElementsAre("S < 9"));
  expect_right_at(scores, few.func, {{1, 1}, {1, 70}, {8, 30}, {9, 30}});
}

// ---- Sums of 64 bits ----

TEST(GridRowsOf64Bits, AreSummedByThreads) {
  for (const char* type : {"i64", "f64"}) {
    for (const char* op : {"ReduceSum", "ReduceMax"}) {
      const Func f =
          fused_kernel(text("graph g(%x: ", type, "[3, 700]) {\n  %axis: i64[1] = [1]\n  %y = ", op,
                            "(%x, %axis)\n  return %y\n}"));
      tuner::PreferredDecider decide;
      tuner::Draft draft{Schedule(f), decide, gpu_target("sm_80")};
      Func lowered;
      ASSERT_NO_FATAL_FAILURE(expect_right_by_all_rules(draft, lowered));
      EXPECT_GT(count_calls(lowered, IntrinsicClass::exchange), 0) << type << op << to_text(lowered);
    }
  }
}

}  // namespace
}  // namespace mcc::test
