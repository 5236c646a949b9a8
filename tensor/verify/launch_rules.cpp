#include <unordered_set>

#include "tensor/grid.h"
#include "tensor/intrinsics.h"
#include "tensor/library_product.h"
#include "tensor/passes/bulk_copies.h"
#include "tensor/passes/scope.h"
#include "tensor/text.h"
#include "tensor/verify.h"

namespace mcc::tensor {
namespace {

// Finds barriers and exchanges that some threads may not come to.
class FindDivergence : public Visitor {
 public:
  explicit FindDivergence(const LaunchForm& launch) {
    for (const For* loop : launch.threads)
      different_.insert(loop->var.node());
  }
  std::vector<std::string> found;

 protected:
  using Visitor::on;
  void on(const For& n) override {
    const bool differs = is_different(n.min) || is_different(n.extent);
    Visitor::visit(n.min);
    Visitor::visit(n.extent);
    if (differs) different_.insert(n.var.node());
    within(differs ? text("loop ", n.var.name()) : "", [&] { visit(n.body); });
  }
  void on(const If& n) override {
    Visitor::visit(n.condition);
    within(is_different(n.condition) ? text("condition ", to_text(n.condition)) : "", [&] {
      visit(n.then_body);
      visit(n.else_body);
    });
  }
  void on(const Let& n) override {
    if (is_different(n.value)) different_.insert(n.var.node());
    Visitor::on(n);
  }
  void on(const Call& n) override {
    const bool is_together = n.function == Intrinsic::barrier || is_exchange(n.function) ||
                             (class_of(n.function) == IntrinsicClass::wgmma && n.function != Intrinsic::fence_async);
    if (is_together && !under_.empty()) {
      found.push_back(text(to_text(n.function), " under ", under_, ", which differs between threads"));
    }
    Visitor::on(n);
  }

 private:
  bool is_different(const Expr& e) const {
    bool differs = uses_any_var(e, [&](const VarNode* v) { return different_.contains(v); });
    for_each_expr(Evaluate::make(e), [&](const Expr& below) {
      const auto* load = below.as<Load>();
      differs |= load && (load->buffer.scope() == Scope::local || load->buffer.scope() == Scope::registers);
    });
    return differs;
  }
  template <class F>
  void within(const std::string& what, F&& body) {
    std::string saved = under_;
    if (under_.empty()) under_ = what;
    body();
    under_ = saved;
  }

  std::unordered_set<const VarNode*> different_;
  std::string under_;  // the outermost place that not all threads come to
};

class CheckLaunches {
 public:
  CheckLaunches(const Func& f, const Gpu& gpu) : func_(f), gpu_(gpu) {}
  std::vector<std::string> violations;

  void part(const Stmt& s) {
    if (const auto* allocate = s.as<Allocate>(); allocate && allocate->buffer.scope() == Scope::global) {
      return part(allocate->body);
    }
    if (const auto* seq = s.as<Seq>()) {
      for (const Stmt& below : seq->stmts)
        part(below);
      return;
    }
    if (is_launch_loop(s)) {
      const For& loop = *s.as<For>();
      int64_t ignored = 0;
      const bool is_of_dims = !has_load(loop.extent) && !uses_any_var(loop.extent, [&](const VarNode* v) {
        return std::none_of(func_.dims.begin(), func_.dims.end(),
                            [&](const Var& dim) { return dim.get() == v; });
      });
      const bool is_known =
          as_int(loop.min, &ignored) && is_of_dims && (depth_ == 0 || as_int(loop.extent, &ignored));
      if (!is_known)
        report(text("a loop around launches has bounds that are known before the run: ", loop.var.name()));
      ++depth_;
      part(loop.body);
      --depth_;
      return;
    }
    if (is_library_nest(s)) {
      Result<LibraryProduct> product = library_product(*s.as<For>());
      if (!product.ok()) report(product.errors()[0].message);
      return;
    }
    std::optional<LaunchForm> form = as_launch(s);
    if (!form) return report(text("kernel part ", name_of(s), " is not bound to the grid"));
    name_ = name_of(s);
    loops(*form);
    memory(*form);
    FindDivergence divergence(*form);
    divergence.visit(form->body);
    for (const std::string& what : divergence.found)
      report(what);
  }

 private:
  void report(const std::string& what) {
    violations.push_back(text(what, " (in ", func_.name, name_.empty() ? "" : ": ", name_, ")"));
  }

  static std::string name_of(const Stmt& s) {
    std::string buffer;
    for_each_stmt(s, [&](const Stmt& below) {
      const auto* store = below.as<Store>();
      if (store && buffer.empty()) buffer = store->buffer.name();
    });
    const auto* loop = s.as<For>();
    return text(loop ? text("for ", loop->var.name()) : "", loop ? ", " : "", "which computes ", buffer);
  }

  void loops(const LaunchForm& form) {
    int last = -1;
    int64_t threads = 1;
    for (const auto* group : {&form.blocks, &form.threads}) {
      for (const For* loop : *group) {
        const GridAxisInfo& axis = info_of(*grid_axis(*loop));
        if (static_cast<int>(axis.axis) <= last)
          report(text("the loops of a launch stand in order: ", axis.name));
        last = static_cast<int>(axis.axis);
        int64_t extent = 0;
        bool is_constant = as_int(loop->extent, &extent);
        if (!is_int(loop->min, 0)) report(text("a bound loop starts at 0: ", loop->var.name()));
        if (is_constant && extent > axis.most)
          report(text(axis.name, " has ", extent, " iterations, ", axis.most, " is the limit"));
        if (is_block_axis(axis.axis)) continue;
        if (!is_constant) report(text("the number of threads is constant: ", loop->var.name()));
        threads *= extent;
      }
    }
    if (threads > gpu_.threads_per_block) {
      report(text("a block has ", threads, " threads, ", gpu_.threads_per_block, " is the limit"));
    }
  }

  void memory(const LaunchForm& form) {
    int64_t bytes = 0;
    for (const Buffer& b : form.shared) {
      std::optional<int64_t> size = constant_bytes(b);
      if (!size) report(text("shared memory has a constant size: ", b.name()));
      bytes += size.value_or(0);
    }
    if (bytes > gpu_.shared_per_block_max) {
      report(text("a block has ", bytes, " bytes of shared memory, ", gpu_.shared_per_block_max,
                  " is the limit"));
    }
    for_each_stmt(form.body, [&](const Stmt& s) {
      const auto* loop = s.as<For>();
      if (loop && is_bulk(*loop))
        report(text("the copy engine cannot make the copies of loop ", loop->var.name(),
                    ", which one thread would make instead"));
      const auto* allocate = s.as<Allocate>();
      if (!allocate) return;
      const Buffer& b = allocate->buffer;
      if (b.scope() == Scope::global || b.scope() == Scope::shared) {
        report(text("allocated inside of the loops over threads, a buffer is local or in registers: ",
                    b.name()));
      } else if (!constant_bytes(b)) {
        report(text("what a thread has to itself has a constant size: ", b.name()));
      }
    });
  }

  const Func& func_;
  const Gpu& gpu_;
  int depth_ = 0;  // loops around launches
  std::string name_;
};

}  // namespace

std::vector<std::string> verify_launches(const Func& f, const Gpu& gpu) {
  CheckLaunches check(f, gpu);
  if (f.body) check.part(f.body);
  return std::move(check.violations);
}

}  // namespace mcc::tensor
