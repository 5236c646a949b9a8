// Resize (and Upsample): nearest, linear and cubic interpolation, one axis after the other.
//
// Along an axis, output position o stands at the real input position x(o). Interpolation takes the taps around it: a
// small table of first taps and weights is computed for each output position, so that the image pass itself is a
// gather with weights. Tables depend on no data: inputs from kFirstTable on have them where passes/tabulate_resizes.cpp has made
// operators of their own of them (mcc.ResizeTable), which are folded. Those of open axes are computed in the kernel.
#include <algorithm>
#include <cmath>

#include "graph/ops/common.h"
#include "graph/ops/resize.h"
#include "tensor/simplify.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

enum class Mode { nearest, linear, cubic };

struct Options {
  Mode mode = Mode::nearest;
  std::string coordinates, nearest;
  double cubic_a = -0.75, outside_value = 0;
  bool exclude_outside = false, antialias = false;
};

// One axis that is resized.
struct AxisPlan {
  size_t axis = 0;
  Expr in = 0, out = 0;
  std::optional<double> scale;  // out / in, or as given; none where it follows from open extents
  double roi_start = 0, roi_end = 1;
  int table = 0;  // the input that has its table, where there is one
};

bool is_known(const AxisPlan& p) { return static_dim(p.in) && static_dim(p.out); }

struct Plan {
  Options options;
  std::vector<AxisPlan> axes;
};

// ---- Reading the node ----

// Inputs: x, roi, scales, sizes. Upsample: x, scales.
struct Positions {
  int roi, scales, sizes;
};

Positions positions(std::string_view op) {
  return op == "Upsample" ? Positions{-1, 1, -1} : Positions{1, 2, 3};
}

template <class Context>
bool is_given(const Context& c, int i) {
  if (i < 0 || !c.has_input(i)) return false;
  const Constant* value = c.constant(i);
  return !value || value->count() > 0;
}

std::optional<Options> read_options(const Attributes& a, bool is_upsample, std::string* error) {
  Options o;
  std::string mode = a.text("mode", "nearest");
  if (mode == "linear" || mode == "bilinear" || mode == "trilinear") {
    o.mode = Mode::linear;
  } else if (mode == "cubic") {
    o.mode = Mode::cubic;
  } else if (mode != "nearest") {
    *error = text("mode: expected nearest, linear or cubic, got ", mode);
  }
  o.coordinates = is_upsample ? "asymmetric" : a.text("coordinate_transformation_mode", "half_pixel");
  static constexpr std::string_view known[] = {
      "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel",  "align_corners",
      "asymmetric", "tf_crop_and_resize",   "tf_half_pixel_for_nn"};
  if (std::find(std::begin(known), std::end(known), o.coordinates) == std::end(known)) {
    *error = text("coordinate_transformation_mode: ", o.coordinates, " is not known");
  }
  o.nearest = is_upsample ? "floor" : a.text("nearest_mode", "round_prefer_floor");
  if (o.nearest != "round_prefer_floor" && o.nearest != "round_prefer_ceil" && o.nearest != "floor" &&
      o.nearest != "ceil") {
    *error = text("nearest_mode: ", o.nearest, " is not known");
  }
  o.cubic_a = a.number("cubic_coeff_a", -0.75);
  o.outside_value = a.number("extrapolation_value", 0);
  o.exclude_outside = a.integer("exclude_outside", 0) != 0;
  o.antialias = a.integer("antialias", 0) != 0 && o.mode != Mode::nearest;
  if (!error->empty()) return std::nullopt;
  return o;
}

// Of a size that no tensor has, one that is too large as well.
int64_t whole_size(double size) { return size < 0x1p62 ? static_cast<int64_t>(size) : int64_t{1} << 62; }

// Sizes for keep_aspect_ratio_policy: one scale for all axes, such that no size is exceeded (or undercut).
void keep_aspect_ratio(const std::string& policy, std::vector<AxisPlan>& axes) {
  if (policy == "stretch" || axes.empty()) return;
  double scale = *axes[0].scale;
  for (const AxisPlan& p : axes) {
    scale = policy == "not_larger" ? std::min(scale, *p.scale) : std::max(scale, *p.scale);
  }
  for (AxisPlan& p : axes) {
    p.scale = scale;
    p.out = whole_size(std::floor(scale * static_cast<double>(*static_dim(p.in)) + 0.5));
  }
}

