// Recurrent layers by dot products of bytes: a part of use_byte_products.
#pragma once

#include "graph/graph.h"
#include "tensor/target.h"

namespace mcc::graph {

// On CPUs with dot products of bytes.
void use_byte_layers(Graph& graph, const tensor::Target& target);

}  // namespace mcc::graph
