// Axes of mcc.Attention (graph/ops/mcc_attention.cpp), and what is computed over them.
#pragma once

#include <functional>
#include <vector>

#include "graph/op.h"
#include "tensor/build.h"

namespace mcc::graph {

class AttentionDims {
 public:
  // shape_of: of an input.
  AttentionDims(const Attributes& a, const std::function<const Shape&(int)>& shape_of);
  AttentionDims(const Graph& graph, const Node& node);

  // Of all parts, where there are several, behind the batch.
  Shape shape(std::initializer_list<Expr> inner) const;
  // Of what has been put together.
  Shape rows_of_batch() const;
  // Of a view of q, or of k or v, with a step for each axis of `all`: with one for each that is computed over.
  std::vector<int64_t> view(std::vector<int64_t> steps, size_t rank, bool is_of_queries) const;
  // The index in [all..., m, j], from that in [batch..., row, j].
  std::vector<Expr> in_all(std::vector<Expr> index) const;
  // The other way.
  std::vector<Expr> in_batch(std::vector<Expr> index) const;

  // Axes of the result, and those that come before the parts: nobody but us takes away those of extent 1 ahead of a recurrence.
  Shape all, batch;
  int64_t splits = 1;  // the last axis of the batch, where there are several
  Expr parts = 1;      // of a split
  bool has_parts = false;
  int64_t rolling;
  bool is_open = false;         // whether a run says how many keys there are
  bool is_ragged = false;       // the last part is filled up
  Expr m = 1, keys = 1, n = 1;  // n: keys of a part
  int64_t d = 1, e = 1;
  Expr queries = 1;  // rows of each batch
  Expr rows = 1;     // that are computed: as many as tiles have, so that these need no conditions
  bool are_rows_whole = true;
  bool are_keys_shared = false;  // keys and values stand along the last axis of `all`: heads share them
  // Axes of `all` and splits that the batch has: where views have steps.
  size_t viewed() const { return batch.size() - (splits > 1 ? 1 : 0); }

 private:
  bool is_kept(size_t axis) const;

  bool has_heads_as_rows_ = false;  // the last axis of `all`, of one query
};

int64_t round_up(int64_t extent, int64_t multiple);

}  // namespace mcc::graph
