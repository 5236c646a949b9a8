// The graph IR: typed values and nodes in topological order.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "support/result.h"
#include "tensor/expr.h"
#include "tensor/sizes.h"

namespace mcc::graph {

using tensor::Expr;

// Dimensions are integer expressions: constants, or symbolic dimensions of the model (tensor::Var) and arithmetic
// on them.
using Shape = std::vector<Expr>;

struct TensorType {
  ElementType element = ElementType::f32;
  Shape shape;
};

std::string to_text(const TensorType& type);  // "f32[1, 3, H, 224]"
bool is_static(const Shape& shape);
std::vector<int64_t> static_shape(const Shape& shape);  // MCC_CHECKs is_static
int64_t static_count(const Shape& shape);               // number of elements
Shape make_shape(std::span<const int64_t> dims);
bool same_shape(const Shape& a, const Shape& b);

// An element of a tensor of strings in memory; UTF-8, may have zeros.
struct StringView {
  const char* data;
  uint64_t size;
};

// A constant tensor: little-endian, dense, row-major bytes that stay where they are (a mapped model file, a result of
// folding). An element of a tensor of strings is a StringView, whose text the constant keeps alive.
class Constant {
 public:
  Constant() = default;
  // owner keeps bytes alive.
  Constant(ElementType element, std::vector<int64_t> shape, std::span<const std::byte> bytes,
           std::shared_ptr<const void> owner);
  static Constant copy_of(ElementType element, std::vector<int64_t> shape, std::span<const std::byte> bytes);
  static Constant zeros(ElementType element, std::vector<int64_t> shape);
  template <class T>
  static Constant of(ElementType element, std::vector<int64_t> shape, const std::vector<T>& values) {
    return copy_of(element, std::move(shape), std::as_bytes(std::span(values)));
  }
  static Constant scalar(ElementType element, double value);
  static Constant ints(const std::vector<int64_t>& values);  // i64, rank 1
  static Constant strings(std::vector<int64_t> shape, std::vector<std::string> values);

  ElementType element() const { return element_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t count() const;
  std::span<const std::byte> bytes() const { return bytes_; }
  TensorType type() const;
  // Element i converted; elements of fewer bits than a byte are one to a byte.
  int64_t int_at(int64_t i) const;
  double number_at(int64_t i) const;
  std::vector<int64_t> to_ints() const;
  std::string string_at(int64_t i) const;  // of a tensor of strings
  std::vector<std::string> to_strings() const;

 private:
  ElementType element_ = ElementType::f32;
  std::vector<int64_t> shape_;
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
};

using ValueId = int32_t;
using NodeId = int32_t;
inline constexpr ValueId kNoValue = -1;  // an optional input or output left out

struct Graph;

using Attribute = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                               std::vector<std::string>, Constant, std::shared_ptr<const Graph>>;

class Attributes {
 public:
  bool has(const std::string& name) const { return map_.count(name) != 0; }
  void set(std::string name, Attribute value) { map_[std::move(name)] = std::move(value); }
  void erase(const std::string& name) { map_.erase(name); }
  // The attribute, or the default when absent. A wrong kind is a broken invariant: the frontend has checked.
  int64_t integer(const std::string& name, int64_t otherwise) const;
  double number(const std::string& name, double otherwise) const;
  std::string text(const std::string& name, std::string otherwise) const;
  std::vector<int64_t> integers(const std::string& name, std::vector<int64_t> otherwise = {}) const;
  std::vector<double> numbers(const std::string& name, std::vector<double> otherwise = {}) const;
  const Attribute* find(const std::string& name) const;
  const std::map<std::string, Attribute>& all() const { return map_; }
  bool operator==(const Attributes& other) const;

