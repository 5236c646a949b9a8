#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>

#include "nlohmann/json.hpp"
#include "tools/commands.h"
#include "tools/console.h"
#include "tools/device_info.h"
#include "tools/loaded_model.h"
#include "tools/plan_nodes.h"

namespace mcc::tools {

namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  std::string library, node;
  bool profile = false, json = false;
  double seconds = 0.5;
  int threads = 0;
};

bool has_source(const PlanNodeInfo& node, const std::string& name) {
  return std::find(node.sources.begin(), node.sources.end(), name) != node.sources.end();
}

// The nodes that an ONNX node went into; else those of a kernel or a task of that name.
std::vector<PlanNodeInfo> find_nodes(const std::vector<PlanNodeInfo>& nodes, const std::string& name) {
  std::vector<PlanNodeInfo> found;
  std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(found),
               [&](const PlanNodeInfo& n) { return has_source(n, name); });
  if (!found.empty()) return found;
  std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(found),
               [&](const PlanNodeInfo& n) { return n.name == name || (!n.task.empty() && n.task == name); });
  return found;
}

Diagnostic unknown_node(const std::vector<PlanNodeInfo>& nodes, const Arguments& arguments) {
  constexpr size_t kShown = 30;
  std::vector<std::string> names;
  for (const PlanNodeInfo& node : nodes) names.insert(names.end(), node.sources.begin(), node.sources.end());
  const size_t count = names.size();
  names.resize(std::min(count, kShown));
  return {ErrorKind::usage, arguments.library,
          text("no kernel comes from a node '", arguments.node,
               "': it is not in the model, or was computed while compiling, or only reshapes"),
          text("nodes with kernels: ", join(names, ", "), count > kShown ? text(" and ", count - kShown, " more") : "")};
}

// Mean times of all nodes on random inputs.
Status profile(const runtime::Model& model, const Arguments& arguments, std::vector<PlanNodeInfo>& nodes) {
  Result<std::vector<graph::Constant>> inputs = make_inputs(model, {}, 0);
  if (!inputs.ok()) return inputs.errors();
  runtime::SessionOptions options;
  options.threads = arguments.threads;
  runtime::Session session(model, options);
  set_inputs(session, *inputs);
  for (int i = 0; i < 3; ++i) session.run();
  session.set_profiling(true);
  session.reset_profile();
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(arguments.seconds);
  do {
    session.run();
  } while (std::chrono::steady_clock::now() < end);
  double total = 0;
  for (PlanNodeInfo& node : nodes) {
    mcc_node_profile times = {};
    times.struct_size = sizeof times;
    if (mcc_session_node_profile(session.handle(), node.index, &times) != MCC_OK || times.executions == 0) continue;
    node.ms = static_cast<double>(times.total_ns) / static_cast<double>(times.executions) * 1e-6;
    total += node.ms;
  }
  for (PlanNodeInfo& node : nodes) node.share = total > 0 ? node.ms / total : 0;
  return done();
}

Json node_json(const PlanNodeInfo& node, const Arguments& arguments) {
  Json out = {{"kernel", node.name}, {"kind", node.kind},      {"index", node.index}, {"onnx_nodes", node.sources},
              {"task", node.task},   {"schedule_from", node.origin}, {"trace", node.trace}, {"flops", node.flops},
              {"bytes", node.bytes}};
  if (arguments.profile) {
    out["ms"] = node.ms;
    out["share"] = node.share;
  }
  return out;
}

void print_node(const PlanNodeInfo& node, size_t count, const std::vector<LaunchInfo>& launches,
                const Arguments& arguments) {
  std::vector<std::string> others;
  for (const std::string& source : node.sources) {
    if (source != arguments.node) others.push_back(printable(source));
  }
  std::puts(text(printable(arguments.node), " is computed by ", node.kind, " ", printable(node.name), ", node ", node.index,
                 " of ", count)
                .c_str());
  std::puts(text("  fused with  ", others.empty() ? "nothing" : join(others, ", ")).c_str());
  if (!node.task.empty()) std::puts(text("  task        ", printable(node.task)).c_str());
  std::puts(text("  work        ", fixed(static_cast<double>(node.flops) * 1e-6, 3), " MFLOP, at least ",
                 bytes_text(static_cast<double>(node.bytes)))
                .c_str());
  if (arguments.profile) {
    std::puts(text("  time        ", fixed(node.ms, 4), " ms, ", fixed(100 * node.share, 1), " % of a run, ",
                   node.ms > 0 ? fixed(static_cast<double>(node.flops) / node.ms * 1e-6, 1) : "-", " GFLOP/s")
                  .c_str());
  }
  if (!node.origin.empty()) std::puts(text("  schedule    ", printable(node.origin)).c_str());
  for (const LaunchInfo& launch : launches) std::puts(text("  launch      ", launch_text(launch)).c_str());
  if (node.trace.empty()) return;
  // As --schedule takes it.
  std::puts(node.task.empty() ? "" : text("\ntask ", printable(node.task)).c_str());
  const size_t end = node.trace.find_last_not_of('\n') + 1;
  std::puts(printable_lines(node.trace.substr(0, end)).c_str());
}

int run(const Arguments& arguments) {
  Result<runtime::Model> model = open_model(arguments.library);
  if (!model.ok()) return report_errors(model.errors(), arguments.json);
  std::vector<PlanNodeInfo> nodes = nodes_of(*model);
  if (find_nodes(nodes, arguments.node).empty()) return report_errors({unknown_node(nodes, arguments)}, arguments.json);
  if (arguments.profile) {
    Status status = profile(*model, arguments, nodes);
    if (!status.ok()) return report_errors(status.errors(), arguments.json);
  }
  const std::vector<PlanNodeInfo> found = find_nodes(nodes, arguments.node);
  if (arguments.json) {
    Json list = Json::array();
    for (const PlanNodeInfo& node : found) {
      list.push_back(node_json(node, arguments));
      const std::vector<LaunchInfo> launches = launches_of(*model, node.index);
      if (!launches.empty()) list.back()["launches"] = launches_json(launches);
    }
    print_json({{"node", arguments.node}, {"target", model->metadata("target")},
                {"log_hash", model->metadata("log.hash")}, {"kernels", list}});
    return 0;
  }
  for (const PlanNodeInfo& node : found) print_node(node, nodes.size(), launches_of(*model, node.index), arguments);
  return 0;
}

}  // namespace

void add_explain(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("explain", "Say which kernel computes a node, with which schedule, and why");
  command->add_option("library", arguments->library, "The compiled model, OUT.so")->required();
  command->add_option("node", arguments->node, "Name of an ONNX node, a kernel or a task")->required();
  command->add_flag("--profile", arguments->profile, "Run the model on random inputs, for the kernel's share of the time");
  command->add_option("--seconds", arguments->seconds, "How long to profile")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--threads", arguments->threads, "0: as many as processors")->check(CLI::Range(0, MCC_MAX_THREADS));
  command->add_flag("--json", arguments->json, "Report on stdout as JSON");
  command->callback([arguments, exit_code] { *exit_code = run(*arguments); });
}

}  // namespace mcc::tools
