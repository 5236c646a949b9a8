#include "tuner/default_schedule.h"

#include <algorithm>
#include <set>

#include "support/text.h"
#include "tensor/sizes.h"
#include "tensor/visit.h"
#include "tuner/grid_rules.h"
#include "tuner/long_sum.h"
#include "tuner/symbolic_schedule.h"

namespace mcc::tuner {

using namespace tensor;

double estimate_us(double flops, double bytes, const Target& target) {
  // Code around real work rarely gets beyond a quarter of the peak.
  double compute = flops / (target.peak_gflops() * 250);
  double memory = bytes / (target.l2.gb_per_s * 1e3);
  return std::max(compute, memory);
}

bool worth_parallel(double microseconds, const Target& target) {
  return target.cores > 1 && microseconds > 4 * target.fork_us;
}

bool choose_parallel(Draft& draft, const std::string& block, double microseconds) {
  const Target& t = draft.target;
  const bool is_worth_it = worth_parallel(microseconds, t);
  if (t.cores <= 1) return false;
  // The estimate of the time may be off by an order of magnitude, either way.
  if (microseconds < 0.4 * t.fork_us || microseconds > 40 * t.fork_us) return is_worth_it;
  return draft.decide.choose(block + ".parallel", {0, 1}, is_worth_it ? 1 : 0) != 0;
}

int64_t choose_vectors(Draft& draft, const std::string& block, int64_t extent, int64_t lanes, int64_t most) {
  std::vector<int64_t> options{1};
  for (int64_t n = 2; n <= most && extent % (n * lanes) == 0; n *= 2) options.push_back(n);
  return options.size() == 1 ? 1 : draft.decide.choose(block + ".vectors", options, 1);
}

double balance(int64_t items, int cores) {
  int64_t rounds = (items + cores - 1) / cores;
  return static_cast<double>(items) / static_cast<double>(rounds * cores);
}

namespace {

// The contraction with the most work, if there is one.
std::string main_contraction(const Schedule& s) {
  std::string best;
  int64_t work = 0;
  for (const std::string& name : s.block_names()) {
    std::optional<BlockInfo> info = analyze(s, name);
    if (info && info->is_contraction && info->iterations() > work) {
      best = name;
      work = info->iterations();
    }
  }
  return best;
}

}  // namespace

void apply_rules(Draft& draft) {
  if (draft.schedule.block_names().empty()) return;  // nothing has any elements
  if (draft.target.kind == TargetKind::cuda) return apply_grid_rules(draft);
  Schedule& s = draft.schedule;
  if (schedule_unpacked_product(draft) || schedule_rounded_product(draft)) return schedule_rest(draft);
  inline_producers(draft);
  if (schedule_chain(draft) || schedule_word_chain(draft)) return;
  std::string main = main_contraction(s);
  if (!main.empty()) {
    if (!schedule_transformed_product(draft, main) && !schedule_streamed_product(draft, main) && !schedule_tile_product(draft, main)) {
      schedule_register_tile(draft, divide_long_sum(draft, main));
    }
  } else if (schedule_rows(draft)) {
    return;
  }
  schedule_rest(draft);
}

namespace {

// The block, if it still stands under loops of its own.
std::optional<BlockInfo> unscheduled(const Schedule& s, const std::string& block) {
  std::optional<BlockInfo> info = analyze(s, block);
  const bool is_taken = info && std::any_of(info->axes.begin(), info->axes.end(), [&](const AxisInfo& a) {
                          return s.find_loop(a.loop)->loop != LoopKind::serial;
                        });
  return is_taken ? std::nullopt : info;
}

// Whether something is computed, element by element, for the block alone: padding.
bool has_prologue(const Schedule& s, const std::string& block) {
  const std::vector<std::string> producers = s.producers(block);
  return std::any_of(producers.begin(), producers.end(), [&](const std::string& p) {
    const std::optional<BlockInfo> info = unscheduled(s, p);
    return info && info->is_injective && s.consumers(p).size() == 1;
  });
}

}  // namespace

void schedule_rest(Draft& draft) {
  Schedule& s = draft.schedule;
  const std::vector<std::string> blocks = s.block_names();  // without those that rules add
  std::set<std::string> tried, tiled;
  auto try_tile = [&](const std::string& name) {
    const std::optional<BlockInfo> info = unscheduled(s, name);
    if (!info || !info->is_reduction || !tried.insert(name).second) return;
    if (schedule_register_tile(draft, name)) tiled.insert(name);
  };
  // Tiles take what is made for them along, as long as that stands under loops of its own.
  for (const std::string& name : blocks) {
    if (has_prologue(s, name)) try_tile(name);
  }
  for (const std::string& name : blocks) {
    try_tile(name);
    if (tiled.count(name) == 0 && unscheduled(s, name) && !schedule_lines(draft, name)) schedule_pointwise(draft, name);
    schedule_sequence(draft, name);
  }
}

namespace {

// Takes what is given, or else what analysis picks.
class Remembering : public Decider {
 public:
  explicit Remembering(const Point& given) : given_(given) {}
  Answer answer(const Choice& choice, const Answer& preferred) override {
    const auto found = given_.find(choice.name);
    const Answer& taken = found != given_.end() && choice.allows(found->second) ? found->second : preferred;
    chosen.emplace_back(choice.name, taken);
    return taken;
  }
  std::vector<std::pair<std::string, Answer>> chosen;

