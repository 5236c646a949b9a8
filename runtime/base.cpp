#include "runtime/base.h"

#include <sys/mman.h>

#include <cstdarg>
#include <cstdio>

namespace mcc::runtime {

mcc_status fail(mcc_error* error, mcc_status status, const char* format, ...) {
  if (error == nullptr) return status;
  error->status = status;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(error->message, sizeof error->message, format, arguments);
  va_end(arguments);
  return status;
}

void append_message(mcc_error* error, const char* format, ...) {
  if (error == nullptr) return;
  const size_t used = strnlen(error->message, sizeof error->message - 1);
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(error->message + used, sizeof error->message - used, format, arguments);
  va_end(arguments);
}

uint32_t dtype_bytes(uint32_t dtype) {
  switch (dtype) {
#define MCC_BYTES(name, value, bytes) \
  case value:                         \
    return bytes;
    MCC_DTYPES(MCC_BYTES)
#undef MCC_BYTES
  }
  return 0;
}

const char* dtype_name(uint32_t dtype) {
  switch (dtype) {
#define MCC_NAME(name, value, bytes) \
  case value:                        \
    return #name;
    MCC_DTYPES(MCC_NAME)
#undef MCC_NAME
  }
  return "unknown";
}

bool tensor_bytes(uint32_t dtype, const int64_t* dims, uint32_t rank, uint64_t* bytes) {
  // A zero anywhere makes the tensor empty, whatever the other dimensions would overflow to.
  bool empty = false;
  for (uint32_t i = 0; i < rank; ++i) {
    if (dims[i] < 0) return false;
    empty |= dims[i] == 0;
  }
  uint64_t product = empty ? 0 : dtype_bytes(dtype);
  for (uint32_t i = 0; i < rank && !empty; ++i) {
    if (__builtin_mul_overflow(product, static_cast<uint64_t>(dims[i]), &product)) return false;
  }
  *bytes = product;
  return product <= INT64_MAX;
}

void print_shape(char* out, size_t size, const int64_t* dims, uint32_t rank) {
  if (rank == 0) {
    std::snprintf(out, size, "scalar");
    return;
  }
  size_t used = 0;
  for (uint32_t i = 0; i < rank && used < size; ++i) {
    const char* separator = i == 0 ? "" : "x";
    const int wrote = dims[i] < 0 ? std::snprintf(out + used, size - used, "%s?", separator)
                                  : std::snprintf(out + used, size - used, "%s%lld", separator,
                                                  static_cast<long long>(dims[i]));
    if (wrote < 0) return;
    used += static_cast<size_t>(wrote);
  }
}

bool Block::reserve(uint64_t bytes) {
  if (bytes <= capacity_) return true;
  std::free(data_);
  data_ = nullptr;
  capacity_ = 0;
  constexpr uint64_t huge_page = uint64_t{2} << 20;
  const uint64_t alignment = bytes >= 2 * huge_page ? huge_page : MCC_BUFFER_ALIGNMENT;
  if (bytes > UINT64_MAX - alignment) return false;
  const uint64_t rounded = (bytes + alignment - 1) / alignment * alignment;
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, rounded) != 0) return false;
  if (alignment == huge_page) madvise(memory, rounded, MADV_HUGEPAGE);  // only a wish: failing is fine
  data_ = static_cast<uint8_t*>(memory);
  capacity_ = rounded;
  return true;
}

bool Block::grow(uint64_t bytes, uint64_t kept) {
  if (bytes <= capacity_ || kept == 0 || data_ == nullptr) return reserve(bytes);
  uint8_t* const old = data_;
  const uint64_t size = kept < capacity_ ? kept : capacity_;
  const uint64_t doubled = capacity_ <= UINT64_MAX / 2 ? 2 * capacity_ : bytes;
  data_ = nullptr;
  capacity_ = 0;
  const bool is_done = reserve(bytes < doubled ? doubled : bytes);
  if (is_done) std::memcpy(data_, old, size);
  std::free(old);
  return is_done;
}

}  // namespace mcc::runtime
