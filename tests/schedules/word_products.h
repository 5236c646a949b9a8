// What the tests of products of words (dot products, tiles of matrices) have in common.
#pragma once

#include <gtest/gtest.h>

#include "schedules/run_func.h"
#include "tensor/intrinsics.h"
#include "tensor/target.h"
#include "tensor/visit.h"
#include "tuner/sketches.h"
#include "tuner/space.h"

namespace mcc::test {

// has_dot: whether it has instructions for such products.
struct Machine {
  const char* name;
  const char* features;
  int vector_bits, vector_registers;
  bool has_dot;
};

inline tensor::Target target_of(const Machine& machine) {
  tensor::Target t;
  if (const tensor::Gpu* gpu = tensor::find_gpu(machine.name)) {
    t.kind = tensor::TargetKind::cuda;
    t.gpu = *gpu;
    t.gpu.multiprocessors = 2;
  }
  t.vector_bits = machine.vector_bits;
  t.vector_registers = machine.vector_registers;
  t.features = machine.features;
  t.cores = 2;
  return t;
}

inline bool has_dot(const tensor::Func& f) {
  bool found = false;
  tensor::for_each_expr(f.body, [&](const tensor::Expr& e) {
    const auto* call = e.as<tensor::Call>();
    const auto of = call ? tensor::class_of(call->function) : tensor::IntrinsicClass::number;
    found |= of == tensor::IntrinsicClass::dot || of == tensor::IntrinsicClass::mma ||
             of == tensor::IntrinsicClass::tile;
  });
  return found;
}

// At some points of its space the kernel gives what it gives unscheduled.
inline void expect_right_at_points(const tensor::Func& f, const tensor::Target& target, uint64_t points,
                                   double tolerance) {
  const std::vector<graph::Constant> want = run(f, f);
  tuner::Space space(f, target, tuner::all_sketches());
  for (uint64_t seed = 0; seed < points; ++seed) {
    tuner::Planned planned = space.sample(tuner::all_sketches()[0], tuner::Random(seed));
    SCOPED_TRACE(to_text(planned.candidate.trace));
    ASSERT_TRUE(planned.ok()) << planned.outcome.detail;
    graph::test::expect_close(run(tensor::lower(planned.func, target), f), want, tolerance);
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace mcc::test
