// Products with constant weights of few bits, which stay as they are in memory: tiles of them become f32 as kernels read them.
//   MatMul(x, DequantizeLinear(w, scale, zero))             ->   mcc.MatMulNBits(x, bytes, scales, zeros)
//   MatMul(mcc.MayRound(x), DequantizeLinear(...))          ->   mcc.MatMulRounded(x, words, scales, zeros), or the same as above
//   mcc.SelectedMatMul(x, DequantizeLinear(...), selector)  ->   the same, with the selector
// w [K, N] are integers of 2, 4 or 8 bits; scales are one for all, one for each column, or one for each block of some rows of a column. Of
// several matrices, [E, K, N] or [E, N, K], the latter.
// What is small enough to stay in a CPU's second-level cache is faster as f32. GPUs have the numbers of a column in words, one behind the
// other.
#include "graph/ops/common.h"
#include "graph/passes/pack_products.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "tensor/instructions.h"

namespace mcc::graph {
namespace {

constexpr int64_t kWord = 4;  // bytes that a dot product takes together

struct Weights {
  Constant numbers, scales;       // numbers [K, N], [E, K, N] or [E, N, K]
  std::optional<Constant> zeros;  // none: 0
  int64_t matrices = 1, rows = 0, columns = 0, bits = 8;
  bool is_transposed = false;
  int64_t block = 0;  // rows that have a scale in common
  bool is_by_column = false, is_in_blocks = false;

  // Numbers of signed types count from the lowest one.
  int64_t offset() const { return is_signed_int(numbers.element()) ? int64_t{1} << (bits - 1) : 0; }
  int64_t blocks() const { return (rows + block - 1) / block; }
  int64_t parameter(int64_t e, int64_t b, int64_t n) const {
    if (!is_in_blocks) return is_by_column ? n : 0;
    return is_transposed ? (e * columns + n) * blocks() + b : (e * blocks() + b) * columns + n;
  }
  int64_t number(int64_t e, int64_t k, int64_t n) const {
    return is_transposed ? (e * columns + n) * rows + k : (e * rows + k) * columns + n;
  }
};

class UseNBitsProducts {
 public:
  UseNBitsProducts(Graph& g, const tensor::Target& t, bool strict) : g_(g), t_(t), strict_(strict) {}

  void run() {
    const size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n) {
      const auto id = static_cast<NodeId>(n);
      const Node& node = g_.node(id);
      if (node.dead || (!is_op(node, "MatMul") && !is_selected(node))) continue;
      if (const std::optional<Weights> w = weights_of(g_.node(id))) rewrite(id, *w);
    }
    eliminate_dead_code(g_);
    g_.compact();
  }

 private:
  static bool is_selected(const Node& node) { return is_op(node, "SelectedMatMul"); }

  std::optional<Weights> weights_of(const Node& product) const {
    const NodeId made_by = g_.value(product.inputs[1]).producer;
    const TensorType& x = g_.value(product.inputs[0]).type;
    if (made_by < 0 || !is_op(g_.node(made_by), "DequantizeLinear") || x.shape.empty() ||
        !is_float(x.element))
      return std::nullopt;
    const Node& dequantize = g_.node(made_by);
    Weights w;
    for (ValueId v : dequantize.inputs)
      if (v != kNoValue && !g_.value(v).constant) return std::nullopt;
    w.numbers = *g_.value(dequantize.inputs[0]).constant;
    w.scales = *g_.value(dequantize.inputs[1]).constant;
    if (dequantize.inputs.size() > 2 && dequantize.inputs[2] != kNoValue)
      w.zeros = *g_.value(dequantize.inputs[2]).constant;
    const ElementType element = w.numbers.element();
    const std::vector<int64_t> shape = w.numbers.shape();
    const size_t rank = is_selected(product) ? 3 : 2;
    if (!is_int(element) || bit_width(element) > 8 || shape.size() != rank) return std::nullopt;
    w.bits = bit_width(element);
    w.is_transposed = product.attributes.integer("transposed", 0) != 0;
    const size_t of_rows = w.is_transposed ? rank - 1 : rank - 2,
                 of_columns = w.is_transposed ? rank - 2 : rank - 1;
    w.matrices = is_selected(product) ? shape[0] : 1;
    w.rows = shape[of_rows];
    w.columns = shape[of_columns];
    // It has fewer bytes than the second-level cache (of a GPU: than it reads while it launches), or nothing at all.
    constexpr int64_t kLeastForGpu = 1 << 20;
    if (w.rows * w.columns * byte_size(ElementType::f32) <= (is_gpu() ? kLeastForGpu : t_.l2.bytes))
      return std::nullopt;
    const auto axis =
        static_cast<size_t>(normal_axis(dequantize.attributes.integer("axis", 1), static_cast<int>(rank)));
    const int64_t block = dequantize.attributes.integer("block_size", 0);
    w.block = block == 0 ? w.rows : block;
    w.is_in_blocks = block != 0;
    w.is_by_column = w.scales.count() > 1;
    const bool is_along_rows = w.is_in_blocks && axis == of_rows;
    const bool is_by_other = !w.is_in_blocks && w.is_by_column && (axis != of_columns || rank > 2);
    if ((w.is_in_blocks && !is_along_rows) || is_by_other) return std::nullopt;
    return w;
  }

  bool is_gpu() const { return t_.kind == tensor::TargetKind::cuda; }

