#include "codegen/model_library.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "support/check.h"

namespace mcc::codegen {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t page = 4096;

Diagnostic cannot_write(const std::string& path, int error) {
  return {ErrorKind::environment, path, text("cannot write: ", std::strerror(error)), ""};
}

// A folder that is removed with all in it.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const fs::path& parent) {
    std::string pattern = (parent / ".mcc-XXXXXX").string();
    if (mkdtemp(pattern.data()) != nullptr) {
      path_ = pattern;
    } else {
      error_ = errno;
    }
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  int error() const { return error_; }
  std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
  int error_ = 0;
};

Status write_file(const std::string& path, std::span<const char> bytes) {
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return cannot_write(path, errno);
  const bool is_written = bytes.empty() || std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  const int error = errno;
  if (std::fclose(file) != 0 || !is_written) return cannot_write(path, error);
  return done();
}

// Tells two sets of weights apart: the checksums of the chunks in their order.
std::string weights_id(const ModelLibrary& library) {
  std::vector<uint64_t> sums;
  for (const DataChunk& chunk : library.weights) {
    sums.push_back(chunk.offset);
    sums.push_back(
        mcc_plan_checksum(reinterpret_cast<const unsigned char*>(chunk.bytes.data()), chunk.bytes.size()));
  }
  const uint64_t sum =
      mcc_plan_checksum(reinterpret_cast<const unsigned char*>(sums.data()), sums.size() * sizeof(uint64_t));
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(sum));
  return digits;
}

Status write_weights_file(const ModelLibrary& library, const std::string& id, const std::string& path) {
  mcc_weights_file_header header = {};
  std::memcpy(header.magic, MCC_WEIGHTS_FILE_MAGIC, sizeof header.magic);
  header.size = library.weights_size;
  MCC_CHECK(id.size() < sizeof header.id);
  std::memcpy(header.id, id.data(), id.size());
  std::vector<DataChunk> chunks = {{0, std::as_bytes(std::span(&header, 1))}};
  for (const DataChunk& chunk : library.weights)
    chunks.push_back({chunk.offset + MCC_WEIGHTS_FILE_DATA, chunk.bytes});
  return write_chunks(chunks, library.weights_size + MCC_WEIGHTS_FILE_DATA, path);
}

// Only a model for GPUs has the fields of one.
uint64_t model_size(const ModelLibrary& library) {
  return library.device ? sizeof(mcc_model_v1) : MCC_MODEL_V1_BASE_SIZE;
}

// Sections of the object that describes the model. The weights come first: a linker lays out
// read-only sections in the order of its inputs, and what code refers to should not have them in
// between.
ElfObject describe_model(const ModelLibrary& library, std::span<const std::byte> plan,
                         std::span<const std::byte> device) {
  const std::string& prefix = library.symbol_prefix;
  const std::string weights = prefix + "_weights";
  const std::string kernels = prefix + "_kernels";
  const std::string host_functions = prefix + "_host_functions";
  ElfObject object;
  const auto add = [&](ElfSection section, const std::string& symbol, bool is_exported) {
    object.symbols.push_back({symbol, object.sections.size(), 0, section.size, is_exported});
    object.sections.push_back(std::move(section));
  };
  const bool has_weights = library.weights_size != 0 && !library.has_weights_file;
  if (has_weights) {
    // Anything near the reach of 32-bit offsets is marked as large.
    const bool is_large = library.weights_size > uint64_t{1} << 30;
    add({is_large ? ".lrodata.mcc_weights" : ".rodata.mcc_weights",
         page,
         library.weights_size,
         library.weights,
         {},
         is_large},
        weights, false);
  }
  add({".rodata.mcc_plan", 64, plan.size(), {{0, plan}}, {}, false}, prefix + "_plan", false);
  if (!device.empty())
    add({".rodata.mcc_device", 64, device.size(), {{0, device}}, {}, false}, prefix + "_device", false);

  const auto add_table = [&](const std::vector<std::string>& functions, const std::string& symbol) {
    if (functions.empty()) return;
    ElfSection table = {".data.rel.ro." + symbol, 8, functions.size() * sizeof(void*), {}, {}, false};
    for (size_t i = 0; i < functions.size(); ++i)
      table.addresses.push_back({i * sizeof(void*), functions[i], 0});
    add(std::move(table), symbol, false);
  };
  add_table(library.kernels, kernels);
  add_table(library.host_functions, host_functions);

  ElfSection model = {".data.rel.ro." + prefix, 8, model_size(library), {}, {}, false};
  const auto point = [&](size_t field, const std::string& symbol, bool is_there) {
    if (is_there) model.addresses.push_back({field, symbol, 0});
  };
  point(offsetof(mcc_model_v1, plan), prefix + "_plan", true);
  point(offsetof(mcc_model_v1, kernels), kernels, !library.kernels.empty());
  point(offsetof(mcc_model_v1, weights), weights, has_weights);
  point(offsetof(mcc_model_v1, host_functions), host_functions, !library.host_functions.empty());
  if (!device.empty()) point(offsetof(mcc_model_v1, device), prefix + "_device", true);
  add(std::move(model), library.exported_symbol, true);
  return object;
}

