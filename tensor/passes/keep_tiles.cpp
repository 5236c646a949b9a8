#include "tensor/passes/keep_tiles.h"

#include <algorithm>
#include <optional>

#include "tensor/intrinsics.h"
#include "tensor/passes/scope.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

const Call* as_call(const Stmt& s) {
  const auto* evaluate = s.as<Evaluate>();
  return evaluate ? evaluate->value.as<Call>() : nullptr;
}

Stmt make(Intrinsic function, std::vector<Expr> args) {
  return Evaluate::make(Call::make(function, std::move(args)));
}

// A tile in memory: its first element, and the elements from one row to the next.
struct Place {
  Expr first, row;
  bool operator==(const Place& o) const {
    return structurally_equal(first, o.first) && structurally_equal(row, o.row);
  }
};

struct Product {
  Intrinsic function;
  Place sum, left, right;
  Expr rows, k;
};
Product product_of(const Call& n) {
  return {n.function, {n.args[0], n.args[1]}, {n.args[2], n.args[3]}, {n.args[4], n.args[5]}, n.args[6], n.args[7]};
}

// Of what is in registers.
Intrinsic multiplication(Intrinsic product) {
  return product == Intrinsic::tile_product_bf16 ? Intrinsic::tile_multiply_bf16
                                                 : Intrinsic::tile_multiply_u8i8;
}

// Which tiles hold what: sums, then left operands, then right ones.
struct Layout {
  int64_t rows = 0, k = 0;
  int sums = 0, lefts = 0;
  bool operator==(const Layout&) const = default;
  Stmt configured() const {
    return make(Intrinsic::tile_configure, {Expr(rows), Expr(k), Expr(sums), Expr(lefts)});
  }
  static Stmt released() { return make(Intrinsic::tile_configure, {Expr(0), Expr(0), Expr(0), Expr(0)}); }
};

// Statements that do nothing but products, and hints.
struct Group {
  std::vector<Place> sums;
  int64_t rows = 0, k = 0;

  Layout layout() const {
    const int count = static_cast<int>(sums.size());
    return {rows, k, count, std::max(1, (kTiles - count) / 2)};
  }

  // False where the statement does anything else, or moves a sum along one of its loops.
  bool take(const Stmt& s, std::vector<const ExprNode*>* loops) {
    if (const auto* loop = s.as<For>()) {
      if (loop->loop != LoopKind::serial && loop->loop != LoopKind::unrolled) return false;
      loops->push_back(loop->var.get());
      const bool is_taken = take(loop->body, loops);
      loops->pop_back();
      return is_taken;
    }
    if (const auto* seq = s.as<Seq>())
      return std::all_of(seq->stmts.begin(), seq->stmts.end(),
                         [&](const Stmt& below) { return take(below, loops); });
    const Call* call = as_call(s);
    if (call && call->function == Intrinsic::prefetch) return true;
    if (!call || !is_tile_product(call->function)) return false;
    const Product p = product_of(*call);
    int64_t own_rows = 0, own_k = 0;
    if (!as_int(p.rows, &own_rows) || !as_int(p.k, &own_k)) return false;
    for (const ExprNode* var : *loops) {
      if (uses_any_var(p.sum.first, [&](const VarNode* v) { return v == var; })) return false;
    }
    if (!sums.empty() && (own_rows != rows || own_k != k)) return false;
    rows = own_rows;
    k = own_k;
    if (std::find(sums.begin(), sums.end(), p.sum) == sums.end()) sums.push_back(p.sum);
    // A tile for each operand besides.
    return sums.size() + 2 <= kTiles;
  }
};

// The statement's, behind what is in a group already.
std::optional<Group> group_of(const Stmt& s, Group group = {}) {
  std::vector<const ExprNode*> loops;
  if (!group.take(s, &loops) || group.sums.empty()) return std::nullopt;
  return group;
}

// The products of a group in registers. What operand tiles hold is known from one product to the next of a sequence.
class InRegisters : public Mutator {
 public:
  InRegisters(const std::vector<Place>& sums, const Layout& layout)
      : sums_(sums),
        lefts_(layout.sums, layout.lefts),
        rights_(layout.sums + layout.lefts, kTiles - layout.sums - layout.lefts) {}

