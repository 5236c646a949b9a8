#include "tools/log_report.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "codegen/codegen.h"
#include "nlohmann/json.hpp"
#include "tensor/sizes.h"
#include "tensor/text.h"
#include "tools/cmd_log.h"
#include "tools/console.h"
#include "tuner/analyzer_cpu.h"
#include "tuner/cost_model.h"
#include "tuner/library_schedules.h"
#include "tuner/log.h"
#include "tuner/nest.h"
#include "tuner/quality.h"

namespace mcc::tools {

namespace {

using Json = nlohmann::ordered_json;

// The cost model predicts so many trials at a time, as a search lets it.
constexpr size_t kRound = 16;
// Of a task with fewer trials its models are not rated.
constexpr size_t kFewestRated = 10;

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
  std::vector<const tuner::LogEntry*> entries;  // each schedule's first
  const tuner::LogEntry* best = nullptr;         // of all, races included
  std::optional<double> default_us;              // as measured last
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
    Json models = Json::array();
    for (const std::string& name : rated_models()) {
      if (auto rating = ratings_.find(name); rating != ratings_.end()) models.push_back(rating_json(name, rating->second));
    }
    if (tasks.empty()) {
      const bool is_picked = std::any_of(log_.entries.begin(), log_.entries.end(), tuner::is_picked);
      return Diagnostic{ErrorKind::tuning_log, options_.log_path,
                        is_picked ? "has schedules that analysis picked, nothing in it was measured"
                                  : "has no trial of a task that can be shown",
                        ""};
    }
    std::string device = log_.entries.empty() ? "" : log_.entries.back().device.description;
    const Json caches = {{"L1", target_.l1.bytes}, {"L2", target_.l2.bytes}, {"L3", target_.l3.bytes}};
    return Json{{"version", MCC_VERSION}, {"target", text(options_.target, " (", target_.cpu, ")")},
                {"device", device},       {"caches", caches},
                {"tasks", tasks},         {"models", models}};
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
    std::map<std::string, size_t> targets;
    for (const tuner::LogEntry& entry : log_.entries) {
      if (entry.task == logged.id) ++targets[entry.device.target];
    }
    std::string target;
    for (const auto& [name, count] : targets) {
      if (target.empty() || count > targets[target]) target = name;
    }
    std::set<std::pair<int, std::string>> seen;
    for (const tuner::LogEntry& entry : log_.entries) {
      if (entry.task != logged.id || entry.device.target != target || !log_.has_last_sizes(entry) ||
          entry.source == "import" || tuner::is_picked(entry))
        continue;
      const tuner::Measurement& m = entry.trial.measurement;
      // Stopped early it takes at least this, in the conditions in which the winner was measured.
      if (entry.source == "default" && m.ok() && std::isfinite(m.best_us())) out.default_us = m.best_us();
      if (tuner::is_valid(entry) && (out.best == nullptr || tuner::is_faster(entry, *out.best))) out.best = &entry;
      // What was measured once more is no other schedule.
      if (!seen.emplace(entry.threads, to_text(entry.trial.candidate.trace)).second) continue;
      out.entries.push_back(&entry);
    }
    if (out.entries.empty()) return std::nullopt;
    const std::vector<int64_t>& sizes = out.entries[0]->sizes;
    if (sizes.size() != out.task.func.dims.size()) return std::nullopt;
    if (!sizes.empty()) tensor::mark_samples(out.task.func, {sizes});
    out.task.work = tensor::work_of(tensor::at_first_sample(out.task.func));
    return out;
  }

  // The one that was asked for, and what else there is.
  std::vector<std::string> rated_models() const {
    std::vector<std::string> names{options_.cost_model};
    for (std::string_view name : tuner::cost_model_names()) {
      if (name != "none" && name != options_.cost_model) names.emplace_back(name);
    }
    return names;
  }

