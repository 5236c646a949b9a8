#include <set>

#include "graph/op.h"
#include "tensor/text.h"

namespace mcc::graph {
namespace {

constexpr int64_t kInlineElements = 8;  // constants up to this size are printed with their values

std::string constant_text(const Constant& c) {
  std::string type = to_text(c.type());
  if (c.count() > kInlineElements || c.element() == ElementType::string) return type + " constant";
  std::vector<std::string> items;
  for (int64_t i = 0; i < c.count(); ++i) {
    items.push_back(is_float(c.element()) ? text(c.number_at(i)) : text(c.int_at(i)));
  }
  return text(type, " = ", list_text(items));
}

std::string quoted(const std::string& s) {
  std::string out = "\"";
  for (char c : s) {
    if (c == '"' || c == '\\') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string attribute_text(const Attribute& attribute) {
  struct Print {
    std::string operator()(int64_t v) const { return text(v); }
    std::string operator()(double v) const { return text(v); }
    std::string operator()(const std::string& v) const { return quoted(v); }
    std::string operator()(const std::vector<int64_t>& v) const { return list_text(v); }
    std::string operator()(const std::vector<double>& v) const { return list_text(v); }
    std::string operator()(const std::vector<std::string>& v) const {
      std::vector<std::string> items;
      for (const std::string& s : v)
        items.push_back(quoted(s));
      return list_text(items);
    }
    std::string operator()(const Constant& v) const { return constant_text(v); }
    std::string operator()(const std::shared_ptr<const Graph>& v) const { return "graph " + v->name; }
  };
  return std::visit(Print{}, attribute);
}

// A name for every value, each different: the value's own where it can be.
std::vector<std::string> value_names(const Graph& graph) {
  std::vector<std::string> names;
  std::set<std::string> taken;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    std::string name = "%" + graph.values[v].name;
    if (graph.values[v].name.empty() || taken.count(name) != 0) name = text(name, "#", v);
    taken.insert(name);
    names.push_back(name);
  }
  return names;
}

}  // namespace

std::string to_text(const Graph& graph) {
  std::vector<std::string> names = value_names(graph);
  auto name_of = [&](ValueId v) { return v == kNoValue ? std::string("_") : names[static_cast<size_t>(v)]; };
  auto typed = [&](ValueId v) {
    return v == kNoValue ? std::string("_") : text(name_of(v), ": ", to_text(graph.value(v).type));
  };
  auto list = [](const std::vector<ValueId>& ids, const auto& f) {
    std::vector<std::string> items;
    for (ValueId v : ids)
      items.push_back(f(v));
    return join(items, ", ");
  };
  std::string out = text("graph ", graph.name, "(", list(graph.inputs, typed), ") {\n");
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    if (value.constant) out += text("  ", names[v], ": ", constant_text(*value.constant), "\n");
  }
  for (const Node& node : graph.nodes) {
    if (node.dead) continue;
    std::vector<std::string> attributes;
    for (const auto& [name, value] : node.attributes.all()) {
      attributes.push_back(text(name, " = ", attribute_text(value)));
    }
    out += text("  ", list(node.outputs, typed), " = ", node.op ? node.op->name : "?", "(",
                list(node.inputs, name_of), ")");
    if (!attributes.empty()) out += text(" {", join(attributes, ", "), "}");
    out += '\n';
  }
  return out + text("  return ", list(graph.outputs, name_of), "\n}\n");
}

}  // namespace mcc::graph
