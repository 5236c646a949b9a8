// Schedules run on the interpreter beside what they came from.
#pragma once

#include <gtest/gtest.h>

#include "graph/compare.h"
#include "graph/fold.h"
#include "tensor/passes/lower.h"
#include "tensor/schedule/schedule.h"
#include "tensor/text.h"
#include "tensor/verify.h"

namespace mcc::test {

// Runs a function on inputs made for the parameters of `interface`, which it was scheduled or lowered from.
inline std::vector<graph::Constant> run(const tensor::Func& f, const tensor::Func& interface) {
  std::vector<graph::Constant> inputs;
  std::vector<graph::TensorType> outputs;
  for (int i = 0; i < static_cast<int>(interface.params.size()); ++i) {
    const tensor::Buffer& b = interface.params[static_cast<size_t>(i)];
    graph::TensorType type{b.element(), b.shape()};
    if (i < interface.num_inputs()) {
      inputs.push_back(graph::test::random_constant(type, text("input ", i)));
    } else {
      outputs.push_back(type);
    }
  }
  Result<std::vector<graph::Constant>> results = graph::interpreter_evaluator()(f, inputs, outputs);
  EXPECT_TRUE(results.ok()) << to_text(results.errors()) << to_text(f);
  return results.ok() ? *results : std::vector<graph::Constant>();
}

// Lowers a scheduled function. Expects that both forms are whole and give what the function itself gives.
inline void lower_and_compare(const tensor::Func& f, const tensor::Schedule& schedule, const tensor::Target& target,
                              tensor::Func& lowered) {
  std::vector<std::string> broken = verify(schedule.func(), tensor::Stage::blocks);
  ASSERT_TRUE(broken.empty()) << broken[0];
  lowered = tensor::lower(schedule.func(), target);
  broken = verify(lowered, tensor::Stage::lowered);
  ASSERT_TRUE(broken.empty()) << broken[0] << to_text(lowered);
  if (target.kind == tensor::TargetKind::cuda) {
    broken = verify_launches(lowered, target.gpu);
    ASSERT_TRUE(broken.empty()) << broken[0] << to_text(lowered);
  }
  std::vector<graph::Constant> want = run(f, f);
  graph::test::expect_close(run(schedule.func(), f), want, 1e-4);
  graph::test::expect_close(run(lowered, f), want, 1e-4);
}

}  // namespace mcc::test
