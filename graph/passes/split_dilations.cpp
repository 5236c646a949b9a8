// Convolutions with a dilation d as convolutions without one, of the d images (d^2 in two dimensions) that have every d-th line:
//   y[q d + r] = sum over t of x[(q + t) d + r - begin] w[t]        r = 0 .. d-1, along each axis
// which Winograd's algorithm takes. The images are laid out apart before and put together behind, where that is expected to be faster.
#include <algorithm>
#include <optional>

#include "graph/ops/common.h"
#include "graph/passes/convolution_cost.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

using Ints = std::vector<int64_t>;

// The convolution is to take this share of its time at most: costs are estimates.
constexpr double kPays = 0.8;
// Of the input and of the result, each written and read again on its way into the other order and its blocks of channels.
constexpr double kPasses = 4;

// What becomes of a spatial axis.
struct Phases {
  int64_t dilation = 1;
  int64_t before = 0, after = 0;  // zeros around the input, so that its lines are whole steps
  int64_t lines = 0, count = 0;   // of an image, and of its result
  int64_t begin = 0, end = 0;     // padding of an image
  int64_t extent() const {
    return count * dilation;
  }  // of the result, before the lines that are too many are cut off
};

Phases phases_of(int64_t extent, int64_t result, int64_t dilation, int64_t begin) {
  Phases p;
  p.dilation = dilation;
  p.before = begin % dilation == 0 ? 0 : begin;
  p.begin = begin % dilation == 0 ? begin / dilation : 0;
  p.lines = (extent + p.before + dilation - 1) / dilation;
  p.after = p.lines * dilation - extent - p.before;
  p.count = (result + dilation - 1) / dilation;
  p.end = p.count + kWinogradTaps - 1 - p.begin - p.lines;
  return p;
}

class SplitDilations {
 public:
  SplitDilations(Graph& g, const tensor::Target& target) : g_(g), t_(target), weights_(weight_bytes(g)) {}

  void run() {
    const size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n)
      split(static_cast<NodeId>(n));
    g_.compact();
  }

 private:
  Ints dims(ValueId v) const { return static_shape(g_.value(v).type.shape); }

  // A convolution that could go by Winograd's algorithm but for its dilation.
  std::optional<ConvProblem> dilated_problem(const Node& node) const {
    if (!is_op(node, "Conv") || !g_.value(node.inputs[1]).constant || !is_explicit(node)) return std::nullopt;
    std::optional<ConvProblem> p = conv_problem(g_, node);
    if (!p || p->is_open || p->kernel.size() != 2 || p->element != ElementType::f32 || p->places() == 0)
      return std::nullopt;
    ConvProblem plain = *p;
    plain.dilations = {1, 1};
    return has_winograd(plain) && !has_winograd(*p) ? p : std::nullopt;
  }

  bool pays(const ConvProblem& dilated, const std::vector<Phases>& phases, int64_t elements_moved) const {
    ConvProblem apart = dilated;
    apart.dilations = {1, 1};
    apart.images = apart.few_images = dilated.images * phases[0].dilation * phases[1].dilation;
    apart.extents = apart.small_extents = {phases[0].count, phases[1].count};
    const double moved_us = kPasses * 4 * static_cast<double>(elements_moved) / (t_.l3.gb_per_s * 1e3);
    return convolution_us(apart, Layout::blocked, t_, weights_, false) + moved_us <
           kPays * convolution_us(dilated, Layout::blocked, t_, weights_, true);
  }

  void split(NodeId id) {
    const Node node = g_.node(id);
    if (node.dead || g_.value(first_result(node)).type.shape.size() != 4) return;
    const std::optional<ConvProblem> problem = dilated_problem(node);
    if (!problem) return;
    const ValueId x = node.inputs[0], y = node.outputs[0];
    const Ints xs = dims(x), ys = dims(y), pads = node.attributes.integers("pads", Ints(4, 0));
    std::vector<Phases> phases;
    for (size_t axis : {0, 1}) {
      phases.push_back(phases_of(xs[2 + axis], ys[2 + axis], problem->dilations[axis], pads[axis]));
      if (phases.back().end < 0) return;  // more lines than the result needs
    }
    if (!pays(*problem, phases, static_count(g_.value(x).type.shape) + static_count(g_.value(y).type.shape)))
      return;
    name_ = node.name;
    std::vector<ValueId> inputs = node.inputs;
    inputs[0] = apart(padded(x, phases), xs, phases);
    Attributes a;
    a.set("pads", Ints{phases[0].begin, phases[1].begin, phases[0].end, phases[1].end});
    const ValueId convolved = emit(g_, "", "Conv", name_, inputs, a);
    g_.node(g_.value(convolved).producer).origins = node.origins;
    const ValueId whole = together(convolved, ys, phases);
    g_.node(g_.value(whole).producer).origins = node.origins;
    take_place(g_, y, whole);
    g_.node(id).dead = true;
  }

  ValueId ints(const std::string& name, const Ints& values) {
    return g_.add_constant(name, Constant::ints(values));
  }

  ValueId reshape(ValueId v, const Ints& dims) { return reshaped(g_, name_, v, make_shape(dims)); }

  ValueId transpose(ValueId v, const Ints& perm) {
    Attributes a;
    a.set("perm", perm);
    return emit(g_, "", "Transpose", name_, {v}, a);
  }

  ValueId padded(ValueId x, const std::vector<Phases>& p) {
    const Ints pads{0, 0, p[0].before, p[1].before, 0, 0, p[0].after, p[1].after};
    if (pads == Ints(pads.size(), 0)) return x;
    return emit(g_, "", "Pad", name_, {x, ints(name_ + ".pads", pads)});
  }

  // [N, C, lines d, lines d] -> [N d d, C, lines, lines]
  ValueId apart(ValueId x, const Ints& xs, const std::vector<Phases>& p) {
    const ValueId cut = reshape(x, {xs[0], xs[1], p[0].lines, p[0].dilation, p[1].lines, p[1].dilation});
    return reshape(transpose(cut, {0, 3, 5, 1, 2, 4}),
                   {xs[0] * p[0].dilation * p[1].dilation, xs[1], p[0].lines, p[1].lines});
  }

  // The other way, without the lines that are too many.
  ValueId together(ValueId v, const Ints& ys, const std::vector<Phases>& p) {
    const ValueId cut = reshape(v, {ys[0], p[0].dilation, p[1].dilation, ys[1], p[0].count, p[1].count});
    const ValueId whole =
        reshape(transpose(cut, {0, 3, 4, 1, 5, 2}), {ys[0], ys[1], p[0].extent(), p[1].extent()});
    if (p[0].extent() == ys[2] && p[1].extent() == ys[3]) return whole;
    return emit(g_, "", "Slice", name_,
                {whole, ints(name_ + ".starts", {0, 0}), ints(name_ + ".ends", {ys[2], ys[3]}),
                 ints(name_ + ".axes", {2, 3})});
  }

  Graph& g_;
  const tensor::Target& t_;
  const int64_t weights_;
  std::string name_;
};

}  // namespace

void split_dilations(Graph& graph, const tensor::Target& target) {
  if (target.kind != tensor::TargetKind::cpu) return;
  SplitDilations(graph, target).run();
}

}  // namespace mcc::graph
