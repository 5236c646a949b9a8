// Putting a block into a place: the loops it gets there, and whether what it reads and writes allows it.
#pragma once

#include "tensor/schedule/digits.h"
#include "tensor/schedule/refusal.h"
#include "tensor/schedule/regions.h"

namespace mcc::tensor {

// The block stands under serial loops of its own, one for each axis in order, has no predicate, and all axes begin at 0.
// from: the first axis whose loop has to be the block's alone; those around it may have other blocks, too.
Outcome require_own_loops(const BlockSite& site, size_t from = 0);

// New loops and what a block's axes are bound to under them.
struct Binding {
  std::vector<LoopSpec> loops;
  std::vector<Expr> values;
  Expr predicate = true_value();
};

// One loop an axis, named block.axis, in the order of the axes: over the axis' stretch (cut to its domain by a predicate where
// that is not sure anyway), or over its whole domain where there is no stretch.
Binding run_axes(const RegionAnalysis& regions, const std::string& block, const std::vector<Axis>& axes,
                 const std::vector<std::optional<Stretch>>& axis_stretches, Names& names);

// Copies of those loops of the site behind the first `standing` ones that the values use, with the values and the site's
// predicate in terms of them. Empty if a condition of the predicate depends on loops kept and loops left out.
std::optional<Binding> follow_loops(const BlockSite& site, size_t standing, const std::vector<Expr>& values,
                                    const std::string& block, Names& names);

// Visits the spatial instances of the site's block that run during one iteration of its first `standing` loops; each once if
// the block runs each once. values: one for each spatial axis.
std::optional<Binding> visit_instances(const Func& f, const BlockSite& site, size_t standing,
                                       const std::string& block, Names& names);

// The regions of axes that follow from a box of elements. A stretch is exact if it is so for each combination of elements.
std::vector<std::optional<Stretch>> axis_stretches(const RegionAnalysis& regions,
                                                   const std::vector<std::optional<AxisSolution>>& solutions,
                                                   const Box& box);

// The axes of one kind, in order.
std::vector<Axis> axes_of_kind(const Block& block, AxisKind kind);
std::vector<Expr> values_of_kind(const Block& block, AxisKind kind);

// The outermost statement around the block (a loop, or the block itself) with no other block that reads (writes, for
// `writers`) the buffer below it, and the number of loops around that.
struct Anchor {
  Stmt stmt;
  size_t depth = 0;
};
Anchor outermost_nest(const std::vector<BlockSite>& sites, const BlockSite& site, const Buffer& buffer,
                      bool writers);

// Whether the block at sites[from] may do its reads at sites[to] instead (just before it or in it when that is later, just
// behind it when that is earlier) with the first `depth` loops of that around it: nobody writes what it reads in between.
Outcome check_reads_move(const std::vector<BlockSite>& sites, size_t from, size_t to, size_t depth);

// Whether, for every instance of the reader, the producer has an instance that stores the element at those indices (which
// are in terms of the reader's axes). A guarded read beyond the edge of the buffer has none.
bool is_fed(const Func& f, const Block& producer, const Store& store, const Block& reader,
            const std::vector<Expr>& indices);

size_t site_index(const std::vector<BlockSite>& sites, const Block* block);

// Statements and expressions of more nodes than this are not made by inlining.
inline constexpr int64_t kMaxBodyNodes = 20000;
// The number of nodes of a tree (shared nodes count each time), or more than the limit if there are more.
int64_t count_nodes(const Stmt& s, int64_t limit);

}  // namespace mcc::tensor
