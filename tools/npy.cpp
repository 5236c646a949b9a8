#include "tools/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "tools/write_file.h"

namespace mcc::tools {

namespace {

using graph::Constant;

struct TypeRow {
  std::string_view code;  // without the byte order
  ElementType element;
};

constexpr TypeRow kTypes[] = {
    {"b1", ElementType::boolean}, {"i1", ElementType::i8},  {"i2", ElementType::i16},
    {"i4", ElementType::i32},     {"i8", ElementType::i64}, {"u1", ElementType::u8},
    {"u2", ElementType::u16},     {"u4", ElementType::u32}, {"u8", ElementType::u64},
    {"f2", ElementType::f16},     {"f4", ElementType::f32}, {"f8", ElementType::f64},
};

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kMaxRank = 32;

struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

// Reads the header's Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (1, 3), }.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view source) : rest_(source) {}

  std::optional<Header> parse() {
    Header header;
    bool descr = false, order = false, shape = false;
    if (!take("{")) return std::nullopt;
    while (!take("}")) {
      std::optional<std::string> key = parse_string();
      if (!key || !take(":")) return std::nullopt;
      if (*key == "descr") {
        std::optional<std::string> value = parse_string();
        if (!value) return std::nullopt;
        header.descr = *value;
        descr = true;
      } else if (*key == "fortran_order") {
        header.fortran_order = take("True");
        if (!header.fortran_order && !take("False")) return std::nullopt;
        order = true;
      } else if (*key == "shape") {
        if (!parse_shape(header.shape)) return std::nullopt;
        shape = true;
      } else {
        return std::nullopt;
      }
      take(",");
    }
    skip_space();
    if (!rest_.empty() || !descr || !order || !shape) return std::nullopt;
    return header;
  }

 private:
  void skip_space() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\n' || rest_[0] == '\t'))
      rest_.remove_prefix(1);
  }

  bool take(std::string_view token) {
    skip_space();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  std::optional<std::string> parse_string() {
    skip_space();
    if (rest_.empty() || (rest_[0] != '\'' && rest_[0] != '"')) return std::nullopt;
    const size_t end = rest_.find(rest_[0], 1);
    if (end == std::string_view::npos) return std::nullopt;
    std::string value(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return value;
  }

  bool parse_shape(std::vector<int64_t>& shape) {
    if (!take("(")) return false;
    while (!take(")")) {
      skip_space();
      int64_t dim = 0;
      auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), dim);
      if (error != std::errc() || dim < 0 || shape.size() == kMaxRank) return false;
      rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
      shape.push_back(dim);
      take("L");
      if (!take(",")) {
        if (!take(")")) return false;
        break;
      }
    }
    return true;
  }

  std::string_view rest_;
};

std::optional<int64_t> checked_bytes(const std::vector<int64_t>& shape, int64_t width) {
  int64_t bytes = width;
  for (int64_t dim : shape)
    if (__builtin_mul_overflow(bytes, dim, &bytes)) return std::nullopt;
  return bytes;
}

// Column-major to row-major.
std::vector<std::byte> reorder(const std::byte* from, const std::vector<int64_t>& shape, size_t width,
                               size_t bytes) {
  std::vector<std::byte> out(bytes);
  std::vector<int64_t> index(shape.size(), 0);
  for (size_t at = 0; at < bytes; at += width) {
    size_t source = 0, stride = width;
    for (size_t d = 0; d < shape.size(); ++d) {
      source += static_cast<size_t>(index[d]) * stride;
      stride *= static_cast<size_t>(shape[d]);
    }
    std::memcpy(out.data() + at, from + source, width);
    for (size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
  return out;
}

// NumPy's strings have one width: characters of UCS-4, or bytes, filled up with zeros.
struct StringType {
  bool is_bytes = false;
  int64_t width = 0;  // in characters
};

std::optional<StringType> string_type(const std::string& descr) {
  if (descr.size() < 3 || (descr.substr(0, 2) != "<U" && descr.substr(0, 2) != "|S")) return std::nullopt;
  StringType type{descr[1] == 'S', 0};
  const auto [end, error] = std::from_chars(descr.data() + 2, descr.data() + descr.size(), type.width);
  if (error != std::errc() || end != descr.data() + descr.size() || type.width < 0) return std::nullopt;
  return type;
}

void append_utf8(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
    return;
  }
  const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  out += static_cast<char>((0xf00 >> (more + 1) & 0xff) | c >> 6 * more);
  for (int i = more; i-- > 0;)
    out += static_cast<char>(0x80 | (c >> 6 * i & 0x3f));
}

// Nothing where there is a character that Unicode does not have.
std::optional<std::string> read_string(const char* at, const StringType& type) {
  const auto width = static_cast<size_t>(type.width);
  std::string out;
  if (type.is_bytes) {
    out.assign(at, width);
    out.resize(out.find_last_not_of('\0') + 1);
    return out;
  }
  std::vector<uint32_t> characters(width);
  std::memcpy(characters.data(), at, width * sizeof(uint32_t));
  while (!characters.empty() && characters.back() == 0)
    characters.pop_back();
  for (uint32_t c : characters) {
    if (c > 0x10ffff) return std::nullopt;
    append_utf8(out, c);
  }
  return out;
}

// What is no UTF-8 becomes U+FFFD, byte by byte.
std::vector<uint32_t> to_characters(const std::string& text) {
  std::vector<uint32_t> out;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80                   ? 1
                          : lead >= 0xf0 && lead < 0xf5 ? 4
                          : lead >= 0xe0 && lead < 0xf0 ? 3
                          : lead >= 0xc2 && lead < 0xe0 ? 2
                                                        : 0;
    uint32_t c = length <= 1 ? lead : lead & (0x7fu >> length);
    bool is_good = length > 0 && i + length <= text.size();
    for (size_t k = 1; is_good && k < length; ++k) {
      const auto byte = static_cast<unsigned char>(text[i + k]);
      is_good = (byte & 0xc0) == 0x80;
      c = c << 6 | (byte & 0x3f);
    }
    out.push_back(is_good ? c : 0xfffd);
    i += is_good ? length : 1;
  }
  return out;
}

