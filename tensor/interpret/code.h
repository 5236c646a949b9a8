// What the interpreter runs: each expression and statement made once into a small object with one virtual function.
//
// Variables and constants live in slots of one frame; a vector takes as many slots as it has lanes. An operand is either a
// slot or code that computes it, so that reading a variable is not a call.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <string>

#include "support/result.h"
#include "tensor/interpret/memory.h"
#include "tensor/intrinsics.h"

namespace mcc::tensor::interpreter {

// Integers and booleans in i, floats in f; as in tensor/numeric.h.
union Value {
  int64_t i;
  double f;
};
inline Value int_value(int64_t i) { return Value{.i = i}; }
inline Value float_value(double f) { return Value{.f = f}; }

// The function cannot go on. Thrown by the interpreter's code and caught in interpret().
struct Fault {
  std::string message;
};

struct ExprCode {
  virtual ~ExprCode() = default;
  // One of the two is implemented, or both: the value of a scalar, and all lanes of a vector into out.
  virtual Value scalar(Value* frame) const;
  virtual void vector(Value* frame, Value* out) const;
};

// Lane k is at first[k * step].
struct Lanes {
  const Value* first;
  int step;
  Value operator[](int k) const { return first[k * step]; }
};

struct Operand {
  int slot = -1;  // of the value if there is no code, else where code may put its lanes
  int lanes = 1;
  const ExprCode* code = nullptr;

  Value get(Value* frame) const { return code ? code->scalar(frame) : frame[slot]; }
  // A scalar stands for any number of lanes.
  Lanes get_lanes(Value* frame) const {
    if (lanes == 1) {
      if (code) frame[slot] = code->scalar(frame);
      return {frame + slot, 0};
    }
    if (code) code->vector(frame, frame + slot);
    return {frame + slot, 1};
  }
};

struct Access;

// Asynchronous copies of a thread: of the group that is being made, and of those that have not been waited for.
struct AsyncElement {
  const Access* to;
  int64_t element;
  Value value;
};
using AsyncGroup = std::vector<AsyncElement>;
struct AsyncCopies {
  AsyncGroup open;
  std::deque<AsyncGroup> groups;
};

// Products of a warpgroup, as one of its threads sees them. A sum is in flight until the thread has waited for all that add to it.
// Operands are looked at when a product begins, and again when it is done: nobody may have written them in between.
struct ProductOperand {
  const Access* from;
  std::vector<int64_t> elements;
  uint32_t begun;  // epoch
};
struct Product {
  const Access* to = nullptr;
  std::vector<int64_t> sums;
  std::vector<ProductOperand> operands;  // of the first and the last thread of the group
};
struct Products {
  struct InFlight {
    Value value;
    int products = 0;
  };
  std::vector<Product> open;
  std::deque<std::vector<Product>> groups;
  std::map<std::pair<const Memory*, int64_t>, InFlight> in_flight;
  bool is_fenced = false;  // by wgmma_fence since the last wait
};

// The tiles of a CPU's thread, as tile_configure has laid them out.
struct Tiles {
  int rows = 0, k = 0, sums = 0, lefts = 0;  // rows 0: there are none
  std::array<std::array<uint8_t, kTileRows * kTileColumns * 4>, kTiles> bytes;
};

// What one i64 of shared memory counts: the phases of the boxes that are copied for it (bulk_init).
struct Phases {
  int64_t ended = 0;                 // how many
  int64_t expected = -1, begun = 0;  // bytes of the one under way; -1: nobody has said
  AsyncGroup elements;
};

// The threads of a launch's block, each with a frame of its own.
struct Team {
  LaunchClock clock;
  std::vector<std::vector<Value>> frames;
  std::vector<int64_t> extents;   // of the loops over threads, outermost first
  std::vector<Memory*> privates;  // of each thread its own
  std::vector<AsyncCopies> copies;
  std::vector<Products> products;
  std::map<std::pair<const Memory*, int64_t>, Phases> phases;

