#include "tools/log_report.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "codegen/codegen.h"
#include "nlohmann/json.hpp"
#include "tensor/text.h"
#include "tools/console.h"
#include "tools/report_page.h"
#include "tuner/analyzer_cpu.h"
#include "tuner/cost_model.h"
#include "tuner/log.h"
#include "tuner/nest.h"
#include "tuner/quality.h"

namespace mcc::tools {

namespace {

using Json = nlohmann::ordered_json;

// The cost model predicts so many trials at a time, as a search lets it.
constexpr size_t kRound = 16;

// Bytes that parts of the loops around the store with the most arithmetic touch: what should fit a cache.
Json footprint(const tensor::Func& scheduled) {
  const tuner::Nest nest = tuner::nest_of(scheduled);
  const tuner::NestStore* main = nullptr;
  auto work = [](const tuner::NestStore& s) { return s.iterations * (s.ops.flops() + 0.01); };
  for (const tuner::NestStore& store : nest.stores) {
    if (main == nullptr || work(store) > work(*main)) main = &store;
  }
  if (main == nullptr || main->loops.empty()) return Json::object();
  auto bytes = [&](size_t depth) {
    double sum = 0;
    for (const tuner::NestAccess& access : main->accesses) {
      if (!access.is_register()) sum += access.bytes(depth);
    }
    return sum;
  };
  Json out = {{"one iteration of the outermost loop", bytes(1)}};
  for (size_t depth = 0; depth < main->roles.size(); ++depth) {
    if (main->roles[depth] != tuner::LoopRole::reduce) continue;
    out["the outermost reduction"] = bytes(depth);
    break;
  }
  return out;
}

struct TaskTrials {
  tuner::Task task;
  std::vector<const tuner::LogEntry*> entries;
};

class Report {
 public:
  Report(const LogReportOptions& options, const tensor::Target& target, const tuner::LogContents& log)
      : options_(options), target_(target), log_(log) {}

  Result<Json> make() {
    Json tasks = Json::array();
    Progress progress("report");
    for (size_t i = 0; i < log_.tasks.size(); ++i) {
      progress.update(i, log_.tasks.size());
      std::optional<TaskTrials> trials = trials_of(log_.tasks[i]);
      if (trials) tasks.push_back(task_json(*trials, log_.tasks[i]));
    }
    if (tasks.empty()) {
      return Diagnostic{ErrorKind::tuning_log, options_.log_path, "has no trial of a task that can be shown", ""};
    }
    std::string device = log_.entries.empty() ? "" : log_.entries.back().device.description;
    return Json{{"version", MCC_VERSION}, {"target", text(options_.target, " (", target_.cpu, ")")}, {"device", device}, {"tasks", tasks}};
  }

 private:
  // The task with its trials, those of the target that has the most; nothing when its text cannot be read.
  std::optional<TaskTrials> trials_of(const tuner::LogTask& logged) const {
    TaskTrials out;
    Result<tensor::Func> func = tensor::parse_func(logged.text, logged.id);
    if (!func.ok()) return std::nullopt;
    out.task.id = logged.id;
    out.task.name = logged.name;
    out.task.text = logged.text;
    out.task.func = std::move(*func);
    out.task.work = tuner::work_of(out.task.func);
    std::map<std::string, size_t> targets;
    for (const tuner::LogEntry& entry : log_.entries) {
      if (entry.task == logged.id) ++targets[entry.device.target];
    }
    std::string target;
    for (const auto& [name, count] : targets) {
      if (target.empty() || count > targets[target]) target = name;
    }
    for (const tuner::LogEntry& entry : log_.entries) {
      if (entry.task != logged.id || entry.device.target != target || entry.source == "import") continue;
      if (out.entries.size() < options_.max_trials) out.entries.push_back(&entry);
    }
    if (out.entries.empty()) return std::nullopt;
    return out;
  }

