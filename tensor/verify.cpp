#include "tensor/verify.h"

#include <algorithm>

#include "tensor/intrinsics.h"
#include "tensor/verify/context.h"
#include "tensor/visit.h"

namespace mcc::tensor {
namespace verifier {
namespace {

// ---- Rules on statements alone ----

bool is_thread_axis(const Annotations& annotations) {
  auto it = annotations.find("thread");
  const auto* name = it == annotations.end() ? nullptr : std::get_if<std::string>(&it->second);
  if (!name) return false;
  for (const char* axis : {"block.x", "block.y", "block.z", "thread.x", "thread.y", "thread.z"}) {
    if (*name == axis) return true;
  }
  return false;
}

const Rule<For> kForRules[] = {
    {"a vectorized loop has a constant extent of 1 or more",
     [](const For& n) {
       int64_t extent = 0;
       return n.loop != LoopKind::vectorized || (as_int(n.extent, &extent) && extent >= 1);
     }},
    {"a bound loop names its thread axis (block.x .. thread.z)",
     [](const For& n) { return n.loop != LoopKind::bound || is_thread_axis(n.annotations); }},
};

const Rule<Store> kStoreRules[] = {
    {"a store's predicate is bool, of as many lanes as the value",
     [](const Store& n) {
       return !n.predicate.defined() || n.predicate.type() == Type{ElementType::boolean, n.value.lanes()};
     }},
    {"the lanes of a store go to different elements",
     [](const Store& n) {
       return n.value.lanes() == 1 ||
              std::any_of(n.indices.begin(), n.indices.end(), [](const Expr& i) { return i.lanes() > 1; });
     }},
};

const Rule<If> kIfRules[] = {
    {"the condition of an if is one bool", [](const If& n) { return n.condition.type() == kBool; }},
};

const Rule<Block> kBlockRules[] = {
    {"the predicate of a block is one bool", [](const Block& n) { return n.predicate.type() == kBool; }},
};

bool is_warpgroup_product(const Call& n) {
  if (n.args.empty()) return true;
  const auto* sums = n.args[0].as<Load>();
  if (!sums || sums->predicate.defined() || sums->indices.size() != 1) return false;
  const ElementType sum = sums->type.element;
  if (is_wgmma(n.function) ? sum != sum_element(n.function)
                           : sum != ElementType::f32 && sum != ElementType::i32)
    return false;
  if (sums->buffer.scope() != Scope::registers && sums->buffer.scope() != Scope::local) return false;
  int64_t number = 0;
  if (n.function == Intrinsic::wgmma_wait) return as_int(n.args[1], &number) && number >= 0;
  if (!is_wgmma(n.function)) return true;
  const int columns = 2 * sums->type.lanes;
  if (columns % 8 != 0 || columns > 256) return false;
  for (const auto& [first, of] :
       {std::pair{size_t{1}, left_element(n.function)}, {size_t{6}, right_element(n.function)}}) {
    const auto* operand = n.args[first].as<Load>();
    if (!operand || operand->predicate.defined() || !(operand->type == Type{of, 1}) ||
        operand->buffer.scope() != Scope::shared)
      return false;
    for (size_t k = 1; k <= 2; ++k) {
      if (!as_int(n.args[first + k], &number) || number < 0 || number % unit_elements(of) != 0) return false;
    }
    if (!as_int(n.args[first + 3], &number) || number < 0 || number > (byte_size(of) == 2 ? 1 : 0))
      return false;
    if (!as_int(n.args[first + 4], &number) || (number != 0 && number != 32 && number != 64 && number != 128))
      return false;
    // Where an element stands has to follow from its address alone.
    if (number != 0 && operand->buffer->alignment % kSwizzleAlign != 0) return false;
  }
  return true;
}

bool is_load_of(const Expr& e, Scope scope) {
  const auto* load = e.as<Load>();
  return load && load->type.lanes == 1 && !load->predicate.defined() && load->indices.size() == 1 &&
         load->buffer.scope() == scope;
}

bool is_bulk_copy(const Call& n) {
  if (!is_load_of(n.args[0], Scope::shared) || n.args[0].element() != ElementType::i64) return false;
  if (n.function != Intrinsic::bulk_copy) return true;
  if (!is_load_of(n.args[1], Scope::shared) || !is_load_of(n.args[3], Scope::global)) return false;
  const auto *to = n.args[1].as<Load>(), *from = n.args[3].as<Load>();
  int64_t swizzle = 0, pitch = 0, height = 0, width = 0, elements = 0;
  if (!as_int(n.args[2], &swizzle) || !as_int(n.args[4], &pitch) || !as_int(n.args[5], &height) ||
      !as_int(n.args[6], &width) || !as_int(from->buffer.shape()[0], &elements))
    return false;
  const int64_t bytes = byte_size(from->buffer.element());
  // What the copy engine's maps can say.
  return to->buffer.element() == from->buffer.element() && is_int(from->indices[0], 0) &&
         to->buffer->alignment % kSwizzleAlign == 0 && (swizzle == 32 || swizzle == 64 || swizzle == 128) &&
         pitch > 0 && elements % pitch == 0 && pitch * bytes % 16 == 0 && width * bytes == swizzle &&
         height > 0 && height <= 256;
}

bool is_of_tiles(const Call& n) {
  // Of each intrinsic: the largest value of its constants; below 0: a load, of any type or of this one.
  constexpr int kLoad = -1, kRow = 1 << 30;
  std::vector<int> most;
  std::vector<ElementType> types;
  switch (n.function) {
    case Intrinsic::tile_product_u8i8:
    case Intrinsic::tile_product_bf16:
      most = {kLoad, kRow, kLoad, kRow, kLoad, kRow, kTileRows, kTileRows};
      types = {sum_element(n.function), left_element(n.function), right_element(n.function)};
      break;
    case Intrinsic::tile_configure:
      most = {kTileRows, kTileRows, kTiles, kTiles};
      break;
    case Intrinsic::tile_load:
    case Intrinsic::tile_store:
      most = {kLoad, kRow, kTiles - 1};
      break;
    default:
      most.assign(n.args.size(), kTiles - 1);
  }
  size_t loads = 0;
  for (size_t i = 0; i < n.args.size(); ++i) {
    int64_t value = 0;
    if (most[i] >= 0) {
      if (!as_int(n.args[i], &value) || value < 0 || value > most[i]) return false;
      continue;
    }
    const auto* load = n.args[i].as<Load>();
    if (!load || load->type.lanes != 1 || load->predicate.defined()) return false;
    if (loads < types.size() && load->type.element != types[loads]) return false;
    ++loads;
  }
  return true;
}

const Rule<Evaluate> kEvaluateRules[] = {
    {"an evaluate is a barrier, a prefetch, of tiles, or about asynchronous copies and products",
     [](const Evaluate& n) {
       const auto* call = n.value.as<Call>();
       return call && is_statement(call->function);
     }},
    {"a prefetch is of a load, with a constant of 0 .. 3",
     [](const Evaluate& n) {
       const auto* call = n.value.as<Call>();
       if (!call || call->function != Intrinsic::prefetch) return true;
       int64_t keep = 0;
       return call->args[0].as<Load>() && as_int(call->args[1], &keep) && 0 <= keep && keep <= 3;
     }},
    {"an asynchronous copy is of 4, 8 or 16 bytes from global into shared memory",
     [](const Evaluate& n) {
       const auto* call = n.value.as<Call>();
       if (!call || call->function != Intrinsic::async_copy) return true;
       const auto *to = call->args[0].as<Load>(), *from = call->args[1].as<Load>();
       if (!to || !from || !(to->type == from->type) || to->predicate.defined()) return false;
       const int64_t bytes = byte_size(to->type.element) * to->type.lanes;
       return to->buffer.scope() == Scope::shared && from->buffer.scope() == Scope::global &&
              (bytes == 4 || bytes == 8 || bytes == 16);
     }},
    {"a wait is for all asynchronous copies but a constant number of groups",
     [](const Evaluate& n) {
       const auto* call = n.value.as<Call>();
       int64_t left = 0;
       return !call || call->function != Intrinsic::async_wait || (as_int(call->args[0], &left) && left >= 0);
     }},
    {"a bulk copy is of swizzled rows of at most 256, from a matrix with rows of a multiple of 16 bytes",
     [](const Evaluate& n) {
       const auto* call = n.value.as<Call>();
       return !call || class_of(call->function) != IntrinsicClass::bulk || is_bulk_copy(*call);
     }},
    {"tiles have constant numbers, at most 16 rows and 16 steps, and loads for their places",
     [](const Evaluate& n) {
       const auto* call = n.value.as<Call>();
       return !call || class_of(call->function) != IntrinsicClass::tile || is_of_tiles(*call);
     }},
    {"products are of neighbouring sums of f32 or i32 of a thread's own, and of 16-bit floats or bytes in "
     "shared memory, at constant distances",
     [](const Evaluate& n) {
       const auto* call = n.value.as<Call>();
       return !call || class_of(call->function) != IntrinsicClass::wgmma || is_warpgroup_product(*call);
     }},
};

// ---- The walk: what is in sight where ----

class CheckStmt : public Visitor {
 public:
  explicit CheckStmt(Context& context) : context_(context) {}

