// Our own declarations of cuBLASLt against NVIDIA's header, where it is installed.
#include <gtest/gtest.h>

#include <type_traits>

#include "mcc/cublaslt.h"

#if __has_include("/usr/local/cuda/include/cublasLt.h") && \
                  __has_include("/usr/local/cuda/include/cuda_fp16.h")
#include "/usr/local/cuda/include/cublasLt.h"
#define MCC_HAS_CUBLASLT
#endif

namespace {

#ifdef MCC_HAS_CUBLASLT

template <class R, class... A, class S, class... B>
constexpr bool takes_the_same(R (*)(A...), S (*)(B...)) {
  if constexpr (sizeof...(A) == sizeof...(B)) {
    return ((sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>)&&...);
  } else {
    return false;
  }
}

mcc_cublaslt ours;

TEST(CublasLtHeader, FunctionsTakeWhatNvidiasTake) {
#define MCC_CHECK_CALL(field, name) \
  EXPECT_TRUE(takes_the_same(decltype(ours.field){}, decltype(&name){})) << #name
  MCC_CHECK_CALL(create, cublasLtCreate);
  MCC_CHECK_CALL(destroy, cublasLtDestroy);
  MCC_CHECK_CALL(desc_create, cublasLtMatmulDescCreate);
  MCC_CHECK_CALL(desc_destroy, cublasLtMatmulDescDestroy);
  MCC_CHECK_CALL(desc_set, cublasLtMatmulDescSetAttribute);
  MCC_CHECK_CALL(layout_create, cublasLtMatrixLayoutCreate);
  MCC_CHECK_CALL(layout_destroy, cublasLtMatrixLayoutDestroy);
  MCC_CHECK_CALL(layout_set, cublasLtMatrixLayoutSetAttribute);
  MCC_CHECK_CALL(preference_create, cublasLtMatmulPreferenceCreate);
  MCC_CHECK_CALL(preference_destroy, cublasLtMatmulPreferenceDestroy);
  MCC_CHECK_CALL(preference_set, cublasLtMatmulPreferenceSetAttribute);
  MCC_CHECK_CALL(choose, cublasLtMatmulAlgoGetHeuristic);
  MCC_CHECK_CALL(multiply, cublasLtMatmul);
#undef MCC_CHECK_CALL
  EXPECT_EQ(sizeof(mcc_lt_algorithm), sizeof(cublasLtMatmulAlgo_t));
  EXPECT_EQ(sizeof(mcc_lt_choice), sizeof(cublasLtMatmulHeuristicResult_t));
  EXPECT_EQ(offsetof(mcc_lt_choice, workspace_bytes),
            offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
  EXPECT_EQ(offsetof(mcc_lt_choice, status), offsetof(cublasLtMatmulHeuristicResult_t, state));
}

TEST(CublasLtHeader, NumbersAreNvidias) {
  EXPECT_EQ(int{MCC_LT_NOT_INITIALIZED}, CUBLAS_STATUS_NOT_INITIALIZED);
  EXPECT_EQ(int{MCC_LT_ALLOC_FAILED}, CUBLAS_STATUS_ALLOC_FAILED);
  EXPECT_EQ(int{MCC_LT_INVALID_VALUE}, CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(int{MCC_LT_EXECUTION_FAILED}, CUBLAS_STATUS_EXECUTION_FAILED);
  EXPECT_EQ(int{MCC_LT_NOT_SUPPORTED}, CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(int{MCC_LT_R_32F}, CUDA_R_32F);
  EXPECT_EQ(int{MCC_LT_R_16F}, CUDA_R_16F);
  EXPECT_EQ(int{MCC_LT_R_16BF}, CUDA_R_16BF);
  EXPECT_EQ(int{MCC_LT_COMPUTE_32F}, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(int{MCC_LT_COMPUTE_32F_FAST_TF32}, CUBLAS_COMPUTE_32F_FAST_TF32);
  EXPECT_EQ(int{MCC_LT_OP_N}, CUBLAS_OP_N);
  EXPECT_EQ(int{MCC_LT_OP_T}, CUBLAS_OP_T);
  EXPECT_EQ(int{MCC_LT_DESC_TRANSA}, CUBLASLT_MATMUL_DESC_TRANSA);
  EXPECT_EQ(int{MCC_LT_DESC_TRANSB}, CUBLASLT_MATMUL_DESC_TRANSB);
  EXPECT_EQ(int{MCC_LT_DESC_EPILOGUE}, CUBLASLT_MATMUL_DESC_EPILOGUE);
  EXPECT_EQ(int{MCC_LT_DESC_BIAS_POINTER}, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
  EXPECT_EQ(int{MCC_LT_EPILOGUE_BIAS}, CUBLASLT_EPILOGUE_BIAS);
  EXPECT_EQ(int{MCC_LT_LAYOUT_BATCH_COUNT}, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
  EXPECT_EQ(int{MCC_LT_LAYOUT_BATCH_STRIDE}, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
  EXPECT_EQ(int{MCC_LT_PREFERENCE_WORKSPACE_BYTES}, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
  EXPECT_EQ(int{MCC_LT_PREFERENCE_ALIGNMENT_A}, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  EXPECT_EQ(int{MCC_LT_PREFERENCE_ALIGNMENT_D}, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
}

#else

TEST(CublasLtHeader, FunctionsTakeWhatNvidiasTake) { GTEST_SKIP() << "NVIDIA's header is not here"; }

#endif

}  // namespace
