// Products by warpgroups of sm_90a in many tiles, of odd extents, of all types and orders in memory, on the interpreter.
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
  Buffer x = b.input("x", c.stored, {batches, c.a_along_k ? m : k, c.a_along_k ? k : m});
  Buffer w = b.input("w", c.stored, {batches, c.b_along_k ? n : k, c.b_along_k ? k : n});
  Buffer bias = b.input("bias", f32, {n});
  auto factor = [&](const Expr& e) { return cast(f32, cast(c.factor, e)); };
  Buffer sum = b.reduce("sum", f32, {batches, m, n}, {k}, Reducer::sum, [&](Axes s, Axes r) {
    Expr left = c.a_along_k ? load(x, {s[0], s[1], r[0]}) : load(x, {s[0], r[0], s[1]});
    Expr right = c.b_along_k ? load(w, {s[0], s[2], r[0]}) : load(w, {s[0], r[0], s[2]});
    return factor(left) * factor(right);
  });
  Buffer y = b.compute("y", f32, {batches, m, n}, [&](Axes i) {
    return max(load(sum, {i[0], i[1], i[2]}) + load(bias, {i[2]}), constant(f32, 0));
  });
  return b.finish({y});
}

Target target_of(const char* arch) {
  Target target;
  target.kind = TargetKind::cuda;
  target.vector_bits = 128;
  target.gpu = *find_gpu("sm_90");
  target.gpu.arch = arch;
  // Few multiprocessors, slow at a warp's instructions: small products are worth a warpgroup's, too.
  target.gpu.multiprocessors = 1;
  target.gpu.matrix_fmas = 16;
  return target;
}

int count_of(const Func& f, bool (*is_counted)(Intrinsic)) {
  int count = 0;
  for_each_expr(f.body, [&](const Expr& e) {
    const auto* call = e.as<Call>();
    count += call && is_counted(call->function);
  });
  return count;
}

class GridWarpgroups : public ::testing::TestWithParam<Case> {};

TEST_P(GridWarpgroups, AreRightInAnyTile) {
  const Target target = target_of("sm_90a");
  for (auto [batches, m, n, k] : {std::tuple{1, 64, 64, 128}, {2, 72, 64, 72}}) {
    Func f = merge_axes(product(batches, m, n, k, GetParam()));
    std::set<std::string> traces;
    for (uint64_t tile = 0; tile < 2; ++tile) {
      TileDecider decide(tile);
      tuner::Draft draft{Schedule(f), decide, target};
      ASSERT_TRUE(tuner::schedule_grid_warpgroups(draft, "sum")) << to_text(f) << draft.refusal.detail;
      if (!traces.insert(to_text(draft.schedule.trace())).second) continue;
      SCOPED_TRACE(text(batches, "x", m, "x", n, "x", k, "\n", to_text(draft.schedule.trace())));
      Func lowered;
      lower_and_compare(f, draft.schedule, target, lowered);
      EXPECT_GT(count_of(lowered, is_wgmma), 0) << to_text(lowered);
      EXPECT_EQ(to_text(lowered).find(" local {"), std::string::npos) << "accumulators outside of registers";
      if (HasFailure()) return;
    }
    EXPECT_FALSE(traces.empty());
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, GridWarpgroups,
                         ::testing::Values(Case{"f16_nn", ElementType::f16, ElementType::f16, true, false},
                                           Case{"f16_nt", ElementType::f16, ElementType::f16, true, true},
                                           Case{"bf16_tn", ElementType::bf16, ElementType::bf16, false,
                                                false},
                                           Case{"bf16_tt_converted", ElementType::bf16, f32, false, true}),
                         [](const auto& info) { return std::string(info.param.name); });

// The code of sm_90 runs on later GPUs, too; tf32 and small products are left to a warp's instructions.
TEST(GridWarpgroupsOrNot, AreLeftToOtherRules) {
  const Case f16{"f16", ElementType::f16, ElementType::f16, true, false};
  auto takes = [](const char* arch, const Func& f) {
    tuner::PreferredDecider decide;
    const Target target = target_of(arch);
    tuner::Draft draft{Schedule(f), decide, target};
    return tuner::schedule_grid_warpgroups(draft, "sum");
  };
  EXPECT_TRUE(takes("sm_90a", merge_axes(product(1, 128, 128, 128, f16))));
  EXPECT_FALSE(takes("sm_90", merge_axes(product(1, 128, 128, 128, f16))));
  EXPECT_FALSE(takes("sm_90a", merge_axes(product(1, 32, 128, 128, f16))));
  EXPECT_FALSE(
      takes("sm_90a", merge_axes(product(1, 128, 128, 128, {"tf32", ElementType::tf32, f32, true, false}))));
}

}  // namespace
}  // namespace mcc::test
