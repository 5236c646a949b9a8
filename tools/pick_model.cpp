#include "tools/pick_model.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <mutex>
#include <numeric>
#include <set>
#include <tuple>

#include "nlohmann/json.hpp"
#include "tools/cmd_log.h"
#include "tools/console.h"
#include "tools/cuda_tools.h"
#include "tools/jobs.h"
#include "tools/kernels.h"
#include "tools/measure/build_device.h"
#include "tools/tune_display.h"
#include "tuner/log.h"

namespace mcc::tools {

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;
using State = PickedTask::State;

class DeviceBuilder : public tuner::TrialBuilder {
 public:
  DeviceBuilder(const tensor::Target& target, const codegen::EmitOptions& emit,
                const codegen::Assembler* assembler)
      : target_(target), emit_(emit), assembler_(assembler) {}

  tuner::BuildFigures build(const tuner::Task& task, const tuner::Planned& planned) override {
    // The plan of symbolic dimensions is for some sizes; what is built is for all.
    tensor::Schedule schedule(task.func);
    const tensor::Outcome replayed =
        task.func.dims.empty() ? tensor::applied() : schedule.replay(planned.candidate.trace);
    MCC_CHECK(replayed, task.id, ": a planned schedule does not apply: ", replayed.detail);
    BuiltDevice built =
        build_device(task.func.dims.empty() ? planned.func : schedule.func(), target_, emit_, assembler_);
    return {built.error, built.message, figures_of(built), built.seconds};
  }

 private:
  const tensor::Target& target_;
  const codegen::EmitOptions& emit_;
  const codegen::Assembler* assembler_;
};

// "96 registers, 33792 bytes shared, no spills", of the worst launch each.
std::string figures_text(const tuner::Pick& pick) {
  if (pick.figures.empty()) return "-";
  double registers = 0, shared = 0, spills = 0;
  for (const tuner::LaunchFigures& f : pick.figures) {
    registers = std::max(registers, f.registers);
    shared = std::max(shared, f.shared_bytes);
    spills += f.spilled_bytes;
  }
  return text(fixed(registers, 0), " registers, ", fixed(shared, 0), " bytes shared, ",
              spills == 0 ? "no spills" : text(fixed(spills, 0), " bytes of spills"));
}

class ModelPicker {
 public:
  ModelPicker(const TuneModelOptions& options, ModelTasks model)
      : options_(options), emit_(emit_options(options.compile)), targets_(std::move(model.targets)) {
    std::vector<std::string> names;
    for (const tensor::Target& target : targets_) {
      names.push_back(target.cpu);
      report_.tasks.insert(report_.tasks.end(), model.tasks.begin(), model.tasks.end());
      report_.picks.resize(report_.tasks.size(), {State::left_out, target.cpu, {}});
    }
    report_.sizes = model.sizes;
    report_.of_data = model.of_data;
    report_.target = text(options.compile.target, " (", join(names, ", "), ")");
  }

  Result<PickModelReport> run() {
    const std::string& path = options_.compile.tune_log;
    Result<tuner::LogWriter> log = tuner::LogWriter::open(path);
    if (!log.ok()) return log.errors();
    if (!log->repair().empty()) say(log->repair());
    if (Status status = read_known(path); !status.ok()) return status.errors();
    std::unique_ptr<codegen::Assembler> assembler;
    const bool is_gpu = targets_[0].kind == tensor::TargetKind::cuda;
    if (is_gpu && options_.compile.cubins) assembler = find_isolated_assembler();
    if (assembler) report_.assembler = assembler->name();

    const Clock::time_point start = Clock::now();
    Progress progress("pick");
    Status written = done();
    std::mutex mutex;
    size_t finished = 0,
           next = 0;  // tasks; the next to be written, so that the log does not depend on who is faster
    std::vector<char> is_finished(report_.tasks.size());
    const std::vector<size_t> order = unpicked_first();
    run_jobs(order.size(), options_.compile.jobs, [&](size_t n) {
      DeviceBuilder builder(target_of(order[n]), emit_, assembler.get());
      pick_task(order[n], is_gpu ? &builder : nullptr, start);
      std::lock_guard lock(mutex);
      is_finished[n] = 1;
      progress.update(++finished, order.size());
      for (; next < is_finished.size() && is_finished[next]; ++next) {
        if (written.ok()) written = record(*log, order[next]);
      }
    });
    if (!written.ok()) return written.errors();
    report_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return std::move(report_);
  }

