// Tensors of strings: in the graph they are tensors of ids (graph/ops/mcc_text.h), so that what moves or compares elements is what it is
// for numbers. Which tensors these are is known here alone (Value::is_text), from ONNX's types.
#include "frontend/contrib/contrib.h"
#include "frontend/graph_builder.h"
#include "frontend/regex.h"
#include "graph/ops/mcc_text.h"
#include "onnx/defs/attr_proto_util.h"
#include "onnx/defs/schema.h"

namespace mcc::frontend {

using graph::Constant;
using graph::ValueId;

namespace {

constexpr const char* kStringType = "tensor(string)";

const onnx::OpSchema::FormalParameter* formal(const std::vector<onnx::OpSchema::FormalParameter>& all,
                                              size_t i) {
  return all.empty() ? nullptr : &all[std::min(i, all.size() - 1)];
}

bool takes_strings(const onnx::OpSchema::FormalParameter& parameter) {
  const auto& types = parameter.GetTypes();
  return std::any_of(types.begin(), types.end(), [](const auto& type) { return *type == kStringType; });
}

// Operators whose results would follow from the ids.
bool computes_with(const onnx::NodeProto& node) {
  if (node.op_type() == "Resize" || node.op_type() == "Upsample") return true;
  const onnx::AttributeProto* reduction = find_attribute(node, "reduction");
  return reduction && reduction->type() == onnx::AttributeProto::STRING && reduction->s() != "none";
}

onnx::NodeProto with_attributes(std::initializer_list<onnx::AttributeProto> attributes) {
  onnx::NodeProto node;
  for (const onnx::AttributeProto& a : attributes)
    *node.add_attribute() = a;
  return node;
}

}  // namespace

// The empty string is what 0 stands for, with which tensors are filled up (Pad).
int64_t Builder::text_id(const std::string& text) {
  if (graph_.texts.empty()) {
    graph_.texts.emplace_back();
    text_ids_[""] = 0;
  }
  const auto [known, is_new] = text_ids_.try_emplace(text, static_cast<int64_t>(graph_.texts.size()));
  if (is_new) graph_.texts.push_back(text);
  return known->second;
}

ValueId Builder::add_texts(const std::string& name, const Constant& strings) {
  std::vector<int64_t> ids;
  for (const std::string& string : strings.to_strings())
    ids.push_back(text_id(string));
  const ValueId id = graph_.add_constant(name, Constant::of(ElementType::i64, strings.shape(), ids));
  graph_.value(id).is_text = true;
  return id;
}

bool Builder::is_text(const Entry& entry) const {
  return entry.kind == Entry::value && graph_.value(entry.id).is_text;
}

onnx::TypeProto Builder::onnx_type(const Entry& entry) const {
  onnx::TypeProto type;
  if (entry.kind == Entry::value) return onnx_type(entry.id);
  if (entry.kind != Entry::sequence) return type;
  auto& item = *type.mutable_sequence_type()->mutable_elem_type()->mutable_tensor_type();
  if (!entry.items->empty() && entry.items->front().kind == Entry::value)
    item.set_elem_type(onnx_type(entry.items->front().id).tensor_type().elem_type());
  return type;
}

onnx::TypeProto Builder::onnx_type(ValueId id) const {
  onnx::TypeProto type = onnx_type_of(graph_.value(id).type);
  if (graph_.value(id).is_text) type.mutable_tensor_type()->set_elem_type(onnx::TensorProto::STRING);
  return type;
}

Entry Builder::add_text_input(const std::string& name, const graph::TensorType& type) {
  const ValueId strings = graph_.add_value(name, type);
  graph_.inputs.push_back(strings);
  text_id("");
  const graph::NodeId node = graph_.add_node(*graph::find_op("mcc", graph::kTextIds), name, {strings}, {},
                                             {{ElementType::i64, type.shape}});
  const ValueId ids = graph_.node(node).outputs[0];
  graph_.value(ids).is_text = true;
  return {Entry::value, ids};
}

void Builder::add_text_output(const std::string& name, const Entry& ids) {
  if (!options_.has_strings) {
    graph_.outputs.push_back(under_name(ids, name).id);
    imported_.labels[name] = {OutputLabels::Kind::strings, graph_.texts};
    return;
  }
  const graph::NodeId node = graph_.add_node(*graph::find_op("mcc", graph::kTextStrings), name, {ids.id}, {},
                                             {{ElementType::string, graph_.value(ids.id).type.shape}});
  const ValueId strings = graph_.node(node).outputs[0];
  graph_.value(strings).name = name;
  graph_.outputs.push_back(strings);
}

bool Builder::expect_texts(const onnx::NodeProto& node, const Scope& scope, const Origin& origin) {
  const std::string domain = node.domain() == "ai.onnx" ? "" : node.domain();
  const onnx::OpSchema* schema = nullptr;
  for (int i = 0; i < node.input_size(); ++i) {
    if (!is_text(scope.find(node.input(i)))) continue;
    if (domain == "mcc") continue;  // made here
    if (!schema) schema = onnx::OpSchemaRegistry::Schema(node.op_type(), opset_of(domain), domain);
    if (!schema && !contrib_schema(domain, node.op_type())) return true;  // nobody knows the operator, which will be said
    const auto* parameter = schema ? formal(schema->inputs(), static_cast<size_t>(i)) : nullptr;
    if (parameter && takes_strings(*parameter) && !computes_with(node)) continue;
    report(ErrorKind::unsupported, where_of(node, origin),
           text("operand '", node.input(i), "' is a tensor of strings, which are not supported here"));
    return false;
  }
  return true;
}

void Builder::pass_on_texts(const onnx::NodeProto& from, const Scope& scope, const graph::Node& node) {
  const bool has_texts = std::any_of(from.input().begin(), from.input().end(),
                                     [&](const std::string& name) { return is_text(scope.find(name)); });
  const std::string domain = from.domain() == "ai.onnx" ? "" : from.domain();
  if (!has_texts || domain == "mcc") return;
  const onnx::OpSchema* schema = onnx::OpSchemaRegistry::Schema(from.op_type(), opset_of(domain), domain);
  if (!schema) return;
  for (size_t k = 0; k < node.outputs.size(); ++k) {
    const auto* result = formal(schema->outputs(), k);
    if (node.outputs[k] == graph::kNoValue || !result) continue;
    for (int i = 0; i < from.input_size(); ++i)
      if (is_text(scope.find(from.input(i))) &&
          formal(schema->inputs(), static_cast<size_t>(i))->GetTypeStr() == result->GetTypeStr())
        graph_.value(node.outputs[k]).is_text = true;
  }
}

void Builder::pass_on_texts(const graph::Node& control) {
  const size_t results = control.outputs.size();
  const size_t first = control.op->control == graph::Control::choose     ? 1
                       : control.op->control == graph::Control::loop_end ? 2
                                                                         : 0;
  for (size_t i = 0; i < results; ++i) {
    const ValueId from = control.inputs[first + i];
    if (control.outputs[i] != graph::kNoValue && from != graph::kNoValue && graph_.value(from).is_text)
      graph_.value(control.outputs[i]).is_text = true;
  }
}

// ---- Operators on strings ----

bool Builder::add_text_node(const onnx::NodeProto& node, Scope& scope, const Origin& origin) {
  const std::string& type = node.op_type();
  std::vector<Entry> inputs;
  for (const std::string& name : node.input())
    inputs.push_back(scope.find(name));
  const bool has_texts =
      std::any_of(inputs.begin(), inputs.end(), [&](const Entry& e) { return is_text(e); });
  const onnx::AttributeProto* to = type == "Cast" ? find_attribute(node, "to") : nullptr;
  const bool is_cast =
      (to && (has_texts || to->i() == onnx::TensorProto::STRING)) || (type == "CastLike" && has_texts);
  const bool is_own = type == "StringConcat" || type == "StringSplit" || type == "StringNormalizer" ||
                      type == "RegexFullMatch";
  if (!is_cast && !is_own && !(type == "Unique" && has_texts)) return false;
  for (const Entry& input : inputs) {
    if (input.kind == Entry::value) continue;
    give_up(node, scope);
    if (input.kind != Entry::unknown) report_operand(node.input(0), input, where_of(node, origin));
    return true;
  }
  const bool is_taint =
      std::any_of(inputs.begin(), inputs.end(), [&](const Entry& e) { return tainted_.contains(e.id); });
  if (is_taint) return give_up(node, scope), true;
  const size_t first = graph_.values.size(), problems = problems_.size();
  const Origin part = part_of(node, origin);
  std::vector<Entry> results;
  if (is_cast) {
    const int64_t element = to                   ? to->i()
                            : is_text(inputs[1]) ? static_cast<int64_t>(onnx::TensorProto::STRING)
                                                 : onnx_of_element(graph_.value(inputs[1].id).type.element);
    results = {cast_text(inputs[0], static_cast<int>(element), part)};
  } else if (type == "StringConcat") {
    results = {concat_texts(inputs[0], inputs[1], part)};
  } else if (type == "StringSplit") {
    results = split_texts(node, inputs[0], part);
  } else if (type == "StringNormalizer") {
    results = {normalize_texts(node, inputs[0], part)};
  } else if (type == "RegexFullMatch") {
    results = {match_texts(node, inputs[0], part)};
  } else {
    results = unique_texts(node, inputs[0], part);
  }
  for (int i = 0; i < node.output_size(); ++i) {
    if (node.output(i).empty()) continue;
    Entry result = static_cast<size_t>(i) < results.size() ? results[static_cast<size_t>(i)] : Entry{};
    if (result.kind != Entry::value || problems_.size() > problems) return give_up(node, scope), true;
    if (static_cast<size_t>(result.id) < first) result = make("Identity", {result}, {}, part);
    take_over(node.output(i), result, first, scope);
  }
  return true;
}

std::vector<Entry> Builder::make_texts(const std::string& type, const std::vector<Entry>& inputs,
                                       const onnx::NodeProto& like, const std::vector<bool>& outputs,
                                       const std::vector<bool>& are_texts, const Origin& origin) {
  text_id("");
  std::vector<Entry> results = make_own(type, inputs, like, outputs, origin);
  for (size_t i = 0; i < results.size(); ++i)
    if (results[i].kind == Entry::value && are_texts[i]) graph_.value(results[i].id).is_text = true;
  return results;
}

Entry Builder::cast_text(const Entry& x, int onnx_type, const Origin& origin) {
  const bool is_to_text = onnx_type == onnx::TensorProto::STRING;
  if (is_text(x) && is_to_text) return make("Identity", {x}, {}, origin);
  if (is_to_text) {
    const ElementType from = graph_.value(x.id).type.element;
    const ElementType wide = is_float(from)             ? ElementType::f64
                             : from == ElementType::u64 ? ElementType::u64
                                                        : ElementType::i64;
    const Entry number = from == wide ? x : make("Cast", {x}, {"to", onnx_of_element(wide)}, origin);
    if (number.kind != Entry::value) return {};
    return make_texts("TextFormat", {number}, {}, {true}, {true}, origin)[0];
  }
  const std::optional<ElementType> to = element_of_onnx(onnx_type);
  if (!to) {
    report(ErrorKind::unsupported, origin.where,
           text("element type ", onnx_type_name(onnx_type), " is not supported"));
    return {};
  }
  const ElementType wide = *to == ElementType::f64 || *to == ElementType::u64 ? *to
                           : is_float(*to)                                    ? ElementType::f32
                                                                              : ElementType::i64;
  const onnx::NodeProto settings =
      with_attributes({onnx::MakeAttribute("to", static_cast<int64_t>(onnx_of_element(wide)))});
  const Entry number = make_texts("TextParse", {x}, settings, {true}, {false}, origin)[0];
  if (number.kind != Entry::value || wide == *to) return number;
  return make("Cast", {number}, {"to", onnx_type}, origin);
}

Entry Builder::concat_texts(Entry a, Entry b, const Origin& origin) {
  if (!graph::same_shape(graph_.value(a.id).type.shape, graph_.value(b.id).type.shape)) {
    a = make("Expand", {a, make("Shape", {b}, {}, origin)}, {}, origin);
    if (a.kind == Entry::value) b = make("Expand", {b, make("Shape", {a}, {}, origin)}, {}, origin);
    if (a.kind != Entry::value || b.kind != Entry::value) return {};
  }
  return make_texts("TextConcat", {a, b}, {}, {true}, {true}, origin)[0];
}

std::vector<Entry> Builder::split_texts(const onnx::NodeProto& node, const Entry& x, const Origin& origin) {
  const Entry count = make_texts("TextCount", {x}, node, {true}, {false}, origin)[0];
  if (count.kind != Entry::value) return {};
  // There may be no element.
  const Entry none = make_constant(Constant::ints({0}), text(origin.name, ".none"));
  const Entry most = make("ReduceMax", {concatenate({flatten(count, origin), none}, 0, origin)}, {}, origin);
  if (most.kind != Entry::value) return {};
  return {make_texts("TextSplit", {x, most}, node, {true}, {true}, origin)[0], count};
}

Entry Builder::normalize_texts(const onnx::NodeProto& node, const Entry& x, const Origin& origin) {
  const graph::Shape shape = graph_.value(x.id).type.shape;
  if (shape.empty() || shape.size() > 2 || (shape.size() == 2 && !tensor::is_int(shape[0], 1))) {
    report(ErrorKind::bad_input, origin.where,
           text("expected shape [C] or [1, C], got ", to_text(graph_.value(x.id).type)));
    return {};
  }
  const onnx::AttributeProto* stops = find_attribute(node, "stopwords");
  const bool has_stops = stops && stops->strings_size() > 0;
  const std::vector<Entry> padded =
      make_texts("TextNormalize", {flatten(x, origin)}, node, {true, has_stops}, {true, false}, origin);
  Entry words = has_stops ? beginning(padded[0], padded[1], 0, origin) : padded[0];
  if (words.kind == Entry::value && shape.size() == 2)
    words = make("Unsqueeze", {words, make_constant(Constant::ints({0}), text(origin.name, ".axis"))}, {},
                 origin);
  return words;
}

Entry Builder::match_texts(const onnx::NodeProto& node, const Entry& x, const Origin& origin) {
  const onnx::AttributeProto* pattern = find_attribute(node, "pattern");
  if (!pattern) {
    report(ErrorKind::bad_input, origin.where, "attribute 'pattern' is missing");
    return {};
  }
  const Result<Automaton> automaton = full_match_automaton(pattern->s());
  if (!automaton.ok()) {
    report_all(automaton.errors(), origin.where);
    return {};
  }
  const onnx::NodeProto tables = with_attributes(
      {onnx::MakeAttribute("classes", automaton->classes), onnx::MakeAttribute("accepts", automaton->accepts),
       onnx::MakeAttribute("next", automaton->next), onnx::MakeAttribute("start", automaton->start)});
  return make_texts("TextMatch", {x}, tables, {true}, {false}, origin)[0];
}

// By their ranks, which are in the order of the texts.
std::vector<Entry> Builder::unique_texts(const onnx::NodeProto& node, const Entry& x, const Origin& origin) {
  const Entry ranks = make_texts("TextRank", {x}, {}, {true}, {false}, origin)[0];
  if (ranks.kind != Entry::value) return {};
  constexpr int kResults = 4, kFirst = 1;
  onnx::NodeProto of_ranks = node;
  while (of_ranks.output_size() < kResults)
    of_ranks.add_output("");
  if (of_ranks.output(kFirst).empty()) of_ranks.set_output(kFirst, "first");
  of_ranks.set_output(0, "");
  std::vector<Entry> results = find_unique(of_ranks, {ranks}, origin);
  if (results.size() <= kFirst || results[kFirst].kind != Entry::value) return {};
  const onnx::AttributeProto* axis = find_attribute(node, "axis");
  results[0] = make("Gather", {axis ? x : flatten(x, origin), results[kFirst]},
                    {"axis", axis ? axis->i() : 0}, origin);
  return results;
}

}  // namespace mcc::frontend
