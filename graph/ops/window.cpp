#include "graph/ops/window.h"

#include <algorithm>

#include "tensor/simplify.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

// Padding such that ceil(extent / stride) windows cover the input; an odd element goes to the end, or to the begin.
void pad_same(Window& w, size_t k, int64_t extent, bool extra_at_end) {
  int64_t count = (extent + w.stride[k] - 1) / w.stride[k];
  int64_t total = std::max<int64_t>((count - 1) * w.stride[k] + w.reach(k) - extent, 0);
  w.begin[k] = extra_at_end ? total / 2 : total - total / 2;
  w.end[k] = total - w.begin[k];
}

}  // namespace

Window window_of(const Attributes& a, const std::vector<int64_t>& kernel, const Shape& spatial) {
  size_t rank = kernel.size();
  std::vector<int64_t> ones(rank, 1), zeros(rank, 0);
  Window w{kernel, a.integers("strides", ones), a.integers("dilations", ones), zeros, zeros};
  std::string auto_pad = a.text("auto_pad", "NOTSET");
  if (auto_pad == "NOTSET" || auto_pad.empty()) {
    std::vector<int64_t> pads = a.integers("pads", std::vector<int64_t>(2 * rank, 0));
    auto middle = pads.begin() + static_cast<std::ptrdiff_t>(pads.size() / 2);
    w.begin.assign(pads.begin(), middle);
    w.end.assign(middle, pads.end());
  } else if (auto_pad != "VALID") {
    for (size_t k = 0; k < rank; ++k) {
      // With a stride of 1 it is the same for all extents.
      const std::optional<int64_t> extent = w.stride[k] == 1 ? 1 : static_dim(spatial[k]);
      if (extent) pad_same(w, k, *extent, auto_pad == "SAME_UPPER");
    }
  }
  return w;
}

std::optional<Window> checked_window(InferContext& c, const std::vector<int64_t>& kernel,
                                     const Shape& spatial) {
  const Attributes& a = c.attributes();
  auto lengths_fit = [&](const std::string& name, size_t n) {
    return !a.has(name) || expect(c, a.integers(name).size() == n, name, ": expected ", n, " numbers, got ",
                                  list_text(a.integers(name)));
  };
  size_t rank = spatial.size();
  if (!expect(c, kernel.size() == rank, "kernel_shape: expected ", rank, " numbers, got ",
              list_text(kernel)) ||
      !lengths_fit("strides", rank) || !lengths_fit("dilations", rank) || !lengths_fit("pads", 2 * rank)) {
    return std::nullopt;
  }
  std::string auto_pad = a.text("auto_pad", "NOTSET");
  bool is_same = auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER";
  if (!expect(c, is_same || auto_pad == "NOTSET" || auto_pad == "VALID" || auto_pad.empty(),
              "auto_pad: expected NOTSET, SAME_UPPER, SAME_LOWER or VALID, got ", auto_pad)) {
    return std::nullopt;
  }
  constexpr int64_t limit = int64_t{1} << 31;  // keeps the arithmetic on windows far from overflow
  auto in_range = [&](const std::vector<int64_t>& values, int64_t low, const char* what) {
    return std::all_of(values.begin(), values.end(), [&](int64_t v) {
      return expect(c, v >= low && v < limit, what, ": ", v, " is out of range");
    });
  };
  if (!in_range(kernel, 1, "kernel_shape") || !in_range(a.integers("strides"), 1, "strides") ||
      !in_range(a.integers("dilations"), 1, "dilations") || !in_range(a.integers("pads"), 0, "pads")) {
    return std::nullopt;
  }
  const std::vector<int64_t> strides = a.integers("strides", std::vector<int64_t>(spatial.size(), 1));
  for (size_t k = 0; k < spatial.size(); ++k) {
    const bool follows = !is_same || strides[k] == 1;
    if (!follows && !need_static_dim(c, spatial[k], "with auto_pad and a stride, a spatial dimension")) return std::nullopt;
  }
  return window_of(a, kernel, spatial);
}

Expr window_count(const Window& w, size_t k, const Expr& extent) {
  return tensor::simplify(tensor::floor_div(extent + (w.begin[k] + w.end[k] - w.reach(k)), w.stride[k]) + 1);
}

