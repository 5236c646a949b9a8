// Products of 8-bit integers become dot products of bytes (graph/ops/mcc_bytes.cpp) with what ONNX has around them as integer
// corrections and an epilogue:
//   MatMulInteger(a, b, az, bz)          sum (a - az)(b - bz) = a.b - az * sum (b - bz) - bz * sum a
//   MatMul, Gemm, Conv of DequantizeLinear(x) and DequantizeLinear(w)
//                                        f32(x.w - xz * sum w) * xs * ws + bias
// followed by Add, Relu, QuantizeLinear where they are: then rounded and saturated in the same step. A CPU's dot product takes
// unsigned times signed bytes: signed activations and unsigned weights move by 128, their zero points with them. A GPU takes
// activations of both kinds.
// Sums of weights are known now; those of activations, where weights have a zero point after they moved, are one for each row, and
// of a convolution for each window (sums over channels, which WindowSums adds up). A convolution's input is surrounded by its zero
// point, which stands for 0. A depthwise one has no dot products: its weights are less their zero point in 16 bits.
#include <algorithm>
#include <map>

#include "graph/ops/window.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "tensor/instructions.h"

namespace mcc::graph {
namespace {

// ONNX's numbers of element types, for Cast.
constexpr int64_t kOnnxI8 = 3, kOnnxI16 = 5, kOnnxI32 = 6;

// A tensor of bytes and what it stands for: (value - zero) * scale.
struct Quantized {
  ValueId value = kNoValue;
  ValueId scale = kNoValue;  // a constant of one element, or one for each line of a constant
  ValueId zero = kNoValue;   // as many; kNoValue for 0
};

// Constant weights, [D..., K, N] of i8 less their zero point's distance from i8.
struct Weights {
  ValueId packed = kNoValue;
  ValueId sums = kNoValue;  // i32 [N]: of each column, without its zero point
  ValueId zero = kNoValue;  // i32 [N] or [1]; kNoValue for 0
  int64_t columns = 0, depth = 0;
  int64_t group = 1;  // columns that the product has together
};

class UseByteProducts {
 public:
  UseByteProducts(Graph& g, const tensor::Target& t)
      : g_(g), t_(t), on_gpu_(t.kind == tensor::TargetKind::cuda), lanes_(on_gpu_ ? 1 : t.lanes(32)), users_(g.users()) {}

  void run() {
    const size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n) {
      const auto id = static_cast<NodeId>(n);
      const Node node = g_.node(id);
      if (node.dead || !node.op->domain.empty()) continue;
      if (is_op(node, "MatMul")) {
        real_product(id, 1, kNoValue, false);
      } else if (is_op(node, "Gemm")) {
        gemm(id);
      } else if (is_op(node, "Conv")) {
        real_convolution(id);
      } else if (is_op(node, "MatMulInteger")) {
        integer_matmul(id);
      } else if (is_op(node, "QLinearMatMul")) {
        requantized_matmul(id);
      } else if (is_op(node, "ConvInteger")) {
        integer_convolution(id);
      } else if (is_op(node, "QLinearConv")) {
        requantized_convolution(id);
      }
    }
    eliminate_dead_code(g_);
    g_.compact();
  }

 private:
  const TensorType& type(ValueId v) const { return g_.value(v).type; }
  size_t rank(ValueId v) const { return type(v).shape.size(); }
  static ValueId input(const Node& n, size_t i) { return i < n.inputs.size() ? n.inputs[i] : kNoValue; }
  const Constant* constant(ValueId v) const {
    return v != kNoValue && g_.value(v).constant ? &*g_.value(v).constant : nullptr;
  }
  bool is_byte(ValueId v) const { return type(v).element == ElementType::u8 || type(v).element == ElementType::i8; }

