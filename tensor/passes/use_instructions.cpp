#include "tensor/passes/use_instructions.h"

#include <algorithm>

#include "tensor/grid.h"
#include "tensor/instructions.h"
#include "tensor/intrinsics.h"
#include "tensor/passes/exchanged.h"
#include "tensor/passes/fence_products.h"
#include "tensor/passes/scope.h"
#include "tensor/simplify.h"

namespace mcc::tensor {
namespace {

// acc[.] = acc[.] + A * B under the loops of the instruction: h, p, k, or h, p, o, q, k where A is held, or
// [m,] n, [c,] h, p, o, k. Of n and c one n is made.
struct MatrixTile {
  Var m, n, h, p, o, q, k;
  std::vector<const For*> loops;
  int64_t eights = 1;  // of columns
  Stmt body;
  const Store* store = nullptr;
  const Load *a = nullptr, *b = nullptr;
  Expr from;  // where A is held: the thread that has the element
};

// from: the thread that gives the element to the others, where one does.
const Load* operand_of(const Expr& e, Expr* from = nullptr) {
  const auto* cast = e.as<Cast>();
  const Expr& value = cast ? cast->value : e;
  const auto* call = from ? value.as<Call>() : nullptr;
  const bool is_given = call && call->function == Intrinsic::shuffle_from;
  if (is_given) *from = call->args[1];
  const auto* load = (is_given ? call->args[0] : value).as<Load>();
  return load && !load->predicate.defined() && load->indices.size() == 1 ? load : nullptr;
}

int count_loops(const For& n) {
  const auto* inner = n.body.as<For>();
  return inner ? 1 + count_loops(*inner) : 1;
}

constexpr int64_t kEights = 8;  // of columns, in a tile of 64

std::optional<MatrixTile> as_tile(const For& n, const Instruction& instruction) {
  MatrixTile tile;
  const For* loop = &n;
  Var c;
  std::vector<Var*> vars = {&tile.h, &tile.p, &tile.k};
  if (instruction.is_held) vars.insert(vars.end() - 1, {&tile.o, &tile.q});
  if (is_wgmma(*instruction.mma)) {
    vars = {&tile.m, &tile.n, &tile.h, &tile.p, &tile.o, &tile.k};
    if (instruction.is_dealt) vars.insert(vars.begin() + 2, &c);
    if (count_loops(n) + 1 == static_cast<int>(vars.size())) vars.erase(vars.begin());
  }
  for (Var* var : vars) {
    int64_t extent = 0;
    if (loop == nullptr || loop->loop != LoopKind::serial || !is_int(loop->min, 0) || !as_int(loop->extent, &extent)) return std::nullopt;
    *var = loop->var;
    tile.loops.push_back(loop);
    if (var == &tile.m || var == &tile.n || var == &c) tile.eights *= extent;
    if (var == &tile.k) break;
    loop = loop->body.as<For>();
  }
  tile.body = loop->body;
  if (c.defined()) {
    Var both("n");
    const Expr dealt = tile.loops[tile.m.defined() ? 2 : 1]->extent;
    tile.body = substitute(tile.body, {{tile.n.get(), floor_div(both, dealt)}, {c.get(), floor_mod(both, dealt)}});
    tile.n = both;
  }
  tile.store = tile.body.as<Store>();
  const auto* sum = tile.store ? tile.store->value.as<Binary>() : nullptr;
  if (!sum || sum->op != BinaryOp::add || tile.store->predicate.defined() || tile.store->indices.size() != 1)
    return std::nullopt;
  const bool is_left = loads_from(sum->a, tile.store->buffer);
  const auto* product = (is_left ? sum->b : sum->a).as<Binary>();
  if (!product || product->op != BinaryOp::mul) return std::nullopt;
  Expr from_b;
  tile.a = operand_of(product->a, &tile.from);
  tile.b = operand_of(product->b, &from_b);
  if (!tile.a || !tile.b) return std::nullopt;
  if (!uses_var(tile.a->indices[0], tile.h)) {
    std::swap(tile.a, tile.b);
    std::swap(tile.from, from_b);
  }
  if (from_b.defined() || tile.from.defined() != instruction.is_held) return std::nullopt;
  return tile;
}

const Instruction* instruction_of(const For& n) {
  auto it = n.annotations.find("instruction");
  const auto* name = it == n.annotations.end() ? nullptr : std::get_if<std::string>(&it->second);
  return name ? find_instruction(*name) : nullptr;
}

// acc[.] = acc[.] + i32(a) * i32(b) (or f32) under loops over lanes and a word's elements, or over rows, columns, steps and those.
class UseWordProducts : public ScopedMutator {
 public:
  explicit UseWordProducts(const Target& target) : target_(target) {}

