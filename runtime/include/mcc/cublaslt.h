/* The part of cuBLASLt that mcc uses, declared by ourselves like the driver's (cuda_driver.h). The library is loaded when a model
 * or a tuner asks for it. Names and numbers are NVIDIA's, the same in versions 11 to 13.
 */
#ifndef MCC_CUBLASLT_H
#define MCC_CUBLASLT_H

#include "mcc/cuda_driver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The newest first. */
#define MCC_LT_LIBRARIES {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"}

typedef int mcc_lt_status; /* 0: success */
typedef struct mcc_lt_handle_s* mcc_lt_handle;
typedef struct mcc_lt_desc_s* mcc_lt_desc;
typedef struct mcc_lt_layout_s* mcc_lt_layout;
typedef struct mcc_lt_preference_s* mcc_lt_preference;

typedef struct mcc_lt_algorithm {
  uint64_t data[8];
} mcc_lt_algorithm;

typedef struct mcc_lt_choice {
  mcc_lt_algorithm algorithm;
  size_t workspace_bytes;
  mcc_lt_status status; /* the other fields mean something where this is 0 */
  float waves;
  int reserved[4];
} mcc_lt_choice;

enum {
  MCC_LT_SUCCESS = 0,
  MCC_LT_NOT_INITIALIZED = 1,
  MCC_LT_ALLOC_FAILED = 3,
  MCC_LT_INVALID_VALUE = 7,
  MCC_LT_EXECUTION_FAILED = 13,
  MCC_LT_NOT_SUPPORTED = 15
};

/* cudaDataType, cublasComputeType_t, cublasOperation_t */
enum {
  MCC_LT_R_32F = 0,
  MCC_LT_R_16F = 2,
  MCC_LT_R_16BF = 14,
  MCC_LT_COMPUTE_32F = 68,
  MCC_LT_COMPUTE_32F_FAST_TF32 = 77,
  MCC_LT_OP_N = 0,
  MCC_LT_OP_T = 1
};

/* cublasLtMatmulDescAttributes_t, cublasLtEpilogue_t, cublasLtMatrixLayoutAttribute_t, cublasLtMatmulPreferenceAttributes_t */
enum {
  MCC_LT_DESC_TRANSA = 3,
  MCC_LT_DESC_TRANSB = 4,
  MCC_LT_DESC_EPILOGUE = 7,
  MCC_LT_DESC_BIAS_POINTER = 8,
  MCC_LT_EPILOGUE_BIAS = 4,
  MCC_LT_LAYOUT_BATCH_COUNT = 5,
  MCC_LT_LAYOUT_BATCH_STRIDE = 6,
  MCC_LT_PREFERENCE_WORKSPACE_BYTES = 1,
  MCC_LT_PREFERENCE_ALIGNMENT_A = 5, /* then those of B, C, D */
  MCC_LT_PREFERENCE_ALIGNMENT_D = 8
};

/* X(field, exported name, parameters); all return mcc_lt_status. */
#define MCC_LT_FUNCTIONS(X)                                                                                     \
  X(create, "cublasLtCreate", (mcc_lt_handle * handle))                                                         \
  X(destroy, "cublasLtDestroy", (mcc_lt_handle handle))                                                         \
  X(desc_create, "cublasLtMatmulDescCreate", (mcc_lt_desc * desc, int compute, int scale_type))                 \
  X(desc_destroy, "cublasLtMatmulDescDestroy", (mcc_lt_desc desc))                                              \
  X(desc_set, "cublasLtMatmulDescSetAttribute",                                                                 \
    (mcc_lt_desc desc, int attribute, const void* value, size_t bytes))                                         \
  X(layout_create, "cublasLtMatrixLayoutCreate",                                                                \
    (mcc_lt_layout * layout, int type, uint64_t rows, uint64_t columns, int64_t leading))                       \
  X(layout_destroy, "cublasLtMatrixLayoutDestroy", (mcc_lt_layout layout))                                      \
  X(layout_set, "cublasLtMatrixLayoutSetAttribute",                                                             \
    (mcc_lt_layout layout, int attribute, const void* value, size_t bytes))                                     \
  X(preference_create, "cublasLtMatmulPreferenceCreate", (mcc_lt_preference * preference))                      \
  X(preference_destroy, "cublasLtMatmulPreferenceDestroy", (mcc_lt_preference preference))                      \
  X(preference_set, "cublasLtMatmulPreferenceSetAttribute",                                                     \
    (mcc_lt_preference preference, int attribute, const void* value, size_t bytes))                             \
  X(choose, "cublasLtMatmulAlgoGetHeuristic",                                                                   \
    (mcc_lt_handle handle, mcc_lt_desc desc, mcc_lt_layout a, mcc_lt_layout b, mcc_lt_layout c,                 \
     mcc_lt_layout d, mcc_lt_preference preference, int wanted, mcc_lt_choice* choices, int* found))            \
  X(multiply, "cublasLtMatmul",                                                                                 \
    (mcc_lt_handle handle, mcc_lt_desc desc, const void* alpha, const void* a, mcc_lt_layout a_layout,          \
     const void* b, mcc_lt_layout b_layout, const void* beta, const void* c, mcc_lt_layout c_layout, void* d,   \
     mcc_lt_layout d_layout, const mcc_lt_algorithm* algorithm, void* workspace, size_t workspace_bytes,        \
     mcc_cu_stream stream))

/* The functions, as dlsym finds them. */
typedef struct mcc_cublaslt {
#define MCC_LT_FIELD(field, name, parameters) mcc_lt_status(*field) parameters;
  MCC_LT_FUNCTIONS(MCC_LT_FIELD)
#undef MCC_LT_FIELD
  size_t (*version)(void);                    /* cublasLtGetVersion: 130100 is 13.1 */
  const char* (*status_name)(mcc_lt_status);  /* cublasLtGetStatusName; null in old versions */
} mcc_cublaslt;

#ifdef __cplusplus
}
#endif

#endif
