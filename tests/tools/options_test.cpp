#include "tools/options.h"

#include <gmock/gmock.h>

#include "tools/compare.h"

namespace mcc::tools {
namespace {

using graph::Constant;
using ::testing::ElementsAre;

TEST(Options, ShapesAndDimensions) {
  frontend::ImportOptions options;
  ASSERT_TRUE(
      parse_import_options(
          {{"x=1x3x224x224", "in:0:2x5", "a=b=7"}, {"N=8", "p2o.Dim.1=320"}, {"s=3", "t=[a]=0"}, {"u"}, {}},
          options)
          .ok());
  EXPECT_THAT(options.input_shapes["x"], ElementsAre(1, 3, 224, 224));
  EXPECT_THAT(options.input_shapes["in:0"], ElementsAre(2, 5));
  EXPECT_THAT(options.input_shapes["a=b"], ElementsAre(7));
  EXPECT_EQ(options.dims["N"], 8);
  EXPECT_EQ(options.dims["p2o.Dim.1"], 320);
  EXPECT_EQ(options.sequence_lengths["s"], 3);
  EXPECT_EQ(options.sequence_lengths["t=[a]"], 0);
  EXPECT_THAT(options.left_out, ElementsAre("u"));
}

TEST(Options, RangesOfDimensions) {
  frontend::ImportOptions options;
  ASSERT_TRUE(parse_import_options({{"x=1..8x3x224"}, {"N=1..64", "M=3..3"}, {}, {}, {}}, options).ok());
  EXPECT_THAT(options.input_shapes["x"], ElementsAre(frontend::kOpenDim, 3, 224));
  EXPECT_EQ(options.input_ranges["x"][0], (graph::DimRange{1, 8}));
  EXPECT_EQ(options.dim_ranges["N"], (graph::DimRange{1, 64}));
  EXPECT_EQ(options.dims["M"], 3);
  ASSERT_TRUE(parse_import_options({{}, {"K=2.."}, {}, {}, {}}, options).ok());
  EXPECT_EQ(options.dim_ranges["K"].min, 2);
  EXPECT_FALSE(options.dim_ranges["K"].has_bound());
  EXPECT_FALSE(parse_import_options({{}, {"N=4"}, {}, {}, {}}, options).ok());  // given twice
}

TEST(Options, MalformedShapesAndDimensions) {
  frontend::ImportOptions options;
  Status status =
      parse_import_options({{"x", "x=", "x=1x", "=1x2", "x=1xa"},
                            {"N", "N=x", "N=64..1", "=3", "N=-1", "N=-1..4", "N=..", "N=1..99999999999"},
                            {"s", "s=", "s=2x3", "=2", "s=1..2"},
                            {},
                            {}},
                           options);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.errors().size(), 18u);
  for (const Diagnostic& error : status.errors())
    EXPECT_EQ(error.kind, ErrorKind::usage);
}

TEST(Options, NumbersForInputs) {
  frontend::ImportOptions options;
  ASSERT_TRUE(parse_import_options({{}, {}, {}, {}, {"r=0.25", "a=b=1,-2,3e2"}}, options).ok());
  EXPECT_THAT(options.numbers["r"], ElementsAre(0.25));
  EXPECT_THAT(options.numbers["a=b"], ElementsAre(1, -2, 300));
  const Status status =
      parse_import_options({{}, {}, {}, {}, {"r", "r=", "=1", "r=1,", "r=x", "r=1 2"}}, options);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.errors().size(), 6u);
  EXPECT_EQ(status.errors()[0].message,
            "--input-value r: expected INPUT=0.25, or INPUT=1,2,3 of several elements");
}

TEST(Options, NamedFiles) {
  Result<NamedFile> file = parse_named_file("a=b=c.npy", {"x", "a=b"}, "--input");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->index, 1u);
  EXPECT_EQ(file->path, "c.npy");
  EXPECT_FALSE(parse_named_file("z=c.npy", {"x"}, "--input").ok());
  EXPECT_FALSE(parse_named_file("c.npy", {"x"}, "--input").ok());
}

TEST(Options, Emit) {
  auto emit = parse_emit({"graph,tensor=out", "asm=other"});
  ASSERT_TRUE(emit.ok());
  EXPECT_EQ(emit->at("graph"), "out");
  EXPECT_EQ(emit->at("tensor"), "out");
  EXPECT_EQ(emit->at("asm"), "other");
  EXPECT_FALSE(parse_emit({"graph"}).ok());
  EXPECT_FALSE(parse_emit({"grape=out"}).ok());
}

Constant floats(std::vector<float> values) {
  const auto count = static_cast<int64_t>(values.size());
  return Constant::of(ElementType::f32, {count}, values);
}

TEST(Compare, Tolerances) {
  EXPECT_TRUE(compare(floats({1.0005f, 0}), floats({1, 0.00005f}), {1e-3, 1e-4}).same);
  const Comparison worse = compare(floats({1, 2, 3.1f}), floats({1, 2, 3}), {1e-3, 1e-4});
  EXPECT_FALSE(worse.same);
  EXPECT_EQ(worse.mismatches, 1);
  EXPECT_EQ(worse.first, 2);
  EXPECT_NEAR(worse.max_error, 0.1, 1e-6);
}

TEST(Compare, NotFinite) {
  const float inf = INFINITY, nan = NAN;
  EXPECT_TRUE(compare(floats({inf, -inf, nan}), floats({inf, -inf, nan}), {}).same);
  for (auto [got, want] : {std::pair{inf, -inf}, {nan, 1.0f}, {1.0f, nan}, {1.0f, inf}, {inf, 1.0f}})
    EXPECT_FALSE(compare(floats({got}), floats({want}), {1e30, 1e30}).same) << got << ' ' << want;
}

TEST(Compare, ShapesAndTypes) {
  EXPECT_EQ(compare(floats({1}), Constant::of(ElementType::f32, {}, std::vector<float>{1}), {}).reason,
            "shape [1], expected []");
  EXPECT_EQ(compare(floats({1}), Constant::ints({1}), {}).reason, "element type f32, expected i64");
  EXPECT_FALSE(compare(Constant::ints({1000}), Constant::ints({1001}), {1, 1}).same);
}

TEST(RandomTensor, DependsOnNameAndSeedOnly) {
  const Constant a = random_tensor("x", ElementType::f32, {100}, 1),
                 b = random_tensor("x", ElementType::f32, {100}, 1);
  EXPECT_TRUE(compare(a, b, {0, 0}).same);
  EXPECT_FALSE(compare(a, random_tensor("y", ElementType::f32, {100}, 1), {0, 0}).same);
  EXPECT_FALSE(compare(a, random_tensor("x", ElementType::f32, {100}, 2), {0, 0}).same);
  for (int64_t v : random_tensor("ids", ElementType::i64, {50}, 1).to_ints())
    EXPECT_TRUE(0 <= v && v < 100);
  for (int64_t v : random_tensor("attention_mask", ElementType::i64, {50}, 1).to_ints())
    EXPECT_TRUE(v == 0 || v == 1);
}

}  // namespace
}  // namespace mcc::tools
