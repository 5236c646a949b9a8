// The stand-in driver's state (fake_cuda.h), and what its parts share. Internal to it.
#pragma once

#include <deque>
#include <memory>
#include <set>

#include "fake_cuda/fake_cuda.h"
#include "fake_cuda/ptx.h"
#include "mcc/cuda_driver.h"

// Work that a GPU has not done yet.
using Work = std::function<void()>;

struct mcc_cu_module_s {
  std::string image;
  std::shared_ptr<const mcc::test::PtxModule> ptx;
};
struct mcc_cu_function_s {
  std::string entry;
  std::shared_ptr<const mcc::test::PtxModule> ptx;
  unsigned dynamic_shared = 48 << 10;  // that a launch may ask for
};
struct mcc_cu_graph_s {
  std::vector<Work> work;
};
struct mcc_cu_graph_exec_s {
  std::vector<Work> work;
};
struct mcc_cu_stream_s {
  std::deque<Work> queue;
  bool is_capturing = false, is_capture_broken = false;
  bool is_behind_kernel = false;  // what was queued last is a launch
  std::vector<Work> captured;
};
struct mcc_cu_event_s {
  struct Record {
    bool is_there = false;
    float at = 0;
  };
  std::shared_ptr<Record> last;  // null: never recorded
};
struct mcc_cu_context_s {
  int device = 0;
};

namespace mcc::test {

struct FakeDriver {
  struct Block {
    size_t bytes = 0;
    bool is_device = false;
    int device = 0;
  };

  FakeDriver();

  FakeCuda state;
  std::map<uintptr_t, Block> blocks;
  std::vector<mcc_cu_context> current;
  mcc_cu_context_s primary[8];
  std::vector<std::unique_ptr<mcc_cu_function_s>> functions;
  std::set<mcc_cu_stream> streams;
  void* kernels = nullptr;    // FAKE_CUDA_KERNELS
  std::string launch_action;  // FAKE_CUDA_LAUNCH
  std::string count_file;     // FAKE_CUDA_COUNT
  float clock = 0;

  bool has_context() const { return !current.empty(); }
  // The allocation in which the address lies; null for the host's own memory.
  const Block* block_of(uint64_t address) const;
};

FakeDriver& driver();

// What the call returns if a test wants it to fail; recorded.
int called(const char* name, const std::string& more = "");
// Whether the bytes lie in one allocation of the device.
bool is_device(uint64_t address, size_t bytes);
// Bytes of shared memory that a block may ask for.
int most_shared(int sm);

// Queued until the stream is waited for, or recorded where it is being captured.
int enqueue(mcc_cu_stream stream, Work work);
// Does what is queued: on one stream, or on all.
void finish(mcc_cu_stream stream);
void finish_all();
// As most calls that wait or allocate do while this thread captures: the capture is broken, and the code says so.
int refuse_in_capture();

}  // namespace mcc::test

#define FAKE(name) extern "C" __attribute__((visibility("default"))) mcc_cu_result name
#define CALLED(name)                                    \
  if (int code = mcc::test::called(#name)) return code; \
  static_assert(true)
#define NEEDS_CONTEXT                                                    \
  if (!mcc::test::driver().has_context()) return MCC_CU_INVALID_CONTEXT; \
  static_assert(true)
