#include "tools/model_header.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "support/text.h"

namespace mcc::tools {

namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string identifier_of(const std::string& name) {
  std::string out;
  for (char c : name) out += is_letter(c) || is_digit(c) ? c : '_';
  if (out.empty() || is_digit(out[0])) out.insert(0, "_");
  return out;
}

// No keyword and none of the members has a capital at its start.
std::string class_name(const std::string& identifier) {
  std::string name = is_letter(identifier[0]) && identifier[0] != '_' ? identifier : "Model" + identifier;
  if (name[0] >= 'a') name[0] = static_cast<char>(name[0] - 'a' + 'A');
  return name;
}

// Of types that the runtime's header knows; others are passed as bytes.
std::optional<std::string_view> cpp_type(ElementType element) {
  switch (element) {
    case ElementType::boolean: return "bool";
    case ElementType::i8: return "std::int8_t";
    case ElementType::i16: return "std::int16_t";
    case ElementType::i32: return "std::int32_t";
    case ElementType::i64: return "std::int64_t";
    case ElementType::u8: return "std::uint8_t";
    case ElementType::u16: return "std::uint16_t";
    case ElementType::u32: return "std::uint32_t";
    case ElementType::u64: return "std::uint64_t";
    case ElementType::f32: return "float";
    case ElementType::f64: return "double";
    case ElementType::i2:
    case ElementType::i4:
    case ElementType::u2:
    case ElementType::u4:
    case ElementType::f4e2m1:
    case ElementType::f8e8m0:
    case ElementType::f8e4m3:
    case ElementType::f8e4m3fnuz:
    case ElementType::f8e5m2:
    case ElementType::f8e5m2fnuz:
    case ElementType::bf16:
    case ElementType::f16:
    case ElementType::tf32:
      return std::nullopt;
    case ElementType::string:
      return "mcc_string";
  }
  MCC_UNREACHABLE("unknown element type");
}

// For a comment: a name may have any characters.
std::string quoted(const std::string& name) {
  std::string out = "\"";
  for (char c : name) out += static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\' || c == 0x7f ? '?' : c;
  return out + "\"";
}

struct Port {
  std::string identifier, type_text, dims;
  std::optional<std::string_view> type;
  std::string dtype;
  int64_t count = 0;
};

std::vector<Port> ports_of(const graph::Graph& graph, const std::vector<graph::ValueId>& values, std::vector<std::string>& names) {
  std::vector<Port> ports;
  std::set<std::string> taken;
  for (graph::ValueId id : values) {
    const graph::Value& value = graph.value(id);
    Port port;
    names.push_back(value.name);
    port.identifier = identifier_of(value.name);
    for (int n = 2; !taken.insert(port.identifier).second; ++n) port.identifier = text(identifier_of(value.name), "_", n);
    port.type_text = to_text(value.type);
    std::vector<std::string> dims;
    for (int64_t dim : graph::static_shape(value.type.shape)) dims.push_back(text(dim));
    port.dims = join(dims, ", ");
    port.type = cpp_type(value.type.element);
    port.dtype = text("MCC_DTYPE_", to_text(value.type.element));
    port.count = graph::static_count(value.type.shape);
    ports.push_back(std::move(port));
  }
  return ports;
}

std::string input_text(const Port& port, const std::string& name, size_t index) {
  std::string out = text("  // ", quoted(name), ", ", port.type_text, "; used in place: it must live until the runs with it are over.\n");
  const std::string dims = text("std::vector<std::int64_t>{", port.dims, "}");
  if (port.type) {
    return text(out, "  static constexpr std::size_t ", port.identifier, "_size = ", port.count, ";\n  void set_", port.identifier, "(const ",
                *port.type, "* data) { session_.set_input(", index, ", data, ", dims, "); }\n");
  }
  return text(out, "  void set_", port.identifier, "(const void* data) {\n    session_.set_input(", index,
              ", mcc::runtime::Tensor{const_cast<void*>(data), 0, ", port.dtype, ", ", dims, "});\n  }\n");
}

std::string output_text(const Port& port, const std::string& name, size_t index) {
  std::string out = text("  // ", quoted(name), ", ", port.type_text, "; valid until the next run.\n");
  if (!port.type) return text(out, "  const void* get_", port.identifier, "() const { return session_.output(", index, ").data; }\n");
  return text(out, "  static constexpr std::size_t ", port.identifier, "_size = ", port.count, ";\n  const ", *port.type, "* get_",
              port.identifier, "() const { return session_.output(", index, ").as<", *port.type, ">(); }\n");
}

}  // namespace

std::string model_identifier(const std::string& path) { return identifier_of(std::filesystem::path(path).stem().string()); }

std::string model_symbol(const std::string& identifier) { return "mcc_model_" + identifier; }

std::string model_header(const std::string& identifier, const graph::Graph& graph,
                         const std::map<std::string, std::string>& metadata) {
  std::string out = "// A model, compiled by mcc. Link it with the object file or static library, and with libmcc_runtime.\n//\n";
  for (const auto& [key, value] : metadata) out += text("// ", key, ": ", quoted(value), "\n");
  const std::string guard = text("MCC_MODEL_", identifier, "_H");
  const std::string symbol = model_symbol(identifier), name = class_name(identifier);
  out += text("#ifndef ", guard, "\n#define ", guard, "\n\n#include <cstddef>\n#include <cstdint>\n#include <vector>\n\n#include <mcc/mcc.hpp>\n\n",
              "extern \"C\" const mcc_model_v1 ", symbol, ";\n\nnamespace mcc_models {\n\n",
              "// One model and one session. Not for several threads at once; each may have an object of its own. Failures are\n",
              "// exceptions of type mcc::runtime::Error.\nclass ", name, " {\n public:\n  explicit ", name,
              "(const mcc::runtime::SessionOptions& options = {}) : model_(", symbol, "), session_(model_, options) {}\n");
  std::vector<std::string> inputs, outputs;
  const std::vector<Port> in = ports_of(graph, graph.inputs, inputs), to = ports_of(graph, graph.outputs, outputs);
  std::set<std::string> sizes;
  for (size_t i = 0; i < in.size(); ++i) {
    sizes.insert(in[i].identifier);
    out += "\n" + input_text(in[i], inputs[i], i);
  }
  out += "\n  void run() { session_.run(); }\n";
  for (size_t i = 0; i < to.size(); ++i) {
    Port port = to[i];
    // An input and an output may have the same name but for the characters that a program cannot have.
    while (sizes.contains(port.identifier)) port.identifier += "_out";
    sizes.insert(port.identifier);
    out += "\n" + output_text(port, outputs[i], i);
  }
  out += text("\n  mcc::runtime::Model& model() { return model_; }\n  mcc::runtime::Session& session() { return session_; }\n\n",
              " private:\n  mcc::runtime::Model model_;\n  mcc::runtime::Session session_;\n};\n\n}  // namespace mcc_models\n\n#endif\n");
  return out;
}

}  // namespace mcc::tools
