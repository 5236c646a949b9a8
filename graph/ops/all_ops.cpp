// The list of operators: one line for each file of this folder.
#include "graph/op.h"

namespace mcc::graph {

#define MCC_OP_FILES(X)      \
  X(unary_ops)               \
  X(binary_ops)              \
  X(variadic_ops)            \
  X(cast_ops)                \
  X(reshape_ops)             \
  X(transpose_ops)           \
  X(concat_split_ops)        \
  X(slice_ops)               \
  X(expand_ops)              \
  X(pad_ops)                 \
  X(gather_ops)              \
  X(rotary_ops)              \
  X(linear_attention_ops)    \
  X(conv_ops)                \
  X(conv_transpose_ops)      \
  X(matmul_ops)              \
  X(pool_ops)                \
  X(reduce_ops)              \
  X(softmax_ops)             \
  X(norm_ops)                \
  X(shape_ops)               \
  X(scatter_ops)             \
  X(nonzero_ops)             \
  X(quantize_ops)            \
  X(rnn_ops)                 \
  X(scan_ops)                \
  X(top_k_ops)               \
  X(einsum_ops)              \
  X(resize_ops)              \
  X(fourier_ops)             \
  X(grid_sample_ops)         \
  X(roi_align_ops)           \
  X(unpool_ops)              \
  X(elimination_ops)         \
  X(deform_conv_ops)         \
  X(mel_ops)                 \
  X(control_ops)             \
  X(mcc_elements_ops)        \
  X(mcc_pack_ops)            \
  X(mcc_conv_ops)            \
  X(mcc_matmul_ops)          \
  X(mcc_matmul_nbits_ops)    \
  X(mcc_selected_matmul_ops) \
  X(mcc_product_ops)         \
  X(mcc_bytes_ops)           \
  X(mcc_winograd_ops)        \
  X(mcc_append_ops)          \
  X(mcc_attention_ops)       \
  X(mcc_norm_ops)            \
  X(mcc_pool_ops)            \
  X(mcc_boxes_ops)           \
  X(mcc_unique_ops)          \
  X(mcc_trees_ops)           \
  X(mcc_coupling_ops)        \
  X(mcc_text_ops)            \
  X(random_ops)

#define X(ops) std::span<const OpDef> ops();
MCC_OP_FILES(X)
#undef X

std::span<const OpDef* const> all_ops() {
  static const std::vector<const OpDef*> all = [] {
    std::vector<const OpDef*> result;
    auto append = [&](std::span<const OpDef> ops) {
      for (const OpDef& op : ops)
        result.push_back(&op);
    };
#define X(ops) append(ops());
    MCC_OP_FILES(X)
#undef X
    return result;
  }();
  return all;
}

}  // namespace mcc::graph
