#include <CLI/CLI.hpp>

#include "codegen/codegen.h"
#include "codegen/host_gpu.h"
#include "mcc/mcc.h"
#include "nlohmann/json.hpp"
#include "tensor/instructions.h"
#include "tools/commands.h"
#include "tools/console.h"
#include "tools/cuda_tools.h"
#include "tools/measure/calibrate.h"

namespace mcc::tools {

namespace {

// What the target's feature list says of the features that matter: those there ("+"), and those that processors of its name
// have but the hypervisor or the system keeps from programs here ("-").
struct Features {
  std::vector<std::string> present, withheld;
};

Features features_of(const tensor::Target& target) {
  static constexpr std::string_view kNames[] = {
#define MCC_NAME(name) name,
      MCC_CPU_FEATURES(MCC_NAME)
#undef MCC_NAME
  };
  const std::string list = "," + target.features + ",";
  Features features;
  for (std::string_view name : kNames) {
    if (tensor::has_feature(target, name)) features.present.emplace_back(name);
    if (list.find(text(",-", name, ",")) != std::string::npos) features.withheld.emplace_back(name);
  }
  return features;
}

using Json = nlohmann::ordered_json;

// 13000 is CUDA 13.0.
std::string version_text(int version) { return text(version / 1000, ".", version % 1000 / 10); }

// Null where there is none.
Json gpus_json(const codegen::HostGpus& host) {
  if (host.gpus.empty()) return nullptr;
  Json list = Json::array();
  for (const codegen::HostGpu& g : host.gpus) {
    list.push_back({{"name", g.gpu.name},
                    {"arch", g.gpu.arch},
                    {"memory_bytes", g.memory_bytes},
                    {"compute_mode", g.is_prohibited  ? "prohibited"
                                     : g.is_exclusive ? "exclusive"
                                                      : "shared"},
                    {"multiprocessors", g.gpu.multiprocessors},
                    {"ghz", g.gpu.ghz},
                    {"gb_per_s", g.gpu.gb_per_s},
                    {"l2_bytes", g.gpu.l2_bytes},
                    {"shared_per_block_max", g.gpu.shared_per_block_max}});
  }
  return list;
}

void print_gpus(const codegen::HostGpus& host) {
  if (!host.problem.empty()) std::puts(text("GPU       none: ", host.problem).c_str());
  for (const codegen::HostGpu& g : host.gpus) {
    std::puts(text("GPU       ", g.gpu.name, ", ", g.gpu.arch, ", ", g.gpu.multiprocessors,
                   " multiprocessors at ", fixed(g.gpu.ghz, 2), " GHz, ",
                   bytes_text(static_cast<double>(g.memory_bytes)), ", driver for CUDA ",
                   version_text(host.driver_version),
                   g.is_prohibited
                       ? "; its compute mode lets no process use it (nvidia-smi -c DEFAULT changes that)"
                   : g.is_exclusive ? "; its compute mode gives it to one process at a time"
                                    : "")
                  .c_str());
  }
}

int run(bool json) {
  Result<tensor::Target> target = codegen::make_target("cpu");
  if (!target.ok()) return report_errors(target.errors(), json);
  const Calibration peak = calibrate(1000);
  const double noise = noise_between(peak, calibrate(1000));
  const Features features = features_of(*target);
  const bool noisy = noise > 0.05;
  const codegen::HostGpus gpus = codegen::host_gpus();
  // With a GPU, one that suits it; else any.
  SuitableAssembler assembler{nullptr, ""};
  const Result<tensor::Target> gpu_here = codegen::make_target("cuda");
  if (!gpus.gpus.empty() && gpu_here.ok()) assembler = find_assembler_for(*gpu_here);
  if (assembler.problem.empty() && assembler.assembler == nullptr) assembler.assembler = find_assembler();
  const Result<std::string> cublaslt = find_cublaslt();
  if (json) {
    print_json({{"cpu", target->cpu},
                {"cores", target->cores},
                {"vector_bits", target->vector_bits},
                {"features", features.present},
                {"features_withheld", features.withheld},
                {"l1_bytes", target->l1.bytes},
                {"l2_bytes", target->l2.bytes},
                {"l3_bytes", target->l3.bytes},
                {"fma_peak_gflops", peak.gflops},
                {"noise", noise},
                {"gpu", gpus_json(gpus)},
                {"gpu_problem", gpus.problem.empty() ? Json() : Json(gpus.problem)},
                {"cuda_driver", gpus.driver_version == 0 ? Json() : Json(version_text(gpus.driver_version))},
                {"cuda_assembler", assembler.assembler ? Json(assembler.assembler->name()) : Json()},
                {"cuda_assembler_problem", assembler.problem.empty() ? Json() : Json(assembler.problem)},
                {"cublaslt", cublaslt.ok() ? Json(*cublaslt) : Json()}});
    return 0;
  }
  std::puts(text("cpu       ", target->cpu, ", ", target->cores, " cores, vectors of ", target->vector_bits,
                 " bits")
                .c_str());
  std::puts(text("features  ", join(features.present, " ")).c_str());
  if (!features.withheld.empty())
    std::puts(text("withheld  ", join(features.withheld, " "), ": a ", target->cpu,
                   " has them, but the hypervisor or the system here does not give them to programs")
                  .c_str());
  std::puts(text("caches    L1 ", target->l1.bytes >> 10, " KiB, L2 ", target->l2.bytes >> 10, " KiB, L3 ",
                 target->l3.bytes >> 10, " KiB")
                .c_str());
  std::puts(text("FMA peak  ", fixed(peak.gflops, 1), " GFLOP/s on one core").c_str());
  std::puts(text("noise     ", fixed(100 * noise, 1), "%",
                 noisy ? ": something else is running, measurements here are not to be trusted" : "")
                .c_str());
  print_gpus(gpus);
  std::puts(text("CUDA      ", assembler.assembler ? "machine code by " + assembler.assembler->name()
                               : !assembler.problem.empty()
                                   ? printable_lines(assembler.problem)
                                   : "no assembler (nvJitLink or ptxas): libraries for GPUs hold PTX alone")
                .c_str());
  std::puts(text("cuBLASLt  ",
                 cublaslt.ok() ? *cublaslt + ": mcc tune --target cuda measures it beside what it generates"
                               : "none: libcublasLt.so.13, .12 and .11 cannot be loaded, or lack something")
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
