// The state of building a graph from an ONNX model, over the files that do it. Internal to this layer: includes protobuf.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "frontend/build_graph.h"
#include "graph/op.h"
#include "tensor/visit.h"

namespace mcc::frontend {

// What a name of the model stands for.
struct Entry {
  enum Kind {
    value,     // id
    sequence,  // items
    labelled,  // id, whose numbers stand for maps: labels
    absent,    // an optional operand that is left out, an optional value that holds none
    unknown,   // the result of something unsupported whose type is not known either
  };
  Kind kind = unknown;
  graph::ValueId id = graph::kNoValue;
  std::shared_ptr<const std::vector<Entry>> items = nullptr;
  std::shared_ptr<const OutputLabels> labels = nullptr;
};

struct Scope {
  std::map<std::string, Entry> names;
  std::map<std::string, const onnx::TypeProto*> types;  // as ONNX inferred them
  const Scope* parent = nullptr;

  Entry find(const std::string& name) const {
    if (name.empty()) return {Entry::absent};
    for (const Scope* s = this; s; s = s->parent)
      if (auto found = s->names.find(name); found != s->names.end()) return found->second;
    return {};
  }
};

// How nodes are spoken of: a node of a function body stands for the node that was expanded.
struct Origin {
  std::string where;  // label of the model's node; empty: the node's own
  std::string name;
  int depth = 0;
};

// Attributes by name; null where there is none.
const onnx::AttributeProto* find_attribute(const onnx::NodeProto& node, const std::string& name);
// An element of an attribute with a number for each operand or result of a Scan; 0 where it is left out.
int64_t scan_number(const onnx::NodeProto& node, const std::string& name, int i);
// Whether a machine may hold it, with the graph's largest dimensions: larger tensors are refused, so that sizes stay far from overflow.
bool fits_memory(const graph::Graph& graph, const graph::TensorType& type);
std::string where_of(const onnx::NodeProto& node, const Origin& origin);
// "a sequence".
const char* kind_of_entry(const Entry& entry);
std::string name_of(const onnx::NodeProto& node);
// Of nodes that stand for a part of this one.
Origin part_of(const onnx::NodeProto& node, const Origin& origin);

class Builder {
 public:
  // A size of the dimensions of inputs that runs are refused for where it is negative, in text, and what they say then.
  struct CheckedSize {
    std::string size, where;
  };
  // learnt: of the same model, from building it without.
  Builder(const onnx::ModelProto& model, TensorReader& reader, const ImportOptions& options,
          const graph::Evaluator& fold, ImportedModel& imported, Diagnostics& problems,
          std::vector<CheckedSize> learnt)
      : model_(model),
        reader_(reader),
        options_(options),
        fold_(fold),
        imported_(imported),
        problems_(problems),
        learnt_(std::move(learnt)) {}

  graph::Graph build();
  // Those that the built graph holds at 0 somewhere: a length of which a range counts, which is that of a convolution's result, too.
  std::vector<CheckedSize> sizes_worth_learning(const graph::Graph& graph) const;

 private:
  void report(ErrorKind kind, std::string where, std::string message, std::string hint = "");
  void report_all(const Diagnostics& problems, const std::string& where);
  // That the operand is no tensor of numbers.
  void report_operand(const std::string& operand, const Entry& entry, const std::string& where);
  // Of a symbolic extent along which a tensor is taken apart.
  void report_open(const std::string& where, const tensor::Expr& extent);

