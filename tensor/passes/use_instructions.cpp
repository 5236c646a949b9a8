#include "tensor/passes/use_instructions.h"

#include "tensor/grid.h"
#include "tensor/instructions.h"
#include "tensor/passes/scope.h"
#include "tensor/simplify.h"

namespace mcc::tensor {
namespace {

// acc[.] = acc[.] + A * B under the loops h, p, k of the instruction.
struct MatrixTile {
  Var h, p, k;
  const Store* store = nullptr;
  const Load *a = nullptr, *b = nullptr;
};

const Load* operand_of(const Expr& e) {
  const auto* cast = e.as<Cast>();
  const auto* load = cast ? cast->value.as<Load>() : e.as<Load>();
  return load && !load->predicate.defined() && load->indices.size() == 1 ? load : nullptr;
}

std::optional<MatrixTile> as_tile(const For& n) {
  MatrixTile tile;
  const For* loop = &n;
  for (Var* var : {&tile.h, &tile.p, &tile.k}) {
    if (loop == nullptr || loop->loop != LoopKind::serial || !is_int(loop->min, 0)) return std::nullopt;
    *var = loop->var;
    if (var == &tile.k) break;
    loop = loop->body.as<For>();
  }
  tile.store = loop->body.as<Store>();
  const auto* sum = tile.store ? tile.store->value.as<Binary>() : nullptr;
  if (!sum || sum->op != BinaryOp::add || tile.store->predicate.defined() || tile.store->indices.size() != 1)
    return std::nullopt;
  const bool is_left = loads_from(sum->a, tile.store->buffer);
  const auto* product = (is_left ? sum->b : sum->a).as<Binary>();
  if (!product || product->op != BinaryOp::mul) return std::nullopt;
  tile.a = operand_of(product->a);
  tile.b = operand_of(product->b);
  if (!tile.a || !tile.b) return std::nullopt;
  if (!uses_var(tile.a->indices[0], tile.h)) std::swap(tile.a, tile.b);
  return tile;
}

const Instruction* instruction_of(const For& n) {
  auto it = n.annotations.find("instruction");
  const auto* name = it == n.annotations.end() ? nullptr : std::get_if<std::string>(&it->second);
  return name ? find_instruction(*name) : nullptr;
}

// acc[.] = acc[.] + i32(a) * i32(b) under loops over lanes and four bytes each.
class UseDotProducts : public ScopedMutator {
 public:
  explicit UseDotProducts(const Target& target) : target_(target) {}

 protected:
  using ScopedMutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    const Instruction* instruction = instruction_of(n);
    if (instruction && instruction->dot && has_instruction(target_, *instruction)) {
      if (Stmt made = in_vectors(n, *instruction->dot)) return made;
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

  Stmt in_vectors(const For& n, Intrinsic dot) const {
    const auto* inner = n.body.as<For>();
    int64_t lanes = 0;
    if (!inner || !is_int(n.min, 0) || !is_int(inner->min, 0) || !as_int(n.extent, &lanes) || !is_int(inner->extent, 4))
      return nullptr;
    const Var &lane = n.var, &byte = inner->var;
    const auto* store = inner->body.as<Store>();
    const auto* sum = store ? store->value.as<Binary>() : nullptr;
    if (!sum || sum->op != BinaryOp::add || store->predicate.defined() || store->indices.size() != 1) return nullptr;
    const bool is_left = loads_from(sum->a, store->buffer);
    const auto* product = (is_left ? sum->b : sum->a).as<Binary>();
    if (!product || product->op != BinaryOp::mul) return nullptr;
    const Load *a = operand_of(product->a), *b = operand_of(product->b);
    if (!a || !b) return nullptr;
    if (a->buffer.element() == ElementType::i8) std::swap(a, b);
    if (!is_at(store->indices[0], lane, byte, 1, 0) || !is_at(a->indices[0], lane, byte, 0, 1) ||
        !is_at(b->indices[0], lane, byte, 4, 1))
      return nullptr;
    const auto count = static_cast<int>(lanes);
    auto run = [&](const Buffer& buffer, const Expr& index, int length) {
      return Load::make(buffer, {Ramp::make(first(index, lane, byte), 1, length)});
    };
    Expr call = Call::make(dot, {run(store->buffer, store->indices[0], count), run(a->buffer, a->indices[0], 4),
                                 run(b->buffer, b->indices[0], 4 * count)});
    return Store::make(store->buffer, {Ramp::make(first(store->indices[0], lane, byte), 1, count)}, call);
  }

  const Target& target_;
};

class UseInstructions : public ScopedMutator {
 protected:
  using ScopedMutator::on;
  Stmt on(const For& n, const Stmt& self) override {
    if (auto axis = grid_axis(n); axis && !is_block_axis(*axis)) {
      if (*axis == GridAxis::thread_y) y_ = &n;
      if (*axis == GridAxis::thread_x) x_ = &n;
      Stmt out = ScopedMutator::on(n, self);
      if (*axis == GridAxis::thread_y) y_ = nullptr;
      if (*axis == GridAxis::thread_x) x_ = nullptr;
      return out;
    }
    const Instruction* instruction = instruction_of(n);
    if (instruction && instruction->mma && x_ && y_ && is_int(x_->extent, 4) && is_int(y_->extent, 8)) {
      if (std::optional<MatrixTile> tile = as_tile(n)) {
        if (Stmt made = multiply(*tile, *instruction->mma)) return made;
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
    if (moves_by(a_index, t.k, 1)) {
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
    if (moves_by(b_index, t.k, 1)) {
      b = rows(*t.b, {{vx, floor_div(r, 2)}, {vp, floor_mod(r, 2)}, {vk, of_b * half}}, false, 2);
    } else if (half == 8 && moves_by(b_index, t.p, 1)) {
      b = rows(*t.b, {{vx, Expr(0)}, {vp, Expr(0)}, {vk, of_b * half + r}}, true, 2);
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
    Stmt body = Store::make(t.store->buffer, {place}, Call::make(mma, {of_a, of_b_part, old}));
    return Let::make(of_a, a, Let::make(of_b_part, b, body));
  }

  const For *x_ = nullptr, *y_ = nullptr;  // the launch's loops over threads
};

}  // namespace

Func use_instructions(const Func& f, const Target& target) {
  Func out = f;
  out.body = target.kind == TargetKind::cuda ? UseInstructions().mutate(f.body) : UseDotProducts(target).mutate(f.body);
  return out;
}

}  // namespace mcc::tensor
