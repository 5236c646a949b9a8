// From blocks to vector loops: the whole lowering pipeline, and its passes one by one.
#pragma once

#include <functional>
#include <string>

#include "tensor/stmt.h"
#include "tensor/target.h"

namespace mcc::tensor {

// Called after each pass with the pass's name and the function (for --emit, and the verifier in debug builds).
using PassObserver = std::function<void(const std::string& pass, const Func& f)>;

// A scheduled function -> plain loops over flat buffers, with explicit vectors, ready for code generation:
//   lower_blocks       block axes become their bindings; init before the reduce loops; predicates become If
//   form_launches      (GPU) what is bound to the grid becomes launches of one body for all threads, with barriers
//   unbind_loops       (CPU) bound loops become serial ones
//   place_allocations  each intermediate to the innermost place that holds all its uses, shrunk to what is used there
//   hoist_conditions   conditions as far out as they can stand
//   partition_loops    iterations that need no bounds check are split off
//   relax_guards       accumulators are computed beyond the end, where nobody reads them
//   place_prefetches   (CPU) hints that fetch the next panel, where a loop asks for them
//   flatten_buffers    one dimension
//   use_instructions   tiles given to instructions become calls of them
//   vectorize_loops    vectorized loops become vector expressions, masked where a condition depends on the lane
//   pipeline_copies    (GPU) annotated loops fetch into shared memory some iterations ahead
//   transpose_tiles    (CPU) strided reads of a square tile become contiguous ones and shuffles
//   unroll_loops       unrolled loops (and all loops around register buffers' accesses) become copies
//   pair_fragments     (GPU) right operands of two neighbouring products of a warp are fetched by one instruction
//   group_loads        (GPU) what stores that follow each other read from global memory is loaded ahead of them
//   keep_tiles         (CPU) products of tiles keep their sums in tile registers
//   lower_math         exp, tanh, ... become polynomials of stated error
// The function is simplified after each.
Func lower(const Func& f, const Target& target, const PassObserver& observer = nullptr);

}  // namespace mcc::tensor
