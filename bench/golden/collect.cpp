// Measures schedules of the main kernel of each model, for the golden set (README.md): one thread, warm caches, through
// `mcc measure-worker`, every result checked against the reference. Writes a tuning log, and goes on with one that is
// there.
//   golden_collect MCC LOG TRIALS MODEL.onnx...      TRIALS: schedules of each kernel
//   golden_collect --sizes MODEL.onnx...             points of each sketch
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>

#include "tools/driver.h"
#include "tools/measure/worker_measurer.h"
#include "tuner/log.h"
#include "tuner/space.h"

namespace {

using namespace mcc;

constexpr size_t kBatch = 16;
constexpr uint64_t kSeed = 1;

struct Subject {
  tensor::Target target;
  tuner::Task task;
};

// The kernel that the model is about, for one thread.
Result<Subject> read_subject(const std::string& path) {
  tools::CompileOptions options;
  options.model_path = path;
  Result<tools::ModelTasks> tasks = tools::extract_tasks(options);
  if (!tasks.ok()) return tasks.errors();
  Subject subject;
  subject.target = tasks->target;
  subject.target.cores = 1;
  for (tuner::Task& t : tasks->tasks) {
    if (subject.task.text.empty() || t.work.flops > subject.task.work.flops) subject.task = std::move(t);
  }
  return subject;
}

void print_sizes(const Subject& subject) {
  std::printf("%s %s\n", subject.task.id.c_str(), subject.task.name.c_str());
  tuner::Space space(subject.task.func, subject.target, tuner::all_sketches());
  for (const tuner::Sketch* sketch : space.sketches()) {
    std::printf("  %-16s %12.0f:", std::string(sketch->name).c_str(), space.estimate(*sketch));
    for (const tuner::Choice& choice : space.preferred(*sketch).choices)
      std::printf(" %s/%zu", choice.name.c_str(), choice.options.size());
    std::printf("\n");
  }
}

// Answers from a part of the space: of each choice the preferred answer and evenly spaced others, so few that the points
// along the preferred path are about as many as wanted. Goes through it by paths, as Space::enumerate does.
class GridDecider : public tuner::Decider {
 public:
  GridDecider(const std::map<std::string, size_t>& limits, const std::vector<size_t>& path)
      : limits_(limits), path_(path) {}

  tuner::Answer answer(const tuner::Choice& choice, const tuner::Answer& preferred) override {
    if (choice.kind == tuner::Choice::Kind::tile) return preferred;
    auto limit = limits_.find(choice.name);
    std::vector<int64_t> options =
        thin(choice.options, preferred[0], limit != limits_.end() ? limit->second : 2);
    size_t index = counts.size() < path_.size() ? path_[counts.size()] : 0;
    counts.push_back(options.size());
    return {options[std::min(index, options.size() - 1)]};
  }

  std::vector<size_t> counts;  // of the options of each question

 private:
  static std::vector<int64_t> thin(const std::vector<int64_t>& options, int64_t preferred, size_t count) {
    if (options.size() <= count) return options;
    std::set<int64_t> chosen{preferred};
    for (size_t i = 0; chosen.size() < count && i < options.size(); ++i)
      chosen.insert(options[(i * options.size() / count + i / count) % options.size()]);
    return {chosen.begin(), chosen.end()};
  }

  const std::map<std::string, size_t>& limits_;
  const std::vector<size_t>& path_;
};

// How many options each choice of the default's rules gets.
std::map<std::string, size_t> grid_limits(const tuner::Planned& preferred, double points) {
  std::map<std::string, size_t> limits;
  for (const tuner::Choice& choice : preferred.choices)
    limits[choice.name] = std::max<size_t>(choice.options.size(), 1);
  for (;;) {
    double product = 1;
    auto most = limits.begin();
    for (auto it = limits.begin(); it != limits.end(); ++it) {
      product *= static_cast<double>(it->second);
      if (it->second > most->second) most = it;
    }
    if (product <= points || most->second <= 2) return limits;
    --most->second;
  }
}

class Collector {
 public:
  Collector(const Subject& subject, tools::WorkerMeasurer& measurer, tuner::LogWriter& log)
      : subject_(subject),
        space_(subject.task.func, subject.target, tuner::all_sketches()),
        measurer_(measurer),
        log_(log) {}

  // Those measured before do not count, so that a collection that was cut short goes on.
  Status run(std::vector<tuner::Trial> known, int count) {
    trials_ = std::move(known);
    list_points(static_cast<size_t>(count));
    for (const tuner::Trial& t : trials_)
      seen_.insert(to_text(t.candidate.trace));
    std::vector<tuner::Candidate> batch;
    for (const tuner::Candidate& candidate : points_) {
      if (seen_.count(to_text(candidate.trace)) != 0) continue;
      batch.push_back(candidate);
      if (batch.size() < kBatch) continue;
      if (Status status = measure(batch); !status.ok()) return status;
      batch.clear();
    }
    return batch.empty() ? done() : measure(batch);
  }

