#include "tuner/tile_parts.h"

#include <algorithm>

#include "tensor/schedule/weight_order.h"

namespace mcc::tuner {

using namespace tensor;

int64_t dividing_lanes(const Target& target, int bits, int64_t extent) {
  int64_t lanes = target.lanes(bits);
  while (lanes > target.lanes(32) && extent % lanes != 0)
    lanes /= 2;
  return lanes;
}

void vectorize_below_tile(Draft& d, const std::string& block, const std::string& tile_loop, int64_t lanes,
                          bool is_unrolled) {
  std::vector<std::string> loops = d.schedule.loop_names_of(block);
  auto at = std::find(loops.begin(), loops.end(), tile_loop);
  if (at == loops.end()) return;
  loops.erase(loops.begin(), at + 1);
  if (loops.empty()) return;
  const For* last = d.schedule.find_loop(loops.back());
  int64_t count = 0;
  if (!as_int(last->extent, &count)) return;
  std::string vector = loops.back();
  loops.pop_back();
  if (count > lanes) {
    std::string outer = vector + ".vec", lane = vector + ".lane";
    if (!try_step(d, Split{vector, {0, lanes}, {outer, lane}})) return;
    loops.push_back(outer);
    vector = lane;
  }
  if (!try_step(d, Vectorize{vector})) return;
  if (!is_unrolled) loops.erase(loops.begin(), loops.end() - (count > lanes ? 1 : 0));
  for (const std::string& l : loops)
    try_step(d, Unroll{l});
}

std::string tile_consumer(const Draft& d, const BlockInfo& info, int64_t elements) {
  std::vector<std::string> consumers = d.schedule.consumers(info.name);
  if (consumers.size() != 1 || is_output(d.schedule.func(), info.store.buffer)) return "";
  std::optional<BlockInfo> consumer = analyze(d.schedule, consumers[0]);
  if (!consumer || !consumer->is_injective || consumer->spatial != elements) return "";
  return consumers[0];
}

std::optional<SumAxes> sum_axes(const BlockInfo& info) {
  SumAxes out;
  int columns = 0, sums = 0;
  for (size_t a = 0; a < info.axes.size(); ++a) {
    if (info.axes[a].is_reduce) {
      out.reduce = a;
      ++sums;
    } else if (info.store.strides[a] == 1 && info.axes[a].extent > 1) {
      out.column = a;
      ++columns;
    } else {
      out.rows.push_back(a);
    }
  }
  return columns == 1 && sums == 1 ? std::optional(out) : std::nullopt;
}

bool is_made_of_weights(const Func& f, const BlockInfo& info) {
  constexpr int64_t kMany = 16;  // elements for each that is no weight
  auto is_known = [&](const Access& l) { return is_weight(f, l.buffer); };
  auto is_little = [&](const Access& l) {
    return count_of(l.buffer) > 0 && count_of(l.buffer) * kMany <= info.spatial;
  };
  return info.is_injective && std::any_of(info.loads.begin(), info.loads.end(), is_known) &&
         std::all_of(info.loads.begin(), info.loads.end(),
                     [&](const Access& l) { return is_known(l) || is_little(l); });
}

std::string place_consumer(Draft& d, const BlockInfo& info, const std::string& consumer,
                           const std::string& tile_loop, const std::string& scope) {
  const std::string buffer = info.store.buffer.name();
  if (!consumer.empty() && try_step(d, ReverseComputeAt{consumer, tile_loop})) {
    must_step(d, SetScope{buffer, scope});
    return consumer;
  }
  std::string copy = info.name + ".out";
  if (!try_step(d, CacheWrite{info.name, buffer, "global", copy})) return "";
  // Whether what a nested tile makes is known to be a box may differ between sizes.
  const int64_t follow = info.is_nested && !d.open_loops.empty() ? 1 : 0;
  if (!try_step(d, ReverseComputeAt{copy, tile_loop, follow})) return "";
  must_step(d, SetScope{d.schedule.find_block(info.name)->writes[0].buffer.name(), scope});
  return copy;
}

namespace {

// Vectors along the rows of a block that stands under a tile's loop: of what it stores, narrower ones where they divide the rows.
void vectorize_rows(Draft& d, const BlockInfo& block) {
  const std::vector<std::string> loops = d.schedule.loop_names_of(block.name);
  const For* last = loops.empty() ? nullptr : d.schedule.find_loop(loops.back());
  int64_t extent = 0;
  if (!last || !as_int(last->extent, &extent)) return;
  if (extent < d.target.lanes(32)) return;
  const int64_t lanes = dividing_lanes(d.target, block.element_bits, extent);
  std::string vector = loops.back();
  if (extent > lanes) {
    if (!try_step(d, Split{vector, {0, lanes}, {vector + ".vec", vector + ".lane"}})) return;
    vector += ".lane";
  }
  try_step(d, Vectorize{vector});
}

}  // namespace

void place_padding(Draft& d, const BlockInfo& info, const TileRoles& roles, const TileLoops& loops) {
  const Schedule& s = d.schedule;
  if (loops.outer.empty() || loops.pieces <= 1) return;
  for (const std::string& producer : s.producers(info.name)) {
    std::optional<BlockInfo> p = analyze(s, producer);
    if (!p || !p->is_injective || p->has_math_call) continue;
    // Worth it only if iterations do not read the same parts: when the outer loop is over what the producer is
    // indexed with.
    bool partitioned = true;
    for (const Access& load : info.loads) {
      if (!load.buffer.same_as(p->store.buffer)) continue;
      partitioned &= roles.rows.empty() || !loops.rows_outside;
      for (int a : roles.batch)
        partitioned &= load.strides[static_cast<size_t>(a)] != 0;
      partitioned &= roles.panel < 0 || load.strides[static_cast<size_t>(roles.panel)] != 0;
    }
    const bool row_outside =
        !loops.in_pieces && (loops.outer == loops.tile || s.find_loop(info.name + ".chunk") != nullptr);
    int64_t bytes = p->spatial * byte_size(p->store.buffer.element()) / loops.pieces;
    if (!partitioned || row_outside || bytes > d.target.l2.bytes / 2) continue;
    if (try_step(d, ComputeAt{producer, loops.outer})) vectorize_rows(d, *p);
  }
}

}  // namespace mcc::tuner
