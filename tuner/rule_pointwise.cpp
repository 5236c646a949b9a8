// Elementwise and data-moving blocks, and reductions that no other rule takes.
#include <algorithm>

#include "tuner/rules.h"
#include "tuner/tile_parts.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

// Elements that one parallel item should at least have: some microseconds of work.
constexpr int64_t kGrain = 8192;

// The axis along which a 32-bit element is read that is written along the last axis; -1 if that is none other.
int transposed_axis(const BlockInfo& info) {
  size_t last = info.axes.size() - 1;
  if (!info.is_injective || info.axes.empty() || info.store.strides[last] != 1 || info.element_bits != 32)
    return -1;
  int found = -1;
  for (const Access& load : info.loads) {
    if (load.strides[last] == 0 || load.strides[last] == 1) continue;
    if (found >= 0) return -1;  // two such reads
    for (size_t a = 0; a < last; ++a) {
      if (load.strides[a] == 1) found = static_cast<int>(a);
    }
    if (found < 0) return -1;
  }
  return found;
}

}  // namespace

std::vector<std::string> tile_transposition(Draft& draft, const BlockInfo& info) {
  int axis = transposed_axis(info);
  int64_t lanes = draft.target.lanes(32);
  if (axis < 0 || lanes > 16 || info.axes.back().extent < lanes ||
      info.axes[static_cast<size_t>(axis)].extent < lanes)
    return {};
  std::string across = info.axes[static_cast<size_t>(axis)].loop, along = info.axes.back().loop;
  std::vector<std::string> loops = draft.schedule.loop_names_of(info.name), order;
  if (std::find(loops.begin(), loops.end(), across) == loops.end() || loops.back() != along) return {};
  must_step(draft, Split{across, {0, lanes}, {across + ".tile", across + ".in"}});
  must_step(draft, Split{along, {0, lanes}, {along + ".tile", along + ".lane"}});
  for (const AxisInfo& a : info.axes) {
    if (a.loop == across) order.push_back(across + ".tile");
    if (a.loop == along) order.push_back(along + ".tile");
    if (a.loop != across && a.loop != along && draft.schedule.find_loop(a.loop) != nullptr)
      order.push_back(a.loop);
  }
  std::vector<std::string> outer = order;
  order.push_back(across + ".in");
  order.push_back(along + ".lane");
  must_step(draft, Reorder{order});
  must_step(draft, Unroll{across + ".in"});
  must_step(draft, Vectorize{along + ".lane"});
  return outer;
}

namespace {

// The axis along which everything is read whose results lie side by side, two to four for each place of it (the channels of an
// image, which are last now); null if there is none.
const AxisInfo* interleaved_axis(const BlockInfo& info) {
  const size_t last = info.axes.size() - 1;
  if (!info.is_injective || info.axes.size() < 2 || info.store.strides[last] != 1 || info.element_bits > 32)
    return nullptr;
  const int64_t parts = info.axes[last].extent;
  if (parts < 2 || parts > 4) return nullptr;
  for (size_t a = 0; a < last; ++a) {
    if (info.store.strides[a] != parts) continue;
    const auto is_row = [&](const Access& load) { return load.strides[a] == 1 && load.strides[last] != 1; };
    const bool fits = std::all_of(info.loads.begin(), info.loads.end(),
                                  [&](const Access& load) { return load.strides[a] == 0 || is_row(load); });
    return fits && std::any_of(info.loads.begin(), info.loads.end(), is_row) ? &info.axes[a] : nullptr;
  }
  return nullptr;
}

struct Pointwise {
  Draft& draft;
  BlockInfo info;
  Schedule& s = draft.schedule;
  const Target& t = draft.target;

  std::vector<std::string> spatial = {}, reduce = {};
  std::string vectors = {};  // the loop over the vectors of one turn

