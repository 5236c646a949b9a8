// The stand-ins for NVIDIA's driver and cuBLASLt, which have to be there before the runtime first looks for the real ones.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include "fake_cuda/fake_cuda.h"

namespace mcc::test {

inline FakeCuda& fake() {
  static FakeCuda* state = [] {
    void* library = dlopen(MCC_FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
    EXPECT_NE(library, nullptr) << dlerror();
    EXPECT_NE(dlopen(MCC_FAKE_CUBLASLT, RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
    return reinterpret_cast<FakeCudaState>(dlsym(library, "fake_cuda_state"))();
  }();
  return *state;
}

// As after the driver's end: what it gave it does not take back.
inline void forget_what_is_held() {
  FakeCuda& f = fake();
  f.device_blocks = f.host_blocks = f.modules = f.streams = f.events = f.graphs = f.contexts = 0;
  f.used = 0;
}

// All that the driver gave has been given back.
inline void expect_nothing_held() {
  EXPECT_EQ(fake().device_blocks, 0);
  EXPECT_EQ(fake().host_blocks, 0);
  EXPECT_EQ(fake().modules, 0);
  EXPECT_EQ(fake().streams, 0);
  EXPECT_EQ(fake().events, 0);
  EXPECT_EQ(fake().graphs, 0);
  EXPECT_EQ(fake().contexts, 0);
}

}  // namespace mcc::test
