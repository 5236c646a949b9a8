#include "tensor/schedule/index_map.h"

#include <algorithm>
#include <charconv>

namespace mcc::tensor {

namespace {

// "(i, j) -> (i // 16, j, i %% 16)"
class MapReader {
 public:
  explicit MapReader(std::string_view source) : source_(source) {}

  std::optional<IndexMap> read() {
    IndexMap map;
    if (!accept("(")) return std::nullopt;
    do {
      std::string name = word();
      if (name.empty() || find(name) || vars_.size() >= kMaxIndices) return std::nullopt;
      vars_.emplace_back(name);
    } while (accept(","));
    if (!accept(")") || !accept("->") || !accept("(")) return std::nullopt;
    do {
      Expr e = exchanged(0);
      if (!e.defined() || map.to.size() >= kMaxIndices) return std::nullopt;
      map.to.push_back(std::move(e));
    } while (accept(","));
    if (!accept(")")) return std::nullopt;
    skip_spaces();
    if (at_ != source_.size()) return std::nullopt;
    map.from = vars_;
    return map;
  }

 private:
  static constexpr int64_t kMaxConstant = int64_t{1} << 31;
  static constexpr int kMaxDepth = 32;
  static constexpr int kMaxOperators = 256;  // in the whole map: expressions are walked recursively
  static constexpr size_t kMaxIndices = 16;

  bool accept_operator(std::string_view token) { return accept(token) && ++operators_ <= kMaxOperators; }

  Expr exchanged(int depth) {
    Expr left = sum(depth);
    while (left.defined() && accept_operator("^")) {
      Expr right = sum(depth);
      if (!right.defined()) return nullptr;
      left = binary(BinaryOp::bit_xor, left, right);
    }
    return left;
  }
  Expr sum(int depth) {
    if (depth > kMaxDepth) return nullptr;
    Expr left = product(depth);
    while (left.defined()) {
      if (!accept_operator("+")) return left;
      Expr right = product(depth);
      if (!right.defined()) return nullptr;
      left = left + right;
    }
    return left;
  }
  // Division and remainder are by positive constants.
  Expr product(int depth) {
    Expr left = factor(depth);
    while (left.defined()) {
      BinaryOp op = BinaryOp::mul;
      if (accept_operator("//")) {
        op = BinaryOp::floor_div;
      } else if (accept_operator("%%")) {
        op = BinaryOp::floor_mod;
      } else if (!accept_operator("*")) {
        return left;
      }
      Expr right = factor(depth);
      int64_t c = 0;
      if (!right.defined() || (op != BinaryOp::mul && (!as_int(right, &c) || c <= 0))) return nullptr;
      left = binary(op, left, right);
    }
    return left;
  }
  Expr factor(int depth) {
    if (accept("(")) {
      Expr e = exchanged(depth + 1);
      return accept(")") ? e : Expr();
    }
    skip_spaces();
    int64_t value = 0;
    const char* first = source_.data() + at_;
    auto [end, code] = std::from_chars(first, source_.data() + source_.size(), value);
    if (code == std::errc() && value >= 0 && value <= kMaxConstant) {
      at_ += static_cast<size_t>(end - first);
      return value;
    }
    const Var* var = find(word());
    return var == nullptr ? Expr() : Expr(*var);
  }
  const Var* find(const std::string& name) const {
    auto it = std::find_if(vars_.begin(), vars_.end(), [&](const Var& v) { return v.name() == name; });
    return it == vars_.end() ? nullptr : &*it;
  }
  std::string word() {
    skip_spaces();
    size_t start = at_;
    auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
    while (at_ < source_.size() &&
           (is_letter(source_[at_]) || (at_ > start && source_[at_] >= '0' && source_[at_] <= '9'))) {
      ++at_;
    }
    return std::string(source_.substr(start, at_ - start));
  }
  bool accept(std::string_view token) {
    skip_spaces();
    if (source_.substr(at_, token.size()) != token) return false;
    at_ += token.size();
    return true;
  }
  void skip_spaces() {
    while (at_ < source_.size() && source_[at_] == ' ')
      ++at_;
  }
  std::string_view source_;
  size_t at_ = 0;
  int operators_ = 0;
  std::vector<Var> vars_;
};

}  // namespace

std::optional<IndexMap> parse_index_map(std::string_view source) { return MapReader(source).read(); }

namespace {

// How many values a digit of an old index takes; undefined where e is none.
Expr extent_of(const Expr& e, const IndexMap& map, const std::vector<Expr>& shape) {
  const Digit digit = as_digit(e);
  auto var =
      std::find_if(map.from.begin(), map.from.end(), [&](const Var& v) { return v.same_as(digit.base); });
  if (var == map.from.end() || digit.offset != 0) return nullptr;
  Expr extent = ceil_div(shape[static_cast<size_t>(var - map.from.begin())], digit.stride);
  if (digit.modulus == 0) return extent;
  // Of an open size that may be less there is room for all: what is read in whole tiles has constant strides.
  int64_t ignored = 0;
  return as_int(extent, &ignored) ? min(extent, Expr(digit.modulus)) : Expr(digit.modulus);
}

}  // namespace

std::optional<std::vector<Part>> parts_of(const Expr& e, const IndexMap& map,
                                          const std::vector<Expr>& shape) {
  std::vector<std::pair<int64_t, Expr>> terms;
  split_sum(e, &terms);
  std::vector<Part> parts;
  for (const auto& [coefficient, atom] : terms) {
    const auto* exchange = atom.as<Binary>();
    if (exchange && exchange->op != BinaryOp::bit_xor) exchange = nullptr;
    Part part{coefficient, as_digit(exchange ? exchange->a : atom),
              extent_of(exchange ? exchange->a : atom, map, shape)};
    if (exchange) {
      part.flip = as_digit(exchange->b);
      part.flip_extent = extent_of(exchange->b, map, shape);
    }
    if (!part.extent.defined() || (exchange && !part.flip_extent.defined()) || coefficient <= 0)
      return std::nullopt;
    parts.push_back(std::move(part));
  }
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return a.coefficient < b.coefficient; });
  return parts;
}

}  // namespace mcc::tensor
