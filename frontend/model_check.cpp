#include <algorithm>
#include <limits>
#include <set>

#include "frontend/contrib/contrib.h"
#include "frontend/model_prepare.h"
#include "frontend/onnx_tensor.h"
#include "onnx/checker.h"
#include "onnx/defs/schema.h"

namespace mcc::frontend {

namespace {

constexpr int kMlOpset = 5;

std::string without_source_path(std::string message) {
  // "/src/file.cc:12: function: Assertion `condition` failed: what we want"
  if (size_t at = message.find("Assertion `"); at != std::string::npos) {
    if (size_t failed = message.find("` failed: ", at); failed != std::string::npos)
      message.erase(0, failed + 10);
  }
  std::string out;
  for (size_t i = 0; i < message.size();) {
    size_t end = std::min(message.find(' ', i), message.size());
    const std::string word = message.substr(i, end - i);
    const bool is_path = word.find(".cc:") != std::string::npos || word.find(".h:") != std::string::npos ||
                         word.find(".cpp:") != std::string::npos;
    if (!word.empty() && !is_path) out += (out.empty() ? "" : " ") + word;
    i = end + 1;
  }
  return out;
}

// One line: the library appends a context that repeats the node, and breaks lines.
std::string plain_line(std::string message) {
  message = message.substr(0, message.find("==> Context"));
  for (const char* tag : {"[ShapeInferenceError]", "[TypeInferenceError]"}) {
    for (size_t at; (at = message.find(tag)) != std::string::npos;)
      message.erase(at, std::string(tag).size());
  }
  for (char& c : message)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  message = without_source_path(message);
  while (!message.empty() && (message.back() == '.' || message.back() == ' '))
    message.pop_back();
  constexpr size_t kLongest = 300;
  if (message.size() > kLongest) message = message.substr(0, kLongest) + "...";
  return message.empty() ? "ONNX's library gives no reason" : message;
}

bool is_default(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }

class Checker {
 public:
  Checker(onnx::ModelProto& model, const std::string& folder, Diagnostics& problems)
      : model_(model), problems_(problems) {
    context_.set_ir_version(static_cast<int>(model.ir_version()));
    context_.set_model_dir(folder);
    for (const auto& import : model.opset_import()) {
      const std::string domain = is_default(import.domain()) ? "" : import.domain();
      imports_[domain] = static_cast<int>(import.version());
    }
    imports_.emplace(kContribDomain, 1);  // nodes may move there
    context_.set_opset_imports(imports_);
  }

  void check_graph(onnx::GraphProto& graph, const std::set<std::string>* outer, int depth) {
    std::set<std::string> names;
    if (outer) names = *outer;
    for (const auto& input : graph.input()) {
      // Sub-graphs may leave the types of their inputs out.
      if (depth == 0) check_value(input, text("input '", input.name(), "'"));
      names.insert(input.name());
    }
    for (const auto& tensor : graph.initializer()) {
      if (tensor.name().empty()) invalid("initializer", "has no name");
      check_tensor(tensor);
      names.insert(tensor.name());
    }
    for (const auto& tensor : graph.sparse_initializer())
      names.insert(tensor.values().name());

    std::set<std::string> later;
    for (const auto& node : graph.node())
      later.insert(node.output().begin(), node.output().end());
    for (auto& node : *graph.mutable_node())
      check_node(node, names, later, depth);
    for (const auto& output : graph.output()) {
      if (!names.count(output.name()))
        invalid(text("output '", output.name(), "'"), "is not produced by any node");
    }
  }

 private:
  void invalid(std::string where, std::string message) {
    problems_.push_back({ErrorKind::bad_input, std::move(where), std::move(message), ""});
  }

  void check_value(const onnx::ValueInfoProto& value, const std::string& where) {
    if (value.name().empty()) return invalid(where, "has no name");
    if (auto error = onnx_error([&] { onnx::checker::check_value_info(value, context_); }))
      invalid(where, *error);
  }

  void check_tensor(const onnx::TensorProto& tensor) {
    // Where external data may lie is decided when it is read.
    if (tensor.data_location() == onnx::TensorProto::EXTERNAL) return;
    if (auto error = onnx_error([&] { onnx::checker::check_tensor(tensor, context_); }))
      invalid(text("initializer '", tensor.name(), "'"), *error);
  }

