// ScatterND at constant positions that fill a box of the data in its order, which is what x[:, 2:6] = u becomes, is a concatenation:
// the data before the box, the updates, the data behind it. Updates at positions that are read while the kernel runs are written one
// after the other, as one may hit what another has written, by a single thread; here each result has a thread.
#include <algorithm>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

using Ints = std::vector<int64_t>;

struct Box {
  Ints begin, extent;  // of the data's first dimensions, as many as a position has numbers
};

// The box in which row-major order has these positions; empty where there is none, or it does not lie in the data.
std::optional<Box> box_of(const Ints& positions, const Ints& data, size_t depth) {
  if (positions.empty()) return std::nullopt;
  const size_t count = positions.size() / depth;
  auto at = [&](size_t n, size_t k) {
    const int64_t p = positions[n * depth + k];
    return p < 0 ? p + data[k] : p;
  };
  Box box;
  int64_t filled = 1;
  for (size_t k = 0; k < depth; ++k) {
    box.begin.push_back(at(0, k));
    box.extent.push_back(at(count - 1, k) - at(0, k) + 1);
    if (box.begin[k] < 0 || box.extent[k] < 1 || box.begin[k] + box.extent[k] > data[k]) return std::nullopt;
    filled *= box.extent[k];
  }
  if (filled != static_cast<int64_t>(count)) return std::nullopt;
  for (size_t n = 0; n < count; ++n) {
    auto rest = static_cast<int64_t>(n);
    for (size_t k = depth; k-- > 0; rest /= box.extent[k])
      if (at(n, k) != box.begin[k] + rest % box.extent[k]) return std::nullopt;
  }
  return box;
}

class PlaceUpdates {
 public:
  PlaceUpdates(Graph& g, NodeId id) : g_(g), node_(g.node(id)), id_(id) {}

  void run() {
    const auto& positions = g_.value(node_.inputs[1]).constant;
    const Shape& shape = g_.value(node_.inputs[0]).type.shape;
    if (!positions || !is_static(shape) || node_.attributes.text("reduction", "none") != "none") return;
    data_ = static_shape(shape);
    const auto depth = static_cast<size_t>(positions->shape().back());
    std::optional<Box> box = box_of(positions->to_ints(), data_, depth);
    if (!box) return;
    Ints extents = data_;
    std::copy(box->extent.begin(), box->extent.end(), extents.begin());
    // From the last dimension to the first, what stands beside the box: as far as it reaches in those before.
    ValueId y = reshaped(g_, node_.name, node_.inputs[2], extents);
    for (size_t k = depth; k-- > 0;) {
      if (box->extent[k] == data_[k]) continue;
      std::vector<ValueId> parts{y};
      const int64_t end = box->begin[k] + box->extent[k];
      if (box->begin[k] > 0) parts.insert(parts.begin(), slice(*box, k, 0, box->begin[k]));
      if (end < data_[k]) parts.push_back(slice(*box, k, end, data_[k]));
      Attributes attributes;
      attributes.set("axis", static_cast<int64_t>(k));
      y = make("Concat", parts, attributes);
    }
    g_.node(g_.value(y).producer).origins = node_.origins;
    take_place(g_, node_.outputs[0], y);
    g_.node(id_).dead = true;
  }

 private:
  ValueId ints(const char* what, const Ints& values) {
    return g_.add_constant(node_.name + what, Constant::ints(values));
  }
  ValueId make(const char* op, const std::vector<ValueId>& inputs, const Attributes& attributes = {}) {
    return emit(g_, "", op, node_.name, inputs, attributes);
  }
  // Of the data: from begin to end along an axis, inside of the box along those before it.
  ValueId slice(const Box& box, size_t axis, int64_t begin, int64_t end) {
    Ints axes{static_cast<int64_t>(axis)}, starts{begin}, ends{end};
    for (size_t k = 0; k < axis; ++k) {
      if (box.extent[k] == data_[k]) continue;
      axes.push_back(static_cast<int64_t>(k));
      starts.push_back(box.begin[k]);
      ends.push_back(box.begin[k] + box.extent[k]);
    }
    return make("Slice",
                {node_.inputs[0], ints(".starts", starts), ints(".ends", ends), ints(".axes", axes)});
  }

  Graph& g_;
  const Node node_;
  NodeId id_;
  Ints data_;
};

}  // namespace

void place_updates(Graph& graph, const tensor::Target& target) {
  if (target.kind != tensor::TargetKind::cuda) return;
  const size_t count = graph.nodes.size();
  for (size_t n = 0; n < count; ++n) {
    const auto id = static_cast<NodeId>(n);
    if (is_op(graph.node(id), "ScatterND")) PlaceUpdates(graph, id).run();
  }
  eliminate_dead_code(graph);
}

}  // namespace mcc::graph
