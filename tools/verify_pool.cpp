// Processes for things that may crash.
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <list>
#include <thread>

#include "mcc/mcc.hpp"
#include "nlohmann/json.hpp"
#include "tools/console.h"
#include "tools/loaded_model.h"
#include "tools/verify.h"

namespace mcc::tools {

namespace {

using Clock = std::chrono::steady_clock;

// What a child sends: its result as a JSON document.
std::string encode(const CaseResult& result) {
  const nlohmann::json document = {{"status", static_cast<int>(result.status)},
                                   {"reason", result.reason},
                                   {"is_of_machine", result.is_of_machine},
                                   {"tolerance", result.tolerance},
                                   {"fixed_inputs", result.fixed_inputs}};
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool decode(const std::string& message, CaseResult& result) {
  const nlohmann::json document = nlohmann::json::parse(message, nullptr, false);
  if (!document.is_object()) return false;
  result.status = static_cast<CaseStatus>(document.value("status", 0));
  result.reason = document.value("reason", std::string());
  result.is_of_machine = document.value("is_of_machine", false);
  result.tolerance = document.value("tolerance", "");
  result.fixed_inputs = document.value("fixed_inputs", std::vector<std::string>());
  return true;
}

CaseResult guarded(const std::function<CaseResult(size_t)>& body, size_t index) {
  CaseResult result;
  try {
    return body(index);
  } catch (const runtime::Error& error) {
    result.status = CaseStatus::fail;
    result.reason = error.what();
    result.is_of_machine = error.status() == MCC_NOT_HERE || error.status() == MCC_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    result.status = CaseStatus::crash;
    result.reason = text("internal error: ", error.what());
  }
  return result;
}

struct Child {
  size_t index = 0;
  pid_t pid = -1;
  int pipe = -1;
  Clock::time_point end;
  std::string message;
};

[[noreturn]] void send_and_end(const std::string& message, int pipe) {
  for (size_t sent = 0; sent < message.size();) {
    const ssize_t n = ::write(pipe, message.data() + sent, message.size() - sent);
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  ::_exit(0);
}

Child start(size_t index, const std::function<CaseResult(size_t)>& body, double seconds,
            const std::list<Child>& others) {
  int ends[2];
  if (::pipe(ends) != 0) throw runtime::Error(MCC_NOT_HERE, text("pipe: ", std::strerror(errno)));
  Child child;
  child.index = index;
  child.end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  child.pid = ::fork();
  if (child.pid < 0) throw runtime::Error(MCC_NOT_HERE, text("fork: ", std::strerror(errno)));
  if (child.pid == 0) {
    ::close(ends[0]);
    for (const Child& other : others)
      ::close(other.pipe);
    send_and_end(encode(guarded(body, index)), ends[1]);
  }
  ::close(ends[1]);
  child.pipe = ends[0];
  return child;
}

// Reads what is there. True when the child has closed its end.
bool drain(Child& child) {
  char buffer[4096];
  const ssize_t n = ::read(child.pipe, buffer, sizeof buffer);
  if (n > 0) child.message.append(buffer, static_cast<size_t>(n));
  return n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN);
}

CaseResult finish(Child& child, bool timed_out, double seconds) {
  ::close(child.pipe);
  if (timed_out) ::kill(child.pid, SIGKILL);
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  CaseResult result;
  if (timed_out) {
    result.status = CaseStatus::fail;
    result.reason = text("no answer in ", seconds, " s (--seconds allows more)");
  } else if (WIFSIGNALED(status)) {
    result.status = CaseStatus::crash;
    result.reason = text("killed by signal ", WTERMSIG(status), " (", strsignal(WTERMSIG(status)), ")");
  } else if (!decode(child.message, result)) {
    result.status = CaseStatus::crash;
    result.reason = text("ended without a result, exit status ", WEXITSTATUS(status));
  }
  return result;
}

}  // namespace

std::vector<CaseResult> run_isolated(const std::vector<std::string>& names,
                                     const std::function<CaseResult(size_t)>& body,
                                     const VerifyOptions& options, const CaseProgress& progress) {
  const size_t jobs = options.jobs > 0 ? static_cast<size_t>(options.jobs)
                                       : std::max<size_t>(1, std::thread::hardware_concurrency());
  std::vector<CaseResult> results(names.size());
  std::list<Child> running;
  size_t next = 0, finished = 0;
  while (finished < names.size()) {
    while (running.size() < jobs && next < names.size()) {
      running.push_back(start(next, body, options.seconds, running));
      ++next;
    }
    std::vector<pollfd> polled;
    for (const Child& child : running)
      polled.push_back({child.pipe, POLLIN, 0});
    ::poll(polled.data(), polled.size(), 100);
    size_t i = 0;
    for (auto child = running.begin(); child != running.end(); ++i) {
      const bool ended = polled[i].revents != 0 && drain(*child);
      const bool timed_out = !ended && Clock::now() > child->end;
      if (!ended && !timed_out) {
        ++child;
        continue;
      }
      CaseResult& result = results[child->index];
      result = finish(*child, timed_out, options.seconds);
      result.name = names[child->index];
      child = running.erase(child);
      progress(++finished, names.size());
    }
  }
  return results;
}

}  // namespace mcc::tools
