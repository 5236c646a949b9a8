#include "tensor/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensor/build.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr ElementType f32 = ElementType::f32;

Func parse(const std::string& source) {
  Result<Func> f = parse_func(source);
  EXPECT_TRUE(f.ok()) << to_text(f.errors()) << "\n" << source;
  return *f;
}

// ---- What is right ----

struct Valid {
  const char* name;
  Stage stage;
  const char* source;
};
void PrintTo(const Valid& c, std::ostream* out) { *out << c.name; }

class Passes : public ::testing::TestWithParam<Valid> {};

TEST_P(Passes, Verification) { EXPECT_THAT(verify(parse(GetParam().source), GetParam().stage), IsEmpty()); }

const Valid kValid[] = {
    {"split_reduction", Stage::blocks, R"(
func f(x: f32[4, 10]) -> (y: f32[4]) {
  for ko in 3 {
    vectorized for i in 4 {
      for ki in 4 {
        block y(a = i: spatial 4, k = ko * 4 + ki: reduce 10)
            where ko * 4 + ki < 10
            reads x[a, k]
            writes y[a] {
          init { y[a] = 0.0 }
          y[a] = y[a] + x[a, k]
        }
      }
    }
  }
})"},
    {"tail_of_a_tail", Stage::blocks, R"(
func f(x: f32[40]) -> (y: f32[1]) {
  for k0 in 3 { for k1 in 3 { for k2 in 6 {
    block y(a = 0: spatial 1, k = k0 * 16 + k1 * 6 + k2: reduce 40)
        where k0 * 16 + k1 * 6 + k2 < 40 && k1 * 6 + k2 < 16
        reads x[k]
        writes y[a] {
      init { y[a] = 0.0 }
      y[a] = y[a] + x[k]
    }
  } } }
})"},
    {"fused_reduction", Stage::blocks, R"(
func f(x: f32[6, 4]) -> (y: f32[1]) {
  for k in 24 {
    block y(a = 0: spatial 1, p = k // 4: reduce 6, q = k %% 4: reduce 4)
        reads x[p, q]
        writes y[a] {
      init { y[a] = 0.0 }
      y[a] = y[a] + x[p, q]
    }
  }
})"},
    {"halo_is_computed_again", Stage::blocks, R"(
func f(x: f32[10]) -> (y: f32[8]) {
  alloc t: f32[10]
  parallel for i in 4 {
    for h in 4 { block t(a = i * 2 + h: spatial 10) reads x[a] writes t[a] { t[a] = x[a] } }
    for j in 2 { block y(a = i * 2 + j: spatial 8) reads t[a +: 3] writes y[a] { y[a] = t[a] + t[a + 2] } }
  }
})"},
    {"guarded_padding", Stage::blocks, R"(
func f(x: f32[8]) -> (y: f32[10]) {
  for i in 10 {
    block y(a = i: spatial 10) reads x[max(a - 1, 0)] writes y[a] { y[a] = select(a >= 1 && a < 9, x[a - 1], 0.0) }
  }
})"},
    {"tail_under_if", Stage::blocks, R"(
func f<n>(x: f32[n, 10]) -> (y: f32[n, 10]) {
  for r in n { for i in 3 { for j in 4 { if i * 4 + j < 10 {
    block y(b = r: spatial n, a = i * 4 + j: spatial 10) reads x[b, a] writes y[b, a] { y[b, a] = x[b, a] }
  } } } }
})"},
    {"loop_in_body", Stage::blocks, R"(
func f(x: f32[4, 8]) -> (y: f32[4, 8]) {
  for i in 4 { block y(a = i: spatial 4) reads x[a, 0 +: 8] writes y[a, 0 +: 8] { for j in 8 { y[a, j] = x[a, 7 - j] } } }
})"},
    {"gather_reads_anywhere", Stage::blocks, R"(
func f(x: f32[8], k: i64[4]) -> (y: f32[4]) {
  for i in 4 { block y(a = i: spatial 4) reads k[a], x[0 +: 8] writes y[a] { y[a] = x[k[a]] } }
})"},
    {"lowered_vectors", Stage::lowered, R"(
func f(x: f32[10]) -> (y: f32[12]) {
  parallel for i in 3 {
    alloc t: f32[4] registers {
      let k = ramp(i * 4, 1, 4)
      let mask = k < broadcast(10, 4)
      evaluate prefetch(x[i * 4 + 4], 3)
      t[ramp(0, 1, 4)] = x[k; mask]
      y[k; mask] = t[ramp(0, 1, 4)]
    }
  }
})"},
};
INSTANTIATE_TEST_SUITE_P(Verify, Passes, ::testing::ValuesIn(kValid),
                         [](const auto& info) { return info.param.name; });

TEST(Verify, BuiltFunctionsPass) {
  FuncBuilder b("all");
  Var m = b.dim("m");
  Buffer x = b.input("x", f32, {m, 7}), w = b.input("w", f32, {7, 3});
  Buffer y = b.reduce("y", f32, {m, 3}, {7}, Reducer::sum, [&](Axes s, Axes r) {
    return load(x, {s[0], r[0]}) * load(w, {r[0], s[1]});
  });
  Buffer pad = b.compute("pad", f32, {m + 2, 3}, [&](Axes i) {
    return select(i[0] >= 1 && i[0] <= m, load(y, {i[0] - 1, i[1]}), constant(f32, 0));
  });
  Buffer state = b.new_buffer("state", f32, {5, 3});
  b.block("start", {{"i", 3}}, [&](Axes i) { return Store::make(state, {0, i[0]}, constant(f32, 0)); });
  b.serial_loop("t", 4, [&](Expr t) {
    b.block("step", {{"i", 3}}, [&](Axes i) {
      return Store::make(state, {t + 1, i[0]}, load(state, {t, i[0]}) + load(w, {t, i[0]}));
    });
  });
  EXPECT_THAT(verify(b.finish({pad, state, x}), Stage::blocks), IsEmpty());
}

// ---- What breaks a rule ----

struct Invalid {
  const char* name;
  Stage stage;
  const char* source;
  const char* message;
};
void PrintTo(const Invalid& c, std::ostream* out) { *out << c.name; }

class Breaks : public ::testing::TestWithParam<Invalid> {};

TEST_P(Breaks, TheRule) {
  EXPECT_THAT(verify(parse(GetParam().source), GetParam().stage), Contains(HasSubstr(GetParam().message)));
}

const Invalid kTypes[] = {
    {"arithmetic_of_bool", Stage::lowered, "func f() -> (y: bool[1]) { y[0] = true + false }",
     "arithmetic is of numbers: true + false (in f: y[0] = true + false)"},
    {"reduce_of_bool", Stage::lowered, "func f() -> (y: bool[1]) { y[0] = reduce_add(broadcast(true, 4)) }",
     "arithmetic is of numbers: reduce_add(broadcast(true, 4))"},
    {"bits_of_float", Stage::lowered, "func f() -> (y: f32[1]) { y[0] = 1.0 | 2.0 }",
     "&, | and ^ are of integers or bool: 1.0 | 2.0"},
    {"shift_of_float", Stage::lowered, "func f() -> (y: f32[1]) { y[0] = 1.0 << 2.0 }",
     "shifts are of integers"},
    {"wide_shift", Stage::lowered, "func f(x: i8[1]) -> (y: i8[1]) { y[0] = x[0] << 8:i8 }",
     "a shift count is below the width: x[0] << 8:i8"},
    {"exp_of_int", Stage::lowered, "func f() -> (y: i64[1]) { y[0] = exp(2) }",
     "a mathematical function is of floats: exp(2)"},
    {"abs_of_bool", Stage::lowered, "func f() -> (y: bool[1]) { y[0] = abs(true) }", "abs is of numbers"},
    {"is_nan_of_int", Stage::lowered, "func f() -> (y: bool[1]) { y[0] = is_nan(2) }",
     "is_nan and is_inf are of floats"},
    {"not_of_int", Stage::lowered, "func f() -> (y: i64[1]) { y[0] = logical_not(2) }",
     "logical_not and likely are of bool"},
    {"bit_not_of_float", Stage::lowered, "func f() -> (y: f32[1]) { y[0] = bit_not(2.0) }",
     "bit_not and popcount are of integers"},
    {"bit_cast_width", Stage::lowered, "func f() -> (y: i64[1]) { y[0] = bit_cast<i64>(2.0) }",
     "bit_cast keeps the width and the lanes"},
    {"call_type", Stage::lowered, "func f() -> (y: f64[1]) { y[0] = exp<f64>(2.0) }",
     "the type of a call follows from its arguments"},
    {"prefetch_value", Stage::lowered, "func f(x: f32[1]) -> (y: f32[1]) { y[0] = prefetch(x[0], 1) }",
     "what has no value stands alone in an evaluate"},
};
INSTANTIATE_TEST_SUITE_P(Types, Breaks, ::testing::ValuesIn(kTypes),
                         [](const auto& info) { return info.param.name; });

const Invalid kStatements[] = {
    {"symbolic_vector", Stage::blocks, "func f<n>() -> (y: f32[n]) { vectorized for i in n { y[i] = 1.0 } }",
     "a vectorized loop has a constant extent of 1 or more (in f: for i)"},
    {"bound_to_nothing", Stage::blocks,
     "func f() -> (y: f32[4]) { bound for i in 4 @{thread=\"x\"} { y[i] = 1.0 } }",
     "a bound loop names its thread axis"},
    {"narrow_store_mask", Stage::lowered,
     "func f() -> (y: f32[4]) { y[ramp(0, 1, 4); true] = broadcast(1.0, 4) }",
     "a store's predicate is bool, of as many lanes as the value"},
    {"vector_to_one_element", Stage::lowered, "func f() -> (y: f32[4]) { y[0] = broadcast(1.0, 4) }",
     "the lanes of a store go to different elements"},
    {"vector_if", Stage::lowered,
     "func f() -> (y: f32[4]) { if ramp(0, 1, 4) < broadcast(2, 4) { y[0] = 1.0 } }",
     "the condition of an if is one bool (in f: if ramp(0, 1, 4) < broadcast(2, 4))"},
    {"vector_where", Stage::blocks,
     "func f() -> (y: f32[4]) { for i in 4 { block y(a = i: spatial 4) where broadcast(true, 4) { y[a] = 1.0 "
     "} } }",
     "the predicate of a block is one bool"},
    {"evaluate_value", Stage::lowered, "func f() -> (y: f32[4]) { evaluate 1.0 y[0] = 1.0 }",
     "an evaluate is a barrier, a prefetch, of tiles, or about asynchronous copies"},
    {"tile_of_many_rows", Stage::lowered,
     "func f(a: u8[1088], b: i8[1024]) -> (y: i32[272]) { evaluate tile_product_u8i8(y[0], 16, a[0], 64, "
     "b[0], 64, 17, 16) }",
     "tiles have constant numbers, at most 16 rows and 16 steps, and loads for their places"},
    {"tile_of_other_bytes", Stage::lowered,
     "func f(a: i8[64], b: i8[64]) -> (y: i32[16]) { evaluate tile_product_u8i8(y[0], 16, a[0], 4, b[0], 64, "
     "1, 1) }",
     "tiles have constant numbers, at most 16 rows and 16 steps, and loads for their places"},
    {"tile_beyond_the_last", Stage::lowered,
     "func f() -> (y: i32[16]) { evaluate tile_configure(1, 1, 1, 1) evaluate tile_zero(8) evaluate "
     "tile_store(y[0], 16, 0) }",
     "tiles have constant numbers, at most 16 rows and 16 steps, and loads for their places"},
    {"async_copy_of_two_bytes", Stage::lowered,
     R"(func f(x: f16[32]) -> (y: f16[32]) { alloc s: f16[32] shared { bound for t in 32 @{thread="thread.x"} {
       evaluate async_copy(s[t], x[t]) y[t] = s[t] } } })",
     "an asynchronous copy is of 4, 8 or 16 bytes from global into shared memory"},
    {"product_of_bytes_across_the_sum", Stage::lowered, R"(func f() -> (y: i32[4]) {
       alloc a: i8[2048] shared align 1024 { alloc c: i32[4] registers { evaluate wgmma_i8(c[ramp(0, 1, 4)], a[0], 128, 16, 1, 0, a[0], 128, 16, 0, 0) } } })",
     "products are of neighbouring sums of f32 or i32 of a thread's own"},
    {"product_of_tf32_across_the_sum", Stage::lowered, R"(func f() -> (y: f32[4]) {
       alloc a: tf32[512] shared align 1024 { alloc c: f32[4] registers { evaluate wgmma_tf32(c[ramp(0, 1, 4)], a[0], 32, 4, 0, 0, a[0], 32, 4, 1, 0) } } })",
     "products are of neighbouring sums of f32 or i32 of a thread's own"},
    {"product_of_other_bytes", Stage::lowered, R"(func f() -> (y: i32[4]) {
       alloc a: i8[2048] shared align 1024 { alloc c: i32[4] registers { evaluate wgmma_u8i8(c[ramp(0, 1, 4)], a[0], 128, 16, 0, 0, a[0], 128, 16, 0, 0) } } })",
     "products are of neighbouring sums of f32 or i32 of a thread's own"},
    {"product_of_bytes_summed_in_f32", Stage::lowered, R"(func f() -> (y: f32[4]) {
       alloc a: i8[2048] shared align 1024 { alloc c: f32[4] registers { evaluate wgmma_i8(c[ramp(0, 1, 4)], a[0], 128, 16, 0, 0, a[0], 128, 16, 0, 0) } } })",
     "products are of neighbouring sums of f32 or i32 of a thread's own"},
    {"matrix_row", Stage::lowered,
     R"(func f(x: f16[32]) -> (y: f32[32]) { bound for t in 32 @{thread="thread.x"} {
       let r = load_matrices(x[ramp(0, 1, 4)], 1) { y[t] = 1.0 } } })",
     "a row of a matrix has 16 bytes"},
    {"prefetch_locality", Stage::lowered, "func f(x: f32[4]) -> (y: f32[4]) { evaluate prefetch(x[0], 4) }",
     "a prefetch is of a load, with a constant of 0 .. 3"},
    {"store_to_input", Stage::lowered, "func f(x: f32[4]) -> (y: f32[4]) { x[0] = 1.0 }",
     "inputs are not stored to: x"},
    {"local_buffer_shared", Stage::lowered,
     "func f() -> (y: f32[4]) { alloc t: f32[4] local { parallel for i in 4 { t[i] = 1.0 y[i] = t[i] } } }",
     "a local buffer is used only in the iteration that allocates it: t (in f: alloc t > for i > t[i] = "
     "1.0)"},
    {"symbolic_registers", Stage::lowered,
     "func f<n>() -> (y: f32[4]) { alloc t: f32[n] registers { y[0] = 1.0 } }",
     "a buffer in registers has a constant shape: t"},
    {"spread_over_a_warp", Stage::lowered, "func f() -> (y: f32[4]) { alloc t: f32[4] warp { y[0] = 1.0 } }",
     "once launches are formed, no buffer is spread over a warp: t"},
    {"local_parameter", Stage::lowered, "func f() -> (y: f32[4] local) { y[0] = 1.0 }",
     "a parameter is global: y"},
    {"narrow_extent", Stage::lowered, "func f() -> (y: f32[4:i32]) { y[0] = 1.0 }",
     "the extents of a buffer are i64: y"},
    {"allocate_before_lowering", Stage::blocks, "func f() -> (y: f32[4]) { alloc t: f32[4] { y[0] = 1.0 } }",
     "before lowering, buffers stand in the function's list: t"},
    {"block_after_lowering", Stage::lowered,
     "func f() -> (y: f32[4]) { for i in 4 { block y(a = i: spatial 4) { y[a] = 1.0 } } }",
     "no blocks after lowering (in f: for i > block y)"},
    {"loops_of_one_name", Stage::blocks,
     "func f() -> (y: f32[4]) { for i in 4 { y[i] = 1.0 } for i in 4 { y[i] = 1.0 } }",
     "loops have different names: i"},
    {"blocks_of_one_name", Stage::blocks,
     "func f() -> (y: f32[4]) { for i in 4 { block y(a = i: spatial 4) { y[a] = 1.0 } } for j in 4 { block "
     "y(a = j: "
     "spatial 4) { y[a] = 1.0 } } }",
     "blocks have different names: y"},
};
INSTANTIATE_TEST_SUITE_P(Statements, Breaks, ::testing::ValuesIn(kStatements),
                         [](const auto& info) { return info.param.name; });

