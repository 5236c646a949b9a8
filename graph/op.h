// An operator: one description in one place (graph/ops/<name>.cpp). Adding one touches its file, one line of
// graph/ops/all_ops.cpp, and its test cases.
#pragma once

#include <functional>
#include <string_view>

#include "graph/graph.h"
#include "tensor/build.h"

namespace mcc::graph {

// How a node may be fused with its neighbours.
enum class FusionClass {
  elementwise,  // out[i] depends on in[i] (same shape or broadcast)
  injective,  // every output element depends on one element of each input (transpose, slice, concat, gather, ...)
  reduction,    // reductions, softmax, normalisations
  contraction,  // matmul, convolution: multiply-accumulate over a reduced axis
  opaque,       // runs as a kernel of its own
  host,         // no compute definition: run by the runtime (or only folded)
};

// How an operator stands to the order of its axes (graph/passes/sink_transposes.cpp). Of inputs in constant_inputs nothing is
// said.
enum class AxisUse : uint8_t {
  own,      // its axes have meanings
  any,      // pointwise with multidirectional broadcasting: the same along axes in whatever order
  scalars,  // pointwise where its inputs from the second on have one element each; else as `own`
  first,    // pointwise in its first input; what else it reads is the same for all elements: a table
  one,      // the attribute "axis" names one that is different; inputs and outputs have the same axes
  reduced,  // reduces along those that the attribute or input 1 "axes" names
};

// How an operator takes part in the choice of layouts (graph/passes/choose_layouts.cpp). Those that say nothing stay plain,
// except elementwise ones, which follow their operands.
enum class LayoutRole : uint8_t {
  none,
  matmul,         // x w: constant weights are packed in panels
  gemm,           // the same with ONNX's alpha, beta and transpositions
  convolution,    // blocked activations, packed weights, Winograd's algorithm; of three spatial axes channels last, on GPUs
  pool,           // windows over spatial axes; has a laid out form mcc.NAME
  global_mean,    // over all spatial axes
  mean,           // over axes that are named, ReduceMean
  instance_norm,  // of each channel over all spatial axes
  concat,         // along "axis"
  slice,          // a box, by constant inputs 1 to 4
  split,          // along "axis"
  to_space,       // DepthToSpace, mcc.Interleave: blocks of channels beside one another
  resize,         // of spatial axes, by factors or to sizes in constant inputs
  recurrent,      // weights [directions, rows, columns] in inputs 1 and 2, packed in panels of rows
};

// Operators that decide what runs (graph/passes/regions.h). What stands between loop_begin and loop_end runs once for each iteration.
enum class Control : uint8_t {
  none,
  choose,      // one of two lists of values, by a condition: what only one of them needs runs only then
  loop_begin,  // state -> its value in an iteration
  loop_end,    // values of an iteration -> state behind the loop, and tensors of all iterations
};

// What infer() sees: the node, types of its inputs, constants among them; it sets the output types. Errors are the
// user's: each names what was expected and got; the node's name is added by the caller.
class InferContext {
 public:
  InferContext(const Graph& graph, const Node& node) : graph_(graph), node_(node) {}

  int num_inputs() const { return static_cast<int>(node_.inputs.size()); }
  bool has_input(int i) const { return i < num_inputs() && node_.inputs[static_cast<size_t>(i)] != kNoValue; }
  const TensorType& input(int i) const { return graph_.value(node_.inputs[static_cast<size_t>(i)]).type; }
  int rank(int i) const { return static_cast<int>(input(i).shape.size()); }
  // The value when it is known at compile time, else null.
  const Constant* constant(int i) const;
  // Of an integer input that is known at compile time, or follows from symbolic dimensions: its elements, i64, row-major. Asking for others
  // is remembered (wanted()).
  std::optional<std::vector<Expr>> elements(int i) const;
  // Whether two dimensions are equal, or taken to be; if they may be, that is remembered.
  bool are_equal(const Expr& a, const Expr& b);
  // Whether an extent is one number; nothing where that depends on the sizes of a run.
  std::optional<bool> is_known_to_be(const Expr& extent, int64_t number) const;
  const Attributes& attributes() const { return node_.attributes; }
  int num_outputs() const { return static_cast<int>(node_.outputs.size()); }
  bool has_output(int i) const {
    return i < num_outputs() && node_.outputs[static_cast<size_t>(i)] != kNoValue;
  }

  void set_output(int i, TensorType type);
  // Valid ONNX, but not supported here (exit code 4) / not valid (exit code 3).
  void unsupported(std::string message);
  void invalid(std::string message);

  const std::vector<std::optional<TensorType>>& outputs() const { return outputs_; }
  const Diagnostics& errors() const { return errors_; }

  // Of an element that only a run knows: whether it may stand for something else than a size (-1, a position from the end).
  bool may_be_negative(const Expr& e) const { return graph_.depends_on_data(e) && !graph_.facts().can_prove(e >= 0); }
  bool depends_on_data(const Expr& e) const { return graph_.depends_on_data(e); }
  // A dimension of its output that the node itself sets: the one that its output has, which must have been made with it.
  Expr own_dim(int output, size_t axis) const;

  // What would have to be known while the model runs for the operator to be possible.
  struct Wanted {
    std::vector<int> elements;             // of these inputs
    std::vector<DimEquality> equalities;
  };
  const Wanted& wanted() const { return wanted_; }