// What is valid, but not carried out.
constexpr const char* kOpenExtent = "the extent of an axis that is resized in this way needs a value known at compile time";

// ---- Open axes ----

struct Ratio {
  int64_t above = 0, below = 1;
};

// The fraction that was meant by a scale, which is an f32: one of small numbers that rounds to it; else the scale itself.
std::optional<Ratio> ratio_of(double scale) {
  constexpr int64_t kLargestBelow = 64, kMostBits = 40;
  for (int64_t below = 1; below <= kLargestBelow; ++below) {
    const double above = std::round(scale * static_cast<double>(below));
    if (static_cast<float>(above / static_cast<double>(below)) == static_cast<float>(scale) && above > 0)
      return Ratio{static_cast<int64_t>(above), below};
  }
  for (int bits = 0; bits <= kMostBits; ++bits) {
    const double above = std::ldexp(scale, bits);
    if (above == std::floor(above)) return Ratio{static_cast<int64_t>(above), int64_t{1} << bits};
  }
  return std::nullopt;
}

// floor(extent * scale)
std::optional<Expr> open_extent(const Expr& extent, double scale) {
  const std::optional<Ratio> ratio = ratio_of(scale);
  if (!ratio) return std::nullopt;
  return tensor::floor_div(extent * ratio->above, ratio->below);
}

int64_t known_extent(int64_t extent, double scale) {
  const std::optional<Ratio> ratio = ratio_of(scale);
  int64_t product = 0;
  if (ratio && !__builtin_mul_overflow(extent, ratio->above, &product)) return product / ratio->below;
  return whole_size(std::floor(static_cast<double>(extent) * scale));
}

// What open extents are multiplied by, where that can be seen to be a small whole number.
std::optional<double> whole_scale(const Expr& in, const Expr& out) {
  constexpr int64_t kLargest = 8;
  for (int64_t k = 2; k <= kLargest; ++k)
    if (is_int(tensor::simplify(out - in * k), 0)) return static_cast<double>(k);
  return std::nullopt;
}

// Whether positions along an axis can be computed from extents that only a run knows. Others change the number of taps, or one axis by
// those of another.
bool takes_open_axes(const Attributes& a, const Options& o, bool by_sizes) {
  const bool stretches = by_sizes && (o.antialias || a.text("keep_aspect_ratio_policy", "stretch") != "stretch");
  return !stretches && o.coordinates != "tf_crop_and_resize";
}

// Sizes that follow from symbolic dimensions; empty where they are no such.
Shape open_sizes(const InferContext& c, int i) { return c.elements(i).value_or(Shape{}); }
Shape open_sizes(const ComputeContext& c, int i) { return c.elements(i); }

