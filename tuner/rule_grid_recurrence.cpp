// Recurrences: blocks under a loop over steps, which one block of threads makes, step by step (bind_rest); where rows have nothing to
// do with each other (LSTM's batch, TopK's rows), one block each.
//
// Sums inside of the steps (LSTM, GRU, RNN), one result a thread: ONNX stores a weight's row along the sum, so that neighbouring
// threads would read places a row apart, a sector for each: rows and columns of such weights change places, and the sum becomes
// straight code, whose loads do not wait for each other.
#include <algorithm>

#include "support/text.h"
#include "tensor/grid.h"
#include "tensor/passes/scope.h"
#include "tensor/schedule/tree.h"
#include "tensor/schedule/weight_order.h"
#include "tuner/grid_rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr int64_t kUnrolled = 8;

struct Sum {
  std::string block;
  AxisInfo along;  // the innermost reduce axis
  Buffer weight;
  std::vector<int64_t> strides;  // of the weight, of the axis of neighbouring results and of the sum
};

// A sum under a loop over steps that reads a weight along itself; empty for any other block.
std::optional<Sum> sum_of_step(const Schedule& s, const std::string& block) {
  const std::vector<Axis>& axes = s.find_block(block)->axes;
  std::optional<BlockInfo> info = analyze(s, block);
  const bool is_in_steps =
      !axes.empty() && axes[0].kind == AxisKind::scan && !has_bound_loop(Stmt(s.loops_of(block)[0]));
  if (!info || !is_in_steps || !info->is_reduction || !info->axes.back().is_reduce) return std::nullopt;
  const auto row =
      std::find(info->store.strides.begin(), info->store.strides.end(), 1) - info->store.strides.begin();
  const auto result = static_cast<size_t>(row);
  if (result >= info->axes.size() || info->axes[result].is_reduce) return std::nullopt;
  for (const Access& load : info->loads) {
    if (is_weight(s.func(), load.buffer) && load.strides.back() == 1 && load.strides[result] > 1)
      return Sum{block, info->axes.back(), load.buffer, {load.strides[result], 1}};
  }
  return std::nullopt;
}

// The map that exchanges the dimensions with these strides; empty where the buffer has no such ones.
std::string exchanging(const Buffer& buffer, const std::vector<int64_t>& strides) {
  std::vector<std::string> from;
  std::vector<size_t> dims(strides.size(), buffer.shape().size());
  int64_t stride = 1;
  for (size_t n = buffer.shape().size(); n-- > 0;) {
    int64_t extent = 0;
    if (!as_int(buffer.shape()[n], &extent)) return "";
    for (size_t k = 0; k < strides.size(); ++k)
      if (strides[k] == stride && extent > 1) dims[k] = n;
    stride *= extent;
    from.insert(from.begin(), text("d", n));
  }
  if (std::find(dims.begin(), dims.end(), buffer.shape().size()) != dims.end()) return "";
  std::vector<std::string> to = from;
  std::swap(to[dims[0]], to[dims[1]]);
  return text("(", join(from, ", "), ") -> (", join(to, ", "), ")");
}

// Blocks that read the buffer.
size_t readers(const Schedule& s, const Buffer& buffer) {
  size_t found = 0;
  for (const std::string& name : s.block_names()) {
    const std::vector<Region>& reads = s.find_block(name)->reads;
    found +=
        std::any_of(reads.begin(), reads.end(), [&](const Region& r) { return r.buffer.same_as(buffer); })
            ? 1
            : 0;
  }
  return found;
}

}  // namespace

void prepare_recurrences(Draft& draft) {
  Schedule& s = draft.schedule;
  const RuleScope scope(draft, {"sums of a recurrence", ""});
  std::vector<Sum> sums;
  for (const std::string& block : s.block_names()) {
    if (std::optional<Sum> sum = sum_of_step(s, block)) sums.push_back(*sum);
  }
  std::vector<Buffer> stored;
  for (const Sum& sum : sums) {
    if (std::any_of(stored.begin(), stored.end(), [&](const Buffer& b) { return b.same_as(sum.weight); }))
      continue;
    stored.push_back(sum.weight);
    // All readers walk it alike: none has its sectors scattered instead.
    const auto alike = std::count_if(sums.begin(), sums.end(), [&](const Sum& other) {
      return other.weight.same_as(sum.weight) && other.strides == sum.strides;
    });
    const std::string map = exchanging(sum.weight, sum.strides);
    if (map.empty() || readers(s, sum.weight) != static_cast<size_t>(alike)) continue;
    try_step(draft, TransformLayout{sum.weight.name(), map});
  }
  for (const Sum& sum : sums) {
    const std::string inside = sum.along.loop + ".in";
    if (sum.along.extent % kUnrolled == 0 &&
        try_step(draft, Split{sum.along.loop, {0, kUnrolled}, {sum.along.loop, inside}}))
      must_step(draft, Unroll{inside});
  }
}

std::string hoist_rows(Draft& draft, const std::string& steps) {
  Schedule& s = draft.schedule;
  const RuleScope scope(draft, {"rows of a recurrence", steps, "one block of threads"});
  std::string rows;
  while (axes_bound_below(s.find_loop(steps)->body, s.find_loop(steps)->var).scan) {
    std::vector<std::string> loops;
    for (const BlockSite& site : block_sites(s.find_loop(steps)->body)) {
      if (site.loops.empty()) return rows;
      const std::string& outermost = site.loops[0]->var.name();
      if (loops.empty() || loops.back() != outermost) loops.push_back(outermost);
    }
    const std::string next = steps + ".row";
    if (!try_step(draft, Hoist{loops, steps, rows.empty() ? next : next + ".in"})) break;
    if (!rows.empty()) must_step(draft, Fuse{{rows, next + ".in"}, next});
    rows = next;
  }
  return rows;
}

int64_t width_of_rows(const Schedule& s, const std::string& rows) {
  constexpr int64_t kShare = 2;  // elements of a sum that are worth a thread
  const For* host = s.find_loop(rows);
  int64_t width = 1;
  for (const BlockSite& site : block_sites(host->body)) {
    int64_t results = 1, reduced = 1, extent = 0;
    for (const For* loop : site.loops) {
      const AxisKinds kinds = axes_bound_to(*site.block, loop->var);
      if (!kinds.scan && as_int(loop->extent, &extent)) (kinds.reduce ? reduced : results) *= extent;
    }
    width = std::max({width, results, reduced / kShare});
  }
  return width;
}

void keep_scratch(Draft& draft, const std::string& host, const std::string& scope) {
  Schedule& s = draft.schedule;
  const std::vector<BlockSite> sites = block_sites(s.func().body);
  std::vector<std::string> scratch;
  for (const Buffer& buffer : s.func().allocs) {
    const bool is_inside = std::all_of(sites.begin(), sites.end(), [&](const BlockSite& site) {
      return is_under(site, s.find_loop(host)) || (!reads_buffer(*site.block, buffer) && !writes_buffer(*site.block, buffer));
    });
    // What a block or thread has to itself has a size that does not depend on the run.
    if (is_inside && buffer.scope() == Scope::global && constant_bytes(buffer))
      scratch.push_back(buffer.name());
  }
  for (const std::string& name : scratch)
    try_step(draft, SetScope{name, scope});
}

}  // namespace mcc::tuner