 private:
  const Graph& graph_;
  const Node& node_;
  std::vector<std::optional<TensorType>> outputs_;
  Diagnostics errors_;
  mutable Wanted wanted_;
};

// What compute() sees: a builder, a buffer for each input (undefined for those that are absent or embedded, see
// is_embedded), the node's attributes and types. It sets a buffer for every output.
class ComputeContext {
 public:
  ComputeContext(tensor::FuncBuilder& builder, const Graph& graph, const Node& node,
                 std::vector<tensor::Buffer> inputs)
      : builder(builder), graph_(graph), node_(node), inputs_(std::move(inputs)) {}

  tensor::FuncBuilder& builder;

  bool has_input(int i) const {
    return i < static_cast<int>(node_.inputs.size()) && node_.inputs[static_cast<size_t>(i)] != kNoValue;
  }
  int num_inputs() const { return static_cast<int>(node_.inputs.size()); }
  // Element of input i: a load, or the element itself where a single one is embedded.
  Expr at(int i, std::vector<Expr> indices) const;
  const TensorType& input_type(int i) const {
    return graph_.value(node_.inputs[static_cast<size_t>(i)]).type;
  }
  const Constant* constant(int i) const;
  // As InferContext::elements. Of an input that infer() has asked for its own, there are some.
  std::vector<Expr> elements(int i) const;
  const TensorType& output_type(int i) const {
    return graph_.value(node_.outputs[static_cast<size_t>(i)]).type;
  }
  bool has_output(int i) const {
    return i < static_cast<int>(node_.outputs.size()) && node_.outputs[static_cast<size_t>(i)] != kNoValue;
  }
  const std::vector<Expr>& output_elements(int i) const {
    return graph_.value(node_.outputs[static_cast<size_t>(i)]).elements;
  }
  const Attributes& attributes() const { return node_.attributes; }
  const Node& node() const { return node_; }

  void set_output(int i, tensor::Buffer buffer);
  const std::vector<tensor::Buffer>& outputs() const { return outputs_; }

 private:
  const Graph& graph_;
  const Node& node_;
  std::vector<tensor::Buffer> inputs_, outputs_;
};

// How a node is computed in the runs in which a dimension has a certain size: with other attributes.
struct OtherRun {
  tensor::Var dim;
  int64_t size = 1;
  Attributes attributes;
};

struct OpDef {
  std::string_view name;         // ONNX's operator type; "mcc.X" for our own
  std::string_view domain = "";  // "", "com.microsoft", "ai.onnx.ml", "mcc"
  FusionClass fusion = FusionClass::opaque;
  void (*infer)(InferContext&) = nullptr;
  void (*compute)(ComputeContext&) = nullptr;  // null only for host operators

  // Inputs 0 .. required_inputs-1 must be there.
  int required_inputs = 1;

  // Bit masks by input position. An input whose value is known at compile time, or follows from symbolic dimensions, becomes part
  // of the definition, and is not a kernel parameter, if it is in constant_inputs (shapes, axes, ...: any size), or in scalar_inputs and of one
  // element (an exponent, a bound).
  uint32_t constant_inputs = 0;
  uint32_t scalar_inputs = 0;

  // Result is known from the types alone (Shape, Size): computes it at compile time, when it can.
  std::optional<Constant> (*fold)(const Graph&, const Node&) = nullptr;

  // Another way to compute it in some runs, for GPUs: one library has both. Null where there is none.
  std::optional<OtherRun> (*other_run)(const Graph&, const Node&) = nullptr;

  // The result is input 0 but for some elements, which are those of input 1, or 0, where both have the same shape. With the attribute
  // `in_place` = 1 those of input 1 alone are written: the others are there, as the result is in the memory of the input.
  bool updates_first_input = false;

  // Constants of it are left to the passes: they say more than their value does (a quantised weight).
  bool is_folded_late = false;

  // The result is the same elements in the same order as input 0, under another shape: takes no kernel.
  bool is_view = false;

  AxisUse axis_use = AxisUse::own;
  LayoutRole layout = LayoutRole::none;

  Control control = Control::none;

  // An elementwise operator that gives finite results for finite operands: it may run on blocked layouts whose last block
  // is padded, as the padding then stays finite (graph/passes/choose_layouts.cpp).
  bool layout_agnostic = false;
};

// The description with its role in the choice of layouts, for tables of a family.
inline OpDef laid_out(OpDef op, LayoutRole role) {
  op.layout = role;
  return op;
}

// The operator's output types for the node (whose outputs need not have types yet), one for each of its outputs; an
// entry for an absent output means nothing. Errors carry the node's name.
// *wanted: what was missing where it is refused; may be null.
Result<std::vector<TensorType>> infer_types(const Graph& graph, const Node& node, InferContext::Wanted* wanted = nullptr);

// Whether input i is part of the compute definition rather than a kernel parameter.
bool is_embedded(const Graph& graph, const Node& node, int i);

// The ordered list of all operators, and look-up by domain and name (null if unknown).
std::span<const OpDef* const> all_ops();
const OpDef* find_op(std::string_view domain, std::string_view name);

// Gives the function those of the graph's symbolic dimensions that it uses.
void set_dims(const Graph& graph, tensor::Func& func);

// The compute definition of one node as a function: parameters are the node's inputs that are not embedded, in order
// (each value once), then its outputs. The function's dims are those of the graph's that it uses.
tensor::Func build_node_func(const Graph& graph, const Node& node);

}  // namespace mcc::graph
