// Statements, blocks, and what is reported of functions that cannot run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensor/build.h"
#include "tensor/interpreted.h"

namespace mcc::tensor {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr ElementType f32 = ElementType::f32;

// ---- Statements ----

TEST(Interpret, LoopsLetsAndBranches) {
  Outcome out = run(R"(
func f<n>(x: f32[n]) -> (y: f32[n], z: i64[4]) {
  for i in n {
    let v = x[i] * 2.0
    if v > 3.0 { y[i] = v } else { y[i] = -1.0 }
  }
  unrolled for i in 3 from 1 { z[i] = i * 10 }
  z[0] = n
  evaluate prefetch(x[1000], 3)
})",
                    {{1, 2, 3}}, {3});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.outputs[0], ElementsAre(-1, 4, 6));
  EXPECT_THAT(out.outputs[1], ElementsAre(3, 10, 20, 30));
}

TEST(Interpret, VectorStatementsUnderMasks) {
  Outcome out = run(R"(
func f(x: f32[10]) -> (y: f32[12]) {
  alloc t: f32[4] registers {
    for i in 3 {
      let k = ramp(i * 4, 1, 4)
      let mask = k < broadcast(10, 4)
      t[ramp(0, 1, 4)] = x[k; mask]
      y[k] = broadcast(-1.0, 4)
      y[ramp(i * 4 + 3, -1, 4); ramp(i * 4 + 3, -1, 4) < broadcast(10, 4)] = t[ramp(3, -1, 4)] + broadcast(1.0, 4)
    }
  }
})",
                    {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, -1, -1));
}

TEST(Interpret, VectorIndicesGatherAndScatter) {
  Outcome out = run(R"(
func f(x: f32[3, 4], k: i32[4]) -> (y: f32[2, 4]) {
  y[1, k[ramp(0, 1, 4)]] = x[2, ramp(0, 1, 4)]
  y[0, ramp(0, 1, 4)] = x[k[ramp(0, 1, 4)] %% broadcast(3:i32, 4), 1]
})",
                    {{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {3, 0, 2, 1}});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAre(1, 1, 9, 5, 9, 11, 10, 8));
}

TEST(Interpret, EmptyLoopsAndBuffersAreFine) {
  Outcome out = run("func f<n>(x: f32[n]) -> (y: f32[n]) { for i in n { y[i] = x[i] } }", {{}}, {0});
  EXPECT_EQ(out.error, "");
}

// ---- Blocks ----

TEST(Interpret, MatrixProductWithSymbolicRows) {
  FuncBuilder b("matmul");
  Var m = b.dim("m");
  Buffer x = b.input("x", f32, {m, 7}), w = b.input("w", f32, {7, 3});
  Buffer y = b.reduce("y", f32, {m, 3}, {7}, Reducer::sum, [&](Axes s, Axes r) {
    return load(x, {s[0], r[0]}) * load(w, {r[0], s[1]});
  });
  Buffer z = b.compute("z", f32, {m, 3}, [&](Axes i) {
    return max(load(y, {i[0], i[1]}), constant(f32, 0));
  });
  const Tensor xs = random_values(35, 1), ws = random_values(21, 2);
  Tensor expected;
  for (size_t i = 0; i < 5; ++i) {
    for (size_t j = 0; j < 3; ++j) {
      float sum = 0;
      for (size_t k = 0; k < 7; ++k)
        sum += static_cast<float>(xs[i * 7 + k]) * static_cast<float>(ws[k * 3 + j]);
      expected.push_back(std::max(sum, 0.0f));
    }
  }
  Outcome out = run(b.finish({z}), {xs, ws}, {5});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAreArray(expected));
}

