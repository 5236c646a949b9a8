// Schedules run on the interpreter beside what they came from.
#pragma once

#include <gtest/gtest.h>

#include "graph/compare.h"
#include "graph/fold.h"
#include "tensor/interpret.h"
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

// Runs a function with symbolic dimensions as it stands, at these sizes of them. instance: its interface with them.
inline std::vector<graph::Constant> run_at(const tensor::Func& f, const std::vector<int64_t>& sizes,
                                           const tensor::Func& instance) {
  std::vector<graph::Constant> inputs, results;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> buffers;
  memory.reserve(instance.params.size());
  for (int i = 0; i < static_cast<int>(instance.params.size()); ++i) {
    const tensor::Buffer& b = instance.params[static_cast<size_t>(i)];
    const graph::Constant value = graph::test::random_constant({b.element(), b.shape()}, text("input ", i));
    memory.emplace_back(value.bytes().begin(), value.bytes().end());
    buffers.push_back(memory.back().data());
  }
  const Status status = tensor::interpret(f, buffers, sizes);
  EXPECT_TRUE(status.ok()) << to_text(status.errors()) << to_text(f);
  for (size_t i = static_cast<size_t>(instance.num_inputs()); i < instance.params.size(); ++i) {
    const tensor::Buffer& b = instance.params[i];
    auto owned = std::make_shared<std::vector<std::byte>>(memory[i]);
    results.emplace_back(b.element(), graph::static_shape(b.shape()), *owned, owned);
  }
  return results;
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
