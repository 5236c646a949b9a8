// Models that are linked into a program: the names that they have there, and their C++ headers.
#pragma once

#include <map>
#include <string>

#include "graph/graph.h"

namespace mcc::tools {

// What a file is called, as a C++ identifier: "out/resnet-50.o" -> "resnet_50".
std::string model_identifier(const std::string& path);
// The one symbol of such a model.
std::string model_symbol(const std::string& identifier);

// A header with a class in the namespace mcc_models, named like the model with a capital (`Resnet_50`): model and session in one, with typed functions for each input and output.
// Where shapes of these are open, inputs take a shape or the sizes of the open dimensions, by their names; outputs have functions for their shapes, and for memory of the caller's.
// Says the provenance; no path, no time.
std::string model_header(const std::string& identifier, const graph::Graph& graph,
                         const std::map<std::string, std::string>& metadata);

}  // namespace mcc::tools
