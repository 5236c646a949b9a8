// What models compute of shapes, where these have symbolic dimensions.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "graph/graph.h"

namespace mcc::graph {

// The elements of a node's results (one list for each output; empty for those left out), if all are integers that follow from
// constants and symbolic dimensions: Shape, and gathering, joining and arithmetic on what it gives. The node's compute definition is
// run with expressions in place of numbers. Output types must be set.
std::optional<std::vector<std::vector<Expr>>> elements_of(const Graph& graph, const Node& node);

// Those of one result as far as they follow from what `elements` gives for the node's inputs, where some may be undefined (all: an
// empty list) as some of the result may. Empty for nodes that take more than few integers.
std::vector<Expr> known_elements(const Graph& graph, const Node& node, size_t output,
                                 const std::function<std::vector<Expr>(ValueId)>& elements);

std::vector<Expr> elements_of_constant(const Constant& constant);  // of integers or truth values

// Gives the node's results, values of the graph, these elements; the node itself is not needed any more. Those that do depend on dimensions
// have a node that writes them to memory for whoever reads them there (mcc.Elements), the others become constants.
void set_elements(Graph& graph, const Node& of, const std::vector<std::vector<Expr>>& elements);

// The most elements that a tensor of this shape can have with the graph's dimensions; nothing if there is no bound.
std::optional<int64_t> largest_count(const Graph& graph, const Shape& shape);

// A size (bytes, elements) as it has to be planned for: the largest one as a number, or, where there is no bound, the expression itself.
Expr planned_size(const Graph& graph, const Expr& size);
// Of the value, in bytes.
Expr planned_bytes(const Graph& graph, ValueId value);

// The fewest elements that a tensor of this shape can have; nothing where these are more than 64 bits count.
std::optional<int64_t> least_count(const Graph& graph, const Shape& shape);

// Makes the typical sizes of dimensions large enough for every tensor to have elements (a spectrum's signal has to be as long as a
// window), and lengths without a bound (of inputs of up to three dimensions) for more than a few steps along them, where that is possible.
void raise_typical_sizes(Graph& graph);

// The same graph, values and nodes by their ids, with a size in place of each symbolic dimension that is neither small nor large for it:
// what costs are estimated for. Nothing where none is found for dimensions that data decides.
std::optional<Graph> typical_instance(const Graph& graph);
// The same where no numbers that were tried go together (branches that are for different sizes, say): nodes by themselves have sizes that
// they might have, the whole may be no graph.
Graph likely_instance(const Graph& graph);

}  // namespace mcc::graph