 protected:
  using Mutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    forget();
    Stmt out = Mutator::on(n, self);
    forget();
    return out;
  }
  Stmt on(const Evaluate&, const Stmt& self) override {
    const Call* call = as_call(self);
    if (!call || !is_tile_product(call->function)) return self;
    const Product p = product_of(*call);
    std::vector<Stmt> out;
    const int left = lefts_.hold(p.left, &out), right = rights_.hold(p.right, &out);
    const auto sum = std::find(sums_.begin(), sums_.end(), p.sum) - sums_.begin();
    out.push_back(make(multiplication(p.function), {Expr(int64_t{sum}), Expr(left), Expr(right)}));
    return Seq::make(std::move(out));
  }

 private:
  // The tiles of one kind of operands, in turn.
  class Holder {
   public:
    Holder(int first, int count) : first_(first), held_(static_cast<size_t>(count)) {}
    int hold(const Place& place, std::vector<Stmt>* out) {
      auto it = std::find(held_.begin(), held_.end(), std::optional(place));
      if (it == held_.end()) {
        it = held_.begin() + static_cast<std::ptrdiff_t>(next_);
        next_ = (next_ + 1) % held_.size();
        *it = place;
        out->push_back(make(Intrinsic::tile_load, {place.first, place.row, Expr(number(it))}));
      }
      return number(it);
    }
    void forget() { held_.assign(held_.size(), std::nullopt), next_ = 0; }

   private:
    int number(std::vector<std::optional<Place>>::iterator it) {
      return first_ + static_cast<int>(it - held_.begin());
    }
    int first_;
    std::vector<std::optional<Place>> held_;
    size_t next_ = 0;
  };
  void forget() { lefts_.forget(), rights_.forget(); }

  const std::vector<Place>& sums_;
  Holder lefts_, rights_;
};

// ---- Sums that begin with 0 ----

using Elements = std::vector<bool>;  // of a buffer

bool mark(const Expr& index, int64_t count, Elements* elements) {
  int64_t first = 0;
  const auto* ramp = index.as<Ramp>();
  if ((ramp && !is_int(ramp->stride, 1)) || !as_int(ramp ? ramp->base : index, &first)) return false;
  if (first < 0 || first + count > static_cast<int64_t>(elements->size())) return false;
  std::fill_n(elements->begin() + static_cast<std::ptrdiff_t>(first), count, true);
  return true;
}

// Whether the statement does nothing but write zeros to the buffer, and where.
bool writes_zeros(const Stmt& s, const Buffer& buffer, Elements* elements) {
  if (const auto* loop = s.as<For>()) {
    int64_t extent = 0;
    if ((loop->loop != LoopKind::serial && loop->loop != LoopKind::unrolled) || !is_int(loop->min, 0) ||
        !as_int(loop->extent, &extent))
      return false;
    for (int64_t i = 0; i < extent && i < static_cast<int64_t>(elements->size()); ++i) {
      if (!writes_zeros(simplify(substitute(loop->body, {{loop->var.get(), Expr(i)}})), buffer, elements))
        return false;
    }
    return true;
  }
  if (const auto* seq = s.as<Seq>())
    return std::all_of(seq->stmts.begin(), seq->stmts.end(),
                       [&](const Stmt& below) { return writes_zeros(below, buffer, elements); });
  const auto* store = s.as<Store>();
  double value = 1;
  return store && store->buffer.same_as(buffer) && !store->predicate.defined() &&
         store->indices.size() == 1 && as_number(store->value, &value) && value == 0 &&
         mark(store->indices[0], store->value.lanes(), elements);
}

// Whether the statement before a group writes nothing but the zeros that its sums begin with.
bool begins_with_zeros(const Stmt& before, const Group& group) {
  const Buffer& buffer = group.sums[0].first.as<Load>()->buffer;
  int64_t count = 0;
  if (buffer.scope() != Scope::local || !as_int(buffer.shape()[0], &count) ||
      count > int64_t{kTiles} * kTileRows * kTileColumns)
    return false;
  Elements zeros(static_cast<size_t>(count)), sums(static_cast<size_t>(count));
  for (const Place& sum : group.sums) {
    const auto& first = *sum.first.as<Load>();
    int64_t row = 0;
    if (!first.buffer.same_as(buffer) || !as_int(sum.row, &row)) return false;
    for (int64_t r = 0; r < group.rows; ++r) {
      if (!mark(simplify(first.indices[0] + Expr(r * row)), kTileColumns, &sums)) return false;
    }
  }
  return writes_zeros(before, buffer, &zeros) && zeros == sums;
}

