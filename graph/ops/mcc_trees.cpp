// mcc.Trees: decision trees, as the frontend writes them for ai.onnx.ml's tree ensembles (frontend/ml/trees.cpp).
//
// Every inner node asks whether a number of the row is at most a threshold. Nodes of all trees are numbered together; children are a
// table of two entries a node, of which a leaf's name the leaf itself. So trees take the same number of steps for each row, none of
// which depends on what the others find, and vectors and threads walk side by side; trees stand in parts, the shallow ones apart from
// the deep. Where a value is missing (NaN) the answer is no, or yes at the nodes that say so.
#include "graph/ops/common.h"

namespace mcc::graph {
namespace {

using tensor::AxisKind;
using tensor::Store;

// Positions of the inputs: rows [n, features], and tables. Results are [n, groups, width]: the trees of a group add up, or the
// smallest or largest is taken, to one result for each number of a leaf's row of weights.
constexpr int kX = 0;
constexpr int kRoots = 1;       // [groups, trees of each]: nodes
constexpr int kFeatures = 2;    // [nodes]: 2 * feature + (1 where a missing value means yes)
constexpr int kThresholds = 3;  // [nodes]
constexpr int kChildren = 4;    // [2 * nodes]: for yes, for no
constexpr int kRows = 5;        // [nodes]: of the weights, for leaves
constexpr int kWeights = 6;     // [rows, width]

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

// A table of positions below a bound, known at compile time: what is read through it lies inside of its tensor.
bool check_table(InferContext& c, int i, int rank, int64_t bound) {
  const Constant* table = c.constant(i);
  if (!table) {
    c.unsupported(text("input ", i, ": a table that is not known at compile time"));
    return false;
  }
  if (!expect(c, table->element() == ElementType::i32, "input ", i, ": expected i32, got ",
              to_text(table->element())) ||
      !expect_rank(c, i, rank)) {
    return false;
  }
  for (int64_t k = 0, n = table->count(); k < n; ++k) {
    const int64_t v = table->int_at(k);
    if (!expect(c, v >= 0 && v < bound, "input ", i, ": ", v, " is none of ", bound)) return false;
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
  if (!expect(c, c.num_inputs() == 7, "expected 7 inputs, got ", c.num_inputs()) ||
      !expect_type(c, kX, TypeSet::floating) || !expect_rank(c, kX, 2) ||
      !expect_same_type(c, kX, kThresholds) || !expect_rank(c, kThresholds, 1) ||
      !expect_type(c, kWeights, TypeSet::floating) || !expect_rank(c, kWeights, 2)) {
    return;
  }
  const auto features = need_static_dim(c, c.input(kX).shape[1], "the number of features");
  const auto nodes = need_static_dim(c, c.input(kThresholds).shape[0], "the number of nodes");
  const auto rows = need_static_dim(c, c.input(kWeights).shape[0], "the number of rows of weights");
  if (!features || !nodes || !rows || !check_table(c, kRoots, 2, *nodes) ||
      !check_table(c, kFeatures, 1, 2 * *features) || !check_table(c, kChildren, 1, *nodes) ||
      !check_table(c, kRows, 1, *rows)) {
    return;
  }
  if (!expect_same_dim(c, *nodes, c.input(kFeatures).shape[0], "number of features of nodes") ||
      !expect_same_dim(c, 2 * *nodes, c.input(kChildren).shape[0], "number of children") ||
      !expect_same_dim(c, *nodes, c.input(kRows).shape[0], "number of rows of nodes") || !check_parts(c) ||
      !expect(c, reducer_of(c.attributes()).has_value(), "reduce: expected sum, min or max, got ",
              c.attributes().text("reduce", "sum"))) {
    return;
  }
  c.set_output(0, {c.input(kWeights).element,
                   {c.input(kX).shape[0], c.input(kRoots).shape[0], c.input(kWeights).shape[1]}});
}

void compute_trees(ComputeContext& c) {
  const TensorType& out = c.output_type(0);
  const Shape& roots = c.input_type(kRoots).shape;
  const Expr& n = c.input_type(kX).shape[0];
  // Vectors of rows in one tree read nodes close to one another. Of few rows they are of trees.
  constexpr int64_t kManyRows = 16;
  const bool are_rows_last = static_dim(n).value_or(0) >= kManyRows;
  auto ordered = [&](const Expr& row, const Expr& group, const Expr& tree) {
    return are_rows_last ? std::vector<Expr>{group, tree, row} : std::vector<Expr>{row, group, tree};
  };
  Buffer node = c.builder.new_buffer("node", ElementType::i32, ordered(n, roots[0], roots[1]));
  auto wide = [](const Expr& index) { return cast(ElementType::i64, index); };
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
      const Expr one = tensor::constant_int(here.type(), 1);
      const Expr feature = c.at(kFeatures, {wide(here)});
      const Expr x = c.at(kX, {row_of(i), wide(binary(BinaryOp::shr, feature, one))});
      const Expr is_yes =
          x <= c.at(kThresholds, {wide(here)}) || (x != x && binary(BinaryOp::bit_and, feature, one) == one);
      const Expr child = here + here + select(is_yes, tensor::constant_int(here.type(), 0), one);
      return Store::make(node, place(i), c.at(kChildren, {wide(child)}));
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
        return widen(
            c.at(kWeights, {wide(c.at(kRows, {wide(load(node, ordered(i[0], i[1], r[0])))})), i[2]}));
      });
  c.set_output(0, cast_buffer(c, total, out.element));
}

}  // namespace

std::span<const OpDef> mcc_trees_ops() {
  static const OpDef ops[] = {own_op("Trees", FusionClass::opaque, 7, infer_trees, compute_trees)};
  return ops;
}

}  // namespace mcc::graph
