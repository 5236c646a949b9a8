// Products of bytes under the rules: results, and the instruction wherever the target has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules/optimized_kernels.h"
#include "schedules/word_products.h"
#include "tuner/default_schedule.h"
#include "tuner/sketches.h"
#include "tuner/space.h"

namespace mcc::test {
namespace {

using tensor::Func;
using tensor::Target;

constexpr const char* kProducts[] = {
    R"(graph g(%a: u8[13, 24]) {
  %b: i8[24, 96] random
  %y = MatMulInteger(%a, %b)
  return %y
})",
    // A depth that four does not divide; one row; columns that are no whole vectors.
    R"(graph g(%a: u8[7, 30]) {
  %b: i8[30, 50] random
  %z: u8[1] = [1]
  %y = MatMulInteger(%a, %b, %z)
  return %y
})",
    R"(graph g(%a: i8[1, 64]) {
  %b: i8[64, 128] random
  %y = MatMulInteger(%a, %b)
  return %y
})",
    R"(graph g(%a: u8[2, 5, 16]) {
  %b: i8[16, 32] random
  %as: f32[1] = [0.5]
  %az: u8[1] = [1]
  %bs: f32[32] random 0.5 2
  %bias: f32[32] random
  %ys: f32[1] = [0.25]
  %yz: u8[1] = [7]
  %ad = DequantizeLinear(%a, %as, %az)
  %bd = DequantizeLinear(%b, %bs)
  %m = MatMul(%ad, %bd)
  %s = Add(%m, %bias)
  %r = Relu(%s)
  %y = QuantizeLinear(%r, %ys, %yz)
  return %y
})",
    R"(graph g(%x: u8[1, 6, 9, 7]) {
  %z: u8[1] = [2]
  %w: i8[48, 6, 3, 3] random
  %y = ConvInteger(%x, %w, %z) {pads = [1, 1, 1, 1], strides = [2, 1]}
  return %y
})",
    R"(graph g(%x: u8[2, 16, 21]) {
  %w: i8[32, 16, 3] random
  %y = ConvInteger(%x, %w) {dilations = [2]}
  return %y
})",
    // Few rows, of which a GPU's threads share out the sums: as many as a panel has columns, columns that are no whole panels.
    R"(graph g(%a: i8[4, 320]) {
  %b: i8[320, 24] random
  %y = MatMulInteger(%a, %b)
  return %y
})",
    R"(graph g(%a: u8[1, 1088]) {
  %s: f32[1] = [0.5]
  %z: u8[1] = [3]
  %b: i8[1088, 50] random
  %bs: f32[50] random 0.01 0.02
  %bz: i8[1] = [0]
  %y = QLinearMatMul(%a, %s, %z, %b, %bs, %bz, %s, %z)
  return %y
})",
    R"(graph g(%x: u8[2, 192, 1, 1]) {
  %w: i8[16, 192, 1, 1] random
  %y = ConvInteger(%x, %w)
  return %y
})",
    // Zero points of activations that are not known when the model is compiled: without padding, with it, and of weights too.
    R"(graph g(%x: u8[2, 16, 8, 9], %z: u8[1]) {
  %w: i8[32, 16, 4, 3] random
  %y = ConvInteger(%x, %w, %z) {strides = [4, 3]}
  return %y
})",
    R"(graph g(%x: i8[2, 8, 9, 7], %z: i8[]) {
  %w: i8[32, 8, 3, 3] random
  %wz: i8[32] random
  %y = ConvInteger(%x, %w, %z, %wz) {pads = [1, 1, 0, 2]}
  return %y
})",
    // Zero points of weights, which take the sums of rows and of windows.
    R"(graph g(%x: i8[1, 8, 9, 7]) {
  %z: i8[1] = [2]
  %w: u8[32, 8, 3, 3] random
  %wz: u8[1] = [117]
  %y = ConvInteger(%x, %w, %z, %wz) {pads = [1, 1, 1, 1], strides = [2, 1]}
  return %y
})",
    R"(graph g(%a: u8[13, 44]) {
  %s: f32[1] = [0.5]
  %z: u8[1] = [3]
  %b: u8[44, 64] random
  %bs: f32[64] random 0.01 0.02
  %bz: u8[1] = [100]
  %y = QLinearMatMul(%a, %s, %z, %b, %bs, %bz, %s, %z)
  return %y
})",
};

