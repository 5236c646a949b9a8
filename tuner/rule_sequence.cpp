// Blocks that do several things one after the other for each of their places, in loops of their own: places in parallel, and neighbours
// along the last axis in vectors, where each does the same and has its data beside that of the one before.
#include <algorithm>

#include "tensor/simplify.h"
#include "tensor/visit.h"
#include "tuner/rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

// Stores, as often as loops of a constant extent repeat them: those whose extent is data are taken to be short.
class CountSteps : public Visitor {
 public:
  int64_t stores = 0;
  double steps = 0;

 protected:
  using Visitor::on;
  void on(const Store&) override {
    ++stores;
    steps += times_;
  }
  void on(const For& n) override {
    const double before = times_;
    int64_t extent = 1;
    if (as_int(n.extent, &extent)) times_ *= static_cast<double>(extent);
    visit(n.body);
    times_ = before;
  }
  void on(const If& n) override {  // one of the two
    const double before = steps;
    visit(n.then_body);
    const double first = steps;
    steps = before;
    visit(n.else_body);
    steps = std::max(first, steps);
  }

 private:
  double times_ = 1;
};

// Whether neighbours along an axis do the same steps, with data that lies side by side or is the same for all.
class RunsInVectors : public Visitor {
 public:
  explicit RunsInVectors(const Var& axis) : axis_(axis) {}
  bool result = true;

 protected:
  using Visitor::on;
  void on(const If& n) override {
    result = result && !uses_var(n.condition, axis_);
    Visitor::on(n);
  }
  void on(const For& n) override {
    result = result && !uses_var(n.min, axis_) && !uses_var(n.extent, axis_);
    visit(n.body);
  }
  void on(const tensor::Let& n) override {  // what follows may depend on it
    result = result && !uses_var(n.value, axis_);
    Visitor::on(n);
  }
  void on(const Load& n) override {
    check(n.indices);
    Visitor::on(n);
  }
  void on(const Store& n) override {
    check(n.indices);
    result = result && uses_var(n.indices.back(), axis_);
    Visitor::on(n);
  }

 private:
  void check(const std::vector<Expr>& indices) {
    for (size_t i = 0; i < indices.size(); ++i) {
      if (!uses_var(indices[i], axis_)) continue;
      const Expr next = substitute(indices[i], {{axis_.get(), axis_ + 1}});
      result = result && i + 1 == indices.size() && is_int(simplify(next - indices[i]), 1);
    }
  }

  const Var axis_;
};

// As many lanes as divide the places along the last axis, in several vectors, whose sums do not wait for each other; 0: there are none.
int64_t lanes_of_places(const Block& block, const Target& target, int64_t extent) {
  constexpr int64_t kMostVectors = 4;
  RunsInVectors check(block.axes.back().var);
  check.visit(block.body);
  if (!check.result) return 0;
  for (int64_t vectors = kMostVectors; vectors >= 1; --vectors)
    if (const int64_t lanes = vectors * target.lanes(32); extent % lanes == 0) return lanes;
  return 0;
}

// The last of the loops over places becomes vectors, or two loops of which the inner one does.
void vectorize_places(Draft& draft, int64_t lanes, int64_t extent, std::vector<std::string>& loops) {
  const std::string last = loops.back(), lane = last + ".lane";
  if (extent == lanes) {
    must_step(draft, Vectorize{last});
    loops.pop_back();
    return;
  }
  must_step(draft, Split{last, {0, lanes}, {last + ".vec", lane}});
  must_step(draft, Vectorize{lane});
  loops.back() = last + ".vec";
}

}  // namespace

void schedule_sequence(Draft& draft, const std::string& name) {
  const Schedule& s = draft.schedule;
  const Block* block = s.find_block(name);
  CountSteps count;
  count.visit(block->body);
  const std::vector<const For*> loops = s.loops_of(name);
  if (count.stores < 2 || loops.size() != block->axes.size()) return;
  std::vector<std::string> outer;
  double steps = count.steps;
  int64_t extent = 0;
  for (size_t i = 0; i < loops.size(); ++i) {
    if (!as_int(loops[i]->extent, &extent) || loops[i]->loop != LoopKind::serial) return;
    steps *= static_cast<double>(extent);
    if (block->axes[i].kind == AxisKind::spatial && outer.size() == i) outer.push_back(loops[i]->var.name());
  }
  if (outer.empty()) return;
  const RuleScope scope(draft, {"steps of one place", name});
  const int64_t lanes = outer.size() == loops.size() ? lanes_of_places(*block, draft.target, extent) : 0;
  if (lanes > 0) {
    vectorize_places(draft, lanes, extent, outer);
    steps /= static_cast<double>(draft.target.lanes(32));
  }
  if (outer.empty() || !choose_parallel(draft, name, estimate_us(steps, steps * 8, draft.target))) return;
  const std::string places = name + ".place";
  if (outer.size() > 1 && !try_step(draft, Fuse{outer, places})) return;
  try_step(draft, Parallel{outer.size() > 1 ? places : outer[0]});
}

}  // namespace mcc::tuner