 protected:
  using ScopedMutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    const Instruction* instruction = instruction_of(n);
    if (instruction && instruction->dot && has_instruction(target_, *instruction)) {
      if (Stmt made = in_vectors(n, *instruction->dot)) return made;
    }
    if (instruction && instruction->tile && has_instruction(target_, *instruction)) {
      if (Stmt made = in_tiles(n, *instruction->tile)) return made;
    }
    return ScopedMutator::on(n, self);
  }

 private:
  bool is_at(const Expr& index, const Var& lane, const Var& byte, int64_t by_lane, int64_t by_byte) const {
    std::optional<LinearForm> form = linear_form(analyzer_.simplify(index), {lane, byte});
    return form && form->coefficients[0] == by_lane && form->coefficients[1] == by_byte;
  }
  Expr first(const Expr& index, const Var& lane, const Var& byte) const {
    return analyzer_.simplify(substitute(index, {{lane.get(), Expr(0)}, {byte.get(), Expr(0)}}));
  }

  // acc[.] = acc[.] + a * b, of operands that may stand in either order.
  struct Update {
    const Store* store = nullptr;
    const Load *a = nullptr, *b = nullptr;
  };
  static std::optional<Update> as_update(const Stmt& s) {
    Update u{s.as<Store>()};
    const auto* sum = u.store ? u.store->value.as<Binary>() : nullptr;
    if (!sum || sum->op != BinaryOp::add || u.store->predicate.defined() || u.store->indices.size() != 1) return std::nullopt;
    const bool is_left = loads_from(sum->a, u.store->buffer);
    const auto* product = (is_left ? sum->b : sum->a).as<Binary>();
    if (!product || product->op != BinaryOp::mul) return std::nullopt;
    u.a = operand_of(product->a);
    u.b = operand_of(product->b);
    return u.a && u.b ? std::optional(u) : std::nullopt;
  }

  Stmt in_vectors(const For& n, Intrinsic dot) const {
    const auto* inner = n.body.as<For>();
    int64_t lanes = 0;
    const int word = dot_elements(dot);
    if (!inner || !is_int(n.min, 0) || !is_int(inner->min, 0) || !as_int(n.extent, &lanes) ||
        !is_int(inner->extent, word))
      return nullptr;
    const Var &lane = n.var, &byte = inner->var;
    std::optional<Update> u = as_update(inner->body);
    if (!u) return nullptr;
    if (uses_var(u->a->indices[0], lane)) std::swap(u->a, u->b);
    const auto [store, a, b] = *u;
    if (!is_at(store->indices[0], lane, byte, 1, 0) || !is_at(a->indices[0], lane, byte, 0, 1) ||
        !is_at(b->indices[0], lane, byte, word, 1))
      return nullptr;
    if (a->buffer.element() != left_element(dot)) return nullptr;
    const auto count = static_cast<int>(lanes);
    auto run = [&](const Buffer& buffer, const Expr& index, int length) {
      return Load::make(buffer, {Ramp::make(first(index, lane, byte), 1, length)});
    };
    Expr call = Call::make(dot, {run(store->buffer, store->indices[0], count), run(a->buffer, a->indices[0], word),
                                 run(b->buffer, b->indices[0], word * count)});
    return Store::make(store->buffer, {Ramp::make(first(store->indices[0], lane, byte), 1, count)}, call);
  }

