#include "tensor/passes/overlap_tiles.h"

#include <algorithm>
#include <set>

#include "tensor/intrinsics.h"
#include "tensor/passes/scope.h"

namespace mcc::tensor {
namespace {

bool is_multiplication(const Stmt& s) {
  return is_call(s, Intrinsic::tile_multiply_u8i8) || is_call(s, Intrinsic::tile_multiply_bf16);
}
bool is_store(const Stmt& s) { return is_call(s, Intrinsic::tile_store); }
// What stands in no product.
bool is_other(const Stmt& s) { return is_store(s) || is_call(s, Intrinsic::tile_configure); }
bool is_of_tiles(const Stmt& s) {
  return is_multiplication(s) || is_store(s) || is_call(s, Intrinsic::tile_zero) ||
         is_call(s, Intrinsic::tile_load) || is_call(s, Intrinsic::tile_configure);
}
bool contains(const Stmt& s, bool (*is)(const Stmt&)) {
  bool found = false;
  for_each_stmt(s, [&](const Stmt& below) { found |= is(below); });
  return found;
}

constexpr int64_t quotient_up(int64_t n, int64_t divisor) { return (n + divisor - 1) / divisor; }

// A loop of a known length; null for any other statement.
const For* as_known_loop(const Stmt& s, int64_t* extent) {
  const auto* loop = s.as<For>();
  const bool is_known = loop && (loop->loop == LoopKind::serial || loop->loop == LoopKind::unrolled) &&
                        is_int(loop->min, 0) && as_int(loop->extent, extent) && *extent > 0;
  return is_known ? loop : nullptr;
}

std::vector<Stmt> list_of(const Stmt& s) {
  const auto* seq = s.as<Seq>();
  return seq ? seq->stmts : std::vector<Stmt>{s};
}

// A nest of loops of known lengths, whose iterations are counted.
struct Nest {
  std::vector<const For*> loops;
  std::vector<int64_t> extents;
  Stmt body;
  int64_t count = 1;

  explicit Nest(Stmt s) : body(std::move(s)) {
    int64_t extent = 0;
    while (const For* loop = as_known_loop(body, &extent)) {
      loops.push_back(loop);
      extents.push_back(extent);
      count *= extent;
      body = loop->body;
    }
  }
  // Which iteration the loops' variables are at.
  Expr number() const {
    Expr n(0);
    for (size_t k = 0; k < loops.size(); ++k)
      n = n * Expr(extents[k]) + loops[k]->var;
    return n;
  }
  Stmt around(Stmt inner) const {
    for (size_t k = loops.size(); k-- > 0;)
      inner = with_body(*loops[k], inner);
    return inner;
  }
};

// A nest in so many parts, or fewer: an iteration of the outer loops each, or a part of one, some iterations of the next loop.
class Parts {
 public:
  Parts(const Stmt& s, int64_t most) : nest_(s) {
    while (level_ < nest_.loops.size() && count_ * nest_.extents[level_] <= most)
      count_ *= nest_.extents[level_++];
    if (level_ == nest_.loops.size()) return;
    const int64_t extent = nest_.extents[level_];
    length_ = quotient_up(extent, std::max<int64_t>(1, most / count_));
    of_each_ = quotient_up(extent, length_);
    count_ *= of_each_;
  }

  int64_t count() const { return count_; }

  Stmt at(const Expr& number) const {
    Stmt body = nest_.body;
    for (size_t k = nest_.loops.size(); k-- > level_ + 1;)
      body = with_body(*nest_.loops[k], body);
    Expr rest = number;
    if (level_ < nest_.loops.size()) {
      const Expr first = floor_mod(rest, Expr(of_each_)) * Expr(length_);
      rest = floor_div(rest, Expr(of_each_));
      const For& loop = *nest_.loops[level_];
      const Var inside(loop.var.name());
      const Expr length = nest_.extents[level_] % length_ == 0
                              ? Expr(length_)
                              : min(Expr(length_), Expr(nest_.extents[level_]) - first);
      body = For::make(inside, 0, length, LoopKind::serial,
                       substitute(body, {{loop.var.get(), first + inside}}));
    }
    VarMap at;
    for (size_t k = level_; k-- > 0;) {
      at[nest_.loops[k]->var.get()] = k == 0 ? rest : floor_mod(rest, Expr(nest_.extents[k]));
      rest = floor_div(rest, Expr(nest_.extents[k]));
    }
    return substitute(body, at);
  }