const Invalid kBlocks[] = {
    {"reduce_in_parallel", Stage::blocks, R"(
func f(x: f32[4]) -> (y: f32[1]) {
  parallel for i in 4 { block y(a = 0: spatial 1, k = i: reduce 4) { init { y[a] = 0.0 } y[a] = y[a] + x[k] } }
})",
     "reduce and scan axes are not bound to parallel loops: reduce axis k is bound to loop i (in f: for i > "
     "block y)"},
    {"narrow_axis", Stage::blocks,
     "func f() -> (y: f32[4]) { for i in 4 { block y(a = i: spatial 4:i32) { y[a] = 1.0 } } }",
     "block axes, their domains and values are i64: a"},
    {"reduce_steps_overlap", Stage::blocks, R"(
func f(x: f32[12]) -> (y: f32[1]) {
  for ko in 3 { for ki in 5 {
    block y(a = 0: spatial 1, k = ko * 4 + ki: reduce 13) { init { y[a] = 0.0 } y[a] = y[a] + x[k] }
  } }
})",
     "a step of a reduction is done once: k = ko * 4 + ki is the same at ko = 0, ki = 4 and at ko = 1, ki = "
     "0"},
    {"reduce_shares_a_loop", Stage::blocks, R"(
func f(x: f32[4]) -> (y: f32[4]) {
  for i in 4 { block y(a = i: spatial 4, k = i: reduce 4) { init { y[a] = 0.0 } y[a] = y[a] + x[k] } }
})",
     "the loops of a reduce axis bind no other axis: k = i and a = i"},
    {"unbound_loop", Stage::blocks, R"(
func f(x: f32[4]) -> (y: f32[1]) {
  for k in 4 { for j in 2 { block y(a = 0: spatial 1, r = k: reduce 4) { init { y[a] = 0.0 } y[a] = y[a] + x[r] } } }
})",
     "a loop inside of a block's reduce loops binds one of its axes: j"},
    {"outside_domain", Stage::blocks, R"(
func f() -> (y: f32[16]) { for i in 3 { for j in 4 { block y(a = i * 4 + j: spatial 10) { y[a] = 1.0 } } } })",
     "an axis is bound to values of its domain: a = i * 4 + j is 11 at i = 2, j = 3, outside of 0 .. 10"},
    {"init_over_reduce", Stage::blocks, R"(
func f(x: f32[4]) -> (y: f32[1]) {
  for i in 4 { block y(a = 0: spatial 1, k = i: reduce 4) { init { y[a] = x[k] } y[a] = y[a] + x[k] } }
})",
     "init does not depend on reduce axes: k"},
    {"init_elsewhere", Stage::blocks, R"(
func f(x: f32[4]) -> (y: f32[1], z: f32[1]) {
  for i in 4 { block y(a = 0: spatial 1, k = i: reduce 4) { init { z[a] = 0.0 } y[a] = x[k] } }
})",
     "init stores only to buffers that the body stores to: z"},
    {"undeclared_read", Stage::blocks, R"(
func f(x: f32[4]) -> (y: f32[4]) { for i in 4 { block y(a = i: spatial 4) writes y[a] { y[a] = x[a] } } })",
     "a block's regions cover its accesses: read of x[a], never declared (in f: for i > block y)"},
    {"undeclared_write", Stage::blocks, R"(
func f(x: f32[4]) -> (y: f32[4]) { for i in 4 { block y(a = i: spatial 4) reads x[a] { y[a] = x[a] } } })",
     "a block's regions cover its accesses: write of y[a], never declared"},
    {"read_outside_region", Stage::blocks, R"(
func f(x: f32[6]) -> (y: f32[4]) {
  for i in 4 { block y(a = i: spatial 4) reads x[a +: 2] writes y[a] { y[a] = x[a] + x[a + 2] } }
})",
     "a block's regions cover its accesses: read of x[a + 2], at a = 0"},
    {"write_outside_region", Stage::blocks, R"(
func f() -> (y: f32[4, 8]) {
  for i in 4 { block y(a = i: spatial 4) writes y[a, 0 +: 7] { for j in 8 { y[a, j] = 1.0 } } }
})",
     "a block's regions cover its accesses: write of y[a, j], at a = 3, j = 7"},
};
INSTANTIATE_TEST_SUITE_P(Blocks, Breaks, ::testing::ValuesIn(kBlocks),
                         [](const auto& info) { return info.param.name; });

