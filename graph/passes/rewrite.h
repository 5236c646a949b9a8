// Building blocks of graph passes.
#pragma once

#include <string>

#include "graph/op.h"

namespace mcc::graph {

// Appends a node of the operator, with output types from its own infer(). That the operator accepts these inputs is the
// pass's business: a refusal here is a broken invariant. Returns the first output.
ValueId emit(Graph& graph, std::string_view domain, std::string_view op, std::string name,
             std::vector<ValueId> inputs, Attributes attributes = {}, int num_outputs = 1);

// The value in another float type: mcc.Narrow, or the value itself where it has that type.
ValueId converted(Graph& graph, const std::string& name, ValueId v, ElementType to);

// What is known from sizes, as a value: a vector, or, of rank 0, the one element.
ValueId known_elements(Graph& graph, const std::string& name, ElementType type,
                       const std::vector<Expr>& elements, int rank = 1);

// The value's elements in another shape, which may have open dimensions. 0 is a dimension without elements, -1 what is left.
ValueId reshaped(Graph& graph, const std::string& name, ValueId v, Shape shape);
ValueId reshaped(Graph& graph, const std::string& name, ValueId v, const std::vector<int64_t>& dims);

// The single live node that uses the value, or -1 when there are none, several, or it is a graph output.
NodeId single_user(const Graph& graph, const std::vector<std::vector<NodeId>>& users, ValueId value);

// The value of a constant of one element, or of one whose elements are all equal.
std::optional<double> uniform_value(const Graph& graph, ValueId value);

bool is_op(const Node& node, std::string_view name);

// The first of the node's results that is not left out, as that of an RNN may be.
ValueId first_result(const Node& node);

// How many of the inputs, from the first on, hold what the operator only moves or chooses among: every element of its results is one
// of theirs, or 0, and the same one after a conversion that keeps their order. 0 for other operators.
size_t moved_inputs(const Node& node);

// Whether the padding of a node's windows is given as numbers, or there is none.
bool is_explicit(const Node& node);

// The first so many elements of each row.
ValueId first_columns(Graph& graph, const std::string& name, ValueId v, int64_t columns);

// The fresh value `with` becomes `old`: its node makes `old` from now on, name, uses and all.
void take_place(Graph& graph, ValueId old, ValueId with);

// Of a Transpose: the axes of its input in the order in which its output has them.
std::vector<int64_t> permutation_of(const Graph& graph, const Node& node);

// For each value, whether it is a constant or computed from constants alone.
std::vector<bool> known_values(const Graph& graph);

// The node also stands for what the other one comes from.
void add_origins(Node& node, const Node& of);

// Marks the node dead and moves its origins to another node.
void absorb(Graph& graph, NodeId dead, NodeId into);

}  // namespace mcc::graph
