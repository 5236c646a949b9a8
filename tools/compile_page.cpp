#include "tools/compile_page.h"

#include <filesystem>
#include <set>

#include "nlohmann/json.hpp"
#include "tuner/analyzer_cpu.h"

namespace mcc::tools {

namespace {

using Json = nlohmann::ordered_json;

const char* source_text(ScheduleSource source) {
  switch (source) {
    case ScheduleSource::rules:
      return "default";
    case ScheduleSource::log_exact:
      return "exact";
    case ScheduleSource::log_picked:
      return "picked";
    case ScheduleSource::log_nearest:
      return "nearest";
    case ScheduleSource::file:
      return "file";
  }
  return "";
}

Json extents(const std::array<tensor::Expr, 3>& axes) {
  Json out = Json::array();
  for (const tensor::Expr& extent : axes) {
    int64_t value = 1;
    if (extent.defined() && !tensor::as_int(extent, &value)) {
      out.push_back("?");
    } else {
      out.push_back(value);
    }
  }
  return out;
}

Json launch_json(const codegen::DeviceLaunch& launch, const DeviceVariant& variant) {
  Json out = {{"entry", launch.product ? "cuBLASLt" : launch.entry},
              {"grid", launch.product ? Json::array() : extents(launch.grid)},
              {"block", launch.product ? Json::array() : extents(launch.block)},
              {"shared_bytes", launch.shared_bytes},
              {"figures", Json::array()}};
  for (const codegen::Cubin& cubin : variant.cubins) {
    for (const codegen::EntryFigures& f : cubin.entries) {
      if (f.entry != launch.entry) continue;
      out["figures"].push_back({{"arch", cubin.arch},
                                {"registers", f.registers},
                                {"spilled_bytes", f.spill_stores + f.spill_loads}});
    }
  }
  return out;
}

Json kernel_json(const CompiledModel& m, const Kernel& kernel) {
  const bool is_cpu = m.target.kind == tensor::TargetKind::cpu;
  Json out = {{"id", kernel.id},
              {"name", kernel.name},
              {"nodes", Json::array()},
              {"count", kernel.uses},
              {"flops", kernel.work.flops},
              {"bytes", kernel.work.bytes},
              {"bound_us", is_cpu ? Json(tuner::lower_bound_us(kernel.func, m.target)) : Json(nullptr)},
              {"source", source_text(kernel.source)},
              {"origin", kernel.schedules.front().origin},
              {"trace", kernel.schedules.front().trace},
              {"refused", Json::array()},
              {"launches", Json::array()}};
  for (const KernelSchedule& schedule : kernel.schedules) {
    for (const tuner::RefusedRule& refused : schedule.refused)
      out["refused"].push_back(text(schedule.archs.empty() ? "" : join(schedule.archs, ", ") + ": ", to_text(refused)));
  }
  for (const DeviceVariant& variant : kernel.device) {
    std::set<std::string> seen;
    size_t loop_end = 0;
    Json times = 1;
    for (size_t l = 0; l < variant.code.launches.size(); ++l) {
      const codegen::DeviceLaunch& launch = variant.code.launches[l];
      if (l >= loop_end) times = 1;
      if (launch.loop_launches > 0) {
        loop_end = l + launch.loop_launches;
        times = extents({launch.loop_turns, 1, 1})[0];
      }
      if (!launch.product && !seen.insert(launch.entry).second) continue;
      out["launches"].push_back(launch_json(launch, variant));
      out["launches"].back()["times"] = times;
    }
  }
  return out;
}

}  // namespace

Json compile_page(const CompiledModel& m) {
  Json out = {{"version", MCC_VERSION},
              {"model", std::filesystem::path(m.options.model_path).filename().string()},
              {"target", m.report.target},
              {"weight_bytes", m.report.weight_bytes},
              {"arena_bytes", m.report.arena_bytes},
              {"file_bytes", m.report.file_bytes},
              {"kernels", Json::array()},
              {"steps", Json::array()},
              {"notes", m.report.notes}};
  for (const Kernel& kernel : m.set.kernels)
    out["kernels"].push_back(kernel_json(m, kernel));
  for (size_t i = 0; i < m.groups.size(); ++i) {
    const int kernel = m.set.of_group[i];
    if (kernel < 0) continue;
    const auto k = static_cast<size_t>(kernel);
    out["steps"].push_back({{"name", m.set.kernels[k].name}, {"live_bytes", m.memory.live_bytes[i]}});
    for (std::string& node : graph::origins(m.graph, m.groups[i]))
      out["kernels"][k]["nodes"].push_back(std::move(node));
  }
  return out;
}

}  // namespace mcc::tools
