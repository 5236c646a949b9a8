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
  std::string library, node, arch;
  std::vector<std::string> sizes;
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
               "': it is not in the model, was computed while compiling, or only reshapes, cuts or joins what stays "
               "where it lies"),
          text("nodes with kernels: ", join(names, ", "), count > kShown ? text(" and ", count - kShown, " more") : "")};
}

// Mean times of all nodes on random inputs.
Status profile(const runtime::Model& model, const Arguments& arguments, std::vector<PlanNodeInfo>& nodes) {
  Result<std::vector<graph::Constant>> inputs = make_inputs(model, {{}, 0, arguments.sizes});
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
    node.flops = times.flops;  // with the sizes of this run
    node.bytes = times.bytes;
    total += node.ms;
  }
  for (PlanNodeInfo& node : nodes) node.share = total > 0 ? node.ms / total : 0;
  return done();
}

// Those of the node that belong to the schedule; the figures are of the GPUs that it is for.
std::vector<LaunchInfo> launches_for(const KernelSchedule& schedule, std::vector<LaunchInfo> launches) {
  if (schedule.launches > 0) {
    const size_t first = std::min(schedule.first_launch, launches.size());
    const size_t end = first + std::min(schedule.launches, launches.size() - first);
    launches = {launches.begin() + static_cast<std::ptrdiff_t>(first), launches.begin() + static_cast<std::ptrdiff_t>(end)};
  }
  launches = without_repeats(std::move(launches));
  if (schedule.archs.empty()) return launches;
  for (LaunchInfo& launch : launches) {
    std::erase_if(launch.figures, [&](const LaunchFigures& f) {
      return std::find(schedule.archs.begin(), schedule.archs.end(), f.arch) == schedule.archs.end();
    });
  }
  return launches;
}

// Leaves of each kernel the schedule for the one GPU that is asked for.
Status choose_arch(const Arguments& arguments, const std::string& target, std::vector<PlanNodeInfo>& nodes) {
  // A library for one target names it there only.
  const bool is_for_it_alone = target.ends_with(text("(", arguments.arch, ")"));
  for (PlanNodeInfo& node : nodes) {
    if (arguments.arch.empty() || node.task.empty()) continue;
    std::erase_if(node.schedules, [&](const KernelSchedule& s) {
      return s.archs.empty() ? !is_for_it_alone : std::find(s.archs.begin(), s.archs.end(), arguments.arch) == s.archs.end();
    });
    if (node.schedules.empty()) {
      return Diagnostic{ErrorKind::usage, arguments.library,
                        text("no schedule is for ", arguments.arch, ": the library is for ", target), ""};
    }
    for (KernelSchedule& s : node.schedules)
      s.archs = {arguments.arch};
  }
  return done();
}

Json schedule_json(const KernelSchedule& schedule, const std::vector<LaunchInfo>& launches) {
  return {{"archs", schedule.archs},
          {"where", schedule.where},
          {"schedule_from", schedule.origin},
          {"chosen", schedule.chosen},
          {"refused", refused_json(schedule.refused)},
          {"trace", schedule.trace},
          {"launches", launches_json(launches_for(schedule, launches))}};
}

Json node_json(const PlanNodeInfo& node, const std::vector<LaunchInfo>& launches, const Arguments& arguments) {
  const KernelSchedule& first = node.schedules.front();
  Json out = {{"kernel", node.name},
              {"kind", node.kind},
              {"index", node.index},
              {"onnx_nodes", node.sources},
              {"task", node.task},
              {"schedule_from", first.origin},
              {"refused", refused_json(first.refused)},
              {"trace", first.trace},
              {"flops", node.flops < 0 ? Json() : Json(node.flops)},
              {"bytes", node.bytes < 0 ? Json() : Json(node.bytes)}};
  if (arguments.profile) {
    out["ms"] = node.ms;
    out["share"] = node.share;
  }
  if (!launches.empty())
    out["launches"] =
        launches_json(arguments.arch.empty() ? without_repeats(launches) : launches_for(first, launches));
  out["schedules"] = Json::array();
  for (const KernelSchedule& schedule : node.schedules)
    out["schedules"].push_back(schedule_json(schedule, launches));
  return out;
}

// A line of what is said of a kernel, or of one of its schedules.
void print_field(const std::string& margin, const char* what, const std::string& value) {
  std::string name = what;
  name.resize(std::max<size_t>(name.size(), 10), ' ');
  std::puts(text(margin, name, "  ", value).c_str());
}

void print_schedule(const KernelSchedule& schedule, const std::vector<LaunchInfo>& launches, const std::string& margin,
                    const std::string& remark) {
  if (!schedule.origin.empty()) print_field(margin, "schedule", printable(schedule.origin) + remark);
  if (!schedule.chosen.empty()) print_field(margin, "chosen", printable(schedule.chosen));
  for (const tuner::RefusedRule& refused : schedule.refused)
    print_field(margin, "refused", printable(to_text(refused)));
  for (const LaunchInfo& launch : launches_for(schedule, launches))
    print_field(margin, "launch", launch_text(launch));
}