// Functions that several kernels of the table share are named once.
void add_undefined(ElfObject& object, const std::vector<std::string>& functions) {
  for (const std::string& function : functions) {
    bool is_known = false;
    for (const ElfSymbol& symbol : object.symbols)
      is_known |= symbol.name == function;
    if (!is_known) object.symbols.push_back({function, std::nullopt, 0, 0, false});
  }
}

Status write_model_object(const ModelLibrary& library, std::span<const std::byte> plan,
                          const std::string& path) {
  mcc_model_v1 model = {};
  model.struct_size = static_cast<uint32_t>(model_size(library));
  model.abi_version = MCC_ABI_VERSION;
  model.plan_size = plan.size();
  model.kernel_count = library.kernels.size();
  model.weights_size = library.has_weights_file ? 0 : library.weights_size;
  model.host_function_count = library.host_functions.size();

  const std::vector<std::byte> device = library.device ? write_device_code(*library.device) : std::vector<std::byte>();
  model.device_size = device.size();
  ElfObject object = describe_model(library, plan, device);
  object.sections.back().chunks = {{0, std::as_bytes(std::span(&model, 1)).first(model.struct_size)}};
  add_undefined(object, library.kernels);
  add_undefined(object, library.host_functions);
  return write_elf_object(object, path);
}

}  // namespace

Status write_model_library(const ModelLibrary& library, const std::string& output, const LinkFunction& link) {
  const fs::path target(output);
  const fs::path parent = target.has_parent_path() ? target.parent_path() : fs::path(".");
  const TemporaryFolder folder(parent);
  if (folder.error() != 0) return cannot_write(parent.string(), folder.error());

  PlanDesc plan = library.plan;
  plan.weights_size = library.weights_size;
  if (library.has_weights_file) {
    plan.metadata["weights.file"] = target.filename().string() + ".weights";
    plan.metadata["weights.id"] = weights_id(library);
    Status status = write_weights_file(library, plan.metadata["weights.id"], folder.file("weights"));
    if (!status) return status;
  }
  std::vector<std::string> inputs = {folder.file("model.o")};
  Status status = write_model_object(library, write_plan(plan), inputs[0]);
  for (size_t i = 0; i < library.objects.size() && status; ++i) {
    inputs.push_back(folder.file(text("kernel_", i, ".o")));
    status = write_file(inputs.back(), library.objects[i]);
  }
  if (!status) return status;
  inputs.insert(inputs.end(), library.archives.begin(), library.archives.end());
  // Named after the model, not the file: the same model gives the same bytes wherever it is written.
  status = link(inputs, folder.file("library"), library.symbol_prefix + ".so");
  if (!status) return status;

  if (library.has_weights_file &&
      std::rename(folder.file("weights").c_str(), (output + ".weights").c_str()) != 0) {
    return cannot_write(output + ".weights", errno);
  }
  if (std::rename(folder.file("library").c_str(), output.c_str()) != 0) return cannot_write(output, errno);
  return done();
}

}  // namespace mcc::codegen
