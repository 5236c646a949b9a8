// Random numbers as functions without a state (domain "mcc"):
//
//   Draw    nothing, or tensors of the loops around it (operands that nobody reads: it is run again in each iteration) -> i64 [2], a key
//           and a position, other ones whenever it runs. Attributes: "stream", a number that no other one of the model has below
//           kMostStreams; "seed", if its node has one: else the key is the session's seed
//   Random  what Draw gives, a shape -> f32 or f64 of that shape. Attributes: "dtype"; "rounds_to", the type that the numbers are cast to,
//           if that is another one; "low" and "high" of a uniform distribution on [low, high), or "mean" and "scale" of a normal one
//
// Element i, in row-major order, is made of the block of Philox 4x32-10 (tensor/philox.h) of the counter (i, position) and the key: it
// depends neither on the schedule nor on threads, nor on who else reads it.
#pragma once

#include "graph/op.h"

namespace mcc::graph {

// Bits of a position that count executions; those above are the stream.
inline constexpr int kExecutionBits = 40;
inline constexpr int64_t kMostStreams = int64_t{1} << (64 - kExecutionBits);

bool is_draw(const OpDef& op);

// Which numbers a run of a session gives: those of the session's seed, in its run `execution` (from 0).
struct Draws {
  uint64_t seed = 0;
  uint64_t execution = 0;
};

// What a Draw gives that runs once in each run.
Constant draw(const Node& node, const Draws& draws);

}  // namespace mcc::graph
