// The released formula against figures worked out from its definition for a 1024^3 matmul on an A100-40; the default form
// by what it must prefer.
#include "tuner/analyzer_gpu.h"

#include <gtest/gtest.h>

#include "support/text.h"
#include "tensor/text.h"

namespace mcc::tuner {
namespace {

// n^3 in blocks of bm x bn, each thread tm x tn of them; operands in shared memory, kt steps at a time, if asked for.
Nest matmul(int64_t n, int64_t bm, int64_t bn, int64_t tm, int64_t tn, int64_t kt = 0) {
  int64_t ty = bm / tm, tx = bn / tn;
  std::string a = "a", b = "b", stage, allocs, loop = text("for k in ", n, " {"), k = "k", close = "}";
  if (kt > 0) {
    int64_t per_thread = std::max<int64_t>(1, kt / tx);
    allocs = text("alloc as: f32[", n, ", ", n, "] shared alloc bs: f32[", n, ", ", n, "] shared ");
    a = "as", b = "bs", k = text("ko*", kt, " + ki");
    auto copy = [&](const char* to, const char* from, std::string row, std::string column, int64_t each) {
      return text("for e in ", each, " { block ", to, "(r = ", row, ": spatial ", n, ", c = ", column,
                  ": spatial ", n, ") { ", to, "[r, c] = ", from, "[r, c] } } ");
    };
    loop = text("for ko in ", n / kt, " { ") +
           copy("as", "a", text("by*", bm, " + ty*", tm, " + e // ", per_thread),
                text("ko*", kt, " + tx*", per_thread, " + e %% ", per_thread), tm * per_thread) +
           copy("bs", "b", text("ko*", kt, " + e // ", tn), text("bx*", bn, " + tx*", tn, " + e %% ", tn),
                kt * tn) +
           text("for ki in ", kt, " {");
    close = "}}";
  }
  std::string source =
      text("func f(a: f32[", n, ", ", n, "], b: f32[", n, ", ", n, "]) -> (c: f32[", n, ", ", n, "]) { ",
           allocs, "bound for by in ", n / bm, " @{thread=\"block.y\"} { bound for bx in ", n / bn,
           " @{thread=\"block.x\"} {"
           "bound for ty in ",
           ty, " @{thread=\"thread.y\"} { bound for tx in ", tx, " @{thread=\"thread.x\"} {", loop,
           " for y in ", tm, " { for x in ", tn, " { block mm(i = by*", bm, " + ty*", tm, " + y: spatial ", n,
           ", j = bx*", bn, " + tx*", tn, " + x: spatial ", n, ", r = ", k, ": reduce ", n,
           ") { c[i, j] = c[i, j] + ", a, "[i, r] * ", b, "[r, j] } } }", close, "}}}}}");
  Result<tensor::Func> f = tensor::parse_func(source);
  EXPECT_TRUE(f.ok()) << (f.ok() ? "" : to_text(f.errors()[0])) << source;
  return nest_of(*f);
}

struct Published {
  int64_t bm, bn, tm, tn;
  double blocks, threads, registers, reuse, wave, ms;
};

TEST(Psa, GivesTheFiguresOfTheReleasedFormula) {
  const GpuDevice& device = *tensor::find_gpu("A100-40");
  for (const Published& p : {Published{64, 64, 4, 4, 256, 256, 24, 1.200, 0.790, 0.1674},
                             Published{64, 64, 8, 8, 256, 64, 80, 1.111, 0.790, 0.1550},
                             Published{128, 128, 8, 8, 64, 256, 80, 1.111, 0.593, 0.2067},
                             Published{32, 64, 4, 4, 512, 128, 24, 1.200, 0.948, 0.1395}}) {
    std::vector<GpuStatement> statements = gpu_statements(matmul(1024, p.bm, p.bn, p.tm, p.tn));
    ASSERT_EQ(statements.size(), 1U);
    const GpuStatement& s = statements[0];
    EXPECT_EQ(s.blocks, p.blocks);
    EXPECT_EQ(s.threads, p.threads);
    EXPECT_EQ(s.registers, p.registers);
    PsaFactors factors = psa_factors(s, device);
    EXPECT_NEAR(factors.reuse, p.reuse, 0.0005);
    EXPECT_NEAR(factors.wave, p.wave, 0.0005);
    EXPECT_EQ(factors.warp, 1);
    EXPECT_EQ(factors.registers, 1);
    EXPECT_NEAR(psa_ms(statements, device), p.ms, 0.00005)
        << p.bm << " " << p.bn << " " << p.tm << " " << p.tn;
  }
}

TEST(Psa, CountsWastedLanesAndRegisters) {
  const GpuDevice& device = *tensor::find_gpu("A100-40");
  GpuStatement s{.flops = 1e4, .registers = 256, .touched = 1e3, .threads = 48, .blocks = 432};
  PsaFactors p = psa_factors(s, device);
  EXPECT_DOUBLE_EQ(p.warp, 0.75);
  EXPECT_DOUBLE_EQ(p.registers, 2);
  EXPECT_DOUBLE_EQ(p.wave, 1);
}

TEST(Psa, IsBlindToTraffic) {
  // As released: a stage of shared memory counts once, in elements.
  const GpuDevice& device = *tensor::find_gpu("A100-40");
  Nest nest = matmul(1024, 64, 64, 4, 4, 16);
  std::vector<GpuStatement> statements = gpu_statements(nest);
  ASSERT_EQ(statements.size(), 3U);
  EXPECT_NEAR(psa_ms(statements, device), 0.1674, 0.005);
}

TEST(GpuDevices, AreFoundByNameAndArchitecture) {
  ASSERT_NE(tensor::find_gpu("sm_90"), nullptr);
  EXPECT_EQ(tensor::find_gpu("sm_90")->name, "H200");
  EXPECT_EQ(tensor::find_gpu("sm_80")->gb_per_s, 1555);
  EXPECT_EQ(tensor::find_gpu("sm_12"), nullptr);
}

double us(const Nest& nest) { return estimate_gpu_us(nest, *tensor::find_gpu("A100-40")); }

TEST(GpuEstimate, PrefersSharedMemoryAndRegisterTiles) {
  // One output a thread reads an operand from shared memory for each addition; 8 x 8 reuse them.
  EXPECT_LT(us(matmul(2048, 128, 128, 8, 8, 16)), 0.7 * us(matmul(2048, 16, 16, 1, 1, 16)));
}

TEST(GpuEstimate, IsNotBelowThePeakAndNearItForAGoodTile) {
  double peak_us = 2.0 * 4096 * 4096 * 4096 / (19490 * 1e3);
  double good = us(matmul(4096, 128, 128, 8, 8, 8));
  EXPECT_GT(good, peak_us);
  EXPECT_LT(good, 2 * peak_us);
}

TEST(GpuEstimate, RefusesWhatDoesNotFit) {
  // 64 x 64 values are more registers than there are, so it spills; 4 MB of shared memory are none at all.
  EXPECT_GT(us(matmul(2048, 1024, 1024, 64, 64)), 5 * us(matmul(2048, 128, 128, 8, 8)));
  EXPECT_GE(us(matmul(2048, 128, 128, 8, 8, 1024)), 1e9);
}

TEST(GpuEstimate, GoesByTheAssemblersFigures) {
  const GpuDevice& device = *tensor::find_gpu("A100-40");
  const Nest nest = matmul(4096, 128, 128, 8, 8, 8);
  auto with = [&](double registers, double shared, double spills) {
    LaunchFigures figures{registers, shared, spills};
    return estimate_gpu_us(nest, device, std::span(&figures, 1));
  };
  EXPECT_LE(with(96, 8192, 0), with(255, 8192, 0)) << "more registers, fewer blocks at once";
  EXPECT_NEAR(with(128, 8192, 64), 2 * with(128, 8192, 0), 0.1 * with(128, 8192, 64));
  EXPECT_GE(with(128, 1 << 20, 0), kHopelessUs);
  LaunchFigures two[2];
  EXPECT_EQ(estimate_gpu_us(nest, device, two), us(nest)) << "figures of other launches say nothing";
}

TEST(GpuEstimate, AddsUpLaunches) {
  auto source = [](int launches) {
    std::string text = "func f(a: f32[65536]) -> (b: f32[65536], c: f32[65536]) {";
    for (const char* to : {"b", "c"}) {
      if (launches-- == 0) break;
      text += mcc::text("bound for ", to, "b in 256 @{thread=\"block.x\"} { bound for ", to,
                        "t in 256 @{thread=\"thread.x\"} { block ", to, "(i = ", to, "b*256 + ", to, "t: spatial 65536) { ",
                        to, "[i] = a[i] } } } ");
    }
    return text + "}";
  };
  double times[2];
  for (int launches : {1, 2}) {
    Result<tensor::Func> f = tensor::parse_func(source(launches));
    ASSERT_TRUE(f.ok()) << to_text(f.errors());
    times[launches - 1] = us(nest_of(*f));
  }
  EXPECT_NEAR(times[1], 2 * times[0], 1e-6);
}

TEST(GpuEstimate, FewThreadsDoNotUseAllOfTheMemory) {
  auto copy = [](int64_t blocks, int64_t threads) {
    const int64_t n = 1 << 22, each = n / blocks / threads;
    Result<tensor::Func> f = tensor::parse_func(
        text("func f(a: f32[", n, "]) -> (b: f32[", n, "]) { bound for x in ", blocks, " @{thread=\"block.x\"} { for e in ",
             each, " { bound for t in ", threads, " @{thread=\"thread.x\"} { block b(i = (x*", each, " + e)*", threads,
             " + t: spatial ", n, ") { b[i] = a[i] } } } } }"));
    EXPECT_TRUE(f.ok()) << to_text(f.errors());
    return us(nest_of(*f));
  };
  EXPECT_GT(copy(8, 64), 5 * copy(1024, 256));
}

// The same product in the same tiles, by multiply-adds and by tensor cores.
TEST(GpuEstimate, TensorCoresHaveTheirOwnRate) {
  Nest nest = matmul(4096, 128, 128, 8, 8, 8);
  const double scalar = us(nest);
  for (NestLoop& loop : nest.loops)
    loop.is_matrix = loop.children.size() == 1 && loop.children[0] < 0 && loop.extent == 8;
  const double tf32 = us(nest);
  EXPECT_LT(tf32, 0.5 * scalar);
  for (NestStore& store : nest.stores) {
    for (NestAccess& access : store.accesses)
      access.element_bytes = 2;
  }
  EXPECT_LT(us(nest), tf32);
}

TEST(GpuEstimate, NeedsEnoughBlocksForAllProcessors) {
  double few = us(matmul(512, 256, 256, 16, 16)), many = us(matmul(512, 64, 64, 4, 4));
  EXPECT_LT(many, few);
}

}  // namespace
}  // namespace mcc::tuner
