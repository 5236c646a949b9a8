#include "frontend/import.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "graph/op.h"
#include "model_file.h"
#include "onnx/onnx-data.pb.h"

namespace mcc::frontend {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> operators(const graph::Graph& graph) {
  std::vector<std::string> names;
  for (const graph::Node& node : graph.nodes)
    names.emplace_back(node.op->name);
  return names;
}

std::string output_type(const ImportedModel& model, size_t i = 0) {
  return to_text(model.graph.value(model.graph.outputs.at(i)).type);
}

TEST(Import, BuildsTypedNodesInOrder) {
  auto model = import_text(R"(
    <ir_version: 8, opset_import: ["" : 17], producer_name: "maker", producer_version: "1.2">
    g (float[2,3] x, float[3] b) => (float[2,3] y) { s = Add(x, b) y = Relu(s) })");
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_THAT(operators(model->graph), ElementsAre("Add", "Relu"));
  EXPECT_EQ(output_type(*model), "f32[2, 3]");
  EXPECT_EQ(model->producer, "maker 1.2");
  EXPECT_EQ(model->opset, 17);
  EXPECT_THAT(graph::verify(model->graph), IsEmpty());
}

TEST(Import, NodesComeBehindThoseWhoseResultsTheyUse) {
  auto model = import_text(R"(
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x) => (float[2] y) { y = Relu(s) a = Abs(x) s = Add(n, a) n = Neg(x) })");
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_THAT(operators(model->graph), ElementsAre("Abs", "Neg", "Add", "Relu"));
}

// Branches use what comes later in the file, inside of them and around them.
TEST(Import, NodesOfBranchesAreInOrder) {
  auto model = import_text(R"(
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x) => (float[2] y) {
      y = If(yes) <then_branch = t () => (float[2] p) { p = Neg(b) b = Abs(a) }, else_branch = e () => (float[2] z) { z = Neg(x) }>
      a = Relu(x)
      yes = Constant<value = bool {1}>()
    })");
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_THAT(operators(model->graph), ElementsAre("Relu", "Abs", "Neg"));
}

TEST(Import, NodesThatNothingNeedsAreLeftOut) {
  auto model = import_text(R"(
    <ir_version: 8, opset_import: ["" : 17, "custom" : 1]>
    g (float[2] x) => (float[2] y) { unused = custom.Nothing(x) y = Neg(x) })");
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_THAT(operators(model->graph), ElementsAre("Neg"));
}

TEST(Import, InitializersThatAreInputsAreConstants) {
  auto model = import_text(R"(
    <ir_version: 3, opset_import: ["" : 8]>
    g (float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) })");
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_EQ(model->graph.inputs.size(), 1u);
}

TEST(Import, LocalFunctionsAreInlined) {
  auto model = import_text(R"(
    <ir_version: 8, opset_import: ["" : 17, "local" : 1]>
    g (float[2] x) => (float[2] y) { y = local.twice(x) }
    <domain: "local", opset_import: ["" : 17]>
    twice (a) => (b) { b = Add(a, a) })");
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_THAT(operators(model->graph), ElementsAre("Add"));
}

TEST(Import, TakesTheBranchOfAKnownCondition) {
  auto model = import_text(R"(
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x) => (float[2] y) <bool c = {0}> {
      y = If (c) <then_branch = t () => (float[2] a) { a = Neg(x) },
                  else_branch = e () => (float[2] b) { b = Abs(x) }> })");
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_THAT(operators(model->graph), ElementsAre("Abs"));
}

// Whatever stands for the node that makes it: a branch, or the body of a function.
TEST(Import, OutputsKeepTheirNames) {
  auto model = import_text(R"(
    <ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
    g (float[2,3] x, int64[2] target) => (float loss, float[2,3] branch, float[2,3] fast) <bool c = {1}> {
      loss = SoftmaxCrossEntropyLoss (x, target)
      branch = If (c) <then_branch = t () => (float[2,3] a) { a = Neg(x) },
                       else_branch = e () => (float[2,3] b) { b = Abs(x) }>
      fast = com.microsoft.FastGelu (x)
    })");
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  std::vector<std::string> names;
  for (graph::ValueId id : model->graph.outputs)
    names.push_back(model->graph.value(id).name);
  EXPECT_THAT(names, ElementsAre("loss", "branch", "fast"));
}

