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

bool is_hopeful(const AlgorithmProblem& problem, const graph::AlgorithmCost& cost) {
  double least = cost.us;
  for (const graph::AlgorithmCost& other : problem.costs) least = std::min(least, other.us);
  return cost.us <= kHopeless * least || cost.tile == problem.tile;
}

// A model's tasks where each problem takes one algorithm.
struct Variant {
  int64_t tile = 0;
  std::vector<tuner::Task> tasks;
};

// The model with this algorithm for every problem that may take it. Nothing where none may.
Result<std::optional<Variant>> variant(const CompileOptions& compile, const std::vector<AlgorithmProblem>& problems, int64_t tile) {
  CompileOptions options = compile;
  options.algorithms.observer = nullptr;
  bool is_any = false;
  for (const AlgorithmProblem& problem : problems) {
    int64_t chosen = problem.tile;
    for (const graph::AlgorithmCost& cost : problem.costs) {
      if (cost.tile == tile && is_hopeful(problem, cost)) chosen = tile;
    }
    is_any |= chosen == tile;
    options.algorithms.tiles[problem.name] = chosen;
  }
  if (!is_any) return std::optional<Variant>();
  Result<ModelTasks> tasks = extract_tasks(options);
  if (!tasks.ok()) return tasks.errors();
  return std::optional(Variant{tile, std::move(tasks->tasks)});
}

bool has_node_of(const tuner::Task& task, const AlgorithmProblem& problem) {
  return std::any_of(task.nodes.begin(), task.nodes.end(), [&](const std::string& node) {
    return std::find(problem.origins.begin(), problem.origins.end(), node) != problem.origins.end();
  });
}

// Of the kernels that the problem's convolutions went into; nothing if the time is up.
Result<std::optional<double>> time_of(const Variant& variant, const AlgorithmProblem& problem, const AlgorithmTuning& tuning) {
  double sum = 0;
  for (const tuner::Task& task : variant.tasks) {
    if (!has_node_of(task, problem)) continue;
    if (tuning.is_over()) return std::optional<double>();
    Result<double> us = tuning.time(task);
    if (!us.ok()) return us.errors();
    sum += static_cast<double>(task.weight) * *us;
  }
  return std::optional(sum);
}

// Of the kernels that the problem's convolutions go into.
std::set<std::string> texts_of(const Variant& variant, const AlgorithmProblem& problem) {
  std::set<std::string> out;
  for (const tuner::Task& task : variant.tasks) {
    if (has_node_of(task, problem)) out.insert(task.text);
  }
  return out;
}

// The times of one problem; nothing if the time is up, or its kernels are the same whatever is chosen.
Result<std::optional<AlgorithmTimes>> compare(const AlgorithmProblem& problem, const std::vector<Variant>& variants,
                                              const AlgorithmTuning& tuning) {
  AlgorithmTimes out{problem, {}, problem.tile};
  std::set<std::set<std::string>> kernels;
  for (const Variant& variant : variants) {
    auto cost = std::find_if(problem.costs.begin(), problem.costs.end(),
                             [&](const graph::AlgorithmCost& c) { return c.tile == variant.tile; });
    if (cost == problem.costs.end() || !is_hopeful(problem, *cost)) continue;
    if (!kernels.insert(texts_of(variant, problem)).second) continue;
    Result<std::optional<double>> us = time_of(variant, problem, tuning);
    if (!us.ok()) return us.errors();
    if (!*us) return std::optional<AlgorithmTimes>();
    if (std::isfinite(**us) && **us > 0) out.us[variant.tile] = **us;
  }
  if (kernels.size() < 2 || out.us.empty()) return std::optional<AlgorithmTimes>();
  auto own = out.us.find(problem.tile);
  double best = own == out.us.end() ? std::numeric_limits<double>::infinity() : own->second * kClear;
  for (const auto& [tile, us] : out.us) {
    if (us >= best) continue;
    best = us;
    out.best = tile;
  }
  return std::optional(std::move(out));
}

}  // namespace

std::function<void(const graph::AlgorithmQuestion&)> AlgorithmQuestions::observer() {
  return [this](const graph::AlgorithmQuestion& question) {
    auto at = std::find_if(problems_.begin(), problems_.end(), [&](const AlgorithmProblem& p) { return p.name == question.problem; });
    if (question.is_known) return;
    if (at == problems_.end()) at = problems_.insert(at, {question.problem, {}, question.costs, question.tile});
    for (const std::string& origin : question.origins) {
      if (std::find(at->origins.begin(), at->origins.end(), origin) == at->origins.end()) at->origins.push_back(origin);
    }
  };
}

std::vector<AlgorithmProblem> AlgorithmQuestions::open() const {
  std::vector<AlgorithmProblem> out;
  for (const AlgorithmProblem& problem : problems_) {
    const auto hopeful = std::count_if(problem.costs.begin(), problem.costs.end(),
                                       [&](const graph::AlgorithmCost& cost) { return is_hopeful(problem, cost); });
    if (hopeful > 1) out.push_back(problem);
  }
  return out;
}

Result<std::vector<AlgorithmTimes>> compare_algorithms(const CompileOptions& compile, const std::vector<AlgorithmProblem>& problems,
                                                       const AlgorithmTuning& tuning) {
  std::set<int64_t> tiles;
  for (const AlgorithmProblem& problem : problems) {
    for (const graph::AlgorithmCost& cost : problem.costs) {
      if (is_hopeful(problem, cost)) tiles.insert(cost.tile);
    }
  }
  std::vector<Variant> variants;
  for (int64_t tile : tiles) {
    if (tuning.is_over()) return std::vector<AlgorithmTimes>();
    Result<std::optional<Variant>> one = variant(compile, problems, tile);
    if (!one.ok()) return one.errors();
    if (*one) variants.push_back(std::move(**one));
  }
  std::vector<AlgorithmTimes> out;
  for (const AlgorithmProblem& problem : problems) {
    if (tuning.is_over()) break;
    Result<std::optional<AlgorithmTimes>> times = compare(problem, variants, tuning);
    if (!times.ok()) return times.errors();
    if (*times) out.push_back(std::move(**times));
  }
  return out;
}

}  // namespace mcc::tools
