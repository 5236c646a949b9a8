#include "tools/measure/machine.h"

#include <type_traits>

#include "codegen/codegen.h"
#include "codegen/host_gpu.h"
#include "mcc/mcc.h"
#include "tools/cuda_tools.h"
#include "tools/measure/calibrate.h"
#include "tools/measure/json_reader.h"

namespace mcc::tools {

namespace {

using nlohmann::json;
using tensor::Target;
using tensor::TargetKind;

constexpr size_t kMostTargets = 64;

// Whether a target can be measured here.
Status check_device(const Target& target) {
  if (target.kind != TargetKind::cuda) {
    if (codegen::runs_here(target)) return done();
    return Diagnostic{ErrorKind::environment, "", text("this machine cannot run code for ", target.name), ""};
  }
  const codegen::HostGpus here = codegen::host_gpus();
  if (!here.problem.empty())
    return Diagnostic{ErrorKind::environment, "", text("there is no GPU to measure on: ", here.problem), ""};
  if (here.gpus[0].is_prohibited) {
    return Diagnostic{
        ErrorKind::environment, "",
        text("the compute mode of the GPU here (", here.gpus[0].gpu.name, ") lets no process use it"),
        "nvidia-smi -c DEFAULT changes that"};
  }
  if (codegen::runs_here(target)) return done();
  return Diagnostic{ErrorKind::environment, "",
                    text("the GPU here (", here.gpus[0].gpu.name, ", ", here.gpus[0].gpu.arch,
                         ") cannot run code for ", target.cpu),
                    ""};
}

// ---- As JSON ----

template <class AnyCache, class F>
void each_field_of_cache(AnyCache& cache, const F& f) {
  f("bytes", cache.bytes);
  f("ways", cache.ways);
  f("line", cache.line);
  f("gb_per_s", cache.gb_per_s);
}

template <class AnyGpu, class F>
void each_field_of_gpu(AnyGpu& gpu, const F& f) {
  f("name", gpu.name);
  f("arch", gpu.arch);
  f("gflops", gpu.gflops);
  f("gb_per_s", gpu.gb_per_s);
  f("matrix_fmas", gpu.matrix_fmas);
  f("warpgroup_fmas", gpu.warpgroup_fmas);
  f("multiprocessors", gpu.multiprocessors);
  f("ghz", gpu.ghz);
  f("l2_bytes", gpu.l2_bytes);
  f("shared_per_block", gpu.shared_per_block);
  f("shared_per_block_max", gpu.shared_per_block_max);
  f("shared_per_multiprocessor", gpu.shared_per_multiprocessor);
  f("registers_per_multiprocessor", gpu.registers_per_multiprocessor);
  f("registers_per_thread", gpu.registers_per_thread);
  f("threads_per_block", gpu.threads_per_block);
  f("threads_per_multiprocessor", gpu.threads_per_multiprocessor);
  f("blocks_per_multiprocessor", gpu.blocks_per_multiprocessor);
  f("warp", gpu.warp);
  f("launch_us", gpu.launch_us);
}

// But for what it is made of.
template <class AnyTarget, class F>
void each_field(AnyTarget& target, const F& f) {
  f("name", target.name);
  f("triple", target.triple);
  f("cpu", target.cpu);
  f("features", target.features);
  f("vector_bits", target.vector_bits);
  f("vector_registers", target.vector_registers);
  f("has_fma", target.has_fma);
  f("fma_ports", target.fma_ports);
  f("fma_latency", target.fma_latency);
  f("cores", target.cores);
  f("ghz", target.ghz);
  f("dram_gb_per_s", target.dram_gb_per_s);
  f("fork_us", target.fork_us);
}

json target_json(const Target& target) {
  json out;
  auto write_to = [](json& object) {
    return [&object](const char* key, const auto& value) { object[key] = value; };
  };
  out["is_gpu"] = target.kind == TargetKind::cuda;
  each_field(target, write_to(out));
  each_field_of_cache(target.l1, write_to(out["l1"]));
  each_field_of_cache(target.l2, write_to(out["l2"]));
  each_field_of_cache(target.l3, write_to(out["l3"]));
  if (target.kind == TargetKind::cuda) each_field_of_gpu(target.gpu, write_to(out["gpu"]));
  return out;
}

// Sets fields, all of which have to be there; cost formulas divide by numbers, which hence are above 0 where `is_positive` says so.
class FieldReader {
 public:
  explicit FieldReader(const json& object) : object_(object), reader_(object) {}

