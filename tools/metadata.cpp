#include "tools/metadata.h"

#include <algorithm>

#include "nlohmann/json.hpp"

namespace mcc::tools {

void describe_labels(const std::map<std::string, frontend::OutputLabels>& labels, Metadata& metadata) {
  for (const auto& [output, of_output] : labels) {
    const char* word = of_output.kind == frontend::OutputLabels::Kind::keys ? ".keys" : ".strings";
    const nlohmann::json list =
        std::visit([](const auto& values) { return nlohmann::json(values); }, of_output.list);
    // Strings of a model need not be UTF-8.
    metadata["output." + output + word] = list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
}

void describe_containers(const char* word, const std::map<std::string, frontend::Container>& containers,
                         Metadata& metadata) {
  for (const auto& [name, container] : containers) {
    const std::string key = text(word, ".", name);
    if (container.length) metadata[key + ".sequence"] = text(*container.length);
    if (container.is_optional) metadata[key + ".optional"] = container.holds ? "given" : "none";
  }
}

void describe_memory(const graph::Graph& graph, const std::vector<graph::KernelGroup>& groups,
                     const KernelSet& kernels, Metadata& metadata) {
  for (size_t i = 0; i < groups.size(); ++i) {
    if (kernels.of_group[i] < 0) continue;
    const Kernel& kernel = kernels.kernels[static_cast<size_t>(kernels.of_group[i])];
    if (const std::optional<SharedMemory> shared = shared_memory(kernel, groups[i]))
      metadata["output." + graph.value(shared->output).name + ".in_place"] = graph.value(shared->input).name;
  }
}

void describe_strings(const graph::Graph& graph, Metadata& metadata) {
  constexpr size_t kMost = 1000;
  const bool has_inputs = std::any_of(graph.inputs.begin(), graph.inputs.end(), [&](graph::ValueId v) {
    return graph.value(v).type.element == ElementType::string;
  });
  if (!has_inputs || graph.texts.empty()) return;
  const size_t count = std::min(kMost, graph.texts.size());
  const nlohmann::json list =
      std::vector<std::string>(graph.texts.begin(), graph.texts.begin() + static_cast<std::ptrdiff_t>(count));
  metadata["strings"] = list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace mcc::tools
