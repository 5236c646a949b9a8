#include "tuner/pick.h"

#include <algorithm>
#include <set>

#include "support/hash.h"
#include "tuner/space.h"

namespace mcc::tuner {

namespace {

struct Ranked {
  const Sketch* sketch = nullptr;
  Planned planned;  // func is empty
  double us = 0;
};

class Picker {
 public:
  Picker(const Task& task, const tensor::Target& target, TrialBuilder* builder, const PickOptions& options)
      : task_(task),
        target_(target),
        builder_(builder),
        options_(options),
        space_(task.func, target, all_sketches()),
        key_(hash_bytes(task.text)) {}

  Pick run() {
    const Sketch& rules = *space_.sketches()[0];
    add(rules, space_.preferred(rules));
    const Ranked by_default = ranked_.front();
    for (const Sketch* sketch : space_.sketches())
      draft(*sketch);
    for (int round = 0; round < options_.rounds && climb(); ++round) {
    }
    sort();
    return choose(by_default);
  }

 private:
  // Notes a point that is legal and new.
  bool add(const Sketch& sketch, Planned&& planned) {
    if (!planned.ok() || !seen_.insert(to_text(planned.candidate.trace)).second) return false;
    const double us = estimate_us(nest_of(planned.func), target_);
    planned.func = {};
    ranked_.push_back({&sketch, std::move(planned), us});
    return true;
  }

  void draft(const Sketch& sketch) {
    if (space_.estimate(sketch) <= static_cast<double>(options_.drafts)) {
      Cursor cursor;
      size_t visited = 0;
      space_.enumerate(sketch, cursor, [&](Planned&& planned) {
        add(sketch, std::move(planned));
        return ++visited < 2 * options_.drafts;
      });
      return;
    }
    for (size_t i = 0; i < options_.drafts; ++i)
      add(sketch, space_.sample(sketch, Random(options_.seed, key_, i)));
  }

  // To the neighbours of the best points; whether there was one that is better than all before.
  bool climb() {
    constexpr size_t kStarts = 4;
    sort();
    const double before = ranked_.front().us;
    std::vector<Ranked> starts(ranked_.begin(),
                               ranked_.begin() + static_cast<ptrdiff_t>(std::min(kStarts, ranked_.size())));
    for (const Ranked& start : starts) {
      for (const Point& point : space_.neighbours(start.planned))
        add(*start.sketch, space_.at(*start.sketch, point));
    }
    sort();
    return ranked_.front().us < before;
  }

  void sort() {
    std::stable_sort(ranked_.begin(), ranked_.end(),
                     [](const Ranked& a, const Ranked& b) { return a.us < b.us; });
  }

  static bool has_spills(const BuildFigures& figures) {
    return std::any_of(figures.launches.begin(), figures.launches.end(),
                       [](const LaunchFigures& f) { return f.spilled_bytes > 0; });
  }

  // Builds a point: its estimate by its figures.
  std::optional<BuildFigures> built(Ranked& point, Pick& pick) {
    if (builder_ == nullptr) return BuildFigures();
    Planned planned = space_.at(*point.sketch, point.planned.candidate.point);
    BuildFigures figures = builder_->build(task_, planned);
    ++pick.built;
    pick.build_seconds += figures.build_seconds;
    if (figures.error != TrialError::none) {
      ++pick.errors[figures.error];
      if (pick.problem.empty()) pick.problem = figures.message;
      return std::nullopt;
    }
    if (!figures.launches.empty())
      point.us = estimate_gpu_us(nest_of(planned.func), target_.gpu, figures.launches);
    return figures;
  }

  Pick choose(Ranked best) {
    Pick pick;
    pick.ranked = static_cast<int64_t>(ranked_.size());
    const std::string default_trace = to_text(best.planned.candidate.trace);
    std::optional<BuildFigures> figures = built(best, pick);
    pick.default_estimate_us = best.us;
    const double to_beat = best.us * (1 - options_.gain);
    bool is_default = true;
    size_t tried = 0;
    for (Ranked& point : ranked_) {
      if (tried == (builder_ != nullptr ? options_.built : 1)) break;
      if (to_text(point.planned.candidate.trace) == default_trace) continue;
      ++tried;
      // An estimate from figures may be better than the one before, too: how far is not known, so all of these are built.
      std::optional<BuildFigures> of_point = built(point, pick);
      if (!of_point || point.us >= kHopelessUs) continue;
      const bool is_legal = figures.has_value(), spills = is_legal && has_spills(*figures);
      const bool is_better =
          !is_legal || (spills && !has_spills(*of_point)) ||
          (spills == has_spills(*of_point) && point.us < std::min(best.us, is_default ? to_beat : best.us));
      if (!is_better) continue;
      best = point;
      figures = std::move(of_point);
      is_default = false;
    }
    pick.candidate = best.planned.candidate;
    pick.estimate_us = best.us;
    pick.is_default = is_default;
    pick.is_built = figures.has_value();
    if (figures) pick.figures = figures->launches;
    return pick;
  }

  const Task& task_;
  const tensor::Target& target_;
  TrialBuilder* builder_;
  const PickOptions& options_;
  Space space_;
  uint64_t key_;
  std::set<std::string> seen_;
  std::vector<Ranked> ranked_;
};

}  // namespace

Pick pick(const Task& task, const tensor::Target& target, TrialBuilder* builder, const PickOptions& options) {
  return Picker(task, target, builder, options).run();
}

}  // namespace mcc::tuner
