// Few results of many terms each (a sum of everything, a product with one vector): the reduction itself is divided.
//
//   for part (parallel): for result: for terms of the part: partial[part, result] += ...
//   for result: for part: result += partial[part, result]
//
// Ansor's rule "add rfactor" (OSDI'20, table 1, rule 6) with its two outcomes: parts side by side in several threads, or
// interleaved as the lanes of vectors.
#include <algorithm>

#include "tuner/answers.h"
#include "tuner/rules.h"
#include "tuner/sketches.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

bool needs_rfactor(const BlockInfo& info, const Target& t) {
  return info.is_reduction && info.reduce >= 64 && info.spatial <= info.reduce &&
         info.spatial <= 16 * t.cores;
}

class Factored {
 public:
  Factored(Draft& draft, BlockInfo info)
      : d_(draft), s_(draft.schedule), t_(draft.target), info_(std::move(info)) {}

  void run() {
    lanes_ = t_.lanes(std::max(info_.element_bits, 32));
    std::vector<std::string> reduce, spatial;
    for (const AxisInfo& axis : info_.axes)
      (axis.is_reduce ? reduce : spatial).push_back(axis.loop);
    std::string terms = reduce[0];
    if (reduce.size() > 1) {
      terms = info_.name + ".terms";
      must_step(d_, Fuse{reduce, terms});
    }
    const bool is_parallel = t_.cores > 1 && d_.decide.choose(info_.name + ".parts.parallel", {0, 1}, 1) != 0;
    if (is_parallel) {
      terms = factor_out(terms, spatial);
    } else {
      partial_ = info_.name;
    }
    interleave(terms);
    finish();
  }

 private:
  // Parts of consecutive terms become an axis of their own, in parallel. The loop over the terms of one part.
  std::string factor_out(const std::string& terms, const std::vector<std::string>& spatial) {
    Answer preferred{largest_divisor(info_.reduce, 4 * t_.cores), 0};
    preferred[1] = info_.reduce / preferred[0];
    Answer tile = d_.decide.tile(info_.name + ".parts", info_.reduce, 2, info_.reduce, preferred);
    partial_ = info_.name;
    if (tile[0] == 1) return terms;
    std::string part = info_.name + ".part", within = info_.name + ".term";
    must_step(d_, Split{terms, tile, {part, within}});
    partial_ = info_.name + ".partial";
    must_step(d_, Rfactor{info_.name, part, partial_, 0});
    std::vector<std::string> order{part};
    order.insert(order.end(), spatial.begin(), spatial.end());
    order.push_back(within);
    // The loops of the new block carry the names of the old ones; those that stand around it go behind the parts.
    std::vector<std::string> present = s_.loop_names_of(partial_);
    std::erase_if(order, [&](const std::string& l) {
      return std::find(present.begin(), present.end(), l) == present.end();
    });
    if (order.size() > 1) must_step(d_, Reorder{order});
    try_step(d_, Parallel{part});
    return within;
  }

  // Some vectors of partial results for each result.
  void interleave(const std::string& terms) {
    const For* loop = s_.find_loop(terms);
    int64_t extent = 0;
    if (loop == nullptr || !as_int(loop->extent, &extent)) return;
    std::vector<int64_t> options;
    for (int64_t n = 1; n <= 8 && n * lanes_ <= extent; n *= 2) {
      if (extent % (n * lanes_) == 0) options.push_back(n);
    }
    if (options.empty()) return;
    int64_t vectors = d_.decide.choose(info_.name + ".vectors", options, options[options.size() / 2]);
    std::string lane = terms + ".lane", lanes_block = partial_ + ".lanes";
    must_step(d_, Split{terms, {0, vectors * lanes_}, {terms + ".vec", lane}});
    if (!try_step(d_, Rfactor{partial_, lane, lanes_block, 0})) return;
    std::vector<std::string> loops = s_.loop_names_of(lanes_block), order;
    for (const std::string& l : loops) {
      if (l != lane && (l == terms + ".vec" || std::find(order.begin(), order.end(), l) == order.end()))
        order.push_back(l);
    }
    order.push_back(lane);
    if (order.size() > 1) try_step(d_, Reorder{order});
    if (try_step(d_, DecomposeReduction{lanes_block, terms + ".vec"})) {
      std::vector<std::string> init = s_.loop_names_of(lanes_block + ".init");
      if (!init.empty()) try_step(d_, Vectorize{init.back()});
    }
    try_step(d_, Vectorize{lane});
    vectorize_sum(partial_);
  }

  // The sum over the lanes.
  void vectorize_sum(const std::string& block) {
    std::vector<const For*> loops = s_.loops_of(block);
    if (loops.empty()) return;
    std::string last = loops.back()->var.name();
    if (try_step(d_, DecomposeReduction{block, last})) try_step(d_, Vectorize{last});
  }

  void finish() {
    if (partial_ == info_.name) return;
    std::vector<std::string> loops = s_.loop_names_of(info_.name);
    if (!loops.empty()) try_step(d_, DecomposeReduction{info_.name, loops.back()});
  }

  Draft& d_;
  Schedule& s_;
  const Target& t_;
  BlockInfo info_;
  int64_t lanes_ = 16;
  std::string partial_;
};

}  // namespace

bool sketch_rfactor(Draft& draft) {
  inline_producers(draft);
  Schedule& s = draft.schedule;
  std::optional<BlockInfo> main;
  for (const std::string& name : s.block_names()) {
    std::optional<BlockInfo> info = analyze(s, name);
    if (!info || !is_free(s, *info) || !needs_rfactor(*info, draft.target)) continue;
    if (!main || info->iterations() > main->iterations()) main = info;
  }
  if (!main) return false;
  Factored(draft, *main).run();
  schedule_rest(draft);
  return true;
}

}  // namespace mcc::tuner
