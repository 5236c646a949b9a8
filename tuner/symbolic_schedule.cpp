#include "tuner/symbolic_schedule.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "tensor/passes/lower.h"
#include "tensor/passes/scope.h"
#include "tensor/schedule/tree.h"
#include "tensor/simplify.h"
#include "tensor/sizes.h"
#include "tensor/text.h"
#include "tensor/visit.h"
#include "tuner/grid_rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

// Larger sizes are scheduled as this one is.
constexpr int64_t kLargestInstance = 1021;
// A dimension that is never larger (a batch, mostly of one) is taken to be short, so that tiles go along others.
constexpr int64_t kShort = 31;
// Where the steps for a size cannot be carried out for all (a short loop becomes one vector as a whole), those for others may.
constexpr int64_t kOtherSizes[] = {127, 1021, 61, 31};

// More of them make a space wider, not better.
constexpr size_t kMostInstances = 5;

// Those whose half, quarter and eighth, rounded in any way, fill no vectors: what strides have left of a long dimension. An eighth of the
// first is a prime number where it is rounded down, of the second where it is rounded up: no tiles of rows are all equal.
constexpr int64_t kOddParts[] = {811, 821};

bool is_prime(int64_t n) {
  for (int64_t k = 2; k * k <= n; ++k)
    if (n % k == 0) return false;
  return n > 1;
}

// The largest prime number up to n, 2 at least.
int64_t prime_below(int64_t n) {
  while (n > 2 && !is_prime(n))
    --n;
  return std::max<int64_t>(n, 2);
}

int64_t prime_above(int64_t n) {
  do
    ++n;
  while (!is_prime(n));
  return n;
}

// That schedules are made for.
int64_t size_to_schedule(const SizeRange& range) {
  if (!range.has_bound()) return range.typical;
  if (range.max <= kShort) return static_cast<int64_t>(std::sqrt(static_cast<double>(range.max)));
  return std::min(range.max, kLargestInstance);
}

// Prime numbers near the sizes, no two of them the same.
template <class SizeOf>
std::vector<int64_t> primes_near(const Func& f, SizeOf&& size_of) {
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < f.dims.size(); ++i) {
    int64_t size = prime_below(size_of(i));
    while (std::find(sizes.begin(), sizes.end(), size) != sizes.end())
      size = prime_above(size);
    sizes.push_back(size);
  }
  return sizes;
}

// Loops over the steps of recurrences.
std::vector<const For*> loops_over_steps(const Func& f) {
  std::set<const ExprNode*> steps;
  for_each_stmt(f.body, [&](const Stmt& s) {
    const auto* block = s.as<Block>();
    for (size_t n = 0; block && n < block->axes.size(); ++n)
      if (block->axes[n].kind == AxisKind::scan) steps.insert(block->values[n].get());
  });
  std::vector<const For*> loops;
  for_each_stmt(f.body, [&](const Stmt& s) {
    const auto* loop = s.as<For>();
    if (loop && steps.contains(loop->var.get())) loops.push_back(loop);
  });
  return loops;
}

VarMap values_of(const Func& f, const std::vector<int64_t>& sizes) {
  VarMap values;
  for (size_t i = 0; i < f.dims.size(); ++i)
    values.emplace(f.dims[i].get(), Expr(sizes[i]));
  return values;
}

// Nothing where it depends on more than dimensions.
std::optional<int64_t> extent_at(const For& loop, const VarMap& values) {
  int64_t extent = 0;
  return as_int(simplify(substitute(loop.extent, values)), &extent) ? std::optional(extent) : std::nullopt;
}

// Larger ones where recurrences would have a single step, which is none: neither a loop, nor an axis of what it makes.
std::vector<int64_t> with_several_steps(const Func& f, std::vector<int64_t> sizes) {
  constexpr int64_t kMost = 1 << 20;
  for (const For* loop : loops_over_steps(f)) {
    std::vector<int64_t> larger = sizes;
    bool grows = true;
    while (extent_at(*loop, values_of(f, larger)) == 1 && grows) {
      grows = false;
      for (size_t i = 0; i < f.dims.size(); ++i) {
        if (!uses_var(loop->extent, f.dims[i]) || larger[i] > kMost) continue;
        larger[i] = prime_above(2 * larger[i]);
        grows = true;
      }
    }
    if (extent_at(*loop, values_of(f, larger)).value_or(0) > 1) sizes = std::move(larger);
  }
  return sizes;
}

// Whether sizes leave loops nothing to do that have work at others: windows that do not fit.
bool is_without_work(const Func& f, const std::vector<int64_t>& sizes) {
  const VarMap values = values_of(f, sizes);
  bool found = false;
  for_each_stmt(f.body, [&](const Stmt& s) {
    const auto* loop = s.as<For>();
    if (loop && !loop->extent.as<IntImm>()) found |= extent_at(*loop, values).value_or(1) < 1;
  });
  return found;
}

