// RotaryEmbedding: pairs of numbers of each head, turned by the angle of their row (Su et al., RoFormer, 2021).
//   x          [B, S, heads * size], or [B, heads, S, size]
//   cos, sin   tables [positions, turned / 2], of which positions [B, S] picks rows; without it [B, S, turned / 2]
// A pair are two neighbours (interleaved), or a number of the first half of those turned and its counterpart in the second.
#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

constexpr int kX = 0, kCos = 1, kSin = 2, kPositions = 3;

// Of the heads of x, in one axis or in two.
struct Heads {
  Expr rows, size, turned;
  bool are_flat;

  Heads(const Shape& x, const Attributes& a)
      : rows(x[x.size() == 3 ? 1 : 2]),
        size(x.back()),
        turned(a.integer("rotary_embedding_dim", 0)),
        are_flat(x.size() == 3) {
    if (are_flat) size = floor_div(size, Expr(a.integer("num_heads", 1)));
    if (tensor::is_int(turned, 0)) turned = size;
  }
  Expr pairs() const { return floor_div(turned, Expr(2)); }
};

void infer_rotary(InferContext& c) {
  if (!expect_type(c, kX, TypeSet::floating) || !expect_same_type(c, kX, kCos) ||
      !expect_same_type(c, kX, kSin))
    return;
  const Shape& x = c.input(kX).shape;
  const int64_t count = c.attributes().integer("num_heads", 0);
  if (!expect(c, x.size() == 3 || x.size() == 4, "input 0: expected 3 or 4 dimensions, got ",
              to_text(c.input(kX))) ||
      !expect(c, x.size() == 4 || count > 0, "num_heads: expected a number of heads for 3 dimensions, got ",
              count))
    return;
  const std::optional<int64_t> last = static_dim(x.back());
  if (x.size() == 3 && last &&
      !expect(c, *last % count == 0, "input 0: ", to_text(c.input(kX)), " has no ", count,
              " heads of one size"))
    return;
  const Heads heads(x, c.attributes());
  const std::optional<int64_t> size = static_dim(heads.size), turned = static_dim(heads.turned);
  if (turned && !expect(c, *turned >= 0 && *turned % 2 == 0 && (!size || *turned <= *size),
                        "rotary_embedding_dim: expected an even number up to the size of a head, ",
                        size.value_or(0), ", got ", *turned))
    return;
  const bool has_positions = c.has_input(kPositions);
  if (has_positions && (!expect_type(c, kPositions, TypeSet::index) || !expect_rank(c, kPositions, 2)))
    return;
  for (int table : {kCos, kSin}) {
    const Shape& angles = c.input(table).shape;
    if (!expect_rank(c, table, has_positions ? 2 : 3) ||
        !expect_same_dim(c, heads.pairs(), angles.back(), text("the last dimension of input ", table)))
      return;
    const Shape& places = has_positions ? c.input(kPositions).shape : angles;
    if ((!tensor::is_int(places[0], 1) && !expect_same_dim(c, x[0], places[0], "the batch of positions")) ||
        !expect_same_dim(c, heads.rows, places[1], "the rows of positions"))
      return;
  }
  c.set_output(0, c.input(kX));
}

void compute_rotary(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const Heads heads(out.shape, c.attributes());
  const bool is_interleaved = c.attributes().integer("interleaved", 0) != 0,
             is_whole = heads.turned.same_as(heads.size);
  c.set_output(0, c.builder.compute("rotary", out.element, out.shape, [&](Axes i) {
    const Expr row = heads.are_flat ? i[1] : i[2];
    const Expr place = heads.are_flat ? floor_mod(i[2], heads.size) : i[3];
    auto x = [&](const Expr& by) {
      std::vector<Expr> at = to_vector(i);
      at.back() = at.back() + by;
      return c.at(kX, at);
    };
    auto angle = [&](int table, const Expr& pair) {
      auto of_batch = [&](int input) {
        return tensor::is_int(c.input_type(input).shape[0], 1) ? Expr(0) : i[0];
      };
      if (!c.has_input(kPositions)) return c.at(table, {of_batch(table), row, pair});
      return c.at(
          table,
          {gather_index(c.at(kPositions, {of_batch(kPositions), row}), c.input_type(table).shape[0]), pair});
    };
    auto first = [&](const Expr& pair, const Expr& other) {
      return angle(kCos, pair) * x(0) - angle(kSin, pair) * x(other);
    };
    auto second = [&](const Expr& pair, const Expr& other) {
      return angle(kSin, pair) * x(Expr(0) - other) + angle(kCos, pair) * x(0);
    };
    const Expr half = heads.pairs(), neighbour = floor_div(place, Expr(2));
    const Expr is_first = is_interleaved
                              ? tensor::Binary::make(BinaryOp::eq, floor_mod(place, Expr(2)), Expr(0))
                              : place < half;
    const Expr y = is_interleaved ? select(is_first, first(neighbour, 1), second(neighbour, 1))
                                  : select(is_first, first(place, half), second(place - half, half));
    return is_whole ? y : select(place < heads.turned, y, x(0));
  }));
}

}  // namespace

std::span<const OpDef> rotary_ops() {
  static const OpDef ops[] = {
      onnx_op("RotaryEmbedding", FusionClass::injective, 3, infer_rotary, compute_rotary)};
  return ops;
}

}  // namespace mcc::graph
