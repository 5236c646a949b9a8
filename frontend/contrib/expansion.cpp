#include "frontend/contrib/expansion.h"

#include <algorithm>
#include <numeric>

#include "frontend/onnx_tensor.h"

namespace mcc::frontend {

using onnx::AttributeProto;

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> dims;
  for (int64_t size : shape)
    dims.push_back(Expansion::is_open(size) ? "?" : std::to_string(size));
  return list_text(dims);
}

Expansion::Expansion(const onnx::OpSchema& schema, const onnx::NodeProto& node, const std::vector<onnx::TypeProto>& types,
                     TensorSource source)
    : schema_(schema), node_(node), source_(std::move(source)) {
  for (int i = 0; i < node.input_size(); ++i) {
    Input input;
    if (!node.input(i).empty()) {
      const auto& type = types[static_cast<size_t>(i)].tensor_type();
      const std::optional<ElementType> element = element_of_onnx(type.elem_type());
      MCC_CHECK(element && type.has_shape(), "an expansion of ", node.op_type(), " without the type of input ", i);
      input = {text("in.", i), *element, {}};
      for (int axis = 0; axis < type.shape().dim_size(); ++axis) {
        const auto& dim = type.shape().dim(axis);
        input.shape.push_back(dim.has_dim_value() ? dim.dim_value()
                                                  : add_open({dim.dim_param(), i, axis, ""}));
      }
    }
    body_.add_input(text("in.", i));
    inputs_.push_back(std::move(input));
  }
  for (int i = 0; i < node.output_size(); ++i)
    body_.add_output("");
}

// ---- The node ----

const Expansion::Input& Expansion::known(int i) const {
  MCC_CHECK(has(i), node_.op_type(), " has no input ", i);
  return inputs_[static_cast<size_t>(i)];
}

int64_t Expansion::add_open(const OpenDim& dim) {
  size_t at = 0;
  while (at < open_.size() && open_[at].name != dim.name)
    ++at;
  if (at == open_.size()) open_.push_back(dim);
  return kOpen - static_cast<int64_t>(at);
}

int64_t Expansion::sum(int64_t a, int64_t b) {
  if (a == 0 || b == 0 || (!is_open(a) && !is_open(b))) return a + b;
  const std::string turned = text(size_text(b), " + ", size_text(a));
  for (const OpenDim& dim : open_)
    if (dim.name == turned) return add_open(dim);
  return add_open({text(size_text(a), " + ", size_text(b)), -1, 0, op("Add", {ints({a}), ints({b})})});
}

std::string Expansion::size_text(int64_t size) const {
  return is_open(size) ? open_[static_cast<size_t>(kOpen - size)].name : std::to_string(size);
}

std::string Expansion::type_text(int i) const {
  std::vector<std::string> dims;
  for (int64_t size : sizes(i))
    dims.push_back(size_text(size));
  return text(to_text(element(i)), list_text(dims));
}

const std::vector<int64_t>& Expansion::shape(int i) {
  const std::vector<int64_t>& shape = sizes(i);
  if (std::any_of(shape.begin(), shape.end(), is_open)) refuse_open(i);
  return shape;
}

int64_t Expansion::last_size(int i) {
  const std::vector<int64_t>& shape = sizes(i);
  if (!shape.empty() && is_open(shape.back())) refuse_open(i);
  return shape.empty() ? 0 : shape.back();
}

int64_t Expansion::count(int i) {
  const std::vector<int64_t>& dims = shape(i);
  return std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
}

const AttributeProto* Expansion::find(const std::string& name) const {
  for (const AttributeProto& a : node_.attribute())
    if (a.name() == name) return &a;
  return nullptr;
}

const AttributeProto& Expansion::attribute(const std::string& name) const {
  if (const AttributeProto* given = find(name)) return *given;
  return schema_.attributes().at(name).default_value;
}

std::vector<int64_t> Expansion::integers(const std::string& name) const {
  const AttributeProto& a = attribute(name);
  return {a.ints().begin(), a.ints().end()};
}

std::vector<double> Expansion::numbers(const std::string& name) const {
  const AttributeProto& a = attribute(name);
  return {a.floats().begin(), a.floats().end()};
}

std::vector<std::string> Expansion::words(const std::string& name) const {
  const AttributeProto& a = attribute(name);
  return {a.strings().begin(), a.strings().end()};
}

