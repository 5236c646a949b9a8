// Two operands of a warp's products are fetched by one instruction.
#pragma once

#include "tensor/stmt.h"

namespace mcc::tensor {

// Requires unrolled loops. Of products that follow each other, whose right operands lie in shared memory at a constant distance d,
//   let b = load_matrices(s[x], 2) in acc[..] = mma(a, b, acc[..]),  let b = load_matrices(s[x + d], 2) in ..
// the first fetches for both, since threads 16 to 31, which are those with thread.y from 4 on, say where the other two matrices are:
//   let both = load_matrices(s[x + thread.y // 4 * d], 4) in { let b = both[0, 1] in .., let b = both[2, 3] in .. }
Func pair_fragments(const Func& f);

}  // namespace mcc::tensor