  // In panels, in words of so many rows (1: bytes alone), as many words in one as have room in its bytes. Of GPUs each column is a panel,
  // whose bytes are whole words.
  Constant packed(const Weights& w, int64_t width, int64_t word) const {
    const int64_t each = 8 / w.bits, panels = (w.columns + width - 1) / width, depth = word * each,
                  unit = is_gpu() ? kWord * each : depth, steps = (w.rows + unit - 1) / unit * (unit / depth);
    const int64_t mask = (int64_t{1} << w.bits) - 1, offset = w.offset();
    const std::span<const std::byte> numbers = w.numbers.bytes();
    std::vector<uint8_t> bytes(static_cast<size_t>(w.matrices * panels * steps * width * word));
    for (int64_t e = 0; e < w.matrices; ++e) {
      for (int64_t k = 0; k < w.rows; ++k) {
        for (int64_t n = 0; n < w.columns; ++n) {
          const int64_t q =
              (static_cast<int64_t>(numbers[static_cast<size_t>(w.number(e, k, n))]) + offset) & mask;
          const int64_t at = ((e * panels + n / width) * steps + k / depth) * width + n % width;
          uint8_t& byte = bytes[static_cast<size_t>(at * word + k % word)];
          byte = static_cast<uint8_t>(byte | (q << (k / word % each * w.bits)));
        }
      }
    }
    if (is_gpu())
      return Constant::copy_of(ElementType::u32, of_each(w, {panels, steps / kWord, width}),
                               std::as_bytes(std::span(bytes)));
    std::vector<int64_t> shape{panels, steps, width};
    if (word > 1) shape.push_back(word);
    return Constant::of(ElementType::u8, of_each(w, shape), bytes);
  }

  // The shape of what each matrix has, as one tensor.
  static std::vector<int64_t> of_each(const Weights& w, std::vector<int64_t> shape) {
    if (w.numbers.shape().size() > 2) shape.insert(shape.begin(), w.matrices);
    return shape;
  }

  // One for each block and column, in panels; 0 past the columns.
  template <class T, class F>
  Constant in_panels(const Weights& w, int64_t width, ElementType element, const F& value) const {
    const int64_t panels = (w.columns + width - 1) / width, blocks = w.blocks();
    std::vector<T> all(static_cast<size_t>(w.matrices * panels * blocks * width));
    for (int64_t e = 0; e < w.matrices; ++e) {
      for (int64_t b = 0; b < blocks; ++b) {
        for (int64_t n = 0; n < w.columns; ++n)
          all[static_cast<size_t>(((e * panels + n / width) * blocks + b) * width + n % width)] =
              value(w.parameter(e, b, n));
      }
    }
    return Constant::of(element, of_each(w, {panels, blocks, width}), all);
  }

  // Dot products are of whole panels: so wide that there are, or that little is added.
  int64_t width_of_words(int64_t columns) const {
    const int64_t lanes = t_.lanes(32);
    for (int64_t vectors :
         t_.vector_registers >= 32 ? std::vector<int64_t>{4, 3, 2} : std::vector<int64_t>{2})
      if (columns % (vectors * lanes) == 0) return vectors * lanes;
    return panel_width(columns, t_);
  }

  // What x was before it was said that it may be rounded; nothing where that has not been said.
  std::optional<ValueId> may_round(ValueId x) const {
    const NodeId made_by = g_.value(x).producer;
    if (made_by < 0 || !is_op(g_.node(made_by), "MayRound")) return std::nullopt;
    return g_.node(made_by).inputs[0];
  }

  bool is_rounded(ValueId x, const Weights& w) const {
    constexpr int64_t kShortest = 8;
    const bool fits =
        !is_gpu() && w.is_in_blocks && w.bits >= 4 && w.block % kShortest == 0 && w.rows % w.block == 0;
    return fits && !strict_ && may_round(x) && tensor::dot_instruction(t_, ElementType::i8) != nullptr;
  }

  void rewrite(NodeId id, const Weights& w) {
    const Node node = g_.node(id);
    const bool rounds = is_rounded(node.inputs[0], w);
    const int64_t width = is_gpu() ? 1 : rounds ? width_of_words(w.columns) : panel_width(w.columns, t_);
    const int64_t made = rounds ? (w.columns + width - 1) / width * width : w.columns;
    std::vector<ValueId> inputs{may_round(node.inputs[0]).value_or(node.inputs[0])};
    inputs.push_back(rounds ? g_.add_constant(node.name + ".words", packed(w, width, kWord))
                            : g_.add_constant(node.name + ".bytes", packed(w, width, 1)));
    inputs.push_back(
        g_.add_constant(node.name + ".scales", in_panels<float>(w, width, ElementType::f32, [&](int64_t i) {
                          return static_cast<float>(w.scales.number_at(i));
                        })));
    Attributes a;
    a.set("columns", made);
    a.set("bits", w.bits);
    a.set("block", w.block);
    a.set("zero", w.offset());
    if (w.zeros) {
      inputs.push_back(
          g_.add_constant(node.name + ".zeros", in_panels<uint8_t>(w, width, ElementType::u8, [&](int64_t i) {
                            return static_cast<uint8_t>(w.zeros->int_at(i) + w.offset());
                          })));
    }
    if (is_selected(node)) {
      if (!w.zeros) inputs.push_back(kNoValue);
      inputs.push_back(node.inputs[2]);
    }
    const ValueId y = emit(g_, "mcc", rounds ? "MatMulRounded" : "MatMulNBits", node.name, inputs, a);
    add_origins(g_.node(g_.value(y).producer), node);
    take_place(g_, node.outputs[0], made == w.columns ? y : first_columns(g_, node.name, y, w.columns));
    g_.node(id).dead = true;
  }

  Graph& g_;
  const tensor::Target& t_;
  const bool strict_;
};

}  // namespace

void use_nbits_products(Graph& graph, const tensor::Target& target, bool strict) {
  UseNBitsProducts(graph, target, strict).run();
}

}  // namespace mcc::graph
