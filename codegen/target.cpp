// Descriptions of x86-64 machines.
#include <llvm/ADT/StringMap.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/X86TargetParser.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "codegen/codegen.h"
#include "codegen/machine.h"

namespace mcc::codegen {

using tensor::Cache;
using tensor::Target;

namespace {

std::string feature_list(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) {
    if (!list.empty()) list += ',';
    list += "+" + name;
  }
  return list;
}

// Vector length, registers and FMA from the feature list.
void describe_vectors(Target& target) {
  bool avx512 = has_feature(target, "avx512f") && has_feature(target, "avx512vl");
  bool avx = has_feature(target, "avx");
  target.vector_bits = avx512 ? 512 : avx ? 256 : 128;
  target.vector_registers = avx512 ? 32 : 16;
  target.has_fma = has_feature(target, "fma") || avx512;
}

// Kernel's notation of sizes: "48K", "2048K", "32M".
int64_t parse_size(const std::string& text) {
  int64_t value = std::strtoll(text.c_str(), nullptr, 10);
  if (text.find('K') != std::string::npos) return value << 10;
  if (text.find('M') != std::string::npos) return value << 20;
  return value;
}

std::string read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Caches of processor 0. The share of a last-level cache that is offered to this many processors is bounded: on a
// cloud machine others live in it too.
void describe_caches(Target& target) {
  for (int i = 0; i < 8; ++i) {
    std::string folder = text("/sys/devices/system/cpu/cpu0/cache/index", i, "/");
    std::string level = read_line(folder + "level"), type = read_line(folder + "type");
    int64_t size = parse_size(read_line(folder + "size"));
    if (level.empty() || type == "Instruction" || size <= 0) continue;
    Cache& cache = level == "1" ? target.l1 : level == "2" ? target.l2 : target.l3;
    cache.bytes = size;
    int64_t ways = std::strtoll(read_line(folder + "ways_of_associativity").c_str(), nullptr, 10);
    if (ways > 0) cache.ways = static_cast<int>(ways);
  }
  target.l3.bytes = std::min<int64_t>(target.l3.bytes, int64_t{32} << 20);
}

Target host_target() {
  Target target;
  target.name = "cpu";
  target.cpu = llvm::sys::getHostCPUName().str();
  std::vector<std::string> names;
  for (const auto& feature : llvm::sys::getHostCPUFeatures()) {
    if (feature.second) names.push_back(feature.first().str());
  }
  std::sort(names.begin(), names.end());
  target.features = feature_list(names);
  target.cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  describe_vectors(target);
  describe_caches(target);
  return target;
}

Result<Target> named_target(const std::string& name, const std::string& cpu) {
  initialize_llvm();
  llvm::SmallVector<llvm::StringRef> known;
  llvm::X86::fillValidCPUArchList(known, /*Only64Bit=*/true);
  if (std::find(known.begin(), known.end(), llvm::StringRef(cpu)) == known.end()) {
    std::vector<std::string> list;
    for (llvm::StringRef k : known) list.push_back(k.str());
    std::sort(list.begin(), list.end());
    return Diagnostic{ErrorKind::usage, "--target", text("there is no x86-64 processor called \"", cpu, "\""),
                      text("known: ", join(list, ", "))};
  }
  Target target;
  target.name = name;
  target.cpu = cpu;
  std::string error;
  const llvm::Target* llvm_target = llvm::TargetRegistry::lookupTarget(target.triple, error);
  MCC_CHECK(llvm_target, error);
  std::unique_ptr<llvm::MCSubtargetInfo> info(llvm_target->createMCSubtargetInfo(target.triple, cpu, ""));
  std::vector<std::string> names;
  llvm::SmallVector<llvm::StringRef> implied;
  llvm::X86::getFeaturesForCPU(cpu, implied, /*NeedPlus=*/false);
  for (llvm::StringRef feature : implied) {
    if (info->checkFeatures(("+" + feature).str())) names.push_back(feature.str());
  }
  std::sort(names.begin(), names.end());
  target.features = feature_list(names);
  target.cores = 2;
  describe_vectors(target);
  if (target.vector_bits < 512) {
    target.l1 = {32 << 10, 8, 64, 200};
    target.l2 = {512 << 10, 8, 64, 80};
  }
  return target;
}

}  // namespace

Result<Target> make_target(const std::string& name) {
  if (name == "cpu" || name == "cpu:native" || name == "cpu:host") return host_target();
  if (name.rfind("cpu:", 0) == 0) return named_target(name, name.substr(4));
  return Diagnostic{ErrorKind::usage, "--target", text("unknown target \"", name, "\""),
                    "expected cpu (this machine), cpu:x86-64-v2, cpu:x86-64-v3, cpu:x86-64-v4, or cpu:NAME with LLVM's name of a "
                    "processor, such as cpu:znver4"};
}

bool runs_here(const Target& target) {
  Target host = host_target();
  std::string_view list = target.features;
  while (!list.empty()) {
    size_t comma = list.find(',');
    std::string_view item = list.substr(0, comma);
    if (item[0] == '+' && !has_feature(host, item.substr(1))) return false;
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
  }
  return true;
}

}  // namespace mcc::codegen
