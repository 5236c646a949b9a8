// mcc.Unique: what Unique finds, as many as there may be, and how many different ones there are.
//
// Items are elements, or with an axis the slices along it, compared element by element. Their positions are sorted (merged in pairs of
// runs that double from level to level, so equal ones stay in order), and neighbours that are the same make a group. NaN comes behind all
// numbers, as in numpy; alone it is the same as another NaN, within slices it is not.
//
// In parts (find_set.h), for GPUs, every item finds its own place in each level, by a search in the other run, and groups are found where
// neighbours differ.
#include "graph/ops/find_set.h"
#include "tensor/simplify.h"
#include "tensor/sizes.h"

namespace mcc::graph {
namespace {

using tensor::AxisKind;
using tensor::For;
using tensor::If;
using tensor::Let;
using tensor::LoopKind;
using tensor::Seq;
using tensor::Stmt;
using tensor::Store;
using tensor::Var;

// Outputs, the first three with zeros behind those that there are.
constexpr int kItems = 0;    // of the groups
constexpr int kFirst = 1;    // position of the first one of each group
constexpr int kGroup = 2;    // of each item: its group
constexpr int kMembers = 3;  // items of each group
constexpr int kCount = 4;    // of groups, a scalar

void infer_unique(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::any)) return;
  const Shape& in = c.input(0).shape;
  const int64_t sorted = c.attributes().integer("sorted", 1);
  if (!expect(c, sorted == 0 || sorted == 1, "sorted: expected 0 or 1, got ", sorted)) return;
  Shape items{product(in)};
  if (c.attributes().has("axis")) {
    const auto axis = checked_axis(c, c.attributes().integer("axis", 0), c.rank(0));
    if (!axis) return;
    items = {in[static_cast<size_t>(*axis)]};
    c.set_output(kItems, c.input(0));
  } else {
    c.set_output(kItems, {c.input(0).element, items});
  }
  for (int i : {kFirst, kGroup, kMembers})
    c.set_output(i, {ElementType::i64, items});
  c.set_output(kCount, {ElementType::i64, {}});
}

struct Sorting {
  ComputeContext& c;
  std::optional<size_t> axis;
  Expr items;                    // how many
  Shape slice;                   // of an item
  Buffer order = {};             // [2, items]: positions, as the level reads and as it writes them
  Buffer levels = {};            // how often runs double until there is one
  Buffer outcome = {};           // of a comparison; in parts, of each item's
  Buffer left = {}, right = {};  // how far two runs are merged

  Sorting(ComputeContext& context) : c(context) {
    slice = c.input_type(0).shape;
    items = product(slice);
    if (!c.attributes().has("axis")) {
      slice.clear();
      return;
    }
    axis =
        static_cast<size_t>(normal_axis(c.attributes().integer("axis", 0), static_cast<int>(slice.size())));
    items = slice[*axis];
    slice.erase(slice.begin() + static_cast<std::ptrdiff_t>(*axis));
  }

  Var variable(const char* name) const { return Var(c.builder.unique_name(name)); }
  Expr position(const Expr& run, const Expr& k) const {
    return cast(ElementType::i64, load(order, {run, k}));
  }

  // The element of an item at these indices of its slice.
  Expr element(const Expr& item, std::vector<Expr> at) const {
    if (!axis) return c.at(0, from_linear(c.input_type(0).shape, item));
    at.insert(at.begin() + static_cast<std::ptrdiff_t>(*axis), item);
    return c.at(0, at);
  }
};

Expr comparable(const Expr& x) {
  return is_bool(x.element()) ? cast(ElementType::i32, x) : is_float(x.element()) ? widen(x) : x;
}

Expr is_nan(const Expr& x) {
  return is_float(x.element()) ? call(Intrinsic::is_nan, {x}) : tensor::false_value();
}

