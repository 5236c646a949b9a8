#include "runtime/thread_pool.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <random>

#include "runtime/test_model.h"

namespace mcc::test {
namespace {

using runtime::ThreadPool;

// Counts how often each item is done, and catches two calls with one worker number at the same time.
struct Count {
  std::vector<std::atomic<int>> items;
  std::vector<std::atomic<bool>> busy;
  std::atomic<bool> has_clash{false};
  Count(int64_t count, int32_t threads)
      : items(static_cast<size_t>(count)), busy(static_cast<size_t>(threads)) {}
};

void count_items(void* context, int64_t begin, int64_t end, int32_t worker) {
  auto& count = *static_cast<Count*>(context);
  if (count.busy[static_cast<size_t>(worker)].exchange(true)) count.has_clash = true;
  for (int64_t i = begin; i < end; ++i)
    ++count.items[static_cast<size_t>(i)];
  count.busy[static_cast<size_t>(worker)] = false;
}

void check_region(mcc_executor* executor, int64_t items) {
  Count count(items, executor->num_threads);
  executor->parallel_for(executor, count_items, &count, items);
  for (const auto& item : count.items)
    ASSERT_EQ(item, 1);
  ASSERT_FALSE(count.has_clash);
}

TEST(ThreadPool, DoesEveryItemOnce) {
  std::mt19937 random(1);
  for (int32_t threads : {2, 3, 4, 9, 40}) {
    ThreadPool pool;
    ASSERT_EQ(pool.start(threads, nullptr), MCC_OK);
    for (int64_t items = 0; items < 90; ++items)
      check_region(pool.executor(), items);
    for (int i = 0; i < 2000; ++i)
      check_region(pool.executor(), static_cast<int64_t>(random() % 12));
  }
}

// The first item lasts until the last one of the same share is done, by another thread.
TEST(ThreadPool, TakesWhatOthersHaveLeft) {
  ThreadPool pool;
  ASSERT_EQ(pool.start(2, nullptr), MCC_OK);
  for (int i = 0; i < 100; ++i) {
    std::atomic<bool> is_done{false};
    pool.executor()->parallel_for(
        pool.executor(),
        [](void* context, int64_t begin, int64_t end, int32_t) {
          auto& done = *static_cast<std::atomic<bool>*>(context);
          for (int64_t item = begin; item < end; ++item) {
            if (item == 3) done = true;
            while (item == 0 && !done)
              usleep(10);
          }
        },
        &is_done, 8);
  }
}

TEST(ThreadPool, WakesUpAfterSleep) {
  ThreadPool pool;
  ASSERT_EQ(pool.start(4, nullptr), MCC_OK);
  for (int i = 0; i < 50; ++i) {
    check_region(pool.executor(), 16);
    usleep(i % 5 * 100);
  }
}

TEST(ThreadPool, SpinsInARunAndSleepsAfterIt) {
  ThreadPool pool;
  ASSERT_EQ(pool.start(3, nullptr), MCC_OK);
  for (int i = 0; i < 20; ++i) {
    pool.begin_run();
    for (int k = 0; k < 5; ++k)
      check_region(pool.executor(), 7);
    pool.end_run();
  }
  // Idle workers take no CPU time: far less than the half second that each would burn.
  usleep(20'000);
  const std::clock_t before = std::clock();
  usleep(500'000);
  EXPECT_LT(static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC, 0.1);
}

TEST(ThreadPool, StartsAndStopsWithoutWork) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool;
    ASSERT_EQ(pool.start(1 + i % 7 + 1, nullptr), MCC_OK);
  }
}

// A kernel that uses per-thread scratch: y = x + 1 by way of the worker's slice.
struct ScratchContext {
  const float* x;
  float* scratch;
  float* y;
};

int32_t increment_through_scratch(void* const* buffers, const int64_t* dims, mcc_executor* executor) {
  ScratchContext context = {static_cast<const float*>(buffers[0]), static_cast<float*>(buffers[1]),
                            static_cast<float*>(buffers[2])};
  executor->parallel_for(
      executor,
      [](void* argument, int64_t begin, int64_t end, int32_t worker) {
        const auto& c = *static_cast<ScratchContext*>(argument);
        float* mine = c.scratch + worker * 16;
        for (int64_t i = begin; i < end; ++i) {
          std::fill(mine, mine + 16, c.x[i]);
          c.y[i] = mine[15] + 1;
        }
      },
      &context, dims[0]);
  return 0;
}

void make_parallel(TestModel& model, int64_t items) {
  const uint32_t x = model.add_input("x", {items});
  const uint32_t y = model.add_output("y", {items});
  const uint32_t scratch = model.add_value({"scratch", MCC_DTYPE_f32, {16}, MCC_STORAGE_scratch, 0, 0});
  model.plan.scratch_per_thread = 64;
  model.add_kernel("increment", increment_through_scratch, {x, scratch, y}, {items}).output_count = 2;
}

TEST(Threads, SessionsRunKernelsInParallel) {
  TestModel description;
  make_parallel(description, 1000);
  const Model model(description.image());
  std::vector<float> x(1000, 4), y(1000);
  for (int threads : {1, 2, 5, 0}) {
    Session session(model, {.threads = threads});
    if (threads != 0) {
      EXPECT_EQ(session.threads(), threads);
    }
    session.set_input(0, x.data(), {1000});
    session.set_output(0, y.data(), {1000});
    for (int i = 0; i < 20; ++i) {
      std::fill(y.begin(), y.end(), 0.0f);
      session.run();
      ASSERT_EQ(y, std::vector<float>(1000, 5));
    }
  }
}

// The caller's executor: backwards, in single items, with alternating worker numbers.
struct CallersExecutor {
  mcc_executor base = {};
  int regions = 0;
};

void run_backwards(mcc_executor* self, mcc_task_fn task, void* context, int64_t count) {
  ++static_cast<CallersExecutor*>(self->user)->regions;
  for (int64_t i = count; i-- > 0;)
    task(context, i, i + 1, static_cast<int32_t>(i % 3));
}

TEST(Threads, UseTheCallersExecutor) {
  TestModel description;
  make_parallel(description, 10);
  const Model model(description.image());
  CallersExecutor executor;
  executor.base.parallel_for = run_backwards;
  executor.base.num_threads = 3;
  executor.base.user = &executor;
  Session session(model, {.executor = &executor.base});
  EXPECT_EQ(session.threads(), 3);
  const std::vector<float> x(10, 1);
  session.set_input(0, x.data(), {10});
  session.run();
  EXPECT_EQ(executor.regions, 1);
  EXPECT_EQ(floats(session.output(0)), std::vector<float>(10, 2));
}

}  // namespace
}  // namespace mcc::test