// What the node asks for; the error is empty on success.
template <class Context>
std::optional<Plan> make_plan(const Context& c, const TensorType& x, std::string_view op,
                              std::string* error) {
  auto options = read_options(c.attributes(), op == "Upsample", error);
  if (!options) return std::nullopt;
  Plan plan{*options, {}};
  Positions at = positions(op);
  int rank = static_cast<int>(x.shape.size());
  std::vector<int64_t> axes = c.attributes().integers("axes");
  if (axes.empty()) {
    for (int k = 0; k < rank; ++k)
      axes.push_back(k);
  }
  bool by_sizes = is_given(c, at.sizes);
  std::vector<double> scales = c.attributes().numbers("scales");
  const Constant* values = c.constant(by_sizes ? at.sizes : at.scales);
  if (values) {
    scales.clear();
    for (int64_t k = 0; k < values->count(); ++k)
      scales.push_back(values->number_at(k));
  }
  Shape sizes;  // where some are symbolic
  if (by_sizes && !values) {
    sizes = open_sizes(c, at.sizes);
    scales.assign(sizes.size(), 0);
    for (size_t k = 0; k < sizes.size(); ++k)
      scales[k] = static_cast<double>(static_dim(sizes[k]).value_or(0));
  }
  if (scales.size() != axes.size()) {
    *error = text(by_sizes ? "sizes" : "scales", ": expected ", axes.size(), " numbers, got ", scales.size());
    return std::nullopt;
  }
  const Constant* roi = is_given(c, at.roi) ? c.constant(at.roi) : nullptr;
  for (size_t k = 0; k < axes.size(); ++k) {
    if (axes[k] < -rank || axes[k] >= rank) {
      *error = text("axis ", axes[k], " is out of range for rank ", rank);
      return std::nullopt;
    }
    AxisPlan p;
    p.axis = static_cast<size_t>(normal_axis(axes[k], rank));
    p.in = x.shape[p.axis];
    auto extent = static_dim(p.in);
    if (!sizes.empty() && tensor::structurally_equal(sizes[k], p.in)) continue;
    const bool is_open_size = !sizes.empty() && !static_dim(sizes[k]);
    if (!is_open_size && (!(scales[k] > 0) || scales[k] > 1e9)) {
      *error = text(by_sizes ? "a size" : "a scale", " of ", scales[k]);
      return std::nullopt;
    }
    if (!extent || is_open_size) {
      if (!by_sizes && scales[k] == 1.0) continue;
      const std::optional<Expr> out = !by_sizes ? open_extent(p.in, scales[k]) : is_open_size ? sizes[k] : Expr(whole_size(scales[k]));
      if (!out || !takes_open_axes(c.attributes(), *options, by_sizes)) {
        *error = kOpenExtent;
        return std::nullopt;
      }
      p.out = *out;
      p.scale = by_sizes ? whole_scale(p.in, p.out) : scales[k];
      plan.axes.push_back(p);
      continue;
    }
    const double in = static_cast<double>(*extent);
    p.out = by_sizes ? static_cast<int64_t>(scales[k]) : known_extent(*extent, scales[k]);
    p.scale = by_sizes ? static_cast<double>(*static_dim(p.out)) / in : scales[k];
    auto n = static_cast<int64_t>(axes.size());
    if (roi && roi->count() == 2 * n && options->coordinates == "tf_crop_and_resize") {
      p.roi_start = roi->number_at(static_cast<int64_t>(k));
      p.roi_end = roi->number_at(n + static_cast<int64_t>(k));
    }
    plan.axes.push_back(p);
  }
  if (by_sizes) keep_aspect_ratio(c.attributes().text("keep_aspect_ratio_policy", "stretch"), plan.axes);
  bool crops = options->coordinates == "tf_crop_and_resize";
  std::erase_if(plan.axes, [&](const AxisPlan& p) {
    return tensor::structurally_equal(p.in, p.out) && p.scale == 1.0 && !crops;
  });
  for (size_t k = 0; k < plan.axes.size(); ++k)
    plan.axes[k].table = kFirstTable + 2 * static_cast<int>(k);
  return plan;
}

template <bool is_upsample>
void infer_resize(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::number)) return;
  std::string_view op = is_upsample ? "Upsample" : "Resize";
  Positions at = positions(op);
  for (int i : {at.roi, at.scales, at.sizes}) {
    bool matters =
        i != at.roi || c.attributes().text("coordinate_transformation_mode", "") == "tf_crop_and_resize";
    if (matters && is_given(c, i) && !c.constant(i) && (i != at.sizes || !c.elements(i))) {
      return c.unsupported(text("input ", i, " needs a value known at compile time"));
    }
  }
  std::string error;
  auto plan = make_plan(c, c.input(0), op, &error);
  if (error == kOpenExtent) return c.unsupported(error);
  if (!expect(c, plan.has_value(), error)) return;
  Shape out = c.input(0).shape;
  for (const AxisPlan& p : plan->axes) {
    if (!expect(c, !is_int(p.in, 0) || is_int(p.out, 0), "an empty dimension cannot be resized")) return;
    out[p.axis] = p.out;
  }
  c.set_output(0, {c.input(0).element, out});
}

