// What convolutions are expected to cost, by layout and algorithm, and products with weights.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/passes/algorithm_choices.h"
#include "graph/passes/apply_layouts.h"
#include "tensor/target.h"

namespace mcc::graph {

struct ConvProblem {
  int64_t images = 1, in_channels = 1, out_channels = 1;
  int64_t group = 1;
  ElementType element = ElementType::f32;  // of both operands; of the input where they differ
  std::vector<int64_t> extents = {1, 1};  // of the result: height and width, behind a depth where there is one
  std::vector<int64_t> kernel = {1, 1}, strides = {1, 1}, dilations = {1, 1};  // along the same axes
  // Of what is computed for all sizes images and extents are typical ones, and these small ones; else they are the same.
  int64_t few_images = 1;
  std::vector<int64_t> small_extents = {1, 1};
  bool is_open = false;

  int64_t places() const;  // of a channel of the result, in all images
  int64_t taps() const;    // of the window
  bool is_depthwise() const { return group > 1 && group == in_channels && group == out_channels; }
  bool is_grouped() const { return group > 1 && !is_depthwise(); }
};

// Of an operator in the role of a convolution (LayoutRole), in one dimension to three; nothing for others, and where there are no sizes.
// typical: the same graph with sizes in place of symbolic dimensions, null where it has none.
std::optional<ConvProblem> conv_problem(const Graph& graph, const Node& node, const Graph* typical = nullptr);
// Whether a CPU multiplies the operands in words (graph/passes/pack_products.h); their channels are last then.
bool is_in_words(const ConvProblem& problem, const tensor::Target& target);
// "3x3 of 64 channels to 128, 56x56", with images, strides, dilations and groups where they are not 1, and that it is for all sizes where it is: different for different ones.
std::string to_text(const ConvProblem& problem);

// Winograd's algorithm is there for windows of 3 x 3 of stride 1 over neighbours, not in groups.
inline constexpr int64_t kWinogradTaps = 3;
bool has_winograd(const ConvProblem& problem);

// [N, C, L] as [N, C, 1, L], more dimensions as they are.
std::vector<int64_t> as_image(std::vector<int64_t> dims);
// The numbers of a window over two spatial axes or three; a single one is over columns.
std::vector<int64_t> along_rows(std::vector<int64_t> window);
// What a convolution or a pooling says along each spatial axis of its result as an image; 1 where it says nothing.
std::vector<int64_t> window_numbers(const Graph& graph, const Node& node, const std::string& attribute);
// The explicit padding (top, left, bottom, right; of a volume three numbers before and three behind) of a window, whatever auto_pad says.
std::vector<int64_t> explicit_padding(const Graph& graph, const Node& node, const std::vector<int64_t>& kernel,
                                      const std::vector<int64_t>& strides, const std::vector<int64_t>& dilations);

// The attributes that a pooling of an image or a volume has in its laid out form (graph/ops/mcc_pool.cpp).
Attributes laid_out_pooling(const Graph& graph, const Node& node);

// Bytes of all constants that live nodes read: what a run of the model fetches at least once.
int64_t weight_bytes(const Graph& graph);

// Microseconds of so many multiplications with weights of so many bytes, in f32 at the machine's peak, in a model whose weights have
// so many bytes.
double product_us(double multiplications, double weights, double model_weights, const tensor::Target& target);

// An algorithm that a convolution can take: Winograd's F(m x m, 3 x 3) with output tiles of side m, 2 or 4, or direct (0).
struct ConvAlgorithm {
  int64_t tile = 0;
  double us = 0;  // expected
};
// Those that a convolution in f32 can take, direct first; nothing else for other windows, strides, dilations, groups, and for
// results that would be mostly padding. Of CPUs on blocked activations: multiplications at the machine's peak, weights at the
// bandwidth of where they come from (memory when the model's weights exceed the caches), and the transforms. Errors of F(4 x 4) are
// some 1e-5 of the output's range, of F(2 x 2) some 1e-6 (f32, up to 512 channels).
std::vector<ConvAlgorithm> conv_algorithms(const ConvProblem& problem, const tensor::Target& target, int64_t model_weight_bytes);
// The fastest; direct where that is not slower by a tenth.
size_t best_algorithm(const std::vector<ConvAlgorithm>& algorithms);
// The tile of a convolution in f32 for which every algorithm is allowed, as it is expected to be fastest or chosen: "direct",
// "winograd_2", "winograd_4". For all sizes on a CPU: what loses least, typically or where there is little to do.
int64_t choose_tile(const ConvProblem& problem, const Node& node, const tensor::Target& target, int64_t model_weight_bytes,
                    const AlgorithmChoices& choices);

// Microseconds in a layout; blocked: by the better algorithm, direct only if strict.
double convolution_us(const ConvProblem& problem, Layout layout, const tensor::Target& target,
                      int64_t model_weight_bytes, bool strict);

}  // namespace mcc::graph
