// What a schedule should cost on a CPU, from its loops alone: the static analyser that drafts candidates before any
// measurement, and the bound that no schedule of a task can beat.
//
// After Pruner's static analyser (Qiao et al., ASPLOS'25), made for CPUs: instead of penalties on the peak, cycles of the
// innermost loops by issue of arithmetic, loads, stores and by the latency of accumulators, plus the traffic between cache
// levels by the footprints of loops (a loop's data come once if what one iteration touches fits the cache, else in each
// iteration).
#pragma once

#include "tensor/target.h"
#include "tuner/nest.h"
#include "tensor/workload.h"

namespace mcc::tuner {

struct CpuEstimate {
  double us = 0;                             // of one run with warm caches
  double compute_us = 0;                     // as if all data were in the first-level cache
  double l2_us = 0, l3_us = 0, dram_us = 0;  // transfers out of the second and third level, and out of memory
  double fork_us = 0;                        // parallel regions
};

CpuEstimate estimate_cpu(const Nest& nest, const tensor::Target& target);

// Microseconds below which no schedule of an unscheduled function can come on the target's cores: its arithmetic at the peak,
// and what the caches cannot hold between runs at the bandwidth of where it comes from. Convolutions with windows count a
// quarter of their multiplications: Winograd's F(4x4, 3x3). gflops: the measured peak of one core for f32; 0 when it is
// not known: then the target's, at a clock half as fast again as its nominal one, as processors boost.
double lower_bound_us(const tensor::Func& f, const tensor::Target& target, double gflops = 0);

}  // namespace mcc::tuner
