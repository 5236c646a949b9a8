// mcc.SelectBoxes in parts, for GPUs: a block of threads for each class of each batch, whose classes do not wait for each other.
//
// The boxes above the threshold are found (find_set.h) and put in the order of their scores, each by the number of those before it. Then they
// are looked at in chunks of kChunk, best first. Within a chunk all pairs are compared at once, as a bit of a word for each box; one thread
// goes through the chunk with these words and keeps what nothing covers that is kept. What comes behind the chunk is compared, each box by a
// thread, with what the chunk has added. So only as many steps wait for each other as there are chunks, and boxes that are covered early
// are compared with few others.
#include "graph/ops/find_set.h"
#include "graph/ops/mcc_boxes.h"
#include "graph/ops/tournament.h"
#include "tensor/simplify.h"

namespace mcc::graph {
namespace {

using tensor::For;
using tensor::If;
using tensor::LoopKind;
using tensor::Seq;
using tensor::Stmt;
using tensor::Store;
using tensor::Var;

constexpr int64_t kChunk = 32;  // bits of a word

Expr word(const Expr& e) { return cast(ElementType::i32, e); }
Expr bit(const Expr& i) { return binary(BinaryOp::shl, word(1), word(i)); }
Expr wide(const Expr& e) { return cast(ElementType::i64, e); }

// What stands in memory, with a part for each class of each batch.
struct Sweep {
  ComputeContext& c;
  Shape classes;  // [batches, classes]
  Expr boxes, most;
  Buffer corners = {};
  Buffer count = {};    // [.., 1]: boxes above the threshold
  Buffer order = {};    // of these, best first: their places among the boxes
  Buffer covered = {};  // of those in order, whether one that is kept covers it
  Buffer kept = {}, num_kept = {};
  Buffer added = {};  // how many were kept before the chunk
  Buffer words =
      {};  // of each box of a chunk: a bit for each box before it that has too much in common with it

