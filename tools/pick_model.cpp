#include "tools/pick_model.h"

#include <oneapi/tbb/parallel_for.h>
#include <oneapi/tbb/task_arena.h>

#include <chrono>
#include <ctime>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>

#include "nlohmann/json.hpp"
#include "tools/cmd_log.h"
#include "tools/console.h"
#include "tools/cuda_tools.h"
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

  tuner::BuildFigures build(const tuner::Task&, const tuner::Planned& planned) override {
    BuiltDevice built = build_device(planned.func, target_, emit_, assembler_);
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
      : options_(options), emit_(emit_options(options.compile)), target_(std::move(model.target)) {
    report_.target = text(options.compile.target, " (", target_.cpu, ")");
    report_.tasks = std::move(model.tasks);
    report_.picks.resize(report_.tasks.size());
  }

  Result<PickModelReport> run() {
    const std::string& path = options_.compile.tune_log;
    Result<tuner::LogWriter> log = tuner::LogWriter::open(path);
    if (!log.ok()) return log.errors();
    if (!log->repair().empty()) say(log->repair());
    if (Status status = read_known(path); !status.ok()) return status.errors();
    std::unique_ptr<codegen::Assembler> assembler;
    if (target_.kind == tensor::TargetKind::cuda && options_.compile.cubins) assembler = find_assembler();
    if (assembler) report_.assembler = assembler->name();
    DeviceBuilder builder(target_, emit_, assembler.get());
    tuner::TrialBuilder* build = target_.kind == tensor::TargetKind::cuda ? &builder : nullptr;

    const Clock::time_point start = Clock::now();
    Progress progress("pick");
    const int jobs = options_.compile.jobs > 0
                         ? options_.compile.jobs
                         : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    Status written = done();
    std::mutex mutex;
    size_t finished = 0,
           next = 0;  // tasks; the next to be written, so that the log does not depend on who is faster
    std::vector<char> is_finished(report_.tasks.size());
    oneapi::tbb::task_arena arena(jobs);
    arena.execute([&] {
      oneapi::tbb::parallel_for(size_t{0}, report_.tasks.size(), [&](size_t i) {
        report_.picks[i] = pick_task(i, build, start);
        std::lock_guard lock(mutex);
        is_finished[i] = 1;
        progress.update(++finished, report_.tasks.size());
        for (; next < is_finished.size() && is_finished[next]; ++next) {
          if (written.ok()) written = record(*log, next);
        }
      });
    });
    if (!written.ok()) return written.errors();
    report_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return std::move(report_);
  }

 private:
  PickedTask pick_task(size_t i, tuner::TrialBuilder* builder, Clock::time_point start) {
    PickedTask out;
    const tuner::Task& task = report_.tasks[i];
    if (measured_.contains(task.text)) {
      out.state = State::measured;
      return out;
    }
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if ((options_.is_interrupted && options_.is_interrupted()) ||
        (options_.tune.seconds > 0 && seconds >= options_.tune.seconds))
      return out;
    tuner::PickOptions pick;
    pick.seed = options_.tune.seed;
    out.pick = tuner::pick(task, target_, builder, pick);
    out.state = out.pick.is_built ? State::picked : State::failed;
    return out;
  }

  // What the log says of these tasks on this target.
  Status read_known(const std::string& path) {
    tuner::LogReadOptions read;
    read.keep = 1;
    Result<tuner::LogContents> contents = tuner::read_log(path, read);
    if (!contents.ok()) return contents.errors();
    say_complaints(path, *contents);
    for (const tuner::LogEntry& entry : contents->entries) {
      if (entry.device.target != target_.fingerprint() || entry.threads != target_.cores) continue;
      const std::string& task = contents->find_task(entry.task)->text;
      if (tuner::is_valid(entry)) measured_.insert(task);
      if (tuner::is_picked(entry)) picked_[task] = to_text(entry.trial.candidate.trace);
    }
    return done();
  }

  Status record(tuner::LogWriter& log, size_t i) {
    const tuner::Task& task = report_.tasks[i];
    const PickedTask& picked = report_.picks[i];
    if (picked.state != State::picked) return done();
    auto before = picked_.find(task.text);
    if (before != picked_.end() && before->second == to_text(picked.pick.candidate.trace)) return done();
    tuner::LogEntry entry;
    entry.task = task.id;
    entry.device = {target_.fingerprint(), text(target_.cpu, ", not measured")};
    entry.trial.candidate = picked.pick.candidate;
    entry.trial.measurement.build_seconds = picked.pick.build_seconds;
    entry.trial.measurement.message = picked.pick.figures.empty() ? "" : figures_text(picked.pick);
    entry.threads = target_.cores;
    entry.seed = options_.tune.seed;
    entry.time = static_cast<double>(std::time(nullptr));
    entry.source = "picked";
    entry.estimate_us = picked.pick.estimate_us;
    return log.append(tuner::log_task(task), std::span(&entry, 1));
  }

  const TuneModelOptions& options_;
  const codegen::EmitOptions emit_;
  const tensor::Target target_;
  PickModelReport report_;
  std::set<std::string> measured_;             // texts of tasks
  std::map<std::string, std::string> picked_;  // text of a task -> trace of its latest pick
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
  CompileOptions untuned = options.compile;
  untuned.tune_log.clear();
  Result<ModelTasks> model = extract_tasks(untuned);
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
  std::string out = text(cell("task", 17), cell("kernel", 28), cell("runs", 6), cell("ranked", 8),
                         cell("built", 7), cell("default", 12), cell("picked", 12), "figures\n");
  for (size_t i : order) {
    const tuner::Task& task = report.tasks[i];
    const PickedTask& p = report.picks[i];
    out += text(cell(task.id, 16), " ", cell(printable(task.name), 27), " ", cell(text(task.weight), 6));
    if (p.state != State::picked) {
      out += text(state_text(p.state), "\n");
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
                {"count", task.weight}, {"flops", task.work.flops}, {"state", state_text(p.state)}};
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
