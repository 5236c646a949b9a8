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

// Where a launch is: which block runs, which of its threads, and how many barriers it has passed. Blocks are numbered through
// all launches, from 1; those of this launch from first_block.
struct LaunchClock {
  uint32_t first_block = 1, block = 0, epoch = 0, thread = 0;
  std::vector<uint32_t> fences;  // of each thread, how often it has said fence_async()
};

// The accesses of an element that a launch has to look out for: two threads of a block between barriers, or two blocks.
enum class Race : uint8_t { none, threads, blocks };

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
  // In the function's list of intermediates: in a launch without barriers still each thread's own, maybe.
  bool is_unplaced = false;
  bool is_of_threads = false;  // each thread of a launch has one of its own, though it is not allocated there yet
  bool is_of_blocks = false;   // each block of a launch has one of its own, though it is not allocated there yet

  // Parallel loops that enclose every access. Lowering gives each of their iterations a buffer of its own, so that only
  // reading what another iteration wrote is a fault there. Parameters have none.
  std::vector<const For*> private_to;
  bool accessed = false;

  void allocate(std::vector<int64_t> new_shape);
  // One for each thread; select makes one of them the buffer's.
  void allocate_for_threads(std::vector<int64_t> new_shape, int threads);
  void select(int thread);
  void use_caller_memory(std::byte* memory, std::vector<int64_t> new_shape, bool is_written);
  int64_t count() const;

  // Notes an access and gives the loop, counted from outermost, over which it races; -1 if it does not.
  int note_read(const RaceClock& clock, int64_t element);
  int note_write(const RaceClock& clock, int64_t element);
  // The same in a launch. other_thread is one of the two, when they are of one block.
  Race note_read(const LaunchClock& clock, int64_t element, uint32_t* other_thread);
  Race note_write(const LaunchClock& clock, int64_t element, uint32_t* other_thread);
  // What a thread had written for it by the copy engine is there: a write by no thread, before the last barrier.
  void note_arrival(int64_t element);
  // Whether this block has written the element since that time (an epoch), or some thread has and has not said so by fence_async().
  bool is_written_since(const LaunchClock& clock, int64_t element, uint32_t epoch) const;
  bool is_unfenced(const LaunchClock& clock, int64_t element, uint32_t* thread) const;

 private:
  // Times of the last accesses; other_read is a read by another iteration than that of last_read.
  struct Accesses {
    uint32_t write, last_read, other_read;
  };
  ZeroedArray<std::byte> owned_;
  ZeroedArray<uint8_t> owned_written_;
  ZeroedArray<Accesses> accesses_;
  // The last write, the last read, and whether other blocks, or other threads of its block since the last barrier, read, too.
  struct ThreadAccesses {
    uint32_t write_block, write_epoch, write_thread, write_fence;
    uint32_t read_block, read_epoch, read_thread;
    bool many_blocks, many_threads;
  };
  static constexpr uint32_t kByEngine =
      UINT32_MAX;  // in place of how often the writer had said fence_async()
  Race conflict_with_write(const LaunchClock& clock, const ThreadAccesses& a, uint32_t* other_thread) const;
  ZeroedArray<ThreadAccesses> thread_accesses_;
  size_t capacity_ = 0;  // elements in owned_
};

}  // namespace mcc::tensor::interpreter
