// What may be said about a loop, given the blocks below it; shared by the steps that mark loops and those that move blocks.
#pragma once

#include "tensor/schedule/proven.h"
#include "tensor/schedule/refusal.h"
#include "tensor/schedule/tree.h"

namespace mcc::tensor {

class FuncSites;

// b[i] = b[i] op x, op associative and commutative.
struct Update {
  BinaryOp op;
  Buffer buffer;
  std::vector<Expr> indices;
  Expr operand;  // x
};
// The block's body as such an update, if it is one.
std::optional<Update> as_update(const Block& block);

// Whether the loop may be parallel: no parallel, vectorized or bound loop around or below; no reduce or scan axis bound to it; and
// whatever a block below writes is either used below the loop only (then each iteration has its own), or
// written by one iteration only.
Outcome check_parallel(const Func& f, const For* loop);

// Whether the loop may be vectorized: its extent is a constant of at most 1024; no vectorized loop around or below and no
// parallel one below; every block below writes different elements in different lanes, or reduces along the lanes:
// then it has no init (decompose_reduction), its body is an update, and its predicate is free of the loop.
Outcome check_vectorized(const Func& f, const For* loop);

// The outermost loop over threads around a block; null if there is none.
const For* thread_nest(const BlockSite& site);

// Whether what several nests use of buffers that threads, or warps, have to themselves is made by the same ones (bind.cpp,
// rules 6 and 7).
Outcome check_thread_buffers(const Func& f, const FuncSites& sites, Proven& proven);

// Whether buffers private to a thread stay in one iteration of each parallel loop.
Outcome check_scopes(const Func& f);

// All of the above for the whole function, and whether loops that are bound to axes of a GPU's grid may be (bind.cpp has the rules). Steps that move blocks end with it.
// proven: of the schedule that the function is the next state of.
Outcome check_threads(const Func& f, Proven& proven);

}  // namespace mcc::tensor
