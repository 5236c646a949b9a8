#include "tuner/decider.h"

#include <algorithm>

#include "support/check.h"
#include "support/text.h"

namespace mcc::tuner {

bool Choice::allows(const Answer& answer) const {
  if (kind == Kind::category) {
    return answer.size() == 1 && std::find(options.begin(), options.end(), answer[0]) != options.end();
  }
  if (answer.size() != static_cast<size_t>(levels) || answer.back() > max_inner) return false;
  int64_t left = extent;
  for (int64_t factor : answer) {
    if (factor < 1 || left % factor != 0) return false;
    left /= factor;
  }
  return left == 1;
}

Answer Decider::ask(const Choice& choice, const Answer& preferred) {
  Answer given = answer(choice, preferred);
  MCC_CHECK(choice.allows(given), "decision ", choice.name, ": got [", join(given, ", "),
            "], which is not offered");
  return given;
}

int64_t Decider::choose(const std::string& name, std::vector<int64_t> options, int64_t preferred) {
  Choice choice;
  choice.name = name;
  choice.options = std::move(options);
  return ask(choice, {preferred})[0];
}

std::vector<int64_t> Decider::tile(const std::string& name, int64_t extent, int64_t levels, int64_t max_inner,
                                   const std::vector<int64_t>& preferred) {
  Choice choice;
  choice.name = name;
  choice.kind = Choice::Kind::tile;
  choice.extent = extent;
  choice.levels = levels;
  choice.max_inner = max_inner;
  return ask(choice, preferred);
}

Answer PreferredDecider::answer(const Choice&, const Answer& preferred) { return preferred; }

}  // namespace mcc::tuner
