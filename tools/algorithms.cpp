#include "tools/algorithms.h"

#include "nlohmann/json.hpp"
#include "support/text.h"
#include "tools/tune_display.h"

namespace mcc::tools {

namespace {

constexpr int64_t kTiles[] = {0, 2, 4};

}  // namespace

std::string algorithm_name(int64_t tile) { return tile == 0 ? "direct" : text("winograd_", tile); }

std::optional<int64_t> algorithm_of_name(std::string_view name) {
  for (int64_t tile : kTiles) {
    if (algorithm_name(tile) == name) return tile;
  }
  return std::nullopt;
}

std::map<std::string, int64_t> logged_algorithms(const tuner::LogContents& log, const std::vector<tensor::Target>& targets) {
  std::map<std::string, int64_t> out;
  for (const tensor::Target& target : targets) {
    const std::string fingerprint = target.fingerprint();
    for (const tuner::LogChoice& choice : log.choices) {
      if (choice.device.target != fingerprint || choice.threads != target.cores) continue;
      if (std::optional<int64_t> tile = algorithm_of_name(choice.algorithm)) out.try_emplace(choice.problem, *tile);
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
