#include "tuner/tune.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <set>

#include "support/hash.h"

namespace mcc::tuner {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class Tuner {
 public:
  Tuner(const std::vector<Task>& tasks, const tensor::Target& target, Measurer& measurer,
        const TuneOptions& options, const TuneHooks& hooks)
      : tasks_(tasks),
        target_(target),
        measurer_(measurer),
        options_(options),
        hooks_(hooks),
        model_(make_cost_model(options.cost_model, target, options.seed)),
        drafter_(make_cost_model("analyzer", target, options.seed)),
        searches_(tasks.size()),
        seeds_(tasks.size()),
        defaults_(tasks.size()),
        champions_(tasks.size()),
        trials_(tasks.size()),
        reports_(tasks.size()),
        scheduler_(states(tasks, target, options.peak_gflops), options.scheduler) {}

  Result<TuneReport> run(const std::vector<std::vector<Trial>>& known) {
    for (size_t i = 0; i < tasks_.size(); ++i)
      start(i, i < known.size() ? known[i] : std::vector<Trial>());
    TuneReport report;
    Status status = search(&report.end);
    if (status.ok() && report.end != TuneEnd::interrupted) status = race_all();
    if (!begun_.empty()) measurer_.abandon();
    if (!status.ok()) return status.errors();
    for (size_t i = 0; i < tasks_.size(); ++i) {
      TaskReport& r = reports_[i];
      r.done = scheduler_.is_done(i);
      r.space = searches_[i]->space_size();
      r.gain_left_us = scheduler_.expected_gain_us(i);
      auto weight = static_cast<double>(tasks_[i].weight);
      if (std::isfinite(r.default_us)) report.default_us += weight * r.default_us;
      report.gain_left_us += r.gain_left_us;
    }
    report.best_us = scheduler_.latency_us();
    report.tasks = reports_;
    report.trials = count_;
    report.seconds = hooks_.clock();
    return report;
  }

 private:
  static std::vector<TaskState> states(const std::vector<Task>& tasks, const tensor::Target& target,
                                       double peak_gflops) {
    std::vector<TaskState> out;
    for (const Task& task : tasks) {
      TaskState state;
      state.name = task.name;
      state.weight = static_cast<double>(task.weight);
      state.flops = static_cast<double>(task.work.flops);
      // No schedule is faster than peak arithmetic on all cores, or than reading every parameter once from the last cache.
      double compute = state.flops / (std::max(peak_gflops, target.peak_gflops()) * target.cores * 1e3);
      double memory = static_cast<double>(task.work.bytes) / (target.l1.gb_per_s * target.cores * 1e3);
      if (target.kind == tensor::TargetKind::cuda) {
        // Tensor cores multiply narrow types 16 times as fast.
        const bool is_narrow =
            task.text.find("tf32") != std::string::npos ||
            std::any_of(task.func.params.begin(), task.func.params.end(),
                        [](const tensor::Buffer& b) { return bit_width(b.element()) < 32; });
        compute = state.flops / (target.gpu.gflops * (is_narrow ? 16 : 1) * 1e3);
        memory = static_cast<double>(task.work.bytes) / (target.gpu.gb_per_s * 1e3);
      }
      state.lower_bound_us = std::max(compute, memory);
      out.push_back(std::move(state));
    }
    return out;
  }

  // What is known without seeds; those that have not been measured yet are kept for later rounds.
  std::vector<Trial> without_seeds(size_t i, const std::vector<Trial>& known) {
    auto is_seed = [](const Trial& t) { return t.measurement.ok() && t.measurement.times_us.empty(); };
    std::vector<Trial> measured;
    std::set<std::string> traces;
    for (const Trial& t : known) {
      if (is_seed(t)) continue;
      traces.insert(tensor::to_text(t.candidate.trace));
      measured.push_back(t);
    }
    for (const Trial& t : known) {
      if (is_seed(t) && traces.insert(tensor::to_text(t.candidate.trace)).second) seeds_[i].push_back(t.candidate);
    }
    return measured;
  }

