// Kernel formation: which nodes run as one kernel, and the tensor function of each.
#pragma once

#include <map>

#include "graph/graph.h"
#include "tensor/stmt.h"

namespace mcc::graph {

// Where a tensor's rows are parts of wider ones: elements from one row to the next, and of a row before its part.
struct RowPart {
  int64_t pitch = 0;  // 0: the rows are whole
  int64_t first = 0;
};

// A part of the model that may run several times, or not at all: a branch of a choice, the body of a loop.
struct ControlRegion {
  NodeId control = -1;  // the choice, or the end of the loop; -1: the model
  int branch = 0;       // of a choice: 0 if its condition holds, 1 if not
  bool operator==(const ControlRegion&) const = default;
  auto operator<=>(const ControlRegion&) const = default;
};

// A group of nodes that run as one kernel, or a single view, a single join, a single host operator, or a single node that decides what
// runs.
struct KernelGroup {
  enum class Kind { kernel, view, join, host, control };
  Kind kind = Kind::kernel;
  std::vector<NodeId> nodes;  // in topological order
  std::vector<ValueId>
      inputs;  // kernel parameters: values from outside, each once, embedded constants left out
  std::vector<ValueId> outputs;  // values used outside
  NodeId anchor = -1;            // the contraction or reduction, if the group has one
  std::map<ValueId, RowPart> rows;  // inputs and outputs that are parts of rows: the parameter is the wider tensor
  ControlRegion region;  // what it runs as a part of
};

// Every live node is in exactly one group; groups are in an order in which they can run. Reshapes and the like (the same
// elements in the same order) are views of their input, and so are Slice and Split where their results are each one piece of it, unless
// they join a kernel that computes their input. A Concat whose operands can be written where they lie in its result is a join: no kernel;
// so is a reshape that gives a result of the model.
// Groups that only one branch of a choice needs, and those that depend on an iteration of a loop, are in its region, and stand in front of
// the node that decides; on GPUs both branches run, unless data decides sizes or how often loops run, too.
// in_rows: what lies in parts of the rows of a wider image with its channels last does so, too (Slice, Split, Concat along them).
//
// Rules: elementwise nodes join the group that makes their input (epilogue: same shape as the tail of a contraction or
// reduction); injective and elementwise nodes join among themselves; an injective producer with a single user joins a reduction
// (prologue). Elementwise paths that part at the tail of a contraction or reduction and meet again (x * sigmoid(x))
// join together. Where a kernel ends, what converts its result to a wider type is left to the kernel that reads it. Nothing is
// computed twice, and no group depends on itself through another.
std::vector<KernelGroup> fuse(const Graph& graph, bool in_rows = false);

// What an elementwise node converts to a wider type, itself aside from constants; kNoValue for other nodes.
ValueId widened_operand(const Graph& graph, const Node& node);

// Whether an operator of this kind reads each element once, and may be in one kernel with what makes it. Products and windows that
// overlap read elements several times.
bool reads_elements_once(const OpDef& op);

// One function for the whole group: the compute definitions of its nodes one after the other. Parameters: inputs, then
// outputs.
tensor::Func build_kernel(const Graph& graph, const KernelGroup& group);

// The same as it is for the runs in which a condition over the dimensions holds (OpDef::other_run), with the same parameters.
struct OtherKernel {
  Expr condition;
  tensor::Func func;
  bool does_less = false;  // than the other one, whatever their schedules are
};
std::vector<OtherKernel> build_other_kernels(const Graph& graph, const KernelGroup& group);
// The same where the result of a node of the group that updates its first input is in the memory of that (OpDef::updates_first_input).
tensor::Func build_in_place(const Graph& graph, const KernelGroup& group, NodeId node);

// "conv1+bn1+relu1": names of the ONNX nodes.
std::vector<std::string> origins(const Graph& graph, const KernelGroup& group);

}  // namespace mcc::graph
