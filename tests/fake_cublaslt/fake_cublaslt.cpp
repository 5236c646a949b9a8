// A stand-in for cuBLASLt over the stand-in driver's memory (tests/fake_cuda): computes products by their definition, in column-major
// order as NVIDIA documents it, and knows nothing of how mcc describes them. What a real one would refuse it refuses.
//
// The environment says, for a program that a test only starts: FAKE_CUBLASLT=absent (does not work with this driver), refuses (no
// algorithm for any product), fails (products fail when they are started), wrong (results are off by one), tf32 (f32 is
// multiplied as TF32, which nobody asked for), FAKE_CUBLASLT_ALGORITHMS=N (that it names at most, 2 otherwise),
// FAKE_CUBLASLT_LOG=FILE (a line for each product: sizes, compute type, algorithm).
#include <dlfcn.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fake_cuda/fake_cuda.h"
#include "mcc/cublaslt.h"

struct mcc_lt_handle_s {
  int unused = 0;
};
struct mcc_lt_desc_s {
  int compute = 0;
  int32_t transposed[2] = {0, 0};
  uint32_t epilogue = 1;
  const void* bias = nullptr;
};
struct mcc_lt_layout_s {
  int type = 0;
  uint64_t rows = 0, columns = 0;
  int64_t leading = 0;
  int32_t batches = 1;
  int64_t stride = 0;
};
struct mcc_lt_preference_s {
  uint64_t workspace = 0;
  uint32_t alignment[4] = {256, 256, 256, 256};
};

