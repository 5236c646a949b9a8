#include "tensor/passes/async_copies.h"

#include <numeric>

#include "tensor/linear.h"
#include "tensor/passes/scope.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

class MakeAsync : public ScopedMutator {
 protected:
  using ScopedMutator::on;
  Stmt on(const Store& n, const Stmt& self) override {
    if (n.buffer.scope() != Scope::shared || n.predicate.defined()) return self;
    const int64_t bytes = byte_size(n.buffer.element()) * n.value.lanes();
    if (bytes != 4 && bytes != 8 && bytes != 16) return self;
    std::optional<Source> source = source_of(n.value);
    if (!source || source->load->buffer.element() != n.buffer.element() || !is_aligned(n.indices[0]) ||
        !is_aligned(source->load->indices[0])) {
      return self;
    }
    Expr condition = source->condition;
    if (is_true(condition)) {
      condition = nullptr;
    } else if (n.value.lanes() > 1) {
      condition = Broadcast::make(condition, n.value.lanes());
    }
    return Evaluate::make(Call::make(
        Intrinsic::async_copy, {Load::make(n.buffer, n.indices),
                                Load::make(source->load->buffer, source->load->indices, condition)}));
  }

 private:
  struct Source {
    const Load* load = nullptr;
    Expr condition = true_value();
  };

  // A condition of all lanes; undefined where they differ.
  static Expr uniform(const Expr& condition) {
    if (condition.lanes() == 1) return condition;
    const auto* same = condition.as<Broadcast>();
    return same ? same->value : Expr();
  }
  static bool is_zero(const Expr& e) {
    double value = 1;
    return as_number(e, &value) && value == 0;
  }

  // A load, or 0 where a condition does not hold.
  static std::optional<Source> source_of(const Expr& e) {
    if (const auto* load = e.as<Load>()) {
      Source source{load};
      if (load->predicate.defined()) source.condition = uniform(load->predicate);
      bool is_good = load->buffer.scope() == Scope::global && load->indices.size() == 1 &&
                     source.condition.defined() && !has_load(load->indices[0]);
      return is_good ? std::optional(source) : std::nullopt;
    }
    const auto* choice = e.as<Select>();
    if (!choice || !is_zero(choice->on_false)) return std::nullopt;
    std::optional<Source> source = source_of(choice->on_true);
    const Expr condition = uniform(choice->condition);
    // Both sides of "and" are computed: what an inner condition loads may be there only where the outer one holds.
    if (!source || !condition.defined() || has_load(source->condition)) return std::nullopt;
    source->condition =
        structurally_equal(source->condition, condition) ? condition : condition && source->condition;
    return source;
  }

  // Neighbours that begin at a multiple of their number, whatever the variables are.
  bool is_aligned(const Expr& index) const {
    if (index.lanes() == 1) return true;
    const auto* ramp = index.as<Ramp>();
    if (!ramp || !is_int(ramp->stride, 1)) return false;
    Linear first = lift(analyzer_.simplify(ramp->base));
    return !first.overflow && std::gcd(coefficient_gcd(first), first.constant) % index.lanes() == 0;
  }
};

// Two statements of the same form.
class StageInRegisters {
 public:
  explicit StageInRegisters(const Stmt& copies) : loads_(*this, true), stores_(*this, false) {
    out.loads = loads_.mutate(copies);
    if (is_clear_) out.stores = stores_.mutate(copies);
    // What the arithmetic can spare.
    constexpr int64_t kMostBytes = 256;
    is_clear_ &= bytes_ <= kMostBytes;
  }
  bool is_used() const { return is_clear_ && !out.registers.empty(); }
  StagedCopies out;

 private:
  class Half : public Mutator {
   public:
    Half(StageInRegisters& owner, bool loads) : owner_(owner), loads_(loads) {}

   protected:
    using Mutator::on;
    Stmt on(const For& n, const Stmt& self) override {
      loops_.push_back(&n);
      Stmt out = Mutator::on(n, self);
      loops_.pop_back();
      return out;
    }
    Stmt on(const Evaluate&, const Stmt& self) override { return loads_ ? self : Stmt(); }
    Stmt on(const Store& n, const Stmt& self) override {
      if (!has_load(n.value)) return loads_ ? self : Stmt();  // nothing to wait for
      const int lanes = n.value.lanes();
      Expr slot = 0;
      int64_t count = lanes;
      for (const For* loop : loops_) {
        int64_t extent = 0;
        owner_.is_clear_ &= as_int(loop->extent, &extent);
        slot = slot * loop->extent + (loop->var - loop->min);
        count *= extent;
      }
      owner_.is_clear_ &= n.buffer.scope() == Scope::shared && !n.predicate.defined();
      if (!owner_.is_clear_) return self;
      if (loads_) {
        owner_.out.registers.emplace_back(n.buffer.name() + ".next", n.buffer.element(), std::vector<Expr>{count},
                                      Scope::registers);
        owner_.bytes_ += count * byte_size(n.buffer.element());
      }
      const Buffer& r = owner_.out.registers[next_++];
      const Expr first = slot * Expr(lanes);
      const Expr place = lanes > 1 ? Ramp::make(first, 1, lanes) : first;
      if (loads_) return Store::make(r, {place}, n.value);
      return Store::make(n.buffer, n.indices, Load::make(r, {place}));
    }

   private:
    StageInRegisters& owner_;
    const bool loads_;
    std::vector<const For*> loops_;
    size_t next_ = 0;
  };

  bool is_clear_ = true;
  int64_t bytes_ = 0;
  Half loads_, stores_;
};

}  // namespace

Stmt make_async(const Stmt& copies) { return MakeAsync().mutate(copies); }

std::optional<StagedCopies> stage_in_registers(const Stmt& copies) {
  StageInRegisters staged(copies);
  return staged.is_used() ? std::optional(std::move(staged.out)) : std::nullopt;
}

}  // namespace mcc::tensor
