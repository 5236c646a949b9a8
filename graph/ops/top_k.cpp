// TopK: the k largest (or smallest) in order; of equal ones the first comes first.
//
// Step by step, each pick by a look through the row; or, as passes/rank_elements.cpp says, by each element's rank in the row (attribute
// by_rank), by ranks in parts of the row (part and gap), or by a tournament (group).
#include <algorithm>

#include "graph/ops/common.h"
#include "graph/ops/tournament.h"
#include "tensor/simplify.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

using tensor::AxisKind;
using tensor::Store;

constexpr const char *kByRank = "by_rank", *kPart = "part", *kGap = "gap", *kGroup = "group";

std::optional<Expr> given_count(InferContext& c) {
  if (!c.has_input(1)) return Expr(c.attributes().integer("k", 0));
  auto k = known_ints(c, 1, "k");
  if (!k || !expect(c, k->size() == 1, "k: expected one number, got ", dims_text(*k))) return std::nullopt;
  return k->front();
}

void infer_top_k(InferContext& c) {
  if (!expect_type(c, 0, TypeSet::number)) return;
  auto axis = checked_axis(c, c.attributes().integer("axis", -1), c.rank(0));
  auto k = axis ? given_count(c) : std::nullopt;
  if (!k) return;
  Shape out = c.input(0).shape;
  Expr& d = out[static_cast<size_t>(*axis)];
  const std::optional<int64_t> count = static_dim(*k), extent = static_dim(d);
  const bool may_be = !count || (*count >= 0 && (!extent || *count <= *extent));
  if (!expect(c, may_be, "k of ", count.value_or(0), " for ", to_text(c.input(0)))) return;
  if (!count || !extent) {
    const Expr held = tensor::max(tensor::min(*k, d), 0);
    if (!expect_same_dim(c, held, *k,
                         text("k of ", tensor::to_text(*k), " for ", tensor::to_text(d), " elements")))
      return;
  }
  d = *k;
  c.set_output(0, {c.input(0).element, out});
  c.set_output(1, {ElementType::i64, out});
}

// What stands at the positions, and these.
void set_results(ComputeContext& c, size_t axis, const Buffer& position) {
  if (c.has_output(0)) {
    c.set_output(0, c.builder.compute("values", c.input_type(0).element, position.shape(), [&](Axes i) {
      std::vector<Expr> at = to_vector(i);
      at[axis] = cast(ElementType::i64, load(position, at));
      return c.at(0, at);
    }));
  }
  if (c.has_output(1)) c.set_output(1, cast_buffer(c, position, ElementType::i64));
}

// ---- By rank: each element's rank is the number of those that come before it; of rank t is pick t. Many more comparisons than by
// steps, none of which waits for another ----

void compute_top_k_by_rank(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  const TensorType& out = c.output_type(c.has_output(0) ? 0 : 1);
  const auto axis =
      static_cast<size_t>(normal_axis(c.attributes().integer("axis", -1), static_cast<int>(in.shape.size())));
  const bool largest = c.attributes().integer("largest", 1) != 0;
  const ElementType index = position_type(in.shape[axis]);
  auto with = [&](Axes i, const Expr& place) {
    std::vector<Expr> at = to_vector(i);
    at[axis] = place;
    return at;
  };
  Buffer rank =
      c.builder.reduce("rank", index, in.shape, {in.shape[axis]}, Reducer::sum, [&](Axes i, Axes r) {
        Expr x = c.at(0, to_vector(i)), other = c.at(0, with(i, r[0]));
        return cast(index, (largest ? other > x : other < x) || (other == x && r[0] < i[axis]));
      });
  Buffer found =
      c.builder.reduce("found", index, out.shape, {in.shape[axis]}, Reducer::min, [&](Axes i, Axes r) {
        return select(load(rank, with(i, r[0])) == cast(index, i[axis]), cast(index, r[0]),
                      cast(index, position_beyond(index)));
      });
  // Only where the values have no order (NaN) a rank is missing: any position, but not one beyond the elements.
  Buffer position = c.builder.compute("position", index, out.shape, [&](Axes i) {
    return tensor::min(load(found, to_vector(i)), cast(index, in.shape[axis] - 1));
  });
  set_results(c, axis, position);
}

// ---- By parts. Every element has a rank in its part alone. In the order of its elements each part has a sample at the end of every `gap`; the
// sample of rank ceil(k / gap) among all samples has at least k elements up to it, and at most gap - 1 more of each part than there are samples
// up to it: these are the candidates, whose ranks among each other are those in the row ----

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

