#include <immintrin.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <sstream>

#include "codegen/codegen.h"
#include "mcc/mcc.h"
#include "nlohmann/json.hpp"
#include "tools/commands.h"
#include "tools/console.h"

namespace mcc::tools {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Floating-point operations of one call of a peak loop: independent multiply-adds, enough to hide their latency.
constexpr int kChains = 12;
constexpr int kRounds = 20000;

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

struct Peak {
  double gflops = 0;
  double noise = 0;  // how much longer the median takes than the fastest
};

// Many short runs of the same work: their best is the machine's speed, their spread what else goes on in it.
Peak measure_peak() {
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
  for (int i = 0; i < 300; ++i) {
    const Clock::time_point start = Clock::now();
    loop(out);
    times.push_back(seconds_since(start));
  }
  std::sort(times.begin(), times.end());
  const double operations = 2.0 * kChains * kRounds * lanes;
  return {operations / times.front() * 1e-9, times[times.size() / 2] / times.front() - 1};
}

std::vector<std::string> supported_features(const std::string& features) {
  static constexpr std::string_view kNames[] = {
#define MCC_NAME(name) name,
      MCC_CPU_FEATURES(MCC_NAME)
#undef MCC_NAME
  };
  std::vector<std::string> found;
  std::stringstream list(features);
  for (std::string item; std::getline(list, item, ',');)
    if (std::find(std::begin(kNames), std::end(kNames), item.substr(1)) != std::end(kNames))
      found.push_back(item.substr(1));
  return found;
}

int run(bool json) {
  Result<tensor::Target> target = codegen::make_target("cpu");
  if (!target.ok()) return report_errors(target.errors(), json);
  const Peak peak = measure_peak();
  const std::vector<std::string> features = supported_features(target->features);
  const bool noisy = peak.noise > 0.05;
  if (json) {
    print_json({{"cpu", target->cpu},
                {"cores", target->cores},
                {"vector_bits", target->vector_bits},
                {"features", features},
                {"l1_bytes", target->l1.bytes},
                {"l2_bytes", target->l2.bytes},
                {"l3_bytes", target->l3.bytes},
                {"fma_peak_gflops", peak.gflops},
                {"noise", peak.noise},
                {"gpu", nullptr}});
    return 0;
  }
  std::puts(text("cpu       ", target->cpu, ", ", target->cores, " cores, vectors of ", target->vector_bits,
                 " bits")
                .c_str());
  std::puts(text("features  ", join(features, " ")).c_str());
  std::puts(text("caches    L1 ", target->l1.bytes >> 10, " KiB, L2 ", target->l2.bytes >> 10, " KiB, L3 ",
                 target->l3.bytes >> 10, " KiB")
                .c_str());
  std::puts(text("FMA peak  ", fixed(peak.gflops, 1), " GFLOP/s on one core").c_str());
  std::puts(text("noise     ", fixed(100 * peak.noise, 1), "%",
                 noisy ? ": something else is running, measurements here are not to be trusted" : "")
                .c_str());
  return 0;
}

}  // namespace

void add_doctor(CLI::App& app, int* exit_code) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("doctor", "Show what this machine has, and how fast and how quiet it is");
  command->add_flag("--json", *json, "Report on stdout as JSON");
  command->callback([json, exit_code] { *exit_code = run(*json); });
}

}  // namespace mcc::tools
