// mcc.Attention: softmax(steps(q k')) v, on operands that are read where they lie.
//
// Inputs: q, k, v of one dimension each, then one for each step that needs one. With batch axes b...:
//   q[b..., m, d], k[b..., n, d], v[b..., n, e] are elements of these inputs at the strides of q_view, k_view, v_view
//   (offset, then a stride for each axis).
//   score[b..., m, n] = sum over d of q * k, changed by each step in turn:
//     scale      times a factor
//     add        plus an input that broadcasts to the scores
//     keep       where the input (bool, broadcast) holds; else the factor
//     drop       where the input does not hold; else the factor
//   y[b..., m, e] = sum over n of softmax(score) * v, its axes in the order that y_perm says.
// q, k and v may be narrower than the result: then the products' operands are, the softmax is not.
// Attributes: batch, extents (m, n, d, e), q_view, k_view, v_view, steps, factors (one for each step), y_perm.
#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

using Ints = std::vector<int64_t>;

struct Dims {
  explicit Dims(const Attributes& a) : batch(a.integers("batch")) {
    Ints extents = a.integers("extents");
    m = extents[0], n = extents[1], d = extents[2], e = extents[3];
  }
  Shape shape(std::initializer_list<int64_t> inner) const {
    Shape s = make_shape(batch);
    for (int64_t extent : inner)
      s.push_back(Expr(extent));
    return s;
  }
  Ints batch;
  int64_t m = 1, n = 1, d = 1, e = 1;
};

void infer_attention(InferContext& c) {
  const Attributes& a = c.attributes();
  Dims dims(a);
  Shape plain = dims.shape({dims.m, dims.e}), out;
  for (int64_t axis : a.integers("y_perm"))
    out.push_back(plain[static_cast<size_t>(axis)]);
  c.set_output(0, {contraction_result(c), out});
}

Expr element(const ComputeContext& c, int i, const Ints& view, std::vector<Expr> index) {
  Expr at = view[0];
  for (size_t k = 0; k < index.size(); ++k)
    at = at + index[k] * Expr(view[k + 1]);
  return c.at(i, {at});
}

std::vector<Expr> join(Axes batch, std::initializer_list<Expr> inner) {
  std::vector<Expr> index = to_vector(batch);
  index.insert(index.end(), inner);
  return index;
}

// The score after all steps.
Expr stepped(const ComputeContext& c, Expr score, Axes i) {
  auto steps = std::get<std::vector<std::string>>(*c.attributes().find("steps"));
  std::vector<double> factors = c.attributes().numbers("factors");
  int next = 3;
  for (size_t k = 0; k < steps.size(); ++k) {
    Expr number = number_like(score, factors[k]);
    if (steps[k] == "scale") {
      score = score * number;
    } else if (steps[k] == "add") {
      score = score + broadcast_at(c, next++, i);
    } else {
      Expr holds = broadcast_at(c, next++, i);
      score = steps[k] == "keep" ? select(holds, score, number) : select(holds, number, score);
    }
  }
  return score;
}

void compute_attention(ComputeContext& c) {
  const Attributes& a = c.attributes();
  ElementType type = c.output_type(0).element;
  Dims dims(a);
  size_t rank = dims.batch.size();
  Ints q = a.integers("q_view"), k = a.integers("k_view"), v = a.integers("v_view");
  // Keys and values as the products read them: contiguous along the axis that is not summed over.
  const ElementType key = c.input_type(1).element, value = c.input_type(2).element;
  Buffer keys = c.builder.compute("keys", key, dims.shape({dims.d, dims.n}), [&](Axes i) {
    return element(c, 1, k, join(i.first(rank), {i[rank + 1], i[rank]}));
  });
  Buffer values = c.builder.compute("values", value, dims.shape({dims.n, dims.e}),
                                    [&](Axes i) { return element(c, 2, v, to_vector(i)); });
  Buffer scores = c.builder.reduce("scores", type, dims.shape({dims.m, dims.n}), {dims.d}, Reducer::sum,
                                   [&](Axes i, Axes r) {
                                     return cast(type, element(c, 0, q, join(i.first(rank + 1), {r[0]}))) *
                                            cast(type, load(keys, join(i.first(rank), {r[0], i[rank + 1]})));
                                   });
  if (!std::get<std::vector<std::string>>(*a.find("steps")).empty()) {
    scores = c.builder.compute("masked", type, dims.shape({dims.m, dims.n}),
                               [&](Axes i) { return stepped(c, load(scores, to_vector(i)), i); });
  }
  auto row = [&](Axes i) { return to_vector(i.first(rank + 1)); };
  auto in_row = [&](Axes i, Axes r) { return join(i.first(rank + 1), {r[0]}); };
  Buffer maximum = c.builder.reduce("maximum", type, dims.shape({dims.m}), {dims.n}, Reducer::max,
                                    [&](Axes i, Axes r) { return load(scores, in_row(i, r)); });
  Buffer exponential = c.builder.compute("exponential", type, dims.shape({dims.m, dims.n}), [&](Axes i) {
    return call(Intrinsic::exp, {load(scores, to_vector(i)) - load(maximum, row(i))});
  });
  Buffer sum = c.builder.reduce("sum", type, dims.shape({dims.m}), {dims.n}, Reducer::sum,
                                [&](Axes i, Axes r) { return load(exponential, in_row(i, r)); });
  Buffer inverse = c.builder.compute("inverse", type, dims.shape({dims.m}), [&](Axes i) {
    return tensor::constant(type, 1) / load(sum, to_vector(i));
  });
  Buffer mixed = c.builder.reduce("mixed", type, dims.shape({dims.m, dims.e}), {dims.n}, Reducer::sum,
                                  [&](Axes i, Axes r) {
                                    return cast(type, cast(value, load(exponential, in_row(i, r)))) *
                                           cast(type, load(values, join(i.first(rank), {r[0], i[rank + 1]})));
                                  });
  Ints perm = a.integers("y_perm");
  c.set_output(0, c.builder.compute("attention", type, c.output_type(0).shape, [&](Axes i) {
    std::vector<Expr> at(i.size());
    for (size_t axis = 0; axis < perm.size(); ++axis)
      at[static_cast<size_t>(perm[axis])] = i[axis];
    return load(mixed, at) * load(inverse, row(at));
  }));
}

OpDef attention_op() {
  OpDef op;
  op.name = "Attention";
  op.domain = "mcc";
  op.fusion = FusionClass::contraction;
  op.required_inputs = 3;
  op.infer = infer_attention;
  op.compute = compute_attention;
  return op;
}

}  // namespace

std::span<const OpDef> mcc_attention_ops() {
  static const OpDef ops[] = {attention_op()};
  return ops;
}

}  // namespace mcc::graph
