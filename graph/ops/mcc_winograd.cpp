// 3x3 convolutions of stride 1 by Winograd's minimal filtering F(m x m, 3 x 3), m = 2 or 4 (Lavin and Gray, Fast Algorithms
// for Convolutional Neural Networks, CVPR 2016, section 4): Y = A^T [(G g G^T) * (B^T d B)] A for tiles d of
// (m+2) x (m+2) inputs that overlap by 2, where * is a matrix product over channels for each of the (m+2)^2 positions.
//
//   mcc.WinogradWeight  w [K, C, 3, 3] -> [ceil(K/p), m+2, m+2, ceil(C/c)*c, p], 0 past the edges
//                       Attributes: tile (m), block (c), panel (p). Computed in f64, then rounded.
//   mcc.Winograd        x [N, C/c, H, W, c], w as above, optional bias [K/c, c]  ->  [N, K/c, H', W', c]
//                       Attributes: tile, pads (top, left, bottom, right), channels (blocks of K).
//                       Or plain: x [N, C, H, W], block 1, p any, bias [K], channels K  ->  [N, K, H', W'].
//
// The convolution is five blocks: `pad`; `rows` and `tiles`, which transform the input along H, then along W; `product`;
// `sums`, which transforms its result back along H; `conv` does so along W. Tiles are numbered through images, rows and
// columns, so that the product has them as rows of a matrix. Of blocked tensors whose number of rows or columns of tiles is symbolic,
// images have an axis of their own, as no schedule for all sizes could tell apart what belongs to an image; on a GPU's grid a thread
// finds its tile's image by itself.
#include "graph/ops/common.h"
#include "tensor/simplify.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

constexpr int64_t kTaps = 3;

// Which of the values `index` stands for. When loops over it are unrolled, only that one remains.
Expr pick(const Expr& index, const std::vector<Expr>& values) {
  Expr chosen = values.back();
  for (size_t i = values.size() - 1; i-- > 0;)
    chosen = select(index == Expr(static_cast<int64_t>(i)), values[i], chosen);
  return chosen;
}

Expr times(const Expr& x, double factor) { return factor == 1 ? x : x * number_like(x, factor); }

// B^T d. Rows come in pairs that differ in the sign of their odd part; equal terms are written alike, so that they are
// computed once.
std::vector<Expr> transform_input(int64_t m, const std::vector<Expr>& d) {
  if (m == 2) return {d[0] - d[2], d[1] + d[2], d[2] - d[1], d[1] - d[3]};
  Expr even1 = d[4] - times(d[2], 4), odd1 = d[3] - times(d[1], 4);
  Expr even2 = d[4] - d[2], odd2 = times(d[3] - d[1], 2);
  return {times(d[0], 4) - times(d[2], 5) + d[4], even1 + odd1, even1 - odd1, even2 + odd2, even2 - odd2,
          times(d[1], 4) - times(d[3], 5) + d[5]};
}

// G g
std::vector<Expr> transform_weight(int64_t m, const std::vector<Expr>& g) {
  Expr outer = g[0] + g[2];
  if (m == 2) return {g[0], times(outer + g[1], 0.5), times(outer - g[1], 0.5), g[2]};
  Expr weighted = g[0] + times(g[2], 4);
  return {times(g[0], 1.0 / 4),
          times(outer + g[1], -1.0 / 6),
          times(outer - g[1], -1.0 / 6),
          times(weighted + times(g[1], 2), 1.0 / 24),
          times(weighted - times(g[1], 2), 1.0 / 24),
          g[2]};
}

// A^T p
std::vector<Expr> transform_product(int64_t m, const std::vector<Expr>& p) {
  Expr sum1 = p[1] + p[2], difference1 = p[1] - p[2];
  if (m == 2) return {p[0] + sum1, difference1 - p[3]};
  Expr sum2 = p[3] + p[4], difference2 = p[3] - p[4];
  return {p[0] + sum1 + sum2, difference1 + times(difference2, 2), sum1 + times(sum2, 4),
          difference1 + times(difference2, 8) + p[5]};
}

// f(0), ..., f(count - 1)
template <class F>
std::vector<Expr> each(int64_t count, F&& f) {
  std::vector<Expr> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(f(Expr(i)));
  return values;
}

int64_t tile_of(const Attributes& a) { return a.integer("tile", 4); }

void infer_weight(InferContext& c) {
  const TensorType& w = c.input(0);
  int64_t size = tile_of(c.attributes()) + kTaps - 1;
  int64_t block = c.attributes().integer("block", 16), panel = c.attributes().integer("panel", 32);
  c.set_output(0, {w.element,
                   {ceil_div(w.shape[0], Expr(panel)), Expr(size), Expr(size),
                    ceil_div(w.shape[1], Expr(block)) * Expr(block), Expr(panel)}});
}

