// What a trial of the tuner costs, everything included: matrix products of 128^3, 512^3 and 1024^3 with random schedules,
// through the measuring process, in batches as the tuner sends them.
//   trial_bench MCC [TRIALS [THREADS [N]...]]     MCC: the program whose measure-worker is used
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>

#include "codegen/codegen.h"
#include "tensor/build.h"
#include "tensor/text.h"
#include "tools/measure/build.h"
#include "tools/measure/worker_measurer.h"
#include "tuner/space.h"

namespace {

using Clock = std::chrono::steady_clock;
using namespace mcc;

constexpr size_t kBatch = 16;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// y[i, j] = sum over k of x[i, k] * w[j / 32, k, j % 32]: the weights packed, as the graph passes pack them.
tuner::Task matmul(int64_t n) {
  using namespace tensor;
  constexpr ElementType f32 = ElementType::f32;
  FuncBuilder b("matmul");
  Buffer x = b.input("x", f32, {n, n});
  Buffer w = b.input("w", f32, {n / 32, n, 32});
  Buffer y = b.reduce("matmul", f32, {n, n}, {n}, Reducer::sum, [&](Axes s, Axes r) {
    return load(x, {s[0], r[0]}) * load(w, {floor_div(s[1], 32), r[0], floor_mod(s[1], 32)});
  });
  tuner::Task task;
  task.name = text("matmul ", n);
  task.func = b.finish({y});
  task.text = to_text(task.func);
  task.work = tensor::work_of(task.func);
  return task;
}

struct Parts {
  double plan = 0, replay = 0, lower = 0, hash = 0, emit = 0, load = 0;
  int built = 0;
};

void print(const char* name, double seconds, int count) {
  std::printf("  %-22s %7.2f ms\n", name, seconds * 1e3 / std::max(count, 1));
}

// The parts of building, on this thread.
Parts build_parts(const tuner::Task& task, const tensor::Target& target,
                  const std::vector<tuner::Candidate>& candidates) {
  Result<std::unique_ptr<codegen::Jit>> jit = codegen::Jit::create(target);
  const codegen::EmitOptions emit;
  const tools::BuildContext context{task.func, target, emit, **jit};
  Parts parts;
  for (const tuner::Candidate& candidate : candidates) {
    tools::BuiltKernel built = tools::build_candidate(context, to_text(candidate.trace));
    parts.replay += built.replay;
    parts.lower += built.lower;
    parts.hash += built.hash;
    parts.emit += built.emit;
    parts.load += built.load;
    ++parts.built;
  }
  return parts;
}

int run(const std::string& mcc, int64_t n, int trials, int threads) {
  Result<tensor::Target> target = codegen::make_target("cpu");
  const tuner::Task task = matmul(n);
  tuner::Space space(task.func, *target, tuner::all_sketches());
  const Clock::time_point planning = Clock::now();
  std::vector<tuner::Candidate> candidates;
  std::set<std::string> seen;
  int sampled = 0;
  for (; static_cast<int>(candidates.size()) < trials && sampled < 20 * trials; ++sampled) {
    const tuner::Sketch& sketch = *space.sketches()[static_cast<size_t>(sampled) % space.sketches().size()];
    tuner::Planned planned = space.sample(sketch, tuner::Random(1, 0, static_cast<uint64_t>(sampled)));
    if (planned.ok() && seen.insert(to_text(planned.candidate.trace)).second)
      candidates.push_back(std::move(planned.candidate));
  }
  const double plan_seconds = seconds_since(planning);
  const auto count = static_cast<int>(candidates.size());

  tools::WorkerOptions options;
  options.command = {mcc, "measure-worker"};
  tools::WorkerMeasurer measurer(options);
  tuner::MeasureOptions measure;
  measure.threads = threads;
  double run_seconds = 0, build_seconds = 0, noise = 0;
  std::map<std::string, int> kinds;
  const Clock::time_point start = Clock::now();
  for (size_t at = 0; at < candidates.size(); at += kBatch) {
    const auto batch = std::span(candidates).subspan(at, std::min(kBatch, candidates.size() - at));
    Result<std::vector<tuner::Measurement>> measured = measurer.measure(task, batch, measure);
    if (!measured.ok()) {
      std::fprintf(stderr, "%s\n", to_text(measured.errors()).c_str());
      return 1;
    }
    for (const tuner::Measurement& m : *measured) {
      ++kinds[m.ok() ? (m.is_censored ? "censored" : "timed") : std::string(to_text(m.error))];
      run_seconds += m.run_seconds;
      build_seconds += m.build_seconds;
      noise = std::max(noise, m.noise);
      if (m.ok() && !m.is_censored && (measure.incumbent_us <= 0 || m.best_us() < measure.incumbent_us))
        measure.incumbent_us = m.best_us();
    }
  }
  const double wall = seconds_since(start);
  const double gflops = 2.0 * static_cast<double>(n * n * n) / measure.incumbent_us * 1e-3;
  std::printf("matmul %ld^3, %d threads: %d trials, %.1f ms each, best %.1f us = %.1f GFLOP/s\n", n, threads,
              count, wall * 1e3 / count, measure.incumbent_us, gflops);
  for (const auto& [kind, number] : kinds)
    std::printf("  %-22s %4d\n", kind.c_str(), number);
  print("plan (a sample)", plan_seconds, sampled);
  print("build, beside", build_seconds, count);
  print("run, check, time", run_seconds, count);
  const size_t some = std::min<size_t>(candidates.size(), 48);
  candidates.resize(some);
  const Parts parts = build_parts(task, *target, candidates);
  print("of building: replay", parts.replay, parts.built);
  print("  lower", parts.lower, parts.built);
  print("  print and hash", parts.hash, parts.built);
  print("  LLVM", parts.emit, parts.built);
  print("  load", parts.load, parts.built);
  std::printf("  noise %.1f %%, workers %d\n", noise * 100, measurer.workers_started());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: trial_bench MCC [TRIALS [THREADS [N]...]]\n");
    return 2;
  }
  const int trials = argc > 2 ? std::atoi(argv[2]) : 64;
  const int threads = argc > 3 ? std::atoi(argv[3]) : 1;
  std::vector<int64_t> sizes;
  for (int i = 4; i < argc; ++i)
    sizes.push_back(std::atoll(argv[i]));
  if (sizes.empty()) sizes = {128, 512, 1024};
  for (int64_t n : sizes) {
    if (int code = run(argv[1], n, trials, threads); code != 0) return code;
  }
  return 0;
}
