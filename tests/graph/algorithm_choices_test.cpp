// Which algorithm a convolution takes: by expected cost, or as somebody says.
#include "graph/passes/convolution_cost.h"

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

std::vector<int64_t> tiles(const ConvProblem& p) {
  std::vector<int64_t> out;
  for (const ConvAlgorithm& algorithm : conv_algorithms(p, cpu(), kModelBytes)) out.push_back(algorithm.tile);
  return out;
}

int64_t expected_tile(const ConvProblem& p) {
  const std::vector<ConvAlgorithm> algorithms = conv_algorithms(p, cpu(), kModelBytes);
  return algorithms[best_algorithm(algorithms)].tile;
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
  EXPECT_THAT(tiles(problem(64, 64, 28)), ElementsAre(0, 2, 4));
  // A tile of 4 x 4 would be mostly padding.
  EXPECT_THAT(tiles(problem(64, 64, 4)), ElementsAre(0, 2));
  ConvProblem strided = problem(64, 64, 28);
  strided.strides = {2, 2};
  EXPECT_THAT(tiles(strided), ElementsAre(0));
}

TEST(AlgorithmChoices, ByExpectedCostUnlessKnown) {
  Asked asked;
  const ConvProblem p = problem(128, 128, 28);
  EXPECT_EQ(asked.tile(p), expected_tile(p));
  const std::pair<const char*, int64_t> all[] = {{"direct", 0}, {"winograd_2", 2}, {"winograd_4", 4}};
  for (const auto& [name, tile] : all) {
    asked.choices.names[to_text(p)] = name;
    EXPECT_EQ(asked.tile(p), tile);
  }
  ASSERT_EQ(asked.questions.size(), 4U);
  EXPECT_FALSE(asked.questions[0].is_known);
  EXPECT_EQ(asked.questions[0].algorithms.size(), 3U);
  EXPECT_THAT(asked.questions[0].origins, ElementsAre("conv_7"));
  EXPECT_TRUE(asked.questions[3].is_known);
  EXPECT_EQ(asked.questions[3].algorithms[asked.questions[3].chosen].name, "winograd_4");
}

TEST(AlgorithmChoices, WhatThereIsNotIsNotTaken) {
  Asked asked;
  const ConvProblem p = problem(64, 64, 4);
  asked.choices.names[to_text(p)] = "winograd_4";
  EXPECT_EQ(asked.tile(p), expected_tile(p));
  EXPECT_FALSE(asked.questions[0].is_known);
}

TEST(AlgorithmChoices, WithoutAChoiceNobodyIsAsked) {
  Asked asked;
  ConvProblem strided = problem(64, 64, 28);
  strided.strides = {2, 2};
  asked.choices.names[to_text(strided)] = "winograd_4";
  EXPECT_EQ(asked.tile(strided), 0);
  EXPECT_THAT(asked.questions, IsEmpty());
}

}  // namespace
}  // namespace mcc::graph
