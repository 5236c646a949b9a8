// GridSample: values of x at positions that come from data. mcc.GridSample: the same of tensors whose channels are last.
#include <cmath>

#include "graph/ops/common.h"
#include "graph/ops/sample.h"

namespace mcc::graph {
namespace {

// ---- x [N, C, spatial...], grid [N, out..., n] with positions in [-1, 1], the last axis first ----

enum class Padding { zeros, border, reflection };

struct GridOptions {
  int taps = 2;  // 1 nearest, 2 linear, 4 cubic
  Padding padding = Padding::zeros;
  bool align_corners = false;
};

std::optional<GridOptions> grid_options(const Attributes& a) {
  GridOptions o;
  std::string mode = a.text("mode", "linear"), padding = a.text("padding_mode", "zeros");
  if (mode == "nearest") {
    o.taps = 1;
  } else if (mode == "cubic" || mode == "bicubic") {
    o.taps = 4;
  } else if (mode != "linear" && mode != "bilinear") {
    return std::nullopt;
  }
  if (padding == "border") {
    o.padding = Padding::border;
  } else if (padding == "reflection") {
    o.padding = Padding::reflection;
  } else if (padding != "zeros") {
    return std::nullopt;
  }
  o.align_corners = a.integer("align_corners", 0) != 0;
  return o;
}

void infer(InferContext& c, SampleLayout layout) {
  if (!expect_type(c, 0, TypeSet::floating) || !expect_type(c, 1, TypeSet::floating) ||
      !expect_rank(c, 0, 3, 5) || !expect_rank(c, 1, c.rank(0))) {
    return;
  }
  if (!expect(c, grid_options(c.attributes()).has_value(), "mode ", c.attributes().text("mode", "linear"),
              " with padding_mode ", c.attributes().text("padding_mode", "zeros"), " is not known")) {
    return;
  }
  const Shape& in = c.input(0).shape;
  const Shape& grid = c.input(1).shape;
  if (!expect_same_dim(c, in[0], grid[0], "batch of the grid") ||
      !expect_same_dim(c, static_cast<int64_t>(in.size()) - 2, grid.back(), "last dimension of the grid")) {
    return;
  }
  c.set_output(0, {c.input(0).element, layout.joined({in[0]}, in[layout.channel(in.size())],
                                                     Shape(grid.begin() + 1, grid.end() - 1))});
}

// x mirrored at both ends of [low, high] until it lies inside.
Expr reflected(const Expr& x, const Expr& low, const Expr& high) {
  Expr span = high - low;
  Expr distance = call(Intrinsic::abs, {x - low});
  Expr turns = call(Intrinsic::floor, {distance / span});
  Expr rest = distance - turns * span;
  Expr is_odd = binary(BinaryOp::mod, turns, number_like(turns, 2)) == 1;
  return select(span == 0, low, select(is_odd, high - rest, low + rest));
}

Expr cubic_weight(const Expr& distance) {
  constexpr double a = -0.75;
  auto k = [&](double v) { return number_like(distance, v); };
  Expr d = call(Intrinsic::abs, {distance});
  Expr near = ((k(a + 2) * d - k(a + 3)) * d) * d + k(1);
  Expr far = ((k(a) * d - k(5 * a)) * d + k(8 * a)) * d - k(4 * a);
  return select(d <= k(1), near, select(d < k(2), far, k(0)));
}

// One spatial axis: where a tap of an output element stands (a whole number, which may be outside of the tensor), whether it counts, and its
// weight (undefined: 1).
struct Tap {
  Expr position, inside, weight;
};

Tap tap_at(const GridOptions& o, const Expr& x, const Expr& extent, const Expr& tap) {
  Expr n = cast(x.element(), extent);
  Expr first = o.taps == 1 ? call(Intrinsic::round, {x}) : call(Intrinsic::floor, {x});
  Expr position = first + cast(x.element(), tap - (o.taps == 4 ? 1 : 0));
  Tap t;
  if (o.taps == 2) t.weight = number_like(x, 1) - call(Intrinsic::abs, {x - position});
  if (o.taps == 4) t.weight = cubic_weight(x - position);
  t.inside = tensor::true_value();
  if (o.padding == Padding::zeros) t.inside = position >= 0 && position <= n - 1;
  if (o.padding == Padding::reflection) {
    Expr half = number_like(x, o.align_corners ? 0.0 : 0.5);
    Expr mirrored = reflected(position, -half, n - 1 + half);
    bool may_leave = o.taps != 1;
    position = may_leave ? select(position >= 0 && position <= n - 1, position, mirrored) : position;
  }
  t.position = position;
  return t;
}

// The position along an axis of this extent that the grid's value in [-1, 1] means, before taps are taken.
Expr denormalized(const GridOptions& o, const Expr& value, const Expr& extent) {
  Expr n = cast(value.element(), extent), one = number_like(value, 1), half = number_like(value, 0.5);
  Expr x = o.align_corners ? (value + one) * half * (n - one) : ((value + one) * n - one) * half;
  if (o.taps == 1) x = call(Intrinsic::round, {x});
  // A position between the last element and beyond has its own weights in cubic interpolation, as PyTorch and onnxruntime have it: there, taps
  // alone are brought inside.
  if (o.padding == Padding::border && o.taps != 4) x = tensor::min(tensor::max(x, number_like(x, 0)), n - one);
  if (o.padding == Padding::reflection) {
    Expr edge = number_like(x, o.align_corners ? 0.0 : 0.5);
    Expr low = -edge, high = n - one + edge;
    x = select(x < low || x > high, reflected(x, low, high), x);
  }
  return x;
}

std::vector<Expr> with_first(const Expr& first, const std::vector<Expr>& rest) {
  std::vector<Expr> all{first};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

// Of one spatial axis of x, for all places [N, out...]: where the taps stand and what they weigh, either by tables [taps, N, out...], which
// all channels read, or computed for each element anew. In tables what stands outside of the tensor weighs 0, and stands for the element
// inside that is nearest.
class AxisTaps {
 public:
  AxisTaps(ComputeContext& c, const GridOptions& o, size_t axis, const Expr& extent, const Shape& places,
           bool is_tabulated)
      : c_(c), o_(o), extent_(extent), component_(static_cast<int64_t>(places.size() - 2 - axis)) {
    // A position that is mirrored as well is an expression that taps would repeat too often.
    if (!is_tabulated && o.padding != Padding::reflection) return;
    const ElementType wide = wide_type(c.input_type(0).element);
    position_ =
        c.builder.compute("position", wide, places, [&](Axes i) { return position_at(to_vector(i)); });
    if (!is_tabulated) return;
    const Shape table = with_first(o.taps, places);
    auto tap_of = [&](Axes i) { return tap_at(o_, load(position_, to_vector(i.subspan(1))), extent_, i[0]); };
    place_ = c.builder.compute("place", kPlace, table, [&](Axes i) { return place_of(tap_of(i), kPlace); });
    if (o.taps == 1 && o.padding != Padding::zeros) return;
    weight_ = c.builder.compute("weight", wide, table, [&](Axes i) {
      const Tap t = tap_of(i);
      const Expr weight = t.weight.defined() ? t.weight : tensor::constant(wide, 1);
      return select(t.inside, weight, number_like(weight, 0));
    });
  }

  // The index along the axis, whether it is inside, and the weight, which may say that instead.
  struct At {
    Expr index, inside, weight;
    bool is_outside_by_weight = false;
  };
  At at(const std::vector<Expr>& place, int tap) const {
    if (!place_.defined()) {
      const Tap t =
          tap_at(o_, position_.defined() ? load(position_, place) : position_at(place), extent_, tap);
      return {place_of(t, ElementType::i64), t.inside, t.weight};
    }
    const std::vector<Expr> at = with_first(tap, place);
    return {cast(ElementType::i64, load(place_, at)), tensor::true_value(),
            weight_.defined() ? load(weight_, at) : Expr(), o_.padding == Padding::zeros};
  }

 private:
  // Along one axis 32 bits are enough, of which a vector has twice as many.
  static constexpr ElementType kPlace = ElementType::i32;

  // Component k of the grid belongs to the k-th axis from the end.
  Expr position_at(std::vector<Expr> place) const {
    place.emplace_back(component_);
    return denormalized(o_, cast(wide_type(c_.input_type(0).element), c_.at(1, std::move(place))), extent_);
  }
  // Whatever the data, nothing outside the tensor is read.
  Expr place_of(const Tap& tap, ElementType element) const {
    const Expr zero = tensor::constant(element, 0);
    return tensor::min(tensor::max(cast(element, tap.position), zero), cast(element, extent_ - 1));
  }

  ComputeContext& c_;
  GridOptions o_;
  Expr extent_;
  int64_t component_;
  Buffer position_, place_, weight_;
};

// The sum over all combinations of the taps of the axes, the last axis fastest.
class Sum {
 public:
  Sum(const std::vector<AxisTaps>& axes, const std::vector<Expr>& place, int taps) {
    for (const AxisTaps& axis : axes) {
      taps_.emplace_back();
      for (int tap = 0; tap < taps; ++tap)
        taps_.back().push_back(axis.at(place, tap));
    }
  }
  // element: that of x at indices of its spatial axes.
  Expr of(const std::function<Expr(const std::vector<Expr>&)>& element) const {
    const Expr total = add(element, {}, tensor::true_value(), {});
    return select(counts(), total, number_like(total, 0));
  }

 private:
  // Whether any tap of tables weighs something: what is beside the tensor as a whole is 0, whatever (inf, NaN) the nearest elements are. Of
  // what is there in part the taps outside stand for those inside, whose values are in the sum anyway.
  Expr counts() const {
    Expr all = tensor::true_value();
    for (const std::vector<AxisTaps::At>& taps : taps_) {
      Expr any = tensor::false_value();
      for (const AxisTaps::At& tap : taps)
        any = any || (tap.is_outside_by_weight ? tap.weight != 0 : tensor::true_value());
      all = all && any;
    }
    return all;
  }
  Expr add(const std::function<Expr(const std::vector<Expr>&)>& element, const std::vector<Expr>& at,
           const Expr& inside, const Expr& weight) const {
    if (at.size() == taps_.size()) {
      const Expr x = element(at), value = select(inside, x, number_like(x, 0));
      return weight.defined() ? value * weight : value;
    }
    Expr total;
    for (const AxisTaps::At& tap : taps_[at.size()]) {
      std::vector<Expr> next = at;
      next.push_back(tap.index);
      const Expr product = !weight.defined()       ? tap.weight
                           : !tap.weight.defined() ? weight
                                                   : weight * tap.weight;
      const Expr value = add(element, next, inside && tap.inside, product);
      total = total.defined() ? total + value : value;
    }
    return total;
  }
  std::vector<std::vector<AxisTaps::At>> taps_;
};

void compute(ComputeContext& c, SampleLayout layout, bool is_tabulated) {
  const TensorType& in = c.input_type(0);
  const TensorType& out = c.output_type(0);
  const GridOptions o = *grid_options(c.attributes());
  const size_t rank = in.shape.size() - 2, channel = layout.channel(in.shape.size());
  Shape places = c.input_type(1).shape;
  places.pop_back();
  std::vector<AxisTaps> axes;
  for (size_t k = 0; k < rank; ++k)
    axes.emplace_back(c, o, k, in.shape[layout.first_spatial() + k], places, is_tabulated);
  c.set_output(0, c.builder.compute("sample", out.element, out.shape, [&](Axes i) {
    std::vector<Expr> place = to_vector(i);
    place.erase(place.begin() + static_cast<std::ptrdiff_t>(channel));
    return cast(out.element, Sum(axes, place, o.taps).of([&](const std::vector<Expr>& at) {
      return widen(c.at(0, layout.joined({i[0]}, i[channel], at)));
    }));
  }));
}

void infer_grid_sample(InferContext& c) { infer(c, kChannelsSecond); }
void infer_laid_out(InferContext& c) { infer(c, kChannelsLast); }
void compute_grid_sample(ComputeContext& c) { compute(c, kChannelsSecond, c.attributes().has(kTabulated)); }
void compute_laid_out(ComputeContext& c) { compute(c, kChannelsLast, true); }

}  // namespace

std::span<const OpDef> grid_sample_ops() {
  static const OpDef ops[] = {
      onnx_op("GridSample", FusionClass::opaque, 2, infer_grid_sample, compute_grid_sample),
      own_op("GridSample", FusionClass::opaque, 2, infer_laid_out, compute_laid_out),
  };
  return ops;
}

}  // namespace mcc::graph