  void check_node(onnx::NodeProto& node, std::set<std::string>& names, const std::set<std::string>& later,
                  int depth) {
    const std::string where = node_label(node);
    const size_t before = problems_.size();
    for (const std::string& input : node.input()) {
      if (input.empty() || names.count(input)) continue;
      invalid(where, later.count(input)
                         ? text("uses '", input, "', which cannot be computed before it: nodes form a cycle")
                         : text("input '", input, "' is not produced by any node"));
    }
    const onnx::OpSchema* schema = nullptr;
    const bool known = check_operator(node, where, &schema);
    if (schema) check_schema(node, *schema, where);
    if (known && problems_.size() == before) check_attributes(node, where);
    // A node's outputs are not there yet for its branches, which may have values of the same names.
    for (auto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) check_graph(*attribute.mutable_g(), &names, depth + 1);
      for (auto& graph : *attribute.mutable_graphs())
        check_graph(graph, &names, depth + 1);
    }
    for (const std::string& output : node.output()) {
      if (output.empty()) continue;
      if (!names.insert(output).second) invalid(where, text("output '", output, "' exists already"));
    }
    if (!known || problems_.size() != before) node.set_domain(kRefusedDomain);
  }

  // Whether ONNX defines the operator in the version that the model says, or onnxruntime does, whose operators come to their own
  // domain. Other domains are not for us to judge.
  bool check_operator(onnx::NodeProto& node, const std::string& where, const onnx::OpSchema** schema) {
    const std::string domain = is_default(node.domain()) ? "" : node.domain();
    const onnx::OpSchema* contrib = contrib_schema(domain, node.op_type());
    if (contrib && !(domain.empty() && onnx::OpSchemaRegistry::Schema(node.op_type(), opset(domain), domain))) {
      node.set_domain(kContribDomain);
      *schema = contrib;
      return true;
    }
    if (!domain.empty() && domain != "ai.onnx.ml") return true;
    auto import = imports_.find(domain);
    if (import == imports_.end()) {
      invalid(where,
              text("the model does not import the domain '", domain.empty() ? "ai.onnx" : domain, "'"));
      return false;
    }
    *schema = onnx::OpSchemaRegistry::Schema(node.op_type(), import->second, domain);
    if (*schema) return true;
    const onnx::OpSchema* newest =
        onnx::OpSchemaRegistry::Schema(node.op_type(), domain.empty() ? kOpset : kMlOpset, domain);
    Diagnostic problem{ErrorKind::unsupported, where, "", ""};
    problem.message = text("opset ", import->second, " of ", domain.empty() ? "ai.onnx" : domain,
                           " has no operator ", node.op_type());
    if (newest) problem.hint = text(node.op_type(), " is there from opset ", newest->SinceVersion(), " on");
    problems_.push_back(std::move(problem));
    return false;
  }

  // 0 for a domain that the model does not import.
  int opset(const std::string& domain) const {
    auto import = imports_.find(domain);
    return import == imports_.end() ? 0 : import->second;
  }

  // Numbers of inputs and outputs, and names and kinds of attributes.
  void check_schema(const onnx::NodeProto& node, const onnx::OpSchema& schema, const std::string& where) {
    check_count(where, "input", node.input_size(), schema.min_input(), schema.max_input());
    check_count(where, "output", node.output_size(), schema.min_output(), schema.max_output());
    std::set<std::string> given;
    for (const auto& attribute : node.attribute()) {
      if (!given.insert(attribute.name()).second)
        invalid(where, text("attribute '", attribute.name(), "' is there twice"));
      auto known = schema.attributes().find(attribute.name());
      if (known == schema.attributes().end() && schema.domain() == kContribDomain) {  // newer versions have more
        problems_.push_back({ErrorKind::unsupported, where, text("attribute '", attribute.name(), "' is not supported"), ""});
      } else if (known == schema.attributes().end()) {
        invalid(where, text("attribute '", attribute.name(), "' is not one of ", node.op_type(), "'s"));
      } else if (attribute.type() != known->second.type) {
        invalid(where, text("attribute '", attribute.name(), "' is ", kind_name(attribute.type()),
                            ", expected ", kind_name(known->second.type)));
      }
    }
    for (const auto& [name, attribute] : schema.attributes())
      if (attribute.required && !given.count(name)) invalid(where, text("attribute '", name, "' is missing"));
  }

