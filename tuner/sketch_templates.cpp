// Hand-written templates, as TVM's for x86: a matmul (its tutorial's, with threads and registers) and a convolution on
// blocked channels (conv2d_NCHWc).
//
//   matmul:  for y.o, x.o (parallel): for k.o: [y.i, k.i in the order chosen]: for x.i in vectors
//   conv2d:  for n, oc, oh (parallel): for ow.o: init; for ic, kh, kw, ic.i: for ow.i (unrolled): oc.i in vectors
//            then the consumer, for each ow.o
#include <algorithm>

#include "tuner/answers.h"
#include "tuner/rules.h"
#include "tuner/sketches.h"
#include "tuner/template.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

// The contraction with the most work whose reduction has so many axes of more than one term, at least.
std::optional<BlockInfo> find_contraction(const Schedule& s, bool (*fits)(const BlockInfo&)) {
  std::optional<BlockInfo> main;
  for (const std::string& name : s.block_names()) {
    std::optional<BlockInfo> info = analyze(s, name);
    if (!info || !info->is_contraction || info->iterations() == 0 || !is_free(s, *info) || !fits(*info))
      continue;
    if (!main || info->iterations() > main->iterations()) main = info;
  }
  return main;
}

std::vector<size_t> axes_of(const BlockInfo& info, bool is_reduce) {
  std::vector<size_t> axes;
  for (size_t a = 0; a < info.axes.size(); ++a) {
    if (info.axes[a].is_reduce == is_reduce) axes.push_back(a);
  }
  return axes;
}

bool is_matmul(const BlockInfo& info) {
  std::vector<size_t> spatial = axes_of(info, false);
  return axes_of(info, true).size() == 1 && spatial.size() >= 2 && info.store.strides[spatial.back()] == 1 &&
         info.axes[spatial.back()].extent > 1;
}

// [n, oc, oh, ow, oc.i] by [ic, kh, kw, ic.i], or without n, or without ic.i; extents of 1 included.
bool is_conv2d(const BlockInfo& info) {
  std::vector<size_t> spatial = axes_of(info, false), reduce = axes_of(info, true);
  return reduce.size() >= 3 && spatial.size() >= 3 && info.store.strides[spatial.back()] == 1 &&
         info.axes[spatial.back()].extent > 1;
}

// A loop split as the entity says: the outer and the inner one; the inner one has no name if it is not there.
std::pair<std::string, std::string> split_loop(Draft& draft, const std::string& loop,
                                               const SplitEntity& entity) {
  int64_t inner = entity.size.back(), extent = 1;
  const For* found = draft.schedule.find_loop(loop);
  if (found == nullptr || !as_int(found->extent, &extent) || inner <= 1) return {loop, ""};
  if (inner >= extent) return {"", loop};
  must_step(draft, Split{loop, {0, inner}, {loop + ".o", loop + ".i"}});
  return {loop + ".o", loop + ".i"};
}

std::string fuse_loops(Draft& draft, const std::vector<std::string>& loops, const std::string& name) {
  if (loops.size() < 2) return loops.empty() ? "" : loops[0];
  must_step(draft, Fuse{loops, name});
  return name;
}

// What stands below the host: the accumulators of a tile in registers where they fit, and what leaves them.
void write_back(Draft& draft, const BlockInfo& info, const std::string& consumer, const std::string& host,
                int64_t elements, int64_t lanes) {
  if (host.empty()) return;
  std::string out = consumer;
  if (consumer.empty() || !try_step(draft, ReverseComputeAt{consumer, host})) {
    out = info.name + ".out";
    must_step(draft, CacheWrite{info.name, info.store.buffer.name(), "global", out});
    must_step(draft, ReverseComputeAt{out, host});
  }
  const Block* block = draft.schedule.find_block(info.name);
  if (block != nullptr && elements % lanes == 0 && elements / lanes <= draft.target.vector_registers - 2) {
    must_step(draft, SetScope{block->writes[0].buffer.name(), "registers"});
  }
  vectorize_below(draft, out, host, lanes);
}

}  // namespace