 private:
  const Nest nest_;
  size_t level_ = 0;  // the first loop that is not an outer one
  int64_t count_ = 1, of_each_ = 1, length_ = 1;
};

// Operations on vectors, a table's look-up as several.
class CountWork : public Visitor {
 public:
  int64_t count = 0;

 protected:
  using Visitor::on;
  void on(const Cast& n) override { ++count, Visitor::on(n); }
  void on(const Binary& n) override { ++count, Visitor::on(n); }
  void on(const Select& n) override { ++count, Visitor::on(n); }
  void on(const Call& n) override { ++count, Visitor::on(n); }
  void on(const Load& n) override {
    constexpr int64_t kLookUp = 8;
    if (n.indices[0].lanes() > 1 && !n.indices[0].as<Ramp>() && !n.indices[0].as<Broadcast>()) {
      count += kLookUp;
      Visitor::on(n);
    }
  }
  void on(const Store& n) override { visit(n.value); }
};

// Consumers that have not been computed yet, if the condition holds.
struct Pending {
  Expr condition;
  Stmt consumers;
};

// A group's statements, and what follows it.
struct Group {
  std::vector<Stmt> products, stores, consumers;
};

// A statement all of whose groups overlap with the one before.
class Overlap {
 public:
  // False where it has other parts.
  bool take(const Stmt& s) {
    if (!survey(s) || groups_ == 0) return false;
    std::vector<Pending> left;
    Stmt out = transform(s, &left);
    if (!out || joined_ == 0) return false;
    std::vector<Stmt> all{out};
    for (const Pending& p : left)
      all.push_back(If::make(p.condition, p.consumers));
    result = Seq::make(std::move(all));
    for (size_t k = sums_.size(); k-- > 0;)
      result = Allocate::make(sums_[k], result);
    return true;
  }
  Stmt result;

 private:
  // ---- Which groups there are, and whether they may change places ----

  static std::optional<Group> group_at(const std::vector<Stmt>& stmts, size_t* i) {
    Group g;
    for (; *i < stmts.size() && !is_store(stmts[*i]); ++*i) {
      const Stmt& s = stmts[*i];
      const bool is_product =
          is_of_tiles(s) || is_call(s, Intrinsic::prefetch) || contains(s, is_multiplication);
      if (!is_product || contains(s, is_other)) return std::nullopt;
      g.products.push_back(s);
    }
    for (; *i < stmts.size() && is_store(stmts[*i]); ++*i)
      g.stores.push_back(stmts[*i]);
    for (; *i < stmts.size() && !contains(stmts[*i], is_of_tiles); ++*i)
      g.consumers.push_back(stmts[*i]);
    if (g.stores.empty() || g.consumers.empty()) return std::nullopt;
    return g;
  }

  static bool is_inner(const Stmt& s) { return s.kind() != StmtKind::Evaluate && contains(s, is_store); }

  bool survey(const Stmt& s) {
    class Uses : public Visitor {
     public:
      std::set<const BufferNode*> reads, writes;

     protected:
      using Visitor::on;
      void on(const Load& n) override {
        reads.insert(n.buffer.get());
        Visitor::on(n);
      }
      void on(const Store& n) override {
        writes.insert(n.buffer.get());
        Visitor::on(n);
      }
    };
    Uses operands, consumers;
    const bool is_possible = for_each_group(s, [&](const Group& g) {
      ++groups_;
      count(g);
      for (const Stmt& p : g.products)
        operands.visit(p);
      for (const Stmt& c : g.consumers)
        consumers.visit(c);
    });
    return is_possible && is_worth_it() && operands.writes.empty() &&
           std::none_of(consumers.writes.begin(), consumers.writes.end(),
                        [&](const BufferNode* b) { return operands.reads.contains(b); });
  }

  template <class F>
  static bool for_each_group(const Stmt& s, const F& f) {
    int64_t extent = 0;
    if (const For* loop = as_known_loop(s, &extent)) return for_each_group(loop->body, f);
    if (const auto* allocate = s.as<Allocate>())
      return allocate->buffer.scope() == Scope::local && for_each_group(allocate->body, f);
    const std::vector<Stmt> stmts = list_of(s);
    if (s.kind() != StmtKind::Seq) return false;
    for (size_t i = 0; i < stmts.size();) {
      if (is_inner(stmts[i])) {
        if (!for_each_group(stmts[i++], f)) return false;
        continue;
      }
      std::optional<Group> g = group_at(stmts, &i);
      if (!g) return false;
      f(*g);
    }
    return true;
  }

