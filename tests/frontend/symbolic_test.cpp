// Dimensions that stay open, and what models compute of shapes that have them.
#include <gmock/gmock.h>

#include "frontend/import.h"
#include "graph/op.h"
#include "model_file.h"
#include "tensor/text.h"
#include "tensor/visit.h"

namespace mcc::frontend {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string type_of(const graph::Graph& graph, graph::ValueId id) { return to_text(graph.value(id).type); }

// The model with N from 1 to 64, and T from 2 to 9 where it has that.
Result<ImportedModel> import_open(const std::string& text) {
  ImportOptions options;
  options.dim_ranges = {{"N", {1, 64}}};
  if (text.find(",T") != std::string::npos || text.find("[T") != std::string::npos)
    options.dim_ranges["T"] = {2, 9};
  return import_text(text, options);
}

constexpr const char* kHead = "<ir_version: 8, opset_import: [\"\" : 17]>\n";

// The types of the outputs of nodes over x: f32[N, T, 6].
std::vector<std::string> types_of(const std::string& outputs, const std::string& weights,
                                  const std::string& nodes) {
  Result<ImportedModel> model =
      import_open(text(kHead, "g (float[N,T,6] x) => (", outputs, ") <", weights, "> {", nodes, "}"));
  EXPECT_TRUE(model.ok()) << to_text(model.errors());
  std::vector<std::string> types;
  if (!model.ok()) return types;
  EXPECT_THAT(graph::verify(model->graph), IsEmpty());
  for (graph::ValueId id : model->graph.outputs)
    types.push_back(type_of(model->graph, id));
  return types;
}

TEST(Symbolic, DimensionsAreTheGraphsByName) {
  Result<ImportedModel> model = import_open(
      text(kHead, "g (float[N,T] x, float[T,N] z) => (float[M,T] y) { t = Transpose(z) y = Add(x, t) }"));
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_THAT(model->graph.dims, ElementsAre(testing::Property(&tensor::Var::name, "N"),
                                             testing::Property(&tensor::Var::name, "T")));
  EXPECT_THAT(model->graph.dim_ranges, ElementsAre(graph::DimRange{1, 64}, graph::DimRange{2, 9}));
  EXPECT_EQ(type_of(model->graph, model->graph.outputs[0]), "f32[N, T]");
}

// Weights say how many channels a convolution's input has, which is no open dimension then, in what was compared before either.
TEST(Symbolic, ChannelsAreAsManyAsWeightsSay) {
  ImportOptions options;
  options.other_dims = kAnySize;
  const auto import = [&](const std::string& nodes) {
    return import_text(text(kHead,
                            "g (float[N,C,T] x, float[N,2,T] z, float[4,3,1] w, float[3] s, float[3] b) => "
                            "(float[N,4,U] y) {",
                            nodes, "}"),
                       options);
  };
  for (const std::string nodes :
       {"n = InstanceNormalization(x, s, b) y = Conv(n, w)", "c = Concat<axis = 1>(z, x) y = Conv(c, w)"}) {
    Result<ImportedModel> model = import(nodes);
    ASSERT_TRUE(model.ok()) << to_text(model.errors());
    const graph::Graph& graph = model->graph;
    EXPECT_EQ(type_of(graph, graph.inputs[0]), nodes[0] == 'n' ? "f32[N, 3, T]" : "f32[N, 1, T]");
    EXPECT_THAT(graph.dims, ElementsAre(testing::Property(&tensor::Var::name, "N"),
                                        testing::Property(&tensor::Var::name, "T")));
    EXPECT_THAT(graph.equalities, IsEmpty());
    EXPECT_THAT(graph::verify(graph), IsEmpty());
  }
  options.dim_ranges["C"] = {4, 8};
  EXPECT_THAT(
      error_lines(import("y = Conv(x, w)")),
      ElementsAre(HasSubstr("the number of input channels is C, it needs a value known at compile time")));
}

// Costs are those of sizes at which every tensor has elements, also within bounds.
TEST(Symbolic, TypicalSizesFillWindows) {
  ImportOptions options;
  const auto typical = [&](const graph::DimRange& range) {
    options.dim_ranges["T"] = range;
    Result<ImportedModel> model =
        import_text(text(kHead,
                         "g (float[1,4,T] x, float[4,4,9] w) => (float[1,4,U] y) {c = Conv<strides = [2]>(x, "
                         "w) y = MaxPool<kernel_shape = [3]>(c)}"),
                    options);
    EXPECT_TRUE(model.ok()) << to_text(model.errors());
    return model.ok() ? tensor::typical_size(model->graph.dim_ranges[0]) : 0;
  };
  EXPECT_EQ(typical({1, 64}), 16);
  EXPECT_EQ(typical({20, 500}), 100);
  EXPECT_EQ(typical({4, 9}), 9);  // the pooling has no window
  EXPECT_EQ(typical({1, 13}), 13);
}

// Of what grows along a dimension, and of nothing else, there may be nothing.
TEST(Symbolic, WhatIsAppendedToMayBeEmpty) {
  ImportOptions options;
  options.other_dims = kAnySize;
  const auto least = [&](const std::string& nodes) {
    Result<ImportedModel> model = import_text(
        text(kHead, "g (float[N,P,6] past, float[N,T,6] x) => (float[A,B,C] y, int64[D] s) {", nodes, "}"),
        options);
    EXPECT_TRUE(model.ok()) << to_text(model.errors());
    std::map<std::string, int64_t> sizes;
    for (size_t i = 0; model.ok() && i < model->graph.dims.size(); ++i)
      sizes[model->graph.dims[i].name()] = model->graph.dim_ranges[i].min;
    return sizes;
  };
  using Sizes = std::map<std::string, int64_t>;
  EXPECT_EQ(least("h = Relu(x) y = Concat<axis = -2>(past, h) s = Shape(past)"),
            (Sizes{{"N", 1}, {"P", 0}, {"T", 1}}));
  EXPECT_EQ(least("h = Relu(past) y = Concat<axis = 1>(past, x) s = Shape(h)"),
            (Sizes{{"N", 1}, {"P", 1}, {"T", 0}}));
  EXPECT_EQ(least("a = Concat<axis = 1>(past, x) b = Concat<axis = 0>(past, past) y = Relu(a) s = Shape(b)"),
            (Sizes{{"N", 1}, {"P", 1}, {"T", 0}}));
  options.dim_ranges["P"] = {1, tensor::kLargestSize, 128};
  EXPECT_EQ(least("h = Relu(x) y = Concat<axis = 1>(past, h) s = Shape(past)"),
            (Sizes{{"N", 1}, {"P", 1}, {"T", 1}}));
}

TEST(Symbolic, ShapesAreFollowed) {
  EXPECT_THAT(types_of("float[M,6] y", "int64[2] dims = {-1, 6}", "y = Reshape(x, dims)"),
              ElementsAre("f32[N * T, 6]"));
  EXPECT_THAT(types_of("float[A,B,C,D] y", "int64[4] dims = {0, 0, 3, -1}", "y = Reshape(x, dims)"),
              ElementsAre("f32[N, T, 3, 2]"));
  EXPECT_THAT(types_of("float[A,B,C] y", "int64[1] flat = {-1}, int64[3] dims = {2, -1, 3}",
                       "f = Reshape(x, flat) y = Reshape(f, dims)"),
              ElementsAre("f32[2, N * T, 3]"));
  EXPECT_THAT(types_of("float[A,B] y", "int64 zero = {0}, int64[1] axis = {0}, int64[1] six = {6}",
                       "s = Shape(x) n = Gather<axis=0>(s, zero) n1 = Unsqueeze(n, axis) t = "
                       "Shape<start=1,end=2>(x) nt = Mul(n1, t) d = Concat<axis=0>(nt, six) "
                       "y = Reshape(x, d)"),
              ElementsAre("f32[N * T, 6]"));
  EXPECT_THAT(types_of("float[A,B,C] y", "int64[1] from = {1}, int64[1] to = {-1}, int64[1] axis = {1}",
                       "y = Slice(x, from, to, axis)"),
              ElementsAre("f32[N, T - 2, 6]"));
  EXPECT_THAT(types_of("float[A,B] y, int64[K] r",
                       "int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64[1] axis = {0}",
                       "s = Shape(x) n = Gather(s, zero) t = Gather(s, one) sum = Add(n, t) r = Range(zero, "
                       "sum, two) u = Unsqueeze(sum, axis) "
                       "v = Unsqueeze(t, axis) d = Concat<axis=0>(u, v) y = ConstantOfShape(d)"),
              ElementsAre("f32[N + T, T]", "i64[(N + T + 1) // 2]"));
}

// Of numbers of either sign, toward zero: T is from 2 to 9.
TEST(Symbolic, QuotientsOfSizesAreFollowed) {
  Result<ImportedModel> model =
      import_open(text(kHead,
                       "g (float[N,T] x) => (float[M] y) <int64[1] five = {5}, int64[1] three = {3}, "
                       "int64[1] two = {2}> { t = Shape<start=1>(x) "
                       "d = Sub(t, five) q = Div(d, two) n = Add(q, three) y = ConstantOfShape(n) }"));
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  const graph::Graph& graph = model->graph;
  const tensor::Expr& size = graph.value(graph.outputs[0]).type.shape[0];
  for (int64_t t = 2; t <= 9; ++t) {
    int64_t value = 0;
    ASSERT_TRUE(
        tensor::as_int(tensor::simplify(tensor::substitute(size, {{graph.dims[1].get(), t}})), &value))
        << tensor::to_text(size);
    EXPECT_EQ(value, (t - 5) / 2 + 3);
  }
}

// A length that a run is refused for where it is negative counts a range as it is; it is checked all the same.
TEST(Symbolic, LengthsOfResultsAreNotNegative) {
  Result<ImportedModel> model =
      import_open(text(kHead,
                       "g (float[N,1,T] x) => (int64[M] y) <float[1,1,5] w = {1,2,3,4,5}, int64 zero = {0}, "
                       "int64 one = {1}, int64 two = {2}> { c = Conv(x, w) s = Shape(c) n = Gather(s, two) "
                       "y = Range(zero, n, one) }"));
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_THAT(graph::verify(model->graph), IsEmpty());
  EXPECT_EQ(type_of(model->graph, model->graph.outputs[0]), "i64[T - 4]");
  ASSERT_EQ(model->graph.equalities.size(), 1U);
  EXPECT_THAT(model->graph.equalities[0].where,
              HasSubstr("dimension 2 of its output, T - 4, would be negative"));
}

// Dimensions that both shapes have at their ends stand for themselves.
TEST(Symbolic, ReshapesDivideWhatTheyChange) {
  Result<ImportedModel> model = import_open(
      text(kHead,
           "g (float[N,4,T,T] x) => (float[A,B,C] y) <int64[1] rest = {-1}> { t = Shape<start=2, end=3>(x) "
           "d = Concat<axis=0>(rest, t, t) y = Reshape(x, d) }"));
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  const graph::Graph& graph = model->graph;
  const graph::Node& reshape = graph.nodes[static_cast<size_t>(graph.value(graph.outputs[0]).producer)];
  EXPECT_THAT(tensor::to_text(graph::build_node_func(graph, reshape)),
              HasSubstr("= x0[i0 // 4, i0 %% 4, i1, i2]"));
}

// What a comparison of shapes with numbers decides.
TEST(Symbolic, ConditionsOnDimensionsAreDecided) {
  EXPECT_THAT(types_of("float[A,B,C] y",
                       "int64[3] want = {1, -1, 6}, int64[3] minus = {-1, -1, -1}, int64[1] axis = {0}",
                       "s = Shape(x) open = Equal(want, minus) d = Where(open, s, want) r = ReduceSum(x, "
                       "axis) y = Expand(r, d)"),
              ElementsAre("f32[1, T, 6]"));
}

// Elements that all are numbers after all are a constant, also where there are none.
TEST(Symbolic, PartsOfShapesThatAreKnownAreConstants) {
  Result<ImportedModel> model = import_open(
      text(kHead,
           "g (float[N,6] x) => (float[N,6] y, int64[1] k) { k = Shape<start=1>(x) s = Shape<start=2>(x) "
           "n = Shape<end=1>(x) d = Concat<axis=0>(s, n, k) y = Reshape(x, d) }"));
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_TRUE(model->graph.value(model->graph.outputs[1]).constant);
  EXPECT_EQ(type_of(model->graph, model->graph.outputs[0]), "f32[N, 6]");
}

TEST(Symbolic, WhatIsReadAsDataIsComputed) {
  Result<ImportedModel> model =
      import_open(text(kHead,
                       "g (float[N,T] x) => (float[N,T] y, int64[2] s) { s = Shape(x) f = Cast<to=1>(s) c = "
                       "ReduceProd<keepdims=0>(f) y = Mul(x, c) }"));
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  const graph::Graph& graph = model->graph;
  ASSERT_EQ(graph.nodes[0].op->name, "Elements");
  const std::vector<tensor::Expr>& elements = graph.value(graph.nodes[0].outputs[0]).elements;
  ASSERT_EQ(elements.size(), 2u);
  EXPECT_EQ(tensor::to_text(elements[0]), "N");
  EXPECT_EQ(tensor::to_text(elements[1]), "T");
}

TEST(Symbolic, RangesByInputAndPosition) {
  ImportOptions options;
  options.input_shapes = {{"x", {kOpenDim, 3}}};
  options.input_ranges = {{"x", {{0, {1, 8}}}}};
  Result<ImportedModel> model =
      import_text(text(kHead, "g (float[?,3] x) => (float[?,3] y) { y = Neg(x) }"), options);
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  EXPECT_EQ(type_of(model->graph, model->graph.outputs[0]), "f32[x.0, 3]");
  options.input_ranges = {{"x", {{1, {1, 8}}}}};
  options.input_shapes = {{"x", {2, kOpenDim}}};
  model = import_text(text(kHead, "g (float[?,3] x) => (float[?,3] y) { y = Neg(x) }"), options);
  ASSERT_FALSE(model.ok());
  EXPECT_THAT(model.errors()[0].message,
              HasSubstr("dimension 1 of input 'x' is 3 in the model, and can have no other size"));
}

TEST(Symbolic, WhatOnlyARunCanTellIsLeftToIt) {
  Result<ImportedModel> model =
      import_open(text(kHead, "g (float[N,3] x, float[T,3] z) => (float[N,3] y) { y = Add(x, z) }"));
  ASSERT_TRUE(model.ok()) << to_text(model.errors());
  ASSERT_EQ(model->graph.equalities.size(), 1U);
  EXPECT_THAT(model->graph.equalities[0].where, HasSubstr("expected N and T to be equal"));
}

}  // namespace
}  // namespace mcc::frontend
