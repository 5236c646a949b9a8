// Attention of one query: parts of the keys that several blocks make, put together by a second launch, on the interpreter.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "graph/passes/passes.h"
#include "schedules/grid_cases.h"
#include "tensor/passes/join_cases.h"
#include "tensor/sizes.h"
#include "tensor/text.h"
#include "tuner/default_schedule.h"

namespace mcc::test {
namespace {

using namespace tensor;

struct Attention {
  Func func;
  std::vector<graph::OtherKernel> others;
};

// Of a graph whose operands are f16 or bf16, as the passes for GPUs have it.
Attention attention_of(const std::string& source, const Target& target) {
  graph::Graph g = graph::test::parse_graph(source);
  graph::fuse_attention(g, target, ElementType::f32);
  graph::divide_attention(g, target, {});
  Attention out;
  for (const graph::KernelGroup& group : graph::fuse(g)) {
    if (group.kind != graph::KernelGroup::Kind::kernel) continue;
    EXPECT_FALSE(out.func.body.defined()) << "several kernels: " << source;
    out.func = merge_axes(graph::build_kernel(g, group));
    out.others = graph::build_other_kernels(g, group);
    for (graph::OtherKernel& other : out.others)
      other.func = merge_axes(other.func);
  }
  return out;
}

struct Form {
  const char* name;
  const char* inputs;
  const char* steps;  // from %s to %m
  const char* arch;
};
void PrintTo(const Form& f, std::ostream* out) { *out << f.name; }

std::string graph_of(const Form& f) {
  return text("graph g(", f.inputs, ") {\n  %s = MatMul(%q, %k)\n", f.steps,
              "  %p = Softmax(%m)\n  %o = MatMul(%p, %v)\n  %y = Tanh(%o)\n  return %y\n}\n");
}

constexpr const char* kShared =
    "%q: f16[2, 4, 1, 16], %k: f16[2, 1, 16, 270], %v: f16[2, 1, 270, 24], %b: f16[2, 1, 1, 270]";
constexpr const char* kOwn = "%q: f16[3, 1, 32], %k: f16[3, 32, 330], %v: f16[3, 330, 16]";
constexpr const char* kMany = "%q: bf16[1, 20, 1, 16], %k: bf16[1, 1, 16, 260], %v: bf16[1, 1, 260, 16]";

class GridSplitChains : public ::testing::TestWithParam<Form> {};

TEST_P(GridSplitChains, AreTwoLaunches) {
  const Target target = gpu_target(GetParam().arch);
  const Attention attention = attention_of(graph_of(GetParam()), target);
  EXPECT_TRUE(attention.others.empty());
  tuner::PreferredDecider decide;
  tuner::Draft draft{Schedule(attention.func), decide, target};
  Func lowered;
  ASSERT_NO_FATAL_FAILURE(expect_right_by_all_rules(draft, lowered));
  EXPECT_EQ(launches_of(lowered), 2) << to_text(lowered);
  EXPECT_GT(count_calls(lowered, IntrinsicClass::mma), 0) << to_text(lowered);
}

INSTANTIATE_TEST_SUITE_P(
    Forms, GridSplitChains,
    ::testing::Values(Form{"shared", kShared,
                           "  %half: f16[] = [0.5]\n  %t = Mul(%s, %half)\n  %m = Add(%t, %b)\n", "sm_80"},
                      Form{"own", kOwn, "  %half: f16[] = [0.5]\n  %m = Mul(%s, %half)\n", "sm_80"},
                      Form{"own_without_copies", kOwn, "  %half: f16[] = [0.5]\n  %m = Mul(%s, %half)\n",
                           "sm_75"},
                      Form{"many", kMany, "  %half: bf16[] = [0.5]\n  %m = Mul(%s, %half)\n", "sm_90"}),
    ::testing::PrintToStringParamName());

// An open number of queries: one of them is another case of the same kernel.
TEST(GridOpenSplitChains, AreRightAtEverySize) {
  const Target target = small_gpu_target("sm_80");
  const Attention attention = attention_of(
      R"(graph g(%q: f16[N, 2, 3, S, 16], %k: f16[N, 2, 1, 16, T], %v: f16[N, 2, 1, T, 16], %b: f16[N, 1, 1, S, T]) {
  %s = MatMul(%q, %k)
  %m = Add(%s, %b)
  %p = Softmax(%m)
  %y = MatMul(%p, %v)
  return %y
})",
      target);
  ASSERT_EQ(attention.others.size(), 1u);
  EXPECT_EQ(to_text(attention.others[0].condition), "S == 1");
  auto lowered = [&](const Func& f, int launches) {
    const tuner::DefaultSchedule made = tuner::explained_default_schedule(f, target);
    EXPECT_FALSE(made.is_plain);
    for (const tuner::RefusedRule& refused : made.refused)
      ADD_FAILURE() << to_text(refused);
    const Func out = lower(made.schedule.func(), target);
    EXPECT_EQ(launches_of(out), launches);
    return out;
  };
  const Func f = join_cases(lowered(attention.func, 1),
                            {{attention.others[0].condition, lowered(attention.others[0].func, 2)}});
  EXPECT_THAT(verify(f, Stage::lowered), testing::IsEmpty()) << to_text(f);
  for (const auto& [queries, keys, batch] :
       {std::tuple{1, 1, 1}, {1, 130, 2}, {1, 300, 1}, {2, 70, 1}, {70, 65, 2}}) {
    std::vector<int64_t> sizes;
    for (const Var& dim : attention.func.dims)
      sizes.push_back(dim.name() == "S" ? queries : dim.name() == "T" ? keys : batch);
    SCOPED_TRACE(join(sizes, ", "));
    const Func instance = with_sizes(attention.func, sizes);
    graph::test::expect_close(run_at(f, sizes, instance), run(instance, instance), 1e-3);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace mcc::test
