// Every kind of schedule step. A step is a plain struct; its file (tensor/schedule/<step>.cpp) documents it with a
// before/after, checks it, and applies it. To add one: its struct here or in its own header, one line in the list,
// its file, and a golden.
//
// Each struct lists its fields once, for printing, parsing and JSON.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tensor/schedule/refusal.h"

namespace mcc::tensor {

class Schedule;

// loop -> nested loops, outermost first. One factor may be 0: inferred as ceil(extent / product of the others); when the
// product is not the extent, the blocks inside get a predicate. names: of the new loops; empty = loop.0, loop.1, ...
struct Split {
  std::string loop;
  std::vector<int64_t> factors;
  std::vector<std::string> names;
  template <class V>
  void fields(V& v) {
    v("loop", loop), v("factors", factors), v("names", names);
  }
};
// Directly nested loops -> one. name empty = names joined by "_".
struct Fuse {
  std::vector<std::string> loops;
  std::string name;
  template <class V>
  void fields(V& v) {
    v("loops", loops), v("name", name);
  }
};
// Puts the named loops of one chain into the given order, at the places they hold now.
struct Reorder {
  std::vector<std::string> loops;
  template <class V>
  void fields(V& v) {
    v("loops", loops);
  }
};
// The outermost loops of all nests in the body of loop `over`, one for each, become one loop around `over`: rows of a recurrence that
// have nothing to do with each other. name: of that loop; empty = the first one's.
struct Hoist {
  std::vector<std::string> loops;
  std::string over, name;
  template <class V>
  void fields(V& v) {
    v("loops", loops), v("over", over), v("name", name);
  }
};
// Loops that follow each other become one, whose iterations do in turn what theirs did. name: of that loop; empty = the first one's.
struct FuseSiblings {
  std::vector<std::string> loops;
  std::string name;
  template <class V>
  void fields(V& v) {
    v("loops", loops), v("name", name);
  }
};
struct Parallel {
  std::string loop;
  template <class V>
  void fields(V& v) {
    v("loop", loop);
  }
};
struct Vectorize {
  std::string loop;
  template <class V>
  void fields(V& v) {
    v("loop", loop);
  }
};
// A loop becomes an axis of a GPU's grid: thread = "block.x", "block.y", "block.z", "thread.x", "thread.y" or "thread.z".
struct Bind {
  std::string loop, thread;
  template <class V>
  void fields(V& v) {
    v("loop", loop), v("thread", thread);
  }
};
// Full unrolling by the compiler's own lowering.
struct Unroll {
  std::string loop;
  template <class V>
  void fields(V& v) {
    v("loop", loop);
  }
};
// Moves a producer block under a loop of its consumers, computing just what one iteration needs. New loops are
// named block.axis. loop of another block; the block must not write an output.
struct ComputeAt {
  std::string block, loop;
  template <class V>
  void fields(V& v) {
    v("block", block), v("loop", loop);
  }
};
// Moves a consumer block under a loop of its producers, consuming just what one iteration made. follow = 1: under loops that are its
// producer's, whatever is known about extents; otherwise only where what these make is no box, which has a loop for each axis.
struct ReverseComputeAt {
  std::string block, loop;
  int64_t follow = 0;
  template <class V>
  void fields(V& v) {
    v("block", block), v("loop", loop), v("follow", follow);
  }
};
// An injective producer disappears into its consumers.
struct ComputeInline {
  std::string block;
  template <class V>
  void fields(V& v) {
    v("block", block);
  }
};
// An injective consumer disappears into its single producer's store (not into a reduction's update).
struct ReverseComputeInline {
  std::string block;
  template <class V>
  void fields(V& v) {
    v("block", block);
  }
};
// Block `block` reads buffer through a new block `name` that copies it into a new buffer of the given scope.
struct CacheRead {
  std::string block, buffer, scope, name;
  template <class V>
  void fields(V& v) {
    v("block", block), v("buffer", buffer), v("scope", scope), v("name", name);
  }
};
// Block `block` writes into a new buffer of the given scope; a new block `name` copies it out.
struct CacheWrite {
  std::string block, buffer, scope, name;
  template <class V>
  void fields(V& v) {
    v("block", block), v("buffer", buffer), v("scope", scope), v("name", name);
  }
};
// What block `block` computes from the buffer comes from a new block `name`, in a buffer with a dimension for each of the axes;
// or, of a buffer that it writes, goes there first.
struct Reindex {
  std::string block, buffer, scope, name;
  std::vector<std::string> axes;
  template <class V>
  void fields(V& v) {
    v("block", block), v("buffer", buffer), v("scope", scope), v("name", name), v("axes", axes);
  }
};
// Axes of an unscheduled block -> one axis; none -> one of extent 1.
struct FuseAxes {
  std::string block;
  std::vector<std::string> axes;
  std::string name;
  template <class V>
  void fields(V& v) {
    v("block", block), v("axes", axes), v("name", name);
  }
};
// An axis of an unscheduled block -> one of extent / width outside, `name`, and one of the width.
struct SplitAxis {
  std::string block, axis;
  int64_t width = 1;
  std::string name;
  template <class V>
  void fields(V& v) {
    v("block", block), v("axis", axis), v("width", width), v("name", name);
  }
};
// A sum of products over longer axes: what its operands have there is 0, and nobody reads the results. axes[n] becomes as long as
// a multiple of multiples[n].
struct PadEinsum {
  std::string block;
  std::vector<std::string> axes;
  std::vector<int64_t> multiples;
  template <class V>
  void fields(V& v) {
    v("block", block), v("axes", axes), v("multiples", multiples);
  }
};
struct SetScope {
  std::string buffer, scope;
  template <class V>
  void fields(V& v) {
    v("buffer", buffer), v("scope", scope);
  }
};
// In shared memory, rows of the buffer's last dimension have a length of offset more than a multiple of factor.
struct StorageAlign {
  std::string buffer;
  int64_t factor = 1, offset = 0;
  template <class V>
  void fields(V& v) {
    v("buffer", buffer), v("factor", factor), v("offset", offset);
  }
};
// Factors a reduction: loop (a reduce loop of block) becomes a spatial axis of a new block `name` that computes
// partial results into a buffer with that axis at position `axis`; block then reduces those.
struct Rfactor {
  std::string block, loop, name;
  int64_t axis = 0;
  template <class V>
  void fields(V& v) {
    v("block", block), v("loop", loop), v("name", name), v("axis", axis);
  }
};
// The init of a reduction becomes a block of its own named `block`.init, placed just before `loop`,
// which must be at or outside of all reduce loops of the block. name is always block + ".init".
struct DecomposeReduction {
  std::string block, loop;
  template <class V>
  void fields(V& v) {
    v("block", block), v("loop", loop);
  }
};
// Re-indexes an intermediate buffer (or, at graph level agreed, a parameter): new index list as text over the old
// indices, e.g. "(i, j) -> (i // 16, j, i %% 16)".
struct TransformLayout {
  std::string buffer, map;
  template <class V>
  void fields(V& v) {
    v("buffer", buffer), v("map", map);
  }
};
// A loop (loop=...) or block (block=...) gets a named fact.
struct Annotate {
  std::string block, loop, key, value;
  template <class V>
  void fields(V& v) {
    v("block", block), v("loop", loop), v("key", key), v("value", value);
  }
};
// The loops from `loop` inwards are replaced by the named instruction of tensor/instructions.
struct Tensorize {
  std::string loop, instruction;
  template <class V>
  void fields(V& v) {
    v("loop", loop), v("instruction", instruction);
  }
};

// name in traces, struct
#define MCC_SCHEDULE_STEPS(X)                     \
  X(split, Split)                                 \
  X(fuse, Fuse)                                   \
  X(reorder, Reorder)                             \
  X(hoist, Hoist)                                 \
  X(fuse_siblings, FuseSiblings)                  \
  X(parallel, Parallel)                           \
  X(vectorize, Vectorize)                         \
  X(unroll, Unroll)                               \
  X(bind, Bind)                                   \
  X(compute_at, ComputeAt)                        \
  X(reverse_compute_at, ReverseComputeAt)         \
  X(compute_inline, ComputeInline)                \
  X(reverse_compute_inline, ReverseComputeInline) \
  X(cache_read, CacheRead)                        \
  X(cache_write, CacheWrite)                      \
  X(reindex, Reindex)                             \
  X(fuse_axes, FuseAxes)                          \
  X(split_axis, SplitAxis)                        \
  X(pad_einsum, PadEinsum)                        \
  X(set_scope, SetScope)                          \
  X(storage_align, StorageAlign)                  \
  X(rfactor, Rfactor)                             \
  X(decompose_reduction, DecomposeReduction)      \
  X(transform_layout, TransformLayout)            \
  X(annotate, Annotate)                           \
  X(tensorize, Tensorize)

using Step = std::variant<
#define X(name, Struct) Struct,
    MCC_SCHEDULE_STEPS(X)
#undef X
        std::monostate>;

// Each step's file defines this: checks, then changes the schedule's function.
#define X(name, Struct) Outcome apply_step(const Struct& step, Schedule& schedule);
MCC_SCHEDULE_STEPS(X)
#undef X

}  // namespace mcc::tensor
