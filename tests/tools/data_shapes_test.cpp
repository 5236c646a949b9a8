// Operators whose results data size, as code for this machine: the same as by the interpreter, to the bit.
#include <gtest/gtest.h>

#include <random>

#include "graph/fold.h"
#include "graph/op.h"
#include "tools/evaluator.h"

namespace mcc::tools {
namespace {

using graph::Constant;

// Multiples of 1/steps from 0 to 1: some of them are equal.
Constant random_numbers(std::vector<int64_t> shape, int steps) {
  std::mt19937 random(7);
  int64_t count = 1;
  for (int64_t d : shape)
    count *= d;
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<float>(random() % static_cast<unsigned>(steps + 1)) /
                     static_cast<float>(steps));
  return Constant::of(ElementType::f32, std::move(shape), values);
}

void expect_same_by_code(const char* op, const std::vector<Constant>& inputs, size_t outputs,
                         const graph::Attributes& attributes = {}) {
  graph::Graph graph;
  graph::Node node;
  node.op = graph::find_op("mcc", op);
  node.name = op;
  node.attributes = attributes;
  for (const Constant& input : inputs)
    node.inputs.push_back(graph.add_value("x", input.type()));
  node.outputs.assign(outputs, 0);
  const auto types = graph::infer_types(graph, node);
  ASSERT_TRUE(types.ok()) << to_text(types.errors());
  for (size_t i = 0; i < outputs; ++i)
    node.outputs[i] = graph.add_value("y", (*types)[i]);
  const auto code = jit_evaluator();
  ASSERT_TRUE(code.ok()) << to_text(code.errors());
  const auto expected = graph::evaluate_node(graph, node, inputs, graph::interpreter_evaluator());
  const auto got = graph::evaluate_node(graph, node, inputs, *code);
  ASSERT_TRUE(expected.ok() && got.ok()) << to_text(expected.ok() ? got.errors() : expected.errors());
  EXPECT_GT(expected->back().int_at(0), 0);
  for (size_t i = 0; i < outputs; ++i)
    EXPECT_TRUE(std::ranges::equal((*expected)[i].bytes(), (*got)[i].bytes())) << op << ", output " << i;
}

TEST(DataShapes, BoxesAreSelected) {
  for (int64_t is_center : {0, 1}) {
    graph::Attributes attributes;
    attributes.set("center_point_box", is_center);
    expect_same_by_code(
        "SelectBoxes",
        {random_numbers({2, 1500, 4}, 100), random_numbers({2, 5, 1500}, 1000), Constant::ints({40}),
         Constant::scalar(ElementType::f32, 0.3), Constant::scalar(ElementType::f32, 0.9)},
        2, attributes);
  }
}

TEST(DataShapes, DifferentNumbersAreFound) {
  for (int64_t is_sorted : {0, 1}) {
    graph::Attributes attributes;
    attributes.set("sorted", is_sorted);
    expect_same_by_code("Unique", {random_numbers({60, 200}, 5000)}, 5, attributes);
    attributes.set("axis", int64_t{1});
    expect_same_by_code("Unique", {random_numbers({3, 9000}, 10)}, 5, attributes);
  }
}

TEST(DataShapes, PositionsAreFound) {
  expect_same_by_code("SetPositions", {random_numbers({40'000}, 3)}, 2);
  expect_same_by_code("SetPositions", {random_numbers({100, 300}, 3)}, 2);
}

}  // namespace
}  // namespace mcc::tools
