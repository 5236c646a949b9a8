#include "tensor/passes/rows_in_parts.h"

#include <algorithm>
#include <set>
#include <vector>

#include "tensor/passes/loop_cuts.h"
#include "tensor/passes/scope.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

// Of a register tile.
constexpr int64_t kMostRows = 32;

struct Rows {
  const For* loop;
  int64_t count;
  std::vector<Expr> limits;  // that the variable is below
};

class FindRows : public Visitor {
 public:
  FindRows(const Stmt& body, const Analyzer& facts) : facts_(facts) {
    for_each_stmt(body, [&](const Stmt& s) {
      if (const auto* loop = s.as<For>()) inner_.insert(loop->var.node());
    });
    visit(body);
    is_whole_ = leaves_ == count_leaves(body);
  }
  std::vector<Rows> found;
  std::set<const ExprNode*> terms;  // the conditions
  std::vector<Buffer> locals;       // allocated inside

  // Whether everything is done in rows, the same ones everywhere, and some of it often.
  bool are_all_alike() const {
    return is_whole_ && is_in_sum_ && std::all_of(found.begin(), found.end(), [&](const Rows& rows) {
             return rows.count == found[0].count &&
                    std::is_permutation(rows.limits.begin(), rows.limits.end(), found[0].limits.begin(),
                                        found[0].limits.end(), structurally_equal_limits);
           });
  }

 protected:
  using Visitor::on;
  void on(const For& n) override {
    Rows rows{&n, 0, {}};
    const bool is_row = n.loop == LoopKind::unrolled && is_int(n.min, 0) && as_int(n.extent, &rows.count) &&
                        rows.count <= kMostRows;
    if (is_row) collect_limits(rows);
    if (!rows.limits.empty()) {
      leaves_ += count_leaves(n.body);
      is_in_sum_ |= serial_loops_ > 0;
      found.push_back(std::move(rows));
      return;
    }
    serial_loops_ += n.loop == LoopKind::serial;
    Visitor::on(n);
    serial_loops_ -= n.loop == LoopKind::serial;
  }
  void on(const Allocate& n) override {
    locals.push_back(n.buffer);
    Visitor::on(n);
  }

 private:
  static bool structurally_equal_limits(const Expr& a, const Expr& b) { return structurally_equal(a, b); }

  // Of the guards around all that the loop holds.
  void collect_limits(Rows& rows) {
    Stmt s = rows.loop->body;
    while (true) {
      if (const auto* loop = s.as<For>()) {
        s = loop->body;
      } else if (const auto* guard = s.as<If>(); guard && !guard->else_body) {
        for (const Expr& term : conjuncts(guard->condition))
          add_limit(term, rows);
        s = guard->then_body;
      } else {
        return;
      }
    }
  }
  void add_limit(const Expr& term, Rows& rows) {
    const Expr excess = as_at_most_zero(term);
    if (!excess.defined() || has_load(excess)) return;
    const std::optional<LinearForm> form = linear_form(facts_.simplify(excess), {rows.loop->var});
    if (!form || form->coefficients[0] != 1 ||
        uses_any_var(form->rest, [&](const VarNode* v) { return inner_.contains(v); }))
      return;
    const Expr limit = facts_.simplify(1 - form->rest);
    if (facts_.can_prove(limit >= Expr(rows.count))) return;
    rows.limits.push_back(limit);
    terms.insert(term.get());
  }

  const Analyzer& facts_;
  std::set<const VarNode*> inner_;  // of the loops in the body
  int64_t leaves_ = 0;
  int serial_loops_ = 0;
  bool is_whole_ = false, is_in_sum_ = false;
};

// The body for some of the rows, from `begin` on. Buffers of its own hold these alone.
class PartOfRows : public Mutator {
 public:
  PartOfRows(const FindRows& rows, Expr begin, int64_t count)
      : rows_(rows), begin_(std::move(begin)), count_(count) {}