  void function() {
    const Func& f = context_.func;
    if (f.num_outputs < 0 || f.num_outputs > static_cast<int>(f.params.size())) {
      return context_.report("outputs are the last of the parameters", text(f.num_outputs, " outputs"));
    }
    for (const Var& dim : f.dims) {
      if (dim.type() != kIndex) context_.report("a dimension is i64", dim.name());
      if (!context_.vars.insert(dim.get()).second) context_.report("a dimension is listed once", dim.name());
    }
    for (size_t k = 0; k < f.params.size(); ++k) {
      if (f.params[k].scope() != Scope::global) context_.report("a parameter is global", f.params[k].name());
      declare(f.params[k], static_cast<int>(k) < f.num_inputs());
    }
    for (const Buffer& b : f.allocs)
      declare(b, false);
    if (f.body) visit(f.body);
  }

 protected:
  using Visitor::on;

  void on(const For& n) override {
    expr(n.min);
    expr(n.extent);
    within(n, [&] {
      context_.check(kForRules, n);
      if (context_.stage == Stage::blocks && !loop_names_.insert(n.var.name()).second) {
        context_.report("loops have different names", n.var.name());
      }
      const bool is_parallel = n.loop == LoopKind::parallel;
      context_.loops.push_back(&n);
      context_.parallel_depth += is_parallel;
      with_var(n.var, [&] { visit(n.body); });
      context_.parallel_depth -= is_parallel;
      context_.loops.pop_back();
    });
  }

