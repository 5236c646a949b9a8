#include "tools/measure/batch.h"

#include <chrono>

#include "tools/measure/race.h"

namespace mcc::tools {

namespace {

using Clock = std::chrono::steady_clock;
using tuner::Measurement;
using tuner::TrialError;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

class Pinned {
 public:
  explicit Pinned(std::vector<int> before) : before_(std::move(before)) {}
  ~Pinned() { run_on(before_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  std::vector<int> before_;
};

class Batch {
 public:
  Batch(const WorkerRequest& request, Preparation& preparation, MeasuredTask& task, KernelRunner& runner,
        std::span<OtherSizes> others, KnownKernels& known, const SendMessage& send)
      : request_(request),
        preparation_(preparation),
        task_(task),
        runner_(runner),
        others_(others),
        known_(known),
        send_(send),
        results_(request.candidates.size()) {}

  Status run() {
    const std::vector<int> cpus = allowed_cpus();
    const Pinned unpin(cpus);
    Status status = runner_.start();
    if (!status.ok()) return status;
    for (OtherSizes& other : others_) {
      status = other.runner->start();
      if (!status.ok()) return status;
    }
    if (runner_.needs_one_processor()) run_on({cpus.back()});
    status = preparation_.reference();
    if (!status.ok()) return status;
    if (runner_.needs_all_built()) preparation_.build_all();
    race();
    return done();
  }

 private:
  void event(WorkerEvent event, int64_t candidate = -1) { send_event(send_, request_, event, candidate); }

  // One run, in microseconds; negative with an error in the measurement.
  double run_checked(size_t i, bool is_hopeless_beyond) {
    Measurement& m = results_[i].measurement;
    BuiltKernel& built = preparation_.built(i);
    if (!runner_.is_loaded(built)) {
      event(WorkerEvent::build, static_cast<int64_t>(i));
      const RunOutcome loaded = runner_.load(built);
      event(WorkerEvent::built, static_cast<int64_t>(i));
      if (loaded.error != TrialError::none) return fail(m, loaded.error, loaded.message);
    }
    warm_up();
    event(WorkerEvent::run, static_cast<int64_t>(i));
    const RunOutcome outcome = runner_.run(built);
    if (outcome.error != TrialError::none) return fail(m, outcome.error, outcome.message);
    const double us = outcome.us;
    if (is_hopeless_beyond && us > hopeless_us()) return us;
    // A large result takes longer to fetch and compare than a run may.
    event(WorkerEvent::check, static_cast<int64_t>(i));
    const RunOutcome fetched = runner_.fetch_outputs();
    if (fetched.error != TrialError::none) return fail(m, fetched.error, fetched.message);
    const OutputCheck check = task_.check_outputs();
    m.is_checked = true;
    m.max_error = std::max(m.max_error, check.max_error);
    if (!check.ok) return fail(m, TrialError::wrong, check.message);
    for (OtherSizes& other : others_) {
      const RunOutcome elsewhere = check_elsewhere(i, built, other);
      if (elsewhere.error == TrialError::none) continue;
      return fail(m, elsewhere.error,
                  text("at sizes ", join(other.task.sizes(), ", "), ": ", elsewhere.message));
    }
    return us;
  }

  // A schedule for all sizes has to be right at others than those it is timed at.
  RunOutcome check_elsewhere(size_t i, BuiltKernel& built, OtherSizes& other) {
    event(WorkerEvent::run, static_cast<int64_t>(i));
    RunOutcome outcome = other.runner->run(built);
    if (outcome.error != TrialError::none) return outcome;
    event(WorkerEvent::check, static_cast<int64_t>(i));
    outcome = other.runner->fetch_outputs();
    if (outcome.error != TrialError::none) return outcome;
    const OutputCheck check = other.task.check_outputs();
    Measurement& m = results_[i].measurement;
    m.max_error = std::max(m.max_error, check.max_error);
    if (!check.ok) return {0, TrialError::wrong, check.message};
    return {};
  }

  // In nobody's time.
  void warm_up() {
    if (!runner_.has_cooled()) return;
    event(WorkerEvent::idle);
    runner_.warm_up();
  }

  static double fail(Measurement& m, TrialError error, std::string message) {
    m.error = error;
    m.message = std::move(message);
    m.times_us.clear();
    return -1;
  }

  // So slow that whether it is right does not matter.
  double hopeless_us() const {
    const double bar = request_.options.incumbent_us;
    return bar > 0 ? std::max(10 * bar, 10'000.0) : std::numeric_limits<double>::infinity();
  }

  RunBlock time(size_t i, int64_t runs) {
    RunBlock block;
    // Nothing that is said from now on counts.
    if (runner_.is_lost()) return kNever;
    BuiltKernel& built = preparation_.built(i);
    warm_up();
    event(WorkerEvent::run, static_cast<int64_t>(i));
    const RunOutcome outcome = runner_.time(built, runs, last_timed_ == i, block);
    last_timed_ = i;
    Measurement& m = results_[i].measurement;
    m.run_seconds += block.wall_us * 1e-6;
    if (outcome.error == TrialError::none) return block;
    fail(m, outcome.error, outcome.message);
    return kNever;
  }

  // Of a kernel that does not run: it ends its race.
  static constexpr RunBlock kNever = {1e12, 1e12, false};

  void race() {
    RaceOptions options;
    options.incumbent_us = request_.options.incumbent_us;
    options.precision = request_.options.precision;
    options.patience = request_.options.patience;
    // Emptying the caches takes longer than most runs: blocks stay short so that there are enough of them.
    if (request_.options.is_cold) options.block_us = 30;
    Race race(
        options, [this](size_t i, int64_t runs) { return time(i, runs); },
        [this](const Lane& lane) { settle(lane); });
    warm_up();
    Calibration before = runner_.calibrate();
    for (size_t i = 0; i < results_.size(); ++i) {
      if (!preparation_.is_built(i)) event(WorkerEvent::idle);
      enter(i, preparation_.built(i), race);
      if (runner_.is_lost()) return give_up(i);
    }
    event(WorkerEvent::idle);
    Calibration after = runner_.calibrate();
    send_settled(noise_between(before, after));
    before = after;
    race.finish();
    if (runner_.is_lost()) return give_up(last_timed_);
    event(WorkerEvent::idle);
    send_settled(noise_between(before, runner_.calibrate()));
  }

  // What was being measured ends with the process, but for what is known to be its fault.
  void give_up(size_t culprit) {
    if (culprit < results_.size() && !results_[culprit].is_sent) send_result(culprit);
    settled_.clear();
  }

  void enter(size_t i, BuiltKernel& built, Race& race) {
    Measurement& m = results_[i].measurement;
    m.build_seconds = built.seconds();
    if (built.error != TrialError::none) {
      fail(m, built.error, built.message);
      return send_result(i);
    }
    auto [first, is_new] = first_with_key_.try_emplace(built.key, i);
    if (!is_new) {
      // Waits for its twin's result, or takes it.
      results_[first->second].twins.push_back(i);
      if (results_[first->second].is_sent) send_result(first->second);
      return;
    }
    if (std::optional<Measurement> known =
            request_.options.is_fresh ? std::nullopt : known_.find(built.key)) {
      const double seconds = m.build_seconds;
      m = std::move(*known);
      m.build_seconds = seconds;
      m.run_seconds = 0;
      return send_result(i);
    }
    const Clock::time_point start = Clock::now();
    const double us = run_checked(i, true);
    m.run_seconds += seconds_since(start);
    last_timed_ = i;
    if (us < 0) return send_result(i);
    race.enter(i, us);
  }

  void settle(const Lane& lane) {
    const size_t i = lane.candidate;
    Measurement& m = results_[i].measurement;
    if (runner_.is_lost()) return;
    if (!m.ok()) return settled_.push_back(i);
    m.times_us = lane.times_us;
    m.is_censored = lane.is_censored;
    // What may become the best is looked at once more: a race between threads does not show every time.
    if (lane.is_winner) {
      run_checked(i, false);
      last_timed_ = i;
    }
    settled_.push_back(i);
  }

  void send_settled(double noise) {
    for (size_t i : settled_) {
      results_[i].measurement.noise = noise;
      send_result(i);
    }
    settled_.clear();
  }

  // Also for those that turned out to be the same code; once each.
  void send_result(size_t i) {
    Progress& result = results_[i];
    const std::string& key = preparation_.built(i).key;
    if (!result.is_sent) {
      if (!key.empty()) known_.add(key, result.measurement);
      preparation_.built(i).release();
      send_one(i);
    }
    for (size_t twin : result.twins) {
      const double seconds = results_[twin].measurement.build_seconds;
      results_[twin].measurement = result.measurement;
      results_[twin].measurement.build_seconds = seconds;
      results_[twin].measurement.run_seconds = 0;
      preparation_.built(twin).release();
      send_one(twin);
    }
    result.twins.clear();
  }

  void send_one(size_t i) {
    results_[i].is_sent = true;
    WorkerMessage message;
    message.id = request_.id;
    message.event = WorkerEvent::result;
    message.candidate = static_cast<int64_t>(i);
    message.measurement = results_[i].measurement;
    send_(message);
  }

  struct Progress {
    Measurement measurement;
    std::vector<size_t> twins;  // later candidates with the same code
    bool is_sent = false;
  };

  const WorkerRequest& request_;
  Preparation& preparation_;
  MeasuredTask& task_;
  KernelRunner& runner_;
  std::span<OtherSizes> others_;
  KnownKernels& known_;
  const SendMessage& send_;
  std::vector<Progress> results_;
  std::map<std::string, size_t> first_with_key_;
  std::vector<size_t> settled_;  // timed, not sent
  size_t last_timed_ = SIZE_MAX;
};

}  // namespace

Status measure_batch(const WorkerRequest& request, Preparation& preparation, MeasuredTask& task,
                     KernelRunner& runner, std::span<OtherSizes> others, KnownKernels& known,
                     const SendMessage& send) {
  return Batch(request, preparation, task, runner, others, known, send).run();
}

}  // namespace mcc::tools
