#include "graph/ops/tournament.h"

namespace mcc::graph {

using tensor::For;
using tensor::If;
using tensor::LoopKind;
using tensor::Seq;
using tensor::Stmt;
using tensor::Store;
using tensor::Var;

namespace {

constexpr int64_t kLast =
    std::numeric_limits<int32_t>::min();  // of what has no order; below the order of -inf
constexpr int64_t kPositions = int64_t{1} << 32;

// A number of 32 bits that is larger for larger values.
Expr order_of(const Expr& value) {
  const ElementType element = value.element();
  if (!is_float(element)) {
    const Expr wide = cast(ElementType::i64, value);
    return element == ElementType::u32 ? wide - (int64_t{1} << 31) : wide;
  }
  const Expr number = select(value == number_like(value, 0), number_like(value, 0), value);
  const Expr bits = tensor::Call::make({ElementType::i32, 1}, tensor::Intrinsic::bit_cast, {number});
  // Of negative numbers those with larger bits are less.
  const Expr turned = binary(tensor::BinaryOp::bit_xor, bits, tensor::constant_int(bits.type(), 0x7fffffff));
  return cast(ElementType::i64, select(bits < 0, turned, bits));
}

}  // namespace

bool has_element_key(ElementType element) {
  return element != ElementType::boolean && element != ElementType::string &&
         bit_width(wide_type(element)) <= 32;
}

Expr element_key(const Expr& value, const Expr& position, bool largest) {
  const Expr x = widen(value), order = order_of(x);
  const Expr rank = largest ? order : Expr(-1) - order;
  const Expr known = is_float(x.element()) ? select(x == x, rank, Expr(kLast)) : rank;
  return known * kPositions + (Expr(kMostKeyPositions) - position);
}

Expr position_of_key(const Expr& key) {
  return Expr(kMostKeyPositions) - binary(tensor::BinaryOp::bit_and, key, Expr(kPositions - 1));
}

Expr no_key() { return Expr(std::numeric_limits<int64_t>::min()); }

std::vector<Expr> Tournament::place(const Expr& node) const {
  std::vector<Expr> out = at;
  out.push_back(node);
  return out;
}

Expr Tournament::key(const Expr& node) const { return load(tree, place(node)); }

Stmt Tournament::set(const Expr& node, const Expr& key) const { return Store::make(tree, place(node), key); }

Stmt Tournament::game(const Expr& node) const {
  return set(node, tensor::max(key(node * 2), key(node * 2 + 1)));
}

Stmt Tournament::play() const {
  const Var j(c.builder.unique_name("play.j"));
  return For::make(j, 0, tensor::max(leaves - 1, 0), LoopKind::serial, game(leaves - 1 - j));
}

Stmt Tournament::play_again(const Expr& leaf) const {
  const Var level(c.builder.unique_name("play.level"));
  const std::optional<int64_t> most = static_dim(max_leaves);
  int64_t levels = 1;
  while (!most ? levels < 32 : (int64_t{1} << levels) < 2 * *most)
    ++levels;
  const Expr node = binary(tensor::BinaryOp::shr, leaf, level + 1);
  return For::make(level, 0, levels, LoopKind::serial, If::make(node >= 1, game(node)));
}

}  // namespace mcc::graph
