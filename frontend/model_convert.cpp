#include <map>
#include <set>

#include "frontend/contrib/contrib.h"
#include "frontend/model_prepare.h"
#include "onnx/checker.h"
#include "onnx/inliner/inliner.h"
#include "onnx/shape_inference/implementation.h"
#include "onnx/version_converter/convert.h"

namespace mcc::frontend {

namespace {

// ONNX follows values that may be shapes: of what has one dimension it keeps a message for each element, whatever its type,
// which takes seconds and gigabytes for vectors of millions. No shape has so many dimensions.
constexpr int64_t kMostFollowed = 1024;

bool is_long(const onnx::TypeProto* type) {
  if (!type || !type->has_tensor_type() || !type->tensor_type().has_shape()) return false;
  const onnx::TensorShapeProto& shape = type->tensor_type().shape();
  return shape.dim_size() == 1 && shape.dim(0).has_dim_value() && shape.dim(0).dim_value() > kMostFollowed;
}

// The same operators; values of long vectors are not followed.
class BoundedSchemas : public onnx::ISchemaRegistry {
 public:
  const onnx::OpSchema* GetSchema(const std::string& name, int version,
                                  const std::string& domain) const override {
    const onnx::OpSchema* schema = known_schemas().GetSchema(name, version, domain);
    if (!schema || !schema->has_data_propagation_function()) return schema;
    const auto [found, is_new] = bounded_.try_emplace(schema, *schema);
    if (is_new) {
      found->second.PartialDataPropagationFunction(
          [follow = schema->GetDataPropagationFunction()](onnx::DataPropagationContext& context) {
            for (size_t i = 0; i < context.getNumInputs(); ++i)
              if (is_long(context.getInputType(i))) return;
            follow(context);
          });
    }
    return &found->second;
  }

