#include "tensor/passes/form_launches.h"

#include <functional>
#include <map>
#include <set>

#include "tensor/build.h"
#include "tensor/grid.h"
#include "tensor/passes/exchange_in_warps.h"
#include "tensor/passes/scope.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

std::vector<Stmt> parts_of(const Stmt& body) {
  if (!body) return {};
  const auto* seq = body.as<Seq>();
  return seq ? seq->stmts : std::vector<Stmt>{body};
}

// The parts, those in loops around launches too: each becomes a launch of its own.
void for_each_part(const Stmt& body, const std::function<void(const Stmt& part, bool is_repeated)>& f,
                   bool is_repeated = false) {
  for (const Stmt& part : parts_of(body)) {
    if (is_launch_loop(part)) {
      for_each_part(part.as<For>()->body, f, true);
    } else {
      f(part, is_repeated);
    }
  }
}

// ---- Which intermediates a thread has to itself ----

// The statement at the top and the nest of threads that each buffer is used in.
class FindUsers : public Visitor {
 public:
  struct Users {
    std::set<std::pair<const StmtNode*, const For*>> places;
    bool is_repeated = false;  // a launch may use what the same one has left there before
  };
  std::map<const BufferNode*, Users> users;

  void part(const Stmt& s, bool is_repeated) {
    part_ = s.get();
    is_repeated_ = is_repeated;
    visit(s);
  }

 protected:
  using Visitor::on;
  void on(const For& n) override {
    visit(n.min);
    visit(n.extent);
    const For* saved = nest_;
    if (!nest_ && is_thread_loop(n)) nest_ = &n;
    visit(n.body);
    nest_ = saved;
  }
  void on(const Load& n) override {
    Visitor::on(n);
    add(n.buffer);
  }
  void on(const Store& n) override {
    Visitor::on(n);
    add(n.buffer);
  }

 private:
  void add(const Buffer& buffer) {
    Users& of = users[buffer.get()];
    of.places.emplace(part_, nest_);
    of.is_repeated |= is_repeated_;
  }

  const StmtNode* part_ = nullptr;
  const For* nest_ = nullptr;
  bool is_repeated_ = false;
};

// Intermediates without a place of their own that one nest of threads uses become local; shared ones of several parts global.
Func choose_scopes(const Func& f) {
  FindUsers find;
  for_each_part(f.body, [&](const Stmt& part, bool is_repeated) { find.part(part, is_repeated); });
  Func out = f;
  BufferMap made;
  for (Buffer& b : out.allocs) {
    auto it = find.users.find(b.get());
    if (it == find.users.end()) continue;
    const auto& places = it->second.places;
    bool is_private =
        b.scope() == Scope::global && !it->second.is_repeated && places.size() == 1 && places.begin()->second;
    bool is_spread = b.scope() == Scope::shared && places.begin()->first != places.rbegin()->first;
    if (!is_private && !is_spread) continue;
    Buffer placed(b.name(), b.element(), b.shape(), is_private ? Scope::local : Scope::global, b->alignment);
    made.emplace(b.get(), placed);
    b = placed;
  }
  out.body = replace_buffers(f.body, made);
  return out;
}

// ---- Threads that combine their values ----

Expr identity_of(BinaryOp op, ElementType element) {
  switch (op) {
    case BinaryOp::add:
      return identity(Reducer::sum, element);
    case BinaryOp::mul:
      return identity(Reducer::product, element);
    case BinaryOp::min:
      return identity(Reducer::min, element);
    case BinaryOp::max:
      return identity(Reducer::max, element);
    case BinaryOp::logical_and:
      return identity(Reducer::all, element);
    default:
      return identity(Reducer::any, element);
  }
}

// A nest whose innermost loop, of n threads, is an update b = b op x becomes
//   s = x op that of the threads at distance 16, 8, 4, 2, 1       (all get the same)
//   b = b op s
// or, for n above 32, the sums of the warps go through shared memory:
//   thread 0 of each warp: warps[.., warp] = s;  b = b op ((warps[.., 0] op warps[.., 1]) op (warps[.., 2] op ...))
// x has 32 or 64 bits; a condition chooses between x and the operator's identity, since all threads of a warp take part.
class CombineThreads : public Mutator {
 public:
  std::vector<Buffer> made;