  // ---- The consumers that are left behind a statement ----

  static Stmt last_consumers(const Stmt& s) {
    int64_t extent = 0;
    if (const For* loop = as_known_loop(s, &extent))
      return substitute(last_consumers(loop->body), {{loop->var.get(), Expr(extent - 1)}});
    Stmt last;
    if (const auto* allocate = s.as<Allocate>()) return last_consumers(allocate->body);
    const std::vector<Stmt> stmts = list_of(s);
    for (size_t i = 0; i < stmts.size();)
      last = is_inner(stmts[i]) ? last_consumers(stmts[i++]) : Seq::make(group_at(stmts, &i)->consumers);
    return last;
  }

  // ---- The new form ----

  // pending: what is left before the statement, then what is left behind it.
  Stmt transform(const Stmt& s, std::vector<Pending>* pending) {
    int64_t extent = 0;
    if (const For* loop = as_known_loop(s, &extent)) return in_loop(*loop, extent, pending);
    if (const auto* allocate = s.as<Allocate>()) {
      if (std::none_of(sums_.begin(), sums_.end(),
                       [&](const Buffer& b) { return b.same_as(allocate->buffer); }))
        sums_.push_back(allocate->buffer);
      return transform(allocate->body, pending);
    }
    std::vector<Stmt> out;
    const std::vector<Stmt> stmts = list_of(s);
    for (size_t i = 0; i < stmts.size();) {
      if (is_inner(stmts[i])) {
        out.push_back(transform(stmts[i++], pending));
        continue;
      }
      const Group g = *group_at(stmts, &i);
      out.push_back(together(g.products, *pending));
      out.insert(out.end(), g.stores.begin(), g.stores.end());
      *pending = {{true_value(), Seq::make(g.consumers)}};
    }
    return Seq::make(std::move(out));
  }

  Stmt in_loop(const For& loop, int64_t extent, std::vector<Pending>* pending) {
    // Each has a copy in each group's products.
    constexpr size_t kMost = 3;
    std::vector<Stmt> before;
    std::vector<Pending> inside;
    const Stmt last = last_consumers(loop.body);
    if (extent > 1) {
      inside.push_back(
          {Expr(loop.var) > Expr(0), substitute(last, {{loop.var.get(), Expr(loop.var) - Expr(1)}})});
    }
    for (const Pending& p : *pending) {
      if (inside.size() < kMost) {
        inside.push_back({extent > 1 ? Expr(loop.var) == Expr(0) && p.condition : p.condition, p.consumers});
      } else {
        before.push_back(If::make(p.condition, p.consumers));
      }
    }
    before.push_back(with_body(loop, transform(loop.body, &inside)));
    *pending = {{true_value(), substitute(last, {{loop.var.get(), Expr(extent - 1)}})}};
    return Seq::make(std::move(before));
  }

  // The products, and between them what is pending.
  Stmt together(std::vector<Stmt> products, const std::vector<Pending>& pending) {
    if (pending.empty()) return Seq::make(std::move(products));
    ++joined_;
    const auto is_loop = [](const Stmt& s) { return s.kind() == StmtKind::For; };
    auto loop = std::find_if(products.begin(), products.end(), is_loop);
    const bool is_nest =
        loop != products.end() && std::count_if(products.begin(), products.end(), is_loop) == 1;
    const Nest steps(is_nest ? *loop : Seq::make(products));
    const Stmt step = between(list_of(steps.body), steps, pending);
    if (!is_nest) return step;
    *loop = steps.around(step);
    return Seq::make(std::move(products));
  }