// As --schedule takes it.
void print_steps(const PlanNodeInfo& node, const KernelSchedule& schedule, const std::string& remark) {
  if (schedule.trace.empty()) return;
  const char* section = schedule.where.empty() ? "\ntask " : "\n# task ";
  std::puts(node.task.empty() ? "" : text(section, printable(node.task), remark).c_str());
  const size_t end = schedule.trace.find_last_not_of('\n') + 1;
  std::string steps = printable_lines(schedule.trace.substr(0, end));
  // A file has one schedule for all runs.
  if (!schedule.where.empty()) {
    steps.insert(0, "# ");
    for (size_t at = steps.find('\n'); at != std::string::npos; at = steps.find('\n', at + 1))
      steps.insert(at + 1, "# ");
  }
  std::puts(steps.c_str());
}

// alike: nodes with the same kernel, this one and those whose times it has been given.
void print_node(const PlanNodeInfo& node, size_t count, size_t alike, const std::vector<LaunchInfo>& launches,
                const Arguments& arguments) {
  std::vector<std::string> others;
  for (const std::string& source : node.sources) {
    if (source != arguments.node) others.push_back(printable(source));
  }
  const std::string margin = "  ";
  std::puts(text(printable(arguments.node), " is computed by ", node.kind, " ", printable(node.name), ", node ", node.index,
                 " of ", count)
                .c_str());
  if (alike > 1)
    print_field(margin, "repeated", text("the same kernel computes ", alike - 1, " other nodes"));
  print_field(margin, "fused with", others.empty() ? "nothing" : join(others, ", "));
  if (!node.task.empty()) print_field(margin, "task", printable(node.task));
  print_field(margin, "work",
              node.flops < 0 || node.bytes < 0
                  ? std::string("depends on the sizes of open dimensions")
                  : text(fixed(static_cast<double>(node.flops) * 1e-6, 3), " MFLOP, at least ",
                   bytes_text(static_cast<double>(node.bytes))));
  if (arguments.profile) {
    print_field(
        margin, "time",
        text(fixed(node.ms, 4), " ms", alike > 1 ? text(" in all ", alike) : "", ", ",
             fixed(100 * node.share, 1), " % of a run, ",
             node.ms > 0
                 ? fixed(static_cast<double>(node.flops) * static_cast<double>(alike) / node.ms * 1e-6, 1)
                 : "-",
             " GFLOP/s"));
  }
  auto names = [](const KernelSchedule& schedule) {
    return printable(
        text(join(schedule.archs, ", "), schedule.where.empty() ? "" : " where ", schedule.where));
  };
  if (node.schedules.size() == 1) {
    const KernelSchedule& only = node.schedules.front();
    const std::string remark = only.archs.empty() ? "" : text(", for ", names(only), only.archs.size() > 1 ? " alike" : "");
    print_schedule(only, launches, margin, remark);
    print_steps(node, only, "");
    return;
  }
  for (const KernelSchedule& schedule : node.schedules) {
    std::puts(text(margin, "for ", names(schedule)).c_str());
    print_schedule(schedule, launches, margin + margin, "");
  }
  for (const KernelSchedule& schedule : node.schedules)
    print_steps(node, schedule, text("  # for ", names(schedule)));
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
  std::vector<PlanNodeInfo> found = find_nodes(nodes, arguments.node);
  if (Status status = choose_arch(arguments, model->metadata("target"), found); !status.ok())
    return report_errors(status.errors(), arguments.json);
  if (arguments.json) {
    Json list = Json::array();
    for (const PlanNodeInfo& node : found)
      list.push_back(node_json(node, launches_of(*model, node.index), arguments));
    print_json({{"node", arguments.node}, {"target", model->metadata("target")},
                {"log_hash", model->metadata("log.hash")}, {"kernels", list}});
    return 0;
  }
  std::vector<std::pair<PlanNodeInfo, size_t>> shown;
  for (const PlanNodeInfo& node : found) {
    const auto same = std::find_if(shown.begin(), shown.end(), [&](const auto& other) {
      return !node.task.empty() && other.first.task == node.task && other.first.name == node.name;
    });
    if (same == shown.end()) {
      shown.emplace_back(node, 1);
      continue;
    }
    ++same->second;
    same->first.ms += node.ms;
    same->first.share += node.share;
  }
  for (const auto& [node, alike] : shown)
    print_node(node, nodes.size(), alike, launches_of(*model, node.index), arguments);
  return 0;
}

}  // namespace

void add_explain(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("explain", "Say which kernel computes a node, with which schedule, and why");
  command->add_option("library", arguments->library, "The compiled model, OUT.so")->required();
  command->add_option("node", arguments->node, "Name of an ONNX node, a kernel or a task")->required();
  command->add_option("--arch", arguments->arch, "Of a library for several GPUs: the schedules for this one only, sm_90a");
  command->add_flag("--profile", arguments->profile, "Run the model on random inputs, for the kernel's share of the time");
  command->add_option("--dim", arguments->sizes, "NAME=SIZE of an open dimension, for --profile")->allow_extra_args(false);
  command->add_option("--seconds", arguments->seconds, "How long to profile")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_option("--threads", arguments->threads, "0: as many as processors")->check(CLI::Range(0, MCC_MAX_THREADS));
  command->add_flag("--json", arguments->json, "Report on stdout as JSON");
  command->callback([arguments, exit_code] { *exit_code = run(*arguments); });
}

}  // namespace mcc::tools
