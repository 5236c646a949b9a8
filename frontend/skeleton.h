// An ONNX file without its weights: what protobuf and ONNX's library get to see.
//
// Parsing a model of hundreds of megabytes with protobuf copies every weight, and ONNX's version conversion copies them
// several times more. A walk over the wire format finds the large raw_data fields, leaves them where they are in the
// mapped file, and puts a reference of a few bytes in their place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "support/result.h"

namespace mcc::frontend {

// Bytes of the file that a tensor of the skeleton refers to.
struct Blob {
  uint64_t offset = 0;
  uint64_t size = 0;
};

struct Skeleton {
  std::string bytes;  // a serialised ModelProto
  std::vector<Blob> blobs;
};

// A tensor whose raw_data was left in the file has data_location EXTERNAL and two external_data entries: "location",
// and under kBlobKey the index into Skeleton::blobs.
inline constexpr const char* kBlobKey = "mcc.blob";

// Tensors whose raw_data is at most this long keep it.
inline constexpr size_t kInlineBytes = 1024;

// file holds a serialised ModelProto; location is the file's own name without its folder (ONNX's checker wants the
// location of external data to exist). Every length is checked against the bytes that are there.
Result<Skeleton> make_skeleton(std::span<const std::byte> file, const std::string& location);

}  // namespace mcc::frontend
