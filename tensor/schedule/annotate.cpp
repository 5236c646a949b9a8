// annotate(loop="k.0", key="prefetch", value="2")
//
// The loop (or block) carries the fact prefetch = 2. A value that reads as an integer is kept as one. A key that is there
// already gets the new value.
//
// 1. Exactly one of loop and block is given, and exists.
// 2. The key is a name, and none of those under which other steps and passes keep what they have made sure of.
#include <charconv>

#include "tensor/grid.h"
#include "tensor/schedule/step.h"

namespace mcc::tensor {
namespace {

constexpr std::string_view kReserved[] = {"thread", "instruction", "scan", kCross, kRecomputed};

Annotation as_annotation(const std::string& value) {
  int64_t number = 0;
  auto [end, code] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (code == std::errc() && end == value.data() + value.size()) return number;
  return value;
}

}  // namespace

Outcome apply_step(const Annotate& step, Schedule& schedule) {
  if (step.block.empty() == step.loop.empty()) {
    return refuse(RefusalCode::bad_argument, "expected either a block or a loop, got both or neither");
  }
  if (!is_name(step.key)) {
    return refuse(RefusalCode::bad_argument, text("expected a name as the key, got \"", step.key, "\""));
  }
  if (std::find(std::begin(kReserved), std::end(kReserved), step.key) != std::end(kReserved)) {
    return refuse(RefusalCode::bad_argument,
                  text("expected a key of one's own, got \"", step.key, "\", which other steps set"));
  }
  const Func& f = schedule.func();
  Func result = f;
  if (!step.loop.empty()) {
    const For* loop = schedule.find_loop(step.loop);
    if (loop == nullptr) return refuse_loop(step.loop);
    Annotations annotations = loop->annotations;
    annotations[step.key] = as_annotation(step.value);
    result.body = replace_stmt(
        f.body, loop,
        For::make(loop->var, loop->min, loop->extent, loop->loop, loop->body, std::move(annotations)));
  } else {
    const Block* old = schedule.find_block(step.block);
    if (old == nullptr) return refuse_block(step.block);
    Block* block = old->copy();
    block->annotations[step.key] = as_annotation(step.value);
    result.body = replace_stmt(f.body, old, Block::make(block));
  }
  schedule.set_func(std::move(result));
  return applied();
}

}  // namespace mcc::tensor
