#include "tensor/passes/lower.h"
#include "tensor/passes/unroll_loops.h"

#include <gtest/gtest.h>

#include "golden.h"
#include "tensor/build.h"
#include "tensor/passes/hoist_conditions.h"
#include "tensor/passes/relax_guards.h"
#include "tensor/text.h"
#include "tensor_passes/equivalence.h"

namespace mcc::tensor {
namespace {

constexpr ElementType f32 = ElementType::f32;

// Functions as they come out of schedules, each lowered, checked after every pass, and kept as text.
class LowerFile : public ::testing::TestWithParam<const char*> {};

TEST_P(LowerFile, StaysEquivalentAndMatchesItsGolden) {
  std::string folder = "tensor_passes/data/", name = GetParam();
  Func f = parse(read_file(test_data(folder + name + ".txt")));
  Func lowered = expect_lowers(f, std::vector<int64_t>(f.dims.size(), 13));
  expect_golden(folder + name + ".lowered.txt", to_text(lowered));
}

INSTANTIATE_TEST_SUITE_P(Files, LowerFile,
                         ::testing::Values("register_tile", "fused_parallel", "symbolic_tile", "guarded_init",
                                           "vector_reduce", "scan", "scan_own", "padding", "halo", "pad_copy",
                                           "concat", "masked_tile", "layer_norm", "prefetch_next",
                                           "prefetch_single", "prefetch_ahead", "prefetch_open", "prefetch_rest",
                                           "prefetch_rest_of_two", "masked_update", "transpose_tile",
                                           "joined_tile", "packed_tile", "tiles", "overlapped_tiles",
                                           "dependent_tiles", "open_vectors", "packed_open_tile", "limited",
                                           "symbolic_rows"),
                         [](const auto& info) { return std::string(info.param); });

// Of processors that drop the others hints for the next panel fetch into the first-level cache.
TEST(Lower, FetchesPanelsIntoTheFirstLevelWhereTheSecondIsNot) {
  const Func f = parse(read_file(test_data("tensor_passes/data/prefetch_next.txt")));
  Target target;
  const std::string second = to_text(lower(f, target));
  target.drops_hints = true;
  const std::string first = to_text(lower(f, target));
  EXPECT_NE(second.find(" + 768], 2)"), std::string::npos) << second;
  EXPECT_EQ(second.find(" + 768], 3)"), std::string::npos) << second;
  EXPECT_NE(first.find(" + 768], 3)"), std::string::npos) << first;
  EXPECT_EQ(first.find(" + 768], 2)"), std::string::npos) << first;
}

// Whatever number of rows is left for the last register tile.
TEST(Lower, DividesOpenRowsAtAnySize) {
  const Func f = parse(read_file(test_data("tensor_passes/data/symbolic_rows.txt")));
  for (int64_t rows = 1; rows <= 14; ++rows) {
    SCOPED_TRACE(rows);
    expect_lowers(f, {2, rows});
  }
}

// y[j, i] = x[i, j] + x[i, 0] in square tiles of lanes x lanes, as the schedules make it: columns of x become vectors.
std::string tiled_transposition(int rows, int columns, int lanes) {
  auto ceil = [](int a, int b) { return (a + b - 1) / b; };
  std::string j = text("j.t * ", lanes, " + j.i"), i = text("i.t * ", lanes, " + i.i");
  return text("func transpose(x: f32[", rows, ", ", columns, "]) -> (y: f32[", columns, ", ", rows,
              "]) {\n  parallel for j.t in ", ceil(columns, lanes), " { for i.t in ", ceil(rows, lanes),
              " {\n    unrolled for j.i in ", lanes, " { vectorized for i.i in ", lanes, " { block y(a = ", j,
              ": spatial ", columns, ", b = ", i, ": spatial ", rows, ") where ", j, " < ", columns, " && ",
              i, " < ", rows, " { y[a, b] = x[b, a] + x[b, 0] } } }\n  } }\n}");
}

bool has_shuffle(const Func& f) { return to_text(f).find("shuffle") != std::string::npos; }

TEST(Lower, TransposesInTilesOfAllVectorLengths) {
  for (int lanes : {4, 8, 16}) {
    for (auto [rows, columns] : {std::pair{lanes, lanes}, std::pair{2 * lanes + 1, 3 * lanes + lanes - 1}}) {
      SCOPED_TRACE(text(rows, "x", columns, " in tiles of ", lanes));
      EXPECT_TRUE(has_shuffle(expect_lowers(parse(tiled_transposition(rows, columns, lanes)))));
    }
  }
}

// y[w, c, p] = x[c, 2 w + p] (words that are neighbours in memory), or x[2 w + p, c]; zeros in columns from `there` on.
std::string words(int words, int columns, int there, int lanes, bool is_across) {
  auto ceil = [](int a, int b) { return (a + b - 1) / b; };
  const std::string w = text("w.t * ", lanes, " + w.i"), c = text("c.t * ", lanes, " + c.i");
  const std::string at = is_across ? "x[c, 2 * w + p]" : "x[2 * w + p, c]";
  return text("func words(x: bf16[", is_across ? text(there, ", ", 2 * words) : text(2 * words, ", ", there),
              "]) -> (y: bf16[", words, ", ", columns, ", 2]) {\n  for w.t in ", ceil(words, lanes),
              " { for c.t in ", ceil(columns, lanes), " {\n    ", is_across ? "unrolled " : "", "for w.i in ",
              lanes, " { unrolled for p.i in 2 { vectorized for c.i in ", lanes, " { block y(w = ", w,
              ": spatial ", words, ", c = ", c, ": spatial ", columns, ", p = p.i: spatial 2) where ", w,
              " < ", words, " && ", c, " < ", columns,
              " { y[w, c, p] = ", there < columns ? text("select(c < ", there, ", ", at, ", bf16(0))") : at,
              " } } } }\n  } }\n}");
}

// Neighbours are read and written: nothing goes by strides.
TEST(Lower, MovesWordsTogether) {
  for (int lanes : {4, 8, 16}) {
    for (bool is_across : {true, false}) {
      for (int there : {2 * lanes, lanes + 1}) {
        if (!is_across && there < 2 * lanes) continue;
        SCOPED_TRACE(text(lanes, " lanes, ", is_across ? "across, " : "", there, " columns"));
        const std::string code =
            to_text(expect_lowers(parse(words(2 * lanes, 2 * lanes, there, lanes, is_across))));
        EXPECT_NE(code.find("shuffle"), std::string::npos) << code;
        EXPECT_EQ(code.find(text(", 2, ", lanes, ")")), std::string::npos) << code;
        EXPECT_EQ(code.find(text(", ", 4 * lanes, ", ", lanes, ")")), std::string::npos) << code;
      }
      expect_lowers(parse(words(2 * lanes + 3, 3 * lanes - 1, 3 * lanes - 1, lanes, is_across)));
    }
  }
}

// Words of five: each part by itself.
TEST(Lower, LeavesWordsThatAreNone) {
  auto moved = [](int parts, const std::string& value) {
    return parse(text(
        "func f(x: f32[4, 16]) -> (y: f32[4, 4, ", parts, "]) { unrolled for w in 4 { unrolled for p in ",
        parts, " { vectorized for c in 4 { block y(a = w: spatial 4, b = c: spatial 4, q = p: spatial ",
        parts, ") { y[a, b, q] = ", value, " } } } } }"));
  };
  EXPECT_TRUE(has_shuffle(expect_lowers(moved(2, "x[b, 2 * a + q]"))));
  EXPECT_FALSE(has_shuffle(expect_lowers(moved(5, "x[b, 2 * a + q]"))));
}

// Rows whose elements lie side by side then, some of them zeros; a place at the end that is no whole vector.
TEST(Lower, WritesRowsSideBySide) {
  for (int parts : {2, 3, 4}) {
    for (const char* value : {"x[p, i]", "select(p < 1, x[p, i], 0.0)"}) {
      SCOPED_TRACE(text(parts, " of ", value));
      const std::string code = to_text(expect_lowers(parse(
          text("func f(x: f32[4, 19]) -> (y: f32[19, ", parts, "]) { for i.o in 5 { unrolled for p.i in ",
               parts, " { vectorized for i.i in 4 { block y(i = i.o * 4 + i.i: spatial 19, p = p.i: spatial ",
               parts, ") where i.o * 4 + i.i < 19 { y[i, p] = ", value, " } } } } }"))));
      EXPECT_NE(code.find(text("y[ramp(i.o * ", 4 * parts, ", 1, ", 4 * parts, ")] = shuffle(")),
                std::string::npos)
          << code;
    }
  }
}

// Two columns, a store to what is read, a stride of two between the columns: left as they are.
TEST(Lower, LeavesTilesThatAreNoTransposition) {
  auto tile = [](const std::string& value) {
    return parse(
        text("func f(x: f32[8, 8]) -> (y: f32[4, 4]) { unrolled for j in 4 { vectorized for i in 4 { "
             "block y(a = j: spatial 4, b = i: spatial 4) { y[a, b] = ",
             value, " } } } }"));
  };
  EXPECT_TRUE(has_shuffle(expect_lowers(tile("x[b, a]"))));
  for (const char* value : {"x[b, a] * x[b, a + 1]", "x[b, 2 * a]", "x[a, b]", "x[b, 3 - a]"}) {
    SCOPED_TRACE(value);
    EXPECT_FALSE(has_shuffle(expect_lowers(tile(value))));
  }
}

// What a condition loads may be out of reach where the one around it does not hold.
TEST(Lower, ComputesNoConditionWithoutItsGuard) {
  const Func nested = parse(
      "func f(place: i64[9], table: i64[2]) -> (y: f32[9]) { for i in 9 { y[i] = 0.0 if place[i] < 2 { if 0 "
      "< table[place[i]] "
      "{ y[i] = 1.0 } } } }");
  expect_equivalent(nested, hoist_conditions(nested));
  expect_lowers(nested);
  // Rows of 4 that are filled up beyond the fifth element.
  const Func filled = parse(
      "func f(table: i64[5]) -> (y: f32[5]) { for o in 2 { alloc t: f32[4] local {\n"
      "  for i in 4 { if o * 4 + i < 5 { t[i] = 0.0 } }\n"
      "  for i in 4 { if o * 4 + i < 5 { if 0 < table[o * 4 + i] { t[i] = 1.0 } } }\n"
      "  for i in 4 { if o * 4 + i < 5 { y[o * 4 + i] = t[i] } } } } }");
  expect_equivalent(filled, relax_guards(filled));
  expect_lowers(filled);
}

// A padded copy in vectors, part by part of an open number of columns: each end of the picture, of the copy and of what is needed of it is
// another place at which the loop could be divided.
TEST(Lower, DividesLoopsWithOpenBoundsAFewTimes) {
  const Func f = parse(
      "func copy<n>(x: f32[n, n]) -> (y: f32[n * ((n + 31) // 32), 48]) {\n"
      "  for o in n * ((n + 31) // 32) { for i in 3 { vectorized for l in 16 {\n"
      "    block y(p = o: spatial n * ((n + 31) // 32), q = i * 16 + l: spatial 48) {\n"
      "      y[p, q] = 0.0 } } } }\n"
      "  for o in n * ((n + 31) // 32) { for i in 3 { vectorized for l in 16 {\n"
      "    block z(p = o: spatial n * ((n + 31) // 32), q = i * 16 + l: spatial 48)\n"
      "        where i * 16 + l + o %% ((n + 31) // 32) * 32 < n + 2 && i * 16 + l < 34 {\n"
      "      y[p, q] = select(q + p %% ((n + 31) // 32) * 32 < n, x[p // ((n + 31) // 32), q + p %% ((n + "
      "31) // 32) * 32], 1.0) } } } }\n"
      "}");
  for (int64_t n : {1, 13, 31, 33, 70})
    EXPECT_LT(to_text(expect_lowers(f, {n})).size(), 8000u);
}

// A matrix product with a register tile of mr x nr, as the schedules make it.
std::string tiled_matmul(int m, int n, int k, int mr, int nr, int lanes) {
  auto ceil = [](int a, int b) { return (a + b - 1) / b; };
  std::string rows = text("i.o * ", mr, " + i.i"), columns = text("j.o * ", nr, " + j.i * ", lanes, " + j.v");
  std::string where = text(" where ", rows, " < ", m, " && ", columns, " < ", n);
  std::string tile_begin = text("unrolled for i.i in ", mr, " { unrolled for j.i in ", nr / lanes,
                                " { vectorized for j.v in ", lanes, " { ");
  auto block = [&](const char* name, const char* body, bool reduces) {
    return text(tile_begin, "block ", name, "(i = ", rows, ": spatial ", m, ", j = ", columns, ": spatial ",
                n, reduces ? text(", r = k.o * 8 + k.i: reduce ", k) : "", ")", where,
                reduces ? text(" && k.o * 8 + k.i < ", k) : "", " { ", body, " } } } }\n");
  };
  return text("func matmul(x: f32[", m, ", ", k, "], w: f32[", k, ", ", n, "], bias: f32[", n,
              "]) -> (y: f32[", m, ", ", n, "]) {\n  alloc acc: f32[", m, ", ", n,
              "] registers\n  parallel for i.o in ", ceil(m, mr), " { for j.o in ", ceil(n, nr), " {\n",
              block("init", "acc[i, j] = 0.0", false), "for k.o in ", ceil(k, 8), " { for k.i in 8 {\n",
              block("acc", "acc[i, j] = acc[i, j] + x[i, r] * w[r, j]", true), "} }\n",
              block("y", "y[i, j] = max(acc[i, j] + bias[j], 0.0)", false), "} } }");
}

TEST(Lower, TiledMatmulOfManyShapes) {
  for (int m : {1, 5, 8, 13}) {
    for (int n : {1, 8, 11, 16, 37}) {
      for (int k : {1, 8, 11}) {
        for (auto [mr, nr] : {std::pair{4, 8}, std::pair{6, 16}, std::pair{1, 4}}) {
          SCOPED_TRACE(text(m, "x", n, "x", k, " tile ", mr, "x", nr));
          expect_lowers(parse(tiled_matmul(m, n, k, mr, nr, 4)));
          if (HasFailure()) return;
        }
      }
    }
  }
}

// A loop over registers is unrolled however much there is already: one that is not makes a buffer in memory of them.
TEST(Unroll, KeepsRegistersWhereThereIsMuchCode) {
  constexpr int64_t much = kMaxUnrolledStores - 8;
  const Func f = parse(text("func f(x: f32[", much, "]) -> (y: f32[", much, R"(], z: f32[8]) {
  unrolled for i in )",
                            much, R"( { y[i] = x[i] }
  unrolled for i in 8 { z[i] = x[i] }
  alloc sums: f32[8] registers {
    unrolled for i in 8 { sums[i] = x[i] + x[i] }
    for i in 8 { z[i] = z[i] + sums[i] }
  }
})"));
  const std::string unrolled = to_text(unroll_loops(f));
  EXPECT_NE(unrolled.find("alloc sums: f32[8] registers"), std::string::npos);
  EXPECT_EQ(unrolled.find("z[7] = x[7]"), std::string::npos);  // there is no room
  EXPECT_EQ(unrolled.find("sums[i]"), std::string::npos);
}

TEST(Lower, UnscheduledSoftmaxOfSymbolicShape) {
  FuncBuilder b("softmax");
  Var n = b.dim("n"), m = b.dim("m");
  Buffer x = b.input("x", f32, {n, m});
  Buffer top = b.reduce("top", f32, {n}, {m}, Reducer::max, [&](Axes s, Axes r) {
    return load(x, {s[0], r[0]});
  });
  Buffer e = b.compute("e", f32, {n, m}, [&](Axes i) {
    return call(Intrinsic::exp, {load(x, {i[0], i[1]}) - load(top, {i[0]})});
  });
  Buffer sum = b.reduce("sum", f32, {n}, {m}, Reducer::sum, [&](Axes s, Axes r) {
    return load(e, {s[0], r[0]});
  });
  Buffer y = b.compute("y", f32, {n, m}, [&](Axes i) { return load(e, {i[0], i[1]}) / load(sum, {i[0]}); });
  Func f = b.finish({y});
  for (int64_t size : {1, 3, 10})
    expect_lowers(f, {size, 2 * size + 1});
}

}  // namespace
}  // namespace mcc::tensor
