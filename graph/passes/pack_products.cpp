#include "graph/passes/pack_products.h"

#include <algorithm>

#include "graph/ops/common.h"
#include "graph/passes/rewrite.h"
#include "tensor/instructions.h"
#include "tensor/intrinsics.h"

namespace mcc::graph {

// With 32 registers tiles of 8 x 3 and 6 x 4 vectors read the fewest operands, and no more rows at once than the first-level
// cache has ways; the last panel may be narrower, which pays when there are many others. Else two vectors: 6 x 2 with 16
// registers, 12 x 2 with 32.
//
// Of an odd number of vectors in pairs the last is a panel of its own, and has too few sums for the latency of multiplications:
// two thirds of the rate. Where there are few panels they are wider, if the last is then a vector narrower at most.
int64_t panel_width(int64_t columns, const tensor::Target& target) {
  constexpr int64_t kFewVectors = 12;
  const int64_t lanes = target.lanes(32), vectors = (columns + lanes - 1) / lanes;
  const bool has_many = target.vector_registers >= 32;
  if (has_many && vectors % 3 != 0 && vectors % 4 == 0) return 4 * lanes;
  if (has_many && (vectors % 3 == 0 || vectors >= 24)) return 3 * lanes;
  if (vectors % 2 == 0 || vectors > kFewVectors) return 2 * lanes;
  if (vectors % 3 == 0 || vectors % 3 == 2) return 3 * lanes;
  return (has_many && vectors % 4 == 3 ? 4 : 2) * lanes;
}

namespace {

// Whether the nearest cache keeps a line of each of so many rows that lie one behind the other.
bool keeps_rows(int64_t rows, int64_t depth, const tensor::Target& target) {
  return rows <= target.l1.lines_held(depth * byte_size(ElementType::f32));
}

}  // namespace

// Few rows read weights about as fast as memory gives them: best once, by one tile of all of them, whose lines can be asked for in time
// (tuner/rule_register_tile.cpp), or by two. Of more rows a panel stays in the second-level cache, while the next one is fetched into it.
// In a loop written in C, on one core of a Sapphire Rapids, of matrices of 4096 x 4096 in ms, with four vectors and with two: 8 rows 3.6 and
// 2.4, 12 rows 3.7 and 2.6, 16 rows 5.2 and 4.1, 32 rows 8.5 and 6.8, 96 rows 22.5 and 21.4; of 1024 x 4096: 12 rows 0.82 and 0.66, 24 rows
// 1.18 and 1.21.
int64_t panel_width(int64_t columns, int64_t depth, int64_t rows, const tensor::Target& target) {
  constexpr int64_t kPair = 2, kRowsOfPairs = 12;
  const int64_t lanes = target.lanes(32), vectors = (columns + lanes - 1) / lanes,
                wide = panel_width(columns, target) / lanes;
  // Registers hold a tile's sums and a panel's vectors.
  auto most_rows = [&](int64_t width) { return (target.vector_registers - 2) / width - 1; };
  if (wide <= kPair || vectors % kPair != 0 || rows <= most_rows(wide)) return wide * lanes;
  auto fits_tiles = [&](int64_t count) {
    const int64_t each = (rows + count - 1) / count;
    return each <= most_rows(kPair) && keeps_rows(each, depth, target);
  };
  const bool is_few = fits_tiles(1) || (wide > kPair + 1 && fits_tiles(2));
  const int64_t panel = depth * wide * target.vector_bits / 8;
  const bool is_deep = 2 * panel >= target.l2.bytes && keeps_rows(kRowsOfPairs, depth, target);
  return (is_few || is_deep ? kPair : wide) * lanes;
}

int64_t word_of(ElementType element, const tensor::Target& target) {
  const bool is_taken = target.kind == tensor::TargetKind::cpu && element == ElementType::bf16 &&
                        tensor::dot_instruction(target, element);
  return is_taken ? tensor::word_elements(element) : 1;
}

// As wide as the register tile; in the last panel of an odd number of vectors one is of zeros that nobody reads.
int64_t word_panel_width(int64_t columns, ElementType left, const tensor::Target& target) {
  const int64_t lanes = target.lanes(32), vectors = (columns + lanes - 1) / lanes;
  // Tiles of matrices are one behind the other.
  if (tensor::tile_instruction(target, tensor::kTileRows, tensor::kTileRows, left)) return lanes;
  for (int64_t width : {3, 4}) {
    if (vectors % width == 0 && target.vector_registers >= 32) return width * lanes;
  }
  return std::min<int64_t>(vectors, 2) * lanes;
}

namespace {

// Of a tile's depth along so many words.
int64_t tile_steps(int64_t words) { return words / tensor::largest_tile(words); }

bool has_tiles(ElementType left, const tensor::Target& target) {
  return tensor::tile_instruction(target, tensor::kTileRows, tensor::kTileRows, left) != nullptr;
}

}  // namespace

bool joins_row(int64_t words, const std::vector<int64_t>& kernel, const std::vector<int64_t>& dilations, ElementType left,
               const tensor::Target& target) {
  return has_tiles(left, target) && kernel.back() > 1 && dilations.back() == 1 &&
         tile_steps(kernel.back() * words) < kernel.back() * tile_steps(words);
}

int64_t filled_words(int64_t words, const std::vector<int64_t>& kernel, const std::vector<int64_t>& dilations,
                     ElementType left, const tensor::Target& target) {
  if (!has_tiles(left, target)) return words;
  auto steps = [&](int64_t count) {
    return joins_row(count, kernel, dilations, left, target) ? tile_steps(kernel.back() * count)
                                                             : kernel.back() * tile_steps(count);
  };
  // Windows of several places are mostly read from a copy with padding, which others take for this alone.
  const bool has_copy = std::any_of(kernel.begin(), kernel.end(), [](int64_t extent) { return extent > 1; });
  const double much_fewer = has_copy ? 0.8 : 0.5;
  int64_t best = words;
  double most = much_fewer * static_cast<double>(steps(words));
  for (int64_t count = words + 1; count <= words + words / 8; ++count) {
    if (static_cast<double>(steps(count)) >= most) continue;
    best = count;
    most = static_cast<double>(steps(count));
  }
  return best;
}

namespace {

class PackProduct {
 public:
  PackProduct(Graph& graph, const tensor::Target& target)
      : g_(graph), t_(target), is_gpu_(target.kind == tensor::TargetKind::cuda), lanes_(target.lanes(32)) {}

