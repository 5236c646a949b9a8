#include "tensor/passes/partition_loops.h"

#include <algorithm>

#include "tensor/grid.h"
#include "tensor/passes/bulk_copies.h"
#include "tensor/passes/loop_cuts.h"
#include "tensor/passes/pipeline_copies.h"
#include "tensor/passes/rows_in_parts.h"
#include "tensor/passes/scope.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

// Versions of a body nest at most this deep.
constexpr int kMaxDepth = 4;
// Where sizes are open, few conditions on the outer loops are decided before: versions for these leave depth for the loops inside.
constexpr int kMaxOpenVersions = 2;

// A loop with more stores is not split for choices.
constexpr int64_t kMaxChoices = 4;

// Where bounds of a part are open and so long, the part is not split again: those of its parts would hold them several times.
constexpr int kMaxBound = 100;

bool is_short(const Expr& bound) {
  int nodes = 0;
  for_each_expr(Evaluate::make(bound), [&](const Expr&) { ++nodes; });
  return nodes <= kMaxBound;
}

struct Condition : LoopCondition {
  // Chooses between two things to do: only worth a split where little is copied.
  bool is_choice = false;
};

class CollectConditions : public Visitor {
 public:
  // threads: the loops over threads around, which count as inside: a loop is divided in the same way for all of them.
  CollectConditions(bool split_selects, std::vector<const For*> threads)
      : split_selects_(split_selects), loops_(std::move(threads)) {}
  std::vector<Condition> conditions;

 protected:
  using Visitor::on;
  void on(const For& n) override {
    if (keeps_conditions(n)) return;
    loops_.push_back(&n);
    Visitor::on(n);
    loops_.pop_back();
  }
  void on(const If& n) override {
    add(n.condition, static_cast<bool>(n.else_body));
    Visitor::on(n);
  }
  void on(const Select& n) override {
    add(n.condition, !split_selects_);
    Visitor::on(n);
  }

 private:
  void add(const Expr& condition, bool is_choice) {
    for (const Expr& term : conjuncts(condition)) {
      if (!has_load(term)) conditions.push_back({{term, loops_}, is_choice});
    }
  }
  bool split_selects_;
  std::vector<const For*> loops_;
};

// Terms whose value is known, by node.
class ReplaceTerms : public Mutator {
 public:
  explicit ReplaceTerms(const VarMap& known) : known_(known) {}

 protected:
  using Mutator::on;
  Expr on(const Binary& n, const Expr& self) override {
    auto it = known_.find(&n);
    return it == known_.end() ? Mutator::on(n, self) : it->second;
  }

 private:
  const VarMap& known_;
};

bool is_power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

// begin .. end of a loop, being narrowed.
struct Bounds {
  Expr begin, end;

  // Narrows if at least one iteration may be left.
  bool narrow(const Cut& cut, const Analyzer& facts) {
    if (cut.end.defined()) {
      if (facts.can_prove(cut.end >= end)) return true;
      if (facts.can_prove(cut.end <= begin)) return false;
      end = facts.can_prove(cut.end <= end) ? cut.end : min(end, cut.end);
    } else {
      if (facts.can_prove(cut.begin <= begin)) return true;
      if (facts.can_prove(cut.begin >= end)) return false;
      begin = facts.can_prove(cut.begin >= begin) ? cut.begin : max(begin, cut.begin);
    }
    return true;
  }
};

// floor_div and floor_mod by constants of a loop's variable, and the variables that stand for them.
class NameAtoms : public Mutator {
 public:
  explicit NameAtoms(const Var& loop) : loop_(loop) {}
  struct Atom {
    Var var;
    Expr value;
  };
  std::vector<Atom> atoms;
  bool may_add = false;