Diagnostic bad(const std::string& path, std::string message) {
  return {ErrorKind::bad_input, path, std::move(message), ""};
}

Result<std::string> read_file(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(status)) return bad(path, "cannot be read: it is a folder");
  // Some have no end.
  if (std::filesystem::is_character_file(status)) return bad(path, "cannot be read: it is a device");
  std::ifstream in(path, std::ios::binary);
  if (!in) return bad(path, "cannot be opened");
  std::string data((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (in.bad()) return bad(path, "cannot be read");
  return data;
}

std::string numpy_code(ElementType element) {
  for (const TypeRow& row : kTypes)
    if (row.element == element) return text(byte_size(element) == 1 ? "|" : "<", row.code);
  MCC_UNREACHABLE("no NumPy type for ", to_text(element));
}

// The value in a type that NumPy has.
Constant in_numpy_type(const Constant& value) {
  switch (value.element()) {
    case ElementType::bf16:
    case ElementType::tf32:
    case ElementType::f4e2m1:
    case ElementType::f8e8m0:
    case ElementType::f8e4m3:
    case ElementType::f8e4m3fnuz:
    case ElementType::f8e5m2:
    case ElementType::f8e5m2fnuz: {
      std::vector<float> wide(static_cast<size_t>(value.count()));
      for (size_t i = 0; i < wide.size(); ++i)
        wide[i] = static_cast<float>(value.number_at(static_cast<int64_t>(i)));
      return Constant::of(ElementType::f32, value.shape(), wide);
    }
    case ElementType::i2:
    case ElementType::i4:
      return Constant::copy_of(ElementType::i8, value.shape(), value.bytes());
    case ElementType::u2:
    case ElementType::u4:
      return Constant::copy_of(ElementType::u8, value.shape(), value.bytes());
    case ElementType::boolean:
    case ElementType::i8:
    case ElementType::i16:
    case ElementType::i32:
    case ElementType::i64:
    case ElementType::u8:
    case ElementType::u16:
    case ElementType::u32:
    case ElementType::u64:
    case ElementType::f16:
    case ElementType::f32:
    case ElementType::f64:
    case ElementType::string:
      return value;
  }
  MCC_UNREACHABLE("no NumPy type for ", to_text(value.element()));
}

Result<Constant> read_strings(const std::string& path, const Header& header, const StringType& type,
                              std::string_view content) {
  const auto width = static_cast<size_t>(type.width) * (type.is_bytes ? 1 : sizeof(uint32_t));
  int64_t count = 1;
  bool fits = true;
  for (int64_t dim : header.shape)
    fits &= !__builtin_mul_overflow(count, dim, &count);
  // Strings of no width take no bytes.
  constexpr int64_t kMost = int64_t{1} << 32;
  if (!fits || count > kMost || static_cast<uint64_t>(count) * width != content.size()) {
    return bad(path, text("has ", content.size(), " bytes of data, which is not what shape ",
                          list_text(header.shape), " of '", header.descr, "' takes"));
  }
  if (header.fortran_order && header.shape.size() > 1)
    return bad(path, "strings in Fortran order are not supported");
  std::vector<std::string> strings;
  for (int64_t i = 0; i < count; ++i) {
    std::optional<std::string> string = read_string(content.data() + static_cast<size_t>(i) * width, type);
    if (!string) return bad(path, text("string ", i, " has a character that Unicode does not have"));
    strings.push_back(std::move(*string));
  }
  return Constant::strings(header.shape, std::move(strings));
}

Status write_numpy(const std::string& path, const std::string& descr, const std::vector<int64_t>& dims,
                   std::string_view content) {
  std::string shape;
  for (int64_t dim : dims)
    shape += text(dim, ", ");
  if (dims.size() > 1) shape.resize(shape.size() - 2);
  if (dims.size() == 1) shape.resize(shape.size() - 1);
  std::string header = text("{'descr': '", descr, "', 'fortran_order': False, 'shape': (", shape, "), }");
  // The data starts at a multiple of 64 bytes.
  const size_t padded = (10 + header.size() + 1 + 63) / 64 * 64;
  header.append(padded - 10 - header.size() - 1, ' ');
  header += '\n';

  const char version[] = {'\1', '\0', static_cast<char>(header.size() & 255),
                          static_cast<char>(header.size() >> 8)};
  return write_file(path, {kMagic, std::string_view(version, sizeof version), header, content});
}

// As wide as the longest of them.
Status write_strings(const std::string& path, const Constant& value) {
  std::vector<std::vector<uint32_t>> strings;
  size_t width = 1;
  for (const std::string& string : value.to_strings()) {
    strings.push_back(to_characters(string));
    width = std::max(width, strings.back().size());
  }
  std::vector<uint32_t> characters;
  for (std::vector<uint32_t>& string : strings) {
    string.resize(width);
    characters.insert(characters.end(), string.begin(), string.end());
  }
  return write_numpy(
      path, text("<U", width), value.shape(),
      {reinterpret_cast<const char*>(characters.data()), characters.size() * sizeof(uint32_t)});
}

}  // namespace

