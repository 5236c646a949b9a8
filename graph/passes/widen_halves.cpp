// Models of 16-bit floats (f16, bf16) on CPUs, which compute in f32, and those among them that are quantised, on GPUs, too: what
// operators make is not rounded in between.
//
//   %c: f16 = Conv(%x, %w)                 %x32: f32 = Narrow(%x)        an input of the model
//   %y: f16 = Relu(%c)         becomes     %w32: f32 = Narrow(%w)        folded
//                                          %c: f32 = Conv(%x32, %w32)
//                                          %r: f32 = Relu(%c)
//                                          %y: f16 = Narrow(%r)          an output of the model
//
// An operator is widened if, by its own rule for types, it makes f32 of f32 where it makes halves of halves. Kept are the types of
// inputs and outputs of the model, and halves in front of all that depends on them:
// - conversions to halves (Cast) round, and make infinity of what is too large, as they say;
// - operators whose results are no floats (comparisons, IsInf, ArgMax, conversions to integers, TopK), and those
//   that jump (Floor, Round, Mod, ...), see their operands rounded: a step that was reached by rounding is reached still;
// - elements that are only moved stay halves while most of them are: rows of a table, what a decoder remembers;
// - operands of products with few rows stay halves in memory where that is expected to be faster.
//
// QuantizeLinear is widened: it rounds to steps that are much wider than those of halves. With the weights' DequantizeLinear in f32, too, products
// between the two are those of a quantised model of f32, from which use_byte_products makes dot products of bytes.
//
// What changes, besides rounding: on the way values may exceed 65504, the largest f16, where the model had infinity; they become
// infinite where they become halves. Masks are numbers like others: -65504 + x is not rounded to -65504, and two such masks in
// a row do not add up to -inf, whose softmax would not be a number; rows that are masked throughout keep the differences of
// their scores. -inf in a constant stays -inf. Bounds that an operator takes from its type (Clip without one) are f32's.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "graph/ops/common.h"
#include "graph/passes/convolution_cost.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "tensor/instructions.h"

namespace mcc::graph {
namespace {

bool is_half(ElementType element) { return is_float(element) && bit_width(element) == 16; }

// Of a DequantizeLinear: in place of the type of its scale, which is the same once both are f32.
constexpr const char* kTypeOfResult = "output_dtype";

// Not continuous, or defined by the type.
constexpr std::array<std::string_view, 9> kOfRounded = {"CastLike", "Ceil", "Floor",  "Hardmax",        "Mod",
                                                        "Round",    "Sign", "Shrink", "ThresholdedRelu"};

class WidenHalves {
 public:
  WidenHalves(Graph& g, const tensor::Target& t)
      : g_(g),
        t_(t),
        wide_(g),
        is_known_(known_values(g)),
        is_quantized_(quantizes_halves(g)),
        weight_bytes_(static_cast<double>(weight_bytes(g))) {
    for (Value& v : wide_.values) {
      if (is_half(v.type.element)) v.type.element = ElementType::f32;
    }
    for (Node& n : wide_.nodes)
      if (is_op(n, "DequantizeLinear")) n.attributes.erase(kTypeOfResult);
  }

  void run() {
    if (!std::any_of(g_.nodes.begin(), g_.nodes.end(), [&](const Node& n) { return multiplies_halves(n); })) return;
    const size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n)
      rewrite(static_cast<NodeId>(n));
    for (ValueId& out : g_.outputs) {
      if (narrow_.count(out) == 0) continue;
      const ValueId wide = out;
      out = in_type(wide, narrow_.at(wide));
      std::swap(g_.value(out).name, g_.value(wide).name);
    }
    g_.compact();
  }

 private:
  const TensorType& type(ValueId v) const { return g_.value(v).type; }
  // 1 where shapes are not known yet: then all count the same.
  double count(ValueId v) const { return is_static(type(v).shape) ? static_cast<double>(static_count(type(v).shape)) : 1; }

  bool is_known(ValueId v) const { return is_known_[static_cast<size_t>(v)]; }

