// The hash of OpenSSL's that is one function and a table. The interface that is not deprecated would bring in several
// megabytes of every other algorithm.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

#include "frontend/import.h"
#include "frontend/mapped_file.h"

namespace mcc::frontend {

Result<std::string> hash_file(const std::string& path) {
  Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(path);
  if (!file.ok()) return file.errors();
  SHA256_CTX state;
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256_Init(&state);
  SHA256_Update(&state, (*file)->bytes().data(), (*file)->bytes().size());
  SHA256_Final(digest, &state);
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (unsigned char byte : digest)
    out += {kHex[byte >> 4], kHex[byte & 15]};
  return out;
}

}  // namespace mcc::frontend