Result<Constant> read_npy(const std::string& path) {
  Result<std::string> file = read_file(path);
  if (!file.ok()) return file.errors();
  const std::string& data = *file;
  if (!data.starts_with(kMagic) || data.size() < 10) return bad(path, "not a .npy file");
  const int version = static_cast<unsigned char>(data[6]);
  if (version < 1 || version > 3)
    return bad(path, text("version ", version, " of the .npy format is not known"));
  const size_t length_bytes = version == 1 ? 2 : 4;
  size_t length = 0;
  if (data.size() < 8 + length_bytes) return bad(path, "the file ends within its header");
  for (size_t i = length_bytes; i-- > 0;)
    length = length << 8 | static_cast<unsigned char>(data[8 + i]);
  const size_t start = 8 + length_bytes;
  if (length > data.size() - start) return bad(path, "the file ends within its header");
  std::optional<Header> header = HeaderParser(std::string_view(data).substr(start, length)).parse();
  if (!header) return bad(path, "the header is malformed");

  const std::string& descr = header->descr;
  if (const std::optional<StringType> strings = string_type(descr))
    return read_strings(path, *header, *strings, std::string_view(data).substr(start + length));
  const TypeRow* type = nullptr;
  for (const TypeRow& row : kTypes)
    if (descr.size() == 3 && descr.substr(1) == row.code) type = &row;
  if (!type) return bad(path, text("element type '", descr, "' is not supported"));
  const auto width = static_cast<size_t>(byte_size(type->element));
  if (descr[0] == '>' && width > 1)
    return bad(path, text("big-endian data ('", descr, "') is not supported"));
  std::optional<int64_t> bytes = checked_bytes(header->shape, static_cast<int64_t>(width));
  const size_t have = data.size() - start - length;
  if (!bytes || static_cast<uint64_t>(*bytes) != have) {
    return bad(path, text("has ", have, " bytes of data, which is not what shape ", list_text(header->shape),
                          " of '", descr, "' takes"));
  }
  const auto* content = reinterpret_cast<const std::byte*>(data.data()) + start + length;
  if (header->fortran_order && header->shape.size() > 1 && have > 0)
    return Constant::copy_of(type->element, header->shape, reorder(content, header->shape, width, have));
  return Constant::copy_of(type->element, header->shape, {content, have});
}

Status write_npy(const std::string& path, const Constant& value) {
  if (value.element() == ElementType::string) return write_strings(path, value);
  const Constant stored = in_numpy_type(value);
  return write_numpy(path, numpy_code(stored.element()), stored.shape(),
                     {reinterpret_cast<const char*>(stored.bytes().data()), stored.bytes().size()});
}

Constant from_numpy_type(const Constant& value, ElementType element) {
  const bool narrow_float = is_float(element) && bit_width(element) <= 16 && element != ElementType::f16;
  if (narrow_float && value.element() == ElementType::f32) {
    std::vector<std::byte> bytes;
    for (int64_t i = 0; i < value.count(); ++i) {
      const Constant one = Constant::scalar(element, value.number_at(i));
      bytes.insert(bytes.end(), one.bytes().begin(), one.bytes().end());
    }
    return Constant::copy_of(element, value.shape(), bytes);
  }
  const bool is_part_of_byte = is_int(element) && bit_width(element) < 8 &&
                               value.element() == (is_signed_int(element) ? ElementType::i8 : ElementType::u8);
  return is_part_of_byte ? Constant::copy_of(element, value.shape(), value.bytes()) : value;
}

}  // namespace mcc::tools
