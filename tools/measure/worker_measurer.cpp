#include "tools/measure/worker_measurer.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <optional>

#include "mcc/mcc.h"
#include "tensor/text.h"
#include "tools/measure/protocol.h"
#include "tools/program.h"
#include "tools/worker_process.h"

namespace mcc::tools {

namespace {

using Clock = std::chrono::steady_clock;
using tuner::Measurement;
using tuner::TrialError;

// Nothing is going on for this long: the process is stuck.
constexpr double kIdleSeconds = 30;
// Deaths that no candidate can be blamed for, in one batch.
constexpr int kMaxUnexplained = 3;
// For a process on another machine to begin, and to look at its machine.
constexpr double kMachineSeconds = 60;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// What a process is doing, from its events.
struct Phases {
  bool is_reference = false;
  std::optional<int64_t> running;          // index within the request
  bool is_checked = false;                 // what runs has run: its result is looked at
  Clock::time_point since = Clock::now();  // of running, reference, or idle
  std::map<int64_t, Clock::time_point> building;

  void follow(const WorkerMessage& m) {
    const Clock::time_point now = Clock::now();
    switch (m.event) {
      case WorkerEvent::build:
        building[m.candidate] = now;
        return;
      case WorkerEvent::built:
        building.erase(m.candidate);
        break;
      case WorkerEvent::run:
      case WorkerEvent::check:
        running = m.candidate;
        is_checked = m.event == WorkerEvent::check;
        is_reference = false;
        break;
      case WorkerEvent::reference:
        is_reference = true;
        running.reset();
        break;
      case WorkerEvent::idle:
        is_reference = false;
        running.reset();
        break;
      case WorkerEvent::result:
      case WorkerEvent::machine:
      case WorkerEvent::done:
      case WorkerEvent::restart:
      case WorkerEvent::error:
        break;
    }
    if (m.event != WorkerEvent::built || (!running && !is_reference)) since = now;
  }
};

}  // namespace

struct WorkerMeasurer::Impl {
  WorkerOptions options;
  std::unique_ptr<WorkerProcess> process;
  int started = 0;
  int64_t requests = 0;

  // What has been begun.
  struct Call {
    const tuner::Task& task;
    std::span<const tuner::Candidate> candidates;
    tuner::MeasureOptions options;
    std::vector<std::optional<Measurement>> results;
    std::deque<size_t> alone;  // suspects of a crash: each is tried by itself
    int unexplained = 0;
    int64_t request = 0;  // that the process has of it; 0: none
    Phases phases;        // of that
  };
  std::deque<Call> calls;  // the first is the one to finish

  Status ensure_process() {
    if (process) return done();
    Result<WorkerProcess> fresh = WorkerProcess::start(options.command);
    if (!fresh.ok()) return fresh.errors();
    process = std::make_unique<WorkerProcess>(std::move(*fresh));
    ++started;
    return done();
  }

  double run_limit(const Call& call) const {
    const double incumbent = call.options.incumbent_us * 1e-6;
    // Nothing is known yet: as long as a billion operations a second would take.
    const auto work = static_cast<double>(std::max(call.task.work.flops, call.task.work.iterations));
    const double expected = incumbent > 0 ? 20 * incumbent : work * 1e-9;
    return std::max(expected, 0.05) + call.options.timeout_seconds;
  }

  // Which indices of candidates the next request is about.
  std::vector<size_t> next_part(Call& call) {
    while (!call.alone.empty()) {
      const size_t i = call.alone.front();
      if (!call.results[i]) return {i};
      call.alone.pop_front();
    }
    std::vector<size_t> part;
    for (size_t i = 0; i < call.results.size() && part.size() < kMaxCandidates; ++i) {
      if (!call.results[i]) part.push_back(i);
    }
    return part;
  }

  // False when the process does not take it.
  bool send(Call& call, const std::vector<size_t>& part) {
    WorkerRequest request;
    request.id = ++requests;
    // Of symbolic dimensions with the sizes to measure at.
    request.task = call.task.func.dims.empty() ? call.task.text : to_text(call.task.func);
    request.target = options.target;
    request.options = call.options;
    request.emit = options.emit;
    request.is_serial = !call.alone.empty();
    for (size_t i : part)
      request.candidates.push_back(to_text(call.candidates[i].trace));
    call.request = request.id;
    call.phases = {};
    return process->send(encode(request));
  }

  // The whole of it, behind what the process has to do already.
  void send_ahead(Call& call) {
    if (call.candidates.size() > kMaxCandidates || !ensure_process().ok()) return;
    if (!send(call, next_part(call))) call.request = 0;
  }

