#include "golden_set.h"

#include <zlib.h>

#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "codegen/codegen.h"
#include "support/text.h"
#include "tensor/text.h"
#include "tuner/log.h"

namespace mcc::golden {

using namespace tuner;

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Decompresses to a file of its own that goes away with this; plain files are copied.
class Unpacked {
 public:
  static Result<std::unique_ptr<Unpacked>> create(const std::string& path) {
    auto unpacked = std::unique_ptr<Unpacked>(new Unpacked);
    int fd = ::mkstemp(unpacked->path_.data());
    std::FILE* out = fd < 0 ? nullptr : ::fdopen(fd, "w");
    gzFile in = ::gzopen(path.c_str(), "rb");
    bool ok = out != nullptr && in != nullptr;
    std::vector<char> buffer(size_t{1} << 18);
    for (int got = 1; ok && got > 0;) {
      got = ::gzread(in, buffer.data(), static_cast<unsigned>(buffer.size()));
      ok = got >= 0 &&
           std::fwrite(buffer.data(), 1, static_cast<size_t>(got), out) == static_cast<size_t>(got);
    }
    if (in != nullptr) ::gzclose(in);
    if (out != nullptr) ok = std::fclose(out) == 0 && ok;
    if (!ok) return Diagnostic{ErrorKind::tuning_log, path, "cannot be read or unpacked", ""};
    return unpacked;
  }
  ~Unpacked() { ::unlink(path_.c_str()); }
  Unpacked(const Unpacked&) = delete;
  Unpacked& operator=(const Unpacked&) = delete;
  const std::string& path() const { return path_; }

 private:
  Unpacked() = default;
  std::string path_ = (std::filesystem::temp_directory_path() / "mcc_golden_XXXXXX").string();
};

Result<Subject> make_subject(const LogTask& log_task, const std::vector<LogEntry>& entries,
                             const tensor::Target& target) {
  Subject subject;
  Result<tensor::Func> func = tensor::parse_func(log_task.text);
  if (!func.ok()) return func.errors();
  subject.name = log_task.name;
  subject.task.id = log_task.id;
  subject.task.name = log_task.name;
  subject.task.text = log_task.text;
  subject.task.func = *func;
  subject.task.work = tensor::work_of(*func);
  subject.best_us = kNever;
  for (const LogEntry& entry : entries) {
    if (entry.task != log_task.id) continue;
    tensor::Schedule schedule(*func);
    if (tensor::Outcome outcome = schedule.replay(entry.trial.candidate.trace); !outcome) {
      return Diagnostic{ErrorKind::tuning_log, text(log_task.name, ", line ", entry.line), outcome.detail,
                        ""};
    }
    const Measurement& m = entry.trial.measurement;
    Known known{entry.trial.candidate, m.ok() ? m.best_us() : kNever, describe(schedule.func(), target)};
    if (m.ok() && !m.is_censored) subject.best_us = std::min(subject.best_us, known.us);
    subject.known.push_back(std::move(known));
  }
  // What is censored at less than the best counts as failed; the race never leaves such.
  return subject;
}

}  // namespace

std::vector<double> Subject::times() const {
  std::vector<double> times;
  for (const Known& k : known)
    times.push_back(k.us);
  return times;
}

std::vector<Example> Subject::examples() const {
  std::vector<Example> examples;
  for (const Known& k : known)
    examples.push_back({k.described, k.us});
  return examples;
}

Result<GoldenSet> read_golden_set(const std::string& path, size_t least,
                                  const std::function<bool(const std::string&)>& wants) {
  Result<std::unique_ptr<Unpacked>> unpacked = Unpacked::create(path);
  if (!unpacked.ok()) return unpacked.errors();
  Result<LogContents> contents = read_log((*unpacked)->path());
  if (!contents.ok()) return contents.errors();
  // A machine of the kind that was measured, whatever this one is.
  std::string cpu = "x86-64-v4";
  if (!contents->entries.empty()) cpu = contents->entries[0].device.description;
  Result<tensor::Target> target = codegen::make_target("cpu:" + cpu.substr(0, cpu.find(',')));
  if (!target.ok()) return target.errors();
  GoldenSet set;
  set.target = *target;
  set.target.cores = 1;
  for (const LogTask& task : contents->tasks) {
    auto count = static_cast<size_t>(std::count_if(contents->entries.begin(), contents->entries.end(),
                                                   [&](const LogEntry& e) { return e.task == task.id; }));
    if (count < least || (wants && !wants(task.id))) continue;
    Result<Subject> subject = make_subject(task, contents->entries, set.target);
    if (!subject.ok()) return subject.errors();
    set.subjects.push_back(std::move(*subject));
  }
  return set;
}

}  // namespace mcc::golden
