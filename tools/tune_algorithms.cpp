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

// An algorithm of a problem by what it makes.
struct Made {
  std::string algorithm;
  std::vector<OwnTask> tasks;
};

// Of what makes the same kernels only the first.
std::vector<Made> made_by_each(const AlgorithmProblem& problem, const std::vector<ModelTasks>& variants) {
  std::vector<Made> out;
  std::set<std::set<std::string>> kernels;
  for (size_t i = 0; i < problem.algorithms.size(); ++i) {
    std::vector<OwnTask> tasks = tasks_of(variants[i], problem);
    std::set<std::string> texts;
    for (const OwnTask& own : tasks)
      texts.insert(own.task->text);
    if (kernels.insert(texts).second) out.push_back({problem.algorithms[i].name, std::move(tasks)});
  }
  return out;
}

// Nothing if there was no time for one of them.
std::optional<double> time_of(const std::vector<OwnTask>& tasks, const AlgorithmTuning& tuning) {
  double sum = 0;
  for (const OwnTask& own : tasks) {
    const std::optional<double> us = tuning.time(*own.task);
    if (!us) return std::nullopt;
    sum += static_cast<double>(own.runs) * *us;
  }
  return sum;
}

// Nothing if there was no time, or there is nothing to compare.
std::optional<AlgorithmTimes> compare(const AlgorithmProblem& problem, const std::vector<Made>& all,
                                      const AlgorithmTuning& tuning) {
  AlgorithmTimes out{problem, {}, problem.expected};
  for (const Made& made : all) {
    const std::optional<double> us = time_of(made.tasks, tuning);
    if (!us) return std::nullopt;
    if (std::isfinite(*us) && *us > 0) out.us[made.algorithm] = *us;
  }
  if (all.size() < 2 || out.us.empty()) return std::nullopt;
  auto own = out.us.find(problem.expected);
  double best = own == out.us.end() ? std::numeric_limits<double>::infinity() : own->second * kClear;
  for (const auto& [name, us] : out.us) {
    if (us >= best) continue;
    best = us;
    out.best = name;
  }
  return out;
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
  std::vector<std::vector<Made>> made;
  std::vector<const tuner::Task*> tasks;
  for (const AlgorithmProblem& problem : problems) {
    made.push_back(made_by_each(problem, variants));
    for (const Made& by_one : made.back())
      for (const OwnTask& own : by_one.tasks)
        if (made.back().size() > 1) tasks.push_back(own.task);
  }
  if (Status status = tuning.measure(tasks); !status.ok()) return status.errors();
  for (size_t i = 0; i < problems.size(); ++i) {
    if (std::optional<AlgorithmTimes> times = compare(problems[i], made[i], tuning))
      out.push_back(std::move(*times));
  }
  return out;
}

}  // namespace mcc::tools
