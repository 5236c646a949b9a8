// Constant operands of matrix products in the order in which kernels read them.
#pragma once

#include "graph/graph.h"
#include "tensor/target.h"

namespace mcc::graph {

// Columns of a packed matrix that lie side by side: as wide as the register tile.
int64_t panel_width(int64_t columns, const tensor::Target& target);
// The same where so many rows are known to meet the matrix, which has `depth` rows itself. 0: any number of rows.
int64_t panel_width(int64_t columns, int64_t depth, int64_t rows, const tensor::Target& target);

// How many elements of weights, and of what they are multiplied with, the target takes together (tensor/instructions.h); 1: it does not.
int64_t word_of(ElementType element, const tensor::Target& target);
// As panel_width, of weights in words: in whole vectors, as the instruction takes them. left: the type of what they are multiplied with.
int64_t word_panel_width(int64_t columns, ElementType left, const tensor::Target& target);

// Whether the words of a convolution's channels, so many, are one axis with the taps of a row of its window, whose neighbours are
// neighbours in memory: tiles have fewer steps along it then.
bool joins_row(int64_t words, const std::vector<int64_t>& kernel, const std::vector<int64_t>& dilations, ElementType left,
               const tensor::Target& target);

// How many words of channels a convolution's weights have once zeros fill them up: a few more than `words` where tiles have much fewer steps
// along them then, as where no tile's depth divides them.
int64_t filled_words(int64_t words, const std::vector<int64_t>& kernel, const std::vector<int64_t>& dilations,
                     ElementType left, const tensor::Target& target);

// A MatMul, Gemm or recurrent layer with constant weights becomes one that reads them packed; whatever else stays as it is.
void pack_product(Graph& graph, NodeId id, const tensor::Target& target);

}  // namespace mcc::graph
