#include "tuner/dot_product.h"

#include <algorithm>

#include "tensor/instructions.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr int64_t kBytes = 4;

// Elements of four bytes; false where the access does not go by four.
bool in_groups(Access& access, size_t bytes) {
  if (access.strides[bytes] != 1) return false;
  for (size_t a = 0; a < access.strides.size(); ++a) {
    if (a != bytes && access.strides[a] % kBytes != 0) return false;
    access.strides[a] /= kBytes;
  }
  return true;
}

void drop(Access& access, size_t axis) {
  access.strides.erase(access.strides.begin() + static_cast<std::ptrdiff_t>(axis));
  access.runs.erase(access.runs.begin() + static_cast<std::ptrdiff_t>(axis));
}

}  // namespace

std::optional<DotProduct> dot_product(const BlockInfo& info, const Target& target) {
  const Instruction* instruction = dot_instruction(target);
  if (!instruction || !info.is_contraction || info.loads.size() != 2 || info.axes.size() < 3) return std::nullopt;
  ElementType types[] = {info.loads[0].buffer.element(), info.loads[1].buffer.element()};
  std::sort(std::begin(types), std::end(types));
  ElementType wanted[] = {ElementType::u8, ElementType::i8};
  std::sort(std::begin(wanted), std::end(wanted));
  if (!std::equal(std::begin(types), std::end(types), std::begin(wanted)) ||
      info.store.buffer.element() != ElementType::i32)
    return std::nullopt;
  const size_t bytes = info.axes.size() - 1;
  auto is_reduce = [](const AxisInfo& a) { return a.is_reduce; };
  if (!info.axes[bytes].is_reduce || info.axes[bytes].extent != kBytes ||
      std::count_if(info.axes.begin(), info.axes.end(), is_reduce) < 2)
    return std::nullopt;
  DotProduct dot{instruction->name, takes_bytes_apart(target), info};
  BlockInfo& out = dot.info;
  bool has_columns = false;
  for (Access& load : out.loads) {
    if (!in_groups(load, bytes)) return std::nullopt;
    for (size_t a = 0; a < bytes; ++a) {
      if (out.store.strides[a] == 1 && load.strides[a] == 1 && load.buffer.element() == ElementType::i8)
        has_columns = out.axes[a].extent % target.lanes(32) == 0;
    }
  }
  if (!has_columns) return std::nullopt;
  for (Access* access : {&out.store, &out.loads[0], &out.loads[1]})
    drop(*access, bytes);
  out.axes.pop_back();
  out.reduce /= kBytes;
  return dot;
}

}  // namespace mcc::tuner
