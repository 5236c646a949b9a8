// Searches on a space that holds the schedules of the golden set and no others.
//
// The points of a sketch form a tree: the choices in the order of their names, below each answer the points that have it. A
// sketch of the replay asks its way down that tree, and replays the trace at the leaf. So searches sample, mutate and go to
// neighbours as ever, and whatever they arrive at has been measured. Answers are numbered: tiles in lexicographic order.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include "golden_set.h"
#include "support/check.h"
#include "tensor/text.h"
#include "tuner/draft.h"

namespace mcc::golden {

using namespace tuner;

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int64_t kNotAsked = -1;

class Tree {
 public:
  Tree(const Subject& subject, std::string_view sketch) : subject_(subject) {
    std::set<std::string> names;
    for (size_t i = 0; i < subject.known.size(); ++i) {
      if (subject.known[i].candidate.sketch != sketch) continue;
      points_.push_back(i);
      for (const auto& [name, answer] : subject.known[i].candidate.point)
        names.insert(name);
    }
    names_.assign(names.begin(), names.end());
    // The numbers of the answers of each choice.
    std::vector<std::map<Answer, int64_t>> numbers(names_.size());
    for (size_t n = 0; n < names_.size(); ++n) {
      for (size_t i : points_) {
        auto it = subject.known[i].candidate.point.find(names_[n]);
        if (it != subject.known[i].candidate.point.end()) numbers[n].emplace(it->second, 0);
      }
      int64_t next = 0;
      for (auto& [answer, number] : numbers[n])
        number = next++;
    }
    for (size_t i : points_) {
      std::vector<int64_t>& row = answers_.emplace_back();
      const Point& point = subject.known[i].candidate.point;
      for (size_t n = 0; n < names_.size(); ++n) {
        auto it = point.find(names_[n]);
        row.push_back(it == point.end() ? kNotAsked : numbers[n].at(it->second));
      }
    }
  }

  bool empty() const { return points_.empty(); }

  // The number of the schedule in the subject.
  size_t choose(Decider& decide) const {
    std::vector<size_t> left(points_.size());
    for (size_t i = 0; i < left.size(); ++i)
      left[i] = i;
    for (size_t n = 0; n < names_.size() && left.size() > 1; ++n) {
      std::set<int64_t> options;
      for (size_t i : left)
        options.insert(answers_[i][n]);
      if (options.size() < 2) continue;
      // As the default has it, where that is offered: it is the first of all.
      int64_t preferred = answers_[0][n];
      if (options.count(preferred) == 0) preferred = *options.begin();
      int64_t answer = decide.choose(names_[n], {options.begin(), options.end()}, preferred);
      std::erase_if(left, [&](size_t i) { return answers_[i][n] != answer; });
    }
    return points_[left[0]];
  }

 private:
  const Subject& subject_;
  std::vector<size_t> points_;
  std::vector<std::string> names_;
  std::vector<std::vector<int64_t>> answers_;
};

constexpr std::array<std::string_view, 5> kSketches = {"rules", "tiling", "rfactor", "template.matmul",
                                                       "template.conv2d"};

// What the sketches below ask, by several threads at once; sketches are functions without a state of their own, so one
// replay runs at a time.
struct Stage {
  const Subject* subject = nullptr;
  std::vector<Tree> trees;
  std::mutex mutex;
  std::map<size_t, tensor::Schedule> schedules;  // replayed once
  std::map<const tensor::StmtNode*, size_t> of_body;
};
Stage* stage = nullptr;

template <size_t kSketch>
bool apply(Draft& draft) {
  const Tree& tree = stage->trees[kSketch];
  if (tree.empty()) return false;
  size_t i = tree.choose(draft.decide);
  std::lock_guard lock(stage->mutex);
  auto it = stage->schedules.find(i);
  if (it == stage->schedules.end()) {
    tensor::Schedule schedule(stage->subject->task.func);
    MCC_CHECK(schedule.replay(stage->subject->known[i].candidate.trace),
              "was replayed when the set was read");
    it = stage->schedules.emplace(i, std::move(schedule)).first;
    stage->of_body[it->second.func().body.get()] = i;
  }
  draft.schedule = it->second;
  return true;
}

constexpr Sketch kReplayed[] = {{kSketches[0], apply<0>},
                                {kSketches[1], apply<1>},
                                {kSketches[2], apply<2>},
                                {kSketches[3], apply<3>},
                                {kSketches[4], apply<4>}};

// Models that know the descriptions.
class Described : public CostModel {
 public:
  explicit Described(LearnedModel* model) : model_(model) {}

  std::vector<double> predict(const Task& task, std::span<const Planned> schedules) override {
    std::vector<tuner::Described> rows;
    std::vector<double> scores;
    for (const Planned& p : schedules) {
      const Known& known = stage->subject->known[stage->of_body.at(p.func.body.get())];
      if (model_ == nullptr)
        scores.push_back(-known.described.estimated_us);
      else
        rows.push_back(known.described);
    }
    return model_ == nullptr ? scores : model_->predict(task.text, rows);
  }
  void learn(const Task&, std::span<const Trial>) override {}

 private:
  LearnedModel* model_;
};

}  // namespace

std::vector<double> replay(const Subject& subject, const tensor::Target& target,
                           const ReplayOptions& options) {
  Stage mine;
  mine.subject = &subject;
  for (std::string_view sketch : kSketches)
    mine.trees.emplace_back(subject, sketch);
  stage = &mine;
  std::map<std::string, size_t> of_trace;
  for (size_t i = 0; i < subject.known.size(); ++i)
    of_trace.emplace(to_text(subject.known[i].candidate.trace), i);

  Described analyzer(nullptr), learned(options.model);
  SearchContext context;
  context.task = &subject.task;
  context.target = &target;
  context.sketches = kReplayed;
  if (options.model != nullptr) context.model = &learned;
  if (options.ranks_by_drafter) context.model = &analyzer;
  if (options.has_drafter) context.drafter = &analyzer;
  context.seed = options.seed;
  std::unique_ptr<Search> search = make_search(options.search, context);
  MCC_CHECK(search != nullptr, "no search ", options.search);

  std::vector<double> curve;
  std::vector<Example> examples;
  double best = kNever;
  while (static_cast<int>(curve.size()) < options.trials) {
    int count = std::min(curve.empty() ? options.first_batch : options.batch,
                         options.trials - static_cast<int>(curve.size()));
    std::vector<Candidate> batch = search->next(count);
    if (batch.empty()) break;
    std::vector<Trial> trials;
    for (Candidate& c : batch) {
      const Known& known = subject.known[of_trace.at(to_text(c.trace))];
      best = std::min(best, known.us);
      curve.push_back(std::isfinite(best) ? subject.best_us / best : 0);
      examples.push_back({known.described, known.us});
      Trial trial{std::move(c), {}};
      if (std::isfinite(known.us))
        trial.measurement.times_us = {known.us};
      else
        trial.measurement.error = TrialError::crash;
      trials.push_back(std::move(trial));
    }
    search->tell(trials);
    if (options.model != nullptr) options.model->learn(subject.task.text, examples);
  }
  stage = nullptr;
  return curve;
}

}  // namespace mcc::golden
