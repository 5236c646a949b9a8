#include "codegen/hash.h"

#include <llvm/ADT/StringExtras.h>
#include <llvm/Support/SHA256.h>

#include <fstream>
#include <vector>

namespace mcc::codegen {

std::string sha256(std::string_view bytes) {
  llvm::SHA256 hash;
  hash.update(llvm::StringRef(bytes.data(), bytes.size()));
  return llvm::toHex(hash.final(), /*LowerCase=*/true);
}

Result<std::string> sha256_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  llvm::SHA256 hash;
  std::vector<char> buffer(1 << 20);
  while (file) {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    hash.update(llvm::StringRef(buffer.data(), static_cast<size_t>(file.gcount())));
  }
  if (!file.eof()) return Diagnostic{ErrorKind::bad_input, path, "cannot be read", ""};
  return llvm::toHex(hash.final(), /*LowerCase=*/true);
}

}  // namespace mcc::codegen
