// Products with constant weights of few bits, which stay as they are in memory: tiles of them become f32 as kernels read them.
//   MatMul(x, DequantizeLinear(w, scale, zero))             ->   mcc.MatMulNBits(x, words, scales, zeros)
//   MatMul(mcc.MayRound(x), DequantizeLinear(...))          ->   mcc.MatMulRounded(x, words, scales, zeros), or the same as above
//   mcc.SelectedMatMul(x, DequantizeLinear(...), selector)  ->   the same, with the selector
// w [K, N] are integers of 2, 4 or 8 bits; scales are one for all, one for each column, or one for each block of some rows of a column. Of
// several matrices, [E, K, N] or [E, N, K], the latter.
// What is small enough to stay in a CPU's second-level cache is faster as f32. Numbers of 2 and 4 bits that follow each other in a column are
// words of 32 bits, on GPUs, where each column is a panel, bytes, too.
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
  std::optional<Constant> zeros;  // none: all are zero
  int64_t zero = 0;
  int64_t matrices = 1, rows = 0, columns = 0, bits = 8;
  bool is_transposed = false;
  int64_t block = 0;  // rows that have a scale in common
  bool is_by_column = false, is_in_blocks = false;

  // One that is the same everywhere is no tensor.
  void set_zeros(const Constant& given) {
    const int64_t first = given.count() > 0 ? given.int_at(0) : 0;
    for (int64_t i = 1; i < given.count() && !zeros; ++i)
      if (given.int_at(i) != first) zeros = given;
    if (!zeros) zero = first;
  }
  // Numbers of signed types count from the lowest one.
  int64_t offset() const { return is_signed_int(numbers.element()) ? int64_t{1} << (bits - 1) : 0; }
  int64_t blocks() const { return (rows + block - 1) / block; }
  int64_t parameter(int64_t e, int64_t b, int64_t n) const {
    if (!is_in_blocks) return is_by_column ? n : 0;
    return is_transposed ? (e * columns + n) * blocks() + b : (e * blocks() + b) * columns + n;
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
      w.set_zeros(*g_.value(dequantize.inputs[2]).constant);
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
    if (w.matrices * w.rows * w.columns * byte_size(ElementType::f32) <=
        (is_gpu() ? kLeastForGpu : t_.l2.bytes))
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

  // Whether as many weights of a column as have room are one number of 32 bits.
  bool are_in_words(const Weights& w) const { return is_gpu() || w.bits < 8; }

  // In panels: words of 32 bits, or bytes.
  Constant packed(const Weights& w, int64_t width) const {
    return are_in_words(w) ? packed_as<uint32_t>(w, width, ElementType::u32)
                           : packed_as<uint8_t>(w, width, ElementType::u8);
  }

  template <class T>
  Constant packed_as(const Weights& w, int64_t width, ElementType element) const {
    const int64_t each = bit_width(element) / w.bits, panels = (w.columns + width - 1) / width,
                  steps = (w.rows + each - 1) / each;
    std::vector<T> all(static_cast<size_t>(w.matrices * panels * steps * width));
    for_each_number(w, [&](int64_t e, int64_t k, int64_t n, int64_t q) {
      T& word = all[static_cast<size_t>(((e * panels + n / width) * steps + k / each) * width + n % width)];
      word = static_cast<T>(word | (static_cast<T>(q) << (k % each * w.bits)));
    });
    return Constant::of(element, of_each(w, {panels, steps, width}), all);
  }

  // In panels, in words of four rows; of four bits two such words in one, the first in the lower halves.
  Constant packed_for_dots(const Weights& w, int64_t width) const {
    const int64_t depth = kWord * (8 / w.bits), panels = (w.columns + width - 1) / width,
                  steps = (w.rows + depth - 1) / depth;
    std::vector<uint8_t> bytes(static_cast<size_t>(w.matrices * panels * steps * width * kWord));
    for_each_number(w, [&](int64_t e, int64_t k, int64_t n, int64_t q) {
      const int64_t at = ((e * panels + n / width) * steps + k / depth) * width + n % width;
      uint8_t& byte = bytes[static_cast<size_t>(at * kWord + k % kWord)];
      byte = static_cast<uint8_t>(byte | (q << (k % depth / kWord * w.bits)));
    });
    return Constant::of(ElementType::u8, of_each(w, {panels, steps, width, kWord}), bytes);
  }

  // Calls with the matrix, the row, the column, and the number there, counted from 0.
  template <class F>
  static void for_each_number(const Weights& w, const F& call) {
    const int64_t mask = (int64_t{1} << w.bits) - 1, offset = w.offset();
    const std::span<const std::byte> numbers = w.numbers.bytes();
    // As they lie in memory.
    const int64_t lines = w.is_transposed ? w.columns : w.rows, length = w.is_transposed ? w.rows : w.columns;
    for (int64_t e = 0; e < w.matrices; ++e) {
      for (int64_t line = 0; line < lines; ++line) {
        for (int64_t i = 0; i < length; ++i) {
          const int64_t k = w.is_transposed ? i : line, n = w.is_transposed ? line : i;
          call(
              e, k, n,
              (static_cast<int64_t>(numbers[static_cast<size_t>((e * lines + line) * length + i)]) + offset) &
                  mask);
        }
      }
    }
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
    inputs.push_back(g_.add_constant(node.name + (rounds || are_in_words(w) ? ".words" : ".bytes"),
                                     rounds ? packed_for_dots(w, width) : packed(w, width)));
    inputs.push_back(
        g_.add_constant(node.name + ".scales", in_panels<float>(w, width, ElementType::f32, [&](int64_t i) {
                          return static_cast<float>(w.scales.number_at(i));
                        })));
    Attributes a;
    a.set("columns", made);
    a.set("bits", w.bits);
    a.set("block", w.block);
    a.set("zero", w.zero + w.offset());
    if (is_gpu()) a.set("in_type_of_rows", int64_t{1});
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