 protected:
  using Mutator::on;
  Expr on(const Binary& n, const Expr& self) override {
    bool divides = n.op == BinaryOp::floor_div || n.op == BinaryOp::floor_mod;
    bool only_loop = divides && n.type == kIndex && n.b.as<IntImm>() && !has_load(n.a) &&
                     uses_var(n.a, loop_) &&
                     !uses_any_var(n.a, [&](const VarNode* v) { return v != loop_.node(); });
    if (!only_loop) return Mutator::on(n, self);
    for (const Atom& a : atoms) {
      if (structurally_equal(a.value, self)) return a.var;
    }
    if (!may_add) return self;
    const char* suffix = n.op == BinaryOp::floor_div ? ".div" : ".mod";
    atoms.push_back({Var(loop_.name() + suffix), self});
    return atoms.back().var;
  }

 private:
  Var loop_;
};

class PartitionLoops : public ScopedMutator {
 public:
  explicit PartitionLoops(bool is_open) : max_versions_(is_open ? kMaxOpenVersions : kMaxDepth) {}

 protected:
  using ScopedMutator::on;

  Stmt on(const For& n, const Stmt& self) override {
    if (keeps_conditions(n)) return self;
    Stmt trimmed = trim(n);
    if (!trimmed) return nullptr;
    const For& loop = *trimmed.as<For>();
    switch (loop.loop) {
      case LoopKind::serial:
        return split(loop);
      case LoopKind::parallel:
        return in_scope([&] {
          analyzer_.bind(loop.var, loop.min, loop.extent);
          return with_body(loop, versions(loop, loop.body, true));
        });
      case LoopKind::vectorized:
        return ScopedMutator::on(loop, trimmed);
      case LoopKind::unrolled:
        return is_tile_of_moves(loop) ? whole_or_not(loop) : ScopedMutator::on(loop, trimmed);
      case LoopKind::bound: {
        if (is_thread_loop(loop)) threads_.push_back(&loop);
        Stmt same = ScopedMutator::on(loop, trimmed);
        if (is_thread_loop(loop)) threads_.pop_back();
        return same;
      }
    }
    MCC_UNREACHABLE("unknown loop kind");
  }

 private:
  // ---- Fewer iterations ----

  // Leaves out the iterations that a guard around everything in the loop lets do nothing.
  Stmt trim(const For& n) {
    if (n.loop == LoopKind::bound || n.loop == LoopKind::parallel) return Stmt(&n);
    Bounds bounds{n.min, analyzer_.simplify(n.min + n.extent)}, whole = bounds;
    VarMap known;  // guards that the bounds make true
    for (const Condition& c : guards_of_all(n)) {
      if (!uses_var(c.term, n.var) || has_load(c.term)) continue;
      Bounds narrowed = bounds;
      if (!narrow_to(n, c, &narrowed)) continue;
      bounds = narrowed;
      if (c.inner.empty()) known.emplace(c.term.get(), true_value());
    }
    if (bounds.begin.same_as(whole.begin) && bounds.end.same_as(whole.end) && known.empty()) return Stmt(&n);
    Expr extent = loop_extent(bounds);
    if (is_int(extent, 0)) return nullptr;
    return For::make(n.var, bounds.begin, extent, n.loop, ReplaceTerms(known).mutate(n.body), n.annotations);
  }

  // The conditions that everything in the loop stands under.
  std::vector<Condition> guards_of_all(const For& n) const {
    std::vector<Condition> out;
    std::vector<const For*> inner = threads_;
    Stmt s = n.body;
    while (true) {
      if (const auto* loop = s.as<For>()) {
        inner.push_back(loop);
        s = loop->body;
      } else if (const auto* guard = s.as<If>(); guard && !guard->else_body) {
        for (const Expr& term : conjuncts(guard->condition))
          out.push_back({{term, inner}});
        s = guard->then_body;
      } else {
        return out;
      }
    }
  }

  // Whether each iteration is one vector at most. One that is masked as a whole is not for nothing: reading what may not be there is slow.
  static bool is_of_vectors(const Condition& guard) {
    return std::all_of(guard.inner.begin(), guard.inner.end(), [](const For* loop) { return loop->loop == LoopKind::vectorized; });
  }

