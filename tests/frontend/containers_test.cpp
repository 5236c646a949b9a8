// Sequences and optional values: what becomes of a model's inputs and outputs, and files of test data.
#include <gmock/gmock.h>

#include "frontend/import.h"
#include "graph/op.h"
#include "model_file.h"
#include "onnx/onnx-data.pb.h"

namespace mcc::frontend {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> described(const graph::Graph& graph, const std::vector<graph::ValueId>& values) {
  std::vector<std::string> out;
  for (graph::ValueId id : values)
    out.push_back(text(graph.value(id).name, " ", to_text(graph.value(id).type)));
  return out;
}

constexpr const char* kSequence = R"(
  <ir_version: 8, opset_import: ["" : 18]>
  g (seq(float[N,3]) x, float[N,3] c) => (seq(float[K,3]) y) { y = SequenceInsert(x, c) })";

TEST(Containers, SequencesAreTensors) {
  ImportOptions options;
  options.sequence_lengths["x"] = 2;
  options.dims["N"] = 4;
  options.input_shapes["x[1]"] = {5, 3};
  auto model = import_text(kSequence, options);
  // The dimension of all tensors, and another size for one of them.
  EXPECT_FALSE(model.ok());
  options.dims = {{"N", 4}, {"x[1].N", 5}};
  model = import_text(kSequence, options);
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_THAT(described(model->graph, model->graph.inputs),
              ElementsAre("x[0] f32[4, 3]", "x[1] f32[5, 3]", "c f32[4, 3]"));
  EXPECT_THAT(described(model->graph, model->graph.outputs),
              ElementsAre("y[0] f32[4, 3]", "y[1] f32[5, 3]", "y[2] f32[4, 3]"));
  EXPECT_EQ(model->input_containers.at("x").length, 2);
  EXPECT_EQ(model->output_containers.at("y").length, 3);
  EXPECT_THAT(graph::verify(model->graph), IsEmpty());
}

TEST(Containers, ShapesOfAllTensorsAndOfOne) {
  ImportOptions options;
  options.sequence_lengths["x"] = 2;
  options.input_shapes = {{"x", {7, 3}}, {"x[0]", {6, 3}}, {"c", {1, 3}}};
  auto model = import_text(kSequence, options);
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_THAT(described(model->graph, model->graph.inputs),
              ElementsAre("x[0] f32[6, 3]", "x[1] f32[7, 3]", "c f32[1, 3]"));
}

TEST(Containers, TensorsHaveDimensionsOfTheirOwn) {
  ImportOptions options;
  options.sequence_lengths["x"] = 2;
  options.dim_ranges = {{"N", {1, 8}}, {"x[0].N", {2, 4}}};
  auto model = import_text(kSequence, options);
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  std::vector<std::string> dims;
  for (size_t i = 0; i < model->graph.dims.size(); ++i)
    dims.push_back(text(model->graph.dims[i].name(), " ", model->graph.dim_ranges[i].min, " ",
                        model->graph.dim_ranges[i].max));
  EXPECT_THAT(dims, ElementsAre("x[0].N 2 4", "x[1].N 1 8", "N 1 8"));
}

TEST(Containers, TensorsOfASequenceMayBeFixed) {
  ImportOptions options;
  options.sequence_lengths["x"] = 1;
  options.dims["N"] = 1;
  options.constants["x[0]"] = graph::Constant::zeros(ElementType::f32, {1, 3});
  auto model = import_text(kSequence, options);
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_THAT(described(model->graph, model->graph.inputs), ElementsAre("c f32[1, 3]"));
  options.constants["x[0]"] = graph::Constant::zeros(ElementType::i64, {1, 3});
  EXPECT_THAT(error_lines(import_text(kSequence, options)),
              ElementsAre("input 'x[0]': is f32, but the value given for it is i64"));
}

// A sequence whose tensors have no rank in the model.
TEST(Containers, TensorsWithoutARank) {
  onnx::ModelProto model = parse_model(R"(
    <ir_version: 8, opset_import: ["" : 18]> g (seq(float[1]) x) => (seq(float[1]) y) { y = Identity(x) })");
  model.mutable_graph()
      ->mutable_input(0)
      ->mutable_type()
      ->mutable_sequence_type()
      ->mutable_elem_type()
      ->mutable_tensor_type()
      ->clear_shape();
  const ModelFolder folder;
  const std::string path = folder.write(model);
  ImportOptions options;
  options.sequence_lengths["x"] = 1;
  EXPECT_THAT(
      error_lines(import_onnx(path, options, graph::interpreter_evaluator())),
      ElementsAre("input 'x[0]': has no shape | give it one, for example --input-shape x[0]=1x3x224x224"));
  options.input_shapes["x"] = {2, 2};
  const auto imported = import_onnx(path, options, graph::interpreter_evaluator());
  ASSERT_TRUE(imported.ok()) << to_text(imported.errors());
  EXPECT_THAT(described(imported->graph, imported->graph.outputs), ElementsAre("y[0] f32[2, 2]"));
}

