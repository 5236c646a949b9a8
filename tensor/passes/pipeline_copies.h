// Copies into shared memory run beside the arithmetic on what was copied before.
#pragma once

#include "tensor/stmt.h"
#include "tensor/target.h"

namespace mcc::tensor {

// A loop of a launch with this annotation (of n >= 2) fetches n - 1 iterations ahead.
inline constexpr const char* kStages = "stages";

// Requires flat buffers and vectors. A serial loop with that annotation, whose body writes shared buffers and then uses them (some of
// them maybe before it writes others),
//   for k in K: barrier, a[..] = x[k ..], barrier, use(a)
// becomes, with n times as much of these buffers,
//   barrier, for s in n - 1: a of stage s gets async_copy(x[s ..]), async_commit
//   for k in K: async_wait(n - 2), barrier, stage (k + n - 1) %% n gets x[k + n - 1 ..] if there is such an iteration,
//               async_commit, use(a of stage k %% n)
// Where n is 3 or more and the use ends with a wait for products of warpgroups, these run on into the next iteration, and the copies
// are made n - 2 iterations ahead, behind them:
//   for k in K: async_wait(n - 3), barrier, use, stage (k + n - 2) %% n gets x[k + n - 2 ..], async_commit, wgmma_wait(acc, 1)
//   wgmma_wait(acc, 0)
// Where all copies are boxes of matrices (bulk_copies.h), one thread has the copy engine make them, n - 1 iterations ahead, and
// threads wait for a stage's phase:
//   bulk_init(full[..]), fence_async, barrier, for s in n - 1: bulk_expect(full[s]), bulk_copy(a of stage s)
//   for k in K: bulk_wait(full[k %% n], k // n %% 2), use, wgmma_wait(acc, 1), barrier, stage (k + n - 1) %% n gets its boxes
//   wgmma_wait(acc, 0)
// Such copies for the only step that there is, of which no loop is left, are made where they stand, and waited for:
//   bulk_init(full[0]), fence_async, barrier, bulk_expect(full[0]), bulk_copy(a), bulk_wait(full[0], 0)
// Conditions of a whole vector become those of its copy, which stores zeros where they do not hold.
// What cannot be copied asynchronously (conversions, elements of less than 4 bytes, vectors at odd places) is loaded there, into
// registers where it does not need too many, and stored behind the use. On GPUs older than sm_80, which copy nothing asynchronously, two
// stages take turns, and all copies are such; where they would need too many registers, loops stay as they are, as other loops do:
//   barrier, a of stage 0 gets x[0 ..]
//   for k in K: barrier, next = x[k + 1 ..] if there is such an iteration, use(a of stage k %% 2), stage (k + 1) %% 2 gets next
Func pipeline_copies(const Func& f, const Target& target);

}  // namespace mcc::tensor