  // Rows, columns, steps and a word's elements.
  Stmt in_tiles(const For& n, Intrinsic product) const {
    const int word = dot_elements(product);
    std::vector<Var> vars;
    std::vector<int64_t> extents;
    Stmt body;
    for (const For* loop = &n; loop && vars.size() < 4; loop = loop->body.as<For>()) {
      int64_t extent = 0;
      if (!is_int(loop->min, 0) || !as_int(loop->extent, &extent)) return nullptr;
      vars.push_back(loop->var);
      extents.push_back(extent);
      body = loop->body;
    }
    std::optional<Update> u = vars.size() == 4 ? as_update(body) : std::nullopt;
    if (!u || extents[1] != kTileColumns || extents[3] != word) return nullptr;
    if (uses_var(u->a->indices[0], vars[1])) std::swap(u->a, u->b);
    if (u->a->buffer.element() != left_element(product) || u->b->buffer.element() != right_element(product)) return nullptr;
    std::vector<Expr> args;
    // strides: of each loop; -1: those from one row to the next, which may be any.
    auto add = [&](const Buffer& buffer, const Expr& index, const std::vector<int64_t>& strides) {
      std::optional<LinearForm> form = linear_form(analyzer_.simplify(index), vars);
      if (!form) return false;
      int64_t row = 0;
      for (size_t i = 0; i < vars.size(); ++i) {
        if (strides[i] < 0) row = form->coefficients[i];
        if (strides[i] >= 0 && form->coefficients[i] != strides[i]) return false;
      }
      args.push_back(Load::make(buffer, {form->rest}));
      args.push_back(Expr(row));
      return row > 0;
    };
    if (!add(u->store->buffer, u->store->indices[0], {-1, 1, 0, 0}) || !add(u->a->buffer, u->a->indices[0], {-1, 0, word, 1}) ||
        !add(u->b->buffer, u->b->indices[0], {0, word, -1, 1}))
      return nullptr;
    args.push_back(Expr(extents[0]));
    args.push_back(Expr(extents[2]));
    return Evaluate::make(Call::make(product, std::move(args)));
  }

  const Target& target_;
};

class UseInstructions : public ScopedMutator {
 protected:
  using ScopedMutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    if (auto axis = grid_axis(n); axis && !is_block_axis(*axis)) {
      if (*axis == GridAxis::thread_z) z_ = &n;
      if (*axis == GridAxis::thread_y) y_ = &n;
      if (*axis == GridAxis::thread_x) x_ = &n;
      Stmt out = ScopedMutator::on(n, self);
      if (*axis == GridAxis::thread_z) z_ = nullptr;
      if (*axis == GridAxis::thread_y) y_ = nullptr;
      if (*axis == GridAxis::thread_x) x_ = nullptr;
      return out;
    }
    const Instruction* instruction = instruction_of(n);
    if (instruction && instruction->mma && x_ && y_ && is_int(x_->extent, 4) && is_int(y_->extent, 8)) {
      const bool is_warpgroup = is_wgmma(*instruction->mma);
      if (std::optional<MatrixTile> tile = as_tile(n, *instruction)) {
        Stmt made = is_warpgroup ? multiply_together(*tile, *instruction->mma) : multiply(*tile, *instruction->mma);
        if (made) return made;
      }
    }
    return ScopedMutator::on(n, self);
  }

 private:
  // Where an access stands for other values of the threads and the tile's loops.
  Expr at(const Expr& index, const VarMap& values) const {
    return analyzer_.simplify(substitute(index, values));
  }

  bool moves_by(const Expr& index, const Var& var, int64_t stride) const {
    return analyzer_.constant_difference(at(index, {{var.get(), Expr(1)}}),
                                         at(index, {{var.get(), Expr(0)}})) == stride;
  }

  // The registers of an operand's part; undefined where the instruction cannot take it. inner: the element's places in a row
  // (0, 0), for columns that stand along rows.
  Expr rows(const Load& load, const VarMap& values, bool is_transposed, int count) const {
    const int lanes = static_cast<int>(16 / byte_size(load.buffer.element()));
    if (load.buffer.scope() != Scope::shared || (is_transposed && lanes != 8)) return nullptr;
    Expr first = at(load.indices[0], values);
    if (!is_int(analyzer_.simplify(floor_mod(first, lanes)), 0)) return nullptr;
    return Call::make(is_transposed ? Intrinsic::load_matrices_transposed : Intrinsic::load_matrices,
                      {Load::make(load.buffer, {Ramp::make(first, 1, lanes)}), Expr(count)});
  }
  Expr elements(const Load& load, const std::vector<VarMap>& values) const {
    std::vector<Expr> parts;
    std::vector<int> order;
    for (const VarMap& v : values) {
      Expr part = Load::make(load.buffer, {at(load.indices[0], v)});
      order.push_back(static_cast<int>(parts.size()));
      parts.push_back(Call::make({ElementType::i32, 1}, Intrinsic::bit_cast, {part}));
    }
    return Shuffle::make(std::move(parts), std::move(order));
  }