  void add_input(const onnx::ValueInfoProto& input, Scope& scope);
  // With symbolic dimensions where the options leave them open; nothing where one has no size.
  std::optional<graph::TensorType> input_type(const onnx::ValueInfoProto& input);
  void add_output(const onnx::ValueInfoProto& output, const Scope& scope);
  // `declared`: ONNX's element type.
  void add_tensor_output(const std::string& name, int declared, const Entry& entry);
  void add_sequence_output(const std::string& name, const onnx::TypeProto& declared, const Entry& sequence);
  Entry under_name(const Entry& v, const std::string& name);
  void add_labelled_output(const onnx::ValueInfoProto& output, const Entry& entry);
  void add_constant(const std::string& name, Result<graph::Constant> constant, Scope& scope);
  void add_tensor(const std::string& name, const onnx::TensorProto& tensor, const std::string& where, Scope& scope);
  // Of the main graph or of the body of a node.
  void add_initializers(const onnx::GraphProto& graph, Scope& scope);
  void add_nodes(const onnx::GraphProto& graph, Scope& scope, const Origin& origin);
  void add_node(const onnx::NodeProto& node, Scope& scope, const Origin& origin);
  // The node's results are unknown; going on with the types that ONNX infers for them lets later nodes be looked at.
  void give_up(const onnx::NodeProto& node, Scope& scope);
  void report_unsupported(const onnx::NodeProto& node, const Origin& origin);

  // ---- Operators ----

  void add_constant_node(const onnx::NodeProto& node, Scope& scope, const Origin& origin);
  Result<graph::Constant> constant_value(const onnx::AttributeProto& a, const std::string& where);
  // Operators that are defined by others are built from those: some of ONNX's, all of onnxruntime's. False: it is none.
  bool expand_function(const onnx::NodeProto& node, const std::string& domain, Scope& scope, const Origin& origin);
  void add_operator(const graph::OpDef& op, const onnx::NodeProto& from, Scope& scope, const Origin& origin);
  bool translate_attributes(const onnx::NodeProto& from, const std::string& where, graph::Attributes& to);
  void append(graph::Node node);
  bool is_small(const graph::Node& node) const;
  // Whether the node's outputs are known now.
  bool fold(const graph::Node& node, const std::string& where);
  int opset_of(const std::string& domain) const;
  // A result of a body becomes that of the node which the body stands for. Values from `first` on are the body's own: they take
  // the name.
  void take_over(const std::string& name, const Entry& entry, size_t first, Scope& scope);

  // ---- Control flow (control_flow.cpp) ----

  // The taken branch of an If with a known condition becomes part of the graph; of others both, and what chooses between them.
  void add_if(const onnx::NodeProto& node, Scope& scope, const Origin& origin);
  // The body of a Loop whose end is known, and of a Scan along axes of known length, becomes part of the graph once for each iteration;
  // of others once.
  void add_loop(const onnx::NodeProto& node, Scope& scope, const Origin& origin);
  void add_scan(const onnx::NodeProto& node, Scope& scope, const Origin& origin);
  struct ScanOperands {
    const onnx::GraphProto& body;
    int states;                     // the first ones of the inputs
    std::vector<Entry> inputs;      // tensors
    std::vector<int64_t> axes;      // of each operand that is scanned, from 0 on
    std::vector<bool> is_backward;  // the same
    tensor::Expr length;            // of the axes
    bool is_open = false;           // whether one of them has another length in other runs
    const Entry& scanned(int k) const { return inputs[static_cast<size_t>(states + k)]; }
  };
  std::optional<ScanOperands> read_scan(const onnx::NodeProto& node, const Scope& scope,
                                        const std::string& where);
  bool find_length(ScanOperands& scan, const std::string& where);
  // Scan of opset 8 (batched_scan.cpp): its first dimension is that of a batch, whose sequences may be shorter than the operands.
  void add_batched_scan(const onnx::NodeProto& node, Scope& scope, const Origin& origin);
  struct BatchedScan;
  std::optional<BatchedScan> read_batched_scan(const onnx::NodeProto& node, const Scope& scope,
                                               const Origin& origin);
  bool check_lengths(const BatchedScan& scan);
  Entry reversed_sequences(const BatchedScan& scan, const Entry& operand);
  bool scan_sequence(const BatchedScan& scan, int64_t batch, const Scope& around,
                     std::vector<std::vector<Entry>>& results);
  // What has come of the iteration where the sequence is that long, else the other one.
  Entry while_in_sequence(const Entry& is_in, const Entry& of_iteration, const Entry& otherwise,
                          const Origin& origin);
  // One iteration: the body's outputs for these inputs. False: something is wrong with it, and has been said.
  bool add_iteration(const onnx::GraphProto& body, const Scope& around, const std::vector<Entry>& inputs, const Origin& origin,
                     std::vector<Entry>& outputs);
  // What iterations have made, one behind the other along a new axis. `output`: of the body, for the type where there are none.
  Entry stack_parts(const std::vector<Entry>& parts, int64_t axis, const onnx::ValueInfoProto& output, const Origin& origin);

