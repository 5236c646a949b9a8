#include "tools/measure/check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tensor/numeric.h"
#include "tensor/visit.h"

namespace mcc::tools {

using namespace tensor;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Half a unit in the last place of 1.
double epsilon(ElementType element) {
  if (element == ElementType::f64) return 0x1p-53;
  if (element == ElementType::f32) return 0x1p-24;
  return std::ldexp(1.0, -1 - float_format(element).fraction_bits);
}

double element_at(ElementType element, const std::byte* at) {
  if (element == ElementType::f32) {
    float value;
    std::memcpy(&value, at, sizeof value);
    return static_cast<double>(value);
  }
  uint64_t bits = 0;
  std::memcpy(&bits, at, static_cast<size_t>(byte_size(element)));
  if (is_float(element)) return float_from_bits(element, bits);
  return static_cast<double>(wrap_int(element, static_cast<int64_t>(bits)));
}

// Steps of reductions that one element goes through, and the narrowest float on the way.
struct Depth {
  double steps = 1;
  double epsilon = 0;
};

Depth depth_of(const Func& f) {
  Depth depth;
  for_each_stmt(f.body, [&](const Stmt& s) {
    if (const auto* block = s.as<Block>()) {
      double steps = 1;
      for (const Axis& axis : block->axes) {
        int64_t extent = 0;
        if (axis.kind != AxisKind::spatial && as_int(axis.domain.extent, &extent))
          steps *= static_cast<double>(extent);
      }
      depth.steps += steps;
    } else if (const auto* store = s.as<Store>()) {
      const ElementType element = store->buffer.element();
      if (is_float(element)) depth.epsilon = std::max(depth.epsilon, epsilon(element));
    }
  });
  return depth;
}

double largest_finite(ElementType element, std::span<const std::byte> values) {
  const auto width = static_cast<size_t>(byte_size(element));
  double result = 0;
  for (size_t at = 0; at + width <= values.size(); at += width) {
    const double x = std::fabs(element_at(element, values.data() + at));
    if (x > result && x < kInfinity) result = x;
  }
  return result;
}

struct Mismatches {
  int64_t count = 0, first = -1;
  double max_error = 0;  // absolute; infinity where one of the two is not finite
};

void compare_floats(ElementType element, std::span<const std::byte> got, std::span<const std::byte> want,
                    double allowed, std::span<const char> only, Mismatches& found) {
  const auto width = static_cast<size_t>(byte_size(element));
  for (size_t i = 0, n = got.size() / width; i < n; ++i) {
    if (!only.empty() && !only[i]) continue;
    const double g = element_at(element, got.data() + i * width),
                 w = element_at(element, want.data() + i * width);
    double error = std::fabs(g - w);
    if (error <= allowed) {
      found.max_error = std::max(found.max_error, error);
      continue;
    }
    if ((std::isnan(g) && std::isnan(w)) || g == w) continue;
    if (std::isnan(error)) error = kInfinity;
    found.max_error = std::max(found.max_error, error);
    if (found.count++ == 0) found.first = static_cast<int64_t>(i);
  }
}

// Almost all elements are equal: only others are decoded. Counts those that differ by more than one apart.
int64_t compare_integers(ElementType element, std::span<const std::byte> got, std::span<const std::byte> want,
                         bool may_be_rounded, std::span<const char> only, Mismatches& found) {
  const auto width = static_cast<size_t>(byte_size(element));
  int64_t near = 0;
  for (size_t i = 0, n = got.size() / width; i < n; ++i) {
    if (!only.empty() && !only[i]) continue;
    const std::byte* a = got.data() + i * width;
    const std::byte* b = want.data() + i * width;
    if (std::memcmp(a, b, width) == 0) continue;
    const double error = std::fabs(element_at(element, a) - element_at(element, b));
    found.max_error = std::max(found.max_error, error);
    // bool: any byte that is not 0 is true.
    if (error == 0) continue;
    if (error <= 1 && may_be_rounded) {
      ++near;
      continue;
    }
    if (found.count++ == 0) found.first = static_cast<int64_t>(i);
  }
  return near;
}

std::string number_text(double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.7g", value);
  return buffer;
}

}  // namespace

OutputTolerance tolerance_of(const Func& f, const Buffer& output) {
  const Depth depth = depth_of(f);
  OutputTolerance tolerance;
  tolerance.is_rounded = !is_float(output.element()) && depth.epsilon > 0;
  if (!is_float(output.element())) return tolerance;
  // Winograd's bound for f32; wider formats keep to their own rounding.
  const double floor = depth.epsilon > 0x1p-50 ? 1e-4 : 1e-12;
  tolerance.relative = std::min(0.1, std::max(floor, 16 * depth.epsilon * std::sqrt(depth.steps)));
  return tolerance;
}

OutputCheck check_output(ElementType element, std::span<const std::byte> got, std::span<const std::byte> want,
                         const OutputTolerance& tolerance, std::span<const char> only) {
  MCC_CHECK(got.size() == want.size(), "outputs of ", got.size(), " and ", want.size(), " bytes");
  OutputCheck check;
  Mismatches found;
  if (is_float(element)) {
    const double allowed = tolerance.relative * std::max(largest_finite(element, want), 1e-30);
    compare_floats(element, got, want, allowed, only, found);
    check.max_error = found.max_error / allowed;
  } else {
    const int64_t near = compare_integers(element, got, want, tolerance.is_rounded, only, found);
    const auto elements = static_cast<int64_t>(got.size()) / byte_size(element);
    if (near > elements / 100 + 1 && found.count == 0) {
      found.count = near;
      check.message = text(near, " of ", elements, " elements are off by one");
    }
    check.max_error = found.max_error;
  }
  check.ok = found.count == 0;
  if (!check.ok && check.message.empty()) {
    const auto at = static_cast<size_t>(found.first * byte_size(element));
    check.message = text(found.count, " elements differ, first at ", found.first, ": ",
                         number_text(element_at(element, got.data() + at)), ", expected ",
                         number_text(element_at(element, want.data() + at)), "; largest error ",
                         number_text(check.max_error), " times what rounding explains");
  }
  return check;
}

double share_not_finite(ElementType element, std::span<const std::byte> values) {
  if (!is_float(element) || values.empty()) return 0;
  const auto width = static_cast<size_t>(byte_size(element));
  size_t bad = 0;
  for (size_t at = 0; at + width <= values.size(); at += width)
    bad += std::isfinite(element_at(element, values.data() + at)) ? 0 : 1;
  return static_cast<double>(bad) / static_cast<double>(values.size() / width);
}

}  // namespace mcc::tools
