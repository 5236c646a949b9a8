// Appending to a log: one write and one fsync a batch, under a lock.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>

#include "support/text.h"
#include "tuner/log_line.h"

namespace mcc::tuner {
namespace {

Diagnostic failed(const std::string& path, std::string_view what) {
  return {ErrorKind::tuning_log, path, text("the tuning log cannot be ", what, ": ", std::strerror(errno)), ""};
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// Makes a new or renamed name of the file durable.
void sync_folder(const std::string& path) {
  std::string folder = std::filesystem::path(path).parent_path().string();
  int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

struct LogWriter::File {
  int fd = -1;
  std::string path;
  int64_t size = 0;
  std::set<std::string> tasks;  // whose line is in the file

  bool is_passing = false;      // made here, and to go again if it is empty

  ~File() {
    if (fd < 0) return;
    // Another one, renamed to this place meanwhile, stays.
    struct stat own {}, there {};
    if (is_passing && fstat(fd, &own) == 0 && own.st_size == 0 && ::stat(path.c_str(), &there) == 0 && own.st_ino == there.st_ino &&
        own.st_dev == there.st_dev)
      ::unlink(path.c_str());
    ::close(fd);  // gives the lock back
  }

  // Notes the tasks of the file, and where its last whole line ends.
  Result<int64_t> scan() {
    std::vector<char> buffer(size_t{1} << 18);
    std::string line;
    int64_t at = 0, whole = 0;
    for (bool is_first = true;;) {
      ssize_t got = ::pread(fd, buffer.data(), buffer.size(), at);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return failed(path, "read");
      if (is_first && !is_log({buffer.data(), static_cast<size_t>(got)})) {
        std::string_view start(buffer.data(), static_cast<size_t>(got));
        if (parse_log_line(start.substr(0, start.find('\n'))).kind == LogLine::Kind::newer) {
          return Diagnostic{ErrorKind::tuning_log, path, text("the log is of a newer version than ", kLogVersion, ", which this mcc writes"),
                            "use the mcc that wrote it, or a newer one"};
        }
        return Diagnostic{ErrorKind::tuning_log, path, "is not a tuning log: it will not be written to",
                          text("a log's lines begin with ", kLogStart)};
      }
      is_first = false;
      if (got == 0) {
        last_ = std::move(line);
        return whole;
      }
      for (ssize_t i = 0; i < got; ++i) {
        if (buffer[static_cast<size_t>(i)] == '\n') {
          note(line);
          line.clear();
          whole = at + i + 1;
        } else if (line.size() < kMaxLogLine) {
          // Only the lines of tasks are looked at, but which they are shows at their end at the earliest.
          line += buffer[static_cast<size_t>(i)];
        }
      }
      at += got;
    }
  }
  // Takes off a last line that was cut, or ends it where only its end is missing. What was done, for people.
  Result<std::string> mend(int64_t whole) {
    if (last_.empty()) return std::string();
    note(last_);
    LogLine record = parse_log_line(last_);
    // What a newer mcc wrote is not for this one to judge.
    if (record.kind != LogLine::Kind::bad) {
      if (!write_all(fd, "\n")) return failed(path, "mended");
      ++size;
      return std::string();
    }
    if (::ftruncate(fd, whole) != 0) return failed(path, "mended");
    std::string what = text(path, ": the last line was cut (", size - whole, " bytes) and is left out");
    size = whole;
    return what;
  }

  // All and durable or, on an error, nothing.
  Status append(std::string_view bytes) {
    if (bytes.empty()) return done();
    if (!write_all(fd, bytes) || ::fdatasync(fd) != 0) {
      Diagnostic why = failed(path, "written");
      // Half a batch would be a cut line in the middle.
      if (::ftruncate(fd, size) != 0) why.message += "; its last lines may be cut";
      return why;
    }
    size += static_cast<int64_t>(bytes.size());
    return done();
  }

  static bool is_log(std::string_view start) {
    return kLogStart.starts_with(start.substr(0, kLogStart.size()));
  }
  void note(std::string_view line) {
    static const std::string kTaskStart = std::string(kLogStart) + "\"kind\":\"task\"";
    if (!line.starts_with(kTaskStart)) return;
    LogLine record = parse_log_line(line);
    if (record.kind == LogLine::Kind::task) tasks.insert(record.task.id);
  }

 private:
  std::string last_;  // behind the last end of line
};

LogWriter::LogWriter(LogWriter&&) noexcept = default;
LogWriter& LogWriter::operator=(LogWriter&&) noexcept = default;
LogWriter::~LogWriter() = default;

Result<LogWriter> LogWriter::open(const std::string& path, bool keeps_empty) {
  LogWriter writer;
  writer.file_ = std::make_unique<File>();
  File& file = *writer.file_;
  file.path = path;
  constexpr int kFlags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;
  file.fd = ::open(path.c_str(), kFlags | O_EXCL, 0666);
  const bool is_new = file.fd >= 0;
  if (!is_new) file.fd = ::open(path.c_str(), kFlags, 0666);
  if (file.fd < 0) return failed(path, "opened");
  struct stat info {};
  if (fstat(file.fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    return Diagnostic{ErrorKind::tuning_log, path, "the tuning log is not a file", ""};
  }
  if (flock(file.fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return failed(path, "locked");
    return Diagnostic{ErrorKind::tuning_log, path, "another process writes to this tuning log",
                      "wait for it, or give this one a log of its own and join them by mcc log merge"};
  }
  file.is_passing = is_new && !keeps_empty;
  // The size as it is under the lock.
  if (fstat(file.fd, &info) != 0) return failed(path, "read");
  Result<int64_t> whole = file.scan();
  if (!whole.ok()) return whole.errors();
  file.size = info.st_size;
  Result<std::string> repair = file.mend(*whole);
  if (!repair.ok()) return repair.errors();
  writer.repair_ = *repair;
  if (info.st_size == 0) sync_folder(path);
  return writer;
}

Status LogWriter::append(const LogTask& task, std::span<const LogEntry> entries) {
  std::string bytes;
  bool is_new_task = !file_->tasks.contains(task.id);
  if (is_new_task) bytes += task_line(task) + "\n";
  for (const LogEntry& entry : entries) {
    MCC_CHECK(entry.task == task.id, "entry of task ", entry.task, " appended to ", task.id);
    bytes += entry_line(entry) + "\n";
  }
  Status status = file_->append(bytes);
  if (status.ok() && is_new_task) file_->tasks.insert(task.id);
  return status;
}

Status LogWriter::append(std::span<const LogChoice> choices) {
  std::string bytes;
  for (const LogChoice& choice : choices) bytes += choice_line(choice) + "\n";
  return file_->append(bytes);
}

LogFile::LogFile(std::string path) : path_(std::move(path)), temporary_(text(path_, ".", ::getpid(), ".tmp")) {
  out_ = std::fopen(temporary_.c_str(), "wbxe");
  if (!out_) error_ = errno;
}

LogFile::~LogFile() {
  if (!out_) return;
  std::fclose(out_);
  ::unlink(temporary_.c_str());
}

void LogFile::put(const std::string& line) {
  if (error_ != 0) return;
  bool ok = std::fwrite(line.data(), 1, line.size(), out_) == line.size() && std::fputc('\n', out_) != EOF;
  if (!ok) error_ = errno;
}

Status LogFile::commit() {
  if (error_ == 0 && (std::fflush(out_) != 0 || ::fsync(::fileno(out_)) != 0)) error_ = errno;
  if (error_ == 0 && ::rename(temporary_.c_str(), path_.c_str()) != 0) error_ = errno;
  if (error_ != 0) {
    errno = error_;
    return failed(path_, "written");
  }
  std::fclose(out_);
  out_ = nullptr;
  sync_folder(path_);
  return done();
}

Status write_log(const std::string& path, std::span<const LogTask> tasks, std::span<const LogEntry> entries,
                 std::span<const LogChoice> choices) {
  LogFile file(path);
  for (const LogChoice& choice : choices) file.put(choice_line(choice));
  for (const LogTask& task : tasks) file.put(task_line(task));
  for (const LogEntry& entry : entries) file.put(entry_line(entry));
  return file.commit();
}

}  // namespace mcc::tuner
