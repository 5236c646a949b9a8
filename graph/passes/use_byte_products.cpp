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
// point, which stands for 0. One in groups has the columns of each group as panels of their own; those of few are merged, with zeros
// between them. A depthwise one has no dot products: its weights are less their zero point in 16 bits, or f32 where all sums are whole numbers
// of f32.
#include <algorithm>

#include "graph/ops/window.h"
#include "graph/passes/byte_products.h"
#include "graph/passes/convolution_cost.h"
#include "graph/passes/merge_groups.h"
#include "graph/passes/pack_products.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "graph/passes/use_byte_layers.h"
#include "tensor/instructions.h"

namespace mcc::graph {
namespace {

class UseByteProducts : private ByteProducts {
 public:
  UseByteProducts(Graph& g, const tensor::Target& t, bool strict)
      : ByteProducts(g, t), users_(g.users()), strict_(strict), weight_elements_(weight_bytes(g)) {}

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
    share_widened();
    eliminate_dead_code(g_);
    g_.compact();
  }

 private:
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

  // Sizes of pictures and batches may be open where the padding does not follow from them.
  bool has_windows(const Node& n, ValueId x, ValueId w) const {
    return rank(x) >= 3 && rank(x) <= 4 && rank(w) == rank(x) && static_dim(type(x).shape[1]) &&
           (is_static(type(x).shape) || is_explicit(n));
  }

  // Each channel by itself.
  bool is_depthwise(const Node& n, ValueId x, ValueId w) const {
    if (!has_windows(n, x, w)) return false;
    const std::vector<int64_t> dims = static_shape(type(w).shape);
    const int64_t channels = *static_dim(type(x).shape[1]);
    return channels > 1 && n.attributes.integer("group", 1) == channels && dims[0] == channels && dims[1] == 1;
  }
  bool is_convolution(const Node& n, ValueId x, ValueId w) const {
    return is_depthwise(n, x, w) || groups_of(n, x, w);
  }

  // Of a convolution in groups whose results make whole vectors; one group of any other.
  std::optional<Groups> groups_of(const Node& n, ValueId x, ValueId w) const {
    const int64_t groups = n.attributes.integer("group", 1);
    if (!has_windows(n, x, w)) return std::nullopt;
    if (groups == 1) return Groups{};
    if (on_gpu_) return std::nullopt;
    const int64_t channels = *static_dim(type(x).shape[1]), columns = static_shape(type(w).shape)[0];
    const int64_t merged = merged_groups_of_words(groups, channels, columns, lanes_, word_);
    return merged == 0 ? std::nullopt : std::optional(Groups{groups, merged});
  }

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
    replace(last, taken, requantized(e, a), e.back);
  }

  // In the form that the kernel of the product writes, which it becomes a part of: groups apart, and whole vectors of columns, of which those
  // that are filled up are left out behind it.
  ValueId requantized(const Epilogue& e, const Attributes& a) {
    const int64_t columns = last_dim(e.sums);
    const ValueId whole = input_of(e.sums, "Slice"), apart = input_of(whole, "Reshape");
    const int64_t missing = last_dim(whole) - columns;
    std::vector<ValueId> inputs{apart, e.offset, e.scale, e.bias};
    for (size_t i = 1; i < inputs.size(); ++i) {
      if (rank(inputs[i]) == 0 || last_dim(inputs[i]) != columns) continue;
      if (missing > 0) inputs[i] = filled_up(inputs[i], rank(inputs[i]) - 1, missing);
      if (apart != whole) {
        std::vector<int64_t> dims = static_shape(type(inputs[i]).shape);
        dims.back() = last_dim(apart);
        dims.insert(dims.end() - 1, last_dim(whole) / last_dim(apart));
        inputs[i] = reshaped(inputs[i], dims);
      }
    }
    ValueId made = make_own("Requantize", inputs, a);
    if (apart != whole) made = graph::reshaped(g_, name_, made, type(whole).shape);
    return missing > 0 ? first_columns(g_, name_, made, columns) : made;
  }

  // What the value is made of by such an operator, or the value.
  ValueId input_of(ValueId v, std::string_view op) const {
    const NodeId maker = g_.value(v).producer;
    return maker >= 0 && is_op(g_.node(maker), op) ? g_.node(maker).inputs[0] : v;
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
    std::optional<Quantized> x = dequantized(node.inputs[0], -1);
    std::optional<int64_t> zero = x ? whole_zero(x->zero) : std::nullopt;
    std::optional<Quantized> w = zero ? dequantized(node.inputs[1], lines) : std::nullopt;
    if (!w || rank(x->value) < 2 || rank(w->value) != 2) return;
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
    std::optional<Quantized> x = dequantized(node.inputs[0], -1);
    std::optional<int64_t> zero = x ? whole_zero(x->zero) : std::nullopt;
    std::optional<Quantized> w = zero ? dequantized(node.inputs[1], 0) : std::nullopt;
    if (!w || !is_convolution(node, x->value, w->value) || is_faster_in_f32(node)) return;
    Epilogue e;
    if (!convolution(node, x->value, Zero{*zero}, w->value, w->zero, 0, &e)) return;
    e.scale = make("Mul", {x->scale, w->scale});
    e.bias = input(node, 2);
    finish(id, e);
  }

