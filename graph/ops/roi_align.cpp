// RoiAlign: boxes of x, cut into a grid of bins, each the mean or maximum of bilinear samples. mcc.RoiAlign: the same of an x whose channels are
// last, [N, H, W, C], which gives [boxes, height, width, C].
#include <cmath>
#include <functional>

#include "graph/ops/sample.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

using tensor::AxisKind;
using tensor::Stmt;
using tensor::Store;

Expr whole(const Expr& x) { return cast(ElementType::i64, x); }

void infer(InferContext& c, SampleLayout layout) {
  if (!expect_type(c, 0, TypeSet::floating) || !expect_rank(c, 0, 4) || !expect_same_type(c, 0, 1) ||
      !expect_rank(c, 1, 2) || !expect_type(c, 2, TypeSet::index) || !expect_rank(c, 2, 1) ||
      !expect_same_dim(c, 4, c.input(1).shape[1], "numbers of a box") ||
      !expect_same_dim(c, c.input(1).shape[0], c.input(2).shape[0], "number of batch indices")) {
    return;
  }
  const Attributes& a = c.attributes();
  std::string mode = a.text("mode", "avg"),
              coordinates = a.text("coordinate_transformation_mode", "half_pixel");
  int64_t height = a.integer("output_height", 1), width = a.integer("output_width", 1);
  if (!expect(c, mode == "avg" || mode == "max", "mode: expected avg or max, got ", mode) ||
      !expect(c, coordinates == "half_pixel" || coordinates == "output_half_pixel",
              "coordinate_transformation_mode: expected half_pixel or output_half_pixel, got ",
              coordinates) ||
      !expect(c, height >= 1 && width >= 1 && height < (1 << 20) && width < (1 << 20), "an output of ",
              height, " by ", width)) {
    return;
  }
  const int64_t samples = a.integer("sampling_ratio", 0);
  if (!expect(c, samples >= 0 && samples < (1 << 20), "sampling_ratio: expected 0 or more, got ", samples))
    return;
  c.set_output(0, {c.input(0).element, layout.joined({c.input(1).shape[0]},
                                                     c.input(0).shape[layout.channel(4)], {height, width})});
}

