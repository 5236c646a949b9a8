// Reductions over axes, and ArgMax and ArgMin. Axes are input 1, before opset 13/18 an attribute.
#include <algorithm>
#include <limits>

#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

// ---- Which axes ----

struct ReducedAxes {
  std::vector<bool> reduced;  // by input axis
  bool keep = true;

  Shape out_shape(const Shape& in) const {
    Shape out;
    for (size_t k = 0; k < in.size(); ++k) {
      if (!reduced[k]) out.push_back(in[k]);
      if (reduced[k] && keep) out.emplace_back(1);
    }
    return out;
  }
  Shape extents(const Shape& in) const {
    Shape out;
    for (size_t k = 0; k < in.size(); ++k) {
      if (reduced[k]) out.push_back(in[k]);
    }
    return out;
  }
  std::vector<Expr> index(Axes i, Axes r) const {
    std::vector<Expr> at;
    size_t next = 0, next_reduced = 0;
    for (bool is_reduced : reduced) {
      at.push_back(is_reduced ? r[next_reduced++] : i[next]);
      if (!is_reduced || keep) ++next;
    }
    return at;
  }
};

ReducedAxes reduced_axes(const Attributes& a, const std::vector<int64_t>& axes, size_t rank) {
  bool none = axes.empty() && a.integer("noop_with_empty_axes", 0) != 0;
  ReducedAxes result{std::vector<bool>(rank, axes.empty() && !none), a.integer("keepdims", 1) != 0};
  for (int64_t axis : axes)
    result.reduced[static_cast<size_t>(normal_axis(axis, static_cast<int>(rank)))] = true;
  return result;
}

// ---- Reduce*: finish(reduction of each(x)) ----

struct Rule {
  Reducer reducer;
  TypeSet types;
  Expr (*each)(const Expr& x);
  Expr (*finish)(const Expr& total, const Expr& count);  // null: nothing to do
};

Expr same(const Expr& x) { return x; }
Expr squared(const Expr& x) { return x * x; }
Expr magnitude(const Expr& x) {
  return is_float(x.element()) ? call(Intrinsic::abs, {x}) : select(x < 0, -x, x);
}
Expr exponential(const Expr& x) { return call(Intrinsic::exp, {x}); }
Expr in_float(const Expr& x, Intrinsic f) {
  return is_float(x.element()) ? call(f, {x}) : cast(x.element(), call(f, {cast(ElementType::f64, x)}));
}
Expr root_of(const Expr& total, const Expr&) { return in_float(total, Intrinsic::sqrt); }
Expr log_of(const Expr& total, const Expr&) { return in_float(total, Intrinsic::log); }
Expr mean_of(const Expr& total, const Expr& count) { return total / cast(total.element(), count); }

constexpr Rule kSum{Reducer::sum, TypeSet::number, same, nullptr};
constexpr Rule kProduct{Reducer::product, TypeSet::number, same, nullptr};
constexpr Rule kMax{Reducer::max, TypeSet::any, same, nullptr};
constexpr Rule kMin{Reducer::min, TypeSet::any, same, nullptr};
constexpr Rule kMean{Reducer::sum, TypeSet::number, same, mean_of};
constexpr Rule kL1{Reducer::sum, TypeSet::number, magnitude, nullptr};
constexpr Rule kL2{Reducer::sum, TypeSet::number, squared, root_of};
constexpr Rule kSumSquare{Reducer::sum, TypeSet::number, squared, nullptr};
constexpr Rule kLogSum{Reducer::sum, TypeSet::number, same, log_of};
constexpr Rule kLogSumExp{Reducer::sum, TypeSet::floating, exponential, log_of};

template <const Rule& rule>
void infer_reduce(InferContext& c) {
  if (!expect_type(c, 0, rule.types)) return;
  bool found = false;
  auto axes = ints_of(c, 1, "axes", &found);
  if (!axes || !checked_axes(c, *axes, c.rank(0))) return;
  const Shape& in = c.input(0).shape;
  c.set_output(0, {c.input(0).element, reduced_axes(c.attributes(), *axes, in.size()).out_shape(in)});
}

Buffer reduce_axes(ComputeContext& c, const std::string& name, ElementType element, const ReducedAxes& axes,
                   Reducer reducer, const std::function<Expr(Axes i, const std::vector<Expr>& at)>& value) {
  const Shape& in = c.input_type(0).shape;
  return c.builder.reduce(name, element, axes.out_shape(in), axes.extents(in), reducer,
                          [&](Axes i, Axes r) { return value(i, axes.index(i, r)); });
}

Buffer finish(ComputeContext& c, const Rule& rule, const Buffer& total, const Expr& count) {
  const TensorType& out = c.output_type(0);
  if (!rule.finish) return cast_buffer(c, total, out.element);
  return c.builder.compute("finish", out.element, out.shape, [&](Axes i) {
    return cast(out.element, rule.finish(load(total, to_vector(i)), count));
  });
}

