// What is said of a product to the real cuBLASLt, where it is installed: without a GPU it comes to choosing an algorithm.
#include <gtest/gtest.h>

#include <cstring>

#include "runtime/cublaslt.h"
#include "stand_in.h"

namespace mcc::runtime {
namespace {

// Of a CUDA where it is usually installed: what the loader would find by name may be a test's stand-in.
const mcc_cublaslt* installed() {
  static mcc_cublaslt lt = {};
  test::fake();  // other tests of this process ask by name, and get what was there first
  void* library = nullptr;
  for (const char* path :
       {"/usr/local/cuda/lib64/libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.12"})
    if (library == nullptr) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  auto look_up = [&](auto* field, const char* name) {
    void* function = dlsym(library, name);
    EXPECT_NE(function, nullptr) << name;
    std::memcpy(field, &function, sizeof function);
  };
#define MCC_LOOK_UP(field, name, parameters) look_up(&lt.field, name);
  MCC_LT_FUNCTIONS(MCC_LOOK_UP)
#undef MCC_LOOK_UP
  look_up(&lt.version, "cublasLtGetVersion");
  look_up(&lt.status_name, "cublasLtGetStatusName");
  return &lt;
}

TEST(CublasLt, TheRealOneTakesWhatIsSaidOfAProduct) {
  const mcc_cublaslt* lt = installed();
  if (lt == nullptr) GTEST_SKIP() << "cuBLASLt is not installed";
  EXPECT_GE(lt->version(), 110000U);
  for (uint32_t dtype : {MCC_DTYPE_f32, MCC_DTYPE_f16, MCC_DTYPE_bf16}) {
    for (uint32_t compute : {MCC_COMPUTE_f32, MCC_COMPUTE_tf32}) {
      mcc_device_product product = {};
      product.compute = compute;
      product.algorithm = 2;
      product.has_addend = product.has_bias = 1;
      product.batches = 3;
      product.scale = 1;
      product.first = {dtype, 1, 40, 33, 40, 40 * 33};
      product.second = {dtype, 0, 40, 7, 48, 0};
      product.addend = product.result = {MCC_DTYPE_f32, 0, 33, 7, 33, 33 * 7};
      product.workspace_bytes = 4 << 20;
      LibraryProduct opened;
      mcc_error error = {};
      // Without a handle there is nobody to ask; had an attribute before been wrong, it would be CUBLAS_STATUS_INVALID_VALUE.
      EXPECT_EQ(open_product(*lt, nullptr, product, &opened, &error), MCC_NOT_HERE);
      EXPECT_STREQ(
          error.message,
          "cuBLASLt: it does not compute this product on this GPU (CUBLAS_STATUS_NOT_INITIALIZED, 1)");
      EXPECT_EQ(opened.desc, nullptr);
      // What it does not take is an error at once.
      product.first.leading = 1;
      EXPECT_EQ(open_product(*lt, nullptr, product, &opened, &error), MCC_NOT_HERE);
    }
  }
}

}  // namespace
}  // namespace mcc::runtime
