#include "codegen/elf_object.h"

#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "support/check.h"

// Newer than some elf.h: the section does not count for the small code model.
#ifndef SHF_X86_64_LARGE
#define SHF_X86_64_LARGE 0x10000000
#endif

namespace mcc::codegen {

namespace {

uint64_t align_up(uint64_t offset, uint64_t alignment) {
  return (offset + alignment - 1) / alignment * alignment;
}

// A file that is written at offsets. Remembers the first error.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path) : path_(path) {
    file_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (file_ < 0) error_ = errno;
  }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile() {
    if (file_ >= 0) close(file_);
  }

  void write(uint64_t offset, const void* data, uint64_t size) {
    const char* bytes = static_cast<const char*>(data);
    while (size != 0 && error_ == 0) {
      constexpr uint64_t most = uint64_t{1} << 30;
      const ssize_t wrote = pwrite(file_, bytes, std::min(size, most), static_cast<off_t>(offset));
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote <= 0) {
        error_ = wrote == 0 ? EIO : errno;
        return;
      }
      bytes += wrote;
      offset += static_cast<uint64_t>(wrote);
      size -= static_cast<uint64_t>(wrote);
    }
  }

  void resize(uint64_t size) {
    if (error_ == 0 && ftruncate(file_, static_cast<off_t>(size)) != 0) error_ = errno;
  }

  Status finish() {
    if (file_ >= 0 && close(file_) != 0 && error_ == 0) error_ = errno;
    file_ = -1;
    if (error_ == 0) return done();
    return Diagnostic{ErrorKind::environment, path_, text("cannot write: ", std::strerror(error_)), ""};
  }

 private:
  std::string path_;
  int file_ = -1;
  int error_ = 0;
};

// A string table: offset 0 is the empty string.
class StringTable {
 public:
  uint32_t add(const std::string& string) {
    const size_t offset = bytes_.size();
    bytes_ += string;
    bytes_ += '\0';
    return static_cast<uint32_t>(offset);
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_ = std::string(1, '\0');
};

// Sections of the file: null, the data sections, one .rela for each with addresses, .symtab,
// .strtab, .shstrtab, .note.GNU-stack (so that no linker makes the stack executable).
class ElfWriter {
 public:
  ElfWriter(const ElfObject& object, const std::string& path) : object_(object), file_(path) {}

  Status write() {
    headers_.push_back({});
    place_ = sizeof(Elf64_Ehdr);
    for (const ElfSection& section : object_.sections)
      write_data(section);
    const auto symbol_table = static_cast<uint32_t>(
        1 + object_.sections.size() +
        static_cast<size_t>(std::count_if(object_.sections.begin(), object_.sections.end(),
                                          [](const auto& s) { return !s.addresses.empty(); })));
    number_symbols();
    for (size_t i = 0; i < object_.sections.size(); ++i) {
      if (!object_.sections[i].addresses.empty()) write_addresses(i, symbol_table);
    }
    MCC_CHECK(headers_.size() == symbol_table);
    write_symbols();
    write_section_names();
    write_headers();
    return file_.finish();
  }

 private:
  Elf64_Shdr& add_header(const std::string& name, uint32_t type, uint64_t flags, uint64_t alignment,
                         uint64_t size) {
    place_ = align_up(place_, alignment);
    Elf64_Shdr header = {};
    header.sh_name = section_names_.add(name);
    header.sh_type = type;
    header.sh_flags = flags;
    header.sh_offset = place_;
    header.sh_size = size;
    header.sh_addralign = alignment;
    headers_.push_back(header);
    place_ += size;
    return headers_.back();
  }

  void write_data(const ElfSection& section) {
    uint64_t flags = SHF_ALLOC;
    if (!section.addresses.empty()) flags |= SHF_WRITE;
    if (section.is_large) flags |= SHF_X86_64_LARGE;
    const uint64_t start =
        add_header(section.name, SHT_PROGBITS, flags, section.alignment, section.size).sh_offset;
    for (const DataChunk& chunk : section.chunks) {
      MCC_CHECK(chunk.offset <= section.size && chunk.bytes.size() <= section.size - chunk.offset,
                "a chunk of ", chunk.bytes.size(), " bytes at ", chunk.offset, " in section ", section.name);
      file_.write(start + chunk.offset, chunk.bytes.data(), chunk.bytes.size());
    }
  }

