// Launches: what threads share, exchange, and do beside each other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tensor/interpreted.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 4 threads reverse each row of 4; `between` stands between writing and reading.
std::string reverse_rows(const std::string& between) {
  return text(R"(func f(x: f32[2, 4]) -> (y: f32[2, 4]) {
  bound for b in 2 @{thread="block.x"} {
    alloc s: f32[4] shared {
      bound for t in 4 @{thread="thread.x"} {
        s[t] = x[b, t]
        )",
              between, R"(
        y[b, t] = s[3 - t]
      }
    }
  }
})");
}

TEST(InterpretLaunch, ThreadsShareMemoryBetweenBarriers) {
  Outcome out = run(parse(reverse_rows("evaluate barrier()")), {{1, 2, 3, 4, 5, 6, 7, 8}});
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAre(4, 3, 2, 1, 8, 7, 6, 5));
}

TEST(InterpretLaunch, ReportsRacesOfThreads) {
  EXPECT_THAT(run(parse(reverse_rows("")), {{1, 2, 3, 4, 5, 6, 7, 8}}).error,
              HasSubstr("s[3] is read but was never written"));
  Outcome out = run(parse(R"(func f(x: f32[4]) -> (y: f32[4]) {
  bound for t in 4 @{thread="thread.y"} {
    for i in 2 { y[(t + i) %% 4] = x[t] }
  }
})"),
                    {{1, 2, 3, 4}});
  EXPECT_THAT(out.error, HasSubstr("y[1] is written, and read or written by thread 0 with no barrier in between, by thread 1"));
}

TEST(InterpretLaunch, ReportsRacesOfBlocks) {
  Outcome out = run(parse(R"(func f(x: f32[4]) -> (y: f32[4]) {
  bound for b in 4 @{thread="block.x"} { bound for t in 1 @{thread="thread.x"} {
    y[b // 2] = x[b]
  } }
})"),
                    {{1, 2, 3, 4}});
  EXPECT_THAT(out.error, HasSubstr("y[0] is written, and read or written by another block of the launch"));
}

TEST(InterpretLaunch, ReportsDivergentBarriers) {
  Outcome out = run(parse(reverse_rows("if t < 2 { evaluate barrier() }")), {{1, 2, 3, 4, 5, 6, 7, 8}});
  EXPECT_THAT(out.error, HasSubstr("a barrier in divergent control flow: thread 0 comes to it and thread 2 does not"));
  out = run(parse(reverse_rows("for k in t + 1 { evaluate barrier() }")), {{1, 2, 3, 4, 5, 6, 7, 8}});
  EXPECT_THAT(out.error, HasSubstr("a barrier in divergent control flow"));
}

TEST(InterpretLaunch, ThreadsExchangeValues) {
  Outcome out = run(parse(R"(func f(x: f32[32]) -> (y: f32[32], z: f32[32], w: f32[32]) {
  bound for t in 32 @{thread="thread.x"} {
    alloc s: f32[1] local {
      s[0] = x[t]
      for k in 5 { s[0] = s[0] + select(k == 0, shuffle_xor(s[0], 1), select(k == 1, shuffle_xor(s[0], 2),
          select(k == 2, shuffle_xor(s[0], 4), select(k == 3, shuffle_xor(s[0], 8), shuffle_xor(s[0], 16))))) }
      y[t] = s[0]
      z[t] = shuffle_down(x[t], 3)
      let v = shuffle_xor(x[t], 1) { w[t] = v * 2.0 }
    }
  }
})"),
                    {Tensor{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
                            17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32}});
  EXPECT_EQ(out.error, "");
  EXPECT_EQ(out.outputs[0], Tensor(32, 528));
  EXPECT_EQ(out.outputs[1][0], 4);
  EXPECT_EQ(out.outputs[1][28], 32);
  EXPECT_EQ(out.outputs[1][29], 30);
  EXPECT_EQ(out.outputs[2][4], 12);
}