  // A's part that the thread has itself: the elements of its registers, from o, h, k; undefined where they lie otherwise.
  Expr held(const MatrixTile& t) const {
    const Expr &index = t.a->indices[0], own = y_->var * 4 + t.q;
    const bool is_own = analyzer_.constant_difference(at(t.from, {}), own) == 0;
    const bool is_in_order = moves_by(index, t.o, 4) && moves_by(index, t.h, 2) && moves_by(index, t.k, 1);
    if (!is_own || !is_in_order) return nullptr;
    for (const Var& var : {y_->var, x_->var, t.q, t.p}) {
      if (uses_var(index, var)) return nullptr;
    }
    const Expr first = at(index, {{t.o.get(), Expr(0)}, {t.h.get(), Expr(0)}, {t.k.get(), Expr(0)}});
    return Load::make(t.a->buffer, {Ramp::make(first, 1, 8)});
  }

  Stmt multiply(const MatrixTile& t, Intrinsic mma) const {
    const Expr x = x_->var, y = y_->var;
    const ExprNode *vx = x.get(), *vy = y.get(), *vh = t.h.get(), *vp = t.p.get(), *vk = t.k.get();
    const Expr sums = at(t.store->indices[0], {{vh, Expr(0)}, {vp, Expr(0)}});
    const bool has_own_sums = moves_by(t.store->indices[0], t.h, 2) &&
                              moves_by(t.store->indices[0], t.p, 1) && !uses_var(sums, x_->var) &&
                              !uses_var(sums, y_->var) && !uses_var(sums, t.k);
    if (!has_own_sums || uses_var(t.a->indices[0], x_->var) || uses_var(t.b->indices[0], y_->var))
      return nullptr;
    const int64_t half = 16 / byte_size(t.a->buffer.element());  // of the depth: one row of 16 bytes
    const Expr &a_index = t.a->indices[0], &b_index = t.b->indices[0];
    // Thread 8 m + r of the warp has row r of matrix m.
    const Expr r = floor_mod(y, 2) * 4 + x, m = floor_div(y, 2);
    Expr a, b;
    if (t.from.defined()) {
      a = held(t);
    } else if (moves_by(a_index, t.k, 1)) {
      a = rows(*t.a, {{vy, r}, {vh, floor_mod(m, 2)}, {vk, floor_div(m, 2) * half}}, false, 4);
    } else if (half == 8 && moves_by(a_index, y_->var, 1)) {
      a = rows(*t.a, {{vy, Expr(0)}, {vh, floor_mod(m, 2)}, {vk, floor_div(m, 2) * half + r}}, true, 4);
    } else if (half == 4) {
      std::vector<VarMap> four;
      for (int n = 0; n < 4; ++n)
        four.push_back({{vh, Expr(n % 2)}, {vk, x + n / 2 * 4}});
      a = elements(*t.a, four);
    }
    const Expr of_b = floor_mod(m, 2);
    // Row `row` of a half of the depth.
    auto in_half = [&](const Expr& row, VarMap map) {
      if (t.from.defined()) {
        map.insert({{t.o.get(), of_b}, {t.q.get(), floor_div(row, 2)}, {vk, floor_mod(row, 2)}});
      } else {
        map.emplace(vk, of_b * half + row);
      }
      return map;
    };
    if (moves_by(b_index, t.k, 1)) {
      b = rows(*t.b, in_half(Expr(0), {{vx, floor_div(r, 2)}, {vp, floor_mod(r, 2)}}), false, 2);
    } else if (half == 8 && moves_by(b_index, t.p, 1)) {
      b = rows(*t.b, in_half(r, {{vx, Expr(0)}, {vp, Expr(0)}}), true, 2);
    } else if (half == 4) {
      std::vector<VarMap> two;
      for (int n = 0; n < 2; ++n)
        two.push_back({{vx, floor_div(y, 2)}, {vp, floor_mod(y, 2)}, {vk, x + n * 4}});
      b = elements(*t.b, two);
    }
    if (!a.defined() || !b.defined()) return nullptr;
    Var of_a("a", a.type()), of_b_part("b", b.type());
    const Expr place = Ramp::make(sums, 1, 4);
    const Expr old = Load::make(t.store->buffer, {place});
    if (t.from.defined()) {
      return Let::make(of_b_part, b,
                       Store::make(t.store->buffer, {place}, Call::make(mma, {a, of_b_part, old})));
    }
    Stmt body = Store::make(t.store->buffer, {place}, Call::make(mma, {of_a, of_b_part, old}));
    return Let::make(of_a, a, Let::make(of_b_part, b, body));
  }

