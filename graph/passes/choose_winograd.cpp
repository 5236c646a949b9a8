#include "graph/passes/choose_winograd.h"

#include <algorithm>
#include <vector>

namespace mcc::graph {
namespace {

constexpr int64_t kTaps = 3;
constexpr double kElementBytes = 4;
// Stages of a Winograd kernel start and end: what small convolutions have to make up for.
constexpr double kFixedUs = 2;

// Microseconds of a product of this many multiplications with weights of this size. Kernels do not fetch weights ahead, so
// little of that time is hidden (measured on cold weights of ResNet-50: the sum fits, the larger of both does not).
double product_us(double multiplications, double weights, double weight_gb_per_s, const tensor::Target& t) {
  return 2 * multiplications / (t.peak_gflops() * 1e3) + weights / (weight_gb_per_s * 1e3);
}

double weight_bandwidth(double layer, double model, const tensor::Target& t) {
  if (model > static_cast<double>(t.l3.bytes)) return t.dram_gb_per_s;
  return layer > static_cast<double>(t.l2.bytes) ? t.l3.gb_per_s : t.l2.gb_per_s;
}

double direct_us(const ConvProblem& p, const tensor::Target& t, double model) {
  double weights = static_cast<double>(kTaps * kTaps * p.in_channels * p.out_channels);
  double bytes = weights * kElementBytes;
  return product_us(weights * static_cast<double>(p.images * p.height * p.width), bytes,
                    weight_bandwidth(bytes, model, t), t);
}

double winograd_us(const ConvProblem& p, int64_t m, const tensor::Target& t, double model) {
  int64_t lines = (p.height + m - 1) / m, columns = (p.width + m - 1) / m;
  double positions = static_cast<double>((m + kTaps - 1) * (m + kTaps - 1));
  double tiles = static_cast<double>(p.images * lines * columns);
  double weights = positions * static_cast<double>(p.in_channels * p.out_channels);
  double bytes = weights * kElementBytes;
  model += bytes * (1 - static_cast<double>(kTaps * kTaps) / positions);
  double product = product_us(weights * tiles, bytes, weight_bandwidth(bytes, model, t), t);
  // Both transforms write what the other side reads; from the second-level cache while a block of tiles stays there.
  double moved = 2 * kElementBytes * positions * tiles * static_cast<double>(p.in_channels + p.out_channels);
  return product + moved / (t.l2.gb_per_s * 1e3) + kFixedUs;
}

}  // namespace

int64_t weight_bytes(const Graph& graph) {
  std::vector<bool> seen(graph.values.size());
  int64_t bytes = 0;
  for (const Node& node : graph.nodes) {
    if (node.dead) continue;
    for (ValueId v : node.inputs) {
      if (v == kNoValue || seen[static_cast<size_t>(v)] || !graph.value(v).constant) continue;
      seen[static_cast<size_t>(v)] = true;
      bytes += static_cast<int64_t>(graph.value(v).constant->bytes().size());
    }
  }
  return bytes;
}

int64_t choose_winograd_tile(const ConvProblem& problem, const tensor::Target& target,
                             int64_t model_weight_bytes) {
  auto model = static_cast<double>(model_weight_bytes);
  // A tenth has to be won: kernels fall short of a model, and direct convolution rounds less.
  double best = 0.9 * direct_us(problem, target, model);
  int64_t tile = 0;
  for (int64_t m : {2, 4}) {
    // Tiles that are mostly padding, in either direction.
    if (problem.height <= m || problem.width <= m) continue;
    double us = winograd_us(problem, m, target, model);
    if (us < best) {
      best = us;
      tile = m;
    }
  }
  return tile;
}

}  // namespace mcc::graph