 protected:
  using Mutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    if (!is_thread_loop(n)) return Mutator::on(n, self);
    std::vector<const For*> nest{&n};
    while (const auto* inner = nest.back()->body.as<For>()) {
      if (!is_thread_loop(*inner)) break;
      nest.push_back(inner);
    }
    return is_cross_loop(*nest.back()) ? combine(nest) : self;
  }

 private:
  static constexpr int64_t kWarp = 32;

  Stmt combine(const std::vector<const For*>& nest) {
    const For& loop = *nest.back();
    Expr condition = true_value();
    Stmt body = loop.body;
    if (const auto* guard = body.as<If>()) {
      condition = guard->condition;
      body = guard->then_body;
    }
    const auto* store = body.as<Store>();
    const auto* sum = store ? store->value.as<Binary>() : nullptr;
    MCC_CHECK(sum, "loop ", loop.var.name(), " over threads holds no update");
    const bool is_left = loads_from(sum->a, store->buffer);
    const Expr old = is_left ? sum->a : sum->b, operand = is_left ? sum->b : sum->a;
    // Whether the element exists does not depend on the thread along the loop.
    std::vector<Expr> of_element, of_thread;
    for (const Expr& term : conjuncts(condition))
      (uses_var(term, loop.var) ? of_thread : of_element).push_back(term);
    auto guarded = [&](const Stmt& s) {
      return of_element.empty() ? s : If::make(conjunction(of_element), s);
    };
    int64_t extent = 0;
    as_int(loop.extent, &extent);

    const Type type = operand.type();
    std::vector<Var> vars{Var("part", type)};
    std::vector<Expr> values{select(condition, operand, identity_of(sum->op, operand.element()))};
    for (int64_t distance = std::min(extent, kWarp) / 2; distance >= 1; distance /= 2) {
      const Var last = vars.back();
      vars.emplace_back("part", type);
      values.push_back(binary(sum->op, last, Call::make(Intrinsic::shuffle_xor, {last, Expr(distance)})));
    }
    auto with_parts = [&](Stmt s) {
      for (size_t k = vars.size(); k-- > 0;)
        s = Let::make(vars[k], values[k], s);
      return s;
    };
    auto in_nest = [&](Stmt s) {
      for (size_t k = nest.size(); k-- > 0;) {
        Annotations annotations = nest[k]->annotations;
        annotations.erase(kCross);
        s = For::make(nest[k]->var, nest[k]->min, nest[k]->extent, nest[k]->loop, s, std::move(annotations));
      }
      return s;
    };
    auto by_first = [&](const Stmt& s) {
      return is_private(store->buffer) ? s : If::make(loop.var == Expr(0), s);
    };
    if (extent <= kWarp) {
      Stmt update = Store::make(store->buffer, store->indices, binary(sum->op, old, vars.back()));
      return in_nest(with_parts(guarded(by_first(update))));
    }
    std::vector<Expr> shape, place;
    for (size_t k = 0; k + 1 < nest.size(); ++k) {
      shape.push_back(nest[k]->extent);
      place.push_back(nest[k]->var);
    }
    shape.emplace_back(extent / kWarp);
    Buffer warps(store->buffer.name() + ".warps", operand.element(), shape, Scope::shared);
    made.push_back(warps);
    std::vector<Expr> own = place;
    own.push_back(floor_div(loop.var, kWarp));
    Stmt first = in_nest(
        with_parts(If::make(floor_mod(loop.var, kWarp) == Expr(0), Store::make(warps, own, vars.back()))));
    auto of_warp = [&](int64_t w) {
      std::vector<Expr> at = place;
      at.emplace_back(w);
      return load(warps, at);
    };
    const Expr total = binary(sum->op, old, pairwise(sum->op, 0, extent / kWarp, of_warp));
    Stmt second = guarded(by_first(Store::make(store->buffer, store->indices, total)));
    return Seq::make({first, rename(in_nest(second), nest)});  // a variable is bound by one loop
  }

  // The values of [begin, end), in as few steps that wait for each other as there can be.
  template <class F>
  static Expr pairwise(BinaryOp op, int64_t begin, int64_t end, const F& value) {
    if (end - begin == 1) return value(begin);
    const int64_t middle = (begin + end) / 2;
    return binary(op, pairwise(op, begin, middle, value), pairwise(op, middle, end, value));
  }

  static bool is_private(const Buffer& b) {
    return b.scope() == Scope::local || b.scope() == Scope::registers;
  }

  static Stmt rename(const Stmt& s, const std::vector<const For*>& nest) {
    if (nest.empty()) return s;
    const For& loop = *s.as<For>();
    Var copy(loop.var.name());
    Stmt body = rename(loop.body, {nest.begin() + 1, nest.end()});
    return For::make(copy, loop.min, loop.extent, loop.loop, substitute(body, {{loop.var.get(), copy}}),
                     loop.annotations);
  }
};

// ---- Barriers ----

