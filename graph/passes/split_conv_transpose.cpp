// Transposed convolutions with a stride s as convolutions without one:
//   y[q s + r] = sum over t of x[q - t] w[r + t s]        r = 0 .. s-1, along each axis
// For each phase r this is a convolution of x; all phases together have s times the output channels (s^2 in two dimensions),
// and their results are interleaved. No product with a zero between the elements of x is left (W. Shi et al., "Is the
// deconvolution layer the same as a convolutional layer?", 2016). In groups the channels of each are apart, all of its phases together.
//
// Without a stride (a dilation d is one of the taps) it is a convolution of x with the weights in reverse order:
//   y[q] = sum over t of x[q - t d] w[t]
#include <algorithm>
#include <limits>
#include <optional>

#include "graph/ops/conv_transpose.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "tensor/simplify.h"

namespace mcc::graph {
namespace {

class SplitConvTranspose {
 public:
  explicit SplitConvTranspose(Graph& g) : g_(g) {}

  void run() {
    size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n) {
      if (is_op(g_.node(static_cast<NodeId>(n)), "ConvTranspose")) split(static_cast<NodeId>(n));
    }
    eliminate_dead_code(g_);
  }

 private:
  using Ints = std::vector<int64_t>;

  const Shape& shape(ValueId v) const { return g_.value(v).type.shape; }
  bool is_constant(ValueId v) const { return g_.value(v).constant.has_value(); }

  ValueId ints(const std::string& name, const Ints& values) {
    return g_.add_constant(name, Constant::ints(values));
  }
  ValueId reshape(ValueId x, const Ints& dims) { return reshaped(g_, name_, x, dims); }
  ValueId transpose(ValueId x, const Ints& perm) {
    Attributes a;
    a.set("perm", perm);
    return emit(g_, "", "Transpose", name_, {x}, a);
  }

  void split(NodeId id) {
    const Node node = g_.node(id);
    ValueId x = node.inputs[0], w = node.inputs[1];
    ValueId bias = node.inputs.size() > 2 ? node.inputs[2] : kNoValue;
    if (!is_constant(w) || (bias != kNoValue && !is_constant(bias))) return;
    const Ints ws = static_shape(shape(w));
    const Shape xs = shape(x), ys = shape(node.outputs[0]);
    rank_ = ws.size() - 2;
    const Ints ones(rank_, 1);
    stride_ = node.attributes.integers("strides", ones);
    bool is_strided =
        std::any_of(stride_.begin(), stride_.end(), [](int64_t s) { return s > 1 && s <= kMostPhases; });
    bool is_wide = std::any_of(stride_.begin(), stride_.end(), [](int64_t s) { return s > kMostPhases; });
    groups_ = node.attributes.integer("group", 1);
    name_ = node.name;
    if (stride_ == ones) return reverse(id);
    if (!is_strided || is_wide || node.attributes.integers("dilations", ones) != ones) return;
    if (groups_ > 1 && !(is_static(xs) && is_static(ys) && pays_in_groups(ws))) return;
    begin_ = conv_transpose_begin(g_, node);
    taps_.clear();
    count_.clear();
    cut_.clear();
    Ints before, after;
    for (size_t k = 0; k < rank_; ++k) {
      taps_.push_back((ws[2 + k] + stride_[k] - 1) / stride_[k]);
      // Positions q that results come from: the last one is (extent - 1 + begin) / s.
      const Expr& extent = ys[2 + k];
      count_.push_back(tensor::simplify(floor_div(extent + (begin_[k] - 1), Expr(stride_[k])) + 1));
      const auto added = known(count_[k] - xs[2 + k]), cut = known(count_[k] * stride_[k] - extent - begin_[k]);
      if (!added || !cut || *added < 0) return;  // crops more than a whole step, or more for some sizes than for others
      before.push_back(taps_[k] - 1);
      after.push_back(*added);
      cut_.push_back(*cut);
    }
    Attributes a;
    Ints pads = before;
    pads.insert(pads.end(), after.begin(), after.end());
    a.set("pads", pads);
    if (groups_ > 1) a.set("group", groups_);
    std::vector<ValueId> inputs{x, phase_weights(w, ws)};
    if (bias != kNoValue) inputs.push_back(phase_bias(bias, ws[1]));
    ValueId phases = emit(g_, "", "Conv", name_, inputs, a);
    g_.node(g_.value(phases).producer).origins = node.origins;
    ValueId y = interleave(phases, ys);
    const bool is_same = std::equal(ys.begin(), ys.end(), shape(y).begin(), shape(y).end(),
                                    [&](const Expr& a, const Expr& b) { return g_.are_equal(a, b); });
    if (!is_same) return;  // some size would leave nothing
    g_.node(g_.value(y).producer).origins = node.origins;
    take_place(g_, node.outputs[0], y);
    g_.node(id).dead = true;
  }

