#include "tensor/passes/vectorize_loops.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "tensor/build.h"
#include "tensor/linear.h"
#include "tensor/passes/scope.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

std::optional<Reducer> reducer_of(BinaryOp op) {
  switch (op) {
    case BinaryOp::add:
      return Reducer::sum;
    case BinaryOp::mul:
      return Reducer::product;
    case BinaryOp::min:
      return Reducer::min;
    case BinaryOp::max:
      return Reducer::max;
    case BinaryOp::logical_or:
      return Reducer::any;
    case BinaryOp::logical_and:
      return Reducer::all;
    case BinaryOp::sub:
    case BinaryOp::div:
    case BinaryOp::mod:
    case BinaryOp::floor_div:
    case BinaryOp::floor_mod:
    case BinaryOp::eq:
    case BinaryOp::ne:
    case BinaryOp::lt:
    case BinaryOp::le:
    case BinaryOp::gt:
    case BinaryOp::ge:
    case BinaryOp::bit_and:
    case BinaryOp::bit_or:
    case BinaryOp::bit_xor:
    case BinaryOp::shl:
    case BinaryOp::shr:
      return std::nullopt;
  }
  MCC_UNREACHABLE("unknown operator");
}

using BufferSet = std::set<const BufferNode*>;

// Buffers of which some lanes of a vector may not be written: those stored to under a condition on the lane.
class FindMaskedStores : public Visitor {
 public:
  BufferSet buffers;

 protected:
  using Visitor::on;
  void on(const For& n) override {
    if (n.loop == LoopKind::vectorized) lanes_.push_back(n.var);
    Visitor::on(n);
    if (n.loop == LoopKind::vectorized) lanes_.pop_back();
  }
  void on(const If& n) override {
    bool was_masked = masked_;
    for (const Var& lane : lanes_)
      masked_ |= uses_var(n.condition, lane);
    Visitor::on(n);
    masked_ = was_masked;
  }
  void on(const Store& n) override {
    if (masked_) buffers.insert(n.buffer.get());
  }

 private:
  std::vector<Var> lanes_;
  bool masked_ = false;
};

// An update "b[c] = b[c] op x".
struct Update {
  BinaryOp op;
  Expr old, x;
};

std::optional<Update> match_update(const Store& n) {
  const auto* value = n.value.as<Binary>();
  if (!value || !reducer_of(value->op)) return std::nullopt;
  auto is_old = [&](const Expr& e) {
    const auto* old = e.as<Load>();
    if (!old || !old->buffer.same_as(n.buffer) || old->predicate.defined()) return false;
    for (size_t i = 0; i < n.indices.size(); ++i) {
      if (!structurally_equal(old->indices[i], n.indices[i])) return false;
    }
    return true;
  };
  for (auto [old, x] : {std::pair{value->a, value->b}, std::pair{value->b, value->a}}) {
    if (is_old(old) && !loads_from(x, n.buffer)) return Update{value->op, old, x};
  }
  return std::nullopt;
}

// The loads that an expression makes whatever its conditions are.
class FindUnconditionalLoads : public Visitor {
 public:
  std::vector<const Load*> loads;

 protected:
  using Visitor::on;
  void on(const Load& n) override {
    if (!n.predicate.defined()) loads.push_back(&n);
    Visitor::on(n);
  }
  void on(const Select& n) override { visit(n.condition); }
};

// Writes the body of one loop for all lanes at once. After run(), failed says that this was not possible.
class LaneWriter : public ScopedMutator {
 public:
  LaneWriter(const Var& var, const Expr& min, int lanes, const BufferSet& complete, const Analyzer& facts)
      : var_(var), lanes_(lanes), ramp_(Ramp::make(min, 1, lanes)), complete_(complete) {
    analyzer_ = facts;
    analyzer_.bind(var, min, lanes);
  }

  Stmt run(const Stmt& body) { return mutate(body); }

  // a < b where b - a = g * x - c * lane, and c * lane stays below g: x > 0 decides for all lanes.
  bool is_same_in_all_lanes(const Binary& n) const {
    if (n.op != BinaryOp::lt || n.a.type() != kIndex || n.b.type() != kIndex) return false;
    Linear rest = lift(analyzer_.simplify(n.b - n.a));
    const int64_t c = -rest.coefficient_of(var_);
    int64_t first = 0;
    if (rest.overflow || c <= 0 || c > kMaxLanes || !as_int(ramp_.as<Ramp>()->base, &first) || first != 0)
      return false;
    add_term(rest, var_, c);
    return std::gcd(coefficient_gcd(rest), rest.constant) > c * (lanes_ - 1);
  }
  bool failed = false;

