#include <llvm/ADT/StringMap.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/X86TargetParser.h>

#include <algorithm>
#include <array>
#include <map>
#include <thread>

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "codegen/codegen.h"
#include "codegen/host_gpu.h"
#include "codegen/machine.h"
#include "tensor/instructions.h"

namespace mcc::codegen {

using tensor::Cache;
using tensor::Target;
using tensor::TargetKind;

namespace {

constexpr int64_t KB = 1 << 10, MB = 1 << 20;

// What one core reads of the last cache, of a few cores (a round figure; a Zen 5 read 107), and of a mesh of many (an Intel Xeon with
// Sapphire Rapids' instructions read 29); the others are taken to be alike.
constexpr double kRing = 80, kMesh = 30;

// What the schedules' cost formulas need to know of a CPU; figures are for one core.
struct CpuRow {
  const char* name;  // as LLVM knows it
  int fma_ports;
  int fma_latency;
  double ghz;
  int64_t l1, l2, l3;
  double l3_gb_per_s = kRing;
  bool drops_hints = false;  // seen on a Zen 5; of a Zen 4 by Wang et al., arXiv 2411.02814
};

// The first three stand for every CPU of their level that has no row of its own.
constexpr std::array kCpus = {
    CpuRow{"x86-64-v2", 1, 5, 2.5, 32 * KB, 256 * KB, 2 * MB},
    CpuRow{"x86-64-v3", 2, 4, 3.0, 32 * KB, 512 * KB, 4 * MB},
    CpuRow{"x86-64-v4", 2, 4, 3.0, 32 * KB, MB, 4 * MB},
    CpuRow{"haswell", 2, 5, 3.0, 32 * KB, 256 * KB, 2 * MB},
    CpuRow{"broadwell", 2, 5, 3.0, 32 * KB, 256 * KB, 2 * MB},
    CpuRow{"skylake", 2, 4, 3.5, 32 * KB, 256 * KB, 2 * MB},
    CpuRow{"alderlake", 2, 4, 4.0, 48 * KB, 1280 * KB, 3 * MB},
    CpuRow{"raptorlake", 2, 4, 4.5, 48 * KB, 2 * MB, 3 * MB},
    CpuRow{"meteorlake", 2, 4, 4.0, 48 * KB, 2 * MB, 3 * MB},
    CpuRow{"arrowlake", 2, 4, 4.5, 48 * KB, 3 * MB, 3 * MB},
    CpuRow{"lunarlake", 2, 4, 4.0, 48 * KB, 2560 * KB, 3 * MB},
    CpuRow{"sierraforest", 2, 6, 2.5, 32 * KB, MB, 3 * MB, kMesh},
    CpuRow{"skylake-avx512", 2, 4, 2.7, 32 * KB, MB, 1408 * KB, kMesh},
    CpuRow{"cascadelake", 2, 4, 2.8, 32 * KB, MB, 1408 * KB, kMesh},
    CpuRow{"cooperlake", 2, 4, 2.8, 32 * KB, MB, 1408 * KB, kMesh},
    CpuRow{"icelake-client", 1, 4, 3.5, 48 * KB, 512 * KB, 2 * MB},
    CpuRow{"icelake-server", 2, 4, 2.8, 48 * KB, 1280 * KB, 1536 * KB, kMesh},
    CpuRow{"tigerlake", 1, 4, 4.0, 48 * KB, 1280 * KB, 3 * MB},
    CpuRow{"rocketlake", 1, 4, 4.5, 48 * KB, 512 * KB, 2 * MB},
    CpuRow{"sapphirerapids", 2, 4, 2.8, 48 * KB, 2 * MB, 2 * MB, kMesh},
    CpuRow{"emeraldrapids", 2, 4, 2.8, 48 * KB, 2 * MB, 5 * MB, kMesh},
    CpuRow{"graniterapids", 2, 4, 2.8, 48 * KB, 2 * MB, 4 * MB, kMesh},
    CpuRow{"znver1", 1, 5, 3.0, 32 * KB, 512 * KB, 2 * MB},
    CpuRow{"znver2", 2, 5, 3.3, 32 * KB, 512 * KB, 4 * MB},
    CpuRow{"znver3", 2, 4, 3.5, 32 * KB, 512 * KB, 4 * MB},
    CpuRow{"znver4", 1, 4, 3.7, 32 * KB, MB, 4 * MB, kRing, true},
    CpuRow{"znver5", 2, 4, 4.0, 48 * KB, MB, 4 * MB, kRing, true},
};

const CpuRow* find_cpu(std::string_view name) {
  for (const CpuRow& row : kCpus) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

// Architectures of GPUs that code is made for, ascending. LLVM 19 knows none after these.
constexpr std::array kGpus = {"sm_70", "sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_90", "sm_90a"};
constexpr const char* kDefaultGpu = "sm_80";

// The features that decide which instructions may be used, under LLVM's names, sorted. Others (tuning flags, cache
// hints, virtualisation, ...) are left to the CPU's name.
constexpr std::array kFeatures = {"adx",
                                  "amx-bf16",
                                  "amx-fp16",
                                  "amx-int8",
                                  "amx-tile",
                                  "avx",
                                  "avx2",
                                  "avx512bf16",
                                  "avx512bitalg",
                                  "avx512bw",
                                  "avx512cd",
                                  "avx512dq",
                                  "avx512f",
                                  "avx512fp16",
                                  "avx512ifma",
                                  "avx512vbmi",
                                  "avx512vbmi2",
                                  "avx512vl",
                                  "avx512vnni",
                                  "avx512vp2intersect",
                                  "avx512vpopcntdq",
                                  "avxifma",
                                  "avxneconvert",
                                  "avxvnni",
                                  "avxvnniint8",
                                  "bmi",
                                  "bmi2",
                                  "f16c",
                                  "fma",
                                  "gfni",
                                  "lzcnt",
                                  "movbe",
                                  "popcnt",
                                  "sse3",
                                  "sse4.1",
                                  "sse4.2",
                                  "ssse3"};

// What LLVM's subtarget of this name has.
std::map<std::string, bool> named_features(const std::string& cpu, const std::string& triple) {
  initialize_llvm();
  std::string error;
  const llvm::Target* llvm_target = llvm::TargetRegistry::lookupTarget(triple, error);
  MCC_CHECK(llvm_target, error);
  std::unique_ptr<llvm::MCSubtargetInfo> info(llvm_target->createMCSubtargetInfo(triple, cpu, ""));
  std::map<std::string, bool> features;
  for (const char* name : kFeatures)
    features[name] = info->checkFeatures(text("+", name));
  return features;
}

// Linux gives a process tile registers only when it asks; from then on its threads may use them.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool may = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return may;
}

std::map<std::string, bool> host_features() {
  llvm::StringMap<bool> all = llvm::sys::getHostCPUFeatures();
  std::map<std::string, bool> features;
  for (const char* name : kFeatures)
    features[name] = all.lookup(name) && (!std::string_view(name).starts_with("amx") || may_use_tiles());
  return features;
}

// Present ones as "+x". Absent ones that the CPU's name implies (switched off by a hypervisor, say) as "-x".
std::string feature_text(const std::map<std::string, bool>& has, const std::map<std::string, bool>& implied) {
  std::vector<std::string> items;
  for (const auto& [name, present] : has) {
    if (present) items.push_back("+" + name);
    if (!present && implied.at(name)) items.push_back("-" + name);
  }
  return join(items, ",");
}

// One level of cache by cpuid's leaf 4 (Intel) or 0x8000001d (AMD): bytes, ways, line, threads that share it.
struct HostCache {
  int64_t bytes = 0;
  int ways = 0, line = 0, sharing = 1;
};

HostCache host_cache(int level) {
  for (unsigned leaf : {4u, 0x8000001du}) {
    if (__get_cpuid_max(leaf & 0x80000000u, nullptr) < leaf) continue;
    for (unsigned index = 0; index < 8; ++index) {
      unsigned a = 0, b = 0, c = 0, d = 0;
      __cpuid_count(leaf, index, a, b, c, d);
      unsigned type = a & 31;  // 0: no more, 1: data, 2: instructions, 3: both
      if (type == 0) break;
      if (type == 2 || static_cast<int>((a >> 5) & 7) != level) continue;
      HostCache cache;
      cache.ways = static_cast<int>(b >> 22) + 1;
      cache.line = static_cast<int>(b & 0xfff) + 1;
      int partitions = static_cast<int>((b >> 12) & 0x3ff) + 1;
      cache.bytes = int64_t{cache.ways} * partitions * cache.line * (int64_t{c} + 1);
      cache.sharing = static_cast<int>((a >> 14) & 0xfff) + 1;
      return cache;
    }
  }
  return {};
}

void set_host_caches(Target* target) {
  HostCache l1 = host_cache(1), l2 = host_cache(2), l3 = host_cache(3);
  auto apply = [](const HostCache& from, int64_t bytes, Cache* to) {
    if (from.bytes == 0) return;
    to->bytes = bytes;
    to->ways = from.ways;
    to->line = from.line;
  };
  apply(l1, l1.bytes, &target->l1);
  apply(l2, l2.bytes, &target->l2);
  // A core's fair part of what the socket shares, counting our own cores once.
  apply(l3, std::clamp(l3.bytes / l3.sharing * target->cores, 1 * MB, 32 * MB), &target->l3);
}

// The highest frequency that the CPU states; hypervisors often hide it.
double host_ghz(double otherwise) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_max(0, nullptr) < 0x16) return otherwise;
  __cpuid_count(0x16, 0, a, b, c, d);
  return (b & 0xffff) != 0 ? (b & 0xffff) / 1000.0 : otherwise;
}

