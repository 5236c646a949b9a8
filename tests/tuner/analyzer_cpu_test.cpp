// The CPU analyser by what it must prefer, each time of two schedules that differ in one thing.
#include "tuner/analyzer_cpu.h"

#include <gtest/gtest.h>

#include "support/text.h"
#include "tensor/text.h"

namespace mcc::tuner {
namespace {

tensor::Func parse(const std::string& source) {
  Result<tensor::Func> f = tensor::parse_func(source);
  EXPECT_TRUE(f.ok()) << (f.ok() ? "" : to_text(f.errors()[0])) << source;
  return *f;
}

tensor::Target target(int cores = 1) {
  tensor::Target t;
  t.cores = cores;
  return t;
}

// m x n x k, w packed in panels of 16 columns: tiles of rows x vectors in registers.
std::string matmul(int64_t m, int64_t n, int64_t k, int64_t rows, int64_t vectors,
                   const char* outer = "serial", const char* lanes = "vectorized") {
  std::string kind = std::string(outer) == "serial" ? "" : std::string(outer) + " ";
  std::string lane = std::string(lanes) == "serial" ? "" : std::string(lanes) + " ";
  int64_t panels = n / 16;
  return text("func f(a: f32[", m, ", ", k, "], w: f32[", panels, ", ", k, ", 16]) -> (c: f32[", m, ", ",
              panels, ", 16]) {", "alloc acc: f32[", m, ", ", panels, ", 16] registers ", kind, "for po in ",
              panels / vectors, " { for io in ", m / rows, " {", "for k in ", k, " { unrolled for ii in ",
              rows, " { unrolled for pi in ", vectors, " { ", lane, "for l in 16 {", "block mm(i = io*", rows,
              " + ii: spatial ", m, ", p = po*", vectors, " + pi: spatial ", panels,
              ", j = l: spatial 16, r = k: reduce ", k,
              ") { acc[i, p, j] = acc[i, p, j] + a[i, r] * w[p, r, j] } } } } }", "unrolled for ii in ", rows,
              " { unrolled for pi in ", vectors, " { ", lane, "for l in 16 {", "block out(i = io*", rows,
              " + ii: spatial ", m, ", p = po*", vectors, " + pi: spatial ", panels,
              ", j = l: spatial 16) { c[i, p, j] = acc[i, p, j] } } } } } } }");
}

CpuEstimate estimate(const std::string& source, int cores = 1) {
  return estimate_cpu(nest_of(parse(source)), target(cores));
}

TEST(CpuEstimate, IsNearThePeakForAGoodTile) {
  double peak_us = 2.0 * 240 * 256 * 256 / (target().peak_gflops() * 1e3);
  double us = estimate(matmul(240, 256, 256, 12, 2)).us;
  EXPECT_GT(us, peak_us);
  EXPECT_LT(us, 1.3 * peak_us);
}

TEST(CpuEstimate, WantsAccumulatorsThatHideTheLatency) {
  // One vector: an addition each fma_latency cycles, of which two ports could do eight.
  EXPECT_GT(estimate(matmul(240, 256, 256, 1, 1)).compute_us,
            2.5 * estimate(matmul(240, 256, 256, 12, 2)).compute_us);
}

TEST(CpuEstimate, CountsSpilledAccumulators) {
  EXPECT_GT(estimate(matmul(240, 256, 256, 24, 4)).compute_us,
            1.5 * estimate(matmul(240, 256, 256, 6, 4)).compute_us);
}

TEST(CpuEstimate, WantsVectors) {
  EXPECT_GT(estimate(matmul(240, 256, 256, 6, 1, "serial", "unrolled")).us,
            4 * estimate(matmul(240, 256, 256, 6, 1)).us);
}

TEST(CpuEstimate, SharesParallelLoopsBetweenCores) {
  double one = estimate(matmul(240, 512, 512, 12, 2)).us;
  double two = estimate(matmul(240, 512, 512, 12, 2, "parallel"), 2).us;
  EXPECT_NEAR(two, one / 2, 0.1 * one);
  // Seven turns for two cores: as long as eight.
  double seven = estimate(matmul(240, 224, 512, 12, 2, "parallel"), 2).compute_us;
  double eight = estimate(matmul(240, 256, 512, 12, 2, "parallel"), 2).compute_us;
  EXPECT_NEAR(seven, eight, 0.01 * eight);
}

TEST(CpuEstimate, CountsTheForkOfATinyLoop) {
  std::string source =
      "func f(x: f32[64]) -> (y: f32[64]) { KIND for i in 64 { block b(v = i: spatial 64) { y[v] = x[v] + "
      "1.0 } } }";
  std::string parallel = source, serial = source;
  parallel.replace(parallel.find("KIND"), 4, "parallel");
  serial.replace(serial.find("KIND"), 4, "");
  EXPECT_GT(estimate(parallel, 2).us, estimate(serial, 2).us);
}

TEST(CpuEstimate, CountsTrafficOfLoopsThatDoNotFit) {
  // c[i] = sum over j of a[j], 8 MB of a for each of 16 i: the memory of a is walked 16 times; with the loops the other
  // way round, once.
  auto source = [](const char* order) {
    std::string block = "block s(v = i: spatial 16, r = j: reduce 2097152) { c[v] = c[v] + a[r] }";
    bool is_bad = std::string(order) == "ij";
    return text("func f(a: f32[2097152]) -> (c: f32[16]) {",
                is_bad ? "for i in 16 { for j in 2097152 {" : "for j in 2097152 { for i in 16 {", block,
                "} } }");
  };
  EXPECT_GT(estimate(source("ij")).l3_us, 10 * estimate(source("ji")).l3_us);
}

TEST(CpuEstimate, FindsDataOfTheLastRunInTheCaches) {
  CpuEstimate small = estimate(
      "func f(x: f32[64, 16]) -> (y: f32[64, 16]) { for i in 64 { vectorized for l in 16 {"
      "block b(r = i: spatial 64, v = l: spatial 16) { y[r, v] = x[r, v] } } } }");
  EXPECT_EQ(small.l2_us + small.l3_us + small.dram_us, 0);
}

TEST(CpuEstimate, DoesNotCountLoopsOfOne) {
  std::string with =
      "func f(x: f32[64, 16]) -> (y: f32[64, 16]) { for i in 64 { for one in 1 { vectorized for l in 16 {"
      "block b(r = i + one: spatial 64, v = l: spatial 16) { y[r, v] = x[r, v] } } } } }";
  std::string without =
      "func f(x: f32[64, 16]) -> (y: f32[64, 16]) { for i in 64 { vectorized for l in 16 {"
      "block b(r = i: spatial 64, v = l: spatial 16) { y[r, v] = x[r, v] } } } }";
  EXPECT_DOUBLE_EQ(estimate(with).us, estimate(without).us);
}

TEST(LowerBound, IsBelowEverySchedule) {
  for (auto [rows, vectors] : {std::pair<int64_t, int64_t>{1, 1}, {6, 4}, {12, 2}, {24, 1}}) {
    tensor::Func f = parse(matmul(240, 256, 256, rows, vectors));
    EXPECT_LT(lower_bound_us(f, target(), 0), estimate_cpu(nest_of(f), target()).us) << rows;
  }
}

TEST(LowerBound, IsArithmeticOrTraffic) {
  tensor::Target t = target();
  double flops = 2.0 * 240 * 256 * 256;
  EXPECT_DOUBLE_EQ(lower_bound_us(parse(matmul(240, 256, 256, 12, 2)), t, 100), flops / 100e3);
  // 64 MB read and written, of which a cache keeps 16.
  tensor::Func copy = parse(
      "func f(x: f32[1048576, 16]) -> (y: f32[1048576, 16]) { for i in 1048576 { for l in 16 {"
      "block b(r = i: spatial 1048576, v = l: spatial 16) { y[r, v] = x[r, v] } } } }");
  double bytes = 2 * 64.0 * (1 << 20);
  EXPECT_DOUBLE_EQ(lower_bound_us(copy, t, 0),
                   (bytes - static_cast<double>(t.l3.bytes)) / (t.dram_gb_per_s * 1e3));
}

TEST(LowerBound, AllowsWinograd) {
  tensor::Func conv = parse(
      "func f(x: f32[18, 18, 64], w: f32[3, 3, 64, 64]) -> (y: f32[16, 16, 64]) {"
      "for i in 16 { for j in 16 { for di in 3 { for dj in 3 { for ci in 64 { for co in 64 {"
      "block conv(h = i: spatial 16, v = j: spatial 16, dh = di: reduce 3, dv = dj: reduce 3, c = ci: reduce "
      "64, o = co: spatial 64)"
      "{ y[h, v, o] = y[h, v, o] + x[h + dh, v + dv, c] * w[dh, dv, c, o] } } } } } } } }");
  EXPECT_DOUBLE_EQ(lower_bound_us(conv, target(), 100), 2.0 * 16 * 16 * 9 * 64 * 64 / 4 / 100e3);
}

}  // namespace
}  // namespace mcc::tuner
