// What a request's candidates need before they can run: the result to compare with, and their code. It may be worked on while
// another request is measured.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "tools/measure/build.h"
#include "tools/measure/protocol.h"
#include "tools/measure/work_queue.h"

namespace mcc::tools {

// What was measured of a task so far, by BuiltKernel::key. From several threads.
class KnownKernels {
 public:
  bool contains(const std::string& key);
  std::optional<tuner::Measurement> find(const std::string& key);
  // The latest counts; beyond some number nothing is added.
  void add(const std::string& key, const tuner::Measurement& measurement);

 private:
  std::mutex mutex_;
  std::map<std::string, tuner::Measurement> measurements_;
};

// Of messages, from several threads.
using SendMessage = std::function<void(const WorkerMessage&)>;
// Says what goes on with the request.
void send_event(const SendMessage& send, const WorkerRequest& request, WorkerEvent event,
                int64_t candidate = -1);

class Preparation {
 public:
  using IsKnown = std::function<bool(const std::string& key)>;
  // Both from several threads, and without exceptions. build: of a trace; see BuildContext::is_known.
  struct Steps {
    std::function<Status()> compute_reference;
    std::function<BuiltKernel(const std::string& trace, const IsKnown& is_known)> build;
  };

  // Adds all of it to the queue. What is passed outlives this.
  Preparation(const WorkerRequest& request, Steps steps, KnownKernels& known, SendMessage send,
              WorkQueue& queue);
  // Waits for what has been begun; the rest is left undone.
  ~Preparation();
  Preparation(const Preparation&) = delete;
  Preparation& operator=(const Preparation&) = delete;

  // These are for one thread, which works, too, while it waits for something.
  Status reference();
  bool is_built(size_t i);
  BuiltKernel& built(size_t i);
  void build_all();

 private:
  struct State;
  std::shared_ptr<State> state_;  // work that is still in the queue shares it
};

}  // namespace mcc::tools