  void on(const Block& n) override {
    within(n, [&] {
      if (context_.stage == Stage::lowered) context_.report("no blocks after lowering");
      if (!block_names_.insert(n.name).second) context_.report("blocks have different names", n.name);
      context_.check(kBlockRules, n);
      for (const Axis& axis : n.axes) {
        expr(axis.domain.min);
        expr(axis.domain.extent);
      }
      for (const Expr& value : n.values)
        expr(value);
      expr(n.predicate);
      context_.conditions.push_back(n.predicate);
      check_block(context_, n);
      context_.conditions.pop_back();
      block_body(n);
    });
  }

  void on(const Store& n) override {
    within(n, [&] {
      context_.check(kStoreRules, n);
      check_access(context_, n.buffer);
      auto it = context_.buffers.find(n.buffer.get());
      if (it != context_.buffers.end() && it->second.is_input) {
        context_.report("inputs are not stored to", n.buffer.name());
      }
      for (const Expr& i : n.indices)
        expr(i);
      expr(n.value);
      expr(n.predicate);
    });
  }

  void on(const If& n) override {
    within(n, [&] {
      context_.check(kIfRules, n);
      expr(n.condition);
      under(n.condition, n.then_body);
      if (n.else_body) under(logical_not(n.condition), n.else_body);
    });
  }

  void on(const Let& n) override {
    within(n, [&] {
      expr(n.value);
      with_var(n.var, [&] { visit(n.body); });
    });
  }

  void on(const Allocate& n) override {
    within(n, [&] {
      if (context_.stage == Stage::blocks) {
        context_.report("before lowering, buffers stand in the function's list", n.buffer.name());
      }
      declare(n.buffer, false);
      visit(n.body);
      context_.buffers.erase(n.buffer.get());
    });
  }

