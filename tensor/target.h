// A machine, as data. Layers above code generation see only this.
#pragma once

#include <string>
#include <vector>

#include "support/result.h"
#include "tensor/gpu.h"

namespace mcc::tensor {

struct Cache {
  int64_t bytes = 0;  // what one core may count on
  int ways = 8;
  int line = 64;
  double gb_per_s = 0;  // read bandwidth of one core

  // How many lines it holds of places that are `stride` bytes apart, with `run` lines at each: places that are a multiple of a way's size
  // apart share their sets.
  int64_t lines_held(int64_t stride, int64_t run = 1) const;
};

enum class TargetKind : uint8_t { cpu, cuda };

struct Target {
  TargetKind kind = TargetKind::cpu;
  std::string name;  // as given: "cpu", "cpu:x86-64-v3", "cpu:znver4", "cuda:sm_80"
  std::string triple = "x86_64-unknown-linux-gnu";
  std::string cpu;       // LLVM's name; of a GPU its architecture
  std::string features;  // LLVM's feature string, sorted ("+avx2,+fma,...")

  int vector_bits = 512;
  int vector_registers = 32;
  bool has_fma = true;
  int fma_ports = 2;
  int fma_latency = 4;
  int cores = 1;  // threads that a kernel should be able to keep busy
  double ghz = 3.0;
  Cache l1{48 << 10, 12, 64, 400}, l2{2 << 20, 16, 64, 150}, l3{16 << 20, 16, 64, 80};
  double dram_gb_per_s = 20;
  bool drops_hints = false;  // those that fetch into the second-level cache: they have to go to the first
  double fork_us = 2;  // cost of one parallel region

  Gpu gpu;  // of kind cuda; vector_bits is then what one thread loads or stores at once

  int lanes(int element_bits) const { return vector_bits / element_bits; }
  double peak_gflops(int element_bits = 32) const { return ghz * fma_ports * 2 * lanes(element_bits); }
  // One line that identifies what code was generated for: goes into provenance and log keys.
  std::string fingerprint() const;
};

}  // namespace mcc::tensor
