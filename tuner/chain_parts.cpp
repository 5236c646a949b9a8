#include "tuner/chain_parts.h"

#include <algorithm>

#include "tuner/rules.h"

namespace mcc::tuner {

using namespace tensor;

ChainLoops share_out(Draft& draft, const std::string& block, const std::vector<std::string>& batch,
                     int64_t batches, const std::string& chunk, double us) {
  ChainLoops loops{batch.empty() ? "" : batch[0], chunk};
  if (batch.size() > 1) {
    loops.batch = block + ".batch";
    must_step(draft, Fuse{batch, loops.batch});
  }
  // Batches are enough for all cores, or operands are copied before and row blocks are shared out too.
  const bool many = choose_parallel(draft, block, us);
  if (!loops.batch.empty() && (!many || balance(batches, draft.target.cores) > 0.8)) {
    if (many) try_step(draft, Parallel{loops.batch});
    return loops;
  }
  if (!loops.batch.empty()) {
    const std::string outer = block + ".outer";
    must_step(draft, Fuse{{loops.batch, chunk}, outer});
    loops = {"", outer};
  }
  if (many) try_step(draft, Parallel{loops.chunk});
  return loops;
}

void place_rows_between(Draft& draft, const std::vector<BlockInfo>& blocks,
                        const std::vector<std::string>& between, const std::string& lead, size_t row,
                        const std::string& chunk) {
  auto info_of = [&](const std::string& name) -> const BlockInfo& {
    return *std::find_if(blocks.begin(), blocks.end(), [&](const BlockInfo& b) { return b.name == name; });
  };
  std::string loop = info_of(lead).axes[row].loop;
  if (draft.schedule.find_loop(loop) == nullptr) loop = chunk;
  auto at = std::find(between.begin(), between.end(), lead);
  if (loop != chunk) {
    for (auto b = at; b != between.begin();)
      try_step(draft, ComputeAt{*--b, loop});
    for (auto b = at + 1; b != between.end(); ++b)
      try_step(draft, ReverseComputeAt{*b, loop});
  }
  for (const std::string& name : between) {
    const BlockInfo& b = info_of(name);
    if (b.axes.size() == row + 1) continue;
    if (b.is_reduction) {
      vectorize_row_reduction(draft, name, loop);
    } else {
      vectorize_row_map(draft, name, loop);
    }
  }
}

}  // namespace mcc::tuner