// Corner of a box (k: 0 left, 1 top, 2 right, 3 bottom) in pixels.
Expr corner(const ComputeContext& c, const Expr& box, int64_t k) {
  const Attributes& a = c.attributes();
  Expr value = widen(c.at(1, {box, k}));
  bool half_pixel = a.text("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  return value * number_like(value, a.number("spatial_scale", 1)) -
         number_like(value, half_pixel ? 0.5 : 0.0);
}

// Where a box begins along an axis (0: x, 1: y), and how long its bins are there.
struct BoxAxis {
  Expr start, bin_size;
  // To a bin, where no ratio says how many: one for each pixel.
  Expr samples() const { return call(Intrinsic::ceil, {bin_size}); }
};

BoxAxis box_axis(const ComputeContext& c, const Expr& box, int axis, int64_t bins) {
  Expr start = corner(c, box, axis), extent = corner(c, box, axis + 2) - start;
  bool half_pixel = c.attributes().text("coordinate_transformation_mode", "half_pixel") == "half_pixel";
  if (!half_pixel) extent = tensor::max(extent, number_like(extent, 1));
  return {start, extent / number_like(extent, static_cast<double>(bins))};
}

// Of `samples` to a bin.
Expr sample_position(const BoxAxis& box, const Expr& bin, const Expr& sample, const Expr& samples) {
  const Expr& size = box.bin_size;
  const Expr inner = (cast(size.element(), sample) + number_like(size, 0.5)) * size / samples;
  return box.start + cast(size.element(), bin) * size + inner;
}

// Position of sample `sample` of bin `bin`.
Expr sample_position(const ComputeContext& c, const Expr& box, int axis, const Expr& bin, const Expr& sample,
                     int64_t bins, int64_t samples) {
  const BoxAxis along = box_axis(c, box, axis, bins);
  return sample_position(along, bin, sample, number_like(along.start, static_cast<double>(samples)));
}

struct Neighbours {
  Expr low, high, high_weight, valid;
};

Neighbours neighbours(const Expr& position, const Expr& extent) {
  Expr n = cast(position.element(), extent);
  Neighbours result;
  result.valid = position >= number_like(position, -1) && position <= n;
  Expr last = n - number_like(position, 1);
  Expr x = tensor::min(tensor::max(position, number_like(position, 0)), last);
  result.low = tensor::min(tensor::max(whole(x), 0), extent - 1);
  result.high = tensor::min(result.low + 1, extent - 1);
  result.high_weight = x - cast(x.element(), result.low);
  return result;
}

// Mean of the sums of samples * samples, converted.
void set_result(ComputeContext& c, const Buffer& pooled, bool mean, int64_t samples) {
  const TensorType& out = c.output_type(0);
  if (!mean) return c.set_output(0, cast_buffer(c, pooled, out.element));
  c.set_output(0, c.builder.compute("average", out.element, out.shape, [&](Axes i) {
    Expr total = load(pooled, to_vector(i));
    return cast(out.element, total / number_like(total, static_cast<double>(samples * samples)));
  }));
}

struct RoiOptions {
  int64_t samples, height, width;
  bool mean;
  Reducer reducer() const { return mean ? Reducer::sum : Reducer::max; }
};

RoiOptions roi_options(const Attributes& a) {
  return {a.integer("sampling_ratio", 1), a.integer("output_height", 1), a.integer("output_width", 1),
          a.text("mode", "avg") == "avg"};
}

void compute_roi_align(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  const RoiOptions o = roi_options(c.attributes());
  const ElementType wide = wide_type(in.element);
  auto value = [&](Axes i, Axes r) {
    Neighbours y = neighbours(sample_position(c, i[0], 1, i[2], r[0], o.height, o.samples), in.shape[2]);
    Neighbours x = neighbours(sample_position(c, i[0], 0, i[3], r[1], o.width, o.samples), in.shape[3]);
    Expr batch = gather_index(c.at(2, {i[0]}), in.shape[0]);
    Expr one = number_like(x.high_weight, 1);
    auto pixel = [&](const Expr& row, const Expr& column, const Expr& wy, const Expr& wx) {
      return cast(wide, c.at(0, {batch, i[1], row, column})) * (wy * wx);
    };
    Expr corners[] = {pixel(y.low, x.low, one - y.high_weight, one - x.high_weight),
                      pixel(y.low, x.high, one - y.high_weight, x.high_weight),
                      pixel(y.high, x.low, y.high_weight, one - x.high_weight),
                      pixel(y.high, x.high, y.high_weight, x.high_weight)};
    Expr total = corners[0];
    for (int k = 1; k < 4; ++k)
      total = o.mean ? total + corners[k] : tensor::max(total, corners[k]);
    return select(y.valid && x.valid, total, number_like(total, 0));
  };
  set_result(
      c, c.builder.reduce("pool", wide, c.output_type(0).shape, {o.samples, o.samples}, o.reducer(), value),
      o.mean, o.samples);
}

// ---- By tables: of each box and axis, where the taps of its samples stand and what they weigh, [boxes, bins, 2 * samples]: two neighbours
// for each sample, the lower one first. All channels read them ----

struct AxisTable {
  Buffer place, weight;
};

// Axis 0: x, 1: y.
AxisTable tabulate(ComputeContext& c, int axis, const Expr& extent, int64_t bins, int64_t samples) {
  const Shape shape{c.input_type(1).shape[0], bins, 2 * samples};
  auto at = [&](Axes i) {
    return neighbours(sample_position(c, i[0], axis, i[1], tensor::floor_div(i[2], 2), bins, samples),
                      extent);
  };
  auto is_high = [](Axes i) { return tensor::floor_mod(i[2], 2) == 1; };
  AxisTable table;
  table.place = c.builder.compute("place", ElementType::i32, shape, [&](Axes i) {
    const Neighbours n = at(i);
    return cast(ElementType::i32, select(is_high(i), n.high, n.low));
  });
  table.weight = c.builder.compute("weight", wide_type(c.input_type(0).element), shape, [&](Axes i) {
    const Neighbours n = at(i);
    const Expr weight = select(is_high(i), n.high_weight, number_like(n.high_weight, 1) - n.high_weight);
    return select(n.valid, weight, number_like(weight, 0));
  });
  return table;
}

void compute_by_tables(ComputeContext& c, SampleLayout layout) {
  const TensorType& in = c.input_type(0);
  const RoiOptions o = roi_options(c.attributes());
  const size_t first = layout.first_spatial(), channel = layout.channel(4);
  const AxisTable y = tabulate(c, 1, in.shape[first], o.height, o.samples);
  const AxisTable x = tabulate(c, 0, in.shape[first + 1], o.width, o.samples);
  auto value = [&](Axes i, Axes r) {
    const std::vector<Expr> row{i[0], i[first], r[0]}, column{i[0], i[first + 1], r[1]};
    const Expr batch = gather_index(c.at(2, {i[0]}), in.shape[0]);
    const std::vector<Expr> place{cast(ElementType::i64, load(y.place, row)),
                                  cast(ElementType::i64, load(x.place, column))};
    return widen(c.at(0, layout.joined({batch}, i[channel], place))) *
           (load(y.weight, row) * load(x.weight, column));
  };
  const Shape taps{2 * o.samples, 2 * o.samples};
  set_result(
      c, c.builder.reduce("pool", wide_type(in.element), c.output_type(0).shape, taps, o.reducer(), value),
      o.mean, o.samples);
}

// ---- As many samples as a bin has pixels (sampling_ratio = 0): ceil(bin size) along each axis ----
//
// What a pixel weighs in a bin is the sum over all samples beside it, and as that is separable, a table for each axis has the weights of the
// rows (or columns) that a bin's samples touch: [boxes, bins, rows of x], of which the first `count` are for the rows from `first` on. A bin is
// then a sum over as many rows and columns as it covers, and no more are looked at (limit_loops):
//
//   sum over samples of sum over their four pixels w * x  =  sum over rows sum over columns wy[row] * wx[column] * x[row][column]
//
// The largest of w * x (mode max) over all samples is, for a pixel, that with its largest weights, or, where it is negative, with its least.

// Samples that may touch a row: those within one row of it, which are at least half a row apart, where there is more than one, and two more.
constexpr int64_t kNear = 8;
// Beyond, positions and counts in floats are no longer exact; what a pixel weighs there is nothing.
constexpr double kMostSamples = 1 << 30;

// What a bin's samples touch along an axis.
struct Extent {
  BoxAxis box;
  Expr bin;
  Expr samples;       // a number, below 1 where the box has no extent
  Expr sample_count;  // the same as an integer, at least 0
  Expr is_inside;     // none of the samples is outside of x, and there is one
  Expr first, count;  // rows
};

Extent extent_of(const BoxAxis& box, const Expr& bin, const Expr& rows) {
  Extent e;
  e.box = box;
  e.bin = bin;
  e.samples = box.samples();
  const auto number = [&](double v) { return number_like(e.samples, v); };
  e.sample_count =
      tensor::max(whole(tensor::min(tensor::max(e.samples, number(0)), number(kMostSamples))), 0);
  const Expr low = sample_position(e.box, bin, Expr(0), e.samples),
             high = sample_position(e.box, bin, e.sample_count - 1, e.samples);
  const Neighbours at_low = neighbours(low, rows), at_high = neighbours(high, rows);
  const Expr size = cast(low.element(), rows);
  e.is_inside = e.sample_count >= 1 && at_low.valid && at_high.valid;
  const Expr is_touched = e.sample_count >= 1 && high >= number(-1) && low <= size;
  e.first = at_low.low;
  e.count =
      select(is_touched, tensor::min(tensor::max(at_high.high - e.first + 1, 0), rows - e.first), Expr(0));
  return e;
}

// A sample near a row, all in floats: what it weighs there, if it is one of the bin's and the row is one of its two neighbours.
struct Touch {
  Expr is_there, weight;
  Expr is_last;  // it is on the last row, which is both of its neighbours, the upper one with the weight 0
};

Touch touch_of(const Extent& e, const Expr& row, int64_t near, const Expr& rows) {
  const auto number = [&](double v) { return number_like(e.samples, v); };
  const Expr bin = cast(e.samples.element(), e.bin), size = cast(e.samples.element(), rows),
             last = size - number(1);
  // The sample at or after the row before, as a real number, and one more to be sure; all, where there are few.
  const Expr before = ((row - number(1) - e.box.start) / e.box.bin_size - bin) * e.samples - number(1.5);
  const Expr first =
      tensor::max(tensor::min(call(Intrinsic::floor, {before}), e.samples - number(kNear)), number(0));
  const Expr sample = first + number(static_cast<double>(near));
  const Expr position = sample_position(e.box, e.bin, sample, e.samples);
  const Expr x = tensor::min(tensor::max(position, number(0)), last);
  const Expr distance = x - row;
  Touch t;
  t.is_there = sample < e.samples && position >= number(-1) && position <= size && distance >= number(-1) &&
               distance < number(1);
  t.weight = number(1) - tensor::max(distance, number(0) - distance);
  t.is_last = t.is_there && x == last;
  return t;
}

// One step of a reduction, where the condition holds.
Stmt update_where(const Expr& condition, const Buffer& buffer, const std::vector<Expr>& place,
                  Reducer reducer, const Expr& value) {
  const Expr before = load(buffer, place);
  return Store::make(buffer, place, select(condition, combine(reducer, before, value), before));
}

struct RowTable {
  std::function<BoxAxis(const Expr& box)> box;
  Buffer first, count, inside;  // of each bin
  Buffer weight;                // the sum of the samples' weights, or the largest
  Buffer least;                 // of mode max
};

// Axis 0: x, 1: y; of `rows` rows. is_tabulated: where boxes begin, and how long their bins are, is computed once for each, before.
RowTable tabulate_rows(ComputeContext& c, int axis, const Expr& rows, int64_t bins, bool mean,
                       bool is_tabulated) {
  const Expr boxes = c.input_type(1).shape[0];
  const ElementType wide = wide_type(c.input_type(0).element);
  RowTable table;
  table.box = [&c, axis, bins](const Expr& box) { return box_axis(c, box, axis, bins); };
  if (is_tabulated) {
    auto of_boxes = [&](const char* name, auto f) {
      return c.builder.compute(name, wide, {boxes}, [&](Axes i) { return f(table.box(i[0])); });
    };
    const Buffer start = of_boxes("start", [](const BoxAxis& box) { return box.start; }),
                 size = of_boxes("bin_size", [](const BoxAxis& box) { return box.bin_size; });
    table.box = [start, size](const Expr& box) { return BoxAxis{load(start, {box}), load(size, {box})}; };
  }
  auto at = [&](Axes i) { return extent_of(table.box(i[0]), i[1], rows); };
  auto integers = [&](const char* name, auto f) {
    return c.builder.compute(name, ElementType::i32, {boxes, bins},
                             [&](Axes i) { return cast(ElementType::i32, f(at(i))); });
  };
  table.first = integers("first", [](const Extent& e) { return e.first; });
  table.count = integers("count", [](const Extent& e) { return e.count; });
  // Of all samples near a row; nobody reads what is behind the last one.
  auto weights = [&](const char* name, Reducer reducer, auto f) {
    return c.builder.compute(name, wide, {boxes, bins, rows}, [&](Axes i) {
      const Extent e = at(i);
      const Expr row = cast(wide, load(table.first, {i[0], i[1]})) + cast(wide, i[2]);
      Expr all;
      for (int64_t near = 0; near < kNear; ++near) {
        const Expr one = f(touch_of(e, row, near, rows));
        all = all.defined() ? combine(reducer, all, one) : one;
      }
      return all;
    });
  };
  const auto weight_or = [](const Touch& t, double other) {
    return select(t.is_there, t.weight, number_like(t.weight, other));
  };
  if (mean) {
    table.weight = weights("weight", Reducer::sum, [&](const Touch& t) { return weight_or(t, 0); });
    return table;
  }
  table.inside = integers("inside", [](const Extent& e) { return select(e.is_inside, Expr(1), Expr(0)); });
  table.weight = weights("weight", Reducer::max, [&](const Touch& t) { return weight_or(t, 0); });
  table.least = weights("least", Reducer::min, [&](const Touch& t) {
    return select(t.is_last, number_like(t.weight, 0), weight_or(t, 1));
  });
  return table;
}

void compute_by_pixels(ComputeContext& c, SampleLayout layout, bool is_tabulated) {
  const TensorType &in = c.input_type(0), &out = c.output_type(0);
  const RoiOptions o = roi_options(c.attributes());
  const ElementType wide = wide_type(in.element);
  const size_t first = layout.first_spatial(), channel = layout.channel(4);
  const Expr rows = in.shape[first], columns = in.shape[first + 1];
  const RowTable y = tabulate_rows(c, 1, rows, o.height, o.mean, is_tabulated),
                 x = tabulate_rows(c, 0, columns, o.width, o.mean, is_tabulated);
  auto integer = [](const Buffer& table, const Expr& box, const Expr& bin) {
    return cast(ElementType::i64, load(table, {box, bin}));
  };
  Buffer pool = c.builder.new_buffer("pooled", wide, out.shape);
  std::vector<tensor::FuncBuilder::AxisSpec> axes;
  for (size_t d = 0; d < 4; ++d)
    axes.push_back({text("i", d), out.shape[d]});
  axes.push_back({"row", rows, AxisKind::reduce});
  axes.push_back({"column", columns, AxisKind::reduce});
  auto place = [](Axes i) { return std::vector<Expr>{i[0], i[1], i[2], i[3]}; };
  auto step = [&](Axes i) {
    const Expr &box = i[0], &row = i[4], &column = i[5], &by = i[first], &bx = i[first + 1];
    const Expr batch = gather_index(c.at(2, {box}), in.shape[0]);
    const std::vector<Expr> pixel{tensor::min(integer(y.first, box, by) + row, rows - 1),
                                  tensor::min(integer(x.first, box, bx) + column, columns - 1)};
    const Expr value = widen(c.at(0, layout.joined({batch}, i[channel], pixel)));
    auto weight = [&](const Buffer& of_row, const Buffer& of_column) {
      return load(of_row, {box, by, row}) * load(of_column, {box, bx, column});
    };
    Expr weighted = value * weight(y.weight, x.weight);
    if (!o.mean)
      weighted = select(value >= number_like(value, 0), weighted, value * weight(y.least, x.least));
    return update_where(row < integer(y.count, box, by) && column < integer(x.count, box, bx), pool, place(i),
                        o.reducer(), weighted);
  };
  c.builder.block("pool", axes, step,
                  [&](Axes i) { return Store::make(pool, place(i), tensor::identity(o.reducer(), wide)); });
  c.set_output(0, c.builder.compute(o.mean ? "average" : "largest", out.element, out.shape, [&](Axes i) {
    const Expr total = load(pool, to_vector(i));
    if (!o.mean) {
      const Expr is_inside =
          integer(y.inside, i[0], i[first]) + integer(x.inside, i[0], i[first + 1]) == Expr(2);
      return cast(out.element, select(is_inside, total, tensor::max(total, number_like(total, 0))));
    }
    const Expr samples = y.box(i[0]).samples() * x.box(i[0]).samples();
    return cast(out.element, total / tensor::max(samples, number_like(samples, 1)));
  }));
}

bool has_samples_by_data(const Attributes& a) { return a.integer("sampling_ratio", 0) == 0; }

void infer_roi_align(InferContext& c) { infer(c, kChannelsSecond); }
void infer_laid_out(InferContext& c) { infer(c, kChannelsLast); }
void compute_plain(ComputeContext& c) {
  if (has_samples_by_data(c.attributes()))
    return compute_by_pixels(c, kChannelsSecond, c.attributes().has(kTabulated));
  if (c.attributes().has(kTabulated)) return compute_by_tables(c, kChannelsSecond);
  compute_roi_align(c);
}
void compute_laid_out(ComputeContext& c) {
  if (has_samples_by_data(c.attributes())) return compute_by_pixels(c, kChannelsLast, true);
  compute_by_tables(c, kChannelsLast);
}

}  // namespace

std::span<const OpDef> roi_align_ops() {
  static const OpDef ops[] = {
      onnx_op("RoiAlign", FusionClass::opaque, 3, infer_roi_align, compute_plain),
      own_op("RoiAlign", FusionClass::opaque, 3, infer_laid_out, compute_laid_out),
  };
  return ops;
}

}  // namespace mcc::graph
