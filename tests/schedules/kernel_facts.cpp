#include "schedules/kernel_facts.h"

#include <algorithm>

#include "tensor/simplify.h"
#include "tensor/visit.h"

namespace mcc::test {
namespace {

using namespace tensor;

class Count : public Visitor {
 public:
  explicit Count(int lanes) : lanes_(lanes) {}
  KernelFacts facts;

 protected:
  using Visitor::on;

  void on(const For& n) override {
    double before = times_;
    int64_t extent = extent_of(n);
    times_ *= static_cast<double>(extent);
    if (n.loop == LoopKind::parallel) facts.parallel = std::max(facts.parallel, extent);
    first_[n.var.get()] = n.min;
    Visitor::on(n);
    times_ = before;
  }
  void on(const Let& n) override {
    first_[n.var.get()] = n.value;
    Visitor::on(n);
  }
  void on(const Allocate& n) override {
    int64_t held = registers_;
    if (n.buffer.scope() == Scope::registers) {
      int64_t count = 1, extent = 0;
      for (const Expr& e : n.buffer.shape())
        count *= as_int(e, &extent) ? extent : 1;
      registers_ += (count + lanes_ - 1) / lanes_;
      facts.registers = std::max(facts.registers, registers_);
    }
    Visitor::on(n);
    registers_ = held;
  }
  void on(const Store& n) override {
    add(std::max(n.value.lanes(), n.indices.empty() ? 1 : n.indices[0].lanes()));
    Visitor::on(n);
  }
  void on(const Binary& n) override {
    if (is_float(n.type.element)) add(n.type.lanes);
    Visitor::on(n);
  }
  void on(const Call& n) override {
    if (is_float(n.type.element)) add(n.type.lanes);
    Visitor::on(n);
  }

 private:
  void add(int lanes) { (lanes >= lanes_ ? facts.vector_work : facts.scalar_work) += times_ * lanes; }

  // Of a loop whose extent depends on others: the one of their first turns.
  int64_t extent_of(const For& n) const {
    Expr e = n.extent;
    int64_t extent = 0;
    for (int depth = 0; depth < 32 && !as_int(e, &extent); ++depth)
      e = simplify(substitute(e, first_));
    return std::max<int64_t>(extent, 0);
  }

  int lanes_;
  double times_ = 1;
  int64_t registers_ = 0;
  VarMap first_;
};

}  // namespace

KernelFacts facts_of(const Func& lowered, int lanes) {
  Count count(lanes);
  count.visit(lowered.body);
  return count.facts;
}

}  // namespace mcc::test
