// Default schedules of functions with symbolic dimensions.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tuner/default_schedule.h"

namespace mcc::tuner {

// A size for each dimension of the function, and how a schedule for these becomes one for all.
struct OpenInstance {
  enum class Way : uint8_t {
    replayed,  // the rules work on the function for these sizes; their trace is replayed on the function itself
    side_by_side,  // they work on both at once: what is refused for all sizes is left to the next rule
    plain,  // what is legal always, of the function for these sizes, or where there are none of the function itself
  };
  std::vector<int64_t> sizes;
  Way way = Way::replayed;
  bool operator==(const OpenInstance&) const = default;
};

// The sizes of the function's dimensions that its default schedule is made for, if that is possible for all sizes.
std::vector<int64_t> sizes_to_schedule(const tensor::Func& f);

// Instances that schedules may be made for, a few: first the one of the default schedule, then the function's first sample
// (tensor/sizes.h), prime numbers near it, and long dimensions.
std::vector<OpenInstance> instances_to_try(const tensor::Func& f, const tensor::Target& target);

// What rules have made of an instance, carried out on the function itself. Left out is what is only for a length that is known: unrolling,
// and on GPUs the scope of buffers that would have no constant size; the outermost part of a loop whose length depends on the run is as
// long as it has to be.
tensor::Outcome replay_for_all_sizes(tensor::Schedule& schedule, const tensor::Func& f,
                                     const tensor::Trace& trace, const tensor::Target& target);

// Loops whose extent depends on the dimensions.
std::set<std::string> loops_without_extent(const tensor::Func& f);

// What analysis chooses for one instance of the function, replayed on the function itself: steps say how loops are cut, with the number
// of outer iterations left open, so they are as good for every other size. The instance's sizes are prime numbers, that nothing is
// cut evenly which only happens to be divisible there.
DefaultSchedule symbolic_default_schedule(const tensor::Func& f, const tensor::Target& target,
                                          const Point& answers = {});

}  // namespace mcc::tuner