  int size() const { return static_cast<int>(frames.size()); }
  // The thread goes on; its frame.
  Value* select(int thread) {
    clock.thread = static_cast<uint32_t>(thread);
    for (Memory* memory : privates)
      memory->select(thread);
    return frames[static_cast<size_t>(thread)].data();
  }
  // "thread 3", or by its place in each loop over threads "thread (1, 3)".
  std::string thread_text(uint32_t thread) const;
};
using Threads = std::vector<int>;  // those that carry out a statement, ascending

struct StmtCode {
  virtual ~StmtCode() = default;
  virtual void run(Value* frame) const = 0;
  // All the threads. What makes none of them wait for others, one after the other.
  virtual void run_threads(Team& team, const Threads& threads) const {
    for (int t : threads)
      run(team.select(t));
  }
  bool is_in_step = false;  // has a barrier or an exchange in it
};

// Where an access stands, for messages: the block, and the variables around it.
struct Place {
  std::string block;
  std::vector<std::pair<std::string, int>> vars;  // name and slot
};

// The part of Load and Store that finds elements.
struct Access {
  Memory* memory = nullptr;
  std::vector<Operand> indices;
  bool has_predicate = false;
  Operand predicate;
  int lanes = 1;
  const Place* place = nullptr;
  const RaceClock* clock = nullptr;  // null if races are not looked for
  const Team* team = nullptr;        // the same, of what the threads of a launch share

  // The element's number in the dense buffer.
  int64_t element(Value* frame) const {
    int64_t element = 0;
    for (size_t d = 0; d < indices.size(); ++d) {
      const int64_t index = indices[d].get(frame).i, extent = memory->shape[d];
      if (static_cast<uint64_t>(index) >= static_cast<uint64_t>(extent)) fail_outside(frame, 0);
      element = element * extent + index;
    }
    return element;
  }
  // For every lane; -1 where the predicate is false.
  void elements(Value* frame, int64_t* out) const;
  bool is_active(Value* frame) const { return !has_predicate || predicate.get(frame).i != 0; }

  bool is_written(int64_t element) const { return !memory->written || memory->written[element]; }
  void check_written(Value* frame, int64_t element) const {
    if (!is_written(element)) fail_unwritten(frame, element);
  }
  void note_read(Value* frame, int64_t element) const {
    if (clock) check_read_race(frame, element);
    if (team) check_thread_race(frame, element, false);
  }
  // What a product reads, for this thread: when it begins, and when it is done.
  void begin_product(Value* frame, int64_t element) const;
  void end_product(Value* frame, int64_t element, uint32_t begun) const;
  // is_defined: whether what is stored there has a value.
  // A copy that nobody is busy with has arrived: those that have waited for it may read it.
  void note_arrival(int64_t element) const {
    if (memory->written) memory->written[element] = true;
    if (team) memory->note_arrival(element);
  }
  void note_write(Value* frame, int64_t element, bool is_defined) const {
    if (memory->written) memory->written[element] = is_defined;
    if (clock) check_write_race(frame, element);
    if (team) check_thread_race(frame, element, true);
  }
  void check_distinct(Value* frame, const int64_t* elements) const;
  [[noreturn]] void fail(Value* frame, const std::string& what) const;
  std::string element_text(int64_t element) const;

 private:
  [[noreturn]] void fail_outside(Value* frame, int lane) const;
  [[noreturn]] void fail_unwritten(Value* frame, int64_t element) const;
  void check_read_race(Value* frame, int64_t element) const;
  void check_write_race(Value* frame, int64_t element) const;
  void check_thread_race(Value* frame, int64_t element, bool is_write) const;
  [[noreturn]] void fail_race(Value* frame, int64_t element, int loop, const char* what) const;
};

// What the loads of all element types share.
struct LoadBase : ExprCode {
  explicit LoadBase(Access a) : access(std::move(a)), elements(static_cast<size_t>(access.lanes)) {}
  Access access;
  bool is_copied = false;  // the value is only stored elsewhere, and need not have been written
  mutable std::vector<int64_t> elements;  // last read, -1 in masked lanes; of a scalar only if it is copied
};

// "block matmul at i0 = 3, r0 = 5"
std::string place_text(const Place& place, const Value* frame);

}  // namespace mcc::tensor::interpreter
