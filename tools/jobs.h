// The option --jobs: how much is worked on at once.
#pragma once

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <algorithm>
#include <cstddef>
#include <thread>

namespace mcc::tools {

// body(0) to body(count - 1), on `jobs` threads, also where there are fewer processors; 0: one for each of these.
template <class Body>
void run_jobs(size_t count, int jobs, const Body& body) {
  const int processors = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  if (jobs <= 0) jobs = processors;
  const oneapi::tbb::global_control limit(oneapi::tbb::global_control::max_allowed_parallelism,
                                          static_cast<size_t>(std::max(jobs, processors)));
  oneapi::tbb::task_arena arena(jobs);
  arena.execute([&] { oneapi::tbb::parallel_for(size_t{0}, count, body); });
}

}  // namespace mcc::tools
