#include <CLI/CLI.hpp>
#include <algorithm>
#include <fstream>
#include <set>

#include "nlohmann/json.hpp"
#include "tools/cmd_log.h"
#include "tools/commands.h"
#include "tools/console.h"
#include "tools/device_info.h"
#include "tools/loaded_model.h"
#include "tools/options.h"
#include "tools/plan_nodes.h"

namespace mcc::tools {

namespace {

using frontend::DeclaredTensor;
using frontend::ModelSummary;
using Json = nlohmann::ordered_json;

struct Arguments {
  std::string path;
  InputArguments inputs;
  bool json = false;
};

bool is_elf(const std::string& path) {
  char magic[4] = {};
  std::ifstream(path, std::ios::binary).read(magic, sizeof magic);
  return std::string_view(magic, sizeof magic) ==
         "\x7f"
         "ELF";
}

std::string declared_text(const DeclaredTensor& tensor) {
  if (tensor.is_optional || tensor.is_sequence) {
    DeclaredTensor held = tensor;
    held.is_optional = held.is_sequence = false;
    return text(tensor.is_optional ? "optional " : "", tensor.is_sequence ? "sequence of " : "",
                declared_text(held));
  }
  if (tensor.element.empty()) return "not a tensor of a known type";
  if (!tensor.has_shape) return tensor.element + "[...]";
  std::vector<std::string> dims;
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    const std::string open = tensor.symbols[i].empty() ? "?" : tensor.symbols[i];
    dims.push_back(tensor.shape[i] < 0 ? open : std::to_string(tensor.shape[i]));
  }
  return tensor.element + list_text(dims);
}

Json declared_json(const std::vector<DeclaredTensor>& tensors) {
  Json list = Json::array();
  for (const DeclaredTensor& tensor : tensors) {
    Json one = {{"name", tensor.name}, {"type", tensor.element}};
    if (tensor.is_sequence) one["sequence"] = true;
    if (tensor.is_optional) one["optional"] = true;
    one["shape"] = tensor.has_shape ? Json(tensor.shape) : Json();
    if (std::any_of(tensor.symbols.begin(), tensor.symbols.end(),
                    [](const std::string& s) { return !s.empty(); }))
      one["symbols"] = tensor.symbols;
    list.push_back(std::move(one));
  }
  return list;
}

void print_summary(const std::string& path, const ModelSummary& model) {
  std::puts(text(printable(path), ": ONNX opset ", model.opset, ", IR version ", model.ir_version, ", ",
                 model.node_count, " nodes, ", bytes_text(static_cast<double>(model.file_bytes)),
                 model.producer.empty() ? "" : ", by ", printable(model.producer))
                .c_str());
  for (const DeclaredTensor& tensor : model.inputs)
    std::puts(text("input   ", printable(tensor.name), "  ", printable(declared_text(tensor))).c_str());
  for (const DeclaredTensor& tensor : model.outputs)
    std::puts(text("output  ", printable(tensor.name), "  ", printable(declared_text(tensor))).c_str());
  std::vector<std::pair<int64_t, std::string>> operators;
  for (const auto& [name, count] : model.operators)
    operators.emplace_back(-count, name);
  std::sort(operators.begin(), operators.end());
  std::vector<std::string> counts;
  for (const auto& [count, name] : operators)
    counts.push_back(text(printable(name), " ", -count));
  std::puts(text("operators  ", join(counts, ", ")).c_str());
}

Json problems_json(const Diagnostics& problems) {
  Json list = Json::array();
  for (const Diagnostic& p : problems)
    list.push_back(
        {{"kind", kind_name(p.kind)}, {"where", p.where}, {"message", p.message}, {"hint", p.hint}});
  return list;
}

int inspect_onnx(const Arguments& arguments) {
  frontend::ImportOptions options;
  if (Status status = parse_import_options(arguments.inputs, options); !status.ok())
    return report_errors(status.errors(), arguments.json);
  Result<ModelSummary> summary = frontend::summarize_onnx(arguments.path);
  if (!summary.ok()) return report_errors(summary.errors(), arguments.json);
  Result<frontend::ImportedModel> model =
      frontend::import_onnx(arguments.path, options, graph::interpreter_evaluator());
  const Diagnostics problems = model.ok() ? Diagnostics{} : model.errors();
  const int code = problems.empty() ? 0 : exit_code_of(problems);
  if (arguments.json) {
    print_json({{"kind", "onnx"},
                {"opset", summary->opset},
                {"ir_version", summary->ir_version},
                {"producer", summary->producer},
                {"nodes", summary->node_count},
                {"file_bytes", summary->file_bytes},
                {"inputs", declared_json(summary->inputs)},
                {"outputs", declared_json(summary->outputs)},
                {"operators", summary->operators},
                {"errors", problems_json(problems)},
                {"exit_code", code}});
    return code;
  }
  print_summary(arguments.path, *summary);
  if (problems.empty()) {
    std::puts("everything in it is supported");
    return 0;
  }
  return report_errors(problems, false);
}

Json specs_json(const std::vector<TensorSpec>& specs) {
  Json list = Json::array();
  for (const TensorSpec& spec : specs)
    list.push_back({{"name", spec.name}, {"type", to_text(spec.element)}, {"shape", spec.shape}});
  return list;
}

std::map<std::string, std::string> metadata_of(const runtime::Model& model) {
  std::map<std::string, std::string> result;
  for (size_t i = 0; i < mcc_model_metadata_count(model.handle()); ++i) {
    const std::string key = mcc_model_metadata_key(model.handle(), i);
    result[key] = model.metadata(key);
  }
  return result;
}

// Where the schedules of the kernels are from, each kernel once, in the order of their first runs.
std::vector<PlanNodeInfo> scheduled_kernels(const runtime::Model& model) {
  std::vector<PlanNodeInfo> kernels;
  std::set<std::string> seen;
  for (PlanNodeInfo& node : nodes_of(model)) {
    if (!node.task.empty() && seen.insert(node.task).second) kernels.push_back(std::move(node));
  }
  return kernels;
}

// "exact", "picked", "nearest", "file" or "default", as mcc compile counts them.
std::string_view source_of(const PlanNodeInfo& kernel) {
  const KernelSchedule& schedule = kernel.schedules.front();
  if (schedule.origin.starts_with("log exact")) return "exact";
  if (schedule.origin.starts_with("log picked")) return "picked";
  if (schedule.origin.starts_with("log nearest")) return "nearest";
  return is_default(schedule) ? "default" : "file";
}

Json schedules_json(const std::vector<PlanNodeInfo>& kernels, const std::map<std::string, std::string>& metadata) {
  Json out = {{"exact", 0}, {"picked", 0}, {"nearest", 0}, {"default", 0}, {"file", 0}};
  Json list = Json::array();
  for (const PlanNodeInfo& kernel : kernels) {
    const std::string source(source_of(kernel));
    out[source] = out[source].get<int>() + 1;
    list.push_back({{"task", kernel.task}, {"name", kernel.name}, {"source", source}, {"from", kernel.schedules.front().origin}});
  }
  auto hash = metadata.find("log.hash");
  out["log_hash"] = hash == metadata.end() ? Json() : Json(hash->second);
  out["kernels"] = std::move(list);
  return out;
}

void print_schedules(const Json& schedules) {
  std::string line = "schedules  ";
  if (!schedules["log_hash"].is_null())
    line += text(schedules["exact"].get<int>(), " exact and ", schedules["nearest"].get<int>(), " nearest from a tuning log, ");
  if (schedules["picked"] != 0) line += text(schedules["picked"].get<int>(), " picked by analysis (not measured), ");
  if (schedules["file"] != 0) line += text(schedules["file"].get<int>(), " from a schedule file, ");
  std::puts(text(line, schedules["default"].get<int>(), " default").c_str());
  for (const Json& kernel : schedules["kernels"]) {
    std::puts(text("  ", printable(kernel["task"].get<std::string>()), "  ", printable(kernel["name"].get<std::string>()), "  ",
                   printable(kernel["from"].get<std::string>()))
                  .c_str());
  }
}

Json device_json(const runtime::Model& model) {
  Json images = Json::array();
  for (const ImageInfo& image : images_of(model))
    images.push_back({{"kind", image.kind}, {"arch", image.arch}, {"kernels", image.kernels}, {"bytes", image.bytes}});
  return {{"images", std::move(images)}, {"launches", launches_json(launches_of(model))}};
}

void print_device(const runtime::Model& model) {
  for (const ImageInfo& image : images_of(model)) {
    std::puts(text("image   ", image.kind, " ", image.arch, ", ", image.kernels, " kernels, ",
                   bytes_text(static_cast<double>(image.bytes)))
                  .c_str());
  }
  for (const LaunchInfo& launch : launches_of(model))
    std::puts(text("launch  ", printable(launch.entry), "  ", launch_text(launch)).c_str());
}

int inspect_library(const Arguments& arguments) {
  Result<runtime::Model> model = open_model(arguments.path);
  if (!model.ok()) return report_errors(model.errors(), arguments.json);
  const mcc_model_sizes sizes = model->sizes();
  const bool is_arena_known = sizes.arena_bytes >= 0;
  const std::map<std::string, std::string> metadata = metadata_of(*model);
  const Json schedules = schedules_json(scheduled_kernels(*model), metadata);
  const bool has_device_code = mcc_model_image_count(model->handle()) > 0;
  if (arguments.json) {
    Json out = {{"kind", "library"},
                {"inputs", specs_json(input_specs(*model))},
                {"outputs", specs_json(output_specs(*model))},
                {"kernels", sizes.kernel_count},
                {"nodes", sizes.node_count},
                {"arena_bytes", is_arena_known ? Json(sizes.arena_bytes) : Json()},
                {"weight_bytes", sizes.weights_bytes},
                {"scratch_bytes_per_thread", sizes.scratch_bytes_per_thread},
                {"metadata", metadata},
                {"schedules", schedules}};
    if (has_device_code) out["device"] = device_json(*model);
    print_json(out);
    return 0;
  }
  std::puts(text(printable(arguments.path), ": ", sizes.kernel_count, " kernels, ", sizes.node_count,
                 " nodes, ", bytes_text(static_cast<double>(sizes.weights_bytes)), " of weights, ",
                 is_arena_known ? bytes_text(static_cast<double>(sizes.arena_bytes)) : "as much as the inputs' shapes take", " of working memory")
                .c_str());
  for (const TensorSpec& spec : input_specs(*model))
    std::puts(text("input   ", printable(spec.name), "  ", type_text(spec)).c_str());
  for (const TensorSpec& spec : output_specs(*model))
    std::puts(text("output  ", printable(spec.name), "  ", type_text(spec)).c_str());
  for (const auto& [key, value] : metadata)
    std::puts(text(printable(key), "  ", printable(value)).c_str());
  if (has_device_code) print_device(*model);
  print_schedules(schedules);
  return 0;
}

int run(const Arguments& arguments) {
  if (is_tuning_log(arguments.path)) return show_log(arguments.path, arguments.json);
  return is_elf(arguments.path) ? inspect_library(arguments) : inspect_onnx(arguments);
}

}  // namespace

void add_inspect(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "inspect", "Show what a model, library or tuning log has, and everything in a model that is unsupported");
  command->add_option("file", arguments->path, "MODEL.onnx, OUT.so or a tuning log")->required();
  add_input_options(*command, arguments->inputs);
  command->add_flag("--json", arguments->json, "Report on stdout as JSON");
  command->callback([arguments, exit_code] { *exit_code = run(*arguments); });
}

}  // namespace mcc::tools
