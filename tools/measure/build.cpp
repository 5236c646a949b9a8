#include "tools/measure/build.h"

#include <ctime>
#include <utility>

#include "codegen/hash.h"
#include "tensor/passes/lower.h"
#include "tensor/text.h"

namespace mcc::tools {

namespace {

// Of the processor, not of the clock: what else runs on the machine does not count.
class Stopwatch {
 public:
  // Seconds since the last call.
  double lap() {
    const double time = now();
    return time - std::exchange(last_, time);
  }

 private:
  static double now() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
  }
  double last_ = now();
};

void fail(BuiltKernel& built, tuner::TrialError error, std::string message) {
  built.error = error;
  built.message = std::move(message);
}

void build(const BuildContext& c, const tensor::Func& scheduled, BuiltKernel& built) {
  Stopwatch watch;
  tensor::Func lowered = tensor::lower(scheduled, c.target);
  built.lower = watch.lap();
  built.key = codegen::sha256(to_text(lowered));
  built.hash = watch.lap();
  if (c.is_known && c.is_known(built.key)) return;
  Result<codegen::KernelMemory> memory = codegen::kernel_memory(lowered);
  if (!memory.ok()) return fail(built, tuner::TrialError::build, to_text(memory.errors()));
  built.memory = std::move(*memory);
  const std::string symbol = "mcc_trial";
  Result<codegen::ObjectCode> object = codegen::emit_object(lowered, symbol, c.target, c.emit);
  built.emit = watch.lap();
  if (!object.ok()) return fail(built, tuner::TrialError::build, to_text(object.errors()));
  Result<std::shared_ptr<codegen::Jit::Kernel>> kernel = c.jit.load(*object, symbol);
  built.load = watch.lap();
  if (!kernel.ok()) return fail(built, tuner::TrialError::build, to_text(kernel.errors()));
  built.kernel = std::move(*kernel);
}

}  // namespace

BuiltKernel build_function(const BuildContext& context, const tensor::Func& scheduled) {
  BuiltKernel built;
  try {
    build(context, scheduled, built);
  } catch (const std::exception& error) {
    fail(built, tuner::TrialError::build, text("internal error: ", error.what()));
  }
  return built;
}

BuiltKernel build_candidate(const BuildContext& context, const std::string& trace) {
  Stopwatch watch;
  BuiltKernel built;
  try {
    Result<tensor::Trace> steps = tensor::parse_trace(trace);
    if (!steps.ok()) {
      fail(built, tuner::TrialError::refused, to_text(steps.errors()));
      return built;
    }
    tensor::Schedule schedule(context.unscheduled);
    tensor::Outcome outcome = schedule.replay(*steps);
    built.replay = watch.lap();
    if (!outcome) {
      fail(built, tuner::TrialError::refused, outcome.detail);
      return built;
    }
    built.orders = tensor::weight_orders(context.unscheduled, schedule.trace());
    build(context, schedule.func(), built);
  } catch (const std::exception& error) {
    fail(built, tuner::TrialError::build, text("internal error: ", error.what()));
  }
  return built;
}

}  // namespace mcc::tools
