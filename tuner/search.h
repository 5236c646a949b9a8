// Strategies that choose which points of a task's space to measure next. Deterministic: the same seed and the same
// measured values give the same candidates.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tuner/cost_model.h"

namespace mcc::tuner {

struct SearchContext {
  const Task* task = nullptr;
  const tensor::Target* target = nullptr;
  std::span<const Sketch> sketches;  // usually all_sketches(); those that fit the task make up its space
  CostModel* model = nullptr;        // learned: ranks what is to be measured; null: none
  CostModel* drafter =
      nullptr;  // static: ranks drafts, of which there are many; null: the model does that, too
  uint64_t seed = 0;
};

class Search {
 public:
  virtual ~Search() = default;
  // At most `count` candidates that have not been told or proposed before; fewer or none when the space is used up. The
  // first candidate of a fresh search is what analysis prefers.
  virtual std::vector<Candidate> next(int count) = 0;
  // What was measured: results of next(), or trials of earlier runs out of a log. Who owns the models teaches them.
  virtual void tell(std::span<const Trial> trials) = 0;
  // Points of the space: an estimate, exact where the search has gone through all of a small one (Space::size).
  virtual double space_size() const = 0;
};

// "grid", "random", "genetic", "evolutionary", "draft" (draft-then-verify) or "auto"; null for another name.
std::unique_ptr<Search> make_search(std::string_view name, const SearchContext& context);
std::vector<std::string_view> search_names();

}  // namespace mcc::tuner