// What threads share and a statement uses: each buffer, and by whom.
class Uses : public Visitor {
 public:
  bool conflicts_with(const Uses& later) const {
    for (const auto& [buffer, how] : how_) {
      auto it = later.how_.find(buffer);
      if (it == later.how_.end()) continue;
      const uint8_t both = how | it->second;
      bool is_written = both & (kWrittenByOne | kWrittenByMany);
      bool is_of_one = !(both & (kReadByMany | kWrittenByMany));  // the same one
      if (is_written && !is_of_one) return true;
    }
    return false;
  }
  void add(const Uses& other) {
    for (const auto& [buffer, how] : other.how_)
      how_[buffer] |= how;
  }
  void clear() { how_.clear(); }

  // Whether one thread does the statement, which is outside of all nests: what it stores is shared, and it loads for that only.
  static bool is_of_one_thread(const Stmt& s) {
    bool is_of_one = true;
    for_each_stmt(s, [&](const Stmt& below) {
      if (const auto* loop = below.as<For>()) {
        is_of_one &= !is_thread_loop(*loop) && !has_load(loop->min) && !has_load(loop->extent);
      } else if (const auto* n = below.as<If>()) {
        is_of_one &= !has_load(n->condition);
      } else if (const auto* store = below.as<Store>()) {
        is_of_one &= is_shared(store->buffer);
      } else {
        is_of_one &= below.kind() == StmtKind::Seq;
      }
    });
    return is_of_one;
  }
  // Of a statement outside of all nests one thread does what it stores to what is shared, all do the rest.
  static Uses of(const Stmt& s) {
    Uses uses;
    uses.many_ = !is_of_one_thread(s);
    uses.visit(s);
    return uses;
  }
  // Of what each thread computes for itself: a condition, a bound, the value of a let.
  static Uses of(const std::vector<Expr>& list) {
    Uses uses;
    for (const Expr& e : list)
      uses.visit(e);
    return uses;
  }

 protected:
  using Visitor::on;
  void on(const Load& n) override {
    Visitor::on(n);
    if (is_shared(n.buffer)) how_[n.buffer.get()] |= many_ ? kReadByMany : kReadByOne;
  }
  void on(const Store& n) override {
    Visitor::on(n);
    if (is_shared(n.buffer)) how_[n.buffer.get()] |= many_ ? kWrittenByMany : kWrittenByOne;
  }

 private:
  static constexpr uint8_t kReadByOne = 1, kReadByMany = 2, kWrittenByOne = 4, kWrittenByMany = 8;
  static bool is_shared(const Buffer& b) { return b.scope() == Scope::global || b.scope() == Scope::shared; }

  std::map<const BufferNode*, uint8_t> how_;  // keyed access only: the order of addresses is not used
  bool many_ = true;
};

Stmt make_barrier() { return Evaluate::make(Call::make(Intrinsic::barrier, {})); }

Stmt join(std::vector<Stmt> before, const Stmt& s) {
  before.push_back(s);
  return Seq::make(std::move(before));
}

// Places barriers in the body of a block. since: what has been done since the last barrier.
class PlaceBarriers {
 public:
  Stmt place(const Stmt& s, Uses* since) {
    if (const auto* seq = s.as<Seq>()) {
      std::vector<Stmt> out;
      for (const Stmt& part : seq->stmts)
        out.push_back(place(part, since));
      return Seq::make(std::move(out));
    }
    if (const auto* loop = s.as<For>(); loop && !is_thread_loop(*loop) && !Uses::is_of_one_thread(s)) {
      return place_in_loop(*loop, since);
    }
    if (const auto* n = s.as<If>()) {
      std::vector<Stmt> before = wait_for(Uses::of({n->condition}), since);
      Uses other = *since;
      Stmt then_body = place(n->then_body, since);
      Stmt else_body = n->else_body ? place(n->else_body, &other) : nullptr;
      since->add(other);
      return join(std::move(before), If::make(n->condition, then_body, else_body));
    }
    if (const auto* n = s.as<Let>()) {
      std::vector<Stmt> before = wait_for(Uses::of({n->value}), since);
      return join(std::move(before), Let::make(n->var, n->value, place(n->body, since)));
    }
    return join(wait_for(Uses::of(s), since), s);
  }

 private:
  static std::vector<Stmt> wait_for(const Uses& next, Uses* since) {
    std::vector<Stmt> out;
    if (since->conflicts_with(next)) {
      out.push_back(make_barrier());
      since->clear();
    }
    since->add(next);
    return out;
  }