// Convolutions of CPUs in groups: of a vector of columns each, of three, and such as are merged.
constexpr const char* kInGroups[] = {
    R"(graph g(%x: u8[1, 32, 5, 9]) {
  %z: u8[] = [2]
  %w: i8[32, 16, 3, 3] random
  %y = ConvInteger(%x, %w, %z) {group = 2, pads = [1, 1, 1, 1], strides = [1, 2]}
  return %y
})",
    // Lines that tiles of matrices divide, of groups that are filled up.
    R"(graph g(%x: u8[1, 56, 28, 28]) {
  %z: u8[] = [3]
  %w: i8[56, 8, 3, 3] random
  %y = ConvInteger(%x, %w, %z) {group = 7, pads = [1, 1, 1, 1], strides = [2, 2]}
  return %y
})",
    R"(graph g(%x: u8[2, 24, 31]) {
  %w: i8[96, 12, 3] random
  %y = ConvInteger(%x, %w) {group = 2}
  return %y
})",
    R"(graph g(%x: u8[1, 24, 7, 7]) {
  %s: f32[] = [0.5]
  %z: u8[] = [3]
  %w: i8[24, 8, 3, 3] random
  %ws: f32[24] random 0.01 0.02
  %wz: i8[] = [0]
  %y = QLinearConv(%x, %s, %z, %w, %ws, %wz, %s, %z) {group = 3, pads = [1, 1, 1, 1], strides = [2, 2]}
  return %y
})",
    R"(graph g(%x: u8[1, 16, 7, 7]) {
  %w: i8[64, 1, 3, 3] random
  %y = ConvInteger(%x, %w) {group = 16}
  return %y
})",
};

constexpr Machine kAmx = {"amx", "+amx-int8,+amx-tile,+avx2,+avx512vnni", 512, 32, true};
constexpr Machine kMachines[] = {{"avx512vnni", "+avx2,+avx512vnni", 512, 32, true},
                                 kAmx,
                                 {"avxvnni", "+avx2,+avxvnni", 256, 16, true},
                                 {"avx2", "+avx2", 256, 16, true},
                                 {"avx512", "+avx2,+avx512f", 512, 32, false},
                                 {"avx512bw", "+avx2,+avx512f,+avx512bw", 512, 32, true},
                                 {"sse41", "+sse4.1", 128, 16, true},
                                 {"sm_75", "", 128, 32, true},
                                 {"sm_80", "", 128, 32, true}};
constexpr size_t kCpus = 7;  // come first

class DotProduct : public ::testing::TestWithParam<std::tuple<const char*, Machine>> {};

TEST_P(DotProduct, IsRightAndUsesTheInstruction) {
  const auto& [source, machine] = GetParam();
  const Target target = target_of(machine);
  bool used = false;
  for (const Func& f : kernels_of(source, target)) {
    tensor::Schedule schedule = tuner::default_schedule(f, target);
    SCOPED_TRACE(text(to_text(f), to_text(schedule.trace())));
    Func lowered;
    ASSERT_NO_FATAL_FAILURE(lower_and_compare(f, schedule, target, lowered));
    used |= has_dot(lowered);
  }
  EXPECT_EQ(used, machine.has_dot);
}

TEST_P(DotProduct, IsRightAtAnyPointOfTheSpace) {
  const auto& [source, machine] = GetParam();
  const Target target = target_of(machine);
  const tuner::Sketch& rules = tuner::all_sketches()[0];
  bool used = false;
  for (const Func& f : kernels_of(source, target)) {
    tuner::Space space(f, target, tuner::all_sketches());
    std::vector<graph::Constant> want;
    for (uint64_t seed = 0; seed < 5; ++seed) {
      tuner::Planned planned = space.sample(rules, tuner::Random(seed));
      SCOPED_TRACE(text(to_text(f), to_text(planned.candidate.trace)));
      ASSERT_TRUE(planned.ok()) << planned.outcome.detail;
      Func lowered = tensor::lower(planned.func, target);
      used |= has_dot(lowered);
      if (want.empty()) want = run(f, f);
      if (target.kind == tensor::TargetKind::cuda) {
        ASSERT_TRUE(verify_launches(lowered, target.gpu).empty());
      }
      graph::test::expect_close(run(lowered, f), want, 0);
      if (HasFailure()) return;
    }
  }
  EXPECT_EQ(used, machine.has_dot);
}