  void start(size_t i, const std::vector<Trial>& known_and_seeds) {
    const std::vector<Trial> known = without_seeds(i, known_and_seeds);
    SearchContext context;
    context.task = &tasks_[i];
    context.target = &target_;
    context.sketches = all_sketches();
    context.model = model_.get();
    context.drafter = drafter_.get();
    context.seed = options_.seed ^ hash_bytes(tasks_[i].text);
    searches_[i] = make_search(options_.search, context);
    reports_[i].default_us = reports_[i].best_us = kNever;
    defaults_[i] = tensor::to_text(default_trace(i));
    if (known.empty()) return;
    searches_[i]->tell(known);
    trials_[i] = known;
    for (const Trial& t : known) {
      if (t.is_champion) champions_[i] = tensor::to_text(t.candidate.trace);
    }
    if (model_) model_->learn(tasks_[i], trials_[i]);
    for (const Trial& t : known) {
      if (!t.measurement.ok()) continue;
      if (tensor::to_text(t.candidate.trace) == defaults_[i]) {
        reports_[i].default_us = std::min(reports_[i].default_us, t.measurement.best_us());
      }
      if (!t.measurement.is_censored)
        reports_[i].best_us = std::min(reports_[i].best_us, t.measurement.best_us());
    }
    scheduler_.report(i, static_cast<int>(known.size()), 0, reports_[i].best_us, false);
  }

  tensor::Trace default_trace(size_t i) const {
    PreferredDecider preferred;
    return plan_point(all_sketches()[0], tasks_[i].func, target_, {}, preferred).candidate.trace;
  }

  bool is_interrupted() const { return hooks_.is_interrupted && hooks_.is_interrupted(); }

  // What has been begun counts as done.
  bool is_over(TuneEnd* end) const {
    if (options_.seconds > 0 && seconds_left() <= 0) {
      *end = TuneEnd::time;
    } else if (options_.trials > 0 && trials_left() <= 0) {
      *end = TuneEnd::trials;
    } else {
      return false;
    }
    return true;
  }

  int64_t trials_left() const {
    int64_t left = options_.trials - count_;
    for (const Round& round : begun_)
      left -= static_cast<int64_t>(round.candidates.size());
    return left;
  }

  double seconds_left() const {
    return options_.seconds - seconds_for_races() - hooks_.clock() - seconds_of_begun();
  }

  double seconds_of_begun() const {
    double sum = 0;
    for (const Round& round : begun_)
      sum += round.seconds;
    return sum;
  }

  // As far as is known.
  double seconds_of_trial(size_t task) const {
    const TaskState& state = scheduler_.tasks()[task];
    if (state.trials > 0 && state.seconds > 0) return state.seconds / state.trials;
    return count_ > 0 ? seconds_ / static_cast<double>(count_) : 0;
  }

  // As many as the trials and the time that are left allow.
  int batch_of(size_t task) const {
    int64_t batch = scheduler_.tasks()[task].is_started() ? options_.batch : options_.first_batch;
    if (options_.trials > 0) batch = std::min(batch, trials_left());
    if (options_.seconds > 0 && count_ > 0)
      batch =
          std::min(batch, static_cast<int64_t>(seconds_left() / std::max(seconds_of_trial(task), 1e-3)) + 1);
    return static_cast<int>(std::max<int64_t>(batch, 1));
  }

  // The default first, then seeds, then what the search proposes.
  std::vector<Candidate> next(size_t i, size_t count) {
    std::vector<Candidate>& seeds = seeds_[i];
    if (seeds.empty()) return searches_[i]->next(static_cast<int>(count));
    std::vector<Candidate> out;
    std::set<std::string> traces;
    auto add = [&](Candidate& candidate) {
      if (traces.insert(tensor::to_text(candidate.trace)).second) out.push_back(std::move(candidate));
    };
    if (!scheduler_.tasks()[i].is_started()) {
      for (Candidate& c : searches_[i]->next(1))
        add(c);
    }
    for (; !seeds.empty() && out.size() < count; seeds.erase(seeds.begin()))
      add(seeds.front());
    if (out.size() < count) {
      for (Candidate& c : searches_[i]->next(static_cast<int>(count - out.size())))
        add(c);
    }
    return out;
  }