  void on(const Evaluate& n) override {
    within(n, [&] {
      context_.check(kEvaluateRules, n);
      const auto* call = n.value.as<Call>();
      if (!call || !is_statement(call->function)) return expr(n.value);
      for (const Expr& a : call->args)
        expr(a);
    });
  }

 private:
  void expr(const Expr& e) { check_expr(context_, e); }

  template <class F>
  void within(const StmtNode& n, F&& body) {
    context_.path.push_back(&n);
    body();
    context_.path.pop_back();
  }

  void under(const Expr& condition, const Stmt& body) {
    context_.conditions.push_back(condition);
    visit(body);
    context_.conditions.pop_back();
  }

  template <class F>
  void with_var(const Var& var, F&& body) {
    if (!context_.vars.insert(var.get()).second) {
      context_.report("a variable is bound once on the way in", var.name());
      return body();
    }
    body();
    context_.vars.erase(var.get());
  }

  // A block sees its axes and the function's dimensions, and nothing else of what is around it.
  void block_body(const Block& n) {
    auto outside = std::exchange(context_.vars, {});
    for (const Var& dim : context_.func.dims)
      context_.vars.insert(dim.get());
    for (const Axis& axis : n.axes) {
      if (!context_.vars.insert(axis.var.get()).second || outside.contains(axis.var.get())) {
        context_.report("a variable is bound once on the way in", axis.var.name());
      }
    }
    auto loops = std::exchange(context_.loops, {});
    auto conditions = std::exchange(context_.conditions, {});
    for (const auto* regions : {&n.reads, &n.writes}) {
      for (const Region& r : *regions) {
        for (const Range& range : r.ranges) {
          expr(range.min);
          expr(range.extent);
        }
      }
    }
    visit(n.init);
    visit(n.body);
    context_.vars = std::move(outside);
    context_.loops = std::move(loops);
    context_.conditions = std::move(conditions);
  }

  void declare(const Buffer& b, bool is_input) {
    if (b.scope() == Scope::warp && context_.stage == Stage::lowered)
      context_.report("once launches are formed, no buffer is spread over a warp", b.name());
    for (const Expr& extent : b.shape()) {
      if (extent.type() != kIndex) context_.report("the extents of a buffer are i64", b.name());
      expr(extent);
      int64_t value = 0;
      if (b.scope() == Scope::registers && context_.stage == Stage::lowered && !as_int(extent, &value)) {
        context_.report("a buffer in registers has a constant shape", b.name());
      }
    }
    if (!context_.buffers.emplace(b.get(), BufferFacts{is_input, context_.parallel_depth}).second) {
      context_.report("a buffer is listed or allocated once", b.name());
    }
  }

  Context& context_;
  std::unordered_set<std::string> loop_names_, block_names_;
};

std::string first_line(const std::string& s) {
  std::string line = s.substr(0, s.find('\n'));
  return line.ends_with(" {") ? line.substr(0, line.size() - 2) : line;
}

std::string step_text(const StmtNode* node) {
  const Stmt s(node);
  if (const auto* n = s.as<For>()) return text("for ", n->var.name());
  if (const auto* n = s.as<Block>()) return text("block ", n->name);
  if (const auto* n = s.as<Let>()) return text("let ", n->var.name());
  if (const auto* n = s.as<Allocate>()) return text("alloc ", n->buffer.name());
  return first_line(to_text(s));
}

}  // namespace

void Context::report(std::string_view rule, const std::string& detail) {
  std::vector<std::string> steps;
  for (const StmtNode* node : path)
    steps.push_back(step_text(node));
  violations.push_back(text(rule, detail.empty() ? "" : ": ", detail, " (in ", func.name,
                            steps.empty() ? "" : ": ", join(steps, " > "), ")"));
}

}  // namespace verifier

std::vector<std::string> verify(const Func& f, Stage stage) {
  verifier::Context context{f, stage, {}, {}, {}, {}, 0, {}, {}};
  verifier::CheckStmt(context).function();
  return std::move(context.violations);
}

}  // namespace mcc::tensor