TEST(Containers, OptionalInputsAndOutputs) {
  constexpr const char* kOptional = R"(
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[2] x, optional(seq(float[2])) o) => (bool has, optional(seq(float[2])) same, float[2] y) {
      has = OptionalHasElement(o) same = Identity(o) y = Neg(x)
    })";
  ImportOptions options;
  options.sequence_lengths["o"] = 1;
  auto given = import_text(kOptional, options);
  ASSERT_TRUE(given.ok()) << to_text(given.errors());
  EXPECT_THAT(described(given->graph, given->graph.inputs), ElementsAre("x f32[2]", "o[0] f32[2]"));
  EXPECT_THAT(described(given->graph, given->graph.outputs),
              ElementsAre("has bool[]", "same[0] f32[2]", "y f32[2]"));
  EXPECT_TRUE(given->output_containers.at("same").holds);
  options.sequence_lengths.clear();
  options.left_out = {"o"};
  auto none = import_text(kOptional, options);
  ASSERT_TRUE(none.ok()) << to_text(none.errors());
  EXPECT_THAT(described(none->graph, none->graph.inputs), ElementsAre("x f32[2]"));
  EXPECT_THAT(described(none->graph, none->graph.outputs), ElementsAre("has bool[]", "y f32[2]"));
  EXPECT_FALSE(none->input_containers.at("o").holds);
  EXPECT_FALSE(none->output_containers.at("same").holds);
  EXPECT_FALSE(none->output_containers.at("same").length);
}

// ---- Files ----

onnx::TensorProto two_integers(int64_t a, int64_t b) {
  onnx::TensorProto tensor;
  tensor.set_data_type(onnx::TensorProto::INT64);
  tensor.add_dims(2);
  tensor.add_int64_data(a);
  tensor.add_int64_data(b);
  return tensor;
}

DeclaredTensor declared(bool is_optional, bool is_sequence) {
  DeclaredTensor type;
  type.is_optional = is_optional;
  type.is_sequence = is_sequence;
  return type;
}

TEST(ContainerFiles, Optionals) {
  const ModelFolder folder;
  onnx::OptionalProto optional;
  optional.set_name("x");
  auto none = read_value_file(folder.write("n.pb", optional.SerializeAsString()), declared(true, false));
  ASSERT_TRUE(none.ok()) << to_text(none.errors());
  EXPECT_FALSE(none->holds);
  EXPECT_THAT(none->tensors, IsEmpty());
  optional.set_elem_type(onnx::OptionalProto::TENSOR);
  *optional.mutable_tensor_value() = two_integers(3, 4);
  auto one = read_value_file(folder.write("o.pb", optional.SerializeAsString()), declared(true, false));
  ASSERT_TRUE(one.ok()) << to_text(one.errors());
  EXPECT_EQ(one->name, "x");
  EXPECT_TRUE(one->holds);
  EXPECT_FALSE(one->is_sequence);
  EXPECT_THAT(one->tensors.at(0).to_ints(), ElementsAre(3, 4));
}

TEST(ContainerFiles, Sequences) {
  const ModelFolder folder;
  onnx::SequenceProto sequence;
  sequence.set_name("s");
  sequence.set_elem_type(onnx::SequenceProto::TENSOR);
  *sequence.add_tensor_values() = two_integers(1, 2);
  *sequence.add_tensor_values() = two_integers(5, 6);
  auto read = read_value_file(folder.write("s.pb", sequence.SerializeAsString()), declared(false, true));
  ASSERT_TRUE(read.ok()) << to_text(read.errors());
  EXPECT_EQ(read->name, "s");
  EXPECT_TRUE(read->is_sequence);
  ASSERT_EQ(read->tensors.size(), 2u);
  EXPECT_THAT(read->tensors[1].to_ints(), ElementsAre(5, 6));
  onnx::OptionalProto optional;
  optional.set_elem_type(onnx::OptionalProto::SEQUENCE);
  *optional.mutable_sequence_value() = sequence;
  auto held = read_value_file(folder.write("o.pb", optional.SerializeAsString()), declared(true, true));
  ASSERT_TRUE(held.ok()) << to_text(held.errors());
  EXPECT_TRUE(held->is_sequence);
  EXPECT_EQ(held->tensors.size(), 2u);
  sequence.clear_tensor_values();
  sequence.add_sequence_values();
  EXPECT_FALSE(
      read_value_file(folder.write("n.pb", sequence.SerializeAsString()), declared(false, true)).ok());
}

TEST(ContainerFiles, DamagedOnes) {
  const ModelFolder folder;
  const std::string path = folder.write("d.pb", std::string("\x0a\xff\xff", 3));
  for (const DeclaredTensor& type :
       {declared(false, false), declared(false, true), declared(true, false), declared(true, true)}) {
    auto read = read_value_file(path, type);
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.errors().front().kind, ErrorKind::bad_input);
  }
}

}  // namespace
}  // namespace mcc::frontend
