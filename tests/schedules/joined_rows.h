// A function with its schedules for several numbers of rows, lowered as one, and run at sizes of its dimensions.
#pragma once

#include <gmock/gmock.h>

#include "schedules/run_func.h"
#include "tensor/passes/join_cases.h"
#include "tensor/sizes.h"
#include "tuner/default_schedule.h"
#include "tuner/other_rows.h"

namespace mcc::test {

struct Joined {
  tensor::Func func;  // lowered
  std::vector<std::string> conditions;
};

inline Joined joined(const tensor::Func& f, const tensor::Target& target) {
  const tuner::DefaultSchedule made = tuner::explained_default_schedule(f, target);
  EXPECT_FALSE(made.is_plain);
  Joined out;
  std::vector<tensor::Case> cases;
  for (const tuner::OtherRows& other : tuner::schedule_other_rows(f, target, made.schedule)) {
    EXPECT_NE(to_text(other.made.schedule.trace()), to_text(made.schedule.trace()));
    out.conditions.push_back(to_text(other.condition));
    cases.push_back({other.condition, lower(other.made.schedule.func(), target)});
  }
  const tensor::Func otherwise = lower(made.schedule.func(), target);
  size_t launches = count_launches(otherwise);
  for (const tensor::Case& c : cases)
    launches += count_launches(c.func);
  out.func = join_cases(otherwise, cases);
  EXPECT_EQ(count_launches(out.func), launches);
  EXPECT_THAT(verify(out.func, tensor::Stage::lowered), testing::IsEmpty()) << to_text(out.func);
  if (target.kind == tensor::TargetKind::cuda) {
    EXPECT_THAT(verify_launches(out.func, target.gpu), testing::IsEmpty()) << to_text(out.func);
  }
  return out;
}

inline void expect_right_at(const tensor::Func& f, const tensor::Func& lowered,
                            const std::vector<std::vector<int64_t>>& all) {
  for (const std::vector<int64_t>& sizes : all) {
    const tensor::Func instance = with_sizes(f, sizes);
    SCOPED_TRACE(join(sizes, ", "));
    graph::test::expect_close(run_at(lowered, sizes, instance), run(instance, instance), 1e-3);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace mcc::test