// 1 where the first one comes first, 2 where the second one does, and 0 where neither does.
Expr order_of(const Expr& a, const Expr& b) {
  const Expr first = a < b || (is_nan(b) && logical_not(is_nan(a))),
             second = b < a || (is_nan(a) && logical_not(is_nan(b)));
  return select(first, Expr(1), select(second, Expr(2), Expr(0)));
}

Expr is_other(const Expr& a, const Expr& b) { return select(a == b, Expr(0), Expr(1)); }
Expr is_other_number(const Expr& a, const Expr& b) {
  return select(a == b || (is_nan(a) && is_nan(b)), Expr(0), Expr(1));
}

// The outcome for the first elements of two items for which it is not 0. to: where it goes to.
Stmt compare(const Sorting& s, const Expr& a, const Expr& b, Expr (*outcome)(const Expr&, const Expr&),
             const std::vector<Expr>& to = {}) {
  const Var q = s.variable("unique.q");
  const std::vector<Expr> at = s.axis ? from_linear(s.slice, q) : std::vector<Expr>{};
  const Stmt step =
      Store::make(s.outcome, to, outcome(comparable(s.element(a, at)), comparable(s.element(b, at))));
  if (!s.axis) return step;
  return Seq::make({Store::make(s.outcome, to, 0), For::make(q, 0, product(s.slice), LoopKind::serial,
                                                             If::make(load(s.outcome, to) == 0, step))});
}

// Two runs of `width` become one, from `begin` on.
Stmt merge(const Sorting& s, const Expr& from, const Expr& begin, const Expr& width) {
  const Var k = s.variable("unique.k"),
            takes_left(s.c.builder.unique_name("unique.takes_left"), tensor::Type{ElementType::boolean, 1});
  const Expr middle = tensor::min(begin + width, s.items), end = tensor::min(begin + width * 2, s.items),
             last = s.items - 1;
  const Expr left = load(s.left, {}), right = load(s.right, {});
  const Expr left_item = s.position(from, tensor::min(left, last)),
             right_item = s.position(from, tensor::min(right, last));
  const Expr is_left = left < middle && (right >= end || load(s.outcome, {}) != 2);
  auto step = [&](const Expr& condition) { return select(condition, Expr(1), Expr(0)); };
  const Stmt take = Seq::make({
      Store::make(s.order, {1 - from, k}, cast(s.order.element(), select(takes_left, left_item, right_item))),
      Store::make(s.left, {}, left + step(takes_left)),
      Store::make(s.right, {}, right + step(logical_not(takes_left))),
  });
  return Seq::make({
      Store::make(s.left, {}, begin),
      Store::make(s.right, {}, middle),
      For::make(
          k, begin, end - begin, LoopKind::serial,
          Seq::make({compare(s, left_item, right_item, order_of), Let::make(takes_left, is_left, take)})),
  });
}

// The positions in order stand in part levels %% 2 of the buffer then.
void sort(Sorting& s) {
  const ElementType index = position_type(s.items);
  auto& b = s.c.builder;
  s.order = b.new_buffer("order", index, {2, s.items});
  s.levels = b.new_buffer("levels", ElementType::i64, {});
  s.outcome = b.new_buffer("outcome", ElementType::i64, {});
  s.left = b.new_buffer("left", ElementType::i64, {});
  s.right = b.new_buffer("right", ElementType::i64, {});
  b.block("unsorted", {{"k", s.items}},
          [&](Axes i) { return Store::make(s.order, {Expr(0), i[0]}, cast(index, i[0])); });
  b.block("no_levels", {}, [&](Axes) { return Store::make(s.levels, {}, 0); });
  constexpr int64_t kMostLevels = 40;  // of what fits into memory
  auto width_at = [](const Expr& level) { return binary(BinaryOp::shl, Expr(1), level); };
  b.block("levels", {{"level", kMostLevels, AxisKind::scan}}, [&](Axes i) {
    return Store::make(s.levels, {}, load(s.levels, {}) + select(width_at(i[0]) < s.items, Expr(1), Expr(0)));
  });
  b.block("sort", {{"level", kMostLevels, AxisKind::scan}}, [&](Axes i) {
    const Var pair = s.variable("unique.pair");
    const Expr width = width_at(i[0]), pairs = ceil_div(s.items, width * 2);
    return If::make(
        i[0] < load(s.levels, {}),
        For::make(pair, 0, pairs, LoopKind::serial, merge(s, floor_mod(i[0], 2), pair * width * 2, width)));
  });
}

