// A file as memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "support/result.h"

namespace mcc::frontend {

// A read-only private mapping of a regular file. It stays as long as the object does.
class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  // Part of bytes() will not be read again soon: its pages need not stay in memory.
  void release(std::span<const std::byte> part) const;

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::span<const std::byte> bytes_;
};

}  // namespace mcc::frontend
