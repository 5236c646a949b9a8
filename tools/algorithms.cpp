#include "tools/algorithms.h"

#include "nlohmann/json.hpp"
#include "support/text.h"
#include "tools/tune_display.h"

namespace mcc::tools {

std::map<std::string, std::string> logged_algorithms(const tuner::LogContents& log, const std::vector<tensor::Target>& targets) {
  std::map<std::string, std::string> out;
  for (const tensor::Target& target : targets) {
    const std::string fingerprint = target.fingerprint();
    for (const tuner::LogChoice& choice : log.choices) {
      if (choice.device.target == fingerprint && choice.threads == target.cores) out.try_emplace(choice.problem, choice.algorithm);
    }
  }
  return out;
}

std::string choice_text(const tuner::LogChoice& choice) {
  std::vector<std::string> others;
  for (const auto& [algorithm, us] : choice.us) {
    if (algorithm != choice.algorithm) others.push_back(text(algorithm, " ", time_text(us)));
  }
  auto own = choice.us.find(choice.algorithm);
  const std::string time = own == choice.us.end() ? "" : time_text(own->second);
  return text(choice.problem, ": ", choice.algorithm, " (", time, others.empty() ? "" : "; ", join(others, ", "), ")");
}

nlohmann::ordered_json choices_json(const std::vector<tuner::LogChoice>& choices) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const tuner::LogChoice& choice : choices) {
    nlohmann::ordered_json us = nlohmann::ordered_json::object();
    for (const auto& [algorithm, time] : choice.us) us[algorithm] = time;
    list.push_back({{"problem", choice.problem},
                    {"target", choice.device.target},
                    {"threads", choice.threads},
                    {"algorithm", choice.algorithm},
                    {"us", std::move(us)}});
  }
  return list;
}

}  // namespace mcc::tools
