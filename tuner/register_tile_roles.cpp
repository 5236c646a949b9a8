#include "tuner/register_tile_roles.h"

#include <algorithm>
#include <cmath>

namespace mcc::tuner {
namespace {

bool is_vectorizable_along(const BlockInfo& info, size_t axis) {
  if (info.store.strides[axis] != 1 || info.axes[axis].extent < 2) return false;
  bool contiguous = false;
  for (const Access& load : info.loads) {
    int64_t stride = load.strides[axis];
    if (stride != 0 && stride != 1) return false;
    contiguous |= stride == 1;
  }
  return contiguous;
}

}  // namespace

bool reads_overlap(const BlockInfo& info, const Access& load, int axis) {
  int64_t span = 0;
  for (size_t r = 0; r < info.axes.size(); ++r) {
    if (info.axes[r].is_reduce) span += (info.axes[r].extent - 1) * std::abs(load.strides[r]);
  }
  return span >= std::abs(load.strides[static_cast<size_t>(axis)]);
}

std::optional<TileRoles> assign_roles(const BlockInfo& info) {
  TileRoles roles;
  for (size_t a = 0; a < info.axes.size(); ++a) {
    if (info.axes[a].is_reduce) {
      roles.reduce.push_back(static_cast<int>(a));
    } else if (is_vectorizable_along(info, a)) {
      roles.vector = static_cast<int>(a);
    }
  }
  if (roles.vector < 0) return std::nullopt;
  auto v = static_cast<size_t>(roles.vector);
  // Along a row axis some vector operand stands still; along a panel axis all scalar operands do.
  for (size_t a = 0; a < info.axes.size(); ++a) {
    if (info.axes[a].is_reduce || a == v) continue;
    bool vector_moves = false, scalar_moves = false, vector_stands = false;
    for (const Access& load : info.loads) {
      bool moves = load.strides[a] != 0;
      if (load.strides[v] == 0) {
        scalar_moves |= moves;
      } else {
        vector_moves |= moves;
        vector_stands |= !moves;
      }
    }
    bool has_scalar = std::any_of(info.loads.begin(), info.loads.end(), [&](const Access& l) { return l.strides[v] == 0; });
    auto axis = static_cast<int>(a);
    if (has_scalar && vector_moves && !scalar_moves) {
      if (roles.panel >= 0) roles.batch.push_back(roles.panel);
      roles.panel = axis;
    } else if ((vector_stands || info.loads.size() == 1) && (roles.row < 0 || info.axes[a].extent > 1)) {
      if (roles.row >= 0) roles.rows.push_back(roles.row);
      roles.row = axis;  // the innermost of them
    } else {
      roles.batch.push_back(axis);
    }
  }
  // Without an operand that rows share (pooling), axes along which they have nothing in common are a batch's.
  if (info.loads.size() == 1) {
    auto apart = std::stable_partition(roles.rows.begin(), roles.rows.end(),
                                       [&](int a) { return reads_overlap(info, info.loads[0], a); });
    roles.batch.insert(roles.batch.end(), apart, roles.rows.end());
    roles.rows.erase(apart, roles.rows.end());
  }
  std::sort(roles.batch.begin(), roles.batch.end());
  return roles;
}

}  // namespace mcc::tuner
