#include "graph/passes/open_view.h"

#include <algorithm>

#include "graph/passes/box.h"
#include "graph/passes/rewrite.h"
#include "graph/passes/strided_view.h"

namespace mcc::graph {
namespace {

using Ints = std::vector<int64_t>;

bool is_one(const Expr& extent) {
  int64_t n = 0;
  return tensor::as_int(extent, &n) && n == 1;
}

// The dimensions that are not 1.
std::vector<size_t> long_dims(const Shape& shape) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < shape.size(); ++d)
    if (!is_one(shape[d])) dims.push_back(d);
  return dims;
}

class Follow {
 public:
  Follow(const Graph& g, ValueId value, bool scales, bool beginnings)
      : g_(g), scales_(scales), beginnings_(beginnings), shape_(shape(value)) {
    view_.source = value;
    view_.start.assign(shape_.size(), 0);
    for (size_t n = 0; n < shape_.size(); ++n) {
      view_.steps.emplace_back(shape_.size(), 0);
      view_.steps[n][n] = 1;
    }
  }

  OpenView run() {
    while (step()) {
    }
    return view_;
  }

 private:
  const Shape& shape(ValueId v) const { return g_.value(v).type.shape; }

  // One node up.
  bool step() {
    const NodeId id = g_.value(view_.source).producer;
    if (id < 0 || g_.value(view_.source).constant) return false;
    const Node& node = g_.node(id);
    if (node.inputs.empty() || node.inputs[0] == kNoValue) return false;
    if (scales_ && through_scale(node)) return true;
    const bool is_through = node.op->is_view                               ? reshape(node)
                            : is_op(node, "Transpose")                     ? transpose(node)
                            : is_op(node, "Split") || is_op(node, "Slice") ? part()
                            : is_op(node, "Gather")                        ? pick(node)
                            : is_op(node, "Expand")                        ? expand(node)
                                                                           : false;
    if (is_through) view_.source = node.inputs[0];
    return is_through;
  }

  bool through_scale(const Node& node) {
    const std::optional<Scaled> scaled = scaled_by_constant(g_, node, view_.factor);
    if (!scaled) return false;
    view_.factor = scaled->factor;
    view_.source = scaled->operand;
    return true;
  }

  // change: a place, or a step, in the output -> the same in the input.
  template <class F>
  void for_all(F&& change) {
    view_.start = change(view_.start, true);
    for (Ints& step : view_.steps)
      step = change(step, false);
  }

  // Dimensions that lead both shapes or end them, whatever they are, stay; those between are known. Nothing where a step would carry from one
  // of these into the next.
  bool reshape(const Node& node) {
    const Shape &in = shape(node.inputs[0]), &out = shape(view_.source);
    const std::vector<size_t> from = long_dims(in), to = long_dims(out);
    size_t same = 0;
    while (same < std::min(from.size(), to.size()) && same_shape({in[from[same]]}, {out[to[same]]}))
      ++same;
    size_t behind = 0;
    while (same + behind < std::min(from.size(), to.size()) &&
           same_shape({in[from[from.size() - 1 - behind]]}, {out[to[to.size() - 1 - behind]]}))
      ++behind;
    const size_t from_end = from.size() - behind, to_end = to.size() - behind;
    Ints in_extents, out_extents;
    for (size_t n = same; n < from_end; ++n)
      if (!tensor::as_int(in[from[n]], &in_extents.emplace_back()) || in_extents.back() == 0) return false;
    for (size_t n = same; n < to_end; ++n)
      if (!tensor::as_int(out[to[n]], &out_extents.emplace_back())) return false;
    auto moved = [&](const Ints& place) {
      Ints result(in.size(), 0);
      for (size_t n = 0; n < same; ++n)
        result[from[n]] = place[to[n]];
      for (size_t n = 0; n < behind; ++n)
        result[from[from_end + n]] = place[to[to_end + n]];
      int64_t position = 0;
      for (size_t n = 0; n < out_extents.size(); ++n)
        position = position * out_extents[n] + place[to[same + n]];
      for (size_t n = in_extents.size(); n-- > 0; position /= in_extents[n])
        result[from[same + n]] = position % in_extents[n];
      return result;
    };
    Ints last = moved(view_.start);
    for (size_t v = 0; v < view_.steps.size(); ++v) {
      const Ints step = moved(view_.steps[v]);
      for (size_t n = same; n < from_end; ++n) {
        int64_t extent = 0;
        if (step[from[n]] == 0) continue;
        if (!tensor::as_int(shape_[v], &extent)) return false;
        last[from[n]] += (extent - 1) * step[from[n]];
      }
    }
    for (size_t n = same; n < from_end; ++n)
      if (last[from[n]] >= in_extents[n - same]) return false;
    for_all([&](const Ints& place, bool) { return moved(place); });
    return true;
  }

