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
  result.is_optional = value.type().has_optional_type();
  const onnx::TypeProto& held = held_type(value.type());
  result.is_sequence = is_tensor_sequence(held);
  const onnx::TypeProto& tensor = result.is_sequence ? held.sequence_type().elem_type() : held;
  if (!tensor.has_tensor_type()) return result;
  const auto& type = tensor.tensor_type();
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

  Diagnostics wrong_options;
  const ImportOptions divided =
      divide_options(proto.graph(), fix_inputs(proto.graph(), options, wrong_options), wrong_options);
  if (!wrong_options.empty()) return wrong_options;
  model.input_containers = input_containers(proto.graph(), options);

  PreparedModel prepared = prepare_model(proto, loaded->folder, divided);
  const NameDoubts& doubts = prepared.doubts;
  if (!doubts.note.empty()) model.notes.push_back(doubts.note);
  Diagnostics& problems = prepared.problems;
  if (prepared.usable) {
    TensorReader reader(loaded->file, std::move(loaded->blobs), loaded->folder);
    build_graph(prepared.model, reader, divided, fold, model, problems);
  }
  if (prepared.failed && problems.empty()) {
    return not_a_model(path,
                       "ONNX's library crashes on this model; a shape or an attribute in it makes no sense");
  }
  if (!problems.empty()) {
    problems.insert(problems.begin(), doubts.problems.begin(), doubts.problems.end());
    return problems;
  }
  model.graph.compact();
  return model;
}

namespace {

using TensorProtos = google::protobuf::RepeatedPtrField<onnx::TensorProto>;

// What a file of test data has, up to the tensors themselves.
struct ValueProto {
  std::string name;
  bool is_sequence = false, holds = true;
  TensorProtos tensors;
};

template <class Proto>
std::optional<Proto> parse(std::span<const std::byte> bytes) {
  Proto proto;
  const bool is_whole =
      onnx::ParseProtoFromBytes(&proto, reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return is_whole ? std::optional(std::move(proto)) : std::nullopt;
}

Result<ValueProto> read_sequence(const onnx::SequenceProto& proto, const std::string& path) {
  // Those without tensors may say anything of what they would have.
  if (proto.sequence_values_size() + proto.map_values_size() + proto.sparse_tensor_values_size() +
          proto.optional_values_size() >
      0)
    return Diagnostic{ErrorKind::unsupported, path, "is a sequence of other things than tensors", ""};
  return ValueProto{proto.name(), true, true, proto.tensor_values()};
}

Result<ValueProto> read_optional(const onnx::OptionalProto& proto, const std::string& path) {
  ValueProto value;
  value.name = proto.name();
  if (proto.has_tensor_value()) {
    *value.tensors.Add() = proto.tensor_value();
  } else if (proto.has_sequence_value()) {
    Result<ValueProto> held = read_sequence(proto.sequence_value(), path);
    if (!held.ok()) return held.errors();
    value.is_sequence = true;
    value.tensors = std::move(held->tensors);
  } else if (proto.has_sparse_tensor_value() || proto.has_map_value() || proto.has_optional_value()) {
    return Diagnostic{ErrorKind::unsupported, path,
                      "is an optional value of another kind than a tensor or a sequence of tensors", ""};
  } else {
    value.holds = false;
  }
  return value;
}

Result<ValueProto> read_proto(std::span<const std::byte> bytes, const DeclaredTensor& declared,
                              const std::string& path) {
  const auto is_no = [&](const char* what) {
    return Diagnostic{ErrorKind::bad_input, path, text("not a file of ", what), ""};
  };
  if (declared.is_optional) {
    const std::optional<onnx::OptionalProto> proto = parse<onnx::OptionalProto>(bytes);
    if (!proto) return is_no("an optional value");
    return read_optional(*proto, path);
  }
  if (declared.is_sequence) {
    const std::optional<onnx::SequenceProto> proto = parse<onnx::SequenceProto>(bytes);
    if (!proto) return is_no("a sequence");
    return read_sequence(*proto, path);
  }
  std::optional<onnx::TensorProto> proto = parse<onnx::TensorProto>(bytes);
  if (!proto) return Diagnostic{ErrorKind::bad_input, path, "not a tensor file", ""};
  ValueProto value;
  value.name = proto->name();
  *value.tensors.Add() = std::move(*proto);
  return value;
}

}  // namespace

Result<NamedValue> read_value_file(const std::string& path, const DeclaredTensor& declared) {
  Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(path);
  if (!file.ok()) return file.errors();
  google::protobuf::LogSilencer quiet;
  Result<ValueProto> proto = read_proto((*file)->bytes(), declared, path);
  if (!proto.ok()) return proto.errors();
  NamedValue value{proto->name, proto->is_sequence, proto->holds, {}};
  TensorReader reader(*file, {}, std::filesystem::path(path).parent_path().string());
  for (const onnx::TensorProto& tensor : proto->tensors) {
    Result<graph::Constant> constant = reader.read(tensor, path);
    if (!constant.ok()) return constant.errors();
    value.tensors.push_back(std::move(*constant));
  }
  return value;
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