 protected:
  using ScopedMutator::on;

  // ---- Expressions: the result has one lane or all ----

  Expr on(const VarNode& n, const Expr& self) override {
    if (&n == var_.node()) return ramp_;
    auto it = lets_.find(&n);
    return it == lets_.end() ? self : it->second;
  }

  Expr on(const Binary& n, const Expr& self) override {
    if (n.type == kIndex) {
      if (Expr ramp = as_ramp(self); ramp.defined()) return ramp;
    }
    if (is_same_in_all_lanes(n)) {
      Expr of_first = analyzer_.simplify(substitute(self, {{var_.node(), ramp_.as<Ramp>()->base}}));
      return mutate(of_first);
    }
    Expr a = mutate(n.a), b = mutate(n.b);
    if (a.same_as(n.a) && b.same_as(n.b)) return self;
    return binary(n.op, a, b);
  }

  Expr on(const Select& n, const Expr&) override {
    Expr c = mutate(n.condition);
    if (c.lanes() == 1) {
      Expr x = mutate(n.on_true), y = mutate(n.on_false);
      return select(c, x, y);
    }
    const size_t outer = done_.size();
    FindUnconditionalLoads condition;
    condition.visit(n.condition);
    for (const Load* load : condition.loads)
      done_.push_back({load, mask_});
    Expr x = under(c, [&] { return mutate(n.on_true); });
    Expr y = under(logical_not(c), [&] { return mutate(n.on_false); });
    done_.resize(outer);
    return select(c, widen(x), widen(y));
  }

  Expr on(const Load& n, const Expr& self) override {
    bool changed = false;
    std::vector<Expr> indices = lane_indices(n.buffer, n.indices, &changed);
    Expr predicate = mutate(n.predicate);
    Buffer buffer = on_buffer(n.buffer);
    if (!changed && predicate.same_as(n.predicate) && !mask_.defined()) return self;
    int lanes = 1;
    for (const Expr& i : indices)
      lanes = std::max(lanes, i.lanes());
    if (Expr mask = mask_of(n); mask.defined() && !is_harmless(n)) {
      if (lanes == 1) mask = VectorReduce::make(BinaryOp::logical_or, mask);
      predicate = predicate.defined() ? predicate && mask : mask;
    }
    if (predicate.defined() && predicate.lanes() < lanes) predicate = Broadcast::make(predicate, lanes);
    if (predicate.defined() && predicate.lanes() > lanes) {
      for (Expr& i : indices)
        i = widen(i);
    }
    return Load::make(buffer, std::move(indices), predicate);
  }

  Expr on(const Call& n, const Expr& self) override {
    bool changed = false;
    std::vector<Expr> args = mutate(n.args, &changed);
    if (!changed) return self;
    if (n.type.is_vector()) return nested_vector(self);
    int lanes = 1;
    for (const Expr& a : args)
      lanes = std::max(lanes, a.lanes());
    if (lanes > 1) {
      for (Expr& a : args)
        a = widen(a);
    }
    return Call::make(n.type.with_lanes(lanes), n.function, std::move(args));
  }

  Expr on(const Ramp&, const Expr& self) override { return nested_vector(self); }
  Expr on(const Broadcast&, const Expr& self) override { return nested_vector(self); }
  Expr on(const Shuffle&, const Expr& self) override { return nested_vector(self); }
  Expr on(const VectorReduce&, const Expr& self) override { return nested_vector(self); }

  // ---- Statements ----

  Stmt on(const Store& n, const Stmt&) override {
    bool changed = false;
    std::vector<Expr> indices = lane_indices(n.buffer, n.indices, &changed);
    bool varies = false;
    for (const Expr& i : indices)
      varies |= i.lanes() > 1;
    if (!varies) return store_to_one(n, indices);
    Expr value = widen(mutate(n.value)), predicate = mutate(n.predicate);
    if (predicate.defined()) predicate = widen(predicate);
    if (mask_.defined()) predicate = predicate.defined() ? mask_ && predicate : mask_;
    return Store::make(on_buffer(n.buffer), std::move(indices), value, predicate);
  }

  Stmt on(const If& n, const Stmt& self) override {
    Expr c = mutate(n.condition);
    if (c.lanes() == 1) return ScopedMutator::on(n, self);
    // The mask stays what it was at the start, whatever the body stores.
    Var mask("mask", c.type());
    bool is_named = has_load(c);
    Expr used = is_named ? Expr(mask) : c;
    Stmt then_body = under(used, [&] { return mutate(n.then_body); });
    Stmt else_body = !n.else_body ? Stmt() : under(logical_not(used), [&] { return mutate(n.else_body); });
    Stmt both = Seq::make({then_body, else_body});
    return is_named ? Let::make(mask, c, both) : both;
  }

