#include "tools/tune_algorithms.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace mcc::tools {

namespace {

// What is expected to take so many times as long as the fastest is not measured: estimates are not that far off.
constexpr double kHopeless = 2;
// By so much another algorithm has to be faster than the one that a model has anyway: times are as good as that.
constexpr double kClear = 0.97;

// The model's tasks where each problem takes its algorithm of this number, or the expected one where it has fewer.
Result<ModelTasks> variant(const CompileOptions& compile, const std::vector<AlgorithmProblem>& problems, size_t number) {
  CompileOptions options = compile;
  for (const AlgorithmProblem& problem : problems) {
    options.algorithms.names[problem.name] =
        number < problem.algorithms.size() ? problem.algorithms[number].name : problem.expected;
  }
  return extract_tasks(options);
}

// A kernel that the problem's operators went into, and how often for them: operators of other problems may have the same one.
struct OwnTask {
  const tuner::Task* task;
  int64_t runs;
};

std::vector<OwnTask> tasks_of(const ModelTasks& model, const AlgorithmProblem& problem) {
  std::vector<OwnTask> out;
  for (size_t i = 0; i < model.tasks.size(); ++i) {
    const int64_t runs = std::count_if(model.runs[i].begin(), model.runs[i].end(), [&](const std::vector<std::string>& nodes) {
      return std::any_of(nodes.begin(), nodes.end(), [&](const std::string& node) {
        return std::find(problem.origins.begin(), problem.origins.end(), node) != problem.origins.end();
      });
    });
    if (runs > 0) out.push_back({&model.tasks[i], runs});
  }
  return out;
}

// Nothing if the time is up.
Result<std::optional<double>> time_of(const std::vector<OwnTask>& tasks, const AlgorithmTuning& tuning) {
  double sum = 0;
  for (const OwnTask& own : tasks) {
    if (tuning.is_over()) return std::optional<double>();
    Result<double> us = tuning.time(*own.task);
    if (!us.ok()) return us.errors();
    sum += static_cast<double>(own.runs) * *us;
  }
  return std::optional(sum);
}

// The times of one problem; nothing if the time is up, or its kernels are the same whatever is chosen.
Result<std::optional<AlgorithmTimes>> compare(const AlgorithmProblem& problem, const std::vector<ModelTasks>& variants,
                                              const AlgorithmTuning& tuning) {
  AlgorithmTimes out{problem, {}, problem.expected};
  std::set<std::set<std::string>> kernels;
  for (size_t i = 0; i < problem.algorithms.size(); ++i) {
    const std::vector<OwnTask> tasks = tasks_of(variants[i], problem);
    std::set<std::string> texts;
    for (const OwnTask& own : tasks) texts.insert(own.task->text);
    if (!kernels.insert(texts).second) continue;
    Result<std::optional<double>> us = time_of(tasks, tuning);
    if (!us.ok()) return us.errors();
    if (!*us) return std::optional<AlgorithmTimes>();
    if (std::isfinite(**us) && **us > 0) out.us[problem.algorithms[i].name] = **us;
  }
  if (kernels.size() < 2 || out.us.empty()) return std::optional<AlgorithmTimes>();
  auto own = out.us.find(problem.expected);
  double best = own == out.us.end() ? std::numeric_limits<double>::infinity() : own->second * kClear;
  for (const auto& [name, us] : out.us) {
    if (us >= best) continue;
    best = us;
    out.best = name;
  }
  return std::optional(std::move(out));
}

}  // namespace

std::function<void(const graph::AlgorithmQuestion&)> AlgorithmQuestions::observer() {
  return [this](const graph::AlgorithmQuestion& question) {
    if (question.is_known) return;
    auto at = std::find_if(problems_.begin(), problems_.end(), [&](const AlgorithmProblem& p) { return p.name == question.problem; });
    if (at == problems_.end()) {
      AlgorithmProblem problem{question.problem, {}, {}, question.algorithms[question.chosen].name};
      double least = std::numeric_limits<double>::infinity();
      for (const graph::Algorithm& a : question.algorithms) least = std::min(least, a.us);
      for (const graph::Algorithm& a : question.algorithms) {
        if (a.us <= kHopeless * least || a.name == problem.expected) problem.algorithms.push_back(a);
      }
      if (problem.algorithms.size() < 2) return;
      at = problems_.insert(at, std::move(problem));
    }
    for (const std::string& origin : question.origins) {
      if (std::find(at->origins.begin(), at->origins.end(), origin) == at->origins.end()) at->origins.push_back(origin);
    }
  };
}

Result<std::vector<AlgorithmTimes>> compare_algorithms(const CompileOptions& compile, const std::vector<AlgorithmProblem>& problems,
                                                       const AlgorithmTuning& tuning) {
  size_t most = 0;
  for (const AlgorithmProblem& problem : problems) most = std::max(most, problem.algorithms.size());
  std::vector<AlgorithmTimes> out;
  std::vector<ModelTasks> variants;
  for (size_t i = 0; i < most; ++i) {
    if (tuning.is_over()) return out;
    Result<ModelTasks> tasks = variant(compile, problems, i);
    if (!tasks.ok()) return tasks.errors();
    variants.push_back(std::move(*tasks));
  }
  for (const AlgorithmProblem& problem : problems) {
    if (tuning.is_over()) break;
    Result<std::optional<AlgorithmTimes>> times = compare(problem, variants, tuning);
    if (!times.ok()) return times.errors();
    if (*times) out.push_back(std::move(**times));
  }
  return out;
}

}  // namespace mcc::tools