std::optional<graph::Constant> Expansion::constant_of(const std::string& name) {
  MCC_CHECK(source_, node_.op_type(), " has an attribute that is a tensor, and nothing reads it");
  Result<graph::Constant> read = source_(attribute(name).t());
  if (read.ok()) return *read;
  for (const Diagnostic& problem : read.errors())
    fail(problem.kind, text("attribute '", name, "': ", problem.message));
  return std::nullopt;
}

std::vector<Setting> Expansion::passed_on(std::initializer_list<const char*> names) const {
  std::vector<Setting> settings;
  for (const char* name : names) {
    const AttributeProto& a = attribute(name);
    if (a.type() == AttributeProto::UNDEFINED) continue;
    settings.emplace_back(a);
    settings.back().proto.set_name(name);
  }
  return settings;
}

// ---- Errors ----

bool Expansion::fail(ErrorKind kind, std::string message, std::string hint) {
  problems_.push_back({kind, "", std::move(message), std::move(hint)});
  return false;
}

std::string Expansion::input_name(int i) const {
  const auto& names = schema_.inputs();
  return static_cast<size_t>(i) < names.size() ? text("'", names[static_cast<size_t>(i)].GetName(), "'") : std::to_string(i);
}

bool Expansion::refuse_open(int i) {
  const std::string message = text("what stands for it is written for known shapes, got ", type_text(i));
  const bool is_said = std::any_of(problems_.begin(), problems_.end(), [&](const Diagnostic& d) { return d.message == message; });
  return !is_said && refuse(message, "give the dimensions values instead of ranges");
}

bool Expansion::expect_element(int i, std::initializer_list<ElementType> elements) {
  std::string wanted;
  for (ElementType element : elements)
    wanted += text(wanted.empty() ? "" : " or ", to_text(element));
  const bool holds = std::find(elements.begin(), elements.end(), element(i)) != elements.end();
  return expect(holds, "input ", input_name(i), ": expected ", wanted, ", got ", type_text(i));
}

bool Expansion::expect_rank(int i, int64_t rank) {
  return expect(this->rank(i) == rank, "input ", input_name(i), ": expected ", rank, " dimensions, got shape ", shape_text(sizes(i)));
}

bool Expansion::expect_shape(int i, const std::vector<int64_t>& shape) {
  return expect(sizes(i) == shape, "input ", input_name(i), ": expected shape ", shape_text(shape), ", got ", shape_text(sizes(i)));
}

bool Expansion::expect_fit(int i, const std::vector<int64_t>& shape) {
  const std::vector<int64_t>& got = sizes(i);
  return (got.size() == shape.size() && std::equal(got.begin(), got.end(), shape.begin(), may_be)) ||
         expect_shape(i, shape);
}

bool Expansion::expect_single(std::initializer_list<int> inputs) {
  for (int i : inputs) {
    if (!has(i)) continue;
    if (!expect(count(i) == 1 && rank(i) <= 1, "input ", input_name(i), ": expected one value for the whole tensor, got shape ",
                shape_text(shape(i))))
      return false;
  }
  return true;
}

std::optional<int64_t> Expansion::expect_axis(const char* name) {
  const int64_t axis = integer(name), rank = this->rank(0);
  if (!expect(-rank <= axis && axis < rank, "attribute '", name, "': ", axis, " is none of ", rank, " axes")) return std::nullopt;
  return axis < 0 ? axis + rank : axis;
}

bool Expansion::supports_only(const char* name, int64_t value) {
  const int64_t got = is_given(name) ? integer(name) : value;
  return supports(got == value, "attribute '", name, "': only ", value, " is supported, got ", got);
}

// ---- What stands for it ----

std::vector<Operand> Expansion::ops(const char* type, const std::vector<Operand>& inputs, const std::vector<Setting>& settings,
                                    int outputs) {
  onnx::NodeProto& node = *body_.add_node();
  node.set_op_type(type);
  for (const Operand& input : inputs)
    node.add_input(input);
  while (node.input_size() > 0 && node.input(node.input_size() - 1).empty())
    node.mutable_input()->RemoveLast();
  std::vector<Operand> made;
  for (int i = 0; i < outputs; ++i) {
    made.push_back(text("t.", next_++));
    node.add_output(made.back());
  }
  for (const Setting& setting : settings)
    *node.add_attribute() = setting.proto;
  return made;
}

Operand Expansion::own(const char* type, const std::vector<Operand>& inputs, const std::vector<Setting>& settings) {
  Operand made = op(type, inputs, settings);
  body_.mutable_node(body_.node_size() - 1)->set_domain("mcc");
  return made;
}

