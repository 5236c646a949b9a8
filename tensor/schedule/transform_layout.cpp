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
// 3. The buffer is an intermediate, or a weight (weight_order.h), whose elements are stored in the new order when the kernel is
//    compiled; that one gets no padding.
#include <algorithm>

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
  std::optional<IndexMap> map = parse_index_map(step.map);
  if (!map || map->from.size() != old.shape().size()) {
    return refuse(RefusalCode::bad_argument,
                  text("expected a map of ", old.rank(),
                       " indices such as (i, j) -> (j // 16, i, j %% 16), got \"", step.map, "\""));
  }
  std::vector<Expr> shape;
  if (Outcome o = check_map(step, *map, old.shape(), &shape); !o) return o;
  if (!is_intermediate(f, old) && !is_weight(f, old)) {
    return refuse(RefusalCode::is_output,
                  text("expected an intermediate or a weight, got parameter ", step.buffer, ", whose order is the caller's"));
  }
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