  Json task_json(const TaskTrials& t, const tuner::LogTask& logged) const {
    const size_t count = t.entries.size();
    std::vector<tuner::Planned> plans(count);
    for (size_t i = 0; i < count; ++i) plans[i] = replay(t.task, t.entries[i]->trial.candidate);
    const std::vector<double> scores = predictions(t, plans);

    Json trials = Json::array();
    const tuner::LogEntry* best = nullptr;
    double default_us = std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < count; ++i) {
      const tuner::LogEntry& entry = *t.entries[i];
      const tuner::Measurement& m = entry.trial.measurement;
      const bool is_timed = m.ok() && std::isfinite(m.best_us());
      if (is_timed && entry.source == "default") default_us = std::min(default_us, m.best_us());
      if (tuner::is_valid(entry) && (best == nullptr || tuner::is_faster(entry, *best))) best = &entry;
      trials.push_back({{"us", is_timed ? Json(m.best_us()) : Json(nullptr)},
                        {"error", tuner::to_text(m.error)},
                        {"message", m.message},
                        {"threads", entry.threads},
                        {"sketch", entry.trial.candidate.sketch},
                        {"point", entry.trial.candidate.point},
                        {"footprint", plans[i].fits ? footprint(plans[i].func) : Json::object()},
                        {"predicted", std::isfinite(scores[i]) ? Json(scores[i]) : Json(nullptr)}});
    }
    Json out = {{"id", t.task.id}, {"name", logged.name}, {"nodes", Json::array()}, {"count", 1}};
    out["flops"] = t.task.work.flops;
    out["bytes"] = t.task.work.bytes;
    out["bound_us"] = tuner::lower_bound_us(t.task.func, target_);
    out["default_us"] = std::isfinite(default_us) ? Json(default_us) : Json(nullptr);
    out["best_us"] = best ? Json(best->trial.measurement.best_us()) : Json(nullptr);
    out["space"] = nullptr;
    out["trace"] = best ? to_text(best->trial.candidate.trace) : "";
    out["trials"] = std::move(trials);
    out["quality"] = quality(t, scores);
    return out;
  }

  tuner::Planned replay(const tuner::Task& task, const tuner::Candidate& candidate) const {
    tuner::Planned plan;
    tensor::Schedule schedule(task.func);
    plan.outcome = schedule.replay(candidate.trace);
    plan.fits = static_cast<bool>(plan.outcome);
    plan.candidate = candidate;
    plan.func = schedule.func();
    return plan;
  }

  // What a model that has seen only the rounds before gives each trial; NaN where it gives nothing.
  std::vector<double> predictions(const TaskTrials& t, const std::vector<tuner::Planned>& plans) const {
    std::vector<double> scores(plans.size(), std::nan(""));
    std::unique_ptr<tuner::CostModel> model = tuner::make_cost_model(options_.cost_model, target_, 0);
    if (!model) return scores;
    std::vector<tuner::Trial> seen;
    for (size_t start = 0; start < plans.size(); start += kRound) {
      const size_t end = std::min(plans.size(), start + kRound);
      std::vector<tuner::Planned> round;
      std::vector<size_t> index;
      for (size_t i = start; i < end; ++i) {
        if (!plans[i].fits) continue;
        round.push_back(plans[i]);
        index.push_back(i);
      }
      if (!round.empty()) {
        std::vector<double> given = model->predict(t.task, round);
        for (size_t i = 0; i < index.size(); ++i) scores[index[i]] = given[i];
      }
      for (size_t i = start; i < end; ++i) seen.push_back(t.entries[i]->trial);
      model->learn(t.task, seen);
    }
    return scores;
  }

  static Json quality(const TaskTrials& t, const std::vector<double>& scores) {
    std::vector<double> known, times;
    for (size_t i = 0; i < scores.size(); ++i) {
      const tuner::Measurement& m = t.entries[i]->trial.measurement;
      if (!std::isfinite(scores[i]) || (m.ok() && m.is_censored)) continue;
      known.push_back(scores[i]);
      times.push_back(m.ok() ? m.best_us() : std::numeric_limits<double>::infinity());
    }
    if (known.size() < 10) return nullptr;
    return {{"count", known.size()},
            {"pairwise", tuner::pairwise_accuracy(known, times)},
            {"recall", tuner::top_k_recall(known, times, 10)},
            {"peak5", tuner::best_at_k(known, times, 5)}};
  }

  const LogReportOptions& options_;
  const tensor::Target& target_;
  const tuner::LogContents& log_;
};

}  // namespace

Result<Json> log_report(const LogReportOptions& options) {
  Result<tensor::Target> target = codegen::make_target(options.target);
  if (!target.ok()) return target.errors();
  Result<tuner::LogContents> log = tuner::read_log(options.log_path);
  if (!log.ok()) return log.errors();
  if (std::string complaints = tuner::complaints_text(options.log_path, *log); !complaints.empty()) say(complaints);
  return Report(options, *target, *log).make();
}

Status write_log_report(const LogReportOptions& options, const Json& data) {
  std::ofstream out(options.output_path, std::ios::binary | std::ios::trunc);
  out << report_page(data);
  out.close();
  if (!out) return Diagnostic{ErrorKind::environment, options.output_path, "cannot be written", ""};
  return done();
}

}  // namespace mcc::tools
