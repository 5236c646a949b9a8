// Operators that take activations of convolutions as these lie in memory, and leave their results so.
#pragma once

#include "graph/passes/layout_forms.h"

namespace mcc::graph {

// Emits the node's work on operands in their layout, where it can follow one. False, with nothing done, where none of them is laid
// out, or the operator wants another form. With `strict` sums keep their form.
bool follow_layout(Graph& graph, NodeId id, LayoutForms& forms, const tensor::Target& target, bool strict);

}  // namespace mcc::graph
