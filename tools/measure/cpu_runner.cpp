#include <sys/resource.h>

#include <chrono>

#include "tools/measure/runner.h"

namespace mcc::tools {

namespace {

using Clock = std::chrono::steady_clock;
using tuner::TrialError;

// Of the calibration kernel, at some 20 us.
constexpr int kCalibrationRuns = 60;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// How often this thread had to give way to another.
int64_t times_preempted() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

class CpuRunner : public KernelRunner {
 public:
  CpuRunner(const tuner::MeasureOptions& options, MeasuredTask& task)
      : options_(options),
        task_(task),
        inline_executor_(runtime::make_inline_executor()),
        executor_(&inline_executor_) {}

  Status start() override {
    if (options_.threads == 1) return done();
    mcc_error error;
    if (pool_.start(options_.threads, &error) != MCC_OK)
      return Diagnostic{ErrorKind::environment, "", error.message, ""};
    executor_ = pool_.executor();
    return done();
  }

  bool needs_one_processor() const override { return options_.threads == 1; }
  bool needs_all_built() const override { return options_.threads > 1; }

  RunOutcome run(BuiltKernel& built) override {
    Result<void* const*> buffers = task_.arguments(built.memory, options_.threads, built.orders);
    if (!buffers.ok()) return {0, TrialError::rejected, to_text(buffers.errors())};
    task_.poison_outputs();
    const Clock::time_point start = Clock::now();
    const int32_t status = built.kernel->function(*buffers, task_.sizes().data(), executor_);
    const double us = seconds_since(start) * 1e6;
    if (status != 0) return {0, TrialError::crash, text("the kernel returned ", status)};
    return {us, TrialError::none, ""};
  }

  RunOutcome fetch_outputs() override { return {}; }

  RunOutcome time(BuiltKernel& built, int64_t runs, bool is_next, RunBlock& block) override {
    const Clock::time_point begin = Clock::now();
    void* const* buffers = *task_.arguments(built.memory, options_.threads, built.orders);
    const auto function = built.kernel->function;
    const int64_t* sizes = task_.sizes().data();
    const bool is_pooled = executor_ != &inline_executor_;
    const int64_t preempted = times_preempted();
    double seconds = 0;
    if (is_pooled) pool_.begin_run();
    if (options_.is_cold) {
      for (int64_t run = 0; run < runs; ++run) {
        task_.flush_caches();
        const Clock::time_point start = Clock::now();
        function(buffers, sizes, executor_);
        seconds += seconds_since(start);
      }
    } else {
      if (!is_next) function(buffers, sizes, executor_);  // its data back into the caches
      const Clock::time_point start = Clock::now();
      for (int64_t run = 0; run < runs; ++run)
        function(buffers, sizes, executor_);
      seconds = seconds_since(start);
    }
    if (is_pooled) pool_.end_run();
    block.is_disturbed = times_preempted() != preempted;
    block.us = seconds * 1e6 / static_cast<double>(runs);
    block.wall_us = seconds_since(begin) * 1e6;
    return {};
  }

  Calibration calibrate() override { return tools::calibrate(kCalibrationRuns); }

 private:
  const tuner::MeasureOptions& options_;
  MeasuredTask& task_;
  runtime::ThreadPool pool_;
  mcc_executor inline_executor_;
  mcc_executor* executor_;
};

}  // namespace

std::unique_ptr<KernelRunner> make_cpu_runner(const tuner::MeasureOptions& options, MeasuredTask& task) {
  return std::make_unique<CpuRunner>(options, task);
}

}  // namespace mcc::tools
