#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "codegen/codegen.h"
#include "mcc/mcc.h"
#include "nlohmann/json.hpp"
#include "tools/commands.h"
#include "tools/console.h"
#include "tools/measure/calibrate.h"

namespace mcc::tools {

namespace {

std::vector<std::string> supported_features(const std::string& features) {
  static constexpr std::string_view kNames[] = {
#define MCC_NAME(name) name,
      MCC_CPU_FEATURES(MCC_NAME)
#undef MCC_NAME
  };
  std::vector<std::string> found;
  std::stringstream list(features);
  for (std::string item; std::getline(list, item, ',');)
    if (std::find(std::begin(kNames), std::end(kNames), item.substr(1)) != std::end(kNames))
      found.push_back(item.substr(1));
  return found;
}

int run(bool json) {
  Result<tensor::Target> target = codegen::make_target("cpu");
  if (!target.ok()) return report_errors(target.errors(), json);
  const Calibration peak = calibrate(1000);
  const double noise = noise_between(peak, calibrate(1000));
  const std::vector<std::string> features = supported_features(target->features);
  const bool noisy = noise > 0.05;
  if (json) {
    print_json({{"cpu", target->cpu},
                {"cores", target->cores},
                {"vector_bits", target->vector_bits},
                {"features", features},
                {"l1_bytes", target->l1.bytes},
                {"l2_bytes", target->l2.bytes},
                {"l3_bytes", target->l3.bytes},
                {"fma_peak_gflops", peak.gflops},
                {"noise", noise},
                {"gpu", nullptr}});
    return 0;
  }
  std::puts(text("cpu       ", target->cpu, ", ", target->cores, " cores, vectors of ", target->vector_bits,
                 " bits")
                .c_str());
  std::puts(text("features  ", join(features, " ")).c_str());
  std::puts(text("caches    L1 ", target->l1.bytes >> 10, " KiB, L2 ", target->l2.bytes >> 10, " KiB, L3 ",
                 target->l3.bytes >> 10, " KiB")
                .c_str());
  std::puts(text("FMA peak  ", fixed(peak.gflops, 1), " GFLOP/s on one core").c_str());
  std::puts(text("noise     ", fixed(100 * noise, 1), "%",
                 noisy ? ": something else is running, measurements here are not to be trusted" : "")
                .c_str());
  return 0;
}

}  // namespace

void add_doctor(CLI::App& app, int* exit_code) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command =
      app.add_subcommand("doctor", "Show what this machine has, and how fast and how quiet it is");
  command->add_flag("--json", *json, "Report on stdout as JSON");
  command->callback([json, exit_code] { *exit_code = run(*json); });
}

}  // namespace mcc::tools
