#include "tools/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>

#include "support/text.h"

extern char** environ;

namespace mcc::tools {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxLine = size_t{16} << 20;
constexpr size_t kMaxComplaints = 2000;
constexpr int kSendMilliseconds = 10'000;

void close_end(int& descriptor) {
  if (descriptor >= 0) ::close(descriptor);
  descriptor = -1;
}

// Not passed on to other children: they would keep the worker's input open.
bool make_pipe(int (&ends)[2]) { return ::pipe2(ends, O_CLOEXEC) == 0; }

Diagnostic failed(const std::string& what, int error) {
  return {ErrorKind::environment, "",
          text("cannot start a process of its own: ", what, ": ", std::strerror(error)), ""};
}

}  // namespace

Result<WorkerProcess> WorkerProcess::start(const std::vector<std::string>& command) {
  // A socket for the input: writing to one whose reader has died is an error, not a signal.
  int in[2] = {-1, -1}, out[2] = {-1, -1}, errors[2] = {-1, -1};
  const bool have_ends =
      ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in) == 0 && make_pipe(out) && make_pipe(errors);
  const int ends_error = errno;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[1], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  posix_spawn_file_actions_adddup2(&actions, errors[1], 2);
  // Ctrl-C is for the one who waits: it ends the worker when it sees fit. And no signal stays blocked.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  std::vector<char*> words;
  for (const std::string& word : command)
    words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);

  WorkerProcess process;
  const int error =
      have_ends ? ::posix_spawnp(&process.pid_, words[0], &actions, &attributes, words.data(), environ)
                : ends_error;
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close_end(in[1]);
  close_end(out[1]);
  close_end(errors[1]);
  process.to_ = in[0];
  process.from_ = out[0];
  process.errors_ = errors[0];
  if (error != 0) {
    process.pid_ = -1;
    return failed(command.front(), error);
  }
  ::fcntl(process.errors_, F_SETFL, O_NONBLOCK);
  return process;
}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      to_(std::exchange(other.to_, -1)),
      from_(std::exchange(other.from_, -1)),
      errors_(std::exchange(other.errors_, -1)),
      received_(std::move(other.received_)),
      complaints_(std::move(other.complaints_)),
      status_(other.status_) {}

WorkerProcess::~WorkerProcess() {
  if (pid_ > 0 && !status_) {
    kill();
    end_text();
  }
  close_end(to_);
  close_end(from_);
  close_end(errors_);
}

bool WorkerProcess::send(const std::string& line) {
  const std::string bytes = line + "\n";
  for (size_t sent = 0; sent < bytes.size();) {
    pollfd end = {to_, POLLOUT, 0};
    const int ready = ::poll(&end, 1, kSendMilliseconds);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t n = ::send(to_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

void WorkerProcess::read_complaints() {
  char buffer[4096];
  for (ssize_t n; (n = ::read(errors_, buffer, sizeof buffer)) > 0;)
    complaints_.append(buffer, static_cast<size_t>(n));
  if (complaints_.size() > kMaxComplaints) complaints_.erase(0, complaints_.size() - kMaxComplaints);
}

WorkerProcess::Received WorkerProcess::receive(std::string& line, double seconds) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(std::max(0.0, seconds)));
  while (true) {
    const size_t found = received_.find('\n');
    if (found != std::string::npos) {
      line = received_.substr(0, found);
      received_.erase(0, found + 1);
      return Received::line;
    }
    const double left = std::chrono::duration<double>(end - Clock::now()).count();
    pollfd ends[2] = {{from_, POLLIN, 0}, {errors_, POLLIN, 0}};
    const int ready = ::poll(ends, 2, left > 0 ? static_cast<int>(std::min(std::ceil(left * 1e3), 1e6)) : 0);
    if (ready < 0 && errno != EINTR) return Received::closed;
    if (ready == 0 && left <= 0) return Received::timeout;
    if (ready <= 0) continue;
    if (ends[1].revents != 0) read_complaints();
    if (ends[0].revents == 0) {
      if (ends[1].revents == POLLHUP) ::poll(nullptr, 0, 1);  // it has closed its stderr: not to spin
      continue;
    }
    char buffer[1 << 16];
    const ssize_t n = ::read(from_, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || received_.size() > kMaxLine) return Received::closed;
    received_.append(buffer, static_cast<size_t>(n));
  }
}

void WorkerProcess::kill() {
  if (pid_ > 0 && !status_) ::kill(-pid_, SIGKILL);  // it leads a group of its own
}

std::string WorkerProcess::end_text() {
  if (!status_) {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    status_ = status;
    read_complaints();
  }
  if (WIFSIGNALED(*status_)) {
    const char* name = ::sigabbrev_np(WTERMSIG(*status_));
    return name ? text("killed by SIG", name) : text("killed by signal ", WTERMSIG(*status_));
  }
  return text("ended with exit code ", WEXITSTATUS(*status_));
}

}  // namespace mcc::tools
