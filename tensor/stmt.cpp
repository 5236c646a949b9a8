#include "tensor/stmt.h"

#include <algorithm>

#include "tensor/visit.h"

namespace mcc::tensor {

Stmt For::make(Var var, Expr min, Expr extent, LoopKind loop, Stmt body, Annotations annotations) {
  MCC_CHECK(var.defined() && var.type() == kIndex, "a loop variable is i64");
  MCC_CHECK(min.defined() && extent.defined() && min.type() == kIndex && extent.type() == kIndex,
            "bounds of loop ", var.name());
  MCC_CHECK(body.defined(), "loop ", var.name(), " has no body");
  return Stmt(new For(std::move(var), std::move(min), std::move(extent), loop, std::move(body),
                      std::move(annotations)));
}

Stmt Block::make(Block* block) {
  Stmt result(block);
  MCC_CHECK(block->axes.size() == block->values.size(), "block ", block->name, ": ", block->axes.size(),
            " axes, ", block->values.size(), " values");
  MCC_CHECK(block->body.defined(), "block ", block->name, " has no body");
  MCC_CHECK(block->predicate.defined() && is_bool(block->predicate.element()), "block ", block->name,
            ": predicate");
  if (block->reads.empty() && block->writes.empty()) {
    if (block->init) collect_accesses(block->init, &block->reads, &block->writes);
    collect_accesses(block->body, &block->reads, &block->writes);
  }
  return result;
}

AxisKind Block::kind_of_steps() const {
  const bool reduces =
      std::any_of(axes.begin(), axes.end(), [](const Axis& a) { return a.kind == AxisKind::reduce; });
  return reduces ? AxisKind::reduce : AxisKind::scan;
}

Block* Block::copy() const {
  auto* block = new Block;
  block->name = name;
  block->axes = axes;
  block->values = values;
  block->predicate = predicate;
  block->reads = reads;
  block->writes = writes;
  block->init = init;
  block->body = body;
  block->annotations = annotations;
  return block;
}

Stmt Store::make(Buffer buffer, std::vector<Expr> indices, Expr value, Expr predicate) {
  MCC_CHECK(static_cast<int>(indices.size()) == buffer.rank(), "store to ", buffer.name(), " with ",
            indices.size(), " indices, rank is ", buffer.rank());
  MCC_CHECK(value.element() == buffer.element(), "store of ", to_text(value.type()), " to ", buffer.name(),
            " of ", to_text(buffer.element()));
  for (const Expr& i : indices) {
    MCC_CHECK(is_int(i.element()) && (i.lanes() == 1 || i.lanes() == value.lanes()), "index of ",
              buffer.name(), " is ", to_text(i.type()));
  }
  return Stmt(new Store(std::move(buffer), std::move(indices), std::move(value), std::move(predicate)));
}

Stmt Seq::make(std::vector<Stmt> stmts) {
  std::vector<Stmt> flat;
  for (const Stmt& s : stmts) {
    if (!s) continue;
    if (const auto* seq = s.as<Seq>()) {
      flat.insert(flat.end(), seq->stmts.begin(), seq->stmts.end());
    } else {
      flat.push_back(s);
    }
  }
  if (flat.size() == 1) return flat[0];
  return Stmt(new Seq(std::move(flat)));
}

Stmt If::make(Expr condition, Stmt then_body, Stmt else_body) {
  MCC_CHECK(condition.defined() && is_bool(condition.element()), "if without a condition");
  MCC_CHECK(then_body.defined(), "if without a body");
  return Stmt(new If(std::move(condition), std::move(then_body), std::move(else_body)));
}

Stmt Let::make(Var var, Expr value, Stmt body) {
  MCC_CHECK(var.type() == value.type(), "let ", var.name(), ": ", to_text(value.type()));
  MCC_CHECK(body.defined(), "let ", var.name(), " has no body");
  return Stmt(new Let(std::move(var), std::move(value), std::move(body)));
}

Stmt Allocate::make(Buffer buffer, Stmt body) {
  MCC_CHECK(buffer.defined() && body.defined(), "allocate");
  return Stmt(new Allocate(std::move(buffer), std::move(body)));
}

Stmt Evaluate::make(Expr value) {
  MCC_CHECK(value.defined(), "evaluate");
  return Stmt(new Evaluate(std::move(value)));
}

std::string_view to_text(LoopKind kind) {
  switch (kind) {
    case LoopKind::serial:
      return "serial";
    case LoopKind::parallel:
      return "parallel";
    case LoopKind::vectorized:
      return "vectorized";
    case LoopKind::unrolled:
      return "unrolled";
    case LoopKind::bound:
      return "bound";
  }
  MCC_UNREACHABLE("unknown loop kind");
}

std::string_view to_text(AxisKind kind) {
  switch (kind) {
    case AxisKind::spatial:
      return "spatial";
    case AxisKind::reduce:
      return "reduce";
    case AxisKind::scan:
      return "scan";
  }
  MCC_UNREACHABLE("unknown axis kind");
}

}  // namespace mcc::tensor
