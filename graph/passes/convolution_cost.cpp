#include "graph/passes/convolution_cost.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

#include "graph/op.h"
#include "graph/passes/grid_convolution_cost.h"
#include "graph/passes/merge_groups.h"
#include "graph/passes/pack_products.h"
#include "support/text.h"
#include "tensor/instructions.h"
#include "tensor/intrinsics.h"

namespace mcc::graph {
namespace {

constexpr int64_t kTaps = kWinogradTaps;
constexpr double kElementBytes = 4;
// Stages of a Winograd kernel start and end: what small convolutions have to make up for.
constexpr double kFixedUs = 2;

int64_t whole_vectors(int64_t elements, const tensor::Target& t) {
  int64_t lanes = t.lanes(32);
  return (elements + lanes - 1) / lanes * lanes;
}

double weight_bandwidth(double layer, double model, const tensor::Target& t) {
  if (model > static_cast<double>(t.l3.bytes)) return t.dram_gb_per_s;
  return layer > static_cast<double>(t.l2.bytes) ? t.l3.gb_per_s : t.l2.gb_per_s;
}

// Where there are tiles of matrices: whether they take the lines of the result, which are not too short. The dot products that take their
// place otherwise are slower than f32 on those machines: two thirds on Sapphire Rapids.
bool fits_tiles(const ConvProblem& p, const tensor::Target& t) {
  auto has_tile = [&](int64_t rows) { return tensor::tile_instruction(t, rows, tensor::kTileRows, p.element) != nullptr; };
  return !has_tile(tensor::kTileRows) || has_tile(std::min<int64_t>(p.extents.back(), tensor::kTileRows));
}

// In plain form a product of matrices for each group, whose columns are all places of an image.
bool is_product_of_groups(const ConvProblem& p) {
  return p.is_grouped() && p.taps() == 1 && std::ranges::all_of(p.strides, [](int64_t n) { return n == 1; });
}

// The share of a blocked dense convolution's rate that a layout reaches (ResNet-50's and MobileNet's layers, AVX-512).
// Depthwise kernels read a vector for each that they multiply; channels-last ones stride over the other channels in
// between; plain ones read neighbours along the width, with a stride by gathering.
double rate_of(const ConvProblem& p, Layout layout, const tensor::Target& t) {
  // Tiles as on Sapphire Rapids (ResNet-50's layers). Dot products: on Zen 4 ResNet-50's layers go twice as fast as in f32; somewhat
  // less is expected, for what converts between them.
  constexpr double kTileRate = 8, kDotRate = 1.6;
  if (is_in_words(p, t)) {
    return tensor::tile_instruction(t, tensor::kTileRows, tensor::kTileRows, p.element) ? kTileRate : kDotRate;
  }
  bool gathers = p.strides.back() > 1;
  switch (layout) {
    case Layout::blocked:
      return p.is_depthwise() ? 0.3 : 1;
    case Layout::channels_last:
      return p.is_depthwise() ? 0.17 : 1;
    case Layout::plain:
      break;
  }
  if (is_product_of_groups(p)) return 0.9;
  if (p.group > 1) return gathers ? 0.03 : 0.2;
  return gathers ? 0.05 : 0.65;
}

double direct_us(const ConvProblem& p, Layout layout, const tensor::Target& t, double model) {
  int64_t in = p.in_channels / p.group, out = p.out_channels, width = p.extents.back();
  int64_t rows = std::accumulate(p.extents.begin(), p.extents.end() - 1, p.images, std::multiplies<>());
  if (layout == Layout::plain && is_product_of_groups(p)) {
    width = whole_vectors(rows * width / p.images, t);
    rows = p.images;
  } else if (layout == Layout::plain) {
    width = whole_vectors(width, t);
  } else {
    out = whole_vectors(out, t);
    if (p.is_grouped()) in *= merged_groups(p.group, p.in_channels, p.out_channels, t.lanes(32));
    // An image's few channels are read where they are.
    if (layout == Layout::blocked && p.group == 1 && in >= t.lanes(32) / 2) in = whole_vectors(in, t);
  }
  double weights = static_cast<double>(p.taps()) * static_cast<double>(in * out);
  double bytes = weights * kElementBytes;
  double multiplications = weights * static_cast<double>(rows * width);
  return product_us(multiplications / rate_of(p, layout, t), bytes, model, t);
}

double winograd_us(const ConvProblem& p, int64_t m, const tensor::Target& t, double model) {
  int64_t lines = (p.extents[0] + m - 1) / m, columns = (p.extents[1] + m - 1) / m;
  double positions = static_cast<double>((m + kTaps - 1) * (m + kTaps - 1));
  double tiles = static_cast<double>(p.images * lines * columns);
  auto in = static_cast<double>(whole_vectors(p.in_channels, t));
  auto out = static_cast<double>(whole_vectors(p.out_channels, t));
  double weights = positions * in * out;
  double bytes = weights * kElementBytes;
  model += bytes * (1 - static_cast<double>(kTaps * kTaps) / positions);
  double product = product_us(weights * tiles, bytes, model, t);
  // Both transforms write what the other side reads; from the second-level cache while a block of tiles stays there.
  double moved = 2 * kElementBytes * positions * tiles * (in + out);
  return product + moved / (t.l2.gb_per_s * 1e3) + kFixedUs;
}

}  // namespace

int64_t ConvProblem::places() const {
  return std::accumulate(extents.begin(), extents.end(), images, std::multiplies<>());
}

int64_t ConvProblem::taps() const {
  return std::accumulate(kernel.begin(), kernel.end(), int64_t{1}, std::multiplies<>());
}

std::optional<ConvProblem> conv_problem(const Graph& for_all, const Node& node, const Graph* typical) {
  if (node.op->layout != LayoutRole::convolution) return std::nullopt;
  const Graph& graph = typical ? *typical : for_all;
  const Shape& x = graph.value(node.inputs[0]).type.shape;
  const Shape& w = graph.value(node.inputs[1]).type.shape;
  const Shape& y = graph.value(node.outputs[0]).type.shape;
  if (w.size() < 3 || w.size() > 5 || !is_static(x) || !is_static(w) || !is_static(y)) return std::nullopt;
  const std::vector<int64_t> ws = as_image(static_shape(w)), ys = as_image(static_shape(y));
  ConvProblem p;
  p.images = ys[0];
  p.group = node.attributes.integer("group", 1);
  p.element = graph.value(node.inputs[0]).type.element;
  p.in_channels = ws[1] * p.group;
  p.out_channels = ws[0];
  p.extents.assign(ys.begin() + 2, ys.end());
  p.kernel.assign(ws.begin() + 2, ws.end());
  p.strides = window_numbers(graph, node, "strides");
  p.dilations = window_numbers(graph, node, "dilations");
  p.few_images = p.images;
  p.small_extents = p.extents;
  const Shape& open = for_all.value(node.outputs[0]).type.shape;
  if (int64_t known = 0; !tensor::as_int(open[0], &known)) p.few_images = std::min<int64_t>(p.images, 1);
  for (size_t axis = 2; axis < open.size(); ++axis) {
    int64_t& extent = p.small_extents[p.extents.size() + axis - open.size()];
    if (int64_t known = 0; !tensor::as_int(open[axis], &known)) extent = (extent + 1) / 2;
  }
  p.is_open = !is_static(for_all.value(node.inputs[0]).type.shape);
  return p;
}

bool is_in_words(const ConvProblem& p, const tensor::Target& t) {
  const int64_t word = word_of(p.element, t);
  // An image's few channels are filled up; otherwise the words would be mostly zeros.
  const bool has_words = p.in_channels % word == 0 && p.in_channels >= t.lanes(32) / 2;
  const bool is_filled = p.in_channels > 1 && p.in_channels <= kImageChannels;
  return word > 1 && p.group == 1 && p.kernel.size() == 2 && fits_tiles(p, t) && (has_words || is_filled);
}

bool has_winograd(const ConvProblem& p) {
  if (p.kernel.size() != 2) return false;
  for (size_t d = 0; d < 2; ++d) {
    if (p.kernel[d] != kTaps || p.strides[d] != 1 || p.dilations[d] != 1) return false;
  }
  return p.group == 1;
}

std::vector<int64_t> as_image(std::vector<int64_t> dims) {
  if (dims.size() == 3) dims.insert(dims.begin() + 2, 1);
  return dims;
}

std::vector<int64_t> along_rows(std::vector<int64_t> window) {
  if (window.size() == 1) window.insert(window.begin(), 1);
  return window;
}

std::vector<int64_t> window_numbers(const Graph& graph, const Node& node, const std::string& attribute) {
  const size_t axes = graph.value(node.inputs[0]).type.shape.size() - 2;
  return along_rows(node.attributes.integers(attribute, std::vector<int64_t>(axes, 1)));
}

std::vector<int64_t> explicit_padding(const Graph& graph, const Node& node, const std::vector<int64_t>& kernel,
                                      const std::vector<int64_t>& strides, const std::vector<int64_t>& dilations) {
  const Shape& x = graph.value(node.inputs[0]).type.shape;
  std::string mode = node.attributes.text("auto_pad", "NOTSET");
  size_t axes = x.size() - 2;
  std::vector<int64_t> pads = node.attributes.integers("pads", std::vector<int64_t>(2 * axes, 0));
  if (axes == 1) pads = {0, pads[0], 0, pads[1]};
  if (mode == "NOTSET" || mode.empty()) return pads;
  if (mode == "VALID") return std::vector<int64_t>(pads.size(), 0);
  std::vector<int64_t> image = as_image(static_shape(x));
  for (size_t d = 0; d < kernel.size(); ++d) {
    int64_t in = image[2 + d];
    int64_t out = (in + strides[d] - 1) / strides[d];
    int64_t total = std::max<int64_t>(0, (out - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1 - in);
    int64_t less = total / 2;
    pads[d] = mode == "SAME_UPPER" ? less : total - less;
    pads[kernel.size() + d] = total - pads[d];
  }
  return pads;
}

Attributes laid_out_pooling(const Graph& graph, const Node& node) {
  const std::vector<int64_t> kernel = along_rows(node.attributes.integers("kernel_shape")),
                             strides = window_numbers(graph, node, "strides"),
                             dilations = window_numbers(graph, node, "dilations");
  const Shape& extents = graph.value(node.outputs[0]).type.shape;
  Attributes a;
  a.set("kernel", kernel);
  a.set("strides", strides);
  a.set("dilations", dilations);
  a.set("pads", explicit_padding(graph, node, kernel, strides, dilations));
  // Windows that run over the end are not counted by the others' formula.
  if (is_static(extents)) {
    const std::vector<int64_t> out = as_image(static_shape(extents));
    a.set("extent", std::vector<int64_t>(out.begin() + 2, out.end()));
  }
  a.set("count_include_pad", node.attributes.integer("count_include_pad", 0));
  return a;
}

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

// Kernels do not fetch weights ahead, so little of that time is hidden (measured on cold weights of ResNet-50: the sum fits, the
// larger of both does not).
double product_us(double multiplications, double weights, double model_weights, const tensor::Target& t) {
  return 2 * multiplications / (t.peak_gflops() * 1e3) + weights / (weight_bandwidth(weights, model_weights, t) * 1e3);
}

std::string to_text(const ConvProblem& p) {
  auto by = [](const std::vector<int64_t>& numbers) { return join(numbers, "x"); };
  auto is_one = [](const std::vector<int64_t>& numbers) {
    return std::all_of(numbers.begin(), numbers.end(), [](int64_t n) { return n == 1; });
  };
  std::string out = text(by(p.kernel), " of ", p.in_channels, " channels to ", p.out_channels, ", ", by(p.extents));
  if (p.images != 1) out += text(", ", p.images, " images");
  if (!is_one(p.strides)) out += text(", strides ", by(p.strides));
  if (!is_one(p.dilations)) out += text(", dilations ", by(p.dilations));
  if (p.group != 1) out += text(", ", p.group, " groups");
  if (p.is_open) out += ", for all sizes";
  return out;
}

std::vector<ConvAlgorithm> conv_algorithms(const ConvProblem& problem, const tensor::Target& target, int64_t model_weight_bytes) {
  const auto model = static_cast<double>(model_weight_bytes);
  const bool is_gpu = target.kind == tensor::TargetKind::cuda;
  std::vector<ConvAlgorithm> out{{0, is_gpu ? grid_direct_us(problem, target.gpu, model_weight_bytes)
                                            : direct_us(problem, Layout::blocked, target, model)}};
  if (!has_winograd(problem)) return out;
  // On a GPU products with a single channel are none.
  if (is_gpu && (problem.in_channels == 1 || problem.out_channels == 1)) return out;
  for (int64_t m : {2, 4}) {
    // Tiles that are mostly padding, in either direction.
    if (problem.extents[0] <= m || problem.extents[1] <= m) continue;
    out.push_back({m, is_gpu ? grid_winograd_us(problem, m, target.gpu, model_weight_bytes) : winograd_us(problem, m, target, model)});
  }
  return out;
}

size_t best_algorithm(const std::vector<ConvAlgorithm>& algorithms) {
  // A tenth has to be won: kernels fall short of a model, and direct convolution rounds less.
  size_t best = 0;
  double least = 0.9 * algorithms[0].us;
  for (size_t i = 0; i < algorithms.size(); ++i) {
    if (algorithms[i].us >= least) continue;
    best = i;
    least = algorithms[i].us;
  }
  return best;
}

namespace {

// Of a CPU: sizes between these and the typical ones are what runs mostly have.
size_t best_for_all_sizes(const std::vector<ConvAlgorithm>& algorithms, const ConvProblem& typical,
                          const tensor::Target& target, int64_t model_weight_bytes) {
  const auto model = static_cast<double>(model_weight_bytes);
  ConvProblem small = typical;
  small.images = typical.few_images;
  small.extents = typical.small_extents;
  std::vector<double> us;
  for (const ConvAlgorithm& a : algorithms)
    us.push_back(a.tile == 0 ? direct_us(small, Layout::blocked, target, model)
                             : winograd_us(small, a.tile, target, model));
  const double least = *std::min_element(us.begin(), us.end());
  double least_typically = algorithms[0].us;
  for (const ConvAlgorithm& a : algorithms)
    least_typically = std::min(least_typically, a.us);
  std::vector<ConvAlgorithm> losses = algorithms;
  for (size_t i = 0; i < losses.size(); ++i)
    losses[i].us = std::max(losses[i].us / least_typically, us[i] / least);
  return best_algorithm(losses);
}

}  // namespace

int64_t choose_tile(const ConvProblem& problem, const Node& node, const tensor::Target& target, int64_t model_weight_bytes,
                    const AlgorithmChoices& choices) {
  const std::vector<ConvAlgorithm> all = conv_algorithms(problem, target, model_weight_bytes);
  std::vector<Algorithm> named;
  for (const ConvAlgorithm& a : all) named.push_back({a.tile == 0 ? "direct" : text("winograd_", a.tile), a.us});
  const bool is_for_all = problem.is_open && target.kind == tensor::TargetKind::cpu;
  const size_t best =
      is_for_all ? best_for_all_sizes(all, problem, target, model_weight_bytes) : best_algorithm(all);
  return all[choose_algorithm(to_text(problem), node, named, best, choices)].tile;
}

double convolution_us(const ConvProblem& problem, Layout layout, const tensor::Target& target,
                      int64_t model_weight_bytes, bool strict) {
  if (target.kind == tensor::TargetKind::cuda) return grid_laid_out_us(problem, layout, target.gpu);
  auto model = static_cast<double>(model_weight_bytes);
  if (is_in_words(problem, target)) return direct_us(problem, Layout::channels_last, target, model);
  // There are no grouped kernels with the channels last.
  if (problem.is_grouped() && layout == Layout::channels_last) layout = Layout::blocked;
  if (problem.is_grouped() && layout == Layout::blocked) {
    const int64_t merged = merged_groups(problem.group, problem.in_channels, problem.out_channels, target.lanes(32));
    if (merged == 0 || (merged > 1 && strict)) layout = Layout::plain;
  }
  if (layout != Layout::blocked || strict) return direct_us(problem, layout, target, model);
  const std::vector<ConvAlgorithm> algorithms = conv_algorithms(problem, target, model_weight_bytes);
  return algorithms[best_algorithm(algorithms)].us;
}

}  // namespace mcc::graph
