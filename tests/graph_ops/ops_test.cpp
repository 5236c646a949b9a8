// Runs the cases of tests/graph_ops/cases on the interpreter: types from infer(), values from compute(), errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <cmath>

#include "graph/fold.h"
#include "graph/op.h"
#include "graph_ops/case_file.h"
#include "tensor/verify.h"

namespace mcc::graph {
namespace {

// A graph of one node; inputs that are known at compile time are constants of it.
struct OneNode {
  explicit OneNode(const OpCase& c) {
    const OpDef* op = find_op(c.domain, c.op);
    if (!op) throw std::runtime_error("no operator " + c.op);
    node.op = op;
    node.name = "node";
    node.attributes = c.attributes;
    for (const OpCase::Input& input : c.inputs) {
      arguments.push_back(input.value);
      if (!input.present) {
        node.inputs.push_back(kNoValue);
      } else if (input.is_constant) {
        node.inputs.push_back(graph.add_constant("constant", input.value));
      } else {
        node.inputs.push_back(graph.add_value("x", input.value.type()));
        graph.inputs.push_back(node.inputs.back());
      }
    }
    size_t outputs = c.error_kind.empty() ? c.outputs.size() : 1;
    for (size_t k = 0; k < outputs; ++k) {
      bool skipped = c.error_kind.empty() && !c.outputs[k];
      node.outputs.push_back(skipped ? kNoValue : 0);
    }
  }

  // Gives the outputs their types and puts the node into the graph.
  void finish(const std::vector<TensorType>& types) {
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] == kNoValue) continue;
      node.outputs[k] = graph.add_value("y", types[k]);
      graph.value(node.outputs[k]).producer = 0;
      graph.value(node.outputs[k]).output_index = static_cast<int>(k);
      graph.outputs.push_back(node.outputs[k]);
    }
    graph.nodes.push_back(node);
  }

  Graph graph;
  Node node;
  std::vector<Constant> arguments;
};

bool close(double got, double expected, double tolerance) {
  if (std::isnan(expected) || std::isnan(got)) return std::isnan(expected) && std::isnan(got);
  if (got == expected) return true;
  return std::fabs(got - expected) <= tolerance + tolerance * std::fabs(expected);
}

void compare(const Constant& got, const Constant& expected, double tolerance) {
  ASSERT_EQ(to_text(got.type()), to_text(expected.type()));
  for (int64_t i = 0; i < expected.count(); ++i) {
    if (is_float(expected.element())) {
      EXPECT_TRUE(close(got.number_at(i), expected.number_at(i), tolerance))
          << "element " << i << ": expected " << expected.number_at(i) << ", got " << got.number_at(i);
    } else {
      EXPECT_LE(std::abs(got.int_at(i) - expected.int_at(i)), tolerance)
          << "element " << i << ": expected " << expected.int_at(i) << ", got " << got.int_at(i);
    }
  }
}

void check_error(const OpCase& c, const Result<std::vector<TensorType>>& types) {
  ASSERT_FALSE(types.ok()) << "expected an error";
  ErrorKind kind = c.error_kind == "unsupported" ? ErrorKind::unsupported : ErrorKind::bad_input;
  EXPECT_EQ(types.errors()[0].kind, kind) << to_text(types.errors());
  EXPECT_THAT(to_text(types.errors()), testing::HasSubstr(c.error_text));
}

class OperatorTest : public testing::TestWithParam<OpCase> {};

TEST_P(OperatorTest, Agrees) {
  const OpCase& c = GetParam();
  SCOPED_TRACE(c.file + ".txt:" + std::to_string(c.line) + " " + c.name);
  OneNode one(c);
  Result<std::vector<TensorType>> types = infer_types(one.graph, one.node);
  if (!c.error_kind.empty()) return check_error(c, types);
  ASSERT_TRUE(types.ok()) << to_text(types.errors());
  one.finish(*types);
  EXPECT_THAT(verify(one.graph), testing::IsEmpty());
  if (one.node.op->compute) {
    tensor::Func f = build_node_func(one.graph, one.graph.nodes[0]);
    EXPECT_THAT(tensor::verify(f, tensor::Stage::blocks), testing::IsEmpty());
  }
  if (!one.node.op->compute) {  // known when its inputs are
    const std::optional<Constant> output = one.node.op->fold(one.graph, one.node);
    ASSERT_TRUE(output) << "expected a constant";
    return compare(*output, *c.outputs[0], c.tolerance);
  }
  auto outputs = evaluate_node(one.graph, one.node, one.arguments, interpreter_evaluator());
  ASSERT_TRUE(outputs.ok()) << to_text(outputs.errors());
  for (size_t k = 0; k < c.outputs.size(); ++k) {
    if (c.outputs[k]) compare((*outputs)[k], *c.outputs[k], c.tolerance);
  }
}

std::string test_name(const testing::TestParamInfo<OpCase>& info) {
  std::string name = info.param.file + "_" + std::to_string(info.param.line) + "_" + info.param.op;
  for (char& ch : name) {
    if (!std::isalnum(static_cast<unsigned char>(ch))) ch = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Cases, OperatorTest,
                         testing::ValuesIn(read_op_cases(MCC_SOURCE_DIR "/tests/graph_ops/cases")),
                         test_name);

TEST(VariadicOperators, RefuseThousandsOfInputs) {
  for (const char* name : {"Min", "Max", "Sum", "Mean"}) {
    Graph graph;
    Node node;
    node.op = find_op("", name);
    node.inputs.assign(20'000, graph.add_value("x", {ElementType::f32, {4}}));
    node.outputs = {0};
    const Result<std::vector<TensorType>> types = infer_types(graph, node);
    ASSERT_FALSE(types.ok()) << name;
    EXPECT_EQ(types.errors()[0].kind, ErrorKind::unsupported);
    EXPECT_EQ(types.errors()[0].message, "has 20000 inputs, expected at most 1024");
  }
}

}  // namespace
}  // namespace mcc::graph