TEST(Interpret, ConvolutionWithPaddingReadsOnlyInside) {
  FuncBuilder b("conv");
  Buffer x = b.input("x", f32, {2, 5, 6}), w = b.input("w", f32, {3, 2, 3, 3});
  Buffer padded = b.compute("pad", f32, {2, 7, 8}, [&](Axes i) {
    Expr inside = i[1] >= 1 && i[1] < 6 && i[2] >= 1 && i[2] < 7;
    return select(inside, load(x, {i[0], i[1] - 1, i[2] - 1}), constant(f32, 0));
  });
  Buffer y = b.reduce("y", f32, {3, 3, 3}, {2, 3, 3}, Reducer::sum, [&](Axes s, Axes r) {
    return load(padded, {r[0], s[1] * 2 + r[1], s[2] * 2 + r[2]}) * load(w, {s[0], r[0], r[1], r[2]});
  });
  const Tensor xs = random_values(60, 3), ws = random_values(54, 4);
  Tensor expected;
  for (int o = 0; o < 3; ++o) {
    for (int i = 0; i < 3; ++i) {
      for (int j = 0; j < 3; ++j) {
        float sum = 0;
        for (int c = 0; c < 2; ++c) {
          for (int p = 0; p < 3; ++p) {
            for (int q = 0; q < 3; ++q) {
              const int h = i * 2 + p - 1, v = j * 2 + q - 1;
              if (h < 0 || h >= 5 || v < 0 || v >= 6) continue;
              sum += static_cast<float>(xs[static_cast<size_t>((c * 5 + h) * 6 + v)]) *
                     static_cast<float>(ws[static_cast<size_t>(((o * 2 + c) * 3 + p) * 3 + q)]);
            }
          }
        }
        expected.push_back(sum);
      }
    }
  }
  Outcome out = run(b.finish({y}), {xs, ws});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAreArray(expected));
}

TEST(Interpret, ReductionsByEveryReducer) {
  FuncBuilder b("reductions");
  Buffer x = b.input("x", f32, {2, 3});
  std::vector<Buffer> results;
  for (Reducer r : {Reducer::sum, Reducer::product, Reducer::min, Reducer::max}) {
    results.push_back(b.reduce("y", f32, {2}, {3}, r, [&](Axes s, Axes k) { return load(x, {s[0], k[0]}); }));
  }
  for (Reducer r : {Reducer::any, Reducer::all}) {
    results.push_back(b.reduce("b", ElementType::boolean, {2}, {3}, r, [&](Axes s, Axes k) {
      return load(x, {s[0], k[0]}) > constant(f32, 2.5);
    }));
  }
  Outcome out = run(b.finish(results), {{1, 2, 3, 4, 5, 6}});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.outputs, ElementsAre(ElementsAre(6, 15), ElementsAre(6, 120), ElementsAre(1, 4),
                                       ElementsAre(3, 6), ElementsAre(1, 1), ElementsAre(0, 1)));
}

TEST(Interpret, ScanOverTimeSteps) {
  FuncBuilder b("scan");
  Buffer x = b.input("x", f32, {4, 2});
  Buffer state = b.new_buffer("state", f32, {5, 2});
  b.block("start", {{"i", 2}}, [&](Axes i) { return Store::make(state, {0, i[0]}, constant(f32, 0)); });
  b.serial_loop("t", 4, [&](Expr t) {
    b.block("step", {{"i", 2}}, [&](Axes i) {
      return Store::make(state, {t + 1, i[0]},
                         load(state, {t, i[0]}) * constant(f32, 2) + load(x, {t, i[0]}));
    });
  });
  Buffer y = b.compute("y", f32, {2}, [&](Axes i) { return load(state, {4, i[0]}); });
  Outcome out = run(b.finish({y}), {{1, 0, 1, 0, 1, 1, 1, 1}});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAre(15, 3));
}

// The reduction loop is split by a factor that does not divide it, and moved outwards.
TEST(Interpret, ScheduledReductionInitialisesOnce) {
  Outcome out = run(R"(
func f(x: f32[4, 10]) -> (y: f32[4]) {
  for ko in 3 {
    parallel for i in 4 {
      vectorized for ki in 4 {
        block y(a = i: spatial 4, k = ko * 4 + ki: reduce 10)
            where ko * 4 + ki < 10
            reads x[a, k]
            writes y[a] {
          init { y[a] = 100.0 }
          y[a] = y[a] + x[a, k]
        }
      }
    }
  }
})",
                    {Tensor(40, 0.5)});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAre(105, 105, 105, 105));
}

// ---- Errors ----

struct BadProgram {
  const char* name;
  const char* source;
  const char* message;
};
void PrintTo(const BadProgram& c, std::ostream* out) { *out << c.name; }

class Faulty : public ::testing::TestWithParam<BadProgram> {};

