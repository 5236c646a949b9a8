// Small tasks and a small machine for tests of spaces and searches.
#pragma once

#include "tensor/text.h"
#include "tuner/trial.h"

namespace mcc::tuner::test {

// Four lanes and two cores to which every parallel region is worth it, so that small functions show all that rules do.
inline tensor::Target small_target() {
  tensor::Target target;
  target.vector_bits = 128;
  target.vector_registers = 16;
  target.cores = 2;
  target.fork_us = 0;
  return target;
}

inline Task task_of(const std::string& name, const tensor::Func& f) {
  Task task;
  task.name = name;
  task.text = to_text(f);
  task.func = f;
  return task;
}

}  // namespace mcc::tuner::test