  bool is_one_bool(graph::ValueId id) const;
  bool is_one_integer(graph::ValueId id) const;

  // ---- Control flow that data decides (run_time_control.cpp) ----

  struct Branch {
    std::vector<Entry> results;
    Diagnostics problems;
    // With the shapes that the model is compiled for.
    bool is_impossible() const {
      return !problems.empty() && std::all_of(problems.begin(), problems.end(), [](const Diagnostic& d) { return d.kind == ErrorKind::bad_input; });
    }
  };
  // Of a node whose condition it is, for when it holds or when not.
  Branch build_branch(const onnx::GraphProto& graph, int results, graph::ValueId condition, bool is_then, const Scope& scope, const Origin& origin);
  void add_choice(const onnx::NodeProto& node, graph::ValueId condition, Scope& scope, const Origin& origin);
  std::optional<int> narrower_branch(graph::ValueId condition, const Branch& yes, const Branch& no) const;
  void take_only_branch(const onnx::NodeProto& node, graph::ValueId condition, bool is_then, const Branch& branch, const Diagnostic& problem, Scope& scope);
  void choose(const onnx::NodeProto& node, graph::ValueId condition, const Branch& yes, const Branch& no, Scope& scope, const Origin& origin);
  // Operands and results of the node that chooses.
  struct Choices {
    std::vector<graph::ValueId> of_yes, of_no, results;
  };
  // One of a node's results, or a tensor of one that is a sequence. Unknown: it cannot be chosen, which has been said.
  Entry chosen(Entry a, Entry b, const std::string& name, const onnx::NodeProto& node, const Origin& origin,
               Choices& choices);
  bool match_single_elements(Entry& a, Entry& b, const Origin& origin);
  Entry with_rank_of(const Entry& v, graph::ValueId like, const Origin& origin);
  void use_declared_dims(graph::ValueId v, const onnx::ValueInfoProto& output, const std::string& where);
  // Of a result that is one or the other, with the dimensions of the first; nothing where they are too different.
  std::optional<graph::TensorType> common_type(graph::ValueId a, graph::ValueId b) const;
  // Where the two have different dimensions, those of the result come from its node.
  void set_own_dims(graph::ValueId result, graph::ValueId a, graph::ValueId b);

  // How far the graph has been built, to go back there.
  struct Mark {
    size_t values, nodes, dims, equalities, conditional, problems;
    int64_t streams;
    std::map<graph::ValueId, graph::ValueId> sizes;
    std::set<graph::ValueId> tainted;
  };
  Mark mark() const;
  // What nodes that were added since then take to be equal is asked for where the branch runs alone.
  void make_conditional(const Mark& since, graph::ValueId condition, bool is_then);
  void add_conditional_equalities();
  // Sizes that inputs may be too small for (a window longer than a signal) are looked at in each run.
  void add_size_checks();
  void learn_sizes();
  tensor::Expr truth_of(graph::ValueId condition);
  void go_back(const Mark& mark);