  ValueId make(std::string_view op, std::vector<ValueId> inputs, Attributes a = {}) {
    return emit(g_, "", op, name_, std::move(inputs), std::move(a));
  }
  ValueId make_own(std::string_view op, std::vector<ValueId> inputs, Attributes a = {}) {
    return emit(g_, "mcc", op, name_, std::move(inputs), std::move(a));
  }
  ValueId number(ElementType element, double value) {
    return g_.add_constant(name_ + ".number", Constant::scalar(element, value));
  }
  ValueId converted(ValueId v, int64_t to) {
    Attributes a;
    a.set("to", to);
    return make("Cast", {v}, a);
  }
  ValueId transposed(ValueId v, std::vector<int64_t> perm) {
    Attributes a;
    a.set("perm", std::move(perm));
    return make("Transpose", {v}, a);
  }
  ValueId sum_over(ValueId v, std::vector<int64_t> axes, bool keeps_rank) {
    Attributes a;
    a.set("keepdims", int64_t{keeps_rank});
    return make("ReduceSum", {v, g_.add_constant(name_ + ".axes", Constant::ints(axes))}, a);
  }
  ValueId reshaped(ValueId v, const std::vector<int64_t>& dims) {
    return make("Reshape", {v, g_.add_constant(name_ + ".shape", Constant::ints(dims))});
  }

  // ---- What a product reads ----

  // The zero point of a tensor as a whole.
  std::optional<int64_t> whole_zero(ValueId zero) const {
    if (zero == kNoValue) return 0;
    std::optional<double> value = uniform_value(g_, zero);
    return value ? std::optional(static_cast<int64_t>(*value)) : std::nullopt;
  }

  // What the value is dequantised from. lines: the axis along which scales may differ; -1 for none.
  std::optional<Quantized> dequantized(ValueId v, int64_t lines) const {
    NodeId id = v == kNoValue ? -1 : g_.value(v).producer;
    if (id < 0 || !is_op(g_.node(id), "DequantizeLinear")) return std::nullopt;
    const Node& n = g_.node(id);
    const Constant* scale = constant(n.inputs[1]);
    if (!is_byte(n.inputs[0]) || !scale || scale->element() != ElementType::f32 || type(v).element != ElementType::f32 ||
        n.attributes.integer("block_size", 0) != 0)
      return std::nullopt;
    if (scale->count() != 1) {
      int64_t axis = n.attributes.integer("axis", 1);
      if (axis < 0) axis += static_cast<int64_t>(rank(v));
      if (axis != lines || scale->shape().size() != 1) return std::nullopt;
    }
    return Quantized{n.inputs[0], n.inputs[1], input(n, 2)};
  }

  // Activations as bytes that the target takes, moved with their zero point; perm: their axes, empty where they stay.
  ValueId activations(ValueId x, const std::vector<int64_t>& perm, int64_t* zero) {
    const bool is_signed = type(x).element == ElementType::i8 && !on_gpu_;
    if (is_signed) *zero += 128;
    auto [it, is_new] = activations_.emplace(std::pair(x, perm), kNoValue);
    if (!is_new) return it->second;
    ValueId v = perm.empty() ? x : transposed(x, perm);
    return it->second = is_signed ? make_own("ToUnsigned", {v}) : v;
  }