// Of each group in order: its first item and how many it has; of each item its group; and how many groups there are.
struct Groups {
  Buffer first, members, of_item, count;
};

Groups make_groups(const Sorting& s) {
  auto& b = s.c.builder;
  Groups g{b.new_buffer("first", ElementType::i64, {s.items}),
           b.new_buffer("members", ElementType::i64, {s.items}),
           b.new_buffer("group", ElementType::i64, {s.items}), b.new_buffer("groups", ElementType::i64, {})};
  b.block("no_groups", {}, [&](Axes) { return Store::make(g.count, {}, 0); });
  b.block("group", {{"k", s.items, AxisKind::scan}}, [&](Axes i) {
    const Expr part = floor_mod(load(s.levels, {}), 2);
    const Expr item = s.position(part, i[0]), before = s.position(part, tensor::max(i[0] - 1, 0));
    const Var group = s.variable("unique.group"),
              is_new(b.unique_name("unique.is_new"), tensor::Type{ElementType::boolean, 1});
    const Stmt add = Seq::make({
        If::make(is_new,
                 Seq::make({Store::make(g.first, {group}, item), Store::make(g.members, {group}, 0)})),
        Store::make(g.members, {group}, load(g.members, {group}) + 1),
        Store::make(g.of_item, {item}, group),
        Store::make(g.count, {}, group + 1),
    });
    return Seq::make({
        compare(s, before, item, s.axis ? is_other : is_other_number),
        Let::make(is_new, i[0] == 0 || load(s.outcome, {}) != 0,
                  Let::make(group, load(g.count, {}) - select(is_new, Expr(0), Expr(1)), add)),
    });
  });
  return g;
}

// The groups' numbers in the order of their first items.
Buffer number_groups(const Sorting& s, const Groups& g) {
  auto& b = s.c.builder;
  Buffer number = b.new_buffer("number", ElementType::i64, {s.items}),
         next = b.new_buffer("next", ElementType::i64, {});
  b.block("no_numbers", {}, [&](Axes) { return Store::make(next, {}, 0); });
  b.block("number", {{"k", s.items, AxisKind::scan}}, [&](Axes i) {
    const Expr group = load(g.of_item, {i[0]});
    return If::make(load(g.first, {group}) == i[0], Seq::make({Store::make(number, {group}, load(next, {})),
                                                               Store::make(next, {}, load(next, {}) + 1)}));
  });
  return number;
}

// ---- In parts ----

// Runs of so many are put in order by the number of items that come before each; longer ones are merged.
constexpr int64_t kRun = 32;

// The positions in the order of the items of each run.
Buffer sort_runs(const Sorting& s, Buffer order, const Buffer& rank) {
  s.c.builder.block("runs", {{"k", s.items}}, [&](Axes i) {
    const Var r = s.variable("unique.r");
    const Expr begin = i[0] - floor_mod(i[0], kRun), j = begin + r, before = load(rank, {i[0]}),
               outcome = load(s.outcome, {i[0]});
    const Expr comes_first = outcome == 1 || (outcome == 0 && j < i[0]);
    const Stmt step = Seq::make({compare(s, j, i[0], order_of, {i[0]}),
                                 If::make(comes_first, Store::make(rank, {i[0]}, before + 1))});
    return Seq::make({Store::make(rank, {i[0]}, 0),
                      For::make(r, 0, tensor::min(s.items - begin, kRun), LoopKind::serial, step),
                      Store::make(order, {begin + before}, cast(order.element(), i[0]))});
  });
  return order;
}

