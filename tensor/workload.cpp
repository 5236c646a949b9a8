#include "tensor/workload.h"

#include <algorithm>

#include "support/saturating.h"
#include "tensor/visit.h"

namespace mcc::tensor {
namespace {

int64_t static_or_one(const Expr& e) {
  int64_t value = 1;
  as_int(e, &value);
  return value;
}

class CountWork : public Visitor {
 public:
  Work work;

 protected:
  using Visitor::on;

  void on(const For& n) override {
    int64_t outer = iterations_;
    iterations_ = saturating_mul(iterations_, std::max<int64_t>(0, static_or_one(n.extent)));
    Visitor::on(n);
    iterations_ = outer;
  }
  void on(const Block& n) override {
    work.iterations = saturating_add(work.iterations, iterations_);
    visit(n.body);  // once for each instance; bindings and init are not work
  }
  void on(const Binary& n) override {
    if (mcc::is_float(n.a.element())) work.flops = saturating_add(work.flops, saturating_mul(iterations_, n.type.lanes));
    Visitor::on(n);
  }
  void on(const Call& n) override {
    if (mcc::is_float(n.args[0].element())) work.flops = saturating_add(work.flops, saturating_mul(iterations_, n.type.lanes));
    Visitor::on(n);
  }

 private:
  int64_t iterations_ = 1;
};

}  // namespace

Work work_of(const Func& f) {
  CountWork count;
  count.visit(f.body);
  for (const Buffer& b : f.params) {
    int64_t elements = 1;
    for (const Expr& d : b.shape()) elements = saturating_mul(elements, static_or_one(d));
    count.work.bytes = saturating_add(count.work.bytes, saturating_mul(elements, byte_size(b.element())));
  }
  return count.work;
}

}  // namespace mcc::tensor