 private:
  // Three in five on a grid in the space of the rules, the rest by chance, from all sketches alike; in random order, so that
  // a drift of the machine does not look like a property of schedules.
  void list_points(size_t count) {
    std::set<std::string> traces;
    auto add = [&](const tuner::Planned& planned) {
      if (!planned.ok() || points_.size() >= count) return;
      if (traces.insert(to_text(planned.candidate.trace)).second) points_.push_back(planned.candidate);
    };
    const tuner::Sketch& rules = *space_.sketches()[0];
    const tuner::Planned preferred = space_.preferred(rules);
    add(preferred);
    const std::map<std::string, size_t> limits = grid_limits(preferred, 0.6 * static_cast<double>(count));
    std::vector<size_t> path;
    do {
      GridDecider decide(limits, path);
      add(tuner::plan_point(rules, subject_.task.func, subject_.target, {}, decide));
      path.resize(decide.counts.size(), 0);
      while (!path.empty() && path.back() + 1 >= decide.counts[path.size() - 1])
        path.pop_back();
      if (!path.empty()) ++path.back();
    } while (!path.empty());
    for (uint64_t draw = 0; points_.size() < count && draw < 20 * count; ++draw) {
      const tuner::Sketch& sketch = *space_.sketches()[draw % space_.sketches().size()];
      add(space_.sample(sketch, tuner::Random(kSeed, 0, draw)));
    }
    tuner::Random random(kSeed, 1);
    for (size_t i = points_.size(); i > 2; --i)
      std::swap(points_[i - 1], points_[1 + static_cast<size_t>(random.below(static_cast<int64_t>(i) - 1))]);
  }

  Status measure(std::vector<tuner::Candidate> batch) {
    tuner::MeasureOptions options;
    options.incumbent_us = best_us();
    Result<std::vector<tuner::Measurement>> measured = measurer_.measure(subject_.task, batch, options);
    if (!measured.ok()) return measured.errors();
    std::vector<tuner::LogEntry> entries;
    for (size_t i = 0; i < batch.size(); ++i) {
      trials_.push_back({std::move(batch[i]), std::move((*measured)[i])});
      tuner::LogEntry entry;
      entry.task = subject_.task.id;
      entry.device = {subject_.target.fingerprint(), subject_.target.cpu};
      entry.trial = trials_.back();
      entry.seed = kSeed;
      if (trials_.size() == 1) entry.source = "default";
      entries.push_back(std::move(entry));
    }
    return log_.append(tuner::log_task(subject_.task), entries);
  }

  double best_us() const {
    double best = std::numeric_limits<double>::infinity();
    for (const tuner::Trial& t : trials_) {
      if (t.measurement.ok() && !t.measurement.is_censored) best = std::min(best, t.measurement.best_us());
    }
    return std::isfinite(best) ? best : 0;
  }

  const Subject& subject_;
  tuner::Space space_;
  tools::WorkerMeasurer& measurer_;
  tuner::LogWriter& log_;
  std::vector<tuner::Candidate> points_;
  std::vector<tuner::Trial> trials_;
  std::set<std::string> seen_;
};

int fail(const Diagnostics& errors) {
  std::fprintf(stderr, "%s\n", to_text(errors).c_str());
  return 1;
}

int collect(const std::string& mcc, const std::string& path, int count,
            const std::vector<std::string>& models) {
  std::map<std::string, std::vector<tuner::Trial>> known;
  Result<tuner::LogWriter> log = tuner::LogWriter::open(path);
  if (!log.ok()) return fail(log.errors());
  Result<tuner::LogContents> contents = tuner::read_log(path);
  if (!contents.ok()) return fail(contents.errors());
  for (tuner::LogEntry& entry : contents->entries)
    known[entry.task].push_back(std::move(entry.trial));
  for (const std::string& model : models) {
    Result<Subject> subject = read_subject(model);
    if (!subject.ok()) return fail(subject.errors());
    tools::WorkerOptions options;
    options.command = {mcc, "measure-worker"};
    tools::WorkerMeasurer measurer(options);
    Status status = Collector(*subject, measurer, *log).run(std::move(known[subject->task.id]), count);
    if (!status.ok()) return fail(status.errors());
    std::fprintf(stderr, "%s\n", model.c_str());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 && std::strcmp(argv[1], "--sizes") == 0) {
    for (int i = 2; i < argc; ++i) {
      Result<Subject> subject = read_subject(argv[i]);
      if (!subject.ok()) return fail(subject.errors());
      print_sizes(*subject);
    }
    return 0;
  }
  if (argc < 5) {
    std::fprintf(
        stderr,
        "usage: golden_collect MCC LOG TRIALS MODEL.onnx...\n       golden_collect --sizes MODEL.onnx...\n");
    return 2;
  }
  return collect(argv[1], argv[2], std::atoi(argv[3]), {argv + 4, argv + argc});
}
