// Which of several kernels is the fastest, for little time: those that are clearly slower get few runs.
//
// Each candidate runs for 2 ms when it enters (less if its first run is already more than three times slower than the
// best); the better half for 8 ms; the best three for 30 ms. In the later stages blocks of runs are taken in turns, so that a
// change of the machine's speed meets all alike (successive halving: Jamieson and Talwalkar, AISTATS 2016).
// Candidates are compared by their fastest block: what disturbs a run only ever makes it slower.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace mcc::tools {

struct RunBlock {
  double us = 0;              // of one run, the mean
  double wall_us = 0;         // that the block took, with everything around the runs
  bool is_disturbed = false;  // something else ran meanwhile
};

struct RaceOptions {
  double incumbent_us = 0;  // 0: none
  double precision = 0.01;
  double block_us = 300;  // of one block; a block is at least one run
  double stage_us[3] = {2'000, 8'000, 30'000};
  double patience = 1;    // stages are so many times as long; beyond 1 they have enough runs of slow kernels, too
  double hopeless = 3;  // times the best: stopped after the first runs
  double behind = 1.3;  // times the best: not in the later stages
};

struct Lane {
  size_t candidate = 0;
  std::vector<double> times_us;  // of the blocks that count
  double best_us = 0;
  double wall_us = 0;
  bool is_censored = false;
  bool is_winner = false;  // the fastest of all, and not clearly behind the incumbent
};

class Race {
 public:
  // time(candidate, runs) runs a candidate as often as told.
  using Timer = std::function<RunBlock(size_t candidate, int64_t runs)>;
  // Told of each candidate once, when no more is to be learnt of it.
  using Report = std::function<void(const Lane& lane)>;

  Race(const RaceOptions& options, Timer time, Report report);

  // The first stage. warm_us: what the warm-up run took.
  void enter(size_t candidate, double warm_us);
  // The other stages; reports all that are left, the winner last.
  void finish();

 private:
  int64_t runs_of_block(double run_us) const;
  RunBlock take_block(Lane& lane);
  void keep_best(size_t count);
  double stage_us(int stage, double run_us) const;  // its length
  void run_stage(double budget_us);
  double bar_us() const;
  bool is_precise(const Lane& lane) const;

  RaceOptions options_;
  Timer time_;
  Report report_;
  std::vector<Lane> lanes_;  // still in the race
  size_t entered_ = 0;
  double best_us_ = 0;  // of all that entered; 0: none yet
};

}  // namespace mcc::tools