void apply_row(const CpuRow& row, Target* target) {
  target->fma_ports = row.fma_ports;
  target->fma_latency = row.fma_latency;
  target->ghz = row.ghz;
  target->l1.bytes = row.l1;
  target->l2.bytes = row.l2;
  target->l3.bytes = row.l3;
  target->l3.gb_per_s = row.l3_gb_per_s;
  target->drops_hints = row.drops_hints;
}

void apply_features(const std::map<std::string, bool>& features, Target* target) {
  bool avx512 =
      features.at("avx512f") && features.at("avx512bw") && features.at("avx512vl") && features.at("avx512dq");
  target->vector_bits = avx512 ? 512 : features.at("avx") ? 256 : 128;
  target->vector_registers = avx512 ? 32 : 16;
  target->has_fma = features.at("fma");
}

// The row of the CPU, or of its level.
const CpuRow& describe(const Target& target) {
  const CpuRow* row = find_cpu(target.cpu);
  return row ? *row : kCpus[target.vector_bits == 512 ? 2 : target.vector_bits == 256 ? 1 : 0];
}

bool is_known_to_llvm(const std::string& cpu) {
  llvm::SmallVector<llvm::StringRef> known;
  llvm::X86::fillValidCPUArchList(known, /*Only64Bit=*/true);
  return std::find(known.begin(), known.end(), llvm::StringRef(cpu)) != known.end();
}