struct Rows {
  Shape outer;
  size_t axis;
  int64_t n, k, part, gap;
  bool largest;
  ElementType index;
  // Some more of parts and candidates, so that loops over them go in whole turns of many threads.
  int64_t parts() const { return round_up(round_up(n, part) / part, 4); }
  int64_t samples() const { return parts() * (part / gap); }
  int64_t wanted_samples() const { return (k + gap - 1) / gap; }
  int64_t candidates() const {
    return std::min(parts() * part, round_up(wanted_samples() * gap + parts() * (gap - 1), 128));
  }
  Shape shape(std::initializer_list<Expr> inner) const {
    Shape out = outer;
    out.insert(out.end(), inner);
    return out;
  }
  // Indices of the row that i stands on, then others.
  std::vector<Expr> at(Axes i, std::initializer_list<Expr> inner) const {
    std::vector<Expr> out(i.begin(), i.begin() + static_cast<std::ptrdiff_t>(outer.size()));
    out.insert(out.end(), inner);
    return out;
  }
  Expr precedes(const Expr& a, const Expr& b, const Expr& is_first) const {
    return (largest ? a > b : a < b) || (a == b && is_first);
  }
  Expr worst(ElementType element) const {
    return tensor::identity(largest ? Reducer::max : Reducer::min, element);
  }
};

// In parts; what fills the last one, and what has no order (NaN), comes last.
Buffer keys_of(ComputeContext& c, const Rows& rows) {
  const ElementType wide = wide_type(c.input_type(0).element);
  return c.builder.compute("key", wide, rows.shape({rows.parts(), rows.part}), [&](Axes i) {
    const size_t d = rows.outer.size();
    const Expr position = i[d] * rows.part + i[d + 1];
    std::vector<Expr> at = rows.at(i, {});
    at.insert(at.begin() + static_cast<std::ptrdiff_t>(rows.axis), position);
    const Expr x = widen(c.at(0, at)), worst = rows.worst(wide);
    return select(position < rows.n, is_float(wide) ? select(x == x, x, worst) : x, worst);
  });
}

// Of each of `count` keys in a row, how many precede it.
Buffer ranks_of(ComputeContext& c, const Rows& rows, const char* name, const Buffer& keys, int64_t count) {
  const size_t d = keys.shape().size() - 1;
  return c.builder.reduce(name, rows.index, keys.shape(), {count}, Reducer::sum, [&](Axes i, Axes r) {
    std::vector<Expr> other = to_vector(i);
    other[d] = r[0];
    return cast(rows.index, rows.precedes(load(keys, other), load(keys, to_vector(i)), r[0] < i[d]));
  });
}

// Where among `count` ranks that `at` gives one is that is wanted; `beyond` where it is not.
Buffer places_of(ComputeContext& c, const Rows& rows, const char* name, const Shape& shape, int64_t count,
                 int64_t beyond, const std::function<Expr(Axes i, const Expr& r)>& is_it) {
  return c.builder.reduce(name, rows.index, shape, {count}, Reducer::min, [&](Axes i, Axes r) {
    return select(is_it(i, r[0]), cast(rows.index, r[0]), cast(rows.index, Expr(beyond)));
  });
}

Expr wide_index(const Expr& e) { return cast(ElementType::i64, e); }

// The place of the last candidate, among all elements of the row.
Buffer last_candidate(ComputeContext& c, const Rows& rows, const Buffer& keys, const Buffer& ranks) {
  const size_t d = rows.outer.size();
  const int64_t of_part = rows.part / rows.gap;
  const Buffer place = places_of(
      c, rows, "sample", rows.shape({rows.samples()}), rows.part, rows.part - 1, [&](Axes i, const Expr& r) {
        const Expr rank = load(ranks, rows.at(i, {floor_div(i[d], of_part), r}));
        return rank == cast(rows.index, (floor_mod(i[d], of_part) + 1) * rows.gap - 1);
      });
  const Buffer sample_keys = c.builder.compute("sample_key", keys.element(), place.shape(), [&](Axes i) {
    return load(keys, rows.at(i, {floor_div(i[d], of_part), wide_index(load(place, to_vector(i)))}));
  });
  const Buffer sample_ranks = ranks_of(c, rows, "sample_rank", sample_keys, rows.samples());
  const Buffer last = places_of(
      c, rows, "last_sample", rows.outer, rows.samples(), rows.samples() - 1, [&](Axes i, const Expr& r) {
        return load(sample_ranks, rows.at(i, {r})) == cast(rows.index, Expr(rows.wanted_samples() - 1));
      });
  return c.builder.compute("last", rows.index, rows.outer, [&](Axes i) {
    const Expr sample = wide_index(load(last, to_vector(i)));
    return cast(rows.index, floor_div(sample, of_part) * rows.part) + load(place, rows.at(i, {sample}));
  });
}

