// What the searches share: the space, what was proposed and measured, ranking by models. Each search is a class in its own
// tuner/search_*.cpp.
#pragma once

#include <set>

#include "tuner/search.h"
#include "tuner/space.h"

namespace mcc::tuner {

// A point that was measured without an error.
struct Measured {
  const Sketch* sketch = nullptr;
  Planned planned;  // func is empty
  double us = 0;
};

struct Scored {
  const Sketch* sketch = nullptr;
  Planned planned;
  double score = 0;
};

class SearchBase : public Search {
 public:
  explicit SearchBase(const SearchContext& context);

  std::vector<Candidate> next(int count) final;
  void tell(std::span<const Trial> trials) override;
  double space_size() const override { return space_.size().points; }

 protected:
  // Adds candidates to `out` by propose() until there are `count`. `out` is empty, except for the first of a fresh search.
  virtual void fill(std::vector<Candidate>& out, size_t count) = 0;

  // Adds the point unless it is not legal or was seen; whether it was added.
  bool propose(std::vector<Candidate>& out, const Planned& planned);
  bool is_seen(const Planned& planned) const { return seen_.count(to_text(planned.candidate.trace)) != 0; }
  // A stream for the next random draw of this search.
  Random draw() { return Random(context_.seed, task_key_, ++draws_); }
  const Sketch& random_sketch(Random& random);
  // Random points until `out` is full; goes through the space when random points are all known and it is small.
  void fill_randomly(std::vector<Candidate>& out, size_t count);

  // The scores of points by a model. Without a model they stay as they are.
  void score(std::vector<Scored>& points, CostModel* model);
  // Unseen legal points, each trace once, the best first; by the order of the list where scores are equal.
  std::vector<Scored> best_unseen(std::vector<Scored> points, size_t count) const;
  // The best of what was measured, the fastest first.
  const std::vector<Measured>& measured() const { return measured_; }

  SearchContext context_;
  mutable Space space_;  // estimates its size when first asked

 private:
  uint64_t task_key_ = 0, draws_ = 0;
  bool is_started_ = false;
  std::set<std::string> seen_;
  std::vector<Measured> measured_;
};

// By chance in proportion to weights, which are not negative; uniformly if all are 0.
size_t pick_weighted(const std::vector<double>& weights, Random& random);

std::unique_ptr<Search> make_grid_search(const SearchContext& context);
std::unique_ptr<Search> make_random_search(const SearchContext& context);
std::unique_ptr<Search> make_genetic_search(const SearchContext& context);
std::unique_ptr<Search> make_evolutionary_search(const SearchContext& context);
std::unique_ptr<Search> make_draft_search(const SearchContext& context);
std::unique_ptr<Search> make_auto_search(const SearchContext& context);

}  // namespace mcc::tuner
