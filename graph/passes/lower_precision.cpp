// Contractions with operands of a narrower float type: what they read is converted where it is made.
//
//   y = MatMul(Transpose(x), w)        becomes        y = MatMul(Transpose(Narrow(x)), Narrow(w)), which sums in f32 and gives f32
//
// A conversion moves up through operators that only move elements or choose among them, as long as nobody else reads what they
// move; so it joins the kernel that computes the value. Elementwise operators that read a value which has a narrow copy of 16 bits read that copy: the
// value itself then never goes to memory.
#include <algorithm>
#include <map>

#include "graph/ops/common.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

class LowerPrecision {
 public:
  LowerPrecision(Graph& g, ElementType type) : g_(g), type_(type), users_(g.users()) {}

  void run() {
    const size_t count = g_.nodes.size();
    std::vector<NodeId> contractions;
    for (size_t n = 0; n < count; ++n) {
      const auto id = static_cast<NodeId>(n);
      if (operands_of(id) > 0) contractions.push_back(id);
    }
    for (NodeId id : contractions) {
      for (int i = 0; i < operands_of(id); ++i)
        is_narrow_[{id, i}] = true;
    }
    for (NodeId id : contractions) {
      const int operands = operands_of(id);
      for (int i = 0; i < operands; ++i) {
        const ValueId narrow = narrowed(g_.node(id).inputs[static_cast<size_t>(i)]);
        g_.node(id).inputs[static_cast<size_t>(i)] = narrow;
      }
      g_.node(id).attributes.set(kWideResult, int64_t{1});
    }
    if (bit_width(type_) < 32) read_copies(count);
    g_.compact();
  }

 private:
  const TensorType& type(ValueId v) const { return g_.value(v).type; }

  // How many inputs of the node are factors of a contraction in f32; 0 for anything else. Convolutions in groups gain from
  // operands of half the size, and not from others.
  int operands_of(NodeId id) const {
    const Node& n = g_.node(id);
    if (n.dead || n.op->fusion != FusionClass::contraction) return 0;
    const bool is_attention = is_op(n, "Attention") && n.op->domain == "mcc";
    const bool is_product =
        n.op->domain.empty() && (is_op(n, "MatMul") || is_op(n, "Gemm") || is_op(n, "Conv") ||
                                 (is_op(n, "Einsum") && n.inputs.size() == 2));
    if (!is_attention && !is_product) return 0;
    if (is_op(n, "Conv") && n.attributes.integer("group", 1) != 1 && bit_width(type_) == 32) return 0;
    const int operands = is_attention ? 3 : 2;
    for (int i = 0; i < operands; ++i) {
      if (type(n.inputs[static_cast<size_t>(i)]).element != ElementType::f32) return 0;
    }
    return operands;
  }

  // Every element of the result is one of input 0's, and the same one after a conversion, which keeps their order.
  static bool only_moves(const Node& n) {
    const bool moves = n.op->is_view || n.op->name == "Transpose" || n.op->name == "MaxPool";
    return moves && n.op->domain.empty() && n.outputs.size() == 1;
  }

  // Whether all who read the value want it narrow.
  bool is_wanted_narrow(ValueId v) const {
    if (g_.is_output(v) || users_[static_cast<size_t>(v)].empty()) return false;
    for (NodeId user : users_[static_cast<size_t>(v)]) {
      const Node& n = g_.node(user);
      for (size_t i = 0; i < n.inputs.size(); ++i) {
        if (n.inputs[i] != v) continue;
        const bool is_operand = is_narrow_.count({user, static_cast<int>(i)}) != 0;
        const bool is_moved = i == 0 && only_moves(n) && is_wanted_narrow(n.outputs[0]);
        if (!is_operand && !is_moved) return false;
      }
    }
    return true;
  }

  ValueId narrowed(ValueId v) {
    auto it = narrow_.find(v);
    if (it != narrow_.end()) return it->second;
    const NodeId producer = g_.value(v).producer;
    ValueId out = kNoValue;
    if (producer >= 0 && only_moves(g_.node(producer)) && is_wanted_narrow(v)) {
      const Node mover = g_.node(producer);
      std::vector<ValueId> inputs = mover.inputs;
      inputs[0] = narrowed(inputs[0]);
      out = emit(g_, mover.op->domain, mover.op->name, mover.name, inputs, mover.attributes);
      g_.node(g_.value(out).producer).origins = mover.origins;
    } else {
      Attributes to;
      to.set("to", std::string(mcc::to_text(type_)));
      out = emit(g_, "mcc", "Narrow", producer >= 0 ? g_.node(producer).name : g_.value(v).name, {v}, to);
      copies_[v] = out;
    }
    narrow_[v] = out;
    return out;
  }

  void read_copies(size_t count) {
    for (const auto& [value, copy] : copies_) {
      if (g_.value(value).producer < 0 || g_.is_output(value)) continue;
      ValueId wide = kNoValue;
      for (NodeId user : users_[static_cast<size_t>(value)]) {
        if (static_cast<size_t>(user) >= count || g_.node(user).dead ||
            g_.node(user).op->fusion != FusionClass::elementwise)
          continue;
        if (wide == kNoValue) {
          Attributes to;
          to.set("to", std::string(mcc::to_text(ElementType::f32)));
          wide = emit(g_, "mcc", "Narrow", g_.node(user).name, {copy}, to);
        }
        std::replace(g_.node(user).inputs.begin(), g_.node(user).inputs.end(), value, wide);
      }
    }
  }

  Graph& g_;
  const ElementType type_;
  const std::vector<std::vector<NodeId>> users_;
  std::map<std::pair<NodeId, int>, bool> is_narrow_;  // inputs of contractions
  std::map<ValueId, ValueId> narrow_, copies_;        // of each value; those made by a conversion
};

}  // namespace

void lower_precision(Graph& graph, ElementType type) {
  if (type != ElementType::f32) LowerPrecision(graph, type).run();
}

}  // namespace mcc::graph
