// The graph passes. Each is a free function in a file of its own name; pipeline.cpp has their order.
//
// All passes keep the graph's meaning (up to rounding where said), leave nodes in topological order, and keep every
// ONNX node's name in the origins of what it became.
#pragma once

#include "graph/fold.h"
#include "graph/graph.h"
#include "graph/passes/algorithm_choices.h"
#include "tensor/target.h"

namespace mcc::graph {

// Nodes whose inputs are all constants are computed now. Evaluation errors are reported by node. keeps_quantized: operators that
// are folded late (graph/op.h) stay. What exceeds the budget is left to run time.
Status fold_constants(Graph& graph, const Evaluator& evaluate, FoldBudget& budget,
                      bool keeps_quantized = false);

// Products with matrices that Gather picks out of constant ones by data read these where they lie. Exact.
void select_matrices(Graph& graph);

// Rows that each select a matrix (mcc.SelectedMatMul), more of them than matrices, are multiplied in tiles by the matrix. Exact.
void tile_selected_rows(Graph& graph, const tensor::Target& target);

// What only moves elements, or chooses among them, does so in integers: DequantizeLinear goes behind it where that profits who reads
// it, QuantizeLinear before it. Exact.
void move_quantization(Graph& graph);

// Products and convolutions of 8-bit integers with constant weights, ONNX's own and those of what is dequantised before them,
// become dot products of bytes where the target has an instruction for them, with what rounds and saturates behind them
// (QuantizeLinear) as an epilogue. A result that is quantised may differ by one step, as it is rounded once. Without VNNI a convolution
// of what is dequantised stays in f32 where Winograd's algorithm is expected to be faster, unless strict.
void use_byte_products(Graph& graph, const tensor::Target& target, bool strict);

// QLinearMatMul and QLinearConv that are left become products of f32 between DequantizeLinear and QuantizeLinear. Sums are exact up to
// 2^24; scales are put together in another order, so that a result may differ by one step.
void use_real_products(Graph& graph);

// On CPUs large constant weights of 2, 4 or 8 bits that MatMul reads dequantised keep their bits in memory. Unless strict, what may be
// rounded to bytes (mcc.MayRound) is, where there are dot products of bytes.
void use_nbits_products(Graph& graph, const tensor::Target& target, bool strict);

// Unused nodes go; equal nodes with equal inputs are shared, equal small constants too.
void eliminate_dead_code(Graph& graph);
void eliminate_common_subexpressions(Graph& graph);

// x*1, x+0, casts to the same type, Identity, Dropout, chains of reshapes and transposes, reshape to the same
// shape, ...: the rows are in the file.
void simplify_algebra(Graph& graph);

// On CPUs, models of 16-bit floats that multiply matrices are computed in f32 between their inputs and outputs, without the
// roundings in between (unless lower_precision gives products operands of their own type back, for which the target has
// instructions). Weights that are fetched for few rows stay as they are where that is expected to be faster. On GPUs so are models that
// quantise 16-bit floats.
void widen_halves(Graph& graph, const tensor::Target& target);
// Whether the graph quantises 16-bit floats that it computes.
bool quantizes_halves(const Graph& graph);

// Normalisations of groups of channels, GroupNormalization or InstanceNormalization between reshapes, and what is elementwise behind
// them, on tensors whose groups have an axis of their own.
void split_channel_groups(Graph& graph);

// BatchNormalization after a convolution goes into its weights and bias; elsewhere it becomes a multiplication and an
// addition. A multiplication or addition by a channel constant after a convolution folds in too. Rounding may change.
void fold_scales(Graph& graph);

// On GPUs, products of one value with several constant matrices, none of which fills the GPU (with typical sizes, where rows are open),
// become one product, and its parts.
void merge_products(Graph& graph, const tensor::Target& target);

// The products around a softmax along rows (attention: scores, scale and masks, softmax, product with the values), in f32 (on GPUs in 16 bits too)
// and of static shapes, become mcc.Attention (graph/ops/mcc_attention.cpp). On GPUs with tensor cores also with an open batch and open
// numbers of queries and keys, where operands have 16 bits, or get them (precision: what lower_precision is going to give them).
// Rounding may change; what is not a number in the graph (a row that is masked with -inf throughout) is not a number in the operator.
void fuse_attention(Graph& graph, const tensor::Target& target, ElementType precision);

// On CPUs, GridSample and RoiAlign of many channels work with the channels last, between transpositions; those of few by tables.
void lay_out_samples(Graph& graph, const tensor::Target& target);

// Transpositions move towards the outputs, through operators that do not care for the order of axes and poolings, where that makes
// them cancel. The graph stays as it is where they would not move fewer bytes. Rounding of means of windows may change.
void sink_transposes(Graph& graph);

// Reshapes of the results of products and poolings move below what is elementwise, which then joins their kernels; those in front of
// poolings move above conversions to a wider type.
void sink_reshapes(Graph& graph);

// The channels that a DepthToSpace interleaves in mode CRD get the order of mode DCR, where a convolution with constant weights makes
// them, for nobody else.
void order_interleaved_channels(Graph& graph);

// Transposed convolutions with constant weights become convolutions, with strides such whose results are interleaved.
void split_conv_transpose(Graph& graph);

// Convolutions of CPUs with a dilation become such without one, of the images that have every so manyth line and column, where Winograd's
// algorithm makes up for laying these out. Rounding may change.
void split_dilations(Graph& graph, const tensor::Target& target);

// Einsum of many operands becomes several of two; some of two become MatMul: those with constant weights, around a softmax, or whose
// last label both operands have. Rounding may change.
void expand_einsums(Graph& graph);

// Fourier transforms (DFT, STFT) in f32 of static length become products with a constant matrix.
void expand_fourier(Graph& graph);

// Convolutions and poolings without the taps of their windows that never meet the input.
void trim_windows(Graph& graph);

// On GPUs, ScatterND at constant positions that fill a box of the data becomes a concatenation, of which each result has a thread.
void place_updates(Graph& graph, const tensor::Target& target);

// Gives the operands of matrix products, convolutions and attention a narrower float type: f16, bf16, or tf32 (which convolutions in
// narrow groups do without). They sum in f32; everything else stays as it is, inputs and outputs of the model too, but what is
// elementwise, and means of windows, read a narrow copy that is there. On CPUs only what they multiply in words of that type
// (graph/passes/pack_products.h): with constant weights, and attention. f32: nothing changes.
void lower_precision(Graph& graph, ElementType type, const tensor::Target& target);

// On GPUs, attention with many keys computes so many parts of them by themselves as are expected, or known, to be fastest (attribute
// parts of mcc.Attention). Rounding changes.
void divide_attention(Graph& graph, const tensor::Target& target, const AlgorithmChoices& choices);

// On CPUs that multiply words of the type of an attention's factors, it takes them in words, filled up to whole tiles (attribute words of
// mcc.Attention). Rounding changes.
void pack_attention(Graph& graph, const tensor::Target& target);

// TopK finds its picks by a tournament of groups of elements (attribute group) on CPUs. On GPUs by the rank of each element, in the whole row
// (attribute by_rank) or first in parts of it (part, gap), instead of one pick after the other where that is expected, or known, to be faster.
void rank_elements(Graph& graph, const tensor::Target& target, const AlgorithmChoices& choices);

// On GPUs, CumSum and CumProd of long lines go by parts of these where that is expected, or known, to be faster (attribute part). Rounding
// changes, unless `strict` keeps floats out.
void divide_scans(Graph& graph, const tensor::Target& target, bool strict, const AlgorithmChoices& choices);

// On GPUs, operators that find elements (mcc.SetPositions, mcc.SelectBoxes, mcc.Unique) do so in parts (attribute in_parts).
void find_in_parts(Graph& graph, const tensor::Target& target);

// What is computed of single bytes, up to others, becomes tables (mcc.LookUp), on CPUs.
void tabulate_bytes(Graph& graph, const tensor::Target& target);

// What interpolations compute of sizes alone are operators of their own (mcc.ResizeTable), to be folded.
void tabulate_resizes(Graph& graph);

// On GPUs, convolutions that multiply in f32 go by Winograd's algorithm where that is expected to be faster
// (graph/passes/grid_convolution_cost.h), or known to be. Rounding changes.
void use_winograd(Graph& graph, const tensor::Target& target, const AlgorithmChoices& choices);

// Chooses for every convolution how its activations lie in memory, plain, blocked by the target's vector length or with the
// channels last, by expected cost (graph/passes/convolution_cost.h), and rewrites the graph to that; constant operands of
// matrix products and convolutions are packed as the kernels read them. Convolutions go by Winograd's algorithm where that
// is expected to be faster, or known to be, unless strict. GPUs: channels last around convolutions on tensor cores, else plain.
void choose_layouts(Graph& graph, const tensor::Target& target, bool strict, const AlgorithmChoices& choices);

// Where the target multiplies and adds in one rounding, QuantizeLinear by one constant scale multiplies instead of dividing, if that
// gives the same integers for every float.
void quantize_by_products(Graph& graph, const tensor::Target& target);

// On CPUs, and of open sizes on GPUs, products whose right operand is repeated for groups of their batch (keys and values for several heads of queries) read it once for
// each group, whose rows are the group's.
void group_heads(Graph& graph, const tensor::Target& target);

// On CPUs, and of open sizes on GPUs, products of variables read operands that are transposed for them alone, or are parts or repetitions of others, where these lie
// (mcc.Product), and write their result in the order in which it is needed.
void view_operands(Graph& graph, const tensor::Target& target);

// On GPUs, parts of a tensor that one kernel each reads are cut out where that reads them, as far as they do not lie in one piece.
void separate_parts(Graph& graph, const tensor::Target& target);

// A conversion to a wider type that several kernels read is repeated for each of them, so that narrower tensors go to memory.
void repeat_conversions(Graph& graph, const tensor::Target& target);

// Nodes without origins, which a pass has made beside what it replaced, get those of the nodes that read them, else those of the nodes
// that they read: every kernel is found by the ONNX nodes that it runs for. Between all passes.
void name_origins(Graph& graph);

struct OptimizeOptions {
  tensor::Target target;
  Evaluator evaluate;
  int level = 2;  // 0: only what is needed to run
  // Of what is multiplied in products and convolutions. f32: on CPUs, if not strict, the type of all of the model's own products.
  ElementType precision = ElementType::f32;
  // No pass that adds or multiplies in another order, or rounds less: no scale folding, attention, Winograd, widening.
  bool strict = false;
  AlgorithmChoices algorithms;
  // Called after each pass with its name.
  std::function<void(const std::string& pass, const Graph& graph)> observer;
};

// All of the above in order, until kernels can be formed (graph/passes/fuse.h).
Status optimize(Graph& graph, const OptimizeOptions& options);

}  // namespace mcc::graph