  Buffer buffer(const char* name, ElementType element, std::initializer_list<Expr> inner) const {
    return c.builder.new_buffer(name, element, with(classes, inner));
  }
  std::vector<tensor::FuncBuilder::AxisSpec> axes(std::initializer_list<Expr> inner) const {
    std::vector<tensor::FuncBuilder::AxisSpec> out = {{"b", classes[0]}, {"c", classes[1]}};
    for (const Expr& extent : inner)
      out.push_back({text("i", out.size() - 2), extent});
    return out;
  }
  Expr above(Axes at) const { return wide(load(count, with(at.first(2), {Expr(0)}))); }
  Expr box(Axes at, const Expr& place) const { return wide(load(order, with(at.first(2), {place}))); }
  Expr kept_box(Axes at, const Expr& t) const { return wide(load(kept, with(at.first(2), {t}))); }
  Expr kept_so_far(Axes at) const { return load(num_kept, to_vector(at.first(2))); }
};

// The places of the boxes above the threshold, by their scores.
void put_in_order(Sweep& s) {
  const Buffer keys = s.buffer("key", ElementType::i64, {s.boxes});
  s.count =
      visit_set(s.c, "above",
                {s.classes, s.boxes, [&](Axes at, const Expr& k) { return is_above(s.c, at, k); },
                 [&](Axes at, const Expr& k, const Expr& before, const Expr&) {
                   return Store::make(keys, with(at, {before}), element_key(s.c.at(kScores, with(at, {k})), k, true));
                 }});
  s.order = s.buffer("order", position_type(s.boxes), {s.boxes});
  const Buffer rank = s.buffer("rank", ElementType::i64, {s.boxes});
  s.c.builder.block("order", s.axes({s.boxes}), [&](Axes at) {
    const Var j = variable(s.c, "order.j");
    const Expr key = load(keys, to_vector(at)), better = load(rank, to_vector(at));
    const Stmt count = For::make(
        j, 0, s.above(at), LoopKind::serial,
        If::make(load(keys, with(at.first(2), {j})) > key, Store::make(rank, to_vector(at), better + 1)));
    const Stmt put =
        Store::make(s.order, with(at.first(2), {better}), cast(s.order.element(), position_of_key(key)));
    return If::make(at[2] < s.above(at), Seq::make({Store::make(rank, to_vector(at), 0), count, put}));
  });
}

// The words of a chunk.
void compare_chunk(Sweep& s, const Expr& chunk) {
  const Buffer pairs = s.buffer("pairs", ElementType::boolean, {kChunk, kChunk});
  s.c.builder.block("pairs", s.axes({kChunk, kChunk}), [&](Axes at) {
    const Expr i = chunk * kChunk + at[2], j = chunk * kChunk + at[3];
    const Overlap o = overlap(s.c, s.corners, at[0], s.box(at, i), s.box(at, j));
    return Seq::make(
        {Store::make(pairs, to_vector(at), tensor::false_value()),
         If::make(at[3] < at[2] && i < s.above(at),
                  If::make(o.meet_along_y && o.meet_along_x, Store::make(pairs, to_vector(at), o.covers)))});
  });
  s.words = s.c.builder.reduce(
      "words", ElementType::i32, with(s.classes, {kChunk}), {kChunk}, Reducer::sum,
      [&](Axes at, Axes r) { return select(load(pairs, with(at, {r[0]})), bit(r[0]), word(0)); });
}

// Keeps what comes first, and all that nothing covers.
void keep_of_chunk(Sweep& s, const Expr& chunk) {
  const Buffer mine = s.buffer("mine", ElementType::i32, {});
  s.c.builder.block("keep", s.axes({}), [&](Axes at) {
    const Var i = variable(s.c, "keep.i");
    const Expr place = chunk * kChunk + i, n = s.kept_so_far(at), bits = load(mine, to_vector(at));
    const Expr is_free = logical_not(load(s.covered, with(at, {place}))) &&
                         binary(BinaryOp::bit_and, load(s.words, with(at, {i})), bits) == word(0);
    const Stmt keep = Seq::make({
        Store::make(s.kept, with(at, {wide(n)}), load(s.order, with(at, {place}))),
        Store::make(s.num_kept, to_vector(at), n + word(1)),
        Store::make(mine, to_vector(at), binary(BinaryOp::bit_or, bits, bit(i))),
    });
    const Expr size = tensor::max(tensor::min(s.above(at) - chunk * kChunk, kChunk), 0);
    return Seq::make({Store::make(s.added, to_vector(at), n), Store::make(mine, to_vector(at), word(0)),
                      For::make(i, 0, size, LoopKind::serial,
                                If::make(wide(n) < most_in_run(s.c, s.most), If::make(is_free, keep)))});
  });
}

// What the chunk has added covers some of those behind it.
void cover_rest(Sweep& s, const Expr& chunk) {
  const Buffer hidden = s.buffer("hidden", ElementType::boolean, {s.boxes});
  s.c.builder.block("cover", s.axes({s.boxes}), [&](Axes at) {
    const Var t = variable(s.c, "cover.t");
    const Expr from = wide(load(s.added, to_vector(at.first(2)))), is_hidden = load(hidden, to_vector(at));
    const Overlap o = overlap(s.c, s.corners, at[0], s.box(at, at[2]), s.kept_box(at, from + t));
    const Stmt compare = If::make(logical_not(is_hidden) && o.meet_along_y && o.meet_along_x,
                                  Store::make(hidden, to_vector(at), o.covers));
    const Stmt all = Seq::make({
        Store::make(hidden, to_vector(at), tensor::false_value()),
        For::make(t, 0, wide(s.kept_so_far(at)) - from, LoopKind::serial, compare),
        If::make(is_hidden, Store::make(s.covered, to_vector(at), tensor::true_value())),
    });
    const Expr is_open = at[2] >= (chunk + 1) * kChunk && at[2] < s.above(at);
    return If::make(is_open, If::make(logical_not(load(s.covered, to_vector(at))), all));
  });
}

// The rows of all classes, one behind the other, and how many there are.
void set_rows(Sweep& s, const Buffer& selected) {
  const Expr none = word(0);
  const Buffer begin =
      s.c.builder.reduce("begin", ElementType::i32, s.classes, s.classes, Reducer::sum, [&](Axes at, Axes r) {
        const Expr is_before = r[0] * s.classes[1] + r[1] < at[0] * s.classes[1] + at[1];
        return select(is_before, load(s.num_kept, to_vector(r)), none);
      });
  s.c.builder.block("rows", s.axes({s.most}), [&](Axes at) {
    const Expr row = wide(load(begin, to_vector(at.first(2)))) + at[2];
    return If::make(at[2] < wide(s.kept_so_far(at)),
                    Seq::make({Store::make(selected, {row, 0}, at[0]), Store::make(selected, {row, 1}, at[1]),
                               Store::make(selected, {row, 2}, s.kept_box(at, at[2]))}));
  });
  const Buffer total = s.c.builder.reduce("total", ElementType::i32, {}, s.classes, Reducer::sum,
                                          [&](Axes, Axes r) { return load(s.num_kept, to_vector(r)); });
  s.c.set_output(
      1, s.c.builder.compute("count", ElementType::i64, {}, [&](Axes) { return wide(load(total, {})); }));
}

}  // namespace

void select_boxes_in_parts(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const Shape& scores = c.input_type(kScores).shape;
  Buffer selected = c.builder.compute("selected", out.element, out.shape, [](Axes) { return Expr(0); });
  c.set_output(0, selected);
  Sweep s{
      c, {scores[0], scores[1]}, scores[2], most_of_class(c.constant(kMost), c.has_input(kMost), scores[2])};
  s.corners = find_corners(c);
  put_in_order(s);
  s.covered =
      c.builder.compute("covered", ElementType::boolean, scores, [](Axes) { return tensor::false_value(); });
  s.num_kept = c.builder.compute("num_kept", ElementType::i32, s.classes, [](Axes) { return word(0); });
  s.kept = s.buffer("kept", s.order.element(), {s.most});
  s.added = s.buffer("added", ElementType::i32, {});
  c.builder.serial_loop("chunk", tensor::simplify(ceil_div(s.boxes, kChunk)), [&](const Expr& chunk) {
    compare_chunk(s, chunk);
    keep_of_chunk(s, chunk);
    cover_rest(s, chunk);
  });
  set_rows(s, selected);
}

}  // namespace mcc::graph