  Stmt on(const For& n, const Stmt& self) override {
    Expr min = mutate(n.min), extent = mutate(n.extent);
    if (min.lanes() > 1 || extent.lanes() > 1 || n.loop == LoopKind::parallel || n.loop == LoopKind::bound) {
      return fail(self);
    }
    return in_scope([&] {
      analyzer_.bind(n.var, n.min, n.extent);
      LoopKind kind = n.loop == LoopKind::vectorized ? LoopKind::serial : n.loop;
      Stmt body = mutate(n.body);
      return body ? For::make(n.var, min, extent, kind, body, n.annotations) : Stmt();
    });
  }

  Stmt on(const Let& n, const Stmt& self) override {
    Expr value = mutate(n.value);
    if (value.lanes() == 1) {
      Stmt body = mutate(n.body);
      if (value.same_as(n.value) && body.same_as(n.body)) return self;
      return body ? Let::make(n.var, value, body) : nullptr;
    }
    Var wide(n.var.name(), value.type());
    lets_.emplace(n.var.node(), wide);
    Stmt body = mutate(n.body);
    return body ? Let::make(wide, value, body) : nullptr;
  }

  // Each lane gets its own copy, lanes side by side.
  Stmt on(const Allocate& n, const Stmt& self) override {
    if (n.buffer.rank() != 1) return fail(self);
    Buffer wide(n.buffer.name(), n.buffer.element(), {n.buffer.shape()[0] * Expr(lanes_)}, n.buffer.scope(),
                n.buffer->alignment);
    private_.emplace(n.buffer.get(), wide);
    Stmt body = mutate(n.body);
    return body ? Allocate::make(wide, body) : nullptr;
  }

  // A hint for the first lane will do.
  Stmt on(const Evaluate& n, const Stmt&) override {
    if (mask_.defined()) return nullptr;
    return Evaluate::make(substitute(n.value, {{var_.get(), ramp_.as<Ramp>()->base}}));
  }

  Buffer on_buffer(const Buffer& buffer) override {
    auto it = private_.find(buffer.get());
    return it == private_.end() ? buffer : it->second;
  }

 private:
  Stmt fail(const Stmt& s) {
    failed = true;
    return s;
  }

  Expr widen(const Expr& e) const { return e.lanes() == 1 ? Broadcast::make(e, lanes_) : e; }

  bool varies(const Expr& e) const {
    return uses_any_var(e, [&](const VarNode* v) { return v == var_.node() || lets_.contains(v); });
  }

  Expr nested_vector(const Expr& self) {
    failed |= varies(self) || (mask_.defined() && has_load(self));
    return self;
  }

  // The result of f with the mask narrowed by condition.
  template <class F>
  std::invoke_result_t<F> under(const Expr& condition, F&& f) {
    Expr outer = mask_;
    mask_ = outer.defined() ? outer && condition : condition;
    auto result = f();
    mask_ = outer;
    return result;
  }

  // base + lane * stride, if e is linear in the loop's variable and depends on it; else undefined.
  Expr as_ramp(const Expr& e) {
    auto form = linear_form(e, {var_});
    if (!form || form->coefficients[0] == 0) return nullptr;
    int64_t stride = form->coefficients[0];
    Expr rest = mutate(form->rest);
    if (rest.lanes() > 1) return nullptr;
    Expr base = analyzer_.simplify(rest + ramp_.as<Ramp>()->base * Expr(stride));
    return Ramp::make(base, stride, lanes_);
  }

  std::vector<Expr> lane_indices(const Buffer& buffer, const std::vector<Expr>& indices, bool* changed) {
    std::vector<Expr> out = mutate(indices, changed);
    if (private_.contains(buffer.get())) {
      out[0] = out[0] * Expr(lanes_) + Ramp::make(0, 1, lanes_);
      *changed = true;
    }
    return out;
  }

  // Where a load is made that stands here: what a condition around here has loaded already is loaded for the same lanes.
  Expr mask_of(const Load& n) const {
    auto same = std::find_if(done_.begin(), done_.end(), [&](const Done& d) {
      return d.load->buffer.same_as(n.buffer) &&
             std::equal(n.indices.begin(), n.indices.end(), d.load->indices.begin(), d.load->indices.end(),
                        [](const Expr& a, const Expr& b) { return structurally_equal(a, b); });
    });
    return same == done_.end() ? mask_ : same->mask;
  }