// ---- Coordinates ----

Expr real(double v) { return tensor::constant(ElementType::f64, v); }

Expr real(const Expr& extent) {
  const std::optional<int64_t> known = static_dim(extent);
  return known ? real(static_cast<double>(*known)) : cast(ElementType::f64, extent);
}

Expr scale_of(const AxisPlan& p) { return p.scale ? real(*p.scale) : real(p.out) / real(p.in); }

// x(o) as f64, where there are several positions or the only one is no special case.
Expr coordinate_of_many(const Options& o, const AxisPlan& p, const Expr& i) {
  // The extent before rounding down to whole elements.
  Expr exact_out = p.scale ? real(*p.scale) * real(p.in) : real(p.out);
  if (o.coordinates == "asymmetric") return i / scale_of(p);
  if (o.coordinates == "align_corners") return i * real(p.in - 1) / (exact_out - real(1.0));
  if (o.coordinates == "tf_half_pixel_for_nn") return (i + real(0.5)) / scale_of(p);
  Expr centered = (i + real(0.5)) / scale_of(p) - real(0.5);
  if (o.coordinates != "half_pixel_symmetric") return centered;
  return centered + real(p.in) / real(2.0) * (real(1.0) - real(p.out) / exact_out);
}

// The same of extents that are known, whose arithmetic is done here.
Expr known_coordinate(const Options& o, const AxisPlan& p, const Expr& i) {
  const double in = static_cast<double>(*static_dim(p.in)), out = static_cast<double>(*static_dim(p.out)), scale = *p.scale;
  const double exact_out = scale * in;
  if (o.coordinates == "asymmetric") return i / real(scale);
  if (o.coordinates == "align_corners") {
    if (out == 1) return real(0.0);
    return i * real(in - 1) / real(exact_out == out ? out - 1 : exact_out - 1);
  }
  if (o.coordinates == "tf_half_pixel_for_nn") return (i + real(0.5)) / real(scale);
  if (o.coordinates == "tf_crop_and_resize") {
    if (out == 1) return real(0.5 * (p.roi_start + p.roi_end) * (in - 1));
    return real(p.roi_start * (in - 1)) + i * real((p.roi_end - p.roi_start) * (in - 1) / (out - 1));
  }
  if (o.coordinates == "pytorch_half_pixel" && out == 1) return real(0.0);
  Expr centered = (i + real(0.5)) / real(scale) - real(0.5);
  if (o.coordinates == "half_pixel_symmetric") {
    double center = in / 2, adjustment = out / exact_out;
    return centered + real(center * (1 - adjustment));
  }
  return centered;
}

// x(o) as f64.
Expr coordinate(const Options& o, const AxisPlan& p, const Expr& position) {
  Expr i = cast(ElementType::f64, position);
  if (is_known(p)) return known_coordinate(o, p, i);
  Expr x = coordinate_of_many(o, p, i);
  const bool one_is_special = o.coordinates == "align_corners" || o.coordinates == "pytorch_half_pixel";
  return one_is_special ? select(p.out == 1, real(0.0), x) : x;
}

Expr whole(Intrinsic rounding, const Expr& x) { return cast(ElementType::i64, call(rounding, {x})); }

Expr nearest_position(const std::string& mode, const Expr& x) {
  if (mode == "floor") return whole(Intrinsic::floor, x);
  if (mode == "ceil") return whole(Intrinsic::ceil, x);
  if (mode == "round_prefer_ceil") return whole(Intrinsic::floor, x + real(0.5));
  return whole(Intrinsic::ceil, x - real(0.5));
}

Expr clamped(const Expr& i, const Expr& extent) { return tensor::min(tensor::max(i, 0), extent - 1); }

// ---- Weights ----

// Keys' cubic at distance d >= 0.
Expr cubic_weight(const Expr& d, double a) {
  Expr near = ((real(a + 2) * d - real(a + 3)) * d) * d + real(1);
  Expr far = ((real(a) * d - real(5 * a)) * d + real(8 * a)) * d - real(4 * a);
  return select(d <= real(1), near, select(d < real(2), far, real(0)));
}