 private:
  std::map<std::string, Attribute> map_;
};

struct OpDef;  // graph/op.h

struct Value {
  std::string name;
  TensorType type;
  std::optional<Constant> constant;  // known at compile time
  NodeId producer = -1;              // -1: graph input or constant
  int output_index = 0;
  // Of an integer or bool tensor that follows from symbolic dimensions alone (a shape, and what is computed of it): its elements,
  // i64 or bool, row-major. Else empty.
  std::vector<Expr> elements = {};
  bool is_text = false;  // its numbers are ids of strings; known while the graph is built
};

struct Node {
  const OpDef* op = nullptr;
  std::string name;                  // for messages
  std::vector<std::string> origins;  // ONNX node names it came from
  std::vector<ValueId> inputs, outputs;
  Attributes attributes;
  bool dead = false;
};

using DimRange = tensor::SizeRange;  // the sizes that a symbolic dimension may have

// Where the number that a symbolic dimension stands for comes from: the shapes of the inputs, or, while the model runs, data.
struct DimSource {
  enum class Kind {
    input,       // a dimension of an input
    element,     // an element of an integer or bool tensor, held within the dimension's range
    expression,  // arithmetic on other dimensions
    node,        // set by the node that makes `value`, which says how (a loop's iterations)
  };
  Kind kind = Kind::input;
  ValueId value = kNoValue;  // element, node
  int64_t element = 0;       // position, row-major
  Expr expression;
};

// Two dimensions that a node takes to be equal, which is seen when the model runs. Where it runs in a branch alone, `a` is a choice: what
// `b` is, unless the branch runs.
struct DimEquality {
  Expr a, b;
  std::string where;  // the node, and which dimensions
};
// What the `a` of an equality stands for where the branches run that it is for.
Expr in_branch(Expr a);

// Nodes are in topological order whenever a pass returns. Ids stay valid during a pass; compact() renumbers.
struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<ValueId> inputs, outputs;
  std::vector<tensor::Var> dims;     // symbolic dimensions
  std::vector<DimRange> dim_ranges;  // of each of them
  std::vector<DimSource> dim_sources;
  std::vector<DimEquality> equalities;
  // Of dimensions of inputs: runs are refused where one of them is negative (an equality), so that shapes may take them not to be.
  std::vector<Expr> nonnegative;
  // Of a model with tensors of strings: these are i64 tensors of ids, and the first ids are the positions in this list, in which no text
  // stands twice (graph/ops/mcc_text.h).
  std::vector<std::string> texts;

  // The dimension of that name, which is made if there is none yet.
  tensor::Var dim(const std::string& dim_name, const DimRange& range);
  // A new dimension that comes from data. Its name is made unique.
  tensor::Var add_data_dim(const std::string& dim_name, const DimRange& range, DimSource source);
  // Whether a dimension comes from data.
  bool has_data_dims() const;
  // Whether the expression has a number in it that is known while the model runs only.
  bool depends_on_data(const Expr& e) const;
  bool depends_on_data(const Shape& shape) const;
  // Whether it is a truth value among data, such as the condition of a branch.
  bool is_condition(size_t dim_index) const;
  // The dimensions that stand for such expressions, in their place.
  Expr with_named(const Expr& e) const;
  // Whether the two are equal, or are taken to be.
  bool are_equal(const Expr& a, const Expr& b) const;
  // Values that must have been computed before the node can run, for dimensions that it uses: sources of those that its results' types
  // and elements, and elements among its operands, mention. Of a loop's end also its begin, which its body may not read.
  std::vector<ValueId> dim_operands(const Node& node) const;
  std::vector<ValueId> dim_operands(const Expr& e) const;

  ValueId add_value(std::string name, TensorType type);
  ValueId add_constant(std::string name, Constant constant);
  // Appends a node whose outputs are new values of the given types (names derived from name).
  NodeId add_node(const OpDef& op, std::string name, std::vector<ValueId> inputs, Attributes attributes,
                  std::vector<TensorType> output_types);
  // What is known of the symbolic dimensions.
  tensor::Analyzer facts() const;
  tensor::Analyzer facts_of_dims() const;  // without what runs are refused for
  const Value& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  Value& value(ValueId id) { return values[static_cast<size_t>(id)]; }
  const Node& node(NodeId id) const { return nodes[static_cast<size_t>(id)]; }
  Node& node(NodeId id) { return nodes[static_cast<size_t>(id)]; }

  // Uses of each value by live nodes and graph outputs.
  std::vector<std::vector<NodeId>> users() const;
  // Whether others than nodes read it: it is a result of the model, or a dimension comes from it.
  bool is_output(ValueId id) const;
  // Every use of `from`, graph outputs included, becomes a use of `to`.
  void replace_uses(ValueId from, ValueId to);
  // Drops dead nodes and unused values, restores topological order, renumbers.
  void compact();
};

std::string to_text(const Graph& graph);
// All violations of the graph's rules, empty if there is none.
std::vector<std::string> verify(const Graph& graph);

}  // namespace mcc::graph
