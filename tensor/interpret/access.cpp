#include "tensor/interpret/code.h"

namespace mcc::tensor::interpreter {

Value ExprCode::scalar(Value*) const { MCC_UNREACHABLE("a vector read as a scalar"); }
void ExprCode::vector(Value*, Value*) const { MCC_UNREACHABLE("a scalar read as a vector"); }

std::string place_text(const Place& place, const Value* frame) {
  std::string out = place.block.empty() ? "" : text("block ", place.block);
  for (size_t k = 0; k < place.vars.size(); ++k) {
    const auto& [name, slot] = place.vars[k];
    out += text(k > 0 ? ", " : out.empty() ? "" : " at ", name, " = ", frame[slot].i);
  }
  return out.empty() ? "the function's body" : out;
}

void Access::elements(Value* frame, int64_t* out) const {
  Lanes mask{nullptr, 0};
  if (has_predicate) mask = predicate.get_lanes(frame);
  for (int k = 0; k < lanes; ++k)
    out[k] = has_predicate && mask[k].i == 0 ? -1 : 0;
  for (size_t d = 0; d < indices.size(); ++d) {
    const Lanes index = indices[d].get_lanes(frame);
    const int64_t extent = memory->shape[d];
    for (int k = 0; k < lanes; ++k) {
      if (out[k] < 0) continue;
      const int64_t i = index[k].i;
      if (static_cast<uint64_t>(i) >= static_cast<uint64_t>(extent)) fail_outside(frame, k);
      out[k] = out[k] * extent + i;
    }
  }
}

void Access::check_distinct(Value* frame, const int64_t* elements) const {
  bool increasing = true;
  for (int k = 1; k < lanes; ++k)
    increasing &= elements[k] > elements[k - 1];
  if (increasing) return;
  for (int k = 1; k < lanes; ++k) {
    for (int j = 0; j < k; ++j) {
      if (elements[k] >= 0 && elements[k] == elements[j]) {
        fail(frame, text("lanes ", j, " and ", k, " both write ", element_text(elements[k])));
      }
    }
  }
}

std::string Access::element_text(int64_t element) const {
  std::vector<int64_t> index(memory->shape.size());
  for (size_t d = index.size(); d-- > 0;) {
    index[d] = element % memory->shape[d];
    element /= memory->shape[d];
  }
  return text(memory->buffer.name(), list_text(index));
}

void Access::fail(Value* frame, const std::string& what) const {
  throw Fault{text(what, ", in ", place_text(*place, frame))};
}

void Access::fail_outside(Value* frame, int lane) const {
  std::vector<int64_t> index;
  for (const Operand& i : indices)
    index.push_back(i.get_lanes(frame)[lane].i);
  fail(frame, text(memory->buffer.name(), list_text(index), " is outside of the buffer's shape ",
                   list_text(memory->shape)));
}

void Access::fail_unwritten(Value* frame, int64_t element) const {
  fail(frame, text(element_text(element), " is read but was never written"));
}

void Access::check_read_race(Value* frame, int64_t element) const {
  const int loop = memory->note_read(*clock, element);
  if (loop >= 0) fail_race(frame, element, loop, " is read, and written by another iteration of ");
}

void Access::check_write_race(Value* frame, int64_t element) const {
  const int loop = memory->note_write(*clock, element);
  if (loop >= 0) {
    fail_race(frame, element, loop, " is written, and read or written by another iteration of ");
  }
}

void Access::fail_race(Value* frame, int64_t element, int loop, const char* what) const {
  const For& running = *clock->running[static_cast<size_t>(loop)].loop;
  fail(frame, text(element_text(element), what, to_text(running.loop), " loop ", running.var.name()));
}

void Access::check_thread_race(Value* frame, int64_t element, bool is_write) const {
  uint32_t other = 0;
  const Race race = is_write ? memory->note_write(team->clock, element, &other)
                             : memory->note_read(team->clock, element, &other);
  if (race == Race::none) return;
  const std::string what = text(
      element_text(element), is_write ? " is written, and read or written by " : " is read, and written by ");
  if (race == Race::blocks) fail(frame, text(what, "another block of the launch"));
  fail(frame, text(what, team->thread_text(other), " with no barrier in between, by ",
                   team->thread_text(team->clock.thread)));
}

void Access::begin_product(Value* frame, int64_t element) const {
  check_written(frame, element);
  note_read(frame, element);
  uint32_t writer = 0;
  if (team && memory->is_unfenced(team->clock, element, &writer)) {
    fail(frame, text(element_text(element), " is multiplied, and ", team->thread_text(writer),
                     " has not said fence_async() since it wrote it"));
  }
}

void Access::end_product(Value* frame, int64_t element, uint32_t begun) const {
  if (team && memory->is_written_since(team->clock, element, begun))
    fail(frame, text(element_text(element), " is written while a product reads it"));
  note_read(frame, element);
}

std::string Team::thread_text(uint32_t thread) const {
  std::vector<int64_t> place(extents.size());
  for (size_t k = extents.size(); k-- > 0;) {
    place[k] = thread % extents[k];
    thread /= static_cast<uint32_t>(extents[k]);
  }
  if (place.size() == 1) return text("thread ", place[0]);
  std::vector<std::string> parts;
  for (int64_t p : place)
    parts.push_back(text(p));
  return text("thread (", join(parts, ", "), ")");
}

}  // namespace mcc::tensor::interpreter
