// The space of a task: all points of all sketches that fit it, to be sampled, enumerated, mutated and crossed.
//
// A point is known by what its sketch asked and what was answered; what is asked may depend on earlier answers, so a point
// is made by running the sketch (plan_point): 0.1 to 0.6 ms for a matmul or a convolution. So a search can afford some
// thousands of points a second and no more: drafts are counted in hundreds, not in tens of thousands.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <span>

#include "tuner/answers.h"
#include "tuner/random.h"
#include "tuner/sketch.h"

namespace mcc::tuner {

// Answers drawn uniformly from what is allowed.
class SampleDecider : public Decider {
 public:
  SampleDecider(AnswerTable& answers, Random random) : answers_(answers), random_(random) {}
  Answer answer(const Choice& choice, const Answer& preferred) override;

 private:
  AnswerTable& answers_;
  Random random_;
};

struct SpaceSize {
  double points = 0;  // exact: different legal traces; else points, estimated along the preferred path
  bool is_exact = false;
};

// Where an enumeration stands.
struct Cursor {
  std::vector<int64_t> path;  // numbers of the answers in the order of the questions; 0 from there on
  bool is_done = false;
};

class Space {
 public:
  // Spaces of at most so many points are worth going through.
  static constexpr int64_t kExactLimit = 4096;

  // f and target must outlive it.
  Space(const tensor::Func& f, const tensor::Target& target, std::span<const Sketch> sketches);

  // Those that fit, in the order given.
  const std::vector<const Sketch*>& sketches() const { return sketches_; }
  const Sketch* find(std::string_view name) const;  // null if there is none that fits

  // Points that are not legal are values, too: Planned::outcome says why, refusals() counts them. Several threads may plan at
  // once.
  Planned preferred(const Sketch& sketch);
  Planned sample(const Sketch& sketch, Random random);
  // Choices that the point leaves open get what analysis prefers.
  Planned at(const Sketch& sketch, const Point& point);
  // One decision is changed. A tile moves a divisor from one level to another, what else is redrawn. Which one: a tile
  // size (also counts of vectors, rows, chunks) with probability 0.90, a place of computation 0.05, unrolling 0.04,
  // parallel or not 0.01, among the kinds that the parent has (Ansor's and MetaSchedule's figures for CPUs).
  Planned mutate(const Sketch& sketch, const Planned& parent, Random random);
  // Each decision from one of two parents of this sketch.
  Planned cross(const Sketch& sketch, const Point& a, const Point& b, Random random);

  // The points one step away: each decision one option up or down, each tile with one prime factor moved. `stride`
  // options at once for decisions of many options.
  std::vector<Point> neighbours(const Planned& planned, int64_t stride = 1);

  // Calls visit for each point of a sketch, depth first over what is asked, in order, legal or not, until it returns
  // false. Begins at the cursor, and leaves it at the first point not visited.
  void enumerate(const Sketch& sketch, Cursor& cursor, const std::function<bool(Planned&&)>& visit);

  // Goes through a small space, sketch after sketch: each point once over all calls, as a call begins where the one before it
  // ended. Calls visit until it returns false. Visits nothing of a space that the estimate says to be large, and no more than
  // kExactLimit points of one where it was wrong.
  void go_through(const std::function<bool(Planned&&)>& visit);

  // Product of the numbers of answers along the preferred path.
  double estimate(const Sketch& sketch);
  // Of all sketches: an estimate, exact once go_through has come to the end. Counting takes a plan of each point, minutes for the
  // kernels of a model for GPUs, so nothing is counted only to be told.
  SpaceSize size();

  const std::map<tensor::RefusalCode, int64_t>& refusals() const { return refusals_; }

 private:
  Planned plan(const Sketch& sketch, const Point& point, Decider& otherwise);

  const tensor::Func& f_;
  const tensor::Target& target_;
  const std::vector<OpenInstance> instances_;  // of a function with symbolic dimensions
  std::vector<const Sketch*> sketches_;
  AnswerTable answers_;
  std::mutex refusals_mutex_;
  std::map<tensor::RefusalCode, int64_t> refusals_;
  std::optional<double> estimated_;  // points of all sketches
  // Of go_through.
  size_t sketch_ = 0;
  Cursor cursor_;
  int64_t visited_ = 0;
  std::set<uint64_t> traces_;  // hashes of those of legal points
};

}  // namespace mcc::tuner