  // Whether each buffer of its own is indexed by rows as they are.
  static bool is_possible(const FindRows& rows, const Stmt& body) {
    const auto is_row = [&](const VarNode* v) {
      return std::any_of(rows.found.begin(), rows.found.end(),
                         [&](const Rows& r) { return r.loop->var.node() == v; });
    };
    bool possible = true;
    const auto look = [&](const Buffer& buffer, const std::vector<Expr>& indices) {
      if (!is_local(rows, buffer)) return;
      for (const Expr& index : indices)
        possible &= index.as<VarNode>() || !uses_any_var(index, is_row);
    };
    for_each_stmt(body, [&](const Stmt& s) {
      if (const auto* store = s.as<Store>()) look(store->buffer, store->indices);
    });
    for_each_expr(body, [&](const Expr& e) {
      if (const auto* load = e.as<Load>()) look(load->buffer, load->indices);
    });
    return possible;
  }

 protected:
  using Mutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    const bool is_row =
        std::any_of(rows_.found.begin(), rows_.found.end(), [&](const Rows& r) { return r.loop == &n; });
    if (!is_row) return Mutator::on(n, self);
    row_ = n.var.node();
    const Stmt body = mutate(n.body);
    row_ = nullptr;
    return For::make(n.var, 0, count_, n.loop, body, n.annotations);
  }
  Stmt on(const If& n, const Stmt& self) override {
    std::vector<Expr> left;
    const std::vector<Expr> all = conjuncts(n.condition);
    std::copy_if(all.begin(), all.end(), std::back_inserter(left),
                 [&](const Expr& term) { return !rows_.terms.contains(term.get()); });
    if (left.size() == all.size()) return Mutator::on(n, self);
    const Stmt body = mutate(n.then_body);
    return left.empty() ? body : If::make(mutate(conjunction(left)), body);
  }
  Expr on(const VarNode& n, const Expr& self) override { return &n == row_ ? self + begin_ : self; }
  Expr on(const Load& n, const Expr& self) override {
    if (!is_local(rows_, n.buffer)) return Mutator::on(n, self);
    return Load::make(n.buffer, own_indices(n.indices), mutate(n.predicate));
  }
  Stmt on(const Store& n, const Stmt& self) override {
    if (!is_local(rows_, n.buffer)) return Mutator::on(n, self);
    return Store::make(n.buffer, own_indices(n.indices), mutate(n.value), mutate(n.predicate));
  }

 private:
  static bool is_local(const FindRows& rows, const Buffer& buffer) {
    return std::any_of(rows.locals.begin(), rows.locals.end(),
                       [&](const Buffer& b) { return b.same_as(buffer); });
  }
  std::vector<Expr> own_indices(const std::vector<Expr>& indices) {
    std::vector<Expr> out;
    for (const Expr& index : indices)
      out.push_back(index.get() == row_ ? index : mutate(index));
    return out;
  }

  const FindRows& rows_;
  const Expr begin_;
  const int64_t count_;
  const ExprNode* row_ = nullptr;
};

}  // namespace

std::optional<Stmt> rows_in_parts(const Stmt& body, const Analyzer& facts) {
  const FindRows rows(body, facts);
  if (rows.found.empty() || !rows.are_all_alike() || !PartOfRows::is_possible(rows, body))
    return std::nullopt;
  const int64_t most = rows.found[0].count;
  Expr number = most;
  for (const Expr& limit : rows.found[0].limits)
    number = tensor::min(number, limit);
  number = facts.simplify(tensor::max(number, 0));
  if (int64_t known = 0; as_int(number, &known)) return std::nullopt;
  const Var left("rows");
  Analyzer inside = facts;
  inside.bind(left, 0, most + 1);
  std::vector<Stmt> parts;
  int64_t count = 1;
  while (count * 2 <= most)
    count *= 2;
  for (; count > 0; count /= 2) {
    const Expr has_part = inside.simplify(floor_mod(floor_div(left, count), 2) == 1);
    const Expr begin = inside.simplify(floor_div(left, 2 * count) * (2 * count));
    parts.push_back(If::make(has_part, PartOfRows(rows, begin, count).mutate(body)));
  }
  return Let::make(left, number, Seq::make(std::move(parts)));
}

}  // namespace mcc::tensor
