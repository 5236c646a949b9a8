#include "codegen/linker.h"

#include <lld/Common/Driver.h>
#include <llvm/ObjCopy/ConfigManager.h>
#include <llvm/ObjCopy/ObjCopy.h>
#include <llvm/Object/ArchiveWriter.h>
#include <llvm/Object/Binary.h>
#include <llvm/Support/FileUtilities.h>
#include <llvm/Support/raw_ostream.h>

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <mutex>

#include "codegen/machine.h"

LLD_HAS_DRIVER(elf)

namespace mcc::codegen {

namespace {

// LLVM writes to a file beside the output first, whose name it makes by putting digits in place of all % of its path: those of folders, too.
// Such a folder is called by a descriptor instead.
class OutputPath {
 public:
  explicit OutputPath(const std::string& path) : path_(path) {
    const std::filesystem::path folder = std::filesystem::path(path).parent_path();
    if (folder.string().find('%') == std::string::npos) return;
    folder_ = open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder_ >= 0)
      path_ = text("/proc/self/fd/", folder_, "/", std::filesystem::path(path).filename().string());
  }
  OutputPath(const OutputPath&) = delete;
  OutputPath& operator=(const OutputPath&) = delete;
  ~OutputPath() {
    if (folder_ >= 0) close(folder_);
  }
  const std::string& get() const { return path_; }

 private:
  std::string path_;
  int folder_ = -1;
};

Status failed(const std::string& output, const std::string& what, const std::string& why) {
  return Diagnostic{ErrorKind::environment, output, text(what, " failed: ", why),
                    "is there room on the disk, and may the folder be written?"};
}

Status run_lld(std::vector<std::string> options, const std::vector<std::string>& objects, const std::string& output) {
  std::vector<const char*> args{"ld.lld"};
  const OutputPath path(output);
  options.insert(options.end(), {"--threads=1", "-o", path.get()});
  options.insert(options.end(), objects.begin(), objects.end());
  for (const std::string& option : options) args.push_back(option.c_str());
  std::string out_text, error_text;
  llvm::raw_string_ostream out(out_text), error(error_text);
  const lld::DriverDef drivers[] = {{lld::Gnu, &lld::elf::link}};
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  lld::Result result = lld::lldMain(args, out, error, drivers);
  set_llvm_options();
  if (result.retCode == 0) return done();
  return failed(output, "linking", error.str());
}

// Makes all symbols but one local.
llvm::Error keep_global(const std::string& input, const std::string& output, const std::string& symbol) {
  llvm::Expected<llvm::object::OwningBinary<llvm::object::Binary>> binary = llvm::object::createBinary(input);
  if (!binary) return binary.takeError();
  llvm::objcopy::ConfigManager config;
  llvm::Expected<llvm::objcopy::NameOrPattern> name = llvm::objcopy::NameOrPattern::create(
      symbol, llvm::objcopy::MatchStyle::Literal, [](llvm::Error error) { return error; });
  if (!name) return name.takeError();
  if (llvm::Error error = config.Common.SymbolsToKeepGlobal.addMatcher(std::move(name))) return error;
  config.Common.InputFilename = input;
  config.Common.OutputFilename = output;
  const OutputPath path(output);
  return llvm::writeToOutput(path.get(), [&](llvm::raw_ostream& out) {
    return llvm::objcopy::executeObjcopyOnBinary(config, *binary->getBinary(), out);
  });
}

}  // namespace

Status link_shared(const std::vector<std::string>& objects, const std::string& output, const std::string& soname) {
  return run_lld({"-shared", "--hash-style=gnu", "-z", "now", "-z", "relro", "-z", "noexecstack", "-z", "defs", "--gc-sections",
                  "--build-id=none", "-soname", soname},
                 objects, output);
}

Status link_object(const std::vector<std::string>& objects, const std::string& output, const std::string& exported) {
  const std::string merged = output + ".merged";
  Status status = run_lld({"-r", "--build-id=none"}, objects, merged);
  if (!status.ok()) return status;
  llvm::Error error = keep_global(merged, output, exported);
  std::remove(merged.c_str());
  if (error) return failed(output, "writing the object file", llvm::toString(std::move(error)));
  return done();
}

Status link_archive(const std::vector<std::string>& objects, const std::string& output, const std::string& exported,
                    const std::string& member) {
  const std::string object = output + ".member";
  Status status = link_object(objects, object, exported);
  if (!status.ok()) return status;
  llvm::Error error = [&]() -> llvm::Error {
    llvm::Expected<llvm::NewArchiveMember> one = llvm::NewArchiveMember::getFile(object, /*Deterministic=*/true);
    if (!one) return one.takeError();
    one->MemberName = member;
    std::vector<llvm::NewArchiveMember> members;
    members.push_back(std::move(*one));
    const OutputPath path(output);
    return llvm::writeArchive(path.get(), members, llvm::SymtabWritingMode::NormalSymtab,
                              llvm::object::Archive::K_GNU,
                              /*Deterministic=*/true, /*Thin=*/false);
  }();
  std::remove(object.c_str());
  if (error) return failed(output, "writing the static library", llvm::toString(std::move(error)));
  return done();
}

}  // namespace mcc::codegen
