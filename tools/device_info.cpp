#include "tools/device_info.h"

#include <algorithm>
#include <map>
#include <set>

#include "support/text.h"
#include "tools/console.h"

namespace mcc::tools {

namespace {

LaunchInfo launch_of(const mcc_model* model, size_t node, size_t launch) {
  mcc_launch_info info = {};
  info.struct_size = sizeof info;
  mcc_model_node_launch(model, node, launch, &info);
  LaunchInfo out;
  out.entry = info.entry;
  std::copy(std::begin(info.grid), std::end(info.grid), out.grid);
  std::copy(std::begin(info.block), std::end(info.block), out.block);
  out.shared_bytes = info.shared_bytes;
  out.variant = info.variant;
  out.times = info.times;
  if (info.library != nullptr) out.library = info.library;
  std::copy(std::begin(info.product), std::end(info.product), out.product);
  for (uint32_t i = 0; i < info.figures_count; ++i) {
    mcc_launch_figures f = {};
    f.struct_size = sizeof f;
    mcc_model_node_figures(model, node, launch, i, &f);
    out.figures.push_back(
        {f.arch, f.registers, f.shared_bytes, f.stack_bytes, f.spill_stores, f.spill_loads});
  }
  return out;
}

// "?" for what the shapes of a run decide.
std::string extents_text(const uint32_t* extents) {
  std::vector<std::string> out;
  for (size_t i = 0; i < 3; ++i)
    out.push_back(extents[i] == MCC_BLOCKS_OF_RUN ? "?" : text(extents[i]));
  return join(out, "x");
}

nlohmann::ordered_json grid_json(const uint32_t* grid) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (size_t i = 0; i < 3; ++i) {
    if (grid[i] == MCC_BLOCKS_OF_RUN) {
      out.push_back("?");
    } else {
      out.push_back(grid[i]);
    }
  }
  return out;
}

}  // namespace

std::vector<ImageInfo> images_of(const runtime::Model& model) {
  std::vector<ImageInfo> images;
  for (size_t i = 0; i < mcc_model_image_count(model.handle()); ++i) {
    mcc_image_info info = {};
    info.struct_size = sizeof info;
    mcc_model_image(model.handle(), i, &info);
    images.push_back({info.kind, info.arch, info.kernels, info.bytes});
  }
  return images;
}

std::vector<LaunchInfo> launches_of(const runtime::Model& model) {
  std::vector<LaunchInfo> launches;
  std::set<std::string> seen;  // the kernels of nodes that share one
  for (size_t node = 0; node < model.sizes().node_count; ++node)
    for (LaunchInfo& launch : without_repeats(launches_of(model, node)))
      if (seen.insert(launch.entry).second) launches.push_back(std::move(launch));
  return launches;
}

std::vector<LaunchInfo> launches_of(const runtime::Model& model, size_t node) {
  std::vector<LaunchInfo> launches;
  mcc_node_info info = {};
  info.struct_size = sizeof info;
  if (mcc_model_node(model.handle(), node, &info) != MCC_OK) return launches;
  for (size_t l = 0; l < mcc_model_node_launch_count(model.handle(), node); ++l) {
    launches.push_back(launch_of(model.handle(), node, l));
    launches.back().kernel = info.name;
  }
  return launches;
}

std::vector<LaunchInfo> without_repeats(std::vector<LaunchInfo> launches) {
  std::vector<LaunchInfo> out;
  std::map<std::pair<uint32_t, std::string>, size_t> place;
  for (LaunchInfo& launch : launches) {
    const bool is_call = !launch.library.empty();
    const auto [at, is_new] = place.try_emplace({launch.variant, is_call ? "" : launch.entry}, out.size());
    if (is_new || is_call) {
      out.push_back(std::move(launch));
    } else {
      out[at->second].times += launch.times;
    }
  }
  return out;
}

nlohmann::ordered_json launches_json(const std::vector<LaunchInfo>& launches) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const LaunchInfo& launch : launches) {
    nlohmann::ordered_json figures = nlohmann::ordered_json::array();
    for (const LaunchFigures& f : launch.figures) {
      figures.push_back({{"arch", f.arch},
                         {"registers", f.registers},
                         {"shared_bytes", f.shared_bytes},
                         {"stack_bytes", f.stack_bytes},
                         {"spill_stores", f.spill_stores},
                         {"spill_loads", f.spill_loads}});
    }
    if (!launch.library.empty()) {
      list.push_back({{"kernel", launch.kernel}, {"library", launch.library}, {"product", launch.product}});
      continue;
    }
    list.push_back(
        {{"kernel", launch.kernel},
         {"entry", launch.entry},
         {"grid", grid_json(launch.grid)},
         {"block", launch.block},
         {"shared_bytes", launch.shared_bytes},
         {"times", launch.times == 0 ? nlohmann::ordered_json("?") : nlohmann::ordered_json(launch.times)},
         {"figures", std::move(figures)}});
  }
  return list;
}

std::string launch_text(const LaunchInfo& launch) {
  if (!launch.library.empty()) {
    const uint64_t* p = launch.product;
    return text("call of ", launch.library, ", ", p[0] > 1 ? text(p[0], " times ") : "", p[1], "x", p[2], ", sums of ", p[3]);
  }
  std::string out = text(launch.times == 1   ? ""
                         : launch.times == 0 ? "? times "
                                             : text(launch.times, " times "),
                         "grid ", extents_text(launch.grid), ", block ", extents_text(launch.block));
  if (launch.shared_bytes > 0) out += text(", ", bytes_text(launch.shared_bytes), " shared");
  for (const LaunchFigures& f : launch.figures) {
    const uint32_t spills = f.spill_stores + f.spill_loads;
    out += text(", ", f.arch, ": ", f.registers, " registers, ",
                spills == 0 ? "no spills" : text(spills, " B of spills"));
    // Arrays that the compiler did not take apart: as slow as spills.
    if (spills == 0 && f.stack_bytes > 0) out += text(", ", f.stack_bytes, " B of local memory");
  }
  return out;
}

}  // namespace mcc::tools