TEST(InterpretLaunch, ThreadsTakeValuesOfThoseThatTheyName) {
  const char* source = R"(func f(x: f16[32]) -> (y: f32[32]) {
  bound for t in 32 @{thread="thread.x"} { y[t] = f32(shuffle_from(x[t], t // 4 * 4 + %)) }
})";
  auto outcome = [&](const std::string& place) {
    std::string text = source;
    Tensor x;
    for (int n = 0; n < 32; ++n)
      x.push_back(n);
    return run(parse(text.replace(text.find('%'), 1, place)), {x});
  };
  Outcome out = outcome("(t %% 4) * (t %% 4) %% 4");
  EXPECT_EQ(out.error, "");
  EXPECT_EQ(out.first()[4], 4);
  EXPECT_EQ(out.first()[6], 4);
  EXPECT_EQ(out.first()[7], 5);
  EXPECT_EQ(out.first()[31], 29);
  EXPECT_THAT(outcome("4").error, HasSubstr("shuffle_from by thread 28: there is no thread 32"));
}

TEST(InterpretLaunch, ReportsExchangesThatSomeMiss) {
  Outcome out = run(parse(R"(func f(x: f32[32]) -> (y: f32[32]) {
  bound for t in 32 @{thread="thread.x"} { if t < 30 { y[t] = shuffle_xor(x[t], 1) } }
})"),
                    {Tensor(32, 1)});
  EXPECT_THAT(out.error, HasSubstr("shuffle_xor by thread 0: thread 30 of the same warp does not take part"));
}

// A of 16 x 16 times B of 16 x 8, as fragments by their definition: each thread fetches its own part.
std::string matrix_product(const std::string& a_row, const std::string& b_row, const std::string& condition) {
  return text(R"(func f(x: f16[256], w: f16[128]) -> (y: f32[128]) {
  alloc a: f16[256] shared { alloc b: f16[128] shared {
    bound for g in 8 @{thread="thread.y"} { bound for t in 4 @{thread="thread.x"} {
      for k in 8 { a[k * 32 + g * 4 + t] = x[k * 32 + g * 4 + t] }
      for k in 4 { b[k * 32 + g * 4 + t] = w[k * 32 + g * 4 + t] }
      evaluate barrier()
      if )", condition, R"( {
      let fa = load_matrices(a[ramp()", a_row, R"(, 1, 8)], 4)
      let fb = load_matrices_transposed(b[ramp()", b_row, R"(, 1, 8)], 2)
      let c = mma_f16(fa, fb, broadcast(1.0, 4)) {
        y[g * 8 + t * 2] = shuffle(c; 0)
        y[g * 8 + t * 2 + 1] = shuffle(c; 1)
        y[g * 8 + t * 2 + 64] = shuffle(c; 2)
        y[g * 8 + t * 2 + 65] = shuffle(c; 3)
      }
      }
    } }
  } }
})");
}

TEST(InterpretLaunch, WarpsMultiplyMatrices) {
  Tensor x, w, want;
  for (int n = 0; n < 256; ++n)
    x.push_back(n % 7 - 3);
  for (int n = 0; n < 128; ++n)
    w.push_back(n % 5 - 2);
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      double sum = 1;
      for (size_t k = 0; k < 16; ++k)
        sum += x[i * 16 + k] * w[k * 8 + j];
      want.push_back(sum);
    }
  }
  // Thread 8 m + r has row r of matrix m: of A rows 0 and 8, then the other half of k; of B the halves of k.
  const std::string a = "(g %% 2 * 4 + t + g // 2 %% 2 * 8) * 16 + g // 4 * 8", b = "(g %% 2 * 4 + t + g // 2 %% 2 * 8) * 8";
  Outcome out = run(parse(matrix_product(a, b, "g < 8")), {x, w});
  EXPECT_EQ(out.error, "");
  EXPECT_EQ(out.first(), want);
  // The second and the third matrix exchanged.
  out = run(parse(matrix_product("(g %% 2 * 4 + t + g // 4 * 8) * 16 + g // 2 %% 2 * 8", b, "g < 8")), {x, w});
  EXPECT_NE(out.first(), want);
  out = run(parse(matrix_product(a, b, "g < 7")), {x, w});
  EXPECT_THAT(out.error, HasSubstr("load_matrices by thread (0, 0): thread (7, 0) of the same warp does not take part"));
}

