// From kernels, plan and weights to a model library. Needs no LLVM: the linker is passed in.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codegen/device_writer.h"
#include "codegen/elf_object.h"
#include "codegen/plan_writer.h"

namespace mcc::codegen {

struct ModelLibrary {
  PlanDesc plan;                               // weights_size is taken from below
  std::vector<std::string> kernels;            // symbol of kernel i, hidden in one of the objects
  std::vector<std::string> host_functions;     // the same for host functions
  std::optional<DeviceDesc> device;            // of a model for GPUs: what its device nodes launch
  std::vector<std::span<const char>> objects;  // ELF relocatables
  std::vector<std::string> archives;           // paths; linked behind the objects, for what those need
  // Offsets are multiples of MCC_BUFFER_ALIGNMENT; the bytes may lie in a mapped file.
  std::vector<DataChunk> weights;
  uint64_t weights_size = 0;
  // The weights go into OUTPUT.weights beside the library, which may only move together.
  bool has_weights_file = false;
  // Begins the names of the symbols of plan, weights and tables: two models with different prefixes
  // link into one program.
  std::string symbol_prefix = "mcc_model";
  // The one symbol to be seen from outside.
  std::string exported_symbol = MCC_MODEL_SYMBOL;
};

// Object files -> shared library; the signature of link_shared.
using LinkFunction = std::function<Status(const std::vector<std::string>& objects, const std::string& output,
                                          const std::string& soname)>;

// Writes OUTPUT in one step: it is the old file or the whole new one. Intermediate files are in its
// folder meanwhile. Same input, same bytes.
Status write_model_library(const ModelLibrary& library, const std::string& output, const LinkFunction& link);

}  // namespace mcc::codegen
