#include "tools/model_header.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "support/text.h"
#include "tensor/text.h"

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
std::string printable(const std::string& name) {
  std::string out;
  for (char c : name) out += static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\' || c == 0x7f ? '?' : c;
  return out;
}
std::string quoted(const std::string& name) { return text("\"", printable(name), "\""); }

// A name that is not taken yet, which it is from now on.
std::string unique(std::string name, std::set<std::string>& taken) {
  const std::string base = name;
  for (int n = 2; !taken.insert(name).second; ++n)
    name = text(base, "_", n);
  return name;
}

struct Port {
  std::string name, identifier, type_text, dims;
  std::optional<std::string_view> type;
  std::string dtype;
  int64_t count = 0;  // of elements; of fixed shapes
  graph::Shape shape;
  bool is_of_data = false;  // data decides the shape
};

std::vector<Port> ports_of(const graph::Graph& graph, const std::vector<graph::ValueId>& values) {
  std::vector<Port> ports;
  std::set<std::string> taken;
  for (graph::ValueId id : values) {
    const graph::Value& value = graph.value(id);
    Port port;
    port.name = value.name;
    port.identifier = unique(identifier_of(value.name), taken);
    port.type_text = printable(to_text(value.type));
    port.shape = value.type.shape;
    port.type = cpp_type(value.type.element);
    port.dtype = text("MCC_DTYPE_", to_text(value.type.element));
    port.is_of_data = graph.depends_on_data(port.shape);
    if (graph::is_static(port.shape)) {
      std::vector<std::string> dims;
      for (int64_t dim : graph::static_shape(port.shape))
        dims.push_back(text(dim));
      port.dims = join(dims, ", ");
      port.count = graph::static_count(port.shape);
    }
    ports.push_back(std::move(port));
  }
  return ports;
}

// ---- Fixed shapes ----

std::string input_text(const Port& port, size_t index) {
  std::string out = text("  // ", quoted(port.name), ", ", port.type_text,
                         "; used in place: it must live until the runs with it are over.\n");
  const std::string dims = text("std::vector<std::int64_t>{", port.dims, "}");
  if (port.type) {
    return text(out, "  static constexpr std::size_t ", port.identifier, "_size = ", port.count, ";\n  void set_", port.identifier, "(const ",
                *port.type, "* data) { session_.set_input(", index, ", data, ", dims, "); }\n");
  }
  return text(out, "  void set_", port.identifier, "(const void* data) {\n    session_.set_input(", index,
              ", mcc::runtime::Tensor{const_cast<void*>(data), 0, ", port.dtype, ", ", dims, "});\n  }\n");
}

std::string output_text(const Port& port, size_t index) {
  std::string out = text("  // ", quoted(port.name), ", ", port.type_text, "; valid until the next run.\n");
  if (!port.type) return text(out, "  const void* get_", port.identifier, "() const { return session_.output(", index, ").data; }\n");
  return text(out, "  static constexpr std::size_t ", port.identifier, "_size = ", port.count, ";\n  const ", *port.type, "* get_",
              port.identifier, "() const { return session_.output(", index, ").as<", *port.type, ">(); }\n");
}

// ---- Open shapes ----

// What a member may not be called: words of C++, and macros of its headers and compilers.
bool is_reserved(std::string_view name) {
  static const std::set<std::string_view> words = {
      "alignas",     "alignof",  "and",       "and_eq",    "asm",       "auto",         "bitand",
      "bitor",       "bool",     "break",     "case",      "catch",     "char",         "char8_t",
      "char16_t",    "char32_t", "class",     "co_await",  "co_return", "co_yield",     "compl",
      "concept",     "const",    "consteval", "constexpr", "constinit", "const_cast",   "continue",
      "decltype",    "default",  "delete",    "do",        "double",    "dynamic_cast", "else",
      "enum",        "explicit", "export",    "extern",    "false",     "float",        "for",
      "friend",      "goto",     "if",        "inline",    "int",       "long",         "mutable",
      "namespace",   "new",      "noexcept",  "not",       "not_eq",    "nullptr",      "operator",
      "or",          "or_eq",    "private",   "protected", "public",    "register",     "reinterpret_cast",
      "requires",    "return",   "short",     "signed",    "sizeof",    "static",       "static_assert",
      "static_cast", "struct",   "switch",    "template",  "this",      "thread_local", "throw",
      "true",        "try",      "typedef",   "typeid",    "typename",  "union",        "unsigned",
      "using",       "virtual",  "void",      "volatile",  "wchar_t",   "while",        "xor",
      "xor_eq",      "errno",    "linux",     "unix",      "i386",      "EOF",          "NULL",
      "BUFSIZ",      "INFINITY", "NAN",       "assert",    "stdin",     "stdout",       "stderr"};
  return words.contains(name);
}

