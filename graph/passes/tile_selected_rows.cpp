// Rows that each have a matrix of their own out of several (mcc.SelectedMatMul), more of them than matrices, are put in order by these:
//
//   y = SelectedMatMul(x [R, 1, K], w, s)
// becomes
//   tiles = SelectedMatMul(rows of x in tiles [T, tile, K], w, the matrix of each tile)
//   y = the rows of the tiles where those of x are
//
// so that a matrix is read for a tile of rows, not for each of them. What is computed of y row by row, up to the next such product with the
// same s (the second layer of experts), stays in tiles. The rows of a matrix begin with a tile of their own; how many tiles there are
// data decides (on GPUs there are as many as there may be). With a number of rows that may be few the graph has both (mcc.Choose).
#include <algorithm>
#include <map>

#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "tensor/simplify.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

constexpr int64_t kFar = int64_t{1} << 40;

// Rows in tiles, by the matrices that they select.
struct Tiles {
  Expr count;
  int64_t rows = 1;           // of each
  ValueId matrix = kNoValue;  // of each tile
  ValueId source = kNoValue;  // the row in each place, [count * rows]
  ValueId place = kNoValue;   // of each row
  // Of values that have a line for each row: the same lines in tiles, [count, rows, elements of a line]; and, where rows may be few, the value
  // as it is made then.
  std::map<ValueId, ValueId> tiled, few;
};

class TileSelectedRows {
 public:
  TileSelectedRows(Graph& g, const tensor::Target& t) : g_(g), t_(t) {}