TEST_P(Faulty, IsReportedWithItsPlace) {
  const BadProgram& c = GetParam();
  Func f = parse(c.source);
  std::vector<Tensor> inputs;
  for (int i = 0; i < f.num_inputs(); ++i)
    inputs.emplace_back(static_cast<size_t>(count(f.params[static_cast<size_t>(i)], f, {})), 1.0);
  EXPECT_THAT(run(f, inputs, {}, {.max_steps = 1000}).error, HasSubstr(c.message));
}

const BadProgram kBadPrograms[] = {
    {"read_outside", "func f(x: f32[2, 3]) -> (y: f32[2]) { for i in 3 { y[0] = x[1, i + 1] } }",
     "f: x[1, 3] is outside of the buffer's shape [2, 3], in i = 2"},
    {"negative_index", "func f(x: f32[3]) -> (y: f32[3]) { for i in 3 { y[i] = x[i - 1] } }",
     "x[-1] is outside of the buffer's shape [3], in i = 0"},
    {"write_outside", "func f() -> (y: f32[3]) { y[3] = 1.0 }",
     "y[3] is outside of the buffer's shape [3], in the function's body"},
    {"block_is_named",
     "func f() -> (y: f32[3]) { for i in 4 { for j in 2 { block b(p = i: spatial 4, q = j: spatial 2) writes "
     "y[p] { "
     "y[p] = 1.0 } } } }",
     "y[3] is outside of the buffer's shape [3], in block b at p = 3, q = 0"},
    {"lane_outside", "func f(x: f32[6]) -> (y: f32[8]) { y[ramp(0, 1, 8)] = x[ramp(0, 1, 8)] }",
     "x[6] is outside of the buffer's shape [6]"},
    {"select_of_vector_reads_both",
     "func f(x: f32[4]) -> (y: f32[4]) { y[ramp(0, 1, 4)] = select(ramp(0, 1, 4) < broadcast(2, 4), "
     "x[ramp(0, 1, 4)], "
     "x[ramp(2, 1, 4)]) }",
     "x[4] is outside of the buffer's shape [4]"},
    {"unwritten_copy", "func f() -> (y: f32[3]) { alloc t: f32[2] alloc s: f32[2] s[0] = t[1] y[0] = s[0] }",
     "s[0] is read but was never written"},
    {"unwritten_to_output", "func f() -> (y: f32[3]) { alloc t: f32[2] y[ramp(0, 1, 2)] = t[ramp(0, 1, 2)] }",
     "t[0] is read but was never written"},
    {"unwritten", "func f() -> (y: f32[3]) { alloc t: f32[2, 3]  t[1, 1] = 1.0  y[0] = t[1, 2] }",
     "t[1, 2] is read but was never written"},
    {"unwritten_output", "func f() -> (y: f32[3]) { y[0] = y[1] }", "y[1] is read but was never written"},
    {"allocated_anew",
     "func f() -> (y: f32[3]) { for i in 2 { alloc t: f32[1] { if i == 0 { t[0] = 1.0 } y[i] = t[0] } } }",
     "t[0] is read but was never written, in i = 1"},
    {"axis_outside",
     "func f() -> (y: f32[9]) { for i in 4 { block b(p = i * 2: spatial 6) writes y[p] { y[p] = 1.0 } } }",
     "axis p = 6 is outside of its domain 0 .. 6, in block b at p = 6"},
    {"lanes_collide", "func f() -> (y: f32[3]) { y[ramp(0, 1, 4) // broadcast(2, 4)] = broadcast(1.0, 4) }",
     "lanes 0 and 1 both write y[0]"},
    {"steps", "func f() -> (y: f32[3]) { for i in 100 { for j in 100 { y[0] = 1.0 } } }",
     "the limit of steps is reached"},
    {"long_empty_loop", "func f() -> (y: f32[3]) { for i in 1000000000000 { if i < 0 { y[0] = 1.0 } } }",
     "the limit of steps is reached"},
    {"negative_shape",
     "func f(x: f32[1]) -> (y: f32[1]) { for i in 2 { alloc t: f32[0 - i] { y[0] = 1.0 } } }",
     "buffer t has the shape [-1]"},
    {"bits_of_floats", "func f() -> (y: f32[1]) { y[0] = 1.0 & 2.0 }", "& of f32"},
    {"log_of_int", "func f() -> (y: i64[1]) { y[0] = log(1) }", "log of i64"},
    {"unequal_bit_cast", "func f() -> (y: i64[1]) { y[0] = bit_cast<i64>(1.0) }", "bit_cast from f32 to i64"},
    {"write_write_race", "func f() -> (y: f32[3]) { parallel for i in 3 { y[i // 2] = 1.0 } }",
     "y[0] is written, and read or written by another iteration of parallel loop i, in i = 1"},
    {"read_write_race", "func f() -> (y: f32[3]) { y[0] = 1.0 parallel for i in 2 { y[i + 1] = y[i] } }",
     "y[1] is read, and written by another iteration of parallel loop i, in i = 1"},
    {"write_after_read_race",
     "func f(x: f32[3]) -> (y: f32[3]) { alloc t: f32[1] t[0] = 1.0 parallel for i in 3 { y[i] = t[0] if i "
     "== 2 { t[0] "
     "= x[i] } } }",
     "t[0] is written, and read or written by another iteration of parallel loop i, in i = 2"},
    {"inner_race", "func f() -> (y: f32[4]) { parallel for i in 2 { parallel for j in 2 { y[i] = 1.0 } } }",
     "another iteration of parallel loop j, in i = 0, j = 1"},
    {"outer_race", "func f() -> (y: f32[4]) { parallel for i in 2 { parallel for j in 2 { y[j] = 1.0 } } }",
     "another iteration of parallel loop i, in i = 1, j = 0"},
    {"private_buffer_carried_over",
     "func f() -> (y: f32[4]) { alloc t: f32[1] parallel for i in 4 { if i == 0 { t[0] = 1.0 } y[i] = t[0] } "
     "}",
     "t[0] is read, and written by another iteration of parallel loop i, in i = 1"},
};
INSTANTIATE_TEST_SUITE_P(Interpret, Faulty, ::testing::ValuesIn(kBadPrograms),
                         [](const auto& info) { return info.param.name; });

