// The default: first what analysis is sure of, then two searches side by side.
//   1. The default schedule, the analyser's best drafts, and the default's neighbours: about 20 trials.
//   2. Half of each batch goes down the coordinates from the best point so far (Droplet search: each decision one option up
//      or down, then two); the other half is draft-then-verify, which finds the places to go down from.
#include <algorithm>

#include "tuner/parallel.h"
#include "tuner/search_draft.h"

namespace mcc::tuner {

namespace {

constexpr size_t kBestDrafts = 10, kNeighbours = 8;

class AutoSearch : public DraftSearch {
 public:
  using DraftSearch::DraftSearch;

 private:
  void fill(std::vector<Candidate>& out, size_t count) override {
    if (!has_list_) make_list();
    for (; next_ < list_.size() && out.size() < count; ++next_)
      propose(out, list_[next_].planned);
    size_t wanted = count - std::min(count, out.size());
    descend(out, out.size() + (wanted + 1) / 2);
    if (out.size() < count) fill_from_drafts(out, count);
    // What drafts leave open, the neighbours of further measured points fill.
    if (out.size() < count) descend(out, count);
    fill_randomly(out, count);
  }

  // Drafts and neighbours in turns, so that a budget below 20 trials has some of both.
  void make_list() {
    has_list_ = true;
    std::vector<Scored> best = drafts();
    if (best.size() > kBestDrafts) best.resize(kBestDrafts);
    const Sketch* first = space_.sketches()[0];
    std::vector<Scored> near = best_unseen(around(*first, space_.preferred(*first), 1), kNeighbours);
    for (size_t i = 0; i < std::max(best.size(), near.size()); ++i) {
      if (i < best.size()) list_.push_back(std::move(best[i]));
      if (i < near.size()) list_.push_back(std::move(near[i]));
    }
  }

  std::vector<Scored> around(const Sketch& sketch, const Planned& planned, int64_t stride) {
    const std::vector<Point> near = space_.neighbours(planned, stride);
    std::vector<Planned> made = parallel_map<Planned>(near.size(), [&](size_t i) { return space_.at(sketch, near[i]); });
    std::vector<Scored> points;
    for (Planned& p : made) {
      if (p.ok() && !is_seen(p)) points.push_back({&sketch, std::move(p), 0});
    }
    score(points, context_.model != nullptr ? context_.model : context_.drafter);
    for (Scored& point : points)
      point.planned.func = {};
    return points;
  }

  void descend(std::vector<Candidate>& out, size_t count) {
    size_t starts = std::min<size_t>(measured().size(), 3);
    for (size_t i = 0; i < starts; ++i) {
      for (int64_t stride : {1, 2}) {
        if (out.size() >= count) return;
        const Measured& from = measured()[i];
        for (const Scored& near :
             best_unseen(around(*from.sketch, from.planned, stride), count - out.size())) {
          propose(out, near.planned);
        }
      }
    }
  }

  bool has_list_ = false;
  std::vector<Scored> list_;
  size_t next_ = 0;
};

}  // namespace

std::unique_ptr<Search> make_auto_search(const SearchContext& context) {
  return std::make_unique<AutoSearch>(context);
}

}  // namespace mcc::tuner