// The conversion to a newer opset asks for the ranks of values: those behind onnxruntime's operators are known, too.
TEST(Import, TypesAreInferredThroughExpansions) {
  auto model = import_text(R"(
    <ir_version: 8, opset_import: ["" : 11, "com.microsoft" : 1]>
    g (float[2,3,4] x, float[4,5] w) => (float[2,3,5] y) {
      a = com.microsoft.FusedMatMul <alpha = 2.0> (x, w)
      b = com.microsoft.Gelu (a)
      y = Softmax <axis = 2> (b)
    })");
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_EQ(output_type(*model), "f32[2, 3, 5]");
}

TEST(Import, DimensionsByName) {
  const std::string source = R"(
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[N,3] x, float[N,1] z) => (float[N,3] y) { y = Add(x, z) })";
  ImportOptions options;
  options.dims["N"] = 5;
  auto model = import_text(source, options);
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_EQ(output_type(*model), "f32[5, 3]");

  ImportOptions by_shape;
  by_shape.input_shapes["x"] = {7, 3};
  model = import_text(source, by_shape);
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_EQ(output_type(*model), "f32[7, 3]");
}

TEST(Import, NamesOfDimensionsThatGivenShapesContradictSayNothing) {
  const std::string source = R"(
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[B,H,W] x, float[B,H,W] z) => (float[B,H,W] y, float[B,H,W] v) { y = Relu(x) v = Neg(z) })";
  ImportOptions options;
  options.input_shapes = {{"x", {1, 8, kOpenDim}}, {"z", {1, 4, kOpenDim}}};
  options.input_ranges = {{"x", {{2, {1, 64}}}}, {"z", {{2, {1, 64}}}}};
  auto model = import_text(source, options);
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_EQ(output_type(*model, 0), "f32[1, 8, x.2]");
  EXPECT_EQ(output_type(*model, 1), "f32[1, 4, z.2]");
  EXPECT_THAT(
      model->notes,
      ElementsAre("the model gives dimensions of different sizes the same names, which are not used: H, W"));
  options.dims["H"] = 8;  // that it is one size for all
  EXPECT_THAT(error_lines(import_text(source, options)),
              ElementsAre("dimension 'H' is 4 in the shape given for input 'z', but 8 elsewhere"));
}

TEST(Import, NumbersForInputs) {
  const std::string source = R"(
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[4] x, float16 s, int64[K] k, bool[1] b, float[2,M] m) => (float16 y, int64[K] l, bool[1] c, float[2,M] n) {
      y = Identity(s) l = Identity(k) c = Identity(b) n = Identity(m) })";
  ImportOptions options;
  options.numbers = {{"s", {0.5}}, {"k", {3, -1, 7}}, {"b", {1}}, {"m", {2.5}}};
  options.dims["M"] = 2;
  auto model = import_text(source, options);
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  const auto constant = [&](size_t output) {
    return *model->graph.value(model->graph.outputs[output]).constant;
  };
  EXPECT_EQ(to_text(constant(0).type()), "f16[]");
  EXPECT_EQ(constant(0).number_at(0), 0.5);
  EXPECT_THAT(constant(1).to_ints(), ElementsAre(3, -1, 7));
  EXPECT_EQ(to_text(constant(2).type()), "bool[1]");
  EXPECT_EQ(constant(2).int_at(0), 1);
  EXPECT_EQ(to_text(constant(3).type()), "f32[2, 2]");
  for (int64_t i = 0; i < 4; ++i)
    EXPECT_EQ(constant(3).number_at(i), 2.5);
}

