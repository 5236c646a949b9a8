#include "runtime/model.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <new>

#include "runtime/cpu_features.h"
#include "runtime/device_model.h"
#include "runtime/file_check.h"

using namespace mcc::runtime;

namespace {

static_assert(offsetof(mcc_model_v1, device) == MCC_MODEL_V1_BASE_SIZE);

void destroy(mcc_model* model) {
  destroy_device_models(model);
  if (model->mapping != nullptr) munmap(model->mapping, model->mapping_size);
  void* library = model->library;
  model->~mcc_model();
  std::free(model);
  if (library != nullptr) dlclose(library);
}

mcc_status check_image(const mcc_model_v1* image, mcc_error* error) {
  if (image->struct_size < MCC_MODEL_V1_BASE_SIZE || image->abi_version != MCC_ABI_VERSION) {
    return fail(error, MCC_BAD_MODEL,
                "the model was compiled for ABI version %u, this runtime has version %u", image->abi_version,
                MCC_ABI_VERSION);
  }
  for (uint64_t i = 0; i < image->kernel_count; ++i) {
    if (image->kernels[i] == nullptr) return fail(error, MCC_BAD_MODEL, "the model lacks a kernel");
  }
  for (uint64_t i = 0; i < image->host_function_count; ++i) {
    if (image->host_functions[i] == nullptr)
      return fail(error, MCC_BAD_MODEL, "the model lacks a host function");
  }
  return MCC_OK;
}

mcc_status fill_interface(const Plan& plan, mcc_plan_range range, Array<InterfaceInfo>* infos,
                          mcc_error* error) {
  if (!infos->allocate(range.count)) return fail(error, MCC_OUT_OF_MEMORY, "out of memory");
  for (uint32_t i = 0; i < range.count; ++i) {
    const mcc_plan_value& value = plan.values[plan.indices[range.begin + i]];
    InterfaceInfo& info = (*infos)[i];
    for (uint32_t d = 0; d < value.rank; ++d) {
      const mcc_quantity dim = plan.dims_of(value)[d];
      info.dims[d] = is_static(dim) ? dim : -1;
      if (is_static(dim)) continue;
      const uint64_t slot = MCC_SLOT_OF_QUANTITY(dim);
      info.dim_names[d] = slot < plan.symbols_count ? plan.text(plan.symbols[slot].name) : "";
    }
  }
  return MCC_OK;
}

mcc_status map_weights_file(mcc_model* model, const char* path, int file, mcc_error* error) {
  const uint64_t size = model->plan.header->weights_size;
  struct stat status;
  mcc_weights_file_header header;
  const char* id = model->plan.metadata_value("weights.id");
  if (fstat(file, &status) != 0 ||
      read(file, &header, sizeof header) != static_cast<ssize_t>(sizeof header) ||
      std::memcmp(header.magic, MCC_WEIGHTS_FILE_MAGIC, sizeof header.magic) != 0) {
    return fail(error, MCC_BAD_MODEL, "%.400s is not a file of weights", path);
  }
  if (header.size != size || id == nullptr || std::strncmp(header.id, id, sizeof header.id) != 0) {
    return fail(error, MCC_BAD_MODEL, "%.400s holds the weights of another model", path);
  }
  if (size > INT64_MAX - MCC_WEIGHTS_FILE_DATA ||
      static_cast<uint64_t>(status.st_size) < size + MCC_WEIGHTS_FILE_DATA) {
    return fail(error, MCC_BAD_MODEL, "%.400s is cut off: it has %lld bytes", path,
                static_cast<long long>(status.st_size));
  }
  void* mapping = mmap(nullptr, size + MCC_WEIGHTS_FILE_DATA, PROT_READ, MAP_PRIVATE, file, 0);
  if (mapping == MAP_FAILED) {
    return fail(error, MCC_OUT_OF_MEMORY, "cannot map %.400s: %s", path, std::strerror(errno));
  }
  model->mapping = mapping;
  model->mapping_size = size + MCC_WEIGHTS_FILE_DATA;
  model->weights = static_cast<const uint8_t*>(mapping) + MCC_WEIGHTS_FILE_DATA;
  return MCC_OK;
}

// The weights are in the library, or in the file `name` in its folder.
mcc_status find_weights(mcc_model* model, const char* library_path, mcc_error* error) {
  const char* name = model->plan.metadata_value("weights.file");
  if (name == nullptr) {
    model->weights = static_cast<const uint8_t*>(model->image->weights);
    if (model->image->weights_size != model->plan.header->weights_size ||
        (model->weights == nullptr && model->image->weights_size != 0) ||
        reinterpret_cast<uintptr_t>(model->weights) % MCC_BUFFER_ALIGNMENT != 0) {
      return fail(error, MCC_BAD_MODEL, "the model's weights are damaged");
    }
    return MCC_OK;
  }
  if (name[0] == 0 || std::strchr(name, '/') != nullptr) {
    return fail(error, MCC_BAD_MODEL, "the model's weights are in a file outside of its folder");
  }
  if (library_path == nullptr) {
    return fail(error, MCC_BAD_MODEL, "a model that is linked in cannot have its weights in a file");
  }
  const char* slash = std::strrchr(library_path, '/');
  const int folder = slash == nullptr ? 0 : static_cast<int>(slash - library_path + 1);
  char path[4096];
  const int length = std::snprintf(path, sizeof path, "%.*s%s", folder, library_path, name);
  if (length < 0 || length >= static_cast<int>(sizeof path)) {
    return fail(error, MCC_BAD_MODEL, "the path of the weights is too long");
  }
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0)
    return fail(error, MCC_BAD_MODEL, "cannot open the weights %.400s: %s", path, std::strerror(errno));
  const mcc_status status = map_weights_file(model, path, file, error);
  close(file);
  return status;
}