// What goes by tiles of matrices on a CPU that has them.
constexpr const char* kTiled[] = {
    // Two tiles of rows by two of columns; three by one; rows of one tile, and columns of five.
    R"(graph g(%a: u8[32, 128]) {
  %b: i8[128, 64] random
  %y = MatMulInteger(%a, %b)
  return %y
})",
    R"(graph g(%a: u8[2, 45, 96]) {
  %z: u8[1] = [3]
  %b: i8[96, 16] random
  %y = MatMulInteger(%a, %b, %z)
  return %y
})",
    R"(graph g(%a: u8[9, 80]) {
  %b: i8[80, 80] random
  %y = MatMulInteger(%a, %b)
  return %y
})",
    // Rows that no tile divides, of a result that is the kernel's and of one that is not.
    R"(graph g(%a: u8[2, 37, 64]) {
  %b: i8[64, 32] random
  %y = MatMulInteger(%a, %b)
  return %y
})",
    R"(graph g(%a: u8[37, 128]) {
  %s: f32[1] = [0.5]
  %z: u8[1] = [3]
  %b: i8[128, 48] random
  %bs: f32[48] random 0.01 0.02
  %bz: i8[1] = [0]
  %y = QLinearMatMul(%a, %s, %z, %b, %bs, %bz, %s, %z)
  return %y
})",
    // Lines of one tile, seven of them; windows with a stride; a batch.
    R"(graph g(%x: u8[1, 64, 7, 7]) {
  %z: u8[1] = [2]
  %w: i8[32, 64, 3, 3] random
  %y = ConvInteger(%x, %w, %z) {pads = [1, 1, 1, 1]}
  return %y
})",
    R"(graph g(%x: u8[2, 32, 15, 28]) {
  %z: u8[1] = [2]
  %s: f32[1] = [0.5]
  %w: i8[48, 32, 3, 3] random
  %ws: f32[48] random 0.01 0.02
  %wz: i8[1] = [0]
  %y = QLinearConv(%x, %s, %z, %w, %ws, %wz, %s, %z) {pads = [1, 1, 1, 1], strides = [2, 2]}
  return %y
})",
    // Few channels, whose words are one axis with a row's taps.
    R"(graph g(%x: u8[1, 3, 9, 40]) {
  %z: u8[1] = [2]
  %w: i8[32, 3, 5, 5] random
  %y = ConvInteger(%x, %w, %z) {pads = [2, 2, 2, 2], strides = [2, 2]}
  return %y
})",
    R"(graph g(%x: u8[1, 24, 6, 18]) {
  %w: i8[32, 24, 3, 3] random
  %y = ConvInteger(%x, %w)
  return %y
})",
    R"(graph g(%x: u8[1, 64, 5, 14]) {
  %w: i8[64, 64, 1, 1] random
  %y = ConvInteger(%x, %w)
  return %y
})",
    // Lines that no tiles divide: of windows with padding, whose copy gets wider, and without, of which a copy is made. Channels of 20 words.
    R"(graph g(%x: u8[1, 64, 5, 19]) {
  %z: u8[1] = [2]
  %s: f32[1] = [0.5]
  %w: i8[32, 64, 3, 3] random
  %ws: f32[32] random 0.01 0.02
  %wz: i8[1] = [0]
  %y = QLinearConv(%x, %s, %z, %w, %ws, %wz, %s, %z) {pads = [1, 1, 1, 1]}
  return %y
})",
    R"(graph g(%x: u8[1, 80, 6, 39]) {
  %s: f32[1] = [0.5]
  %z: u8[1] = [3]
  %w: i8[32, 80, 2, 3] random
  %ws: f32[32] random 0.01 0.02
  %wz: i8[1] = [0]
  %y = QLinearConv(%x, %s, %z, %w, %ws, %wz, %s, %z) {strides = [1, 2]}
  return %y
})",
    // Channels of 19 and of 37 words, filled up to 20 and more: the first without a copy of its own, the other with padding and weights whose zero
    // point is not 0.
    R"(graph g(%x: u8[1, 76, 5, 14]) {
  %s: f32[1] = [0.5]
  %z: u8[1] = [3]
  %w: i8[32, 76, 1, 1] random
  %ws: f32[32] random 0.01 0.02
  %wz: i8[1] = [0]
  %y = QLinearConv(%x, %s, %z, %w, %ws, %wz, %s, %z)
  return %y
})",
    R"(graph g(%x: u8[1, 148, 3, 14]) {
  %z: u8[1] = [5]
  %w: u8[16, 148, 3, 2] random
  %wz: u8[1] = [117]
  %y = ConvInteger(%x, %w, %z, %wz) {pads = [1, 0, 1, 1]}
  return %y
})",
};

