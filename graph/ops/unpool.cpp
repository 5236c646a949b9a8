// Inverses of windows: Col2Im adds overlapping blocks up, MaxUnpool puts maxima back where they came from.
#include "graph/ops/window.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

// ---- Col2Im: columns [N, C * block, windows] -> image [N, C, spatial...] ----

struct Blocks {
  Window window;
  std::vector<int64_t> image, counts;  // windows along each axis
};

Blocks blocks_of(const Attributes& a, const std::vector<int64_t>& image, const std::vector<int64_t>& block) {
  Blocks b{window_of(a, block, make_shape(image)), image, {}};
  const Window& w = b.window;
  for (size_t k = 0; k < image.size(); ++k) {
    int64_t room = image[k] + w.begin[k] + w.end[k] - w.reach(k);
    b.counts.push_back(room < 0 ? 0 : room / w.stride[k] + 1);
  }
  return b;
}

int64_t count(const std::vector<int64_t>& extents) {
  int64_t n = 1;
  for (int64_t e : extents)
    n *= e;
  return n;
}

void infer_col2im(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::number) || !expect_rank(c, 0, 3)) return;
  auto image = constant_ints(c, 1, "image_shape"), block = constant_ints(c, 2, "block_shape");
  if (!image || !block || !checked_window(c, *block, make_shape(*image))) return;
  Blocks b = blocks_of(c.attributes(), *image, *block);
  const Shape& in = c.input(0).shape;
  auto planes = need_static_dim(c, in[1], "the number of planes");
  if (!planes ||
      !expect(c, *planes % count(*block) == 0, *planes, " planes are no multiple of a block of ",
              count(*block)) ||
      !expect_same_dim(c, count(b.counts), in[2], "number of blocks")) {
    return;
  }
  Shape out{in[0], *planes / count(*block)};
  for (int64_t d : *image)
    out.emplace_back(d);
  c.set_output(0, {c.input(0).element, out});
}

// Every image element gathers the taps that fall on it.
void compute_col2im(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  Blocks b = blocks_of(c.attributes(), c.constant(1)->to_ints(), c.constant(2)->to_ints());
  const Window& w = b.window;
  Shape taps = make_shape(w.kernel), counts = make_shape(b.counts);
  ElementType wide = wide_type(out.element);
  Buffer sum = c.builder.reduce("columns", wide, out.shape, taps, Reducer::sum, [&](Axes i, Axes r) {
    Expr inside = tensor::true_value();
    std::vector<Expr> window;
    for (size_t k = 0; k < w.rank(); ++k) {
      Expr at = i[k + 2] + w.begin[k] - r[k] * w.dilation[k];
      Expr index = tensor::floor_div(at, w.stride[k]);
      inside = inside && at >= 0 && index < b.counts[k];
      if (w.stride[k] != 1) inside = inside && tensor::floor_mod(at, w.stride[k]) == 0;
      window.push_back(index);
    }
    Expr plane = i[1] * count(w.kernel) + linear_index(taps, to_vector(r));
    Expr value = widen(c.at(0, {i[0], plane, linear_index(counts, window)}));
    return select(inside, value, tensor::constant_int(value.type(), 0));
  });
  c.set_output(0, cast_buffer(c, sum, out.element));
}

// ---- MaxUnpool: the indices count through the tensor that the pooling read ----

std::optional<Shape> pooled_from(InferContext& c) {
  const Shape& in = c.input(0).shape;
  auto window = checked_window(c, c.attributes().integers("kernel_shape"), spatial_dims(in));
  if (!window) return std::nullopt;
  Shape out{in[0], in[1]};
  for (size_t k = 0; k < window->rank(); ++k) {
    out.push_back((in[k + 2] - 1) * window->stride[k] +
                  (window->kernel[k] - window->begin[k] - window->end[k]));
  }
  return out;
}

void infer_max_unpool(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::floating) || !expect_rank(c, 0, 3, 5) ||
      !expect_type(c, 1, TypeSet::index) ||
      !expect(c, same_shape(c.input(0).shape, c.input(1).shape), "indices: expected the shape of ",
              to_text(c.input(0)), ", got ", to_text(c.input(1)))) {
    return;
  }
  auto shape = pooled_from(c);
  if (!shape) return;
  if (c.has_input(2)) {
    auto given = constant_ints(c, 2, "output_shape");
    if (!given ||
        !expect(c, given->size() == shape->size(), "output_shape: expected ", shape->size(), " numbers")) {
      return;
    }
    shape = make_shape(*given);
  }
  c.set_output(0, {c.input(0).element, *shape});
}

void compute_max_unpool(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  const TensorType& out = c.output_type(0);
  Window w = window_of(c.attributes(), c.attributes().integers("kernel_shape"), spatial_dims(in.shape));
  Shape from{in.shape[0], in.shape[1]};
  for (size_t k = 0; k < w.rank(); ++k) {
    from.push_back((in.shape[k + 2] - 1) * w.stride[k] + (w.kernel[k] - w.begin[k] - w.end[k]));
  }
  Buffer result = c.builder.compute("unpool", out.element, out.shape,
                                    [&](Axes) { return tensor::constant(out.element, 0); });
  std::vector<tensor::FuncBuilder::AxisSpec> axes;
  for (size_t k = 0; k < in.shape.size(); ++k)
    axes.push_back({text("i", k), in.shape[k], tensor::AxisKind::scan});
  c.builder.block("place", axes, [&](Axes i) {
    Expr linear = cast(ElementType::i64, c.at(1, to_vector(i)));
    std::vector<Expr> at = from_linear(from, linear);
    Expr inside = linear >= 0;
    for (size_t k = 0; k < at.size(); ++k)
      inside = inside && at[k] < out.shape[k];
    return tensor::If::make(inside, tensor::Store::make(result, at, c.at(0, to_vector(i))));
  });
  c.set_output(0, result);
}

OpDef inverse(std::string_view name, FusionClass fusion, void (*infer)(InferContext&),
              void (*compute)(ComputeContext&), int required, uint32_t constants) {
  OpDef op = onnx_op(name, fusion, required, infer, compute);
  op.constant_inputs = constants;
  return op;
}

}  // namespace

std::span<const OpDef> unpool_ops() {
  static const OpDef ops[] = {
      inverse("Col2Im", FusionClass::reduction, infer_col2im, compute_col2im, 3, 0b110),
      inverse("MaxUnpool", FusionClass::opaque, infer_max_unpool, compute_max_unpool, 2, 0b100),
  };
  return ops;
}

}  // namespace mcc::graph
