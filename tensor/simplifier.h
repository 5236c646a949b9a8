// The machine behind Analyzer. Internal to tensor/; split by theme over simplify_*.cpp.
//
// i64 scalars become linear forms (linear.h); everything else is rebuilt from simplified parts with a few rules. 64-bit
// integer arithmetic is taken not to overflow, and a symbolic divisor not to be zero.
#pragma once

#include <optional>
#include <unordered_map>

#include "tensor/linear.h"
#include "tensor/span.h"
#include "tensor/stmt.h"

namespace mcc::tensor {

class Simplifier {
 public:
  Simplifier() = default;
  Simplifier(const Simplifier& other);  // without the cache
  Simplifier& operator=(const Simplifier& other);
  Simplifier(Simplifier&&) = default;
  Simplifier& operator=(Simplifier&&) = default;

  void bind_range(const Var& var, const Expr& min, const Expr& extent);
  void bind_value(const Var& var, const Expr& value);
  void bind_span(const Var& var, Span span);
  void assume(const Expr& condition);

  Expr simplify(const Expr& e);
  Span bounds(const Expr& e);
  // The simplified linear form of an i64 scalar.
  Linear linear(const Expr& e);
  // Whether l >= 0 in every case that the facts allow. False only means unknown.
  bool is_nonnegative(const Linear& l);

 private:
  struct VarInfo {
    Var var;
    Span span;
    Linear min, max;        // symbolic bounds, where one is not constant
    bool symbolic = false;  // min and max are given
    Expr value;             // exact, if defined
    int order = 0;          // later bindings may depend on earlier ones
  };

  // ---- simplify_facts.cpp: what is known, and bounds ----
  VarInfo& info(const Var& var);
  void assume_nonnegative(const Linear& l);
  void assume_not(const Expr& condition);
  Span span_of(const Linear& l);
  Span span_of_atom(const Expr& atom);
  Span span_of_binary(const Binary& n);
  Span span_of_any(const Expr& e);
  bool prove(const Linear& l, int* budget);
  bool prove_by_facts(const Linear& l);
  bool prove_by_min_max(const Linear& l, int* budget);
  bool prove_by_divisors(const Linear& l, int* budget);
  bool prove_by_tiles(const Linear& l, int* budget);
  bool prove_by_elimination(const Linear& l, int* budget);

  // ---- simplify_index.cpp: linear forms ----
  void collect(const Expr& e, int64_t scale, Linear& out);  // out += scale * e
  Linear collect(const Expr& e);
  Expr simplify_index(const Expr& e);
  Linear index_binary(const Binary& n, const Expr& self);
  Linear floor_div(const Linear& a, const Linear& b);
  Linear floor_mod(const Linear& a, const Linear& b);
  Linear floor_div(const Linear& a, int64_t divisor);
  Linear floor_mod(const Linear& a, int64_t divisor);
  bool is_part_of_remainder(const Linear& r, const Linear& n);
  Linear symbolic_div_mod(const Linear& a, const Linear& b, bool want_quotient);
  Linear recombine(Linear l);
  bool recombine_once(Linear& l);
  Expr min_max(BinaryOp op, const Expr& a, const Expr& b);

  // ---- simplify_condition.cpp: comparisons, logic, select ----
  Expr compare_index(BinaryOp op, const Expr& a, const Expr& b);
  Expr at_least_zero(Linear l);
  // l >= 0 without its term t, a quotient by what is positive, if its coefficient is 1 or -1; and by whatever is symbolic.
  std::optional<Linear> without_quotient(const Linear& l, const Term& t);
  std::optional<Linear> without_open_quotient(const Linear& l);
  Expr equals_zero(Linear l, bool negated);
  Expr logical(BinaryOp op, const Expr& a, const Expr& b);
  Expr negate(const Expr& condition);
  Expr select(const Select& n, const Expr& self);
  Expr known_truth(const Expr& condition);
  bool implies(const Expr& a, const Expr& b);
  bool excludes(BinaryOp op, const Expr& a, const Expr& b);

  // ---- simplify_value.cpp: all other expressions ----
  Expr simplify_other(const Expr& e);
  Expr rebuild(const Expr& e);
  static Expr data_identity(BinaryOp op, const Expr& a, const Expr& b);
  Expr binary_value(const Binary& n, const Expr& self);
  Expr cast_value(const Cast& n, const Expr& self);
  Expr call_value(const Call& n, const Expr& self);
  Expr load_value(const Load& n, const Expr& self);
  // A load that stays one: the place that an instruction reads or writes.
  Expr simplified_place(const Load& n, const Expr& self);

  // ---- simplify_vector.cpp ----
  struct Lanes {  // base + lane * stride
    Linear base, stride;
  };
  std::optional<Lanes> as_lanes(const Expr& e);
  std::optional<Lanes> divide_lanes(const Binary& n);
  static Expr from_lanes(const Lanes& x, const Expr& like);
  Expr vector_binary(const Binary& n, const Expr& self);
  Expr vector_compare(BinaryOp op, const Expr& a, const Expr& b);
  Expr simplify_vector(const Expr& e);
  Expr shuffle_value(const Shuffle& n, const Expr& self);
  Expr reduce_value(const VectorReduce& n, const Expr& self);

  std::unordered_map<const ExprNode*, VarInfo> vars_;
  std::vector<Linear> facts_;       // each is >= 0
  std::vector<Expr> true_, false_;  // other conditions known to hold, or not to
  int proofs_ = 0;                  // that are under way, one within the other
  std::unordered_map<const ExprNode*, std::pair<Expr, Expr>> cache_;  // expression, simplified
};

// The values of an integer or boolean type; unlimited for 64 bits and for floats.
Span span_of_type(ElementType element);

}  // namespace mcc::tensor
