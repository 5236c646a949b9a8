// What steps of quantisation that are taken otherwise make of a model's results.
#include "tools/rounding.h"

#include <gtest/gtest.h>

#include "graph/fold.h"
#include "graph/graph_text.h"
#include "tools/compare.h"

namespace mcc::tools {
namespace {

using graph::Constant;

std::vector<double> results(const graph::Graph& g, const Constant& x) {
  const std::vector<Constant> inputs{x};
  const auto values = graph::run_graph(g, inputs, graph::interpreter_evaluator());
  EXPECT_TRUE(values.ok()) << to_text(values.errors());
  std::vector<double> out;
  for (int64_t i = 0; values.ok() && i < values->front().count(); ++i)
    out.push_back(values->front().number_at(i));
  return out;
}

// Of a quantisation whose steps are 1.
std::vector<double> otherwise(const std::string& body, const std::vector<float>& x) {
  const graph::Graph g =
      graph::test::parse_graph("graph g(%x: f32[" + std::to_string(x.size()) + "]) {\n" + body + "}\n");
  const std::optional<graph::Graph> other = with_other_steps(g, 0);
  EXPECT_TRUE(other.has_value());
  return other ? results(*other, Constant::of(ElementType::f32, {static_cast<int64_t>(x.size())}, x))
               : std::vector<double>();
}

TEST(OtherSteps, WhatIsCloseToABorderTakesTheNextOne) {
  const char* quantized =
      "%one: f32[] = [1]\n%zero: i8[] = [0]\n%y = QuantizeLinear(%x, %one, %zero)\nreturn %y\n";
  EXPECT_EQ(otherwise(quantized, {10.4999995F, 10.49F, 10.51F, -7.4999998F, 0}),
            (std::vector<double>{11, 10, 11, -8, 0}));
}

TEST(OtherSteps, LongSumsAreLessExact) {
  const std::string quantized = "%one: f32[] = [1]\n%zero: i8[] = [0]\n";
  const std::string sum = "%w: f32[400, 1] = [" + [] {
    std::string ones = "1";
    for (int i = 1; i < 400; ++i)
      ones += ", 1";
    return ones;
  }() + "]\n%s: i64[2] = [1, 400]\n%r = Reshape(%x, %s)\n%m = MatMul(%r, %w)\n";
  std::vector<float> x(400, 0);
  x[0] = 10.4999F;
  const std::string of_sum = quantized + sum + "%y = QuantizeLinear(%m, %one, %zero)\nreturn %y\n";
  const std::string of_element = quantized + "%y = QuantizeLinear(%x, %one, %zero)\nreturn %y\n";
  EXPECT_EQ(otherwise(of_sum, x), (std::vector<double>{11}));
  EXPECT_EQ(otherwise(of_element, x)[0], 10);
}

TEST(OtherSteps, ScalesThatFollowFromTheNumbers) {
  const char* quantized = "%y, %s, %z = DynamicQuantizeLinear(%x)\nreturn %y\n";
  EXPECT_EQ(otherwise(quantized, {0, 255, 10.4999995F, 10.49F}), (std::vector<double>{0, 255, 11, 10}));
}

TEST(OtherSteps, SixteenBitsRoundMore) {
  const char* quantized =
      "%h = Cast(%x) {to = 10}\n%one: f16[] = [1]\n%zero: i8[] = [0]\n%y = QuantizeLinear(%h, %one, "
      "%zero)\nreturn %y\n";
  EXPECT_EQ(otherwise(quantized, {100.4375F, 10.25F}), (std::vector<double>{100, 10}));
  EXPECT_EQ(otherwise(quantized, {100.5F, 10.5F}), (std::vector<double>{101, 11}));
}

TEST(OtherSteps, ScalesThatArePowersOfTwoStay) {
  const graph::Graph g = graph::test::parse_graph(
      "graph g(%x: f32[2]) {\n  %two: f8e8m0[] = [2]\n  %zero: i8[] = [0]\n  %y = QuantizeLinear(%x, %two, "
      "%zero)\n  return %y\n}\n");
  EXPECT_FALSE(with_other_steps(g, 0).has_value());
}

TEST(OtherSteps, NothingIsQuantized) {
  const graph::Graph g =
      graph::test::parse_graph("graph g(%x: f32[2]) {\n  %y = Floor(%x)\n  return %y\n}\n");
  EXPECT_FALSE(with_other_steps(g, 0).has_value());
}

TEST(OtherSteps, IntegersMayBeSoFarApart) {
  const Constant a = Constant::ints({1, 2}), b = Constant::ints({1, 4});
  EXPECT_FALSE(compare(a, b, {.rtol = 1, .atol = 1, .steps = 1}).same);
  EXPECT_TRUE(compare(a, b, {.rtol = 0, .atol = 0, .steps = 2}).same);
}

}  // namespace
}  // namespace mcc::tools
