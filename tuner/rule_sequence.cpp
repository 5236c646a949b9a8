// Blocks that do several things one after the other for each of their places, in loops of their own: places in parallel.
#include <algorithm>

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

 private:
  double times_ = 1;
};

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
  const RuleScope scope(draft, {"steps of one place", name});
  if (outer.empty() || !choose_parallel(draft, name, estimate_us(steps, steps * 8, draft.target))) return;
  const std::string places = name + ".place";
  if (outer.size() > 1 && !try_step(draft, Fuse{outer, places})) return;
  try_step(draft, Parallel{outer.size() > 1 ? places : outer[0]});
}

}  // namespace mcc::tuner
