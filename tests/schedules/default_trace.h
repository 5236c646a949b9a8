// What the default schedule does with a kernel of a small graph.
#pragma once

#include "schedules/optimized_kernels.h"
#include "tuner/default_schedule.h"

namespace mcc::test {

// The trace of the kernel that has this block; what it makes is compared with the kernel as it was.
inline std::string default_trace(const std::string& graph, const std::string& block,
                                 const tensor::Target& target) {
  for (const tensor::Func& kernel : kernels_of(graph, target)) {
    if (to_text(kernel).find("block " + block + "(") == std::string::npos) continue;
    const tensor::Schedule schedule = tuner::default_schedule(kernel, target);
    tensor::Func lowered;
    lower_and_compare(kernel, schedule, target, lowered);
    return to_text(schedule.trace());
  }
  ADD_FAILURE() << "no kernel with " << block;
  return "";
}

}  // namespace mcc::test