  // A Loop while it is built.
  struct RunTimeLoop {
    const onnx::NodeProto& node;
    const onnx::GraphProto& body;
    const Origin& origin;
    std::string where, name;
    Entry most, first;           // how often at most; whether it begins
    int64_t limit = int64_t{1} << 40;  // of iterations
    std::vector<Entry> initial = {};   // of what is carried
    std::vector<int> states = {};      // positions of those which iterations change
    std::set<std::pair<size_t, size_t>> changing = {};  // dimensions of states that do not stay: state, axis
    graph::NodeId begin = -1;
    std::vector<graph::ValueId> in_iteration = {};  // the condition and the states
    int carried() const { return node.input_size() - 2; }
    const std::string& state_name(size_t i) const { return body.input(states[i] + 2).name(); }
  };
  bool is_known_to_hold(const Entry& condition) const;
  void add_run_time_loop(const onnx::NodeProto& node, const onnx::GraphProto& body, Scope& scope, const Origin& origin);
  bool find_states(RunTimeLoop& loop, const Scope& scope);
  void begin_loop(RunTimeLoop& loop);
  bool iterate(const RunTimeLoop& loop, const Scope& around, std::vector<Entry>& outputs);
  void find_changing_dims(RunTimeLoop& loop, const std::vector<Entry>& outputs) const;
  bool end_loop(const RunTimeLoop& loop, const std::vector<Entry>& outputs, Scope& scope);
  void give_own_dim(graph::ValueId v, size_t axis);
  Entry iteration_number(const std::string& name, graph::ValueId begin, int64_t most, bool is_vector);
  void begin_as(const RunTimeLoop& loop, size_t state, graph::ValueId next);
  bool keeps_type(const RunTimeLoop& loop, size_t state, graph::ValueId after);
  void name_result(const std::string& name, graph::ValueId id, Scope& scope);
  void add_trips(const graph::Node& end, size_t states, int64_t limit);

  // ---- Scan whose number of iterations a run decides (run_time_scan.cpp) ----

  void add_run_time_scan(const onnx::NodeProto& node, const ScanOperands& scan, Scope& scope,
                         const Origin& origin);
  static onnx::GraphProto loop_body_of(const ScanOperands& scan);
  Entry as_scanned(const onnx::NodeProto& node, int output, Entry collected, const Origin& origin);

  // ---- Sizes that data decides (data_sizes.cpp) ----

  // The types of the node's results. Elements of its operands that it needs and only a run knows become dimensions; dimensions that
  // may or may not be equal are taken to be.
  Result<std::vector<graph::TensorType>> infer(graph::Node& node, const std::string& where);
  // The same tensor, for whoever takes its elements as sizes; absent where they cannot be.
  graph::ValueId as_sizes(graph::ValueId v);
  // Elements that only a run knows, and what is computed of them: variables stand for them.
  struct UnknownElements {
    struct Element {
      tensor::Var var;
      graph::ValueId value;
      size_t index;
    };
    std::vector<Element> elements;
    std::map<graph::ValueId, std::vector<tensor::Expr>> of;  // integers that are neither constants nor sizes
  };
  // As far as they follow from others; undefined where they do not.
  std::vector<tensor::Expr> known_elements(graph::ValueId v, UnknownElements& unknown);
  // The same with a variable for each that does not. Empty for what has no few integers.
  std::vector<tensor::Expr> named_elements(graph::ValueId v, UnknownElements& unknown);
  // Dimensions for the variables that these expressions use.
  tensor::VarMap dims_of(const UnknownElements& unknown, const std::vector<tensor::Expr>& used_in);
  // Extents that are more than sums and products of other dimensions get a name of their own where data decides them.
  void name_sizes(const onnx::NodeProto& node, std::vector<graph::TensorType>& types);
  tensor::Expr named_size(const tensor::Expr& size, const std::string& name);

  // ---- Sequences and optional values (sequences.cpp) ----

  // Whether the node, of ONNX's own domain, takes or gives a sequence or an optional value.
  bool is_sequence_node(const onnx::NodeProto& node, const Scope& scope) const;
  void add_sequence_node(const onnx::NodeProto& node, Scope& scope, const Origin& origin);
  // Of inputs that are known to be there or left out; unknown: there is something wrong, and it has been said.
  Entry sequence_result(const onnx::NodeProto& node, const std::vector<Entry>& inputs, const std::string& where, const Origin& part);
  Entry optional_result(const std::string& type, const std::vector<Entry>& inputs, const std::string& where, const Origin& part);
  Entry split_to_sequence(const onnx::NodeProto& node, const std::vector<Entry>& inputs, const std::string& where, const Origin& part);
  Entry join(const std::vector<Entry>& items, const onnx::NodeProto& node, const std::string& where, const Origin& part);
  static Entry sequence_of(std::vector<Entry> items);

  // ---- Tensors of strings (texts.cpp) ----

