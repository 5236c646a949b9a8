// The space from end to end, and the space at random: the yardsticks of the other searches.
#include "tuner/searches.h"

namespace mcc::tuner {

namespace {

// In the order of enumeration, sketch after sketch.
class GridSearch : public SearchBase {
 public:
  using SearchBase::SearchBase;

 private:
  void fill(std::vector<Candidate>& out, size_t count) override {
    for (; out.size() < count && sketch_ < space_.sketches().size(); ++sketch_, cursor_ = {}) {
      space_.enumerate(*space_.sketches()[sketch_], cursor_, [&](Planned&& planned) {
        propose(out, planned);
        return out.size() < count;
      });
      if (!cursor_.is_done) return;
    }
  }

  size_t sketch_ = 0;
  Cursor cursor_;
};

class RandomSearch : public SearchBase {
 public:
  using SearchBase::SearchBase;

 private:
  void fill(std::vector<Candidate>& out, size_t count) override { fill_randomly(out, count); }
};

}  // namespace

std::unique_ptr<Search> make_grid_search(const SearchContext& context) {
  return std::make_unique<GridSearch>(context);
}
std::unique_ptr<Search> make_random_search(const SearchContext& context) {
  return std::make_unique<RandomSearch>(context);
}

}  // namespace mcc::tuner
