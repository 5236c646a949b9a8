// Softmax, LogSoftmax and Hardmax along one axis.
#include <limits>

#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

void infer_softmax(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::floating)) return;
  if (checked_axis(c, c.attributes().integer("axis", -1), c.rank(0))) c.set_output(0, c.input(0));
}

// The axis, and the tensor without it.
struct Line {
  explicit Line(const ComputeContext& c) : in(c.input_type(0)) {
    axis = static_cast<size_t>(
        normal_axis(c.attributes().integer("axis", -1), static_cast<int>(in.shape.size())));
    outer = in.shape;
    outer.erase(outer.begin() + static_cast<std::ptrdiff_t>(axis));
  }
  std::vector<Expr> whole(Axes out, const Expr& r) const {
    std::vector<Expr> at = to_vector(out);
    at.insert(at.begin() + static_cast<std::ptrdiff_t>(axis), r);
    return at;
  }
  std::vector<Expr> without(Axes i) const {
    std::vector<Expr> at = to_vector(i);
    at.erase(at.begin() + static_cast<std::ptrdiff_t>(axis));
    return at;
  }
  const TensorType& in;
  size_t axis = 0;
  Shape outer;
};

Buffer maximum_of(ComputeContext& c, const Line& line) {
  return c.builder.reduce("maximum", wide_type(line.in.element), line.outer, {line.in.shape[line.axis]},
                          Reducer::max, [&](Axes i, Axes r) { return widen(c.at(0, line.whole(i, r[0]))); });
}

// e^(x - maximum) * (1 / sum): a line has one division.
void compute_softmax(ComputeContext& c) {
  Line line(c);
  ElementType wide = wide_type(line.in.element);
  Buffer maximum = maximum_of(c, line);
  Buffer exponential = c.builder.compute("exponential", wide, line.in.shape, [&](Axes i) {
    return call(Intrinsic::exp, {widen(c.at(0, to_vector(i))) - load(maximum, line.without(i))});
  });
  Buffer sum = c.builder.reduce("sum", wide, line.outer, {line.in.shape[line.axis]}, Reducer::sum,
                                [&](Axes i, Axes r) { return load(exponential, line.whole(i, r[0])); });
  Buffer inverse = c.builder.compute("inverse", wide, line.outer, [&](Axes i) {
    return tensor::constant(wide, 1) / load(sum, to_vector(i));
  });
  c.set_output(0, c.builder.compute("normalize", line.in.element, line.in.shape, [&](Axes i) {
    return cast(line.in.element, load(exponential, to_vector(i)) * load(inverse, line.without(i)));
  }));
}

// x - maximum - log(sum of e^(x - maximum))
void compute_log_softmax(ComputeContext& c) {
  Line line(c);
  ElementType wide = wide_type(line.in.element);
  Buffer maximum = maximum_of(c, line);
  Buffer shifted = c.builder.compute("shifted", wide, line.in.shape, [&](Axes i) {
    return widen(c.at(0, to_vector(i))) - load(maximum, line.without(i));
  });
  Buffer sum = c.builder.reduce(
      "sum", wide, line.outer, {line.in.shape[line.axis]}, Reducer::sum,
      [&](Axes i, Axes r) { return call(Intrinsic::exp, {load(shifted, line.whole(i, r[0]))}); });
  Buffer log_sum = c.builder.compute("log_sum", wide, line.outer,
                                     [&](Axes i) { return call(Intrinsic::log, {load(sum, to_vector(i))}); });
  c.set_output(0, c.builder.compute("normalize", line.in.element, line.in.shape, [&](Axes i) {
    return cast(line.in.element, load(shifted, to_vector(i)) - load(log_sum, line.without(i)));
  }));
}

// 1 at the first maximum, else 0.
void compute_hardmax(ComputeContext& c) {
  Line line(c);
  Buffer maximum = maximum_of(c, line);
  Buffer first = c.builder.reduce(
      "first", ElementType::i64, line.outer, {line.in.shape[line.axis]}, Reducer::min, [&](Axes i, Axes r) {
        Expr found = widen(c.at(0, line.whole(i, r[0]))) == load(maximum, to_vector(i));
        return select(found, r[0], std::numeric_limits<int64_t>::max());
      });
  c.set_output(0, c.builder.compute("hardmax", line.in.element, line.in.shape, [&](Axes i) {
    tensor::Type type{line.in.element, 1};
    return select(i[line.axis] == load(first, line.without(i)), tensor::constant(type, 1),
                  tensor::constant(type, 0));
  }));
}

OpDef along_axis(std::string_view name, void (*compute)(ComputeContext&)) {
  OpDef op = onnx_op(name, FusionClass::reduction, 1, infer_softmax, compute);
  op.axis_use = AxisUse::one;
  return op;
}

}  // namespace

std::span<const OpDef> softmax_ops() {
  static const OpDef ops[] = {
      along_axis("Softmax", compute_softmax),
      along_axis("LogSoftmax", compute_log_softmax),
      along_axis("Hardmax", compute_hardmax),
  };
  return ops;
}

}  // namespace mcc::graph