// The members of Sizes: of each dimension of the graph, empty where no input has it.
std::vector<std::string> size_members(const graph::Graph& graph, const std::vector<Port>& inputs) {
  std::vector<std::string> members;
  std::set<std::string> taken = {"Sizes"};
  for (const tensor::Var& dim : graph.dims) {
    const bool is_of_inputs = std::ranges::any_of(inputs, [&](const Port& port) {
      return std::ranges::any_of(port.shape, [&](const tensor::Expr& size) { return dim.same_as(size); });
    });
    const std::string name = identifier_of(dim.name());
    members.push_back(is_of_inputs ? unique(is_reserved(name) ? name + "_" : name, taken) : "");
  }
  return members;
}

// Empty where there are none.
std::string sizes_text(const graph::Graph& graph, const std::vector<std::string>& members) {
  std::string lines;
  for (size_t i = 0; i < members.size(); ++i) {
    if (members[i].empty()) continue;
    const graph::DimRange& range = graph.dim_ranges[i];
    const std::string sizes =
        range.has_bound() ? text(range.min, " to ", range.max) : text(range.min, " and more");
    lines +=
        text("    std::int64_t ", members[i], " = -1;  // ", quoted(graph.dims[i].name()), ", ", sizes, "\n");
  }
  if (lines.empty()) return lines;
  return text(
      "  // The sizes of the dimensions that are open; an input looks at those of its own.\n  struct Sizes "
      "{\n    Sizes() {}\n",
      lines, "  };\n\n");
}

// "sizes.N, 3": the dimensions of an input.
std::string dims_by_sizes(const graph::Graph& graph, const graph::Shape& shape,
                          const std::vector<std::string>& members) {
  std::vector<std::string> dims;
  for (const tensor::Expr& size : shape) {
    const auto dim = std::ranges::find_if(graph.dims, [&](const tensor::Var& d) { return d.same_as(size); });
    dims.push_back(dim == graph.dims.end()
                       ? tensor::to_text(size)
                       : "sizes." + members[static_cast<size_t>(dim - graph.dims.begin())]);
  }
  return join(dims, ", ");
}

std::string open_input_text(const graph::Graph& graph, const Port& port, size_t index,
                            const std::vector<std::string>& members) {
  std::string out = text("  // ", quoted(port.name), ", ", port.type_text,
                         "; used in place: it must live until the runs with it are over.\n");
  const std::string_view type = port.type.value_or("void"), set = "  void set_";
  const std::string dtype = port.type ? "" : port.dtype + ", ";
  const std::string shape_parameter = "const mcc::runtime::Shape& shape) { session_.set_input(";
  if (graph::is_static(port.shape)) {
    if (port.type)
      out += text("  static constexpr std::size_t ", port.identifier, "_size = ", port.count, ";\n");
    return text(out, set, port.identifier, "(const ", type, "* data) { session_.set_input(", index,
                ", data, ", dtype, "mcc::runtime::Shape{", port.dims, "}); }\n");
  }
  out += text(set, port.identifier, "(const ", type, "* data, ", shape_parameter, index, ", data, ", dtype,
              "shape); }\n");
  out += text(set, port.identifier, "(const ", type, "* data, const Sizes& sizes) { set_", port.identifier,
              "(data, mcc::runtime::Shape{", dims_by_sizes(graph, port.shape, members), "}); }\n");
  if (port.type != "mcc_string") return out;
  return text(out, set, port.identifier, "(const std::vector<std::string>& strings, ", shape_parameter, index,
              ", strings, shape); }\n");
}