Expr kernel(const Options& o, const Expr& distance) {
  Expr d = call(Intrinsic::abs, {distance});
  if (o.mode == Mode::cubic) return cubic_weight(d, o.cubic_a);
  return tensor::max(real(1) - d, 0);
}

// Antialiasing stretches the kernel by the scale of a reduction, so that every input element counts.
struct Taps {
  Taps(const Options& o, const AxisPlan& p)
      : stretch(o.antialias ? std::min(*p.scale, 1.0) : 1.0), support((o.mode == Mode::cubic ? 2.0 : 1.0) / stretch) {
    count = 2 * whole_size(std::min(std::ceil(support), 0x1p40)) + (stretch != 1.0 ? 1 : 0);
  }
  double stretch, support;
  int64_t count;
};

// [out]: the position of the first tap.
Buffer make_first(tensor::FuncBuilder& builder, const Options& o, const AxisPlan& p) {
  const Taps taps(o, p);
  return builder.compute("first", ElementType::i64, {p.out}, [&](Axes i) {
    Expr x = coordinate(o, p, i[0]);
    if (taps.stretch != 1.0) return whole(Intrinsic::floor, x - real(taps.support)) + 1;
    return whole(Intrinsic::floor, x) - (taps.count / 2 - 1);
  });
}

// [out, taps]
Buffer make_weight(tensor::FuncBuilder& builder, const Options& o, const AxisPlan& p, const Buffer& first, ElementType wide) {
  const Taps taps(o, p);
  auto raw = [&](const Expr& position, const Expr& tap) {
    Expr at = load(first, {position}) + tap;
    Expr distance = cast(ElementType::f64, at) - coordinate(o, p, position);
    Expr w = kernel(o, distance * real(taps.stretch));
    if (!o.exclude_outside && !o.antialias) return w;
    return o.exclude_outside ? select(at >= 0 && at < p.in, w, real(0)) : w;
  };
  if (!o.exclude_outside && !o.antialias) {
    return builder.compute("weight", wide, {p.out, taps.count}, [&](Axes i) { return cast(wide, raw(i[0], i[1])); });
  }
  // Weights that do not add up to 1 by themselves.
  Buffer sum = builder.reduce("weight_sum", ElementType::f64, {p.out}, {taps.count}, Reducer::sum,
                              [&](Axes i, Axes r) { return raw(i[0], r[0]); });
  return builder.compute("weight", wide, {p.out, taps.count},
                         [&](Axes i) { return cast(wide, raw(i[0], i[1]) / load(sum, {i[0]})); });
}

// [out]: where the nearest element is.
Buffer make_position(tensor::FuncBuilder& builder, const Options& o, const AxisPlan& p) {
  return builder.compute("position", ElementType::i64, {p.out}, [&](Axes i) {
    return clamped(nearest_position(o.nearest, coordinate(o, p, i[0])), p.in);
  });
}

// Elements of an input that is a table, or of a buffer.
using Table = std::function<Expr(std::vector<Expr>)>;

Table table_of(const ComputeContext& c, int input) {
  return [&c, input](std::vector<Expr> at) { return c.at(input, std::move(at)); };
}
Table table_of(const Buffer& made) {
  return [made](std::vector<Expr> at) { return load(made, std::move(at)); };
}

// ---- Passes ----

// For whole-number enlargement that repeats each element: x(o) rounds to o / factor.
std::optional<int64_t> repetition(const Options& o, const AxisPlan& p) {
  const double factor = p.scale.value_or(0);
  if (factor < 1 || factor != std::floor(factor)) return std::nullopt;
  // Of open extents a whole number is exact.
  if (is_known(p) && *static_dim(p.out) != *static_dim(p.in) * static_cast<int64_t>(factor)) return std::nullopt;
  bool half = o.coordinates == "half_pixel" || o.coordinates == "half_pixel_symmetric" ||
              (o.coordinates == "pytorch_half_pixel" && !is_int(p.out, 1));
  bool rounds = o.nearest == "round_prefer_floor" || o.nearest == "round_prefer_ceil";
  if ((o.coordinates == "asymmetric" && o.nearest == "floor") || (half && rounds))
    return static_cast<int64_t>(factor);
  return std::nullopt;
}

