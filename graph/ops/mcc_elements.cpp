// mcc.Elements: an integer tensor that follows from symbolic dimensions (Value::elements of its result), for those who read it when the
// model runs. No inputs. Attributes: type, shape; elements, as text: what tells one of these nodes from another.
#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

void infer_elements(InferContext& c) {
  const std::optional<ElementType> type = parse_element_type(c.attributes().text("type", ""));
  MCC_CHECK(type, "mcc.Elements of ", c.attributes().text("type", ""));
  c.set_output(0, {*type, make_shape(c.attributes().integers("shape"))});
}

void compute_elements(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const std::vector<Expr>& elements = c.output_elements(0);
  c.set_output(0, c.builder.compute("elements", out.element, out.shape, [&](Axes i) {
    const Expr at = linear_index(out.shape, to_vector(i));
    Expr value = elements.back();
    for (size_t k = elements.size() - 1; k-- > 0;)
      value = select(at == static_cast<int64_t>(k), elements[k], value);
    return cast(out.element, value);
  }));
}

}  // namespace

std::span<const OpDef> mcc_elements_ops() {
  static const OpDef op = own_op("Elements", FusionClass::injective, 0, infer_elements, compute_elements);
  return {&op, 1};
}

}  // namespace mcc::graph