  static Stmt between(const std::vector<Stmt>& step, const Nest& steps, const std::vector<Pending>& pending) {
    const auto multiplications = std::count_if(step.begin(), step.end(), is_multiplication);
    int64_t most = 0;  // iterations of what is pending
    for (const Pending& p : pending)
      most = std::max(most, count_iterations(p.consumers));
    const int64_t places =
        std::clamp<int64_t>(quotient_up(most, steps.count), 1, std::max<int64_t>(multiplications, 1));
    std::vector<Stmt> out;
    int64_t done = 0, place = 0;
    for (size_t i = 0; i < step.size(); ++i) {
      out.push_back(step[i]);
      done += is_multiplication(step[i]) ? 1 : 0;
      const bool is_last = i + 1 == step.size();
      while (place < places && (is_last || done * places >= (place + 1) * multiplications)) {
        const Expr number = steps.number() * Expr(places) + Expr(place++);
        for (const Pending& p : pending)
          out.push_back(If::make(p.condition, part(p.consumers, number, steps.count * places)));
        if (!is_last) break;
      }
    }
    return Seq::make(std::move(out));
  }

  void count(const Group& g) {
    for (const Stmt& s : g.products) {
      const Nest nest(s);
      for (const Stmt& step : list_of(nest.body))
        multiplications_ += is_multiplication(step) ? nest.count : 0;
    }
    for (const Stmt& s : g.consumers) {
      const Nest nest(s);
      CountWork own;
      own.visit(nest.body);
      work_ += own.count * nest.count;
    }
  }
  // Consumers read what stays the same again in each part, and more than the multiplications can hide is not worth that.
  bool is_worth_it() const {
    constexpr int64_t kMost = 40;  // operations for each multiplication
    return work_ <= kMost * multiplications_;
  }

  static int64_t count_iterations(const Stmt& consumers) {
    int64_t count = 0;
    for (const Stmt& s : list_of(consumers))
      count += Nest(s).count;
    return count;
  }

  // The part of that number, of so many.
  static Stmt part(const Stmt& consumers, const Expr& number, int64_t parts) {
    const int64_t iterations = count_iterations(consumers);
    std::vector<Parts> own;
    int64_t count = 0;
    for (const Stmt& s : list_of(consumers)) {
      own.emplace_back(s, std::max<int64_t>(1, parts * Nest(s).count / iterations));
      count += own.back().count();
    }
    const int64_t each = quotient_up(count, parts);
    const Var turn("turn");
    const Expr at = each == 1 ? number : number * Expr(each) + turn;
    int64_t first = 0;
    std::vector<Stmt> out;
    for (const Parts& p : own) {
      const Expr there = at - Expr(first);
      out.push_back(If::make(there >= Expr(0) && there < Expr(p.count()), p.at(there)));
      first += p.count();
    }
    const Stmt all = Seq::make(std::move(out));
    return each == 1 ? all : For::make(turn, 0, Expr(each), LoopKind::serial, all);
  }

  int64_t groups_ = 0, joined_ = 0;
  int64_t multiplications_ = 0, work_ = 0;  // of each group once
  std::vector<Buffer> sums_;                // allocated around all
};

// The largest statements all of whose groups overlap. Of a sequence, what stands before the first group stays before it.
class OverlapTiles : public Mutator {
 protected:
  using Mutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    const Stmt out = overlapped(self);
    return out ? out : Mutator::on(n, self);
  }
  Stmt on(const Allocate& n, const Stmt& self) override {
    const Stmt out = overlapped(self);
    return out ? out : Mutator::on(n, self);
  }
  Stmt on(const Seq& n, const Stmt& self) override {
    const auto has_tiles = [](const Stmt& s) {
      return contains(s, is_of_tiles) && !is_call(s, Intrinsic::tile_configure);
    };
    const auto first = std::find_if(n.stmts.begin(), n.stmts.end(), has_tiles);
    if (first == n.stmts.end()) return self;
    const bool is_laid_out = is_call(n.stmts.back(), Intrinsic::tile_configure);
    const Stmt out = overlapped(Seq::make({first, n.stmts.end() - (is_laid_out ? 1 : 0)}));
    if (!out) return Mutator::on(n, self);
    std::vector<Stmt> all(n.stmts.begin(), first);
    all.push_back(out);
    if (is_laid_out) all.push_back(n.stmts.back());
    return Seq::make(std::move(all));
  }

 private:
  static Stmt overlapped(const Stmt& s) {
    Overlap overlap;
    return overlap.take(s) ? overlap.result : nullptr;
  }
};

}  // namespace

Func overlap_tiles(const Func& f) {
  Func out = f;
  if (f.body && contains(f.body, is_of_tiles)) out.body = OverlapTiles().mutate(f.body);
  return out;
}

}  // namespace mcc::tensor
