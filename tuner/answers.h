// The answers that a choice allows, counted and numbered.
#pragma once

#include <map>
#include <mutex>
#include <tuple>

#include "tuner/decider.h"

namespace mcc::tuner {

// Ordered factorizations of the extent into this many factors. With extent = prod p^a that is the product over its primes
// of C(a + levels - 1, levels - 1).
int64_t count_tiles(int64_t extent, int64_t levels);

// Divisors in ascending order.
std::vector<int64_t> divisors_of(int64_t n);
// The largest of at most so many.
int64_t largest_divisor(int64_t n, int64_t most);

// Numbers the answers of choices: options in the order given, tiles in lexicographic order. Remembers the tiles that it
// has listed. Several threads may ask at once.
class AnswerTable {
 public:
  int64_t count(const Choice& choice);
  Answer at(const Choice& choice, int64_t index);
  // The number of an answer that the choice allows.
  int64_t index_of(const Choice& choice, const Answer& answer);

 private:
  const std::vector<Answer>& tiles(const Choice& choice);

  std::mutex mutex_;
  std::map<std::tuple<int64_t, int64_t, int64_t>, std::vector<Answer>> tiles_;  // entries are made once and stay
};

}  // namespace mcc::tuner
