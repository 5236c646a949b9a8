// Recurrent layers whose states are rounded to bytes (onnxruntime's DynamicQuantizeLSTM) multiply bytes:
//   LSTM(DequantizeLinear(x), DequantizeLinear(w), DequantizeLinear(r))
//       becomes   mcc.ByteLSTM(f32(MatMulBytes(x, w) - corrections) * xs * ws + biases, r, ...)   for each direction
// The weights of the state have no zero point: that takes another sum of the state in each step.
#include "graph/passes/use_byte_layers.h"

#include "graph/passes/byte_products.h"
#include "graph/passes/passes.h"

namespace mcc::graph {
namespace {

// Positions of LSTM's inputs.
constexpr size_t kX = 0, kW = 1, kR = 2, kBias = 3, kLengths = 4, kInputs = 8;
constexpr int64_t kGates = 4;
constexpr size_t kResults = 3;

class UseByteLayers : private ByteProducts {
 public:
  UseByteLayers(Graph& g, const tensor::Target& t) : ByteProducts(g, t) {}

  void run() {
    const size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n) {
      const auto id = static_cast<NodeId>(n);
      if (!g_.node(id).dead && is_op(g_.node(id), "LSTM") &&
          g_.node(id).attributes.integer("mcc_rounds_state", 0) != 0)
        layer(id);
    }
    eliminate_dead_code(g_);
    g_.compact();
  }

 private:
  void layer(NodeId id) {
    const Node node = g_.node(id);
    const NodeId maker = g_.value(node.inputs[kX]).producer;
    if (node.attributes.integer("layout", 0) != 0 || maker < 0 || !is_op(g_.node(maker), "DequantizeLinear"))
      return;
    const std::vector<int64_t> shape = static_shape(type(node.inputs[kR]).shape);
    directions_ = shape[0];
    hidden_ = shape[2];
    const int64_t lines = directions_ == 1 ? 1 : 0;  // a scale for each gate, or each direction
    const std::optional<Quantized> w = dequantized(node.inputs[kW], lines),
                                   r = dequantized(node.inputs[kR], lines);
    // Functions of two directions have their numbers in one list.
    if (!w || !r || (kGates * hidden_) % lanes_ != 0 ||
        (directions_ > 1 && node.attributes.has("activations")))
      return;
    name_ = node.name;
    std::vector<std::vector<ValueId>> of_directions(kResults);
    for (int64_t d = 0; d < directions_; ++d) {
      const std::optional<Weights> of_input = weights_of(*w, d, 0), of_state = weights_of(*r, d, 1);
      if (!of_input || !of_state || of_state->zero != kNoValue) return;
      std::vector<ValueId> inputs{projected(node, *of_input, part(w->scale, d), d), of_state->packed,
                                  columns(part(r->scale, d)), of_state->sums};
      for (size_t i = kLengths; i < kInputs; ++i)
        inputs.push_back(i == kLengths ? input(node, i) : slice(input(node, i), d, {}));
      const ValueId y =
          emit(g_, "mcc", "ByteLSTM", node.name, inputs, attributes(node, d), static_cast<int>(kResults));
      Node& made = g_.node(g_.value(y).producer);
      made.origins = node.origins;
      for (size_t k = 0; k < kResults; ++k)
        of_directions[k].push_back(made.outputs[k]);
    }
    for (size_t k = 0; k < kResults; ++k)
      finish(k < node.outputs.size() ? node.outputs[k] : kNoValue, k, of_directions[k]);
    g_.node(id).dead = true;
  }

  // Result k of the layer from those of its directions; kNoValue: nobody wants it.
  void finish(ValueId result, size_t k, const std::vector<ValueId>& of_directions) {
    if (result != kNoValue && directions_ > 1) {
      Attributes a;
      a.set("axis", static_cast<int64_t>(k == 0 ? 1 : 0));
      return take_place(g_, result, make("Concat", of_directions, a));
    }
    for (ValueId own : of_directions) {
      const NodeId maker = g_.value(own).producer;
      g_.node(maker).outputs[k] = result;
      if (result == kNoValue) continue;
      g_.value(result).producer = maker;
      g_.value(result).output_index = static_cast<int>(k);
    }
  }

