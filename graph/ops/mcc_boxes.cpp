// mcc.SelectBoxes: the boxes that NonMaxSuppression keeps, as many rows as there may be, and how many of them there are.
//
// Of each class the boxes whose score is above the threshold, which are few as a rule, come into a tournament. The best one is taken out,
// and kept if none that is kept already covers it. Boxes that nobody asks for are thus neither sorted nor compared.
#include "graph/ops/mcc_boxes.h"

#include "graph/ops/find_set.h"
#include "graph/ops/tournament.h"
#include "tensor/simplify.h"

namespace mcc::graph {
namespace {

constexpr int64_t kArea = 4;  // behind the corners

}  // namespace

std::vector<Expr> with(Axes at, std::initializer_list<Expr> inner) {
  std::vector<Expr> out = to_vector(at);
  out.insert(out.end(), inner);
  return out;
}

tensor::Var variable(const ComputeContext& c, const char* name) {
  return tensor::Var(c.builder.unique_name(name));
}

Expr scalar_input(const ComputeContext& c, int i) {
  return c.at(i, std::vector<Expr>(c.input_type(i).shape.size(), 0));
}

Expr most_of_class(const Constant* asked, bool is_asked, const Expr& boxes) {
  if (!is_asked) return 0;
  return asked ? tensor::simplify(tensor::min(Expr(std::max<int64_t>(asked->int_at(0), 0)), boxes)) : boxes;
}

Expr most_in_run(const ComputeContext& c, const Expr& most) {
  return c.constant(kMost) ? most : tensor::min(cast(ElementType::i64, scalar_input(c, kMost)), most);
}

Expr is_above(const ComputeContext& c, Axes at, const Expr& box) {
  return c.has_input(kScore) ? c.at(kScores, with(at, {box})) > scalar_input(c, kScore)
                             : tensor::true_value();
}

Buffer find_corners(ComputeContext& c) {
  const Shape& boxes = c.input_type(kBoxes).shape;
  const bool is_center = c.attributes().integer("center_point_box", 0) != 0;
  Buffer corners = c.builder.compute("corners", ElementType::f32, {boxes[0], boxes[1], 4}, [&](Axes i) {
    const Expr side = floor_mod(i[2], 2), is_low = i[2] < 2;
    const Expr first = c.at(kBoxes, {i[0], i[1], side}), second = c.at(kBoxes, {i[0], i[1], side + 2});
    // The center is given as x and y; which of them comes first makes no difference.
    const Expr half = second * number_like(second, 0.5);
    return is_center ? select(is_low, first - half, first + half)
                     : select(is_low, tensor::min(first, second), tensor::max(first, second));
  });
  return c.builder.compute("corners_and_areas", ElementType::f32, {boxes[0], boxes[1], kArea + 1},
                           [&](Axes i) {
                             auto corner = [&](const Expr& k) { return load(corners, {i[0], i[1], k}); };
                             const Expr area = (corner(2) - corner(0)) * (corner(3) - corner(1));
                             return select(i[2] == kArea, area, corner(tensor::min(i[2], kArea - 1)));
                           });
}

Overlap overlap(const ComputeContext& c, const Buffer& corners, const Expr& batch, const Expr& a,
                const Expr& b) {
  auto number = [&](const Expr& box, int64_t i) { return load(corners, {batch, box, i}); };
  auto side = [&](int64_t i) {
    return tensor::min(number(a, i + 2), number(b, i + 2)) - tensor::max(number(a, i), number(b, i));
  };
  const Expr common = side(0) * side(1), first = number(a, kArea), second = number(b, kArea),
             all = first + second - common;
  const Expr zero = number_like(common, 0), limit = c.has_input(kOverlap) ? scalar_input(c, kOverlap) : zero;
  return {side(0) > zero, side(1) > zero,
          first > zero && second > zero && all > zero && common / all > limit};
}

namespace {

using tensor::AxisKind;
using tensor::For;
using tensor::If;
using tensor::Seq;
using tensor::Stmt;
using tensor::Store;
using tensor::Var;

// An input of one number, with or without an axis for it.
bool check_number(InferContext& c, int i, TypeSet set) {
  if (!c.has_input(i)) return true;
  if (!expect_type(c, i, set) || !expect_rank(c, i, 0, 1)) return false;
  return c.rank(i) == 0 ||
         expect_same_dim(c, 1, c.input(i).shape[0], text("number of elements of input ", i));
}

void infer_select_boxes(InferContext& c) {
  if (!expect_rank(c, kBoxes, 3) || !expect_rank(c, kScores, 3)) return;
  for (int i : {kBoxes, kScores, kOverlap, kScore}) {
    if (c.has_input(i) && !expect(c, c.input(i).element == ElementType::f32, "input ", i,
                                  ": expected f32, got ", to_text(c.input(i))))
      return;
  }
  const Shape& boxes = c.input(kBoxes).shape;
  const Shape& scores = c.input(kScores).shape;
  const int64_t form = c.attributes().integer("center_point_box", 0);
  if (!expect(c, form == 0 || form == 1, "center_point_box: expected 0 or 1, got ", form) ||
      !check_number(c, kMost, TypeSet::index) || !check_number(c, kOverlap, TypeSet::floating) ||
      !check_number(c, kScore, TypeSet::floating) || !expect_same_dim(c, 4, boxes[2], "numbers of a box") ||
      !expect_same_dim(c, boxes[0], scores[0], "number of batches") ||
      !expect_same_dim(c, boxes[1], scores[2], "number of boxes")) {
    return;
  }
  const Expr most = most_of_class(c.constant(kMost), c.has_input(kMost), boxes[1]);
  c.set_output(0, {ElementType::i64, {tensor::simplify(scores[0] * scores[1] * most), 3}});
  c.set_output(1, {ElementType::i64, {}});
}

// What stands in memory while boxes are selected; but for `corners` with a part for each class of each batch, whose place is `at`.
struct Selection {
  ComputeContext& c;
  Expr boxes, most;
  Buffer corners =
      {};  // of all boxes: y and x of the corner with the smaller ones, of the other one, and the area
  Buffer number = {};  // of each that is above the threshold, in order: its place among the boxes
  Buffer tree = {};    // the tournament of them
  Buffer count = {};   // how many they are
  Buffer covered = {};  // whether a box that is kept covers the one in question
  Buffer kept = {};     // places among the boxes
  Buffer num_kept = {};
};

// The leaves: first behind room for the nodes, of which there are as many as turn out to be above the threshold.
Stmt collect(const Selection& s, Axes at) {
  const Var k = variable(s.c, "collect.k"), j = variable(s.c, "collect.j");
  const Expr n = load(s.count, to_vector(at));
  const Expr score = s.c.at(kScores, with(at, {k}));
  const Stmt take = Seq::make({
      Store::make(s.number, with(at, {n}), cast(s.number.element(), k)),
      Store::make(s.tree, with(at, {s.boxes + n}), element_key(score, n, true)),
      Store::make(s.count, to_vector(at), n + 1),
  });
  return Seq::make({
      Store::make(s.count, to_vector(at), 0),
      For::make(k, 0, s.boxes, tensor::LoopKind::serial,
                s.c.has_input(kScore) ? If::make(is_above(s.c, at, k), take) : take),
      For::make(j, 0, n, tensor::LoopKind::serial,
                Store::make(s.tree, with(at, {n + j}), load(s.tree, with(at, {s.boxes + j})))),
  });
}

Tournament tournament_of(const Selection& s, Axes at) {
  return {s.c, s.tree, to_vector(at), load(s.count, to_vector(at)), s.boxes};
}

Stmt compare(const Selection& s, Axes at, const Expr& a, const Expr& b) {
  const Overlap o = overlap(s.c, s.corners, at[0], a, b);
  const Expr is_met = logical_not(load(s.covered, to_vector(at))) && o.meet_along_y && o.meet_along_x;
  return If::make(is_met, Store::make(s.covered, to_vector(at), o.covers));
}

Stmt keep(const Selection& s, Axes at, const Expr& k) {
  const Expr n = load(s.num_kept, to_vector(at));
  return Seq::make({Store::make(s.kept, with(at, {n}), k), Store::make(s.num_kept, to_vector(at), n + 1)});
}

// The best ones of a class that no better one covers.
Stmt select_class(const Selection& s, Axes at) {
  const Var turn = variable(s.c, "select.turn"), t = variable(s.c, "select.t");
  const Tournament tournament = tournament_of(s, at);
  const Expr n = load(s.count, to_vector(at)), num_kept = load(s.num_kept, to_vector(at)),
             covered = load(s.covered, to_vector(at));
  const Expr most = most_in_run(s.c, s.most);
  const Var position = variable(s.c, "select.position"), k = variable(s.c, "select.box");
  const Stmt step = Seq::make({
      tournament.set(n + position, no_key()),
      tournament.play_again(n + position),
      Store::make(s.covered, to_vector(at), tensor::false_value()),
      For::make(t, 0, num_kept, tensor::LoopKind::serial, compare(s, at, k, load(s.kept, with(at, {t})))),
      If::make(logical_not(covered), keep(s, at, k)),
  });
  const Expr place = cast(ElementType::i64, load(s.number, with(at, {position})));
  return Seq::make({
      Store::make(s.num_kept, to_vector(at), 0),
      For::make(turn, 0, n, tensor::LoopKind::serial,
                If::make(num_kept < most, tensor::Let::make(position, position_of_key(tournament.winner()),
                                                            tensor::Let::make(k, place, step)))),
  });
}

// How many boxes of the classes before each one are kept, and behind the last of all of them.
Buffer add_up(ComputeContext& c, const Buffer& num_kept) {
  const Shape& classes = num_kept.shape();
  Buffer begin = c.builder.new_buffer("begin", ElementType::i64, {product(classes) + 1});
  c.builder.block("first", {}, [&](Axes) { return Store::make(begin, {Expr(0)}, 0); });
  c.builder.block("begin", {{"b", classes[0], AxisKind::scan}, {"c", classes[1], AxisKind::scan}},
                  [&](Axes i) {
                    const Expr k = linear_index(classes, to_vector(i));
                    return Store::make(begin, {k + 1}, load(begin, {k}) + load(num_kept, to_vector(i)));
                  });
  return begin;
}

void compute_select_boxes(ComputeContext& c) {
  if (is_in_parts(c) && !tensor::is_int(c.output_type(0).shape[0], 0)) return select_boxes_in_parts(c);
  const TensorType& out = c.output_type(0);
  const Shape& scores = c.input_type(kScores).shape;
  const Expr most = most_of_class(c.constant(kMost), c.has_input(kMost), scores[2]);
  Buffer selected = c.builder.compute("selected", out.element, out.shape, [](Axes) { return Expr(0); });
  c.set_output(0, selected);
  if (tensor::is_int(out.shape[0], 0)) {
    c.set_output(1, c.builder.compute("count", ElementType::i64, {}, [](Axes) { return Expr(0); }));
    return;
  }
  auto buffer = [&](const char* name, ElementType element, std::initializer_list<Expr> inner) {
    return c.builder.new_buffer(name, element, with(std::span(scores).first(2), inner));
  };
  Selection s{c, scores[2], most};
  s.corners = find_corners(c);
  s.number = buffer("number", position_type(scores[2]), {scores[2]});
  s.tree = buffer("tree", ElementType::i64, {scores[2] * 2});
  s.count = buffer("above", ElementType::i64, {});
  s.covered = buffer("covered", ElementType::boolean, {});
  s.kept = buffer("kept", ElementType::i64, {most});
  s.num_kept = buffer("num_kept", ElementType::i64, {});
  c.builder.block("collect", {{"b", scores[0]}, {"c", scores[1]}},
                  [&](Axes at) { return Seq::make({collect(s, at), tournament_of(s, at).play()}); });
  c.builder.block("select", {{"b", scores[0]}, {"c", scores[1]}},
                  [&](Axes at) { return select_class(s, at); });
  Buffer begin = add_up(c, s.num_kept);
  c.builder.block("rows", {{"b", scores[0], AxisKind::scan}, {"c", scores[1], AxisKind::scan}}, [&](Axes at) {
    const Var t = variable(c, "rows.t");
    const Expr n = load(s.num_kept, to_vector(at)), row = load(begin, {at[0] * scores[1] + at[1]}) + t;
    return For::make(
        t, 0, n, tensor::LoopKind::serial,
        Seq::make({Store::make(selected, {row, 0}, at[0]), Store::make(selected, {row, 1}, at[1]),
                   Store::make(selected, {row, 2}, load(s.kept, with(at, {t})))}));
  });
  c.set_output(1, c.builder.compute("count", ElementType::i64, {},
                                    [&](Axes) { return load(begin, {scores[0] * scores[1]}); }));
}

}  // namespace

std::span<const OpDef> mcc_boxes_ops() {
  static const OpDef op = [] {
    OpDef select = own_op("SelectBoxes", FusionClass::opaque, 2, infer_select_boxes, compute_select_boxes);
    select.scalar_inputs = 0b11100;
    return select;
  }();
  return {&op, 1};
}

}  // namespace mcc::graph
