// Discrete Fourier transforms of known length as products with a constant matrix, which run at a matrix product's speed:
//   rows: terms, real and imaginary parts beside one another; columns: results, likewise
// The window of a short-time transform and the scale of an inverse one go into the matrix.
#include <algorithm>
#include <cmath>

#include "graph/ops/fourier.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace mcc::graph {
namespace {

using Ints = std::vector<int64_t>;

// Beyond this the matrix costs more to fetch and to store than a product with it saves.
constexpr int64_t kMostMatrixBytes = int64_t{32} << 20;

int64_t product(const Ints& dims) {
  int64_t count = 1;
  for (int64_t d : dims)
    count *= d;
  return count;
}

class ExpandFourier {
 public:
  explicit ExpandFourier(Graph& g) : g_(g) {}

  void run() {
    const size_t count = g_.nodes.size();
    for (size_t n = 0; n < count; ++n) {
      const auto id = static_cast<NodeId>(n);
      const bool is_short = is_op(g_.node(id), "STFT");
      if (!is_short && !is_op(g_.node(id), "DFT")) continue;
      const Node node = g_.node(id);
      const Shape& shape = g_.value(node.inputs[0]).type.shape;
      if (g_.value(node.inputs[0]).type.element != ElementType::f32) continue;
      name_ = node.name;
      const ValueId y = is_short ? short_time(node, shape) : whole(node, shape);
      if (y == kNoValue) continue;
      g_.node(g_.value(y).producer).origins = node.origins;
      take_place(g_, node.outputs[0], y);
      g_.node(id).dead = true;
    }
    eliminate_dead_code(g_);
  }

 private:
  std::optional<Constant> constant(const Node& node, size_t input) const {
    if (input >= node.inputs.size() || node.inputs[input] == kNoValue) return std::nullopt;
    return g_.value(node.inputs[input]).constant;
  }
  ValueId ints(const char* what, const Ints& values) { return g_.add_constant(name_ + what, Constant::ints(values)); }
  ValueId reshape(ValueId x, const Ints& dims) { return emit(g_, "", "Reshape", name_, {x, ints(".shape", dims)}); }
  ValueId transpose(ValueId x, const Ints& perm) {
    Attributes a;
    a.set("perm", perm);
    return emit(g_, "", "Transpose", name_, {x}, a);
  }

  // x, taken for a tensor of the shape [..., terms, parts], times the matrix: [..., results, parts].
  ValueId multiply(ValueId x, const Shape& shape, const Transform& t, int64_t extent,
                   const std::optional<Constant>& window) {
    const int64_t in = t.complex_input ? 2 : 1, out = t.complex_output ? 2 : 1, from = extent * in,
                  to = t.results * out;
    // The dimensions in front are one where they are known; those that are not are taken as they are.
    Ints rows(shape.size() - 2, 0), result = rows;
    if (is_static(shape)) {
      result = static_shape(Shape(shape.begin(), shape.end() - 2));
      rows = {product(result)};
    }
    rows.push_back(from);
    result.insert(result.end(), {t.results, out});
    x = reshape(x, rows);
    const ValueId w = g_.add_constant(name_ + ".roots", Constant::of(ElementType::f32, {from, to}, matrix(t, extent, window)));
    return reshape(emit(g_, "", "MatMul", name_, {x, w}), result);
  }

  static bool is_empty(const Shape& shape) {
    return std::any_of(shape.begin(), shape.end(), [](const Expr& d) { return tensor::is_int(d, 0); });
  }

  static bool is_small(const Transform& t, int64_t extent) {
    const double parts = (t.complex_input ? 2.0 : 1.0) * (t.complex_output ? 2.0 : 1.0);
    return parts * static_cast<double>(extent) * static_cast<double>(t.results) * 4 <= kMostMatrixBytes;
  }

  static std::vector<float> matrix(const Transform& t, int64_t extent, const std::optional<Constant>& window) {
    const auto in = static_cast<size_t>(t.complex_input ? 2 : 1), out = static_cast<size_t>(t.complex_output ? 2 : 1);
    const size_t columns = static_cast<size_t>(t.results) * out;
    std::vector<float> w(static_cast<size_t>(extent) * in * columns);
    for (int64_t n = 0; n < t.terms; ++n) {
      double scale = window ? window->number_at(n) : 1;
      if (t.inverse) scale /= static_cast<double>(t.length);
      // A term between the ends of half a spectrum stands for its mirror image, too.
      if (t.from_half && n != 0 && 2 * n != t.length) scale *= 2;
      for (int64_t k = 0; k < t.results; ++k) {
        const double angle = 2 * M_PI * static_cast<double>(n * k % t.length) / static_cast<double>(t.length);
        const double real = scale * std::cos(angle), imaginary = scale * std::sin(angle) * (t.inverse ? 1 : -1);
        float* at = &w[static_cast<size_t>(n) * in * columns + static_cast<size_t>(k) * out];
        at[0] = static_cast<float>(real);
        if (out == 2) at[1] = static_cast<float>(imaginary);
        if (in == 1) continue;
        at[columns] = static_cast<float>(-imaginary);
        if (out == 2) at[columns + 1] = static_cast<float>(real);
      }
    }
    return w;
  }