  // w: a constant [D..., K, N] after `perm`. zero: i8 or u8, of one element or [N]; kNoValue for 0. rows: of the product; 0 where
  // that is not known.
  std::optional<Weights> weights(ValueId w, const std::vector<int64_t>& perm, ValueId zero, int64_t rows) {
    const Constant* values = constant(w);
    if (!values || !is_byte(w)) return std::nullopt;
    auto extent = [&](size_t d) { return values->shape()[perm.empty() ? d : static_cast<size_t>(perm[d])]; };
    Weights out;
    out.columns = extent(rank(w) - 1);
    out.depth = extent(rank(w) - 2);
    // Products of fewer columns than lanes are left to what runs along another axis.
    if (out.columns < lanes_ || values->count() == 0) return std::nullopt;
    const bool is_unsigned = type(w).element == ElementType::u8;
    if (zero != kNoValue) {
      const Constant* z = constant(zero);
      if (!z || (z->count() != 1 && (z->count() != out.columns || z->shape().size() != 1))) return std::nullopt;
      if (uniform_value(g_, zero) != (is_unsigned ? 128.0 : 0.0)) {
        const int64_t count = z->count();  // new values move what constants there are
        out.zero = reshaped(converted(zero, kOnnxI32), {count});
        if (is_unsigned) out.zero = make("Sub", {out.zero, number(ElementType::i32, 128)});
      }
    } else if (is_unsigned) {
      out.zero = reshaped(number(ElementType::i32, -128), {1});
    }
    ValueId v = perm.empty() ? w : transposed(w, perm), wide = converted(v, kOnnxI32);
    if (is_unsigned) {
      wide = make("Sub", {wide, number(ElementType::i32, 128)});
      v = converted(wide, kOnnxI8);
    }
    if (out.zero != kNoValue) wide = make("Sub", {wide, out.zero});
    std::vector<int64_t> all_but_last;
    for (size_t d = 0; d + 1 < rank(w); ++d)
      all_but_last.push_back(static_cast<int64_t>(d));
    out.sums = sum_over(wide, all_but_last, false);
    const int64_t block = panel_width(out.columns, out.depth, rows);
    out.group = on_gpu_ ? block : lanes_;
    Attributes a;
    a.set("block", block);
    out.packed = make_own("PackBytes", {v}, a);
    return out;
  }

  // Columns of a panel: as wide as the register tile, and whole panels only, as the instruction takes whole vectors. A GPU
  // fetches each column along the depth; for a few rows words of four columns, which one thread takes, where the threads of half a
  // warp have equal shares of them.
  int64_t panel_width(int64_t columns, int64_t depth, int64_t rows) const {
    constexpr int64_t kFewRows = 8, kWords = 4, kShare = 64;
    if (on_gpu_) return rows > 0 && rows <= kFewRows && depth % kShare == 0 ? kWords : 1;
    const int64_t vectors = (columns + lanes_ - 1) / lanes_;
    for (int64_t width : {3, 4, 2}) {
      if (vectors % width == 0 && (width == 2 || t_.vector_registers >= 32)) return width * lanes_;
    }
    return lanes_;
  }

  // Results of a product for each column.
  int64_t rows_of(const Node& product, int64_t columns) const {
    const Shape& shape = type(product.outputs[0]).shape;
    return is_static(shape) ? static_count(shape) / std::max<int64_t>(columns, 1) : 0;
  }
  int64_t last_dim(ValueId v) const { return static_dim(type(v).shape.back()).value_or(0); }

  // ---- Products ----

  // The sums as the instruction makes them, [..., N].
  ValueId product(std::string_view op, ValueId x, const Weights& w, Attributes a) {
    const int64_t whole = (w.columns + w.group - 1) / w.group * w.group;
    a.set("columns", whole);
    ValueId sums = make_own(op, {x, w.packed}, a);
    if (whole == w.columns) return sums;
    auto ints = [&](int64_t value) { return g_.add_constant(name_ + ".bound", Constant::ints({value})); };
    return make("Slice", {sums, ints(0), ints(w.columns), ints(-1)});
  }

  // Those of (a, b - bz): without bz * sum a. rows: sums of what the product reads, one for each row of the result.
  ValueId less_zero(ValueId sums, ValueId rows, const Weights& w) {
    return make("Sub", {sums, make("Mul", {rows, w.zero})});
  }
  ValueId row_sums(ValueId a) { return sum_over(converted(a, kOnnxI32), {-1}, true); }

  // [..., N] of activations a as the instruction takes them.
  ValueId matrix_product(ValueId a, const Weights& w) {
    ValueId sums = product("MatMulBytes", a, w, {});
    return w.zero == kNoValue ? sums : less_zero(sums, row_sums(a), w);
  }

  // What the zero points add to the sums: -az * sum (b - bz), [N] of i32.
  ValueId offset(const Weights& w, int64_t zero) {
    return make("Mul", {w.sums, number(ElementType::i32, static_cast<double>(-zero))});
  }