  bool multiplies_halves(const Node& n) const {
    const bool multiplies = n.op->fusion == FusionClass::contraction || n.op->layout == LayoutRole::recurrent;
    return !n.dead && multiplies && std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueId v) {
      return v != kNoValue && is_half(type(v).element);
    });
  }

  // Weights that are computed are halves like others until they are read, unless they are dequantised in a quantised model.
  bool stays(const Node& n) const {
    const bool known = std::all_of(n.outputs.begin(), n.outputs.end(),
                                   [&](ValueId v) { return v == kNoValue || is_known(v); });
    return n.dead || (known && !(is_quantized_ && is_op(n, "DequantizeLinear")));
  }

  void rewrite(NodeId id) {
    if (stays(g_.node(id))) return;
    const bool widens = is_widened(id);
    bool is_mixed = false;
    for (size_t i = 0; i < g_.node(id).inputs.size(); ++i) {
      const ValueId v = g_.node(id).inputs[i];
      if (v == kNoValue) continue;
      ValueId read = v;
      if (!widens) {
        if (auto was = narrow_.find(v); was != narrow_.end()) read = in_type(v, was->second);
      } else if (is_half(type(v).element)) {
        const bool keeps = reads_halves(g_.node(id), i);
        is_mixed |= keeps;
        if (!keeps) read = in_type(v, ElementType::f32);
      }
      g_.node(id).inputs[i] = read;
    }
    if (!widens) return;
    if (is_mixed) g_.node(id).attributes.set(kWideResult, int64_t{1});
    if (is_op(g_.node(id), "DequantizeLinear")) g_.node(id).attributes.erase(kTypeOfResult);
    for (ValueId v : g_.node(id).outputs) {
      if (v == kNoValue || !is_half(type(v).element)) continue;
      narrow_[v] = type(v).element;
      g_.value(v).type.element = ElementType::f32;
    }
  }

  // Whether the node makes floats, of halves f32 once its operands are that; or bytes of them.
  bool is_widened(NodeId id) const {
    const Node& n = g_.node(id);
    if (is_op(n, "QuantizeLinear")) return true;
    // A state has one type: before a loop, in it and behind it.
    if (n.op->control == Control::loop_begin || n.op->control == Control::loop_end) return false;
    if (std::find(kOfRounded.begin(), kOfRounded.end(), n.op->name) != kOfRounded.end() || moves_halves(n)) return false;
    const Result<std::vector<TensorType>> types = infer_types(wide_, wide_.node(id));
    if (!types.ok()) return false;
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      const ValueId v = n.outputs[i];
      if (v == kNoValue) continue;
      const ElementType wide = (*types)[i].element;
      if (!is_float(wide) || wide != wide_.value(v).type.element) return false;
    }
    return true;
  }

  // Whether most of the elements that the node moves, or widens itself, are halves.
  bool moves_halves(const Node& n) const {
    const bool is_one = is_op(n, "Gather") || is_op(n, "Cast") || is_op(n, "Narrow");
    const size_t moved = is_one || n.op->updates_first_input ? 1 : moved_inputs(n);
    double halves = 0, wide = 0;
    for (size_t i = 0; i < moved; ++i)
      (is_half(type(n.inputs[i]).element) ? halves : wide) += count(n.inputs[i]);
    return halves > wide;
  }

  // Whether a matrix product fetches an operand in halves and widens what it has fetched, for each tile of rows anew. Convolutions
  // read their weights for so many places that they do not.
  bool reads_halves(const Node& n, size_t i) const {
    if (t_.kind != tensor::TargetKind::cpu) return false;
    if ((n.op->layout != LayoutRole::matmul && n.op->layout != LayoutRole::gemm) || i > 1) return false;
    const Shape& a = type(n.inputs[0]).shape;
    int64_t depth = 0;
    if (!tensor::as_int(n.attributes.integer("transA", 0) != 0 ? a.front() : a.back(), &depth)) return false;
    const double elements = count(n.inputs[i]), products = count(n.outputs[0]) * static_cast<double>(depth);
    const double tile = t_.vector_registers < 32 ? 6 : 12;  // rows of a tile of sums in registers
    const bool by_instruction = type(n.inputs[i]).element == ElementType::bf16 || tensor::has_feature(t_, "f16c");
    const double cycles = by_instruction ? 1 : 8;  // of a vector
    const double widenings = elements * std::ceil(products / elements / tile) / t_.lanes(32) * cycles;
    const double as_halves = product_us(products, 2 * elements, weight_bytes_, t_) + widenings / (t_.ghz * 1e3);
    // What varies is read, and written, once more.
    const double moved = is_known(n.inputs[i]) ? 0 : 6 * elements / (t_.l2.gb_per_s * 1e3);
    return as_halves < product_us(products, 4 * elements, 2 * weight_bytes_, t_) + moved;
  }

  // The value in another type; one conversion for all who read it so.
  ValueId in_type(ValueId v, ElementType element) {
    const auto [at, is_new] = converted_.try_emplace(v, kNoValue);
    if (is_new) {
      const NodeId producer = g_.value(v).producer;
      at->second = converted(g_, producer >= 0 ? g_.node(producer).name : g_.value(v).name, v, element);
    }
    return at->second;
  }

  Graph& g_;
  const tensor::Target& t_;
  Graph wide_;  // the same with all halves in f32
  const std::vector<bool> is_known_;
  const bool is_quantized_;
  const double weight_bytes_;
  std::map<ValueId, ElementType> narrow_;  // what the values were that are f32 now
  std::map<ValueId, ValueId> converted_;   // to f32, or from it
};

}  // namespace

bool quantizes_halves(const Graph& graph) {
  const std::vector<bool> is_known = known_values(graph);
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) {
    if (n.dead || !is_op(n, "QuantizeLinear")) return false;
    return is_half(graph.value(n.inputs[0]).type.element) && !is_known[static_cast<size_t>(n.inputs[0])];
  });
}

void widen_halves(Graph& graph, const tensor::Target& target) {
  if (target.kind == tensor::TargetKind::cpu || quantizes_halves(graph)) WidenHalves(graph, target).run();
}

}  // namespace mcc::graph
