// The plain schedule for a GPU, for whatever no other rule takes:
//
//   bound b in ceil(results / threads) @{block.x}
//     bound t in threads @{thread.x}
//       one result, its reduce loops inside (or a vector of neighbours, of pointwise blocks; or some results of a window,
//       one below the other: depthwise convolutions, pooling)
#include <algorithm>

#include "support/text.h"
#include "tensor/grid.h"
#include "tensor/library_product.h"
#include "tensor/passes/scope.h"
#include "tensor/schedule/tree.h"
#include "tuner/grid_product.h"

namespace mcc::tuner {

using namespace tensor;

int64_t choose_threads(const Gpu& gpu, int64_t results) {
  int64_t threads = 256;
  while (threads > 2 * gpu.warp && results < threads * gpu.multiprocessors)
    threads /= 2;
  return threads;
}

void sum_in_register(Draft& draft, const std::string& block) {
  std::optional<BlockInfo> info = analyze(draft.schedule, block);
  if (!info || !info->is_reduction || !is_output(draft.schedule.func(), info->store.buffer)) return;
  try_step(draft, CacheWrite{block, info->store.buffer.name(), "global", block + ".out"});
}

bool windows_overlap(const BlockInfo& info, size_t axis) {
  return std::any_of(info.loads.begin(), info.loads.end(), [&](const Access& load) {
    for (size_t n = 0; n < info.axes.size(); ++n) {
      const int64_t step = load.strides[n];
      if (info.axes[n].is_reduce && step != 0 && load.strides[axis] % step == 0 && load.strides[axis] != 0 &&
          load.strides[axis] / step < info.axes[n].extent)
        return true;
    }
    return false;
  });
}

std::string epilogue_of(const Schedule& s, const std::string& block) {
  std::optional<BlockInfo> info = analyze(s, block);
  if (!info || !info->is_reduction || is_output(s.func(), info->store.buffer)) return "";
  std::vector<std::string> consumers = s.consumers(block);
  if (consumers.size() != 1) return "";
  std::optional<BlockInfo> consumer = analyze(s, consumers[0]);
  return consumer && consumer->is_injective && consumer->spatial == info->spatial ? consumers[0] : "";
}

namespace {

// Which loops of a site may be spread over threads: bound to spatial axes only, with bounds that hang on no other loop.
std::vector<std::string> free_loops(const std::vector<const For*>& loops, const Stmt& below) {
  std::vector<std::string> out;
  for (const For* loop : loops) {
    AxisKinds kinds = axes_bound_below(below, loop->var);
    bool is_free = !kinds.reduce && !kinds.scan && is_int(loop->min, 0) && !uses_any(loop->extent, loops);
    for (const For* other : loops)
      is_free &= !uses_var(other->extent, loop->var) && !uses_var(other->min, loop->var);
    if (is_free) out.push_back(loop->var.name());
  }
  return out;
}

int64_t results_of(const Schedule& s, const std::vector<std::string>& loops) {
  int64_t results = 1;
  for (const std::string& name : loops) {
    int64_t extent = 64;  // symbolic
    as_int(s.find_loop(name)->extent, &extent);
    results =
        extent > (int64_t{1} << 40) / std::max<int64_t>(results, 1) ? int64_t{1} << 40 : results * extent;
  }
  return results;
}

// The one loop that the given loops of a chain become, outermost.
std::string gather(Draft& draft, const std::string& first_in_chain, const std::vector<std::string>& loops,
                   const std::string& name) {
  std::vector<std::string> order = loops;
  for (const For* loop : chain_from(draft.schedule.find_loop(first_in_chain))) {
    if (std::find(loops.begin(), loops.end(), loop->var.name()) == loops.end())
      order.push_back(loop->var.name());
  }
  if (order.size() > 1) must_step(draft, Reorder{order});
  if (loops.size() == 1) return loops[0];
  must_step(draft, Fuse{loops, name});
  return name;
}

// Whether its part has a grid, or needs none.
bool is_settled(const For* loop) { return has_bound_loop(Stmt(loop)) || is_library_nest(Stmt(loop)); }

// The outermost loops of the function, one for each part of it.
std::vector<std::string> outermost_loops(const Schedule& s) {
  std::vector<std::string> out;
  for (const std::string& block : s.block_names()) {
    std::vector<const For*> loops = s.loops_of(block);
    if (!loops.empty() && (out.empty() || out.back() != loops[0]->var.name()))
      out.push_back(loops[0]->var.name());
  }
  return out;
}

constexpr int64_t kFewResults = 16;  // that each thread of a block may have for itself

// A long reduction to few results below a loop over blocks: the threads of the block share it out, and all of them get the results.
// How many threads; 0 where that is not done.
int64_t reduce_by_threads(Draft& draft, const std::string& host, const std::string& block,
                          const std::vector<const For*>& own, int64_t threads) {
  Schedule& s = draft.schedule;
  std::vector<std::string> results, reduced;
  for (const For* loop : own)
    (axes_bound_to(*s.find_block(block), loop->var).reduce ? reduced : results).push_back(loop->var.name());
  const Buffer made = only_buffer_written(*s.find_block(block));
  if (reduced.empty() || !is_shuffled(made.element()) || is_output(s.func(), made) ||
      results_of(s, results) > kFewResults || results_of(s, reduced) < 2 * int64_t{draft.target.gpu.warp})
    return 0;
  // Readers elsewhere would need it in memory.
  for (const std::string& reader : s.consumers(block)) {
    const std::vector<std::string> around = s.loop_names_of(reader);
    if (std::find(around.begin(), around.end(), host) == around.end()) return 0;
  }
  while (threads > draft.target.gpu.warp && threads >= results_of(s, reduced))
    threads /= 2;
  const std::string k = block + ".k", part = block + ".part", turn = k + ".n", share = k + ".t", sum = share + "_1";
  const bool is_done = try_all(draft, {"sums by all threads of a block", block, "each sum by a thread"}, [&] {
    std::vector<std::string> order = results;
    order.insert(order.end(), reduced.begin(), reduced.end());
    if (order.size() > 1) must_step(draft, Reorder{order});
    if (reduced.size() > 1) must_step(draft, Fuse{reduced, k});
    must_step(draft, Split{reduced.size() > 1 ? k : reduced[0], {0, threads}, {turn, share}});
    must_step(draft, Rfactor{block, share, part, 0});
    if (!draft.refusal) return false;
    // The parts, by thread; then their sum.
    order = {share};
    std::vector<std::string> sums;
    for (const std::string& loop : s.loop_names_of(part)) {
      const bool is_of_part = block_sites(s.find_loop(loop)->body).size() == 1;
      if (is_of_part && loop != share) order.push_back(loop);
    }
    must_step(draft, Reorder{order});
    must_step(draft, Bind{share, "thread.x"});
    must_step(draft, DecomposeReduction{part, turn});
    for (const std::string& loop : s.loop_names_of(block)) {
      if (loop != sum && block_sites(s.find_loop(loop)->body).size() == 1) sums.push_back(loop);
    }
    must_step(draft, DecomposeReduction{block, sums.empty() ? sum : sums[0]});
    must_step(draft, Bind{sum, "thread.x"});
    must_step(draft, SetScope{part, "local"});
    must_step(draft, SetScope{made.name(), "local"});
    return static_cast<bool>(draft.refusal);
  });
  return is_done ? threads : 0;
}

// Below a loop over blocks: each outermost nest of spatial loops over all threads of the block.
void spread_over_threads(Draft& draft, const std::string& host, int64_t threads) {
  std::vector<std::string> blocks;
  int64_t fewest = 1;
  for (const BlockSite& site : block_sites(draft.schedule.func().body)) {
    if (is_under(site, draft.schedule.find_loop(host))) blocks.push_back(site.block->name);
  }
  for (const std::string& block : blocks) {
    std::vector<const For*> loops = draft.schedule.loops_of(block);
    if (std::any_of(loops.begin(), loops.end(), [](const For* l) { return is_thread_loop(*l); })) continue;
    // The loops of this block alone.
    size_t first = loops.size();
    while (first > 0 && block_sites(loops[first - 1]->body).size() == 1 && !is_block_loop(*loops[first - 1]))
      --first;
    std::vector<const For*> own(loops.begin() + static_cast<std::ptrdiff_t>(first), loops.end());
    if (own.empty()) continue;
    if (const int64_t reducing = reduce_by_threads(draft, host, block, own, threads); reducing > 0) {
      // From here on nothing has another number of them; few results each thread has for itself.
      threads = reducing;
      fewest = reducing;
      continue;
    }
    std::vector<std::string> spread = free_loops(own, Stmt(own[0]));
    if (spread.empty() || results_of(draft.schedule, spread) < fewest) continue;
    const std::string outer = own[0]->var.name();
    try_all(draft, {"results by the threads of a block", block, "all results by each thread"}, [&] {
      const std::string all = gather(draft, outer, spread, block + ".all");
      const std::string turn = block + ".turn", thread = block + ".thread";
      must_step(draft, Split{all, {0, threads}, {turn, thread}});
      must_step(draft, Reorder{{thread, turn}});
      must_step(draft, Bind{thread, "thread.x"});
      return static_cast<bool>(draft.refusal);
    });
  }
}

// One block of the grid for the whole part. Rows of a recurrence: one for each of them, or one thread where that is enough.
void bind_to_blocks(Draft& draft, const std::string& outer) {
  const Gpu& gpu = draft.target.gpu;
  std::string host = hoist_rows(draft, outer);
  const int64_t width = width_of_rows(draft.schedule, host.empty() ? outer : host);
  const int64_t rows = host.empty() ? 1 : results_of(draft.schedule, {host});
  if (rows > 1 && width < gpu.warp / 2) {
    const std::string thread = host + ".thread";
    must_step(draft, Split{host, {0, choose_threads(gpu, rows)}, {host, thread}});
    must_step(draft, Bind{host, "block.x"});
    must_step(draft, Bind{thread, "thread.x"});
    return keep_scratch(draft, thread, "local");
  }
  int64_t threads = gpu.threads_per_block / 2;
  auto is_too_many = [&] {
    return threads / 2 >= width || rows * threads > int64_t{2} * gpu.multiprocessors * gpu.threads_per_multiprocessor;
  };
  while (threads > gpu.warp && is_too_many())
    threads /= 2;
  if (host.empty()) {
    host = outer + ".grid";
    must_step(draft, Split{outer, {1, 0}, {host, outer}});
  }
  must_step(draft, Bind{host, "block.x"});
  spread_over_threads(draft, host, threads);
  keep_scratch(draft, host, "shared");
}

// Neighbours that one thread loads and stores at once: of pointwise blocks that walk memory along their last axis.
int64_t vector_of(const Schedule& s, const std::string& block, int64_t threads_wanted) {
  std::optional<BlockInfo> info = analyze(s, block);
  if (!info || !info->is_injective || info->axes.empty() || info->element_bits > 32) return 1;
  int bits = std::max(info->element_bits, 16);
  for (const Access& load : info->loads)
    bits = std::max(bits, bit_width(load.buffer.element()));
  const int64_t lanes = 128 / bits;
  size_t last = info->axes.size() - 1;
  auto is_wide = [&](const Access& a) {
    bool is_along = a.strides[last] == 1 && bit_width(a.buffer.element()) * lanes <= 128;
    for (size_t n = 0; n < last; ++n)
      is_along &= a.strides[n] % lanes == 0;  // vectors begin at multiples of their length
    return is_along || a.strides[last] == 0;
  };
  bool fits = info->axes[last].extent % lanes == 0 && info->spatial / lanes >= threads_wanted &&
              info->store.strides[last] == 1 && is_wide(info->store) &&
              std::all_of(info->loads.begin(), info->loads.end(), is_wide);
  return fits ? lanes : 1;
}

// Windows of a few elements become straight code.
void unroll_window(Draft& draft, const std::string& block) {
  constexpr int64_t kMost = 32;
  int64_t copies = 1, extent = 0;
  std::vector<const For*> loops = draft.schedule.loops_of(block);
  std::vector<std::string> small;
  for (size_t n = loops.size(); n-- > 0;) {
    bool is_reduced = axes_bound_to(*draft.schedule.find_block(block), loops[n]->var).reduce;
    if (!is_reduced || !as_int(loops[n]->extent, &extent) || copies * extent > kMost) break;
    copies *= extent;
    small.push_back(loops[n]->var.name());
  }
  for (const std::string& loop : small)
    try_step(draft, Unroll{loop});
}

// Results of a window or a small sum that one thread makes, one below the other (so that neighbouring threads read neighbours):
// they share weights, and what their windows have in common. The loop over them stands inside of the spatial loops; empty for one.
std::string split_results(Draft& draft, const std::string& block) {
  constexpr int64_t kMost = 4;
  std::optional<BlockInfo> info = analyze(draft.schedule, block);
  if (!info || !info->is_reduction || info->is_nested || info->element_bits > 32) return "";
  std::vector<size_t> spatial;
  for (size_t n = 0; n < info->axes.size(); ++n) {
    if (!info->axes[n].is_reduce) spatial.push_back(n);
  }
  if (spatial.size() < 2 || spatial.size() == info->axes.size()) return "";
  const size_t axis = spatial[spatial.size() - 2];
  const Gpu& gpu = draft.target.gpu;
  std::vector<int64_t> options{1};
  int64_t preferred = 1;
  for (int64_t n = 2; n <= kMost && info->axes[axis].extent % n == 0; n *= 2) {
    options.push_back(n);
    const bool leaves_enough =
        info->spatial / n >= int64_t{gpu.multiprocessors} * gpu.threads_per_multiprocessor / 2;
    if (leaves_enough && windows_overlap(*info, axis)) preferred = n;
  }
  if (options.size() == 1) return "";
  const int64_t results = draft.decide.choose(block + ".results", options, preferred);
  if (results == 1) return "";
  const std::string each = block + ".each", loop = info->axes[axis].loop;
  std::vector<std::string> order;
  for (size_t n : spatial)
    order.push_back(info->axes[n].loop);
  order.push_back(each);
  const bool is_split = try_all(draft, {"several results a thread", block, kPlainOnGrid}, [&] {
    must_step(draft, Split{loop, {0, results}, {loop, each}});
    must_step(draft, Reorder{order});
    return static_cast<bool>(draft.refusal);
  });
  return is_split ? each : "";
}

// The chain of loops from `outer` down to a single block; the loop `each`, if it is named, is a thread's.
bool bind_nest(Draft& draft, const std::string& outer, const std::string& each) {
  const For* loop = draft.schedule.find_loop(outer);
  if (block_sites(Stmt(loop)).size() != 1) return false;
  std::vector<const For*> chain = chain_from(loop);
  std::vector<std::string> spread = free_loops(chain, Stmt(loop));
  std::erase(spread, each);
  int64_t results = results_of(draft.schedule, spread);
  if (spread.empty() || results == 0) return false;
  const std::string block = block_sites(Stmt(loop))[0].block->name;
  const Gpu& gpu = draft.target.gpu;
  int64_t lanes =
      vector_of(draft.schedule, block, int64_t{gpu.threads_per_multiprocessor} * gpu.multiprocessors / 2);
  if (lanes > 1) lanes = draft.decide.choose(block + ".lanes", {1, lanes}, lanes);
  int64_t threads =
      draft.decide.choose(block + ".threads", {32, 64, 128, 256, 512}, choose_threads(gpu, results / lanes));
  return try_all(draft, {kPlainOnGrid, block, "a single block of threads"}, [&] {
    const std::string all = gather(draft, outer, spread, block + ".all");
    const std::string grid = block + ".block", thread = block + ".thread", lane = block + ".lane";
    if (lanes > 1) {
      must_step(draft, Split{all, {0, threads, lanes}, {grid, thread, lane}});
      try_step(draft, Vectorize{lane});
    } else {
      must_step(draft, Split{all, {0, threads}, {grid, thread}});
    }
    must_step(draft, Bind{grid, "block.x"});
    must_step(draft, Bind{thread, "thread.x"});
    return static_cast<bool>(draft.refusal);
  });
}

// Constant places in registers, for the sums and for what takes them.
void unroll_results(Draft& draft, const std::string& each, const std::string& epilogue,
                    const std::string& thread) {
  try_step(draft, Unroll{each});
  std::vector<std::string> loops = draft.schedule.loop_names_of(epilogue);
  auto at = std::find(loops.begin(), loops.end(), thread);
  if (at == loops.end()) return;
  for (++at; at != loops.end(); ++at)
    try_step(draft, Unroll{*at});
}

// Blocks under no loop that have loops of their own get one to be bound: those are no part of the schedule.
void add_loops(Draft& draft) {
  for (const std::string& block : draft.schedule.block_names()) {
    if (draft.schedule.loops_of(block).empty() && has_loop(draft.schedule.find_block(block)->body))
      try_step(draft, FuseAxes{block, {}, "once"});
  }
}

}  // namespace

void bind_rest(Draft& draft) {
  const RuleScope scope(draft, {"what is left", "", kPlainOnGrid});
  add_loops(draft);
  for (const std::string& outer : outermost_loops(draft.schedule)) {
    const For* loop = draft.schedule.find_loop(outer);
    bool is_outermost = loop != nullptr && loops_around(draft.schedule.func().body, loop).empty();
    if (!is_outermost || is_settled(loop)) continue;
    std::vector<BlockSite> sites = block_sites(Stmt(loop));
    const std::string block = sites[0].block->name;
    if (sites.size() == 1) sum_in_register(draft, block);
    const std::string epilogue = sites.size() == 1 ? epilogue_of(draft.schedule, block) : "";
    const std::string each = epilogue.empty() ? "" : split_results(draft, block);
    if (!bind_nest(draft, outer, each)) {
      bind_to_blocks(draft, outer);
      continue;
    }
    if (!epilogue.empty()) try_step(draft, ReverseComputeAt{epilogue, block + ".thread"});
    unroll_window(draft, block);
    if (!each.empty()) unroll_results(draft, each, epilogue, block + ".thread");
  }
}

namespace {

bool reads(const BlockInfo& info, const Buffer& buffer) {
  return std::any_of(info.loads.begin(), info.loads.end(),
                     [&](const Access& l) { return l.buffer.same_as(buffer); });
}

}  // namespace

void inline_for_grid(Draft& draft) {
  inline_producers(draft);
  Schedule& s = draft.schedule;
  for (const std::string& name : s.block_names()) {
    std::optional<BlockInfo> producer = analyze(s, name);
    const std::vector<std::string> consumers = s.consumers(name);
    bool is_copy = producer && producer->is_injective && producer->is_movement &&
                   producer->loads.size() <= 1 && !is_output(s.func(), producer->store.buffer);
    // A product that reads one buffer on both sides (queries and keys of one projection) would have one operand only: its rules
    // inline the copy when its operands have become blocks of their own. One of bytes fetches words.
    const bool is_operand = is_copy && std::any_of(consumers.begin(), consumers.end(), [&](const std::string& c) {
      std::optional<BlockInfo> consumer = analyze(s, c);
      return consumer && consumer->is_contraction && !producer->loads.empty() &&
             (reads(*consumer, producer->loads[0].buffer) || fills_words(*producer));
    });
    if (is_copy && !is_operand && !is_copy_of_steps(s, *producer)) try_step(draft, ComputeInline{name});
  }
  inline_producers(draft);
}

namespace {

// The blocks that no rule has taken, in runs of such that follow each other.
std::vector<std::vector<std::string>> free_runs(const Schedule& s) {
  std::vector<std::vector<std::string>> runs(1);
  for (const std::string& name : s.block_names()) {
    std::vector<const For*> loops = s.loops_of(name);
    bool is_free =
        std::all_of(loops.begin(), loops.end(),
                    [](const For* l) { return l->loop == LoopKind::serial && !is_library_nest(Stmt(l)); }) &&
        analyze(s, name).has_value();
    if (is_free) {
      runs.back().push_back(name);
    } else if (!runs.back().empty()) {
      runs.emplace_back();
    }
  }
  if (runs.back().empty()) runs.pop_back();
  return runs;
}

// The parts of a run that are rows: of those that begin at a block the longest, from the front.
void schedule_parts_in_rows(Draft& draft, const std::vector<std::string>& run) {
  // For each block the place behind the first reduction from there on: a part has to reach so far.
  std::vector<size_t> behind_reduction(run.size() + 1, run.size() + 1);
  for (size_t n = run.size(); n-- > 0;)
    behind_reduction[n] = draft.schedule.find_block(run[n])->init ? n + 1 : behind_reduction[n + 1];
  for (size_t begin = 0; begin < run.size();) {
    size_t end = begin == 0 ? run.size() - 1 : run.size();  // the whole run is no part
    while (end >= behind_reduction[begin]) {
      const std::vector<std::string> part(run.begin() + static_cast<std::ptrdiff_t>(begin),
                                          run.begin() + static_cast<std::ptrdiff_t>(end));
      if (schedule_grid_rows(draft, part)) break;
      --end;
    }
    begin = end >= behind_reduction[begin] ? end : begin + 1;
  }
}

}  // namespace

void apply_grid_rules(Draft& draft) {
  Schedule& s = draft.schedule;
  inline_producers(draft);
  if (!schedule_grid_transformed_product(draft)) {
    inline_for_grid(draft);
    schedule_grid_chain(draft);
    for (const std::string& block : s.block_names()) {
      if (s.find_block(block) == nullptr || schedule_grid_byte_rows(draft, block) ||
          schedule_grid_few_rows(draft, block))
        continue;
      schedule_grid_product(draft, block);
    }
  }
  schedule_grid_rest(draft);
}

void schedule_grid_rest(Draft& draft) {
  Schedule& s = draft.schedule;
  divide_grid_rows(draft);
  for (const std::vector<std::string>& run : free_runs(s)) {
    if (schedule_grid_rows(draft, run) || schedule_grid_lines(draft, run)) continue;
    schedule_parts_in_rows(draft, run);
  }
  for (const std::vector<std::string>& run : free_runs(s)) {
    for (const std::string& block : run) {
      if (!schedule_grid_columns(draft, block) && !schedule_grid_windows(draft, block)) schedule_grid_transposition(draft, block);
    }
  }
  for (const std::string& outer : outermost_loops(s)) {
    const For* loop = s.find_loop(outer);
    if (loop != nullptr && !is_settled(loop) && axes_bound_below(Stmt(loop), loop->var).scan)
      launch_steps(draft, outer);
  }
  prepare_recurrences(draft);
  bind_rest(draft);
}

}  // namespace mcc::tuner
