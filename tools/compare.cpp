#include "tools/compare.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "support/random_bits.h"
#include "tensor/numeric.h"
#include "tools/console.h"

namespace mcc::tools {

namespace {

using graph::Constant;

// Row-major position -> "[1, 0, 3]".
std::string position_text(int64_t position, const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    index[d] = position % shape[d];
    position /= shape[d];
  }
  return list_text(index);
}

double difference(double got, double want) {
  if (std::isnan(got) && std::isnan(want)) return 0;
  if (got == want) return 0;
  const double error = std::fabs(got - want);
  return std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
}

std::string number_text(double value) {
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.6g", value);
  return buffer;
}

// The text as it would be written, on one line.
std::string quoted(const std::string& string) {
  constexpr size_t kMost = 60;
  return text("'", printable(string.substr(0, kMost)), string.size() > kMost ? "..." : "", "'");
}

// Of the same shape.
Comparison compare_strings(const Constant& got, const Constant& want) {
  Comparison result;
  for (int64_t i = 0; i < got.count(); ++i)
    if (got.string_at(i) != want.string_at(i) && result.mismatches++ == 0) result.first = i;
  result.same = result.mismatches == 0;
  if (!result.same) {
    result.reason = text(result.mismatches, " of ", got.count(), " strings differ, first at ",
                         position_text(result.first, got.shape()), ": ", quoted(got.string_at(result.first)),
                         ", expected ", quoted(want.string_at(result.first)));
  }
  return result;
}

struct Generator : SplitMix {
  double uniform() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; }
  // Box and Muller's transform.
  double normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return radius * std::cos(6.283185307179586 * uniform());
  }
};

}  // namespace

Comparison compare(const Constant& got, const Constant& want, const Tolerance& tolerance) {
  Comparison result;
  if (got.element() != want.element()) {
    result.reason = text("element type ", to_text(got.element()), ", expected ", to_text(want.element()));
    return result;
  }
  if (got.shape() != want.shape()) {
    result.reason = text("shape ", list_text(got.shape()), ", expected ", list_text(want.shape()));
    return result;
  }
  if (got.element() == ElementType::string) return compare_strings(got, want);
  const bool floating = is_float(got.element());
  for (int64_t i = 0; i < got.count(); ++i) {
    const double g = got.number_at(i), w = want.number_at(i);
    const double error = difference(g, w);
    const bool near = std::isfinite(error) && error <= tolerance.atol + tolerance.rtol * std::fabs(w);
    const bool equal =
        floating ? error == 0 || near : got.int_at(i) == want.int_at(i) || error <= tolerance.steps;
    result.max_error = std::max(result.max_error, error);
    if (equal) continue;
    if (result.mismatches++ == 0) result.first = i;
  }
  result.same = result.mismatches == 0;
  if (!result.same) {
    result.reason = text(
        result.mismatches, " of ", got.count(), " elements differ, max abs error ",
        number_text(result.max_error), ", first at ", position_text(result.first, got.shape()), ": ",
        number_text(got.number_at(result.first)), ", expected ", number_text(want.number_at(result.first)));
  }
  return result;
}

double largest_difference(const Constant& a, const Constant& b) {
  double largest = 0;
  if (a.shape() != b.shape() || a.element() == ElementType::string) return largest;
  for (int64_t i = 0; i < a.count(); ++i) {
    const double error = difference(a.number_at(i), b.number_at(i));
    if (std::isfinite(error)) largest = std::max(largest, error);
  }
  return largest;
}

double largest_finite(const Constant& values) {
  double largest = 0;
  for (int64_t i = 0; i < values.count(); ++i) {
    const double x = std::fabs(values.number_at(i));
    if (std::isfinite(x)) largest = std::max(largest, x);
  }
  return largest;
}

Tolerance tolerance_for(const Constant& want, Tolerance given) {
  if (want.element() == ElementType::f16) given.rtol = std::max(given.rtol, 0x1p-9);
  if (want.element() == ElementType::bf16) given.rtol = std::max(given.rtol, 0x1p-6);
  if (!is_float(want.element())) return given;
  const double rounding = want.element() == ElementType::f64 ? 0x1p-50 : 0x1p-22;
  given.atol = std::max(given.atol, rounding * largest_finite(want));
  return given;
}

Constant random_tensor(const std::string& name, ElementType element, const std::vector<int64_t>& shape,
                       uint64_t seed, std::span<const std::string> words) {
  Generator generator{{seed * 0x2545f4914f6cdd1du}};
  for (char c : name)
    generator.state = generator.next() ^ static_cast<unsigned char>(c);
  int64_t count = 1;
  for (int64_t dim : shape)
    count *= dim;
  if (element == ElementType::string) {
    std::vector<std::string> strings;
    for (int64_t i = 0; i < count; ++i) {
      const uint64_t choice = generator.next();
      const bool is_known = !words.empty() && choice % 4 != 0;
      strings.push_back(is_known ? words[generator.next() % words.size()] : text("word", choice % 100));
    }
    return Constant::strings(shape, std::move(strings));
  }
  const auto width = static_cast<size_t>(byte_size(element));
  std::vector<std::byte> bytes(static_cast<size_t>(count) * width);
  const bool mask = name.find("mask") != std::string::npos;
  const uint64_t range = is_bool(element) || mask ? 2 : bit_width(element) < 8 ? uint64_t{1} << (bit_width(element) - 1) : 100;
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    std::byte* at = bytes.data() + i * width;
    if (element == ElementType::f32) {
      const auto value = static_cast<float>(generator.normal());
      std::memcpy(at, &value, sizeof value);
    } else if (is_float(element)) {
      const double number = generator.normal();
      const double value = tensor::round_float(element, element == ElementType::f8e8m0 ? std::fabs(number) : number);
      const uint64_t bits = tensor::float_to_bits(element, value);
      std::memcpy(at, &bits, width);
    } else {
      const uint64_t value = generator.next() % range;  // little-endian, so the low bytes come first
      std::memcpy(at, &value, width);
    }
  }
  return Constant::copy_of(element, shape, bytes);
}

}  // namespace mcc::tools
