// A stand-in for NVIDIA's driver, for tests on machines without a GPU: a libcuda.so.1 that keeps device memory in the host's,
// records calls, works on a stream only when somebody waits for it, refuses what a real driver would, and fails on demand. Kernels are host functions that the test gives by their
// entry's name; or it runs their PTX (ptx.h), slowly.
//
// A test program loads it before the runtime looks for libcuda.so.1 and talks to it through fake_cuda(). For a program that
// the test only starts, the environment says: FAKE_CUDA_SM=86, FAKE_CUDA_MEMORY=BYTES, FAKE_CUDA_DEVICES=N, FAKE_CUDA_PTX=70
// (the newest version it reads), FAKE_CUDA_DRIVER=13000 (its CUDA), FAKE_CUDA_LOAD=2 (seconds that it compiles PTX), FAKE_CUDA_FAIL=cuLaunchKernel:700, FAKE_CUDA_EXCLUSIVE=FILE (one process at a time has a context: who has locked the file; FAKE_CUDA_EXCLUSIVE=none: no process), FAKE_CUDA_LAUNCH="16x1x1 128x1x1=700"
// (what launches of that grid and block do: end in that error when they are waited for, 701 at once, hang, or skip: nothing is computed), FAKE_CUDA_KERNELS=FILE.so (functions
// named as entries, and ints ENTRY_arguments), FAKE_CUDA_RUN=1 (run the PTX), FAKE_CUDA_COUNT=FILE
// (with that: of each launch, only run the block in the middle, and append what it asks of a GPU to the file: ptx_counts.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "mcc/cuda_driver.h"

namespace mcc::test {

// params[i] is where argument i stands: an address, of 8 bytes.
using FakeKernel = void (*)(const unsigned* grid, const unsigned* block, void** params);
struct FakeEntry {
  FakeKernel function = nullptr;
  int arguments = 0;
};

struct FakeCuda {
  int devices = 1;
  int sm = 80;
  int driver_version = 12040;
  int newest_ptx = 84;  // 10 * version of the PTX that it reads
  bool refuses_cubins = false;
  int load_seconds = 0;
  int runs_ptx = 0;  // else kernels are functions of the test
  uint64_t memory = uint64_t{1} << 30;
  std::map<std::string, int> failures;       // exported name -> code that its calls return
  int lost =
      0;  // the error that all contexts are lost to: what a kernel did, found when somebody waits for it; from then on
  // every call that needs a context returns it
  int slow_fills =
      0;  // so many of the next fills of memory take eight times as long, as on a GPU whose clocks are low
  bool is_deinitialized = false;             // as after the driver's own end, at the end of a process
  std::map<std::string, FakeEntry> kernels;  // by entry
  std::vector<std::string> calls;  // exported names; launches as "cuLaunchKernel entry 4x1x1 32x1x1 shared", or cuLaunchKernelEx
  // What is held now.
  int64_t device_blocks = 0, host_blocks = 0, modules = 0, streams = 0, events = 0, graphs = 0, contexts = 0;
  uint64_t used = 0;

  int count(const std::string& call) const {
    int n = 0;
    for (const std::string& c : calls)
      n += c.starts_with(call) ? 1 : 0;
    return n;
  }
  // As before any call; what is held stays.
  void reset() {
    FakeCuda fresh;
    fresh.device_blocks = device_blocks, fresh.host_blocks = host_blocks, fresh.modules = modules;
    fresh.streams = streams, fresh.events = events, fresh.graphs = graphs, fresh.contexts = contexts;
    fresh.used = used;
    *this = fresh;
  }
};

// For a stand-in library over this driver (tests/fake_cublaslt): exported by it as "fake_cuda_hooks".
struct FakeCudaHooks {
  // Work of so many milliseconds, in order with the launches of the stream, or captured like one.
  int (*enqueue)(mcc_cu_stream stream, std::function<void()> work, float milliseconds) = nullptr;
  bool (*is_device)(uint64_t address, size_t bytes) = nullptr;
};

// The driver's state: exported by it as "fake_cuda_state".
using FakeCudaState = FakeCuda* (*)();

}  // namespace mcc::test
