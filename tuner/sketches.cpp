#include "tuner/sketches.h"

#include <algorithm>

namespace mcc::tuner {

using namespace tensor;

bool is_free(const Schedule& s, const BlockInfo& info) {
  std::vector<const For*> loops = s.loops_of(info.name);
  return loops.size() == info.axes.size() && std::all_of(loops.begin(), loops.end(), [](const For* loop) {
           return loop->loop == LoopKind::serial;
         });
}

std::string consumer_of(const Schedule& s, const BlockInfo& info) {
  std::vector<std::string> consumers = s.consumers(info.name);
  if (consumers.size() != 1 || is_output(s.func(), info.store.buffer)) return "";
  std::optional<BlockInfo> consumer = analyze(s, consumers[0]);
  return consumer && consumer->is_injective && consumer->spatial == info.spatial ? consumers[0] : "";
}

void vectorize_below(Draft& draft, const std::string& block, const std::string& host, int64_t lanes) {
  std::vector<std::string> loops = draft.schedule.loop_names_of(block);
  auto at = std::find(loops.begin(), loops.end(), host);
  if (at != loops.end()) loops.erase(loops.begin(), at + 1);
  int64_t extent = 0;
  if (loops.empty() || !as_int(draft.schedule.find_loop(loops.back())->extent, &extent) || extent < 2) return;
  std::string lane = loops.back();
  if (extent > lanes) {
    lane += ".lane";
    if (!try_step(draft, Split{loops.back(), {0, lanes}, {loops.back() + ".vec", lane}})) return;
  }
  try_step(draft, Vectorize{lane});
}

}  // namespace mcc::tuner