TEST(Import, NumbersThatDoNotFitAnInput) {
  const std::string source = R"(
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[3] x, uint8 n, string s, float[A,B] m) => (float[3] y) { y = Neg(x) })";
  const auto error = [&](const std::string& name, const std::vector<double>& numbers) {
    ImportOptions options;
    options.numbers[name] = numbers;
    const std::vector<std::string> lines = error_lines(import_text(source, options));
    return lines.size() == 1 ? lines[0] : text(lines.size(), " errors");
  };
  EXPECT_EQ(error("x", {1, 2}), "--input-value x: expected 3 numbers, or one for all elements, got 2");
  EXPECT_EQ(error("n", {1, 2}), "--input-value n: expected 1 number, got 2");
  EXPECT_EQ(error("n", {256}), "--input-value n: 256 is no value of the type u8");
  EXPECT_EQ(error("n", {0.5}), "--input-value n: 0.5 is no value of the type u8");
  EXPECT_EQ(error("n", {1e300}), "--input-value n: 1e+300 is no value of the type u8");
  EXPECT_EQ(error("s", {1}), "--input-value s: an input of type string cannot be given by numbers");
  EXPECT_EQ(error("m", {1}),
            "--input-value m: several of its dimensions have no size: give them by --dim or --input-shape");
  EXPECT_EQ(error("z", {1}), "the model has no input 'z'; there are: m, n, s, x");
}

TEST(Import, FixedInputsBecomeConstants) {
  ImportOptions options;
  options.constants["b"] = graph::Constant::of(ElementType::f32, {2}, std::vector<float>{1, 2});
  auto model = import_text(R"(
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x, float[2] b) => (float[2] y) { y = Add(x, b) })",
                           options);
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_EQ(model->graph.inputs.size(), 1u);
}

TEST(Import, SmallConstantsAreComputed) {
  auto model = import_text(R"(
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x) => (float[2] y) <float[2] a = {1, 2}, float[2] b = {3, 4}> { c = Add(a, b) y = Mul(x, c) })");
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  ASSERT_THAT(operators(model->graph), ElementsAre("Mul"));
  const graph::Value& c = model->graph.value(model->graph.nodes[0].inputs[1]);
  ASSERT_TRUE(c.constant);
  EXPECT_EQ(c.constant->number_at(0), 4);
  EXPECT_EQ(c.constant->number_at(1), 6);
}

// Everything wrong with a model comes at once.
// "x0, x1, ...".
std::string numbered(const std::string& prefix, int count) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i)
    names.push_back(text(prefix, i));
  return join(names, ", ");
}

// However many operands and results there are, no kernel comes to have more than some.
// What data size has known sizes where the data are constants.
TEST(Import, ConstantsSizeResults) {
  auto model = import_text(R"(
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[3] x) => (int64[n, 3] boxes, float[m] different, int64[m] first, int64[6] group, int64[2, k] places, float[j] chosen)
      <float[1,3,4] corners = {0,0,1,1, 0,0,1,0.9, 0,5,1,6}, float[1,2,3] scores = {0.5,0.9,0.1, 0.4,0.3,0.2}, int64[1] most = {2},
       float[1] overlap = {0.5}, float[1] score = {0.25}, float[6] numbers = {2,1,1,3,4,3}, float[2,2] some = {0,1,2,0}, bool[3] is_chosen = {1,0,1}> {
      boxes = NonMaxSuppression(corners, scores, most, overlap, score)
      different, first, group = Unique<sorted = 0>(numbers)
      places = NonZero(some)
      chosen = Compress(x, is_chosen) })");
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_THAT(operators(model->graph), ElementsAre("Compress"));
  auto output = [&](size_t i) { return model->graph.value(model->graph.outputs[i]); };
  EXPECT_EQ(output_type(*model, 0), "i64[2, 3]");
  EXPECT_THAT(output(0).constant->to_ints(), ElementsAre(0, 0, 1, 0, 1, 0));
  EXPECT_EQ(output_type(*model, 1), "f32[4]");
  EXPECT_THAT(output(2).constant->to_ints(), ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(output(3).constant->to_ints(), ElementsAre(0, 1, 1, 2, 3, 2));
  EXPECT_THAT(output(4).constant->to_ints(), ElementsAre(0, 1, 1, 0));
  EXPECT_EQ(output_type(*model, 5), "f32[2]");
  EXPECT_THAT(graph::verify(model->graph), IsEmpty());
}