TEST(TileProducts, AreRightAtAnyPointOfTheSpace) {
  const Target target = target_of(kAmx);
  for (const char* source : kTiled) {
    bool is_tiled = false;
    for (const Func& f : kernels_of(source, target)) {
      tensor::Schedule schedule = tuner::default_schedule(f, target);
      SCOPED_TRACE(text(to_text(f), to_text(schedule.trace())));
      Func lowered;
      ASSERT_NO_FATAL_FAILURE(lower_and_compare(f, schedule, target, lowered));
      is_tiled |= to_text(lowered).find("tile_multiply_u8i8(") != std::string::npos;
      EXPECT_EQ(to_text(lowered).find("tile_product_u8i8("), std::string::npos);
      expect_right_at_points(f, target, 8, 0);
      if (HasFailure()) return;
    }
    EXPECT_TRUE(is_tiled) << source;
  }
}

// Tiles of as many rows as take the least time, of lines of any width; what is computed of their sums stands between multiplications.
TEST(TileProducts, TakeLinesOfAnyWidth) {
  const Target target = target_of(kAmx);
  for (const auto& [width, rows] : {std::pair{14, 14}, {17, 9}, {19, 10}, {35, 12}, {38, 13}, {147, 15}}) {
    SCOPED_TRACE(width);
    const std::vector<Func> kernels = kernels_of(text("graph g(%x: u8[1, 64, 9, ", width, R"(]) {
  %s: f32[1] = [0.5]
  %z: u8[1] = [3]
  %w: i8[64, 64, 3, 3] random
  %ws: f32[64] random 0.01 0.02
  %wz: i8[1] = [0]
  %y = QLinearConv(%x, %s, %z, %w, %ws, %wz, %s, %z) {pads = [1, 1, 1, 1]}
  return %y
})"), target);
    std::string code;
    for (const Func& f : kernels)
      code += to_text(tensor::lower(tuner::default_schedule(f, target).func(), target));
    EXPECT_THAT(code, ::testing::HasSubstr(text("tile_configure(", rows, ", 16, ")));
    const size_t last = code.rfind("tile_multiply_u8i8("), rounding = code.find("round(");
    EXPECT_LT(rounding, last) << code;
  }
}

// Without an instruction of their own, products are of activations that a kernel before has widened, and stand next to the sums.
TEST(DotProductTiles, FitTheRegisters) {
  for (const auto& [features, bits, count] :
       {std::tuple{"+avx2,+avxvnni", 256, 1}, {"+avx2", 256, 2}, {"+sse4.1", 128, 2}}) {
    const Target target = target_of({"", features, bits, 16, true});
    std::vector<Func> kernels = kernels_of(R"(graph g(%a: u8[60, 256]) {
  %b: i8[256, 96] random
  %y = MatMulInteger(%a, %b)
  return %y
})", target);
    ASSERT_EQ(kernels.size(), static_cast<size_t>(count));
    EXPECT_THAT(to_text(tuner::default_schedule(kernels.back(), target).trace()),
                ::testing::HasSubstr("factors=[0, 6], names=[\"matmul.rows\""))
        << features;
  }
}

