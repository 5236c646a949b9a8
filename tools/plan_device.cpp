#include "tools/plan_device.h"

#include <algorithm>

namespace mcc::tools {

namespace {

uint32_t extent(const tensor::Expr& e, const std::string& entry) {
  int64_t value = 0;
  MCC_CHECK(tensor::as_int(e, &value) && value >= 0 && value <= 0x7fffffff, "the grid of ", entry, " is not known");
  return static_cast<uint32_t>(value);
}

}  // namespace

mcc_device_map map_of(const codegen::TensorMap& m) {
  auto narrow = [](int64_t number) { return static_cast<uint32_t>(number); };
  return {static_cast<uint64_t>(m.width),
          static_cast<uint64_t>(m.height),
          narrow(m.buffer),
          narrow(m.element_bytes),
          narrow(m.box_width),
          narrow(m.box_height),
          narrow(m.swizzle),
          0};
}

namespace {

codegen::DeviceLaunchDesc launch_of(const codegen::DeviceLaunch& from, const std::vector<codegen::Cubin>& cubins) {
  codegen::DeviceLaunchDesc launch;
  launch.entry = from.entry;
  for (size_t i = 0; i < 3; ++i) {
    launch.grid[i] = extent(from.grid[i], from.entry);
    launch.block[i] = extent(from.block[i], from.entry);
  }
  launch.shared_bytes = static_cast<uint32_t>(from.shared_bytes);
  launch.dynamic_shared_bytes = from.is_shared_dynamic ? launch.shared_bytes : 0;
  MCC_CHECK(from.dims.empty(), from.entry, " depends on symbolic dimensions");
  for (int buffer : from.buffers) launch.arguments.push_back(static_cast<uint32_t>(buffer));
  for (const codegen::TensorMap& m : from.maps)
    launch.maps.push_back(map_of(m));
  for (const codegen::Cubin& cubin : cubins) {
    auto it = std::find_if(cubin.entries.begin(), cubin.entries.end(),
                           [&](const codegen::EntryFigures& f) { return f.entry == from.entry; });
    if (it == cubin.entries.end()) continue;
    launch.figures.push_back({cubin.arch, static_cast<uint32_t>(it->registers), static_cast<uint32_t>(it->shared_bytes),
                              static_cast<uint32_t>(it->stack_bytes), static_cast<uint32_t>(it->spill_stores),
                              static_cast<uint32_t>(it->spill_loads)});
  }
  return launch;
}

}  // namespace

codegen::DeviceDesc device_code(const KernelSet& kernels) {
  codegen::DeviceDesc device;
  for (const Kernel& kernel : kernels.kernels) {
    codegen::DeviceKernelDesc out;
    for (const DeviceVariant& variant : kernel.device) {
      const auto first = static_cast<uint32_t>(out.launches.size()),
                 count = static_cast<uint32_t>(variant.code.launches.size());
      for (const codegen::DeviceLaunch& launch : variant.code.launches)
        out.launches.push_back(launch_of(launch, variant.cubins));
      out.images.push_back({MCC_IMAGE_ptx, variant.arch, variant.code.ptx, first, count});
      for (const codegen::Cubin& cubin : variant.cubins) {
        if (cubin.bytes.empty()) continue;
        out.images.push_back(
            {MCC_IMAGE_cubin, cubin.arch, std::string(cubin.bytes.begin(), cubin.bytes.end()), first, count});
      }
    }
    device.kernels.push_back(std::move(out));
  }
  return device;
}

}  // namespace mcc::tools
