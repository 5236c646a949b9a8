// The stand-in driver's state (fake_cuda.h), and what its parts share. Internal to it.
#pragma once

#include <sys/types.h>

#include <deque>
#include <memory>
#include <set>
#include <thread>

#include "fake_cuda/fake_cuda.h"
#include "fake_cuda/ptx.h"
#include "mcc/cuda_driver.h"

// Work that a GPU has not done yet.
using Work = std::function<void()>;

struct mcc_cu_module_s {
  std::string image;
  std::shared_ptr<const mcc::test::PtxModule> ptx;
  mcc_cu_context context = nullptr;
};
struct mcc_cu_function_s {
  std::string entry;
  std::shared_ptr<const mcc::test::PtxModule> ptx;
  mcc_cu_context context = nullptr;
  unsigned dynamic_shared = 48 << 10;  // that a launch may ask for
};
struct mcc_cu_graph_s {
  std::vector<Work> work;
};
struct mcc_cu_graph_exec_s {
  std::vector<Work> work;
};
struct mcc_cu_stream_s {
  mcc_cu_context context = nullptr;
  std::deque<Work> queue;
  bool is_capturing = false, is_capture_broken = false;
  int capture_mode = MCC_CU_CAPTURE_GLOBAL;
  std::thread::id capturer;
  bool is_behind_kernel = false;  // what was queued last is a launch
  std::vector<Work> captured;
};
struct mcc_cu_event_s {
  mcc_cu_context context = nullptr;
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
  pid_t process = 0;  // that has called cuInit
  mcc_cu_context_s primary[8];
  std::vector<std::unique_ptr<mcc_cu_function_s>> functions;
  std::set<mcc_cu_stream> streams;
  std::set<const void*> others;  // modules, events and graphs that have not been given back
  void* kernels = nullptr;    // FAKE_CUDA_KERNELS
  std::string launch_action;  // FAKE_CUDA_LAUNCH
  std::string count_file;     // FAKE_CUDA_COUNT
  std::string exclusive;      // FAKE_CUDA_EXCLUSIVE
  int lock = -1;              // that file, while this process has a context
  float clock = 0;

  // The allocation in which the address lies; null for the host's own memory.
  const Block* block_of(uint64_t address) const;
};

FakeDriver& driver();

// What this thread has of a driver.
struct FakeThread {
  std::vector<mcc_cu_context> contexts;  // the current one last
  int capture_mode = MCC_CU_CAPTURE_GLOBAL;
};
FakeThread& this_thread();

// What the call returns if a test wants it to fail, or no call is good any more; recorded.
int called(const char* name, const std::string& more = "");
int failure_of(const char* name);
// Before cuInit, in a child of the process that called it, and after the driver's end there is no driver.
int refuse_without_driver();
int refuse_without_context();
// Whether the bytes lie in one allocation of the device.
bool is_device(uint64_t address, size_t bytes);
// Bytes of shared memory that a block may ask for.
int most_shared(int sm);

// What is given out, and what comes back: an error for what has not been given.
template <class T>
T* give(T* made) {
  driver().others.insert(made);
  return made;
}
template <class T>
int take_back(T* given) {
  if (driver().others.erase(given) == 0) return MCC_CU_INVALID_HANDLE;
  delete given;
  return MCC_CU_SUCCESS;
}

// Queued until the stream is waited for, or recorded where it is being captured.
int enqueue(mcc_cu_stream stream, Work work);
// Does what is queued: on one stream, or on all.
void finish(mcc_cu_stream stream);
void finish_all();
// What calls that wait, allocate or give back are ("potentially unsafe"): while this thread captures a stream, or another one does so
// globally, they break that capture and are refused, as the modes of the capture and of the thread have it.
int refuse_in_capture();

}  // namespace mcc::test

#define FAKE(name) extern "C" __attribute__((visibility("default"))) mcc_cu_result name
#define CALLED(name)                                    \
  if (int code = mcc::test::called(#name)) return code; \
  static_assert(true)
#define NEEDS_DRIVER                                                    \
  if (int refused = mcc::test::refuse_without_driver()) return refused; \
  static_assert(true)
#define NEEDS_CONTEXT                                                    \
  if (int refused = mcc::test::refuse_without_context()) return refused; \
  static_assert(true)
#define IS_UNSAFE_IN_CAPTURES                                       \
  if (int refused = mcc::test::refuse_in_capture()) return refused; \
  static_assert(true)