// The places of the candidates, part by part, in each in order; behind them places beyond the row.
Buffer candidates_of(ComputeContext& c, const Rows& rows, const Buffer& keys, const Buffer& ranks,
                     const Buffer& last) {
  const size_t d = rows.outer.size();
  const Buffer taken = c.builder.reduce(
      "taken", rows.index, rows.shape({rows.parts()}), {rows.part}, Reducer::sum, [&](Axes i, Axes r) {
        const Expr end = wide_index(load(last, rows.at(i, {})));
        const Expr end_key = load(keys, rows.at(i, {floor_div(end, rows.part), floor_mod(end, rows.part)}));
        const Expr key = load(keys, rows.at(i, {i[d], r[0]}));
        return cast(rows.index, rows.precedes(key, end_key, i[d] * rows.part + r[0] <= end));
      });
  const Buffer end =
      c.builder.reduce("end", rows.index, taken.shape(), {rows.parts()}, Reducer::sum, [&](Axes i, Axes r) {
        return select(r[0] <= i[d], load(taken, rows.at(i, {r[0]})), cast(rows.index, Expr(0)));
      });
  const Shape shape = rows.shape({rows.candidates()});
  const Buffer own =
      c.builder.reduce("own_part", rows.index, shape, {rows.parts()}, Reducer::sum, [&](Axes i, Axes r) {
        return cast(rows.index, load(end, rows.at(i, {r[0]})) <= cast(rows.index, i[d]));
      });
  const int64_t beyond = rows.parts() * rows.part;
  const Buffer place = places_of(c, rows, "place", shape, rows.part, beyond, [&](Axes i, const Expr& r) {
    const Expr part = tensor::min(wide_index(load(own, to_vector(i))), rows.parts() - 1);
    const Expr begin = load(end, rows.at(i, {part})) - load(taken, rows.at(i, {part}));
    return load(ranks, rows.at(i, {part, r})) == cast(rows.index, i[d]) - begin;
  });
  return c.builder.compute("candidate", rows.index, shape, [&](Axes i) {
    const Expr part = load(own, to_vector(i));
    return select(part < cast(rows.index, Expr(rows.parts())),
                  part * cast(rows.index, Expr(rows.part)) + load(place, to_vector(i)),
                  cast(rows.index, Expr(beyond)));
  });
}

void compute_top_k_by_parts(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  const TensorType& out = c.output_type(c.has_output(0) ? 0 : 1);
  const auto axis =
      static_cast<size_t>(normal_axis(c.attributes().integer("axis", -1), static_cast<int>(in.shape.size())));
  Rows rows{in.shape,
            axis,
            *static_dim(in.shape[axis]),
            *static_dim(out.shape[axis]),
            c.attributes().integer(kPart, 0),
            c.attributes().integer(kGap, 0),
            c.attributes().integer("largest", 1) != 0,
            position_type(in.shape[axis])};
  rows.outer.erase(rows.outer.begin() + static_cast<std::ptrdiff_t>(axis));
  const size_t d = rows.outer.size();
  const Buffer keys = keys_of(c, rows);
  const Buffer ranks = ranks_of(c, rows, "rank", keys, rows.part);
  const Buffer candidates = candidates_of(c, rows, keys, ranks, last_candidate(c, rows, keys, ranks));
  const Buffer candidate_keys =
      c.builder.compute("candidate_key", keys.element(), candidates.shape(), [&](Axes i) {
        const Expr place = wide_index(load(candidates, to_vector(i)));
        return select(place < rows.parts() * rows.part,
                      load(keys, rows.at(i, {floor_div(place, rows.part), floor_mod(place, rows.part)})),
                      rows.worst(keys.element()));
      });
  const Buffer final_ranks = ranks_of(c, rows, "final_rank", candidate_keys, rows.candidates());
  const Buffer found = places_of(
      c, rows, "found", rows.shape({rows.k}), rows.candidates(), rows.candidates() - 1,
      [&](Axes i, const Expr& r) { return load(final_ranks, rows.at(i, {r})) == cast(rows.index, i[d]); });
  Buffer position = c.builder.compute("position", rows.index, out.shape, [&](Axes i) {
    std::vector<Expr> at = to_vector(i);
    at.erase(at.begin() + static_cast<std::ptrdiff_t>(axis));
    at.push_back(i[axis]);
    return tensor::min(load(candidates, rows.at(at, {wide_index(load(found, at))})),
                       cast(rows.index, Expr(rows.n - 1)));
  });
  set_results(c, axis, position);
}