  Stmt place_in_loop(const For& n, Uses* since) {
    std::vector<Stmt> before = wait_for(Uses::of({n.min, n.extent}), since);
    const Uses at_entry = *since;
    Uses left, again, first = at_entry;  // by an iteration; at the end of another one
    place(n.body, &left);
    again = left;
    Stmt body = place(n.body, &again);
    first.add(left);
    if (to_text(place(n.body, &first)) != to_text(body)) {
      // Only the first iteration has to wait: outside.
      before.push_back(make_barrier());
      *since = again;
    } else {
      since->add(again);  // there may be no iteration
    }
    return join(std::move(before), with_body(n, body));
  }
};

// ---- One body for all threads ----

struct ThreadAxis {
  Var var;
  int64_t extent = 0;
};
using ThreadAxes = std::map<GridAxis, ThreadAxis>;

ThreadAxes thread_axes(const Stmt& body) {
  ThreadAxes axes;
  for_each_stmt(body, [&](const Stmt& s) {
    const auto* loop = s.as<For>();
    if (!loop || !is_thread_loop(*loop)) return;
    ThreadAxis& axis = axes[*grid_axis(*loop)];
    int64_t extent = 0;
    MCC_CHECK(as_int(loop->extent, &extent), "loop ", loop->var.name(),
              " over threads has a symbolic extent");
    axis.extent = std::max(axis.extent, extent);
  });
  if (axes.empty()) axes[GridAxis::thread_x].extent = 1;
  for (auto& [axis, made] : axes)
    made.var = Var(std::string(info_of(axis).name));
  return axes;
}

class MergeThreads : public Mutator {
 public:
  explicit MergeThreads(const ThreadAxes& axes) : axes_(axes) {}

 protected:
  using Mutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    if (!is_thread_loop(n)) return Mutator::on(n, self);
    const GridAxis name = *grid_axis(n);
    const ThreadAxis& axis = axes_.at(name);
    inside_.insert(name);
    Stmt body = mutate(substitute(n.body, {{n.var.get(), axis.var}}));
    inside_.erase(name);
    if (!body || is_int(n.extent, axis.extent)) return body;
    return If::make(axis.var < n.extent, body);
  }
  Stmt on(const Store& n, const Stmt& self) override {
    if (n.buffer.scope() == Scope::local || n.buffer.scope() == Scope::registers) return self;
    std::vector<Expr> first;
    for (const auto& [name, axis] : axes_) {
      if (!inside_.contains(name) && axis.extent > 1) first.push_back(axis.var == Expr(0));
    }
    return first.empty() ? self : If::make(conjunction(first), self);
  }

 private:
  const ThreadAxes& axes_;
  std::set<GridAxis> inside_;
};

Stmt bound_loop(GridAxis axis, const Var& var, const Expr& extent, Annotations annotations,
                const Stmt& body) {
  annotations["thread"] = std::string(info_of(axis).name);
  return For::make(var, 0, extent, LoopKind::bound, body, std::move(annotations));
}

Stmt form_launch(const Stmt& part) {
  std::map<GridAxis, const For*> blocks;
  Stmt body = part;
  while (const auto* loop = body.as<For>()) {
    if (!is_block_loop(*loop)) break;
    blocks.emplace(*grid_axis(*loop), loop);
    body = loop->body;
  }
  ThreadAxes axes = thread_axes(body);
  Uses since;
  Stmt out = MergeThreads(axes).mutate(PlaceBarriers().place(body, &since));
  for (auto it = axes.rbegin(); it != axes.rend(); ++it)
    out = bound_loop(it->first, it->second.var, it->second.extent, {}, out);
  for (auto it = blocks.rbegin(); it != blocks.rend(); ++it)
    out = bound_loop(it->first, it->second->var, it->second->extent, it->second->annotations, out);
  return out;
}

Stmt form_parts(const Stmt& body) {
  std::vector<Stmt> parts;
  for (const Stmt& part : parts_of(body)) {
    if (is_launch_loop(part)) {
      const For& loop = *part.as<For>();
      parts.push_back(with_body(loop, form_parts(loop.body)));
    } else {
      parts.push_back(has_bound_loop(part) || !has_loop(part) ? form_launch(part) : part);
    }
  }
  return parts.empty() ? Stmt() : Seq::make(std::move(parts));
}

}  // namespace

Func form_launches(const Func& f) {
  CombineThreads combine;
  Func combined = exchange_in_warps(f);
  combined.body = combine.mutate(combined.body);
  combined.allocs.insert(combined.allocs.end(), combine.made.begin(), combine.made.end());
  Func out = choose_scopes(combined);
  out.body = form_parts(out.body);
  return out;
}

}  // namespace mcc::tensor
