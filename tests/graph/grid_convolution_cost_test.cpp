// Which algorithm GPUs take for convolutions: the 3x3 ones of ResNet-50, the yardstick of the estimate, and what never pays.
#include "graph/passes/grid_convolution_cost.h"

#include <gtest/gtest.h>

namespace mcc::graph {
namespace {

constexpr int64_t kModelBytes = 102 << 20;

ConvProblem problem(int64_t images, int64_t in, int64_t out, int64_t side) {
  ConvProblem p;
  p.images = images;
  p.in_channels = in;
  p.out_channels = out;
  p.extents = {side, side};
  p.kernel = {3, 3};
  return p;
}

int64_t tile(const ConvProblem& p, const tensor::Gpu& gpu) {
  tensor::Target target;
  target.kind = tensor::TargetKind::cuda;
  target.gpu = gpu;
  const std::vector<ConvAlgorithm> algorithms = conv_algorithms(p, target, kModelBytes);
  return algorithms[best_algorithm(algorithms)].tile;
}
int64_t tile(const ConvProblem& p, const char* gpu) { return tile(p, *tensor::find_gpu(gpu)); }

TEST(GridConvolutionCost, TilesOfResNet50) {
  struct {
    int64_t channels, side;
  } layers[] = {{64, 56}, {128, 28}, {256, 14}, {512, 7}};
  std::vector<int64_t> a100, h200, h200_of_8;
  for (auto [channels, side] : layers) {
    a100.push_back(tile(problem(1, channels, channels, side), "sm_80"));
    h200.push_back(tile(problem(1, channels, channels, side), "sm_90"));
    h200_of_8.push_back(tile(problem(8, channels, channels, side), "sm_90"));
  }
  // Weights of four times the size at 7 x 7, for 4 tiles: F(2 x 2).
  EXPECT_EQ(a100, (std::vector<int64_t>{4, 4, 4, 2}));
  // Two launches more take longer than what they save of a single image.
  EXPECT_EQ(h200, (std::vector<int64_t>{0, 0, 0, 0}));
  EXPECT_EQ(h200_of_8, (std::vector<int64_t>{4, 4, 4, 4}));
}

TEST(GridConvolutionCost, FewChannelsAreDirect) {
  for (const char* gpu : {"T4", "sm_80", "sm_86", "sm_90"}) {
    EXPECT_EQ(tile(problem(1, 3, 64, 224), gpu), 0) << gpu;
    EXPECT_EQ(tile(problem(16, 64, 3, 224), gpu), 0) << gpu;
    EXPECT_EQ(tile(problem(16, 1, 1, 512), gpu), 0) << gpu;
    EXPECT_EQ(tile(problem(1, 16, 16, 64), gpu), 0) << gpu;
  }
}

TEST(GridConvolutionCost, OtherWindowsAreDirect) {
  ConvProblem strided = problem(8, 256, 256, 14), dilated = strided, grouped = strided, wide = strided;
  strided.strides[1] = 2;
  dilated.dilations[0] = 2;
  grouped.group = 2;
  wide.kernel[0] = 5;
  for (const ConvProblem& p : {strided, dilated, grouped, wide})
    EXPECT_EQ(tile(p, "sm_80"), 0);
}

// More launches, slower memory: Winograd's algorithm loses.
TEST(GridConvolutionCost, LaunchesAndTrafficCount) {
  const ConvProblem p = problem(8, 128, 128, 28);
  tensor::Gpu gpu = *tensor::find_gpu("sm_80");
  const double gain = grid_direct_us(p, gpu, kModelBytes) - grid_winograd_us(p, 4, gpu, kModelBytes);
  EXPECT_GT(gain, 0);
  gpu.launch_us += gain;
  EXPECT_EQ(tile(p, gpu), 0);
  gpu = *tensor::find_gpu("sm_80");
  gpu.l2_bytes = 0;
  gpu.gb_per_s /= 8;
  EXPECT_EQ(tile(p, gpu), 0);
}

}  // namespace
}  // namespace mcc::graph
