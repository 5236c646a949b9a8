#include "tuner/dot_product.h"

#include <algorithm>

#include "tensor/instructions.h"
#include "tensor/intrinsics.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

// Words of so many elements, whose axis is `parts`; false where the access does not go by words.
bool in_words(Access& access, size_t parts, int64_t word) {
  if (access.strides[parts] != 1) return false;
  for (size_t a = 0; a < access.strides.size(); ++a) {
    if (a != parts && access.strides[a] % word != 0) return false;
    access.strides[a] /= word;
  }
  return true;
}

void drop(Access& access, size_t axis) {
  access.strides.erase(access.strides.begin() + static_cast<std::ptrdiff_t>(axis));
  access.runs.erase(access.runs.begin() + static_cast<std::ptrdiff_t>(axis));
}

// The type of the operand that columns have in common.
ElementType left_of(const BlockInfo& info) {
  const ElementType first = info.loads[0].buffer.element(), second = info.loads[1].buffer.element();
  if (first == ElementType::bf16) return first;
  for (size_t a = 0; a < info.axes.size(); ++a) {
    if (info.store.strides[a] == 1 && info.axes[a].extent > 1)
      return info.loads[0].strides[a] == 0 ? first : second;
  }
  return first;
}

}  // namespace

std::optional<DotProduct> dot_product(const BlockInfo& info, const Target& target) {
  if (!info.is_contraction || info.loads.size() != 2 || info.axes.size() < 3) return std::nullopt;
  const ElementType left = left_of(info);
  const Instruction* instruction = dot_instruction(target, left);
  if (!instruction) return std::nullopt;
  const ElementType right = right_element(*instruction->dot);
  ElementType types[] = {info.loads[0].buffer.element(), info.loads[1].buffer.element()};
  std::sort(std::begin(types), std::end(types));
  ElementType wanted[] = {left, right};
  std::sort(std::begin(wanted), std::end(wanted));
  if (!std::equal(std::begin(types), std::end(types), std::begin(wanted)) ||
      info.store.buffer.element() != sum_element(*instruction->dot))
    return std::nullopt;
  const size_t parts = info.axes.size() - 1;
  const int64_t word = word_elements(left);
  auto is_reduce = [](const AxisInfo& a) { return a.is_reduce; };
  if (!info.axes[parts].is_reduce || info.axes[parts].extent != word ||
      std::count_if(info.axes.begin(), info.axes.end(), is_reduce) < 2)
    return std::nullopt;
  DotProduct dot{instruction->name, left, info};
  BlockInfo& out = dot.info;
  bool has_columns = false;
  for (Access& load : out.loads) {
    if (!in_words(load, parts, word)) return std::nullopt;
    for (size_t a = 0; a < parts; ++a) {
      if (out.store.strides[a] == 1 && load.strides[a] == 1 && load.buffer.element() == right)
        has_columns = out.axes[a].extent % target.lanes(32) == 0;
    }
  }
  if (!has_columns) return std::nullopt;
  for (Access* access : {&out.store, &out.loads[0], &out.loads[1]})
    drop(*access, parts);
  out.axes.pop_back();
  out.reduce /= word;
  return dot;
}

}  // namespace mcc::tuner
