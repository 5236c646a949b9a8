// What every file of the runtime uses: errors, checked sizes, memory. The runtime is C++ without
// its standard library's objects, exceptions and RTTI, so that it needs nothing but libc.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "mcc/mcc.h"

namespace mcc::runtime {

// Fills `error` when there is one; returns `status`.
__attribute__((format(printf, 3, 4))) mcc_status fail(mcc_error* error, mcc_status status, const char* format,
                                                      ...);

// Adds to the message of `error`.
__attribute__((format(printf, 2, 3))) void append_message(mcc_error* error, const char* format, ...);

inline mcc_status succeed(mcc_error* error) {
  if (error != nullptr) {
    error->status = MCC_OK;
    error->message[0] = 0;
  }
  return MCC_OK;
}

// Bytes of one element; 0 when `dtype` is none of mcc_dtype.
uint32_t dtype_bytes(uint32_t dtype);
const char* dtype_name(uint32_t dtype);  // never null

// False when a dimension is negative or the size is above INT64_MAX.
bool tensor_bytes(uint32_t dtype, const int64_t* dims, uint32_t rank, uint64_t* bytes);

// [begin, begin + count) lies within [0, size).
inline bool is_within(uint64_t begin, uint64_t count, uint64_t size) {
  return begin <= size && count <= size - begin;
}

// Prints "2x3x4", "scalar" for rank 0, "?" for negative dimensions.
void print_shape(char* out, size_t size, const int64_t* dims, uint32_t rank);

// A fixed number of value-initialised T. Never shrinks or moves once allocated.
template <typename T>
class Array {
 public:
  Array() = default;
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  ~Array() {
    for (uint64_t i = 0; i < count_; ++i)
      data_[i].~T();
    std::free(data_);
  }

  // False when memory is short. Called once.
  bool allocate(uint64_t count) {
    data_ = static_cast<T*>(std::calloc(count == 0 ? 1 : count, sizeof(T)));
    count_ = data_ == nullptr ? 0 : count;
    for (uint64_t i = 0; i < count_; ++i)
      new (&data_[i]) T{};
    return data_ != nullptr;
  }
  T& operator[](uint64_t i) { return data_[i]; }
  const T& operator[](uint64_t i) const { return data_[i]; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  uint64_t size() const { return count_; }
  T* begin() { return data_; }
  T* end() { return data_ + count_; }

 private:
  T* data_ = nullptr;
  uint64_t count_ = 0;
};

// Memory for tensors, aligned to MCC_BUFFER_ALIGNMENT, on huge pages when large. Contents are lost
// on growth.
class Block {
 public:
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { std::free(data_); }

  // At least `bytes`; allocates only to grow. False when memory is short (the old block is gone
  // then).
  bool reserve(uint64_t bytes);
  // The same, with the first `kept` bytes as they are (no more than there were); memory that grows again and again doubles.
  bool grow(uint64_t bytes, uint64_t kept);
  uint8_t* data() const { return data_; }
  uint64_t capacity() const { return capacity_; }

 private:
  uint8_t* data_ = nullptr;
  uint64_t capacity_ = 0;
};

}  // namespace mcc::runtime
