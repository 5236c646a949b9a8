#include "tools/measure/calibrate.h"

#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

namespace mcc::tools {

namespace {

using Clock = std::chrono::steady_clock;

// One run: independent multiply-adds, enough of them to hide their latency.
constexpr int kChains = 12;
constexpr int kRounds = 5000;

// The result is written so that the work cannot be left out.
#define MCC_PEAK_LOOP(function, isa, vector, set1, fma, store)                               \
  __attribute__((target(isa))) void function(float* out) {                                   \
    vector sum[kChains], a = set1(0.999f), b = set1(1e-3f);                                  \
    for (int i = 0; i < kChains; ++i)                                                        \
      sum[i] = set1(0.1f * static_cast<float>(i));                                           \
    for (int round = 0; round < kRounds; ++round) {                                          \
      _Pragma("GCC unroll 12") for (int i = 0; i < kChains; ++i) sum[i] = fma(sum[i], a, b); \
    }                                                                                        \
    for (int i = 0; i < kChains; ++i)                                                        \
      store(out + 16 * i, sum[i]);                                                           \
  }

MCC_PEAK_LOOP(peak_avx512, "avx512f", __m512, _mm512_set1_ps, _mm512_fmadd_ps, _mm512_storeu_ps)
MCC_PEAK_LOOP(peak_avx2, "avx2,fma", __m256, _mm256_set1_ps, _mm256_fmadd_ps, _mm256_storeu_ps)
#undef MCC_PEAK_LOOP

}  // namespace

Calibration calibrate(int runs) {
  void (*loop)(float*) = nullptr;
  int lanes = 0;
  if (__builtin_cpu_supports("avx512f")) {
    loop = peak_avx512;
    lanes = 16;
  } else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    loop = peak_avx2;
    lanes = 8;
  } else {
    return {};
  }
  alignas(64) float out[16 * kChains];
  std::vector<double> times;
  for (int i = 0; i < std::max(runs, 1); ++i) {
    const Clock::time_point start = Clock::now();
    loop(out);
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  const double operations = 2.0 * kChains * kRounds * lanes;
  return {operations / times.front() * 1e-9, times.front() * 1e6,
          times[times.size() / 2] / times.front() - 1};
}

double noise_between(const Calibration& before, const Calibration& after) {
  if (before.best_us <= 0 || after.best_us <= 0) return 0;
  const double drift = std::fabs(after.best_us / before.best_us - 1);
  return std::max({before.noise, after.noise, drift});
}

}  // namespace mcc::tools
