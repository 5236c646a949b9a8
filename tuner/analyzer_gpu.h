// What a schedule should cost on a GPU, from its loops alone.
//
// Two forms. PSA is the static analyser of Pruner as released (Qiao et al., ASPLOS'25): it reproduces published figures,
// with its faults: traffic is counted in elements, once and not for each stage, and nothing knows of shared memory, of
// occupancy or of latency. The other form, the default, mends these.
#pragma once

#include <span>
#include <vector>

#include "tensor/gpu.h"
#include "tuner/nest.h"

namespace mcc::tuner {

using GpuDevice = tensor::Gpu;

// One store under bound loops. A thread's loops are those that are not bound to blocks or threads.
struct GpuStatement {
  double flops = 0;      // of one thread; additions, multiplications, divisions
  double registers = 0;  // values of one thread: for each buffer, the places along the thread's output loops
  double touched = 0;  // elements of one thread: for each buffer, the places along all of the thread's loops
  double threads = 1, blocks = 1;
  double dram_elements = 0;  // of statements that do no arithmetic
};
std::vector<GpuStatement> gpu_statements(const Nest& nest);
bool is_gpu(const Nest& nest);

// Milliseconds by the released formula.
double psa_ms(const GpuStatement& statement, const GpuDevice& device);
double psa_ms(std::span<const GpuStatement> statements, const GpuDevice& device);
// Its factors, for tests and explanations.
struct PsaFactors {
  double reuse = 1, wave = 1, warp = 1, registers = 1;
};
PsaFactors psa_factors(const GpuStatement& statement, const GpuDevice& device);

// The default form; microseconds. Of each buffer in device memory: the bytes that are asked for, divided by how many of the
// blocks that run together share them, at least once; fetches of less than 32 bytes in a row are rounded up. Shared memory
// by what the lanes of a warp differ in. Few threads do not use all of the memory's bandwidth. Occupancy from threads, registers and shared memory, and whether that much hides
// the latency of the arithmetic. Tensor cores multiply at their own rate. Launches follow each other. Registers and shared memory are guessed, or those that the
// assembler gives, one entry a launch; values that it spills make the arithmetic slower, 64 bytes of them twice as slow.
struct LaunchFigures {
  double registers = 0;      // of a thread
  double shared_bytes = 0;   // of a block
  double spilled_bytes = 0;  // of a thread, stored and loaded
};
double estimate_gpu_us(const Nest& nest, const GpuDevice& device, std::span<const LaunchFigures> figures = {});
// What is said of kernels that do not fit a multiprocessor.
inline constexpr double kHopelessUs = 1e9;

}  // namespace mcc::tuner
