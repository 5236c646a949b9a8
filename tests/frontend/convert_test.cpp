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

}  // namespace
}  // namespace mcc::frontend