  // Whether the loop can run over just those iterations in which the guard can hold.
  bool narrow_to(const For& n, const Condition& guard, Bounds* bounds) const {
    Expr m = extreme_case(guard, analyzer_, Case::best);
    auto cut = m.defined() ? cut_of(m, n.var, analyzer_) : std::nullopt;
    if (!cut) return false;
    if (!bounds->narrow(*cut, analyzer_)) bounds->end = bounds->begin;
    int64_t extent = 0;
    if (n.loop == LoopKind::serial) return is_of_vectors(guard) || as_int(loop_extent(*bounds), &extent);
    if (!as_int(loop_extent(*bounds), &extent)) return false;
    return n.loop == LoopKind::unrolled || extent == 0 || is_power_of_two(extent);
  }

  Expr loop_extent(const Bounds& b) const {
    Expr extent = analyzer_.simplify(b.end - b.begin);
    return analyzer_.can_prove(extent >= Expr(0)) ? extent : analyzer_.simplify(max(extent, 0));
  }

  // ---- Before, main, after ----

  std::vector<Condition> conditions_in(const For& loop, const Stmt& body) const {
    CollectConditions collect(loop.annotations.contains("partition"), threads_);
    collect.visit(body);
    return std::move(collect.conditions);
  }

  Stmt split(const For& n) {
    Bounds whole{n.min, analyzer_.simplify(n.min + n.extent)}, main = whole;
    VarMap known;  // terms that are true in the main part
    // The steps of a recurrence that fetch for the next one stay one loop: what is fetched ahead would be lost between two.
    const bool is_whole = n.annotations.contains("scan") && n.annotations.contains(kStages);
    if (depth_ < kMaxDepth && !is_whole) {
      std::vector<const ExprNode*> unknown;
      bool is_small = count_leaves(n.body) <= kMaxChoices;
      Analyzer inside = analyzer_;
      inside.bind(n.var, n.min, n.extent);
      for (const Condition& c : conditions_in(n, n.body)) {
        if (!uses_var(c.term, n.var) || (c.is_choice && !is_small)) continue;
        Expr worst = extreme_case(c, inside, Case::worst);
        auto cut = worst.defined() ? cut_of(worst, n.var, analyzer_) : std::nullopt;
        if (c.is_choice && !(cut && cut->is_constant())) continue;
        if (cut && main.narrow(*cut, analyzer_)) {
          known.emplace(c.term.get(), true_value());
        } else if (!cut && !narrow_by_equality(c, n, &main, &known)) {
          unknown.push_back(c.term.get());
        } else if (cut) {
          unknown.push_back(c.term.get());
        }
      }
      for (const ExprNode* term : unknown)
        known.erase(term);
    }
    bool has_before = !main.begin.same_as(whole.begin), has_after = !main.end.same_as(whole.end);
    if (!has_before && !has_after) return part(n, whole, n.body);
    auto rest = [&](const Bounds& b) {
      ++depth_;
      Expr extent = loop_extent(b);
      int64_t count = 0;
      const bool splits_on = as_int(extent, &count) ? count > 1 : is_short(b.begin) && is_short(extent);
      const std::optional<Stmt> in_parts = in_scope([&] {
        analyzer_.bind(n.var, b.begin, extent);
        return rows_in_parts(n.body, analyzer_);
      });
      Stmt out = in_parts ? part(n, b, *in_parts)
                 : splits_on
                     ? split(*For::make(n.var, b.begin, extent, n.loop, n.body, n.annotations).as<For>())
                     : part(n, b, n.body);
      --depth_;
      return out;
    };
    // whole.begin <= main.begin <= main.end <= whole.end, also where the main part is empty.
    if (!analyzer_.can_prove(main.begin <= whole.end)) main.begin = min(main.begin, whole.end);
    if (!analyzer_.can_prove(main.end >= main.begin)) main.end = max(main.end, main.begin);
    std::vector<Stmt> parts;
    if (has_before) parts.push_back(rest({whole.begin, main.begin}));
    parts.push_back(part(n, main, ReplaceTerms(known).mutate(n.body)));
    if (has_after) parts.push_back(rest({main.end, whole.end}));
    return Seq::make(std::move(parts));
  }

