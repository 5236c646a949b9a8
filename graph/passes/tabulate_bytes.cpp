// What is computed of one byte alone, element by element, up to a byte is a table of 256 results:
//
//   s = QuantizeLinear(Sigmoid(DequantizeLinear(q)))
//   y = QuantizeLinear(DequantizeLinear(q) * DequantizeLinear(s))      becomes    y = mcc.LookUp(q, table)
//
// The nodes are applied to all bytes, side by side, and that is folded: a table holds what they give, to the bit. On CPUs:
// where registers hold a table, a vector of bytes is looked up in a few instructions; elsewhere each is loaded, which takes less time than a
// mathematical function.
#include <algorithm>
#include <map>
#include <numeric>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "tensor/instructions.h"
#include "tensor/intrinsics.h"
#include "tensor/visit.h"

namespace mcc::graph {
namespace {

constexpr int64_t kBytes = 256;
// Nodes in the place of which a table pays: more than a conversion and another.
constexpr size_t kFewestNodes = 3;

bool is_byte(ElementType element) { return element == ElementType::u8 || element == ElementType::i8; }

class TabulateBytes {
 public:
  TabulateBytes(Graph& g, const tensor::Target& target)
      : g_(g), in_registers_(tensor::looks_up_bytes(target)), sources_(g.values.size(), kNoValue) {}

  void run() {
    const size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n)
      find_source(static_cast<NodeId>(n));
    // The last ones first: their tables are made by the nodes of the model.
    for (size_t n = count; n-- > 0;)
      tabulate(static_cast<NodeId>(n));
    eliminate_dead_code(g_);
    g_.compact();
  }

 private:
  const TensorType& type(ValueId v) const { return g_.value(v).type; }

  // The tensor of bytes of whose element at the same place an element of v is a function; kNoValue: there is none. What is known now is
  // folded.
  ValueId source(ValueId v) const {
    if (g_.value(v).constant) return kNoValue;
    const ValueId found =
        static_cast<size_t>(v) < sources_.size() ? sources_[static_cast<size_t>(v)] : kNoValue;
    return found == kNoValue && is_byte(type(v).element) ? v : found;
  }

  // One number, whatever its shape.
  bool is_number(ValueId v) const { return v == kNoValue || uniform_value(g_, v).has_value(); }

  void find_source(NodeId id) {
    const Node& node = g_.node(id);
    if (node.dead || node.op->fusion != FusionClass::elementwise || node.outputs.size() != 1 ||
        node.attributes.has("block_size"))
      return;
    ValueId found = kNoValue;
    for (ValueId v : node.inputs) {
      if (is_number(v)) continue;
      const ValueId of = source(v);
      if (of == kNoValue || (found != kNoValue && of != found)) return;
      found = of;
    }
    if (found == kNoValue || !same_shape(type(found).shape, type(node.outputs[0]).shape)) return;
    sources_[static_cast<size_t>(node.outputs[0])] = found;
  }

  void tabulate(NodeId id) {
    const Node node = g_.node(id);
    if (node.dead || node.outputs.size() != 1 || !is_byte(type(node.outputs[0]).element)) return;
    const ValueId y = node.outputs[0], q = source(y);
    std::vector<NodeId> nodes;  // from q to y
    collect(y, q, nodes);
    if (nodes.size() < kFewestNodes ||
        !(in_registers_ || std::any_of(nodes.begin(), nodes.end(), [&](NodeId n) { return is_slow(n); })))
      return;
    name_ = node.name;
    tables_.clear();
    const ValueId table = reshaped(g_, name_, table_of(y, q), Shape{kBytes});
    const ValueId made = emit(g_, "mcc", "LookUp", name_, {q, table});
    Node& look_up = g_.node(g_.value(made).producer);
    for (NodeId n : nodes)
      add_origins(look_up, g_.node(n));
    take_place(g_, y, made);
    g_.node(id).dead = true;
  }

  void collect(ValueId v, ValueId q, std::vector<NodeId>& nodes) const {
    if (v == q || is_number(v)) return;
    const NodeId id = g_.value(v).producer;
    if (std::find(nodes.begin(), nodes.end(), id) != nodes.end()) return;
    for (ValueId input : g_.node(id).inputs)
      collect(input, q, nodes);
    nodes.push_back(id);
  }

  // Whether it computes a mathematical function.
  bool is_slow(NodeId id) const {
    bool is = false;
    tensor::for_each_expr(build_node_func(g_, g_.node(id)).body, [&](const tensor::Expr& e) {
      const auto* call = e.as<tensor::Call>();
      is |= call && tensor::is_slow(call->function);
    });
    return is;
  }

  // What v is for each byte that q may be, in the order of their bits.
  ValueId table_of(ValueId v, ValueId q) {
    if (v == kNoValue) return v;
    if (v != q && is_number(v)) {
      const Constant& all = *g_.value(v).constant;
      const auto size = static_cast<size_t>(byte_size(all.element()));
      return g_.add_constant(name_ + ".number", Constant::copy_of(all.element(), {}, all.bytes().first(size)));
    }
    auto [it, is_new] = tables_.emplace(v, kNoValue);
    if (!is_new) return it->second;
    if (v == q) {
      std::vector<uint8_t> all(kBytes);
      std::iota(all.begin(), all.end(), uint8_t{0});
      return it->second = g_.add_constant(name_ + ".bytes", Constant::copy_of(type(q).element, {kBytes},
                                                                              std::as_bytes(std::span(all))));
    }
    const Node node = g_.node(g_.value(v).producer);
    std::vector<ValueId> inputs;
    for (ValueId input : node.inputs)
      inputs.push_back(table_of(input, q));
    return tables_[v] = emit(g_, node.op->domain, node.op->name, name_ + ".table", inputs, node.attributes);
  }

  Graph& g_;
  const bool in_registers_;
  std::vector<ValueId> sources_;       // of what is computed of a tensor of bytes
  std::map<ValueId, ValueId> tables_;  // of the values that the node at hand is made of
  std::string name_;
};

}  // namespace

void tabulate_bytes(Graph& graph, const tensor::Target& target) {
  if (target.kind == tensor::TargetKind::cpu) TabulateBytes(graph, target).run();
}

}  // namespace mcc::graph