// Sizes to try, those first that the function is for.
std::vector<std::vector<int64_t>> instances(const Func& f) {
  const std::optional<std::vector<SizeRange>> ranges = sizes_of(f);
  std::vector<std::vector<int64_t>> result, without_work;
  auto add = [&](auto&& size_of) {
    std::vector<int64_t> sizes = with_several_steps(f, primes_near(f, size_of));
    (is_without_work(f, sizes) ? without_work : result).push_back(std::move(sizes));
  };
  if (ranges) {
    add([&](size_t i) { return size_to_schedule((*ranges)[i]); });
    if (result.empty())
      add([&](size_t i) {
        return (*ranges)[i].has_bound() ? std::min((*ranges)[i].max, kLargestInstance) : kLargestInstance;
      });
  }
  for (int64_t size : kOtherSizes)
    add([&](size_t) { return size; });
  const bool have_bounds = !ranges || std::all_of(ranges->begin(), ranges->end(), [](const SizeRange& r) { return r.has_bound(); });
  for (int64_t size : kOddParts)
    if (!have_bounds) add([&](size_t) { return size; });
  return result.empty() ? without_work : result;
}

// Buffers that a GPU's blocks or threads have to themselves, and whose size depends on the run.
std::set<std::string> open_private_buffers(const Schedule& schedule, const Target& target) {
  std::set<std::string> found;
  const Func lowered = lower(schedule.func(), target);
  for_each_stmt(lowered.body, [&](const Stmt& s) {
    const auto* launch = s.as<For>();
    if (!launch || launch->loop != LoopKind::bound) return;
    for_each_stmt(launch->body, [&](const Stmt& inside) {
      const auto* allocate = inside.as<Allocate>();
      if (allocate && !constant_bytes(allocate->buffer)) found.insert(allocate->buffer.name());
    });
  });
  return found;
}

// A loop is cut into parts of given lengths: where its own depends on the run, the outermost part gets what is left.
Step for_open_loop(const Schedule& schedule, const Step& step) {
  const auto* split = std::get_if<Split>(&step);
  if (split == nullptr || split->factors.empty() ||
      std::count(split->factors.begin(), split->factors.end(), 0) != 0)
    return step;
  const For* loop = schedule.find_loop(split->loop);
  int64_t extent = 0;
  if (loop == nullptr || as_int(loop->extent, &extent)) return step;
  Split open = *split;
  open.factors[0] = 0;
  return open;
}

// Carries the steps out but for those that are only for a length that is known: unrolling, and the scope of the buffers in `global`.
Outcome replay_for_all(Schedule& schedule, const Trace& trace, const std::set<std::string>& global) {
  for (size_t i = 0; i < trace.size(); ++i) {
    const auto* scope = std::get_if<SetScope>(&trace[i]);
    if (scope != nullptr && global.contains(scope->buffer)) continue;
    const Outcome outcome = schedule.apply(for_open_loop(schedule, trace[i]));
    if (outcome || std::holds_alternative<Unroll>(trace[i])) continue;
    return refuse(outcome.code, text("step ", i + 1, ", ", to_text(trace[i]), ": ", outcome.detail));
  }
  return applied();
}

// A buffer among these, which stay in global memory, that several threads would write at the same places; empty if there is none.
std::string written_by_several(const Schedule& schedule, const std::set<std::string>& global) {
  for (const std::string& name : schedule.block_names()) {
    const Block& block = *schedule.find_block(name);
    const Buffer buffer = is_recomputed(block) ? only_buffer_written(block) : Buffer();
    if (buffer.defined() && global.contains(buffer.name())) return buffer.name();
  }
  return "";
}

// On a GPU what a block or thread has to itself has a size that does not depend on the run; other buffers stay in global memory.
Outcome replay_on_grid(Schedule& schedule, const Func& f, const Trace& trace, const Target& target) {
  std::set<std::string> global;
  while (true) {
    schedule = Schedule(f);
    const Outcome outcome = replay_for_all(schedule, trace, global);
    if (!outcome) return outcome;
    const size_t known = global.size();
    const std::set<std::string> open = open_private_buffers(schedule, target);
    global.insert(open.begin(), open.end());
    if (const std::string shared = written_by_several(schedule, global); open.empty() && !shared.empty())
      return refuse(RefusalCode::scope,
                    text("buffer ", shared, ", which a thread has to itself, would have no constant size"));
    if (open.empty()) return applied();
    if (global.size() == known)
      return refuse(RefusalCode::scope,
                    text("buffer ", *open.begin(), " of a block or thread would have no constant size"));
  }
}

// The rules at work on one instance and on the function itself at once: where a step is not possible for all sizes, the next rule has
// the block.
std::optional<DefaultSchedule> schedule_side_by_side(const Func& f, const std::vector<int64_t>& sizes,
                                                     const Target& target) {
  PreferredDecider decide;
  Draft draft{Schedule(with_sizes(f, sizes), f), decide, target};
  draft.open_loops = loops_without_extent(f);
  apply_rules(draft);
  DefaultSchedule out{Schedule(f), std::move(draft.refused), false, {}};
  if (!draft.refusal || !replay_on_grid(out.schedule, f, draft.schedule.trace_for_all_sizes(), target))
    return std::nullopt;
  for (RefusedRule& r : out.refused)
    if (r.instead.empty()) r.instead = kPlainOnGrid;
  return out;
}