  void run() {
    for (const AxisInfo& a : info.axes)
      (a.is_reduce ? reduce : spatial).push_back(a.loop);
    if (spatial.empty()) return;
    if (std::vector<std::string> outer = tile_transposition(draft, info); !outer.empty()) {
      spatial = outer;
      make_parallel();
      return;
    }
    if (interleave()) {
      make_parallel();
      return;
    }
    const std::string consumer = info.is_reduction ? tile_consumer(draft, info, info.spatial) : "";
    std::string vector = vector_loop();
    if (info.is_reduction && !info.is_nested && !vector.empty() && !reduce.empty() && !spatial.empty()) {
      sum_up_in_registers(vector, consumer);
    } else {
      choose_order();
      make_parallel();
      if (info.is_reduction && !reduce.empty())
        try_step(draft, DecomposeReduction{info.name, reduce.front()});
      if (!vector.empty()) try_step(draft, Vectorize{vector});
    }
    if (!vectors.empty()) try_step(draft, Unroll{vectors});
    unroll_reduction();
  }

  // A vector of sums goes to memory once, as what its consumer makes of it, rather than in each step: where vectors are not whole, each would
  // wait for what the one before has stored.
  void sum_up_in_registers(const std::string& vector, const std::string& consumer) {
    const std::string tile = spatial.back();
    const std::string write_back = place_consumer(draft, info, consumer, tile, "registers");
    try_step(draft, DecomposeReduction{info.name, reduce.front()});
    try_step(draft, Vectorize{vector});
    if (!write_back.empty()) {
      const int64_t lanes = t.lanes(std::max(32, info.element_bits));
      vectorize_below_tile(draft, info.name + ".init", tile, lanes, true);
      vectorize_below_tile(draft, write_back, tile, lanes, true);
    }
    make_parallel();
  }

  // Vectors along what is read, one for each part of what is written; they are written side by side (transpose_tiles).
  bool interleave() {
    const AxisInfo* axis = interleaved_axis(info);
    const int64_t lanes = t.lanes(32);
    if (!axis || axis->extent < lanes) return false;
    const std::string along = axis->loop, part = spatial.back();
    must_step(draft, Split{along, {0, lanes}, {along + ".vec", along + ".lane"}});
    spatial.pop_back();
    *std::find(spatial.begin(), spatial.end(), along) = along + ".vec";
    std::vector<std::string> order = spatial;
    order.push_back(part);
    order.push_back(along + ".lane");
    must_step(draft, Reorder{order});
    must_step(draft, Unroll{part});
    must_step(draft, Vectorize{along + ".lane"});
    return true;
  }

  // Splits the last axis into vectors when the result is contiguous along it. For a reduction the vector goes inside.
  std::string vector_loop() {
    size_t last = spatial.size() - 1;
    int64_t lanes = lanes_along(last);
    if (info.store.strides[last] != 1) return "";
    std::string loop = spatial.back();
    int64_t extent = info.axes[last].extent;
    if (extent < 4) return "";
    if (int64_t run = shortest_run(last); run < extent && run >= lanes && extent % run == 0) {
      if (!try_step(draft, Split{loop, {0, run}, {loop + ".run", loop + ".in"}})) return "";
      spatial.back() = loop + ".run";
      loop += ".in";
      spatial.push_back(loop);
      extent = run;
    }
    if (extent > lanes) {
      const int64_t count = info.is_reduction ? vectors_of_sums(extent, lanes)
                                              : choose_vectors(draft, info.name, extent, lanes, 8);
      Split split{loop, {0, lanes}, {loop + ".vec", loop + ".lane"}};
      if (count > 1) {
        vectors = loop + ".vecs";
        split = {loop, {0, count, lanes}, {loop + ".vec", vectors, loop + ".lane"}};
      }
      if (!try_step(draft, split)) return "";
      spatial.back() = loop + ".vec";
      loop += ".lane";
    } else {
      spatial.pop_back();
    }
    if (!reduce.empty()) {
      std::vector<std::string> order = spatial;
      order.insert(order.end(), reduce.begin(), reduce.end());
      if (!vectors.empty()) order.push_back(vectors);
      order.push_back(loop);
      try_step(draft, Reorder{order});
    }
    return loop;
  }

