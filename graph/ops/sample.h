// What the operators that sample tensors at positions from data share (GridSample, RoiAlign).
#pragma once

#include "graph/ops/common.h"

namespace mcc::graph {

// An attribute that passes give to GridSample and RoiAlign on CPUs: what all channels have in common, where taps stand and what they weigh,
// is computed first. Without it, as on GPUs, each element computes it anew, in the same launch. mcc.GridSample and mcc.RoiAlign always have
// tables.
inline constexpr const char* kTabulated = "tabulated";

// Where the channels are: [N, C, spatial...] or [N, spatial..., C].
struct SampleLayout {
  bool channels_last = false;
  size_t channel(size_t rank) const { return channels_last ? rank - 1 : 1; }
  size_t first_spatial() const { return channels_last ? 1 : 2; }
  std::vector<Expr> joined(std::vector<Expr> first, const Expr& channel,
                           const std::vector<Expr>& spatial) const {
    if (!channels_last) first.push_back(channel);
    first.insert(first.end(), spatial.begin(), spatial.end());
    if (channels_last) first.push_back(channel);
    return first;
  }
};
inline constexpr SampleLayout kChannelsSecond{false}, kChannelsLast{true};

}  // namespace mcc::graph