void compute_weight(ComputeContext& c) {
  const TensorType& w = c.input_type(0);
  const Shape& out = c.output_type(0).shape;
  int64_t m = tile_of(c.attributes());
  // One side first: [ceil(K/p), m+2, 3, ...]
  std::vector<Expr> shape = out;
  shape[2] = Expr(kTaps);
  Buffer half = c.builder.compute("half", ElementType::f64, shape, [&](Axes i) {
    Expr k = i[0] * out[4] + i[4];
    Expr inside = k < w.shape[0] && i[3] < w.shape[1];
    return pick(i[1], transform_weight(m, each(kTaps, [&](const Expr& tap) {
                                         Expr value = select(inside, c.at(0, {k, i[3], tap, i[2]}),
                                                             tensor::constant(w.element, 0));
                                         return cast(ElementType::f64, value);
                                       })));
  });
  c.set_output(0, c.builder.compute("weight", w.element, out, [&](Axes i) {
    std::vector<Expr> taps =
        each(kTaps, [&](const Expr& tap) { return load(half, {i[0], i[1], tap, i[3], i[4]}); });
    return cast(w.element, pick(i[2], transform_weight(m, taps)));
  }));
}

struct Tiling {
  int64_t m, size;               // outputs and inputs along a side of a tile
  int64_t before[2];             // padding
  Expr in[2], out[2], count[2];  // extents of input and result; tiles
  // Of the input as far as the tiles reach.
  Expr reach(size_t d) const { return tensor::simplify(count[d] * m + (kTaps - 1)); }
};

Tiling tiling_of(const Attributes& a, const Shape& x) {
  Tiling t{};
  t.m = tile_of(a);
  t.size = t.m + kTaps - 1;
  std::vector<int64_t> pads = a.integers("pads", {0, 0, 0, 0});
  for (size_t d = 0; d < 2; ++d) {
    t.before[d] = pads[d];
    t.in[d] = x[2 + d];
    t.out[d] = tensor::simplify(t.in[d] + (pads[d] + pads[2 + d] - (kTaps - 1)));
    t.count[d] = tensor::simplify(ceil_div(t.out[d], Expr(t.m)));
  }
  return t;
}

void infer_winograd(InferContext& c) {
  const TensorType& x = c.input(0);
  Tiling t = tiling_of(c.attributes(), x.shape);
  Shape shape{x.shape[0], Expr(c.attributes().integer("channels", 0)), t.out[0], t.out[1]};
  if (x.shape.size() == 5) shape.push_back(x.shape[4]);
  c.set_output(0, {x.element, shape});
}

// The input with zeros around it, as far as the tiles reach.
std::function<Expr(std::vector<Expr>)> padded_input(ComputeContext& c, const Tiling& t) {
  const TensorType& x = c.input_type(0);
  std::vector<Expr> shape = x.shape;
  bool exact = true;
  for (size_t d = 0; d < 2; ++d) {
    shape[2 + d] = t.reach(d);
    exact = exact && tensor::structurally_equal(shape[2 + d], t.in[d]);
  }
  if (exact) return [&c](std::vector<Expr> index) { return c.at(0, std::move(index)); };
  Buffer pad = c.builder.compute("pad", x.element, shape, [&](Axes i) {
    std::vector<Expr> index = to_vector(i);
    Expr inside = tensor::true_value();
    for (size_t d = 0; d < 2; ++d) {
      Expr& at = index[2 + d];
      at = at - Expr(t.before[d]);
      inside = inside && at >= Expr(0) && at < x.shape[2 + d];
    }
    return select(inside, c.at(0, index), tensor::constant(x.element, 0));
  });
  return [pad](std::vector<Expr> index) { return load(pad, std::move(index)); };
}

