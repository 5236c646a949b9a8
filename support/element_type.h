// The element types of tensors, at every layer of the compiler.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace mcc {

enum class TypeClass : uint8_t { boolean, signed_int, unsigned_int, floating, string };

// name, text, class, bits. Floats of 4 and 8 bits have in their names the bits of exponent and significand; what besides numbers they
// have is in tensor/numeric.h. A string is its address and its size in bytes; nothing computes with it.
#define MCC_ELEMENT_TYPES(X)               \
  X(boolean, "bool", boolean, 8)           \
  X(i2, "i2", signed_int, 2)               \
  X(i4, "i4", signed_int, 4)               \
  X(i8, "i8", signed_int, 8)               \
  X(i16, "i16", signed_int, 16)            \
  X(i32, "i32", signed_int, 32)            \
  X(i64, "i64", signed_int, 64)            \
  X(u2, "u2", unsigned_int, 2)             \
  X(u4, "u4", unsigned_int, 4)             \
  X(u8, "u8", unsigned_int, 8)             \
  X(u16, "u16", unsigned_int, 16)          \
  X(u32, "u32", unsigned_int, 32)          \
  X(u64, "u64", unsigned_int, 64)          \
  X(f4e2m1, "f4e2m1", floating, 4)         \
  X(f8e8m0, "f8e8m0", floating, 8)         \
  X(f8e4m3, "f8e4m3", floating, 8)         \
  X(f8e4m3fnuz, "f8e4m3fnuz", floating, 8) \
  X(f8e5m2, "f8e5m2", floating, 8)         \
  X(f8e5m2fnuz, "f8e5m2fnuz", floating, 8) \
  X(bf16, "bf16", floating, 16)            \
  X(f16, "f16", floating, 16)              \
  X(tf32, "tf32", floating, 32)            \
  X(f32, "f32", floating, 32)              \
  X(f64, "f64", floating, 64)              \
  X(string, "string", string, 128)

enum class ElementType : uint8_t {
#define X(name, text, cls, bits) name,
  MCC_ELEMENT_TYPES(X)
#undef X
};

std::string_view to_text(ElementType type);
std::optional<ElementType> parse_element_type(std::string_view text);
TypeClass type_class(ElementType type);
int bit_width(ElementType type);

inline bool is_float(ElementType t) { return type_class(t) == TypeClass::floating; }
inline bool is_signed_int(ElementType t) { return type_class(t) == TypeClass::signed_int; }
inline bool is_unsigned_int(ElementType t) { return type_class(t) == TypeClass::unsigned_int; }
inline bool is_int(ElementType t) { return is_signed_int(t) || is_unsigned_int(t); }
inline bool is_bool(ElementType t) { return t == ElementType::boolean; }

// Bytes that one element takes in memory. Elements of fewer bits than a byte are kept one to a byte.
inline int64_t byte_size(ElementType t) { return (bit_width(t) + 7) / 8; }

}  // namespace mcc