// Faults of nodes whose results data size name the node's own operands.
TEST(Import, FaultsOfWhatDataSizes) {
  auto model = import_text(R"(
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[1,3,5] corners, float[1,2,3] scores, float[6] x, bool[7] c) => (int64[n, 3] boxes, float[m] different, float[j] chosen) {
      boxes = NonMaxSuppression(corners, scores)
      different = Unique<axis = 1>(x)
      chosen = Compress<axis = 0>(x, c) })");
  EXPECT_THAT(error_lines(model), ElementsAre(HasSubstr("numbers of a box"), HasSubstr("7 conditions for 6 elements"), HasSubstr("axis 1")));
}

TEST(Import, NodesOfManyOperandsAreSeveral) {
  const std::string head = R"(<ir_version: 8, opset_import: ["" : 17]> g )";
  const std::string operands = numbered("float[4,2] x", 300), names = numbered("x", 300);
  for (const std::string type : {"Concat <axis = 1>", "Sum", "Mean", "Max", "Min"}) {
    auto model =
        import_text(text(head, "(", operands, ") => (float[M,N] y) { y = ", type, " (", names, ") }"));
    ASSERT_TRUE(model.ok()) << to_text(model.errors());
    EXPECT_THAT(graph::verify(model->graph), IsEmpty());
    EXPECT_EQ(output_type(*model), type.starts_with("Concat") ? "f32[4, 600]" : "f32[4, 2]");
    EXPECT_EQ(model->graph.value(model->graph.outputs[0]).name, "y");
    EXPECT_GT(model->graph.nodes.size(), 2U);
    for (const graph::Node& node : model->graph.nodes)
      EXPECT_LE(node.inputs.size(), 128U);
  }
  auto split = import_text(text(head, "(float[4,600] x) => (", numbered("float[M,N] y", 300), ") { ",
                                numbered("y", 300), " = Split <axis = -1> (x) }"));
  ASSERT_TRUE(split.ok()) << to_text(split.errors());
  EXPECT_THAT(graph::verify(split->graph), IsEmpty());
  for (size_t i = 0; i < 300; ++i)
    EXPECT_EQ(output_type(*split, i), "f32[4, 2]");
  for (const graph::Node& node : split->graph.nodes)
    EXPECT_LE(node.outputs.size(), 64U);
}

// Sums of halves are rounded once.
TEST(Import, SumsOfManyHalvesStayWide) {
  auto model =
      import_text(text(R"(<ir_version: 8, opset_import: ["" : 17]> g ()", numbered("float16[2] x", 200),
                       ") => (float16[2] y) { y = Mean (", numbered("x", 200), ") }"));
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_EQ(output_type(*model), "f16[2]");
  int sums = 0;
  for (const graph::Node& node : model->graph.nodes) {
    if (node.op->name != "Sum") continue;
    ++sums;
    EXPECT_EQ(model->graph.value(node.outputs[0]).type.element, ElementType::f32);
  }
  EXPECT_EQ(sums, 4);
}

TEST(Import, FaultsOfNodesOfManyOperandsAreSaidOnce) {
  auto model = import_text(
      text(R"(<ir_version: 8, opset_import: ["" : 17]> g ()", numbered("float[4,2] x", 300),
           ", float[4] z) => (float[M,N] y) { y = Concat <axis = 5> (", numbered("x", 300), ") }"));
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.errors().size(), 1U) << to_text(model.errors());
}

// As the model counts its operands, not as those of the nodes that it becomes.
TEST(Import, FaultsOfNodesOfManyOperandsNameTheOperand) {
  const std::string head = R"(<ir_version: 8, opset_import: ["" : 17]> g ()",
                    names = text(numbered("x", 290), ", z, ", numbered("w", 9));
  auto errors = [&](const std::string& z, const std::string& type) {
    return error_lines(
        import_text(text(head, numbered("float[4,2] x", 290), ", ", z, " z, ", numbered("float[4,2] w", 9),
                         ") => (float[M,N] y) { [n] y = ", type, " (", names, ") }")));
  };
  EXPECT_THAT(errors("float[4,3]", "Concat <axis = 0>"),
              ElementsAre("node 'n' (Concat): dimension 1 of input 290: expected 2, got 3"));
  EXPECT_THAT(errors("float[4]", "Concat <axis = 0>"),
              ElementsAre("node 'n' (Concat): input 290: expected rank 2, got f32[4]"));
  for (const std::string type : {"Concat <axis = 0>", "Sum", "Mean", "Max", "Min"}) {
    EXPECT_THAT(errors("double[4,2]", type),
                ElementsAre(HasSubstr("inputs 0 and 290 must have the same element type, got f32 and f64")));
  }
}

