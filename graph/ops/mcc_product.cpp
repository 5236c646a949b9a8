// mcc.Product: a b, of operands that are read where they lie (operand_view.h).
//
// With batch axes n...: a[n..., m, k] and b[n..., k, l] are elements of the inputs at the places of a_view and b_view;
//   y[n..., m, l] = sum over k of a * b, its axes in the order that y_perm says.
// Attributes: batch, extents (m, l, k), a_view, b_view, y_perm. An open extent (-1) is that of the first dimension of a or b along which its
// axis alone goes, one step at a time; where operands are beginnings of the inputs, the optional input 2 says all extents (n..., m, l, k).
#include "graph/ops/common.h"
#include "graph/ops/operand_view.h"

namespace mcc::graph {
namespace {

using Ints = std::vector<int64_t>;

constexpr int kExtents = 2;

struct Extents {
  // shape_of: of an input. said: by the input of extents; empty without one.
  template <class ShapeOf>
  Extents(const Attributes& a, const Shape& said, ShapeOf&& shape_of) {
    const Ints batch = a.integers("batch"), inner = a.integers("extents"),
               views[] = {a.integers("a_view"), a.integers("b_view")};
    size_t next = 0;
    auto extent = [&](int64_t given, std::initializer_list<std::pair<int, size_t>> axes) {
      if (!said.empty()) return said[next++];
      Expr found = given >= 0 ? Expr(given) : Expr();
      for (auto [input, axis] : axes)
        if (!found.defined()) found = extent_along(views[input], shape_of(input), axis);
      MCC_CHECK(found.defined(), "no operand of mcc.Product has an open axis");
      return found;
    };
    const size_t rank = batch.size();
    for (size_t axis = 0; axis < rank; ++axis)
      result.push_back(extent(batch[axis], {{0, axis}, {1, axis}}));
    result.push_back(extent(inner[0], {{0, rank}}));
    result.push_back(extent(inner[1], {{1, rank + 1}}));
    summed = extent(inner[2], {{0, rank + 1}, {1, rank}});
  }

  Shape result;  // before y_perm
  Expr summed = 1;
};

void infer_product(InferContext& c) {
  Shape said;
  if (c.has_input(kExtents)) {
    const std::optional<Shape> known = known_ints(c, kExtents, "extents");
    if (!known || !expect(c, known->size() == c.attributes().integers("batch").size() + 3, "extents: got ",
                          dims_text(*known)))
      return;
    said = *known;
  }
  const Extents extents(c.attributes(), said, [&](int i) -> const Shape& { return c.input(i).shape; });
  Shape out;
  for (int64_t axis : c.attributes().integers("y_perm"))
    out.push_back(extents.result[static_cast<size_t>(axis)]);
  c.set_output(0, {contraction_result(c), out});
}

void compute_product(ComputeContext& c) {
  const Attributes& a = c.attributes();
  const TensorType& out = c.output_type(0);
  const Shape said = c.has_input(kExtents) ? c.elements(kExtents) : Shape();
  const Extents extents(a, said, [&](int i) -> const Shape& { return c.input_type(i).shape; });
  const Ints left = a.integers("a_view"), right = a.integers("b_view"), perm = a.integers("y_perm");
  const size_t rank = perm.size() - 2;
  Buffer y = c.builder.reduce(
      "product", wide_type(out.element), out.shape, {extents.summed}, Reducer::sum, [&](Axes i, Axes r) {
        std::vector<Expr> at(perm.size());
        for (size_t d = 0; d < perm.size(); ++d)
          at[static_cast<size_t>(perm[d])] = i[d];
        std::vector<Expr> of_a = at, of_b = at;
        of_a[rank + 1] = r[0];
        of_b[rank] = r[0];
        return widen(viewed_element(c, 0, left, of_a)) * widen(viewed_element(c, 1, right, of_b));
      });
  c.set_output(0, cast_buffer(c, y, out.element));
}

}  // namespace

std::span<const OpDef> mcc_product_ops() {
  static const OpDef op = [] {
    OpDef product = own_op("Product", FusionClass::contraction, 2, infer_product, compute_product);
    product.constant_inputs = 1U << kExtents;
    return product;
  }();
  return {&op, 1};
}

}  // namespace mcc::graph
