#include "tuner/trial.h"

#include <algorithm>
#include <limits>

namespace mcc::tuner {

namespace {
constexpr std::string_view kNames[] = {"none", "refused", "rejected", "build", "crash", "timeout", "wrong"};
}

std::string_view to_text(TrialError error) { return kNames[static_cast<size_t>(error)]; }

std::optional<TrialError> parse_trial_error(std::string_view text) {
  const auto* at = std::find(std::begin(kNames), std::end(kNames), text);
  if (at == std::end(kNames)) return std::nullopt;
  return static_cast<TrialError>(at - std::begin(kNames));
}

double Measurement::best_us() const {
  double best = std::numeric_limits<double>::infinity();
  for (double t : times_us)
    best = std::min(best, t);
  return best;
}

}  // namespace mcc::tuner
