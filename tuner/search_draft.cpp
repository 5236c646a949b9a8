#include "tuner/search_draft.h"

#include <algorithm>
#include <map>

#include "tuner/parallel.h"

namespace mcc::tuner {

namespace {

// Pruner drafts some thousands of points a round. At 0.2 to 0.6 ms a point that would take longer than the trials do, so
// a round plans about as many points as cost a few trials, and what the drafter has ranked stays in a pool.
constexpr size_t kDrafts = 256;  // new points, in the first round and each kRedraft-th one
constexpr int kRedraft = 4;
constexpr size_t kPool = 1024;
constexpr size_t kKeep = 256;       // of the pool
constexpr size_t kPerTile = 8;      // drafts of equal tiles
constexpr size_t kVerified = 96;    // drafts that the model sees in a round, half of them the best, half any
constexpr size_t kMutants = 48;     // mutations of drafts and measured points that it sees beside those
constexpr size_t kParents = 16;     // best measured points
constexpr size_t kExploratory = 8;  // one in so many is not the model's choice
// Kernels of more blocks than this (a convolution by Winograd's algorithm has seven) take several milliseconds to plan: half
// as many points are looked at.
constexpr size_t kManyBlocks = 4;

// What points of equal tiles have in common: all answers but those on unrolling, places and threads.
std::string tile_key(const Scored& draft) {
  std::string key(draft.sketch->name);
  for (const auto& [name, answer] : draft.planned.candidate.point) {
    if (name.ends_with(".unroll") || name.ends_with(".place") || name.ends_with(".parallel")) continue;
    for (int64_t value : answer)
      key += "," + std::to_string(value);
  }
  return key;
}

}  // namespace

DraftSearch::DraftSearch(const SearchContext& context)
    : SearchBase(context),
      effort_(tensor::Schedule(context.task->func).block_names().size() > kManyBlocks ? 2 : 1) {}

// New drafts join those of the rounds before: a static analyser would give known points the same ranks again.
void DraftSearch::make_drafts() {
  std::vector<Scored> points;
  auto add = [&](const Sketch* sketch, Planned&& planned) {
    if (planned.ok()) points.push_back({sketch, std::move(planned), 0});
  };
  std::vector<const Sketch*> large;
  for (const Sketch* sketch : space_.sketches()) {
    if (space_.estimate(*sketch) > kDrafts) {
      large.push_back(sketch);
    } else if (rounds_ == 0) {
      Cursor cursor;
      space_.enumerate(*sketch, cursor, [&](Planned&& planned) {
        add(sketch, std::move(planned));
        return true;
      });
    }
  }
  struct Draft {
    const Sketch* sketch;
    const Planned* parent;  // null: a random point
    Random random;
  };
  std::vector<Draft> wanted;
  const size_t samples = (rounds_ == 0 ? kDrafts : kDrafts / 4) / effort_;
  for (const Sketch* sketch : large) {
    for (size_t i = 0; i < samples / large.size(); ++i) wanted.push_back({sketch, nullptr, draw()});
  }
  size_t parents = std::min<size_t>(measured().size(), 32);
  for (size_t i = 0; i < parents * 8 / effort_; ++i) {
    const Measured& parent = measured()[i % parents];
    wanted.push_back({parent.sketch, &parent.planned, draw()});
  }
  std::vector<Planned> made = parallel_map<Planned>(wanted.size(), [&](size_t i) {
    const auto& [sketch, parent, random] = wanted[i];
    return parent ? space_.mutate(*sketch, *parent, random) : space_.sample(*sketch, random);
  });
  for (size_t i = 0; i < wanted.size(); ++i) add(wanted[i].sketch, std::move(made[i]));
  score(points, context_.drafter != nullptr ? context_.drafter : context_.model);
  for (Scored& point : points) {
    point.planned.func = {};
    pool_.push_back(std::move(point));
  }
  pool_ = best_unseen(std::move(pool_), kPool);
  drafts_.clear();
  std::map<std::string, size_t> of_tile;
  for (const Scored& draft : pool_) {
    if (drafts_.size() >= kKeep) break;
    if (++of_tile[tile_key(draft)] <= kPerTile) drafts_.push_back(draft);
  }
}

const std::vector<Scored>& DraftSearch::drafts() {
  if (rounds_ == 0) {
    make_drafts();
    rounds_ = 1;
  }
  return drafts_;
}

std::vector<Scored> DraftSearch::make_mutants() {
  std::vector<std::pair<const Sketch*, const Planned*>> from;
  std::vector<Random> randoms;
  size_t parents = std::min(measured().size(), kParents);
  for (size_t i = 0; i < kMutants / effort_ && parents + drafts_.size() > 0; ++i) {
    Random random = draw();
    const bool is_measured = parents > 0 && (drafts_.empty() || random.below(2) == 0);
    auto pick = [&](size_t n) { return static_cast<size_t>(random.below(static_cast<int64_t>(n))); };
    const Measured* known = is_measured ? &measured()[pick(parents)] : nullptr;
    const Scored* draft = is_measured ? nullptr : &drafts_[pick(drafts_.size())];
    const Sketch* sketch = known != nullptr ? known->sketch : draft->sketch;
    from.emplace_back(sketch, known != nullptr ? &known->planned : &draft->planned);
    randoms.push_back(random);
  }
  std::vector<Planned> made = parallel_map<Planned>(
      from.size(), [&](size_t i) { return space_.mutate(*from[i].first, *from[i].second, randoms[i]); });
  std::vector<Scored> mutants;
  for (size_t i = 0; i < from.size(); ++i) {
    if (made[i].ok()) mutants.push_back({from[i].first, std::move(made[i]), 0});
  }
  return mutants;
}

void DraftSearch::fill_from_drafts(std::vector<Candidate>& out, size_t count) {
  if (rounds_ == 0 || rounds_ % kRedraft == 0) make_drafts();
  ++rounds_;
  std::vector<Scored> points = drafts_;
  // Where the drafter is the model, the ranks of drafts are known.
  const bool is_verified = context_.model != nullptr && context_.model != context_.drafter;
  const size_t verified = kVerified / effort_;
  if (is_verified && points.size() > verified) {
    Random random = draw();
    for (size_t i = verified / 2; i < verified; ++i) {
      std::swap(points[i],
                points[i + static_cast<size_t>(random.below(static_cast<int64_t>(points.size() - i)))]);
    }
    points.resize(verified);
  }
  std::vector<Scored> mutants = make_mutants();
  CostModel* model = context_.model != nullptr ? context_.model : context_.drafter;
  if (is_verified) score(points, model);
  score(mutants, model);
  std::move(mutants.begin(), mutants.end(), std::back_inserter(points));
  size_t wanted = count - std::min(count, out.size());
  size_t exploratory = wanted / kExploratory;
  for (const Scored& best : best_unseen(std::move(points), wanted - exploratory))
    propose(out, best.planned);
  for (size_t attempt = 0; attempt < 4 * exploratory && out.size() < count && !drafts_.empty(); ++attempt) {
    Random random = draw();
    propose(out, drafts_[static_cast<size_t>(random.below(static_cast<int64_t>(drafts_.size())))].planned);
  }
}

void DraftSearch::fill(std::vector<Candidate>& out, size_t count) {
  fill_from_drafts(out, count);
  fill_randomly(out, count);
}

std::unique_ptr<Search> make_draft_search(const SearchContext& context) {
  return std::make_unique<DraftSearch>(context);
}

}  // namespace mcc::tuner
