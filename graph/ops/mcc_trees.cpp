// mcc.Trees: decision trees, as the frontend writes them for ai.onnx.ml's tree ensembles (frontend/ml/trees.cpp).
//
// Every inner node asks whether a number of the row is at most a threshold. Nodes of all trees stand in one table, each with all that a
// step reads of it in one line of a cache, the two nodes below it side by side. A leaf asks what is always answered yes, and is below
// itself: so trees take the same number of steps for each row, none of which depends on what the others find, and vectors and threads
// walk side by side; trees stand in parts, the shallow ones apart from the deep. Where a value is missing (NaN) the answer is no, or yes
// at the nodes that say so.
#include "graph/ops/common.h"
#include "graph/ops/tree_words.h"

namespace mcc::graph {
namespace {

using tensor::AxisKind;
using tensor::Store;

// Positions of the inputs: rows [n, features], and tables. Results are [n, groups, width]: the trees of a group add up, or the
// smallest or largest is taken, to one result for each number of a leaf's row of weights.
constexpr int kX = 0;
constexpr int kRoots = 1;       // [groups, trees of each]: places in the table of nodes
constexpr int kNodes = 2;       // [words]: four of each node
constexpr int kWeights = 3;     // [rows, width]
constexpr int kThresholds = 4;  // [nodes], where x is f64

// The trees of each group in parts, in order: how many there are, and the steps that the deepest one of all groups takes.
std::vector<int64_t> counts_of(const Attributes& a) { return a.integers("counts"); }
std::vector<int64_t> depths_of(const Attributes& a) { return a.integers("depths"); }

std::optional<Reducer> reducer_of(const Attributes& a) {
  const std::string name = a.text("reduce", "sum");
  if (name == "sum") return Reducer::sum;
  if (name == "min") return Reducer::min;
  if (name == "max") return Reducer::max;
  return std::nullopt;
}

// A table of words that are known at compile time, as what is read by way of it has to lie inside of its tensor.
const Constant* table_of(InferContext& c, int i, int rank) {
  const Constant* table = c.constant(i);
  if (!table) {
    c.unsupported(text("input ", i, ": a table that is not known at compile time"));
    return nullptr;
  }
  const bool is_of_words = expect(c, table->element() == ElementType::i32, "input ", i,
                                  ": expected i32, got ", to_text(table->element()));
  return is_of_words && expect_rank(c, i, rank) ? table : nullptr;
}

bool check_tables(InferContext& c, int64_t features, int64_t rows) {
  const Constant* roots = table_of(c, kRoots, 2);
  const Constant* nodes = roots ? table_of(c, kNodes, 1) : nullptr;
  if (!nodes) return false;
  const int64_t words = nodes->count();
  if (!expect(c, words % kWords == 0, "input ", kNodes, ": ", words, " words are no nodes of ", kWords))
    return false;
  const auto check = [&](int input, const char* what, int64_t value, int64_t unit, int64_t end) {
    return expect(c, value >= 0 && value % unit == 0 && value + unit <= end, "input ", input, ": ", what, " ",
                  value, " is none below ", end);
  };
  for (int64_t k = 0, n = roots->count(); k < n; ++k) {
    if (!check(kRoots, "place", roots->int_at(k), kWords, words)) return false;
  }
  for (int64_t at = 0; at < words; at += kWords) {
    // One more node follows that for yes: that for no.
    if (!check(kNodes, "feature", nodes->int_at(at + kFeature), 1, 2 * features) ||
        !check(kNodes, "place", nodes->int_at(at + kYes), kWords, words - kWords) ||
        !check(kNodes, "row", nodes->int_at(at + kRow), 1, rows))
      return false;
  }
  return true;
}

bool check_parts(InferContext& c) {
  const std::vector<int64_t> counts = counts_of(c.attributes()), depths = depths_of(c.attributes());
  if (!expect(c, counts.size() == depths.size(), "expected as many depths as counts, got ", depths.size(),
              " and ", counts.size()))
    return false;
  int64_t trees = 0;
  for (size_t k = 0; k < counts.size(); ++k) {
    if (!expect(c, counts[k] >= 0 && depths[k] >= 0, "a part of ", counts[k], " trees of depth ", depths[k]))
      return false;
    trees += counts[k];
  }
  return expect_same_dim(c, trees, c.input(kRoots).shape[1], "number of trees");
}

void infer_trees(InferContext& c) {
  const bool is_wide = c.num_inputs() > kX && c.input(kX).element == ElementType::f64;
  const int inputs = is_wide ? kThresholds + 1 : kThresholds;
  if (!expect(c, c.num_inputs() == inputs, "expected ", inputs, " inputs, got ", c.num_inputs()) ||
      !expect(c, is_wide || c.input(kX).element == ElementType::f32, "input ", kX,
              ": expected f32 or f64, got ", to_text(c.input(kX).element)) ||
      !expect_rank(c, kX, 2) || !expect_type(c, kWeights, TypeSet::floating) ||
      !expect_rank(c, kWeights, 2) ||
      (is_wide && (!expect_same_type(c, kX, kThresholds) || !expect_rank(c, kThresholds, 1)))) {
    return;
  }
  const auto features = need_static_dim(c, c.input(kX).shape[1], "the number of features");
  const auto rows = need_static_dim(c, c.input(kWeights).shape[0], "the number of rows of weights");
  if (!features || !rows || !check_tables(c, *features, *rows) || !check_parts(c) ||
      !expect(c, reducer_of(c.attributes()).has_value(), "reduce: expected sum, min or max, got ",
              c.attributes().text("reduce", "sum"))) {
    return;
  }
  if (is_wide && !expect_same_dim(c, c.constant(kNodes)->count() / kWords, c.input(kThresholds).shape[0],
                                  "number of nodes"))
    return;
  c.set_output(0, {c.input(kWeights).element,
                   {c.input(kX).shape[0], c.input(kRoots).shape[0], c.input(kWeights).shape[1]}});
}

void compute_trees(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const Shape& roots = c.input_type(kRoots).shape;
  const Expr& n = c.input_type(kX).shape[0];
  // Vectors of rows in one tree read nodes close to one another. Of few rows they are of trees.
  constexpr int64_t kManyRows = 8;
  const bool are_rows_last = static_dim(n).value_or(0) >= kManyRows;
  auto ordered = [&](const Expr& row, const Expr& group, const Expr& tree) {
    return are_rows_last ? std::vector<Expr>{group, tree, row} : std::vector<Expr>{row, group, tree};
  };
  const ElementType number = c.input_type(kX).element;
  Buffer node = c.builder.new_buffer("node", ElementType::i32, ordered(n, roots[0], roots[1]));
  auto wide = [](const Expr& index) { return cast(ElementType::i64, index); };
  auto constant = [&](int64_t value) { return tensor::constant_int({ElementType::i32, 1}, value); };
  auto word = [&](const Expr& place, int k) { return c.at(kNodes, {wide(place) + k}); };
  auto threshold = [&](const Expr& place) {
    if (number == ElementType::f64)
      return c.at(kThresholds, {wide(binary(BinaryOp::shr, place, constant(kWordBits)))});
    return tensor::Call::make({number, 1}, tensor::Intrinsic::bit_cast, {word(place, kThreshold)});
  };
  const std::vector<int64_t> counts = counts_of(c.attributes()), depths = depths_of(c.attributes());
  int64_t first = 0;
  for (size_t part = 0; part < counts.size(); first += counts[part++]) {
    using Spec = tensor::FuncBuilder::AxisSpec;
    const Spec row{"n", n}, group{"g", roots[0]}, tree{"t", counts[part]},
        steps{"step", depths[part], AxisKind::reduce};
    auto row_of = [&](Axes i) { return are_rows_last ? i[2] : i[0]; };
    auto group_of = [&](Axes i) { return are_rows_last ? i[0] : i[1]; };
    auto tree_of = [&](Axes i) { return (are_rows_last ? i[1] : i[2]) + first; };
    auto place = [&](Axes i) { return ordered(row_of(i), group_of(i), tree_of(i)); };
    // Steps are all the same, so their order is any.
    auto step = [&](Axes i) {
      const Expr here = load(node, place(i));
      const Expr feature = word(here, kFeature);
      const Expr x = c.at(kX, {row_of(i), wide(binary(BinaryOp::shr, feature, constant(1)))});
      const Expr is_yes =
          x <= threshold(here) || (x != x && binary(BinaryOp::bit_and, feature, constant(1)) == constant(1));
      return Store::make(node, place(i), word(here, kYes) + select(is_yes, constant(0), constant(kWords)));
    };
    c.builder.block(
        "walk",
        are_rows_last ? std::vector<Spec>{group, tree, row, steps}
                      : std::vector<Spec>{row, group, tree, steps},
        step, [&](Axes i) { return Store::make(node, place(i), c.at(kRoots, {group_of(i), tree_of(i)})); });
  }
  const ElementType sum = wide_type(out.element);
  Buffer total =
      c.builder.reduce("score", sum, out.shape, {roots[1]}, *reducer_of(c.attributes()), [&](Axes i, Axes r) {
        return widen(c.at(kWeights, {wide(word(load(node, ordered(i[0], i[1], r[0])), kRow)), i[2]}));
      });
  c.set_output(0, cast_buffer(c, total, out.element));
}

}  // namespace

std::span<const OpDef> mcc_trees_ops() {
  static const OpDef ops[] = {own_op("Trees", FusionClass::opaque, 4, infer_trees, compute_trees)};
  return ops;
}

}  // namespace mcc::graph
