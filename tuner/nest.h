// A function as numbers: its loops as a tree, and for every store the loops around it, the operations of one iteration and
// how much of each buffer a part of the loops touches. What cost models look at; works on scheduled and unscheduled
// functions that are not lowered yet. Symbolic extents count as 1.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tensor/stmt.h"
#include "tuner/nest_ops.h"

namespace mcc::tuner {

// One buffer in one store. With n loops around the store, what is said of depth d holds for one run of the loops d..n-1
// while the loops before d stand still: d = 0 is everything, d = n a single iteration.
struct NestAccess {
  const tensor::BufferNode* buffer = nullptr;
  bool is_read = false, is_write = false;
  int element_bytes = 4;
  int times = 1;                 // loads of this buffer in one iteration
  std::vector<double> elements;  // n + 1: different elements touched
  std::vector<double> lines;     // n + 1: different cache lines touched, 64 bytes each
  std::vector<int64_t>
      strides;              // n: elements between the first two iterations of loop d; 2^20 where data decides
  std::vector<char> moves;  // n: whether loop d leads to other elements

  double bytes(size_t depth) const { return elements[depth] * element_bytes; }
  bool is_register() const { return buffer->scope == tensor::Scope::registers; }
};

// A fused loop whose index is taken apart again (f // 8, f %% 8) counts as the loops that it was made of.
struct NestLoop {
  tensor::LoopKind kind = tensor::LoopKind::serial;
  int64_t extent = 1;
  int thread_axis = -1;        // of bound loops: 0-2 block.x/y/z, 3-5 thread.x/y/z, 6 virtual thread
  bool is_inner_part = false;  // of a fused loop: a part behind the first
  bool is_matrix = false;      // the loops from here in are one instruction that multiplies matrices
  bool is_warpgroup = false;  // of those, by wgmma
  int64_t unroll_step = 0;     // largest body that an annotation lets the compiler unroll
  int parent = -1;
  // In program order: a loop (its index) or a store (-1 - its index).
  std::vector<int> children;
};

enum class LoopRole : uint8_t { none, spatial, reduce, mixed };

struct NestStore {
  std::vector<int> loops;       // outermost first
  std::vector<LoopRole> roles;  // of each: the kind of the axes that it drives
  NestOps ops;
  std::vector<NestAccess> accesses;  // one a buffer, the written one first
  double iterations = 1;             // product of the extents
  double share = 1;                  // of these iterations that are not cut off by a predicate
  bool is_init = false;              // of a reduction
};

struct Nest {
  std::vector<NestLoop> loops;
  std::vector<NestStore> stores;
  std::vector<int> roots;  // as NestLoop::children
  std::vector<const tensor::BufferNode*> params;
  tensor::Func func;  // keeps the buffers alive
};

Nest nest_of(const tensor::Func& f);

// Where lowering puts an intermediate: inside of all loops that the stores using it share. Their number, by buffer; 0 for
// parameters.
std::unordered_map<const tensor::BufferNode*, size_t> buffer_homes(const Nest& nest);

}  // namespace mcc::tuner