using Source = std::function<Expr(const std::vector<Expr>&)>;

Buffer nearest_pass(ComputeContext& c, const Options& o, const AxisPlan& p, const Source& x,
                    ElementType element, const Shape& shape) {
  if (auto factor = repetition(o, p)) {
    return c.builder.compute("resize", element, shape, [&](Axes i) {
      std::vector<Expr> at = to_vector(i);
      at[p.axis] = tensor::floor_div(at[p.axis], *factor);
      return x(at);
    });
  }
  const Table table = c.has_input(p.table) ? table_of(c, p.table) : table_of(make_position(c.builder, o, p));
  return c.builder.compute("resize", element, shape, [&](Axes i) {
    std::vector<Expr> at = to_vector(i);
    at[p.axis] = gather_index(table({i[p.axis]}), p.in);
    return x(at);
  });
}

Buffer weighted_pass(ComputeContext& c, const Options& o, const AxisPlan& p, const Source& x,
                     ElementType wide, const Shape& shape) {
  Table first, weight;
  if (c.has_input(p.table)) {
    first = table_of(c, p.table);
    weight = table_of(c, p.table + 1);
  } else {
    const Buffer made = make_first(c.builder, o, p);
    first = table_of(made);
    weight = table_of(make_weight(c.builder, o, p, made, wide));
  }
  const int64_t taps = Taps(o, p).count;
  auto term = [&](Axes i, const Expr& tap) {
    std::vector<Expr> at = to_vector(i);
    at[p.axis] = clamped(first({i[p.axis]}) + tap, p.in);
    return cast(wide, x(at)) * weight({i[p.axis], tap});
  };
  constexpr int64_t kExplicitTaps = 4;
  if (taps > kExplicitTaps) {
    return c.builder.reduce("resize", wide, shape, {taps}, Reducer::sum,
                            [&](Axes i, Axes r) { return term(i, r[0]); });
  }
  return c.builder.compute("resize", wide, shape, [&](Axes i) {
    Expr sum = term(i, 0);
    for (int64_t k = 1; k < taps; ++k)
      sum = sum + term(i, k);
    return sum;
  });
}

// Where tf_crop_and_resize looks outside the input, the result is a constant.
Expr is_outside(const Plan& plan, Axes i) {
  Expr outside = tensor::false_value();
  for (const AxisPlan& p : plan.axes) {
    Expr x = coordinate(plan.options, p, i[p.axis]);
    outside = outside || x < real(0) || x > real(p.in - 1);
  }
  return outside;
}

ElementType weight_type(ElementType element) { return is_float(element) ? wide_type(element) : ElementType::f32; }

void compute_resize(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  const TensorType& out = c.output_type(0);
  std::string error;
  Plan plan = *make_plan(c, in, c.node().op->name, &error);
  for (AxisPlan& p : plan.axes)
    p.out = out.shape[p.axis];  // may have a name of its own
  bool nearest = plan.options.mode == Mode::nearest;
  ElementType wide = nearest ? in.element : weight_type(in.element);
  Source x = [&](const std::vector<Expr>& at) { return c.at(0, at); };
  Shape shape = in.shape;
  Buffer result;
  // The axis that shrinks most goes first: the later passes have less to do.
  std::stable_sort(plan.axes.begin(), plan.axes.end(),
                   [](const AxisPlan& a, const AxisPlan& b) { return a.scale.value_or(1) < b.scale.value_or(1); });
  for (const AxisPlan& p : plan.axes) {
    shape[p.axis] = p.out;
    result = nearest ? nearest_pass(c, plan.options, p, x, wide, shape)
                     : weighted_pass(c, plan.options, p, x, wide, shape);
    x = [result](const std::vector<Expr>& at) { return load(result, at); };
  }
  bool crops = plan.options.coordinates == "tf_crop_and_resize";
  if (result.defined() && !crops && result.element() == out.element) return c.set_output(0, result);
  c.set_output(0, c.builder.compute("resized", out.element, out.shape, [&](Axes i) {
    Expr value = x(to_vector(i));
    // Integers round to the nearest, away from what a truncating cast would give.
    if (is_float(value.element()) && is_int(out.element)) value = call(Intrinsic::round, {value});
    value = cast(out.element, value);
    if (!crops) return value;
    Expr filler = cast(out.element, tensor::constant(ElementType::f32, plan.options.outside_value));
    return select(is_outside(plan, i), filler, value);
  }));
}

