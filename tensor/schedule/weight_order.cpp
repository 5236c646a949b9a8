#include "tensor/schedule/weight_order.h"

#include <algorithm>
#include <cstring>
#include <sstream>

#include "support/check.h"
#include "support/text.h"
#include "tensor/schedule/index_map.h"
#include "tensor/simplify.h"

namespace mcc::tensor {

namespace {

constexpr const char* kAnnotation = "weights";

// The old and the new buffer have equally many elements, so digits have no gaps: together they count through both.
WeightOrder order_of(const IndexMap& map, std::vector<Expr>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;) {
    int64_t extent = 0;
    MCC_CHECK(as_int(shape[d], &extent), "weights have constant shapes");
    strides[d - 1] = strides[d] * extent;
  }
  WeightOrder order;
  std::vector<Expr> new_shape;
  for (const Expr& index : map.to) {
    std::optional<std::vector<Part>> parts = parts_of(index, map, shape);
    MCC_CHECK(parts.has_value(), "the map was checked when it was applied");
    int64_t count = 1;
    for (size_t p = parts->size(); p-- > 0;) {
      const Part& part = (*parts)[p];
      int64_t extent = 0;
      MCC_CHECK(as_int(simplify(part.extent), &extent), "weights have constant shapes");
      auto var = std::find_if(map.from.begin(), map.from.end(),
                              [&](const Var& v) { return v.same_as(part.digit.base); });
      order.extents.push_back(extent);
      order.strides.push_back(strides[static_cast<size_t>(var - map.from.begin())] * part.digit.stride);
      count *= extent;
    }
    new_shape.emplace_back(count);
  }
  shape = std::move(new_shape);
  return order;
}

template <size_t kWidth>
void copy_run(const std::byte* from, int64_t stride, int64_t count, std::byte* to) {
  for (int64_t i = 0; i < count; ++i)
    std::memcpy(to + i * static_cast<int64_t>(kWidth), from + i * stride, kWidth);
}

// The loops from `level` on; returns the end of what was written.
std::byte* copy(const WeightOrder& o, size_t level, const std::byte* from, std::byte* to) {
  const int64_t stride = o.strides[level] * o.element_bytes, extent = o.extents[level];
  if (level + 1 < o.extents.size()) {
    for (int64_t i = 0; i < extent; ++i)
      to = copy(o, level + 1, from + i * stride, to);
    return to;
  }
  const int64_t bytes = extent * o.element_bytes;
  if (o.strides[level] == 1) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return to + bytes;
  }
  switch (o.element_bytes) {
    case 1:
      copy_run<1>(from, stride, extent, to);
      break;
    case 2:
      copy_run<2>(from, stride, extent, to);
      break;
    case 4:
      copy_run<4>(from, stride, extent, to);
      break;
    default:
      copy_run<8>(from, stride, extent, to);
      break;
  }
  return to + bytes;
}

}  // namespace

void mark_weights(Func& f, const std::vector<std::string>& names) {
  if (!names.empty()) f.annotations[kAnnotation] = join(names, " ");
}

bool is_weight(const Func& f, const Buffer& buffer) {
  const auto entry = f.annotations.find(kAnnotation);
  const auto* names = entry == f.annotations.end() ? nullptr : std::get_if<std::string>(&entry->second);
  if (names == nullptr) return false;
  const auto inputs = f.params.begin() + f.num_inputs();
  if (std::none_of(f.params.begin(), inputs, [&](const Buffer& b) { return b.same_as(buffer); }))
    return false;
  std::istringstream words(*names);
  for (std::string word; words >> word;) {
    if (word == buffer.name()) return true;
  }
  return false;
}

int64_t WeightOrder::bytes() const {
  int64_t count = element_bytes;
  for (int64_t extent : extents)
    count *= extent;
  return count;
}

std::vector<WeightOrder> weight_orders(const Func& unscheduled, const Trace& trace) {
  std::vector<WeightOrder> orders;
  std::map<std::string, std::vector<Expr>> shapes;
  for (const Step& step : trace) {
    const auto* change = std::get_if<TransformLayout>(&step);
    if (change == nullptr) continue;
    auto at = std::find_if(unscheduled.params.begin(), unscheduled.params.end(),
                           [&](const Buffer& b) { return b.name() == change->buffer; });
    if (at == unscheduled.params.end()) continue;
    std::optional<IndexMap> map = parse_index_map(change->map);
    MCC_CHECK(map.has_value(), "the map was checked when it was applied");
    auto shape = shapes.try_emplace(change->buffer, at->shape()).first;
    WeightOrder order = order_of(*map, shape->second);
    order.parameter = static_cast<size_t>(at - unscheduled.params.begin());
    order.map = change->map;
    order.element_bytes = byte_size(at->element());
    orders.push_back(std::move(order));
  }
  return orders;
}

void reorder(const WeightOrder& order, const std::byte* from, std::byte* to) {
  if (order.extents.empty()) {
    std::memcpy(to, from, static_cast<size_t>(order.element_bytes));
    return;
  }
  copy(order, 0, from, to);
}

std::vector<std::byte> reordered(const WeightOrder& order, std::span<const std::byte> elements) {
  MCC_CHECK(order.bytes() == static_cast<int64_t>(elements.size()), "an order of ", order.bytes(), " bytes for ", elements.size());
  std::vector<std::byte> out(elements.size());
  reorder(order, elements.data(), out.data());
  return out;
}

}  // namespace mcc::tensor