// Each thread copies an element, the statements, and takes its neighbour's.
std::string copied(const std::string& between) {
  return text(R"(func f(x: f32[4]) -> (y: f32[4]) {
  alloc s: f32[4] shared {
    bound for t in 4 @{thread="thread.x"} {
      evaluate async_copy(s[t], x[t])
      )", between, R"(
      y[t] = s[3 - t]
    }
  }
})");
}

TEST(InterpretLaunch, CopiesBesideTheThreadsAreThereAfterWaitAndBarrier) {
  auto outcome = [](const std::string& between) { return run(parse(copied(between)), {{1, 2, 3, 4}}); };
  Outcome out = outcome("evaluate async_commit() evaluate async_wait(0) evaluate barrier()");
  EXPECT_EQ(out.error, "");
  EXPECT_THAT(out.first(), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(outcome("evaluate async_commit() evaluate async_wait(1) evaluate barrier()").error,
              HasSubstr("s[3] is read but was never written"));
  EXPECT_THAT(outcome("evaluate async_wait(0) evaluate barrier()").error, HasSubstr("s[3] is read but was never written"));
  EXPECT_THAT(outcome("evaluate async_commit() evaluate barrier() evaluate async_wait(0)").error,
              HasSubstr("s[3] is read, and written by thread 3 with no barrier in between, by thread 0"));
  EXPECT_THAT(outcome("evaluate async_commit() evaluate async_wait(0)").error,
              HasSubstr("is read"));
}

// A of 64 x 16 times B of 16 x 8 by a warpgroup, both in squares of 8 x 8 elements: of A first those along k, then of the next rows;
// rows of B stand along its columns.
std::string warpgroup_product(const std::string& before, const std::string& product, const std::string& behind) {
  return text(R"(func f(x: f16[1024], w: f16[128]) -> (y: f32[512]) {
  alloc a: f16[1024] shared { alloc b: f16[128] shared {
    bound for z in 4 @{thread="thread.z"} { bound for g in 8 @{thread="thread.y"} { bound for t in 4 @{thread="thread.x"} {
      alloc c: f32[4] registers {
        for k in 8 {
          let at = z * 256 + g * 32 + t * 8 + k
          a[at // 16 // 8 * 128 + at %% 16 // 8 * 64 + at // 16 %% 8 * 8 + at %% 8] = x[at]
        }
        b[z * 32 + g * 4 + t] = w[z * 32 + g * 4 + t]
        c[0] = 1.0
        c[1] = 1.0
        c[2] = 1.0
        c[3] = 1.0
        )", before, R"(
        evaluate barrier()
        )", product, R"(
        )", behind, R"(
        y[z * 128 + g * 8 + t * 2] = c[0]
        y[z * 128 + g * 8 + t * 2 + 1] = c[1]
        y[z * 128 + g * 8 + t * 2 + 64] = c[2]
        y[z * 128 + g * 8 + t * 2 + 65] = c[3]
      }
    } } }
  } }
})");
}

TEST(InterpretLaunch, WarpgroupsMultiplyBesideTheThreads) {
  Tensor x, w, want;
  for (int n = 0; n < 1024; ++n)
    x.push_back(n % 7 - 3);
  for (int n = 0; n < 128; ++n)
    w.push_back(n % 5 - 2);
  for (size_t i = 0; i < 64; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      double sum = 1;
      for (size_t k = 0; k < 16; ++k)
        sum += x[i * 16 + k] * w[k * 8 + j];
      want.push_back(sum);
    }
  }
  const std::string sums = "c[ramp(0, 1, 4)]", fence = "evaluate fence_async() ",
                    first = text("evaluate wgmma_fence(", sums, ") "),
                    multiply = text("evaluate wgmma_f16(", sums,
                                    ", a[0], 128, 64, 0, 0, b[0], 0, 64, 1, 0) evaluate wgmma_commit() "),
                    wait = text("evaluate wgmma_wait(", sums, ", 0) ");
  auto outcome = [&](const std::string& before, const std::string& product, const std::string& behind) {
    return run(parse(warpgroup_product(before, product, behind)), {x, w});
  };
  Outcome out = outcome(fence, first + multiply, wait);
  EXPECT_EQ(out.error, "");
  EXPECT_EQ(out.first(), want);
  // The sums are read too early, or changed; or the group is not the last but one.
  EXPECT_THAT(outcome(fence, first + multiply, "").error, HasSubstr("c[0] is read but was never written"));
  EXPECT_THAT(outcome(fence, first + multiply, text("evaluate wgmma_wait(", sums, ", 1)")).error,
              HasSubstr("c[0] is read but was never written"));
  EXPECT_THAT(outcome(fence, first + multiply, "c[1] = 0.0 " + wait).error,
              HasSubstr("c[1] is written while a product adds to it"));
  // An operand changes while it is read, before and behind a barrier.
  EXPECT_THAT(outcome(fence, first + multiply, "a[z * 256 + g * 32 + t * 8] = 0.0:f16 " + wait).error,
              HasSubstr("is written, and read or written by thread"));
  EXPECT_THAT(outcome(fence, first + multiply, "evaluate barrier() a[z * 256 + g * 32 + t * 8] = 0.0:f16 " + wait).error,
              HasSubstr("a[0] is written while a product reads it"));
  // Fences of both kinds.
  EXPECT_THAT(outcome("", first + multiply, wait).error, HasSubstr("has not said fence_async() since it wrote it"));
  EXPECT_THAT(outcome(fence, multiply, wait).error, HasSubstr("a product without wgmma_fence since the last wait"));
  // Some are elsewhere.
  EXPECT_THAT(outcome(fence, text(first, "if z < 3 { ", multiply, " }"), wait).error,
              HasSubstr("without all of its warpgroup of 128 threads"));
}