template <bool is_upsample>
OpDef resizing(std::string_view name) {
  OpDef op = onnx_op(name, FusionClass::opaque, 1, infer_resize<is_upsample>, compute_resize);
  op.constant_inputs = 0b1110;
  op.layout = LayoutRole::resize;
  return op;
}

// ---- mcc.ResizeTable: the table of an axis. No inputs. Attributes: what of those of the node matters; in, out, scale and roi of the axis;
// is_upsample; type, of the weights. Results: first and weight, or the position ----

constexpr const char* kOfTables[] = {"mode",        "coordinate_transformation_mode", "nearest_mode",
                                     "cubic_coeff_a", "exclude_outside",                "antialias"};

Attributes table_attributes(const Attributes& of_node, const AxisPlan& p, bool is_upsample, ElementType wide) {
  Attributes a;
  for (const char* name : kOfTables) {
    if (const Attribute* value = of_node.find(name)) a.set(name, *value);
  }
  a.set("in", *static_dim(p.in));
  a.set("out", *static_dim(p.out));
  a.set("scale", *p.scale);
  a.set("roi", std::vector<double>{p.roi_start, p.roi_end});
  a.set("is_upsample", int64_t{is_upsample});
  a.set("type", std::string(to_text(wide)));
  return a;
}

Plan plan_of_table(const Attributes& a) {
  std::string error;
  AxisPlan p{0, a.integer("in", 0), a.integer("out", 0), a.number("scale", 1)};
  p.roi_start = a.numbers("roi")[0];
  p.roi_end = a.numbers("roi")[1];
  return {*read_options(a, a.integer("is_upsample", 0) != 0, &error), {p}};
}

void infer_table(InferContext& c) {
  const Plan plan = plan_of_table(c.attributes());
  const AxisPlan& p = plan.axes[0];
  c.set_output(0, {ElementType::i64, {p.out}});
  if (plan.options.mode == Mode::nearest) return;
  c.set_output(1, {*parse_element_type(c.attributes().text("type", "")), {p.out, Taps(plan.options, p).count}});
}

void compute_table(ComputeContext& c) {
  const Plan plan = plan_of_table(c.attributes());
  const AxisPlan& p = plan.axes[0];
  if (plan.options.mode == Mode::nearest) return c.set_output(0, make_position(c.builder, plan.options, p));
  const Buffer first = make_first(c.builder, plan.options, p);
  c.set_output(0, first);
  c.set_output(1, make_weight(c.builder, plan.options, p, first, c.output_type(1).element));
}

}  // namespace

std::vector<ResizeTable> tables_of_resize(const Graph& graph, const Node& node) {
  const TensorType& x = graph.value(node.inputs[0]).type;
  std::string error;
  const std::optional<Plan> plan = make_plan(InferContext(graph, node), x, node.op->name, &error);
  std::vector<ResizeTable> tables;
  if (!plan) return tables;
  const bool is_nearest = plan->options.mode == Mode::nearest;
  for (const AxisPlan& p : plan->axes) {
    if (!is_known(p) || (is_nearest && repetition(plan->options, p))) continue;
    tables.push_back({p.table, is_nearest ? 1 : 2,
                      table_attributes(node.attributes, p, node.op->name == "Upsample", weight_type(x.element))});
  }
  return tables;
}

std::span<const OpDef> resize_ops() {
  static const OpDef ops[] = {resizing<false>("Resize"), resizing<true>("Upsample"),
                              own_op("ResizeTable", FusionClass::opaque, 0, infer_table, compute_table)};
  return ops;
}

}  // namespace mcc::graph
