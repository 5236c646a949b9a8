#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <optional>
#include <span>

#include "nlohmann/json.hpp"
#include "tools/commands.h"
#include "tools/console.h"
#include "tools/loaded_model.h"
#include "tools/write_file.h"

namespace mcc::tools {

namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

struct Arguments {
  std::string library, trace;
  std::vector<std::string> inputs, sizes;
  uint64_t seed = 0;
  double seconds = 2;
  int warmup = 3;
  int threads = 0;
  bool profile = false, json = false;
  bool device_resident = false;
};

// Inputs and outputs of a model for GPUs in the GPU's memory, for as long as this lives.
class ResidentTensors {
 public:
  ResidentTensors(runtime::Session& session, const runtime::Model& model, std::span<const graph::Constant> inputs)
      : session_(session) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      runtime::Tensor tensor = tensor_of(inputs[i]);
      void* memory = allocate(tensor.size_bytes);
      mcc_error error;
      if (mcc_session_device_copy(session.handle(), memory, tensor.data, tensor.size_bytes, &error) != MCC_OK)
        throw runtime::Error(error);
      tensor.data = memory;
      session.set_input(i, tensor);
    }
    // How large outputs are may depend on the inputs' shapes, or on what they hold: a run tells.
    session.run();
    std::vector<runtime::Tensor> outputs;
    for (size_t i = 0; i < model.output_count(); ++i)
      outputs.push_back(session.output(i));
    for (size_t i = 0; i < outputs.size(); ++i) {
      outputs[i].data = allocate(outputs[i].size_bytes);
      session.set_output(i, outputs[i]);
    }
  }
  ResidentTensors(const ResidentTensors&) = delete;
  ResidentTensors& operator=(const ResidentTensors&) = delete;
  ~ResidentTensors() {
    for (void* memory : memory_) mcc_session_device_free(session_.handle(), memory);
  }

 private:
  void* allocate(size_t bytes) {
    mcc_error error;
    void* memory = nullptr;
    if (mcc_session_device_alloc(session_.handle(), bytes, &memory, &error) != MCC_OK) throw runtime::Error(error);
    memory_.push_back(memory);
    return memory;
  }

  runtime::Session& session_;
  std::vector<void*> memory_;
};

struct Statistics {
  double min = 0, median = 0, p90 = 0, p99 = 0;
  size_t runs = 0;
};

// The value that the share p of the sorted times does not exceed.
double percentile(const std::vector<double>& sorted, double p) {
  const auto rank = static_cast<size_t>(p * static_cast<double>(sorted.size() - 1) + 0.5);
  return sorted[rank];
}

Statistics measure(runtime::Session& session, double seconds) {
  constexpr size_t kLeastRuns = 3;
  std::vector<double> times;
  const Clock::time_point end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  Clock::time_point before = Clock::now();
  while (before < end || times.size() < kLeastRuns) {
    session.run();
    const Clock::time_point after = Clock::now();
    times.push_back(std::chrono::duration<double, std::milli>(after - before).count());
    before = after;
  }
  std::sort(times.begin(), times.end());
  return {times.front(), percentile(times, 0.5), percentile(times, 0.9), percentile(times, 0.99),
          times.size()};
}

struct Row {
  std::string name, kind, nodes;
  double ms = 0, share = 0, gflops = 0, gb_per_s = 0;
};

// Times of a run, in which a node of a loop may run several times, or one of a branch not at all. What loops and branches run is listed
// by itself.
std::vector<Row> profile_rows(const runtime::Session& session, int64_t runs) {
  std::vector<Row> rows;
  double total = 0;
  for (const runtime::NodeProfile& node : session.profile()) {
    if (node.times.executions == 0 || std::string_view(node.kind) == "loop" || std::string_view(node.kind) == "if") continue;
    Row row{node.name, node.kind, join(node.sources, " "), 0, 0, 0, 0};
    const double ns = static_cast<double>(node.times.total_ns) / static_cast<double>(node.times.executions);
    row.ms = static_cast<double>(node.times.total_ns) / static_cast<double>(runs) * 1e-6;
    if (ns > 0 && node.times.flops > 0) row.gflops = static_cast<double>(node.times.flops) / ns;
    if (ns > 0 && node.times.bytes > 0) row.gb_per_s = static_cast<double>(node.times.bytes) / ns;
    total += row.ms;
    rows.push_back(std::move(row));
  }
  for (Row& row : rows)
    row.share = total > 0 ? row.ms / total : 0;
  return rows;
}

std::string shortened(const std::string& s, size_t length) {
  return s.size() <= length ? s : s.substr(0, length - 3) + "...";
}

void print_profile(std::vector<Row> rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.ms > b.ms; });
  std::printf("%9s %6s %9s %8s  %-28s %s\n", "ms", "share", "GFLOP/s", "GB/s", "kernel", "ONNX nodes");
  for (const Row& row : rows) {
    std::printf("%9.4f %5.1f%% %9s %8s  %-28s %s\n", row.ms, 100 * row.share,
                row.gflops > 0 ? fixed(row.gflops, 1).c_str() : "-",
                row.gb_per_s > 0 ? fixed(row.gb_per_s, 1).c_str() : "-",
                shortened(printable(row.name), 28).c_str(), shortened(printable(row.nodes), 80).c_str());
  }
}