 private:
  const Point& given_;
};

}  // namespace

void apply_plain_rules(Draft& draft) {
  if (draft.target.kind == TargetKind::cuda) return bind_rest(draft);
  for (const std::string& name : draft.schedule.block_names())
    schedule_pointwise(draft, name);
}

DefaultSchedule plain_schedule(const Func& f, const Target& target) {
  const Point none;
  Remembering decide(none);
  Draft draft{Schedule(f), decide, target};
  apply_plain_rules(draft);
  MCC_CHECK(draft.refusal || target.kind != TargetKind::cuda, f.name, ": no schedule on a grid: ", draft.refusal.detail);
  return {draft.schedule, std::move(draft.refused), true, std::move(decide.chosen)};
}

namespace {

DefaultSchedule by_rules(const Func& f, const Target& target, std::set<std::string> open_loops,
                         const Point& answers) {
  Remembering decide(answers);
  Draft draft{Schedule(f), decide, target};
  draft.open_loops = std::move(open_loops);
  apply_rules(draft);
  const bool is_on_grid = target.kind == TargetKind::cuda;
  DefaultSchedule out{draft.schedule, std::move(draft.refused), !draft.refusal, std::move(decide.chosen)};
  // A shape that a rule's analysis does not foresee (strides beyond the extents of buffers).
  if (out.is_plain) {
    DefaultSchedule plain = plain_schedule(f, target);
    out.schedule = plain.schedule;
    out.chosen = std::move(plain.chosen);
    // The last refusal was the one that nothing made good.
    std::rotate(out.refused.begin(), out.refused.end() - 1, out.refused.end());
    out.refused.insert(out.refused.end(), plain.refused.begin(), plain.refused.end());
  }
  for (RefusedRule& refused : out.refused) {
    if (refused.instead.empty() || out.is_plain) refused.instead = is_on_grid ? kPlainOnGrid : "each block in vectors by itself";
  }
  for (auto at = out.refused.begin(); at != out.refused.end();)
    at = std::find(out.refused.begin(), at, *at) != at ? out.refused.erase(at) : at + 1;
  return out;
}

}  // namespace

DefaultSchedule explained_default_schedule(const Func& f, const Target& target, const Point& answers) {
  return f.dims.empty() ? by_rules(f, target, {}, answers) : symbolic_default_schedule(f, target, answers);
}

DefaultSchedule default_schedule_of_instance(const Func& f, const std::vector<int64_t>& sizes,
                                             const Target& target, const Point& answers) {
  return by_rules(with_sizes(f, sizes), target, loops_without_extent(f), answers);
}

Schedule default_schedule(const Func& f, const Target& target) { return explained_default_schedule(f, target).schedule; }

}  // namespace mcc::tuner