// `taken`: of the class; the names that follow the pattern of another output's or input's get a number.
std::string open_output_text(const Port& port, size_t index, std::set<std::string>& taken) {
  const std::string& id = port.identifier;
  const std::string_view type = port.type.value_or("void");
  std::string out = text("  // ", quoted(port.name), ", ", port.type_text, "; valid until the next run.\n");
  const bool is_fixed = graph::is_static(port.shape);
  if (is_fixed && port.type)
    out += text("  static constexpr std::size_t ", id, "_size = ", port.count, ";\n");
  out += text("  const ", type, "* get_", id, "() const { return session_.output_data",
              port.type ? text("<", *port.type, ">") : "", "(", index, "); }\n");
  const std::string shape = unique(id + "_shape", taken);
  const std::string array = text("std::array<std::int64_t, ", port.shape.size(), ">"),
                    as_array = text(".array<", port.shape.size(), ">()");
  if (is_fixed) {
    out += text("  static constexpr ", array, " ", shape, "() { return {",
                port.shape.empty() ? "" : text("{", port.dims, "}"), "}; }\n");
  } else if (port.is_of_data) {
    out += text("  // Its shape, which data decides: known after a run.\n  ", array, " ", shape,
                "() const { return session_.output_shape(", index, ")", as_array, "; }\n");
  } else {
    out += text("  // Its shape with the inputs that are set now.\n  ", array, " ", shape,
                "() { return session_.next_output_shape(", index, ")", as_array, "; }\n");
  }
  const std::string set = unique("set_" + id, taken);
  const std::string_view unit = port.type ? "elements" : "bytes";
  out += text("  // Memory for it, with room for so many ", unit,
              "; it must live until the runs with it are over. Null: the session's own again.\n  void ", set,
              "(", type, "* data, std::size_t ", unit, ") { session_.set_output_memory(", index, ", data, ",
              unit, port.type ? text(" * sizeof(", type, ")") : "", "); }\n");
  return out;
}

std::string includes_text(bool is_open) {
  std::string out;
  for (std::string_view header : {"array", "cstddef", "cstdint", "string", "vector"}) {
    if (is_open || (header != "array" && header != "string")) out += text("#include <", header, ">\n");
  }
  return out;
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
  const std::vector<Port> in = ports_of(graph, graph.inputs), to = ports_of(graph, graph.outputs);
  const auto is_fixed = [](const Port& port) { return graph::is_static(port.shape); };
  const bool is_open = !std::ranges::all_of(in, is_fixed) || !std::ranges::all_of(to, is_fixed);
  out += text("#ifndef ", guard, "\n#define ", guard, "\n\n", includes_text(is_open),
              "\n#include <mcc/mcc.hpp>\n\n", "extern \"C\" const mcc_model_v1 ", symbol,
              ";\n\nnamespace mcc_models {\n\n",
              "// One model and one session. Not for several threads at once; each may have an object of its "
              "own. Failures are\n",
              "// exceptions of type mcc::runtime::Error.\nclass ", name, " {\n public:\n");
  const std::vector<std::string> members = size_members(graph, in);
  out += sizes_text(graph, members);
  out += text("  explicit ", name, "(const mcc::runtime::SessionOptions& options = {}) : model_(", symbol,
              "), session_(model_, options) {}\n");
  std::set<std::string> sizes, taken;
  for (size_t i = 0; i < in.size(); ++i) {
    sizes.insert(in[i].identifier);
    taken.insert("set_" + in[i].identifier);
    out += "\n" + (is_open ? open_input_text(graph, in[i], i, members) : input_text(in[i], i));
  }
  out += "\n  void run() { session_.run(); }\n";
  std::vector<Port> outputs = to;
  for (Port& port : outputs) {
    // An input and an output may have the same name but for the characters that a program cannot have.
    while (sizes.contains(port.identifier)) port.identifier += "_out";
    sizes.insert(port.identifier);
    taken.insert("get_" + port.identifier);
  }
  for (const std::string& identifier : sizes)
    taken.insert(identifier + "_size");
  for (size_t i = 0; i < outputs.size(); ++i)
    out += "\n" + (is_open ? open_output_text(outputs[i], i, taken) : output_text(outputs[i], i));
  out += text("\n  mcc::runtime::Model& model() { return model_; }\n  mcc::runtime::Session& session() { return session_; }\n\n",
              " private:\n  mcc::runtime::Model model_;\n  mcc::runtime::Session session_;\n};\n\n}  // namespace mcc_models\n\n#endif\n");
  return out;
}

}  // namespace mcc::tools