// ---- By a tournament: of groups of elements, each of which enters its best one, and the next one when that is picked. Every element is
// looked at once, in vectors, and then a group for each pick ----

using tensor::For;
using tensor::Seq;
using tensor::Stmt;
using tensor::Var;

void compute_top_k_by_tournament(ComputeContext& c) {
  const TensorType& in = c.input_type(0);
  const TensorType& out = c.output_type(c.has_output(0) ? 0 : 1);
  const auto axis =
      static_cast<size_t>(normal_axis(c.attributes().integer("axis", -1), static_cast<int>(in.shape.size())));
  const bool largest = c.attributes().integer("largest", 1) != 0;
  const int64_t group = c.attributes().integer(kGroup, 0);
  const Expr n = in.shape[axis], picks = out.shape[axis], groups = tensor::simplify(ceil_div(n, group));
  Shape outer = in.shape;
  outer.erase(outer.begin() + static_cast<std::ptrdiff_t>(axis));
  auto row_of = [&](Axes i) {
    return std::vector<Expr>(i.begin(), i.begin() + static_cast<std::ptrdiff_t>(outer.size()));
  };
  auto inside = [&](std::vector<Expr> row, const Expr& k) {
    row.insert(row.begin() + static_cast<std::ptrdiff_t>(axis), k);
    return row;
  };
  auto behind = [](Shape row, const Expr& k) {
    row.push_back(k);
    return row;
  };
  // Of turn m of a group; elements of one group lie apart, so that vectors go along groups.
  auto key = [&](const std::vector<Expr>& row, const Expr& g, const Expr& m) {
    const Expr position = m * groups + g;
    const Expr found = element_key(c.at(0, inside(row, position)), position, largest);
    return group == 1 ? found : select(position < n, found, no_key());
  };
  const Buffer entry =
      c.builder.reduce("entry", ElementType::i64, behind(outer, groups), {group}, Reducer::max,
                       [&](Axes i, Axes r) { return key(row_of(i), i[outer.size()], r[0]); });
  const Buffer tree = c.builder.new_buffer("tree", ElementType::i64, behind(outer, groups * 2));
  const Buffer position = c.builder.new_buffer("position", position_type(n), out.shape);
  std::vector<tensor::FuncBuilder::AxisSpec> rows;
  for (size_t k = 0; k < outer.size(); ++k)
    rows.push_back({text("i", k), outer[k], AxisKind::spatial});
  c.builder.block("pick", rows, [&](Axes i) {
    const std::vector<Expr> row = to_vector(i);
    const Tournament tournament{c, tree, row, groups, groups};
    const Var j(c.builder.unique_name("pick.j")), t(c.builder.unique_name("pick.t")),
        m(c.builder.unique_name("pick.m")), picked(c.builder.unique_name("pick.key")),
        leaf(c.builder.unique_name("pick.leaf"));
    // The best of the group that comes after the one picked.
    const Expr next = key(row, leaf - groups, m);
    const Stmt enter = Seq::make({
        tournament.set(leaf, no_key()),
        For::make(
            m, 0, group, tensor::LoopKind::serial,
            tournament.set(leaf, tensor::max(tournament.key(leaf), select(next < picked, next, no_key())))),
        tournament.play_again(leaf),
    });
    const Expr place = position_of_key(picked);
    const Stmt pick = Seq::make({
        Store::make(position, inside(row, t), cast(position.element(), place)),
        tensor::If::make(t < picks - 1, tensor::Let::make(leaf, groups + floor_mod(place, groups), enter)),
    });
    return Seq::make({
        For::make(j, 0, groups, tensor::LoopKind::serial,
                  tournament.set(groups + j, load(entry, behind(row, j)))),
        tournament.play(),
        For::make(t, 0, picks, tensor::LoopKind::serial,
                  tensor::Let::make(picked, tournament.winner(), pick)),
    });
  });
  set_results(c, axis, position);
}

