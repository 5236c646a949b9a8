#include "graph/passes/grid_convolution_cost.h"

#include <algorithm>

#include "graph/ops/common.h"
#include "graph/passes/merge_groups.h"
#include "tensor/product_time.h"

namespace mcc::graph {
namespace {

using tensor::Gpu;
using tensor::ProductExtents;

constexpr double kElementBytes = 4;
// Of a multiprocessor, from the second-level cache: half of what its port takes.
constexpr double kCacheBytesPerCycle = 32;
// What a launch more takes beside its work: its first loads wait for the memory.
constexpr double kLatencyUs = 0.6;

double units_to_us(double units, const Gpu& gpu) { return units / 128 / (gpu.ghz * 1e3); }

// Bytes out of so many that are needed again and again.
double moved_us(double bytes, double of, const Gpu& gpu) {
  const bool is_cached = of <= 0.6 * gpu.l2_bytes;
  const double cache = kCacheBytesPerCycle * gpu.multiprocessors * gpu.ghz;
  return bytes / ((is_cached ? std::max(cache, gpu.gb_per_s) : gpu.gb_per_s) * 1e3);
}

// In as many parts as take the least time, of those that the rule offers (tuner/grid_product.cpp). `longest`: the extent of the
// longest axis of the sum; fetch_us: what it has to wait for memory in any case; parts_launch: the parts are added up by a launch more.
double product_us(ProductExtents p, int64_t longest, double fetch_us, bool parts_launch, const Gpu& gpu) {
  p.is_async = gpu.has_async_copies();
  double best = tensor::best_product_time(p, gpu);
  for (int64_t parts = 2; parts <= 32 && longest % parts == 0 && p.k / parts >= gpu.warp; parts *= 2) {
    ProductExtents divided = p;
    divided.g *= parts;
    divided.k /= parts;
    best = std::min(best, tensor::best_product_time(divided, gpu) +
                              tensor::parts_time(divided.results(), gpu, parts_launch));
  }
  return gpu.launch_us + std::max(units_to_us(best, gpu), fetch_us);
}

double direct_weight_bytes(const ConvProblem& p) {
  return kElementBytes * static_cast<double>(p.taps() * p.in_channels * p.out_channels);
}

}  // namespace

double grid_direct_us(const ConvProblem& p, const Gpu& gpu, int64_t model_weight_bytes) {
  const int64_t window = p.taps();
  const ProductExtents product{
      .i = p.out_channels, .j = p.places(), .k = p.in_channels * window, .period = window};
  const double fetch_us = moved_us(direct_weight_bytes(p), static_cast<double>(model_weight_bytes), gpu);
  const int64_t longest = std::max(p.in_channels, *std::max_element(p.kernel.begin(), p.kernel.end()));
  return product_us(product, longest, fetch_us, true, gpu);
}

double grid_winograd_us(const ConvProblem& p, int64_t m, const Gpu& gpu, int64_t model_weight_bytes) {
  const int64_t positions = (m + kWinogradTaps - 1) * (m + kWinogradTaps - 1);
  const int64_t tiles = p.images * ((p.extents[0] + m - 1) / m) * ((p.extents[1] + m - 1) / m);
  const double weights =
      direct_weight_bytes(p) * static_cast<double>(positions) / (kWinogradTaps * kWinogradTaps);
  const double model = static_cast<double>(model_weight_bytes) + weights - direct_weight_bytes(p);
  auto transformed = [&](int64_t channels) {
    return kElementBytes * static_cast<double>(positions * tiles * channels);
  };
  const double between = transformed(p.in_channels) + transformed(p.out_channels);
  const double fetch_us = moved_us(weights, model, gpu) + moved_us(between, between, gpu);
  // Whichever of channels and tiles lie together in memory.
  const ProductExtents by_tiles{.g = positions, .i = p.out_channels, .j = tiles, .k = p.in_channels};
  const ProductExtents by_channels{.g = positions, .i = tiles, .j = p.out_channels, .k = p.in_channels};
  const double product = std::min(product_us(by_tiles, p.in_channels, fetch_us, false, gpu),
                                  product_us(by_channels, p.in_channels, fetch_us, false, gpu));
  // A transform reads or writes an image, and the transformed one.
  auto transform_us = [&](int64_t channels) {
    const double image = kElementBytes * static_cast<double>(p.places() * channels);
    return gpu.launch_us + kLatencyUs + moved_us(image + transformed(channels), between, gpu);
  };
  return product + transform_us(p.in_channels) + transform_us(p.out_channels);
}

double grid_laid_out_us(const ConvProblem& p, Layout layout, const Gpu& gpu) {
  constexpr double kInstructions = 16;  // of a fetch
  constexpr double kLanes = 128;        // of a multiprocessor
  constexpr double kStepCycles = 2;     // of an instruction of a warp that no other one hides
  constexpr int64_t kColumns = 64;      // of a tile, which share what is fetched
  // A thread makes a result of each channel by itself, whose neighbours are read together in both.
  if (p.is_depthwise()) return gpu.launch_us;
  const double places = static_cast<double>(p.places()) * static_cast<double>(p.taps());
  const double to_us = 1 / (gpu.multiprocessors * gpu.ghz * 1e3);
  // Of groups side by side in memory some make one product; else threads make results as of single channels.
  const int64_t merged = grid_merged_groups(p.group, p.in_channels, p.out_channels);
  if (p.group > 1 && (layout != Layout::channels_last || merged == 0 || !is_narrow_float(p.element))) {
    const double factors = places * static_cast<double>(p.out_channels) * static_cast<double>(p.in_channels / p.group);
    constexpr double kOfFactor = 4;  // instructions
    return gpu.launch_us + factors * kOfFactor / kLanes * to_us;
  }
  const int64_t groups = p.group > 1 ? p.group / merged : 1, out = p.out_channels / groups;
  int64_t in = p.in_channels / groups;
  if (layout == Layout::channels_last && in > 1) in = std::max(in, kImageChannels);
  // 16 bytes at a time, 8 at least.
  const int64_t longest = 16 / byte_size(p.element);
  const int64_t vector = layout != Layout::channels_last ? 1
                         : in % longest == 0             ? longest
                         : in % 4 == 0                   ? 4
                                                         : 1;
  const double windows = places * static_cast<double>(in * groups);
  const double fetches = windows * static_cast<double>((out + kColumns - 1) / kColumns) / static_cast<double>(vector);
  const double rate = std::max(gpu.matrix_fmas, 1) * 2.0 / byte_size(p.element);
  const double cycles = windows * static_cast<double>(out) / rate + fetches * kInstructions / kLanes;
  // Where there are few tiles, each has a warp, which fetches along the sum.
  const double sum = static_cast<double>(p.taps() * in);
  const double way_us = sum / static_cast<double>(vector) * kInstructions * kStepCycles / (gpu.ghz * 1e3);
  return gpu.launch_us + std::max(cycles * to_us, way_us);
}

}  // namespace mcc::graph
