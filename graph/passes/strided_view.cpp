#include "graph/passes/strided_view.h"

#include <algorithm>

#include "graph/passes/box.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

using Ints = std::vector<int64_t>;

Ints row_major(const Ints& shape) {
  Ints strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;)
    strides[d - 1] = strides[d] * shape[d];
  return strides;
}

// The view in coordinates of a tensor: how far one step along each dimension of the view goes along each of the tensor's.
struct Coordinates {
  Ints at;                  // of the view's first element
  std::vector<Ints> steps;  // [dimension of the view][dimension of the tensor]
};

// The digits of a distance in the strides of a shape.
Ints digits(int64_t distance, const Ints& shape) {
  Ints strides = row_major(shape), result(shape.size());
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 1) continue;
    result[d] = distance / strides[d];
    distance %= strides[d];
  }
  return result;
}

// Nothing when a step of the view would carry from one dimension of the tensor into the next.
std::optional<Coordinates> coordinates(const StridedView& view, const Ints& extents, const Ints& shape) {
  Coordinates c{digits(view.offset, shape), {}};
  Ints last = c.at;
  for (size_t v = 0; v < extents.size(); ++v) {
    c.steps.push_back(digits(view.strides[v], shape));
    for (size_t d = 0; d < shape.size(); ++d)
      last[d] += (extents[v] - 1) * c.steps[v][d];
  }
  for (size_t d = 0; d < shape.size(); ++d) {
    if (last[d] >= shape[d]) return std::nullopt;
  }
  return c;
}

// The coordinates, now of another tensor of this shape, as strides again.
void set_strides(StridedView& view, const Coordinates& c, const Ints& shape) {
  Ints strides = row_major(shape);
  auto position = [&](const Ints& digits) {
    int64_t sum = 0;
    for (size_t d = 0; d < shape.size(); ++d)
      sum += digits[d] * strides[d];
    return sum;
  };
  view.offset = position(c.at);
  for (size_t v = 0; v < view.strides.size(); ++v)
    view.strides[v] = position(c.steps[v]);
}

template <class F>
void for_all(Coordinates& c, F&& f) {
  f(c.at, true);
  for (Ints& step : c.steps)
    f(step, false);
}

class Follow {
 public:
  Follow(const Graph& g, ValueId value, bool scales) : g_(g), scales_(scales), extents_(dims(value)) {
    view_.source = value;
    view_.strides = row_major(extents_);
  }

  StridedView run() {
    while (step()) {
    }
    return view_;
  }

 private:
  Ints dims(ValueId v) const { return static_shape(g_.value(v).type.shape); }

  // One node up.
  bool step() {
    NodeId id = g_.value(view_.source).producer;
    if (id < 0 || g_.value(view_.source).constant) return false;
    const Node& node = g_.node(id);
    if (node.inputs.empty() || node.inputs[0] == kNoValue || !is_static(g_.value(node.inputs[0]).type.shape))
      return false;
    if (node.op->is_view) {
      view_.source = node.inputs[0];
      return true;
    }
    if (scales_ && through_scale(node)) return true;
    if (is_op(node, "Transpose")) return through(node, [&](Coordinates& c) { return transpose(node, c); });
    if (is_op(node, "Split") || is_op(node, "Slice")) return through(node, [&](Coordinates& c) { return part(c); });
    if (is_op(node, "Gather")) return through(node, [&](Coordinates& c) { return pick(node, c); });
    if (is_op(node, "Expand")) return through(node, [&](Coordinates& c) { return expand(node, c); });
    return false;
  }

  bool through_scale(const Node& node) {
    const std::optional<Scaled> scaled = scaled_by_constant(g_, node, view_.factor);
    if (!scaled) return false;
    view_.factor = scaled->factor;
    view_.source = scaled->operand;
    return true;
  }

  // change: coordinates of the output -> of the input.
  template <class F>
  bool through(const Node& node, F&& change) {
    std::optional<Coordinates> c = coordinates(view_, extents_, dims(view_.source));
    if (!c || !change(*c)) return false;
    set_strides(view_, *c, dims(node.inputs[0]));
    view_.source = node.inputs[0];
    return true;
  }

