// Cost models and searches on schedules whose times are known (bench/golden): nothing is measured here, so the figures are
// the same wherever this runs. The thresholds lie between what there is and what a broken model or search gives.
#include "golden_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tuner/quality.h"

namespace mcc::golden {
namespace {

using namespace tuner;

constexpr size_t kLeast = 400;

const GoldenSet& golden_set() {
  static const GoldenSet set = [] {
    Result<GoldenSet> read = read_golden_set(MCC_SOURCE_DIR "/bench/golden/golden.json.gz");
    if (!read.ok()) ADD_FAILURE() << to_text(read.errors());
    return read.ok() ? *read : GoldenSet{};
  }();
  return set;
}

std::vector<const Subject*> large_subjects() {
  std::vector<const Subject*> list;
  for (const Subject& s : golden_set().subjects) {
    if (s.known.size() >= kLeast) list.push_back(&s);
  }
  return list;
}

std::vector<double> by_analyzer(const Subject& s) {
  std::vector<double> scores;
  for (const Known& k : s.known)
    scores.push_back(-k.described.estimated_us);
  return scores;
}

// Trees that have not seen every other kernel, which they are judged on.
const std::string& trees_without(size_t half) {
  static std::map<size_t, std::string> trees;
  auto [it, is_new] = trees.try_emplace(half);
  if (is_new) {
    LearnedModel model(golden_set().target, LearnedOptions{});
    std::vector<const Subject*> subjects = large_subjects();
    for (size_t i = 0; i < subjects.size(); ++i) {
      if (i % 2 != half) model.learn(subjects[i]->task.text, subjects[i]->examples());
    }
    it->second = model.pretrain(60);
  }
  return it->second;
}

std::vector<double> by_trees(const Subject& s, std::span<const char> trees) {
  LearnedModel model(golden_set().target, LearnedOptions{.pretrained = trees});
  std::vector<Described> rows;
  for (const Known& k : s.known)
    rows.push_back(k.described);
  return model.predict(s.task.text, rows);
}

struct Quality {
  double pairs = 0, recall = 0, peak = 0, drafts = 0;
};

// Means over the kernels. The recall is of the fastest tenth; `drafts`: how fast the best of the better half is.
template <class Scores>
Quality quality(Scores scores_of) {
  Quality q;
  std::vector<const Subject*> subjects = large_subjects();
  for (size_t i = 0; i < subjects.size(); ++i) {
    std::vector<double> scores = scores_of(*subjects[i], i), times = subjects[i]->times();
    q.pairs += pairwise_accuracy(scores, times);
    q.recall += top_k_recall(scores, times, times.size() / 10);
    q.peak += peak_at_k(scores, times, 5);
    q.drafts += best_at_k(scores, times, times.size() / 4);
  }
  auto n = static_cast<double>(std::max<size_t>(subjects.size(), 1));
  return {q.pairs / n, q.recall / n, q.peak / n, q.drafts / n};
}

TEST(GoldenSetTest, HoldsKernelsOfManySchedules) {
  EXPECT_GE(large_subjects().size(), 12u);
  for (const Subject* s : large_subjects()) {
    // Not all of one speed.
    std::vector<double> times = s->times();
    EXPECT_GT(*std::max_element(times.begin(), times.end()), 2 * s->best_us) << s->name;
  }
}

TEST(GoldenSetTest, AnalyzerRanksAndDrafts) {
  Quality q = quality([](const Subject& s, size_t) { return by_analyzer(s); });
  EXPECT_GE(q.pairs, 0.80);
  EXPECT_GE(q.recall, 0.45);
  EXPECT_GE(q.peak, 0.85);
  EXPECT_GE(q.drafts, 0.95);  // what the draft leaves out costs little
}

TEST(GoldenSetTest, TreesRankKernelsThatTheyHaveNotSeen) {
  Quality trees = quality([](const Subject& s, size_t i) { return by_trees(s, trees_without(i % 2)); });
  EXPECT_GE(trees.pairs, 0.75);
  EXPECT_GE(trees.peak, 0.75);
}

TEST(GoldenSetTest, ShippedTreesRank) {
  Quality shipped = quality([](const Subject& s, size_t) { return by_trees(s, shipped_trees()); });
  EXPECT_GE(shipped.pairs, 0.80);
  EXPECT_GE(shipped.peak, 0.85);
}

// Trained on a part of a kernel's schedules, judged on the others.
double accuracy_after_learning(const LearnedOptions& options) {
  double sum = 0;
  std::vector<const Subject*> subjects = large_subjects();
  for (const Subject* s : subjects) {
    std::vector<Example> seen;
    std::vector<Described> unseen;
    std::vector<double> times;
    for (size_t i = 0; i < s->known.size(); ++i) {
      if (i % 4 == 0) {
        seen.push_back({s->known[i].described, s->known[i].us});
      } else {
        unseen.push_back(s->known[i].described);
        times.push_back(s->known[i].us);
      }
    }
    LearnedModel model(golden_set().target, options);
    model.learn(s->task.text, seen);
    sum += pairwise_accuracy(model.predict(s->task.text, unseen), times);
  }
  return sum / static_cast<double>(std::max<size_t>(subjects.size(), 1));
}

TEST(GoldenSetTest, ModelsLearnFromMeasurements) {
  EXPECT_GE(accuracy_after_learning({.pretrained = shipped_trees()}), 0.80);
  EXPECT_GE(accuracy_after_learning({.has_base = false}), 0.75);
}

// The mean over kernels and seeds of the best found so far.
double found(const char* search, bool has_analyzer, int trials) {
  double sum = 0;
  int count = 0;
  for (const Subject* s : large_subjects()) {
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      ReplayOptions options;
      options.search = search;
      options.trials = trials;
      options.seed = seed;
      options.has_drafter = options.ranks_by_drafter = has_analyzer;
      sum += replay(*s, golden_set().target, options).back();
      ++count;
    }
  }
  return sum / std::max(count, 1);
}

TEST(GoldenSetTest, SearchesBeatChanceAtEqualTrials) {
  constexpr int kTrials = 96;
  double random = found("random", false, kTrials);
  EXPECT_LT(random, 1);
  EXPECT_GT(found("evolutionary", true, kTrials), random);
  EXPECT_GT(found("draft", true, kTrials), random);
  EXPECT_GT(found("auto", true, kTrials), random);
}

TEST(GoldenSetTest, AutoFindsNearlyTheBest) {
  const double after_20 = found("auto", true, 20);
  EXPECT_GE(after_20, 0.95);
  EXPECT_GT(after_20, found("random", false, 20));
  EXPECT_GE(found("auto", true, 96), 0.98);
}

TEST(GoldenSetTest, ReplaysAreDeterministic) {
  const Subject& s = *large_subjects().at(0);
  ReplayOptions options;
  options.trials = 32;
  options.seed = 7;
  EXPECT_EQ(replay(s, golden_set().target, options), replay(s, golden_set().target, options));
}

}  // namespace
}  // namespace mcc::golden