  void run() {
    const size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n) {
      const auto id = static_cast<NodeId>(n);
      if (is_op(g_.node(id), "SelectedMatMul")) consider(id);
    }
    eliminate_dead_code(g_);
    g_.compact();
  }

 private:
  const Shape& shape(ValueId v) const { return g_.value(v).type.shape; }

  void consider(NodeId id) {
    const Node node = g_.node(id);
    const Shape x = shape(node.inputs[0]);
    int64_t matrices = 0;
    if (!tensor::is_int(x[x.size() - 2], 1) || !tensor::as_int(shape(node.inputs[1])[0], &matrices)) return;
    name_ = node.name;
    rows_ = Expr(int64_t{1});
    for (const Expr& d : shape(node.inputs[2]))
      rows_ = rows_ * d;
    rows_ = tensor::simplify(rows_);
    const tensor::Interval rows = g_.facts().bounds(rows_);
    // Few of them would have a matrix in common.
    const int64_t few = std::max<int64_t>(matrices / 2, 1);
    if (rows.high && *rows.high <= few) return;
    const bool may_be_few = !rows.low || *rows.low <= few;
    Tiles& t = tiles_of(node.inputs[2], matrices);
    const ValueId old = node.outputs[0];
    const ValueId y = multiplied(node, rows_in_tiles(node.inputs[0], node.inputs[2], t), t.matrix);
    const Expr columns = shape(old).back();
    ValueId made = reshape(gather(reshape(y, {t.count * Expr(t.rows), columns}), t.place), shape(old));
    if (may_be_few) {
      const ValueId direct = multiplied(node, where_few(node.inputs[0], t), node.inputs[2]);
      t.few[old] = direct;
      made = emit(g_, "mcc", "Choose", name_,
                  {known_elements(g_, name_ + ".are_few", ElementType::boolean, {rows_ <= Expr(few)}, 0),
                   direct, made});
    }
    take_place(g_, old, made);
    t.tiled[old] = y;
    g_.node(id).dead = true;
  }

  ValueId multiplied(const Node& node, ValueId x, ValueId selector) {
    const ValueId y =
        emit(g_, "mcc", "SelectedMatMul", name_, {x, node.inputs[1], selector}, node.attributes);
    add_origins(g_.node(g_.value(y).producer), node);
    return y;
  }

  // x [.., 1, K] as [tiles, rows, K].
  ValueId rows_in_tiles(ValueId x, ValueId selector, Tiles& t) {
    if (const std::optional<ValueId> same = tiled(x, selector, t)) return *same;
    const std::optional<ValueId> exact = before_rounding(x);
    const Expr depth = shape(x).back();
    const ValueId rows =
        reshape(gather(reshape(exact.value_or(x), {rows_, depth}), t.source), {t.count, Expr(t.rows), depth});
    return exact ? emit(g_, "mcc", "MayRound", name_, {rows}) : rows;
  }

  // ---- What is computed of rows that are in tiles ----

  // The value's lines in tiles, where it is made of such lines, and of what is the same for all of them or selected as the matrices are.
  std::optional<ValueId> tiled(ValueId v, ValueId selector, Tiles& t) {
    if (const auto found = t.tiled.find(v); found != t.tiled.end()) return found->second;
    const NodeId made_by = g_.value(v).producer;
    constexpr int kDeepest = 200;  // nodes between two layers
    if (made_by < 0 || g_.value(v).constant || depth_ >= kDeepest) return std::nullopt;
    const Node node = g_.node(made_by);  // by value: nodes are added
    std::optional<ValueId> out;
    ++depth_;
    if (is_op(node, "Slice") || is_op(node, "Split")) {
      out = tiled_part(node, v, selector, t);
    } else if (node.op->is_view && !is_op(node, "MayRound")) {
      out = tiled(node.inputs[0], selector, t);
    } else if (node.op->fusion == FusionClass::elementwise && node.outputs.size() == 1 &&
               (node.op->axis_use == AxisUse::any || node.op->axis_use == AxisUse::scalars)) {
      out = tiled_elementwise(node, selector, t);
    }
    --depth_;
    if (out) t.tiled[v] = *out;
    return out;
  }

  std::optional<ValueId> tiled_elementwise(const Node& node, ValueId selector, Tiles& t) {
    const std::optional<size_t> line = line_axis(shape(node.outputs[0]));
    if (!line) return std::nullopt;
    std::vector<ValueId> inputs;
    bool has_rows = false;  // else the result would have one line for a tile
    for (ValueId in : node.inputs) {
      std::optional<ValueId> same =
          in == kNoValue ? std::optional(in) : shared_line(in, shape(node.outputs[0]), *line);
      if (!same && same_shape(shape(in), shape(node.outputs[0]))) {
        same = tiled(in, selector, t);
        has_rows |= same.has_value();
      }
      if (!same) same = selected_line(in, selector, t);
      if (!same) return std::nullopt;
      inputs.push_back(*same);
    }
    if (!has_rows) return std::nullopt;
    return emit(g_, std::string(node.op->domain), std::string(node.op->name), name_, inputs, node.attributes);
  }

  // Of a part of each line.
  std::optional<ValueId> tiled_part(const Node& node, ValueId v, ValueId selector, Tiles& t) {
    constexpr int64_t kLine = 2;  // the axis of lines in tiles
    const Shape& whole = shape(node.inputs[0]);
    const std::optional<size_t> line = line_axis(whole);
    if (!line) return std::nullopt;
    auto is_along = [&](int64_t axis) {
      return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(whole.size()) : axis) == *line;
    };
    Attributes a = node.attributes;
    std::vector<ValueId> inputs = node.inputs;
    constexpr size_t kAxes = 3;
    if (is_op(node, "Split")) {
      if (!is_along(a.integer("axis", 0))) return std::nullopt;
      a.set("axis", kLine);
    } else {
      if (inputs.size() <= kAxes || inputs[kAxes] == kNoValue || !g_.value(inputs[kAxes]).constant)
        return std::nullopt;
      const Constant& axes = *g_.value(inputs[kAxes]).constant;
      if (axes.count() != 1 || !is_along(axes.int_at(0))) return std::nullopt;
      inputs[kAxes] = g_.add_constant(name_ + ".axes", Constant::ints({kLine}));
    }
    for (size_t i = 1; i < inputs.size(); ++i)
      if (inputs[i] != kNoValue && !g_.value(inputs[i]).constant) return std::nullopt;
    const std::optional<ValueId> lines = tiled(node.inputs[0], selector, t);
    if (!lines) return std::nullopt;
    inputs[0] = *lines;
    const auto results = static_cast<int>(node.outputs.size());
    const ValueId first = emit(g_, "", std::string(node.op->name), name_, inputs, a, results);
    const Node made = g_.node(g_.value(first).producer);
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] != kNoValue) t.tiled[node.outputs[i]] = made.outputs[i];
    return t.tiled.at(v);
  }

  // Which axis lines run along, where the ones before it count the rows and the others are 1; nothing where it is none.
  std::optional<size_t> line_axis(const Shape& s) const {
    size_t line = s.size();
    while (line > 0 && tensor::is_int(s[line - 1], 1))
      --line;
    if (line == 0) return std::nullopt;
    Expr before(int64_t{1});
    for (size_t i = 0; i + 1 < line; ++i)
      before = before * s[i];
    return tensor::structurally_equal(tensor::simplify(before), rows_) ? std::optional(line - 1)
                                                                       : std::nullopt;
  }

  // A constant of one element, or of a line that is broadcast to all rows.
  std::optional<ValueId> shared_line(ValueId v, const Shape& to, size_t line) {
    if (!g_.value(v).constant) return std::nullopt;
    const Shape s = shape(v);
    for (size_t i = 0; i < s.size(); ++i)
      if (!tensor::is_int(s[i], 1) && i + to.size() - s.size() != line) return std::nullopt;
    if (s.empty() || s.size() > to.size()) return s.empty() ? std::optional(v) : std::nullopt;
    return reshape(v, {Expr(static_count(s))});
  }

  // A line for each row, which is gathered as the matrices are.
  std::optional<ValueId> selected_line(ValueId v, ValueId selector, Tiles& t) {
    constexpr size_t kLines = 2;
    const std::optional<size_t> line = line_axis(shape(v));
    if (!line) return std::nullopt;
    const Expr columns = shape(v)[*line];
    NodeId made_by = g_.value(v).producer;
    while (made_by >= 0 && g_.node(made_by).op->is_view)
      made_by = g_.value(g_.node(made_by).inputs[0]).producer;
    if (made_by < 0 || !is_op(g_.node(made_by), "Gather")) return std::nullopt;
    const Node gathers = g_.node(made_by);
    const bool is_same = gathers.inputs[1] == selector && gathers.attributes.integer("axis", 0) == 0 &&
                         shape(gathers.inputs[0]).size() == kLines;
    if (!is_same) return std::nullopt;
    return reshape(gather(gathers.inputs[0], t.matrix), {t.count, Expr(int64_t{1}), columns});
  }

  // The value as it is made of products of few rows alone.
  ValueId where_few(ValueId v, Tiles& t) {
    if (v == kNoValue) return v;
    if (const auto found = t.few.find(v); found != t.few.end()) return found->second;
    const NodeId made_by = g_.value(v).producer;
    if (made_by < 0 || t.tiled.count(v) == 0) return v;
    const Node node = g_.node(made_by);
    std::vector<ValueId> inputs;
    for (ValueId in : node.inputs)
      inputs.push_back(where_few(in, t));
    if (inputs == node.inputs) return v;
    const ValueId first = emit(g_, std::string(node.op->domain), std::string(node.op->name), name_, inputs,
                               node.attributes, static_cast<int>(node.outputs.size()));
    const Node made = g_.node(g_.value(first).producer);
    for (size_t i = 0; i < node.outputs.size(); ++i)
      if (node.outputs[i] != kNoValue) t.few[node.outputs[i]] = made.outputs[i];
    return t.few.at(v);
  }

  // What is said of the rows (mcc.MayRound) is said of them in tiles.
  std::optional<ValueId> before_rounding(ValueId x) const {
    const NodeId made_by = g_.value(x).producer;
    if (made_by < 0 || !is_op(g_.node(made_by), "MayRound")) return std::nullopt;
    return g_.node(made_by).inputs[0];
  }

  // Those that the layers of the same experts have in common are made once.
  Tiles& tiles_of(ValueId selector, int64_t matrices) {
    const auto [known, is_new] = tiles_.try_emplace({selector, matrices});
    if (is_new) known->second = make_tiles(selector, matrices);
    return known->second;
  }

  // As many as make the most of what is read once for them, without many that are empty. CPUs keep what several tiles of a matrix read.
  int64_t rows_of_tile(int64_t matrices) const {
    constexpr int64_t kFewest = 8, kMost = 32;
    int64_t all = 0;
    if (!tensor::as_int(rows_, &all)) return kFewest;
    if (t_.kind != tensor::TargetKind::cuda) return all >= 4 * kMost * matrices ? kMost : kFewest;
    int64_t rows = kFewest;
    while (rows < kMost && 2 * rows * matrices <= all)
      rows *= 2;
    return rows;
  }

  Tiles make_tiles(ValueId selector, int64_t matrices) {
    Tiles t;
    t.rows = rows_of_tile(matrices);
    const Expr count(matrices);
    const ValueId chosen = in_range(reshape(selector, {rows_}), matrices),
                  column = reshape(chosen, {rows_, Expr(1)});
    const ValueId is_chosen = as_number(binary("Equal", column, counted(count)));
    const ValueId so_far =
        sums_so_far(is_chosen);  // [rows, matrices]: how many rows up to that one a matrix has
    const ValueId needed = binary("Div", binary("Add", sum(is_chosen, 0), number(t.rows - 1)), number(t.rows));
    const ValueId ends = sums_so_far(needed);
    t.count = count_of_tiles(ends, t.rows, matrices);
    const ValueId begins = binary("Mul", binary("Sub", ends, needed), number(t.rows));
    const ValueId among = reshape(gather_elements(so_far, column), {rows_});
    t.place = binary("Add", gather(begins, chosen), binary("Sub", among, number(1)));
    const ValueId is_behind =
        binary("LessOrEqual", reshape(ends, {Expr(1), count}), reshape(counted(t.count), {t.count, Expr(1)}));
    t.matrix = sum(as_number(is_behind), 1);
    t.source = t_.kind == tensor::TargetKind::cuda ? rows_by_place(t, so_far, begins) : rows_by_scattering(t);
    return t;
  }

  // Rows of a tile that nobody has are the first one's, and nobody reads what becomes of them.
  ValueId rows_by_scattering(const Tiles& t) {
    const ValueId empty =
        emit(g_, "", "Expand", name_,
             {number(0), known_elements(g_, name_ + ".shape", ElementType::i64, {t.count * Expr(t.rows)})});
    return emit(g_, "", "ScatterElements", name_, {empty, t.place, counted(rows_)});
  }

  // For threads that do not wait for each other: before the row of a place there are those up to which its matrix has no more rows than
  // places before that one. Of places that nobody has, the last row.
  ValueId rows_by_place(const Tiles& t, ValueId so_far, ValueId begins) {
    const Expr rows(t.rows), one(int64_t{1});
    Attributes a;
    a.set("perm", std::vector<int64_t>{1, 0});
    const ValueId of_matrix = emit(g_, "", "Transpose", name_, {so_far}, a);
    const ValueId lines = reshape(gather(of_matrix, t.matrix), {t.count, one, rows_});
    const ValueId first = reshape(gather(begins, t.matrix), {t.count, one, one});
    const ValueId before = binary("Sub", reshape(counted(t.count * rows), {t.count, rows, one}), first);
    return reshape(sum(as_number(binary("LessOrEqual", lines, before)), 2), {t.count * rows});
  }

  // ends: how many there are of each matrix and those before it.
  Expr count_of_tiles(ValueId ends, int64_t rows_of_tile, int64_t matrices) {
    const std::optional<int64_t> most = g_.facts().bounds(rows_).high;
    const Expr at_most = tensor::floor_div(rows_, Expr(rows_of_tile)) + Expr(matrices);
    const int64_t bound = most ? std::min(*most, *most / rows_of_tile + matrices) : kFar;
    // A GPU's host would have to wait for the number; those behind the last one compute what nobody reads.
    if (t_.kind == tensor::TargetKind::cuda)
      return tensor::simplify(rows_.as<tensor::IntImm>() ? Expr(bound) : at_most);
    return g_.add_data_dim(name_ + ".tiles", {0, bound}, {DimSource::Kind::element, ends, matrices - 1, {}});
  }

  // As Gather takes an index.
  ValueId in_range(ValueId index, int64_t extent) {
    if (g_.value(index).type.element != ElementType::i64) index = as_number(index);
    const ValueId wrapped =
        emit(g_, "", "Where", name_,
             {binary("Less", index, number(0)), binary("Add", index, number(extent)), index});
    return emit(g_, "", "Clip", name_, {wrapped, number(0), number(extent - 1)});
  }

  // ---- Nodes ----

  ValueId number(int64_t value) {
    return g_.add_constant(name_ + ".number",
                           Constant::of(ElementType::i64, {}, std::vector<int64_t>{value}));
  }
  ValueId binary(const char* op, ValueId a, ValueId b) { return emit(g_, "", op, name_, {a, b}); }
  ValueId reshape(ValueId v, Shape to) { return reshaped(g_, name_, v, std::move(to)); }
  ValueId gather(ValueId v, ValueId index) { return binary("Gather", v, index); }
  ValueId gather_elements(ValueId v, ValueId index) {
    Attributes a;
    a.set("axis", int64_t{1});
    return emit(g_, "", "GatherElements", name_, {v, index}, a);
  }
  ValueId sums_so_far(ValueId v) { return emit(g_, "", "CumSum", name_, {v, number(0)}); }
  ValueId sum(ValueId v, int64_t axis) {
    Attributes a;
    a.set("keepdims", int64_t{0});
    const ValueId axes = g_.add_constant(name_ + ".axes", Constant::ints({axis}));
    return emit(g_, "", "ReduceSum", name_, {v, axes}, a);
  }
  ValueId as_number(ValueId v) {
    constexpr int64_t kInt64 = 7;  // TensorProto.DataType
    Attributes a;
    a.set("to", kInt64);
    return emit(g_, "", "Cast", name_, {v}, a);
  }
  // 0, 1, ... below it.
  ValueId counted(const Expr& count) {
    return emit(g_, "", "Range", name_,
                {number(0), known_elements(g_, name_ + ".end", ElementType::i64, {count}, 0), number(1)});
  }
  Graph& g_;
  const tensor::Target& t_;
  std::string name_;  // of what is made
  int depth_ = 0;     // of tiled()
  Expr rows_;         // of the product, all of its batch
  std::map<std::pair<ValueId, int64_t>, Tiles> tiles_;
};

}  // namespace

void tile_selected_rows(Graph& graph, const tensor::Target& target) { TileSelectedRows(graph, target).run(); }

}  // namespace mcc::graph
