#include "codegen/device_writer.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "codegen/sections.h"
#include "support/check.h"

namespace mcc::codegen {

namespace {

uint32_t narrow(uint64_t count) {
  MCC_CHECK(count < MCC_PLAN_NONE, "the model's code for GPUs is too large");
  return static_cast<uint32_t>(count);
}

// 80 and false of "sm_80"; 90 and true of "sm_90a".
uint32_t sm_number(const std::string& arch) {
  MCC_CHECK(arch.size() > 3 && arch.compare(0, 3, "sm_") == 0, "architecture ", arch);
  return static_cast<uint32_t>(std::stoul(arch.substr(3)));
}

template <class T>
void append_padded(std::vector<T>& list, size_t multiple) {
  while (list.size() % multiple != 0)
    list.push_back(T{});
}

class DeviceWriter {
 public:
  std::vector<std::byte> write(const DeviceDesc& device) {
    for (const DeviceKernelDesc& kernel : device.kernels)
      add_kernel(kernel);
    return lay_out(device.is_walked);
  }

 private:
  mcc_plan_string add_text(const std::string& text) { return texts_.add(text, strings_); }

  void add_kernel(const DeviceKernelDesc& kernel) {
    mcc_device_kernel record = {};
    record.launches = {narrow(launches_.size()), narrow(kernel.launches.size())};
    for (const DeviceLaunchDesc& launch : kernel.launches)
      add_launch(launch);
    record.images = {narrow(images_.size()), narrow(kernel.images.size())};
    for (const DeviceImageDesc& image : kernel.images)
      add_image(image, record.launches);
    kernels_.push_back(record);
  }

  void add_launch(const DeviceLaunchDesc& launch) {
    mcc_device_launch record = {};
    record.entry = add_text(launch.entry);
    for (size_t i = 0; i < 3; ++i) {
      record.grid[i] = launch.grid[i];
      record.block[i] = launch.block[i];
    }
    record.shared_bytes = launch.shared_bytes;
    record.dynamic_shared_bytes = launch.dynamic_shared_bytes;
    record.waits_itself = launch.waits_itself ? 1 : 0;
    record.loop_launches = launch.loop_launches;
    record.loop_first = launch.loop_first;
    record.loop_turns = launch.loop_turns;
    record.arguments = {narrow(arguments_.size()), narrow(launch.arguments.size())};
    arguments_.insert(arguments_.end(), launch.arguments.begin(), launch.arguments.end());
    record.maps = {narrow(maps_.size()), narrow(launch.maps.size())};
    maps_.insert(maps_.end(), launch.maps.begin(), launch.maps.end());
    record.products = {narrow(products_.size()), launch.product ? 1u : 0u};
    if (launch.product) products_.push_back(*launch.product);
    record.figures = {narrow(figures_.size()), narrow(launch.figures.size())};
    for (const DeviceFiguresDesc& f : launch.figures) {
      figures_.push_back(
          {add_text(f.arch), f.registers, f.shared_bytes, f.stack_bytes, f.spill_stores, f.spill_loads, 0});
    }
    launches_.push_back(record);
  }

  void add_image(const DeviceImageDesc& image, mcc_plan_range launches) {
    append_padded(code_, 16);
    mcc_device_image record = {};
    record.kind = image.kind;
    record.sm = sm_number(image.arch);
    record.is_specific = image.arch.back() == 'a' ? 1 : 0;
    record.arch = add_text(image.arch);
    record.launches = {launches.begin + image.first_launch, image.launch_count.value_or(launches.count)};
    record.offset = code_.size();
    record.size = image.bytes.size();
    code_.insert(code_.end(), image.bytes.begin(), image.bytes.end());
    code_.push_back(0);
    images_.push_back(record);
  }

  bool has_open_sizes() const {
    auto is_dim = [](uint32_t entry) { return MCC_DEVICE_IS_DIM(entry); };
    return std::any_of(arguments_.begin(), arguments_.end(), is_dim) ||
           std::any_of(launches_.begin(), launches_.end(), [&](const mcc_device_launch& l) {
             return is_dim(l.loop_turns) || std::any_of(std::begin(l.grid), std::end(l.grid), is_dim);
           });
  }

  std::vector<std::byte> lay_out(bool is_walked) {
    mcc_device_header header = {};
    std::memcpy(header.magic, MCC_DEVICE_MAGIC, sizeof header.magic);
    header.version = is_walked          ? MCC_DEVICE_VERSION_DATA
                     : has_open_sizes() ? MCC_DEVICE_VERSION_OPEN
                                        : MCC_DEVICE_VERSION;
    header.header_size = sizeof header;
    std::vector<std::byte> out(sizeof header);
#define MCC_PLACE(name, type) place_section(header, MCC_DEVICE_SECTION_##name, name##_, 16, out);
    MCC_DEVICE_SECTIONS(MCC_PLACE)
#undef MCC_PLACE
    seal(header, MCC_DEVICE_CHECKED_FROM, out);
    return out;
  }

  TextTable texts_;
#define MCC_SECTION_FIELD(name, type) std::vector<type> name##_;
  MCC_DEVICE_SECTIONS(MCC_SECTION_FIELD)
#undef MCC_SECTION_FIELD
};

}  // namespace

std::vector<std::byte> write_device_code(const DeviceDesc& device) { return DeviceWriter().write(device); }

}  // namespace mcc::codegen