// Runs of `width` in pairs: each item finds how many of the other run come before it.
void merge_runs(const Sorting& s, const Buffer& from, const Buffer& to, const Buffer& low, const Buffer& high,
                int64_t width, int64_t steps) {
  auto position = [&](const Expr& k) { return cast(ElementType::i64, load(from, {k})); };
  s.c.builder.block("merge", {{"k", s.items}}, [&](Axes i) {
    const Var step = s.variable("unique.step"), item = s.variable("unique.item"),
              middle = s.variable("unique.middle");
    const Expr begin = i[0] - floor_mod(i[0], 2 * width), end = tensor::min(begin + 2 * width, s.items);
    const Expr is_left = i[0] < middle, l = load(low, {i[0]}), h = load(high, {i[0]}),
               center = floor_div(l + h, 2);
    const Expr outcome = load(s.outcome, {i[0]});
    // Of equal ones those of the left run come first.
    const Expr comes_first = select(is_left, outcome == 1, outcome != 2);
    const Stmt halve = Seq::make(
        {compare(s, position(center), item, order_of, {i[0]}),
         If::make(comes_first, Store::make(low, {i[0]}, center + 1), Store::make(high, {i[0]}, center))});
    const Stmt search = Seq::make({
        Store::make(low, {i[0]}, select(is_left, middle, begin)),
        Store::make(high, {i[0]}, select(is_left, end, middle)),
        For::make(step, 0, steps, LoopKind::serial, If::make(l < h, halve)),
        Store::make(to, {i[0] + l - middle}, cast(to.element(), item)),
    });
    return Let::make(middle, tensor::min(begin + width, s.items), Let::make(item, position(i[0]), search));
  });
}

// All positions in order.
Buffer sort_in_parts(Sorting& s) {
  const ElementType index = position_type(s.items);
  auto buffer = [&](const char* name, ElementType element) {
    return s.c.builder.new_buffer(name, element, {s.items});
  };
  s.outcome = buffer("outcome", ElementType::i64);
  Buffer order = sort_runs(s, buffer("order", index), buffer("rank", ElementType::i64)),
         other = buffer("other", index);
  // Levels that have nothing to merge leave the items as they are.
  const int64_t bound =
      std::min(s.c.attributes().integer(kMostItems, tensor::kLargestSize), tensor::kLargestSize);
  const int64_t most = static_dim(s.items).value_or(bound);
  int64_t steps = 6;  // of a search among 32
  for (int64_t width = kRun; width < most; width *= 2, ++steps) {
    merge_runs(s, order, other, buffer("low", ElementType::i64), buffer("high", ElementType::i64), width,
               steps);
    std::swap(order, other);
  }
  return order;
}

Groups make_groups_in_parts(const Sorting& s, const Buffer& order) {
  auto& b = s.c.builder;
  auto buffer = [&](const char* name, ElementType element) { return b.new_buffer(name, element, {s.items}); };
  auto position = [&](const Expr& k) { return cast(ElementType::i64, load(order, {k})); };
  const Buffer is_new = buffer("is_new", ElementType::boolean), begin = buffer("begin", ElementType::i64);
  Groups g{buffer("first", ElementType::i64),
           buffer("members", ElementType::i64),
           buffer("group", ElementType::i64),
           {}};
  b.block("is_new", {{"k", s.items}}, [&](Axes i) {
    return Seq::make({compare(s, position(tensor::max(i[0] - 1, 0)), position(i[0]),
                              s.axis ? is_other : is_other_number, {i[0]}),
                      Store::make(is_new, {i[0]}, i[0] == 0 || load(s.outcome, {i[0]}) != 0)});
  });
  const Buffer total = visit_set(
      s.c, "group",
      {{},
       s.items,
       [&](Axes, const Expr& k) { return load(is_new, {k}); },
       [&](Axes, const Expr& k, const Expr& before, const Expr& holds) {
         return Seq::make({If::make(holds, Store::make(begin, {before}, k)),
                           Store::make(g.of_item, {position(k)}, before - select(holds, Expr(0), Expr(1)))});
       }},
      true);
  g.count = b.compute("groups", ElementType::i64, {},
                      [&](Axes) { return cast(ElementType::i64, load(total, {Expr(0)})); });
  const Expr count = load(g.count, {});
  b.block("group", {{"k", s.items}}, [&](Axes i) {
    const Expr from = load(begin, {i[0]});
    const Stmt to_end = Store::make(g.members, {i[0]}, s.items - from);
    const Stmt to_next =
        Store::make(g.members, {i[0]}, load(begin, {tensor::min(i[0] + 1, s.items - 1)}) - from);
    return If::make(i[0] < count, Seq::make({Store::make(g.first, {i[0]}, position(from)),
                                             If::make(i[0] + 1 < count, to_next, to_end)}));
  });
  return g;
}

