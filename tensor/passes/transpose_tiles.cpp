#include "tensor/passes/transpose_tiles.h"

#include <optional>

#include "support/text.h"
#include "tensor/linear.h"
#include "tensor/passes/scope.h"
#include "tensor/text.h"

namespace mcc::tensor {
namespace {

using Vectors = std::vector<Expr>;

// A load whose lanes go down a column of the tile, the columns side by side along the loop.
bool is_column(const Load& load, const Var& loop, int lanes) {
  if (load.predicate.defined() || load.indices.size() != 1) return false;
  const auto* ramp = load.indices[0].as<Ramp>();
  int64_t stride = 0;
  if (!ramp || ramp->type.lanes != lanes) return false;
  // Rows of symbolic length are as good as others.
  const bool is_known = as_int(ramp->stride, &stride);
  if (is_known ? stride == 0 || stride == 1 : uses_var(ramp->stride, loop) || has_load(ramp->stride)) return false;
  auto form = linear_form(ramp->base, {loop});
  return form && form->coefficients[0] == 1 && !has_load(ramp->base);
}

// Those that are read in any case: what a choice does not take may lie outside of its buffer.
class FindColumns : public Visitor {
 public:
  FindColumns(const Var& loop, int lanes) : loop_(loop), lanes_(lanes) {}
  std::vector<const Load*> found;

 protected:
  using Visitor::on;
  void on(const Load& n) override {
    if (is_column(n, loop_, lanes_)) found.push_back(&n);
    Visitor::on(n);
  }
  void on(const Select& n) override { visit(n.condition); }

 private:
  const Var& loop_;
  int lanes_;
};

class ReplaceLoad : public Mutator {
 public:
  ReplaceLoad(const Load* load, Expr with) : load_(load), with_(std::move(with)) {}

 protected:
  using Mutator::on;
  Expr on(const Load& n, const Expr& self) override { return &n == load_ ? with_ : Mutator::on(n, self); }

 private:
  const Load* load_;
  Expr with_;
};

// The transposition of a square of vectors, as the shuffles that processors have: elements within quarters of four lanes,
// then whole quarters. Every vector on the way is named. Elements may be words of several.
class Network {
 public:
  explicit Network(int lanes, int word = 1) : lanes_(lanes), word_(word) {}

  Vectors run(const Vectors& rows) {
    // columns[c] holds, in quarter q, rows 4g .. 4g+3 of column 4q + c, for each g.
    std::vector<Vectors> columns(4);
    for (int g = 0; g < lanes_; g += 4) {
      auto row = [&](int i) { return rows[static_cast<size_t>(g + i)]; };
      Expr low01 = quarters(row(0), row(1), {0, 4, 1, 5}), high01 = quarters(row(0), row(1), {2, 6, 3, 7});
      Expr low23 = quarters(row(2), row(3), {0, 4, 1, 5}), high23 = quarters(row(2), row(3), {2, 6, 3, 7});
      columns[0].push_back(quarters(low01, low23, {0, 1, 4, 5}));
      columns[1].push_back(quarters(low01, low23, {2, 3, 6, 7}));
      columns[2].push_back(quarters(high01, high23, {0, 1, 4, 5}));
      columns[3].push_back(quarters(high01, high23, {2, 3, 6, 7}));
    }
    Vectors result(rows.size());
    for (size_t c = 0; c < 4; ++c) {
      Vectors made = transpose_quarters(columns[c]);
      for (size_t q = 0; q < made.size(); ++q)
        result[4 * q + c] = made[q];
    }
    return result;
  }

  Stmt around(Stmt body) const {
    for (size_t i = lets_.size(); i-- > 0;)
      body = Let::make(lets_[i].first, lets_[i].second, body);
    return body;
  }

  Expr name(const Expr& value) {
    Var var(text("tile", lets_.size()), value.type());
    lets_.emplace_back(var, value);
    return var;
  }

 private:
  // The same picks in each quarter of a (0..3) and b (4..7).
  Expr quarters(const Expr& a, const Expr& b, const std::vector<int>& picks) {
    std::vector<int> lanes;
    for (int q = 0; q < lanes_; q += 4) {
      for (int p : picks)
        lanes.push_back(p < 4 ? q + p : lanes_ + q + p - 4);
    }
    return shuffled(a, b, lanes);
  }

  // Every second quarter of a, then of b.
  Expr alternate(const Expr& a, const Expr& b, int first) {
    std::vector<int> lanes;
    for (int from : {0, lanes_}) {
      for (int q = 4 * first; q < lanes_; q += 8) {
        for (int i = 0; i < 4; ++i)
          lanes.push_back(from + q + i);
      }
    }
    return shuffled(a, b, lanes);
  }