  // What was proposed and measured need not be measured as a seed once more.
  void forget_seeds(size_t i, std::span<const Trial> trials) {
    std::set<std::string> measured;
    for (const Trial& t : trials) measured.insert(tensor::to_text(t.candidate.trace));
    std::erase_if(seeds_[i], [&](const Candidate& seed) { return measured.contains(tensor::to_text(seed.trace)); });
  }

  // ---- Rounds ----

  // Candidates of one task that are measured together.
  struct Round {
    size_t task = 0;
    std::vector<Candidate> candidates;
    MeasureOptions options;
    double begin = 0;    // when its candidates were asked for
    double seconds = 0;  // that it should take
  };

  Status search(TuneEnd* end) {
    while (!is_interrupted()) {
      begin_rounds(end);
      if (begun_.empty()) return done();
      const size_t task = begun_.front().task;
      Status status = finish_round();
      if (!status.ok()) return status;
      show(task);
      status = pause_if_wanted();
      if (!status.ok()) return status;
    }
    *end = TuneEnd::interrupted;
    return done();
  }

  void begin_rounds(TuneEnd* end) {
    *end = TuneEnd::nothing_left;
    while (may_begin() && !is_over(end)) {
      std::vector<size_t> busy;
      for (const Round& round : begun_)
        busy.push_back(round.task);
      const std::optional<size_t> task = scheduler_.next(busy);
      if (!task) break;
      begin_round(*task);
    }
  }

  // One at least, and more while those behind it have few candidates.
  bool may_begin() const {
    size_t ahead = 0;
    for (size_t i = 1; i < begun_.size(); ++i)
      ahead += begun_[i].candidates.size();
    return begun_.empty() || ahead < static_cast<size_t>(options_.ahead);
  }

  void begin_round(size_t i) {
    Round round{i, {}, options_.measure, hooks_.clock(), 0};
    round.candidates = next(i, static_cast<size_t>(batch_of(i)));
    const double best_us = reports_[i].best_us;
    if (round.candidates.empty()) {
      scheduler_.report(i, 0, hooks_.clock() - round.begin, best_us, true);
      return show(i);
    }
    round.options.incumbent_us = std::isfinite(best_us) ? best_us : 0;
    round.seconds = static_cast<double>(round.candidates.size()) * seconds_of_trial(i);
    begin(std::move(round));
  }

  void begin(Round round) {
    const Round& begun = begun_.emplace_back(std::move(round));
    measurer_.begin(tasks_[begun.task], begun.candidates, begun.options);
  }

  // Of the round that was begun first; it is over with that.
  Result<std::vector<Trial>> take_trials() {
    std::vector<Candidate> candidates = std::move(begun_.front().candidates);
    Result<std::vector<Measurement>> measured = measurer_.finish();
    begun_.pop_front();
    if (!measured.ok()) return measured.errors();
    MCC_CHECK(measured->size() == candidates.size(), "expected ", candidates.size(), " measurements, got ",
              measured->size());
    std::vector<Trial> trials;
    for (size_t c = 0; c < candidates.size(); ++c)
      trials.push_back({std::move(candidates[c]), std::move((*measured)[c])});
    return trials;
  }

  Status finish_round() {
    const size_t i = begun_.front().task;
    // While the one before it was measured it was waiting.
    const double begin = std::max(begun_.front().begin, last_end_);
    Result<std::vector<Trial>> trials = take_trials();
    if (!trials.ok()) return trials.errors();
    TaskReport& report = reports_[i];
    for (const Trial& trial : *trials) {
      const Measurement& m = trial.measurement;
      if (m.ok()) {
        if (tensor::to_text(trial.candidate.trace) == defaults_[i]) report.default_us = std::min(report.default_us, m.best_us());
        if (!m.is_censored) report.best_us = std::min(report.best_us, m.best_us());
      } else {
        ++report.errors[m.error];
      }
    }
    Status recorded = hooks_.record(tasks_[i], *trials);
    if (!recorded.ok()) return recorded;

    forget_seeds(i, *trials);
    searches_[i]->tell(*trials);
    const auto count = static_cast<int>(trials->size());
    trials_[i].insert(trials_[i].end(), trials->begin(), trials->end());
    if (model_) model_->learn(tasks_[i], trials_[i]);
    report.trials += count;
    count_ += count;
    last_end_ = hooks_.clock();
    seconds_ += last_end_ - begin;
    scheduler_.report(i, count, last_end_ - begin, report.best_us, false);
    return done();
  }