Json profile_json(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) {
    list.push_back({{"kernel", row.name},
                    {"kind", row.kind},
                    {"onnx_nodes", row.nodes},
                    {"ms", row.ms},
                    {"share", row.share},
                    {"gflops", row.gflops},
                    {"gb_per_s", row.gb_per_s}});
  }
  return list;
}

// One run with every node's mean time, one after the other, in Chrome's trace format.
Status write_trace(const std::string& path, const std::vector<Row>& rows) {
  Json events = Json::array();
  double at = 0;
  for (const Row& row : rows) {
    events.push_back(
        {{"name", row.name},
         {"ph", "X"},
         {"ts", at * 1e3},
         {"dur", row.ms * 1e3},
         {"pid", 1},
         {"tid", 1},
         {"args", {{"onnx_nodes", row.nodes}, {"gflops", row.gflops}, {"gb_per_s", row.gb_per_s}}}});
    at += row.ms;
  }
  return write_file(path, {Json{{"traceEvents", events}}.dump(1, ' ', false, Json::error_handler_t::replace), "\n"});
}

void print_statistics(const Statistics& s, int threads, const std::string& target) {
  std::printf("min %.4f ms, median %.4f ms, p90 %.4f ms, p99 %.4f ms; %zu runs, %d thread%s, %s\n", s.min,
              s.median, s.p90, s.p99, s.runs, threads, threads == 1 ? "" : "s", target.c_str());
}

int run(const Arguments& arguments) {
  Result<runtime::Model> model = open_model(arguments.library);
  if (!model.ok()) return report_errors(model.errors(), arguments.json);
  Result<std::vector<graph::Constant>> inputs = make_inputs(*model, {arguments.inputs, arguments.seed, arguments.sizes});
  if (!inputs.ok()) return report_errors(inputs.errors(), arguments.json);
  runtime::SessionOptions options;
  options.threads = arguments.threads;
  options.seed = arguments.seed;
  runtime::Session session(*model, options);
  std::optional<ResidentTensors> resident;
  if (arguments.device_resident) {
    resident.emplace(session, *model, *inputs);
  } else {
    set_inputs(session, *inputs);
  }
  for (int i = 0; i < arguments.warmup; ++i)
    session.run();
  const Statistics statistics = measure(session, arguments.seconds);

  // Timing every node costs a little, so it has runs of its own.
  std::vector<Row> rows;
  if (arguments.profile || !arguments.trace.empty()) {
    session.set_profiling(true);
    session.reset_profile();
    const Statistics profiled = measure(session, std::min(arguments.seconds, 1.0));
    rows = profile_rows(session, profiled.runs);
  }
  if (!arguments.trace.empty()) {
    Status status = write_trace(arguments.trace, rows);
    if (!status.ok()) return report_errors(status.errors(), arguments.json);
  }
  const std::string target = model->metadata("target");
  if (arguments.json) {
    Json report = {{"min_ms", statistics.min}, {"median_ms", statistics.median},
                   {"p90_ms", statistics.p90}, {"p99_ms", statistics.p99},
                   {"runs", statistics.runs},  {"threads", session.threads()},
                   {"target", target}};
    if (arguments.device_resident) report["device_resident"] = true;
    if (arguments.profile) report["profile"] = profile_json(rows);
    print_json(report);
    return 0;
  }
  print_statistics(statistics, session.threads(), target);
  if (arguments.profile) print_profile(rows);
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, int* exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand("bench", "Measure the latency of a compiled model");
  command->add_option("library", arguments->library, "The compiled model, OUT.so")->required();
  command->add_option("--seconds", arguments->seconds, "How long to measure")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--warmup", arguments->warmup, "Runs before measuring")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--threads", arguments->threads, "0: as many as processors")
      ->check(CLI::Range(0, MCC_MAX_THREADS));
  command->add_option("--input", arguments->inputs, "NAME=FILE.npy; other inputs are random")
      ->allow_extra_args(false);
  command->add_option("--dim", arguments->sizes, "NAME=SIZE of an open dimension of random inputs")->allow_extra_args(false);
  command
      ->add_option("--random", arguments->seed,
                   "Seed of the random inputs, and of random numbers that the model draws")
      ->capture_default_str();
  command->add_flag("--device-resident", arguments->device_resident,
                    "Of a model for GPUs: inputs and outputs stay in the GPU's memory");
  command->add_flag("--profile", arguments->profile, "Time, GFLOP/s and GB/s of every kernel");
  command->add_option("--trace", arguments->trace, "Write the kernels of a run as a Chrome trace, F.json");
  command->add_flag("--json", arguments->json, "Report on stdout as JSON");
  command->callback([arguments, exit_code] { *exit_code = run(*arguments); });
}

}  // namespace mcc::tools