// ---- What has no text ----

class Scopes : public ::testing::Test {
 protected:
  Scopes() {
    f.name = "f";
    f.params = {y};
    f.num_outputs = 1;
  }
  std::vector<std::string> errors(Stage stage = Stage::lowered) const { return verify(f, stage); }
  static Stmt loop(const Var& v, Stmt body) { return For::make(v, 0, 4, LoopKind::serial, std::move(body)); }

  Buffer y{"y", ElementType::i64, {4}};
  Var i{"i"};
  Func f;
};

TEST_F(Scopes, VariablesAreInSight) {
  f.body = Seq::make({loop(i, Store::make(y, {i}, i)), Store::make(y, {0}, i)});
  EXPECT_THAT(errors(), ElementsAre("a variable is in sight where it is used: i (in f: y[0] = i)"));
}

TEST_F(Scopes, BlocksSeeOnlyTheirAxes) {
  auto* block = new Block;
  Var a("a");
  block->name = "b";
  block->axes = {{a, {0, 4}, AxisKind::spatial}};
  block->values = {i};
  block->body = Store::make(y, {a}, i);
  f.body = loop(i, Block::make(block));
  EXPECT_THAT(errors(Stage::blocks),
              ElementsAre("a variable is in sight where it is used: i (in f: for i > block b > y[a] = i)"));
}

