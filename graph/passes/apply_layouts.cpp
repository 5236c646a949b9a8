#include "graph/passes/apply_layouts.h"

#include "graph/elements.h"
#include "graph/ops/common.h"
#include "graph/passes/convolution_cost.h"
#include "graph/passes/grid_convolution_cost.h"
#include "graph/passes/layout_followers.h"
#include "graph/passes/merge_groups.h"
#include "graph/passes/pack_products.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

// Fewer channels than this are not worth an order of their own on a GPU, unless they are filled up to as many for products of 16
// bits: those fetch so many at once.
constexpr int64_t kFewGridChannels = kImageChannels;
constexpr int64_t kFewestGridColumns = 2;  // of a product on tensor cores

class ApplyLayouts {
 public:
  ApplyLayouts(Graph& graph, const Layouts& layouts, const tensor::Target& target, bool strict, const AlgorithmChoices& choices)
      : g_(graph),
        layouts_(layouts),
        t_(target),
        strict_(strict),
        choices_(choices),
        is_gpu_(target.kind == tensor::TargetKind::cuda),
        lanes_(target.lanes(32)),
        weight_bytes_(weight_bytes(graph)),
        forms_(graph, lanes_) {
    if (!graph.dims.empty()) typical_ = likely_instance(graph);
  }

