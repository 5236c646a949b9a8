// What the tests of products of words (dot products, tiles of matrices) have in common.
#pragma once

#include <gtest/gtest.h>

#include "tensor/intrinsics.h"
#include "tensor/target.h"
#include "tensor/visit.h"

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

}  // namespace mcc::test
