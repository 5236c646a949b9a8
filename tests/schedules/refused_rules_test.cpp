// What the rules take on they can do: of the default schedules of ordinary kernels none has a rule that was refused. And what is
// kept of one that was.
#include <gtest/gtest.h>

#include "schedules/optimized_kernels.h"
#include "tensor/text.h"
#include "tuner/default_schedule.h"
#include "tuner/draft.h"

namespace mcc::test {
namespace {

using graph::test::Case;
using tensor::Func;
using tensor::Target;

Target cpu(int vector_bits, int vector_registers) {
  Target t;
  t.vector_bits = vector_bits;
  t.vector_registers = vector_registers;
  t.has_fma = vector_bits > 128;
  t.cores = 4;
  return t;
}

Target grid(const std::string& arch) {
  Target t;
  t.kind = tensor::TargetKind::cuda;
  t.vector_bits = 128;
  t.gpu = *tensor::find_gpu(arch.substr(0, 5));
  t.gpu.arch = arch;
  return t;
}

std::vector<Target> targets() {
  std::vector<Target> out{cpu(128, 16), cpu(256, 16), cpu(512, 32)};
  for (const char* arch : {"sm_70", "sm_75", "sm_80", "sm_89", "sm_90", "sm_90a"})
    out.push_back(grid(arch));
  return out;
}

class RefusedRules : public ::testing::TestWithParam<Case> {};

TEST_P(RefusedRules, ThereAreNone) {
  for (const Target& target : targets()) {
    for (const Func& f : kernels_of(GetParam().graph, target)) {
      const tuner::DefaultSchedule made = tuner::explained_default_schedule(f, target);
      EXPECT_FALSE(made.is_plain);
      for (const tuner::RefusedRule& refused : made.refused)
        ADD_FAILURE() << to_text(refused) << "\n" << to_text(f);
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, RefusedRules,
                         ::testing::ValuesIn(graph::test::read_cases(test_data("schedules/data/kernels.txt"))),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           std::replace_if(
                               name.begin(), name.end(), [](unsigned char ch) { return !std::isalnum(ch); }, '_');
                           return name;
                         });

// ---- What is kept ----

class Refusals : public ::testing::Test {
 protected:
  bool try_steps(tuner::RuleAtWork rule, const std::function<bool()>& steps) { return try_all(draft_, std::move(rule), steps); }
  const std::string loop() { return draft_.schedule.loop_names_of(block())[0]; }
  const std::string block() { return draft_.schedule.block_names()[0]; }

  const Target target_ = cpu(256, 16);
  const Func func_ = kernels_of("graph g(%x: f32[48, 40]) {\n  %y = Relu(%x)\n  return %y\n}\n", target_)[0];
  tuner::PreferredDecider decide_;
  tuner::Draft draft_{tensor::Schedule(func_), decide_, target_};
};

TEST_F(Refusals, ARefusedStepIsKeptAndTheStepsAreUndone) {
  EXPECT_FALSE(try_steps({"large tiles", block()}, [&] {
    must_step(draft_, tensor::Split{loop(), {0, 16}, {"o", "i"}});
    must_step(draft_, tensor::Unroll{"nothing"});
    must_step(draft_, tensor::Unroll{"i"});
    return static_cast<bool>(draft_.refusal);
  }));
  EXPECT_TRUE(draft_.refusal);
  EXPECT_TRUE(draft_.schedule.trace().empty());
  ASSERT_EQ(draft_.refused.size(), 1U);
  EXPECT_EQ(draft_.refused[0].rule, "large tiles");
  EXPECT_EQ(draft_.refused[0].step, "unroll(loop=\"nothing\")");
  EXPECT_EQ(draft_.refused[0].code, tensor::RefusalCode::no_such_loop);
  EXPECT_NE(draft_.refused[0].reason, "");
  EXPECT_EQ(draft_.refused[0].instead, "");
  // The rule that takes the block on then.
  EXPECT_TRUE(try_steps({"small tiles", block()}, [&] {
    must_step(draft_, tensor::Split{loop(), {0, 4}, {"o", "i"}});
    return static_cast<bool>(draft_.refusal);
  }));
  EXPECT_EQ(draft_.refused[0].instead, "small tiles");
  EXPECT_NE(to_text(draft_.refused[0]).find("; small tiles instead"), std::string::npos);
}

TEST_F(Refusals, ARuleThatDoesNotFitIsNone) {
  EXPECT_FALSE(try_steps({"large tiles", block()}, [] { return false; }));
  EXPECT_TRUE(draft_.refused.empty());
}

TEST_F(Refusals, ARuleThatGivesUpIsOne) {
  EXPECT_FALSE(try_steps({"large tiles", block(), "none"}, [&] {
    must_step(draft_, tensor::Split{loop(), {0, 16}, {"o", "i"}});
    return false;
  }));
  ASSERT_EQ(draft_.refused.size(), 1U);
  EXPECT_EQ(draft_.refused[0].step, "");
  EXPECT_NE(draft_.refused[0].reason.find("split("), std::string::npos);
  EXPECT_FALSE(try_steps({"large tiles", block(), "none"}, [&] {
    give_up(draft_, tensor::RefusalCode::unsupported_target, "there is no room");
    return false;
  }));
  ASSERT_EQ(draft_.refused.size(), 2U);
  EXPECT_EQ(to_text(draft_.refused[1]), "the rule for large tiles (block " + block() + ") was refused: there is no room; none instead");
}

// One element of a result is written where data says: no thread may have a turn of the loop to itself.
TEST(DefaultOfAScatter, SaysWhatWasRefused) {
  const Target target = grid("sm_80");
  const std::string unpool = "graph g(%x: f32[1, 1, 2, 2], %i: i64[1, 1, 2, 2]) {\n"
                             "  %y = MaxUnpool(%x, %i) {kernel_shape = [2, 2], strides = [2, 2]}\n  return %y\n}\n";
  std::vector<tuner::RefusedRule> refused;
  for (const Func& f : kernels_of(unpool, target)) {
    for (const tuner::RefusedRule& rule : tuner::explained_default_schedule(f, target).refused)
      refused.push_back(rule);
  }
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].rule, "results by the threads of a block");
  EXPECT_EQ(refused[0].instead, "all results by each thread");
}

}  // namespace
}  // namespace mcc::test
