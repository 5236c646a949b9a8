#include "runtime/thread_pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <new>

namespace mcc::runtime {

namespace {

// Spinning after the last region: long enough for the gap between two kernels or two back-to-back
// runs, short enough to cost nothing worth naming. Within a run a worker outlasts a serial kernel,
// since waking it costs about 50 us.
constexpr int64_t spin_between_runs_ns = 40'000;
constexpr int64_t spin_within_run_ns = 2'000'000;
constexpr int pauses_between_looks = 32;

// A share is two numbers in one word: so many units at most, of several items where there are more.
constexpr int64_t most_units = INT32_MAX;

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

int64_t now_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Threads share the 32 wake-up groups of a futex by index.
uint32_t group_bit(uint32_t index) { return uint32_t{1} << index % 32; }

// The low half of the word, which changes with every region. 65,536 regions could pass unseen
// between the look and the call; the worker would then sleep through one region, whose part another
// thread takes.
uint32_t* futex_word(std::atomic<uint64_t>* state) {
  static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
  static_assert(std::atomic<uint64_t>::is_always_lock_free &&
                sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));
  return reinterpret_cast<uint32_t*>(state);
}

void run_inline(mcc_executor*, mcc_task_fn task, void* context, int64_t count) {
  if (count > 0) task(context, 0, count, 0);
}

}  // namespace

mcc_executor make_inline_executor() {
  mcc_executor executor = {};
  executor.parallel_for = run_inline;
  executor.num_threads = 1;
  return executor;
}

int32_t available_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set)
                                                          : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  if (count < 1) count = 1;
  return count > MCC_MAX_THREADS ? MCC_MAX_THREADS : count;
}