  void check_count(const std::string& where, const char* what, int count, int least, int most) {
    if (least <= count && count <= most) return;
    const std::string range = least == most                             ? std::to_string(least)
                              : most == std::numeric_limits<int>::max() ? text("at least ", least)
                                                                        : text(least, " to ", most);
    invalid(where, text("has ", count, " ", what, count == 1 ? "" : "s", ", expected ", range));
  }

  static std::string kind_name(int type) {
    if (!onnx::AttributeProto::AttributeType_IsValid(type)) return "of an unknown kind";
    std::string name =
        onnx::AttributeProto::AttributeType_Name(static_cast<onnx::AttributeProto::AttributeType>(type));
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    return name;
  }

  // Sub-graphs are checked by check_graph, node by node: here an empty one stands for each.
  void check_attributes(const onnx::NodeProto& node, const std::string& where) {
    onnx::NodeProto shallow = node;
    for (auto& attribute : *shallow.mutable_attribute()) {
      auto stub = [](onnx::GraphProto* graph) {
        graph->Clear();
        graph->set_name("g");
      };
      if (attribute.has_g()) stub(attribute.mutable_g());
      for (auto& graph : *attribute.mutable_graphs())
        stub(&graph);
      if (attribute.has_t() && attribute.t().data_location() == onnx::TensorProto::EXTERNAL) {
        attribute.mutable_t()->Clear();
        attribute.mutable_t()->set_data_type(onnx::TensorProto::FLOAT);
        attribute.mutable_t()->add_dims(0);
      }
    }
    onnx::checker::LexicalScopeContext scope;
    if (auto error = onnx_error([&] { onnx::checker::check_node(shallow, context_, scope); }))
      invalid(where, *error);
  }

  onnx::ModelProto& model_;
  Diagnostics& problems_;
  onnx::checker::CheckerContext context_;
  std::unordered_map<std::string, int> imports_;
};

}  // namespace

std::optional<std::string> onnx_error(const std::function<void()>& f) {
  try {
    f();
    return std::nullopt;
  } catch (const std::exception& error) {
    return plain_line(error.what());
  }
}

std::optional<int64_t> default_opset(const onnx::ModelProto& model) {
  std::optional<int64_t> version;
  for (const auto& import : model.opset_import())
    if (is_default(import.domain())) version = import.version();
  return version;
}

bool check_versions(const onnx::ModelProto& model, Diagnostics& problems) {
  for (const auto& import : model.opset_import()) {
    const std::string domain = is_default(import.domain()) ? "ai.onnx" : import.domain();
    const int newest = domain == "ai.onnx" ? kOpset : domain == "ai.onnx.ml" ? kMlOpset : INT32_MAX;
    if (import.version() > newest) {
      problems.push_back({ErrorKind::unsupported, "",
                          text("the model uses opset ", import.version(), " of ", domain,
                               "; the newest that is supported is ", newest),
                          ""});
      return false;
    }
    if (import.version() < 1) {
      problems.push_back(
          {ErrorKind::bad_input, "", text("the model imports opset ", import.version(), " of ", domain), ""});
      return false;
    }
  }
  return true;
}

void check_model(onnx::ModelProto& model, const std::string& folder, Diagnostics& problems) {
  Checker checker(model, folder, problems);
  checker.check_graph(*model.mutable_graph(), nullptr, 0);
  for (const char* domain : {kRefusedDomain, kContribDomain}) {
    const auto& imports = model.opset_import();
    if (std::any_of(imports.begin(), imports.end(), [&](const auto& import) { return import.domain() == domain; })) continue;
    model.mutable_opset_import()->Add()->set_domain(domain);
    model.mutable_opset_import()->rbegin()->set_version(1);
  }
}

}  // namespace mcc::frontend
