// Turns a function into the code that the interpreter runs.
#pragma once

#include <deque>
#include <unordered_map>

#include "tensor/grid.h"
#include "tensor/interpret/code.h"
#include "tensor/visit.h"

namespace mcc::tensor::interpreter {

// One of a statement's exchanges between threads: before the statement runs, each thread's slot gets another thread's value.
struct Exchange {
  std::vector<Operand> values;
  int slot = -1;  // of the result's first lane
  Intrinsic function{};
  int number = 0;  // distance of a shuffle; matrices
  ElementType element{};  // of the values
  const Place* place = nullptr;

  void run(Team& team, const Threads& threads) const;

 private:
  struct Warp;
  void shuffle(const Warp& warp) const;
  void rows(const Warp& warp) const;
  void multiply(const Warp& warp) const;
};

// Everything that lives as long as one call of interpret().
struct Program {
  std::vector<Value> frame;
  std::vector<std::unique_ptr<ExprCode>> exprs;
  std::vector<std::unique_ptr<StmtCode>> stmts;
  std::deque<Memory> memories;
  std::deque<Place> places;
  std::deque<Exchange> exchanges;
  RaceClock clock;
  Team team;
  Tiles tiles;
  int64_t steps_left = 0;  // counted down, at every store and loop iteration, when limited
  bool limited = false;
  bool detect_races = true;

  void count_steps(int64_t steps) {
    if (!limited) return;
    if (steps > steps_left) throw Fault{"the limit of steps is reached"};
    steps_left -= steps;
  }
};

// The shape that the operands give; a fault if it is negative or its size does not fit into 64 bits.
std::vector<int64_t> shape_values(const Buffer& buffer, const std::vector<Operand>& shape, Value* frame);

class Compiler {
 public:
  explicit Compiler(Program& program) : program_(program) {}

  int bind(const Var& var);  // gives the variable a slot of its own
  Memory* add_memory(const Buffer& buffer);
  Memory* find_memory(const Buffer& buffer);  // of an access; a fault if there is none

  Operand expr(const Expr& e);
  const StmtCode* stmt(const Stmt& s);

 private:
  // ---- Expressions (compile_expr.cpp) ----
  Operand compile(const IntImm& n);
  Operand compile(const FloatImm& n);
  Operand compile(const VarNode& n);
  Operand compile(const Cast& n);
  Operand compile(const Binary& n);
  Operand compile(const Select& n);
  Operand compile(const Load& n);
  Operand compile(const Ramp& n);
  Operand compile(const Broadcast& n);
  Operand compile(const Shuffle& n);
  Operand compile(const VectorReduce& n);

  template <BinaryOp op>
  Operand binary(ElementType element, Operand a, Operand b);
  Operand binary(BinaryOp op, ElementType element, Operand a, Operand b);
  template <BinaryOp op>
  Operand vector_reduce(const VectorReduce& n);
  Operand cast(ElementType from, ElementType to, Operand value);

  // ---- Calls (compile_call.cpp) ----
  Operand compile(const Call& n);
  Operand float_function(const Call& n);
  Operand fused_multiply_add(const Call& n);
  Operand multiply_by_sum(const Call& n);
  Operand random_bits(const Call& n);
  Operand absolute(const Call& n);
  Operand bit_cast(const Call& n);
  Operand dot(const Call& n);

  // ---- Code from functions (lanewise.h) ----
  template <class F>
  Operand map(F f, Operand a);
  template <class F>
  Operand map(F f, Operand a, Operand b);
  template <class F>
  Operand map(F f, Operand a, Operand b, Operand c);
  // with(round) for the rounding of the element type.
  template <class F>
  Operand with_rounding(ElementType element, F with);

  // ---- Statements (compile_stmt.cpp) ----
  const StmtCode* compile(const For& n);
  const StmtCode* compile(const Block& n);
  const StmtCode* compile(const Store& n);
  const StmtCode* compile(const Seq& n);
  const StmtCode* compile(const If& n);
  const StmtCode* compile(const Let& n);
  const StmtCode* compile(const Allocate& n);
  const StmtCode* compile(const Evaluate& n);
  // The exchanges between threads in the expressions compiled since the last call.
  std::vector<const Exchange*> take_exchanges() { return std::exchange(exchanges_, {}); }
  void expect_no_exchanges(std::string_view where);

  // ---- The threads of a launch (launch.cpp, exchange.cpp, warpgroup.cpp, bulk.cpp) ----
  const StmtCode* compile_launch(const LaunchForm& launch);
  const StmtCode* barrier();
  Operand exchange(const Call& n);
  const StmtCode* asynchronous(const Call& n);
  const StmtCode* warpgroup(const Call& n);
  const StmtCode* bulk(const Call& n);

  // ---- Tiles (tiles.cpp) ----
  const StmtCode* tile(const Call& n);

  Access access(const Buffer& buffer, const std::vector<Expr>& indices, const Expr& predicate, int lanes);

  template <class Code>
  Operand add_expr(std::unique_ptr<Code> code, int lanes);
  template <class Code>
  const StmtCode* add_stmt(std::unique_ptr<Code> code);

  int new_slots(int count);
  Operand constant(Value value);
  const Place* place();

  // While body runs, the variable is in sight at the slot.
  template <class F>
  void in_scope(const Var& var, int slot, F&& body);

  struct Scope {
    std::string block;
    std::vector<std::pair<std::string, int>> vars;
    const Place* place = nullptr;  // made when first needed
  };

  Program& program_;
  std::unordered_map<const ExprNode*, int> slots_;
  std::unordered_map<int64_t, int> int_constants_;
  std::unordered_map<const BufferNode*, Memory*> memories_;
  std::vector<const For*> parallel_;  // the parallel loops around here
  std::vector<const For*> loops_;     // all loops around here
  bool in_launch_ = false, launch_has_barriers_ = false;
  std::vector<Memory*> launch_privates_;  // what its threads use of the function's list of local buffers
  std::vector<const Exchange*> exchanges_;
  Scope scope_;
};

template <class Code>
Operand Compiler::add_expr(std::unique_ptr<Code> code, int lanes) {
  Operand out;
  out.lanes = lanes;
  out.slot = new_slots(lanes);
  out.code = code.get();
  program_.exprs.push_back(std::move(code));
  return out;
}

template <class Code>
const StmtCode* Compiler::add_stmt(std::unique_ptr<Code> code) {
  program_.stmts.push_back(std::move(code));
  return program_.stmts.back().get();
}

template <class F>
void Compiler::in_scope(const Var& var, int slot, F&& body) {
  auto [it, inserted] = slots_.emplace(var.get(), slot);
  if (!inserted) throw Fault{text("variable ", var.name(), " is bound twice")};
  Scope saved = scope_;
  scope_.place = nullptr;
  if (var.lanes() == 1 && is_int(var.element())) scope_.vars.emplace_back(var.name(), slot);
  body();
  scope_ = std::move(saved);
  slots_.erase(var.get());
}

}  // namespace mcc::tensor::interpreter
