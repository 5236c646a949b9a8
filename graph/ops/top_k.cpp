// TopK.
#include "graph/ops/common.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

using tensor::AxisKind;
using tensor::Store;

// ---- TopK: the k largest (or smallest) in order; of equal ones the first comes first. Attribute by_rank (passes/rank_elements.cpp):
// not step by step ----

constexpr const char* kByRank = "by_rank";

std::optional<int64_t> checked_count(InferContext& c) {
  if (!c.has_input(1)) return c.attributes().integer("k", 0);
  auto k = constant_ints(c, 1, "k");
  if (!k || !expect(c, k->size() == 1, "k: expected one number, got ", list_text(*k))) return std::nullopt;
  return (*k)[0];
}

void infer_top_k(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::number)) return;
  auto axis = checked_axis(c, c.attributes().integer("axis", -1), c.rank(0));
  auto k = axis ? checked_count(c) : std::nullopt;
  if (!k) return;
  Shape out = c.input(0).shape;
  Expr& d = out[static_cast<size_t>(*axis)];
  auto extent = static_dim(d);
  if (!expect(c, *k >= 0 && (!extent || *k <= *extent), "k of ", *k, " for ", to_text(c.input(0)))) return;
  d = *k;
  c.set_output(0, {c.input(0).element, out});
  c.set_output(1, {ElementType::i64, out});
}

// Each element's rank is the number of those that come before it; of rank t is pick t. Many more comparisons than by steps, none of
// which waits for another.
void compute_top_k_by_rank(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  const TensorType& out = c.output_type(c.has_output(0) ? 0 : 1);
  const auto axis =
      static_cast<size_t>(normal_axis(c.attributes().integer("axis", -1), static_cast<int>(in.shape.size())));
  const bool largest = c.attributes().integer("largest", 1) != 0;
  const ElementType index = position_type(in.shape[axis]);
  auto with = [&](Axes i, const Expr& place) {
    std::vector<Expr> at = to_vector(i);
    at[axis] = place;
    return at;
  };
  Buffer rank = c.builder.reduce("rank", index, in.shape, {in.shape[axis]}, Reducer::sum, [&](Axes i, Axes r) {
    Expr x = c.at(0, to_vector(i)), other = c.at(0, with(i, r[0]));
    return cast(index, (largest ? other > x : other < x) || (other == x && r[0] < i[axis]));
  });
  Buffer found = c.builder.reduce("found", index, out.shape, {in.shape[axis]}, Reducer::min, [&](Axes i, Axes r) {
    return select(load(rank, with(i, r[0])) == cast(index, i[axis]), cast(index, r[0]), cast(index, position_beyond(index)));
  });
  // Only where the values have no order (NaN) a rank is missing: any position, but not one beyond the elements.
  Buffer position = c.builder.compute("position", index, out.shape, [&](Axes i) {
    return tensor::min(load(found, to_vector(i)), cast(index, in.shape[axis] - 1));
  });
  if (c.has_output(0)) {
    c.set_output(0, c.builder.compute("values", in.element, out.shape, [&](Axes i) {
      return c.at(0, with(i, cast(ElementType::i64, load(position, to_vector(i)))));
    }));
  }
  if (c.has_output(1)) c.set_output(1, cast_buffer(c, position, ElementType::i64));
}

