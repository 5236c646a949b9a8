#include "tuner/searches.h"

#include <algorithm>
#include <numeric>

#include "support/hash.h"
#include "tuner/parallel.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

struct SearchKind {
  std::string_view name;
  std::unique_ptr<Search> (*make)(const SearchContext&);
};

constexpr SearchKind kSearches[] = {
    {"auto", make_auto_search},
    {"draft", make_draft_search},
    {"evolutionary", make_evolutionary_search},
    {"genetic", make_genetic_search},
    {"random", make_random_search},
    {"grid", make_grid_search},
};

}  // namespace

std::unique_ptr<Search> make_search(std::string_view name, const SearchContext& context) {
  for (const SearchKind& kind : kSearches) {
    if (kind.name == name) return kind.make(context);
  }
  return nullptr;
}

std::vector<std::string_view> search_names() {
  std::vector<std::string_view> names;
  for (const SearchKind& kind : kSearches)
    names.push_back(kind.name);
  return names;
}

size_t pick_weighted(const std::vector<double>& weights, Random& random) {
  double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  if (!(total > 0)) return static_cast<size_t>(random.below(static_cast<int64_t>(weights.size())));
  double at = random.uniform() * total;
  for (size_t i = 0; i < weights.size(); ++i) {
    at -= weights[i];
    if (at < 0) return i;
  }
  return weights.size() - 1;
}

SearchBase::SearchBase(const SearchContext& context)
    : context_(context),
      space_(context.task->func, *context.target, context.sketches),
      task_key_(hash_bytes(context.task->text)) {}

std::vector<Candidate> SearchBase::next(int count) {
  std::vector<Candidate> out;
  if (count <= 0 || space_.sketches().empty()) return out;
  if (!is_started_) propose(out, space_.preferred(*space_.sketches()[0]));
  is_started_ = true;
  if (out.size() < static_cast<size_t>(count)) fill(out, static_cast<size_t>(count));
  return out;
}

bool SearchBase::propose(std::vector<Candidate>& out, const Planned& planned) {
  if (!planned.ok() || !seen_.insert(to_text(planned.candidate.trace)).second) return false;
  out.push_back(planned.candidate);
  return true;
}

void SearchBase::tell(std::span<const Trial> trials) {
  for (const Trial& trial : trials) seen_.insert(to_text(trial.candidate.trace));
  std::vector<Measured> points = parallel_map<Measured>(trials.size(), [&](size_t i) {
    const Trial& trial = trials[i];
    const Sketch* sketch = space_.find(trial.candidate.sketch);
    // A censored time is only a bound, and that of a slow point: not one to go on from.
    if (!trial.measurement.ok() || trial.measurement.is_censored || sketch == nullptr) return Measured();
    Planned planned = space_.at(*sketch, trial.candidate.point);
    planned.func = {};
    return Measured{sketch, std::move(planned), trial.measurement.best_us()};
  });
  for (size_t i = 0; i < trials.size(); ++i) {
    Measured& known = points[i];
    // Trials of another version of the rules may mean another point now.
    if (known.sketch == nullptr || !known.planned.ok() ||
        to_text(known.planned.candidate.trace) != to_text(trials[i].candidate.trace))
      continue;
    auto at = std::upper_bound(measured_.begin(), measured_.end(), known.us,
                               [](double us, const Measured& m) { return us < m.us; });
    measured_.insert(at, std::move(known));
  }
}

const Sketch& SearchBase::random_sketch(Random& random) {
  const auto& sketches = space_.sketches();
  return *sketches[static_cast<size_t>(random.below(static_cast<int64_t>(sketches.size())))];
}

void SearchBase::fill_randomly(std::vector<Candidate>& out, size_t count) {
  // Where most draws are known points, going through what is left is cheaper.
  constexpr size_t kPortion = 16;
  const size_t draws = 16 * count + 64;
  for (size_t drawn = 0; drawn < draws && out.size() < count; drawn += kPortion) {
    std::vector<std::pair<const Sketch*, Random>> wanted;
    for (size_t i = 0; i < kPortion; ++i) {
      Random random = draw();
      const Sketch& sketch = random_sketch(random);
      wanted.emplace_back(&sketch, random);
    }
    const std::vector<Planned> made = parallel_map<Planned>(
        kPortion, [&](size_t i) { return space_.sample(*wanted[i].first, wanted[i].second); });
    for (size_t i = 0; i < kPortion && out.size() < count; ++i)
      propose(out, made[i]);
  }
  if (out.size() >= count) return;
  space_.go_through([&](Planned&& planned) {
    propose(out, planned);
    return out.size() < count;
  });
}

void SearchBase::score(std::vector<Scored>& points, CostModel* model) {
  if (model == nullptr) return;
  constexpr size_t kPortion = 64;  // functions that are made anew are held for so many points at a time
  for (size_t begin = 0; begin < points.size(); begin += kPortion) {
    size_t end = std::min(points.size(), begin + kPortion);
    const std::vector<Planned> portion = parallel_map<Planned>(end - begin, [&](size_t i) {
      const Planned& p = points[begin + i].planned;
      return p.func.body ? p : space_.at(*points[begin + i].sketch, p.candidate.point);
    });
    std::vector<double> scores = model->predict(*context_.task, portion);
    for (size_t i = begin; i < end; ++i) points[i].score = scores[i - begin];
  }
}

std::vector<Scored> SearchBase::best_unseen(std::vector<Scored> points, size_t count) const {
  std::stable_sort(points.begin(), points.end(),
                   [](const Scored& a, const Scored& b) { return a.score > b.score; });
  std::vector<Scored> best;
  std::set<std::string> traces;
  for (Scored& p : points) {
    if (best.size() >= count) break;
    if (!p.planned.ok()) continue;
    std::string trace = to_text(p.planned.candidate.trace);
    if (seen_.count(trace) == 0 && traces.insert(std::move(trace)).second) best.push_back(std::move(p));
  }
  return best;
}

}  // namespace mcc::tuner
