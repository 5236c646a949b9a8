// Evolution under a cost model (Ansor, OSDI'20, section 5.1; MetaSchedule): generations are ranked by the model, only the
// best unseen points over all generations are measured. Populations are smaller than theirs (2048 and 512), as a point
// takes 0.2 to 0.6 ms: 288 points a round cost about as much as three trials.
#include <algorithm>

#include "tuner/searches.h"

namespace mcc::tuner {

namespace {

constexpr size_t kPopulation = 96;
constexpr int kGenerations = 3;
constexpr double kFromMeasured = 0.2;  // of the first generation
constexpr double kMutation = 0.85, kCrossover = 0.05;
constexpr double kExploration = 0.05;  // of what is measured, at random

class EvolutionarySearch : public SearchBase {
 public:
  using SearchBase::SearchBase;

 private:
  void fill(std::vector<Candidate>& out, size_t count) override {
    auto random_count = static_cast<size_t>(kExploration * static_cast<double>(count) + draw().uniform());
    std::vector<Scored> population = first_generation(), seen_so_far;
    CostModel* model = context_.model != nullptr ? context_.model : context_.drafter;
    for (int g = 0; g < kGenerations; ++g) {
      score(population, model);
      seen_so_far.insert(seen_so_far.end(), population.begin(), population.end());
      if (g + 1 < kGenerations) population = next_generation(population);
    }
    for (const Scored& best :
         best_unseen(std::move(seen_so_far), count - std::min(count, out.size() + random_count))) {
      propose(out, best.planned);
    }
    fill_randomly(out, count);
  }

  std::vector<Scored> first_generation() {
    std::vector<Scored> population;
    auto from_measured = std::min(measured().size(), static_cast<size_t>(kFromMeasured * kPopulation));
    for (size_t i = 0; i < from_measured; ++i)
      population.push_back({measured()[i].sketch, measured()[i].planned, 0});
    for (size_t attempt = 0; population.size() < kPopulation && attempt < 4 * kPopulation; ++attempt) {
      Random random = draw();
      const Sketch& sketch = random_sketch(random);
      Planned planned = space_.sample(sketch, random);
      if (planned.ok()) population.push_back({&sketch, std::move(planned), 0});
    }
    return population;
  }

  std::vector<Scored> next_generation(const std::vector<Scored>& parents) {
    if (parents.empty()) return {};
    // In proportion to the score, from the worst up.
    double least = parents[0].score;
    for (const Scored& p : parents)
      least = std::min(least, p.score);
    std::vector<double> weights;
    for (const Scored& p : parents)
      weights.push_back(p.score - least);
    std::vector<Scored> children;
    for (size_t i = 0; i < kPopulation; ++i) {
      Random random = draw();
      const Scored& a = parents[pick_weighted(weights, random)];
      double what = random.uniform();
      Planned made = a.planned;
      if (what < kCrossover) {
        const Scored& b = parents[pick_weighted(weights, random)];
        if (a.sketch == b.sketch) {
          made = space_.cross(*a.sketch, a.planned.candidate.point, b.planned.candidate.point, random);
        }
      } else if (what < kCrossover + kMutation) {
        made = space_.mutate(*a.sketch, a.planned, random);
      }
      children.push_back(made.ok() ? Scored{a.sketch, std::move(made), 0} : a);
    }
    return children;
  }
};

}  // namespace

std::unique_ptr<Search> make_evolutionary_search(const SearchContext& context) {
  return std::make_unique<EvolutionarySearch>(context);
}

}  // namespace mcc::tuner