void compute_winograd(ComputeContext& c) {
  const Shape& x = c.input_type(0).shape;
  const Shape& w = c.input_type(1).shape;
  const TensorType& y = c.output_type(0);
  Tiling t = tiling_of(c.attributes(), x);
  ElementType element = wide_type(y.element);
  auto input = padded_input(c, t);
  const bool is_blocked = x.size() == 5;
  const Expr size(t.size), m(t.m);
  const Expr &lines = t.count[0], &columns = t.count[1];
  const Expr block = is_blocked ? x[4] : Expr(1);
  const Expr width = t.reach(1);
  const bool is_apart = is_blocked && (!static_dim(lines) || !static_dim(columns));  // images
  // Rows of the plain form are whole vectors of 4: their last tiles are some of the first once more, which nobody reads.
  Expr tiles = is_apart ? tensor::simplify(lines * columns) : x[0] * lines * columns;
  if (!is_blocked) tiles = ceil_div(tiles, Expr(4)) * Expr(4);
  // Behind a shape the block, behind indices the place in it; nothing of plain tensors.
  auto with = [&](std::vector<Expr> indices, const Expr& last) {
    if (is_blocked) indices.push_back(last);
    return indices;
  };
  auto channel = [&](const Expr& of_blocks, const Expr& last) {
    return is_blocked ? of_blocks * block + last : of_blocks;
  };

  // [N, C/c, line of tiles, a, column, c]
  std::vector<Expr> rows_shape = with({x[0], x[1], lines, size, width}, block);
  Buffer rows = c.builder.compute("rows", element, rows_shape, [&](Axes i) {
    return pick(i[3], transform_input(t.m, each(t.size, [&](const Expr& r) {
                                        return widen(input(with({i[0], i[1], i[2] * m + r, i[4]}, i.back())));
                                      })));
  });
  // [C/c, (N,) a, b, tile, c]
  std::vector<Expr> v_shape{x[1], size, size, tiles};
  if (is_apart) v_shape.insert(v_shape.begin() + 1, x[0]);
  const size_t side = is_apart ? 2 : 1;  // axis a of it
  Buffer v = c.builder.compute("tiles", element, with(v_shape, block), [&](Axes i) {
    const Expr& tile = i[side + 2];
    Expr image = is_apart ? Expr(i[1]) : floor_div(tile, lines * columns), line = floor_div(tile, columns),
         column = floor_mod(tile, columns);
    if (!is_apart) line = floor_mod(line, lines);
    if (!is_apart && !is_blocked) image = floor_mod(image, x[0]);
    return pick(i[side + 1], transform_input(t.m, each(t.size, [&](const Expr& r) {
                                               return load(rows, with({image, i[0], line, i[side], column * m + r}, i.back()));
                                             })));
  });
  // [(N,) tile, a, b, K], K in whole panels
  std::vector<Expr> p_shape{tiles, size, size, w[0] * w[4]};
  if (is_apart) p_shape.insert(p_shape.begin(), x[0]);
  Buffer p = c.builder.reduce("product", element, p_shape, with({x[1]}, block), Reducer::sum, [&](Axes s, Axes r) {
    const Axes of_image = s.subspan(is_apart ? 1 : 0);
    const Expr &tile = of_image[0], &a = of_image[1], &b = of_image[2], &k = of_image[3];
    Expr weight = c.at(1, {floor_div(k, w[4]), a, b, channel(r[0], r.back()), floor_mod(k, w[4])});
    std::vector<Expr> at{r[0], a, b, tile};
    if (is_apart) at.insert(at.begin() + 1, s[0]);
    return load(v, with(at, r.back())) * widen(weight);
  });
  // [N, K/c, H', column of tiles, b, c]
  std::vector<Expr> sums_shape = with({x[0], y.shape[1], y.shape[2], columns, size}, block);
  Buffer sums = c.builder.compute("sums", element, sums_shape, [&](Axes i) {
    Expr line = is_apart ? floor_div(i[2], m) : i[0] * lines + floor_div(i[2], m);
    std::vector<Expr> at{line * columns + i[3], Expr(), i[4], channel(i[1], i.back())};
    if (is_apart) at.insert(at.begin(), i[0]);
    return pick(floor_mod(i[2], m), transform_product(t.m, each(t.size, [&](const Expr& a) {
                                                        at[is_apart ? 2 : 1] = a;
                                                        return load(p, at);
                                                      })));
  });
  Buffer out = c.builder.compute("conv", element, y.shape, [&](Axes i) {
    return pick(floor_mod(i[3], m),
                transform_product(t.m, each(t.size, [&](const Expr& b) {
                                    return load(sums, with({i[0], i[1], i[2], floor_div(i[3], m), b}, i.back()));
                                  })));
  });
  if (c.has_input(2)) {
    out = c.builder.compute("bias", y.element, y.shape, [&](Axes i) {
      return cast(y.element, load(out, to_vector(i)) + widen(c.at(2, with({i[1]}, i.back()))));
    });
  }
  c.set_output(0, cast_buffer(c, out, y.element));
}

}  // namespace

std::span<const OpDef> mcc_winograd_ops() {
  static const OpDef ops[] = {
      {.name = "WinogradWeight",
       .domain = "mcc",
       .fusion = FusionClass::opaque,
       .infer = infer_weight,
       .compute = compute_weight},
      {.name = "Winograd",
       .domain = "mcc",
       .fusion = FusionClass::contraction,
       .infer = infer_winograd,
       .compute = compute_winograd,
       .required_inputs = 2},
  };
  return ops;
}

}  // namespace mcc::graph
