// The rules of the schedules for GPUs. As those of rules.h, each says whether it took its blocks on, and leaves the draft as it
// is where it does not fit. Every size comes from the target's Gpu.
#pragma once

#include "tuner/rules.h"

namespace mcc::tuner {

// All rules in their order; in the end everything is bound to the grid.
void apply_grid_rules(Draft& draft);

// All but products.
void schedule_grid_rest(Draft& draft);

// In words.
inline constexpr const char* kPlainOnGrid = "a result per thread";

// What is left: for every outermost loop that is not bound a grid of its own. Spatial loops around a block make it, one
// result (or a few neighbours) a thread; where there are none, or several blocks share loops that depend on each other, a
// single block, whose threads share out the loops inside.
void bind_rest(Draft& draft);

// Injective producers disappear into their consumers: those of rule_inline.cpp, and copies that only move data, also under
// windows and products, since reading through their indices costs a thread no more than a guarded load.
void inline_for_grid(Draft& draft);

// A sum of products of two operands: tiles in registers, operands by way of shared memory.
bool schedule_grid_product(Draft& draft, const std::string& block);
// The same where the caller sees to the block that adds up the parts of a divided sum (block.part): that takes no launch of its own.
bool schedule_grid_product_of_parts(Draft& draft, const std::string& block);
// The same with tensor cores, where what is multiplied has a type that they take (16-bit floats, tf32) and the GPU has them.
bool schedule_grid_matrices(Draft& draft, const std::string& block);
// The same of 16-bit floats or bytes by warpgroups (wgmma), where that is expected to be faster and the GPU has them.
bool schedule_grid_warpgroups(Draft& draft, const std::string& block);
// A product of bytes with few rows, whose weights lie in panels of four columns: threads along the sum.
bool schedule_grid_byte_rows(Draft& draft, const std::string& block);
// A product of one or two rows with weights that lie along the sum, of few bits or of 16: warps along the sum.
bool schedule_grid_few_rows(Draft& draft, const std::string& block);
bool is_grid_product(const tensor::Schedule& schedule, const std::string& block);

// A product between computed blocks (Winograd's convolutions): transforms a tile a thread in registers, in launches of their own
// before and behind the product. Elementwise producers have to be inlined before, and nothing else.
bool schedule_grid_transformed_product(Draft& draft);

// A function of two products with rows between them (attention): all of it in one launch, where a few rows fit into shared
// memory.
bool schedule_grid_chain(Draft& draft);

// Few rows of many elements: their reductions in parts, each of which is a row from then on; then of what the parts give.
void divide_grid_rows(Draft& draft);

// Blocks that follow each other, reductions along rows and maps of these: rows by blocks, their elements by threads. in_steps: they
// stand in the steps of a recurrence, each of which launches them.
bool schedule_grid_rows(Draft& draft, const std::vector<std::string>& blocks, bool in_steps = false);

// The same along an axis between whose elements other results lie: lines by threads, their elements one after the other.
bool schedule_grid_lines(Draft& draft, const std::vector<std::string>& blocks);

// A sum over what lies far apart, of which there are few: results that are neighbours by the threads of a warp, each sum by several.
bool schedule_grid_columns(Draft& draft, const std::string& block);
// Whether neighbouring results, of which all multiprocessors have some, each go through the same elements.
bool share_rows(const BlockInfo& info, const tensor::Gpu& gpu);

// Windows over pictures with their channels last: vectors of channels, results that share what they read.
bool schedule_grid_windows(Draft& draft, const std::string& block);

// A block that writes along one axis what it reads along another: square tiles by way of shared memory.
bool schedule_grid_transposition(Draft& draft, const std::string& block);

// The steps of a recurrence as launches, which the host carries out one after the other, where that is expected to be faster than a
// block of threads for each row.
bool launch_steps(Draft& draft, const std::string& steps);
// Sums of a recurrence's steps: weights whose rows lie along the sum are stored so that threads next to each other read neighbours.
void prepare_recurrences(Draft& draft);
// Rows of a recurrence that have nothing to do with each other (a batch, the rows of TopK) leave the loop over its steps. The loop over
// them; empty where there are none.
std::string hoist_rows(Draft& draft, const std::string& steps);
// The most that a step of one of these rows has for threads to do at once: results, or shares of a sum. rows: or the loop over steps.
int64_t width_of_rows(const tensor::Schedule& schedule, const std::string& rows);
// What only the blocks below the loop write and read goes to this scope, where it may.
void keep_scratch(Draft& draft, const std::string& host, const std::string& scope);

// ---- Shared by the rules ----

// Threads of a block for this many independent results: enough for a block, as long as all multiprocessors get one.
int64_t choose_threads(const tensor::Gpu& gpu, int64_t results);

// A reduction that makes a result of the kernel sums in a register, and a block of its own stores it.
void sum_in_register(Draft& draft, const std::string& block);
// Whether windows that are next to each other along a spatial axis share elements.
bool windows_overlap(const BlockInfo& info, size_t axis);
// The only consumer of a block's result, when it takes each element once, at the place where it is made.
std::string epilogue_of(const tensor::Schedule& schedule, const std::string& block);

}  // namespace mcc::tuner