  void number_symbols() {
    for (size_t i = 0; i < object_.symbols.size(); ++i) {
      const bool is_new = symbol_numbers_.emplace(object_.symbols[i].name, i + 1).second;
      MCC_CHECK(is_new, "symbol ", object_.symbols[i].name, " twice");
    }
  }

  void write_addresses(size_t section, uint32_t symbol_table) {
    std::vector<Elf64_Rela> records;
    for (const ElfAddress& address : object_.sections[section].addresses) {
      const auto symbol = symbol_numbers_.find(address.symbol);
      MCC_CHECK(symbol != symbol_numbers_.end(), "no symbol ", address.symbol);
      records.push_back({address.offset, ELF64_R_INFO(symbol->second, R_X86_64_64), address.addend});
    }
    const uint64_t size = records.size() * sizeof(Elf64_Rela);
    Elf64_Shdr& header =
        add_header(".rela" + object_.sections[section].name, SHT_RELA, SHF_INFO_LINK, 8, size);
    header.sh_link = symbol_table;
    header.sh_info = static_cast<uint32_t>(section + 1);
    header.sh_entsize = sizeof(Elf64_Rela);
    file_.write(header.sh_offset, records.data(), size);
  }

  void write_symbols() {
    StringTable names;
    std::vector<Elf64_Sym> records(1);
    for (const ElfSymbol& symbol : object_.symbols) {
      Elf64_Sym record = {};
      record.st_name = names.add(symbol.name);
      record.st_info = ELF64_ST_INFO(STB_GLOBAL, symbol.section ? STT_OBJECT : STT_NOTYPE);
      record.st_other = symbol.is_exported ? STV_DEFAULT : STV_HIDDEN;
      record.st_shndx = symbol.section ? static_cast<uint16_t>(*symbol.section + 1) : uint16_t{SHN_UNDEF};
      record.st_value = symbol.offset;
      record.st_size = symbol.size;
      records.push_back(record);
    }
    const uint64_t size = records.size() * sizeof(Elf64_Sym);
    Elf64_Shdr& header = add_header(".symtab", SHT_SYMTAB, 0, 8, size);
    header.sh_link = static_cast<uint32_t>(headers_.size());  // .strtab, which comes next
    header.sh_info = 1;                                       // the first global symbol
    header.sh_entsize = sizeof(Elf64_Sym);
    file_.write(header.sh_offset, records.data(), size);
    const uint64_t place = add_header(".strtab", SHT_STRTAB, 0, 1, names.bytes().size()).sh_offset;
    file_.write(place, names.bytes().data(), names.bytes().size());
  }

  void write_section_names() {
    add_header(".note.GNU-stack", SHT_PROGBITS, 0, 1, 0);
    Elf64_Shdr& header = add_header(".shstrtab", SHT_STRTAB, 0, 1, 0);
    header.sh_size = section_names_.bytes().size();
    place_ += header.sh_size;
    file_.write(header.sh_offset, section_names_.bytes().data(), header.sh_size);
  }

  void write_headers() {
    place_ = align_up(place_, 8);
    const uint64_t size = headers_.size() * sizeof(Elf64_Shdr);
    Elf64_Ehdr header = {};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = ELFDATA2LSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_REL;
    header.e_machine = EM_X86_64;
    header.e_version = EV_CURRENT;
    header.e_shoff = place_;
    header.e_ehsize = sizeof header;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = static_cast<uint16_t>(headers_.size());
    header.e_shstrndx = static_cast<uint16_t>(headers_.size() - 1);
    file_.resize(place_ + size);
    file_.write(place_, headers_.data(), size);
    file_.write(0, &header, sizeof header);
  }

  const ElfObject& object_;
  OutputFile file_;
  uint64_t place_ = 0;
  std::vector<Elf64_Shdr> headers_;
  StringTable section_names_;
  std::map<std::string, uint64_t> symbol_numbers_;
};

}  // namespace

Status write_chunks(std::span<const DataChunk> chunks, uint64_t size, const std::string& path) {
  OutputFile file(path);
  file.resize(size);
  for (const DataChunk& chunk : chunks) {
    MCC_CHECK(chunk.offset <= size && chunk.bytes.size() <= size - chunk.offset);
    file.write(chunk.offset, chunk.bytes.data(), chunk.bytes.size());
  }
  return file.finish();
}

Status write_elf_object(const ElfObject& object, const std::string& path) {
  return ElfWriter(object, path).write();
}

}  // namespace mcc::codegen