// Step t picks the best among those that come after the pick before: ordered by value, then by position. best[t + 1]
// and position[t + 1] hold pick t; the entries 0 stand before everything.
void compute_top_k(ComputeContext& c) {
  if (c.attributes().integer(kByRank, 0) != 0) return compute_top_k_by_rank(c);
  const TensorType& in = c.input_type(0);
  const TensorType& out = c.output_type(c.has_output(0) ? 0 : 1);
  auto axis =
      static_cast<size_t>(normal_axis(c.attributes().integer("axis", -1), static_cast<int>(in.shape.size())));
  bool largest = c.attributes().integer("largest", 1) != 0;
  Reducer reducer = largest ? Reducer::max : Reducer::min;
  Shape outer = in.shape;
  outer.erase(outer.begin() + static_cast<std::ptrdiff_t>(axis));
  Shape history = outer;
  history.insert(history.begin(), out.shape[axis] + 1);
  Buffer best = c.builder.new_buffer("best", in.element, history);
  const ElementType index = position_type(in.shape[axis]);
  const int64_t beyond = position_beyond(index);
  Buffer position = c.builder.new_buffer("position", index, history);
  std::vector<tensor::FuncBuilder::AxisSpec> axes;
  for (size_t k = 0; k < outer.size(); ++k)
    axes.push_back({text("i", k), outer[k], AxisKind::spatial});

  auto entry = [](const Expr& t, Axes i) {
    std::vector<Expr> at = to_vector(i);
    at.insert(at.begin(), t);
    return at;
  };
  auto element = [&](Axes i, const Expr& r) {
    std::vector<Expr> at = to_vector(i);
    at.insert(at.begin() + static_cast<std::ptrdiff_t>(axis), r);
    return c.at(0, at);
  };
  Expr worst = tensor::identity(reducer, in.element);
  Expr limit = tensor::identity(largest ? Reducer::min : Reducer::max, in.element);
  c.builder.block("before_values", axes, [&](Axes i) { return Store::make(best, entry(0, i), limit); });
  c.builder.block("before_positions", axes, [&](Axes i) { return Store::make(position, entry(0, i), cast(index, -1)); });
  c.builder.serial_loop("t", out.shape[axis], [&](const Expr& t) {
    auto follows = [&](Axes i, const Expr& x, const Expr& r) {
      Expr last = load(best, entry(t, i));
      return (largest ? x < last : x > last) || (x == last && cast(index, r) > load(position, entry(t, i)));
    };
    Buffer value =
        c.builder.reduce("extreme", in.element, outer, {in.shape[axis]}, reducer, [&](Axes i, Axes r) {
          Expr x = element(i, r[0]);
          return select(follows(i, x, r[0]), x, worst);
        });
    Buffer first = c.builder.reduce("first", index, outer, {in.shape[axis]}, Reducer::min,
                                    [&](Axes i, Axes r) {
                                      Expr x = element(i, r[0]);
                                      Expr found = follows(i, x, r[0]) && x == load(value, to_vector(i));
                                      return select(found, cast(index, r[0]), cast(index, beyond));
                                    });
    c.builder.block("keep_value", axes,
                    [&](Axes i) { return Store::make(best, entry(t + 1, i), load(value, to_vector(i))); });
    c.builder.block("keep_position", axes, [&](Axes i) {
      // Only where the values have no order (NaN) none is left: any position, but not one beyond the elements.
      return Store::make(position, entry(t + 1, i), tensor::min(load(first, to_vector(i)), cast(index, in.shape[axis] - 1)));
    });
  });
  auto result = [&](const std::string& name, const Buffer& from, ElementType type) {
    return c.builder.compute(name, type, out.shape, [&](Axes i) {
      std::vector<Expr> at = to_vector(i);
      at.erase(at.begin() + static_cast<std::ptrdiff_t>(axis));
      return cast(type, load(from, entry(i[axis] + 1, at)));
    });
  };
  if (c.has_output(0)) c.set_output(0, result("values", best, in.element));
  if (c.has_output(1)) c.set_output(1, result("indices", position, ElementType::i64));
}

OpDef top_k_op() {
  OpDef op = onnx_op("TopK", FusionClass::opaque, 1, infer_top_k, compute_top_k);
  op.constant_inputs = 0b10;
  return op;
}

}  // namespace

std::span<const OpDef> top_k_ops() {
  static const OpDef ops[] = {top_k_op()};
  return ops;
}

}  // namespace mcc::graph
