#include "tensor/workload.h"

#include <algorithm>

#include "support/saturating.h"
#include "tensor/guarded_update.h"
#include "tensor/simplify.h"
#include "tensor/visit.h"

namespace mcc::tensor {
namespace {

int64_t static_or_one(const Expr& e) {
  int64_t value = 1;
  as_int(e, &value);
  return value;
}

// Operations of one instance of each block, and how often the loops around it run.
class CountWork : public Visitor {
 public:
  struct Counted {
    std::vector<Expr> extents;
    int64_t flops = 0;
  };
  std::vector<Counted> blocks;

 protected:
  using Visitor::on;

  void on(const For& n) override {
    extents_.push_back(n.extent);
    Visitor::on(n);
    extents_.pop_back();
  }
  void on(const Block& n) override {
    blocks.push_back({extents_, 0});
    visit(n.body);  // once for each instance; bindings and init are not work
  }
  void on(const Binary& n) override {
    if (mcc::is_float(n.a.element())) add(n.type.lanes);
    Visitor::on(n);
  }
  // How many are made is not known.
  void on(const Store& n) override {
    if (!guarded_update(n)) Visitor::on(n);
  }
  void on(const Call& n) override {
    if (mcc::is_float(n.args[0].element())) add(n.type.lanes);
    Visitor::on(n);
  }

 private:
  void add(int64_t flops) {
    if (!blocks.empty()) blocks.back().flops = saturating_add(blocks.back().flops, flops);
  }
  std::vector<Expr> extents_;
};

}  // namespace

Work work_of(const Func& f) {
  CountWork count;
  count.visit(f.body);
  Work work;
  for (const CountWork::Counted& block : count.blocks) {
    int64_t iterations = 1;
    for (const Expr& extent : block.extents)
      iterations = saturating_mul(iterations, std::max<int64_t>(0, static_or_one(extent)));
    work.iterations = saturating_add(work.iterations, iterations);
    work.flops = saturating_add(work.flops, saturating_mul(iterations, block.flops));
  }
  for (const Buffer& b : f.params) {
    int64_t elements = 1;
    for (const Expr& d : b.shape()) elements = saturating_mul(elements, static_or_one(d));
    work.bytes = saturating_add(work.bytes, saturating_mul(elements, byte_size(b.element())));
  }
  return work;
}

SymbolicWork symbolic_work_of(const Func& f) {
  CountWork count;
  count.visit(f.body);
  SymbolicWork work;
  for (const CountWork::Counted& block : count.blocks) {
    Expr flops = block.flops;
    for (const Expr& extent : block.extents)
      flops = flops * extent;
    work.flops = work.flops + flops;
  }
  for (const Buffer& b : f.params) {
    Expr bytes = byte_size(b.element());
    for (const Expr& d : b.shape())
      bytes = bytes * d;
    work.bytes = work.bytes + bytes;
  }
  return {simplify(work.flops), simplify(work.bytes)};
}

}  // namespace mcc::tensor
