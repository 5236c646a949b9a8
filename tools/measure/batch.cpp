#include "tools/measure/batch.h"

#include <sched.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "tools/measure/race.h"

namespace mcc::tools {

namespace {

using Clock = std::chrono::steady_clock;
using tuner::Measurement;
using tuner::TrialError;

// Results of former requests are forgotten beyond this many.
constexpr size_t kMaxKnown = 100'000;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// ---- Where threads run ----

std::vector<int> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return {0};
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

// Not being allowed to costs precision only.
void run_on(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int cpu : cpus)
    CPU_SET(cpu, &set);
  (void)::sched_setaffinity(0, sizeof set, &set);
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

// ---- Building beside measuring ----

class Builders {
 public:
  using Build = std::function<BuiltKernel(size_t)>;

  // threads 0: get() builds.
  Builders(size_t count, size_t threads, const std::vector<int>& cpus, Build build)
      : build_(std::move(build)), built_(count), is_built_(count, 0) {
    for (size_t i = 0; i < std::min(threads, count); ++i) {
      threads_.emplace_back([this, cpus] {
        run_on(cpus);
        work();
      });
    }
  }
  ~Builders() {
    next_ = built_.size();
    join();
  }

  bool is_ready(size_t i) {
    std::lock_guard lock(mutex_);
    return is_built_[i] != 0;
  }
  // Whoever waits builds, too, as long as there is something that nobody has begun.
  BuiltKernel& get(size_t i) {
    if (threads_.empty() && is_built_[i] == 0) {
      built_[i] = build_(i);
      is_built_[i] = 1;
    }
    while (!threads_.empty() && !is_ready(i)) {
      if (!build_next()) break;
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_built_[i] != 0; });
    return built_[i];
  }
  void join() {
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

 private:
  void work() {
    while (build_next()) {
    }
  }
  // False when all are begun.
  bool build_next() {
    const size_t i = next_++;
    if (i >= built_.size()) return false;
    BuiltKernel kernel = build_(i);
    {
      std::lock_guard lock(mutex_);
      built_[i] = std::move(kernel);
      is_built_[i] = 1;
    }
    changed_.notify_all();
    return true;
  }

  Build build_;
  std::vector<BuiltKernel> built_;
  std::vector<char> is_built_;
  std::atomic<size_t> next_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::thread> threads_;
};

// ---- One request ----

class Batch {
 public:
  Batch(const WorkerRequest& request, const BuildContext& reference, MeasuredTask& task, KernelRunner& runner,
        std::span<OtherSizes> others, MeasuredByKey& known,
        const std::function<void(const WorkerMessage&)>& send)
      : request_(request),
        reference_(reference),
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
    const bool is_single = runner_.needs_one_processor();
    // A kernel of one thread is timed on the last CPU while the others build; one of several threads needs them all.
    size_t threads = is_single ? cpus.size() - 1 : cpus.size();
    if (request_.is_serial) threads = 0;
    std::vector<int> others = cpus;
    if (is_single) {
      run_on({cpus.back()});
      if (others.size() > 1) others.pop_back();
    }
    Builders builders(request_.candidates.size(), threads, others, [this](size_t i) { return build(i); });
    builders_ = &builders;
    status = compute_reference();
    if (!status.ok()) return status;
    if (!is_single) builders.join();
    race(builders);
    return done();
  }

 private:
  void event(WorkerEvent event, int64_t candidate = -1) {
    WorkerMessage message;
    message.id = request_.id;
    message.event = event;
    message.candidate = candidate;
    send_(message);
  }

  BuiltKernel build(size_t i) {
    event(WorkerEvent::build, static_cast<int64_t>(i));
    BuiltKernel built =
        runner_.build(request_.candidates[i], [&](const std::string& key) { return is_known(key, i); });
    event(WorkerEvent::built, static_cast<int64_t>(i));
    return built;
  }

  // Whether the code has been measured before, or is that of an earlier candidate. Builders run beside each other: two
  // may still generate the same code.
  bool is_known(const std::string& key, size_t i) {
    std::lock_guard lock(keys_mutex_);
    if (!request_.options.is_fresh && known_.contains(key)) return true;
    size_t& owner = owners_.try_emplace(key, i).first->second;
    if (owner < i) return true;
    owner = i;
    return false;
  }

  Status compute_reference() {
    event(WorkerEvent::reference);
    Status status = task_.compute_reference(reference_);
    event(WorkerEvent::idle);
    return status;
  }

  // One run, in microseconds; negative with an error in the measurement.
  double run_checked(size_t i, bool is_hopeless_beyond) {
    Measurement& m = results_[i].measurement;
    BuiltKernel& built = builders_->get(i);
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
    BuiltKernel& built = builders_->get(i);
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

  void race(Builders& builders) {
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
      if (!builders.is_ready(i)) event(WorkerEvent::idle);
      enter(i, builders.get(i), race);
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
    auto it = request_.options.is_fresh ? known_.end() : known_.find(built.key);
    if (it != known_.end()) {
      const double seconds = m.build_seconds;
      m = it->second;
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
    const std::string& key = builders_->get(i).key;
    if (!result.is_sent) {
      if (!key.empty() && known_.size() < kMaxKnown) {
        std::lock_guard lock(keys_mutex_);
        known_[key] = result.measurement;
      }
      builders_->get(i).release();
      send_one(i);
    }
    for (size_t twin : result.twins) {
      const double seconds = results_[twin].measurement.build_seconds;
      results_[twin].measurement = result.measurement;
      results_[twin].measurement.build_seconds = seconds;
      results_[twin].measurement.run_seconds = 0;
      builders_->get(twin).release();
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
  const BuildContext& reference_;
  MeasuredTask& task_;
  KernelRunner& runner_;
  std::span<OtherSizes> others_;
  MeasuredByKey& known_;
  const std::function<void(const WorkerMessage&)>& send_;
  std::vector<Progress> results_;
  std::map<std::string, size_t> first_with_key_;
  std::mutex keys_mutex_;
  std::map<std::string, size_t>
      owners_;                   // the first candidate with this code, of those whose building has begun
  std::vector<size_t> settled_;  // timed, not sent
  Builders* builders_ = nullptr;
  size_t last_timed_ = SIZE_MAX;
};

}  // namespace

Status measure_batch(const WorkerRequest& request, const BuildContext& reference, MeasuredTask& task,
                     KernelRunner& runner, std::span<OtherSizes> others, MeasuredByKey& known,
                     const std::function<void(const WorkerMessage&)>& send) {
  return Batch(request, reference, task, runner, others, known, send).run();
}

}  // namespace mcc::tools
