// Recurrences along lines that stand in memory (CumSum of the last axis): a line has to be gone through in order, but not step by step
// with all others. Some lines at a time, each of which waits for its own sum alone, so that processors have several sums in flight.
#include "tuner/rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr int64_t kLines = 8;

// A step that combines what the block has written one step before with what it reads: the only thing that stands in the scan's loop.
bool is_along_lines(const Schedule& s, const BlockInfo& info) {
  const Block* block = s.find_block(info.name);
  const std::vector<const For*> loops = s.loops_of(info.name);
  if (block->axes.empty() || block->axes[0].kind != AxisKind::scan || block->init || info.axes.empty()) return false;
  if (loops.size() != info.axes.size() + 1 || info.is_reduction) return false;
  for (size_t i = 0; i + 1 < loops.size(); ++i)
    if (loops[i]->loop != LoopKind::serial || loops[i]->body.as<For>() != loops[i + 1]) return false;
  return loops.back()->loop == LoopKind::serial && info.store.strides.back() != 1;
}

}  // namespace

bool schedule_lines(Draft& draft, const std::string& name) {
  const std::optional<BlockInfo> info = analyze(draft.schedule, name);
  if (!info || !is_along_lines(draft.schedule, *info)) return false;
  const std::vector<std::string> loops = draft.schedule.loop_names_of(name);
  const auto* scan = draft.schedule.find_loop(loops[0]);
  int64_t steps = 1;
  as_int(scan->extent, &steps);
  return try_all(draft, {"recurrences along lines", name}, [&] {
    std::vector<std::string> outer(loops.begin() + 1, loops.end());
    const std::string line = loops.back() + ".line";
    const int64_t lines = std::min(kLines, info->axes.back().extent);
    if (lines > 1) {
      must_step(draft, Split{loops.back(), {0, lines}, {loops.back() + ".lines", line}});
      outer.back() += ".lines";
    }
    std::vector<std::string> order = outer;
    order.push_back(loops[0]);
    if (lines > 1) order.push_back(line);
    must_step(draft, Reorder{order});
    if (lines > 1) must_step(draft, Unroll{line});
    const double count = static_cast<double>(info->spatial) * static_cast<double>(steps);
    if (!choose_parallel(draft, name, estimate_us(count, count * 8, draft.target))) return true;
    const std::string places = name + ".place";
    if (outer.size() > 1) must_step(draft, Fuse{outer, places});
    must_step(draft, Parallel{outer.size() > 1 ? places : outer[0]});
    return true;
  });
}

}  // namespace mcc::tuner
