// Packing an operand of a product inside the kernel: a copy in panels, each as wide as a register tile and contiguous along
// the reduction (Goto and van de Geijn, TOMS 2008). Where rows lie far apart, the reads of one panel touch a page and a
// cache set each; where they are transposed, there is no vector to read at all. The copy pays as soon as some row
// tiles pass over it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tuner/analysis.h"
#include "tuner/draft.h"

namespace mcc::tuner {

struct Packing {
  size_t load = 0;      // of the block's loads: what is packed
  int axis = -1;        // the block's axis that becomes vectors
  size_t dim = 0;       // the copy's dimension along it
  int64_t vectors = 1;  // width of a panel
  int64_t lanes = 16;
  std::string name;                // of the copy
  std::vector<std::string> loops;  // that make it, one for each dimension
  std::vector<std::string> axes;   // of the block, that are its dimensions; none where these are the buffer's
  std::string map;             // its layout, for transform_layout
  bool is_transposed = false;  // not contiguous along the axis
  // Panels that are packed together, so many that they stay in the second-level cache while all rows pass over them; 0: all
  // of the operand is packed before the product, as its columns alone do not keep the cores busy.
  int64_t panels = 0;

  int64_t width() const { return vectors * lanes; }
};

// The operand along the result's contiguous axis, if it can be packed and that is worth it. Asks "block.pack",
// "block.panel" and "block.block". A copy that has the block's axes is there already then, and info is of the block that reads it.
std::optional<Packing> choose_packing(Draft& draft, BlockInfo& info);

// What analysis says of the block when it reads the copy.
BlockInfo with_packing(BlockInfo info, const Packing& packing);

// The copy: before the block's loops, or in each iteration of `loop`. In vectors, and parallel when it stands alone.
void apply_packing(Draft& draft, const BlockInfo& info, const Packing& packing, const std::string& loop);

}  // namespace mcc::tuner
