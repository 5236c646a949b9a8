#include "frontend/skeleton.h"

#include <optional>

namespace mcc::frontend {

namespace {

// Messages that can hold a tensor somewhere below. Field numbers are those of onnx.proto.
enum class Message { other, model, graph, node, attribute, function, sparse_tensor, tensor };

Message child_message(Message parent, uint32_t field) {
  switch (parent) {
    case Message::model:
      if (field == 7) return Message::graph;
      if (field == 25) return Message::function;
      return Message::other;
    case Message::graph:
      if (field == 1) return Message::node;
      if (field == 5) return Message::tensor;
      if (field == 15) return Message::sparse_tensor;
      return Message::other;
    case Message::node:
      return field == 5 ? Message::attribute : Message::other;
    case Message::attribute:
      if (field == 5 || field == 10) return Message::tensor;
      if (field == 6 || field == 11) return Message::graph;
      if (field == 22 || field == 23) return Message::sparse_tensor;
      return Message::other;
    case Message::function:
      if (field == 7) return Message::node;
      if (field == 11) return Message::attribute;
      return Message::other;
    case Message::sparse_tensor:
      return field == 1 || field == 2 ? Message::tensor : Message::other;
    case Message::tensor:
    case Message::other:
      return Message::other;
  }
  MCC_UNREACHABLE("unknown message");
}

constexpr uint32_t kModelTrainingInfo = 20;
constexpr uint32_t kTensorRawData = 9;
constexpr uint32_t kTensorExternalData = 13;
constexpr uint32_t kTensorDataLocation = 14;
constexpr int kMaxDepth = 90;  // protobuf itself gives up at 100
constexpr size_t kMaxSkeleton = size_t{1} << 30;

void append_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out += static_cast<char>(value | 0x80);
    value >>= 7;
  }
  out += static_cast<char>(value);
}

void append_bytes(std::string& out, uint32_t field, const std::string& bytes) {
  append_varint(out, field << 3 | 2);
  append_varint(out, bytes.size());
  out += bytes;
}

// A field as it stands in the file: [begin, end) with its tag; for wire type 2, payload is what the length covers.
struct Field {
  uint32_t number = 0, wire_type = 0;
  size_t begin = 0, end = 0, payload = 0;
};

class Walker {
 public:
  Walker(std::span<const std::byte> file, const std::string& location)
      : data_(reinterpret_cast<const uint8_t*>(file.data())), size_(file.size()), location_(location) {}

  bool copy(Message kind, size_t begin, size_t end, int depth, std::string& out) {
    if (depth > kMaxDepth) return fail("messages are nested too deeply", begin);
    if (kind == Message::tensor) return copy_tensor(begin, end, out);
    for (size_t at = begin; at < end;) {
      std::optional<Field> field = read_field(at, end);
      if (!field) return false;
      at = field->end;
      if (kind == Message::model && field->number == kModelTrainingInfo) continue;
      Message child = field->wire_type == 2 ? child_message(kind, field->number) : Message::other;
      if (child == Message::other || field->end - field->payload <= kInlineBytes) {
        if (!copy_verbatim(*field, out)) return false;
        continue;
      }
      std::string inner;
      if (!copy(child, field->payload, field->end, depth + 1, inner)) return false;
      append_bytes(out, field->number, inner);
      if (out.size() > kMaxSkeleton) return fail("the model without its weights is over 1 GiB", at);
    }
    return true;
  }

  std::vector<Blob> take_blobs() { return std::move(blobs_); }
  const std::string& error() const { return error_; }

 private:
  bool fail(const char* why, size_t at) {
    if (error_.empty()) error_ = text(why, " (at byte ", at, " of ", size_, ")");
    return false;
  }

  bool copy_verbatim(const Field& field, std::string& out) {
    if (out.size() + (field.end - field.begin) > kMaxSkeleton)
      return fail("the model without its weights is over 1 GiB", field.begin);
    out.append(reinterpret_cast<const char*>(data_ + field.begin), field.end - field.begin);
    return true;
  }

  // As protobuf, the last raw_data counts when there are several.
  bool copy_tensor(size_t begin, size_t end, std::string& out) {
    std::optional<Field> raw;
    std::vector<Field> fields;
    for (size_t at = begin; at < end;) {
      std::optional<Field> field = read_field(at, end);
      if (!field) return false;
      at = field->end;
      if (field->number == kTensorRawData && field->wire_type == 2)
        raw = field;
      else
        fields.push_back(*field);
    }
    const bool leave = raw && raw->end - raw->payload > kInlineBytes;
    for (const Field& field : fields) {
      if (leave && (field.number == kTensorExternalData || field.number == kTensorDataLocation)) continue;
      if (!copy_verbatim(field, out)) return false;
    }
    if (raw && !leave) return copy_verbatim(*raw, out);
    if (leave) append_reference(*raw, out);
    return true;
  }

  void append_reference(const Field& raw, std::string& out) {
    auto append_entry = [&](const std::string& key, const std::string& value) {
      std::string entry;
      append_bytes(entry, 1, key);
      append_bytes(entry, 2, value);
      append_bytes(out, kTensorExternalData, entry);
    };
    append_entry("location", location_);
    append_entry(kBlobKey, std::to_string(blobs_.size()));
    append_varint(out, kTensorDataLocation << 3 | 0);
    append_varint(out, 1);  // EXTERNAL
    blobs_.push_back({raw.payload, raw.end - raw.payload});
  }

  std::optional<uint64_t> read_varint(size_t& at, size_t end) {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at >= end) {
        fail("the data ends within a number", at);
        return std::nullopt;
      }
      const uint8_t byte = data_[at++];
      if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    fail("a number is longer than ten bytes", at);
    return std::nullopt;
  }

  std::optional<Field> read_field(size_t at, size_t end) {
    Field field;
    field.begin = at;
    std::optional<uint64_t> tag = read_varint(at, end);
    if (!tag) return std::nullopt;
    field.number = static_cast<uint32_t>(*tag >> 3);
    field.wire_type = static_cast<uint32_t>(*tag & 7);
    field.payload = at;
    uint64_t length = 0;
    switch (field.wire_type) {
      case 0:
        if (!read_varint(at, end)) return std::nullopt;
        field.end = at;
        return field;
      case 1:
        length = 8;
        break;
      case 5:
        length = 4;
        break;
      case 2: {
        std::optional<uint64_t> given = read_varint(at, end);
        if (!given) return std::nullopt;
        length = *given;
        field.payload = at;
        break;
      }
      default:
        fail("not the encoding of an ONNX model", field.begin);
        return std::nullopt;
    }
    if (length > end - at) {
      fail("a field is longer than what contains it", field.begin);
      return std::nullopt;
    }
    field.end = at + static_cast<size_t>(length);
    return field;
  }

  const uint8_t* data_;
  size_t size_;
  const std::string& location_;
  std::vector<Blob> blobs_;
  std::string error_;
};

}  // namespace

Result<Skeleton> make_skeleton(std::span<const std::byte> file, const std::string& location) {
  Walker walker(file, location);
  Skeleton skeleton;
  if (!walker.copy(Message::model, 0, file.size(), 0, skeleton.bytes)) {
    return Diagnostic{ErrorKind::bad_input, "", text("not an ONNX model: ", walker.error()), ""};
  }
  skeleton.blobs = walker.take_blobs();
  return skeleton;
}

}  // namespace mcc::frontend