bool sketch_template_matmul(Draft& draft) {
  inline_producers(draft);
  Schedule& s = draft.schedule;
  std::optional<BlockInfo> info = find_contraction(s, is_matmul);
  if (!info) return false;
  const std::string& b = info->name;
  int64_t lanes = draft.target.lanes(std::max(info->element_bits, 32));
  std::vector<size_t> spatial = axes_of(*info, false);
  size_t x = spatial.back(), y = spatial[spatial.size() - 2], k = axes_of(*info, true)[0];
  for (size_t a : spatial) {
    if (a != x && info->axes[a].extent > info->axes[y].extent) y = a;
  }
  std::string consumer = consumer_of(s, *info);

  TemplateSpace t(draft, b);
  SplitEntity tile_y = t.split("tile_y", info->axes[y].extent, {.max_factor = 32},
                               {{-1, std::min<int64_t>(4, info->axes[y].extent)}});
  SplitEntity tile_x = t.split("tile_x", info->axes[x].extent,
                               {.policy = SplitPolicy::verbose, .max_factor = 64}, {{-1, lanes}});
  SplitEntity tile_k = t.split("tile_k", info->axes[k].extent, {.max_factor = 64});
  ReorderEntity order = t.reorder("order", 2, ReorderPolicy::all);
  AnnotateEntity ann = t.annotate("inner", 2, AnnotatePolicy::try_unroll);

  auto [yo, yi] = split_loop(draft, info->axes[y].loop, tile_y);
  auto [xo, xi] = split_loop(draft, info->axes[x].loop, tile_x);
  auto [ko, ki] = split_loop(draft, info->axes[k].loop, tile_k);
  std::vector<std::string> outer, all, middle{ki, yi};
  for (size_t a : spatial) {
    if (a != x && a != y) outer.push_back(info->axes[a].loop);
  }
  for (const std::string& l : {yo, xo}) {
    if (!l.empty()) outer.push_back(l);
  }
  all = outer;
  if (!ko.empty()) all.push_back(ko);
  for (int64_t i : order.perm) {
    if (!middle[static_cast<size_t>(i)].empty()) all.push_back(middle[static_cast<size_t>(i)]);
  }
  if (!xi.empty()) all.push_back(xi);
  if (all.size() > 1) must_step(draft, Reorder{all});
  std::string host = fuse_loops(draft, outer, b + ".outer");
  if (!host.empty() &&
      choose_parallel(draft, b, estimate_us(2 * static_cast<double>(info->iterations()), 0, draft.target))) {
    try_step(draft, Parallel{host});
  }
  write_back(draft, *info, consumer, host, tile_y.size[1] * tile_x.size[1], lanes);
  std::string reduce = !ko.empty() ? ko : ki;
  if (!reduce.empty()) must_step(draft, DecomposeReduction{b, reduce});
  if (!xi.empty()) vectorize_below(draft, b, all[all.size() - 2 < all.size() ? all.size() - 2 : 0], lanes);
  for (size_t i = 0; i < 2; ++i) {
    const std::string& loop = middle[static_cast<size_t>(order.perm[i])];
    if (ann.anns[i] == "unroll" && !loop.empty()) try_step(draft, Unroll{loop});
  }
  vectorize_below(draft, b + ".init", host, lanes);
  schedule_rest(draft);
  return true;
}

bool sketch_template_conv2d(Draft& draft) {
  inline_producers(draft);
  Schedule& s = draft.schedule;
  std::optional<BlockInfo> info = find_contraction(s, is_conv2d);
  if (!info) return false;
  const std::string& b = info->name;
  int64_t lanes = draft.target.lanes(std::max(info->element_bits, 32));
  std::vector<size_t> spatial = axes_of(*info, false), reduce = axes_of(*info, true);
  const AxisInfo& oc = info->axes[spatial.back()];
  const AxisInfo& ow = info->axes[spatial[spatial.size() - 2]];
  std::string consumer = consumer_of(s, *info);

  // The width of the kernel: the second of the reduction's window axes.
  const AxisInfo& kw = info->axes[reduce[2]];
  TemplateSpace t(draft, b);
  int64_t most = std::max<int64_t>(1, draft.target.vector_registers - 4);
  SplitEntity tile_ow = t.split("tile_ow", ow.extent, {.policy = SplitPolicy::verbose, .max_factor = most},
                                {{-1, divisors_of(ow.extent).size() > 2 ? divisors_of(ow.extent)[1] : 1}});
  OtherEntity unroll_kw = kw.extent > 1 && kw.extent <= 11 ? t.knob("unroll_kw", {1, 0}) : OtherEntity{0};

  auto [wo, wi] = split_loop(draft, ow.loop, tile_ow);
  std::vector<std::string> outer, all, inner;
  for (size_t i = 0; i + 2 < spatial.size(); ++i)
    outer.push_back(info->axes[spatial[i]].loop);
  all = outer;
  if (!wo.empty()) all.push_back(wo);
  for (size_t a : reduce)
    all.push_back(info->axes[a].loop);
  if (!wi.empty()) all.push_back(wi);
  all.push_back(oc.loop);
  must_step(draft, Reorder{all});
  std::string host = fuse_loops(draft, outer, b + ".outer"), tile = wo.empty() ? host : wo;
  if (choose_parallel(draft, b, estimate_us(2 * static_cast<double>(info->iterations()), 0, draft.target))) {
    try_step(draft, Parallel{host});
  }
  write_back(draft, *info, consumer, tile, tile_ow.size[1] * oc.extent, lanes);
  must_step(draft, DecomposeReduction{b, info->axes[reduce[0]].loop});
  vectorize_below(draft, b, wi.empty() ? info->axes[reduce.back()].loop : wi, lanes);
  if (!wi.empty()) try_step(draft, Unroll{wi});
  if (unroll_kw.value != 0) try_step(draft, Unroll{kw.loop});
  vectorize_below(draft, b + ".init", tile, lanes);
  schedule_rest(draft);
  return true;
}

}  // namespace mcc::tuner
