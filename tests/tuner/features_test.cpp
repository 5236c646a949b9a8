// Features whose values follow from the definition of the kernel, of a tiled matmul and a convolution.
#include "tuner/features.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor/text.h"

namespace mcc::tuner {
namespace {

tensor::Func parse(const std::string& source) {
  Result<tensor::Func> f = tensor::parse_func(source);
  EXPECT_TRUE(f.ok()) << (f.ok() ? "" : to_text(f.errors()[0]));
  return *f;
}

float slog(double x) { return static_cast<float>(std::log2(x + 1)); }

constexpr size_t kFirstBuffer = 57;
size_t buffer_at(size_t i) { return kFirstBuffer + kBufferFeatures * i; }

// 32 x 64 x 128 in tiles of 4 x 16: the accumulators in registers.
const char* kMatmul = R"(
func f(a: f32[32, 128], b: f32[128, 64]) -> (c: f32[32, 64]) {
  parallel for io in 8 {
    for jo in 4 {
      for k in 128 {
        unrolled for ii in 4 {
          vectorized for ji in 16 {
            block mm(i = io*4 + ii: spatial 32, j = jo*16 + ji: spatial 64, r = k: reduce 128) {
              c[i, j] = c[i, j] + a[i, r] * b[r, j]
            }
          }
        }
      }
    }
  }
})";

TEST(Features, OfATiledMatmul) {
  Nest nest = nest_of(parse(kMatmul));
  ASSERT_EQ(nest.stores.size(), 1U);
  std::vector<FeatureRow> rows = features_of(nest);
  ASSERT_EQ(rows.size(), 1U);
  const FeatureRow& x = rows[0];
  double n = 32.0 * 64 * 128;
  EXPECT_FLOAT_EQ(x[0], slog(n));  // one fused multiply-add in each iteration,
  for (size_t i = 1; i < 7; ++i)
    EXPECT_EQ(x[i], 0) << i;  // and no other float operation

  EXPECT_FLOAT_EQ(x[16], slog(1));  // one vectorised loop of 16
  EXPECT_FLOAT_EQ(x[17], slog(16));
  EXPECT_FLOAT_EQ(x[18], slog(16));
  EXPECT_EQ(x[19 + 1], 1);          // the innermost spatial one
  EXPECT_FLOAT_EQ(x[28], slog(4));  // unrolled
  EXPECT_EQ(x[30 + 2], 1);          // neither innermost nor outermost
  EXPECT_FLOAT_EQ(x[39], slog(8));  // parallel
  EXPECT_EQ(x[41 + 3], 1);          // outermost
  EXPECT_EQ(x[49], 0);              // no GPU

  // Buffers by the distance of their innermost reuse: c in the next k, b in the next ii, a in the next ji.
  const size_t c = buffer_at(0), b = buffer_at(1), a = buffer_at(2);
  EXPECT_EQ(x[b + 0], 1);
  EXPECT_EQ(x[c + 2], 1);  // read and written
  EXPECT_FLOAT_EQ(x[b + 3], slog(4 * n));
  EXPECT_FLOAT_EQ(x[b + 4], slog(4 * 128 * 64));
  EXPECT_FLOAT_EQ(x[a + 4], slog(4 * 32 * 128));
  EXPECT_FLOAT_EQ(x[c + 4], slog(4 * 32 * 64));
  EXPECT_FLOAT_EQ(x[b + 6], slog(128 * 64 / 16));  // lines
  for (size_t at : {a, b, c})
    EXPECT_EQ(x[at + 7], 1) << at;           // all reused by a loop
  EXPECT_FLOAT_EQ(x[c + 10], slog(4 * 16));  // iterations of a tile until the next k
  EXPECT_FLOAT_EQ(x[c + 12], slog(128));
  EXPECT_FLOAT_EQ(x[a + 12], slog(16));   // along ji: 16 times at once
  EXPECT_FLOAT_EQ(x[b + 12], slog(4));    // along ii
  EXPECT_FLOAT_EQ(x[b + 17], slog(1));    // contiguous along ji
  EXPECT_FLOAT_EQ(x[a + 17], slog(128));  // rows apart along ii
  EXPECT_EQ(x[buffer_at(3)], 0);          // there are three buffers

  double everything = 4 * (32 * 128 + 128 * 64 + 32 * 64);
  EXPECT_FLOAT_EQ(x[156], slog(2 * n / everything));  // flops a byte over all loops
  EXPECT_GT(x[156], x[147]);
  EXPECT_FLOAT_EQ(x[161], slog(n));
  EXPECT_FLOAT_EQ(x[162], slog(5));
  EXPECT_FLOAT_EQ(x[163], slog(4));
}

TEST(Features, OfAConvolutionCountItsWindowOnce) {
  Nest nest = nest_of(parse(R"(
func f(x: f32[10, 10, 16], w: f32[3, 3, 16, 32]) -> (y: f32[8, 8, 32]) {
  for i in 8 { for j in 8 { for di in 3 { for dj in 3 { for ci in 16 { vectorized for co in 32 {
    block conv(h = i: spatial 8, v = j: spatial 8, dh = di: reduce 3, dv = dj: reduce 3, c = ci: reduce 16, o = co: spatial 32) {
      init { y[h, v, o] = 0.0 }
      y[h, v, o] = y[h, v, o] + x[h + dh, v + dv, c] * w[dh, dv, c, o]
    }
  } } } } } }
})"));
  ASSERT_EQ(nest.stores.size(), 2U);
  EXPECT_TRUE(nest.stores[0].is_init);
  EXPECT_EQ(nest.stores[0].iterations, 8 * 8 * 32);
  const NestStore& conv = nest.stores[1];
  EXPECT_EQ(conv.iterations, 8.0 * 8 * 9 * 16 * 32);
  ASSERT_EQ(conv.accesses.size(), 3U);
  const NestAccess& x = conv.accesses[1];
  EXPECT_EQ(x.elements[0], 10 * 10 * 16);  // not 8 * 8 * 9 * 16
  EXPECT_EQ(x.elements[2], 3 * 3 * 16);    // one window
  EXPECT_EQ(x.elements[6], 1);
  EXPECT_EQ(x.strides, (std::vector<int64_t>{160, 16, 160, 16, 1, 0}));
  const NestAccess& w = conv.accesses[2];
  EXPECT_EQ(w.elements[0], 3 * 3 * 16 * 32);
  EXPECT_EQ(w.lines[5], 2);  // 32 floats
  std::vector<FeatureRow> rows = features_of(nest);
  EXPECT_FLOAT_EQ(rows[1][0], slog(8.0 * 8 * 9 * 16 * 32));
  EXPECT_EQ(rows[0][0], 0);  // the init computes nothing
}

TEST(Nest, TakesFusedLoopsApart) {
  // 8 * 4 outer iterations in one loop: b is walked once for each of the 8.
  Nest nest = nest_of(parse(R"(
func f(a: f32[8, 16], b: f32[4, 16]) -> (c: f32[8, 4, 16]) {
  parallel for o in 32 { for x in 16 {
    block add(i = o // 4: spatial 8, j = o %% 4: spatial 4, k = x: spatial 16) { c[i, j, k] = a[i, k] + b[j, k] }
  } }
})"));
  ASSERT_EQ(nest.loops.size(), 3U);
  EXPECT_EQ(nest.loops[0].extent, 8);
  EXPECT_EQ(nest.loops[1].extent, 4);
  EXPECT_FALSE(nest.loops[0].is_inner_part);
  EXPECT_TRUE(nest.loops[1].is_inner_part);
  const NestStore& s = nest.stores[0];
  const NestAccess &a = s.accesses[1], &b = s.accesses[2];
  EXPECT_EQ(a.strides, (std::vector<int64_t>{16, 0, 1}));
  EXPECT_EQ(b.strides, (std::vector<int64_t>{0, 16, 1}));
  EXPECT_EQ(b.elements[0], 64);
  EXPECT_EQ(b.elements[1], 64);
  EXPECT_EQ(b.elements[2], 16);
  // As a loop of the schedule it is one.
  EXPECT_FLOAT_EQ(features_of(nest)[0][38], slog(1));
  EXPECT_FLOAT_EQ(features_of(nest)[0][40], slog(32));
}

TEST(Nest, KnowsWhatAPredicateCutsOff) {
  Nest nest = nest_of(parse(R"(
func f(a: f32[30]) -> (c: f32[30]) {
  for o in 5 { for i in 8 {
    block copy(x = o*8 + i: spatial 30) where o*8 + i < 30 { c[x] = a[x] + 1.0 }
  } }
})"));
  EXPECT_DOUBLE_EQ(nest.stores[0].share, 0.75);
  EXPECT_EQ(nest.stores[0].accesses[1].elements[0], 30);
}

TEST(Nest, DataMovesFar) {
  Nest nest = nest_of(parse(R"(
func f(a: f32[100, 8], i: i64[10]) -> (c: f32[10, 8]) {
  for x in 10 { for y in 8 { block g(r = x: spatial 10, k = y: spatial 8) { c[r, k] = a[i[r], k] } } }
})"));
  const NestStore& s = nest.stores[0];
  ASSERT_EQ(s.accesses.size(), 3U);
  EXPECT_EQ(s.accesses[1].elements[0], 80);  // ten rows at most
  EXPECT_TRUE(s.accesses[1].moves[0]);
}

// A log's text may say anything. What an index and its products reach only grows with more loops running.
TEST(Nest, AbsurdExtentsStayLarge) {
  Nest nest = nest_of(parse(R"(
func f(a: f32[9000000000000000000]) -> (c: f32[9000000000000000000]) {
  for o in 9000000000000000000 { for i in 9000000000000000000 { for k in 4611686018427387904 {
    block copy(x = o*4611686018427387904 + i*4611686018427387904 + k: spatial 9000000000000000000, y = (o - i*3)*(k - o): spatial 9) {
      c[x] = a[x*x + y] + 1.0
    }
  } } }
})"));
  for (const NestAccess& access : nest.stores.at(0).accesses) {
    for (size_t d = 0; d < access.elements.size(); ++d) {
      EXPECT_GE(access.elements[d], 1) << d;
      EXPECT_GE(access.lines[d], 1) << d;
      EXPECT_GE(access.elements[d > 0 ? d - 1 : 0], access.elements[d]) << d;
    }
  }
  EXPECT_GT(nest.stores[0].accesses[0].elements[0], 1e18);
}

}  // namespace
}  // namespace mcc::tuner
