// Which algorithm a convolution takes: by expected cost, or as somebody says.
#include "graph/passes/algorithm_choices.h"

#include <gmock/gmock.h>

#include "tensor/target.h"

namespace mcc::graph {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kModelBytes = 1 << 20;

tensor::Target cpu() {
  tensor::Target target;
  target.vector_bits = 256;
  return target;
}

ConvProblem problem(int64_t in, int64_t out, int64_t side) {
  ConvProblem p;
  p.in_channels = in;
  p.out_channels = out;
  p.extents = {side, side};
  p.kernel = {3, 3};
  return p;
}

std::vector<int64_t> tiles(const std::vector<AlgorithmCost>& costs) {
  std::vector<int64_t> out;
  for (const AlgorithmCost& cost : costs) out.push_back(cost.tile);
  return out;
}

struct Asked {
  std::vector<AlgorithmQuestion> questions;
  AlgorithmChoices choices{{}, [this](const AlgorithmQuestion& q) { questions.push_back(q); }};

  int64_t tile(const ConvProblem& p) {
    Node node;
    node.origins = {"conv_7"};
    return choose_tile(p, node, cpu(), kModelBytes, choices);
  }
};

TEST(AlgorithmChoices, TextsTellProblemsApart) {
  ConvProblem p = problem(64, 128, 56);
  EXPECT_EQ(to_text(p), "3x3 of 64 channels to 128, 56x56");
  p.images = 2;
  p.strides = {2, 1};
  p.dilations = {1, 3};
  p.group = 4;
  EXPECT_EQ(to_text(p), "3x3 of 64 channels to 128, 56x56, 2 images, strides 2x1, dilations 1x3, 4 groups");
}

TEST(AlgorithmChoices, WhatThereIs) {
  EXPECT_THAT(tiles(algorithm_costs(problem(64, 64, 28), cpu(), kModelBytes)), ElementsAre(0, 2, 4));
  // A tile of 4 x 4 would be mostly padding.
  EXPECT_THAT(tiles(algorithm_costs(problem(64, 64, 4), cpu(), kModelBytes)), ElementsAre(0, 2));
  ConvProblem strided = problem(64, 64, 28);
  strided.strides = {2, 2};
  EXPECT_THAT(tiles(algorithm_costs(strided, cpu(), kModelBytes)), ElementsAre(0));
}

TEST(AlgorithmChoices, ByExpectedCostUnlessKnown) {
  Asked asked;
  const ConvProblem p = problem(128, 128, 28);
  const int64_t expected = best_tile(algorithm_costs(p, cpu(), kModelBytes));
  EXPECT_EQ(asked.tile(p), expected);
  for (int64_t known : {0, 2, 4}) {
    asked.choices.tiles[to_text(p)] = known;
    EXPECT_EQ(asked.tile(p), known);
  }
  ASSERT_EQ(asked.questions.size(), 4U);
  EXPECT_FALSE(asked.questions[0].is_known);
  EXPECT_EQ(asked.questions[0].tile, expected);
  EXPECT_THAT(asked.questions[0].origins, ElementsAre("conv_7"));
  EXPECT_TRUE(asked.questions[3].is_known);
  EXPECT_EQ(asked.questions[3].tile, 4);
}

TEST(AlgorithmChoices, WhatThereIsNotIsNotTaken) {
  Asked asked;
  const ConvProblem p = problem(64, 64, 4);
  asked.choices.tiles[to_text(p)] = 4;
  EXPECT_EQ(asked.tile(p), best_tile(algorithm_costs(p, cpu(), kModelBytes)));
  EXPECT_FALSE(asked.questions[0].is_known);
}

TEST(AlgorithmChoices, WithoutAChoiceNobodyIsAsked) {
  Asked asked;
  ConvProblem strided = problem(64, 64, 28);
  strided.strides = {2, 2};
  asked.choices.tiles[to_text(strided)] = 4;
  EXPECT_EQ(asked.tile(strided), 0);
  EXPECT_THAT(asked.questions, IsEmpty());
}

}  // namespace
}  // namespace mcc::graph
