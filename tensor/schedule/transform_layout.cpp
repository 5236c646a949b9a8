// transform_layout(buffer="packed", map="(k, n) -> (n // 16, k, n %% 16)")
//
//   packed: f32[512, 1000];  ... packed[k, n] ...
// becomes
//   packed: f32[63, 512, 16];  ... packed[n // 16, k, n %% 16] ...
//
// Each new index is a sum of digits of the old ones with constant factors: i, i // c, i %% c, i // a %% b, i*16 + j, ...
//
// 1. The map names each dimension of the buffer once; it reads as above.
// 2. It is injective: the digits of each old index are complete, and those within one new index do not overlap.
// 3. For a parameter, whose shape changes for the caller too, the new buffer has no more elements than the old one.
#include <algorithm>
#include <charconv>

#include "tensor/schedule/regions.h"
#include "tensor/schedule/step.h"

namespace mcc::tensor {
namespace {

struct IndexMap {
  std::vector<Var> from;
  std::vector<Expr> to;
};

// "(i, j) -> (i // 16, j, i %% 16)"
class MapReader {
 public:
  explicit MapReader(std::string_view source) : source_(source) {}

  std::optional<IndexMap> read() {
    IndexMap map;
    if (!accept("(")) return std::nullopt;
    do {
      std::string name = word();
      if (name.empty() || find(name)) return std::nullopt;
      vars_.emplace_back(name);
    } while (accept(","));
    if (!accept(")") || !accept("->") || !accept("(")) return std::nullopt;
    do {
      Expr e = sum(0);
      if (!e.defined() || map.to.size() >= 16) return std::nullopt;
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

  Expr sum(int depth) {
    if (depth > kMaxDepth) return nullptr;
    Expr left = product(depth);
    while (left.defined()) {
      if (!accept("+")) return left;
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
      if (accept("//")) {
        op = BinaryOp::floor_div;
      } else if (accept("%%")) {
        op = BinaryOp::floor_mod;
      } else if (!accept("*")) {
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
      Expr e = sum(depth + 1);
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
  std::vector<Var> vars_;
};

// coefficient * digit, with the number of values that the digit takes.
struct Part {
  int64_t coefficient;
  Digit digit;
  Expr extent;
};

// The new index as parts; empty if it is not a sum of digits.
std::optional<std::vector<Part>> parts_of(const Expr& e, const IndexMap& map,
                                          const std::vector<Expr>& shape) {
  std::vector<std::pair<int64_t, Expr>> terms;
  split_sum(e, &terms);
  std::vector<Part> parts;
  for (const auto& [coefficient, atom] : terms) {
    Digit digit = as_digit(atom);
    auto var =
        std::find_if(map.from.begin(), map.from.end(), [&](const Var& v) { return v.same_as(digit.base); });
    if (var == map.from.end() || digit.offset != 0 || coefficient <= 0) return std::nullopt;
    Expr extent = ceil_div(shape[static_cast<size_t>(var - map.from.begin())], digit.stride);
    if (digit.modulus != 0) extent = min(extent, Expr(digit.modulus));
    parts.push_back({coefficient, digit, extent});
  }
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return a.coefficient < b.coefficient; });
  return parts;
}

// Whether each part has its own range within the index: coefficient_k+1 >= coefficient_k * extent_k.
bool do_not_overlap(const std::vector<Part>& parts) {
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    int64_t extent = 0;
    if (!as_int(parts[i].extent, &extent) || parts[i + 1].coefficient < parts[i].coefficient * extent)
      return false;
  }
  return true;
}

Outcome check_map(const TransformLayout& step, const IndexMap& map, const std::vector<Expr>& shape,
                  std::vector<Expr>* new_shape) {
  std::vector<std::vector<PlacedDigit>> digits(map.from.size());
  for (const Expr& index : map.to) {
    std::optional<std::vector<Part>> parts = parts_of(index, map, shape);
    if (!parts) {
      return refuse(RefusalCode::not_affine,
                    text("expected sums of digits (i // a %% b) times constants, got ", to_text(index)));
    }
    if (!do_not_overlap(*parts)) {
      return refuse(RefusalCode::not_injective,
                    text("expected terms that do not overlap, got ", to_text(index)));
    }
    Expr extent = 1;
    for (const Part& p : *parts) {
      extent = extent + (p.extent - 1) * p.coefficient;
      for (size_t i = 0; i < map.from.size(); ++i) {
        if (p.digit.base.same_as(map.from[i])) digits[i].push_back({0, p.digit});
      }
    }
    new_shape->push_back(simplify(extent));
  }
  for (size_t i = 0; i < map.from.size(); ++i) {
    if (!is_int(shape[i], 1) && !is_complete(&digits[i], shape[i])) {
      return refuse(RefusalCode::not_injective,
                    text("expected all digits of ", map.from[i].name(), " in ", step.map, ", got some only"));
    }
  }
  return applied();
}

// Whether both shapes hold the same number of elements, for sure.
bool same_size(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  Expr left = 1, right = 1;
  for (const Expr& e : a)
    left = left * e;
  for (const Expr& e : b)
    right = right * e;
  return Analyzer().can_prove(left == right);
}

class MoveAccesses : public Mutator {
 public:
  MoveAccesses(const Buffer& from, const Buffer& to, const IndexMap& map) : from_(from), to_(to), map_(map) {}

 protected:
  using Mutator::on;
  Expr on(const Load& n, const Expr& self) override {
    Expr e = Mutator::on(n, self);
    const auto* load = e.as<Load>();
    return load->buffer.same_as(from_) ? Load::make(to_, mapped(load->indices), load->predicate) : e;
  }
  Stmt on(const Store& n, const Stmt& self) override {
    Stmt s = Mutator::on(n, self);
    const auto* store = s.as<Store>();
    return store->buffer.same_as(from_)
               ? Store::make(to_, mapped(store->indices), store->value, store->predicate)
               : s;
  }

 private:
  std::vector<Expr> mapped(const std::vector<Expr>& indices) const {
    VarMap values;
    for (size_t i = 0; i < indices.size(); ++i)
      values[map_.from[i].get()] = indices[i];
    std::vector<Expr> out;
    for (const Expr& e : map_.to)
      out.push_back(substitute(e, values));
    return out;
  }
  const Buffer &from_, &to_;
  const IndexMap& map_;
};

}  // namespace

Outcome apply_step(const TransformLayout& step, Schedule& schedule) {
  const Func& f = schedule.func();
  Buffer old = find_buffer(f, step.buffer);
  if (!old) return refuse_buffer(step.buffer);
  std::optional<IndexMap> map = MapReader(step.map).read();
  if (!map || map->from.size() != old.shape().size()) {
    return refuse(RefusalCode::bad_argument,
                  text("expected a map of ", old.rank(),
                       " indices such as (i, j) -> (j // 16, i, j %% 16), got \"", step.map, "\""));
  }
  std::vector<Expr> shape;
  if (Outcome o = check_map(step, *map, old.shape(), &shape); !o) return o;
  if (!is_intermediate(f, old) && !same_size(old.shape(), shape)) {
    return refuse(RefusalCode::is_output,
                  text("expected a map without padding for parameter ", step.buffer, ", got ", step.map));
  }
  Buffer buffer(old.name(), old.element(), std::move(shape), old.scope(), old->alignment);
  Func result = f;
  for (std::vector<Buffer>* list : {&result.params, &result.allocs}) {
    std::replace_if(list->begin(), list->end(), [&](const Buffer& b) { return b.same_as(old); }, buffer);
  }
  MoveAccesses move_accesses(old, buffer, *map);
  result.body = map_blocks(f.body, [&](const Block& b, const Stmt& self) -> Stmt {
    if (!reads_buffer(b, old) && !writes_buffer(b, old)) return self;
    Block* block = b.copy();
    Stmt owner = handle(block);
    block->init = move_accesses.mutate(b.init);
    block->body = move_accesses.mutate(b.body);
    return simplify_accesses(f, *block);
  });
  return commit(schedule, std::move(result));
}

}  // namespace mcc::tensor
