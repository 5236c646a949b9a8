#include "frontend/isolated.h"
#include "frontend/model_prepare.h"
#include "model_file.h"

namespace mcc::frontend {
namespace {

int64_t extent_of(const onnx::ModelProto& model, const std::string& name) {
  for (const onnx::ValueInfoProto& value : model.graph().value_info()) {
    const onnx::TensorShapeProto& shape = value.type().tensor_type().shape();
    if (value.name() == name && shape.dim_size() == 1) return shape.dim(0).dim_value();
  }
  return -1;
}

// Vectors that are no shapes: what is kept of them does not grow with their lengths.
TEST(Convert, InfersTypesOfLongVectorsInLittleMemory) {
  std::string doubled;
  for (int i = 0; i < 26; ++i)
    doubled += text("x", i + 1, " = Concat <axis = 0> (x", i, ", x", i, ") ");
  onnx::ModelProto model =
      parse_model(text(R"(<ir_version: 10, opset_import: ["" : )", kOpset,
                       "]> g (float[3] x0) => (float16[N] y) { ", doubled, "y = Cast <to = 10> (x26) }"));
  IsolationLimits limits;
  limits.memory = size_t{256} << 20;
  const std::optional<std::string> extent = run_isolated(
      [&] {
        Diagnostics problems;
        return convert_model(model, problems) ? text(extent_of(model, "x26")) : to_text(problems);
      },
      limits);
  EXPECT_EQ(extent, "201326592");
}

// Shapes that are computed are followed.
TEST(Convert, InfersTypesOfComputedShapes) {
  onnx::ModelProto model = parse_model(R"(
    <ir_version: 8, opset_import: ["" : 17]> g (float[3,5] x, float[4000] a) => (float[M,N] y)
    <int64[1] two = {2}> {
      s = Shape(x)
      b = Concat <axis = 0> (a, a)
      e = Concat <axis = 0> (two, s)
      z = Expand(x, e)
      y = Cast <to = 10> (z)
    })");
  Diagnostics problems;
  ASSERT_TRUE(convert_model(model, problems)) << to_text(problems);
  EXPECT_EQ(extent_of(model, "b"), 8000);
  std::vector<int64_t> expanded;
  for (const onnx::ValueInfoProto& value : model.graph().value_info()) {
    if (value.name() != "z") continue;
    for (const auto& dimension : value.type().tensor_type().shape().dim())
      expanded.push_back(dimension.dim_value());
  }
  EXPECT_EQ(expanded, (std::vector<int64_t>{2, 3, 5}));
}

// Slopes of channels, as opset 6 has them, and one for all.
TEST(Convert, SpreadsSlopesOverChannels) {
  onnx::ModelProto model = parse_model(R"(
    <ir_version: 3, opset_import: ["" : 6]> g (float[2,3,4,5] x, float[3] s, float[1] t) => (float[2,3,4,5] y) {
      a = PRelu(x, s)
      y = PRelu(a, t)
    })");
  Diagnostics problems;
  ASSERT_TRUE(convert_model(model, problems)) << to_text(problems);
  std::vector<std::string> slopes;
  for (const onnx::NodeProto& node : model.graph().node())
    if (node.op_type() == "PRelu") slopes.push_back(node.input(1));
  ASSERT_EQ(slopes.size(), 2u);
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const onnx::ValueInfoProto& value : model.graph().value_info()) {
    for (const auto& dimension : value.type().tensor_type().shape().dim())
      shapes[value.name()].push_back(dimension.dim_value());
  }
  EXPECT_EQ(shapes[slopes[0]], (std::vector<int64_t>{3, 1, 1}));
  EXPECT_EQ(shapes[slopes[1]], (std::vector<int64_t>{1, 1, 1}));
}

}  // namespace
}  // namespace mcc::frontend