  Json task_json(const TaskTrials& t, const tuner::LogTask& logged) {
    const size_t count = t.entries.size();
    std::vector<tuner::Planned> plans(count);
    for (size_t i = 0; i < count; ++i) plans[i] = replay(t.task, t.entries[i]->trial.candidate);
    const std::vector<std::string> names = rated_models();
    const std::vector<double> scores = predictions(t, plans, names[0]);
    std::optional<Quality> of_first;
    for (const std::string& name : names) {
      std::optional<Quality> one = quality(t, name == names[0] ? scores : predictions(t, plans, name));
      if (!one) continue;
      if (name == names[0]) of_first = one;
      ratings_[name].push_back(*one);
    }

    Json trials = Json::array();
    for (size_t i = 0; i < count; ++i) {
      const tuner::LogEntry& entry = *t.entries[i];
      const tuner::Measurement& m = entry.trial.measurement;
      const bool is_timed = m.ok() && std::isfinite(m.best_us());
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
    // A roofline of as many cores as the best one used.
    tensor::Target machine = target_;
    const tuner::LogEntry* best = t.best;
    if (best) machine.cores = best->threads;
    const double bound_us = tuner::lower_bound_us(tensor::at_first_sample(t.task.func), machine);
    out["bound_us"] = bound_us;
    out["default_us"] = t.default_us ? Json(*t.default_us) : Json(nullptr);
    out["best_us"] = best ? Json(best->trial.measurement.best_us()) : Json(nullptr);
    out["roofline_share"] = best ? Json(bound_us / best->trial.measurement.best_us()) : Json(nullptr);
    out["space"] = nullptr;
    out["trace"] = best ? to_text(best->trial.candidate.trace) : "";
    out["trials"] = std::move(trials);
    out["quality"] = of_first ? quality_json(*of_first) : Json(nullptr);
    return out;
  }

  tuner::Planned replay(const tuner::Task& task, const tuner::Candidate& candidate) const {
    tuner::Planned plan;
    tensor::Schedule schedule(task.func);
    plan.outcome = schedule.replay(candidate.trace);
    // The loops of a call say nothing of it.
    plan.fits = static_cast<bool>(plan.outcome) && !tuner::calls_library(candidate.trace);
    plan.candidate = candidate;
    plan.func = tensor::at_first_sample(schedule.func());
    return plan;
  }

  // What a model that has seen only the rounds before gives each trial; NaN where it gives nothing.
  std::vector<double> predictions(const TaskTrials& t, const std::vector<tuner::Planned>& plans, const std::string& name) const {
    std::vector<double> scores(plans.size(), std::nan(""));
    std::unique_ptr<tuner::CostModel> model = tuner::make_cost_model(name, target_, 0);
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

  // Of one model on one task.
  struct Quality {
    size_t count = 0;
    double pairwise = 0, recall = 0, peak1 = 0, peak5 = 0;
  };

  // Nothing where there is too little to rate by.
  static std::optional<Quality> quality(const TaskTrials& t, const std::vector<double>& scores) {
    std::vector<double> known, times;
    for (size_t i = 0; i < scores.size(); ++i) {
      const tuner::Measurement& m = t.entries[i]->trial.measurement;
      if (!std::isfinite(scores[i])) continue;
      // Of one that was stopped early the time that it had taken by then: how many there are depends on what else the machine did.
      known.push_back(scores[i]);
      times.push_back(m.ok() ? m.best_us() : std::numeric_limits<double>::infinity());
    }
    if (known.size() < kFewestRated) return std::nullopt;
    return Quality{known.size(), tuner::pairwise_accuracy(known, times), tuner::top_k_recall(known, times, 10),
                   tuner::best_at_k(known, times, 1), tuner::best_at_k(known, times, 5)};
  }

  static Json quality_json(const Quality& q) {
    return {{"count", q.count}, {"pairwise", q.pairwise}, {"recall", q.recall}, {"peak1", q.peak1}, {"peak5", q.peak5}};
  }

  // Means over the tasks.
  static Json rating_json(const std::string& name, const std::vector<Quality>& ratings) {
    Quality sum;
    for (const Quality& q : ratings) {
      sum.count += q.count;
      sum.pairwise += q.pairwise;
      sum.recall += q.recall;
      sum.peak1 += q.peak1;
      sum.peak5 += q.peak5;
    }
    const auto n = static_cast<double>(ratings.size());
    for (double* mean : {&sum.pairwise, &sum.recall, &sum.peak1, &sum.peak5}) *mean /= n;
    Json out = {{"model", name}, {"tasks", ratings.size()}};
    out.update(quality_json(sum));
    return out;
  }

  const LogReportOptions& options_;
  const tensor::Target& target_;
  const tuner::LogContents& log_;
  std::map<std::string, std::vector<Quality>> ratings_;  // of each model, by task
};

}  // namespace

Result<Json> log_report(const LogReportOptions& options) {
  Result<tensor::Target> target = codegen::make_target(options.target);
  if (!target.ok()) return target.errors();
  const std::vector<std::string_view> models = tuner::cost_model_names();
  if (std::find(models.begin(), models.end(), options.cost_model) == models.end()) {
    return Diagnostic{ErrorKind::usage, "--cost-model", text("there is no ", options.cost_model, "; there are ", join(models, ", ")), ""};
  }
  tuner::LogReadOptions read;
  std::map<std::string, size_t> count;
  read.wants = [&](const tuner::LogEntry& entry) { return ++count[entry.task] <= options.max_trials; };
  Result<tuner::LogContents> log = tuner::read_log(options.log_path, read);
  if (!log.ok()) return log.errors();
  say_complaints(options.log_path, *log);
  for (const auto& [task, trials] : count) {
    if (trials > options.max_trials) {
      say(printable(text(options.log_path, ": of task ", task, " the first ", options.max_trials, " of ", trials, " trials are shown")));
    }
  }
  return Report(options, *target, *log).make();
}

}  // namespace mcc::tools