// A convolution of each channel by itself has no dot products, but stays one of bytes: with sums of whole numbers of f32, or of i32 where
// those may be too large.
struct Depthwise {
  const char* source;
  bool sums_floats;  // on CPUs
};
constexpr Depthwise kDepthwise[] = {
    {R"(graph g(%x: u8[1, 96, 33, 40]) {
  %xs: f32[] = [0.02]
  %xz: u8[] = [128]
  %w: i8[96, 1, 3, 3] random
  %ws: f32[96] random 0.01 0.02
  %b: f32[96] random
  %ys: f32[] = [0.1]
  %yz: u8[] = [10]
  %d = DequantizeLinear(%x, %xs, %xz)
  %v = DequantizeLinear(%w, %ws) {axis = 0}
  %c = Conv(%d, %v, %b) {group = 96, pads = [1, 1, 1, 1], strides = [2, 2]}
  %r = Relu(%c)
  %y = QuantizeLinear(%r, %ys, %yz)
  return %y
})",
     true},
    {R"(graph g(%x: u8[1, 16, 6, 6]) {
  %s: f32[1] = [0.5]
  %z: u8[1] = [3]
  %w: i8[16, 1, 3, 3] random
  %wz: i8[1] = [0]
  %b: i32[16] = [20000000, -20000000, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]
  %y = QLinearConv(%x, %s, %z, %w, %s, %wz, %s, %z, %b) {group = 16}
  return %y
})",
     false},
    {R"(graph g(%x: u8[1, 48, 9, 8]) {
  %s: f32[1] = [0.5]
  %z: u8[1] = [3]
  %w: u8[48, 1, 3, 3] random
  %ws: f32[48] random 0.01 0.02
  %wz: u8[48] random
  %ys: f32[1] = [2]
  %y = QLinearConv(%x, %s, %z, %w, %ws, %wz, %ys, %z) {group = 48, pads = [1, 1, 1, 1]}
  return %y
})",
     true},
    {R"(graph g(%x: i8[2, 20, 15]) {
  %z: i8[1] = [-4]
  %w: i8[20, 1, 3] random
  %y = ConvInteger(%x, %w, %z) {group = 20, strides = [2], dilations = [2]}
  return %y
})",
     false},
    // A zero point that is not known when the model is compiled.
    {R"(graph g(%x: u8[2, 20, 9, 8], %z: u8[1]) {
  %w: i8[20, 1, 3, 3] random
  %wz: i8[1] = [3]
  %y = ConvInteger(%x, %w, %z, %wz) {group = 20, pads = [1, 1, 1, 1]}
  return %y
})",
     false},
};
class DepthwiseBytes : public ::testing::TestWithParam<std::tuple<Depthwise, Machine>> {};

TEST_P(DepthwiseBytes, IsRight) {
  const auto& [convolution, machine] = GetParam();
  const Target target = target_of(machine);
  const bool sums_floats = convolution.sums_floats && target.kind == tensor::TargetKind::cpu;
  bool has_weights = false;  // as they are multiplied with bytes, their channels last
  for (const Func& f : kernels_of(convolution.source, target)) {
    has_weights |= to_text(f).find(sums_floats ? ": f32[3, 3, " : ": i16[3, ") != std::string::npos;
    tensor::Schedule schedule = tuner::default_schedule(f, target);
    SCOPED_TRACE(text(to_text(f), to_text(schedule.trace())));
    Func lowered;
    ASSERT_NO_FATAL_FAILURE(lower_and_compare(f, schedule, target, lowered));
  }
  EXPECT_EQ(has_weights, machine.has_dot);
}

template <class Case>
std::string name_of(const ::testing::TestParamInfo<std::tuple<Case, Machine>>& info) {
  return text("product_", info.index, "_", std::get<1>(info.param).name);
}
INSTANTIATE_TEST_SUITE_P(Products, DotProduct,
                         ::testing::Combine(::testing::ValuesIn(kProducts), ::testing::ValuesIn(kMachines)),
                         name_of<const char*>);
INSTANTIATE_TEST_SUITE_P(Groups, DotProduct,
                         ::testing::Combine(::testing::ValuesIn(kInGroups),
                                            ::testing::ValuesIn(kMachines, kMachines + kCpus)),
                         name_of<const char*>);
INSTANTIATE_TEST_SUITE_P(Channels, DepthwiseBytes,
                         ::testing::Combine(::testing::ValuesIn(kDepthwise), ::testing::ValuesIn(kMachines)),
                         name_of<Depthwise>);

}  // namespace
}  // namespace mcc::test