  Expr shuffled(const Expr& a, const Expr& b, const std::vector<int>& words) {
    std::vector<int> lanes;
    for (int w : words) {
      for (int part = 0; part < word_; ++part)
        lanes.push_back(w * word_ + part);
    }
    return name(Shuffle::make({a, b}, lanes));
  }

  Vectors transpose_quarters(const Vectors& v) {
    if (v.size() == 1) return v;
    Vectors even, odd, result;
    for (size_t i = 0; i < v.size(); i += 2) {
      even.push_back(alternate(v[i], v[i + 1], 0));
      odd.push_back(alternate(v[i], v[i + 1], 1));
    }
    even = transpose_quarters(even), odd = transpose_quarters(odd);
    for (size_t i = 0; i < even.size(); ++i) {
      result.push_back(even[i]);
      result.push_back(odd[i]);
    }
    return result;
  }

  int lanes_, word_;
  std::vector<std::pair<Var, Expr>> lets_;
};

constexpr int kWord = 2;

// y[ramp(base + part, count, lanes)] = value in an unrolled loop over two to four parts: all that stands there.
struct Parts {
  const For* loop = nullptr;
  std::vector<Stmt> stores;  // of each part
  Expr base;                 // of the first

  const Store& store(size_t part) const { return *stores[part].as<Store>(); }
  int lanes() const { return store(0).value.lanes(); }
};

std::optional<Parts> as_parts(const For& n) {
  int64_t count = 0;
  if (n.loop != LoopKind::unrolled || (n.body.kind() != StmtKind::Store && n.body.kind() != StmtKind::If) ||
      !as_int(n.extent, &count) || count < 2 || count > 4)
    return std::nullopt;
  Parts parts{&n, {}, nullptr};
  for (int64_t part = 0; part < count; ++part) {
    parts.stores.push_back(simplify(substitute(n.body, {{n.var.get(), simplify(n.min + Expr(part))}})));
    const auto* store = parts.stores.back().as<Store>();
    if (!store || store->predicate.defined() || store->indices.size() != 1 ||
        loads_from(store->value, store->buffer))
      return std::nullopt;
    const auto* ramp = store->indices[0].as<Ramp>();
    if (!ramp || !is_int(ramp->stride, count)) return std::nullopt;
    if (part == 0) parts.base = ramp->base;
    if (!store->buffer.same_as(parts.store(0).buffer) || store->value.lanes() != parts.lanes() ||
        !is_int(simplify(ramp->base - parts.base), part))
      return std::nullopt;
  }
  return parts;
}

// All parts in one store.
Stmt side_by_side(const Parts& p) {
  std::vector<Expr> values;
  for (size_t n = 0; n < p.stores.size(); ++n)
    values.push_back(p.store(n).value);
  std::vector<int> lanes;
  for (int i = 0; i < p.lanes(); ++i) {
    for (size_t n = 0; n < values.size(); ++n)
      lanes.push_back(static_cast<int>(n) * p.lanes() + i);
  }
  return Store::make(p.store(0).buffer, {Ramp::make(p.base, 1, static_cast<int>(lanes.size()))},
                     Shuffle::make(values, lanes));
}

// An expression's value in one lane; null where it is not of vectors that are known lane by lane.
Expr in_lane(const Expr& e, int lane) {
  if (e.lanes() == 1) return e;
  if (const auto* ramp = e.as<Ramp>()) return simplify(ramp->base + ramp->stride * Expr(lane));
  if (const auto* broadcast = e.as<Broadcast>()) return broadcast->value;
  const auto* binary = e.as<Binary>();
  if (!binary) return nullptr;
  const Expr a = in_lane(binary->a, lane), b = in_lane(binary->b, lane);
  return a.defined() && b.defined() ? simplify(Binary::make(binary->op, a, b)) : nullptr;
}

// The words of a square tile, whose columns are read by a loop around them; null where they are no such.
Stmt transposed_words(const For& loop) {
  const auto* parts = loop.body.as<For>();
  const auto* store = parts ? parts->body.as<Store>() : nullptr;
  const std::optional<Parts> words =
      loop.loop == LoopKind::unrolled && store ? as_parts(*parts) : std::nullopt;
  if (!words || words->stores.size() != kWord) return nullptr;
  const int lanes = words->lanes();
  // Where a column ends before the tile does there are zeros.
  const auto* choice = store->value.as<Select>();
  if (choice) {
    double otherwise = 1;
    const auto* zeros = choice->on_false.as<Broadcast>();
    if (!as_number(zeros ? zeros->value : choice->on_false, &otherwise) || otherwise != 0 ||
        uses_var(choice->condition, loop.var) || uses_var(choice->condition, parts->var) ||
        !in_lane(choice->condition, 0).defined())
      return nullptr;
  }
  const auto* load = (choice ? choice->on_true : store->value).as<Load>();
  if (!load || !is_int(loop.extent, lanes) || (lanes != 4 && lanes != 8 && lanes != 16) ||
      load->indices.size() != 1 ||
      (load->predicate.defined() && !(choice && structurally_equal(load->predicate, choice->condition))))
    return nullptr;
  const auto* ramp = load->indices[0].as<Ramp>();
  int64_t stride = 0;
  if (!ramp || !as_int(ramp->stride, &stride) || stride == 0) return nullptr;
  const auto form = linear_form(ramp->base, {loop.var, parts->var});
  if (!form || form->coefficients[0] != kWord || form->coefficients[1] != 1 || has_load(ramp->base))
    return nullptr;
  auto at = [&](const Expr& e, int64_t n) {
    return simplify(
        substitute(e, {{loop.var.get(), simplify(loop.min + Expr(n))}, {parts->var.get(), parts->min}}));
  };
  Network network(lanes, kWord);
  Vectors rows;
  for (int i = 0; i < lanes; ++i) {
    const Expr first = simplify(at(ramp->base, 0) + Expr(stride * i));
    Expr is_there = choice ? in_lane(choice->condition, i) : nullptr;
    if (is_there.defined()) is_there = Broadcast::make(is_there, kWord * lanes);
    rows.push_back(network.name(Load::make(load->buffer, {Ramp::make(first, 1, kWord * lanes)}, is_there)));
  }
  const Vectors columns = network.run(rows);
  std::vector<Stmt> stores;
  for (int i = 0; i < lanes; ++i) {
    stores.push_back(Store::make(store->buffer, {Ramp::make(at(words->base, i), 1, kWord * lanes)},
                                 columns[static_cast<size_t>(i)]));
  }
  return network.around(Seq::make(stores));
}

class TransposeTiles : public Mutator {
 protected:
  using Mutator::on;