  // Elements from one iteration to the next.
  std::optional<int64_t> stride(const Expr& index, const Var& var) const {
    return analyzer_.constant_difference(at(index, {{var.get(), Expr(1)}}), at(index, {{var.get(), Expr(0)}}));
  }

  std::optional<Exchanged> exchanged_of(const Load& load, const MatrixTile& t) const {
    Analyzer inside = analyzer_;
    for (const For* loop : t.loops)
      inside.bind(loop->var, loop->min, loop->extent);
    if (t.n.defined()) inside.bind(t.n, 0, Expr(kEights));
    return exchanged(inside, load.indices[0], unit_elements(load.buffer.element()));
  }

  // The arguments that stand for an operand of four warps: of its rows (or columns), `eight` is which eight, row the row in
  // them in units of `unit`, `many` which 64, if there are more. Empty where it does not lie in an order of the instruction.
  std::vector<Expr> operand(const Load& load, const MatrixTile& t, const Var& eight, const Var& row,
                            int64_t unit, const Var& many, const VarMap& first_of) const {
    constexpr int64_t kSide = 8;
    const int64_t run = unit_elements(load.buffer.element());
    if (load.buffer.scope() != Scope::shared) return {};
    const std::optional<Exchanged> order = exchanged_of(load, t);
    if (!order) return {};
    const Expr& index = order->plain;
    const std::optional<int64_t> from_eight = stride(index, eight), next = stride(index, t.o),
                                 k = stride(index, t.k), across = stride(index, row),
                                 from_many = many.defined() ? stride(index, many) : std::optional<int64_t>(0);
    const Expr first = at(index, first_of);
    if (!from_eight || !next || !k || !across || !from_many) return {};
    if (!is_int(analyzer_.simplify(floor_mod(first, run)), 0) || *from_eight % run != 0 || *next % run != 0)
      return {};
    // Elements of a row of a square, or of what is exchanged.
    const int64_t length = order->bytes == 0 ? run : order->bytes / byte_size(load.buffer.element());
    const bool is_along_k = *k == 1 && *across == length * unit,
               is_across = run == kSide && *k == length && *across == unit;
    int64_t side = *from_eight;
    bool fits = is_along_k || is_across;
    if (order->bytes == 0) {
      fits &= !many.defined() || *from_many == kSide * side;
    } else if (is_along_k) {
      fits &= *next == run && side % (kSide * length) == 0 && (!many.defined() || *from_many == kSide * side);
    } else {
      // Rows of 64: the only ones whose eights follow each other.
      fits &= length == 64 && side == kSide && *next % (kSide * length) == 0 &&
              *from_many % (kSide * length) == 0;
      side = many.defined() ? *from_many : kSide * length;
    }
    if (!fits) return {};
    return {Load::make(load.buffer, {first}), Expr(side), Expr(*next), Expr(is_across ? 1 : 0),
            Expr(order->bytes)};
  }