 private:
  // Tasks stand there once for each target.
  const tensor::Target& target_of(size_t i) const {
    return targets_[i / (report_.tasks.size() / targets_.size())];
  }

  // A search that goes on with a log begins where the one before it ended; what that picked is picked anew if there is time left.
  std::vector<size_t> unpicked_first() const {
    std::vector<size_t> order(report_.tasks.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_partition(order.begin(), order.end(), [&](size_t i) { return !picked_.contains(key_of(i)); });
    return order;
  }

  void pick_task(size_t i, tuner::TrialBuilder* builder, Clock::time_point start) {
    PickedTask& out = report_.picks[i];
    const tuner::Task& task = report_.tasks[i];
    if (measured_.contains(key_of(i))) {
      out.state = State::measured;
      return;
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if ((options_.is_interrupted && options_.is_interrupted()) ||
        (options_.tune.seconds > 0 && seconds >= options_.tune.seconds))
      return;
    tuner::PickOptions pick;
    pick.seed = options_.tune.seed;
    out.pick = tuner::pick(task, target_of(i), builder, pick);
    out.state = out.pick.is_built ? State::picked : State::failed;
  }

  // What the log says of tasks on these targets.
  Status read_known(const std::string& path) {
    tuner::LogReadOptions read;
    read.keep = 1;
    Result<tuner::LogContents> contents = tuner::read_log(path, read);
    if (!contents.ok()) return contents.errors();
    say_complaints(path, *contents);
    for (const tuner::LogEntry& entry : contents->entries) {
      if (entry.threads != targets_[0].cores) continue;
      const Key key{entry.device.target, contents->find_task(entry.task)->text, entry.sizes};
      if (tuner::is_valid(entry)) measured_.insert(key);
      if (tuner::is_picked(entry)) picked_[key] = to_text(entry.trial.candidate.trace);
    }
    return done();
  }

  Status record(tuner::LogWriter& log, size_t i) {
    const tuner::Task& task = report_.tasks[i];
    const PickedTask& picked = report_.picks[i];
    if (picked.state != State::picked) return done();
    const tensor::Target& target = target_of(i);
    auto before = picked_.find(key_of(i));
    if (before != picked_.end() && before->second == to_text(picked.pick.candidate.trace)) return done();
    tuner::LogEntry entry;
    entry.task = task.id;
    entry.device = {target.fingerprint(), text(target.cpu, ", not measured")};
    entry.trial.candidate = picked.pick.candidate;
    entry.trial.measurement.build_seconds = picked.pick.build_seconds;
    entry.trial.measurement.message = picked.pick.figures.empty() ? "" : figures_text(picked.pick);
    entry.threads = target.cores;
    entry.sizes = tuner::measured_sizes(task);
    entry.seed = options_.tune.seed;
    entry.time = static_cast<double>(std::time(nullptr));
    entry.source = "picked";
    entry.estimate_us = picked.pick.estimate_us;
    return log.append(tuner::log_task(task), std::span(&entry, 1));
  }

  const TuneModelOptions& options_;
  const codegen::EmitOptions emit_;
  const std::vector<tensor::Target> targets_;
  PickModelReport report_;
  using Key =
      std::tuple<std::string, std::string, std::vector<int64_t>>;  // fingerprint, text of a task, sizes
  Key key_of(size_t i) const {
    return {target_of(i).fingerprint(), report_.tasks[i].text, tuner::measured_sizes(report_.tasks[i])};
  }
  std::set<Key> measured_;
  std::map<Key, std::string> picked_;  // the trace of the latest pick
};

std::string_view state_text(State state) {
  switch (state) {
    case State::picked:
      return "picked";
    case State::measured:
      return "measured before";
    case State::failed:
      return "nothing can be built";
    case State::left_out:
      return "left out";
  }
  return "";
}

std::string cell(std::string s, size_t width) {
  if (s.size() > width) s = s.substr(0, width - 3) + "...";
  s.resize(width, ' ');
  return s;
}

}  // namespace

Result<PickModelReport> pick_model(const TuneModelOptions& options) {
  Result<ModelTasks> model = extract_tasks(with_log_if_there(options.compile));
  if (!model.ok()) return model.errors();
  Result<std::vector<tuner::Task>> tasks = select_tasks(std::move(model->tasks), options.tasks);
  if (!tasks.ok()) return tasks.errors();
  model->tasks = std::move(*tasks);
  return ModelPicker(options, std::move(*model)).run();
}

std::string pick_table(const PickModelReport& report) {
  std::vector<size_t> order(report.tasks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  auto share = [&](size_t i) {
    return static_cast<double>(report.tasks[i].weight) * report.picks[i].pick.estimate_us;
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return share(a) > share(b); });
  const bool is_list = !report.picks.empty() && report.picks.front().target != report.picks.back().target;
  std::string out =
      text(cell("task", 17), cell("kernel", 28), cell("runs", 6), is_list ? cell("target", 8) : "",
           cell("ranked", 8), cell("built", 7), cell("default", 12), cell("picked", 12), "figures\n");
  for (size_t i : order) {
    const tuner::Task& task = report.tasks[i];
    const PickedTask& p = report.picks[i];
    out += text(cell(task.id, 16), " ", cell(printable(task.name), 27), " ", cell(text(task.weight), 6));
    if (is_list) out += cell(p.target, 8);
    if (p.state != State::picked) {
      out += text(state_text(p.state), p.pick.problem.empty() ? "" : ": " + printable(p.pick.problem), "\n");
      continue;
    }
    out += text(cell(text(p.pick.ranked), 8), cell(text(p.pick.built), 7),
                cell(time_text(p.pick.default_estimate_us), 12),
                cell(p.pick.is_default ? "default" : time_text(p.pick.estimate_us), 12), figures_text(p.pick),
                "\n");
  }
  return out;
}

Json pick_json(const PickModelReport& report) {
  Json list = Json::array();
  for (size_t i = 0; i < report.tasks.size(); ++i) {
    const tuner::Task& task = report.tasks[i];
    const PickedTask& p = report.picks[i];
    Json out = {{"id", task.id},        {"name", task.name},        {"onnx_nodes", task.nodes},
                {"count", task.weight}, {"flops", task.work.flops}, {"state", state_text(p.state)},
                {"target", p.target}};
    if (p.state == State::picked || p.state == State::failed) {
      Json errors = Json::object(), launches = Json::array();
      for (const auto& [error, count] : p.pick.errors)
        errors[std::string(tuner::to_text(error))] = count;
      for (const tuner::LaunchFigures& f : p.pick.figures)
        launches.push_back({{"registers", f.registers},
                            {"shared_bytes", f.shared_bytes},
                            {"spilled_bytes", f.spilled_bytes}});
      out["ranked"] = p.pick.ranked;
      out["built"] = p.pick.built;
      out["errors"] = errors;
      if (!p.pick.problem.empty()) out["problem"] = p.pick.problem;
      out["is_default"] = p.pick.is_default;
      out["default_estimate_us"] = p.pick.default_estimate_us;
      out["estimate_us"] = p.pick.estimate_us;
      out["launches"] = launches;
    }
    list.push_back(std::move(out));
  }
  return {{"measured", false},
          {"target", report.target},
          {"assembler", report.assembler.empty() ? Json() : Json(report.assembler)},
          {"seconds", report.seconds},
          {"tasks", list}};
}

}  // namespace mcc::tools
