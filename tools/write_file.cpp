#include "tools/write_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "support/text.h"

namespace mcc::tools {

Status write_file(const std::string& path, std::initializer_list<std::string_view> pieces) {
  auto failed = [&](int error) {
    return Diagnostic{ErrorKind::environment, path, text("cannot be written: ", std::strerror(error)), ""};
  };
  std::FILE* file = std::fopen(path.c_str(), "wbe");
  if (file == nullptr) return failed(errno);
  int error = 0;
  for (const std::string_view piece : pieces)
    if (error == 0 && std::fwrite(piece.data(), 1, piece.size(), file) != piece.size()) error = errno;
  if (std::fclose(file) != 0 && error == 0) error = errno;
  if (error == 0) return done();
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)) ::unlink(path.c_str());
  return failed(error);
}

}  // namespace mcc::tools
