// Tiles of the grid's products, on matrices of odd extents in all orders in memory, on the interpreter.
#include <gtest/gtest.h>

#include <set>

#include "schedules/run_func.h"
#include "tensor/build.h"
#include "tensor/passes/merge_axes.h"
#include "tuner/grid_rules.h"
#include "tuner/random.h"

namespace mcc::test {
namespace {

using namespace tensor;

constexpr ElementType f32 = ElementType::f32;

// Takes any of the tiles, and what is preferred of all else.
class TileDecider : public tuner::PreferredDecider {
 public:
  explicit TileDecider(uint64_t seed) : random_(seed) {}
  tuner::Answer answer(const tuner::Choice& choice, const tuner::Answer& preferred) override {
    if (choice.name.ends_with(".parts")) return preferred;
    ++asked;
    return {choice.options[static_cast<size_t>(random_.below(static_cast<int64_t>(choice.options.size())))]};
  }
  int asked = 0;

 private:
  tuner::Random random_;
};

struct Order {
  const char* name;
  bool a_along_k, b_along_k;
};

// relu(A * B + bias) for each of some batches.
Func product(int64_t batches, int64_t m, int64_t n, int64_t k, const Order& order) {
  FuncBuilder b("product");
  Buffer x = order.a_along_k ? b.input("x", f32, {batches, m, k}) : b.input("x", f32, {batches, k, m});
  Buffer w = order.b_along_k ? b.input("w", f32, {batches, n, k}) : b.input("w", f32, {batches, k, n});
  Buffer bias = b.input("bias", f32, {n});
  Buffer sum = b.reduce("sum", f32, {batches, m, n}, {k}, Reducer::sum, [&](Axes s, Axes r) {
    Expr left = order.a_along_k ? load(x, {s[0], s[1], r[0]}) : load(x, {s[0], r[0], s[1]});
    return left * (order.b_along_k ? load(w, {s[0], s[2], r[0]}) : load(w, {s[0], r[0], s[2]}));
  });
  Buffer y = b.compute("y", f32, {batches, m, n}, [&](Axes i) {
    return max(load(sum, {i[0], i[1], i[2]}) + load(bias, {i[2]}), constant(f32, 0));
  });
  return b.finish({y});
}

void PrintTo(const Order& order, std::ostream* out) { *out << order.name; }

class GridProducts : public ::testing::TestWithParam<Order> {};

TEST_P(GridProducts, AreRightInAnyTile) {
  Target target;
  target.kind = TargetKind::cuda;
  target.vector_bits = 128;
  target.gpu = *find_gpu("sm_80");
  // Whole tiles, and rests in every direction; a few batches.
  for (auto [batches, m, n, k] : {std::tuple{1, 64, 64, 32}, {1, 36, 130, 20}, {2, 33, 45, 19}}) {
    Func f = merge_axes(product(batches, m, n, k, GetParam()));
    std::vector<graph::Constant> want = run(f, f);
    std::set<std::string> traces;
    for (uint64_t tile = 0; tile < 10; ++tile) {
      TileDecider decide(tile);
      tuner::Draft draft{Schedule(f), decide, target};
      ASSERT_TRUE(tuner::schedule_grid_product(draft, "sum")) << to_text(f) << tile;
      EXPECT_GE(decide.asked, 3);
      if (!traces.insert(to_text(draft.schedule.trace())).second) continue;
      SCOPED_TRACE(text(batches, "x", m, "x", n, "x", k, "\n", to_text(draft.schedule.trace())));
      Func lowered = lower(draft.schedule.func(), target);
      std::vector<std::string> broken = verify_launches(lowered, target.gpu);
      ASSERT_TRUE(broken.empty()) << broken[0] << to_text(lowered);
      EXPECT_EQ(to_text(lowered).find(" local {"), std::string::npos) << "accumulators outside of registers";
      graph::test::expect_close(run(lowered, f), want, 1e-4);
      if (HasFailure()) return;
    }
    EXPECT_GE(traces.size(), 5u);
  }
}

// Divides sums into as many parts as may be.
class PartsDecider : public tuner::PreferredDecider {
 public:
  tuner::Answer answer(const tuner::Choice& choice, const tuner::Answer& preferred) override {
    return choice.name.ends_with(".parts") ? tuner::Answer{choice.options.back()} : preferred;
  }
};

TEST_P(GridProducts, AreRightInParts) {
  Target target;
  target.kind = TargetKind::cuda;
  target.vector_bits = 128;
  target.gpu = *find_gpu("sm_80");
  Func f = merge_axes(product(1, 20, 24, 256, GetParam()));
  PartsDecider decide;
  tuner::Draft draft{Schedule(f), decide, target};
  tuner::apply_grid_rules(draft);
  ASSERT_TRUE(draft.refusal) << draft.refusal.detail;
  SCOPED_TRACE(to_text(draft.schedule.trace()));
  EXPECT_NE(draft.schedule.find_block("sum.part"), nullptr);
  Func lowered = lower(draft.schedule.func(), target);
  std::vector<std::string> broken = verify_launches(lowered, target.gpu);
  ASSERT_TRUE(broken.empty()) << broken[0] << to_text(lowered);
  graph::test::expect_close(run(lowered, f), run(f, f), 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Orders, GridProducts,
                         ::testing::Values(Order{"nn", true, false}, Order{"nt", true, true},
                                           Order{"tn", false, false}, Order{"tt", false, true}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace mcc::test
