// The hash of OpenSSL's that is one function and a table. The interface that is not deprecated would bring in several
// megabytes of every other algorithm.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "frontend/import.h"

namespace mcc::frontend {

// Read, not mapped: the pages of a mapped file would count as this program's memory.
Result<std::string> hash_file(const std::string& path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file)
    return Diagnostic{ErrorKind::bad_input, path, text("cannot be read: ", std::strerror(errno)), ""};
  SHA256_CTX state;
  SHA256_Init(&state);
  std::vector<unsigned char> buffer(size_t{1} << 20);
  for (size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), file.get())) > 0;)
    SHA256_Update(&state, buffer.data(), n);
  if (std::ferror(file.get())) return Diagnostic{ErrorKind::bad_input, path, "cannot be read to its end", ""};
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256_Final(digest, &state);
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (unsigned char byte : digest)
    out += {kHex[byte >> 4], kHex[byte & 15]};
  return out;
}

}  // namespace mcc::frontend
