/* The C API in one page: runs a model with inputs of fixed shape on zeros, prints the first numbers of output 0.
 *
 *     first_output MODEL.so
 */
#include <mcc/mcc.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(const mcc_error* error) {
  fprintf(stderr, "error: %s\n", error->message);
  return 3;
}

static size_t element_count(const int64_t* dims, int32_t rank) {
  size_t count = 1;
  for (int32_t d = 0; d < rank; ++d)
    count *= (size_t)dims[d];
  return count;
}

/* Zeros live until the program ends: the session uses inputs in place. */
static mcc_status set_zeros(mcc_session* session, const mcc_model* model, size_t index, mcc_error* error) {
  mcc_tensor_info info;
  mcc_tensor tensor = {0};
  mcc_model_input(model, index, &info);
  for (int32_t d = 0; d < info.rank; ++d) {
    if (info.dims[d] >= 0) continue;
    error->status = MCC_INVALID_ARGUMENT;
    snprintf(error->message, sizeof error->message, "input \"%.100s\" has no fixed shape", info.name);
    return MCC_INVALID_ARGUMENT;
  }
  tensor.data = calloc(element_count(info.dims, info.rank) + 1, mcc_dtype_bytes(info.dtype));
  tensor.dtype = info.dtype;
  tensor.rank = info.rank;
  tensor.dims = info.dims;
  return mcc_session_set_input(session, index, &tensor, error);
}

int main(int argc, char** argv) {
  mcc_error error;
  mcc_model* model = NULL;
  mcc_session* session = NULL;
  mcc_tensor output;
  if (argc != 2) {
    fprintf(stderr, "usage: first_output MODEL.so\n");
    return 2;
  }
  if (mcc_model_open(argv[1], &model, &error) != MCC_OK) return failed(&error);
  if (mcc_session_create(model, NULL, &session, &error) != MCC_OK) return failed(&error);
  for (size_t i = 0; i < mcc_model_input_count(model); ++i) {
    if (set_zeros(session, model, i, &error) != MCC_OK) return failed(&error);
  }
  if (mcc_session_run(session, &error) != MCC_OK) return failed(&error);
  if (mcc_session_output(session, 0, &output, &error) != MCC_OK) return failed(&error);
  printf("%zu bytes of %s:", output.size_bytes, mcc_dtype_name((mcc_dtype)output.dtype));
  if (output.dtype == MCC_DTYPE_f32) {
    const size_t count = element_count(output.dims, output.rank);
    for (size_t i = 0; i < count && i < 8; ++i)
      printf(" %g", ((const float*)output.data)[i]);
  }
  printf("\n");
  mcc_session_destroy(session);
  mcc_model_close(model);
  return 0;
}