  // Whether the load may be done for lanes that do not run: inside of a buffer that has a value everywhere.
  bool is_harmless(const Load& n) const {
    if (!complete_.contains(n.buffer.get())) return false;
    for (size_t i = 0; i < n.indices.size(); ++i) {
      if (has_load(n.indices[i])) return false;
      if (!analyzer_.can_prove(n.indices[i] >= Expr(0))) return false;
      if (!analyzer_.can_prove(n.indices[i] < n.buffer.shape()[i])) return false;
    }
    return true;
  }

  // All lanes store to the same element.
  Stmt store_to_one(const Store& n, const std::vector<Expr>& indices) {
    if (varies(n.value)) {
      auto update = match_update(n);
      if (!update || n.predicate.defined()) return fail(Stmt(&n));
      Expr x = widen(mutate(update->x));
      if (mask_.defined()) x = select(mask_, x, widen(identity(*reducer_of(update->op), x.element())));
      Expr old = Load::make(n.buffer, indices);
      return Store::make(n.buffer, indices, binary(update->op, old, VectorReduce::make(update->op, x)));
    }
    // An update by the same value in every lane depends on their number.
    if (loads_from(n.value, n.buffer) || varies_predicate(n)) return fail(Stmt(&n));
    Stmt store = Store::make(n.buffer, indices, mutate(n.value), n.predicate);
    return mask_.defined() ? If::make(VectorReduce::make(BinaryOp::logical_or, mask_), store) : store;
  }

  bool varies_predicate(const Store& n) const { return n.predicate.defined() && varies(n.predicate); }

  Var var_;
  int lanes_;
  Expr ramp_;
  const BufferSet& complete_;
  Expr mask_;    // lanes that run; undefined: all
  // What the conditions of the selects around here load, and for which lanes.
  struct Done {
    const Load* load;
    Expr mask;
  };
  std::vector<Done> done_;
  VarMap lets_;  // variables whose value differs between lanes
  BufferMap private_;
};

class VectorizeLoops : public ScopedMutator {
 public:
  explicit VectorizeLoops(const BufferSet& complete) : complete_(complete) {}

 protected:
  using ScopedMutator::on;

  Stmt on(const For& n, const Stmt& self) override {
    if (n.loop != LoopKind::vectorized) return ScopedMutator::on(n, self);
    int64_t lanes = 0;
    if (!as_int(n.extent, &lanes) || lanes < 2) return serial(n);
    if (lanes > kMaxLanes) return in_chunks(n, lanes);
    LaneWriter writer(n.var, n.min, static_cast<int>(lanes), complete_, analyzer_);
    Stmt vector = writer.run(n.body);
    return writer.failed ? serial(n) : vector;
  }

 private:
  Stmt serial(const For& n) {
    return in_scope([&] {
      analyzer_.bind(n.var, n.min, n.extent);
      return with_kind(n, LoopKind::serial, mutate(n.body));
    });
  }

  // for v in 200 -> for v.chunk in 3, vectorized v in 64; then vectorized v in 8 from 192
  Stmt in_chunks(const For& n, int64_t extent) {
    int64_t lanes = kMaxLanes;
    while (lanes > 16 && extent % lanes != 0)
      lanes /= 2;
    Var chunk(n.var.name() + ".chunk"), lane(n.var.name()), rest(n.var.name());
    Stmt inner = For::make(lane, 0, lanes, LoopKind::vectorized,
                           substitute(n.body, {{n.var.get(), n.min + chunk * Expr(lanes) + lane}}));
    Stmt chunks = mutate(For::make(chunk, 0, extent / lanes, LoopKind::serial, inner));
    if (extent % lanes == 0) return chunks;
    Stmt tail = For::make(rest, n.min + Expr(extent - extent % lanes), extent % lanes, LoopKind::vectorized,
                          substitute(n.body, {{n.var.get(), rest}}));
    return Seq::make({chunks, mutate(tail)});
  }

  const BufferSet& complete_;
};

}  // namespace

Func vectorize_loops(const Func& f) {
  FindMaskedStores masked;
  masked.visit(f.body);
  BufferSet complete;
  // An output that is updated under a mask has elements beyond it that nothing has written yet.
  for (size_t i = 0; i < f.params.size(); ++i) {
    const bool is_input = i < static_cast<size_t>(f.num_inputs());
    if (is_input || !masked.buffers.contains(f.params[i].get())) complete.insert(f.params[i].get());
  }
  for_each_stmt(f.body, [&](const Stmt& s) {
    const auto* a = s.as<Allocate>();
    bool is_register = a && a->buffer.scope() == Scope::registers;
    if (is_register && !masked.buffers.contains(a->buffer.get())) complete.insert(a->buffer.get());
  });
  Func out = f;
  out.body = VectorizeLoops(complete).mutate(f.body);
  return out;
}

}  // namespace mcc::tensor
