#include "tuner/answers.h"

#include <algorithm>

#include "support/check.h"

namespace mcc::tuner {

namespace {

// C(n, k) for the small numbers that exponents of primes are.
int64_t binomial(int64_t n, int64_t k) {
  int64_t result = 1;
  for (int64_t i = 1; i <= k; ++i)
    result = result * (n - k + i) / i;
  return result;
}

void list_tiles(int64_t left, int64_t levels, int64_t max_inner, Answer& factors, std::vector<Answer>& out) {
  if (levels == 1) {
    if (left > max_inner) return;
    factors.push_back(left);
    out.push_back(factors);
    factors.pop_back();
    return;
  }
  for (int64_t d : divisors_of(left)) {
    factors.push_back(d);
    list_tiles(left / d, levels - 1, max_inner, factors, out);
    factors.pop_back();
  }
}

}  // namespace

int64_t count_tiles(int64_t extent, int64_t levels) {
  int64_t count = 1;
  for (int64_t p = 2; p * p <= extent; ++p) {
    int64_t exponent = 0;
    for (; extent % p == 0; extent /= p)
      ++exponent;
    count *= binomial(exponent + levels - 1, levels - 1);
  }
  return extent > 1 ? count * levels : count;
}

std::vector<int64_t> divisors_of(int64_t n) {
  std::vector<int64_t> low, high;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d * d != n) high.push_back(n / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

int64_t largest_divisor(int64_t n, int64_t most) {
  int64_t best = 1;
  for (int64_t d : divisors_of(n))
    best = d <= most ? d : best;
  return best;
}

const std::vector<Answer>& AnswerTable::tiles(const Choice& choice) {
  int64_t inner = std::min(choice.max_inner, choice.extent);
  std::lock_guard lock(mutex_);
  auto [entry, is_new] = tiles_.try_emplace({choice.extent, choice.levels, inner});
  if (is_new) {
    Answer factors;
    list_tiles(choice.extent, choice.levels, inner, factors, entry->second);
  }
  return entry->second;
}

int64_t AnswerTable::count(const Choice& choice) {
  const bool is_tile = choice.kind == Choice::Kind::tile;
  return static_cast<int64_t>(is_tile ? tiles(choice).size() : choice.options.size());
}

Answer AnswerTable::at(const Choice& choice, int64_t index) {
  auto i = static_cast<size_t>(index);
  return choice.kind == Choice::Kind::tile ? tiles(choice)[i] : Answer{choice.options[i]};
}

int64_t AnswerTable::index_of(const Choice& choice, const Answer& answer) {
  MCC_CHECK(choice.allows(answer), "decision ", choice.name, ": no such answer");
  if (choice.kind == Choice::Kind::category) {
    return std::find(choice.options.begin(), choice.options.end(), answer[0]) - choice.options.begin();
  }
  const std::vector<Answer>& all = tiles(choice);
  return std::lower_bound(all.begin(), all.end(), answer) - all.begin();
}

}  // namespace mcc::tuner