  // What has been begun is finished first.
  Status pause_if_wanted() {
    if (!hooks_.wants_pause || !hooks_.wants_pause(state(std::nullopt))) return done();
    while (!begun_.empty()) {
      const size_t task = begun_.front().task;
      Status status = finish_round();
      if (!status.ok()) return status;
      show(task);
    }
    hooks_.pause(state(std::nullopt));
    last_end_ = hooks_.clock();
    return done();
  }

  // ---- The races at the end ----

  bool is_to_race(size_t i) const { return options_.finalists > 0 && reports_[i].trials > 1; }

  // Runs of a race with patience 1: at least so many, and at least so long.
  static constexpr double kSecondsOfRuns = 0.15, kRuns = 30;
  // A kernel that reads much memory takes 5 % more or less from one hundredth of a second to the next; a few tenths for each of
  // the fastest tell apart what differs by 2 %.
  static constexpr double kMostPatience = 8;

  // What a race with patience 1 cannot tell apart, relative: a champion of earlier races is not put out by less.
  static constexpr double kDoubt = 0.04;

  double seconds_of_race(size_t i, double patience) const {
    const TaskState& state = scheduler_.tasks()[i];
    const double runs = std::isfinite(state.best_us) ? std::max(kSecondsOfRuns, kRuns * 1e-6 * state.best_us) : 0;
    return (options_.finalists + 1) * state.seconds / std::max(state.trials, 1) + (patience - 1) * runs;
  }

  double seconds_of_races(double patience) const {
    double sum = 0;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      if (is_to_race(i)) sum += seconds_of_race(i, patience);
    }
    return sum;
  }

  // What the search leaves for them of a limited time.
  double seconds_for_races() const { return std::min(seconds_of_races(kMostPatience), 0.1 * options_.seconds); }

  // With which all races together take a tenth of the time.
  double affordable_patience() const {
    const double budget = 0.1 * std::max(options_.seconds, hooks_.clock());
    const double least = seconds_of_races(1), most = seconds_of_races(kMostPatience);
    if (most <= budget) return kMostPatience;
    return 1 + (kMostPatience - 1) * std::max(0.0, budget - least) / (most - least);
  }

  // The fastest, none of them much slower than the first, the champion and the default.
  std::vector<Candidate> finalists(size_t i) const {
    constexpr double kMuchSlower = 1.1;
    std::map<std::string, std::pair<double, const Candidate*>> best;  // by trace
    for (const Trial& t : trials_[i]) {
      const Measurement& m = t.measurement;
      if (!m.ok() || m.is_censored || m.times_us.empty()) continue;
      auto [at, is_new] = best.try_emplace(tensor::to_text(t.candidate.trace), m.best_us(), &t.candidate);
      if (!is_new) at->second.first = std::min(at->second.first, m.best_us());
    }
    std::vector<std::pair<double, const Candidate*>> order;
    for (const auto& [trace, entry] : best) order.push_back(entry);
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Candidate> out;
    for (const auto& [us, candidate] : order) {
      const bool is_fast = us <= kMuchSlower * order[0].first && out.size() < static_cast<size_t>(options_.finalists);
      const std::string trace = tensor::to_text(candidate->trace);
      if (is_fast || trace == defaults_[i] || trace == champions_[i]) out.push_back(*candidate);
    }
    return out;
  }

