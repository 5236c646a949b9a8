#include "tools/measure/preparation.h"

#include <algorithm>
#include <condition_variable>

#include "tensor/text.h"

namespace mcc::tools {

namespace {
// Results of former requests are forgotten beyond this many.
constexpr size_t kMaxKnown = 100'000;
}  // namespace

// ---- What is known ----

bool KnownKernels::contains(const std::string& key) {
  std::lock_guard lock(mutex_);
  return measurements_.contains(key);
}

std::optional<tuner::Measurement> KnownKernels::find(const std::string& key) {
  std::lock_guard lock(mutex_);
  auto it = measurements_.find(key);
  if (it == measurements_.end()) return std::nullopt;
  return it->second;
}

void KnownKernels::add(const std::string& key, const tuner::Measurement& measurement) {
  std::lock_guard lock(mutex_);
  if (measurements_.size() < kMaxKnown) measurements_[key] = measurement;
}

void send_event(const SendMessage& send, const WorkerRequest& request, WorkerEvent event, int64_t candidate) {
  WorkerMessage message;
  message.id = request.id;
  message.event = event;
  message.candidate = candidate;
  send(message);
}

// ---- Preparing ----

// Items of work: 0 is the reference, i + 1 the code of candidate i. Each is done by who is the first to begin it.
struct Preparation::State {
  enum class Item { waiting, begun, done, dropped };

  State(const WorkerRequest& of, Steps how, KnownKernels& measured, SendMessage to)
      : request(of),
        steps(std::move(how)),
        known(measured),
        send(std::move(to)),
        items(of.candidates.size() + 1, Item::waiting),
        kernels(of.candidates.size()) {}

  const WorkerRequest& request;
  Steps steps;
  KnownKernels& known;
  SendMessage send;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Item> items;
  Status reference = done();
  std::vector<BuiltKernel> kernels;
  std::map<std::string, size_t>
      owners;  // the first candidate with this code, of those whose building has begun

  // Nothing if somebody else does it, or nobody is to.
  bool work_on(size_t item) {
    {
      std::lock_guard lock(mutex);
      if (items[item] != Item::waiting) return false;
      items[item] = Item::begun;
    }
    item == 0 ? compute_reference() : build(item - 1);
    {
      std::lock_guard lock(mutex);
      items[item] = Item::done;
    }
    changed.notify_all();
    return true;
  }

  void compute_reference() {
    send_event(send, request, WorkerEvent::reference);
    reference = steps.compute_reference();
    send_event(send, request, WorkerEvent::idle);
  }

  void build(size_t i) {
    send_event(send, request, WorkerEvent::build, static_cast<int64_t>(i));
    kernels[i] = steps.build(request.candidates[i], [&](const std::string& key) { return is_known(key, i); });
    send_event(send, request, WorkerEvent::built, static_cast<int64_t>(i));
  }

  // Whether the code has been measured before, or is that of an earlier candidate. Two that are built beside each other may still
  // generate the same code.
  bool is_known(const std::string& key, size_t i) {
    if (!request.options.is_fresh && known.contains(key)) return true;
    std::lock_guard lock(mutex);
    size_t& owner = owners.try_emplace(key, i).first->second;
    if (owner < i) return true;
    owner = i;
    return false;
  }

  bool is_done(size_t item) {
    std::lock_guard lock(mutex);
    return items[item] == Item::done;
  }

  // While others do it, something else is done.
  void finish(size_t item) {
    work_on(item);
    for (size_t other = 1; other < items.size() && !is_done(item); ++other)
      work_on(other);
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return items[item] == Item::done; });
  }

  void drop() {
    std::unique_lock lock(mutex);
    for (Item& item : items)
      if (item == Item::waiting) item = Item::dropped;
    changed.wait(lock, [&] { return std::find(items.begin(), items.end(), Item::begun) == items.end(); });
    // What is left in the queue holds nothing else than this.
    steps = {};
    kernels.clear();
  }
};

Preparation::Preparation(const WorkerRequest& request, Steps steps, KnownKernels& known, SendMessage send,
                         WorkQueue& queue)
    : state_(std::make_shared<State>(request, std::move(steps), known, std::move(send))) {
  for (size_t item = 0; item < state_->items.size(); ++item)
    queue.add([state = state_, item] { state->work_on(item); });
}

Preparation::~Preparation() { state_->drop(); }

Status Preparation::reference() {
  state_->finish(0);
  return state_->reference;
}

bool Preparation::is_built(size_t i) { return state_->is_done(i + 1); }

BuiltKernel& Preparation::built(size_t i) {
  state_->finish(i + 1);
  return state_->kernels[i];
}

void Preparation::build_all() {
  for (size_t i = 0; i < state_->kernels.size(); ++i)
    state_->finish(i + 1);
}

}  // namespace mcc::tools