  // Convolutions' operands: activations with their channels last, weights [R..., C, N].
  static std::vector<int64_t> channels_last(size_t rank) {
    std::vector<int64_t> perm{0};
    for (size_t d = 2; d < rank; ++d)
      perm.push_back(static_cast<int64_t>(d));
    perm.push_back(1);
    return perm;
  }
  static std::vector<int64_t> channels_first(size_t rank) {
    std::vector<int64_t> perm{0, static_cast<int64_t>(rank) - 1};
    for (size_t d = 1; d + 1 < rank; ++d)
      perm.push_back(static_cast<int64_t>(d));
    return perm;
  }
  static std::vector<int64_t> taps_first(size_t rank) {
    std::vector<int64_t> perm;
    for (size_t d = 2; d < rank; ++d)
      perm.push_back(static_cast<int64_t>(d));
    perm.insert(perm.end(), {1, 0});
    return perm;
  }

  bool is_plain_convolution(const Node& n, ValueId x, ValueId w) const {
    return rank(x) >= 3 && rank(x) <= 4 && rank(w) == rank(x) && is_static(type(x).shape) &&
           n.attributes.integer("group", 1) == 1;
  }

  // Each channel by itself.
  bool is_depthwise(const Node& n, ValueId x, ValueId w) const {
    if (rank(x) < 3 || rank(x) > 4 || rank(w) != rank(x) || !is_static(type(x).shape)) return false;
    const std::vector<int64_t> dims = static_shape(type(w).shape);
    const int64_t channels = static_shape(type(x).shape)[1];
    return channels > 1 && n.attributes.integer("group", 1) == channels && dims[0] == channels && dims[1] == 1;
  }
  bool is_convolution(const Node& n, ValueId x, ValueId w) const { return is_plain_convolution(n, x, w) || is_depthwise(n, x, w); }

  Attributes window_attributes(const Node& n, ValueId x, ValueId w, int64_t zero) const {
    std::vector<int64_t> kernel = static_shape(type(w).shape);
    kernel.erase(kernel.begin(), kernel.begin() + 2);
    graph::Window window = window_of(n.attributes, kernel, spatial_dims(type(x).shape));
    std::vector<int64_t> pads = window.begin;
    pads.insert(pads.end(), window.end.begin(), window.end.end());
    Attributes a;
    a.set("strides", window.stride);
    a.set("dilations", window.dilation);
    a.set("pads", pads);
    a.set("padding", zero);
    return a;
  }

  // ---- Epilogues ----

  struct Epilogue {
    ValueId sums = kNoValue, offset = kNoValue;  // i32
    ValueId scale = kNoValue, bias = kNoValue;   // f32; no bias: kNoValue
    std::vector<int64_t> back;                   // how the result is transposed; empty: not
  };

  // f32(sums + offset) * scale + bias in place of the node's result and of what follows it: Add of a vector along the last
  // axis, Relu, QuantizeLinear.
  void finish(NodeId id, Epilogue e) {
    NodeId last = id;
    ValueId to_scale = kNoValue;
    bool has_relu = false;
    Attributes a;
    a.set("to", std::string("f32"));
    std::vector<NodeId> taken;
    for (NodeId next = follower(id); next >= 0; next = follower(next)) {
      const Node& n = g_.node(next);
      if (is_op(n, "Relu") && !has_relu) {
        has_relu = true;
      } else if (std::optional<ValueId> added = has_relu || !e.back.empty() ? std::nullopt : added_vector(n, g_.node(last).outputs[0])) {
        e.bias = e.bias == kNoValue ? *added : make("Add", {e.bias, *added});
      } else {
        if (std::optional<int64_t> zero = quantization(n)) {
          taken.push_back(last);
          last = next;
          to_scale = n.inputs[1];
          quantize(a, type(n.outputs[0]).element, *zero, has_relu);
          has_relu = false;
        }
        break;
      }
      taken.push_back(last);
      last = next;
    }
    if (has_relu) {  // of floats it stays an operator of its own
      last = taken.back();
      taken.pop_back();
    }
    if (e.bias == kNoValue) e.bias = number(ElementType::f32, 0);
    if (to_scale != kNoValue) {
      e.scale = make("Div", {e.scale, to_scale});
      e.bias = make("Div", {e.bias, to_scale});
    }
    replace(last, taken, make_own("Requantize", {e.sums, e.offset, e.scale, e.bias}, a), e.back);
  }

