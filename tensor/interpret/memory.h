// The interpreter's memory: buffers with what is known of each element, for the checks on accesses.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "tensor/stmt.h"

namespace mcc::tensor::interpreter {

// The time of accesses inside parallel loops, and which iterations of which loops are under way. Two accesses race when
// some loop was running at both and had gone on to another iteration in between. The times at which loop k ran earlier
// iterations are [start, current); those intervals of different loops do not overlap.
struct RaceClock {
  struct Loop {
    const For* loop;
    uint32_t start, current;
  };
  std::vector<Loop> running;  // outermost first
  uint32_t now = 0;

  // The loop, counted from outermost, of which an earlier iteration was running at that time; -1 if there is none.
  int conflict(uint32_t time, size_t outermost = 0) const {
    for (size_t k = outermost; k < running.size(); ++k) {
      if (running[k].start <= time && time < running[k].current) return static_cast<int>(k);
    }
    return -1;
  }
};

// Zeroed memory that takes no time until it is touched.
template <class T>
class ZeroedArray {
 public:
  // count may be 0. An array that does not fit into memory throws std::bad_alloc.
  void reset(size_t count) {
    data_.reset(static_cast<T*>(std::calloc(count + 1, sizeof(T))));
    if (!data_) throw std::bad_alloc();
  }
  void clear() { data_.reset(); }
  T* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
};

// One buffer while the function runs.
struct Memory {
  Buffer buffer;
  std::byte* data = nullptr;
  std::vector<int64_t> shape;
  uint8_t* written =
      nullptr;  // for each element, whether it was stored to; null if all elements count as written

  bool is_output = false;

  // Parallel loops that enclose every access. Lowering gives each of their iterations a buffer of its own, so that only
  // reading what another iteration wrote is a fault there. Parameters have none.
  std::vector<const For*> private_to;
  bool accessed = false;

  void allocate(std::vector<int64_t> new_shape);
  void use_caller_memory(std::byte* memory, std::vector<int64_t> new_shape, bool is_written);
  int64_t count() const;

  // Notes an access and gives the loop, counted from outermost, over which it races; -1 if it does not.
  int note_read(const RaceClock& clock, int64_t element);
  int note_write(const RaceClock& clock, int64_t element);

 private:
  // Times of the last accesses; other_read is a read by another iteration than that of last_read.
  struct Accesses {
    uint32_t write, last_read, other_read;
  };
  ZeroedArray<std::byte> owned_;
  ZeroedArray<uint8_t> owned_written_;
  ZeroedArray<Accesses> accesses_;
  size_t capacity_ = 0;  // elements in owned_
};

}  // namespace mcc::tensor::interpreter
