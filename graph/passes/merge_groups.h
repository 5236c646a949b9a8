// Convolutions in groups of few channels, as convolutions in fewer and wider groups.
#pragma once

#include <string>

#include "graph/graph.h"

namespace mcc::graph {

// How many neighbouring groups become one, so that a group's channels are whole vectors; 1 where they are already, 0 where
// there are too many products with zeros, which the merged groups have between them.
int64_t merged_groups(int64_t groups, int64_t in_channels, int64_t out_channels, int64_t lanes);

// The same for the tensor cores of a GPU, whose tiles need some columns and fetch eight channels at once.
int64_t grid_merged_groups(int64_t groups, int64_t in_channels, int64_t out_channels);

// The same for dot products of bytes: a group's results are whole vectors, its channels whole words. The last one may be filled up with others.
int64_t merged_groups_of_words(int64_t groups, int64_t in_channels, int64_t out_channels, int64_t lanes,
                               int64_t word);

// The weights [K, C, k...] of a convolution in groups with `merged` groups beside one another: [K, merged C, k...], 0 where an
// input is another group's. The last ones are filled up with groups of zeros, so that K may grow.
ValueId merge_groups(Graph& graph, const std::string& name, ValueId weights, int64_t groups, int64_t merged);

}  // namespace mcc::graph
