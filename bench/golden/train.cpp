// The trees that mcc ships, and what they and the searches are worth on kernels that they have not seen.
//   golden_train SET OUT.ubj         fits trees to the whole set
//   golden_train --report SET        leaves each kernel out in turn; searches at equal trials; markdown
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "golden_set.h"
#include "tuner/quality.h"

namespace {

using namespace mcc;
using golden::Subject;

// Beyond so many, kernels that were left out get no better (the report says).
constexpr int kTrees = 60;
constexpr size_t kLeast = 64;  // schedules of a kernel, to be judged on

std::string trees_of(const golden::GoldenSet& set, const Subject* without, int count) {
  tuner::LearnedModel model(set.target, tuner::LearnedOptions{});
  for (const Subject& s : set.subjects) {
    if (&s != without) model.learn(s.task.text, s.examples());
  }
  return model.pretrain(count);
}

std::vector<double> by_analyzer(const Subject& s) {
  std::vector<double> scores;
  for (const golden::Known& k : s.known)
    scores.push_back(-k.described.estimated_us);
  return scores;
}

std::vector<double> by_trees(const golden::GoldenSet& set, const Subject& s, const std::string& trees) {
  tuner::LearnedModel model(set.target, tuner::LearnedOptions{.pretrained = trees});
  std::vector<tuner::Described> rows;
  for (const golden::Known& k : s.known)
    rows.push_back(k.described);
  return model.predict(s.task.text, rows);
}

struct Row {
  double pairs = 0, recall = 0, peak = 0, best = 0;
  int count = 0;

  void add(const std::vector<double>& scores, const std::vector<double>& times) {
    pairs += tuner::pairwise_accuracy(scores, times);
    recall += tuner::top_k_recall(scores, times, std::max<size_t>(times.size() / 10, 1));
    peak += tuner::peak_at_k(scores, times, 5);
    best += tuner::best_at_k(scores, times, 20);
    ++count;
  }
  void print(const std::string& name) const {
    double n = std::max(count, 1);
    std::printf("| %s | %.3f | %.3f | %.3f | %.3f |\n", name.c_str(), pairs / n, recall / n, peak / n,
                best / n);
  }
};

void report_models(const golden::GoldenSet& set, const std::vector<std::string>& held_out) {
  const char* head =
      " | pairwise | recall of the best tenth | peak@5 | best of 20 |\n|---|---|---|---|---|\n";
  std::printf("## Cost models, each kernel's trees trained on the others\n\n| model%s", head);
  Row analyzer, trees;
  for (size_t i = 0; i < set.subjects.size(); ++i) {
    const Subject& s = set.subjects[i];
    if (s.known.size() < kLeast) continue;
    analyzer.add(by_analyzer(s), s.times());
    trees.add(by_trees(set, s, held_out[i]), s.times());
  }
  analyzer.print("analyzer");
  trees.print("auto, before any measurement");
  std::printf(
      "\n| kernel | schedules | default | pairwise: analyzer, trees | recall: analyzer, trees | peak@5: "
      "analyzer, trees |\n"
      "|---|---|---|---|---|---|\n");
  for (size_t i = 0; i < set.subjects.size(); ++i) {
    const Subject& s = set.subjects[i];
    if (s.known.size() < kLeast) continue;
    std::vector<double> a = by_analyzer(s), t = by_trees(set, s, held_out[i]), times = s.times();
    size_t tenth = std::max<size_t>(times.size() / 10, 1);
    std::printf("| %s %s | %zu | %.2f | %.3f, %.3f | %.2f, %.2f | %.3f, %.3f |\n",
                s.task.id.substr(0, 6).c_str(), s.name.c_str(), times.size(), s.best_us / s.known[0].us,
                tuner::pairwise_accuracy(a, times), tuner::pairwise_accuracy(t, times),
                tuner::top_k_recall(a, times, tenth), tuner::top_k_recall(t, times, tenth),
                tuner::peak_at_k(a, times, 5), tuner::peak_at_k(t, times, 5));
  }
}

struct Contestant {
  const char* search;
  const char* model;  // none, analyzer, xgboost, auto
};

void report_searches(const golden::GoldenSet& set, const std::vector<std::string>& held_out) {
  constexpr int kSeeds = 3, kTrials = 96;
  constexpr int kShown[] = {1, 8, 20, 48, 96};
  constexpr Contestant kAll[] = {
      {"random", "none"},       {"genetic", "none"},   {"evolutionary", "analyzer"},
      {"evolutionary", "auto"}, {"draft", "analyzer"}, {"draft", "xgboost"},
      {"draft", "auto"},        {"auto", "analyzer"},  {"auto", "xgboost"},
      {"auto", "auto"}};
  std::printf(
      "\n## Searches: best of the set over the best found, mean over kernels and %d seeds\n\n| search | "
      "model |",
      kSeeds);
  for (int t : kShown)
    std::printf(" %d |", t);
  std::printf("\n|---|---|%s\n", "---|---|---|---|---|");
  for (const Contestant& c : kAll) {
    double sums[std::size(kShown)] = {};
    int count = 0;
    for (size_t i = 0; i < set.subjects.size(); ++i) {
      if (set.subjects[i].known.size() < 2 * kTrials) continue;
      for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
        golden::ReplayOptions options;
        options.search = c.search;
        options.trials = kTrials;
        options.seed = seed;
        const bool has_base = std::strcmp(c.model, "auto") == 0;
        tuner::LearnedOptions learned{.has_base = has_base};
        if (has_base) learned.pretrained = held_out[i];
        tuner::LearnedModel model(set.target, learned);
        if (has_base || std::strcmp(c.model, "xgboost") == 0) options.model = &model;
        options.ranks_by_drafter = std::strcmp(c.model, "analyzer") == 0;
        options.has_drafter = std::strcmp(c.model, "none") != 0;
        std::vector<double> curve = golden::replay(set.subjects[i], set.target, options);
        for (size_t k = 0; k < std::size(kShown); ++k)
          sums[k] += curve[std::min(curve.size(), static_cast<size_t>(kShown[k])) - 1];
        ++count;
      }
    }
    std::printf("| %s | %s |", c.search, c.model);
    for (double s : sums)
      std::printf(" %.3f |", s / std::max(count, 1));
    std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: golden_train SET OUT.ubj\n       golden_train --report SET\n");
    return 2;
  }
  const bool is_report = std::strcmp(argv[1], "--report") == 0;
  Result<golden::GoldenSet> set = golden::read_golden_set(argv[is_report ? 2 : 1]);
  if (!set.ok()) {
    std::fprintf(stderr, "%s\n", to_text(set.errors()).c_str());
    return 1;
  }
  if (!is_report) {
    const std::string trees = trees_of(*set, nullptr, kTrees);
    std::ofstream out(argv[2], std::ios::binary);
    out << trees;
    return out.good() ? 0 : 1;
  }
  std::vector<std::string> held_out;
  for (const Subject& s : set->subjects)
    held_out.push_back(trees_of(*set, &s, kTrees));
  report_models(*set, held_out);
  report_searches(*set, held_out);
  return 0;
}