Diagnostic usage_error(const std::string& given, std::string message) {
  std::vector<std::string> names;
  for (const CpuRow& row : kCpus)
    names.push_back(text("cpu:", row.name));
  std::string known =
      "known targets: cpu (this machine), " + join(names, ", ") +
      ", and cpu:NAME with any other of LLVM's names of x86-64 processors; cuda (this machine's GPU, else " +
      kDefaultGpu + "), cuda:" + join(std::vector<std::string>(kGpus.begin(), kGpus.end()), ", cuda:");
  return {ErrorKind::usage, "--target " + given, std::move(message), known};
}

Result<Target> host_target(const std::string& given) {
  Target target;
  target.name = given;
  target.cpu = llvm::sys::getHostCPUName().str();
  std::map<std::string, bool> features = host_features();
  if (!features["sse4.2"]) return usage_error(given, "this machine is older than x86-64-v2");
  // Hypervisors may report a made-up model number; a processor is no older than its tile registers.
  if (features["amx-tile"] && !named_features(target.cpu, target.triple)["amx-tile"])
    target.cpu = "sapphirerapids";
  apply_features(features, &target);
  apply_row(describe(target), &target);
  target.features = feature_text(features, named_features(target.cpu, target.triple));
  target.cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  target.ghz = host_ghz(target.ghz);
  set_host_caches(&target);
  return target;
}

bool is_known_gpu(std::string_view arch) {
  return std::find(kGpus.begin(), kGpus.end(), arch) != kGpus.end();
}

// What suits a GPU of this architecture best: itself, with what it alone has, or the newest known one that is not newer.
std::string known_arch(const tensor::Gpu& gpu) {
  for (const std::string& own : {gpu.arch + "a", gpu.arch})
    if (is_known_gpu(own)) return own;
  std::string best;
  for (const char* arch : kGpus) {
    std::string name = arch;
    if (name.back() != 'a' && tensor::sm_of(name) <= gpu.sm()) best = name;
  }
  return best;
}

