#include "frontend/contrib/contrib.h"

#include <map>
#include <sstream>

#include "frontend/contrib/expansion.h"
#include "frontend/import.h"
#include "frontend/onnx_tensor.h"
#include "onnx/shape_inference/implementation.h"

namespace mcc::frontend {

namespace {

// One line for each file of operators.
constexpr std::span<const ContribOp> (*kFamilies[])() = {
    quantized_ops, quantized_product_ops, product_ops, activation_ops, normalization_ops,
    attention_ops, decoder_ops,           hybrid_ops,  recurrent_ops,  array_ops,
    expert_ops,
};

struct Parameter {
  std::string name;
  onnx::OpSchema::FormalParameterOption option = onnx::OpSchema::Single;
};

std::vector<Parameter> parameters(const char* list) {
  std::vector<Parameter> out;
  std::istringstream words(list);
  for (std::string word; words >> word;) {
    Parameter p{word};
    if (word.ends_with("?")) {
      p = {word.substr(0, word.size() - 1), onnx::OpSchema::Optional};
    } else if (word.ends_with("...")) {
      p = {word.substr(0, word.size() - 3), onnx::OpSchema::Variadic};
    }
    out.push_back(std::move(p));
  }
  return out;
}

// Types of the outputs by those of the expansion's operators, where the inputs are known.
void infer_by_expansion(const onnx::OpSchema& schema, onnx::InferenceContext& context) {
  onnx::NodeProto node;
  node.set_op_type(schema.Name());
  node.set_domain(schema.domain());
  std::vector<onnx::TypeProto> types;
  for (size_t i = 0; i < context.getNumInputs(); ++i) {
    const onnx::TypeProto* type = context.hasInput(i) ? context.getInputType(i) : nullptr;
    if (context.hasInput(i) && (!type || !static_type_of(*type))) return;
    node.add_input(type ? text("in.", i) : "");
    types.push_back(type ? *type : onnx::TypeProto());
  }
  for (size_t i = 0; i < context.getNumOutputs(); ++i)
    node.add_output(context.hasOutput(i) ? text("out.", i) : "");
  for (const auto& [name, rule] : schema.attributes())
    if (const onnx::AttributeProto* given = context.getAttribute(name)) *node.add_attribute() = *given;
  Result<onnx::FunctionProto> body = expand_contrib(node, types);
  if (!body.ok()) return;
  onnx::shape_inference::InferShapeForFunctionNode(*body, {{"", kOpset}}, onnx::OpSchemaRegistry::Instance(), context);
}

onnx::OpSchema schema_of(const ContribOp& op) {
  onnx::OpSchema schema(op.name, "", 0);
  schema.SetDomain(kContribDomain).SinceVersion(1);
  auto type_of = [&](const char* letter, int i) {  // each of its own: what fits together is the expansion's to say
    const std::string type = text(letter, i);
    schema.TypeConstraint(type, onnx::OpSchema::all_tensor_types(), "");
    return type;
  };
  int i = 0;
  for (const Parameter& p : parameters(op.inputs)) {
    schema.Input(i, p.name, "", type_of("I", i), p.option, false);
    ++i;
  }
  i = 0;
  for (const Parameter& p : parameters(op.outputs)) {
    schema.Output(i, p.name, "", type_of("O", i), p.option, false);
    ++i;
  }
  for (const AttributeRule& rule : op.attributes) {
    if (rule.otherwise.type() == onnx::AttributeProto::UNDEFINED) {
      schema.Attr(onnx::OpSchema::Attribute(rule.name, "", rule.kind, rule.is_required));
    } else {
      schema.Attr(onnx::OpSchema::Attribute(rule.name, "", rule.otherwise));
    }
  }
  schema.Finalize();
  return schema;
}

struct Entry {
  const ContribOp* op;
  onnx::OpSchema schema;
};

const std::map<std::string, Entry>& entries() {
  static const std::map<std::string, Entry> all = [] {
    std::map<std::string, Entry> table;
    for (auto family : kFamilies)
      for (const ContribOp& op : family())
        table.emplace(op.name, Entry{&op, schema_of(op)});
    for (auto& [name, entry] : table) {
      const onnx::OpSchema& schema = entry.schema;  // stays where it is
      entry.schema.TypeAndShapeInferenceFunction([&schema](onnx::InferenceContext& context) { infer_by_expansion(schema, context); });
    }
    return table;
  }();
  return all;
}

const Entry* find_entry(const std::string& domain, const std::string& name) {
  auto found = entries().find(name);
  if (found == entries().end()) return nullptr;
  const bool is_onnx = domain.empty() || domain == "ai.onnx";
  const bool is_there = domain == kContribDomain || (is_onnx && found->second.op->is_in_onnx_domain);
  return is_there ? &found->second : nullptr;
}

class KnownSchemas : public onnx::ISchemaRegistry {
 public:
  const onnx::OpSchema* GetSchema(const std::string& name, int version, const std::string& domain) const override {
    if (domain == kContribDomain) return contrib_schema(domain, name);
    return onnx::OpSchemaRegistry::Instance()->GetSchema(name, version, domain);
  }
};

}  // namespace

const onnx::ISchemaRegistry& known_schemas() {
  static const KnownSchemas schemas;
  return schemas;
}

const onnx::OpSchema* contrib_schema(const std::string& domain, const std::string& name) {
  const Entry* entry = find_entry(domain, name);
  return entry ? &entry->schema : nullptr;
}

Result<onnx::FunctionProto> expand_contrib(const onnx::NodeProto& node, const std::vector<onnx::TypeProto>& types) {
  const Entry* entry = find_entry(node.domain(), node.op_type());
  MCC_CHECK(entry, node.op_type(), " is not among the operators of ", kContribDomain);
  if (std::optional<Diagnostic> problem = missing_input(entry->schema, node)) return *problem;
  Expansion expansion(entry->schema, node, types);
  entry->op->expand(expansion);
  return expansion.finish();
}

}  // namespace mcc::frontend
