// ConvTranspose: the input is spread out by the stride, padded, and convolved with the flipped weights.
#include "graph/ops/conv_transpose.h"

#include "graph/ops/window.h"
#include "tensor/simplify.h"

namespace mcc::graph {
namespace {

// One spatial axis: out[o] = sum over i*stride + t*dilation - begin = o of x[i] * w[t].
struct Layout {
  Window window;  // end is implied by the output's extent
  Shape out;
};

// Nothing where the padding differs from size to size of an open axis.
std::optional<Layout> layout_of(const Attributes& a, const std::vector<int64_t>& kernel, const Shape& in) {
  size_t rank = kernel.size();
  std::vector<int64_t> ones(rank, 1), zeros(rank, 0);
  Layout l{{kernel, a.integers("strides", ones), a.integers("dilations", ones), zeros, zeros}, {}};
  Window& w = l.window;
  std::string auto_pad = a.text("auto_pad", "NOTSET");
  std::vector<int64_t> extra = a.integers("output_padding", zeros), shape = a.integers("output_shape");
  std::vector<int64_t> pads = a.integers("pads", std::vector<int64_t>(2 * rank, 0));
  // The last numbers of output_shape are the spatial ones.
  size_t skipped = shape.size() > rank ? shape.size() - rank : 0;
  for (size_t k = 0; k < rank; ++k) {
    const Expr full = (in[k] - 1) * w.stride[k] + (extra[k] + w.reach(k));
    bool is_same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
    if (is_same || !shape.empty()) {
      l.out.push_back(shape.empty() ? in[k] * w.stride[k] : Expr(shape[skipped + k]));
      const std::optional<int64_t> cut = static_dim(tensor::simplify(full - l.out[k]));
      if (!cut) return std::nullopt;
      const int64_t total = std::max<int64_t>(*cut, 0);
      w.begin[k] = auto_pad == "SAME_UPPER" ? total / 2 : total - total / 2;
    } else {
      if (auto_pad != "VALID") w.begin[k] = pads[k];
      l.out.push_back(tensor::simplify(full - (w.begin[k] + (auto_pad == "VALID" ? 0 : pads[rank + k]))));
    }
  }
  return l;
}

void infer(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::floating) || !expect_same_type(c, 0, 1) || !expect_rank(c, 0, 3, 5) ||
      !expect_rank(c, 1, c.rank(0))) {
    return;
  }
  if (c.has_input(2) && (!expect_same_type(c, 0, 2) || !expect_rank(c, 2, 1))) return;
  const auto channels = need_static_dim(c, c.input(0).shape[1], "the number of input channels");
  if (!channels) return;
  std::vector<int64_t> weights;
  for (const Expr& e : c.input(1).shape) {
    auto d = need_static_dim(c, e, "a dimension of the weights");
    if (!d) return;
    weights.push_back(*d);
  }
  int64_t group = c.attributes().integer("group", 1);
  if (!expect(c, group >= 1 && *channels % group == 0 && weights[0] == *channels, "weights ", to_text(c.input(1)),
              " with group ", group, " for ", *channels, " input channels")) {
    return;
  }
  std::vector<int64_t> kernel(weights.begin() + 2, weights.end());
  size_t rank = kernel.size();
  for (const char* name : {"strides", "dilations", "output_padding", "kernel_shape"}) {
    size_t n = c.attributes().integers(name, kernel).size();
    if (!expect(c, n == rank, name, ": expected ", rank, " numbers, got ", n)) return;
    for (int64_t v : c.attributes().integers(name, kernel)) {
      bool may_be_zero = std::string_view(name) == "output_padding";
      if (!expect(c, v >= (may_be_zero ? 0 : 1) && v < (1 << 30), name, ": ", v, " is out of range")) return;
    }
  }
  const std::vector<int64_t> pads = c.attributes().integers("pads", std::vector<int64_t>(2 * rank));
  size_t n_pads = pads.size();
  size_t n_out = c.attributes().integers("output_shape", kernel).size();
  if (!expect(c, n_pads == 2 * rank, "pads: expected ", 2 * rank, " numbers, got ", n_pads) ||
      !expect(c, n_out == rank || n_out == rank + 2, "output_shape: expected ", rank, " numbers, got ",
              n_out)) {
    return;
  }
  for (int64_t v : pads) {
    if (!expect(c, v >= 0, "pads: expected numbers from 0 on, got ", list_text(pads))) return;
  }
  const std::optional<Layout> l = layout_of(c.attributes(), kernel, spatial_dims(c.input(0).shape));
  if (!l) return c.unsupported("with output_shape, a spatial dimension needs a value known at compile time");
  Shape out{c.input(0).shape[0], weights[1] * group};
  if (c.has_input(2) && !expect_same_dim(c, out[1], c.input(2).shape[0], "length of the bias")) return;
  out.insert(out.end(), l->out.begin(), l->out.end());
  c.set_output(0, {c.input(0).element, out});
}

