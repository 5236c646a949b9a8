// What the verifier knows at a place of the function, and how it reports.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "tensor/text.h"
#include "tensor/verify.h"

namespace mcc::tensor::verifier {

// A rule on one node alone: what it says, and whether it holds.
template <class Node>
struct Rule {
  std::string_view says;
  bool (*holds)(const Node&);
};

struct BufferFacts {
  bool is_input = false;
  int parallel_depth = 0;  // parallel loops around its allocation
};

struct Context {
  const Func& func;
  const Stage stage;
  std::unordered_set<const ExprNode*> vars;  // in sight
  std::unordered_map<const BufferNode*, BufferFacts> buffers;
  std::vector<const For*> loops;  // around here, outermost first
  std::vector<Expr> conditions;   // of Ifs around here, and of the block
  int parallel_depth = 0;
  std::vector<const StmtNode*> path;
  std::vector<std::string> violations;

  // "RULE: detail (in for i > block y > y[i] = x[j])"
  void report(std::string_view rule, const std::string& detail = "");

  template <class Node, size_t n>
  void check(const Rule<Node> (&rules)[n], const Node& node) {
    for (const Rule<Node>& rule : rules) {
      if (rule.holds(node)) continue;
      if constexpr (std::is_base_of_v<ExprNode, Node>) {
        report(rule.says, to_text(Expr(&node)));
      } else {
        report(rule.says);
      }
    }
  }
};

// Every node of the expression: types, variables and buffers in sight.
void check_expr(Context& context, const Expr& e);
void check_access(Context& context, const Buffer& buffer);
// Axes, bindings, init, regions. Called with the loops and conditions around the block, the block's own included.
void check_block(Context& context, const Block& block);

}  // namespace mcc::tensor::verifier
