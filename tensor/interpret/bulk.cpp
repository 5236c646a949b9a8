// Boxes that the copy engine moves into shared memory, and the phases by which threads wait for them.
#include <cstring>

#include "tensor/interpret/compile.h"
#include "tensor/intrinsics.h"
#include "tensor/numeric.h"
#include "tensor/text.h"

namespace mcc::tensor::interpreter {
namespace {

struct PhaseCode : StmtCode {
  Phases& phases(Value* frame) const {
    const int64_t element = bar.element(frame);
    bar.check_written(frame, element);
    bar.note_read(frame, element);
    auto it = team->phases.find({bar.memory, element});
    if (it == team->phases.end()) bar.fail(frame, text(bar.element_text(element), " counts no phases"));
    return it->second;
  }
  Access bar;
  Team* team = nullptr;
};

struct BeginCode final : PhaseCode {
  void run(Value* frame) const override {
    const int64_t element = bar.element(frame);
    bar.note_write(frame, element, true);
    team->phases[{bar.memory, element}] = {};
  }
};

struct ExpectCode final : PhaseCode {
  void run(Value* frame) const override {
    Phases& p = phases(frame);
    if (p.expected >= 0) bar.fail(frame, "bytes are expected twice in one phase");
    p.expected = bytes.get(frame).i;
  }
  Operand bytes;
};

struct CopyCode final : PhaseCode {
  void run(Value* frame) const override {
    Phases& p = phases(frame);
    uint32_t writer = 0;
    if (bar.memory->is_unfenced(team->clock, bar.element(frame), &writer))
      bar.fail(frame, text(team->thread_text(writer), " has not said fence_async() since bulk_init"));
    const int64_t first = to.element(frame), count = to.memory->count(), rows = from.memory->count() / pitch,
                  left = column.get(frame).i, top = row.get(frame).i,
                  bytes = byte_size(to.memory->buffer.element());
    constexpr int64_t kUnit = 16, kPeriod = 128;  // bytes
    if (first * bytes % kPeriod != 0) to.fail(frame, "a box goes to other than a multiple of 128 bytes");
    for (int64_t y = 0; y < height; ++y) {
      for (int64_t x = 0; x < width; ++x) {
        const int64_t plain = (first + y * width + x) * bytes,
                      element = (plain ^ plain / kPeriod % (swizzle / kUnit) * kUnit) / bytes;
        if (element >= count)
          to.fail(frame, text("a box ends behind the ", count, " elements of ", to.memory->buffer.name()));
        Value value = int_value(0);
        if (top + y >= 0 && top + y < rows && left + x >= 0 && left + x < pitch) {
          const int64_t source = (top + y) * pitch + left + x;
          from.check_written(frame, source);
          from.note_read(frame, source);
          value = read(source);
        }
        to.note_write(frame, element, false);
        p.elements.push_back({&to, element, value});
      }
    }
    p.begun += height * width * bytes;
  }
  // Bits, as they are.
  Value read(int64_t element) const {
    const auto bytes = static_cast<size_t>(byte_size(from.memory->buffer.element()));
    int64_t bits = 0;
    std::memcpy(&bits, from.memory->data + static_cast<size_t>(element) * bytes, bytes);
    return int_value(bits);
  }
  Access to, from;
  Operand column, row;
  int64_t swizzle = 0, pitch = 0, height = 0, width = 0;
};

struct WaitCode final : PhaseCode {
  void run(Value* frame) const override {
    Phases& p = phases(frame);
    const int64_t last = p.ended - 1;
    if (last >= 0 && last % 2 == parity.get(frame).i) return;
    if (p.expected < 0 || p.begun != p.expected) {
      bar.fail(frame, text("a wait without end: of ", p.expected, " bytes that were expected, ", p.begun,
                           " are copied"));
    }
    for (const AsyncElement& e : p.elements) {
      const auto bytes = static_cast<size_t>(byte_size(e.to->memory->buffer.element()));
      std::memcpy(e.to->memory->data + static_cast<size_t>(e.element) * bytes, &e.value.i, bytes);
      e.to->note_arrival(e.element);
    }
    const int64_t ended = p.ended + 1;
    p = {};
    p.ended = ended;
    if (ended % 2 == parity.get(frame).i) bar.fail(frame, "a wait for a phase that comes later");
  }
  Operand parity;
};

}  // namespace

const StmtCode* Compiler::bulk(const Call& n) {
  if (!in_launch_) throw Fault{text(to_text(n.function), " is for the threads of a launch")};
  auto place_of = [&](size_t arg) {
    const auto* load = n.args[arg].as<Load>();
    if (!load || load->type.lanes != 1) throw Fault{text(to_text(n.function), " takes loads for its places")};
    return access(load->buffer, load->indices, nullptr, 1);
  };
  auto constant_of = [&](size_t arg) {
    int64_t value = 0;
    if (!as_int(n.args[arg], &value) || value <= 0)
      throw Fault{text(to_text(n.function), " takes a box of constant size")};
    return value;
  };
  auto finish = [&](auto code) {
    code->bar = place_of(0);
    code->team = &program_.team;
    expect_no_exchanges("a store or a let only");
    return add_stmt(std::move(code));
  };
  switch (n.function) {
    case Intrinsic::bulk_init:
      return finish(std::make_unique<BeginCode>());
    case Intrinsic::bulk_expect: {
      auto code = std::make_unique<ExpectCode>();
      code->bytes = expr(n.args[1]);
      return finish(std::move(code));
    }
    case Intrinsic::bulk_wait: {
      auto code = std::make_unique<WaitCode>();
      code->parity = expr(n.args[1]);
      return finish(std::move(code));
    }
    default:
      break;
  }
  auto code = std::make_unique<CopyCode>();
  code->to = place_of(1);
  code->swizzle = constant_of(2);
  code->from = place_of(3);
  code->pitch = constant_of(4);
  code->height = constant_of(5);
  code->width = constant_of(6);
  code->column = expr(n.args[7]);
  code->row = expr(n.args[8]);
  return finish(std::move(code));
}

}  // namespace mcc::tensor::interpreter
