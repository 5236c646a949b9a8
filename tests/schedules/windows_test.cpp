// Windows over pictures with their channels last: panels of channels inside of the rows' loop, what is made for them in bands.
#include <gtest/gtest.h>

#include "schedules/default_trace.h"
#include "tuner/rules.h"

namespace mcc::test {
namespace {

using tensor::Func;
using tensor::Schedule;
using tensor::Target;

Target avx512_target() {
  Target t;
  t.vector_bits = 512;
  t.vector_registers = 32;
  t.has_fma = true;
  t.cores = 1;
  t.l2.bytes = 16 << 10;  // a few lines of a test's pictures
  return t;
}

std::string windows(const std::string& type, const std::string& before, const std::string& operand,
                    const std::string& pool) {
  return "graph g(%x: " + type + "[1, 1, 19, 10, 64]) {\n  %s: f32[] = [0.5]\n" + before + "  %y = mcc." +
         pool + "(%" + operand +
         ") {kernel = [3, 3], strides = [1, 1], dilations = [1, 1], pads = [1, 1, 1, 1], extent = [19, "
         "10]}\n  return %y\n}\n";
}

std::string missing(const std::string& trace, const std::string& what) {
  return trace.find(what) == std::string::npos ? "no " + what + " in\n" + trace : "";
}

// Expects the trace to have these in it, and its function to be what it came from.
void expect_steps(const std::string& graph, const std::vector<std::string>& steps) {
  const Target target = avx512_target();
  const std::vector<Func> kernels = kernels_of(graph, target);
  ASSERT_EQ(kernels.size(), 1u);
  const Schedule schedule = tuner::default_schedule(kernels[0], target);
  const std::string trace = to_text(schedule.trace());
  for (const std::string& step : steps)
    EXPECT_EQ(missing(trace, step), "");
  Func lowered;
  lower_and_compare(kernels[0], schedule, target, lowered);
}

TEST(Windows, PassOverPanelsInsideOfRowsAndPadBandsOfLines) {
  expect_steps(windows("f32", "", "x", "MaxPool"),
               {R"(reorder(loops=["max_pool.band", "max_pool.line", "max_pool.rows", "max_pool.panel",)",
                R"(compute_at(block="pad", loop="max_pool.band"))", R"(vectorize(loop="pad.i4.lane"))"});
}

TEST(Windows, PadWhatIsComputedWithoutMathematicsInTheSameCopy) {
  expect_steps(windows("u8", "  %d = DequantizeLinear(%x, %s)\n", "d", "AveragePool"),
               {R"(compute_inline(block="dequantize"))", R"(compute_at(block="pad", loop="pool_sum.band"))"});
}

TEST(Windows, ReadMuchOfEachPlaceWhereFewAreReadTwice) {
  const std::string source =
      "graph g(%x: f32[1, 1, 15, 15, 64]) {\n  %y = mcc.MaxPool(%x) {kernel = [3, 3], strides = [2, 2], "
      "dilations = [1, 1], pads = [0, 0, 0, 0], extent = [7, 7]}\n  return %y\n}\n";
  expect_steps(source, {R"(split(loop="max_pool.i4", factors=[0, 4, 16])"});
}

// Plain pictures with strides: vectors along a line, whose greatest elements wait in registers, not in memory.
TEST(Windows, OfPlainPicturesAreSumsInRegisters) {
  expect_steps(
      "graph g(%x: f32[1, 3, 57, 57]) {\n  %p = MaxPool(%x) {kernel_shape = [7, 7], strides = [2, 2]}\n  %y "
      "= Sigmoid(%p)\n  return %y\n}\n",
      {R"(factors=[0, 2, 16], names=["pool.i3.vec", "pool.i3.vecs", "pool.i3.lane"])",
       R"(reverse_compute_at(block="unary", loop="pool.i3.vec"))",
       R"(set_scope(buffer="pool", scope="registers"))"});
}

// Answers one question otherwise.
class Outside : public tuner::PreferredDecider {
 public:
  tuner::Answer answer(const tuner::Choice& choice, const tuner::Answer& preferred) override {
    return choice.name == "max_pool.panels_inside" ? tuner::Answer{0} : preferred;
  }
};

TEST(Windows, MayPassOverPanelsOutside) {
  const Target target = avx512_target();
  const std::vector<Func> kernels = kernels_of(windows("f32", "", "x", "MaxPool"), target);
  Outside decide;
  tuner::Draft draft{Schedule(kernels.at(0)), decide, target};
  tuner::apply_rules(draft);
  ASSERT_TRUE(draft.refusal) << draft.refusal.detail;
  const std::string trace = to_text(draft.schedule.trace());
  EXPECT_EQ(missing(trace, R"("max_pool.panel", "max_pool.i2", "max_pool.rows",)"), "");
  Func lowered;
  lower_and_compare(kernels[0], draft.schedule, target, lowered);
}

// A CPU with vectors of eight numbers, in sixteen registers.
Target avx2_target() {
  Target t = avx512_target();
  t.vector_bits = 256;
  t.vector_registers = 16;
  return t;
}

// Places of a line that several rows of a tile read: kept in registers from step to step only where some are free.
TEST(Windows, KeepWhatRowsShareWhereRegistersAreFree) {
  struct Case {
    int columns, taps, stride;
    bool is_unrolled;
  };
  for (const auto& [columns, taps, stride, is_unrolled] :
       {Case{16, 3, 1, true}, {24, 3, 2, false}, {16, 5, 1, false}, {16, 7, 2, false}, {16, 4, 4, true}}) {
    const std::string trace = default_trace(
        text("graph g(%x: f32[1, 3, 28, 28]) {\n  %w: f32[", columns, ", 3, ", taps, ", ", taps,
             "] random\n  %y = Conv(%x, %w) {strides = [", stride, ", ", stride, "]}\n  return %y\n}\n"),
        "conv", avx2_target());
    EXPECT_EQ(missing(trace, R"(unroll(loop="conv.r2")").empty(), is_unrolled) << taps << " taps\n" << trace;
  }
}

// Copies of pieces of lines: what one of them takes counts, not what a band does.
TEST(Windows, WidenPiecesOfLinesInTheNearestCache) {
  Target target = avx2_target();
  target.features = "+avx2";
  target.l1.bytes = 4 << 10;
  const std::string trace = default_trace(R"(graph g(%x: u8[1, 32, 17, 57]) {
  %s: f32[] = [0.5]
  %z: u8[] = [3]
  %w: i8[32, 1, 3, 3] random
  %ws: f32[32] random 0.01 0.02
  %wz: i8[] = [0]
  %y = QLinearConv(%x, %s, %z, %w, %ws, %wz, %s, %z) {group = 32, strides = [2, 2], pads = [1, 1, 1, 1]}
  return %y
})",
                                          "depthwise", target);
  EXPECT_EQ(missing(trace, R"(compute_at(block="pad", loop="depthwise.outer")"), "");
}

}  // namespace
}  // namespace mcc::test
