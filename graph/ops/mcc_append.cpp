// mcc.Append: what a decoder remembers, and new rows behind it, of which each sequence of the batch has a place of its own. The frontend
// writes it for attention with a past whose length data decides.
//
//   y[b, h, j, e] = past[b, h, j, e]           where j < count[b]
//                   now[b, h, j - count[b], e]  behind it, for as many rows as there are
//                   0                           behind these
//
// Attribute: in_place (0). 1: y is in the memory of past, and as long; rows of `now` are written there, as far as there is room, and
// those behind stay as they are.
//
// Inputs: past [B, H, P, E], now [B, H, S, E], count [B], and the rows of the result, which are known.
//
// mcc.AppendFrom: the same without its first rows, of which each sequence has a number of its own: input 4, [B]; not in place.
#include <array>

#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

constexpr int kPast = 0, kNow = 1, kCount = 2, kRows = 3, kFirst = 4;

void infer_append(InferContext& c) {
  if (!expect_type(c, kPast, TypeSet::number) || !expect_same_type(c, kPast, kNow) ||
      !expect_rank(c, kPast, 4) || !expect_rank(c, kNow, 4) || !expect_type(c, kCount, TypeSet::index) ||
      !expect_rank(c, kCount, 1))
    return;
  Shape out = c.input(kNow).shape;
  for (size_t d : {size_t{0}, size_t{1}, size_t{3}})
    if (!expect_same_dim(c, out[d], c.input(kPast).shape[d], text("dimension ", d, " of input 0"))) return;
  if (!expect_same_dim(c, out[0], c.input(kCount).shape[0], "dimension 0 of input 2")) return;
  if (c.has_input(kFirst) &&
      (!expect_type(c, kFirst, TypeSet::index) || !expect_rank(c, kFirst, 1) ||
       !expect_same_dim(c, out[0], c.input(kFirst).shape[0], "dimension 0 of input 4")))
    return;
  const std::optional<Shape> rows = known_ints(c, kRows, "rows");
  if (!rows || !expect(c, rows->size() == 1, "input 3: expected one number, got ", dims_text(*rows))) return;
  out[2] = rows->front();
  c.set_output(0, {c.input(kNow).element, out});
}

// A number of the batch's sequence.
Expr number_of(const ComputeContext& c, int input, const Expr& batch) {
  return cast(ElementType::i64, c.at(input, {batch}));
}

void compute_append(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  if (c.attributes().integer("in_place", 0) != 0) {
    c.set_output(0, write_in_place(c, "append", c.input_type(kNow).shape, [&](Axes i) {
                   const Expr row = number_of(c, kCount, i[0]) + i[2];
                   return Written{
                       {i[0], i[1], row, i[3]}, c.at(kNow, to_vector(i)), row >= 0 && row < out.shape[2]};
                 }));
    return;
  }
  const Expr before = c.input_type(kPast).shape[2], fresh = c.input_type(kNow).shape[2];
  c.set_output(0, c.builder.compute("append", out.element, out.shape, [&](Axes i) {
    const Expr from = c.has_input(kFirst) ? i[2] + number_of(c, kFirst, i[0]) : i[2];
    const Expr row = from - number_of(c, kCount, i[0]);
    const Expr place = tensor::min(tensor::max(row, 0), fresh - 1);
    const Expr now =
        select(row < fresh, c.at(kNow, {i[0], i[1], place, i[3]}), tensor::constant(out.element, 0));
    if (tensor::is_int(before, 0)) return now;
    const Expr remembered = c.has_input(kFirst) ? tensor::min(tensor::max(from, 0), before - 1) : from;
    return select(from < before && row < 0, c.at(kPast, {i[0], i[1], remembered, i[3]}), now);
  }));
}

}  // namespace

std::span<const OpDef> mcc_append_ops() {
  static const std::array<OpDef, 2> ops = [] {
    OpDef append = own_op("Append", FusionClass::injective, 4, infer_append, compute_append);
    append.constant_inputs = 1U << kRows;
    append.updates_first_input = true;
    OpDef from = own_op("AppendFrom", FusionClass::injective, 5, infer_append, compute_append);
    from.constant_inputs = 1U << kRows;
    return std::array{append, from};
  }();
  return ops;
}

}  // namespace mcc::graph
