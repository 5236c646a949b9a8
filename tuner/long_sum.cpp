#include "tuner/long_sum.h"

#include <algorithm>
#include <limits>

#include "tensor/schedule/weight_order.h"
#include "tuner/analysis.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr int64_t kShortestPart = 256;  // steps: what a tile writes for them is little beside what it multiplies
constexpr int64_t kMostParts = 64;
constexpr double kWorthwhile = 0.9;  // parts take memory

// batches x (rows x steps) x (steps x columns), weights in memory.
struct Product {
  std::string loop;  // of the sum
  int64_t batches = 1, rows = 1, columns = 1, steps = 1, element_bytes = 4;
};

// The product, if it is one with weights in panels and one sum.
std::optional<Product> product_of(const Schedule& s, const BlockInfo& info) {
  if (!info.is_contraction || info.is_nested || info.loads.size() != 2) return std::nullopt;
  Product p;
  size_t k = info.axes.size();
  for (size_t a = 0; a < info.axes.size(); ++a) {
    if (!info.axes[a].is_reduce) continue;
    if (k < info.axes.size()) return std::nullopt;
    k = a;
  }
  if (k == info.axes.size()) return std::nullopt;
  const size_t w = is_weight(s.func(), info.loads[0].buffer) ? 0 : 1;
  const Access& weights = info.loads[w];
  const Access& rows = info.loads[1 - w];
  const bool are_weights = is_weight(s.func(), weights.buffer) && is_float(weights.buffer.element());
  if (!are_weights || weights.strides[k] <= 1 || rows.strides[k] != 1) return std::nullopt;
  for (size_t a = 0; a < info.axes.size(); ++a) {
    const bool by_weights = weights.strides[a] != 0, by_rows = rows.strides[a] != 0;
    const int64_t extent = info.axes[a].extent;
    (a == k ? p.steps : by_weights && by_rows ? p.batches : by_weights ? p.columns : p.rows) *= extent;
  }
  p.loop = info.axes[k].loop;
  p.element_bytes = byte_size(weights.buffer.element());
  return p;
}

// Results of parts are written and read again. Those that the last cache does not hold are fetched before they are written, too, in short
// pieces far from each other, of which memory gives about half as much as of long ones. (512 rows of 4096 x 4096 on a Zen 3 with 32 MB: 205 ms
// as a whole, 192, 187, 204 and 239 in 2, 4, 8 and 16 parts of 8.4 MB each.)
double partial_us(double results, int64_t parts, const Target& t) {
  if (parts == 1) return 0;
  const double bytes = sizeof(float) * results * static_cast<double>(parts);
  constexpr double kPieces = 0.5;
  const bool stay = bytes <= static_cast<double>(t.l3.bytes);
  return stay ? 2 * bytes / (t.l3.gb_per_s * 1e3) : 3 * bytes / (kPieces * t.dram_gb_per_s * 1e3);
}

// How long the product takes in so many parts, on one core.
double product_us(const Product& p, int64_t parts, const Target& t) {
  const auto results = static_cast<double>(p.batches * p.rows * p.columns);
  const int64_t row_bytes = p.rows * (p.steps / parts) * p.element_bytes;
  const auto chunks = static_cast<double>(ceil_div64(row_bytes, t.l2.bytes / 2));
  const auto weights = static_cast<double>(p.batches * p.columns * p.steps * p.element_bytes);
  // A model's weights come from memory the first time.
  const double again = weights <= static_cast<double>(t.l3.bytes) ? t.l3.gb_per_s : t.dram_gb_per_s;
  const double multiplied = 2 * results * static_cast<double>(p.steps) / (t.peak_gflops() * 1e3);
  const double read = weights / (t.dram_gb_per_s * 1e3) + (chunks - 1) * weights / (again * 1e3);
  return multiplied + read + partial_us(results, parts, t);
}

int64_t choose_parts(Draft& draft, const Product& p, const std::string& block) {
  std::vector<int64_t> options{1};
  int64_t best = 1;
  double best_us = kWorthwhile * product_us(p, 1, draft.target);
  for (int64_t parts = 2; parts <= kMostParts && p.steps / parts >= kShortestPart; ++parts) {
    if (p.steps % parts != 0) continue;
    options.push_back(parts);
    const double us = product_us(p, parts, draft.target);
    if (us >= best_us) continue;
    best = parts;
    best_us = us;
  }
  return options.size() == 1 ? 1 : draft.decide.choose(block + ".parts", options, best);
}

}  // namespace

std::string divide_long_sum(Draft& draft, const std::string& block) {
  const std::optional<BlockInfo> info = analyze(draft.schedule, block);
  const std::optional<Product> p = info ? product_of(draft.schedule, *info) : std::nullopt;
  // What stays in the cache as a whole needs no parts.
  if (!p || p->rows * p->steps * p->element_bytes <= draft.target.l2.bytes / 2) return block;
  const int64_t parts = choose_parts(draft, *p, block);
  const std::string part = block + ".part";
  const bool is_divided = parts > 1 && try_all(draft, {"sums in parts", block, "the sum as a whole"}, [&] {
                            must_step(draft, Split{p->loop, {parts, 0}, {p->loop + ".part", p->loop}});
                            must_step(draft, Rfactor{block, p->loop + ".part", part, 0});
                            return draft.refusal && analyze(draft.schedule, part).has_value();
                          });
  return is_divided ? part : block;
}

}  // namespace mcc::tuner
