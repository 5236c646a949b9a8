// The rules of the schedules. Each takes a draft whose block still stands under its own loops, and says whether it took
// the block on; a rule that does not fit leaves the draft as it is. What is a matter of speed only, a rule asks of the
// draft's decider.
#pragma once

#include "tuner/analysis.h"
#include "tuner/draft.h"

namespace mcc::tuner {

// Injective producers disappear into their consumers where that computes nothing twice.
void inline_producers(Draft& draft);
// Whether a block copies what a recurrence has made (sums that threads keep to themselves) for one that reads several elements at a time
// (of several blocks of threads): that is where it goes through memory.
bool is_copy_of_steps(const tensor::Schedule& schedule, const BlockInfo& producer);

// A reduction whose result and an operand run contiguously along a spatial axis (matmul on packed weights,
// convolution on blocked activations, depthwise, pooling): a tile of accumulators in registers, the reduction
// inside, the elementwise consumers at the tile's write-back.
bool schedule_register_tile(Draft& draft, const std::string& block);
// The same for a block that another rule has put under loops of other blocks: its tiles only, no parallel loops.
bool schedule_nested_register_tile(Draft& draft, const std::string& block);

// Products of bytes by tiles of matrices, on CPUs that have them. False, and an unchanged draft, where that does not fit.
bool schedule_tile_product(Draft& draft, const std::string& block);

// A product with weights that are computed of others (numbers of few bits): unpacked part by part, once for all rows. False, and an
// unchanged draft, where there is none.
bool schedule_unpacked_product(Draft& draft);

// A product whose sums are made in blocks, of dot products of words with a factor for each block. False, and an unchanged draft, where
// there is none.
bool schedule_rounded_product(Draft& draft);

// A contraction between computed blocks, an input transform before it and an output transform behind it (Winograd's
// convolutions): bands of lines, so that what stands between the stages stays in caches.
bool schedule_transformed_product(Draft& draft, const std::string& product);

// Reductions along rows (softmax, normalisation, means): all blocks of the group row by row, in vectors along the row.
bool schedule_rows(Draft& draft);

// A function of two contractions with rows between them (attention): all of it block by block of a few rows.
bool schedule_chain(Draft& draft);

// The same of products of words: by tiles of matrices, or dot products.
bool schedule_word_chain(Draft& draft);

// A recurrence along the axis that is contiguous: some lines at a time, each in order.
bool schedule_lines(Draft& draft, const std::string& block);

// What is left: vectors along the last axis, outer loops in parallel.
void schedule_pointwise(Draft& draft, const std::string& block);

// A block that does several things one after the other for each of its places: these in parallel.
void schedule_sequence(Draft& draft, const std::string& block);

// All rules in their order, on all blocks of the draft.
void apply_rules(Draft& draft);
// What is legal always.
void apply_plain_rules(Draft& draft);

// The rules for single blocks, on those that still stand under loops of their own.
void schedule_rest(Draft& draft);

// ---- Shared by the rules ----

// A block that writes along one axis what it reads along another: its loops, named as in `info`, make square tiles, which
// lowering reads and writes in contiguous runs. The loops around a tile, outermost first; empty when the block is not of
// that kind.
std::vector<std::string> tile_transposition(Draft& draft, const BlockInfo& info);

// Vectors along the row in a block that stands under row_loop, the innermost loop that is not part of the row. A reduction
// runs in several vectors of partial results.
void vectorize_row_map(Draft& draft, const std::string& block, const std::string& row_loop);
void vectorize_row_reduction(Draft& draft, const std::string& block, const std::string& row_loop);

// Single-threaded time in microseconds that this much work takes, and whether that is worth a parallel region.
double estimate_us(double flops, double bytes, const tensor::Target& target);
bool worth_parallel(double microseconds, const tensor::Target& target);
// Whether a block's outer loop runs in parallel: asked where that is in doubt.
bool choose_parallel(Draft& draft, const std::string& block, double microseconds);

// Vectors that one turn of a loop of this extent has: some power of two up to `most`, as far as it divides the loop into
// whole turns. Asked as "block.vectors".
int64_t choose_vectors(Draft& draft, const std::string& block, int64_t extent, int64_t lanes, int64_t most);

// How a loop of this extent is split between cores: share of the ideal speed.
double balance(int64_t items, int cores);

// Takes on a product of few rows and a large operand that is used once for each of them: in the order in which that
// operand lies in memory. False, and an unchanged draft, where that does not fit or is not worth it.
bool schedule_streamed_product(Draft& draft, const std::string& block);

}  // namespace mcc::tuner
