// The session's own threads: fork-join with equal shares of which threads that are done take from others, workers that spin while
// a run is on and sleep between runs.
#pragma once

#include <pthread.h>

#include <atomic>

#include "runtime/base.h"

namespace mcc::runtime {

// An executor without threads.
mcc_executor make_inline_executor();

// CPUs that this process may run on, at least 1.
int32_t available_cpus();

class ThreadPool {
 public:
  ThreadPool() = default;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  // Starts threads - 1 workers. Called once, threads in [2, MCC_MAX_THREADS].
  mcc_status start(int32_t threads, mcc_error* error);

  mcc_executor* executor() { return &executor_; }

  // Between these two, idle workers spin longer before they sleep: the next region is near.
  void begin_run() { is_running_.store(true, std::memory_order_relaxed); }
  void end_run() { is_running_.store(false, std::memory_order_relaxed); }

 private:
  // A region's items are dealt out in shares, that of thread t (the caller is 0) being what it most likely did in the last region, too. A
  // thread takes items from the front of its own share, three quarters of what is left each time, and then from the back of others',
  // half of what is left, whose owners may be asleep or have more to do. state_ publishes a region: its epoch and its number of shares in one word.
  //
  // All items of a region are done before the next one begins, so items that a thread has taken, by changing a share, are of the
  // region that is current: only then are the fields of the region read, which were written before the shares. A late worker
  // that has looked at a share of an earlier region and takes the same items of this one does what is to be done.
  static constexpr int parts_bits = 16;
  struct alignas(64) Share {
    std::atomic<uint64_t> range;  // first << 32 | end, in units
  };
  // In units; empty where first is end.
  struct Range {
    uint32_t first, end;
  };
  struct Worker {
    ThreadPool* pool;
    pthread_t thread;
    uint32_t index;
    bool is_started;
  };

  static void parallel_for(mcc_executor* self, mcc_task_fn task, void* context, int64_t count);
  static void* worker_main(void* worker);
  void open_region(uint32_t parts);
  void work(uint32_t index);
  uint64_t wait_for_region(uint64_t seen, uint32_t index);
  void sleep(uint64_t seen, uint32_t index);
  Range take(uint32_t share, bool is_own);
  void run_items(Range range, uint32_t worker);
  void run_shares(uint32_t worker, uint32_t parts);
  void wait_for_items();
  void wake(uint32_t parts);
  void stop();

  alignas(64) std::atomic<uint64_t> state_{0};  // epoch << parts_bits | shares
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> is_running_{false};
  std::atomic<bool> is_stopping_{false};
  // The region; written only while nothing of an earlier one is left.
  mcc_task_fn task_ = nullptr;
  void* context_ = nullptr;
  int64_t count_ = 0, unit_ = 1;                  // items; of a unit
  alignas(64) std::atomic<uint32_t> pending_{0};  // units not done
  alignas(64) Array<Worker> workers_;
  Share* shares_ = nullptr;
  Block shares_memory_;
  mcc_executor executor_ = {};
};

}  // namespace mcc::runtime
