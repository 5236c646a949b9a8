// Constants and attributes of nodes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "graph/graph.h"
#include "tensor/numeric.h"

namespace mcc::graph {

// ---- Constant ----

namespace {

int64_t count_of(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (int64_t d : shape) {
    MCC_CHECK(d >= 0 && !__builtin_mul_overflow(count, d, &count), "shape ", list_text(shape));
  }
  return count;
}

template <class T>
T read_as(std::span<const std::byte> bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return value;
}

// The bits of a float that is narrower than f32, rounded.
uint32_t narrow_bits(ElementType element, double value) {
  return static_cast<uint32_t>(tensor::float_to_bits(element, tensor::round_float(element, value)));
}

template <class T>
void write_as(std::vector<std::byte>& bytes, T value) {
  bytes.resize(sizeof(T));
  std::memcpy(bytes.data(), &value, sizeof(T));
}

}  // namespace

Constant::Constant(ElementType element, std::vector<int64_t> shape, std::span<const std::byte> bytes,
                   std::shared_ptr<const void> owner)
    : element_(element), shape_(std::move(shape)), bytes_(bytes), owner_(std::move(owner)) {
  auto expected = static_cast<size_t>(count_of(shape_) * byte_size(element_));
  MCC_CHECK(bytes_.size() == expected, "a constant ", type().shape.empty() ? "" : list_text(shape_), " of ",
            to_text(element_), " takes ", expected, " bytes, got ", bytes_.size());
}

Constant Constant::copy_of(ElementType element, std::vector<int64_t> shape,
                           std::span<const std::byte> bytes) {
  auto owner = std::make_shared<const std::vector<std::byte>>(bytes.begin(), bytes.end());
  return {element, std::move(shape), std::span(*owner), owner};
}

Constant Constant::zeros(ElementType element, std::vector<int64_t> shape) {
  auto owner = std::make_shared<const std::vector<std::byte>>(
      static_cast<size_t>(count_of(shape) * byte_size(element)));
  return {element, std::move(shape), std::span(*owner), owner};
}

Constant Constant::scalar(ElementType element, double value) {
  std::vector<std::byte> bytes;
  auto whole = static_cast<int64_t>(is_float(element) ? 0 : value);
  switch (element) {
    case ElementType::boolean:
      write_as<uint8_t>(bytes, value != 0);
      break;
    case ElementType::i2:
    case ElementType::i4:
    case ElementType::i8:
    case ElementType::u2:
    case ElementType::u4:
    case ElementType::u8:
      write_as(bytes, static_cast<uint8_t>(whole));
      break;
    case ElementType::i16:
    case ElementType::u16:
      write_as(bytes, static_cast<uint16_t>(whole));
      break;
    case ElementType::i32:
    case ElementType::u32:
      write_as(bytes, static_cast<uint32_t>(whole));
      break;
    case ElementType::i64:
      write_as(bytes, whole);
      break;
    case ElementType::u64:
      write_as(bytes, static_cast<uint64_t>(value));
      break;
    case ElementType::f4e2m1:
    case ElementType::f8e8m0:
    case ElementType::f8e4m3:
    case ElementType::f8e4m3fnuz:
    case ElementType::f8e5m2:
    case ElementType::f8e5m2fnuz:
      write_as(bytes, static_cast<uint8_t>(narrow_bits(element, value)));
      break;
    case ElementType::bf16:
    case ElementType::f16:
      write_as(bytes, static_cast<uint16_t>(narrow_bits(element, value)));
      break;
    case ElementType::tf32:
    case ElementType::f32:
      write_as(bytes, static_cast<float>(value));
      break;
    case ElementType::f64:
      write_as(bytes, value);
      break;
    case ElementType::string:
      MCC_UNREACHABLE("a string is not a number");
  }
  return copy_of(element, {}, bytes);
}

Constant Constant::ints(const std::vector<int64_t>& values) {
  return of(ElementType::i64, {static_cast<int64_t>(values.size())}, values);
}

Constant Constant::strings(std::vector<int64_t> shape, std::vector<std::string> values) {
  struct Owner {
    std::vector<std::string> values;
    std::vector<StringView> views;
  };
  auto owner = std::make_shared<Owner>();
  owner->values = std::move(values);
  for (const std::string& value : owner->values)
    owner->views.push_back({value.data(), value.size()});
  const auto bytes = std::as_bytes(std::span(owner->views));
  return Constant(ElementType::string, std::move(shape), bytes, owner);
}

int64_t Constant::count() const { return count_of(shape_); }

TensorType Constant::type() const { return {element_, make_shape(shape_)}; }

int64_t Constant::int_at(int64_t i) const {
  MCC_CHECK(i >= 0 && i < count(), "element ", i, " of a constant of ", count());
  switch (element_) {
    case ElementType::boolean:
      return read_as<uint8_t>(bytes_, i) != 0;
    case ElementType::i2:
    case ElementType::i4:
    case ElementType::i8:
      return read_as<int8_t>(bytes_, i);
    case ElementType::u2:
    case ElementType::u4:
    case ElementType::u8:
      return read_as<uint8_t>(bytes_, i);
    case ElementType::i16:
      return read_as<int16_t>(bytes_, i);
    case ElementType::u16:
      return read_as<uint16_t>(bytes_, i);
    case ElementType::i32:
      return read_as<int32_t>(bytes_, i);
    case ElementType::u32:
      return read_as<uint32_t>(bytes_, i);
    case ElementType::i64:
    case ElementType::u64:
      return read_as<int64_t>(bytes_, i);
    case ElementType::f4e2m1:
    case ElementType::f8e8m0:
    case ElementType::f8e4m3:
    case ElementType::f8e4m3fnuz:
    case ElementType::f8e5m2:
    case ElementType::f8e5m2fnuz:
    case ElementType::bf16:
    case ElementType::f16:
    case ElementType::tf32:
    case ElementType::f32:
    case ElementType::f64: {
      double value = number_at(i);
      if (std::isnan(value)) return 0;
      constexpr double limit = 9223372036854775808.0;
      if (value >= limit) return std::numeric_limits<int64_t>::max();
      if (value < -limit) return std::numeric_limits<int64_t>::min();
      return static_cast<int64_t>(value);
    }
    case ElementType::string:
      break;
  }
  MCC_UNREACHABLE("a string is not a number");
}

double Constant::number_at(int64_t i) const {
  MCC_CHECK(i >= 0 && i < count(), "element ", i, " of a constant of ", count());
  switch (element_) {
    case ElementType::f4e2m1:
    case ElementType::f8e8m0:
    case ElementType::f8e4m3:
    case ElementType::f8e4m3fnuz:
    case ElementType::f8e5m2:
    case ElementType::f8e5m2fnuz:
      return tensor::float_from_bits(element_, read_as<uint8_t>(bytes_, i));
    case ElementType::bf16:
    case ElementType::f16:
      return tensor::float_from_bits(element_, read_as<uint16_t>(bytes_, i));
    case ElementType::tf32:
    case ElementType::f32:
      return read_as<float>(bytes_, i);
    case ElementType::f64:
      return read_as<double>(bytes_, i);
    case ElementType::u64:
      return static_cast<double>(read_as<uint64_t>(bytes_, i));
    case ElementType::boolean:
    case ElementType::i2:
    case ElementType::i4:
    case ElementType::i8:
    case ElementType::i16:
    case ElementType::i32:
    case ElementType::i64:
    case ElementType::u2:
    case ElementType::u4:
    case ElementType::u8:
    case ElementType::u16:
    case ElementType::u32:
      return static_cast<double>(int_at(i));
    case ElementType::string:
      break;
  }
  MCC_UNREACHABLE("a string is not a number");
}

std::vector<int64_t> Constant::to_ints() const {
  std::vector<int64_t> values;
  values.reserve(static_cast<size_t>(count()));
  for (int64_t i = 0, n = count(); i < n; ++i)
    values.push_back(int_at(i));
  return values;
}

std::string Constant::string_at(int64_t i) const {
  MCC_CHECK(element_ == ElementType::string && i >= 0 && i < count(), "string ", i, " of a constant of ",
            count(), " ", to_text(element_));
  const auto view = read_as<StringView>(bytes_, i);
  return {view.data, view.size};
}

std::vector<std::string> Constant::to_strings() const {
  std::vector<std::string> values;
  for (int64_t i = 0, n = count(); i < n; ++i)
    values.push_back(string_at(i));
  return values;
}

// ---- Attributes ----

namespace {

template <class T>
T get_or(const Attribute* attribute, const std::string& name, T otherwise) {
  if (!attribute) return otherwise;
  const T* value = std::get_if<T>(attribute);
  MCC_CHECK(value, "attribute ", name, " is of another kind");
  return *value;
}

bool same(const Constant& a, const Constant& b) {
  return a.element() == b.element() && a.shape() == b.shape() &&
         std::equal(a.bytes().begin(), a.bytes().end(), b.bytes().begin(), b.bytes().end());
}

bool same(const Attribute& a, const Attribute& b) {
  if (a.index() != b.index()) return false;
  return std::visit(
      [&](const auto& x) {
        const auto& y = std::get<std::decay_t<decltype(x)>>(b);
        if constexpr (std::is_same_v<std::decay_t<decltype(x)>, Constant>) {
          return same(x, y);
        } else {
          return x == y;
        }
      },
      a);
}

}  // namespace

const Attribute* Attributes::find(const std::string& name) const {
  auto found = map_.find(name);
  return found == map_.end() ? nullptr : &found->second;
}

int64_t Attributes::integer(const std::string& name, int64_t otherwise) const {
  return get_or(find(name), name, otherwise);
}
double Attributes::number(const std::string& name, double otherwise) const {
  return get_or(find(name), name, otherwise);
}
std::string Attributes::text(const std::string& name, std::string otherwise) const {
  return get_or(find(name), name, std::move(otherwise));
}
std::vector<int64_t> Attributes::integers(const std::string& name, std::vector<int64_t> otherwise) const {
  return get_or(find(name), name, std::move(otherwise));
}
std::vector<double> Attributes::numbers(const std::string& name, std::vector<double> otherwise) const {
  return get_or(find(name), name, std::move(otherwise));
}

bool Attributes::operator==(const Attributes& other) const {
  return std::equal(
      map_.begin(), map_.end(), other.map_.begin(), other.map_.end(),
      [](const auto& a, const auto& b) { return a.first == b.first && same(a.second, b.second); });
}

}  // namespace mcc::graph