TEST_F(Scopes, VariablesAreBoundOnce) {
  f.body = loop(i, loop(i, Store::make(y, {i}, i)));
  EXPECT_THAT(errors(), ElementsAre("a variable is bound once on the way in: i (in f: for i > for i)"));
  f.dims = {i, i};
  f.body = nullptr;
  EXPECT_THAT(errors(), ElementsAre("a dimension is listed once: i (in f)"));
  f.dims = {Var("n", {ElementType::i32, 1})};
  EXPECT_THAT(errors(), ElementsAre("a dimension is i64: n (in f)"));
}

TEST_F(Scopes, BuffersAreInSight) {
  Buffer t("t", ElementType::i64, {4});
  f.body = Seq::make({Allocate::make(t, Store::make(t, {0}, 1)), Store::make(y, {0}, load(t, {0}))});
  EXPECT_THAT(errors(),
              ElementsAre("a buffer is a parameter or allocated where it is used: t (in f: y[0] = t[0])"));
  f.body = Store::make(y, {0}, 1);
  f.allocs = {t, t};
  EXPECT_THAT(errors(), ElementsAre("a buffer is listed or allocated once: t (in f)"));
}

TEST_F(Scopes, StringsAreNotComputedWith) {
  f.params = {Buffer("s", ElementType::string, {4}), y};
  f.body = Store::make(y, {0}, Cast::make(kIndex, load(f.params[0], {0})));
  EXPECT_THAT(errors(), ElementsAre(HasSubstr("strings are not computed with: s")));
}

TEST_F(Scopes, OutputsAreParameters) {
  f.num_outputs = 2;
  EXPECT_THAT(errors(), ElementsAre("outputs are the last of the parameters: 2 outputs (in f)"));
}

TEST_F(Scopes, RegionsHaveTheirBuffersRank) {
  auto* block = new Block;
  Var a("a");
  block->name = "b";
  block->axes = {{a, {0, 4}, AxisKind::spatial}};
  block->values = {i};
  block->body = Store::make(y, {a}, 1);
  block->writes = {{y, {{a, 1}, {0, 1}}}};
  f.body = loop(i, Block::make(block));
  EXPECT_THAT(errors(Stage::blocks),
              ElementsAre(HasSubstr("a region has as many ranges as its buffer has dimensions: y")));
}

TEST_F(Scopes, AllViolationsAreReported) {
  f.body = Seq::make({Store::make(y, {0}, i), Store::make(y, {1}, i)});
  EXPECT_EQ(errors().size(), 2u);
}

}  // namespace
}  // namespace mcc::tensor
