// What passes over statements share: the facts around a place, and small questions about expressions.
#pragma once

#include <utility>

#include "tensor/simplify.h"
#include "tensor/visit.h"

namespace mcc::tensor {

// A mutator that knows the ranges of the loops and the conditions around the place where it is.
class ScopedMutator : public Mutator {
 protected:
  using Mutator::on;
  Stmt on(const For& n, const Stmt& self) override;
  Stmt on(const If& n, const Stmt& self) override;

  // The result of f; what f tells the analyzer is forgotten afterwards.
  template <class F>
  std::invoke_result_t<F> in_scope(F&& f) {
    Analyzer saved = analyzer_;
    auto result = f();
    analyzer_ = std::move(saved);
    return result;
  }

  Analyzer analyzer_;
};

// The same loop with other parts; undefined when there is no body left.
Stmt with_body(const For& loop, const Stmt& body);
Stmt with_kind(const For& loop, LoopKind kind, const Stmt& body);

// s with every occurrence of a comparison that equals term replaced by a truth value.
Stmt replace_term(const Stmt& s, const Expr& term, bool truth);

// Neighbours under the same condition, which loads nothing, under one.
std::vector<Stmt> merge_conditions(const std::vector<Stmt>& stmts);

bool has_load(const Expr& e);
bool loads_from(const Expr& e, const Buffer& buffer);
// Whether e mentions any variable for which f holds.
bool uses_any_var(const Expr& e, const std::function<bool(const VarNode*)>& f);
bool has_loop(const Stmt& s);
// Whether s is nothing but a call of the function.
bool is_call(const Stmt& s, Intrinsic function);
// Number of stores and evaluations in s, loops counted once.
int64_t count_leaves(const Stmt& s);
// Bytes of a buffer, when its shape is constant.
std::optional<int64_t> constant_bytes(const Buffer& buffer);

}  // namespace mcc::tensor
