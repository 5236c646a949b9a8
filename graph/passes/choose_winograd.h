// Which 3x3 convolutions of stride 1 run by Winograd's algorithm (graph/ops/mcc_winograd.cpp).
#pragma once

#include "graph/graph.h"
#include "tensor/target.h"

namespace mcc::graph {

struct ConvProblem {
  int64_t images, in_channels, out_channels;  // blocks' padding included
  int64_t height, width;                      // of the result
};

// Bytes of all constants that live nodes read: what a run of the model fetches at least once.
int64_t weight_bytes(const Graph& graph);

// Side m of the output tiles of F(m x m, 3 x 3), 2 or 4, or 0 where direct convolution takes less time by this model:
// multiplications at the machine's peak, weights at the bandwidth of where they come from (memory when the model's weights
// exceed the caches), and the transforms. Errors of F(4 x 4) are some 1e-5 of the output's range, of F(2 x 2) some 1e-6
// (f32, up to 512 channels).
int64_t choose_winograd_tile(const ConvProblem& problem, const tensor::Target& target,
                             int64_t model_weight_bytes);

}  // namespace mcc::graph