// The beginning of a small file of the system's; empty when there is none.
void read_text(const char* path, char* text, size_t size) {
  text[0] = 0;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  const ssize_t count = read(file, text, size - 1);
  text[count > 0 ? count : 0] = 0;
  close(file);
}

bool has_huge_pages() {
  char text[64];
  read_text("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text);
  return text[0] != 0 && std::strstr(text, "[never]") == nullptr;
}

// Memory that the system can give without swapping; 0 when it does not say.
uint64_t available_memory() {
  char text[1024];
  read_text("/proc/meminfo", text, sizeof text);
  const char* line = std::strstr(text, "MemAvailable:");
  return line == nullptr ? 0 : std::strtoull(line + std::strlen("MemAvailable:"), nullptr, 10) * 1024;
}

// Copies the weights to huge pages when they are more than small pages' translations in the processor cover. In a virtual
// machine each miss is a walk over two tables: models were measured 1.1 to 2 times as fast. Where memory is short, they stay
// in the file's pages, which the system may drop and other processes share.
void move_to_huge_pages(mcc_model* model) {
  constexpr uint64_t page = uint64_t{2} << 20;
  const uint64_t size = model->plan.header->weights_size;
  if (size < 2 * page || size > available_memory() / 4 || !has_huge_pages()) return;
  void* memory = mmap(nullptr, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return;
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  auto* copy = static_cast<uint8_t*>(memory) + ((begin + page - 1) / page * page - begin);
  madvise(copy, size, MADV_HUGEPAGE);  // only a wish: failing is fine
  std::memcpy(copy, model->weights, size);
  mprotect(memory, size + page, PROT_READ);
  if (model->mapping != nullptr) {
    munmap(model->mapping, model->mapping_size);
  } else {
    // The library's pages may go; they come back if somebody reads them.
    const auto small_page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto from =
        (reinterpret_cast<uintptr_t>(model->weights) + small_page - 1) / small_page * small_page;
    const auto to = (reinterpret_cast<uintptr_t>(model->weights) + size) / small_page * small_page;
    madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED);
  }
  model->mapping = memory;
  model->mapping_size = size + page;
  model->weights = copy;
}

mcc_status set_up(mcc_model* model, const char* library_path, mcc_error* error) {
  mcc_status status = check_image(model->image, error);
  if (status != MCC_OK) return status;
  const mcc_model_v1& image = *model->image;
  if (image.struct_size >= sizeof image && image.device != nullptr) {
    status = open_device_code(image.device, image.device_size, &model->device_code, error);
    if (status != MCC_OK) return status;
  }
  const PlanTargets targets = {image.kernel_count, image.host_function_count,
                               model->device_code.kernels_count, model->device_code.header != nullptr};
  status = open_plan(image.plan, image.plan_size, targets, &model->plan, error);
  if (status != MCC_OK) return status;
  status = check_device_nodes(model->plan, model->device_code, error);
  if (status != MCC_OK) return status;
  status = check_cpu_features(model->plan, error);
  if (status != MCC_OK) return status;
  status = find_weights(model, library_path, error);
  if (status != MCC_OK) return status;
  // The weights of a GPU's model are only read once, to be copied there.
  if (library_path != nullptr && model->device_code.header == nullptr) move_to_huge_pages(model);
  status = fill_interface(model->plan, model->plan.inputs(), &model->inputs, error);
  if (status != MCC_OK) return status;
  return fill_interface(model->plan, model->plan.outputs(), &model->outputs, error);
}

// Takes over `library`, also on failure.
mcc_status create(const mcc_model_v1* image, void* library, const char* library_path, mcc_model** out,
                  mcc_error* error) {
  void* memory = std::calloc(1, sizeof(mcc_model));
  if (memory == nullptr) {
    if (library != nullptr) dlclose(library);
    return fail(error, MCC_OUT_OF_MEMORY, "out of memory");
  }
  auto* model = new (memory) mcc_model;
  model->image = image;
  model->library = library;
  const mcc_status status = set_up(model, library_path, error);
  if (status != MCC_OK) {
    destroy(model);
    return status;
  }
  *out = model;
  return succeed(error);
}

ptrdiff_t find_by_name(const Plan& plan, mcc_plan_range range, const char* name) {
  if (name == nullptr) return -1;
  for (uint32_t i = 0; i < range.count; ++i) {
    if (std::strcmp(plan.text(plan.values[plan.indices[range.begin + i]].name), name) == 0) return i;
  }
  return -1;
}

mcc_status describe(const Plan& plan, mcc_plan_range range, const Array<InterfaceInfo>& infos, size_t index,
                    mcc_tensor_info* info) {
  if (index >= range.count || info == nullptr) return MCC_INVALID_ARGUMENT;
  const mcc_plan_value& value = plan.values[plan.indices[range.begin + index]];
  info->name = plan.text(value.name);
  info->dtype = static_cast<mcc_dtype>(value.dtype);
  info->rank = value.rank;
  info->dims = infos[index].dims;
  info->dim_names = infos[index].dim_names;
  return MCC_OK;
}

bool is_same_kind(const mcc_device_image& a, const mcc_device_image& b) {
  return a.kind == b.kind && a.sm == b.sm && a.is_specific == b.is_specific;
}

bool is_first_of_kind(const DeviceCode& code, uint64_t image) {
  for (uint64_t i = 0; i < image; ++i)
    if (is_same_kind(code.images[i], code.images[image])) return false;
  return true;
}

const mcc_device_launch& launch_of(const mcc_model* model, size_t node, size_t launch) {
  const DeviceCode& code = model->device_code;
  return code.launches[code.kernels[model->plan.nodes[node].target].launches.begin + launch];
}

// How often a run has the launch; 0 where its shapes decide.
uint64_t times_of(const mcc_model* model, size_t node, size_t launch) {
  for (size_t first = launch + 1; first-- > 0;) {
    const mcc_device_launch& record = launch_of(model, node, first);
    if (record.loop_launches == 0) continue;
    if (launch - first >= record.loop_launches) return 1;
    return MCC_DEVICE_IS_DIM(record.loop_turns) ? 0 : record.loop_turns;
  }
  return 1;
}

// Images of the same launches follow each other.
uint32_t variant_of(const mcc_model* model, size_t node, size_t launch) {
  const DeviceCode& code = model->device_code;
  const mcc_device_kernel& kernel = code.kernels[model->plan.nodes[node].target];
  uint32_t variant = 0, begin = kernel.launches.begin;
  for (uint32_t i = 0; i < kernel.images.count; ++i) {
    const uint32_t next = code.images[kernel.images.begin + i].launches.begin;
    if (next > begin && next <= kernel.launches.begin + launch) {
      begin = next;
      ++variant;
    }
  }
  return variant;
}

const char* kind_name(uint32_t kind) {
  switch (kind) {
    case MCC_NODE_kernel:
      return "kernel";
    case MCC_NODE_host:
      return "host";
    case MCC_NODE_copy:
      return "copy";
    case MCC_NODE_shape:
      return "shape";
    case MCC_NODE_if:
      return "if";
    case MCC_NODE_loop:
      return "loop";
    case MCC_NODE_device:
      return "device";
    case MCC_NODE_text:
      return "text";
    case MCC_NODE_draw:
      return "draw";
  }
  return "unknown";
}

}  // namespace

