#include "tools/temporary_folder.h"

#include <cstdlib>
#include <filesystem>

namespace mcc::tools {

Result<TemporaryFolder> TemporaryFolder::create() {
  std::error_code error;
  std::string path = (std::filesystem::temp_directory_path(error) / "mcc-XXXXXX").string();
  if (error || mkdtemp(path.data()) == nullptr) {
    return Diagnostic{ErrorKind::environment, path, "cannot be made", "TMPDIR names the folder for temporary files"};
  }
  return TemporaryFolder(path);
}

TemporaryFolder& TemporaryFolder::operator=(TemporaryFolder&& other) noexcept {
  std::swap(path_, other.path_);
  return *this;
}

TemporaryFolder::~TemporaryFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace mcc::tools