TEST(Import, MapsAreTheirNumbersAndKeys) {
  auto model = import_text(R"(
    <ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 1]>
    g (float[2,3] x) => (float[2,3] y, seq(map(int64, float[])) maps, seq(map(string, float[])) named) {
      y = Neg(x)
      maps = ai.onnx.ml.ZipMap <classlabels_int64s = [7, 8, 9]> (y)
      inner = ai.onnx.ml.ZipMap <classlabels_strings = ["a", "b", "c"]> (x)
      named = Identity(inner)
    })");
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_EQ(output_type(*model, 1), "f32[2, 3]");
  EXPECT_EQ(model->graph.value(model->graph.outputs[1]).name, "maps");
  ASSERT_EQ(model->labels.size(), 2u);
  EXPECT_EQ(model->labels["maps"].kind, OutputLabels::Kind::keys);
  EXPECT_THAT(std::get<0>(model->labels["maps"].list), ElementsAre(7, 8, 9));
  EXPECT_THAT(std::get<1>(model->labels["named"].list), ElementsAre("a", "b", "c"));
  EXPECT_THAT(graph::verify(model->graph), IsEmpty());
}

TEST(Import, StringsAreIdsBetweenInputsAndOutputs) {
  auto model = import_text(R"(
    <ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 1]>
    g (int64[2,1] x, string[2] z) => (string[4] y) <string[3] words = {"a", "b", "a"}> {
      picked = ai.onnx.ml.ArrayFeatureExtractor(words, x)
      shape = Constant <value_ints = [2]> ()
      row = Reshape(picked, shape)
      y = Concat <axis = 0> (row, z)
    })");
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_EQ(output_type(*model), "string[4]");
  EXPECT_THAT(model->graph.texts, ElementsAre("", "a", "b"));
  EXPECT_THAT(model->labels, IsEmpty());
  EXPECT_THAT(graph::verify(model->graph), IsEmpty());
}

TEST(Import, OptionalTensorsAreTakenToBeThere) {
  auto model = import_text(R"(
    <ir_version: 8, opset_import: ["" : 18]>
    g (optional(float[2]) x) => (float[2] y, bool there, bool nowhere, float[2] z) {
      there = OptionalHasElement(x)
      v = OptionalGetElement(x)
      y = Neg(v)
      o = Optional(v)
      z = OptionalGetElement(o)
      nowhere = OptionalHasElement()
    })");
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_EQ(output_type(*model), "f32[2]");
  const auto known = [&](size_t i) { return model->graph.value(model->graph.outputs.at(i)).constant->int_at(0); };
  EXPECT_EQ(known(1), 1);
  EXPECT_EQ(known(2), 0);
  EXPECT_EQ(model->graph.value(model->graph.outputs[3]).name, "z");
  EXPECT_THAT(graph::verify(model->graph), IsEmpty());
}

TEST(Import, OptionalValuesThatHoldNone) {
  auto model = import_text(R"(
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[2] x) => (optional(float[2]) y, float[2] z) {
      y = Optional <type: type_proto = optional(float[2])> ()
      [n] z = OptionalGetElement(y)
    })");
  EXPECT_THAT(error_lines(model), ::testing::Contains("node 'n' (OptionalGetElement): its operand is an optional value that holds none"));
}

TEST(Import, TensorsOfASequenceKeepTheirNames) {
  auto model = import_text(R"(
    <ir_version: 8, opset_import: ["" : 17]>
    g (float[2] x) => (float[2] y) <int64 one = {1}> {
      s = SequenceConstruct(x, x)
      y = SequenceAt(s, one)
    })");
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_EQ(model->graph.value(model->graph.outputs[0]).name, "y");
  EXPECT_EQ(model->graph.value(model->graph.inputs[0]).name, "x");
}