  NodeId follower(NodeId id) const { return single_user(g_, users_, g_.node(id).outputs[0]); }

  // Of an Add: what it adds to v, if that is known now and runs along the last axis.
  std::optional<ValueId> added_vector(const Node& n, ValueId v) const {
    if (!is_op(n, "Add") || !n.op->domain.empty()) return std::nullopt;
    ValueId other = n.inputs[0] == v ? n.inputs[1] : n.inputs[0];
    const Constant* c = constant(other);
    if (!c || c->shape().size() > 1 || rank(n.outputs[0]) != rank(v)) return std::nullopt;
    return other;
  }

  // Of a QuantizeLinear to bytes by one constant scale: its zero point.
  std::optional<int64_t> quantization(const Node& n) const {
    if (!is_op(n, "QuantizeLinear") || !n.op->domain.empty() || !is_byte(n.outputs[0])) return std::nullopt;
    const Constant* scale = constant(n.inputs[1]);
    if (!scale || scale->count() != 1 || scale->element() != ElementType::f32) return std::nullopt;
    return whole_zero(input(n, 2));
  }

  static void quantize(Attributes& a, ElementType to, int64_t zero, bool has_relu) {
    const int64_t low = to == ElementType::i8 ? -128 : 0;
    a.set("to", std::string(mcc::to_text(to)));
    a.set("zero_point", zero);
    a.set("low", has_relu ? std::max(low, zero) : low);
    a.set("high", low + 255);
  }

  // The value in place of the node's result; the nodes before it that it stands for, too, are gone.
  void replace(NodeId id, const std::vector<NodeId>& taken, ValueId with, const std::vector<int64_t>& back) {
    if (!back.empty()) with = transposed(with, back);
    const Node node = g_.node(id);
    Node& maker = g_.node(g_.value(with).producer);
    for (NodeId t : taken) {
      for (const std::string& origin : g_.node(t).origins)
        maker.origins.push_back(origin);
      g_.node(t).dead = true;
    }
    maker.origins.insert(maker.origins.end(), node.origins.begin(), node.origins.end());
    take_place(g_, node.outputs[0], with);
    g_.node(id).dead = true;
  }

  // ---- Products of dequantised operands ----

  void gemm(NodeId id) {
    const Node node = g_.node(id);
    const Attributes& a = node.attributes;
    const bool has_bias = input(node, 2) != kNoValue;
    if (a.integer("transA", 0) != 0 || a.number("alpha", 1) != 1 || (has_bias && a.number("beta", 1) != 1)) return;
    const bool is_transposed = a.integer("transB", 0) != 0;
    real_product(id, is_transposed ? 0 : 1, input(node, 2), is_transposed);
  }

  void real_product(NodeId id, int64_t lines, ValueId bias, bool is_transposed) {
    const Node node = g_.node(id);
    std::optional<Quantized> x = dequantized(node.inputs[0], -1), w = dequantized(node.inputs[1], lines);
    std::optional<int64_t> zero = x ? whole_zero(x->zero) : std::nullopt;
    if (!zero || !w || rank(x->value) < 2 || rank(w->value) != 2) return;
    name_ = node.name;
    std::optional<Weights> made = weights(w->value, is_transposed ? std::vector<int64_t>{1, 0} : std::vector<int64_t>{}, w->zero,
                                          rows_of(node, last_dim(node.outputs[0])));
    if (!made) return;
    ValueId a = activations(x->value, {}, &*zero);
    Epilogue e;
    e.sums = matrix_product(a, *made);
    e.offset = offset(*made, *zero);
    e.scale = make("Mul", {x->scale, w->scale});
    e.bias = bias;
    finish(id, e);
  }