  Status race_all() {
    std::vector<size_t> order;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      if (is_to_race(i)) order.push_back(i);
    }
    const std::vector<TaskState>& states = scheduler_.tasks();
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return states[a].weight * states[a].best_us > states[b].weight * states[b].best_us;
    });
    const double patience = affordable_patience();
    for (auto next = order.begin(); next != order.end() || !begun_.empty();) {
      if (is_interrupted()) break;
      if (next != order.end() && may_begin()) {
        begin_race(*next++, patience);
        continue;
      }
      const size_t i = begun_.front().task;
      Status status = finish_race(patience);
      if (!status.ok()) return status;
      show(i);
    }
    return done();
  }

  // Where there is something to compare, and time.
  void begin_race(size_t i, double patience) {
    Round race{i, finalists(i), options_.measure, hooks_.clock(), seconds_of_race(i, patience)};
    const bool is_in_time =
        options_.seconds <= 0 || race.begin + seconds_of_begun() + race.seconds <= options_.seconds;
    if (race.candidates.size() < 2 || !is_in_time) return;
    race.options.is_fresh = true;
    race.options.patience = patience;
    race.options.precision = 0;  // all of that time
    begin(std::move(race));
  }

  Status finish_race(double patience) {
    const size_t i = begun_.front().task;
    Result<std::vector<Trial>> measured = take_trials();
    if (!measured.ok()) return measured.errors();
    std::vector<Trial>& trials = *measured;
    auto time = [](const Trial& t) {
      return t.measurement.ok() && !t.measurement.is_censored ? t.measurement.best_us() : kNever;
    };
    auto first = std::min_element(trials.begin(), trials.end(), [&](const Trial& a, const Trial& b) { return time(a) < time(b); });
    const bool is_decided = std::isfinite(time(*first));
    for (auto it = trials.begin(); it != trials.end() && is_decided; ++it) {
      const bool is_champion = tensor::to_text(it->candidate.trace) == champions_[i];
      if (is_champion && time(*it) * (1 - kDoubt / patience) <= time(*first)) first = it;
    }
    std::rotate(first, first + 1, trials.end());
    Status recorded = is_decided ? hooks_.record_race(tasks_[i], trials) : hooks_.record(tasks_[i], trials);
    if (!recorded.ok() || !is_decided) return recorded;

    TaskReport& report = reports_[i];
    report.best_us = time(trials.back());
    for (const Trial& t : trials) {
      // Stopped early it takes at least this, in the conditions in which the winner was measured.
      const bool is_default = tensor::to_text(t.candidate.trace) == defaults_[i];
      if (is_default && t.measurement.ok() && std::isfinite(t.measurement.best_us())) report.default_us = t.measurement.best_us();
    }
    scheduler_.settle(i, report.best_us);
    return done();
  }

  TuneState state(std::optional<size_t> task) const {
    TuneState state;
    state.scheduler = &scheduler_;
    state.reports = &reports_;
    state.task = task;
    state.trials = count_;
    state.seconds = hooks_.clock();
    return state;
  }

  void show(size_t task) const {
    if (hooks_.progress) hooks_.progress(state(task));
  }

  const std::vector<Task>& tasks_;
  const tensor::Target& target_;
  Measurer& measurer_;
  const TuneOptions& options_;
  const TuneHooks& hooks_;
  std::unique_ptr<CostModel> model_;
  std::unique_ptr<CostModel> drafter_;
  std::vector<std::unique_ptr<Search>> searches_;
  std::vector<std::vector<Candidate>> seeds_;
  std::vector<std::string> defaults_;   // traces of the default schedules
  std::vector<std::string> champions_;  // and of the winners of earlier races, where there are any
  std::vector<std::vector<Trial>> trials_;
  std::vector<TaskReport> reports_;
  Scheduler scheduler_;
  std::deque<Round> begun_;  // and not finished
  int64_t count_ = 0;
  double seconds_ = 0, last_end_ = 0;  // of all rounds; when the last one ended
};

}  // namespace

Result<TuneReport> tune(const std::vector<Task>& tasks, const tensor::Target& target, Measurer& measurer,
                        const std::vector<std::vector<Trial>>& known, const TuneOptions& options,
                        const TuneHooks& hooks) {
  return Tuner(tasks, target, measurer, options, hooks).run(known);
}

}  // namespace mcc::tuner
