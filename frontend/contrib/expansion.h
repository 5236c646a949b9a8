// What an expansion reads of its node, and what it writes in its place.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "onnx/defs/attr_proto_util.h"
#include "onnx/defs/schema.h"
#include "onnx/onnx_pb.h"
#include "support/result.h"

namespace mcc::frontend {

class Expansion;

// An attribute of an operator: a default, or only its kind.
struct AttributeRule {
  enum Presence { required, optional };
  AttributeRule(const char* name, onnx::AttributeProto::AttributeType kind, Presence presence)
      : name(name), kind(kind), is_required(presence == required) {}
  template <class T>
  AttributeRule(const char* name, const T& otherwise)
      : name(name), otherwise(onnx::MakeAttribute(name, otherwise)), kind(this->otherwise.type()) {}

  std::string name;
  onnx::AttributeProto otherwise;  // its type is UNDEFINED where there is no default
  onnx::AttributeProto::AttributeType kind;
  bool is_required = false;
};

inline AttributeRule required(const char* name, onnx::AttributeProto::AttributeType kind) { return {name, kind, AttributeRule::required}; }
inline AttributeRule optional(const char* name, onnx::AttributeProto::AttributeType kind) { return {name, kind, AttributeRule::optional}; }

struct ContribOp {
  const char* name;
  const char* inputs;   // names in order; "name?" may be left out, "name..." is any number of them
  const char* outputs;  // the same
  std::vector<AttributeRule> attributes;
  void (*expand)(Expansion&);
  bool is_in_onnx_domain = false;  // onnxruntime registers it there
};

// The node that gives its operand labels (frontend/labels.cpp): the keys of maps; one attribute, the list of them.
inline constexpr const char* kLabelDomain = "mcc.labels";
inline constexpr const char* kKeysNode = "Keys";

// A value of the expansion, by name; "" for an optional operand that is left out.
using Operand = std::string;

// An attribute of a node that is written.
struct Setting {
  Setting(onnx::AttributeProto proto) : proto(std::move(proto)) {}
  template <class T>
  Setting(const char* name, const T& value) : proto(onnx::MakeAttribute(name, value)) {}
  onnx::AttributeProto proto;
};

// Reads a tensor of the model, whose data may lie elsewhere (TensorReader).
using TensorSource = std::function<Result<graph::Constant>(const onnx::TensorProto&)>;

class Expansion {
 public:
  // Inputs must be as the schema says, their dimensions numbers, or open by the names of dim_param; attributes may be left out where it has defaults. Without a source no attribute is a tensor.
  Expansion(const onnx::OpSchema& schema, const onnx::NodeProto& node, const std::vector<onnx::TypeProto>& types,
            TensorSource source = nullptr);

  // ---- The node ----

  int num_inputs() const { return static_cast<int>(inputs_.size()); }
  bool has(int i) const { return 0 <= i && i < num_inputs() && !inputs_[static_cast<size_t>(i)].name.empty(); }
  bool has_output(int i) const { return i < node_.output_size() && !node_.output(i).empty(); }
  // Of an input that is there.
  ElementType element(int i) const { return known(i).element; }
  int64_t rank(int i) const { return static_cast<int64_t>(known(i).shape.size()); }
  // An error where a dimension is open.
  const std::vector<int64_t>& shape(int i);
  int64_t count(int i);
  int64_t last_size(int i);  // of the last dimension, which alone may not be open
  // With open dimensions: each is a number of its own, far below 0, that may be compared, and stand in `ints` and in shapes that are
  // asked for. No arithmetic is done with it but by sum().
  const std::vector<int64_t>& sizes(int i) const { return known(i).shape; }
  static bool is_open(int64_t size) { return size <= kOpen; }
  // What an operand (i64 of one element, rank 1) says, as an open size.
  int64_t size_of(const Operand& operand) { return add_open({operand, -1, 0, operand}); }
  int64_t sum(int64_t a, int64_t b);  // of sizes, which may be open
  // Whether a dimension may be as long as another: the same one, or one of both is open, and the run compares them.
  static bool may_be(int64_t size, int64_t wanted) {
    return size == wanted || is_open(size) || is_open(wanted);
  }
  // Whether the node has the attribute, and what it is there or by default.
  bool is_given(const std::string& name) const { return find(name) != nullptr; }
  int64_t integer(const std::string& name) const { return attribute(name).i(); }
  double number(const std::string& name) const { return attribute(name).f(); }
  std::string word(const std::string& name) const { return attribute(name).s(); }
  std::vector<int64_t> integers(const std::string& name) const;
  std::vector<double> numbers(const std::string& name) const;
  std::vector<std::string> words(const std::string& name) const;
  // Of an attribute that the node has; nothing after an error.
  std::optional<graph::Constant> constant_of(const std::string& name);
  // Those among the named ones that the node has or that have a default, for a node of ONNX that has them too.
  std::vector<Setting> passed_on(std::initializer_list<const char*> names) const;