  void real_convolution(NodeId id) {
    const Node node = g_.node(id);
    std::optional<Quantized> x = dequantized(node.inputs[0], -1), w = dequantized(node.inputs[1], 0);
    std::optional<int64_t> zero = x ? whole_zero(x->zero) : std::nullopt;
    if (!zero || !w || !is_convolution(node, x->value, w->value)) return;
    Epilogue e;
    if (!convolution(node, x->value, *zero, w->value, w->zero, &e)) return;
    e.scale = make("Mul", {x->scale, w->scale});
    e.bias = input(node, 2);
    finish(id, e);
  }

  // Of weights [N, C, 1...].
  bool is_pointwise(ValueId w) const {
    const std::vector<int64_t> dims = static_shape(type(w).shape);
    return std::all_of(dims.begin() + 2, dims.end(), [](int64_t extent) { return extent == 1; });
  }

  bool convolution(const Node& node, ValueId x, int64_t zero, ValueId w, ValueId w_zero, Epilogue* e) {
    name_ = node.name;
    if (!is_plain_convolution(node, x, w)) return depthwise(node, x, zero, w, w_zero, e);
    std::optional<Weights> made = weights(w, taps_first(rank(w)), w_zero, is_pointwise(w) ? rows_of(node, static_shape(type(w).shape)[0]) : 0);
    if (!made) return false;
    ValueId a = activations(x, channels_last(rank(x)), &zero);
    const Attributes window = window_attributes(node, x, w, zero);
    e->sums = product("ConvBytes", a, *made, window);
    if (made->zero != kNoValue) e->sums = less_zero(e->sums, window_sums(a, w, window, zero), *made);
    e->offset = offset(*made, zero);
    e->back = channels_first(rank(x));
    return true;
  }

  bool depthwise(const Node& node, ValueId x, int64_t zero, ValueId w, ValueId w_zero, Epilogue* e) {
    const Constant *values = constant(w), *z = constant(w_zero);
    const int64_t channels = static_shape(type(w).shape)[0];
    if (!values || !is_byte(w) || channels < lanes_ || (w_zero != kNoValue && (!z || (z->count() != 1 && z->count() != channels))))
      return false;
    const int64_t zeros = z ? z->count() : 0;  // new values move what constants there are
    std::vector<int64_t> dims = static_shape(type(w).shape), taps;
    dims.erase(dims.begin(), dims.begin() + 2);
    for (size_t d = 0; d < dims.size(); ++d)
      taps.push_back(static_cast<int64_t>(d));
    dims.push_back(channels);
    ValueId wide = converted(reshaped(transposed(w, taps_first(rank(w))), dims), kOnnxI32);
    if (zeros > 0) wide = make("Sub", {wide, reshaped(converted(w_zero, kOnnxI32), {zeros})});
    ValueId a = transposed(x, channels_last(rank(x)));
    e->sums = make_own("DepthwiseBytes", {a, converted(wide, kOnnxI16)}, window_attributes(node, x, w, zero));
    e->offset = make("Mul", {sum_over(wide, taps, false), number(ElementType::i32, static_cast<double>(-zero))});
    e->back = channels_first(rank(x));
    return true;
  }

  // Of a convolution's windows with their channels, [B, D'..., 1].
  ValueId window_sums(ValueId a, ValueId w, Attributes window, int64_t zero) {
    std::vector<int64_t> kernel = static_shape(type(w).shape);
    const int64_t channels = kernel[1];
    kernel.erase(kernel.begin(), kernel.begin() + 2);
    auto are_all = [](const std::vector<int64_t>& list, int64_t value) {
      return std::all_of(list.begin(), list.end(), [&](int64_t v) { return v == value; });
    };
    ValueId rows = row_sums(a);
    if (are_all(kernel, 1) && are_all(window.integers("strides", {}), 1) && are_all(window.integers("pads", {}), 0)) return rows;
    window.set("kernel_shape", kernel);
    window.set("padding", zero * channels);
    return make_own("WindowSums", {rows}, window);
  }

  // ---- ONNX's integer operators ----

