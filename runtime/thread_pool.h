// The session's own threads: fork-join with static parts, workers that spin while a run is on and
// sleep between runs.
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
  // A region has `parts` parts; part p belongs to thread p (the caller is 0), and any thread that
  // finishes early may take a part that its owner, still asleep, has not claimed. state_ publishes
  // a region: its epoch and its number of parts in one word, so that a late worker never mixes two
  // regions. Part p of epoch e is claimed by raising claims_[p] to e; as all parts of e are done
  // before e + 1 begins, a claim that succeeds proves that e is current, and only then are the
  // fields of the region read.
  static constexpr int parts_bits = 16;
  struct alignas(64) Claim {
    std::atomic<uint64_t> epoch;
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
  bool claim(uint32_t part, uint64_t epoch);
  void run_part(uint32_t part, uint32_t parts);
  void help(uint32_t first, uint32_t parts, uint64_t epoch);
  void wait_for_parts();
  void wake(uint32_t parts);
  void stop();

  alignas(64) std::atomic<uint64_t> state_{0};  // epoch << parts_bits | parts
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> is_running_{false};
  std::atomic<bool> is_stopping_{false};
  // The region; written only while no part of an earlier one is left.
  mcc_task_fn task_ = nullptr;
  void* context_ = nullptr;
  int64_t count_ = 0;
  alignas(64) std::atomic<uint32_t> pending_{0};  // parts not done, but for the caller's own
  alignas(64) Array<Worker> workers_;
  Claim* claims_ = nullptr;
  Block claims_memory_;
  mcc_executor executor_ = {};
};

}  // namespace mcc::runtime