mcc_status ThreadPool::start(int32_t threads, mcc_error* error) {
  if (!workers_.allocate(static_cast<uint64_t>(threads) - 1) ||
      !shares_memory_.reserve(static_cast<uint64_t>(threads) * sizeof(Share))) {
    return fail(error, MCC_OUT_OF_MEMORY, "out of memory");
  }
  shares_ = reinterpret_cast<Share*>(shares_memory_.data());
  for (int32_t i = 0; i < threads; ++i)
    new (&shares_[i]) Share{};
  executor_.parallel_for = parallel_for;
  executor_.num_threads = threads;
  executor_.user = this;

  // Signals are for the program's own threads.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  mcc_status status = MCC_OK;
  for (uint32_t i = 0; i + 1 < static_cast<uint32_t>(threads) && status == MCC_OK; ++i) {
    Worker& worker = workers_[i];
    worker.pool = this;
    worker.index = i + 1;
    worker.is_started = pthread_create(&worker.thread, nullptr, worker_main, &worker) == 0;
    if (!worker.is_started) {
      status = fail(error, MCC_OUT_OF_MEMORY, "cannot start thread %u of %d", i + 2, threads);
    }
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  return status;
}

ThreadPool::~ThreadPool() { stop(); }

void ThreadPool::stop() {
  is_stopping_.store(true, std::memory_order_relaxed);
  open_region(0);
  wake(MCC_MAX_THREADS);
  for (Worker& worker : workers_) {
    if (worker.is_started) pthread_join(worker.thread, nullptr);
  }
}

// Caller's side. ---------------------------------------------------------------------------------

void ThreadPool::parallel_for(mcc_executor* self, mcc_task_fn task, void* context, int64_t count) {
  auto* pool = static_cast<ThreadPool*>(self->user);
  if (count <= 1) {
    run_inline(self, task, context, count);
    return;
  }
  const uint32_t parts = static_cast<uint32_t>(count < self->num_threads ? count : self->num_threads);
  pool->task_ = task;
  pool->context_ = context;
  pool->count_ = count;
  pool->unit_ = (count - 1) / most_units + 1;
  const auto units = static_cast<uint32_t>((count - 1) / pool->unit_ + 1);
  pool->pending_.store(units, std::memory_order_relaxed);
  // The first `rest` shares have one unit more.
  const uint32_t each = units / parts, rest = units % parts;
  uint32_t first = 0;
  for (uint32_t p = 0; p < parts; ++p) {
    const uint32_t end = first + each + (p < rest ? 1 : 0);
    pool->shares_[p].range.store(uint64_t{first} << 32 | end, std::memory_order_release);
    first = end;
  }
  pool->open_region(parts);
  pool->wake(parts);
  pool->run_shares(0, parts);
  pool->wait_for_items();
}

void ThreadPool::open_region(uint32_t parts) {
  const uint64_t epoch = (state_.load(std::memory_order_relaxed) >> parts_bits) + 1;
  // Ordered before the look at sleepers_, as a sleeper counts itself before it looks at state_: one
  // sees the other.
  state_.store(epoch << parts_bits | parts, std::memory_order_seq_cst);
}

void ThreadPool::wake(uint32_t parts) {
  if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
  uint32_t groups = parts > 32 ? UINT32_MAX : 0;
  for (uint32_t i = 1; i < parts && i <= 32; ++i)
    groups |= group_bit(i);
  syscall(SYS_futex, futex_word(&state_), FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, nullptr, nullptr, groups);
}

void ThreadPool::wait_for_items() {
  // The last items are running on other threads. When there are more threads than CPUs, they need
  // this one.
  for (int spins = 0; pending_.load(std::memory_order_acquire) != 0; ++spins) {
    if (spins < 4096) {
      pause_cpu();
    } else {
      sched_yield();
    }
  }
}

// Both sides. ------------------------------------------------------------------------------------

// From the front of the thread's own share, from the back of others'.
ThreadPool::Range ThreadPool::take(uint32_t share, bool is_own) {
  std::atomic<uint64_t>& range = shares_[share].range;
  uint64_t seen = range.load(std::memory_order_relaxed);
  while (true) {
    const auto first = static_cast<uint32_t>(seen >> 32), end = static_cast<uint32_t>(seen);
    if (first == end) return {0, 0};
    // Most shares take equally long: what is left for others is little.
    const uint32_t count = is_own ? end - first - (end - first) / 4 : (end - first + 1) / 2;
    const uint64_t left =
        is_own ? uint64_t{first + count} << 32 | end : uint64_t{first} << 32 | (end - count);
    if (range.compare_exchange_weak(seen, left, std::memory_order_acquire, std::memory_order_relaxed))
      return is_own ? Range{first, first + count} : Range{end - count, end};
  }
}

void ThreadPool::run_items(Range range, uint32_t worker) {
  const int64_t end = range.end * unit_;
  task_(context_, range.first * unit_, end < count_ ? end : count_, static_cast<int32_t>(worker));
  pending_.fetch_sub(range.end - range.first, std::memory_order_release);
}

// The worker's own share, and what others have left.
void ThreadPool::run_shares(uint32_t worker, uint32_t parts) {
  for (uint32_t k = 0; k < parts; ++k) {
    const uint32_t share = (worker + k) % parts;
    while (true) {
      const Range range = take(share, k == 0);
      if (range.first == range.end) break;
      run_items(range, worker);
    }
  }
}

// Workers' side. ---------------------------------------------------------------------------------

void* ThreadPool::worker_main(void* argument) {
  auto* worker = static_cast<Worker*>(argument);
  worker->pool->work(worker->index);
  return nullptr;
}

void ThreadPool::work(uint32_t index) {
  uint64_t seen = 0;
  while (true) {
    seen = wait_for_region(seen, index);
    if (is_stopping_.load(std::memory_order_relaxed)) return;
    const uint32_t parts = seen & ((1u << parts_bits) - 1);
    if (index < parts) run_shares(index, parts);
  }
}

uint64_t ThreadPool::wait_for_region(uint64_t seen, uint32_t index) {
  int64_t idle_since = now_ns();
  int64_t run_over_since = idle_since;
  while (true) {
    for (int i = 0; i < pauses_between_looks; ++i) {
      const uint64_t state = state_.load(std::memory_order_acquire);
      if (state != seen) return state;
      pause_cpu();
    }
    const int64_t now = now_ns();
    if (is_running_.load(std::memory_order_relaxed)) run_over_since = now;
    if (now - run_over_since > spin_between_runs_ns || now - idle_since > spin_within_run_ns) {
      sleep(seen, index);
      idle_since = run_over_since = now_ns();
    }
  }
}

// Until state_ is not `seen` any more, or for no reason.
void ThreadPool::sleep(uint64_t seen, uint32_t index) {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  if (state_.load(std::memory_order_seq_cst) == seen) {
    syscall(SYS_futex, futex_word(&state_), FUTEX_WAIT_BITSET_PRIVATE, static_cast<uint32_t>(seen), nullptr,
            nullptr, group_bit(index));
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace mcc::runtime
