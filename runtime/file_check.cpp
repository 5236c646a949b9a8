#include "runtime/file_check.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace mcc::runtime {

namespace {

#if defined(__x86_64__)
constexpr uint16_t machine = EM_X86_64;
#elif defined(__aarch64__)
constexpr uint16_t machine = EM_AARCH64;
#else
constexpr uint16_t machine = EM_NONE;
#endif

bool read_at(int file, void* out, size_t size, uint64_t offset) {
  return pread(file, out, size, static_cast<off_t>(offset)) == static_cast<ssize_t>(size);
}

mcc_status check_segments(int file, const Elf64_Ehdr& header, uint64_t size, const char* path,
                          mcc_error* error) {
  bool has_dynamic = false;
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    const uint64_t place = header.e_phoff + i * sizeof segment;
    if (header.e_phoff > size || !read_at(file, &segment, sizeof segment, place)) {
      return fail(error, MCC_BAD_MODEL, "%.400s is cut off or damaged: its segment table", path);
    }
    if (!is_within(segment.p_offset, segment.p_filesz, size)) {
      return fail(error, MCC_BAD_MODEL, "%.400s is cut off: it has %llu bytes, and a segment ends after %llu",
                  path, static_cast<unsigned long long>(size),
                  static_cast<unsigned long long>(segment.p_offset + segment.p_filesz));
    }
    has_dynamic |= segment.p_type == PT_DYNAMIC;
  }
  if (!has_dynamic) return fail(error, MCC_BAD_MODEL, "%.400s is not a shared library", path);
  return MCC_OK;
}

mcc_status check_open_file(int file, const char* path, mcc_error* error) {
  struct stat status;
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    return fail(error, MCC_BAD_MODEL, "%.400s is not a file", path);
  }
  const auto size = static_cast<uint64_t>(status.st_size);
  Elf64_Ehdr header;
  if (!read_at(file, &header, sizeof header, 0) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
      header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB ||
      header.e_type != ET_DYN || header.e_phentsize != sizeof(Elf64_Phdr)) {
    return fail(error, MCC_BAD_MODEL, "%.400s is not a shared library", path);
  }
  if (header.e_machine != machine) {
    return fail(error, MCC_NOT_HERE, "%.400s was compiled for another kind of machine", path);
  }
  return check_segments(file, header, size, path, error);
}

}  // namespace

mcc_status check_library_file(const char* path, mcc_error* error) {
  // Without O_NONBLOCK, opening a pipe would wait for its other end.
  const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return fail(error, MCC_BAD_MODEL, "cannot open %.400s: %s", path, std::strerror(errno));
  const mcc_status status = check_open_file(file, path, error);
  close(file);
  return status;
}

}  // namespace mcc::runtime