extern "C" {

mcc_status mcc_model_open(const char* path, mcc_model** model, mcc_error* error) {
  if (path == nullptr || model == nullptr)
    return fail(error, MCC_INVALID_ARGUMENT, "mcc_model_open: null argument");
  // Without a slash, dlopen would look in the system's folders.
  char local[4096];
  const bool is_bare = std::strchr(path, '/') == nullptr;
  const int length = std::snprintf(local, sizeof local, "%s%s", is_bare ? "./" : "", path);
  if (length < 0 || length >= static_cast<int>(sizeof local)) {
    return fail(error, MCC_INVALID_ARGUMENT, "the path is too long");
  }
  const mcc_status status = check_library_file(local, error);
  if (status != MCC_OK) return status;
  void* library = dlopen(local, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fail(error, MCC_BAD_MODEL, "cannot load %.400s: %.500s", path, dlerror());
  const auto* image = static_cast<const mcc_model_v1*>(dlsym(library, MCC_MODEL_SYMBOL));
  if (image == nullptr) {
    dlclose(library);
    return fail(error, MCC_BAD_MODEL, "%.400s is not a model that mcc compiled", path);
  }
  return create(image, library, local, model, error);
}

mcc_status mcc_model_from_image(const mcc_model_v1* image, mcc_model** model, mcc_error* error) {
  if (image == nullptr || model == nullptr) {
    return fail(error, MCC_INVALID_ARGUMENT, "mcc_model_from_image: null argument");
  }
  return create(image, nullptr, nullptr, model, error);
}

void mcc_model_close(mcc_model* model) {
  if (model != nullptr && model->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy(model);
}

size_t mcc_model_input_count(const mcc_model* model) { return model->plan.inputs().count; }
size_t mcc_model_output_count(const mcc_model* model) { return model->plan.outputs().count; }

mcc_status mcc_model_input(const mcc_model* model, size_t index, mcc_tensor_info* info) {
  return describe(model->plan, model->plan.inputs(), model->inputs, index, info);
}

mcc_status mcc_model_output(const mcc_model* model, size_t index, mcc_tensor_info* info) {
  return describe(model->plan, model->plan.outputs(), model->outputs, index, info);
}

ptrdiff_t mcc_model_find_input(const mcc_model* model, const char* name) {
  return find_by_name(model->plan, model->plan.inputs(), name);
}

ptrdiff_t mcc_model_find_output(const mcc_model* model, const char* name) {
  return find_by_name(model->plan, model->plan.outputs(), name);
}

mcc_status mcc_model_dim_range(const mcc_model* model, const char* name, int64_t* min, int64_t* max) {
  if (name == nullptr || min == nullptr || max == nullptr) return MCC_INVALID_ARGUMENT;
  for (uint64_t i = 0; i < model->plan.symbols_count; ++i) {
    const mcc_plan_symbol& symbol = model->plan.symbols[i];
    if (std::strcmp(model->plan.text(symbol.name), name) != 0) continue;
    *min = symbol.min;
    *max = symbol.max;
    return MCC_OK;
  }
  return MCC_INVALID_ARGUMENT;
}

const char* mcc_model_metadata(const mcc_model* model, const char* key) {
  return key == nullptr ? nullptr : model->plan.metadata_value(key);
}

size_t mcc_model_metadata_count(const mcc_model* model) { return model->plan.metadata_count; }

const char* mcc_model_metadata_key(const mcc_model* model, size_t index) {
  return index < model->plan.metadata_count ? model->plan.text(model->plan.metadata[index].key) : nullptr;
}

void mcc_model_get_sizes(const mcc_model* model, mcc_model_sizes* sizes) {
  const mcc_plan_header& header = *model->plan.header;
  mcc_model_sizes all = {};
  all.struct_size = sizes->struct_size;
  all.arena_bytes = is_static(header.arena_size) ? header.arena_size : -1;
  all.weights_bytes = header.weights_size;
  all.scratch_bytes_per_thread = header.scratch_per_thread;
  all.plan_bytes = header.total_size;
  all.kernel_count = model->image->kernel_count + model->device_code.kernels_count;
  all.node_count = model->plan.nodes_count;
  std::memcpy(sizes, &all, sizes->struct_size < sizeof all ? sizes->struct_size : sizeof all);
}

mcc_status mcc_model_node(const mcc_model* model, size_t node, mcc_node_info* info) {
  if (node >= model->plan.nodes_count || info == nullptr) return MCC_INVALID_ARGUMENT;
  const mcc_plan_node& record = model->plan.nodes[node];
  mcc_node_info all = {};
  all.struct_size = info->struct_size;
  all.source_count = record.sources.count;
  all.name = model->plan.text(record.name);
  all.kind = kind_name(record.kind);
  all.schedule = model->plan.text(record.schedule);
  all.flops = is_static(record.flops) ? record.flops : -1;
  all.bytes = is_static(record.bytes) ? record.bytes : -1;
  std::memcpy(info, &all, info->struct_size < sizeof all ? info->struct_size : sizeof all);
  return MCC_OK;
}

const char* mcc_model_node_source(const mcc_model* model, size_t node, size_t source) {
  if (node >= model->plan.nodes_count) return nullptr;
  const mcc_plan_range sources = model->plan.nodes[node].sources;
  return source < sources.count ? model->plan.text(model->plan.names[sources.begin + source]) : nullptr;
}

size_t mcc_model_image_count(const mcc_model* model) {
  size_t count = 0;
  for (uint64_t i = 0; i < model->device_code.images_count; ++i) count += is_first_of_kind(model->device_code, i) ? 1 : 0;
  return count;
}

mcc_status mcc_model_image(const mcc_model* model, size_t image, mcc_image_info* info) {
  const DeviceCode& code = model->device_code;
  uint64_t first = 0;
  for (size_t seen = 0; first < code.images_count; ++first)
    if (is_first_of_kind(code, first) && seen++ == image) break;
  if (first == code.images_count || info == nullptr) return MCC_INVALID_ARGUMENT;
  mcc_image_info all = {};
  all.struct_size = info->struct_size;
  all.sm = code.images[first].sm;
  all.kind = code.images[first].kind == MCC_IMAGE_ptx ? "ptx" : "cubin";
  all.arch = code.text(code.images[first].arch);
  for (uint64_t i = first; i < code.images_count; ++i) {
    if (!is_same_kind(code.images[i], code.images[first])) continue;
    ++all.kernels;
    all.bytes += code.images[i].size;
  }
  std::memcpy(info, &all, info->struct_size < sizeof all ? info->struct_size : sizeof all);
  return MCC_OK;
}

size_t mcc_model_node_launch_count(const mcc_model* model, size_t node) {
  if (node >= model->plan.nodes_count || model->plan.nodes[node].kind != MCC_NODE_device) return 0;
  return model->device_code.kernels[model->plan.nodes[node].target].launches.count;
}

mcc_status mcc_model_node_launch(const mcc_model* model, size_t node, size_t launch, mcc_launch_info* info) {
  if (launch >= mcc_model_node_launch_count(model, node) || info == nullptr) return MCC_INVALID_ARGUMENT;
  const mcc_device_launch& record = launch_of(model, node, launch);
  mcc_launch_info all = {};
  all.struct_size = info->struct_size;
  all.shared_bytes = record.shared_bytes;
  all.entry = model->device_code.text(record.entry);
  for (size_t i = 0; i < 3; ++i)
    all.grid[i] = MCC_DEVICE_IS_DIM(record.grid[i]) ? MCC_BLOCKS_OF_RUN : record.grid[i];
  std::memcpy(all.block, record.block, sizeof all.block);
  all.figures_count = record.figures.count;
  all.variant = variant_of(model, node, launch);
  all.times = times_of(model, node, launch);
  if (record.products.count != 0) {
    const mcc_device_product& p = model->device_code.products[record.products.begin];
    all.library = "cublasLt";
    // As the model has it: the library's columns are the model's rows.
    const uint64_t terms = p.first.is_transposed != 0 ? p.first.rows : p.first.columns;
    const uint64_t sizes[] = {p.batches, p.result.columns, p.result.rows, terms};
    std::memcpy(all.product, sizes, sizeof all.product);
  }
  std::memcpy(info, &all, info->struct_size < sizeof all ? info->struct_size : sizeof all);
  return MCC_OK;
}

mcc_status mcc_model_node_figures(const mcc_model* model, size_t node, size_t launch, size_t index,
                                  mcc_launch_figures* figures) {
  if (launch >= mcc_model_node_launch_count(model, node) || figures == nullptr) return MCC_INVALID_ARGUMENT;
  const mcc_device_launch& record = launch_of(model, node, launch);
  if (index >= record.figures.count) return MCC_INVALID_ARGUMENT;
  const mcc_device_figures& of = model->device_code.figures[record.figures.begin + index];
  mcc_launch_figures all = {};
  all.struct_size = figures->struct_size;
  all.registers = of.registers;
  all.arch = model->device_code.text(of.arch);
  all.shared_bytes = of.shared_bytes;
  all.stack_bytes = of.stack_bytes;
  all.spill_stores = of.spill_stores;
  all.spill_loads = of.spill_loads;
  std::memcpy(figures, &all, figures->struct_size < sizeof all ? figures->struct_size : sizeof all);
  return MCC_OK;
}

const char* mcc_status_name(mcc_status status) {
  switch (status) {
    case MCC_OK:
      return "ok";
    case MCC_INVALID_ARGUMENT:
      return "invalid argument";
    case MCC_BAD_MODEL:
      return "bad model";
    case MCC_NOT_HERE:
      return "not on this machine";
    case MCC_OUT_OF_MEMORY:
      return "out of memory";
    case MCC_RUN_FAILED:
      return "run failed";
    case MCC_DEVICE_FAILED:
      return "device failed";
  }
  return "unknown status";
}

const char* mcc_dtype_name(mcc_dtype dtype) { return dtype_name(static_cast<uint32_t>(dtype)); }
uint32_t mcc_dtype_bytes(mcc_dtype dtype) { return dtype_bytes(static_cast<uint32_t>(dtype)); }
const char* mcc_runtime_version(void) { return "mcc " MCC_RUNTIME_VERSION; }

}  // extern "C"
