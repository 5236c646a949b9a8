// What the stand-in driver's machine (tests/fake_cuda/ptx.h) refuses of kernels whose results may be right by chance, and what it
// computes where a GPU is not exact.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "fake_cuda/ptx.h"

namespace mcc::test {
namespace {

using ::testing::HasSubstr;

// Floats that kernels read and write; the first are 0, 1, 2, ...
class Machine : public testing::Test {
 protected:
  static constexpr size_t kCount = 4096;
  alignas(64) float memory[kCount];

  void SetUp() override {
    for (size_t i = 0; i < kCount; ++i)
      memory[i] = static_cast<float>(i);
  }

  // The instructions of a kernel; %rd0: the memory, %rd1: where this thread's float lies, %r0: its number in the block.
  std::string run(const std::string& body, unsigned threads = 64, unsigned blocks = 1) {
    const std::string source =
        ".version 7.0\n.target sm_80\n.visible .entry f(\n.param .u64 f_0\n)\n{\n.reg .pred %p<4>;\n.reg "
        ".b32 %r<32>;\n.reg .f32 %f<32>;\n"
        ".reg .b64 %rd<8>;\n.shared .align 16 .b8 s[1024];\nld.param.u64 %rd0, [f_0];\nmov.u32 %r0, %tid.x;\n"
        "mul.wide.u32 %rd2, %r0, 4;\nadd.s64 %rd1, %rd0, %rd2;\nmov.u64 %rd3, s;\nadd.s64 %rd3, %rd3, "
        "%rd2;\n" +
        body + "ret;\n}\n";
    std::string problem;
    std::shared_ptr<const PtxModule> module = parse_ptx(source, &problem);
    if (!module) return problem;
    const auto begin = reinterpret_cast<uint64_t>(memory);
    return run_ptx(*module, "f", {{blocks, 1, 1}, {threads, 1, 1}}, {begin},
                   [&](uint64_t address, size_t bytes) {
                     return address >= begin && address + bytes <= begin + sizeof memory;
                   });
  }
  // What thread 0 makes of a float.
  float of(const std::string& instruction, float x) {
    memory[0] = x;
    EXPECT_EQ(
        run("ld.global.f32 %f0, [%rd1];\n" + instruction + " %f1, %f0;\nst.global.f32 [%rd1+4], %f1;\n", 1),
        "");
    return memory[1];
  }
};

// Each thread shows its float to its neighbour on the left.
TEST_F(Machine, WantsBarriersBetweenThreads) {
  const std::string write = "ld.global.f32 %f0, [%rd1];\nst.shared.f32 [%rd3], %f0;\n",
                    read = "ld.shared.f32 %f1, [%rd3+4];\nst.global.f32 [%rd1+4096], %f1;\n";
  EXPECT_EQ(run("setp.eq.s32 %p0, %r0, 63;\n" + write + "bar.sync 0;\n@%p0 ret;\n" + read), "");
  EXPECT_EQ(memory[1024], 1);
  EXPECT_THAT(run("setp.eq.s32 %p0, %r0, 0;\n" + write + "@%p0 ret;\nld.shared.f32 %f1, [%rd3+-4];\n"),
              HasSubstr("a race: thread 1 reads what thread 0 has written since the last barrier, in shared "
                        "memory, at byte 0"));
  // The next round of writes, too, waits for those who read.
  EXPECT_THAT(run("setp.eq.s32 %p0, %r0, 0;\n" + write +
                  "bar.sync 0;\n@!%p0 bra $write;\nld.shared.f32 %f1, [%rd3+4];\nret;\n$write:\n" + write),
              HasSubstr("a race: thread 1 writes what thread 0 has read"));
  EXPECT_THAT(run("st.global.f32 [%rd0], 0f00000000;\n"),
              HasSubstr("a race: thread 1 writes what thread 0 has written"));
}

TEST_F(Machine, WantsBlocksToKeepApart) {
  EXPECT_THAT(run("st.global.f32 [%rd1], 0f00000000;\n", 64, 2),
              HasSubstr("thread 0 writes what another block of the same launch has written"));
  const std::string of_block = "mov.u32 %r1, %ctaid.x;\nsetp.ne.s32 %p0, %r1, 0;\n";
  EXPECT_THAT(run(of_block + "@%p0 bra $read;\nst.global.f32 [%rd1], "
                             "0f00000000;\nret;\n$read:\nld.global.f32 %f0, [%rd1];\n",
                  64, 2),
              HasSubstr("thread 0 reads what another block of the same launch has written"));
  EXPECT_THAT(run(of_block + "@!%p0 bra $read;\nst.global.f32 [%rd1], "
                             "0f00000000;\nret;\n$read:\nld.global.f32 %f0, [%rd1];\n",
                  64, 2),
              HasSubstr("thread 0 writes what another block of the same launch has read"));
}

TEST_F(Machine, KeepsTheReadOnlyCacheForWhatStays) {
  EXPECT_EQ(run("ld.global.f32 %f0, [%rd1];\nst.global.f32 [%rd1], %f0;\n"), "");
  EXPECT_THAT(run("ld.global.nc.f32 %f0, [%rd1];\nst.global.f32 [%rd1], %f0;\n"),
              HasSubstr("thread 0 writes what the same launch has read by way of the read-only cache"));
  EXPECT_THAT(run("st.global.f32 [%rd1], 0f00000000;\nld.global.nc.f32 %f0, [%rd1];\n"),
              HasSubstr("(ld.global.nc) what the same launch has written"));
}

TEST_F(Machine, WaitsForCopies) {
  const std::string copy = "cp.async.ca.shared.global [%rd3], [%rd1], 4;\ncp.async.commit_group;\n",
                    use = "ld.shared.f32 %f0, [%rd3];\nst.global.f32 [%rd1+4096], %f0;\n";
  EXPECT_EQ(run(copy + "cp.async.wait_group 0;\n" + use), "");
  EXPECT_EQ(memory[1030], 6);
  EXPECT_THAT(run(copy + use), HasSubstr("thread 0 reads what a copy brings that nobody has waited for"));
  EXPECT_THAT(run(copy + "st.shared.f32 [%rd3], 0f00000000;\n"),
              HasSubstr("thread 0 writes where a copy goes that nobody has waited for"));
}

TEST_F(Machine, ExchangesWithWholeWarps) {
  const std::string exchange =
      "ld.global.f32 %f0, [%rd1];\nshfl.sync.bfly.b32 %f1, %f0, 1, 31, -1;\nst.global.f32 [%rd1+4096], "
      "%f1;\n";
  EXPECT_EQ(run(exchange), "");
  EXPECT_EQ(memory[1024], 1);
  EXPECT_THAT(run("setp.eq.s32 %p0, %r0, 40;\n@%p0 ret;\n" + exchange),
              HasSubstr("an exchange of a warp of which thread 40 has ended"));
}

TEST_F(Machine, HasNoNumbersWhereNobodyHasWritten) {
  EXPECT_EQ(run("ld.shared.f32 %f0, [%rd3];\nst.global.f32 [%rd1], %f0;\nst.global.f32 [%rd1+4096], %f9;\n"),
            "");
  EXPECT_TRUE(std::isnan(memory[0]));
  EXPECT_TRUE(std::isnan(memory[1024]));
}

// Within the bounds, but not at the nearest number; tables of special values hold.
TEST_F(Machine, ApproximatesNoBetterThanDocumented) {
  struct Case {
    const char* instruction;
    double (*exact)(double);
    double relative;
  };
  const Case cases[] = {{"ex2.approx.ftz.f32", [](double x) { return std::exp2(x); }, 0x1p-22},
                        {"rcp.approx.ftz.f32", [](double x) { return 1 / x; }, 0x1p-23},
                        {"rsqrt.approx.f32", [](double x) { return 1 / std::sqrt(x); }, std::exp2(-22.9)},
                        {"sqrt.approx.f32", [](double x) { return std::sqrt(x); }, 0x1p-23},
                        {"tanh.approx.f32", [](double x) { return std::tanh(x); }, 0x1p-11}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.instruction);
    double low = 0, high = 0;
    for (int i = 1; i < 100; ++i) {
      const float x = 0.013F * static_cast<float>(i);
      const double off = of(c.instruction, x) / c.exact(x) - 1;
      low = std::min(low, off);
      high = std::max(high, off);
    }
    EXPECT_LT(low, -c.relative / 2);
    EXPECT_GT(high, c.relative / 2);
    EXPECT_GE(low, -c.relative);
    EXPECT_LE(high, c.relative);
  }
  EXPECT_EQ(of("ex2.approx.ftz.f32", 0), 1);
  EXPECT_EQ(of("ex2.approx.ftz.f32", -130), 0);
  EXPECT_EQ(of("rcp.approx.ftz.f32", 1e-40F), INFINITY);
  EXPECT_EQ(of("rcp.approx.ftz.f32", INFINITY), 0);
}

// 1 and 16 products of 2^-25 each are 1, and just below 1 for both signs: what is small goes, whatever it adds up to.
TEST_F(Machine, CutsOffSumsOfTensorCores) {
  auto sum = [&](const char* a, const char* b, const char* c) {
    const std::string body = std::string("mov.b32 %r1, ") + a + ";\nmov.b32 %r2, " + b + ";\nmov.f32 %f4, " +
                             c + ";\n" +
                             "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r1, "
                             "%r1, %r1, %r1}, {%r2, %r2}, {%f4, %f4, %f4, %f4};\n"
                             "st.global.f32 [%rd1], %f0;\n";
    EXPECT_EQ(run(body, 32), "");
    return memory[0];
  };
  const char *to_minus_12 = "201329664", *to_minus_13 = "134219776",
             *one = "0f3F800000";  // 0x0C000C00, 0x08000800
  EXPECT_EQ(sum(to_minus_12, to_minus_12, one), 1 + 0x1p-20F);
  EXPECT_EQ(sum(to_minus_12, to_minus_13, one), 1);
  EXPECT_EQ(sum(to_minus_12, to_minus_13, "0f00000000"), 0x1p-21F);
}

}  // namespace
}  // namespace mcc::test
