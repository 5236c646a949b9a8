// Walking and rewriting the tensor IR.
#pragma once

#include <functional>
#include <unordered_map>

#include "tensor/stmt.h"

namespace mcc::tensor {

// Calls f with the node as its concrete type: dispatch(e, [](const auto& node) { ... }).
template <class F>
decltype(auto) dispatch(const Expr& e, F&& f) {
  switch (e.kind()) {
    case ExprKind::Var:
      return f(*static_cast<const VarNode*>(e.get()));
#define X(Name)        \
  case ExprKind::Name: \
    return f(*static_cast<const Name*>(e.get()));
      X(IntImm)
      X(FloatImm) X(Cast) X(Binary) X(Select) X(Load) X(Ramp) X(Broadcast) X(Shuffle) X(VectorReduce) X(Call)
#undef X
  }
  MCC_UNREACHABLE("unknown expression kind");
}

template <class F>
decltype(auto) dispatch(const Stmt& s, F&& f) {
  switch (s.kind()) {
#define X(Name)        \
  case StmtKind::Name: \
    return f(*static_cast<const Name*>(s.get()));
    MCC_STMT_NODES(X)
#undef X
  }
  MCC_UNREACHABLE("unknown statement kind");
}

// Visits every node, parents first. Override what is of interest and call the base to go deeper. Buffers'
// shapes are not entered; block axes' domains, values and predicates are, regions are not.
class Visitor {
 public:
  virtual ~Visitor() = default;
  void visit(const Expr& e);  // an undefined expression or statement is skipped
  void visit(const Stmt& s);

 protected:
  virtual void on(const IntImm&) {}
  virtual void on(const FloatImm&) {}
  virtual void on(const VarNode&) {}
  virtual void on(const Cast& n);
  virtual void on(const Binary& n);
  virtual void on(const Select& n);
  virtual void on(const Load& n);
  virtual void on(const Ramp& n);
  virtual void on(const Broadcast& n);
  virtual void on(const Shuffle& n);
  virtual void on(const VectorReduce& n);
  virtual void on(const Call& n);
  virtual void on(const For& n);
  virtual void on(const Block& n);
  virtual void on(const Store& n);
  virtual void on(const Seq& n);
  virtual void on(const If& n);
  virtual void on(const Let& n);
  virtual void on(const Allocate& n);
  virtual void on(const Evaluate& n);
};

// Rebuilds bottom-up. Where nothing changes the same node comes back. A statement rewritten to undefined is
// removed. Override what is of interest; the second argument is the node as a handle, to return when unchanged.
class Mutator {
 public:
  virtual ~Mutator() = default;
  Expr mutate(const Expr& e);
  Stmt mutate(const Stmt& s);
  std::vector<Expr> mutate(const std::vector<Expr>& list, bool* changed);
  Region mutate(const Region& region, bool* changed);

 protected:
  virtual Expr on(const IntImm&, const Expr& self) { return self; }
  virtual Expr on(const FloatImm&, const Expr& self) { return self; }
  virtual Expr on(const VarNode&, const Expr& self) { return self; }
  virtual Expr on(const Cast& n, const Expr& self);
  virtual Expr on(const Binary& n, const Expr& self);
  virtual Expr on(const Select& n, const Expr& self);
  virtual Expr on(const Load& n, const Expr& self);
  virtual Expr on(const Ramp& n, const Expr& self);
  virtual Expr on(const Broadcast& n, const Expr& self);
  virtual Expr on(const Shuffle& n, const Expr& self);
  virtual Expr on(const VectorReduce& n, const Expr& self);
  virtual Expr on(const Call& n, const Expr& self);
  virtual Stmt on(const For& n, const Stmt& self);
  virtual Stmt on(const Block& n, const Stmt& self);
  virtual Stmt on(const Store& n, const Stmt& self);
  virtual Stmt on(const Seq& n, const Stmt& self);
  virtual Stmt on(const If& n, const Stmt& self);
  virtual Stmt on(const Let& n, const Stmt& self);
  virtual Stmt on(const Allocate& n, const Stmt& self);
  virtual Stmt on(const Evaluate& n, const Stmt& self);
  // Loads, stores and regions ask here for their buffer.
  virtual Buffer on_buffer(const Buffer& buffer) { return buffer; }
};

// Keyed by identity.
using VarMap = std::unordered_map<const ExprNode*, Expr>;
using BufferMap = std::unordered_map<const BufferNode*, Buffer>;

Expr substitute(const Expr& e, const VarMap& map);
Stmt substitute(const Stmt& s, const VarMap& map);
Stmt replace_buffers(const Stmt& s, const BufferMap& map);

// Whether the expression or statement mentions the variable.
bool uses_var(const Expr& e, const Var& var);
bool uses_var(const Stmt& s, const Var& var);

// The regions that a statement (free of blocks or with blocks) reads and writes, as the boxes of its loads and
// stores with single points for each index, and whole dimensions where an index has variables of the statement itself;
// duplicates are merged when equal. Used by Block::make.
void collect_accesses(const Stmt& s, std::vector<Region>* reads, std::vector<Region>* writes);

// f for every expression node / statement node below (and including) s.
void for_each_expr(const Stmt& s, const std::function<void(const Expr&)>& f);
void for_each_stmt(const Stmt& s, const std::function<void(const Stmt&)>& f);

}  // namespace mcc::tensor
