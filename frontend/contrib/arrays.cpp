// Operators on arrays that ONNX has by now, too, in the forms that onnxruntime had before, and some that it never had.
#include <algorithm>
#include <limits>

#include "frontend/contrib/expansion.h"

namespace mcc::frontend {

namespace {

using onnx::AttributeProto;

// ---- ONNX's operators, with other forms of their operands ----

void trilu(Expansion& e) {
  if (!e.has(1) || e.expect_single({1}))
    e.result(0, e.op("Trilu", {e.in(0), e.in(1)}, e.passed_on({"upper"})));
}

void expand_dims(Expansion& e) {
  if (!e.expect_element(1, {ElementType::i32}) || !e.expect_single({1})) return;
  Operand axis = e.op("Reshape", {e.converted(e.in(1), ElementType::i64), e.ints({1})});
  e.result(0, e.op("Unsqueeze", {e.in(0), axis}));
}

void range(Expansion& e) {
  if (!e.expect_single({0, 1, 2})) return;
  auto number = [&](int i) { return e.rank(i) == 0 ? e.in(i) : e.op("Squeeze", {e.in(i)}); };
  Operand delta = e.has(2) ? number(2) : e.scalar(e.element(0), 1);
  e.result(0, e.op("Range", {number(0), number(1), delta}));
}

// The pads may be a row of a matrix.
void pad(Expansion& e) {
  const std::string mode = e.word("mode");
  const int64_t count = 2 * e.rank(0);
  const bool is_row = e.rank(1) == 2;
  const bool is_known = mode == "constant" || mode == "reflect" || mode == "edge" || mode == "wrap";
  if (!e.expect(is_known, "attribute 'mode': expected constant, reflect, edge or wrap, got ", mode) ||
      !e.expect_fit(1, is_row ? std::vector<int64_t>{1, count} : std::vector<int64_t>{count}) ||
      !e.expect_single({2}))
    return;
  Operand pads = is_row ? e.op("Reshape", {e.in(1), e.ints({count})}) : e.in(1);
  e.result(0, e.op("Pad", {e.in(0), pads, e.in(2)}, e.passed_on({"mode"})));
}

void gather_nd(Expansion& e) { e.result(0, e.op("GatherND", {e.in(0), e.in(1)})); }

// In the order in which they come first.
void unique(Expansion& e) {
  if (!e.expect_rank(0, 1)) return;
  constexpr size_t kItems = 0, kGroups = 2, kCounts = 3;  // among ONNX's results
  const std::vector<Operand> found = e.ops("Unique", {e.in(0)}, {{"sorted", int64_t{0}}}, 4);
  e.result(0, found[kItems]);
  e.result(1, found[kGroups]);
  e.result(2, found[kCounts]);
}

// ONNX has other words for two of the modes.
void grid_sample(Expansion& e) {
  const std::string mode = e.word("mode");
  if (!e.expect_rank(0, 4) ||
      !e.expect(mode == "bilinear" || mode == "nearest" || mode == "bicubic",
                "attribute 'mode': expected bilinear, nearest or bicubic, got ", mode))
    return;
  const Setting kind("mode", mode == "bilinear" ? "linear" : mode == "bicubic" ? "cubic" : "nearest");
  std::vector<Setting> settings = e.passed_on({"align_corners", "padding_mode"});
  settings.push_back(kind);
  e.result(0, e.op("GridSample", {e.in(0), e.in(1)}, settings));
}

void nhwc_max_pool(Expansion& e) {
  const int64_t rank = e.rank(0);
  if (!e.expect_element(0, {ElementType::i8, ElementType::u8}) ||
      !e.expect(rank >= 3, "input 'x': expected at least 3 dimensions, got shape ", shape_text(e.sizes(0))))
    return;
  Operand y = e.op("MaxPool", {e.channels_second(e.in(0), rank)},
                   e.passed_on({"auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides"}));
  e.result(0, e.channels_last(y, rank));
}

// ---- MaxpoolWithMask: rows of windows end where the mask is 0 ----

struct PoolWindow {
  std::vector<int64_t> kernel, strides, begin, end;  // of each spatial axis
};

// As much as windows need to begin at each stride, the odd element at the end, or at the beginning.
bool pad_for_same(Expansion& e, bool is_upper, PoolWindow* w) {
  const std::vector<int64_t>& x = e.shape(0);
  if (std::any_of(x.begin(), x.end(), Expansion::is_open)) return false;
  for (size_t k = 0; k < w->kernel.size(); ++k) {
    const int64_t size = x[k + 2], stride = w->strides[k];
    const int64_t last = (size + stride - 1) / stride - 1;
    const int64_t total = std::max(last * stride + w->kernel[k] - size, int64_t{0});
    w->begin[k] = (is_upper ? total : total + 1) / 2;
    w->end[k] = total - w->begin[k];
  }
  return true;
}

std::optional<PoolWindow> pool_window(Expansion& e) {
  const std::string padding = e.word("auto_pad");
  const auto axes = static_cast<size_t>(e.rank(0) - 2);
  PoolWindow w{e.integers("kernel_shape"), std::vector<int64_t>(axes, 1), std::vector<int64_t>(axes, 0),
               std::vector<int64_t>(axes, 0)};
  if (e.is_given("strides")) w.strides = e.integers("strides");
  const std::vector<int64_t> pads =
      e.is_given("pads") ? e.integers("pads") : std::vector<int64_t>(2 * axes, 0);
  auto all_from = [](const std::vector<int64_t>& numbers, size_t count, int64_t least) {
    return numbers.size() == count &&
           std::all_of(numbers.begin(), numbers.end(), [&](int64_t n) { return n >= least; });
  };
  if (!e.expect(all_from(w.kernel, axes, 1), "attribute 'kernel_shape': expected ", axes, " sizes, got ",
                shape_text(w.kernel)) ||
      !e.expect(all_from(w.strides, axes, 1), "attribute 'strides': expected ", axes, " strides, got ",
                shape_text(w.strides)) ||
      !e.expect(all_from(pads, 2 * axes, 0), "attribute 'pads': expected ", 2 * axes, " numbers, got ",
                shape_text(pads)))
    return std::nullopt;
  if (padding == "SAME_UPPER" || padding == "SAME_LOWER") {
    if (!pad_for_same(e, padding == "SAME_UPPER", &w)) return std::nullopt;
  } else if (padding == "NOTSET") {
    const auto middle = pads.begin() + static_cast<std::ptrdiff_t>(axes);
    w.begin.assign(pads.begin(), middle);
    w.end.assign(middle, pads.end());
  } else if (!e.expect(padding == "VALID",
                       "attribute 'auto_pad': expected NOTSET, SAME_UPPER, SAME_LOWER or VALID, got ",
                       padding)) {
    return std::nullopt;
  }
  for (size_t k = 0; k < axes; ++k) {
    const int64_t size = e.sizes(0)[k + 2];
    if (!e.expect(Expansion::is_open(size) || size + w.begin[k] + w.end[k] >= w.kernel[k],
                  "attribute 'kernel_shape': windows ", shape_text(w.kernel), " do not fit into shape ",
                  shape_text(e.sizes(0))))
      return std::nullopt;
  }
  return w;
}

// Whether places [1, 1, spatial...] leave the row of a window open: the mask is not 0 there. Of an image's, or a solid's, the first place
// always does.
Operand open_places(Expansion& e) {
  const int64_t rank = e.rank(0);
  Operand mask = e.op("Cast", {e.in(1)}, {{"to", int64_t{onnx::TensorProto::BOOL}}});
  if (rank == 3) return mask;
  Operand place;
  for (int64_t axis = 2; axis < rank; ++axis) {
    std::vector<int64_t> shape(static_cast<size_t>(rank), 1);
    shape[static_cast<size_t>(axis)] = -1;
    Operand along = e.reshaped(e.count_up(e.sizes(0)[static_cast<size_t>(axis)], ElementType::i32), shape);
    place = place.empty() ? along : e.op("Add", {place, along});
  }
  return e.op("Or", {mask, e.op("Equal", {place, e.scalar(ElementType::i32, 0)})});
}

// The maximum of each row of a window: of its elements before the first place that ends it.
Operand row_maxima(Expansion& e, const PoolWindow& w, const Operand& lowest) {
  const int64_t rank = e.rank(0), kernel = w.kernel.back(), stride = w.strides.back();
  Operand x = e.in(0), counted = open_places(e);
  if (w.begin.back() + w.end.back() > 0) {
    // What is padded neither counts nor ends a row.
    Operand pads = e.ints({w.begin.back(), w.end.back()}), axis = e.ints({rank - 1});
    x = e.op("Pad", {x, pads, lowest, axis});
    counted = e.op("Pad", {counted, pads, e.tensor(ElementType::boolean, {}, {1}), axis});
  }
  // The element at the same place of every window.
  auto tap = [&](const Operand& of, int64_t k) {
    const int64_t end = k + 1 == kernel ? std::numeric_limits<int64_t>::max() : k + 1 - kernel;
    return e.op("Slice", {of, e.ints({k}), e.ints({end}), e.ints({rank - 1}), e.ints({stride})});
  };
  Operand counts, maximum = lowest;
  for (int64_t k = 0; k < kernel; ++k) {
    counts = counts.empty() ? tap(counted, k) : e.op("And", {counts, tap(counted, k)});
    maximum = e.op("Max", {maximum, e.op("Where", {counts, tap(x, k), lowest})});
  }
  return maximum;
}

void max_pool_with_mask(Expansion& e) {
  const int64_t rank = e.rank(0);
  if (!e.expect_element(0, {ElementType::f32}) || !e.expect_element(1, {ElementType::i32}) ||
      !e.expect(rank >= 3 && rank <= 5, "input 'X': expected 3 to 5 dimensions, got shape ",
                shape_text(e.sizes(0))) ||
      !e.expect_rank(1, rank))
    return;
  // onnxruntime does not say which mask is whose where there are more.
  std::vector<int64_t> mask = e.sizes(0);
  mask[0] = mask[1] = 1;
  if (!e.supports(e.sizes(1)[0] == 1 && e.sizes(1)[1] == 1,
                  "input 'M': only one mask for all channels is supported, got shape ",
                  shape_text(e.sizes(1))) ||
      !e.expect_fit(1, mask))
    return;
  const std::optional<PoolWindow> w = pool_window(e);
  if (!w) return;
  Operand lowest = e.scalar(ElementType::f32, std::numeric_limits<float>::lowest());
  Operand y = row_maxima(e, *w, lowest);
  if (rank > 3) {
    PoolWindow rest = *w;
    rest.kernel.back() = rest.strides.back() = 1;
    rest.begin.back() = rest.end.back() = 0;
    std::vector<int64_t> pads = rest.begin;
    pads.insert(pads.end(), rest.end.begin(), rest.end.end());
    y = e.op("MaxPool", {y}, {{"kernel_shape", rest.kernel}, {"strides", rest.strides}, {"pads", pads}});
  }
  e.result(0, y);
}

// ---- CropAndResize ----

// Where the rows, or the columns, of crops lie along an axis of x, the first and the last on the edges of their boxes: of rank 4.
struct CropPlaces {
  Operand is_inside, low, high,
      part;  // low and high: the neighbours, i64; part: the way from one to the other
};

// begin, end: [crops, 1], as parts of the axis; size, count: of the axis and of the crop, i64[1]; axes: the new ones.
CropPlaces crop_places(Expansion& e, ElementType real, const Operand& begin, const Operand& end,
                       const Operand& size, const Operand& count, const std::vector<int64_t>& axes) {
  Operand zero = e.scalar(real, 0), one = e.scalar(real, 1);
  Operand last = e.op("Sub", {e.converted(size, real), one}),
          steps = e.op("Sub", {e.converted(count, real), one});
  Operand step = e.op("Div", {e.op("Mul", {e.op("Sub", {end, begin}), last}), e.op("Max", {steps, one})});
  Operand number = e.converted(e.count_up(e.size_of(count), ElementType::i64), real);
  Operand place = e.op("Add", {e.op("Mul", {begin, last}), e.op("Mul", {number, step})});
  place = e.op("Where", {e.op("Equal", {number, steps}), e.op("Mul", {end, last}), place});
  // One alone stands in the middle.
  Operand middle = e.op("Mul", {e.op("Mul", {e.scalar(real, 0.5), e.op("Add", {begin, end})}), last});
  place = e.op("Where", {e.op("Equal", {steps, zero}), middle, place});
  place = e.op("Unsqueeze", {place, e.ints(axes)});
  CropPlaces p;
  p.is_inside = e.op("And", {e.op("GreaterOrEqual", {place, zero}), e.op("LessOrEqual", {place, last})});
  place = e.op("Where", {p.is_inside, place, zero});
  Operand low = e.op("Floor", {place});
  p.low = e.converted(low, ElementType::i64);
  p.high = e.converted(e.op("Ceil", {place}), ElementType::i64);
  p.part = e.op("Sub", {place, low});
  return p;
}

void crop_and_resize(Expansion& e) {
  constexpr int kBoxes = 1, kImages = 2, kSize = 3;
  const std::string mode = e.word("mode");
  if (!e.expect(mode == "bilinear" || mode == "nearest",
                "attribute 'mode': expected bilinear or nearest, got ", mode) ||
      !e.expect_element(0, {ElementType::f32, ElementType::f64, ElementType::f16}) ||
      !e.expect_element(kBoxes, {e.element(0)}) || !e.expect_element(kImages, {ElementType::i32}) ||
      !e.expect_element(kSize, {ElementType::i32}) || !e.expect_rank(0, 4) || !e.expect_rank(kImages, 1) ||
      !e.expect_fit(kBoxes, {e.sizes(kImages)[0], 4}) || !e.expect_fit(kSize, {2}))
    return;
  const ElementType real = e.element(0) == ElementType::f64 ? ElementType::f64 : ElementType::f32;
  auto wide = [&](const Operand& x) { return real == e.element(0) ? x : e.converted(x, real); };
  const std::vector<int64_t>& x = e.sizes(0);
  Operand channels = e.ints({x[1]}), rows = e.ints({x[2]}), columns = e.ints({x[3]});
  Operand boxes = wide(e.in(kBoxes)), size = e.converted(e.in(kSize), ElementType::i64);
  auto edge = [&](int64_t k) { return e.slice(boxes, 1, k, k + 1); };
  const CropPlaces down = crop_places(e, real, edge(0), edge(2), rows, e.slice(size, 0, 0, 1), {1, 3});
  const CropPlaces across = crop_places(e, real, edge(1), edge(3), columns, e.slice(size, 0, 1, 2), {1, 2});

  // Positions in all of x.
  Operand image = e.op("Unsqueeze", {e.converted(e.in(kImages), ElementType::i64), e.ints({1, 2, 3})});
  Operand channel = e.op("Unsqueeze", {e.count_up(x[1], ElementType::i64), e.ints({1, 2})});
  Operand plane = e.op("Add", {e.op("Mul", {image, channels}), channel});
  Operand flat = e.op("Reshape", {e.in(0), e.ints({-1})});
  auto element = [&](const Operand& row, const Operand& column) {
    Operand line = e.op("Add", {e.op("Mul", {plane, rows}), row});
    return wide(e.op("Gather", {flat, e.op("Add", {e.op("Mul", {line, columns}), column})}));
  };
  auto between = [&](const Operand& a, const Operand& b, const Operand& part) {
    return e.op("Add", {a, e.op("Mul", {e.op("Sub", {b, a}), part})});
  };
  auto nearest = [&](const CropPlaces& p) {
    return e.op("Where", {e.op("Less", {p.part, e.scalar(real, 0.5)}), p.low, p.high});
  };
  Operand y;
  if (mode == "nearest") {
    y = element(nearest(down), nearest(across));
  } else {
    auto line = [&](const Operand& row) {
      return between(element(row, across.low), element(row, across.high), across.part);
    };
    y = between(line(down.low), line(down.high), down.part);
  }
  Operand outside = e.scalar(real, e.number("extrapolation_value"));
  y = e.op("Where", {e.op("And", {down.is_inside, across.is_inside}), y, outside});
  e.result(0, real == e.element(0) ? y : e.converted(y, e.element(0)));
}

// ---- Products ----

// Integers of 16 bits, whose products fit into 32.
void integer_product_of_words(Expansion& e) {
  for (int i : {0, 1})
    if (!e.expect_element(i, {ElementType::i16, ElementType::u16})) return;
  const bool has_sign = e.element(0) == ElementType::i16 || e.element(1) == ElementType::i16;
  const ElementType wide = has_sign ? ElementType::i32 : ElementType::u32;
  e.result(0, e.op("MatMul", {e.converted(e.in(0), wide), e.converted(e.in(1), wide)}));
}

// Distances of all rows of a and b: |x - y|^2 = |x|^2 + |y|^2 - 2 x y, of rows whose common part, which would only cancel out, is
// subtracted before: the mean of b's.
void distances(Expansion& e) {
  const std::string metric = e.word("metric");
  if (!e.supports(metric == "euclidean" || metric == "sqeuclidean", "attribute 'metric': ", metric,
                  " is not supported") ||
      !e.expect_element(0, {ElementType::f32, ElementType::f64}) || !e.expect_element(1, {e.element(0)}) ||
      !e.expect_rank(0, 2) || !e.expect_rank(1, 2) || !e.expect_fit(1, {e.sizes(1)[0], e.sizes(0)[1]}))
    return;
  const Setting keeps("keepdims", int64_t{1});
  Operand common = e.op("ReduceMean", {e.in(1), e.ints({0})}, {keeps});
  Operand a = e.op("Sub", {e.in(0), common}), b = e.op("Sub", {e.in(1), common});
  auto squares = [&](const Operand& x) { return e.op("ReduceSumSquare", {x, e.ints({1})}, {keeps}); };
  Operand products = e.op("MatMul", {e.op("Mul", {a, e.scalar(e.element(0), -2)}), e.transposed(b, {1, 0})});
  Operand sum = e.op("Add", {e.op("Add", {products, squares(a)}), e.transposed(squares(b), {1, 0})});
  Operand square = e.op("Max", {sum, e.scalar(e.element(0), 0)});
  e.result(0, metric == "euclidean" ? e.op("Sqrt", {square}) : square);
}

void inverse(Expansion& e) {
  if (e.expect_element(0, {ElementType::f32, ElementType::f64, ElementType::f16}) &&
      e.expect(e.rank(0) >= 2, "input 'X': expected at least 2 dimensions, got shape ",
               shape_text(e.sizes(0))))
    e.result(0, e.own("Inverse", {e.in(0)}));
}

}  // namespace

std::span<const ContribOp> array_ops() {
  static const std::vector<ContribOp> ops{
      {"Trilu", "X k?", "Y", {{"upper", 1}}, trilu},
      {"ExpandDims", "X axis", "Y", {}, expand_dims},
      {"Range", "start limit delta?", "Y", {}, range},
      {"Pad", "data pads value?", "output", {{"mode", "constant"}}, pad},
      {"GatherND", "data indices", "output", {}, gather_nd},
      {"Unique", "x", "y idx counts", {}, unique},
      {"GridSample",
       "X Grid",
       "Y",
       {{"align_corners", 0}, {"mode", "bilinear"}, {"padding_mode", "zeros"}},
       grid_sample},
      {"NhwcMaxPool",
       "x",
       "y",
       {{"auto_pad", "NOTSET"},
        {"ceil_mode", 0},
        required("kernel_shape", AttributeProto::INTS),
        optional("dilations", AttributeProto::INTS),
        optional("pads", AttributeProto::INTS),
        optional("strides", AttributeProto::INTS)},
       nhwc_max_pool},
      {"MaxpoolWithMask",
       "X M",
       "Y",
       {{"auto_pad", "NOTSET"},
        required("kernel_shape", AttributeProto::INTS),
        optional("pads", AttributeProto::INTS),
        {"storage_order", 0},
        optional("strides", AttributeProto::INTS)},
       max_pool_with_mask},
      {"CropAndResize",
       "X rois batch_indices crop_size",
       "Y",
       {{"extrapolation_value", 0.0f}, {"mode", "bilinear"}},
       crop_and_resize},
      {"MatMulInteger16", "A B", "Y", {}, integer_product_of_words},
      {"CDist", "A B", "C", {{"metric", "sqeuclidean"}}, distances},
      {"Inverse", "X", "Y", {}, inverse},
  };
  return ops;
}

}  // namespace mcc::frontend