  void run(NodeId id) {
    switch (g_.node(id).op->layout) {
      case LayoutRole::matmul:
        if (!is_gpu_) return pack_matmul(id);
        if (is_op(g_.node(id), "MatMul")) put_in_columns(id);
        return;
      case LayoutRole::gemm:
        return is_gpu_ ? transpose_gemm(id) : pack_gemm(id);
      case LayoutRole::recurrent:
        if (!is_gpu_) pack_recurrent(id);
        return;
      case LayoutRole::convolution:
      case LayoutRole::pool:
      case LayoutRole::global_mean:
      case LayoutRole::mean:
      case LayoutRole::concat:
      case LayoutRole::slice:
      case LayoutRole::split:
      case LayoutRole::to_space:
      case LayoutRole::resize:
      case LayoutRole::instance_norm:
      case LayoutRole::none:
        return;
    }
  }

 private:
  const Shape& shape(ValueId v) const { return g_.value(v).type.shape; }
  bool is_constant(ValueId v) const { return v != kNoValue && g_.value(v).constant.has_value(); }

  struct Sizes {
    int64_t depth, columns;
  };
  // Of a matrix, or of each of several.
  Sizes matrix_sizes(ValueId w, bool transposed) const {
    const std::vector<int64_t> sizes = static_shape(shape(w));
    const int64_t first = sizes[sizes.size() - 2], last = sizes.back();
    return transposed ? Sizes{last, first} : Sizes{first, last};
  }

