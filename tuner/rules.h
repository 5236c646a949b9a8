// The rules of the default schedules. Each takes a schedule whose block still stands under its own loops, and says
// whether it took the block on; a rule that does not fit leaves the schedule as it is.
#pragma once

#include "tensor/schedule/schedule.h"
#include "tensor/target.h"
#include "tuner/analysis.h"

namespace mcc::tuner {

// Injective producers disappear into their consumers where that computes nothing twice.
void inline_producers(tensor::Schedule& s);

// A reduction whose result and an operand run contiguously along a spatial axis (matmul on packed weights,
// convolution on blocked activations, depthwise, pooling): a tile of accumulators in registers, the reduction
// inside, the elementwise consumers at the tile's write-back.
bool schedule_register_tile(tensor::Schedule& s, const std::string& block, const tensor::Target& target);

// Reductions along rows (softmax, normalisation, means): all blocks of the group row by row, in vectors along the row.
bool schedule_rows(tensor::Schedule& s, const tensor::Target& target);

// What is left: vectors along the last axis, outer loops in parallel.
void schedule_pointwise(tensor::Schedule& s, const std::string& block, const tensor::Target& target);

// ---- Shared by the rules ----

// A step that may be refused.
bool try_step(tensor::Schedule& s, const tensor::Step& step);
// A step that the rule has made sure of.
void must_step(tensor::Schedule& s, const tensor::Step& step);

// Single-threaded time in microseconds that this much work takes, and whether that is worth a parallel region.
double estimate_us(double flops, double bytes, const tensor::Target& target);
bool worth_parallel(double microseconds, const tensor::Target& target);

// How a loop of this extent is split between cores: share of the ideal speed.
double balance(int64_t items, int cores);

}  // namespace mcc::tuner
