#include "frontend/import.h"

#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <span>

#include "frontend/build_graph.h"
#include "frontend/mapped_file.h"
#include "frontend/model_prepare.h"
#include "frontend/onnx_tensor.h"
#include "frontend/skeleton.h"
#include "onnx/onnx-data.pb.h"
#include "onnx/proto_utils.h"

namespace mcc::frontend {

namespace {

struct LoadedModel {
  std::shared_ptr<const MappedFile> file;
  std::vector<Blob> blobs;
  onnx::ModelProto proto;
  std::string folder;
};

Diagnostic not_a_model(const std::string& path, std::string why) {
  return {ErrorKind::bad_input, path, std::move(why), ""};
}

// Reads the file up to the parsed message, and sees that it is a model at all.
Result<LoadedModel> load(const std::string& path) {
  LoadedModel model;
  Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(path);
  if (!file.ok()) return file.errors();
  model.file = *file;
  const std::filesystem::path full(path);
  model.folder = full.parent_path().string();
  Result<Skeleton> skeleton = make_skeleton(model.file->bytes(), full.filename().string());
  if (!skeleton.ok()) return not_a_model(path, skeleton.errors().front().message);
  model.blobs = std::move(skeleton->blobs);

  google::protobuf::LogSilencer quiet;
  if (!onnx::ParseProtoFromBytes(&model.proto, skeleton->bytes.data(), skeleton->bytes.size()))
    return not_a_model(path, "not an ONNX model: a field does not have the type that ONNX says");
  if (!model.proto.has_graph()) return not_a_model(path, "not an ONNX model: it has no graph");
  if (model.proto.ir_version() < 1) return not_a_model(path, "not an ONNX model: it has no IR version");
  if (model.proto.opset_import_size() == 0) {
    if (model.proto.ir_version() >= 3) return not_a_model(path, "the model does not say which opset it uses");
    model.proto.add_opset_import()->set_version(1);
  }
  return model;
}

std::string producer_of(const onnx::ModelProto& model) {
  if (model.producer_version().empty()) return model.producer_name();
  return text(model.producer_name(), " ", model.producer_version());
}

DeclaredTensor declare(const onnx::ValueInfoProto& value) {
  DeclaredTensor result;
  result.name = value.name();
  if (!held_type(value.type()).has_tensor_type()) return result;
  const auto& type = held_type(value.type()).tensor_type();
  if (auto element = element_of_onnx(type.elem_type())) result.element = to_text(*element);
  result.has_shape = type.has_shape();
  for (const auto& dim : type.shape().dim()) {
    result.shape.push_back(dim.has_dim_value() ? dim.dim_value() : -1);
    result.symbols.push_back(has_name(dim) ? dim.dim_param() : "");
  }
  return result;
}

void count_operators(const onnx::GraphProto& graph, std::map<std::string, int64_t>& counts) {
  for (const auto& node : graph.node()) {
    const bool plain = node.domain().empty() || node.domain() == "ai.onnx";
    ++counts[plain ? node.op_type() : text(node.domain(), ".", node.op_type())];
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_g()) count_operators(attribute.g(), counts);
      for (const auto& inner : attribute.graphs())
        count_operators(inner, counts);
    }
  }
}

}  // namespace

Result<ImportedModel> import_onnx(const std::string& path, const ImportOptions& options,
                                  const graph::Evaluator& fold) {
  Result<LoadedModel> loaded = load(path);
  if (!loaded.ok()) return loaded.errors();
  const onnx::ModelProto& proto = loaded->proto;
  ImportedModel model;
  model.producer = producer_of(proto);
  model.doc = proto.doc_string();
  model.opset = default_opset(proto).value_or(0);
  model.ir_version = proto.ir_version();
  model.node_count = proto.graph().node_size();
  model.file_bytes = static_cast<int64_t>(loaded->file->bytes().size());

  PreparedModel prepared = prepare_model(proto, loaded->folder, options);
  Diagnostics& problems = prepared.problems;
  if (prepared.usable) {
    TensorReader reader(loaded->file, std::move(loaded->blobs), loaded->folder);
    model.graph = build_graph(prepared.model, reader, options, fold, model.labels, problems);
  }
  if (prepared.failed && problems.empty()) {
    return not_a_model(path,
                       "ONNX's library crashes on this model; a shape or an attribute in it makes no sense");
  }
  if (!problems.empty()) return problems;
  model.graph.compact();
  return model;
}

namespace {

// Test data of optional inputs is an OptionalProto. Read as a tensor it has a segment where it holds one, which no tensor has, and
// no element type where it holds nothing.
std::optional<onnx::OptionalProto> read_optional(const onnx::TensorProto& tensor, std::span<const std::byte> bytes) {
  if (!tensor.has_segment() && tensor.data_type() != onnx::TensorProto::UNDEFINED) return std::nullopt;
  onnx::OptionalProto optional;
  if (!onnx::ParseProtoFromBytes(&optional, reinterpret_cast<const char*>(bytes.data()), bytes.size())) return std::nullopt;
  if (optional.has_tensor_value()) return optional;
  const bool is_empty = optional.has_name() && optional.elem_type() == onnx::OptionalProto::UNDEFINED;
  return is_empty ? std::optional(optional) : std::nullopt;
}

}  // namespace

Result<NamedTensor> read_tensor_file(const std::string& path) {
  Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(path);
  if (!file.ok()) return file.errors();
  google::protobuf::LogSilencer quiet;
  onnx::TensorProto proto;
  const auto bytes = (*file)->bytes();
  if (!onnx::ParseProtoFromBytes(&proto, reinterpret_cast<const char*>(bytes.data()), bytes.size()))
    return Diagnostic{ErrorKind::bad_input, path, "not a tensor file", ""};
  if (std::optional<onnx::OptionalProto> optional = read_optional(proto, bytes)) {
    if (!optional->has_tensor_value())
      return Diagnostic{ErrorKind::unsupported, path, "is an optional value that holds none; it is taken to be there", ""};
    proto = optional->tensor_value();
    proto.set_name(optional->name());
  }
  TensorReader reader(*file, {}, std::filesystem::path(path).parent_path().string());
  Result<graph::Constant> value = reader.read(proto, path);
  if (!value.ok()) return value.errors();
  return NamedTensor{proto.name(), std::move(*value)};
}

Result<ModelSummary> summarize_onnx(const std::string& path) {
  Result<LoadedModel> loaded = load(path);
  if (!loaded.ok()) return loaded.errors();
  const onnx::ModelProto& proto = loaded->proto;
  ModelSummary summary;
  summary.producer = producer_of(proto);
  summary.opset = default_opset(proto).value_or(0);
  summary.ir_version = proto.ir_version();
  summary.node_count = proto.graph().node_size();
  summary.file_bytes = static_cast<int64_t>(loaded->file->bytes().size());
  for (const Blob& blob : loaded->blobs)
    summary.weight_bytes += static_cast<int64_t>(blob.size);
  std::set<std::string> initialized;
  for (const auto& tensor : proto.graph().initializer())
    initialized.insert(tensor.name());
  for (const auto& input : proto.graph().input())
    if (!initialized.count(input.name())) summary.inputs.push_back(declare(input));
  for (const auto& output : proto.graph().output())
    summary.outputs.push_back(declare(output));
  count_operators(proto.graph(), summary.operators);
  return summary;
}

}  // namespace mcc::frontend