TEST(Import, StringsAreNotComputedWith) {
  auto model = import_text(R"(
    <ir_version: 8, opset_import: ["" : 17]>
    g (string[1,1,2,2] x) => (string[1,1,4,4] y) <float[4] scales = {1, 1, 2, 2}> {
      [n] y = Resize <mode = "nearest"> (x, , scales)
    })");
  EXPECT_THAT(error_lines(model),
              ::testing::Contains(
                  "node 'n' (Resize): operand 'x' is a tensor of strings, which are not supported here"));
}

TEST(Import, ReportsEverything) {
  auto model = import_text(R"(
    <ir_version: 8, opset_import: ["" : 17, "custom" : 2]>
    g (float[N,3] x, float[3] z) => (float[N,3] y, float[3] w) {
      [first] a = custom.Strange(x)
      [second] y = NoSuchThing(a)
      [third] b = Relu <nonsense = 1> (z)
      [fourth] w = Gelu (b)
    })");
  EXPECT_THAT(
      error_lines(model),
      ElementsAre(
          "input 'x': dimension 0 ('N') has no value | give values, for example --dim N=1, or --input-shape "
          "x=1x3",
          "node 'first' (custom.Strange): operator custom.Strange is not supported",
          "node 'fourth' (Gelu): opset 17 of ai.onnx has no operator Gelu | Gelu is there from opset 20 on",
          "node 'second' (NoSuchThing): opset 17 of ai.onnx has no operator NoSuchThing",
          "node 'third' (Relu): attribute 'nonsense' is not one of Relu's"));
}

TEST(Import, LaterFaultsAreFoundBehindUnsupportedNodes) {
  auto model = import_text(R"(
    <ir_version: 8, opset_import: ["" : 17, "custom" : 1]>
    g (float[2] x) => (float[2] y) {
      a = custom.One(x)
      b = Neg(a)
      [n] c = custom.Two(b)
      y = Abs(c)
    })");
  EXPECT_THAT(error_lines(model),
              ElementsAre("node 'n' (custom.Two): operator custom.Two is not supported",
                          "node of output 'a' (custom.One): operator custom.One is not supported"));
}

TEST(Import, NewerOpsetsAreRefused) {
  auto model = import_text(
      R"(<ir_version: 8, opset_import: ["" : 99]> g (float[2] x) => (float[2] y) { y = Neg(x) })");
  EXPECT_THAT(error_lines(model),
              ElementsAre("the model uses opset 99 of ai.onnx; the newest that is supported is 28"));
}

// ---- Data ----

onnx::ModelProto model_with_weight(int count) {
  onnx::ModelProto model = parse_model(text("<ir_version: 8, opset_import: [\"\" : 17]> g (float[", count,
                                            "] x) => (float[", count, "] y) { y = Add(x, w) }"));
  onnx::TensorProto* weight = model.mutable_graph()->add_initializer();
  weight->set_name("w");
  weight->set_data_type(onnx::TensorProto::FLOAT);
  weight->add_dims(count);
  return model;
}

std::string floats(int count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i) * 0.5f;
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

TEST(ImportData, LargeWeightsAreReadFromTheFile) {
  ModelFolder folder;
  onnx::ModelProto model = model_with_weight(1000);
  model.mutable_graph()->mutable_initializer(0)->set_raw_data(floats(1000));
  // Wherever the data comes to lie, aligned or not, the values are right.
  for (int shift = 0; shift < 4; ++shift) {
    model.set_producer_name(std::string(static_cast<size_t>(shift), 'p'));
    auto imported = import_onnx(folder.write(model), {}, graph::interpreter_evaluator());
    ASSERT_TRUE(imported.ok()) << to_text(imported.errors());
    const graph::Graph& graph = imported->graph;
    const graph::Value& weight = graph.value(graph.nodes.at(0).inputs.at(1));
    ASSERT_TRUE(weight.constant);
    EXPECT_EQ(weight.constant->number_at(999), 499.5);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(weight.constant->bytes().data()) % 4, 0u);
  }
}