// The default schedule, and the instance that it comes from.
struct DefaultOfInstance {
  DefaultSchedule made;
  OpenInstance instance;
};

// Without instructions whose tiles have to be whole, what is left of rows can be skipped instead of padded.
Target without_tiles(Target target) {
  std::istringstream features(target.features);
  std::vector<std::string> kept;
  for (std::string feature; std::getline(features, feature, ',');)
    if (!feature.starts_with("+amx-")) kept.push_back(feature);
  target.features = join(kept, ",");
  return target;
}

// Nothing where no instance's schedule is possible for all sizes: why not is in `refused`.
std::optional<DefaultOfInstance> replay_instances(const Func& f, const Target& target, const Point& answers,
                                                  std::vector<RefusedRule>& refused) {
  for (std::vector<int64_t>& sizes : instances(f)) {
    DefaultSchedule chosen = default_schedule_of_instance(f, sizes, target, answers);
    Schedule schedule(f);
    const Trace& trace = chosen.schedule.trace();
    const Outcome replayed =
        target.kind == TargetKind::cuda ? replay_on_grid(schedule, f, trace, target) : schedule.replay(trace);
    if (replayed) {
      chosen.schedule = std::move(schedule);
      return DefaultOfInstance{std::move(chosen), {std::move(sizes), OpenInstance::Way::replayed}};
    }
    refused.push_back({"all sizes of symbolic dimensions", f.name, "", replayed.code, replayed.detail, ""});
  }
  return std::nullopt;
}

DefaultOfInstance find_default(const Func& f, const Target& target, const Point& answers = {}) {
  std::vector<RefusedRule> refused;
  if (std::optional<DefaultOfInstance> found = replay_instances(f, target, answers, refused))
    return std::move(*found);
  if (const Target other = without_tiles(target); other.features != target.features)
    if (std::optional<DefaultOfInstance> found = replay_instances(f, other, answers, refused))
      return std::move(*found);
  if (target.kind == TargetKind::cuda) {
    for (std::vector<int64_t>& sizes : instances(f))
      if (std::optional<DefaultSchedule> made = schedule_side_by_side(f, sizes, target))
        return {std::move(*made), {std::move(sizes), OpenInstance::Way::side_by_side}};
  }
  DefaultSchedule plain = plain_schedule(f, target);
  plain.refused.insert(plain.refused.begin(), refused.front());
  for (RefusedRule& r : plain.refused)
    r.instead = target.kind == TargetKind::cuda ? kPlainOnGrid : "each block in vectors by itself";
  return {std::move(plain), {{}, OpenInstance::Way::plain}};
}

}  // namespace

std::set<std::string> loops_without_extent(const Func& f) {
  std::set<std::string> names;
  for_each_stmt(f.body, [&](const Stmt& s) {
    const auto* loop = s.as<For>();
    if (loop && !loop->extent.as<IntImm>()) names.insert(loop->var.name());
  });
  return names;
}

Outcome replay_for_all_sizes(Schedule& schedule, const Func& f, const Trace& trace, const Target& target) {
  if (target.kind == TargetKind::cuda) return replay_on_grid(schedule, f, trace, target);
  schedule = Schedule(f);
  return replay_for_all(schedule, trace, {});
}

std::vector<int64_t> sizes_to_schedule(const Func& f) { return instances(f).front(); }

std::vector<OpenInstance> instances_to_try(const Func& f, const Target& target) {
  const DefaultOfInstance by_default = find_default(f, target);
  std::vector<OpenInstance> out{by_default.instance};
  if (by_default.made.is_plain) out[0].way = OpenInstance::Way::plain;
  const bool is_side_by_side = out[0].way == OpenInstance::Way::side_by_side;
  const OpenInstance::Way way =
      is_side_by_side ? OpenInstance::Way::side_by_side : OpenInstance::Way::replayed;
  auto add = [&](std::vector<int64_t> sizes) {
    if (OpenInstance instance{std::move(sizes), way};
        out.size() < kMostInstances && std::find(out.begin(), out.end(), instance) == out.end())
      out.push_back(std::move(instance));
  };
  if (const std::vector<std::vector<int64_t>> samples = samples_of(f); !samples.empty()) {
    add(samples[0]);
    add(primes_near(f, [&](size_t i) { return samples[0][i]; }));
  }
  for (std::vector<int64_t>& sizes : instances(f))
    add(std::move(sizes));
  return out;
}

DefaultSchedule symbolic_default_schedule(const Func& f, const Target& target, const Point& answers) {
  return find_default(f, target, answers).made;
}

}  // namespace mcc::tuner
