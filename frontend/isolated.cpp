#include "frontend/isolated.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <fstream>
#include <optional>

namespace mcc::frontend {

namespace {

// Sanitizers reserve terabytes of address space, which no limit can be set around.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kLimitMemory = false;
#else
constexpr bool kLimitMemory = true;
#endif

size_t address_space_in_use() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

void apply_limits(const IsolationLimits& limits) {
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  if (!kLimitMemory) return;
  const rlim_t most = address_space_in_use() + limits.memory;
  const rlimit memory{most, most};
  ::setrlimit(RLIMIT_AS, &memory);
}

// What f throws (no memory, say) is a crash, too: it must not unwind the parent's functions here.
[[noreturn]] void child_main(const std::function<std::string()>& f, const IsolationLimits& limits, int pipe) noexcept {
  std::set_terminate([] { ::_exit(1); });
  // A crash here is expected and reported by the parent; handlers of the parent's would report it as its own.
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
    ::signal(signal, SIG_DFL);
  apply_limits(limits);
  // The first byte says that the rest is whole.
  const std::string message = "+" + f() + "+";
  for (size_t sent = 0; sent < message.size();) {
    const ssize_t n = ::write(pipe, message.data() + sent, message.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  ::_exit(0);
}

// Everything that comes through the pipe until its other end closes; nothing if that takes too long.
std::optional<std::string> read_all(int pipe, double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::string message;
  char buffer[1 << 16];
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return std::nullopt;
    pollfd polled{pipe, POLLIN, 0};
    if (::poll(&polled, 1, static_cast<int>(std::min<int64_t>(left, 1000))) <= 0) continue;
    const ssize_t n = ::read(pipe, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return message;
    message.append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace

std::optional<std::string> run_isolated(const std::function<std::string()>& f,
                                        const IsolationLimits& limits) {
  int ends[2];
  if (::pipe(ends) != 0) return std::nullopt;
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    child_main(f, limits, ends[1]);
  }
  ::close(ends[1]);
  if (child < 0) {
    ::close(ends[0]);
    return std::nullopt;
  }
  std::optional<std::string> message = read_all(ends[0], limits.seconds);
  ::close(ends[0]);
  ::kill(child, SIGKILL);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!message || message->size() < 2 || message->front() != '+' || message->back() != '+')
    return std::nullopt;
  return message->substr(1, message->size() - 2);
}

}  // namespace mcc::frontend