// Step t picks the best among those that come after the pick before: ordered by value, then by position. best[t + 1]
// and position[t + 1] hold pick t; the entries 0 stand before everything.
void compute_top_k(ComputeContext& c) {
  if (c.attributes().integer(kByRank, 0) != 0) return compute_top_k_by_rank(c);
  if (c.attributes().integer(kPart, 0) != 0) return compute_top_k_by_parts(c);
  if (c.attributes().integer(kGroup, 0) != 0) return compute_top_k_by_tournament(c);
  const TensorType& in = c.input_type(0);
  const TensorType& out = c.output_type(c.has_output(0) ? 0 : 1);
  auto axis =
      static_cast<size_t>(normal_axis(c.attributes().integer("axis", -1), static_cast<int>(in.shape.size())));
  bool largest = c.attributes().integer("largest", 1) != 0;
  Reducer reducer = largest ? Reducer::max : Reducer::min;
  Shape outer = in.shape;
  outer.erase(outer.begin() + static_cast<std::ptrdiff_t>(axis));
  Shape history = outer;
  history.insert(history.begin(), out.shape[axis] + 1);
  Buffer best = c.builder.new_buffer("best", in.element, history);
  const ElementType index = position_type(in.shape[axis]);
  const int64_t beyond = position_beyond(index);
  Buffer position = c.builder.new_buffer("position", index, history);
  std::vector<tensor::FuncBuilder::AxisSpec> axes;
  for (size_t k = 0; k < outer.size(); ++k)
    axes.push_back({text("i", k), outer[k], AxisKind::spatial});

  auto entry = [](const Expr& t, Axes i) {
    std::vector<Expr> at = to_vector(i);
    at.insert(at.begin(), t);
    return at;
  };
  auto element = [&](Axes i, const Expr& r) {
    std::vector<Expr> at = to_vector(i);
    at.insert(at.begin() + static_cast<std::ptrdiff_t>(axis), r);
    return c.at(0, at);
  };
  Expr worst = tensor::identity(reducer, in.element);
  Expr limit = tensor::identity(largest ? Reducer::min : Reducer::max, in.element);
  c.builder.block("before_values", axes, [&](Axes i) { return Store::make(best, entry(0, i), limit); });
  c.builder.block("before_positions", axes,
                  [&](Axes i) { return Store::make(position, entry(0, i), cast(index, -1)); });
  c.builder.serial_loop("t", out.shape[axis], [&](const Expr& t) {
    auto follows = [&](Axes i, const Expr& x, const Expr& r) {
      Expr last = load(best, entry(t, i));
      return (largest ? x < last : x > last) || (x == last && cast(index, r) > load(position, entry(t, i)));
    };
    Buffer value =
        c.builder.reduce("extreme", in.element, outer, {in.shape[axis]}, reducer, [&](Axes i, Axes r) {
          Expr x = element(i, r[0]);
          return select(follows(i, x, r[0]), x, worst);
        });
    Buffer first =
        c.builder.reduce("first", index, outer, {in.shape[axis]}, Reducer::min, [&](Axes i, Axes r) {
          Expr x = element(i, r[0]);
          Expr found = follows(i, x, r[0]) && x == load(value, to_vector(i));
          return select(found, cast(index, r[0]), cast(index, beyond));
        });
    c.builder.block("keep_value", axes,
                    [&](Axes i) { return Store::make(best, entry(t + 1, i), load(value, to_vector(i))); });
    c.builder.block("keep_position", axes, [&](Axes i) {
      // Only where the values have no order (NaN) none is left: any position, but not one beyond the elements.
      return Store::make(position, entry(t + 1, i),
                         tensor::min(load(first, to_vector(i)), cast(index, in.shape[axis] - 1)));
    });
  });
  auto result = [&](const std::string& name, const Buffer& from, ElementType type) {
    return c.builder.compute(name, type, out.shape, [&](Axes i) {
      std::vector<Expr> at = to_vector(i);
      at.erase(at.begin() + static_cast<std::ptrdiff_t>(axis));
      return cast(type, load(from, entry(i[axis] + 1, at)));
    });
  };
  if (c.has_output(0)) c.set_output(0, result("values", best, in.element));
  if (c.has_output(1)) c.set_output(1, result("indices", position, ElementType::i64));
}

OpDef top_k_op() {
  OpDef op = onnx_op("TopK", FusionClass::opaque, 1, infer_top_k, compute_top_k);
  op.constant_inputs = 0b10;
  return op;
}

}  // namespace

std::span<const OpDef> top_k_ops() {
  static const OpDef ops[] = {top_k_op()};
  return ops;
}

}  // namespace mcc::graph
