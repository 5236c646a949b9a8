// Elementwise and data-moving blocks, and reductions that no other rule takes.
#include <algorithm>

#include "tuner/rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

// Elements that one parallel item should at least have: some microseconds of work.
constexpr int64_t kGrain = 8192;

struct Pointwise {
  Draft& draft;
  BlockInfo info;
  Schedule& s = draft.schedule;
  const Target& t = draft.target;

  std::vector<std::string> spatial = {}, reduce = {};

  void run() {
    for (const AxisInfo& a : info.axes) (a.is_reduce ? reduce : spatial).push_back(a.loop);
    if (spatial.empty()) return;
    std::string vector = vector_loop();
    make_parallel();
    if (info.is_reduction && !reduce.empty()) try_step(draft, DecomposeReduction{info.name, reduce.front()});
    if (!vector.empty()) try_step(draft, Vectorize{vector});
  }

  // Splits the last axis into vectors when the result is contiguous along it. For a reduction the vector goes inside.
  std::string vector_loop() {
    size_t last = spatial.size() - 1;
    int64_t lanes = t.lanes(std::max(32, info.element_bits));
    if (info.store.strides[last] != 1) return "";
    std::string loop = spatial.back();
    int64_t extent = info.axes[last].extent;
    if (extent < 4) return "";
    if (extent > lanes) {
      if (!try_step(draft, Split{loop, {0, lanes}, {loop + ".vec", loop + ".lane"}})) return "";
      spatial.back() = loop + ".vec";
      loop += ".lane";
    } else {
      spatial.pop_back();
    }
    if (!reduce.empty()) {
      std::vector<std::string> order = spatial;
      order.insert(order.end(), reduce.begin(), reduce.end());
      order.push_back(loop);
      try_step(draft, Reorder{order});
    }
    return loop;
  }

  void make_parallel() {
    if (spatial.empty()) return;
    double flops = static_cast<double>(info.iterations()) * (info.has_math_call ? 12 : 1);
    double us = estimate_us(flops, static_cast<double>(info.iterations()) * 8, t);
    if (!worth_parallel(us, t)) return;
    // Outer loops until there are items enough for the cores.
    std::vector<std::string> outer;
    int64_t items = 1;
    for (const std::string& loop : spatial) {
      int64_t extent = 1;
      as_int(s.find_loop(loop)->extent, &extent);
      outer.push_back(loop);
      items *= extent;
      if (balance(items, t.cores) > 0.9 && items >= 4 * t.cores) break;
    }
    std::string loop = outer[0];
    if (outer.size() > 1) {
      loop = info.name + ".outer";
      if (!try_step(draft, Fuse{outer, loop})) return;
    }
    // Long loops in grains.
    int64_t per_item = std::max<int64_t>(1, info.iterations() / std::max<int64_t>(1, items));
    int64_t group = std::max<int64_t>(1, kGrain / per_item);
    if (group > 1 && items / group >= t.cores) {
      if (try_step(draft, Split{loop, {0, group}, {loop + ".chunk", loop + ".in"}})) loop += ".chunk";
    }
    try_step(draft, Parallel{loop});
  }
};

}  // namespace

void schedule_pointwise(Draft& draft, const std::string& block) {
  std::optional<BlockInfo> info = analyze(draft.schedule, block);
  if (info) Pointwise{draft, *info}.run();
}

}  // namespace mcc::tuner
