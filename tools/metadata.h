// What a library says of its model beside the plan's own fields (mcc inspect, mcc_model_metadata).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "frontend/import.h"
#include "tools/kernels.h"

namespace mcc::tools {

using Metadata = std::map<std::string, std::string>;

// "output.NAME.keys" or "output.NAME.strings": what the numbers of an output stand for, as a JSON array.
void describe_labels(const std::map<std::string, frontend::OutputLabels>& labels, Metadata& metadata);

// "input.NAME.sequence": how many tensors it has, which are NAME[0], ...; "input.NAME.optional": "given" or "none", where there is nothing of
// that name. So for outputs.
void describe_containers(const char* word, const std::map<std::string, frontend::Container>& containers,
                         Metadata& metadata);

// "output.NAME.in_place": the input whose memory the output may be in.
void describe_memory(const graph::Graph& graph, const std::vector<graph::KernelGroup>& groups,
                     const KernelSet& kernels, Metadata& metadata);

// "strings": what of its inputs the model knows, as a JSON array, for people and for made up inputs.
void describe_strings(const graph::Graph& graph, Metadata& metadata);

}  // namespace mcc::tools