  // The id of a string of the model's.
  int64_t text_id(const std::string& text);
  // A constant of their ids.
  graph::ValueId add_texts(const std::string& name, const graph::Constant& strings);
  bool is_text(const Entry& entry) const;
  onnx::TypeProto onnx_type(graph::ValueId id) const;
  // Of a sequence with the element type of its first tensor; none of what is left out.
  onnx::TypeProto onnx_type(const Entry& entry) const;
  Entry add_text_input(const std::string& name, const graph::TensorType& type);
  void add_text_output(const std::string& name, const Entry& ids);
  // That the node's operator takes strings where it gets them.
  bool expect_texts(const onnx::NodeProto& node, const Scope& scope, const Origin& origin);
  // Results that have the type of an operand of strings, are strings; `node` is what became of it.
  void pass_on_texts(const onnx::NodeProto& from, const Scope& scope, const graph::Node& node);
  void pass_on_texts(const graph::Node& control);
  // Of ONNX's own domain, and on strings in a way that is not that of numbers. False: it is none of them.
  bool add_text_node(const onnx::NodeProto& node, Scope& scope, const Origin& origin);
  // make_own(), of whose results those are strings.
  std::vector<Entry> make_texts(const std::string& type, const std::vector<Entry>& inputs,
                                const onnx::NodeProto& like, const std::vector<bool>& outputs,
                                const std::vector<bool>& are_texts, const Origin& origin);
  Entry cast_text(const Entry& x, int onnx_type, const Origin& origin);
  Entry concat_texts(Entry a, Entry b, const Origin& origin);
  std::vector<Entry> split_texts(const onnx::NodeProto& node, const Entry& x, const Origin& origin);
  Entry normalize_texts(const onnx::NodeProto& node, const Entry& x, const Origin& origin);
  Entry match_texts(const onnx::NodeProto& node, const Entry& x, const Origin& origin);
  std::vector<Entry> unique_texts(const onnx::NodeProto& node, const Entry& x, const Origin& origin);

  // ---- Tensors whose numbers stand for something else (labels.cpp) ----

  // Of the domain kLabelDomain: gives a tensor its labels.
  void add_labels(const onnx::NodeProto& node, Scope& scope);
  // Whether the node hands on what has labels.
  bool moves_labels(const onnx::NodeProto& node, const Scope& scope) const;
  void add_moved_labels(const onnx::NodeProto& node, Scope& scope, const Origin& origin);
  static Entry labelled(graph::ValueId numbers, OutputLabels labels);

  // ---- Nodes of many operands or results, as several (wide_nodes.cpp) ----

  // Of a node of ONNX's own domain that is right as a whole. False: it is not one of those that are divided.
  bool divide_wide_node(const onnx::NodeProto& node, Scope& scope, const Origin& origin);
  Entry concatenate_in_groups(std::vector<Entry> parts, const onnx::NodeProto& node, const Origin& origin);
  Entry reduce_in_groups(const std::vector<Entry>& operands, const std::string& type, const Origin& origin);
  bool divide_split(const onnx::NodeProto& node, Scope& scope, const Origin& origin);
  std::optional<std::vector<int64_t>> sizes_of_split(const Entry& given, int parts, int64_t extent) const;

  // ---- Windows whose padding depends on sizes (same_padding.cpp) ----

  // auto_pad = SAME_* with a stride of 1 as the numbers that it stands for, where sizes are open.
  void spell_out_padding(graph::Node& node) const;
  // `of` is the node as it was understood. Whether it is one of these, and is dealt with.
  bool pad_for_same(const graph::Node& of, const onnx::NodeProto& node, Scope& scope, const Origin& origin);

  // ---- Nodes whose results have as many elements as data say (data_shapes.cpp) ----

