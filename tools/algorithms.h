// Which algorithms a tuning log has chosen for a model's convolutions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json_fwd.hpp"
#include "tensor/target.h"
#include "tuner/log.h"

namespace mcc::tools {

// The names of the log: "direct", "winograd_2", "winograd_4"; the numbers of graph::AlgorithmCost.
std::string algorithm_name(int64_t tile);
std::optional<int64_t> algorithm_of_name(std::string_view name);

// By problem, as graph::AlgorithmChoices has them: of the first target with as many threads as its cores for which the log has
// one. Algorithms of unknown names (a newer mcc's) are none.
std::map<std::string, int64_t> logged_algorithms(const tuner::LogContents& log, const std::vector<tensor::Target>& targets);

// "3x3 of 64 channels to 64, 56x56: winograd_4 (12.1 us; direct 20.3 us)"
std::string choice_text(const tuner::LogChoice& choice);
nlohmann::ordered_json choices_json(const std::vector<tuner::LogChoice>& choices);

}  // namespace mcc::tools
