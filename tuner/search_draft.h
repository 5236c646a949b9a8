// Draft-then-verify (Pruner, ASPLOS'25): a static analyser ranks many points, a learned model the best of those, and
// only the best of both are measured.
#pragma once

#include "tuner/searches.h"

namespace mcc::tuner {

class DraftSearch : public SearchBase {
 public:
  explicit DraftSearch(const SearchContext& context);

 protected:
  void fill(std::vector<Candidate>& out, size_t count) override;
  // Candidates by the models until `out` has `count`, for searches that mix them with others.
  void fill_from_drafts(std::vector<Candidate>& out, size_t count);
  // The best drafts by the drafter alone, the best first.
  const std::vector<Scored>& drafts();

 private:
  void make_drafts();
  std::vector<Scored> make_mutants();

  std::vector<Scored> pool_;    // all that the drafter has ranked
  std::vector<Scored> drafts_;  // the best of them
  int rounds_ = 0;
  size_t effort_ = 1;  // numbers of points are divided by it
};

}  // namespace mcc::tuner
