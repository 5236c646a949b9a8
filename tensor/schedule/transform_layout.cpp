// transform_layout(buffer="packed", map="(k, n) -> (n // 16, k, n %% 16)")
//
//   packed: f32[512, 1000];  ... packed[k, n] ...
// becomes
//   packed: f32[63, 512, 16];  ... packed[n // 16, k, n %% 16] ...
//
// Each new index is a sum of digits of the old ones with constant factors: i, i // c, i %% c, i // a %% b, i*16 + j, ...
//
// or a digit whose bits another one exchanges, in brackets: (i, k) -> (i, (k // 8 ^ i %% 8) * 8 + k %% 8). The buffer is then
// aligned to 1,024 bytes: its order is one of addresses, as the instructions of GPUs that know such orders (wgmma) want it.
//
// 1. The map names each dimension of the buffer once; it reads as above.
// 2. It is injective: the digits of each old index are complete, and those within one new index do not overlap.
//    What exchanges bits takes no more values than what it exchanges, a power of two; and the new indices tell it: no bits of
//    its own old index are exchanged.
// 3. The buffer is an intermediate, or a weight (weight_order.h), whose elements are stored in the new order when the kernel is
//    compiled; that one gets no padding.
#include <algorithm>
#include <bit>

#include "tensor/intrinsics.h"
#include "tensor/schedule/index_map.h"
#include "tensor/schedule/step.h"
#include "tensor/schedule/weight_order.h"

namespace mcc::tensor {
namespace {

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
                  std::vector<Expr>* new_shape, bool* has_exchange) {
  std::vector<std::vector<PlacedDigit>> digits(map.from.size());
  std::vector<Part> exchanges;
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
      if (p.flip) exchanges.push_back(p);
      extent = extent + (p.extent - 1) * p.coefficient;
      for (size_t i = 0; i < map.from.size(); ++i) {
        if (p.digit.base.same_as(map.from[i])) digits[i].push_back({0, p.digit});
      }
    }
    new_shape->push_back(simplify(extent));
  }
  for (const Part& p : exchanges) {
    int64_t values = 0, flips = 0;
    const bool is_known = as_int(simplify(p.extent), &values) && as_int(simplify(p.flip_extent), &flips);
    const bool is_told = std::none_of(exchanges.begin(), exchanges.end(), [&](const Part& other) {
      return other.digit.base.same_as(p.flip->base);
    });
    if (!is_known || !is_told || !std::has_single_bit(static_cast<uint64_t>(values)) || flips > values) {
      return refuse(
          RefusalCode::not_injective,
          text("expected bits exchanged among a power of two of values, by an index that keeps its own, in ",
               step.map));
    }
  }
  for (size_t i = 0; i < map.from.size(); ++i) {
    if (!is_int(shape[i], 1) && !is_complete(&digits[i], shape[i])) {
      return refuse(RefusalCode::not_injective,
                    text("expected all digits of ", map.from[i].name(), " in ", step.map, ", got some only"));
    }
  }
  *has_exchange = !exchanges.empty();
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
  std::optional<IndexMap> map = parse_index_map(step.map);
  if (!map || map->from.size() != old.shape().size()) {
    return refuse(RefusalCode::bad_argument,
                  text("expected a map of ", old.rank(),
                       " indices such as (i, j) -> (j // 16, i, j %% 16), got \"", step.map, "\""));
  }
  std::vector<Expr> shape;
  bool has_exchange = false;
  if (Outcome o = check_map(step, *map, old.shape(), &shape, &has_exchange); !o) return o;
  if (!is_intermediate(f, old) && !is_weight(f, old)) {
    return refuse(RefusalCode::is_output,
                  text("expected an intermediate or a weight, got parameter ", step.buffer, ", whose order is the caller's"));
  }
  if (!is_intermediate(f, old) && (has_exchange || !same_size(old.shape(), shape))) {
    return refuse(RefusalCode::is_output, text("expected a map without ", has_exchange ? "^" : "padding",
                                               " for parameter ", step.buffer, ", got ", step.map));
  }
  const int alignment = has_exchange ? std::max(old->alignment, kSwizzleAlign) : old->alignment;
  Buffer buffer(old.name(), old.element(), std::move(shape), old.scope(), alignment);
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