  Stmt on(const For& n, const Stmt& self) override {
    if (Stmt words = transposed_words(n)) return words;
    if (std::optional<Parts> parts = as_parts(n)) return side_by_side(*parts);
    const auto* store = n.body.as<Store>();
    int64_t extent = 0;
    bool fits = n.loop == LoopKind::unrolled && store && as_int(n.extent, &extent) &&
                (extent == 4 || extent == 8 || extent == 16) && !store->predicate.defined() &&
                !loads_from(store->value, store->buffer);
    if (!fits) return Mutator::on(n, self);
    if (const auto* select = store->value.as<Select>()) {
      // One choice for the whole tile (parts of a concatenation) is made around it.
      const bool is_one = select->condition.type().lanes == 1 && !uses_var(select->condition, n.var);
      if (!is_one) return Mutator::on(n, self);
      auto tile_of = [&](const Expr& value) {
        return mutate(For::make(n.var, n.min, n.extent, n.loop, Store::make(store->buffer, store->indices, value), n.annotations));
      };
      return If::make(select->condition, tile_of(select->on_true), tile_of(select->on_false));
    }
    FindColumns find(n.var, static_cast<int>(extent));
    find.visit(store->value);
    if (find.found.size() != 1) return Mutator::on(n, self);
    return transposed(n, *store, *find.found[0], static_cast<int>(extent));
  }

 private:
  static Stmt transposed(const For& loop, const Store& store, const Load& load, int lanes) {
    const Ramp& ramp = *load.indices[0].as<Ramp>();
    Expr base = simplify(substitute(ramp.base, {{loop.var.get(), loop.min}}));
    Network network(lanes);
    Vectors rows;
    for (int i = 0; i < lanes; ++i) {
      rows.push_back(network.name(
          Load::make(load.buffer, {Ramp::make(simplify(base + ramp.stride * Expr(i)), 1, lanes)})));
    }
    Vectors columns = network.run(rows);
    std::vector<Stmt> stores;
    for (int i = 0; i < lanes; ++i) {
      Stmt one = ReplaceLoad(&load, columns[static_cast<size_t>(i)]).mutate(Stmt(&store));
      stores.push_back(simplify(substitute(one, {{loop.var.get(), simplify(loop.min + Expr(i))}})));
    }
    return network.around(Seq::make(stores));
  }
};

}  // namespace

Func transpose_tiles(const Func& f) {
  Func out = f;
  out.body = TransposeTiles().mutate(f.body);
  return out;
}

}  // namespace mcc::tensor