 private:
  mutable std::map<const onnx::OpSchema*, onnx::OpSchema> bounded_;
};

// Types help the conversion and the reports on unsupported nodes; where inference fails the graph's own rules say why.
void infer_types(onnx::ModelProto& model) {
  onnx::ModelProto inferred = model;
  const onnx::ShapeInferenceOptions options(false, 0, true);
  const BoundedSchemas schemas;
  const auto error = onnx_error([&] { onnx::shape_inference::InferShapes(inferred, &schemas, options); });
  if (!error) model = std::move(inferred);
}

void set_opset(onnx::ModelProto& model, int64_t version) {
  for (auto& import : *model.mutable_opset_import()) {
    if (!import.domain().empty() && import.domain() != "ai.onnx") continue;
    import.set_domain("");
    import.set_version(version);
    return;
  }
  model.add_opset_import()->set_version(version);
}

using Types = std::map<std::string, onnx::TypeProto>;

void collect_types(const onnx::GraphProto& graph, Types& types) {
  for (const auto* values : {&graph.input(), &graph.value_info(), &graph.output()})
    for (const auto& value : *values)
      types[value.name()] = value.type();
}

// The body as a model of its own, for which what it reads from around it is given.
std::optional<std::string> convert_body(onnx::GraphProto& body, const Types& around,
                                        const onnx::ModelProto& like) {
  const std::set<std::string> outer = outer_names(body);
  onnx::ModelProto model;
  model.set_ir_version(like.ir_version());
  *model.mutable_opset_import() = like.opset_import();
  *model.mutable_graph() = body;
  onnx::GraphProto& graph = *model.mutable_graph();
  for (const std::string& name : outer) {
    onnx::ValueInfoProto& input = *graph.add_input();
    input.set_name(name);
    if (const auto type = around.find(name); type != around.end()) *input.mutable_type() = type->second;
  }
  infer_types(model);
  onnx::ModelProto converted;
  const auto error = onnx_error([&] { converted = onnx::version_conversion::ConvertVersion(model, kOpset); });
  if (error) return error;
  body.Swap(converted.mutable_graph());
  body.mutable_input()->DeleteSubrange(body.input_size() - static_cast<int>(outer.size()),
                                       static_cast<int>(outer.size()));
  return std::nullopt;
}

// Scans inside of others are converted first: a body's conversion leaves them alone.
std::optional<std::string> move_batched_scans(onnx::GraphProto& graph, Types types,
                                              const onnx::ModelProto& like) {
  collect_types(graph, types);
  for (auto& node : *graph.mutable_node()) {
    const bool is_scan = node.domain().empty() && node.op_type() == "Scan";
    for (auto& attribute : *node.mutable_attribute()) {
      if (!attribute.has_g()) continue;
      if (auto error = move_batched_scans(*attribute.mutable_g(), types, like)) return error;
      if (!is_scan) continue;
      if (auto error = convert_body(*attribute.mutable_g(), types, like)) return error;
    }
    if (is_scan) node.set_domain(kBatchedScanDomain);
  }
  return std::nullopt;
}

// PRelu of opsets up to 6 takes a slope for each channel, which from 7 on is a tensor that broadcasts; ONNX's conversion leaves it as it is.
void spread_slopes(onnx::GraphProto& graph) {
  Types types;
  collect_types(graph, types);
  for (const onnx::TensorProto& constant : graph.initializer()) {
    onnx::TensorShapeProto& shape = *types[constant.name()].mutable_tensor_type()->mutable_shape();
    shape.clear_dim();
    for (int64_t extent : constant.dims())
      shape.add_dim()->set_dim_value(extent);
  }
  auto rank = [&](const std::string& name) {
    const auto found = types.find(name);
    const bool is_known = found != types.end() && found->second.tensor_type().has_shape();
    return is_known ? found->second.tensor_type().shape().dim_size() : 0;
  };
  google::protobuf::RepeatedPtrField<onnx::NodeProto> nodes;
  for (onnx::NodeProto& node : *graph.mutable_node()) {
    const bool is_per_channel = node.domain().empty() && node.op_type() == "PRelu" &&
                                node.input_size() == 2 && rank(node.input(1)) == 1 && rank(node.input(0)) > 2;
    if (is_per_channel) {
      onnx::NodeProto& spread = *nodes.Add();
      spread.set_op_type("Unsqueeze");
      spread.add_input(node.input(1));
      spread.add_output(text("mcc.slopes.", node.output(0)));
      onnx::AttributeProto& axes = *spread.add_attribute();
      axes.set_name("axes");
      axes.set_type(onnx::AttributeProto::INTS);
      for (int axis = 1; axis < rank(node.input(0)) - 1; ++axis)
        axes.add_ints(axis);
      node.set_input(1, spread.output(0));
    }
    nodes.Add()->Swap(&node);
  }
  graph.mutable_node()->Swap(&nodes);
}

void import_domain(onnx::ModelProto& model, const char* domain) {
  onnx::OperatorSetIdProto& import = *model.add_opset_import();
  import.set_domain(domain);
  import.set_version(1);
}

std::optional<std::string> to_newest_opset(onnx::ModelProto& model, int64_t version) {
  constexpr int kBatchedScan = 8, kSlopesBroadcast = 7;
  if (version < kSlopesBroadcast) spread_slopes(*model.mutable_graph());
  if (version == kBatchedScan) {
    import_domain(model, kBatchedScanDomain);
    const onnx::ModelProto before = model;
    if (auto error = move_batched_scans(*model.mutable_graph(), {}, before)) return error;
  }
  onnx::ModelProto converted;
  const auto error = onnx_error([&] { converted = onnx::version_conversion::ConvertVersion(model, kOpset); });
  if (!error) model = std::move(converted);
  return error;
}

}  // namespace

bool inline_functions(onnx::ModelProto& model, Diagnostics& problems) {
  if (model.functions_size() == 0) return true;
  const auto error = onnx_error([&] {
    onnx::checker::check_function_call_cycles(model);
    onnx::inliner::InlineLocalFunctions(model, true);
  });
  if (!error) return true;
  problems.push_back(
      {ErrorKind::bad_input, "", text("the model's functions cannot be inlined: ", *error), ""});
  return false;
}

bool convert_model(onnx::ModelProto& model, Diagnostics& problems) {
  // Initializers need not be inputs from IR version 4 on; they have been dropped from there.
  if (model.ir_version() < 10) model.set_ir_version(10);
  const int64_t version = default_opset(model).value_or(kOpset);
  set_opset(model, version);
  infer_types(model);
  if (version == kOpset) return true;
  if (const auto error = to_newest_opset(model, version)) {
    // A fault that has been reported can make the conversion fail as well.
    if (problems.empty()) {
      problems.push_back(
          {ErrorKind::unsupported, "",
           text("the model cannot be converted from opset ", version, " to ", kOpset, ": ", *error),
           "export it again with a newer opset"});
    }
    return false;
  }
  infer_types(model);
  return true;
}

}  // namespace mcc::frontend