// A box of a matrix of 16 rows, of which the last rows are outside, in units that are exchanged by the row.
std::string bulk_copy(const std::string& fence, const std::string& bytes, const std::string& wait) {
  return text(R"(func f(x: f16[1024]) -> (y: f16[512]) {
    bound for b in 1 @{thread="block.x"} { alloc a: f16[512] shared align 1024 { alloc full: i64[1] shared {
      bound for t in 32 @{thread="thread.x"} {
        if t == 0 { evaluate bulk_init(full[0]) } )",
              fence, R"( if t == 0 {
          evaluate bulk_expect(full[0], )",
              bytes, R"()
          evaluate bulk_copy(full[0], a[0], 128, x[0], 64, 8, 64, 0, 12)
        } )",
              wait, R"( for k in 16 { y[k * 32 + t] = a[k * 32 + t] }
      } } } } })");
}

TEST(InterpretLaunch, CopiesBoxesBesideTheThreads) {
  Tensor x, want(512);
  for (int n = 0; n < 1024; ++n)
    x.push_back(n % 61 - 30);
  for (size_t n = 0; n < 512; ++n) {
    const size_t source = 12 * 64 + n;
    want[n ^ n / 64 % 8 * 8] = source < x.size() ? x[source] : 0;
  }
  const std::string fence = "evaluate fence_async() evaluate barrier()",
                    wait = "evaluate bulk_wait(full[0], 0)";
  auto outcome = [&](const std::string& before, const std::string& bytes, const std::string& behind) {
    return run(parse(bulk_copy(before, bytes, behind)), {x});
  };
  Outcome out = outcome(fence, "1024", wait);
  EXPECT_EQ(out.error, "");
  EXPECT_EQ(out.first(), want);
  EXPECT_THAT(outcome(fence, "1024", "").error, HasSubstr("a[0] is read but was never written"));
  EXPECT_THAT(outcome(fence, "2048", wait).error,
              HasSubstr("of 2048 bytes that were expected, 1024 are copied"));
  EXPECT_THAT(outcome(fence, "1024", "evaluate bulk_wait(full[0], 1)").error,
              HasSubstr("a wait for a phase that comes later"));
  EXPECT_THAT(outcome("evaluate barrier()", "1024", wait).error,
              HasSubstr("has not said fence_async() since bulk_init"));
  EXPECT_THAT(outcome("evaluate fence_async()", "1024", wait).error, HasSubstr("with no barrier in between"));
}

}  // namespace
}  // namespace mcc::tensor