  // Of ONNX's own domain, and whose own definition, if it has one, needs values that are not known. False: it is none of them.
  bool add_data_shaped_node(const onnx::NodeProto& node, Scope& scope, const Origin& origin);
  Entry select_boxes(const onnx::NodeProto& node, const std::vector<Entry>& inputs, const Origin& origin);
  std::vector<Entry> find_unique(const onnx::NodeProto& node, const std::vector<Entry>& inputs, const Origin& origin);
  Entry set_positions(const Entry& x, const Origin& origin);
  Entry flatten(const Entry& x, const Origin& origin);
  Entry find_nonzero(const std::vector<Entry>& inputs, const Origin& origin);
  Entry range_of_integers(const std::vector<Entry>& inputs, const Origin& origin);
  Entry compress(const onnx::NodeProto& node, const std::vector<Entry>& inputs, const Origin& origin);
  // Of an operator of our own, with the attributes of a node: results, of which some may be left out.
  std::vector<Entry> make_own(const std::string& type, const std::vector<Entry>& inputs, const onnx::NodeProto& like,
                              const std::vector<bool>& outputs, const Origin& origin);
  // The first `count` (a number) of the places that the axis has.
  Entry beginning(const Entry& padded, const Entry& count, int64_t axis, const Origin& origin);

  // ---- Random numbers (random.cpp) ----

  // Of ONNX's own domain. False: it is none of those that draw numbers.
  bool add_random_node(const onnx::NodeProto& node, Scope& scope, const Origin& origin);
  // What a node draws; its attributes but for a shape and a seed.
  struct Distribution {
    std::vector<std::pair<std::string, float>> parameters;
    ElementType element = ElementType::f32;
  };
  Entry random_tensor(const Distribution& distribution, const Entry& shape, std::optional<int64_t> seed,
                      const Origin& origin);
  Entry random_of_shape(const onnx::NodeProto& node, const Entry& like, const Origin& origin);
  Entry bernoulli(const onnx::NodeProto& node, const Entry& x, const Origin& origin);
  Entry multinomial(const onnx::NodeProto& node, const Entry& x, const Origin& origin);
  // Its result, and its mask where the node has one.
  std::vector<Entry> dropout_in_training(const onnx::NodeProto& node, const std::vector<Entry>& inputs,
                                         const Origin& origin);
  std::optional<ElementType> drawn_element(const onnx::NodeProto& node, std::optional<ElementType> otherwise,
                                           const Origin& origin);

  // ---- Nodes that a node stands for (parts.cpp) ----

  // Unknown where something is wrong, which has been said.
  Entry concatenate(const std::vector<Entry>& parts, int64_t axis, const Origin& origin);
  Entry stack(const std::vector<Entry>& parts, int64_t axis, const Origin& origin);
  // The operand from a position of the axis to another one; at a position, without that axis.
  Entry slice(const Entry& operand, int64_t axis, int64_t begin, int64_t end, const Origin& origin);
  Entry slice_at(const Entry& operand, int64_t axis, int64_t position, const Origin& origin);
  // Of an operator with one result, and at most one attribute.
  struct Attribute {
    std::string name;
    int64_t value = 0;
  };
  Entry make(const std::string& type, const std::vector<Entry>& inputs, const Attribute& attribute, const Origin& origin);
  Entry make_constant(graph::Constant value, const std::string& name);
  // Nothing where it is not known at compile time.
  const graph::Constant* known(const Entry& entry) const;
  // Whether it follows from something that has been reported: saying more of it would be no news.
  bool is_reported(const Entry& entry) const;

  const onnx::ModelProto& model_;
  TensorReader& reader_;
  const ImportOptions& options_;
  const graph::Evaluator& fold_;
  ImportedModel& imported_;
  Diagnostics& problems_;
  const std::vector<CheckedSize> learnt_;
  std::vector<CheckedSize> checked_;
  graph::Graph graph_;
  graph::FoldBudget fold_budget_;
  std::map<graph::ValueId, graph::ValueId> sizes_;  // as_sizes() of each value
  std::map<std::string, int64_t> text_ids_;         // of graph_.texts
  std::set<graph::ValueId> tainted_;  // results of unsupported nodes, and what depends on them
  std::set<std::string> appended_;    // dimensions that may be 0 (appended_dimensions)
  std::vector<graph::DimEquality> conditional_;  // asked for in branches that have been built
  int64_t streams_ = 0;                          // of random numbers, so far
  std::vector<Entry>
      iterations_;  // of the run-time loops around the nodes that are built: what is different in each one
};

}  // namespace mcc::frontend
