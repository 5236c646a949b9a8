// AutoTVM's genetic tuner: generations of measured points, parents drawn by their speed, children from both, each decision
// redrawn now and then, the best of all kept as parents. No model.
#include "tuner/searches.h"

namespace mcc::tuner {

namespace {

// AutoTVM has 100 and budgets of 1000 trials; smaller generations learn from the first hundred trials, too.
constexpr size_t kPopulation = 32;
constexpr size_t kElite = 3;
constexpr double kMutation = 0.1;  // of each decision

class GeneticSearch : public SearchBase {
 public:
  using SearchBase::SearchBase;

 private:
  void fill(std::vector<Candidate>& out, size_t count) override {
    if (measured().size() >= 2) {
      size_t attempts = 16 * count;
      for (size_t i = 0; i < attempts && out.size() < count; ++i)
        propose(out, child());
    }
    fill_randomly(out, count);
  }

  Planned child() {
    Random random = draw();
    size_t size = std::min(measured().size(), kPopulation);
    std::vector<double> speed;
    for (size_t i = 0; i < size; ++i)
      speed.push_back(1 / measured()[i].us);
    for (size_t i = 0; i < std::min(kElite, size); ++i)
      speed[i] *= 2;
    const Measured& a = measured()[pick_weighted(speed, random)];
    const Measured& b = measured()[pick_weighted(speed, random)];
    Planned made = a.sketch == b.sketch
                       ? space_.cross(*a.sketch, a.planned.candidate.point, b.planned.candidate.point, random)
                       : a.planned;
    size_t choices = made.choices.size();
    for (size_t i = 0; i < choices; ++i) {
      if (random.uniform() < kMutation) made = space_.mutate(*a.sketch, made, Random(random.next()));
    }
    return made;
  }
};

}  // namespace

std::unique_ptr<Search> make_genetic_search(const SearchContext& context) {
  return std::make_unique<GeneticSearch>(context);
}

}  // namespace mcc::tuner