  template <class T>
  void operator()(const char* key, T& value) const {
    is_complete_ = is_complete_ && object_.contains(key);
    if constexpr (std::is_same_v<T, std::string>) {
      value = reader_.string(key);
    } else if constexpr (std::is_same_v<T, bool>) {
      value = reader_.flag(key);
    } else if constexpr (std::is_floating_point_v<T>) {
      value = reader_.number(key, 0, 0, 1e15);
      is_positive_ = is_positive_ && value > 0;
    } else {
      value = static_cast<T>(reader_.integer(key, 0, 0, std::is_same_v<T, int> ? 1 << 24 : int64_t{1} << 50));
      is_positive_ = is_positive_ && (value > 0 || std::string_view(key).ends_with("_fmas"));
    }
  }
  bool is_right() const { return is_complete_ && is_positive_ && reader_.problem().empty(); }

 private:
  const json& object_;
  mutable JsonReader reader_;
  mutable bool is_complete_ = true, is_positive_ = true;
};

const json* object_of(const json& parent, const char* key) {
  auto at = parent.find(key);
  return at != parent.end() && at->is_object() ? &*at : nullptr;
}

std::optional<Target> parse_target(const json& document) {
  if (!document.is_object()) return std::nullopt;
  Target target;
  target.kind = JsonReader(document).flag("is_gpu") ? TargetKind::cuda : TargetKind::cpu;
  FieldReader fields(document);
  each_field(target, fields);
  bool is_right = fields.is_right() && target.vector_bits % 128 == 0 && target.vector_bits <= 512;
  for (auto [key, cache] : {std::pair{"l1", &target.l1}, {"l2", &target.l2}, {"l3", &target.l3}}) {
    const json* object = object_of(document, key);
    if (object == nullptr) return std::nullopt;
    FieldReader of_cache(*object);
    each_field_of_cache(*cache, of_cache);
    is_right = is_right && of_cache.is_right();
  }
  if (target.kind == TargetKind::cuda) {
    const json* object = object_of(document, "gpu");
    if (object == nullptr) return std::nullopt;
    FieldReader of_gpu(*object);
    each_field_of_gpu(target.gpu, of_gpu);
    is_right = is_right && of_gpu.is_right();
  }
  if (!is_right) return std::nullopt;
  return target;
}

}  // namespace

Result<Machine> describe_machine(const std::string& target, bool looks_for_library) {
  Result<std::vector<Target>> targets = codegen::make_targets(target);
  if (!targets.ok()) return targets.errors();
  Machine machine;
  machine.version = mcc_runtime_version();
  machine.targets = std::move(*targets);
  for (size_t i = 0; i < machine.targets.size(); ++i)
    if (codegen::runs_here(machine.targets[i])) machine.measured = i;
  const Target& measured = machine.target();
  if (Status status = check_device(measured); !status.ok()) return status.errors();
  if (measured.kind == TargetKind::cuda) {
    const codegen::HostGpu gpu = codegen::host_gpus().gpus[0];
    machine.gpu = gpu.gpu.name;
    machine.is_exclusive = gpu.is_exclusive;
    machine.assembler_problem = find_assembler_for(measured).problem;
    const Result<std::string> version = looks_for_library ? find_cublaslt() : std::string();
    if (version.ok()) machine.cublaslt = *version;
  } else {
    machine.peak_gflops = calibrate(1000).gflops;
  }
  return machine;
}

json to_json(const Machine& machine) {
  json targets = json::array();
  for (const Target& target : machine.targets)
    targets.push_back(target_json(target));
  return {{"version", machine.version},           {"targets", targets},
          {"measured", machine.measured},         {"gpu", machine.gpu},
          {"is_exclusive", machine.is_exclusive}, {"assembler_problem", machine.assembler_problem},
          {"cublaslt", machine.cublaslt},         {"peak_gflops", machine.peak_gflops}};
}

std::optional<Machine> parse_machine(const json& document) {
  if (!document.is_object()) return std::nullopt;
  JsonReader reader(document);
  Machine machine;
  machine.version = reader.string("version");
  machine.gpu = reader.string("gpu");
  machine.is_exclusive = reader.flag("is_exclusive");
  machine.assembler_problem = reader.string("assembler_problem");
  machine.cublaslt = reader.string("cublaslt");
  machine.peak_gflops = reader.number("peak_gflops", 0, 0, 1e9);
  const json targets = document.value("targets", json());
  if (!targets.is_array() || targets.size() > kMostTargets) return std::nullopt;
  for (const json& item : targets) {
    std::optional<Target> target = parse_target(item);
    if (!target) return std::nullopt;
    machine.targets.push_back(std::move(*target));
  }
  machine.measured = static_cast<size_t>(reader.integer("measured", 0, 0, kMostTargets));
  if (!reader.problem().empty() || machine.measured >= machine.targets.size()) return std::nullopt;
  return machine;
}

}  // namespace mcc::tools