class KeepTiles : public Mutator {
 public:
  // Of a function without parallel loops, or of one iteration of such a loop.
  Stmt item(const Stmt& s) {
    Stmt out = mutate(s);
    auto fits = [&](const Layout& l) { return l.rows == layouts_[0].rows && l.k == layouts_[0].k; };
    if (layouts_.empty() || !std::all_of(layouts_.begin(), layouts_.end(), fits)) return out;
    whole_ = *std::max_element(layouts_.begin(), layouts_.end(),
                               [](const Layout& a, const Layout& b) { return a.sums < b.sums; });
    return Seq::make({whole_->configured(), mutate(s), Layout::released()});
  }

 protected:
  using Mutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    if (n.loop == LoopKind::parallel) {
      Stmt body = KeepTiles().item(n.body);
      return body.same_as(n.body) ? self : For::make(n.var, n.min, n.extent, n.loop, body, n.annotations);
    }
    std::optional<Group> group = group_of(self);
    return group ? in_registers(*group, self) : Mutator::on(n, self);
  }
  // Neighbours go together as long as they are one group.
  Stmt on(const Seq& n, const Stmt& self) override {
    std::vector<Stmt> out;
    bool is_changed = false;
    for (size_t i = 0; i < n.stmts.size();) {
      std::optional<Group> group = group_of(n.stmts[i]);
      if (!group) {
        Stmt same = mutate(n.stmts[i]);
        is_changed |= !same.same_as(n.stmts[i]);
        if (same) out.push_back(same);
        ++i;
        continue;
      }
      const size_t first = i;
      std::vector<Stmt> together{n.stmts[i]};
      for (++i; i < n.stmts.size(); ++i) {
        std::optional<Group> longer = group_of(n.stmts[i], *group);
        if (!longer) break;
        group = std::move(longer);
        together.push_back(n.stmts[i]);
      }
      const bool is_new = first > 0 && begins_with_zeros(n.stmts[first - 1], *group);
      if (is_new) out.pop_back();
      out.push_back(in_registers(*group, Seq::make(std::move(together)), is_new));
      is_changed = true;
    }
    if (!is_changed) return self;
    return out.empty() ? nullptr : Seq::make(std::move(out));
  }
  Stmt on(const Evaluate&, const Stmt& self) override {
    std::optional<Group> group = group_of(self);
    return group ? in_registers(*group, self) : self;
  }

 private:
  // is_new: the sums begin with 0.
  Stmt in_registers(const Group& group, const Stmt& s, bool is_new = false) {
    layouts_.push_back(group.layout());
    const Layout layout = whole_.value_or(group.layout());
    std::vector<Stmt> out;
    if (!whole_) out.push_back(layout.configured());
    auto move_sums = [&](Intrinsic function) {
      for (size_t i = 0; i < group.sums.size(); ++i)
        out.push_back(
            make(function, {group.sums[i].first, group.sums[i].row, Expr(static_cast<int64_t>(i))}));
    };
    if (is_new) {
      for (size_t i = 0; i < group.sums.size(); ++i)
        out.push_back(make(Intrinsic::tile_zero, {Expr(static_cast<int64_t>(i))}));
    } else {
      move_sums(Intrinsic::tile_load);
    }
    out.push_back(InRegisters(group.sums, layout).mutate(s));
    move_sums(Intrinsic::tile_store);
    if (!whole_) out.push_back(Layout::released());
    return Seq::make(std::move(out));
  }

  std::vector<Layout> layouts_;  // of the groups so far
  std::optional<Layout> whole_;  // of all groups, where one will do
};

}  // namespace

Func keep_tiles(const Func& f) {
  Func out = f;
  if (f.body) out.body = KeepTiles().item(f.body);
  return out;
}

}  // namespace mcc::tensor
