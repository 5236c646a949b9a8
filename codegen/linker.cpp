#include "codegen/linker.h"

#include <lld/Common/Driver.h>
#include <llvm/Support/raw_ostream.h>

#include <mutex>

LLD_HAS_DRIVER(elf)

namespace mcc::codegen {

Status link_shared(const std::vector<std::string>& objects, const std::string& output, const std::string& soname) {
  std::vector<const char*> args{"ld.lld",     "-shared",  "--hash-style=gnu", "-z", "now",  "-z",
                                "relro",      "-z",       "noexecstack",      "-z", "defs", "--gc-sections",
                                "--build-id=none", "--threads=1", "-soname",  soname.c_str(), "-o", output.c_str()};
  for (const std::string& object : objects) args.push_back(object.c_str());
  std::string out_text, error_text;
  llvm::raw_string_ostream out(out_text), error(error_text);
  const lld::DriverDef drivers[] = {{lld::Gnu, &lld::elf::link}};
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  lld::Result result = lld::lldMain(args, out, error, drivers);
  if (result.retCode == 0) return done();
  return Diagnostic{ErrorKind::environment, output, text("linking failed: ", error.str()),
                    "is there room on the disk, and may the folder be written?"};
}

}  // namespace mcc::codegen
