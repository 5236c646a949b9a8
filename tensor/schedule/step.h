// Refusals and checks that many steps share.
#pragma once

#include "tensor/schedule/legality.h"
#include "tensor/schedule/schedule.h"
#include "tensor/schedule/tree.h"
#include "tensor/text.h"

namespace mcc::tensor {

inline Outcome refuse_block(const std::string& name) {
  return refuse(RefusalCode::no_such_block, text("expected the name of a block, got \"", name, "\""));
}
inline Outcome refuse_loop(const std::string& name) {
  return refuse(RefusalCode::no_such_loop, text("expected the name of a loop, got \"", name, "\""));
}
inline Outcome refuse_buffer(const std::string& name) {
  return refuse(RefusalCode::bad_argument, text("expected the name of a buffer, got \"", name, "\""));
}
// Loops that are marked already keep their shape.
inline Outcome require_serial(const For* loop) {
  if (loop->loop == LoopKind::serial) return applied();
  return refuse(RefusalCode::bad_argument,
                text("expected loop ", loop->var.name(), " to be serial, got ", to_text(loop->loop)));
}
// A name for something new: well-formed and not taken.
inline Outcome require_new_name(const Names& names, const std::string& name) {
  if (!is_name(name)) {
    return refuse(RefusalCode::bad_argument,
                  text("expected a name of letters, digits, '_' and '.', got \"", name, "\""));
  }
  if (names.taken(name)) {
    return refuse(RefusalCode::bad_argument, text("expected a new name, got ", name, ", which is taken"));
  }
  return applied();
}
inline Outcome parse_scope(const std::string& name, Scope* scope) {
  for (Scope s : {Scope::global, Scope::local, Scope::registers, Scope::shared, Scope::warp}) {
    if (name == to_text(s)) {
      *scope = s;
      return applied();
    }
  }
  return refuse(RefusalCode::bad_argument,
                text("expected a scope (global, local, registers, shared or warp), got \"", name, "\""));
}
// Takes the function over when its parallel and vectorized loops are still sound.
inline Outcome commit(Schedule& schedule, Func func) {
  Outcome outcome = check_threads(func, schedule.proven());
  if (outcome) schedule.set_func(std::move(func));
  return outcome;
}

}  // namespace mcc::tensor
