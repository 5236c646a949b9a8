// Contractions with operands of a narrower float type: what they read is converted where it is made.
//
//   y = MatMul(Transpose(x), w)        becomes        y = MatMul(Transpose(Narrow(x)), Narrow(w)), which sums in f32 and gives f32
//
// A conversion moves up through operators that only move elements or choose among them, as long as all who read what they move
// can do with it narrow; so it joins the kernel that computes the value. Elementwise operators and means of windows that read a value
// which has a narrow copy read that copy: the value itself then never goes to memory.
#include <algorithm>
#include <map>

#include "graph/ops/common.h"
#include "graph/passes/convolution_cost.h"
#include "graph/passes/merge_groups.h"
#include "graph/passes/pack_attention.h"
#include "graph/passes/pack_products.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

class LowerPrecision {
 public:
  LowerPrecision(Graph& g, ElementType type, const tensor::Target& t) : g_(g), type_(type), t_(t), users_(g.users()) {}

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
    read_copies(count);
    g_.compact();
  }

 private:
  const TensorType& type(ValueId v) const { return g_.value(v).type; }

  // How many inputs of the node are factors of a contraction in f32; 0 for anything else.
  int operands_of(NodeId id) const {
    const Node& n = g_.node(id);
    if (n.dead || n.op->fusion != FusionClass::contraction) return 0;
    const bool is_attention = is_op(n, "Attention") && n.op->domain == "mcc";
    const bool is_product =
        is_op(n, "SelectedMatMul") ||
        (n.op->domain.empty() && (is_op(n, "MatMul") || is_op(n, "Gemm") || is_op(n, "Conv") ||
                                  (is_op(n, "Einsum") && n.inputs.size() == 2)));
    // Weights are unpacked to what they are multiplied by.
    const bool is_unpacked = is_op(n, "MatMulNBits") && n.op->domain == "mcc";
    if (is_unpacked && t_.kind == tensor::TargetKind::cuda && type(n.inputs[0]).element == ElementType::f32)
      return 1;
    if (!is_attention && !is_product) return 0;
    if (is_op(n, "Conv") && n.attributes.integer("group", 1) != 1 && bit_width(type_) == 32 &&
        !is_grouped_product(n))
      return 0;
    const int operands = is_attention ? 3 : 2;
    for (int i = 0; i < operands; ++i) {
      if (type(n.inputs[static_cast<size_t>(i)]).element != ElementType::f32) return 0;
    }
    if (t_.kind == tensor::TargetKind::cpu) return is_in_words(n) ? operands : 0;
    return uses_few_times(n) ? 0 : operands;
  }

  // Whether groups are wide enough for products of matrices; others gain from operands of half the size alone.
  bool is_grouped_product(const Node& n) const {
    const std::optional<ConvProblem> p = conv_problem(g_, n);
    return p && p->is_grouped() && grid_merged_groups(p->group, p->in_channels, p->out_channels) > 0;
  }

  // Whether a CPU multiplies the operands in words: those of attention, and with constant weights, which are packed for that.
  bool is_in_words(const Node& n) const {
    if (is_op(n, "Attention")) return !attention_words(n.attributes.integers("extents"), type_, t_).empty();
    const int64_t word = word_of(type_, t_);
    if (word == 1 || !g_.value(n.inputs[1]).constant) return false;
    if (is_op(n, "Conv")) {
      std::optional<ConvProblem> problem = conv_problem(g_, n);
      if (!problem) return false;
      problem->element = type_;
      return graph::is_in_words(*problem, t_) || problem->is_depthwise();
    }
    const Attributes& a = n.attributes;
    const bool is_selected = is_op(n, "SelectedMatMul");
    const bool is_plain = is_op(n, "MatMul") || is_selected ||
                          (is_op(n, "Gemm") && a.integer("transA", 0) == 0 && a.number("alpha", 1) == 1 &&
                           (n.inputs.size() < 3 || a.number("beta", 1) == 1));
    const Shape &x = type(n.inputs[0]).shape, &w = type(n.inputs[1]).shape;
    const size_t rank = is_selected ? 3 : 2;
    if (!is_plain || x.size() < 2 || w.size() != rank) return false;
    const bool is_transposed = a.integer(is_selected ? "transposed" : "transB", 0) != 0;
    return static_shape(w)[is_transposed ? rank - 1 : rank - 2] % word == 0;
  }

  // Whether an operand that is computed takes part in the products of a few rows or columns only (a step of a decoder, and the keys and
  // values of all before): converting it costs more than reading it as it is, and tensor cores would be idle.
  bool uses_few_times(const Node& n) const {
    constexpr int64_t kFewUses = 8;
    if (is_op(n, "Attention")) {
      const int64_t queries = n.attributes.integers("extents")[0];
      return queries >= 0 && queries < kFewUses;
    }
    if (!is_op(n, "MatMul") || !is_static(type(n.outputs[0]).shape) || !is_static(type(n.inputs[0]).shape) ||
        !is_static(type(n.inputs[1]).shape))
      return false;
    const int64_t products = static_count(type(n.outputs[0]).shape) * static_shape(type(n.inputs[0]).shape).back();
    const ValueId larger = static_count(type(n.inputs[0]).shape) < static_count(type(n.inputs[1]).shape) ? n.inputs[1] : n.inputs[0];
    return !g_.value(larger).constant && products < kFewUses * static_count(type(larger).shape);
  }

  // Whether the mover's results are all wanted narrow, as far as anyone reads them.
  bool is_moved_narrow(const Node& n) {
    return std::all_of(n.outputs.begin(), n.outputs.end(), [&](ValueId out) {
      const bool is_read = out != kNoValue && (g_.is_output(out) || !users_[static_cast<size_t>(out)].empty());
      return !is_read || is_wanted_narrow(out);
    });
  }

  // Whether somebody who reads the value wants it narrow, and all others can read it so.
  bool is_wanted_narrow(ValueId v) {
    if (g_.is_output(v)) return false;
    auto known = wanted_.find(v);
    if (known != wanted_.end()) return known->second;
    bool any = false, all = true;
    for (NodeId user : users_[static_cast<size_t>(v)]) {
      const Node& n = g_.node(user);
      const size_t moved = moved_inputs(n);
      for (size_t i = 0; i < n.inputs.size(); ++i) {
        if (n.inputs[i] != v) continue;
        const bool is_operand = is_narrow_.count({user, static_cast<int>(i)}) != 0;
        const bool is_narrow = is_operand || (i < moved && is_moved_narrow(n));
        any |= is_narrow;
        all &= is_narrow || reads_copies(n);
      }
    }
    return wanted_[v] = any && all;
  }

  // Whether it reads a narrow copy of an operand where there is one.
  bool reads_copies(const Node& n) const {
    return !n.dead && (n.op->fusion == FusionClass::elementwise || is_op(n, "AveragePool"));
  }

  ValueId narrowed(ValueId v) {
    auto it = narrow_.find(v);
    if (it != narrow_.end()) return it->second;
    const NodeId producer = g_.value(v).producer;
    if (producer >= 0 && moved_inputs(g_.node(producer)) > 0 && is_moved_narrow(g_.node(producer))) {
      move(g_.node(producer));
      return narrow_.at(v);
    }
    return narrow_[v] = converted(g_, producer >= 0 ? g_.node(producer).name : g_.value(v).name, v, type_);
  }

  // The same operator, of the narrow forms of what it moves.
  void move(const Node mover) {
    std::vector<ValueId> inputs = mover.inputs;
    for (size_t i = 0; i < moved_inputs(mover); ++i)
      inputs[i] = narrowed(inputs[i]);
    const ValueId first = emit(g_, mover.op->domain, mover.op->name, mover.name, inputs, mover.attributes,
                               static_cast<int>(mover.outputs.size()));
    Node& moved = g_.node(g_.value(first).producer);
    moved.origins = mover.origins;
    for (size_t i = 0; i < mover.outputs.size(); ++i) {
      if (mover.outputs[i] != kNoValue) narrow_[mover.outputs[i]] = moved.outputs[i];
    }
  }

  void read_copies(size_t count) {
    for (const auto& [value, copy] : narrow_) {
      if (g_.value(value).producer < 0 || g_.is_output(value)) continue;
      ValueId wide = kNoValue;
      for (NodeId user : users_[static_cast<size_t>(value)]) {
        if (static_cast<size_t>(user) >= count || !reads_copies(g_.node(user))) continue;
        if (wide == kNoValue) wide = converted(g_, g_.node(user).name, copy, ElementType::f32);
        std::replace(g_.node(user).inputs.begin(), g_.node(user).inputs.end(), value, wide);
      }
    }
  }

  Graph& g_;
  const ElementType type_;
  const tensor::Target& t_;
  const std::vector<std::vector<NodeId>> users_;
  std::map<std::pair<NodeId, int>, bool> is_narrow_;  // inputs of contractions
  std::map<ValueId, bool> wanted_;
  std::map<ValueId, ValueId> narrow_;  // of each value that is read narrow
};

}  // namespace

void lower_precision(Graph& graph, ElementType type, const tensor::Target& target) {
  if (type != ElementType::f32) LowerPrecision(graph, type, target).run();
}

}  // namespace mcc::graph
