#include "tuner/trial.h"

#include <algorithm>
#include <limits>

#include "tensor/sizes.h"

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

std::vector<int64_t> measured_sizes(const Task& task) {
  std::vector<std::vector<int64_t>> samples = tensor::samples_of(task.func);
  return samples.empty() ? std::vector<int64_t>() : std::move(samples[0]);
}

double Measurement::best_us() const {
  double best = std::numeric_limits<double>::infinity();
  for (double t : times_us)
    best = std::min(best, t);
  return best;
}

double Measurement::median_us() const {
  if (times_us.empty()) return std::numeric_limits<double>::infinity();
  std::vector<double> times = times_us;
  auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

void Measurer::begin(const Task& task, std::span<const Candidate> candidates, const MeasureOptions& options) {
  begun_.push_back({&task, candidates, options});
}

Result<std::vector<Measurement>> Measurer::finish() {
  MCC_CHECK(!begun_.empty(), "nothing has been begun");
  const Begun first = begun_.front();
  begun_.pop_front();
  return measure(*first.task, first.candidates, first.options);
}

}  // namespace mcc::tuner
