// Blocks on a GPU that write along one axis what they read along another: square tiles by way of shared memory, so that the
// threads of a warp read neighbours and write neighbours.
//
//   bound tile @{block.x}
//     bound l.ty @{thread.y}: bound a @{thread.x}: for l.n: t[l, a] = x[.. a], neighbours along a
//     bound a.ty @{thread.y}: bound l @{thread.x}: for a.n: y[.. l] from t[l, a], neighbours along l
#include <algorithm>

#include "tuner/grid_rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr int64_t kTile = 32, kRows = 8;  // lines of a tile that are read or written at once

struct Transposition {
  const Access* load = nullptr;
  size_t along = 0, across = 0;  // axes: along which is written, and along which is read
};

std::optional<Transposition> as_transposition(const BlockInfo& info) {
  if (!info.is_injective || info.is_nested || info.axes.size() < 2 || info.element_bits > 32)
    return std::nullopt;
  Transposition t;
  t.along = info.axes.size() - 1;
  if (info.store.strides[t.along] != 1) return std::nullopt;
  for (const Access& load : info.loads) {
    if (load.strides[t.along] == 0 || load.strides[t.along] == 1) continue;
    if (t.load) return std::nullopt;
    for (size_t n = 0; n < t.along; ++n) {
      if (load.strides[n] != 1) continue;
      t.load = &load;
      t.across = n;
    }
    if (!t.load) return std::nullopt;
  }
  bool is_large = t.load && info.axes[t.along].extent >= kRows && info.axes[t.across].extent >= kRows;
  return is_large ? std::optional(t) : std::nullopt;
}

bool tile_transposition_on_grid(Draft& d, const BlockInfo& info, const Transposition& t) {
  Schedule& s = d.schedule;
  const std::string copy = info.name + ".t";
  std::vector<std::string> names, order, outer;
  for (const Axis& axis : s.find_block(info.name)->axes)
    names.push_back(axis.var.name());
  for (size_t n = 0; n < info.axes.size(); ++n) {
    if (n == t.along || n == t.across) continue;
    if (t.load->strides[n] != 0) order.push_back(names[n]);
    outer.push_back(info.axes[n].loop);
  }
  order.push_back(names[t.along]);
  order.push_back(names[t.across]);
  must_step(d, Reindex{info.name, t.load->buffer.name(), "shared", copy, order});
  const std::string l = info.axes[t.along].loop, a = info.axes[t.across].loop;
  must_step(d, Split{l, {0, kTile}, {l + ".b", l + ".t"}});
  must_step(d, Split{a, {0, kTile}, {a + ".b", a + ".t"}});
  must_step(d, Split{a + ".t", {kTile / kRows, kRows}, {a + ".n", a + ".ty"}});
  outer.push_back(a + ".b");
  outer.push_back(l + ".b");
  std::vector<std::string> loops = outer;
  for (const std::string& loop : {a + ".ty", l + ".t", a + ".n"})
    loops.push_back(loop);
  must_step(d, Reorder{loops});
  const std::string grid = info.name + ".block";
  must_step(d, Fuse{outer, grid});
  must_step(d, Bind{grid, "block.x"});
  must_step(d, Bind{a + ".ty", "thread.y"});
  must_step(d, Bind{l + ".t", "thread.x"});
  must_step(d, Unroll{a + ".n"});
  must_step(d, ComputeAt{copy, grid});
  const std::string cl = copy + "." + names[t.along], ca = copy + "." + names[t.across];
  must_step(d, Split{cl, {0, kRows}, {cl + ".n", cl + ".ty"}});
  must_step(d, Reorder{{cl + ".ty", ca, cl + ".n"}});
  must_step(d, Bind{cl + ".ty", "thread.y"});
  must_step(d, Bind{ca, "thread.x"});
  must_step(d, StorageAlign{copy, kTile, 1});
  if (d.refusal) try_step(d, Unroll{cl + ".n"});
  return static_cast<bool>(d.refusal);
}

}  // namespace

bool schedule_grid_transposition(Draft& draft, const std::string& block) {
  std::optional<BlockInfo> info = analyze(draft.schedule, block);
  std::optional<Transposition> t = info ? as_transposition(*info) : std::nullopt;
  if (!t || !draft.refusal) return false;
  return try_all(draft, {"transpositions by way of shared memory", block},
                 [&] { return tile_transposition_on_grid(draft, *info, *t); });
}

}  // namespace mcc::tuner