std::optional<Shape> window_counts(InferContext& c, const Window& w, const Shape& spatial, bool ceil_mode) {
  Shape counts;
  for (size_t k = 0; k < w.rank(); ++k) {
    Expr room = tensor::simplify(spatial[k] + (w.begin[k] + w.end[k] - w.reach(k)));
    if (auto r = static_dim(room)) {
      // In ceil mode one window may run over the end, however far.
      const bool fits = *r >= 0 || (ceil_mode && *r > -w.stride[k]);
      if (!expect(c, fits, "a window of ", w.reach(k), " does not fit into a padded dimension of ",
                  *r + w.reach(k))) {
        return std::nullopt;
      }
    }
    if (!ceil_mode) {
      counts.push_back(window_count(w, k, spatial[k]));
      continue;
    }
    Expr count = tensor::ceil_div(room, w.stride[k]) + 1;
    // The last window must not begin in the end padding.
    Expr starts_late = (count - 1) * w.stride[k] >= spatial[k] + w.begin[k];
    counts.push_back(tensor::simplify(select(starts_late, count - 1, count)));
  }
  return counts;
}

Padded pad_input(ComputeContext& c, int input, const Window& w, const Shape& counts, const Expr& value, PadShape how) {
  const TensorType& type = c.input_type(input);
  Padded result{{}, input};
  Shape shape = type.shape;
  std::vector<bool> runs_over(w.rank());
  bool needed = false;
  for (size_t k = 0; k < w.rank(); ++k) {
    Expr length = tensor::simplify((counts[k] - 1) * w.stride[k] + w.reach(k));
    const size_t axis = how.first + k;
    Expr beyond = tensor::simplify(length - (type.shape[axis] + w.begin[k]));
    auto excess = static_dim(beyond);
    // As many windows as fit end inside, whatever the extent.
    const bool fits = w.end[k] == 0 && tensor::structurally_equal(counts[k], window_count(w, k, type.shape[axis]));
    runs_over[k] = excess ? *excess > 0 : !fits;
    if (w.begin[k] == 0 && !runs_over[k]) continue;
    needed = true;
    shape[axis] = length;
  }
  const Expr multiple = how.last_multiple;
  const bool fills_last =
      how.last_multiple > 1 && !tensor::is_int(tensor::simplify(tensor::floor_mod(type.shape.back(), multiple)), 0);
  if (fills_last) shape.back() = tensor::simplify(tensor::ceil_div(shape.back(), multiple) * multiple);
  if (!needed && !fills_last) return result;
  const ElementType element = how.element.value_or(type.element);
  result.buffer = c.builder.compute("pad", element, shape, [&](Axes i) {
    std::vector<Expr> index = to_vector(i);
    Expr inside = fills_last ? index.back() < type.shape.back() : tensor::true_value();
    for (size_t k = 0; k < w.rank(); ++k) {
      Expr& at = index[how.first + k];
      at = at - w.begin[k];
      if (w.begin[k] > 0) inside = inside && at >= 0;
      if (runs_over[k]) inside = inside && at < type.shape[how.first + k];
    }
    return select(inside, cast(element, c.at(input, index)), cast(element, value));
  });
  return result;
}

Expr Padded::element(const ComputeContext& c, const std::vector<Expr>& at) const {
  return buffer.defined() ? load(buffer, at) : c.at(input, at);
}

std::vector<Expr> window_index(const Window& w, std::vector<Expr> at, Axes tap, size_t first) {
  for (size_t k = 0; k < w.rank(); ++k)
    at[first + k] = at[first + k] * w.stride[k] + tap[k] * w.dilation[k];
  return at;
}

Expr tap_count(const Window& w, size_t k, const Expr& extent, const Expr& count, const Expr& o, bool include_pad) {
  const bool from_begin = include_pad || w.begin[k] == 0;
  const auto beyond = static_dim(tensor::simplify((count - 1) * w.stride[k] - w.begin[k] + w.reach(k) - extent));
  if (from_begin && beyond && *beyond <= (include_pad ? w.end[k] : 0)) return w.kernel[k];
  Expr start = o * w.stride[k] - w.begin[k];
  Expr high = include_pad ? extent + w.end[k] : extent;
  Expr last = tensor::min(tensor::floor_div(high - 1 - start, w.dilation[k]), w.kernel[k] - 1);
  if (from_begin) return last + 1;
  return last + 1 - tensor::max(tensor::ceil_div(-start, w.dilation[k]), 0);
}

}  // namespace mcc::graph