  bool transpose(const Node& node) {
    const Ints perm = permutation_of(g_, node);
    for_all([&](const Ints& place, bool) {
      Ints in(place.size());
      for (size_t d = 0; d < place.size(); ++d)
        in[static_cast<size_t>(perm[d])] = place[d];
      return in;
    });
    return true;
  }

  bool part() {
    const std::optional<Box> box = open_box_of(g_, view_.source);
    if (!beginnings_ && is_op(g_.node(g_.value(view_.source).producer), "Slice") && cuts_open_dimension())
      return false;
    if (!box || std::any_of(box->steps.begin(), box->steps.end(), [](int64_t step) { return step < 1; }))
      return false;
    for_all([&](Ints place, bool is_start) {
      for (size_t d = 0; d < place.size(); ++d)
        place[d] = place[d] * box->steps[d] + (is_start ? box->starts[d] : 0);
      return place;
    });
    return true;
  }

  bool cuts_open_dimension() const {
    const Shape &in = shape(g_.node(g_.value(view_.source).producer).inputs[0]), &out = shape(view_.source);
    for (size_t d = 0; d < in.size(); ++d)
      if (int64_t n = 0; !tensor::as_int(in[d], &n) && !same_shape({in[d]}, {out[d]})) return true;
    return false;
  }

  // Gather of a single constant index.
  bool pick(const Node& node) {
    const std::optional<Constant>& constant = g_.value(node.inputs[1]).constant;
    if (!constant || constant->count() != 1) return false;
    const Shape& in = shape(node.inputs[0]);
    const int64_t axis = node.attributes.integer("axis", 0);
    const auto at = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(in.size()) : axis);
    const size_t rank = shape(node.inputs[1]).size();
    int64_t index = constant->to_ints()[0], extent = 0;
    if (index < 0) {
      if (!tensor::as_int(in[at], &extent)) return false;
      index += extent;
    }
    for_all([&](Ints place, bool is_start) {
      const auto from = place.begin() + static_cast<std::ptrdiff_t>(at);
      place.erase(from, from + static_cast<std::ptrdiff_t>(rank));
      place.insert(place.begin() + static_cast<std::ptrdiff_t>(at), is_start ? index : 0);
      return place;
    });
    return true;
  }

  bool expand(const Node& node) {
    const Shape &in = shape(node.inputs[0]), &out = shape(view_.source);
    const size_t more = out.size() - in.size();
    // What is 1 in a run alone may be repeated or not.
    for (size_t d = 0; d < in.size(); ++d)
      if (!is_one(in[d]) && !same_shape({in[d]}, {out[d + more]})) return false;
    for_all([&](Ints place, bool) {
      place.erase(place.begin(), place.begin() + static_cast<std::ptrdiff_t>(more));
      for (size_t d = 0; d < in.size(); ++d)
        if (is_one(in[d])) place[d] = 0;
      return place;
    });
    return true;
  }

  const Graph& g_;
  const bool scales_, beginnings_;
  const Shape shape_;
  OpenView view_;
};

}  // namespace

OpenView follow_open_view(const Graph& graph, ValueId value, bool scales, bool beginnings) {
  return Follow(graph, value, scales, beginnings).run();
}

std::vector<int64_t> product_view(const OpenView& view, const Shape& operand, size_t batch_rank) {
  Ints result = view.start;
  const size_t missing = batch_rank + 2 - operand.size();
  for (size_t axis = 0; axis < batch_rank + 2; ++axis) {
    const bool stands = axis < missing || (axis < batch_rank && is_one(operand[axis - missing]));
    const Ints step = stands ? Ints(view.start.size(), 0) : view.steps[axis - missing];
    result.insert(result.end(), step.begin(), step.end());
  }
  return result;
}

}  // namespace mcc::graph