  // "v == first" and "v == last" (an init or a last step): the main part is without that iteration.
  bool narrow_by_equality(const Condition& c, const For& n, Bounds* main, VarMap* known) const {
    const auto* equal = c.term.as<Binary>();
    bool is_equal =
        equal && (equal->op == BinaryOp::eq || equal->op == BinaryOp::ne) && equal->a.type() == kIndex;
    auto form = is_equal ? linear_form(equal->a - equal->b, {n.var}) : std::nullopt;
    if (!form || std::abs(form->coefficients[0]) != 1 || uses_var(form->rest, n.var)) return false;
    Expr point = analyzer_.simplify(form->rest * Expr(-form->coefficients[0]));
    if (analyzer_.can_prove(point == main->begin)) {
      main->begin = analyzer_.simplify(point + 1);
    } else if (analyzer_.can_prove(point == main->end - 1)) {
      main->end = point;
    } else {
      return false;
    }
    known->emplace(c.term.get(), equal->op == BinaryOp::eq ? false_value() : true_value());
    return true;
  }

  // The iterations begin .. end of n, with the given body.
  Stmt part(const For& n, const Bounds& bounds, const Stmt& body) {
    Expr extent = loop_extent(bounds);
    if (is_int(extent, 0)) return nullptr;
    if (is_int(extent, 1)) return mutate(substitute(body, {{n.var.get(), bounds.begin}}));
    Stmt inner = in_scope([&] {
      analyzer_.bind(n.var, bounds.begin, extent);
      return versions(n, body, false);
    });
    return inner ? For::make(n.var, bounds.begin, extent, n.loop, inner, n.annotations) : nullptr;
  }

  // ---- Whole tiles ----

  // Vectors of elements that are moved, one store in all: as a whole they are read and written in contiguous runs (transpose_tiles).
  bool is_tile_of_moves(const For& n) const {
    if (!threads_.empty()) return false;
    Stmt s = n.body;
    bool has_vectors = false;
    while (true) {
      if (const auto* loop = s.as<For>()) {
        if (loop->loop != LoopKind::vectorized && loop->loop != LoopKind::unrolled) return false;
        has_vectors |= loop->loop == LoopKind::vectorized;
        s = loop->body;
      } else if (const auto* guard = s.as<If>(); guard && !guard->else_body) {
        s = guard->then_body;
      } else {
        const auto* store = s.as<Store>();
        return has_vectors && store && store->value.as<Load>();
      }
    }
  }

  // Where a guard holds for the whole tile, which few tiles at the ends are not, the tile goes without it.
  Stmt whole_or_not(const For& n) {
    const Stmt self(&n);
    if (depth_ >= kMaxDepth) return ScopedMutator::on(n, self);
    Expr test;
    VarMap known;
    for (const Condition& c : guards_of_all(n)) {
      std::vector<const For*> inner = c.inner;
      inner.push_back(&n);
      const Expr worst = has_load(c.term) ? Expr() : extreme_case({c.term, inner}, analyzer_, Case::worst);
      if (!worst.defined()) continue;
      const Expr holds = analyzer_.simplify(worst <= Expr(0));
      if (is_true(holds) || is_false(holds) || analyzer_.can_prove(logical_not(holds))) continue;
      test = test.defined() ? test && holds : holds;
      known.emplace(c.term.get(), true_value());
    }
    if (!test.defined()) return ScopedMutator::on(n, self);
    const Stmt whole = ReplaceTerms(known).mutate(self);
    return either(test, ScopedMutator::on(*whole.as<For>(), whole), ScopedMutator::on(n, self));
  }

  // Of either nothing may be left.
  static Stmt either(const Expr& test, const Stmt& then_body, const Stmt& else_body) {
    if (!then_body && !else_body) return nullptr;
    return then_body ? If::make(test, then_body, else_body) : If::make(logical_not(test), else_body);
  }

  // ---- Versions of a body ----

