// A Split whose parts are no pieces of memory copies each of them, a launch of a GPU each. Where a part has a single reader, an elementwise
// operator or one that moves elements, the reader takes it along as a Slice:
//
//   %q, %k, %v = Split(%qkv)                          %k = Slice(%qkv, [q], [q + k], [axis])
//   %keys = RotaryEmbedding(%k, ...)       becomes    %keys = RotaryEmbedding(%k, ...)            one kernel
//   Transpose(Reshape(%v))                            Transpose(Slice(Reshape(%qkv), ...))        one kernel
#include <algorithm>

#include "graph/ops/common.h"
#include "graph/passes/aliases.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

class SeparateParts {
 public:
  explicit SeparateParts(Graph& g) : g_(g), users_(g.users()) {}

  void run() {
    const size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n)
      separate(static_cast<NodeId>(n));
    eliminate_dead_code(g_);
    g_.compact();
  }

 private:
  const Shape& shape(ValueId v) const { return g_.value(v).type.shape; }

  void separate(NodeId id) {
    const Node split = g_.node(id);
    if (split.dead || !is_op(split, "Split") || !split.op->domain.empty()) return;
    const auto axis = static_cast<size_t>(
        normal_axis(split.attributes.integer("axis", 0), static_cast<int>(shape(split.inputs[0]).size())));
    std::vector<int64_t> sizes;
    bool any = false;
    for (ValueId v : split.outputs) {
      int64_t size = 0;
      if (v == kNoValue || g_.is_output(v) || !tensor::as_int(shape(v)[axis], &size) || is_piece(v)) return;
      sizes.push_back(size);
      any |= is_taken_along(v);
    }
    if (!any) return;
    int64_t start = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (!users_[static_cast<size_t>(split.outputs[i])].empty())
        cut(split, split.outputs[i], axis, start, sizes[i]);
      start += sizes[i];
    }
    g_.node(id).dead = true;
  }

  // Whether it is read where it lies.
  bool is_piece(ValueId v) const { return is_static(shape(v)) && (piece_offset(g_, v) || row_part(g_, v)); }

  // Whether the kernel of its reader may begin with it: through a Reshape, too.
  bool is_taken_along(ValueId v) const {
    NodeId user = single_user(g_, users_, v);
    if (user >= 0 && g_.node(user).op->is_view) user = single_user(g_, users_, g_.node(user).outputs[0]);
    if (user < 0 || g_.node(user).op->is_view) return false;
    const FusionClass fusion = g_.node(user).op->fusion;
    return fusion == FusionClass::elementwise || fusion == FusionClass::injective;
  }

  void cut(const Node& split, ValueId part, size_t axis, int64_t start, int64_t size) {
    const ValueId whole = split.inputs[0];
    const NodeId user = single_user(g_, users_, part);
    if (const int64_t width = user >= 0 ? width_of_rows(g_.node(user), axis) : 0;
        width > 0 && start % width == 0) {
      int64_t extent = 0;
      tensor::as_int(shape(whole)[axis], &extent);
      if (extent % width == 0 && size % width == 0) {
        Shape rows = shape(g_.node(user).outputs[0]);
        rows[axis] = Expr(extent / width);
        const ValueId y =
            slice(split, reshaped(g_, split.name, whole, rows), axis, start / width, size / width);
        take_place(g_, g_.node(user).outputs[0], y);
        absorb(g_, user, g_.value(y).producer);
        return;
      }
    }
    take_place(g_, part, slice(split, whole, axis, start, size));
  }

  // Of a Reshape that makes rows of the axis, and nothing else: how long these are; else 0.
  int64_t width_of_rows(const Node& node, size_t axis) const {
    if (!node.op->is_view || g_.is_output(node.outputs[0])) return 0;
    const Shape &from = shape(node.inputs[0]), &to = shape(node.outputs[0]);
    int64_t width = 0;
    if (to.size() != from.size() + 1 || axis + 1 != from.size() || !tensor::as_int(to.back(), &width))
      return 0;
    for (size_t d = 0; d < axis; ++d)
      if (!same_shape({from[d]}, {to[d]})) return 0;
    return width;
  }

  ValueId slice(const Node& split, ValueId x, size_t axis, int64_t start, int64_t size) {
    auto ints = [&](int64_t value) {
      return g_.add_constant(split.name + ".bound", Constant::ints({value}));
    };
    const ValueId y = emit(g_, "", "Slice", split.name,
                           {x, ints(start), ints(start + size), ints(static_cast<int64_t>(axis))});
    add_origins(g_.node(g_.value(y).producer), split);
    return y;
  }

  Graph& g_;
  const std::vector<std::vector<NodeId>> users_;
};

}  // namespace

void separate_parts(Graph& graph, const tensor::Target& target) {
  if (target.kind == tensor::TargetKind::cuda) SeparateParts(graph).run();
}

}  // namespace mcc::graph
