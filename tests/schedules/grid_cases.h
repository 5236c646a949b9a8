// What tests of the grid's schedules share: targets, kernels of small graphs, matrices in all orders in memory, answers drawn at random.
#pragma once

#include <limits>
#include <set>

#include "graph/graph_text.h"
#include "graph/passes/fuse.h"
#include "schedules/run_func.h"
#include "tensor/build.h"
#include "tensor/intrinsics.h"
#include "tensor/grid.h"
#include "tensor/passes/merge_axes.h"
#include "tensor/visit.h"
#include "tuner/grid_rules.h"
#include "tuner/random.h"

namespace mcc::test {

inline tensor::Target gpu_target(const char* arch) {
  tensor::Target target;
  target.kind = tensor::TargetKind::cuda;
  target.vector_bits = 128;
  target.gpu = *tensor::find_gpu(arch);
  return target;
}

// Of one multiprocessor: what is little keeps it busy.
inline tensor::Target small_gpu_target(const char* arch) {
  tensor::Target target = gpu_target(arch);
  target.gpu.multiprocessors = 1;
  return target;
}

// The one kernel that the nodes of a graph become.
inline tensor::Func fused_kernel(const std::string& source) {
  const graph::Graph g = graph::test::parse_graph(source);
  const std::vector<graph::KernelGroup> groups = graph::fuse(g);
  EXPECT_EQ(groups.size(), 1u) << source;
  return tensor::merge_axes(graph::build_kernel(g, groups.at(0)));
}

// Divides sums into as many parts as may be.
class PartsDecider : public tuner::PreferredDecider {
 public:
  tuner::Answer answer(const tuner::Choice& choice, const tuner::Answer& preferred) override {
    return choice.name.ends_with(".parts") ? tuner::Answer{choice.options.back()} : preferred;
  }
};

// Takes any of the first answers to each question, and no sum in parts.
class TileDecider : public tuner::PreferredDecider {
 public:
  explicit TileDecider(uint64_t seed, int64_t first = std::numeric_limits<int64_t>::max())
      : random_(seed), first_(first) {}
  tuner::Answer answer(const tuner::Choice& choice, const tuner::Answer& preferred) override {
    if (choice.name.ends_with(".parts")) return preferred;
    ++asked;
    const auto count = std::min<int64_t>(static_cast<int64_t>(choice.options.size()), first_);
    return {choice.options[static_cast<size_t>(random_.below(count))]};
  }
  int asked = 0;

 private:
  tuner::Random random_;
  int64_t first_;
};

// A product of matrices: in which type it multiplies, how the operands are stored, and along which axis they lie in memory.
struct ProductCase {
  const char* name;
  ElementType factor, stored;
  bool a_along_k, b_along_k;
};
inline void PrintTo(const ProductCase& c, std::ostream* out) { *out << c.name; }

// relu(A * B + bias) for each of some batches; the product is block "sum". Bytes are multiplied by signed ones and summed as i32.
inline tensor::Func product(int64_t batches, int64_t m, int64_t n, int64_t k, const ProductCase& c) {
  using namespace tensor;
  constexpr ElementType f32 = ElementType::f32;
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
  return merge_axes(b.finish({y}));
}

// Calls of functions that the predicate says yes to.
template <class Predicate>
int count_calls(const tensor::Func& f, const Predicate& is_counted) {
  int count = 0;
  tensor::for_each_expr(f.body, [&](const tensor::Expr& e) {
    const auto* call = e.as<tensor::Call>();
    count += call && is_counted(call->function);
  });
  return count;
}

inline int count_calls(const tensor::Func& f, tensor::IntrinsicClass of) {
  return count_calls(f, [&](tensor::Intrinsic i) { return class_of(i) == of; });
}

// Launches of a lowered function.
inline int launches_of(const tensor::Func& f) {
  int count = 0;
  tensor::for_each_stmt(f.body, [&](const tensor::Stmt& s) {
    const auto* loop = s.as<tensor::For>();
    count += loop && tensor::grid_axis(*loop) == tensor::GridAxis::block_x;
  });
  return count;
}

// Which schedules a test looks at.
struct Draws {
  uint64_t seeds;
  size_t different = 2;                                // so many of the schedules, at least
  int asked = 0;                                       // questions that each asks, at least
  int64_t first = std::numeric_limits<int64_t>::max();  // of the answers to a question
};

// Schedules a function by a rule that must take it, with these answers; each schedule that is unlike those before is compared with the
// function, and check(lowered) sees what became of it.
template <class Rule, class Check>
void expect_right_in_draws(const tensor::Func& f, const tensor::Target& target, const Draws& draws, const Rule& rule,
                           const Check& check) {
  std::set<std::string> traces;
  for (uint64_t seed = 0; seed < draws.seeds; ++seed) {
    TileDecider decide(seed, draws.first);
    tuner::Draft draft{tensor::Schedule(f), decide, target};
    ASSERT_TRUE(rule(draft)) << to_text(f) << draft.refusal.detail;
    EXPECT_GE(decide.asked, draws.asked);
    if (!traces.insert(to_text(draft.schedule.trace())).second) continue;
    SCOPED_TRACE(to_text(f) + to_text(draft.schedule.trace()));
    tensor::Func lowered;
    ASSERT_NO_FATAL_FAILURE(lower_and_compare(f, draft.schedule, target, lowered));
    check(lowered);
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GE(traces.size(), draws.different);
}

inline void expect_in_registers(const tensor::Func& lowered) {
  EXPECT_EQ(to_text(lowered).find(" local {"), std::string::npos) << "sums outside of registers: " << to_text(lowered);
}

// The product of matrices in tiles of these seeds.
template <class Rule, class Check>
void expect_right_in_tiles(const tensor::Func& f, const tensor::Target& target, uint64_t seeds, int64_t first,
                           size_t different, const Rule& rule, const Check& check) {
  expect_right_in_draws(f, target, {seeds, different, 3, first}, rule, [&](const tensor::Func& lowered) {
    expect_in_registers(lowered);
    check(lowered);
  });
}

// For expect_right_in_draws: all the grid's rules, one of which takes anything.
inline bool takes_all_rules(tuner::Draft& draft) {
  tuner::apply_grid_rules(draft);
  return static_cast<bool>(draft.refusal);
}

// Schedules by all the grid's rules with the draft's answers, and compares with the function.
inline void expect_right_by_all_rules(tuner::Draft& draft, tensor::Func& lowered) {
  const tensor::Func f = draft.schedule.func();
  tuner::apply_grid_rules(draft);
  ASSERT_TRUE(draft.refusal) << draft.refusal.detail;
  SCOPED_TRACE(to_text(f) + to_text(draft.schedule.trace()));
  ASSERT_NO_FATAL_FAILURE(lower_and_compare(f, draft.schedule, draft.target, lowered));
}

}  // namespace mcc::test