  // Speaks with the process until the part is done, or the process is gone. Results end up in call.results.
  Status converse(Call& call, const std::vector<size_t>& part) {
    if (call.request == 0 && !send(call, part)) return lost(call, part);
    call.phases.since = Clock::now();  // until now it was another one's turn
    for (std::string line;;) {
      const auto [limit, late] = next_deadline(call);
      const WorkerProcess::Received received = process->receive(line, limit);
      if (received == WorkerProcess::Received::closed) return lost(call, part);
      if (received == WorkerProcess::Received::timeout) return overdue(call, part, late);
      const std::optional<WorkerMessage> message = decode_message(line);
      if (message && message->id != call.request) {
        for (Call& other : calls) {
          const bool is_its =
              other.request == message->id && message->candidate < std::ssize(other.candidates);
          if (is_its) other.phases.follow(*message);
        }
        continue;
      }
      if (!message || message->candidate >= std::ssize(part)) {
        return stop(text("the measuring process wrote what is no message: ", line.substr(0, 100)));
      }
      if (message->event == WorkerEvent::error && !message->errors.empty()) return message->errors;
      if (message->event == WorkerEvent::result && message->candidate >= 0)
        note(call, part[static_cast<size_t>(message->candidate)], message->measurement);
      if (message->event == WorkerEvent::restart) return restart(call, part);
      if (message->event == WorkerEvent::done) break;
      call.phases.follow(*message);
    }
    call.request = 0;
    for (size_t i : part) {
      if (!call.results[i]) return stop("the measuring process left out a candidate");
    }
    return done();
  }

  void note(Call& call, size_t i, Measurement m) {
    if (m.ok() && !m.is_censored && !m.times_us.empty()) {
      double& incumbent = call.options.incumbent_us;
      incumbent = incumbent > 0 ? std::min(incumbent, m.best_us()) : m.best_us();
    }
    call.results[i] = std::move(m);
  }

  // Seconds until something takes too long, and which candidate that is (-1: the reference or nothing).
  std::pair<double, int64_t> next_deadline(const Call& call) const {
    const Phases& phases = call.phases;
    const double main_limit = phases.is_reference ? options.reference_seconds
                              : phases.running ? phases.is_checked ? options.check_seconds : run_limit(call)
                                               : kIdleSeconds + options.build_seconds;
    std::pair<double, int64_t> first{main_limit - seconds_since(phases.since), phases.running.value_or(-1)};
    for (const auto& [candidate, since] : phases.building) {
      const double left = options.build_seconds - seconds_since(since);
      if (left < first.first) first = {left, candidate};
    }
    return first;
  }

  // The process ends, and has nothing of what has been begun any more.
  std::string end_process() {
    process->kill();
    std::string how = process->end_text();
    process.reset();
    for (Call& call : calls) {
      call.request = 0;
      call.phases = {};
    }
    return how;
  }

  Status stop(std::string message) {
    const std::string complaints = process->complaints();
    end_process();
    return Diagnostic{ErrorKind::environment, "", std::move(message), complaints};
  }

  static void blame(Call& call, size_t i, TrialError error, std::string message) {
    Measurement m;
    m.error = error;
    m.message = std::move(message);
    call.results[i] = std::move(m);
  }

  // What of the call was being run or built, as far as it has no result.
  static std::vector<size_t> suspects_of(const Call& call, const std::vector<size_t>& part) {
    std::vector<size_t> suspects;
    if (call.phases.running) suspects.push_back(part[static_cast<size_t>(*call.phases.running)]);
    for (const auto& [candidate, since] : call.phases.building)
      suspects.push_back(part[static_cast<size_t>(candidate)]);
    std::erase_if(suspects, [&](size_t i) { return call.results[i].has_value(); });
    return suspects;
  }

  // Of what comes after the first call; each of them is tried by itself when its turn comes. Whether there are any, or a result to
  // compare with was being computed.
  bool suspect_later_calls() {
    bool is_any = false;
    for (Call& call : calls) {
      if (call.request == 0) continue;
      const std::vector<size_t> suspects = suspects_of(call, next_part(call));
      call.alone.insert(call.alone.end(), suspects.begin(), suspects.end());
      is_any |= !suspects.empty() || call.phases.is_reference;
    }
    return is_any;
  }

  // The process has died.
  Status lost(Call& call, const std::vector<size_t>& part) {
    const bool was_reference = call.phases.is_reference, was_running = call.phases.running.has_value();
    const std::vector<size_t> suspects = suspects_of(call, part);
    const bool are_others = suspect_later_calls();
    std::string how = "the measuring process was " + process->end_text();
    const std::string complaints = process->complaints();
    if (!complaints.empty()) how += ": " + complaints.substr(0, complaints.find_last_not_of('\n') + 1);
    end_process();
    call.request = 0;
    if (was_reference || suspects.empty()) {
      if (are_others || ++call.unexplained < kMaxUnexplained) return done();
      return Diagnostic{ErrorKind::environment, call.task.name, how,
                        was_reference ? "while it computed the result to compare with" : ""};
    }
    if (suspects.size() == 1 && !are_others) {
      blame(call, suspects.front(), was_running ? TrialError::crash : TrialError::build, how);
    } else {
      call.alone.insert(call.alone.end(), suspects.begin(), suspects.end());
    }
    return done();
  }