  // ---- Errors; false after one, and then the expansion ends ----

  // What a valid model holds.
  template <class... Parts>
  bool expect(bool holds, const Parts&... parts) {
    return holds || fail(ErrorKind::bad_input, text(parts...));
  }
  // What valid models may hold otherwise, too.
  template <class... Parts>
  bool supports(bool holds, const Parts&... parts) {
    return holds || fail(ErrorKind::unsupported, text(parts...));
  }
  // False: always; with what to do.
  bool refuse(std::string message, std::string hint) { return fail(ErrorKind::unsupported, std::move(message), std::move(hint)); }
  // False: always, and an error: input i is not of a known shape.
  bool refuse_open(int i);
  bool expect_element(int i, std::initializer_list<ElementType> elements);
  bool expect_rank(int i, int64_t rank);
  bool expect_shape(int i, const std::vector<int64_t>& shape);
  // The same, where open dimensions may be equal (may_be).
  bool expect_fit(int i, const std::vector<int64_t>& shape);
  // One scale or zero point for all of a tensor.
  bool expect_single(std::initializer_list<int> inputs);
  // The attribute as one of input 0's axes, counted from the first one.
  std::optional<int64_t> expect_axis(const char* name);
  // An attribute that only this value of is supported.
  bool supports_only(const char* name, int64_t value);

  // ---- What stands for it ----

  Operand in(int i) const { return has(i) ? known(i).name : ""; }
  Operand op(const char* type, const std::vector<Operand>& inputs, const std::vector<Setting>& settings = {}) {
    return ops(type, inputs, settings, 1)[0];
  }
  std::vector<Operand> ops(const char* type, const std::vector<Operand>& inputs, const std::vector<Setting>& settings,
                           int outputs);
  // Of an operator of our own (domain "mcc").
  Operand own(const char* type, const std::vector<Operand>& inputs, const std::vector<Setting>& settings = {});
  // x, whose rows stand for maps with these keys. Only as a result.
  Operand with_keys(const Operand& x, const Setting& keys);
  Operand scalar(ElementType element, double value);
  Operand ints(const std::vector<int64_t>& values);  // i64, rank 1; of open dimensions what a run has
  Operand count_up(int64_t size, ElementType element);  // 0, 1, ... below a size, which may be open
  Operand tensor(ElementType element, const std::vector<int64_t>& shape, const std::vector<int32_t>& values);
  Operand strings(const std::vector<std::string>& values);  // rank 1
  // Of type f32 or f64.
  Operand reals(ElementType element, const std::vector<int64_t>& shape, const std::vector<double>& values);
  Operand constant(const onnx::TensorProto& value);
  Operand constant(const graph::Constant& value);
  Operand converted(const Operand& x, ElementType to);
  Operand reshaped(const Operand& x, const std::vector<int64_t>& shape) { return op("Reshape", {x, ints(shape)}, {{"allowzero", int64_t{1}}}); }
  Operand transposed(const Operand& x, const std::vector<int64_t>& perm) { return op("Transpose", {x}, {{"perm", perm}}); }
  // Elements [begin, end) along an axis.
  Operand slice(const Operand& x, int64_t axis, int64_t begin, int64_t end) {
    return op("Slice", {x, ints({begin}), ints({end}), ints({axis})});
  }
  // Of [N, ..., C] with this rank: [N, C, ...]; and back.
  Operand channels_second(const Operand& x, int64_t rank);
  Operand channels_last(const Operand& x, int64_t rank);
  void result(int i, const Operand& value);

