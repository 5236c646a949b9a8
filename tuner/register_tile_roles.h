// What the axes of a block are to a register tile (rule_register_tile.cpp).
#pragma once

#include <optional>
#include <vector>

#include "tuner/analysis.h"

namespace mcc::tuner {

// Axes by their number in the block; -1: there is none.
struct TileRoles {
  int vector = -1;           // contiguous in the result and in an operand
  int row = -1;              // shares the operand that runs along the vector axis
  int panel = -1;            // shares the other operand
  std::vector<int> rows;     // further axes of that kind, outside of it
  std::vector<int> batch;    // the other spatial axes
  std::vector<int> reduce;
};

// Nothing where no axis is contiguous in the result and in an operand, or some operand has another stride along it.
std::optional<TileRoles> assign_roles(const BlockInfo& info);

// Whether neighbouring results along the axis read elements in common, or such as lie between these (windows that overlap).
bool reads_overlap(const BlockInfo& info, const Access& load, int axis);

}  // namespace mcc::tuner