  // The process has lost its GPU and says so; whose fault that was it has said, too.
  Status restart(Call& call, const std::vector<size_t>& part) {
    end_process();
    call.request = 0;
    const bool is_explained =
        std::any_of(part.begin(), part.end(), [&](size_t i) { return call.results[i].has_value(); });
    if (is_explained || ++call.unexplained < kMaxUnexplained) return done();
    return Diagnostic{ErrorKind::environment, call.task.name,
                      "the measuring process loses its GPU again and again", ""};
  }

  // Something takes too long.
  Status overdue(Call& call, const std::vector<size_t>& part, int64_t late) {
    const Phases phases = call.phases;
    end_process();
    call.request = 0;
    if (late < 0) {
      if (phases.is_reference) {
        return Diagnostic{
            ErrorKind::unsupported, call.task.name,
            text("the result to compare with takes more than ", options.reference_seconds, " s"), ""};
      }
      if (++call.unexplained < kMaxUnexplained) return done();
      return Diagnostic{ErrorKind::environment, "", "the measuring process does not answer", ""};
    }
    const bool is_run = phases.running == late;
    blame(call, part[static_cast<size_t>(late)], TrialError::timeout,
          is_run && phases.is_checked
              ? text("fetching and comparing its result took more than ", options.check_seconds, " s")
          : is_run ? text("a run took more than ", run_limit(call), " s")
                   : text("building it took more than ", options.build_seconds, " s"));
    return done();
  }
};

WorkerMeasurer::WorkerMeasurer(WorkerOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->options = std::move(options);
  if (impl_->options.command.empty()) impl_->options.command = {own_program(), "measure-worker"};
}

WorkerMeasurer::~WorkerMeasurer() = default;

void WorkerMeasurer::rest() {
  MCC_CHECK(impl_->calls.empty(), "something is being measured");
  impl_->process.reset();
}

int WorkerMeasurer::worker_pid() const { return impl_->process ? impl_->process->pid() : -1; }
int WorkerMeasurer::workers_started() const { return impl_->started; }

Result<std::vector<Measurement>> WorkerMeasurer::measure(const tuner::Task& task,
                                                         std::span<const tuner::Candidate> candidates,
                                                         const tuner::MeasureOptions& options) {
  MCC_CHECK(impl_->calls.empty(), "something is being measured");
  begin(task, candidates, options);
  return finish();
}

void WorkerMeasurer::begin(const tuner::Task& task, std::span<const tuner::Candidate> candidates,
                           const tuner::MeasureOptions& options) {
  Impl::Call& call = impl_->calls.emplace_back(task, candidates, options);
  call.results.resize(candidates.size());
  impl_->send_ahead(call);
}

Result<std::vector<Measurement>> WorkerMeasurer::finish() {
  MCC_CHECK(!impl_->calls.empty(), "nothing has been begun");
  Impl::Call call = std::move(impl_->calls.front());
  impl_->calls.pop_front();
  for (std::vector<size_t> part; !(part = impl_->next_part(call)).empty();) {
    Status status = impl_->ensure_process();
    if (status.ok()) status = impl_->converse(call, part);
    if (!status.ok()) return status.errors();
  }
  std::vector<Measurement> measurements;
  for (std::optional<Measurement>& m : call.results)
    measurements.push_back(std::move(*m));
  return measurements;
}

std::vector<std::string> worker_command(const std::string& mcc) {
  return {"/bin/sh", "-c", mcc + " measure-worker"};
}

Result<Machine> ask_machine(const std::vector<std::string>& command, const std::string& target) {
  Result<WorkerProcess> process = WorkerProcess::start(command);
  if (!process.ok()) return process.errors();
  WorkerRequest request;
  request.id = 1;
  request.target = target;
  request.wants_machine = true;
  constexpr const char* kWhere = "--worker";
  const auto fail = [&](const std::string& message) {
    std::string complaints = process->complaints();
    complaints.erase(complaints.find_last_not_of("\r\n") + 1);
    return Diagnostic{ErrorKind::environment, kWhere, message, complaints};
  };
  // One that does not listen may still say why.
  process->send(encode(request));
  std::string line;
  const WorkerProcess::Received received = process->receive(line, kMachineSeconds);
  if (received == WorkerProcess::Received::timeout)
    return fail(text("does not answer within ", kMachineSeconds, " s"));
  if (received == WorkerProcess::Received::closed) {
    const std::string how = process->end_text();
    return fail(text(how, " in place of an answer"));
  }
  std::optional<WorkerMessage> message = decode_message(line);
  if (!message) return fail(text("answers with what is no message: ", line.substr(0, 100)));
  for (Diagnostic& error : message->errors)
    if (error.where.empty()) error.where = kWhere;
  if (!message->errors.empty()) return message->errors;
  if (!message->machine) return fail("does not say on which machine it is");
  if (message->machine->version != mcc_runtime_version())
    return fail(text("is mcc ", message->machine->version, ", this one is ", mcc_runtime_version(),
                     ": both have to be the same"));
  return std::move(*message->machine);
}

// Killing the process is the way to make it stop.
void WorkerMeasurer::abandon() {
  if (impl_->calls.empty()) return;
  impl_->calls.clear();
  impl_->process.reset();
}

}  // namespace mcc::tools