  // rows: of what it is multiplied with, 0 where that is open.
  ValueId pack_matrix(const std::string& name, ValueId w, bool transposed, int64_t word, int64_t rows) {
    const auto [depth, columns] = matrix_sizes(w, transposed);
    Attributes a;
    a.set("block", word > 1 ? word_panel_width(columns, g_.value(w).type.element, t_)
                            : panel_width(columns, depth, rows, t_));
    a.set("transposed", int64_t{transposed});
    if (word > 1) a.set("word", word);
    return emit(g_, "mcc", "PackMatrix", name + ".packed", {w}, a);
  }

  bool is_packable(ValueId w, size_t rank = 2) const {
    return is_constant(w) && shape(w).size() == rank && is_float(g_.value(w).type.element) &&
           is_static(shape(w));
  }

  // selector: which of several matrices; kNoValue: there is one.
  ValueId emit_matmul(const Node& node, ValueId x, ValueId w, bool transposed, ValueId selector = kNoValue) {
    const auto [depth, columns] = matrix_sizes(w, transposed);
    int64_t word = g_.value(x).type.element == g_.value(w).type.element ? word_of(g_.value(w).type.element, t_) : 1;
    if (depth % word != 0) word = 1;
    // The instruction takes whole vectors of columns.
    const int64_t whole = word > 1 ? (columns + lanes_ - 1) / lanes_ * lanes_ : columns;
    Attributes a;
    a.set("columns", whole);
    if (node.attributes.integer(kWideResult, 0) != 0) a.set(kWideResult, int64_t{1});
    const Shape& left = shape(x);
    const int64_t rows =
        is_static(left) && selector == kNoValue ? static_count(Shape(left.begin(), left.end() - 1)) : 0;
    std::vector<ValueId> inputs{x, pack_matrix(node.name, w, transposed, word, rows)};
    if (selector != kNoValue) inputs.push_back(selector);
    const ValueId y = emit(g_, "mcc", "MatMul", node.name, inputs, a);
    return whole == columns ? y : first_columns(g_, node.name, y, columns);
  }

  void replace(NodeId id, ValueId with) {
    const Node node = g_.node(id);
    NodeId maker = g_.value(with).producer;
    g_.node(maker).origins = node.origins;
    take_place(g_, node.outputs[0], with);
    g_.node(id).dead = true;
  }

  void pack_matmul(NodeId id) {
    const Node node = g_.node(id);
    if (is_op(node, "SelectedMatMul")) {
      constexpr size_t kOfSeveral = 3;
      if (!is_packable(node.inputs[1], kOfSeveral)) return;
      const bool transposed = node.attributes.integer("transposed", 0) != 0;
      return replace(id, emit_matmul(node, node.inputs[0], node.inputs[1], transposed, node.inputs[2]));
    }
    if (!is_packable(node.inputs[1]) || shape(node.inputs[0]).size() < 2) return;
    replace(id, emit_matmul(node, node.inputs[0], node.inputs[1], false));
  }

  // For tensor cores of GPUs: each column side by side, as those of convolutions.
  void put_in_columns(NodeId id) {
    const Node node = g_.node(id);
    const ValueId w = node.inputs[1];
    if (shape(node.inputs[0]).size() < 2 || !is_better_in_columns(node)) return;
    Attributes pack, a;
    pack.set("block", int64_t{1});
    a.set("columns", static_shape(shape(w))[1]);
    if (node.attributes.integer(kWideResult, 0) != 0) a.set(kWideResult, int64_t{1});
    const ValueId columns =
        is_constant(w) ? emit(g_, "mcc", "PackMatrix", node.name + ".packed", {w}, pack)
                       : reshaped(g_, node.name, transposed(node), {shape(w)[1], shape(w)[0], Expr(1)});
    replace(id, emit(g_, "mcc", "MatMul", node.name, {node.inputs[0], columns}, a));
  }

  void transpose_gemm(NodeId id) {
    const Node node = g_.node(id);
    if (node.attributes.integer("transB", 0) != 0 || !is_better_in_columns(node)) return;
    const ValueId columns = transposed(node);
    g_.node(id).inputs[1] = columns;
    g_.node(id).attributes.set("transB", int64_t{1});
  }