  // [groups C, K, k...] -> [groups K, C, k...], the taps in reverse order.
  ValueId reversed_weights(ValueId w, const Ints& ws) {
    Ints axes, starts(rank_, -1), ends(rank_, std::numeric_limits<int64_t>::min()), steps(rank_, -1);
    Ints split{groups_, ws[0] / groups_}, perm{0, 2, 1}, dims{groups_ * ws[1], ws[0] / groups_};
    for (size_t k = 0; k < rank_; ++k)
      axes.push_back(static_cast<int64_t>(2 + k)), perm.push_back(static_cast<int64_t>(3 + k));
    split.insert(split.end(), ws.begin() + 1, ws.end());
    dims.insert(dims.end(), ws.begin() + 2, ws.end());
    w = emit(g_, "", "Slice", name_,
             {w, ints(name_ + ".starts", starts), ints(name_ + ".ends", ends), ints(name_ + ".axes", axes),
              ints(name_ + ".steps", steps)});
    return reshape(transpose(reshape(w, split), perm), dims);
  }

  void reverse(NodeId id) {
    const Node node = g_.node(id);
    const Ints ws = static_shape(shape(node.inputs[1])), begin = conv_transpose_begin(g_, node),
               dilations = node.attributes.integers("dilations", Ints(rank_, 1));
    const Shape xs = shape(node.inputs[0]), ys = shape(node.outputs[0]);
    Ints before, after;
    for (size_t k = 0; k < rank_; ++k) {
      const int64_t reach = (ws[2 + k] - 1) * dilations[k];
      before.push_back(reach - begin[k]);
      const auto behind = known(ys[2 + k] + reach - xs[2 + k] - before[k]);
      if (!behind || *behind < 0 || before[k] < 0) return;  // cuts off more than the taps reach
      after.push_back(*behind);
    }
    Attributes a;
    before.insert(before.end(), after.begin(), after.end());
    a.set("pads", before);
    if (dilations != Ints(rank_, 1)) a.set("dilations", dilations);
    if (groups_ > 1) a.set("group", groups_);
    std::vector<ValueId> inputs = node.inputs;
    inputs[1] = reversed_weights(node.inputs[1], ws);
    const ValueId y = emit(g_, "", "Conv", name_, inputs, a);
    g_.node(g_.value(y).producer).origins = node.origins;
    take_place(g_, node.outputs[0], y);
    g_.node(id).dead = true;
  }

  // Kernels of one channel to one read little and write what they read; in their own layout zeros between the elements cost them less than
  // interleaving does, but for many phases.
  bool pays_in_groups(const Ints& ws) const {
    constexpr int64_t kManyPhases = 16;
    const bool is_depthwise = ws[0] == groups_ && ws[1] == 1;
    return !is_depthwise || phase_count() >= kManyPhases;
  }

  // [groups C, K, k...] -> [groups s... K, C, taps...]: tap t of phase r is w[r + (taps - 1 - t) s], 0 past the end.
  ValueId phase_weights(ValueId w, const Ints& ws) {
    Ints ends(ws.size(), 0), split{groups_, ws[0] / groups_, ws[1]}, phases, taps;
    Ints pads(ws.size(), 0);
    Ints axes, starts, stops, steps;
    for (size_t k = 0; k < rank_; ++k) {
      ends[2 + k] = taps_[k] * stride_[k] - ws[2 + k];
      taps.push_back(static_cast<int64_t>(split.size()));
      axes.push_back(taps.back());
      starts.push_back(-1);
      stops.push_back(std::numeric_limits<int64_t>::min());
      steps.push_back(-1);
      split.push_back(taps_[k]);
      phases.push_back(static_cast<int64_t>(split.size()));
      split.push_back(stride_[k]);
    }
    pads.insert(pads.end(), ends.begin(), ends.end());
    w = emit(g_, "", "Pad", name_, {w, ints(name_ + ".pads", pads)});
    w = reshape(w, split);
    w = emit(g_, "", "Slice", name_,
             {w, ints(name_ + ".starts", starts), ints(name_ + ".ends", stops), ints(name_ + ".axes", axes),
              ints(name_ + ".steps", steps)});
    Ints perm = phases, dims{groups_ * ws[1] * phase_count(), ws[0] / groups_};
    perm.insert(perm.begin(), 0);
    perm.insert(perm.end(), {2, 1});
    perm.insert(perm.end(), taps.begin(), taps.end());
    dims.insert(dims.end(), taps_.begin(), taps_.end());
    return reshape(transpose(w, perm), dims);
  }

