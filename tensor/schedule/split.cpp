// split(loop="i", factors=[0, 16])
//
//   for i in 0..100: block(v = i)
// becomes
//   for i.0 in 0..7: for i.1 in 0..16: block(v = i.0*16 + i.1) where i.0*16 + i.1 < 100
//
// 1. The loop is serial.
// 2. There are 2 to 16 factors, at most one of them 0 (inferred), the others positive.
// 3. The product is at least the extent; a symbolic extent needs an inferred factor.
// 4. Names, when given, are one a factor, well-formed and new (the loop's own name is free).
#include "tensor/schedule/step.h"

namespace mcc::tensor {
namespace {

constexpr int64_t kMaxFactor = int64_t{1} << 31;
constexpr int64_t kMaxProduct = int64_t{1} << 40;

Outcome check_factors(const std::vector<int64_t>& factors, int64_t* product) {
  if (factors.size() < 2 || factors.size() > 16) {
    return refuse(RefusalCode::bad_argument, text("expected 2 to 16 factors, got ", factors.size()));
  }
  *product = 1;
  int inferred = 0;
  for (int64_t factor : factors) {
    if (factor < 0 || factor > kMaxFactor) {
      return refuse(RefusalCode::bad_argument, text("expected factors of 1 to 2^31, or 0, got ", factor));
    }
    if (factor == 0) {
      ++inferred;
    } else {
      *product *= factor;
    }
    if (*product > kMaxProduct) {
      return refuse(RefusalCode::bad_argument,
                    text("expected a product of at most 2^40, got ", list_text(factors)));
    }
  }
  if (inferred > 1) {
    return refuse(RefusalCode::bad_argument, text("expected at most one factor 0, got ", list_text(factors)));
  }
  return applied();
}

// The names of the new loops, or why those given will not do.
Outcome choose_names(const Split& step, const Func& f, std::vector<std::string>* names) {
  Names taken(f);
  if (step.names.empty()) {
    for (size_t i = 0; i < step.factors.size(); ++i)
      names->push_back(taken.unique(text(step.loop, ".", i)));
    return applied();
  }
  if (step.names.size() != step.factors.size()) {
    return refuse(RefusalCode::bad_argument,
                  text("expected ", step.factors.size(), " names, got ", step.names.size()));
  }
  std::set<std::string> seen;
  for (const std::string& name : step.names) {
    if (name != step.loop) {
      if (Outcome o = require_new_name(taken, name); !o) return o;
    }
    if (!seen.insert(name).second) {
      return refuse(RefusalCode::bad_argument, text("expected different names, got ", name, " twice"));
    }
  }
  *names = step.names;
  return applied();
}

}  // namespace

Outcome apply_step(const Split& step, Schedule& schedule) {
  const Func& f = schedule.func();
  const For* loop = schedule.find_loop(step.loop);
  if (loop == nullptr) return refuse_loop(step.loop);
  if (Outcome o = require_serial(loop); !o) return o;
  int64_t product = 1, extent = 0;
  if (Outcome o = check_factors(step.factors, &product); !o) return o;
  std::vector<std::string> names;
  if (Outcome o = choose_names(step, f, &names); !o) return o;

  bool is_constant = as_int(loop->extent, &extent);
  bool infers = std::count(step.factors.begin(), step.factors.end(), 0) != 0;
  if (!infers && (!is_constant || product < extent)) {
    return refuse(RefusalCode::bad_argument, text("expected factors with a product of at least ",
                                                  to_text(loop->extent), ", got ", list_text(step.factors)));
  }
  Analyzer analyzer = analyzer_at(f, loops_around(f.body, loop));
  Expr inferred = analyzer.simplify(ceil_div(loop->extent, product));

  std::vector<LoopSpec> loops;
  Expr value = 0, stride = 1;
  for (size_t i = step.factors.size(); i-- > 0;) {
    Expr size = step.factors[i] == 0 ? inferred : Expr(step.factors[i]);
    loops.insert(loops.begin(), {Var(names[i]), size});
    value = loops.front().var * stride + value;
    stride = stride * size;
  }
  for (const LoopSpec& l : loops)
    analyzer.bind(l.var, 0, l.extent);
  value = analyzer.simplify(value);
  bool divides = is_constant ? is_int(analyzer.simplify(stride), extent)
                             : analyzer.can_prove(floor_mod(loop->extent, product) == 0);
  Expr condition = divides ? true_value() : analyzer.simplify(value < loop->extent);
  VarMap map{{loop->var.get(), loop->min + value}};
  Stmt body = rebind(loop->body, map, condition, analyzer);
  for (size_t i = loops.size(); i-- > 0;) {
    body = For::make(loops[i].var, 0, loops[i].extent, LoopKind::serial, body,
                     i == 0 ? loop->annotations : Annotations());
  }
  Func result = f;
  result.body = replace_stmt(f.body, loop, body);
  schedule.set_func(std::move(result));
  return applied();
}

}  // namespace mcc::tensor
