#include "frontend/onnx_tensor.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <limits>

namespace mcc::frontend {

namespace {

using graph::Constant;

struct TypeRow {
  int onnx;
  ElementType element;
};

constexpr TypeRow kTypes[] = {
    {onnx::TensorProto::FLOAT, ElementType::f32},
    {onnx::TensorProto::UINT8, ElementType::u8},
    {onnx::TensorProto::INT8, ElementType::i8},
    {onnx::TensorProto::UINT16, ElementType::u16},
    {onnx::TensorProto::INT16, ElementType::i16},
    {onnx::TensorProto::INT32, ElementType::i32},
    {onnx::TensorProto::INT64, ElementType::i64},
    {onnx::TensorProto::STRING, ElementType::string},
    {onnx::TensorProto::BOOL, ElementType::boolean},
    {onnx::TensorProto::FLOAT16, ElementType::f16},
    {onnx::TensorProto::DOUBLE, ElementType::f64},
    {onnx::TensorProto::UINT32, ElementType::u32},
    {onnx::TensorProto::UINT64, ElementType::u64},
    {onnx::TensorProto::BFLOAT16, ElementType::bf16},
    {onnx::TensorProto::FLOAT8E4M3FN, ElementType::f8e4m3},
    {onnx::TensorProto::FLOAT8E4M3FNUZ, ElementType::f8e4m3fnuz},
    {onnx::TensorProto::FLOAT8E5M2, ElementType::f8e5m2},
    {onnx::TensorProto::FLOAT8E5M2FNUZ, ElementType::f8e5m2fnuz},
    {onnx::TensorProto::UINT4, ElementType::u4},
    {onnx::TensorProto::INT4, ElementType::i4},
    {onnx::TensorProto::FLOAT4E2M1, ElementType::f4e2m1},
    {onnx::TensorProto::FLOAT8E8M0, ElementType::f8e8m0},
    {onnx::TensorProto::UINT2, ElementType::u2},
    {onnx::TensorProto::INT2, ElementType::i2},
};

Diagnostic bad(const std::string& where, std::string message) {
  return {ErrorKind::bad_input, where, std::move(message), ""};
}

// Elements of fewer bits than a byte share bytes.
bool is_packed(ElementType element) { return element != ElementType::string && bit_width(element) < 8; }

// Bytes that a dense tensor takes in a file.
int64_t stored_bytes(ElementType element, int64_t count) {
  return is_packed(element) ? (count * bit_width(element) + 7) / 8 : count * byte_size(element);
}

// The number of elements, if the dimensions are sound and the tensor is of a size that memory can hold.
Result<int64_t> checked_count(const google::protobuf::RepeatedField<int64_t>& dims,
                              const std::string& where) {
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t count = 1;
  bool empty = false;
  for (int64_t dim : dims) {
    if (dim < 0) return bad(where, text("has the negative dimension ", dim));
    if (dim == 0) empty = true;
    if (dim > 0 && count > kMost / dim) return bad(where, text("is too large: ", list_text(dims)));
    count *= std::max<int64_t>(dim, 1);
  }
  return empty ? 0 : count;
}

// The first element of a byte is in its low bits. Signed integers are extended to the byte.
std::vector<std::byte> unpack(std::span<const std::byte> packed, int64_t count, ElementType element) {
  const auto bits = static_cast<size_t>(bit_width(element)), each = 8 / bits;
  const int values = 1 << bits;
  std::vector<std::byte> out(static_cast<size_t>(count));
  for (size_t i = 0; i < out.size(); ++i) {
    int value = static_cast<int>(packed[i / each]) >> (i % each * bits) & (values - 1);
    if (is_signed_int(element) && value >= values / 2) value -= values;
    out[i] = static_cast<std::byte>(value);
  }
  return out;
}

// values as elements of Stored, bit by bit for floats kept in integer fields.
template <class Stored, class Field>
std::vector<std::byte> narrow(const Field& values) {
  std::vector<std::byte> out(static_cast<size_t>(values.size()) * sizeof(Stored));
  for (int i = 0; i < values.size(); ++i) {
    const Stored value = static_cast<Stored>(values.Get(i));
    std::memcpy(out.data() + static_cast<size_t>(i) * sizeof(Stored), &value, sizeof(Stored));
  }
  return out;
}

// The typed field of the message that holds elements of this type, as dense little-endian bytes.
std::vector<std::byte> typed_data(const onnx::TensorProto& tensor, ElementType element) {
  switch (element) {
    case ElementType::f32:
      return narrow<float>(tensor.float_data());
    case ElementType::f64:
      return narrow<double>(tensor.double_data());
    case ElementType::i64:
      return narrow<int64_t>(tensor.int64_data());
    case ElementType::u64:
      return narrow<uint64_t>(tensor.uint64_data());
    case ElementType::u32:
      return narrow<uint32_t>(tensor.uint64_data());
    case ElementType::i32:
      return narrow<int32_t>(tensor.int32_data());
    case ElementType::i16:
    case ElementType::u16:
    case ElementType::f16:
    case ElementType::bf16:
      return narrow<uint16_t>(tensor.int32_data());
    case ElementType::boolean:
    case ElementType::i8:
    case ElementType::u8:
    case ElementType::f8e4m3:
    case ElementType::f8e4m3fnuz:
    case ElementType::f8e5m2:
    case ElementType::f8e5m2fnuz:
    case ElementType::f8e8m0:
    case ElementType::f4e2m1:
    case ElementType::i2:
    case ElementType::i4:
    case ElementType::u2:
    case ElementType::u4:
      return narrow<uint8_t>(tensor.int32_data());
    case ElementType::tf32:
    case ElementType::string:
      break;
  }
  MCC_UNREACHABLE("a tensor of ", to_text(element));
}

std::optional<uint64_t> parse_number(const std::string& s) {
  uint64_t value = 0;
  auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value);
  if (error != std::errc() || end != s.data() + s.size()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<ElementType> element_of_onnx(int onnx_type) {
  for (const TypeRow& row : kTypes)
    if (row.onnx == onnx_type) return row.element;
  return std::nullopt;
}

int onnx_of_element(ElementType element) {
  for (const TypeRow& row : kTypes)
    if (row.element == element) return row.onnx;
  MCC_UNREACHABLE("ONNX has no type ", to_text(element));
}

std::string onnx_type_name(int onnx_type) {
  if (!onnx::TensorProto::DataType_IsValid(onnx_type)) return text("type ", onnx_type);
  std::string name = onnx::TensorProto::DataType_Name(static_cast<onnx::TensorProto::DataType>(onnx_type));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  return name;
}

std::optional<graph::TensorType> static_type_of(const onnx::TypeProto& type) {
  if (!type.has_tensor_type() || !type.tensor_type().has_shape()) return std::nullopt;
  std::optional<ElementType> element = element_of_onnx(type.tensor_type().elem_type());
  if (!element) return std::nullopt;
  graph::TensorType result{*element, {}};
  for (const auto& dim : type.tensor_type().shape().dim()) {
    if (!dim.has_dim_value() || dim.dim_value() < 0) return std::nullopt;
    result.shape.push_back(dim.dim_value());
  }
  return result;
}

onnx::TypeProto onnx_type_of(const graph::TensorType& type) {
  onnx::TypeProto result;
  result.mutable_tensor_type()->set_elem_type(onnx_of_element(type.element));
  auto* shape = result.mutable_tensor_type()->mutable_shape();
  for (const tensor::Expr& dim : type.shape) {
    int64_t value = 0;
    auto* added = shape->add_dim();
    if (tensor::as_int(dim, &value)) added->set_dim_value(value);
  }
  return result;
}

const onnx::TypeProto& held_type(const onnx::TypeProto& type) {
  return type.has_optional_type() ? type.optional_type().elem_type() : type;
}

bool is_tensor_sequence(const onnx::TypeProto& type) {
  return type.has_sequence_type() && type.sequence_type().elem_type().has_tensor_type();
}

std::string node_label(const onnx::NodeProto& node) {
  std::string op = node.domain().empty() ? node.op_type() : text(node.domain(), ".", node.op_type());
  if (!node.name().empty()) return text("node '", node.name(), "' (", op, ")");
  if (node.output_size() > 0) return text("node of output '", node.output(0), "' (", op, ")");
  return text("a node without name and outputs (", op, ")");
}

Result<Constant> TensorReader::read(const onnx::TensorProto& tensor, const std::string& where) {
  std::optional<ElementType> element = element_of_onnx(tensor.data_type());
  if (!element) {
    const ErrorKind kind = onnx::TensorProto::DataType_IsValid(tensor.data_type()) &&
                                   tensor.data_type() != onnx::TensorProto::UNDEFINED
                               ? ErrorKind::unsupported
                               : ErrorKind::bad_input;
    return Diagnostic{kind, where,
                      text("element type ", onnx_type_name(tensor.data_type()), " is not supported"), ""};
  }
  Result<int64_t> count = checked_count(tensor.dims(), where);
  if (!count.ok()) return count.errors();
  std::vector<int64_t> shape(tensor.dims().begin(), tensor.dims().end());
  const uint64_t need = static_cast<uint64_t>(stored_bytes(*element, *count));

  if (*element == ElementType::string) {
    std::vector<std::string> strings(tensor.string_data().begin(), tensor.string_data().end());
    if (static_cast<int64_t>(strings.size()) != *count)
      return bad(where, text("has ", strings.size(), " strings; its shape needs ", *count));
    return Constant::strings(std::move(shape), std::move(strings));
  }

  std::vector<std::byte> typed;
  Bytes found;
  if (tensor.data_location() == onnx::TensorProto::EXTERNAL) {
    Result<Bytes> bytes = external_bytes(tensor, where);
    if (!bytes.ok()) return bytes.errors();
    found = *bytes;
  } else if (tensor.has_raw_data()) {
    found.bytes = std::as_bytes(std::span(tensor.raw_data()));
  } else {
    typed = typed_data(tensor, *element);
    found.bytes = typed;
  }
  if (found.bytes.size() != need) {
    return bad(where, text("has ", found.bytes.size(), " bytes of data; ", list_text(shape), " of ",
                           to_text(*element), " needs ", need));
  }

  if (is_packed(*element)) return Constant::copy_of(*element, shape, unpack(found.bytes, *count, *element));
  if (is_bool(*element)) {
    std::vector<std::byte> bits(found.bytes.begin(), found.bytes.end());
    for (std::byte& b : bits)
      b = static_cast<std::byte>(b != std::byte{0});
    return Constant::copy_of(*element, shape, bits);
  }
  const bool aligned =
      reinterpret_cast<uintptr_t>(found.bytes.data()) % static_cast<uintptr_t>(byte_size(*element)) == 0;
  if (found.file && aligned) return Constant(*element, shape, found.bytes, found.file);
  Constant copy = Constant::copy_of(*element, shape, found.bytes);
  if (found.file) found.file->release(found.bytes);
  return copy;
}

Result<TensorReader::Bytes> TensorReader::external_bytes(const onnx::TensorProto& tensor,
                                                         const std::string& where) {
  std::map<std::string, std::string> entries;
  for (const auto& entry : tensor.external_data())
    entries[entry.key()] = entry.value();
  if (auto key = entries.find(kBlobKey); key != entries.end()) {
    std::optional<uint64_t> index = parse_number(key->second);
    if (!index || *index >= blobs_.size()) return bad(where, "refers to data that the file does not have");
    const Blob& blob = blobs_[static_cast<size_t>(*index)];
    return Bytes{model_->bytes().subspan(static_cast<size_t>(blob.offset), static_cast<size_t>(blob.size)),
                 model_};
  }
  Result<std::shared_ptr<const MappedFile>> file = open_external(entries["location"], where);
  if (!file.ok()) return file.errors();
  const std::span<const std::byte> all = (*file)->bytes();
  std::optional<uint64_t> offset = 0, length;
  if (entries.count("offset")) offset = parse_number(entries["offset"]);
  if (!offset || *offset > all.size()) {
    return bad(where, text("offset ", entries["offset"], " of its external data is not within '",
                           entries["location"], "' (", all.size(), " bytes)"));
  }
  length = all.size() - *offset;
  if (entries.count("length")) length = parse_number(entries["length"]);
  if (!length || *length > all.size() - *offset) {
    return bad(where, text("length ", entries["length"], " of its external data at offset ", *offset,
                           " is not within '", entries["location"], "' (", all.size(), " bytes)"));
  }
  return Bytes{all.subspan(static_cast<size_t>(*offset), static_cast<size_t>(*length)), *file};
}

Result<std::shared_ptr<const MappedFile>> TensorReader::open_external(const std::string& location,
                                                                      const std::string& where) {
  namespace fs = std::filesystem;
  if (auto known = files_.find(location); known != files_.end()) return known->second;
  if (location.empty() || location.find('\0') != std::string::npos)
    return bad(where, "its external data has no usable location");
  const fs::path relative(location);
  const bool climbs = std::find(relative.begin(), relative.end(), fs::path("..")) != relative.end();
  if (relative.is_absolute() || climbs)
    return bad(where, text("its external data '", location, "' is not below the model's folder"));
  std::error_code error;
  const fs::path base = fs::canonical(folder_.empty() ? "." : folder_, error);
  if (error) return bad(where, text("the model's folder cannot be read: ", error.message()));
  const fs::path target = fs::canonical(base / relative, error);
  if (error) return bad(where, text("its external data '", location, "' cannot be read: ", error.message()));
  // canonical() has followed every link: what is compared is where the file really is.
  auto [base_end, rest] = std::mismatch(base.begin(), base.end(), target.begin(), target.end());
  if (base_end != base.end())
    return bad(where, text("its external data '", location, "' leads out of the model's folder"));
  Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(target.string());
  if (!file.ok()) {
    return bad(where, text("its external data '", location, "' ", file.errors().front().message));
  }
  files_[location] = *file;
  return *file;
}

Result<Constant> TensorReader::read_sparse(const onnx::SparseTensorProto& sparse, const std::string& where) {
  Result<Constant> values = read(sparse.values(), where);
  if (!values.ok()) return values.errors();
  Result<Constant> indices = read(sparse.indices(), where);
  if (!indices.ok()) return indices.errors();
  Result<int64_t> count = checked_count(sparse.dims(), where);
  if (!count.ok()) return count.errors();
  const std::vector<int64_t> shape(sparse.dims().begin(), sparse.dims().end());
  const int64_t rank = static_cast<int64_t>(shape.size());
  const int64_t stored = values->count();
  const bool linear = indices->shape().size() == 1;
  if (indices->element() != ElementType::i64 || indices->count() != (linear ? stored : stored * rank))
    return bad(where, "indices and values of the sparse tensor do not fit together");
  if (*count > (int64_t{1} << 31)) return bad(where, text("is too large: ", list_text(shape)));

  const size_t width = static_cast<size_t>(byte_size(values->element()));
  std::vector<std::byte> dense(static_cast<size_t>(*count) * width);
  for (int64_t i = 0; i < stored; ++i) {
    int64_t at = linear ? indices->int_at(i) : 0;
    for (int64_t d = 0; !linear && d < rank; ++d) {
      const int64_t index = indices->int_at(i * rank + d), extent = shape[static_cast<size_t>(d)];
      if (index < 0 || index >= extent) return bad(where, "an index of the sparse tensor is out of range");
      at = at * extent + index;
    }
    if (at < 0 || at >= *count) return bad(where, "an index of the sparse tensor is out of range");
    std::memcpy(dense.data() + static_cast<size_t>(at) * width,
                values->bytes().data() + static_cast<size_t>(i) * width, width);
  }
  return Constant::copy_of(values->element(), shape, dense);
}

}  // namespace mcc::frontend