Operand Expansion::with_keys(const Operand& x, const Setting& keys) {
  Operand made = op(kKeysNode, {x}, {keys});
  body_.mutable_node(body_.node_size() - 1)->set_domain(kLabelDomain);
  return made;
}

Operand Expansion::constant(const onnx::TensorProto& value) { return op("Constant", {}, {{"value", value}}); }

Operand Expansion::constant(const graph::Constant& value) {
  onnx::TensorProto proto;
  proto.set_data_type(onnx_of_element(value.element()));
  proto.mutable_dims()->Add(value.shape().begin(), value.shape().end());
  if (value.element() == ElementType::string) {
    for (const std::string& string : value.to_strings())
      proto.add_string_data(string);
    return constant(proto);
  }
  proto.set_raw_data(value.bytes().data(), value.bytes().size());
  return constant(proto);
}

Operand Expansion::strings(const std::vector<std::string>& values) {
  return constant(graph::Constant::strings({static_cast<int64_t>(values.size())}, values));
}

Operand Expansion::scalar(ElementType element, double value) {
  onnx::TensorProto proto;
  if (!is_float(element)) return tensor(element, {}, {static_cast<int32_t>(value)});
  proto.set_data_type(onnx::TensorProto::FLOAT);
  proto.add_float_data(static_cast<float>(value));
  return element == ElementType::f32 ? constant(proto) : converted(constant(proto), element);
}

Operand Expansion::ints(const std::vector<int64_t>& values) {
  if (std::any_of(values.begin(), values.end(), is_open)) {
    std::vector<Operand> parts;
    for (int64_t value : values) {
      if (!is_open(value)) {
        parts.push_back(ints({value}));
        continue;
      }
      const auto at = static_cast<size_t>(kOpen - value);
      MCC_CHECK(at < open_.size() || !problems_.empty(), node_.op_type(), ": arithmetic with an open dimension");
      if (at >= open_.size()) return "";
      if (open_[at].input < 0) {
        parts.push_back(open_[at].size);
        continue;
      }
      parts.push_back(op("Shape", {in(open_[at].input)}, {{"start", open_[at].axis}, {"end", open_[at].axis + 1}}));
    }
    return parts.size() == 1 ? parts[0] : op("Concat", parts, {{"axis", int64_t{0}}});
  }
  onnx::TensorProto proto;
  proto.set_data_type(onnx::TensorProto::INT64);
  proto.add_dims(static_cast<int64_t>(values.size()));
  proto.mutable_int64_data()->Add(values.begin(), values.end());
  return constant(proto);
}

Operand Expansion::count_up(int64_t size, ElementType element) {
  if (!is_open(size)) {
    std::vector<int32_t> places(static_cast<size_t>(size));
    std::iota(places.begin(), places.end(), 0);
    return tensor(element, {size}, places);
  }
  Operand limit =
      op("Squeeze", {element == ElementType::i64 ? ints({size}) : converted(ints({size}), element)});
  return op("Range", {scalar(element, 0), limit, scalar(element, 1)});
}

Operand Expansion::tensor(ElementType element, const std::vector<int64_t>& shape, const std::vector<int32_t>& values) {
  onnx::TensorProto proto;
  proto.set_data_type(onnx_of_element(element));
  proto.mutable_dims()->Add(shape.begin(), shape.end());
  if (element == ElementType::i64) {
    proto.mutable_int64_data()->Add(values.begin(), values.end());
  } else {
    proto.mutable_int32_data()->Add(values.begin(), values.end());
  }
  return constant(proto);
}

Operand Expansion::reals(ElementType element, const std::vector<int64_t>& shape, const std::vector<double>& values) {
  onnx::TensorProto proto;
  proto.set_data_type(onnx_of_element(element));
  proto.mutable_dims()->Add(shape.begin(), shape.end());
  if (element == ElementType::f64) {
    proto.mutable_double_data()->Add(values.begin(), values.end());
  } else {
    MCC_CHECK(element == ElementType::f32, "real numbers of type ", to_text(element));
    for (double value : values)
      proto.add_float_data(static_cast<float>(value));
  }
  return constant(proto);
}

Operand Expansion::converted(const Operand& x, ElementType to) {
  return op("Cast", {x}, {{"to", static_cast<int64_t>(onnx_of_element(to))}});
}