  // Products of bytes that are widened are not twice as fast as those of f32, Winograd's algorithm multiplies less than half as often.
  bool is_faster_in_f32(const Node& node) const {
    if (strict_ || !tensor::takes_bytes_apart(t_)) return false;
    const std::optional<ConvProblem> problem = conv_problem(g_, node);
    constexpr int64_t kF32Bytes = 4;
    return problem && best_algorithm(conv_algorithms(*problem, t_, weight_elements_ * kF32Bytes)) != 0;
  }

  // Of a convolution's weights, if zeros fill up some; else 0.
  int64_t words_of(const Node& node, ValueId w) const {
    constexpr int64_t kFewPlaces = 16;  // what is read, not what is multiplied, takes the time
    const std::vector<int64_t> dims = static_shape(type(w).shape);
    const int64_t words = (dims[1] + word_ - 1) / word_;
    if (on_gpu_ || node.attributes.integer("group", 1) > 1 || rows_of(node, dims[0]) < kFewPlaces) return 0;
    const std::vector<int64_t> kernel(dims.begin() + 2, dims.end());
    const int64_t filled = filled_words(
        words, kernel, node.attributes.integers("dilations", std::vector<int64_t>(kernel.size(), 1)), left_,
        t_);
    return filled > words ? filled : 0;
  }

  // Of weights [N, C, 1...].
  bool is_pointwise(ValueId w) const {
    const std::vector<int64_t> dims = static_shape(type(w).shape);
    return std::all_of(dims.begin() + 2, dims.end(), [](int64_t extent) { return extent == 1; });
  }

  // The zero point of a convolution's activations: known now, or a value of one element.
  struct Zero {
    int64_t known = 0;
    ValueId later = kNoValue;
  };

  // added: the largest number that sums may be added to, if they may be whole numbers of f32.
  bool convolution(const Node& node, ValueId x, Zero zero, ValueId w, ValueId w_zero,
                   std::optional<int64_t> added, Epilogue* e) {
    name_ = node.name;
    if (is_depthwise(node, x, w)) return depthwise(node, x, zero, w, w_zero, added, e);
    const int64_t rows = is_pointwise(w) ? rows_of(node, static_shape(type(w).shape)[0]) : 0;
    const std::optional<Groups> groups = groups_of(node, x, w);
    std::optional<Weights> made =
        groups ? weights(w, taps_first(rank(w)), w_zero, rows, *groups, words_of(node, w)) : std::nullopt;
    if (!made) return false;
    ValueId a = activations(x, channels_last(rank(x)), &zero.known);
    // What is not known now cannot stand around the input: 0 does, which adds nothing.
    const int64_t around = zero.later == kNoValue ? zero.known : 0;
    const Attributes window = window_attributes(node, x, w, around);
    // A group's channels are no neighbours of those of the next place.
    const int64_t count = groups->after();
    Attributes joined = count > 1 ? window : join_row(w, window, &*made);
    if (count > 1) joined.set("group", count);
    auto sums_over = [&](ValueId bytes) {
      ValueId sums = product("ConvBytes", bytes, *made, joined);
      if (count > 1) return joined_groups(sums, static_shape(type(w).shape)[0]);
      return made->zero == kNoValue ? sums : less_zero(sums, window_sums(bytes, w, window, around), *made);
    };
    // What follows a product is computed tile by tile if all else that it reads is there before.
    e->offset = zero.later == kNoValue ? offset(*made, zero.known)
                                       : later_offset(zero, has_padding(window) ? sums_over(ones_like(a)) : made->sums);
    e->sums = sums_over(a);
    e->back = channels_first(rank(x));
    return true;
  }

  // [B, D..., groups, columns] as [B, D..., N], without columns that are filled up.
  ValueId joined_groups(ValueId sums, int64_t columns) {
    Shape shape = type(sums).shape;
    const int64_t whole = *static_dim(shape.back()) * *static_dim(shape[shape.size() - 2]);
    shape.pop_back();
    shape.back() = Expr(whole);
    const ValueId joined = graph::reshaped(g_, name_, sums, shape);
    return whole == columns ? joined : first_columns(g_, name_, joined, columns);
  }

