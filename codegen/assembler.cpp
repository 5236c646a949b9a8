#include <dlfcn.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "codegen/device.h"
#include "support/check.h"
#include "support/text.h"

extern char** environ;

namespace mcc::codegen {

namespace {

namespace fs = std::filesystem;

// Toolkits drop old architectures: CUDA 13 assembles from sm_75 on. For what is older this one gives the figures.
constexpr const char* kStandIn = "sm_75";

bool may_be_dropped(const std::string& arch) { return tensor::sm_of(arch) < tensor::sm_of(kStandIn); }

// The assembler's name stands in the sentence: where the error is, is the kernel's node to say.
Diagnostic failed(const std::string& assembler, const std::string& what) {
  return {ErrorKind::environment, "", text(assembler, " ", what), kWithoutCubin};
}

Diagnostic refused(const std::string& by, const std::string& arch, std::string log) {
  while (!log.empty() && (log.back() == '\n' || log.back() == '\r'))
    log.pop_back();
  return failed(by, text("refuses PTX for ", arch, ": ", log.substr(0, 2000)));
}

// ---- nvJitLink ----

class NvJitLink : public Assembler {
 public:
  static std::unique_ptr<Assembler> load(const std::string& path) {
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return nullptr;
    auto linker = std::unique_ptr<NvJitLink>(new NvJitLink);
    bool is_whole = true;
    auto look_up = [&](auto* field, const char* name) {
      *field = reinterpret_cast<std::remove_pointer_t<decltype(field)>>(dlsym(library, name));
      is_whole &= *field != nullptr;
    };
    look_up(&linker->version_, "nvJitLinkVersion");
    look_up(&linker->create_, "nvJitLinkCreate");
    look_up(&linker->destroy_, "nvJitLinkDestroy");
    look_up(&linker->add_, "nvJitLinkAddData");
    look_up(&linker->complete_, "nvJitLinkComplete");
    look_up(&linker->cubin_size_, "nvJitLinkGetLinkedCubinSize");
    look_up(&linker->cubin_, "nvJitLinkGetLinkedCubin");
    look_up(&linker->error_size_, "nvJitLinkGetErrorLogSize");
    look_up(&linker->error_, "nvJitLinkGetErrorLog");
    look_up(&linker->info_size_, "nvJitLinkGetInfoLogSize");
    look_up(&linker->info_, "nvJitLinkGetInfoLog");
    if (!is_whole) return nullptr;
    unsigned major = 0, minor = 0;
    linker->version_(&major, &minor);
    linker->name_ = text("nvJitLink ", major, ".", minor, " (", path, ")");
    linker->library_ = path;
    return linker;
  }

 protected:
  using Handle = struct nvJitLink*;
  static constexpr int kPtx = 2;          // nvJitLinkInputType
  static constexpr int kUnknownArch = 4;  // and all other options that are not known

  Result<Cubin> run(const std::string& ptx, const std::string& arch, bool* is_unknown) const override {
    const std::string arch_option = "-arch=" + arch;
    const char* options[] = {arch_option.c_str(), "-verbose"};
    Handle handle = nullptr;
    int code = create_(&handle, 2, options);
    if (code != 0) {
      *is_unknown = true;
      if (handle) destroy_(&handle);
      return refused(name_, arch, text("error ", code));
    }
    code = add_(handle, kPtx, ptx.c_str(), ptx.size() + 1, "kernels");
    if (code == 0) code = complete_(handle);
    Cubin cubin;
    cubin.arch = arch;
    size_t size = 0;
    if (code == 0) code = cubin_size_(handle, &size);
    if (code == 0) {
      cubin.bytes.resize(size);
      code = cubin_(handle, cubin.bytes.data());
    }
    const std::string log = code == 0 ? read(handle, info_size_, info_) : read(handle, error_size_, error_);
    destroy_(&handle);
    if (code != 0) {
      *is_unknown = log.find("arch") != std::string::npos;
      return refused(name_, arch, log.empty() ? text("error ", code) : log);
    }
    cubin.entries = parse_assembler_log(log);
    cubin.losses = performance_losses(log);
    return cubin;
  }

  static std::string read(Handle handle, int (*size_of)(Handle, size_t*), int (*get)(Handle, char*)) {
    size_t size = 0;
    if (size_of(handle, &size) != 0 || size == 0) return "";
    std::string log(size, 0);
    if (get(handle, log.data()) != 0) return "";
    return log.c_str();  // ends at its zero
  }