TEST(ImportData, SizesMustFit) {
  ModelFolder folder;
  for (int count : {999, 10}) {
    onnx::ModelProto model = model_with_weight(1000);
    model.mutable_graph()->mutable_initializer(0)->set_raw_data(floats(count));
    auto imported = import_onnx(folder.write(model), {}, graph::interpreter_evaluator());
    ASSERT_FALSE(imported.ok());
    EXPECT_EQ(imported.errors().front().kind, ErrorKind::bad_input);
  }
}

Result<ImportedModel> import_external(const ModelFolder& folder, const std::string& location,
                                      const std::string& offset = "", const std::string& length = "") {
  onnx::ModelProto model = model_with_weight(8);
  onnx::TensorProto& weight = *model.mutable_graph()->mutable_initializer(0);
  weight.set_data_location(onnx::TensorProto::EXTERNAL);
  auto add = [&](const std::string& key, const std::string& value) {
    if (value.empty()) return;
    auto* entry = weight.add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  };
  add("location", location);
  add("offset", offset);
  add("length", length);
  std::filesystem::create_directories(folder.file("models/data"));
  return import_onnx(folder.write(model, "models/model.onnx"), {}, graph::interpreter_evaluator());
}

TEST(ImportData, ExternalDataFromBelowTheModelsFolder) {
  ModelFolder folder;
  std::filesystem::create_directories(folder.file("models/data"));
  folder.write("models/data/w.bin", "skip" + floats(8));
  auto imported = import_external(folder, "data/w.bin", "4", "32");
  ASSERT_TRUE(imported.ok()) << to_text(imported.errors());
  EXPECT_THAT(
      error_lines(import_external(folder, "data/w.bin", "40", "32")),
      ElementsAre("initializer 'w': offset 40 of its external data is not within 'data/w.bin' (36 bytes)"));
  EXPECT_THAT(error_lines(import_external(folder, "data/w.bin", "8", "32")),
              ElementsAre("initializer 'w': length 32 of its external data at offset 8 is not within "
                          "'data/w.bin' (36 bytes)"));
  EXPECT_THAT(error_lines(import_external(folder, "data/w.bin", "0", "8")),
              ElementsAre("initializer 'w': has 8 bytes of data; [8] of f32 needs 32"));
  EXPECT_THAT(
      error_lines(import_external(folder, "data/w.bin", "-4", "32")),
      ElementsAre("initializer 'w': offset -4 of its external data is not within 'data/w.bin' (36 bytes)"));
}

TEST(ImportData, ExternalDataFromElsewhereIsRefused) {
  ModelFolder folder;
  std::filesystem::create_directories(folder.file("models"));
  folder.write("secret.bin", floats(8));
  std::filesystem::create_symlink(folder.file("secret.bin"), folder.file("models/link.bin"));
  std::filesystem::create_directory_symlink(folder.file(""), folder.file("models/up"));
  EXPECT_THAT(
      error_lines(import_external(folder, "../secret.bin")),
      ElementsAre("initializer 'w': its external data '../secret.bin' is not below the model's folder"));
  EXPECT_THAT(error_lines(import_external(folder, folder.file("secret.bin"))),
              ElementsAre(HasSubstr("is not below the model's folder")));
  EXPECT_THAT(error_lines(import_external(folder, "link.bin")),
              ElementsAre("initializer 'w': its external data 'link.bin' leads out of the model's folder"));
  EXPECT_THAT(
      error_lines(import_external(folder, "up/secret.bin")),
      ElementsAre("initializer 'w': its external data 'up/secret.bin' leads out of the model's folder"));
  EXPECT_THAT(error_lines(import_external(folder, "data")),
              ElementsAre("initializer 'w': its external data 'data' cannot be read: not a regular file"));
  EXPECT_THAT(
      error_lines(import_external(folder, "none.bin")),
      ElementsAre("initializer 'w': its external data 'none.bin' cannot be read: No such file or directory"));
}

TEST(ImportData, TwoBitTensorsAreUnpacked) {
  ModelFolder folder;
  onnx::TensorProto tensor;
  tensor.set_data_type(onnx::TensorProto::INT2);
  tensor.add_dims(5);
  tensor.set_raw_data(std::string("\xe4\x03", 2));
  const auto read = read_value_file(folder.write("t.pb", tensor.SerializeAsString()), {});
  ASSERT_TRUE(read.ok()) << to_text(read.errors());
  EXPECT_EQ(read->tensors.at(0).element(), ElementType::i2);
  EXPECT_THAT(read->tensors.at(0).to_ints(), ElementsAre(0, 1, -2, -1, -1));
}