  void integer_matmul(NodeId id) {
    const Node node = g_.node(id);
    ValueId x = node.inputs[0], x_zero = input(node, 2);
    if (rank(x) < 2 || rank(node.inputs[1]) != 2) return;
    if (x_zero != kNoValue && (!is_static(type(x_zero).shape) || static_count(type(x_zero).shape) != 1)) return;
    name_ = node.name;
    std::optional<Weights> w = weights(node.inputs[1], {}, input(node, 3), rows_of(node, last_dim(node.outputs[0])));
    if (!w) return;
    int64_t moved = 0;
    ValueId a = activations(x, {}, &moved);
    ValueId zero = number(ElementType::i32, static_cast<double>(moved));
    if (x_zero != kNoValue) zero = make("Add", {reshaped(converted(x_zero, kOnnxI32), {1}), zero});
    replace(id, {}, make("Sub", {matrix_product(a, *w), make("Mul", {zero, w->sums})}), {});
  }

  void integer_convolution(NodeId id) {
    const Node node = g_.node(id);
    std::optional<int64_t> zero = whole_zero(input(node, 2));
    Epilogue e;
    if (!zero || !is_convolution(node, node.inputs[0], node.inputs[1]) ||
        !convolution(node, node.inputs[0], *zero, node.inputs[1], input(node, 3), &e))
      return;
    replace(id, {}, make("Add", {e.sums, e.offset}), e.back);
  }

  // a, its scale and zero point, b, its, the result's: whether all are as Requantize takes them.
  bool is_requantizable(const Node& n) const {
    for (size_t i : {size_t{1}, size_t{4}, size_t{6}}) {
      const Constant* scale = constant(n.inputs[i]);
      if (!scale || scale->element() != ElementType::f32 || (i != 4 && scale->count() != 1) || scale->shape().size() > 1)
        return false;
    }
    return whole_zero(n.inputs[2]) && whole_zero(n.inputs[7]) && is_byte(n.inputs[0]) && is_byte(n.inputs[3]) &&
           is_byte(n.outputs[0]);
  }

  void requantize(NodeId id, Epilogue e) {
    const Node node = g_.node(id);
    Attributes a;
    quantize(a, type(node.outputs[0]).element, *whole_zero(node.inputs[7]), false);
    e.scale = make("Div", {make("Mul", {node.inputs[1], node.inputs[4]}), node.inputs[6]});
    ValueId bias = number(ElementType::f32, 0);
    replace(id, {}, make_own("Requantize", {e.sums, e.offset, e.scale, bias}, a), e.back);
  }

  void requantized_matmul(NodeId id) {
    const Node node = g_.node(id);
    if (!is_requantizable(node) || rank(node.inputs[0]) < 2 || rank(node.inputs[3]) != 2) return;
    name_ = node.name;
    std::optional<Weights> w = weights(node.inputs[3], {}, node.inputs[5], rows_of(node, last_dim(node.outputs[0])));
    if (!w) return;
    int64_t zero = *whole_zero(node.inputs[2]);
    Epilogue e;
    ValueId a = activations(node.inputs[0], {}, &zero);
    e.sums = matrix_product(a, *w);
    e.offset = offset(*w, zero);
    requantize(id, e);
  }

  void requantized_convolution(NodeId id) {
    const Node node = g_.node(id);
    Epilogue e;
    if (!is_requantizable(node) || !is_convolution(node, node.inputs[0], node.inputs[3]) ||
        !convolution(node, node.inputs[0], *whole_zero(node.inputs[2]), node.inputs[3], node.inputs[5], &e))
      return;
    if (input(node, 8) != kNoValue) e.offset = make("Add", {e.offset, node.inputs[8]});
    requantize(id, e);
  }

  Graph& g_;
  const tensor::Target& t_;
  const bool on_gpu_;
  const int64_t lanes_;  // columns that a dot product has at once
  const std::vector<std::vector<NodeId>> users_;
  std::string name_;  // of the node that is being rewritten
  std::map<std::pair<ValueId, std::vector<int64_t>>, ValueId> activations_;
};

}  // namespace

void use_byte_products(Graph& graph, const tensor::Target& target) {
  if (tensor::dot_instruction(target)) UseByteProducts(graph, target).run();
}

}  // namespace mcc::graph