Target gpu_target(const std::string& given, const std::string& arch, const tensor::Gpu& gpu) {
  Target target;
  target.kind = TargetKind::cuda;
  target.name = given;
  target.triple = "nvptx64-nvidia-cuda";
  target.cpu = arch;
  target.gpu = gpu;
  target.gpu.arch = arch;
  target.vector_bits = 128;
  target.vector_registers = 64;
  target.ghz = gpu.ghz;
  target.dram_gb_per_s = gpu.gb_per_s;
  return target;
}

Result<Target> cuda_target(const std::string& given) {
  if (given == "cuda") {
    HostGpus host = host_gpus();
    if (host.gpus.empty()) return gpu_target(given, kDefaultGpu, *tensor::find_gpu(kDefaultGpu));
    const tensor::Gpu& gpu = host.gpus.front().gpu;
    std::string arch = known_arch(gpu);
    if (arch.empty())
      return usage_error(given,
                         text("the GPU here (", gpu.name, ", ", gpu.arch, ") is older than ", kGpus[0]));
    return gpu_target(given, arch, gpu);
  }
  const std::string arch = given.substr(given.find(':') + 1);
  if (!is_known_gpu(arch)) return usage_error(given, "unknown GPU architecture");
  const bool is_specific = arch.back() == 'a';
  const tensor::Gpu* gpu = tensor::find_gpu(is_specific ? arch.substr(0, arch.size() - 1) : arch);
  MCC_CHECK(gpu != nullptr, "no figures of ", arch);
  return gpu_target(given, arch, *gpu);
}

}  // namespace

Result<std::vector<Target>> make_targets(const std::string& given) {
  std::vector<Target> targets;
  std::string rest = given;
  while (true) {
    const size_t comma = rest.find(',');
    std::string item = rest.substr(0, comma);
    // "cuda:sm_80,sm_90" is short for naming each.
    if (!targets.empty() && targets.back().kind == TargetKind::cuda && item.starts_with("sm_"))
      item = "cuda:" + item;
    Result<Target> target = make_target(item);
    if (!target.ok()) return target.errors();
    targets.push_back(std::move(*target));
    if (comma == std::string::npos) break;
    rest = rest.substr(comma + 1);
  }
  for (const Target& target : targets) {
    if (targets.size() == 1 || target.kind == TargetKind::cuda) continue;
    return usage_error(given,
                       "a list can only name architectures of GPUs: a library is for one CPU, or for GPUs");
  }
  std::sort(targets.begin(), targets.end(), [](const Target& a, const Target& b) {
    return std::pair(a.gpu.sm(), a.cpu) < std::pair(b.gpu.sm(), b.cpu);
  });
  auto is_same = [](const Target& a, const Target& b) { return a.kind == b.kind && a.cpu == b.cpu; };
  if (targets[0].kind == TargetKind::cuda)
    targets.erase(std::unique(targets.begin(), targets.end(), is_same), targets.end());
  return targets;
}

Result<Target> make_target(const std::string& given) {
  initialize_llvm();
  if (given == "cuda" || given.starts_with("cuda:")) return cuda_target(given);
  if (given == "cpu") return host_target(given);
  if (!given.starts_with("cpu:")) return usage_error(given, "unknown target");
  Target target;
  target.name = given;
  target.cpu = given.substr(4);
  if (!is_known_to_llvm(target.cpu)) return usage_error(given, "unknown processor");
  std::map<std::string, bool> features = named_features(target.cpu, target.triple);
  if (!features["sse4.2"]) return usage_error(given, "the processor is older than x86-64-v2");
  apply_features(features, &target);
  apply_row(describe(target), &target);
  target.features = feature_text(features, features);
  target.cores = 2;
  return target;
}

bool runs_here(const Target& target) {
  if (target.kind == TargetKind::cuda) {
    HostGpus host = host_gpus();
    // Code of a lower architecture runs on a higher one, but for what is made for one alone.
    return !host.gpus.empty() && (target.cpu.back() == 'a' ? host.gpus[0].gpu.sm() == target.gpu.sm()
                                                           : host.gpus[0].gpu.sm() >= target.gpu.sm());
  }
  std::map<std::string, bool> host = host_features();
  return std::all_of(kFeatures.begin(), kFeatures.end(),
                     [&](const char* name) { return !has_feature(target, name) || host[name]; });
}

}  // namespace mcc::codegen