  int64_t phase_count() const {
    int64_t count = 1;
    for (int64_t s : stride_)
      count *= s;
    return count;
  }

  ValueId phase_bias(ValueId bias, int64_t channels) {
    const ValueId of_groups = reshape(bias, {groups_, 1, channels});
    ValueId rows = emit(g_, "", "Expand", name_,
                        {of_groups, ints(name_ + ".shape", {groups_, phase_count(), channels})});
    return reshape(rows, {groups_ * phase_count() * channels});
  }

  // [N, s... K, q...] -> [N, K, y...]
  ValueId interleave(ValueId phases, const Shape& ys) {
    Ints axes, starts, ends;
    for (size_t k = 0; k < rank_; ++k) {
      const std::optional<int64_t> extent = known(ys[2 + k]);
      axes.push_back(static_cast<int64_t>(2 + k));
      starts.push_back(begin_[k]);
      ends.push_back(extent ? begin_[k] + *extent : cut_[k] == 0 ? std::numeric_limits<int64_t>::max() : -cut_[k]);
    }
    ValueId y = kNoValue;
    if (groups_ == 1 && rank_ == 2 && stride_[0] == stride_[1]) {
      // One operator, which layouts know.
      Attributes a;
      a.set("blocksize", stride_[0]);
      y = emit(g_, "", "DepthToSpace", name_, {phases}, a);
    } else if (groups_ == 1 && (rank_ == 3 || !is_static(ys))) {
      Attributes a;
      a.set("blocks", stride_);
      y = emit(g_, "mcc", "Interleave", name_, {phases}, a);
    } else {
      y = interleave_by_reshapes(phases, static_shape(ys));
    }
    return emit(
        g_, "", "Slice", name_,
        {y, ints(name_ + ".starts", starts), ints(name_ + ".ends", ends), ints(name_ + ".axes", axes)});
  }

  // [N, groups s... K, q...] -> [N, groups K, q s...]
  ValueId interleave_by_reshapes(ValueId phases, const Ints& ys) {
    Ints split{ys[0], groups_}, perm{0, 1}, merged{ys[0], ys[1]};
    const auto first_phase = static_cast<int64_t>(split.size());
    split.insert(split.end(), stride_.begin(), stride_.end());
    perm.push_back(static_cast<int64_t>(split.size()));
    split.push_back(ys[1] / groups_);
    for (size_t k = 0; k < rank_; ++k) {
      perm.push_back(static_cast<int64_t>(split.size()));
      perm.push_back(first_phase + static_cast<int64_t>(k));
      split.push_back(*known(count_[k]));
      merged.push_back(split.back() * stride_[k]);
    }
    return reshape(transpose(reshape(phases, split), perm), merged);
  }

  static std::optional<int64_t> known(const Expr& e) {
    int64_t value = 0;
    return tensor::as_int(tensor::simplify(e), &value) ? std::optional(value) : std::nullopt;
  }

  // Beyond this the phases' weights, padded to whole steps, are no longer what a kernel reads well.
  static constexpr int64_t kMostPhases = 16;

  Graph& g_;
  std::string name_;
  size_t rank_ = 0;
  int64_t groups_ = 1;
  Ints stride_, begin_, taps_, cut_;  // along each spatial axis; cut_: what is left out at the end
  Shape count_;                       // positions q
};

}  // namespace

void split_conv_transpose(Graph& graph) { SplitConvTranspose(graph).run(); }

}  // namespace mcc::graph