  // The function, or what is wrong.
  Result<onnx::FunctionProto> finish() const;

 private:
  static constexpr int64_t kOpen = -(int64_t{1} << 60);  // the first open dimension; the others are the numbers below

  struct Input {
    Operand name;
    ElementType element = ElementType::f32;
    std::vector<int64_t> shape;
  };
  // Of an input, or (input is -1) what an operand says.
  struct OpenDim {
    std::string name;
    int input = -1;
    int64_t axis = 0;
    Operand size;
  };
  const Input& known(int i) const;
  int64_t add_open(const OpenDim& dim);  // or the one that there is of the name
  std::string size_text(int64_t size) const;
  std::string type_text(int i) const;
  const onnx::AttributeProto* find(const std::string& name) const;
  const onnx::AttributeProto& attribute(const std::string& name) const;
  bool fail(ErrorKind kind, std::string message, std::string hint = "");
  std::string input_name(int i) const;

  const onnx::OpSchema& schema_;
  const onnx::NodeProto& node_;
  TensorSource source_;
  std::vector<Input> inputs_;
  std::vector<OpenDim> open_;
  onnx::FunctionProto body_;
  Diagnostics problems_;
  int next_ = 0;
};

// What is wrong where an input that must be there is left out.
std::optional<Diagnostic> missing_input(const onnx::OpSchema& schema, const onnx::NodeProto& node);

// "[2, 3]"
std::string shape_text(const std::vector<int64_t>& shape);

// ---- What families share ----

// Input i as f32, and what is computed of it in the type that an output has.
Operand wide(Expansion& e, int i);
Operand narrowed(Expansion& e, const Operand& x, ElementType to);
// Input i as real numbers; its scale and its zero point stand behind it.
Operand dequantized(Expansion& e, int i);
// x as integers; the scale is input i, the zero point stands behind it. Without one they are of the given type, around 0.
Operand quantized(Expansion& e, const Operand& x, int i, ElementType element);
// Integer products with what turns their sums into real numbers: (a - a_zero)(b - b_zero) * a_scale * b_scale + bias, of type real.
// Zero points and bias may be left out.
struct IntegerProduct {
  Operand a, b, a_scale, b_scale, a_zero, b_zero, bias;
  ElementType real = ElementType::f32;
};
Operand integer_product(Expansion& e, const IntegerProduct& p);
// Numbers of 2, 4 or 8 bits, several to a byte, the first in its lowest bits: [.., n] of bytes, of this shape, as [.., n * 8 / bits] of u8.
Operand unpacked(Expansion& e, const Operand& packed, const std::vector<int64_t>& shape, int64_t bits);
// The type that says how few bits they have, so that products may keep them.
ElementType number_of_bits(int64_t bits);
// Whoever sets this accuracy_level (of int8) may be given rows that are rounded to bytes, block by block.
inline constexpr int64_t kBytesWillDo = 4;
// Softmax over all axes from `axis` on, as ONNX had it before opset 13.
Operand softmax_of_rest(Expansion& e, const Operand& x, const std::vector<int64_t>& shape, int64_t axis);

// The families; contrib.cpp has them in a list.
std::span<const ContribOp> quantized_ops();
std::span<const ContribOp> quantized_product_ops();
std::span<const ContribOp> product_ops();
std::span<const ContribOp> activation_ops();
std::span<const ContribOp> normalization_ops();
std::span<const ContribOp> attention_ops();
std::span<const ContribOp> decoder_ops();
std::span<const ContribOp> hybrid_ops();
std::span<const ContribOp> expert_ops();
std::span<const ContribOp> recurrent_ops();
std::span<const ContribOp> array_ops();

}  // namespace mcc::frontend
