#include "tuner/boosted_trees.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tuner/learned_model.h"
#include "tuner/random.h"

namespace mcc::tuner {
namespace {

constexpr size_t kColumns = 4;

// Programs of one to five rows; the label is a sum over rows of a step and a product.
struct Made {
  std::vector<std::vector<float>> programs;
  std::vector<double> labels;

  explicit Made(uint64_t seed, size_t count = 400) {
    Random random(seed);
    for (size_t p = 0; p < count; ++p) {
      std::vector<float> rows;
      double label = 0;
      for (int64_t r = 1 + random.below(5); r > 0; --r) {
        double a = random.uniform(), b = random.uniform();
        label += (a > 0.5 ? 1 : 0) + a * b;
        for (double x : {a, b, random.uniform(), 0.0})
          rows.push_back(static_cast<float>(x));
      }
      programs.push_back(rows);
      labels.push_back(label);
    }
  }
  std::vector<Sample> samples() const {
    std::vector<Sample> list;
    for (size_t p = 0; p < programs.size(); ++p)
      list.push_back({programs[p], labels[p], 1});
    return list;
  }
  double error(const BoostedTrees& trees) const {
    std::vector<std::span<const float>> spans(programs.begin(), programs.end());
    std::vector<double> predicted = trees.predict(spans);
    double sum = 0;
    for (size_t p = 0; p < labels.size(); ++p)
      sum += std::pow(predicted[p] - labels[p], 2);
    return std::sqrt(sum / static_cast<double>(labels.size()));
  }
};

TEST(BoostedTrees, LearnSumsOverTheRowsOfAProgram) {
  Made train(1), test(2);
  BoostedTrees trees(kColumns);
  double before = test.error(trees);
  trees.fit(train.samples(), 100);
  EXPECT_GT(before, 2);
  EXPECT_LT(test.error(trees), 0.35);
}

TEST(BoostedTrees, GoOnFromTreesThatWereSaved) {
  Made train(1), test(2);
  BoostedTrees first(kColumns);
  first.fit(train.samples(), 10);
  BoostedTrees second(kColumns);
  std::string bytes = first.save();
  second.load(bytes);
  EXPECT_DOUBLE_EQ(test.error(second), test.error(first));
  double before = test.error(second);
  second.fit(train.samples(), 40);
  EXPECT_LT(test.error(second), 0.7 * before);
}

TEST(BoostedTrees, AreTheSameEachTime) {
  Made train(3);
  BoostedTrees a(kColumns), b(kColumns);
  a.fit(train.samples(), 20);
  b.fit(train.samples(), 20);
  EXPECT_EQ(a.save(), b.save());
}

TEST(BoostedTrees, CountWeights) {
  // Two answers for one row: the heavy one wins.
  std::vector<float> row{1, 2, 3, 4};
  std::vector<Sample> samples;
  for (int i = 0; i < 50; ++i) {
    samples.push_back({row, 1, 0.9});
    samples.push_back({row, 0, 0.1});
  }
  BoostedTrees trees(kColumns);
  trees.fit(samples, 60);
  std::vector<std::span<const float>> programs{row};
  EXPECT_NEAR(trees.predict(programs)[0], 0.9, 0.05);
}

TEST(BoostedTrees, AreZeroBeforeAnything) {
  BoostedTrees trees(kColumns);
  std::vector<float> row{1, 2, 3, 4};
  std::vector<std::span<const float>> programs{row, {}};
  EXPECT_EQ(trees.predict(programs), (std::vector<double>{0, 0}));
}

Described described(float x, double estimated_us) {
  Described d;
  d.rows.assign(kModelColumns, 0);
  d.rows[0] = x;
  d.estimated_us = estimated_us;
  return d;
}

TEST(LearnedModel, BeginsWithTheAnalyser) {
  LearnedModel model(tensor::Target{}, {});
  std::vector<Described> two{described(0, 10), described(0, 20)};
  std::vector<double> scores = model.predict("t", two);
  EXPECT_GT(scores[0], scores[1]);
}

TEST(LearnedModel, CorrectsTheAnalyser) {
  // Schedules of x = 1 take four times what the analyser thinks.
  std::vector<Example> examples;
  for (int i = 0; i < 40; ++i) {
    double us = 10 + i;
    auto x = static_cast<float>(i % 2);
    examples.push_back({described(x, us), us * (i % 2 == 1 ? 4 : 1)});
  }
  LearnedModel model(tensor::Target{}, {});
  model.learn("t", examples);
  std::vector<Described> two{described(1, 10), described(0, 20)};
  std::vector<double> scores = model.predict("t", two);
  EXPECT_LT(scores[0], scores[1]);
}

TEST(LearnedModel, PutsFailuresLast) {
  std::vector<Example> examples;
  for (int i = 0; i < 60; ++i) {
    examples.push_back(
        {described(static_cast<float>(i % 2), 10 + i % 7), i % 2 == 1 ? INFINITY : 10.0 + i % 7});
  }
  for (bool has_base : {true, false}) {
    LearnedModel model(tensor::Target{}, {.has_base = has_base});
    model.learn("t", examples);
    std::vector<Described> two{described(1, 10), described(0, 12)};
    std::vector<double> scores = model.predict("t", two);
    EXPECT_LT(scores[0], scores[1]) << has_base;
  }
}

TEST(ShippedTrees, AreSmallAndFitTheFeatures) {
  ASSERT_FALSE(shipped_trees().empty());
  EXPECT_LT(shipped_trees().size(), 300'000U);
  BoostedTrees trees(kModelColumns);
  trees.load(shipped_trees());
  std::vector<float> row(kModelColumns, 1);
  std::vector<std::span<const float>> programs{row};
  EXPECT_NE(trees.predict(programs)[0], 0);
}

TEST(CostModels, AreKnownByName) {
  for (std::string_view name : cost_model_names()) {
    EXPECT_EQ(make_cost_model(name, tensor::Target{}, 0) == nullptr, name == "none") << name;
  }
  EXPECT_EQ(make_cost_model("guess", tensor::Target{}, 0), nullptr);
}

}  // namespace
}  // namespace mcc::tuner
