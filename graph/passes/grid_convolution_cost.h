// What convolutions are expected to cost on a GPU, by algorithm.
#pragma once

#include "graph/passes/convolution_cost.h"

namespace mcc::graph {

// Microseconds of a dense convolution in f32 as a matrix product whose operand is read from the image (implicit GEMM). As few tiles leave
// most multiprocessors without work, what counts is the time of the best tile of registers on all of them (tensor/product_time.h), its
// sum divided between blocks where that pays; weights come from the device's memory when the model's exceed the second-level cache.
double grid_direct_us(const ConvProblem& problem, const tensor::Gpu& gpu, int64_t model_weight_bytes);
// The same by Winograd's F(m x m, 3 x 3), where the problem has it: three launches, a product for each of (m+2)^2 positions between
// the transforms of input and result.
double grid_winograd_us(const ConvProblem& problem, int64_t m, const tensor::Gpu& gpu,
                        int64_t model_weight_bytes);

// Channels of an image that are fetched at once; fewer are filled up with zeros.
inline constexpr int64_t kImageChannels = 4;
// Microseconds of a convolution on tensor cores in a layout. Only what depends on that counts: blocks of a product fetch the
// image in vectors along the channels, or element by element, each with the arithmetic of its place in a window.
double grid_laid_out_us(const ConvProblem& problem, Layout layout, const tensor::Gpu& gpu);

}  // namespace mcc::graph
