// How elements lie in memory, for the accesses of each type.
#pragma once

#include <cstring>

#include "tensor/interpret/code.h"
#include "tensor/numeric.h"

namespace mcc::tensor::interpreter {

constexpr bool is_float_in_a_byte(ElementType element) {
  switch (element) {
#define X(name, text, cls, bits) \
  case ElementType::name:        \
    return TypeClass::cls == TypeClass::floating && bits <= 8;
    MCC_ELEMENT_TYPES(X)
#undef X
  }
  return false;
}

template <ElementType element>
Value read_element(const std::byte* data, int64_t index) {
  // The caller's memory need not be aligned.
  const auto read = [&]<class T>(T x) {
    std::memcpy(&x, data + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return x;
  };
  if constexpr (element == ElementType::boolean) return int_value(read(uint8_t{}) != 0);
  if constexpr (element == ElementType::i2 || element == ElementType::i4) return int_value(wrap_int(element, read(int8_t{})));
  if constexpr (element == ElementType::u2 || element == ElementType::u4) return int_value(wrap_int(element, read(uint8_t{})));
  if constexpr (element == ElementType::i8) return int_value(read(int8_t{}));
  if constexpr (element == ElementType::i16) return int_value(read(int16_t{}));
  if constexpr (element == ElementType::i32) return int_value(read(int32_t{}));
  if constexpr (element == ElementType::i64 || element == ElementType::u64) return int_value(read(int64_t{}));
  if constexpr (element == ElementType::u8) return int_value(read(uint8_t{}));
  if constexpr (element == ElementType::u16) return int_value(read(uint16_t{}));
  if constexpr (element == ElementType::u32) return int_value(read(uint32_t{}));
  if constexpr (is_float_in_a_byte(element)) {
    return float_value(float_from_bits(element, read(uint8_t{})));
  }
  if constexpr (element == ElementType::bf16 || element == ElementType::f16) {
    return float_value(float_from_bits(element, read(uint16_t{})));
  }
  if constexpr (element == ElementType::f32 || element == ElementType::tf32) {
    return float_value(static_cast<double>(read(float{})));
  }
  if constexpr (element == ElementType::f64) return float_value(read(double{}));
  if constexpr (element == ElementType::string) MCC_UNREACHABLE("strings are not computed with");
}

template <ElementType element>
void write_element(std::byte* data, int64_t index, Value value) {
  const auto write = [&]<class T>(T x) {
    std::memcpy(data + index * static_cast<int64_t>(sizeof(T)), &x, sizeof(T));
  };
  if constexpr (element == ElementType::f64) {
    write(value.f);
  } else if constexpr (element == ElementType::f32 || element == ElementType::tf32) {
    write(static_cast<float>(value.f));
  } else if constexpr (element == ElementType::f16 || element == ElementType::bf16) {
    write(static_cast<uint16_t>(float_to_bits(element, value.f)));
  } else if constexpr (is_float_in_a_byte(element)) {
    write(static_cast<uint8_t>(float_to_bits(element, value.f)));
  } else if constexpr (element == ElementType::i64 || element == ElementType::u64) {
    write(value.i);
  } else if constexpr (element == ElementType::i32 || element == ElementType::u32) {
    write(static_cast<int32_t>(value.i));
  } else if constexpr (element == ElementType::i16 || element == ElementType::u16) {
    write(static_cast<int16_t>(value.i));
  } else if constexpr (element == ElementType::string) {
    MCC_UNREACHABLE("strings are not computed with");
  } else {
    write(static_cast<int8_t>(value.i));
  }
}

inline void write_any(const Memory& memory, int64_t index, Value value) {
  switch (memory.buffer.element()) {
#define X(name, text, cls, bits) \
  case ElementType::name:        \
    return write_element<ElementType::name>(memory.data, index, value);
    MCC_ELEMENT_TYPES(X)
#undef X
  }
}

}  // namespace mcc::tensor::interpreter
