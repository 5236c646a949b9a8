// Tensors and types of ONNX as those of the graph. Internal to this layer: includes protobuf.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "frontend/mapped_file.h"
#include "frontend/skeleton.h"
#include "graph/graph.h"
#include "onnx/onnx_pb.h"

namespace mcc::frontend {

// Nothing for the types that the graph has no element type for (complex, some 8- and 4-bit floats).
std::optional<ElementType> element_of_onnx(int onnx_type);
int onnx_of_element(ElementType element);
// "float", "complex64", ...; "type 99" for a number that ONNX does not define.
std::string onnx_type_name(int onnx_type);

// A tensor type whose dimensions are all known; nothing otherwise.
std::optional<graph::TensorType> static_type_of(const onnx::TypeProto& type);
onnx::TypeProto onnx_type_of(const graph::TensorType& type);

// What an optional value may hold; else the type itself.
const onnx::TypeProto& held_type(const onnx::TypeProto& type);

// Not of a sequence of sequences, say.
bool is_tensor_sequence(const onnx::TypeProto& type);

// "node 'conv1' (Conv)"; a node without a name goes by its first output.
std::string node_label(const onnx::NodeProto& node);

// Reads tensors whose data may be in the message, in the model's own file (see skeleton.h), or in files next to it.
class TensorReader {
 public:
  TensorReader(std::shared_ptr<const MappedFile> model, std::vector<Blob> blobs, std::string folder)
      : model_(std::move(model)), blobs_(std::move(blobs)), folder_(std::move(folder)) {}

  // The constant refers to the mapped file where it can (large, aligned, not packed) and keeps it alive. where goes
  // into diagnostics. Nothing is read outside of the model's folder.
  Result<graph::Constant> read(const onnx::TensorProto& tensor, const std::string& where);
  Result<graph::Constant> read_sparse(const onnx::SparseTensorProto& tensor, const std::string& where);

 private:
  struct Bytes {
    std::span<const std::byte> bytes;
    std::shared_ptr<const MappedFile> file;  // where the bytes are; null: in the message
  };
  Result<Bytes> external_bytes(const onnx::TensorProto& tensor, const std::string& where);
  Result<std::shared_ptr<const MappedFile>> open_external(const std::string& location,
                                                          const std::string& where);

  std::shared_ptr<const MappedFile> model_;
  std::vector<Blob> blobs_;
  std::string folder_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;
};

}  // namespace mcc::frontend
