// QLinearMatMul and QLinearConv as products of f32, where dot products of bytes have not taken them (use_byte_products): products of two
// variables, convolutions in groups, targets without such an instruction.
//   round(sum (x - xz)(w - wz) * xs * ws / ys) + yz
//     = QuantizeLinear(product of DequantizeLinear(x, 1, xz) and DequantizeLinear(w, 1, wz), ys / (xs * ws), yz)
// The differences from zero points are whole numbers of nine bits: their sums are exact in f32 up to 2^24, and f32 is what tiles and
// vector units are made for.
#include "graph/ops/common.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

constexpr int64_t kOnnxF32 = 1;  // ONNX's number of the type, for Cast

class UseRealProducts {
 public:
  explicit UseRealProducts(Graph& g) : g_(g) {}

  void run() {
    const size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n) {
      const auto id = static_cast<NodeId>(n);
      const Node& node = g_.node(id);
      if (node.dead || !node.op->domain.empty()) continue;
      if (is_op(node, "QLinearMatMul")) {
        rewrite(id, "MatMul", rank(node.inputs[3]) - 1, rank(node.outputs[0]) - 1);
      } else if (is_op(node, "QLinearConv")) {
        rewrite(id, "Conv", 0, 1);
      }
    }
    eliminate_dead_code(g_);
    g_.compact();
  }

 private:
  const TensorType& type(ValueId v) const { return g_.value(v).type; }
  int64_t rank(ValueId v) const { return static_cast<int64_t>(type(v).shape.size()); }
  bool is_single(ValueId v) const { return is_static(type(v).shape) && static_count(type(v).shape) == 1 && rank(v) <= 1; }
  bool is_line(ValueId v) const { return is_static(type(v).shape) && rank(v) == 1; }
  bool is_byte(ValueId v) const { return type(v).element == ElementType::u8 || type(v).element == ElementType::i8; }

  ValueId make(std::string_view op, std::vector<ValueId> inputs, Attributes a = {}) {
    return emit(g_, "", op, name_, std::move(inputs), std::move(a));
  }

  // One scale for each tensor and its zero point, and for w one of each line, too.
  bool is_regular(const Node& n) const {
    for (size_t i : {1, 4, 6})
      if (type(n.inputs[i]).element != ElementType::f32) return false;
    for (size_t i : {1, 2, 6, 7})
      if (!is_single(n.inputs[i])) return false;
    for (size_t i : {4, 5})
      if (!is_single(n.inputs[i]) && !is_line(n.inputs[i])) return false;
    return is_byte(n.inputs[0]) && is_byte(n.inputs[3]) && is_byte(n.outputs[0]);
  }

  // x - zero in f32.
  ValueId whole_numbers(ValueId x, ValueId zero, int64_t axis) {
    const Shape& shape = type(zero).shape;
    const auto count = static_cast<size_t>(static_count(shape));
    ValueId one = g_.add_constant(name_ + ".one", Constant::of(ElementType::f32, static_shape(shape), std::vector<float>(count, 1)));
    Attributes a;
    a.set("axis", axis);
    return make("DequantizeLinear", {x, one, zero}, a);
  }

  // lines, columns: the axes of w and of the result along which scales of w may differ.
  void rewrite(NodeId id, std::string_view product, int64_t lines, int64_t columns) {
    const Node node = g_.node(id);
    if (!is_regular(node)) return;
    name_ = node.name;
    std::vector<ValueId> operands{whole_numbers(node.inputs[0], node.inputs[2], 0), whole_numbers(node.inputs[3], node.inputs[5], lines)};
    if (node.inputs.size() > 8 && node.inputs[8] != kNoValue) {
      Attributes to;
      to.set("to", kOnnxF32);
      operands.push_back(make("Cast", {node.inputs[8]}, to));
    }
    ValueId sums = make(product, operands, node.attributes);
    ValueId scale = make("Div", {node.inputs[6], make("Mul", {node.inputs[1], node.inputs[4]})}), zero = node.inputs[7];
    if (!is_single(scale)) zero = make("Expand", {zero, g_.add_constant(name_ + ".shape", Constant::ints(static_shape(type(scale).shape)))});
    Attributes a;
    a.set("axis", columns);
    ValueId y = make("QuantizeLinear", {sums, scale, zero}, a);
    Node& maker = g_.node(g_.value(y).producer);
    maker.origins.insert(maker.origins.end(), node.origins.begin(), node.origins.end());
    take_place(g_, node.outputs[0], y);
    g_.node(id).dead = true;
  }

  Graph& g_;
  std::string name_;  // of the node that is being rewritten
};

}  // namespace

void use_real_products(Graph& graph) { UseRealProducts(graph).run(); }

}  // namespace mcc::graph