Buffer number_groups_in_parts(const Sorting& s, const Groups& g) {
  auto& b = s.c.builder;
  // Of each item whether it is the first one of its group; groups are numbered in the order of these.
  const Buffer number = b.new_buffer("number", ElementType::i64, {s.items});
  visit_set(s.c, "number",
            {{},
             s.items,
             [&](Axes, const Expr& k) { return load(g.first, {load(g.of_item, {k})}) == k; },
             [&](Axes, const Expr& k, const Expr& before, const Expr&) {
               return Store::make(number, {load(g.of_item, {k})}, before);
             }});
  return number;
}

void compute_unique(ComputeContext& c) {
  Sorting s(c);
  const bool in_parts = is_in_parts(c);
  if (!in_parts) sort(s);
  const Groups g = in_parts ? make_groups_in_parts(s, sort_in_parts(s)) : make_groups(s);
  const bool is_sorted = c.attributes().integer("sorted", 1) != 0;
  Buffer number;
  if (!is_sorted) number = in_parts ? number_groups_in_parts(s, g) : number_groups(s, g);
  auto number_of = [&](const Expr& group) { return is_sorted ? group : load(number, {group}); };
  auto zeros = [&](const char* name) {
    return c.builder.compute(name, ElementType::i64, {s.items}, [](Axes) { return Expr(0); });
  };
  Buffer first = zeros("indices"), members = zeros("counts");
  c.builder.block("outputs", {{"k", s.items, in_parts ? AxisKind::spatial : AxisKind::scan}}, [&](Axes i) {
    return If::make(i[0] < load(g.count, {}),
                    Seq::make({Store::make(first, {number_of(i[0])}, load(g.first, {i[0]})),
                               Store::make(members, {number_of(i[0])}, load(g.members, {i[0]}))}));
  });
  if (c.has_output(kItems)) {
    const TensorType& out = c.output_type(kItems);
    c.set_output(kItems, c.builder.compute("items", out.element, out.shape, [&](Axes i) {
      std::vector<Expr> at = to_vector(i);
      const Expr k = at[s.axis.value_or(0)];
      at.erase(at.begin() + static_cast<std::ptrdiff_t>(s.axis.value_or(0)));
      const Expr x = s.element(load(first, {k}), at);
      return select(k < load(g.count, {}), x, tensor::constant_int(x.type(), 0));
    }));
  }
  if (c.has_output(kFirst)) c.set_output(kFirst, first);
  if (c.has_output(kGroup)) {
    c.set_output(kGroup, c.builder.compute("inverse", ElementType::i64, {s.items},
                                           [&](Axes i) { return number_of(load(g.of_item, {i[0]})); }));
  }
  if (c.has_output(kMembers)) c.set_output(kMembers, members);
  if (c.has_output(kCount))
    c.set_output(kCount,
                 c.builder.compute("count", ElementType::i64, {}, [&](Axes) { return load(g.count, {}); }));
}

}  // namespace

std::span<const OpDef> mcc_unique_ops() {
  static const OpDef ops[] = {own_op("Unique", FusionClass::opaque, 1, infer_unique, compute_unique)};
  return ops;
}

}  // namespace mcc::graph
