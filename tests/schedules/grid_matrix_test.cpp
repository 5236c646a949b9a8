// Products on tensor cores in many tiles, of odd extents, of all types and orders in memory, on the interpreter.
#include <gtest/gtest.h>

#include <set>

#include "schedules/run_func.h"
#include "tensor/build.h"
#include "tensor/intrinsics.h"
#include "tensor/passes/merge_axes.h"
#include "tensor/visit.h"
#include "tuner/grid_rules.h"
#include "tuner/random.h"

namespace mcc::test {
namespace {

using namespace tensor;

constexpr ElementType f32 = ElementType::f32;

// Takes any of the tiles that need few threads, and what is preferred of all else.
class TileDecider : public tuner::PreferredDecider {
 public:
  explicit TileDecider(uint64_t seed) : random_(seed) {}
  tuner::Answer answer(const tuner::Choice& choice, const tuner::Answer& preferred) override {
    if (choice.name.ends_with(".parts")) return preferred;
    const auto few = std::min<int64_t>(static_cast<int64_t>(choice.options.size()), 2);
    return {choice.options[static_cast<size_t>(random_.below(few))]};
  }

 private:
  tuner::Random random_;
};

struct Case {
  const char* name;
  ElementType factor, stored;  // what is multiplied, and what the operands are in memory
  bool a_along_k, b_along_k;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// relu(A * B + bias) for each of some batches, multiplied in a narrow type.
Func product(int64_t batches, int64_t m, int64_t n, int64_t k, const Case& c) {
  FuncBuilder b("product");
  const bool is_int = mcc::is_int(c.factor);
  const ElementType wide = is_int ? ElementType::i32 : f32;
  Buffer x = b.input("x", c.stored, {batches, c.a_along_k ? m : k, c.a_along_k ? k : m});
  Buffer w = b.input("w", is_int ? ElementType::i8 : c.stored, {batches, c.b_along_k ? n : k, c.b_along_k ? k : n});
  Buffer bias = b.input("bias", f32, {n});
  auto factor = [&](const Expr& e) { return is_int ? cast(wide, e) : cast(f32, cast(c.factor, e)); };
  Buffer sum = b.reduce("sum", wide, {batches, m, n}, {k}, Reducer::sum, [&](Axes s, Axes r) {
    Expr left = c.a_along_k ? load(x, {s[0], s[1], r[0]}) : load(x, {s[0], r[0], s[1]});
    Expr right = c.b_along_k ? load(w, {s[0], s[2], r[0]}) : load(w, {s[0], r[0], s[2]});
    return factor(left) * factor(right);
  });
  Buffer y = b.compute("y", f32, {batches, m, n}, [&](Axes i) {
    return max(cast(f32, load(sum, {i[0], i[1], i[2]})) + load(bias, {i[2]}), constant(f32, 0));
  });
  return b.finish({y});
}

Target target_of(const char* arch) {
  Target target;
  target.kind = TargetKind::cuda;
  target.vector_bits = 128;
  target.gpu = *find_gpu(arch);
  return target;
}

int count_calls(const Func& f, IntrinsicClass of) {
  int count = 0;
  for_each_expr(f.body, [&](const Expr& e) {
    const auto* call = e.as<Call>();
    count += call && class_of(call->function) == of;
  });
  return count;
}

// The rule's schedules of a few products, with instructions of that class.
void expect_right_in_any_tile(const Case& c, const Target& target, bool (*rule)(tuner::Draft&, const std::string&),
                              IntrinsicClass instruction) {
  for (auto [batches, m, n, k] : {std::tuple{1, 32, 32, 32}, {2, 33, 20, 40}, {1, 19, 45, 21}}) {
    Func f = merge_axes(product(batches, m, n, k, c));
    std::set<std::string> traces;
    for (uint64_t tile = 0; tile < 4; ++tile) {
      TileDecider decide(tile);
      tuner::Draft draft{Schedule(f), decide, target};
      ASSERT_TRUE(rule(draft, "sum")) << to_text(f) << draft.refusal.detail;
      if (!traces.insert(to_text(draft.schedule.trace())).second) continue;
      SCOPED_TRACE(text(batches, "x", m, "x", n, "x", k, "\n", to_text(draft.schedule.trace())));
      Func lowered;
      lower_and_compare(f, draft.schedule, target, lowered);
      EXPECT_GT(count_calls(lowered, instruction), 0) << to_text(lowered);
      EXPECT_EQ(to_text(lowered).find(" local {"), std::string::npos) << "accumulators outside of registers";
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_GE(traces.size(), 2u);
  }
}

class GridMatrices : public ::testing::TestWithParam<Case> {};

TEST_P(GridMatrices, AreRightInAnyTile) {
  expect_right_in_any_tile(GetParam(), target_of("sm_80"), tuner::schedule_grid_matrices, IntrinsicClass::mma);
}

TEST_P(GridMatrices, AreLeftToOtherRulesWithoutTensorCores) {
  Func f = merge_axes(product(1, 32, 32, 32, GetParam()));
  tuner::PreferredDecider decide;
  tuner::Draft draft{Schedule(f), decide, target_of("sm_75")};
  EXPECT_FALSE(tuner::schedule_grid_matrices(draft, "sum"));
  EXPECT_TRUE(tuner::schedule_grid_product(draft, "sum")) << draft.refusal.detail;
}

// Bytes without tensor cores: four at a time.
TEST_P(GridMatrices, OfBytesAreDotProductsInAnyTileWithoutTensorCores) {
  if (!is_int(GetParam().factor)) return;
  expect_right_in_any_tile(GetParam(), target_of("sm_75"), tuner::schedule_grid_product, IntrinsicClass::dot);
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

// f32 stays f32.
TEST(GridMatricesOfF32, AreLeftToOtherRules) {
  Func f = merge_axes(product(1, 32, 32, 32, {"f32", f32, f32, true, false}));
  tuner::PreferredDecider decide;
  tuner::Draft draft{Schedule(f), decide, target_of("sm_80")};
  EXPECT_FALSE(tuner::schedule_grid_matrices(draft, "sum"));
}

}  // namespace
}  // namespace mcc::test