  ValueId transposed(const Node& node) {
    Attributes a;
    a.set("perm", std::vector<int64_t>{1, 0});
    return emit(g_, "", "Transpose", node.name + ".columns", {node.inputs[1]}, a);
  }

  bool is_better_in_columns(const Node& node) const {
    const ValueId w = node.inputs[1];
    return is_narrow_float(g_.value(w).type.element) && (is_packable(w) || pays_for_transposition(node));
  }

  // Whether the right matrix, which is computed, is better transposed: warpgroups multiply it then (no instruction transposes tf32).
  bool pays_for_transposition(const Node& node) const {
    const tensor::Gpu& gpu = t_.gpu;
    const Shape &x = shape(node.inputs[0]), &w = shape(node.inputs[1]);
    const bool is_tf32 = g_.value(node.inputs[1]).type.element == ElementType::tf32;
    if (!is_tf32 || !gpu.has_wgmma() || w.size() != 2 || !is_static(w) || !is_static(x)) return false;
    const auto elements = static_cast<double>(static_count(w)),
               depth = static_cast<double>(static_shape(w)[0]);
    const double rows = static_cast<double>(static_count(x)) / std::max(depth, 1.0);
    // Figures are of 16 bits: of tf32 it is half as much.
    const double cycles =
        elements * rows * (2.0 / gpu.matrix_fmas - 2.0 / gpu.warpgroup_fmas) / gpu.multiprocessors;
    const double moved_bytes = 2 * elements * byte_size(ElementType::tf32);
    return cycles / (gpu.ghz * 1e3) > gpu.launch_us + moved_bytes / (gpu.gb_per_s * 1e3);
  }

  void pack_gemm(NodeId id) {
    const Node node = g_.node(id);
    const Attributes& a = node.attributes;
    if (!is_packable(node.inputs[1]) || a.integer("transA", 0) != 0 || a.number("alpha", 1) != 1)
      return;
    bool has_bias = node.inputs.size() > 2 && node.inputs[2] != kNoValue;
    if (has_bias && a.number("beta", 1) != 1) return;
    ValueId y = emit_matmul(node, node.inputs[0], node.inputs[1], a.integer("transB", 0) != 0);
    if (has_bias) {
      g_.node(g_.value(y).producer).origins = node.origins;
      y = emit(g_, "", "Add", node.name, {y, node.inputs[2]});
    }
    replace(id, y);
  }

  // Constant weights of a recurrent layer, [directions, gates * hidden, columns], in panels of gates, as vectors read them.
  // A gate begins with a panel of its own; where vectors do not divide gates, all of them are one panel.
  void pack_recurrent(NodeId id) {
    const Node node = g_.node(id);
    if (node.attributes.integer("mcc_panel", 0) != 0) return;
    if (!is_constant(node.inputs[1]) || !is_constant(node.inputs[2]) ||
        !is_float(g_.value(node.inputs[1]).type.element))
      return;
    std::vector<int64_t> recurrent = static_shape(shape(node.inputs[2]));
    int64_t panel = recurrent[1], hidden = recurrent[2];
    for (int64_t vectors : {1, 2}) {
      if (hidden % (vectors * lanes_) == 0) panel = vectors * lanes_;
    }
    for (size_t i : {1, 2}) {
      Attributes a;
      a.set("block", panel);
      a.set("transposed", int64_t{1});
      ValueId packed = emit(g_, "mcc", "PackMatrix", node.name + ".packed", {node.inputs[i]}, a);
      g_.node(id).inputs[i] = packed;
    }
    g_.node(id).attributes.set("mcc_panel", panel);
  }

  Graph& g_;
  const tensor::Target& t_;
  bool is_gpu_;  // matrices stay plain there: a block fetches a tile of what lies in rows
  int64_t lanes_;
};

}  // namespace

void pack_product(Graph& graph, NodeId id, const tensor::Target& target) { PackProduct(graph, target).run(id); }

}  // namespace mcc::graph
