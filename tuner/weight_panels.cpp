#include "tuner/weight_panels.h"

#include <optional>

#include "support/text.h"
#include "tensor/visit.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

bool is_multiple(const Expr& extent, int64_t n) {
  int64_t value = 0;
  return as_int(extent, &value) && value % n == 0;
}

// The dimension of the weights, other than the last, that leads from panel to panel.
std::optional<size_t> panel_dimension(const Schedule& schedule, const BlockInfo& info, const Access& w, int axis) {
  const Block* block = schedule.find_block(info.name);
  if (block->axes.size() != info.axes.size()) return std::nullopt;  // steps of a scan
  const Var& along = block->axes[static_cast<size_t>(axis)].var;
  std::optional<size_t> found;
  for (const Region& read : block->reads) {
    if (!read.buffer.same_as(w.buffer)) continue;
    for (size_t d = 0; d + 1 < read.ranges.size(); ++d) {
      if (!uses_var(read.ranges[d].min, along)) continue;
      if (found && *found != d) return std::nullopt;
      found = d;
    }
  }
  return found;
}

}  // namespace

void store_in_panels(Draft& draft, const BlockInfo& info, const Access& weights, int axis, int64_t have,
                     int64_t width) {
  const bool joins = width > have;
  if (width == have || (joins ? width % have : have % width) != 0) return;
  const int64_t n = joins ? width / have : width;
  std::optional<size_t> panel = panel_dimension(draft.schedule, info, weights, axis);
  const size_t last = weights.buffer.shape().size() - 1;
  if (!panel || (joins && !is_multiple(weights.buffer.shape()[*panel], n))) return;
  if (draft.decide.choose(info.name + ".weights", {0, 1}, 0) == 0) return;
  std::vector<std::string> from, to;
  for (size_t d = 0; d <= last; ++d) from.push_back(text("i", d));
  to = from;
  const std::string inner = from[joins ? *panel : last];
  to[joins ? *panel : last] = text(inner, joins ? " // " : " %% ", n);
  if (joins) {
    to.insert(to.begin() + static_cast<std::ptrdiff_t>(last), text(inner, " %% ", n));
  } else {
    to.insert(to.begin() + static_cast<std::ptrdiff_t>(*panel) + 1, text(inner, " // ", n));
  }
  try_step(draft, TransformLayout{weights.buffer.name(), text("(", join(from, ", "), ") -> (", join(to, ", "), ")")});
}

}  // namespace mcc::tuner