  // The body for each side of the conditions on fused indices of the loop, and, with of_loop, on its variable itself.
  Stmt versions(const For& loop, const Stmt& body, bool of_loop) {
    NameAtoms name(loop.var);
    name.may_add = true;
    for (const Condition& c : conditions_in(loop, body)) {
      if (!c.is_choice && as_at_most_zero(c.term).defined()) name.mutate(c.term);
    }
    name.may_add = false;
    std::vector<Var> vars;
    if (of_loop) vars.push_back(loop.var);
    for (const auto& atom : name.atoms) {
      Interval range = analyzer_.bounds(atom.value);
      if (range.low && range.high) analyzer_.bind(atom.var, *range.low, *range.high - *range.low + 1);
      vars.push_back(atom.var);
    }
    if (vars.empty()) return mutate(body);
    Stmt out = choose(loop, name.atoms.empty() ? body : name.mutate(body), vars, {});
    for (size_t i = name.atoms.size(); out && i-- > 0;) {
      out = Let::make(name.atoms[i].var, name.atoms[i].value, out);
    }
    return out;
  }

  // failed: tests that do not hold in this version. What holds where one of them does is none that versions are made for again.
  Stmt choose(const For& loop, const Stmt& body, const std::vector<Var>& vars,
              const std::vector<Expr>& failed) {
    Expr test;  // of those on one side of each other, the one that the others follow from
    VarMap known;
    auto is_ours = [&](const VarNode* v) {
      for (const Var& var : vars) {
        if (var.node() == v) return true;
      }
      return false;
    };
    if (depth_ < max_versions_) {
      std::vector<std::pair<Expr, const ExprNode*>> tests;
      for (const Condition& c : conditions_in(loop, body)) {
        if (c.is_choice || !uses_any_var(c.term, is_ours)) continue;
        Expr worst = extreme_case(c, analyzer_, Case::worst);
        if (!worst.defined() || !uses_any_var(worst, is_ours)) continue;
        Expr holds = analyzer_.simplify(worst <= Expr(0));
        if (is_true(holds) || is_false(holds) || analyzer_.can_prove(logical_not(holds))) continue;
        if (std::any_of(failed.begin(), failed.end(),
                        [&](const Expr& other) { return follows(holds, other); }))
          continue;
        tests.emplace_back(holds, c.term.get());
        if (!test.defined() || follows(test, holds)) test = holds;
      }
      for (const auto& [holds, term] : tests)
        if (follows(holds, test)) known.emplace(term, true_value());
    }
    if (!test.defined()) return mutate(body);
    ++depth_;
    auto version = [&](const Expr& fact, const Stmt& s, const std::vector<Expr>& not_met) {
      return in_scope([&] {
        analyzer_.assume(fact);
        return choose(loop, pin(s, vars), vars, not_met);
      });
    };
    std::vector<Expr> not_met = failed;
    not_met.push_back(test);
    Stmt main = version(test, ReplaceTerms(known).mutate(body), failed),
         other = version(logical_not(test), body, not_met);
    --depth_;
    return either(test, main, other);
  }

  bool follows(const Expr& condition, const Expr& from) const {
    if (structurally_equal(condition, from)) return true;
    Analyzer facts = analyzer_;
    facts.assume(from);
    return facts.can_prove(condition);
  }

  // Variables that can only have one value get it.
  Stmt pin(const Stmt& s, const std::vector<Var>& vars) const {
    VarMap map;
    for (const Var& v : vars) {
      Interval range = analyzer_.bounds(v);
      if (range.low && range.high && *range.low == *range.high) map.emplace(v.get(), Expr(*range.low));
    }
    return map.empty() ? s : substitute(s, map);
  }

  const int max_versions_;
  int depth_ = 0;
  std::vector<const For*> threads_;  // loops over threads around here
};

}  // namespace

Func partition_loops(const Func& f) {
  Func out = f;
  out.body = PartitionLoops(!f.dims.empty()).mutate(f.body);
  return out;
}

}  // namespace mcc::tensor