 private:
  int (*version_)(unsigned*, unsigned*) = nullptr;
  int (*create_)(Handle*, uint32_t, const char**) = nullptr;
  int (*destroy_)(Handle*) = nullptr;
  int (*add_)(Handle, int, const void*, size_t, const char*) = nullptr;
  int (*complete_)(Handle) = nullptr;
  int (*cubin_size_)(Handle, size_t*) = nullptr;
  int (*cubin_)(Handle, void*) = nullptr;
  int (*error_size_)(Handle, size_t*) = nullptr;
  int (*error_)(Handle, char*) = nullptr;
  int (*info_size_)(Handle, size_t*) = nullptr;
  int (*info_)(Handle, char*) = nullptr;
};

// ---- ptxas ----

struct Run {
  int exit_code = -1;
  int signal = 0;  // that ended it
  int error = 0;   // errno, where it could not be started
  bool is_late = false;  // and was killed
  std::string log;
};

// The status as of waitpid; empty when the child still runs after so many seconds.
std::optional<int> wait_for(pid_t child, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  int status = 0;
  while (true) {
    const pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) return status;
    if (ended < 0 && errno != EINTR) return std::nullopt;
    if (Clock::now() >= end) return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// The program's own output goes to a file in `folder`.
Run run_program(const std::vector<std::string>& args, const std::string& folder, double seconds) {
  const std::string log_path = folder + "/log";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, log_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  std::vector<char*> argv;
  for (const std::string& arg : args)
    argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  Run run;
  run.error = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (run.error != 0) return run;
  const std::optional<int> status = wait_for(child, seconds);
  if (!status) {
    run.is_late = true;
    ::kill(child, SIGKILL);
    int ignored = 0;
    waitpid(child, &ignored, 0);
    return run;
  }
  if (WIFEXITED(*status)) run.exit_code = WEXITSTATUS(*status);
  if (WIFSIGNALED(*status)) run.signal = WTERMSIG(*status);
  std::ifstream in(log_path, std::ios::binary);
  std::stringstream log;
  log << in.rdbuf();
  run.log = log.str();
  return run;
}

class Folder {
 public:
  Folder() {
    std::error_code error;
    std::string pattern = (fs::temp_directory_path(error) / "mcc-ptxas-XXXXXX").string();
    if (!error && mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class Ptxas : public Assembler {
 public:
  static std::unique_ptr<Assembler> load(const std::string& path, const AssemblerLimits& limits) {
    if (access(path.c_str(), X_OK) != 0) return nullptr;
    Folder folder;
    if (folder.path().empty()) return nullptr;
    Run run = run_program({path, "--version"}, folder.path(), limits.version_seconds);
    if (run.exit_code != 0) return nullptr;
    const size_t at = run.log.find("release ");
    const std::string version =
        at == std::string::npos ? "" : run.log.substr(at + 8, run.log.find(',', at) - at - 8);
    auto ptxas = std::unique_ptr<Ptxas>(new Ptxas);
    ptxas->path_ = path;
    ptxas->name_ = text("ptxas ", version, " (", path, ")");
    ptxas->longest_ = limits.kernel_seconds;
    return ptxas;
  }

 protected:
  Result<Cubin> run(const std::string& ptx, const std::string& arch, bool* is_unknown) const override {
    Folder folder;
    if (folder.path().empty()) return failed(name_, "has no place for its files: no temporary folder can be made");
    const std::string input = folder.path() + "/kernels.ptx", output = folder.path() + "/kernels.cubin";
    std::ofstream file(input, std::ios::binary);
    file << ptx;
    file.close();
    if (!file) return failed(name_, text("has no place for its files: ", input, " cannot be written"));
    Run run = run_program({path_, "-v", "-arch=" + arch, "-o", output, input}, folder.path(), longest_);
    if (run.error != 0) return failed(name_, text("cannot be started: ", std::strerror(run.error)));
    if (run.is_late) return failed(name_, text("took more than ", longest_, " s for PTX for ", arch, ", and was ended"));
    if (run.signal != 0) return failed(name_, text("crashed (signal ", run.signal, ") on PTX for ", arch));
    if (run.exit_code != 0) {
      *is_unknown = run.log.find("gpu-name") != std::string::npos;
      if (!run.log.empty()) return refused(name_, arch, run.log);
      return failed(name_, text("ended with exit code ", run.exit_code, " on PTX for ", arch, ", and wrote nothing; is there room in ",
                                folder.path(), "?"));
    }
    std::ifstream in(output, std::ios::binary);
    Cubin cubin;
    cubin.arch = arch;
    cubin.bytes.assign(std::istreambuf_iterator<char>(in), {});
    if (cubin.bytes.empty()) return failed(name_, text("wrote no machine code for ", arch));
    cubin.entries = parse_assembler_log(run.log);
    cubin.losses = performance_losses(run.log);
    return cubin;
  }

 private:
  std::string path_;
  double longest_ = 0;
};

// The number in front of `what` in the line; 0 when it is not there.
int64_t number_before(std::string_view line, std::string_view what) {
  const size_t at = line.find(what);
  if (at == std::string_view::npos || at == 0) return 0;
  size_t begin = at;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9')
    --begin;
  int64_t value = 0;
  std::from_chars(line.data() + begin, line.data() + at, value);
  return value;
}

}  // namespace

std::vector<std::string> performance_losses(const std::string& log) {
  std::istringstream lines(log);
  std::vector<std::string> out;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("Potential Performance Loss") != std::string::npos) out.push_back(line);
  }
  return out;
}

std::vector<EntryFigures> parse_assembler_log(const std::string& log) {
  std::vector<EntryFigures> entries;
  std::istringstream lines(log);
  constexpr std::string_view kEntry = "Compiling entry function '", kFunction = "Function properties for ";
  // Figures of functions that an entry calls stand between its own.
  bool is_of_entry = false;
  for (std::string line; std::getline(lines, line);) {
    if (const size_t at = line.find(kEntry); at != std::string::npos) {
      EntryFigures figures;
      figures.entry =
          line.substr(at + kEntry.size(), line.find('\'', at + kEntry.size()) - at - kEntry.size());
      entries.push_back(figures);
      is_of_entry = true;
      continue;
    }
    if (entries.empty()) continue;
    EntryFigures& f = entries.back();
    if (const size_t at = line.find(kFunction); at != std::string::npos) {
      std::string name = line.substr(at + kFunction.size());
      is_of_entry = name.substr(0, name.find_last_not_of(" \r'") + 1).ends_with(f.entry);
    } else if (line.find("bytes stack frame") != std::string::npos && is_of_entry) {
      f.stack_bytes = number_before(line, " bytes stack frame");
      f.spill_stores = number_before(line, " bytes spill stores");
      f.spill_loads = number_before(line, " bytes spill loads");
    } else if (line.find("Used ") != std::string::npos && line.find(" registers") != std::string::npos) {
      f.registers = static_cast<int>(number_before(line, " registers"));
      f.shared_bytes = number_before(line, " bytes smem");
    }
  }
  return entries;
}

namespace {

int64_t spills(const Cubin& cubin) {
  int64_t bytes = 0;
  for (const EntryFigures& f : cubin.entries)
    bytes += f.spill_stores + f.spill_loads;
  return bytes;
}

// The PTX where entries that spill ask for no more than one block of a multiprocessor at a time.
std::string with_one_block(std::string ptx, const Cubin& cubin) {
  for (const EntryFigures& f : cubin.entries) {
    if (f.spill_stores + f.spill_loads == 0) continue;
    const size_t entry = ptx.find(text(".entry ", f.entry, "("));
    if (entry == std::string::npos) continue;
    const size_t threads = ptx.find("\n.reqntid ", entry);
    if (threads < ptx.find("\n{", entry)) ptx.insert(ptx.find('\n', threads + 1) + 1, ".minnctapersm 1\n");
  }
  return ptx;
}

}  // namespace

Result<Cubin> Assembler::assemble(const std::string& ptx, const std::string& arch) const {
  bool is_unknown = false;
  std::string for_arch = arch;
  Result<Cubin> cubin = run(ptx, for_arch, &is_unknown);
  const bool is_dropped = !cubin.ok() && is_unknown && may_be_dropped(arch);
  if (is_dropped) {
    for_arch = kStandIn;
    cubin = run(ptx, for_arch, &is_unknown);
  }
  // ptxas spills, now and then, for more blocks to have room beside each other than these kernels are made for.
  if (cubin.ok() && spills(*cubin) > 0) {
    if (const std::string roomy = with_one_block(ptx, *cubin); roomy != ptx) {
      Result<Cubin> other = run(roomy, for_arch, &is_unknown);
      if (other.ok() && spills(*other) < spills(*cubin)) cubin = std::move(other);
    }
  }
  if (cubin.ok() && is_dropped) cubin->bytes.clear();
  return cubin;
}

std::unique_ptr<Assembler> Assembler::open(const std::string& library) { return NvJitLink::load(library); }

namespace {

constexpr const char* kLibraries[] = {"libnvJitLink.so.13", "libnvJitLink.so.12", "libnvJitLink.so"};

std::unique_ptr<Assembler> program_of(const std::vector<std::string>& folders, const char* sub, const AssemblerLimits& limits) {
  for (const std::string& folder : folders)
    if (auto found = Ptxas::load(folder + sub, limits)) return found;
  return nullptr;
}

std::unique_ptr<Assembler> library_of(const std::vector<std::string>& folders) {
  for (const std::string& folder : folders) {
    for (const char* library : kLibraries) {
      for (const char* sub : {"/lib64/", "/targets/x86_64-linux/lib/", "/lib/"})
        if (auto found = NvJitLink::load(folder + sub + library)) return found;
    }
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Assembler> Assembler::find_in(const std::vector<std::string>& cuda_folders, const AssemblerLimits& limits) {
  if (auto found = program_of(cuda_folders, "/bin/ptxas", limits)) return found;
  return library_of(cuda_folders);
}

std::unique_ptr<Assembler> Assembler::find(const std::vector<std::string>& cuda_folders,
                                           const std::vector<std::string>& program_folders, const AssemblerLimits& limits) {
  const std::vector<std::string> usual_folders = {"/usr/local/cuda", "/opt/cuda"};
  // Who names a CUDA means that one: a driver that is older than an assembler refuses its machine code.
  if (auto found = find_in(cuda_folders, limits)) return found;
  if (auto found = program_of(program_folders, "/ptxas", limits)) return found;
  if (auto found = program_of(usual_folders, "/bin/ptxas", limits)) return found;
  for (const char* library : kLibraries)
    if (auto found = NvJitLink::load(library)) return found;
  return library_of(usual_folders);
}

}  // namespace mcc::codegen