  // The window's attributes, once the taps of a row and the words of channels are one axis of the packed weights, if they should be.
  Attributes join_row(ValueId w, Attributes window, Weights* packed) {
    std::vector<int64_t> kernel = static_shape(type(w).shape), dims = static_shape(type(packed->packed).shape);
    kernel.erase(kernel.begin(), kernel.begin() + 2);
    const size_t words = kernel.size() + 1;
    if (on_gpu_ || !joins_row(dims[words], kernel, window.integers("dilations"), left_, t_)) return window;
    dims[words - 1] *= dims[words];
    dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(words));
    packed->packed = reshaped(packed->packed, dims);
    window.set("kernel", kernel);
    return window;
  }

  static bool has_padding(const Attributes& window) {
    const std::vector<int64_t> pads = window.integers("pads", {});
    return std::any_of(pads.begin(), pads.end(), [](int64_t pad) { return pad != 0; });
  }
  // One item of activations with their channels last, all 1: its sums are those of the weights inside of each window.
  ValueId ones_like(ValueId a) {
    Shape item = type(a).shape;
    item[0] = 1;
    const std::vector<int64_t> shape = static_shape(item);
    const auto count = static_cast<size_t>(static_count(item));
    const ElementType element = type(a).element;
    return g_.add_constant(name_ + ".ones",
                           byte_size(element) == 1
                               ? Constant::of(element, shape, std::vector<uint8_t>(count, 1))
                               : Constant::of(element, shape, std::vector<int16_t>(count, 1)));
  }
  // -zero * sums of weights.
  ValueId later_offset(const Zero& zero, ValueId sums) {
    ValueId all = make("Add", {reshaped(converted(zero.later, kOnnxI32), {1}), number(ElementType::i32, static_cast<double>(zero.known))});
    return make("Mul", {sums, make("Neg", {all})});
  }

  // Vectors of f32 multiply and add in one instruction, those of i32 do not.
  bool sums_in_floats(ValueId w, const Zero& zero, std::optional<int64_t> added) const {
    constexpr int64_t kWhole = int64_t{1} << 24, kLargest = 255 * 255;
    if (on_gpu_ || !added || zero.later != kNoValue || rank(w) != 4) return false;
    // Products, those that zero points add, and what is added.
    return 2 * kLargest * static_count(type(w).shape) / static_shape(type(w).shape)[0] + *added < kWhole;
  }

  bool depthwise(const Node& node, ValueId x, Zero zero, ValueId w, ValueId w_zero,
                 std::optional<int64_t> added, Epilogue* e) {
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
    const Attributes window = window_attributes(node, x, w, zero.later == kNoValue ? zero.known : 0);
    const bool in_floats = sums_in_floats(w, zero, added);
    auto sums_over = [&](ValueId bytes) {
      return make_own("DepthwiseBytes", {bytes, converted(wide, in_floats ? kOnnxF32 : kOnnxI16)}, window);
    };
    e->offset = zero.later == kNoValue
                    ? make("Mul", {sum_over(wide, taps, false), number(ElementType::i32, static_cast<double>(-zero.known))})
                    : later_offset(zero, has_padding(window) ? sums_over(ones_like(a)) : sum_over(wide, taps, false));
    if (in_floats) e->offset = converted(e->offset, kOnnxF32);
    e->sums = sums_over(a);
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
    replace(id, {}, integer_product(x, x_zero, *w), {});
  }

  void integer_convolution(NodeId id) {
    const Node node = g_.node(id);
    const ValueId x_zero = input(node, 2);
    const std::optional<int64_t> known = whole_zero(x_zero);
    if (!known && (!is_static(type(x_zero).shape) || static_count(type(x_zero).shape) != 1)) return;
    const ValueId x = node.inputs[0], w = node.inputs[1];
    if (!is_convolution(node, x, w)) return;
    // What padding adds is told by a product with ones (ones_like).
    if (!known && has_padding(window_attributes(node, x, w, 0)) &&
        !is_static({type(x).shape.begin() + 1, type(x).shape.end()}))
      return;
    Epilogue e;
    if (!convolution(node, x, known ? Zero{*known} : Zero{0, x_zero}, w, input(node, 3), std::nullopt, &e))
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
    e.bias = number(ElementType::f32, 0);
    replace(id, {}, requantized(e, a), e.back);
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

  // The largest magnitude of a constant of integers; 0 where there is none, nothing where it is not known.
  std::optional<int64_t> largest(ValueId v) const {
    if (v == kNoValue) return 0;
    const Constant* c = constant(v);
    if (!c) return std::nullopt;
    int64_t most = 0;
    for (int64_t i = 0; i < c->count(); ++i)
      most = std::max(most, std::abs(c->int_at(i)));
    return most;
  }

  void requantized_convolution(NodeId id) {
    const Node node = g_.node(id);
    Epilogue e;
    if (!is_requantizable(node) || !is_convolution(node, node.inputs[0], node.inputs[3]) ||
        !convolution(node, node.inputs[0], Zero{*whole_zero(node.inputs[2])}, node.inputs[3], node.inputs[5],
                     largest(input(node, 8)), &e))
      return;
    if (const ValueId bias = input(node, 8); bias != kNoValue) {
      const bool in_floats = is_float(type(e.offset).element);
      e.offset = make("Add", {e.offset, in_floats ? converted(bias, kOnnxF32) : bias});
    }
    requantize(id, e);
  }

  const std::vector<std::vector<NodeId>> users_;
  const bool strict_;
  const int64_t weight_elements_;
};

}  // namespace

void use_byte_products(Graph& graph, const tensor::Target& target, bool strict) {
  if (!tensor::dot_instruction(target, tensor::left_of_bytes(target))) return;
  UseByteProducts(graph, target, strict).run();
  if (target.kind == tensor::TargetKind::cpu) use_byte_layers(graph, target);
}

}  // namespace mcc::graph
