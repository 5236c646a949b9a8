// Which algorithms a tuning log has chosen for a model's operators.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nlohmann/json_fwd.hpp"
#include "tensor/target.h"
#include "tuner/log.h"

namespace mcc::tools {

// By problem, as graph::AlgorithmChoices has them: of the first target with as many threads as its cores for which the log has one.
std::map<std::string, std::string> logged_algorithms(const tuner::LogContents& log, const std::vector<tensor::Target>& targets);

// "3x3 of 64 channels to 64, 56x56: winograd_4 (12.1 us; direct 20.3 us)"
std::string choice_text(const tuner::LogChoice& choice);
nlohmann::ordered_json choices_json(const std::vector<tuner::LogChoice>& choices);

}  // namespace mcc::tools