namespace {

std::string behaviour() {
  const char* text = std::getenv("FAKE_CUBLASLT");
  return text == nullptr ? "" : text;
}

int number(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

// The driver's side, which has been loaded by whoever calls.
mcc::test::FakeCudaHooks hooks() {
  void* driver = dlopen(MCC_CUDA_LIBRARY, RTLD_NOW | RTLD_NOLOAD);
  void* found = driver == nullptr ? nullptr : dlsym(driver, "fake_cuda_hooks");
  return found == nullptr ? mcc::test::FakeCudaHooks{} : *static_cast<const mcc::test::FakeCudaHooks*>(found);
}

uint64_t bytes_of(int type) { return type == MCC_LT_R_32F ? 4 : 2; }

float from_bits(uint32_t bits) {
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint32_t to_bits(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float load(const void* memory, int type, int64_t at) {
  if (type == MCC_LT_R_32F) return static_cast<const float*>(memory)[at];
  const uint16_t half = static_cast<const uint16_t*>(memory)[at];
  if (type == MCC_LT_R_16BF) return from_bits(uint32_t{half} << 16);
  const int exponent = half >> 10 & 31, fraction = half & 1023;
  const float sign = half >> 15 ? -1.0F : 1.0F;
  if (exponent == 31) return fraction ? NAN : sign * INFINITY;
  return sign * (exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                               : std::ldexp(static_cast<float>(1024 + fraction), exponent - 25));
}

// To the nearest, ties to even.
void store(void* memory, int type, int64_t at, float value) {
  if (type == MCC_LT_R_32F) {
    static_cast<float*>(memory)[at] = value;
    return;
  }
  uint16_t& out = static_cast<uint16_t*>(memory)[at];
  if (type == MCC_LT_R_16BF) {
    const uint32_t bits = to_bits(value);
    out = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    return;
  }
  const auto sign = static_cast<uint16_t>(to_bits(value) >> 16 & 0x8000);
  const float size = std::fabs(value);
  int exponent = 0;
  std::frexp(size, &exponent);
  const int unit = std::max(exponent - 11, -24);  // of the last bit
  const float steps = std::nearbyint(std::ldexp(size, -unit));
  const float rounded = std::ldexp(steps, unit);
  if (rounded >= 65520) {
    out = sign | 0x7c00;
  } else if (rounded < std::ldexp(1.0F, -14)) {
    out = sign | static_cast<uint16_t>(std::ldexp(rounded, 24));
  } else {
    std::frexp(rounded, &exponent);
    out = sign | static_cast<uint16_t>((exponent + 14) << 10 |
                                       (static_cast<int>(std::ldexp(rounded, 11 - exponent)) & 1023));
  }
}

float as_tf32(float value) { return from_bits(to_bits(value) & 0xffffe000); }

int64_t elements(const mcc_lt_layout_s& m) {
  return (m.batches - 1) * m.stride + (static_cast<int64_t>(m.columns) - 1) * m.leading +
         static_cast<int64_t>(m.rows);
}

// op(m)'s rows and columns.
uint64_t rows_of(const mcc_lt_layout_s& m, int32_t op) { return op == MCC_LT_OP_T ? m.columns : m.rows; }
uint64_t columns_of(const mcc_lt_layout_s& m, int32_t op) { return op == MCC_LT_OP_T ? m.rows : m.columns; }

bool is_product(const mcc_lt_desc_s& desc, const mcc_lt_layout_s& a, const mcc_lt_layout_s& b,
                const mcc_lt_layout_s& c, const mcc_lt_layout_s& d) {
  return rows_of(a, desc.transposed[0]) == d.rows && columns_of(b, desc.transposed[1]) == d.columns &&
         columns_of(a, desc.transposed[0]) == rows_of(b, desc.transposed[1]) && c.rows == d.rows &&
         c.columns == d.columns && a.type == b.type && c.type == d.type &&
         (d.type == MCC_LT_R_32F || d.type == a.type) && a.batches == d.batches && b.batches == d.batches &&
         c.batches == d.batches && (desc.epilogue == 1 || desc.epilogue == MCC_LT_EPILOGUE_BIAS) &&
         (desc.compute == MCC_LT_COMPUTE_32F ||
          (desc.compute == MCC_LT_COMPUTE_32F_FAST_TF32 && a.type == MCC_LT_R_32F));
}

// An attribute that is this field.
template <class T>
mcc_lt_status set(T& field, const void* value, size_t bytes) {
  if (bytes != sizeof field) return MCC_LT_INVALID_VALUE;
  std::memcpy(&field, value, bytes);
  return MCC_LT_SUCCESS;
}

struct Product {
  mcc_lt_desc_s desc;
  mcc_lt_layout_s a, b, c, d;
  const void *a_memory, *b_memory, *c_memory;
  void* d_memory;
  float alpha, beta;

  void compute() const {
    const bool is_tf32 = behaviour() == "tf32" || desc.compute == MCC_LT_COMPUTE_32F_FAST_TF32;
    const auto depth = static_cast<int64_t>(columns_of(a, desc.transposed[0]));
    auto element = [&](const void* memory, const mcc_lt_layout_s& m, int64_t batch, int64_t row,
                       int64_t column, int32_t op) {
      if (op == MCC_LT_OP_T) std::swap(row, column);
      const float value = load(memory, m.type, batch * m.stride + column * m.leading + row);
      return is_tf32 ? as_tf32(value) : value;
    };
    for (int64_t batch = 0; batch < d.batches; ++batch) {
      for (int64_t i = 0; i < static_cast<int64_t>(d.rows); ++i) {
        for (int64_t j = 0; j < static_cast<int64_t>(d.columns); ++j) {
          double sum = behaviour() == "wrong" ? 1 : 0;
          for (int64_t k = 0; k < depth; ++k) {
            sum += static_cast<double>(element(a_memory, a, batch, i, k, desc.transposed[0])) *
                   element(b_memory, b, batch, k, j, desc.transposed[1]);
          }
          float value = alpha * static_cast<float>(sum);
          if (beta != 0) value += beta * load(c_memory, c.type, batch * c.stride + j * c.leading + i);
          if (desc.epilogue == MCC_LT_EPILOGUE_BIAS) value += load(desc.bias, d.type, i);
          store(d_memory, d.type, batch * d.stride + j * d.leading + i, value);
        }
      }
    }
  }
};

}  // namespace

#define FAKE extern "C" __attribute__((visibility("default")))

FAKE size_t cublasLtGetVersion() { return 130100; }
FAKE const char* cublasLtGetStatusName(mcc_lt_status status) {
  return status == MCC_LT_NOT_SUPPORTED     ? "CUBLAS_STATUS_NOT_SUPPORTED"
         : status == MCC_LT_NOT_INITIALIZED ? "CUBLAS_STATUS_NOT_INITIALIZED"
                                            : "CUBLAS_STATUS_OTHER";
}
FAKE mcc_lt_status cublasLtCreate(mcc_lt_handle* handle) {
  if (hooks().enqueue == nullptr || behaviour() == "absent") return MCC_LT_NOT_INITIALIZED;
  *handle = new mcc_lt_handle_s;
  return MCC_LT_SUCCESS;
}
FAKE mcc_lt_status cublasLtDestroy(mcc_lt_handle handle) {
  delete handle;
  return MCC_LT_SUCCESS;
}
FAKE mcc_lt_status cublasLtMatmulDescCreate(mcc_lt_desc* desc, int compute, int scale_type) {
  if (scale_type != MCC_LT_R_32F) return MCC_LT_INVALID_VALUE;
  *desc = new mcc_lt_desc_s{compute};
  return MCC_LT_SUCCESS;
}
FAKE mcc_lt_status cublasLtMatmulDescDestroy(mcc_lt_desc desc) {
  delete desc;
  return MCC_LT_SUCCESS;
}
FAKE mcc_lt_status cublasLtMatmulDescSetAttribute(mcc_lt_desc desc, int attribute, const void* value,
                                                  size_t bytes) {
  if (attribute == MCC_LT_DESC_TRANSA || attribute == MCC_LT_DESC_TRANSB)
    return set(desc->transposed[attribute - MCC_LT_DESC_TRANSA], value, bytes);
  if (attribute == MCC_LT_DESC_EPILOGUE) return set(desc->epilogue, value, bytes);
  return attribute == MCC_LT_DESC_BIAS_POINTER ? set(desc->bias, value, bytes) : MCC_LT_INVALID_VALUE;
}
FAKE mcc_lt_status cublasLtMatrixLayoutCreate(mcc_lt_layout* layout, int type, uint64_t rows,
                                              uint64_t columns, int64_t leading) {
  if (leading < static_cast<int64_t>(rows)) return MCC_LT_INVALID_VALUE;
  *layout = new mcc_lt_layout_s{type, rows, columns, leading, 1, 0};
  return MCC_LT_SUCCESS;
}
FAKE mcc_lt_status cublasLtMatrixLayoutDestroy(mcc_lt_layout layout) {
  delete layout;
  return MCC_LT_SUCCESS;
}
FAKE mcc_lt_status cublasLtMatrixLayoutSetAttribute(mcc_lt_layout layout, int attribute, const void* value,
                                                    size_t bytes) {
  if (attribute == MCC_LT_LAYOUT_BATCH_COUNT) return set(layout->batches, value, bytes);
  return attribute == MCC_LT_LAYOUT_BATCH_STRIDE ? set(layout->stride, value, bytes) : MCC_LT_INVALID_VALUE;
}
FAKE mcc_lt_status cublasLtMatmulPreferenceCreate(mcc_lt_preference* preference) {
  *preference = new mcc_lt_preference_s;
  return MCC_LT_SUCCESS;
}
FAKE mcc_lt_status cublasLtMatmulPreferenceDestroy(mcc_lt_preference preference) {
  delete preference;
  return MCC_LT_SUCCESS;
}
FAKE mcc_lt_status cublasLtMatmulPreferenceSetAttribute(mcc_lt_preference preference, int attribute,
                                                        const void* value, size_t bytes) {
  if (attribute == MCC_LT_PREFERENCE_WORKSPACE_BYTES) return set(preference->workspace, value, bytes);
  const int matrix = attribute - MCC_LT_PREFERENCE_ALIGNMENT_A;
  return matrix >= 0 && matrix < 4 ? set(preference->alignment[matrix], value, bytes) : MCC_LT_INVALID_VALUE;
}
FAKE mcc_lt_status cublasLtMatmulAlgoGetHeuristic(mcc_lt_handle, mcc_lt_desc desc, mcc_lt_layout a,
                                                  mcc_lt_layout b, mcc_lt_layout c, mcc_lt_layout d,
                                                  mcc_lt_preference preference, int wanted,
                                                  mcc_lt_choice* choices, int* found) {
  *found = 0;
  if (!is_product(*desc, *a, *b, *c, *d)) return MCC_LT_INVALID_VALUE;
  if (behaviour() == "refuses") return MCC_LT_NOT_SUPPORTED;
  // All tensors are aligned to 64 bytes, no more.
  for (uint32_t alignment : preference->alignment)
    if (alignment > 64) return MCC_LT_INVALID_VALUE;
  for (; *found < wanted && *found < number("FAKE_CUBLASLT_ALGORITHMS", 2); ++*found) {
    choices[*found] = {};
    choices[*found].algorithm.data[0] = 7;
    choices[*found].algorithm.data[1] = static_cast<uint64_t>(*found);
    choices[*found].workspace_bytes = preference->workspace;
  }
  return MCC_LT_SUCCESS;
}
FAKE mcc_lt_status cublasLtMatmul(mcc_lt_handle handle, mcc_lt_desc desc, const void* alpha, const void* a,
                                  mcc_lt_layout a_layout, const void* b, mcc_lt_layout b_layout,
                                  const void* beta, const void* c, mcc_lt_layout c_layout, void* d,
                                  mcc_lt_layout d_layout, const mcc_lt_algorithm* algorithm, void* workspace,
                                  size_t workspace_bytes, mcc_cu_stream stream) {
  if (behaviour() == "fails") return MCC_LT_EXECUTION_FAILED;
  if (handle == nullptr || algorithm == nullptr || algorithm->data[0] != 7 ||
      !is_product(*desc, *a_layout, *b_layout, *c_layout, *d_layout))
    return MCC_LT_INVALID_VALUE;
  Product product{*desc, *a_layout, *b_layout, *c_layout, *d_layout, a, b, c, d, 0, 0};
  std::memcpy(&product.alpha, alpha, sizeof product.alpha);
  std::memcpy(&product.beta, beta, sizeof product.beta);
  // Memory that is the device's, all of it.
  const mcc::test::FakeCudaHooks cuda = hooks();
  auto is_there = [&](const void* memory, uint64_t bytes) {
    return cuda.is_device(reinterpret_cast<uintptr_t>(memory), bytes);
  };
  auto is_matrix = [&](const void* memory, const mcc_lt_layout_s& m) {
    return reinterpret_cast<uintptr_t>(memory) % 64 == 0 &&
           is_there(memory, static_cast<uint64_t>(elements(m)) * bytes_of(m.type));
  };
  const bool is_good =
      is_matrix(a, *a_layout) && is_matrix(b, *b_layout) && is_matrix(d, *d_layout) &&
      (product.beta == 0 || is_matrix(c, *c_layout)) &&
      (desc->epilogue == 1 || is_there(desc->bias, d_layout->rows * bytes_of(d_layout->type))) &&
      reinterpret_cast<uintptr_t>(workspace) % 256 == 0 && is_there(workspace, workspace_bytes);
  if (!is_good) return MCC_LT_INVALID_VALUE;
  if (const char* path = std::getenv("FAKE_CUBLASLT_LOG")) {
    if (std::FILE* log = std::fopen(path, "a")) {
      std::fprintf(log, "%dx %llux%llux%llu type %d to %d compute %d beta %g epilogue %u algorithm %llu\n",
                   d_layout->batches, static_cast<unsigned long long>(d_layout->columns),
                   static_cast<unsigned long long>(d_layout->rows),
                   static_cast<unsigned long long>(columns_of(*a_layout, desc->transposed[0])),
                   a_layout->type, d_layout->type, desc->compute, static_cast<double>(product.beta),
                   desc->epilogue, static_cast<unsigned long long>(algorithm->data[1]));
      std::fclose(log);
    }
  }
  // Faster than any kernel that the stand-in driver runs instruction by instruction.
  constexpr float kMilliseconds = 1e-4F;
  return cuda.enqueue(
             stream, [product] { product.compute(); }, kMilliseconds) == 0
             ? MCC_LT_SUCCESS
             : MCC_LT_EXECUTION_FAILED;
}
