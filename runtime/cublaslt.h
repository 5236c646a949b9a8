// cuBLASLt, loaded when a model calls it; products made ready for it and started.
#pragma once

#include "mcc/cublaslt.h"
#include "mcc/device_format.h"
#include "runtime/base.h"

namespace mcc::runtime {

// The library's functions; null where it is not installed, or lacks some of them. Stays loaded.
const mcc_cublaslt* load_cublaslt(mcc_error* error);

// For the current context. Fails where the library does not work with this GPU or driver.
mcc_status open_cublaslt(const mcc_cublaslt& lt, mcc_lt_handle* handle, mcc_error* error);

// What the library calls a product, and how it computes it. Not copied; close_product gives it back.
struct LibraryProduct {
  mcc_lt_desc desc = nullptr;
  mcc_lt_layout first = nullptr, second = nullptr, addend = nullptr, result = nullptr;
  mcc_lt_algorithm algorithm = {};
  uint32_t algorithms = 0;  // that the library named, of those asked for
};

// Asks for the algorithm; where the library names fewer than that, the best of them is taken. MCC_NOT_HERE where it names none.
mcc_status open_product(const mcc_cublaslt& lt, mcc_lt_handle handle, const mcc_device_product& of,
                        LibraryProduct* product, mcc_error* error);
void close_product(const mcc_cublaslt& lt, LibraryProduct* product);

// Queues it, with these addresses as arguments.
mcc_status start_product(const mcc_cublaslt& lt, mcc_lt_handle handle, const mcc_device_product& of,
                         const LibraryProduct& product, const mcc_cu_pointer* arguments, mcc_cu_stream stream,
                         mcc_error* error);

}  // namespace mcc::runtime