TEST(ImportData, FourBitTensorsAreUnpacked) {
  ModelFolder folder;
  onnx::TensorProto tensor;
  tensor.set_name("t");
  tensor.set_data_type(onnx::TensorProto::INT4);
  tensor.add_dims(3);
  tensor.set_raw_data(std::string("\xf1\x08", 2));
  auto read = read_value_file(folder.write("t.pb", tensor.SerializeAsString()), {});
  ASSERT_TRUE(read.ok()) << to_text(read.errors());
  EXPECT_EQ(read->tensors.at(0).element(), ElementType::i4);
  EXPECT_THAT(read->tensors.at(0).to_ints(), ElementsAre(1, -1, -8));
}

// ---- Damage ----

// A model with nested messages, typed and raw data, a function, a branch and attributes of several kinds.
onnx::ModelProto varied_model() {
  onnx::ModelProto model = parse_model(R"(
    <ir_version: 9, opset_import: ["" : 13, "local" : 1]>
    g (float[N,300] x, bool c) => (float[N,300] y) <float[3] f = {1, 2, 3}, int64[1] axes = {0}> {
      a = Add(x, w)
      k = Constant <value = int64[2] {0, -1}> ()
      r = Reshape(a, k)
      s = Softmax <axis = 1> (r)
      u = local.twice(s)
      y = If (c) <then_branch = t () => (float[N,300] p) { p = Neg(u) },
                  else_branch = e () => (float[N,300] q) { q = Squeeze(u, axes) }>
    }
    <domain: "local", opset_import: ["" : 13]>
    twice (a) => (b) { b = Add(a, a) })");
  onnx::TensorProto* weight = model.mutable_graph()->add_initializer();
  weight->set_name("w");
  weight->set_data_type(onnx::TensorProto::FLOAT);
  weight->add_dims(300);
  weight->set_raw_data(floats(300));
  return model;
}

struct Mutator {
  uint64_t state;
  uint64_t next(uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  }
};

// No byte of a file, wherever it is wrong, may do more than make it bad input or unsupported.
TEST(ImportDamage, MutatedFilesAreErrors) {
  const std::string good = varied_model().SerializeAsString();
  ModelFolder folder;
  ImportOptions options;
  options.dims["N"] = 2;
  Mutator random{1};
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = good;
    if (round % 4 == 0) {
      bytes.resize(random.next(bytes.size()));
    } else {
      for (uint64_t n = 1 + random.next(4); n-- > 0;)
        bytes[random.next(bytes.size())] = static_cast<char>(random.next(256));
    }
    auto model =
        import_onnx(folder.write("model.onnx", bytes), options, graph::interpreter_evaluator(100000));
    if (model.ok()) continue;
    ++refused;
    for (const Diagnostic& error : model.errors()) {
      EXPECT_NE(error.kind, ErrorKind::environment);
      EXPECT_FALSE(error.message.empty());
      EXPECT_EQ(error.message.find(".cc:"), std::string::npos) << error.message;
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(ImportDamage, ThingsThatAreNoModels) {
  ModelFolder folder;
  auto error_of = [&](const std::string& path) {
    auto model = import_onnx(path, {}, graph::interpreter_evaluator());
    return model.ok() ? "" : model.errors().front().message;
  };
  EXPECT_EQ(error_of(folder.file("none.onnx")), "cannot be read: No such file or directory");
  EXPECT_EQ(error_of(folder.file("")), "cannot be read: not a regular file");
  EXPECT_EQ(error_of(folder.write("a", "")), "cannot be read: the file is empty");
  EXPECT_EQ(error_of(folder.write("b", "hello, this is text")),
            "not an ONNX model: not the encoding of an ONNX model (at byte 2 of 19)");
  EXPECT_EQ(error_of(folder.write("c", std::string(4, '\0'))), "not an ONNX model: it has no graph");
}

}  // namespace
}  // namespace mcc::frontend
