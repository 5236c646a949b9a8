#include "tuner/quality.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace mcc::tuner {
namespace {

using Numbers = std::vector<double>;
constexpr double kNever = std::numeric_limits<double>::infinity();

TEST(PairwiseAccuracy, CountsPairsInTheRightOrder) {
  EXPECT_DOUBLE_EQ(pairwise_accuracy(Numbers{3, 2, 1}, Numbers{10, 20, 30}), 1);
  EXPECT_DOUBLE_EQ(pairwise_accuracy(Numbers{1, 2, 3}, Numbers{10, 20, 30}), 0);
  EXPECT_DOUBLE_EQ(pairwise_accuracy(Numbers{3, 1, 2}, Numbers{10, 20, 30}), 2.0 / 3);
}

TEST(PairwiseAccuracy, CountsTiesOfScoresHalfAndIgnoresTiesOfTimes) {
  EXPECT_DOUBLE_EQ(pairwise_accuracy(Numbers{1, 1}, Numbers{10, 20}), 0.5);
  EXPECT_DOUBLE_EQ(pairwise_accuracy(Numbers{1, 2, 3}, Numbers{10, 10, 5}), 1);
  EXPECT_DOUBLE_EQ(pairwise_accuracy(Numbers{1, 2}, Numbers{kNever, kNever}), 1);
  EXPECT_DOUBLE_EQ(pairwise_accuracy(Numbers{1, 2}, Numbers{kNever, 7}), 1);
}

TEST(TopKRecall, CountsTheFastestThatWereFound) {
  Numbers times{1, 2, 3, 4};
  EXPECT_DOUBLE_EQ(top_k_recall(Numbers{9, 8, 1, 2}, times, 2), 1);
  EXPECT_DOUBLE_EQ(top_k_recall(Numbers{9, 1, 8, 2}, times, 2), 0.5);
  EXPECT_DOUBLE_EQ(top_k_recall(Numbers{1, 2, 8, 9}, times, 2), 0);
  EXPECT_DOUBLE_EQ(top_k_recall(Numbers{1, 2, 8, 9}, times, 10), 1);
}

TEST(PeakAtK, AveragesOverWhatWasMeasuredSoFar) {
  Numbers times{10, 20, 40};
  EXPECT_DOUBLE_EQ(peak_at_k(Numbers{3, 2, 1}, times, 2), 1);
  EXPECT_DOUBLE_EQ(peak_at_k(Numbers{1, 3, 2}, times, 1), 0.5);
  EXPECT_DOUBLE_EQ(peak_at_k(Numbers{2, 1, 3}, times, 2), (0.25 + 1) / 2);
  EXPECT_DOUBLE_EQ(best_at_k(Numbers{2, 1, 3}, times, 2), 1);
}

TEST(PeakAtK, IsZeroWhileAllFail) {
  EXPECT_DOUBLE_EQ(peak_at_k(Numbers{2, 1}, Numbers{kNever, 10}, 1), 0);
  EXPECT_DOUBLE_EQ(best_at_k(Numbers{2, 1}, Numbers{kNever, kNever}, 2), 0);
}

}  // namespace
}  // namespace mcc::tuner