  Attributes attributes(const Node& node, int64_t d) const {
    Attributes a = node.attributes;
    a.erase("mcc_rounds_state");
    a.set("hidden_size", hidden_);
    if (directions_ > 1) a.set("direction", std::string(d == 0 ? "forward" : "reverse"));
    return a;
  }

  // The direction's part of a constant that has one for each, or of one that all have; [parts, ...] without the first axis.
  ValueId part(ValueId v, int64_t d, std::vector<int64_t> shape = {}) {
    const Constant* c = constant(v);
    if (!c || directions_ == 1 || c->count() % directions_ != 0 || c->count() == 1)
      return shape.empty() || !c ? v : reshaped_constant(*c, c->bytes(), shape);
    const size_t bytes = c->bytes().size() / static_cast<size_t>(directions_);
    if (shape.empty()) shape = {c->count() / directions_};
    return reshaped_constant(*c, c->bytes().subspan(static_cast<size_t>(d) * bytes, bytes), shape);
  }
  ValueId reshaped_constant(const Constant& c, std::span<const std::byte> bytes,
                            const std::vector<int64_t>& shape) {
    return g_.add_constant(name_ + ".part", Constant::copy_of(c.element(), shape, bytes));
  }

  // Of one direction's weights [gates, K]. rows: of the product; 0 where that is not known.
  std::optional<Weights> weights_of(const Quantized& q, int64_t d, int64_t rows) {
    const Constant* values = constant(q.value);
    if (!values) return std::nullopt;
    const ValueId own = part(q.value, d, {kGates * hidden_, values->shape()[2]});
    return weights(own, {1, 0}, q.zero == kNoValue ? kNoValue : part(q.zero, d), rows);
  }

  // One number for each gate.
  ValueId columns(ValueId scale) {
    return make("Expand", {scale, g_.add_constant(name_ + ".columns", Constant::ints({kGates * hidden_}))});
  }

  // v[d : d + 1, first : last], or with all columns; v itself where there is one direction.
  ValueId slice(ValueId v, int64_t d, const std::vector<int64_t>& of_columns) {
    if (v == kNoValue || (directions_ == 1 && of_columns.empty())) return v;
    std::vector<int64_t> starts{d}, ends{d + 1}, axes{0};
    if (!of_columns.empty()) {
      starts.push_back(of_columns[0]);
      ends.push_back(of_columns[1]);
      axes.push_back(1);
    }
    auto ints = [&](const std::vector<int64_t>& list) {
      return g_.add_constant(name_ + ".slice", Constant::ints(list));
    };
    return make("Slice", {v, ints(starts), ints(ends), ints(axes)});
  }

  // [steps, batch, gates]: what the inputs, and the biases of both products, add to the gates.
  ValueId projected(const Node& node, const Weights& w, ValueId scale, int64_t d) {
    const std::vector<ValueId> x =
        g_.node(g_.value(node.inputs[kX]).producer).inputs;  // bytes, their scale and zero point
    const ValueId factor = make("Mul", {reshaped(x[1], {1}), scale});
    const ValueId sums = integer_product(x[0], x.size() > 2 ? x[2] : kNoValue, w);
    ValueId y = make("Mul", {converted(sums, kOnnxF32), factor});
    const ValueId bias = input(node, kBias);
    const int64_t gates = kGates * hidden_;
    for (int64_t k = 0; k < 2 && bias != kNoValue; ++k)
      y = make("Add", {y, reshaped(slice(bias, d, {k * gates, (k + 1) * gates}), {gates})});
    return y;
  }

  int64_t directions_ = 1, hidden_ = 0;
};

}  // namespace

void use_byte_layers(Graph& graph, const tensor::Target& target) { UseByteLayers(graph, target).run(); }

}  // namespace mcc::graph
