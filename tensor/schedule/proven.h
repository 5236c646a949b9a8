// What checks have found to be so in a schedule, for those of later steps: a step leaves most blocks, and the loops around them,
// as they are. An answer depends on nothing but what its question is made of, so it holds for as long as that is part of the function.
#pragma once

#include <memory>
#include <vector>

#include "support/ref.h"
#include "tensor/schedule/tree.h"

namespace mcc::tensor {

class Proven {
 public:
  enum class Kind : int64_t { separated, owned };

  // What is asked about whom, by identity: nodes never change. Of a loop all but its body, which other blocks are in, too.
  class Question {
   public:
    explicit Question(Kind kind) { add(static_cast<int64_t>(kind)); }
    void add(int64_t number);
    void add(const RefCounted* node);
    void add(const BlockSite& site);
    bool operator==(const Question& other) const;

   private:
    std::vector<Ref<const RefCounted>> nodes_;  // kept, so that no other one gets the address of one
    std::vector<int64_t> numbers_;
    size_t hash_ = 0;
  };

  bool holds(const Question& question) const;
  void add(Question question);

 private:
  struct Fact {
    Question question;
    std::shared_ptr<const Fact> before;
    int count;
  };
  std::shared_ptr<const Fact> last_;  // copies of a schedule share what was known when they were made
};

}  // namespace mcc::tensor
