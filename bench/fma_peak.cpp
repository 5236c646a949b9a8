// What the machine's fused multiply-add units reach: fma_peak THREADS SECONDS prints {"gflops": ...} (f32).
//
// Every thread runs independent multiply-add chains in the widest vectors that the compiler's target has; enough chains
// to cover latency times issue width, few enough to stay in registers. Of each thread the best chunk counts, so that a
// moment in which something else ran on the core does not lower the figure.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <thread>
#include <vector>

namespace {

#if defined(__AVX512F__)
constexpr int lanes = 16;
#elif defined(__AVX__)
constexpr int lanes = 8;
#else
constexpr int lanes = 4;
#endif
constexpr int chains = 12;
constexpr int steps_per_chunk = 20'000;

typedef float Vector __attribute__((vector_size(lanes * sizeof(float))));
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// x := x * factor + offset converges to 1: no value overflows or becomes denormal.
void run_chunk(Vector (&state)[chains], Vector factor, Vector offset) {
  Vector x[chains];
  for (int i = 0; i < chains; ++i)
    x[i] = state[i];
  for (int step = 0; step < steps_per_chunk; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < chains; ++i)
      x[i] = x[i] * factor + offset;
  }
  for (int i = 0; i < chains; ++i)
    state[i] = x[i];
}

double best_gflops(double seconds, volatile float* sink) {
  Vector state[chains] = {};
  Vector factor = {}, offset = {};
  for (int lane = 0; lane < lanes; ++lane) {
    factor[lane] = 0.5f;
    offset[lane] = 0.5f;
  }
  constexpr double chunk_gflop = 2e-9 * lanes * chains * steps_per_chunk;
  double best = 0;
  const Clock::time_point start = Clock::now();
  while (seconds_since(start) < seconds) {
    const Clock::time_point chunk_start = Clock::now();
    run_chunk(state, factor, offset);
    best = std::max(best, chunk_gflop / seconds_since(chunk_start));
  }
  for (const Vector& vector : state)
    *sink = *sink + vector[0];
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  const int thread_count = argc > 1 ? std::atoi(argv[1]) : 1;
  const double seconds = argc > 2 ? std::atof(argv[2]) : 0.2;
  if (thread_count < 1 || seconds <= 0) {
    std::fprintf(stderr, "usage: fma_peak THREADS SECONDS\n");
    return 2;
  }
  std::vector<double> gflops(static_cast<size_t>(thread_count));
  std::vector<std::thread> threads;
  for (double& result : gflops) {
    threads.emplace_back([&result, seconds] {
      volatile float sink = 0;
      result = best_gflops(seconds, &sink);
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  std::printf("{\"gflops\": %.1f}\n", std::accumulate(gflops.begin(), gflops.end(), 0.0));
}