template <const Rule& rule>
void compute_reduce(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  ReducedAxes axes = reduced_axes(c.attributes(), ints_of(c, 1, "axes"), in.shape.size());
  Buffer total =
      reduce_axes(c, "reduce", wide_type(in.element), axes, rule.reducer,
                  [&](Axes, const std::vector<Expr>& at) { return rule.each(widen(c.at(0, at))); });
  c.set_output(0, finish(c, rule, total, product(axes.extents(in.shape))));
}

// log(sum(e^x)) = m + log(sum(e^(x - m))) with the maximum m, where nothing overflows. An infinite maximum is left out:
// infinity - infinity is no number.
void compute_log_sum_exp(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  const TensorType& out = c.output_type(0);
  ElementType wide = wide_type(in.element);
  ReducedAxes axes = reduced_axes(c.attributes(), ints_of(c, 1, "axes"), in.shape.size());
  Buffer maximum = reduce_axes(c, "maximum", wide, axes, Reducer::max,
                               [&](Axes, const std::vector<Expr>& at) { return widen(c.at(0, at)); });
  Buffer shift = c.builder.compute("shift", wide, out.shape, [&](Axes i) {
    Expr m = load(maximum, to_vector(i));
    return select(call(Intrinsic::is_inf, {m}), tensor::constant(wide, 0), m);
  });
  Buffer total = reduce_axes(c, "reduce", wide, axes, Reducer::sum, [&](Axes i, const std::vector<Expr>& at) {
    return exponential(widen(c.at(0, at)) - load(shift, to_vector(i)));
  });
  c.set_output(0, c.builder.compute("finish", out.element, out.shape, [&](Axes i) {
    std::vector<Expr> at = to_vector(i);
    return cast(out.element, load(shift, at) + call(Intrinsic::log, {load(total, at)}));
  }));
}

template <const Rule& rule>
OpDef reduction(std::string_view name) {
  OpDef op = onnx_op(name, FusionClass::reduction, 1, infer_reduce<rule>, compute_reduce<rule>);
  op.constant_inputs = 0b10;
  op.axis_use = AxisUse::reduced;
  return op;
}

OpDef log_sum_exp_op() {
  OpDef op = reduction<kLogSumExp>("ReduceLogSumExp");
  op.compute = compute_log_sum_exp;
  return op;
}

// ---- ArgMax, ArgMin: the extreme value, then the first (or last) position that holds it ----

ReducedAxes arg_axis(const Attributes& a, size_t rank) {
  return reduced_axes(a, {a.integer("axis", 0)}, rank);
}

void infer_arg(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::number) || !checked_axis(c, c.attributes().integer("axis", 0), c.rank(0)))
    return;
  const Shape& in = c.input(0).shape;
  ReducedAxes axis = arg_axis(c.attributes(), in.size());
  if (!expect(c, !tensor::is_int(axis.extents(in)[0], 0), "the axis of ", to_text(c.input(0)), " is empty"))
    return;
  c.set_output(0, {ElementType::i64, axis.out_shape(in)});
}

template <Reducer reducer>
void compute_arg(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  ReducedAxes axis = arg_axis(c.attributes(), in.shape.size());
  auto k =
      static_cast<size_t>(normal_axis(c.attributes().integer("axis", 0), static_cast<int>(in.shape.size())));
  bool last = c.attributes().integer("select_last_index", 0) != 0;
  Buffer extreme = reduce_axes(c, "extreme", in.element, axis, reducer,
                               [&](Axes, const std::vector<Expr>& at) { return c.at(0, at); });
  const ElementType type = position_type(in.shape[k]);
  Expr none = last ? Expr(-1) : Expr(position_beyond(type));
  Buffer position = reduce_axes(c, "position", type, axis, last ? Reducer::max : Reducer::min,
                                [&](Axes i, const std::vector<Expr>& at) {
                                  Expr x = c.at(0, at);
                                  Expr found = x == load(extreme, to_vector(i));
                                  if (is_float(in.element)) found = found || call(Intrinsic::is_nan, {x});
                                  return select(found, cast(type, at[k]), cast(type, none));
                                });
  if (type == ElementType::i64) return c.set_output(0, position);
  c.set_output(0, c.builder.compute("wide", ElementType::i64, c.output_type(0).shape, [&](Axes i) {
    return cast(ElementType::i64, load(position, to_vector(i)));
  }));
}

template <Reducer reducer>
OpDef arg(std::string_view name) {
  return onnx_op(name, FusionClass::reduction, 1, infer_arg, compute_arg<reducer>);
}

}  // namespace

std::span<const OpDef> reduce_ops() {
  static const OpDef ops[] = {
      reduction<kSum>("ReduceSum"),       reduction<kProduct>("ReduceProd"),
      reduction<kMax>("ReduceMax"),       reduction<kMin>("ReduceMin"),
      laid_out(reduction<kMean>("ReduceMean"), LayoutRole::mean), reduction<kL1>("ReduceL1"),
      reduction<kL2>("ReduceL2"),         reduction<kSumSquare>("ReduceSumSquare"),
      reduction<kLogSum>("ReduceLogSum"), log_sum_exp_op(),
      arg<Reducer::max>("ArgMax"),        arg<Reducer::min>("ArgMin"),
  };
  return ops;
}

}  // namespace mcc::graph