  // What is computed with is 32 bits wide. Copies of narrower elements take whole registers, where these divide the axis.
  int64_t lanes_along(size_t axis) const {
    const bool is_copy = info.is_injective && info.is_movement &&
                         std::all_of(info.loads.begin(), info.loads.end(), [&](const Access& load) {
                           const bool is_as_wide = bit_width(load.buffer.element()) == info.element_bits;
                           return is_as_wide && (load.strides[axis] == 0 || load.strides[axis] == 1);
                         });
    return is_copy ? dividing_lanes(t, info.element_bits, info.axes[axis].extent)
                   : t.lanes(std::max(32, info.element_bits));
  }

  // Vectors whose sums are made side by side, each of which waits for itself alone.
  int64_t vectors_of_sums(int64_t extent, int64_t lanes) const {
    constexpr int64_t kMost = 4;
    if (info.is_nested || spatial.empty()) return 1;
    const int64_t all = ceil_div64(extent, lanes), turns = ceil_div64(all, kMost);
    return ceil_div64(all, turns);
  }

  // Elements that all loads along the axis have next to one another, where rows are read again and again (repetition).
  int64_t shortest_run(size_t axis) const {
    int64_t run = info.axes[axis].extent;
    for (const Access& load : info.loads) {
      if (load.strides[axis] == 1) run = std::min(run, load.runs[axis]);
    }
    return run;
  }

  // Where data is transposed, some load walks far in each step of the last loop: another loop may go inside.
  void choose_order() {
    if (info.is_reduction || spatial.size() < 2) return;
    bool is_transposed = false;
    for (const Access& load : info.loads)
      is_transposed |= std::abs(load.strides.back()) > 1;
    if (!is_transposed) return;
    std::vector<int64_t> options;
    for (size_t i = 0; i < spatial.size(); ++i)
      options.push_back(static_cast<int64_t>(i));
    auto inner = static_cast<size_t>(draft.decide.choose(info.name + ".inner", options, options.back()));
    if (inner + 1 == spatial.size()) return;
    std::vector<std::string> order = spatial;
    std::rotate(order.begin() + static_cast<std::ptrdiff_t>(inner),
                order.begin() + static_cast<std::ptrdiff_t>(inner) + 1, order.end());
    if (try_step(draft, Reorder{order})) spatial = order;
  }

  // Windows of a few elements may be unrolled.
  void unroll_reduction() {
    if (!info.is_reduction || reduce.empty()) return;
    const For* last = s.find_loop(reduce.back());
    int64_t extent = 0;
    if (last == nullptr || !as_int(last->extent, &extent) || extent < 2 || extent > 16) return;
    if (draft.decide.choose(info.name + ".unroll", {0, 1}, 0) != 0) try_step(draft, Unroll{reduce.back()});
  }

  void make_parallel() {
    if (spatial.empty()) return;
    double flops = static_cast<double>(info.iterations()) * (info.has_math_call ? 12 : 1);
    double us = estimate_us(flops, static_cast<double>(info.iterations()) * 8, t);
    if (!choose_parallel(draft, info.name, us)) return;
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
    int64_t group = choose_grain(std::max<int64_t>(1, kGrain / per_item), items);
    if (group > 1 && items / group >= t.cores) {
      if (try_step(draft, Split{loop, {0, group}, {loop + ".chunk", loop + ".in"}})) loop += ".chunk";
    }
    try_step(draft, Parallel{loop});
  }

  // Items that one thread takes at a time.
  int64_t choose_grain(int64_t preferred, int64_t items) {
    std::vector<int64_t> options;
    for (int64_t n : {preferred / 8, preferred, 8 * preferred}) {
      if (n == preferred || (n >= 1 && items / n >= t.cores)) options.push_back(n);
    }
    return options.size() == 1 ? preferred : draft.decide.choose(info.name + ".grain", options, preferred);
  }
};

}  // namespace

void schedule_pointwise(Draft& draft, const std::string& block) {
  std::optional<BlockInfo> info = analyze(draft.schedule, block);
  const RuleScope scope(draft, {"single blocks", block});
  if (info) Pointwise{draft, *info}.run();
}

}  // namespace mcc::tuner