// x with stride-1 zeros between neighbours, padded such that tap T-1-t of the window at o meets x[i] where
// i*stride + t*dilation - begin = o.
Buffer spread(ComputeContext& c, const Window& w, const Shape& out) {
  const TensorType& in = c.input_type(0);
  Shape shape{in.shape[0], in.shape[1]};
  for (size_t k = 0; k < w.rank(); ++k)
    shape.push_back(out[k] + (w.reach(k) - 1));
  return c.builder.compute("pad", in.element, shape, [&](Axes i) {
    std::vector<Expr> index{i[0], i[1]};
    Expr inside = tensor::true_value();
    for (size_t k = 0; k < w.rank(); ++k) {
      Expr at = i[k + 2] + (w.begin[k] - (w.reach(k) - 1));
      inside = inside && at >= 0 && at <= (in.shape[k + 2] - 1) * w.stride[k];
      if (w.stride[k] != 1) inside = inside && tensor::floor_mod(at, w.stride[k]) == 0;
      index.push_back(tensor::floor_div(at, w.stride[k]));
    }
    return select(inside, c.at(0, index), tensor::constant(in.element, 0));
  });
}

void compute(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  std::vector<int64_t> weights = static_shape(c.input_type(1).shape);
  int64_t group = c.attributes().integer("group", 1), group_in = weights[0] / group, group_out = weights[1];
  const Layout l = *layout_of(c.attributes(), {weights.begin() + 2, weights.end()}, spatial_dims(c.input_type(0).shape));
  Buffer x = spread(c, l.window, spatial_dims(out.shape));
  std::vector<Expr> extents{group_in};
  for (int64_t k : l.window.kernel)
    extents.emplace_back(k);
  ElementType sum_type = wide_type(out.element);
  Buffer sum = c.builder.reduce("conv", sum_type, out.shape, extents, Reducer::sum, [&](Axes i, Axes r) {
    Expr g = group == 1 ? Expr(0) : tensor::floor_div(i[1], group_out);
    Expr channel = group_in == 1 ? g : g * group_in + r[0];
    std::vector<Expr> x_index{i[0], channel};
    std::vector<Expr> w_index{channel, group == 1 ? i[1] : tensor::floor_mod(i[1], group_out)};
    for (size_t k = 0; k < l.window.rank(); ++k) {
      x_index.push_back(i[k + 2] + r[k + 1] * l.window.dilation[k]);
      w_index.push_back(l.window.kernel[k] - 1 - r[k + 1]);
    }
    return widen(load(x, x_index)) * widen(c.at(1, w_index));
  });
  if (!c.has_input(2)) return c.set_output(0, cast_buffer(c, sum, out.element));
  c.set_output(0, c.builder.compute("bias", out.element, out.shape, [&](Axes i) {
    return cast(out.element, load(sum, to_vector(i)) + widen(c.at(2, {i[1]})));
  }));
}

}  // namespace

std::vector<int64_t> conv_transpose_begin(const Graph& graph, const Node& node) {
  std::vector<int64_t> weights = static_shape(graph.value(node.inputs[1]).type.shape);
  return layout_of(node.attributes, {weights.begin() + 2, weights.end()}, spatial_dims(graph.value(node.inputs[0]).type.shape))->window.begin;
}

std::span<const OpDef> conv_transpose_ops() {
  static const OpDef op = onnx_op("ConvTranspose", FusionClass::contraction, 2, infer, compute);
  return {&op, 1};
}

}  // namespace mcc::graph