  Stmt multiply_together(const MatrixTile& t, Intrinsic wgmma) const {
    int64_t warps = 0;
    if (!z_ || !as_int(z_->extent, &warps) || warps % 4 != 0) return nullptr;
    const Expr &to = t.store->indices[0], &b_index = t.b->indices[0];
    VarMap zeros = {{t.n.get(), Expr(0)},
                    {t.h.get(), Expr(0)},
                    {t.p.get(), Expr(0)},
                    {t.o.get(), Expr(0)},
                    {t.k.get(), Expr(0)}};
    if (t.m.defined()) zeros[t.m.get()] = Expr(0);
    const Expr sums = at(to, zeros);
    if (stride(to, t.n) != 4 || stride(to, t.h) != 2 || stride(to, t.p) != 1) return nullptr;
    if (t.m.defined() && stride(to, t.m) != 32) return nullptr;
    for (const Var& var : {z_->var, y_->var, x_->var, t.o, t.k}) {
      if (uses_var(sums, var)) return nullptr;
    }
    if (uses_var(t.a->indices[0], x_->var) || uses_var(b_index, y_->var) || uses_var(b_index, z_->var))
      return nullptr;
    const Expr z = z_->var;
    VarMap first_of_a = zeros, first_of_b = zeros;
    first_of_a[z.get()] = floor_div(z, 4) * 4;
    first_of_a[y_->var.get()] = Expr(0);
    first_of_b[x_->var.get()] = Expr(0);
    std::vector<Expr> a = operand(*t.a, t, t.h, y_->var, 1, Var(), first_of_a);
    std::vector<Expr> b = operand(*t.b, t, t.n, x_->var, 2, t.m, first_of_b);
    if (a.empty() || b.empty()) return nullptr;
    const Expr a_index = exchanged_of(*t.a, t)->plain, b_plain = exchanged_of(*t.b, t)->plain;
    const std::optional<int64_t> p = stride(b_plain, t.p), x = stride(b_plain, x_->var),
                                 h = stride(a_index, t.h);
    if (!p || x != 2 * *p) return nullptr;
    // The four warps' rows follow each other.
    for (int64_t w = 0; w < warps; ++w) {
      const Expr own = at(a_index, {{z.get(), Expr(w)}}), first = at(a_index, {{z.get(), Expr(w / 4 * 4)}});
      if (analyzer_.constant_difference(own, first) != w % 4 * 2 * *h) return nullptr;
    }
    std::vector<Expr> args = {
        Load::make(t.store->buffer, {Ramp::make(sums, 1, static_cast<int>(4 * t.eights))})};
    args.insert(args.end(), a.begin(), a.end());
    args.insert(args.end(), b.begin(), b.end());
    return Evaluate::make(Call::make(wgmma, std::move(args)));
  }

  const For *x_ = nullptr, *y_ = nullptr, *z_ = nullptr;  // the launch's loops over threads
};

const Call* as_call(const Stmt& s) {
  const auto* evaluate = s.as<Evaluate>();
  return evaluate ? evaluate->value.as<Call>() : nullptr;
}

// Makes one group of each largest statement that does nothing but products of warpgroups, and waits for it.
class GroupProducts : public Mutator {
 protected:
  using Mutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    Stmt group = as_group(self);
    return group ? group : Mutator::on(n, self);
  }
  Stmt on(const Seq& n, const Stmt& self) override {
    Stmt group = as_group(self);
    return group ? group : Mutator::on(n, self);
  }
  Stmt on(const Evaluate& n, const Stmt& self) override {
    Stmt group = as_group(self);
    return group ? group : Mutator::on(n, self);
  }

 private:
  static Stmt as_group(const Stmt& s) {
    std::vector<Buffer> sums;
    if (!only_products(s, &sums) || sums.empty()) return nullptr;
    std::vector<Stmt> out;
    auto each = [&](Intrinsic function, std::vector<Expr> more) {
      for (const Buffer& b : sums) {
        int64_t count = 0;
        MCC_CHECK(as_int(b.shape()[0], &count), "sums in a buffer of symbolic length");
        std::vector<Expr> args = {Load::make(b, {Ramp::make(Expr(0), 1, static_cast<int>(count))})};
        args.insert(args.end(), more.begin(), more.end());
        out.push_back(Evaluate::make(Call::make(function, std::move(args))));
      }
    };
    each(Intrinsic::wgmma_fence, {});
    out.push_back(s);
    out.push_back(Evaluate::make(Call::make(Intrinsic::wgmma_commit, {})));
    each(Intrinsic::wgmma_wait, {Expr(0)});
    return Seq::make(std::move(out));
  }
  static bool only_products(const Stmt& s, std::vector<Buffer>* sums) {
    if (const auto* loop = s.as<For>()) {
      return (loop->loop == LoopKind::serial || loop->loop == LoopKind::unrolled) && only_products(loop->body, sums);
    }
    if (const auto* seq = s.as<Seq>()) {
      return std::all_of(seq->stmts.begin(), seq->stmts.end(), [&](const Stmt& below) { return only_products(below, sums); });
    }
    const Call* call = as_call(s);
    if (!call || !is_wgmma(call->function)) return false;
    const Buffer& to = call->args[0].as<Load>()->buffer;
    if (std::none_of(sums->begin(), sums->end(), [&](const Buffer& b) { return b.same_as(to); })) sums->push_back(to);
    return true;
  }
};

}  // namespace

Func use_instructions(const Func& f, const Target& target) {
  Func out = f;
  out.body = UseWordProducts(target).mutate(f.body);
  if (target.kind != TargetKind::cuda) return out;
  out.body = GroupProducts().mutate(UseInstructions().mutate(out.body));
  return fence_products(out);
}

}  // namespace mcc::tensor