  // [..., terms, ..., parts] -> [..., results, ..., parts]
  ValueId whole(const Node& node, const Shape& shape) {
    const auto rank = static_cast<int64_t>(shape.size());
    if ((node.inputs.size() > 1 && node.inputs[1] != kNoValue && !constant(node, 1)) ||
        (node.inputs.size() > 2 && node.inputs[2] != kNoValue && !constant(node, 2))) {
      return kNoValue;
    }
    const std::optional<Constant> given = constant(node, 1), chosen = constant(node, 2);
    int64_t axis = chosen ? chosen->int_at(0) : node.attributes.integer("axis", -2);
    if (axis < 0) axis += rank;
    const int64_t extent = static_shape({shape[static_cast<size_t>(axis)]})[0];
    const Transform t = dft_of(node.attributes, extent, static_shape({shape.back()})[0],
                               given ? std::optional(given->int_at(0)) : std::nullopt);
    if (!is_small(t, extent) || is_empty(shape)) return kNoValue;
    // The axis before the parts.
    Ints there, back(shape.size());
    for (int64_t d = 0; d < rank; ++d) {
      if (d != axis && d != rank - 1) there.push_back(d);
    }
    there.insert(there.end(), {axis, rank - 1});
    for (size_t d = 0; d < there.size(); ++d)
      back[static_cast<size_t>(there[d])] = static_cast<int64_t>(d);
    const bool moves = axis != rank - 2;
    ValueId x = moves ? transpose(node.inputs[0], there) : node.inputs[0];
    x = multiply(x, Shape(g_.value(x).type.shape), t, extent, std::nullopt);
    return moves ? transpose(x, back) : x;
  }

  // [batch, time(, parts)] -> [batch, frames, results, 2]
  ValueId short_time(const Node& node, const Shape& shape) {
    const std::optional<Constant> window = constant(node, 2);
    const bool has_window = node.inputs.size() > 2 && node.inputs[2] != kNoValue;
    const Shape& out = g_.value(node.outputs[0]).type.shape;
    Transform t;
    t.length = has_window ? static_shape(g_.value(node.inputs[2]).type.shape)[0] : constant(node, 3)->int_at(0);
    t.terms = t.length;
    t.results = static_shape({out[2]})[0];
    t.complex_input = shape.size() == 3 && tensor::is_int(shape[2], 2);
    if ((has_window && !window) || !is_small(t, t.length) || is_empty(out)) return kNoValue;
    const int64_t step = constant(node, 1)->int_at(0);
    if (!is_static(shape)) return convolve(node.inputs[0], t, step, window);
    const Ints dims = static_shape(out);
    Ints at;
    for (int64_t frame = 0; frame < dims[1]; ++frame) {
      for (int64_t n = 0; n < t.length; ++n)
        at.push_back(frame * step + n);
    }
    Attributes along_time;
    along_time.set("axis", int64_t{1});
    const ValueId indices =
        g_.add_constant(name_ + ".frames", Constant::of(ElementType::i64, {dims[1], t.length}, at));
    const ValueId frames = emit(g_, "", "Gather", name_, {node.inputs[0], indices}, along_time);
    return multiply(frames, {dims[0], dims[1], t.length, t.complex_input ? 2 : 1}, t, t.length, window);
  }

  // Of a signal of any length: the parts of each frequency are channels of a convolution whose stride is the step.
  ValueId convolve(ValueId x, const Transform& t, int64_t step, const std::optional<Constant>& window) {
    const int64_t in = t.complex_input ? 2 : 1;
    const std::vector<float> roots = matrix(t, t.length, window);
    const int64_t channels = 2 * t.results;
    std::vector<float> weights(roots.size());
    for (int64_t n = 0; n < t.length; ++n)
      for (int64_t part = 0; part < in; ++part)
        for (int64_t k = 0; k < channels; ++k)
          weights[static_cast<size_t>((k * in + part) * t.length + n)] =
              roots[static_cast<size_t>((n * in + part) * channels + k)];
    x = in == 2 ? transpose(x, {0, 2, 1})
                : emit(g_, "", "Unsqueeze", name_, {reshape(x, {0, -1}), ints(".axes", {1})});
    const ValueId w =
        g_.add_constant(name_ + ".roots", Constant::of(ElementType::f32, {channels, in, t.length}, weights));
    Attributes a;
    a.set("strides", Ints{step});
    x = emit(g_, "", "Conv", name_, {x, w}, a);
    return transpose(reshape(x, {0, t.results, 2, -1}), {0, 3, 1, 2});
  }

  Graph& g_;
  std::string name_;
};

}  // namespace

void expand_fourier(Graph& graph) { ExpandFourier(graph).run(); }

}  // namespace mcc::graph
