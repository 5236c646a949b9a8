#include "runtime/device_code.h"

namespace mcc::runtime {

namespace {

// Launches and images of one size fit a GPU's limits with room; more is damage.
constexpr uint32_t kMaxThreads = 1024, kMaxShared = 1u << 20;

bool is_range(mcc_plan_range range, uint64_t count) { return is_within(range.begin, range.count, count); }

bool is_text(const DeviceCode& code, mcc_plan_string string) {
  return is_within(string.offset, uint64_t{string.size} + 1, code.strings_count) &&
         code.strings[uint64_t{string.offset} + string.size] == 0;
}

bool is_map(const mcc_device_map& map) {
  const uint64_t bytes = map.element_bytes, most = 1ull << 32;
  return (bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8) && map.width >= 1 && map.width <= most &&
         map.height >= 1 && map.height <= most && map.width * bytes % 16 == 0 &&
         (map.swizzle == 32 || map.swizzle == 64 || map.swizzle == 128) &&
         map.box_width * bytes == map.swizzle && map.box_height >= 1 && map.box_height <= 256;
}

bool is_matrix(const mcc_device_matrix& m) {
  const uint64_t most = INT32_MAX;
  return (m.dtype == MCC_DTYPE_f32 || m.dtype == MCC_DTYPE_f16 || m.dtype == MCC_DTYPE_bf16) && m.rows >= 1 && m.rows <= most &&
         m.columns >= 1 && m.columns <= most && m.leading >= m.rows && m.leading <= uint64_t{INT64_MAX} / most &&
         m.batch_stride <= INT64_MAX;
}

bool is_product(const mcc_device_product& p) {
  if (!is_matrix(p.first) || !is_matrix(p.second) || !is_matrix(p.result)) return false;
  const bool is_first_turned = p.first.is_transposed != 0, is_second_turned = p.second.is_transposed != 0;
  const uint64_t depth = is_first_turned ? p.first.rows : p.first.columns;
  const bool fits = (is_first_turned ? p.first.columns : p.first.rows) == p.result.rows &&
                    (is_second_turned ? p.second.columns : p.second.rows) == depth &&
                    (is_second_turned ? p.second.rows : p.second.columns) == p.result.columns;
  const bool is_addend = p.has_addend == 0 || (is_matrix(p.addend) && p.addend.rows == p.result.rows &&
                                               p.addend.columns == p.result.columns);
  return fits && is_addend && p.result.is_transposed == 0 && p.compute < MCC_COMPUTE_COUNT && p.has_addend <= 1 &&
         p.has_bias <= 1 && p.batches >= 1 && p.batches <= INT32_MAX && p.algorithm < MCC_MOST_ALGORITHMS;
}

// A number of blocks along an axis, or one that a run knows.
bool is_extent(const DeviceCode& code, uint32_t extent, uint32_t most) {
  return extent <= most || (code.header->version >= MCC_DEVICE_VERSION_OPEN && MCC_DEVICE_IS_DIM(extent));
}

// A launch without a product, or with the arguments that one takes.
bool is_call(const DeviceCode& code, const mcc_device_launch& launch) {
  if (launch.products.count == 0) return true;
  if (launch.products.count != 1 || !is_range(launch.products, code.products_count)) return false;
  const mcc_device_product& product = code.products[launch.products.begin];
  return is_product(product) && launch.arguments.count == 4 + product.has_addend + product.has_bias && launch.maps.count == 0;
}

// Loops that begin among the launches end among them, and none in another one.
bool are_loops(const DeviceCode& code, mcc_plan_range launches) {
  uint64_t end = 0;  // of the loop around
  for (uint64_t i = 0; i < launches.count; ++i) {
    const uint32_t body = code.launches[launches.begin + i].loop_launches;
    if (body == 0) continue;
    if (i < end || body > launches.count - i) return false;
    end = i + body;
  }
  return true;
}

bool is_launch(const DeviceCode& code, const mcc_device_launch& launch) {
  uint64_t threads = 1;
  for (uint32_t extent : launch.block) {
    if (extent == 0 || extent > kMaxThreads) return false;
    threads *= extent;
  }
  return is_text(code, launch.entry) && threads <= kMaxThreads &&
         is_extent(code, launch.grid[0], MCC_DEVICE_MOST_BLOCKS_X) &&
         is_extent(code, launch.grid[1], MCC_DEVICE_MOST_BLOCKS_YZ) &&
         is_extent(code, launch.grid[2], MCC_DEVICE_MOST_BLOCKS_YZ) && launch.shared_bytes <= kMaxShared &&
         launch.dynamic_shared_bytes <= launch.shared_bytes && launch.waits_itself <= 1 &&
         launch.loop_first < MCC_DEVICE_MOST_NUMBER &&
         is_extent(code, launch.loop_turns, MCC_DEVICE_MOST_NUMBER) &&
         is_range(launch.arguments, code.arguments_count) && is_range(launch.maps, code.maps_count) &&
         is_range(launch.figures, code.figures_count) && is_call(code, launch);
}

bool is_image(const DeviceCode& code, const mcc_device_image& image) {
  if (image.kind >= MCC_IMAGE_COUNT || !is_text(code, image.arch) || image.offset % 16 != 0 ||
      image.size == 0)
    return false;
  if (image.kind == MCC_IMAGE_cubin) return is_within(image.offset, image.size, code.code_count);
  return image.size < UINT64_MAX && is_within(image.offset, image.size + 1, code.code_count) &&
         code.code[image.offset + image.size] == 0;
}

mcc_status damaged(mcc_error* error, const char* what) {
  return fail(error, MCC_BAD_MODEL, "the model's code for GPUs is damaged: %s", what);
}

template <typename T>
bool open_section(const mcc_device_header* header, uint64_t section, const T** records, uint64_t* count) {
  const mcc_plan_section& entry = header->sections[section];
  uint64_t bytes = 0;
  if (entry.offset % 16 != 0 || __builtin_mul_overflow(entry.count, sizeof(T), &bytes) ||
      !is_within(entry.offset, bytes, header->total_size)) {
    return false;
  }
  *records = reinterpret_cast<const T*>(reinterpret_cast<const unsigned char*>(header) + entry.offset);
  *count = entry.count;
  return true;
}

}  // namespace

mcc_status open_device_code(const void* bytes, uint64_t size, DeviceCode* code, mcc_error* error) {
  if (bytes == nullptr || size < sizeof(mcc_device_header) || reinterpret_cast<uintptr_t>(bytes) % 16 != 0)
    return damaged(error, "its header");
  const auto* header = static_cast<const mcc_device_header*>(bytes);
  if (std::memcmp(header->magic, MCC_DEVICE_MAGIC, sizeof header->magic) != 0)
    return damaged(error, "its header");
  const bool is_known = header->version >= MCC_DEVICE_VERSION && header->version <= MCC_DEVICE_VERSION_DATA;
  if (!is_known || header->header_size != sizeof *header) {
    return fail(error, MCC_BAD_MODEL,
                "the model's code for GPUs has version %u, this runtime reads versions %u to %u",
                header->version, MCC_DEVICE_VERSION, MCC_DEVICE_VERSION_DATA);
  }
  if (header->total_size != size) return damaged(error, "its size");
  if (mcc_plan_checksum(static_cast<const unsigned char*>(bytes) + MCC_DEVICE_CHECKED_FROM,
                        size - MCC_DEVICE_CHECKED_FROM) != header->checksum) {
    return damaged(error, "its checksum");
  }
  code->header = header;
#define MCC_OPEN(name, type)                                                              \
  if (!open_section(header, MCC_DEVICE_SECTION_##name, &code->name, &code->name##_count)) \
    return damaged(error, "the place of its " #name);
  MCC_DEVICE_SECTIONS(MCC_OPEN)
#undef MCC_OPEN
  for (uint64_t i = 0; i < code->kernels_count; ++i) {
    const mcc_device_kernel& kernel = code->kernels[i];
    if (!is_range(kernel.launches, code->launches_count) || !is_range(kernel.images, code->images_count))
      return damaged(error, "a kernel");
    for (uint64_t n = 0; n < kernel.images.count; ++n) {
      const mcc_plan_range own = code->images[kernel.images.begin + n].launches;
      if (own.begin < kernel.launches.begin ||
          !is_within(own.begin - kernel.launches.begin, own.count, kernel.launches.count) ||
          !are_loops(*code, own))
        return damaged(error, "the launches of an image");
    }
  }
  for (uint64_t i = 0; i < code->launches_count; ++i)
    if (!is_launch(*code, code->launches[i])) return damaged(error, "a launch");
  for (uint64_t i = 0; i < code->maps_count; ++i)
    if (!is_map(code->maps[i])) return damaged(error, "the map of a matrix");
  for (uint64_t i = 0; i < code->figures_count; ++i)
    if (!is_text(*code, code->figures[i].arch)) return damaged(error, "the figures of a launch");
  for (uint64_t i = 0; i < code->images_count; ++i)
    if (!is_image(*code, code->images[i])) return damaged(error, "an image");
  return MCC_OK;
}

namespace {

// An address, or (not for a library) a dimension, which the node has, a number, or the iteration of a loop that there is.
bool is_argument(const DeviceCode& code, uint32_t argument, const mcc_plan_node& node,
                 const mcc_device_launch& launch, bool is_in_loop) {
  const bool is_kernel = launch.products.count == 0;
  if (is_kernel && argument == MCC_DEVICE_TURN) return is_in_loop;
  if (is_kernel && MCC_DEVICE_IS_NUMBER(argument)) return true;
  if (!is_kernel || code.header->version < MCC_DEVICE_VERSION_OPEN || !MCC_DEVICE_IS_DIM(argument))
    return argument < node.args.count;
  return MCC_DEVICE_DIM_NUMBER(argument) < node.dims.count;
}

bool is_extent_of(const mcc_plan_node& node, uint32_t extent) {
  return !MCC_DEVICE_IS_DIM(extent) || MCC_DEVICE_DIM_NUMBER(extent) < node.dims.count;
}

}  // namespace

mcc_status check_device_nodes(const Plan& plan, const DeviceCode& code, mcc_error* error) {
  if (code.header != nullptr && code.header->version < MCC_DEVICE_VERSION_DATA && is_walked(plan))
    return damaged(error, "it is for runs that no data decides");
  for (uint64_t n = 0; n < plan.nodes_count; ++n) {
    const mcc_plan_node& node = plan.nodes[n];
    if (node.kind != MCC_NODE_device) continue;
    const mcc_plan_range launches = code.kernels[node.target].launches;
    uint32_t loop_end = 0;
    for (uint32_t i = 0; i < launches.count; ++i) {
      const mcc_device_launch& launch = code.launches[launches.begin + i];
      const mcc_plan_range arguments = launch.arguments;
      if (launch.loop_launches != 0) loop_end = i + launch.loop_launches;
      for (uint32_t a = 0; a < arguments.count; ++a)
        if (!is_argument(code, code.arguments[arguments.begin + a], node, launch, i < loop_end))
          return damaged(error, "an argument of a launch");
      for (uint32_t extent : launch.grid)
        if (!is_extent_of(node, extent)) return damaged(error, "the grid of a launch");
      if (!is_extent_of(node, launch.loop_turns)) return damaged(error, "the loop around a launch");
      const mcc_plan_range maps = code.launches[launches.begin + i].maps;
      for (uint32_t m = 0; m < maps.count; ++m)
        if (code.maps[maps.begin + m].argument >= node.args.count)
          return damaged(error, "a matrix of a launch");
    }
  }
  return MCC_OK;
}

uint32_t image_rank(const mcc_device_image& image, uint32_t sm) {
  if (image.sm > sm || (image.is_specific != 0 && image.sm != sm)) return 0;
  if (image.kind == MCC_IMAGE_ptx) return 1 + image.sm * 2 + image.is_specific;
  // Machine code runs on later GPUs of the same generation alone.
  return image.sm / 10 == sm / 10 ? 100000 + image.sm * 2 + image.is_specific : 0;
}

}  // namespace mcc::runtime