Operand Expansion::channels_second(const Operand& x, int64_t rank) {
  std::vector<int64_t> perm{0, rank - 1};
  for (int64_t d = 1; d + 1 < rank; ++d)
    perm.push_back(d);
  return transposed(x, perm);
}

Operand Expansion::channels_last(const Operand& x, int64_t rank) {
  std::vector<int64_t> perm{0};
  for (int64_t d = 2; d < rank; ++d)
    perm.push_back(d);
  perm.push_back(1);
  return transposed(x, perm);
}

void Expansion::result(int i, const Operand& value) {
  if (!has_output(i)) return;
  const bool is_input = std::any_of(inputs_.begin(), inputs_.end(), [&](const Input& input) { return input.name == value; });
  body_.set_output(i, is_input ? op("Identity", {value}) : value);
}

Result<onnx::FunctionProto> Expansion::finish() const {
  if (!problems_.empty()) return problems_;
  for (int i = 0; i < node_.output_size(); ++i) {
    if (has_output(i) && body_.output(i).empty()) {
      const std::string& name = schema_.outputs()[static_cast<size_t>(i)].GetName();
      return Diagnostic{ErrorKind::unsupported, "", text("output '", name, "' is not supported"), ""};
    }
  }
  return body_;
}

std::optional<Diagnostic> missing_input(const onnx::OpSchema& schema, const onnx::NodeProto& node) {
  const auto& formal = schema.inputs();
  for (size_t i = 0; i < formal.size(); ++i) {
    const bool is_there = static_cast<int>(i) < node.input_size() && !node.input(static_cast<int>(i)).empty();
    if (formal[i].GetOption() == onnx::OpSchema::Single && !is_there)
      return Diagnostic{ErrorKind::bad_input, "", text("input '", formal[i].GetName(), "' is missing"), ""};
  }
  return std::nullopt;
}

// ---- What families share ----

Operand dequantized(Expansion& e, int i) { return e.op("DequantizeLinear", {e.in(i), e.in(i + 1), e.in(i + 2)}); }

Operand quantized(Expansion& e, const Operand& x, int i, ElementType element) {
  return e.op("QuantizeLinear", {x, e.in(i), e.has(i + 1) ? e.in(i + 1) : e.scalar(element, 0)});
}

Operand integer_product(Expansion& e, const IntegerProduct& p) {
  Operand sums = e.op("MatMulInteger", {p.a, p.b, p.a_zero, p.b_zero});
  auto wide = [&](const Operand& x) { return p.real == ElementType::f32 ? x : e.converted(x, ElementType::f32); };
  Operand scale = e.op("Mul", {wide(p.a_scale), wide(p.b_scale)});
  Operand y = e.op("Mul", {e.converted(sums, ElementType::f32), scale});
  if (!p.bias.empty()) y = e.op("Add", {y, wide(p.bias)});
  return p.real == ElementType::f32 ? y : e.converted(y, p.real);
}

Operand wide(Expansion& e, int i) {
  return e.element(i) == ElementType::f32 ? e.in(i) : e.converted(e.in(i), ElementType::f32);
}

Operand narrowed(Expansion& e, const Operand& x, ElementType to) {
  return to == ElementType::f32 ? x : e.converted(x, to);
}

Operand unpacked(Expansion& e, const Operand& packed, const std::vector<int64_t>& shape, int64_t bits) {
  if (bits == 8) return packed;
  const int64_t each = 8 / bits;
  std::vector<int64_t> apart = shape, out = shape;
  apart.push_back(1);
  out.back() *= each;
  std::vector<int32_t> shifts;
  for (int64_t i = 0; i < each; ++i)
    shifts.push_back(static_cast<int32_t>(i * bits));
  Operand shifted = e.op("BitShift", {e.reshaped(packed, apart), e.tensor(ElementType::u8, {each}, shifts)},
                         {{"direction", "RIGHT"}});
  return e.reshaped(
      e.op("BitwiseAnd", {shifted, e.scalar(ElementType::u8, static_cast<double>((1 << bits) - 1))}), out);
}

ElementType number_of_bits(int64_t bits) {
  return bits == 2 ? ElementType::u2 : bits == 4 ? ElementType::u4 : ElementType::u8;
}

Operand softmax_of_rest(Expansion& e, const Operand& x, const std::vector<int64_t>& shape, int64_t axis) {
  Operand rows = e.op("Flatten", {x}, {{"axis", axis}});
  return e.reshaped(e.op("Softmax", {rows}, {{"axis", int64_t{-1}}}), shape);
}

}  // namespace mcc::frontend