  std::vector<Region> run() {
    size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n) {
      auto id = static_cast<NodeId>(n);
      if (g_.node(id).dead) continue;
      // A consumer that stays plain reads plain forms; one that follows takes what is laid out itself.
      if (take_laid_out(id)) continue;
      forms_.restore_inputs(id);
      pack_product(g_, id, t_);
    }
    for (ValueId& out : g_.outputs)
      out = forms_.plain(out);
    eliminate_dead_code(g_);
    return forms_.regions();
  }

 private:
  const Shape& shape(ValueId v) const { return g_.value(v).type.shape; }
  size_t rank(ValueId v) const { return shape(v).size(); }
  bool is_constant(ValueId v) const { return v != kNoValue && g_.value(v).constant.has_value(); }
  bool is_laid_out(ValueId v) const { return forms_.is_laid_out(v); }
  bool take_laid_out(NodeId id) {
    return g_.node(id).op->layout == LayoutRole::convolution ? lay_out_conv(id) : follow_layout(g_, id, forms_, t_, strict_);
  }

  // ---- Convolutions ----

  // What a convolution reads, as far as the layouts are concerned.
  struct Conv {
    ConvProblem problem;
    Layout layout;
    ValueId x, weights, bias = kNoValue;
    int64_t groups;  // after some were merged
    enum { laid_out, plain, words } input = laid_out;  // words: plain channels, filled up to kImageChannels
    bool is_narrow = false;
    bool in_words = false;  // is_in_words()

    // Weights of channels-last convolutions lie in panels, as those of matrix products do.
    bool in_panels() const { return layout == Layout::channels_last && !problem.is_depthwise(); }
  };

  bool lay_out_conv(NodeId id) {
    std::optional<Conv> conv = convolution(id);
    if (!conv) return false;
    const Node node = g_.node(id);
    const int64_t out = conv->problem.out_channels;
    LaidOut result{kNoValue, conv->layout, out, forms_.add_region(id)};
    if (is_laid_out(conv->x)) forms_.join(forms_.laid_out(conv->x).region, result.region);
    const std::vector<int64_t> pads = explicit_padding(g_, node, conv->problem.kernel, conv->problem.strides, conv->problem.dilations);
    int64_t tile = 0;
    if (!strict_ && conv->input != Conv::plain && conv->layout == Layout::blocked &&
        g_.value(conv->x).type.element == ElementType::f32) {
      tile = choose_tile(conv->problem, node, t_, weight_bytes_, choices_);
    }
    result.value = tile != 0 ? winograd_conv(id, tile, pads) : direct_conv(node, *conv, pads);
    forms_.set_result(id, result);
    return true;
  }

  // Nothing where it stays plain. Groups that are too narrow are merged.
  std::optional<Conv> convolution(NodeId id) {
    const Node node = g_.node(id);
    const ValueId x = node.inputs[0], w = node.inputs[1];
    if (!is_constant(w) || rank(w) < 3 || rank(w) > 5 || !is_float(g_.value(x).type.element))
      return std::nullopt;
    // Of symbolic dimensions in blocks alone: what changes other forms asks for their extents.
    const bool is_symbolic = !is_static(shape(x));
    if (is_symbolic && !is_explicit(node)) return std::nullopt;
    const ValueId bias = node.inputs.size() > 2 ? node.inputs[2] : kNoValue;
    if (bias != kNoValue && !is_constant(bias)) return std::nullopt;
    const std::optional<ConvProblem> problem = conv_problem(g_, node, typical_ ? &*typical_ : nullptr);
    if (!problem || problem->places() <= 0) return std::nullopt;
    const bool in_words = !is_symbolic && is_in_words(*problem, t_);
    Layout layout = in_words ? Layout::channels_last : layout_of(id);
    if (is_symbolic && layout == Layout::channels_last && !is_gpu_) layout = Layout::blocked;
    if (problem->is_grouped() && layout == Layout::channels_last && !is_gpu_) layout = Layout::blocked;
    // Of a single point it is a product with a row, which reads plain weights along the sum.
    if (is_gpu_ && problem->places() == 1) layout = Layout::plain;
    if (layout == Layout::plain) return std::nullopt;
    Conv conv{*problem, layout, x, w, bias, problem->group};
    conv.is_narrow = is_narrow_float(g_.value(x).type.element);
    conv.in_words = in_words;
    if (problem->is_grouped() && !merge_narrow_groups(node.name, conv)) return std::nullopt;
    // A few plain channels (an image) are read where they are: blocks of them would multiply the work, and rows of them,
    // channels last, would be moved one by one.
    const int64_t few = layout == Layout::blocked ? lanes_ / 2 : is_gpu_ ? kFewGridChannels : lanes_;
    if (!problem->is_depthwise() && !is_laid_out(x) && problem->in_channels < few && !in_words) {
      conv.input = is_gpu_ && problem->in_channels > 1 && conv.is_narrow ? Conv::words : Conv::plain;
    }
    const bool is_filled = in_words && problem->in_channels <= kImageChannels;
    if (is_filled && (!is_laid_out(x) || problem->in_channels % word_of(problem->element, t_) != 0)) conv.input = Conv::words;
    return conv;
  }

  bool merge_narrow_groups(const std::string& name, Conv& conv) {
    const ConvProblem& p = conv.problem;
    // Products with zeros are not a number where an activation is infinite.
    const int64_t merged = is_gpu_ ? grid_merged_groups(p.group, p.in_channels, p.out_channels)
                                   : merged_groups(p.group, p.in_channels, p.out_channels, lanes_);
    if (is_gpu_ && !conv.is_narrow) return false;
    if (merged == 0 || (merged > 1 && strict_)) return false;
    if (merged > 1) conv.weights = merge_groups(g_, name, conv.weights, p.group, merged);
    conv.groups = (p.group + merged - 1) / merged;
    return true;
  }

  ValueId direct_conv(const Node& node, const Conv& conv, const std::vector<int64_t>& pads) {
    const int64_t in = conv.problem.in_channels, out = conv.problem.out_channels;
    const bool is_depthwise = conv.problem.is_depthwise();
    // Groups whose channels lie in one row of memory have a block each.
    const bool in_rows = conv.layout == Layout::channels_last && conv.problem.is_grouped();
    int64_t in_block = forms_.block(conv.layout, in_rows ? in / conv.groups : in);
    if (conv.input != Conv::laid_out) in_block = conv.input == Conv::words ? kImageChannels : 0;
    Attributes a;
    a.set("strides", conv.problem.strides);
    a.set("dilations", conv.problem.dilations);
    a.set("pads", pads);
    a.set("group", is_depthwise ? int64_t{1} : conv.groups);
    a.set("in_block", in_block);
    // Tensor cores of GPUs find a column's weights side by side: which columns go to which thread is open then.
    const bool in_columns = is_gpu_ && conv.in_panels() && conv.is_narrow;
    // Words are multiplied in whole vectors of columns; a single column is no product of matrices.
    const int64_t columns = conv.in_words ? (out + lanes_ - 1) / lanes_ * lanes_ : in_columns ? std::max(out, kFewestGridColumns) : out;
    if (conv.in_panels()) a.set("columns", columns);
    if (node.attributes.integer(kWideResult, 0) != 0) a.set(kWideResult, int64_t{1});

    const bool in_tiles = !is_gpu_ && conv.in_panels();
    Attributes pack;
    const int64_t panel = conv.in_words ? word_panel_width(out, conv.problem.element, t_) : panel_width(out, t_);
    pack.set("block", in_columns ? 1 : in_tiles ? panel : forms_.block(conv.layout, out));
    pack.set("in_block", in_block);
    if (conv.in_words) {
      pack.set("word", word_of(conv.problem.element, t_));
      a.set("word", word_of(conv.problem.element, t_));
    }
    const ValueId weights = in_columns && columns != out ? with_columns(node.name, conv.weights, columns) : conv.weights;
    ValueId packed = emit(g_, "mcc", is_depthwise ? "PackDepthwise" : "PackConvWeight", node.name + ".packed",
                          {forms_.reshaped_as_image(node.name, weights)}, pack);
    if (conv.in_words) {
      std::vector<int64_t> dims = static_shape(shape(packed));  // [panels, 1, R, S, words, columns, elements of a word]
      if (joins_row(dims[4], conv.problem.kernel, conv.problem.dilations, conv.problem.element, t_)) {
        dims[3] *= dims[4];
        dims.erase(dims.begin() + 4);
        packed = forms_.reshape(node.name + ".packed", packed, dims);
        a.set("kernel", conv.problem.kernel);
      }
    }
    if (in_columns && conv.input != Conv::plain) {
      // The sum as one axis.
      packed = forms_.reshape(node.name + ".packed", packed, {columns, conv.problem.taps() * in_block});
      a.set("kernel", conv.problem.kernel);
    }
    std::vector<ValueId> inputs{input_of(node.name, conv), packed};
    if (conv.bias != kNoValue) inputs.push_back(forms_.pack_vector(node.name, conv.bias, conv.layout, columns));
    const ValueId y = emit(g_, "mcc", is_depthwise ? "Depthwise" : "Conv", node.name, inputs, a);
    return columns == out ? y : first_columns(g_, node.name, y, out);
  }

  // Weights of more channels of results, which are zeros.
  ValueId with_columns(const std::string& name, ValueId weights, int64_t columns) {
    std::vector<int64_t> pads(2 * rank(weights));
    pads[rank(weights)] = columns - static_shape(shape(weights))[0];
    return emit(g_, "", "Pad", name + ".columns", {weights, g_.add_constant(name + ".pads", Constant::ints(pads))}, {});
  }

  ValueId input_of(const std::string& name, const Conv& conv) {
    switch (conv.input) {
      case Conv::plain:
        return forms_.reshaped_as_image(name, conv.x);
      case Conv::words:
        return forms_.filled_up(forms_.plain(conv.x), kImageChannels);
      case Conv::laid_out:
        return forms_.in_layout(conv.x, conv.layout);
    }
    MCC_UNREACHABLE("unknown form");
  }

  Layout layout_of(NodeId id) const {
    auto it = layouts_.find(id);
    return it == layouts_.end() ? first_layout(t_) : it->second;
  }

  ValueId winograd_conv(NodeId id, int64_t tile, const std::vector<int64_t>& pads) {
    const Node node = g_.node(id);
    int64_t out = static_shape(shape(node.inputs[1]))[0];
    Attributes pack, a;
    pack.set("tile", tile);
    pack.set("block", lanes_);
    pack.set("panel", 2 * lanes_);
    a.set("tile", tile);
    a.set("pads", pads);
    a.set("channels", (out + lanes_ - 1) / lanes_);
    ValueId packed = emit(g_, "mcc", "WinogradWeight", node.name + ".packed", {node.inputs[1]}, pack);
    std::vector<ValueId> inputs{forms_.in_layout(node.inputs[0], Layout::blocked), packed};
    if (node.inputs.size() > 2 && node.inputs[2] != kNoValue) {
      inputs.push_back(forms_.pack_vector(node.name, node.inputs[2], Layout::blocked, out));
    }
    return emit(g_, "mcc", "Winograd", node.name, inputs, a);
  }

  Graph& g_;
  const Layouts& layouts_;
  const tensor::Target& t_;
  bool strict_;
  const AlgorithmChoices& choices_;
  bool is_gpu_;  // matrices stay plain there, and weights one panel: a block fetches a tile of what lies in rows
  int64_t lanes_;
  int64_t weight_bytes_;
  LayoutForms forms_;
  std::optional<Graph> typical_;  // of a graph with symbolic dimensions
};

}  // namespace

std::vector<Region> apply_layouts(Graph& graph, const Layouts& layouts, const tensor::Target& target,
                                  bool strict, const AlgorithmChoices& choices) {
  return ApplyLayouts(graph, layouts, target, strict, choices).run();
}

}  // namespace mcc::graph
