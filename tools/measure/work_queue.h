// Processors that threads run on, and work for them that is done in the order in which it is added.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace mcc::tools {

// Those that this thread may run on.
std::vector<int> allowed_cpus();
// This thread, from now on. Not being allowed to costs precision only.
void run_on(const std::vector<int>& cpus);

class WorkQueue {
 public:
  // With 0 threads nothing that is added is ever done.
  WorkQueue(size_t threads, const std::vector<int>& cpus);
  // What has not been begun is left undone.
  ~WorkQueue();
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // `work` throws nothing.
  void add(std::function<void()> work);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool is_over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mcc::tools