TEST(Interpret, UnboundVariablesAndBuffersAreErrors) {
  Buffer y("y", ElementType::i64, {1}), stray("stray", ElementType::i64, {1});
  Func f;
  f.name = "f";
  f.params = {y};
  f.num_outputs = 1;
  f.body = Store::make(y, {0}, Var("v"));
  EXPECT_THAT(run(f).error, HasSubstr("variable v is not bound here"));
  f.body = Store::make(y, {0}, load(stray, {0}));
  EXPECT_THAT(run(f).error, HasSubstr("buffer stray is neither a parameter nor allocated here"));
}

TEST(Interpret, RacesMayBeAllowed) {
  Func f = parse("func f() -> (y: f32[3]) { for k in 2 { parallel for i in 3 { y[i // 2] = 1.0 } } }");
  EXPECT_NE(run(f).error, "");
  EXPECT_EQ(run(f, {}, {}, {.detect_races = false}).error, "");
}

// Each iteration has its own t, and the loops run one after the other.
TEST(Interpret, PrivateBuffersAndSuccessiveLoopsDoNotRace) {
  Outcome out = run(R"(
func f(x: f32[6]) -> (y: f32[4]) {
  alloc t: f32[6]
  alloc s: f32[6]
  parallel for i in 6 { s[i] = x[i] }
  parallel for i in 4 {
    for k in 3 { t[i + k] = s[i + k] }
    y[i] = t[i] + t[i + 1] + t[i + 2]
  }
  parallel for i in 2 { parallel for j in 2 { y[i * 2 + j] = y[i * 2 + j] + s[0] } }
})",
                    {{1, 2, 3, 4, 5, 6}});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAre(7, 10, 13, 16));
}

TEST(Interpret, GapsMayBeCopied) {
  Outcome out = run(R"(
func f(x: f32[3]) -> (y: f32[3]) {
  alloc t: f32[4]
  alloc s: f32[4]
  alloc r: f32[4]
  for i in 3 { t[i] = x[i] }
  for i in 4 { s[i] = t[i] }
  r[ramp(0, 1, 4)] = s[ramp(0, 1, 4)]
  for i in 3 { y[i] = r[i] }
})",
                    {{1, 2, 3}});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAre(1, 2, 3));
}

TEST(Interpret, ScalarSelectAndPredicatesGuardLoads) {
  Outcome out = run(R"(
func f(x: f32[3]) -> (y: f32[5]) {
  for i in 5 { y[i] = select(i < 3, x[i], 7.0) + x[i; i < 3] }
})",
                    {{1, 2, 3}});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAre(2, 4, 6, 7, 7));
}

}  // namespace
}  // namespace mcc::tensor
