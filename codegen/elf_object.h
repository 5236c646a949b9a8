// Writes relocatable ELF files for x86-64 that hold data: sections from spans, symbols, and 64-bit
// addresses of symbols. Large contents go from where they are straight to the file. Needs no LLVM.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "support/result.h"

namespace mcc::codegen {

// Bytes at an offset of a section; what no chunk covers is zero.
struct DataChunk {
  uint64_t offset = 0;
  std::span<const std::byte> bytes;
};

// The address of `symbol` + addend, 8 bytes at `offset` of a section.
struct ElfAddress {
  uint64_t offset = 0;
  std::string symbol;
  int64_t addend = 0;
};

struct ElfSection {
  std::string name;
  uint64_t alignment = 8;
  uint64_t size = 0;
  std::vector<DataChunk> chunks;
  std::vector<ElfAddress> addresses;  // a section with addresses is writable for the dynamic linker
  bool is_large = false;              // may be more than 2 GiB away from code
};

struct ElfSymbol {
  std::string name;
  std::optional<size_t> section;  // none: defined elsewhere
  uint64_t offset = 0;
  uint64_t size = 0;
  bool is_exported = false;  // else hidden: visible to the objects that are linked with it
};

struct ElfObject {
  std::vector<ElfSection> sections;
  std::vector<ElfSymbol> symbols;
};

// A plain file of `size` bytes.
Status write_chunks(std::span<const DataChunk> chunks, uint64_t size, const std::string& path);

Status write_elf_object(const ElfObject& object, const std::string& path);

}  // namespace mcc::codegen
