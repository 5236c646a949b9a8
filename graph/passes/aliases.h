// Which values share memory: without a kernel that would copy them.
#pragma once

#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "graph/passes/fuse.h"

namespace mcc::graph {

// Bytes from the value's start to the first of the part of it that a Slice or Split gives. Nothing unless the part is one piece
// of memory, and begins where kernels may assume a tensor to begin.
std::optional<int64_t> piece_offset(const Graph& graph, ValueId part);

// Whether the operands of a Concat lie one behind the other in its result, each where a tensor may begin; of a reshape that gives a
// result of the model, whether its operand may lie there.
bool joins_pieces(const Graph& graph, const Node& node);

// The part of each row of a wider image that a Slice or Split of channels that are last gives. Nothing unless vectors may begin where
// it begins and rows do.
std::optional<RowPart> row_part(const Graph& graph, ValueId part);

// Whether the operands of a Concat of images whose channels are last are such parts of its result's rows.
bool joins_rows(const Graph& graph, const Node& concat);

// Whether a part of rows, read as such, is enough for all who use the value: no view or piece is of it, and it is no output.
bool may_lie_in_rows(const Graph& graph, ValueId v, const std::vector<NodeId>& users);

// Views and pieces lie in what they are of; the operands of joins (KernelGroup::Kind::join) lie in the result.
class Aliases {
 public:
  explicit Aliases(const Graph& graph) : g_(graph), users_(graph.users()) {}
  // Of groups whose joins are known to be possible.
  Aliases(const Graph& graph, const std::vector<KernelGroup>& groups);

  struct Alias {
    ValueId owner;   // has memory of its own
    int64_t offset;  // bytes, in it
    RowPart rows = {};  // of what begins there
  };
  Alias of(ValueId v) const;

  // Lets the node's results lie in its operand.
  void add_view(NodeId view) { views_.insert(view); }
  // Lets the Concat's operands lie in its result. Not done, and false, where one has a place elsewhere: inputs and outputs of the
  // model, constants, values of which the result would hold a part alone, or hold twice.
  bool add_join(NodeId id);
  // The same, where they become parts of its rows.
  bool add_row_join(NodeId concat);

 private:
  int64_t bytes_of(ValueId v) const;
  bool may_become_rows(ValueId owner) const;

  const Graph& g_;
  std::unordered_set<NodeId> views_;
  std::unordered_map<ValueId, Alias> joined_;
  const std::vector<std::vector<NodeId>> users_;
};

}  // namespace mcc::graph