  bool transpose(const Node& node, Coordinates& c) const {
    size_t rank = c.at.size();
    Ints perm;
    for (size_t d = rank; d-- > 0;)
      perm.push_back(static_cast<int64_t>(d));
    perm = node.attributes.integers("perm", perm);
    for_all(c, [&](Ints& digits, bool) {
      Ints in(rank);
      for (size_t d = 0; d < rank; ++d)
        in[static_cast<size_t>(perm[d] < 0 ? perm[d] + static_cast<int64_t>(rank) : perm[d])] = digits[d];
      digits = in;
    });
    return true;
  }

  size_t axis_of(const Node& node, ValueId of) const {
    auto rank = static_cast<int64_t>(g_.value(of).type.shape.size());
    int64_t axis = node.attributes.integer("axis", 0);
    return static_cast<size_t>(axis < 0 ? axis + rank : axis);
  }

  bool part(Coordinates& c) const {
    const std::optional<Box> box = box_of(g_, view_.source);
    if (!box || std::any_of(box->steps.begin(), box->steps.end(), [](int64_t step) { return step < 1; })) return false;
    for_all(c, [&](Ints& digits, bool is_start) {
      for (size_t d = 0; d < digits.size(); ++d)
        digits[d] = digits[d] * box->steps[d] + (is_start ? box->starts[d] : 0);
    });
    return true;
  }

  std::optional<Ints> ints(const Node& node, size_t i) const {
    if (i >= node.inputs.size() || node.inputs[i] == kNoValue || !g_.value(node.inputs[i]).constant)
      return std::nullopt;
    return g_.value(node.inputs[i]).constant->to_ints();
  }

  // Gather of a single constant index.
  bool pick(const Node& node, Coordinates& c) const {
    auto index = ints(node, 1);
    if (!index || index->size() != 1) return false;
    size_t axis = axis_of(node, node.inputs[0]), rank = g_.value(node.inputs[1]).type.shape.size();
    int64_t extent = dims(node.inputs[0])[axis], at = (*index)[0] < 0 ? (*index)[0] + extent : (*index)[0];
    for_all(c, [&](Ints& digits, bool is_start) {
      auto from = digits.begin() + static_cast<std::ptrdiff_t>(axis);
      digits.erase(from, from + static_cast<std::ptrdiff_t>(rank));
      digits.insert(digits.begin() + static_cast<std::ptrdiff_t>(axis), is_start ? at : 0);
    });
    return true;
  }

  bool expand(const Node& node, Coordinates& c) const {
    Ints in = dims(node.inputs[0]), out = dims(node.outputs[0]);
    for_all(c, [&](Ints& digits, bool) {
      digits.erase(digits.begin(), digits.begin() + static_cast<std::ptrdiff_t>(out.size() - in.size()));
      for (size_t d = 0; d < in.size(); ++d) {
        if (in[d] == 1) digits[d] = 0;
      }
    });
    return true;
  }

  const Graph& g_;
  bool scales_;
  Ints extents_;
  StridedView view_;
};

}  // namespace

std::optional<Scaled> scaled_by_constant(const Graph& graph, const Node& node, double factor) {
  const bool is_product = is_op(node, "Mul");
  if (!is_product && !is_op(node, "Div")) return std::nullopt;
  for (size_t side = 0; side < (is_product ? 2 : 1); ++side) {
    const std::optional<double> value = uniform_value(graph, node.inputs[1 - side]);
    const TensorType& in = graph.value(node.inputs[side]).type;
    if (!value || in.element != ElementType::f32 ||
        !same_shape(in.shape, graph.value(node.outputs[0]).type.shape))
      continue;
    return Scaled{node.inputs[side], is_product ? factor * *value : factor / *value};
  }
  return std::nullopt;
}

StridedView follow_view(const Graph& graph, ValueId value, bool scales) {
  return Follow(graph, value, scales).run();
}

}  // namespace mcc::graph
