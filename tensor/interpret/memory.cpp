#include "tensor/interpret/memory.h"

#include <cstring>

namespace mcc::tensor::interpreter {

int64_t Memory::count() const {
  int64_t product = 1;
  for (int64_t extent : shape)
    product *= extent;
  return product;
}

void Memory::allocate(std::vector<int64_t> new_shape) {
  constexpr size_t kKeptElements = 4096;  // small buffers in inner loops are cleared, not made anew
  shape = std::move(new_shape);
  const auto elements = static_cast<size_t>(count());
  if (data && elements <= capacity_ && elements <= kKeptElements) {
    std::memset(owned_written_.get(), 0, elements);
  } else {
    owned_.reset(elements * static_cast<size_t>(byte_size(buffer.element())));
    owned_written_.reset(elements);
    capacity_ = elements;
  }
  data = owned_.get();
  written = owned_written_.get();
  accesses_.clear();
  thread_accesses_.clear();
}

void Memory::allocate_for_threads(std::vector<int64_t> new_shape, int threads) {
  new_shape.insert(new_shape.begin(), threads);
  allocate(std::move(new_shape));
  shape.erase(shape.begin());
}

void Memory::select(int thread) {
  const int64_t first = thread * count();
  data = owned_.get() + first * byte_size(buffer.element());
  written = owned_written_.get() + first;
}

void Memory::use_caller_memory(std::byte* memory, std::vector<int64_t> new_shape, bool is_written) {
  shape = std::move(new_shape);
  data = memory;
  if (!is_written) {
    owned_written_.reset(static_cast<size_t>(count()));
    written = owned_written_.get();
  }
}

int Memory::note_read(const RaceClock& clock, int64_t element) {
  if (!accesses_.get()) accesses_.reset(static_cast<size_t>(count()));
  Accesses& a = accesses_.get()[element];
  const int race = clock.conflict(a.write);
  if (clock.conflict(a.last_read) >= 0 && clock.conflict(a.other_read) < 0) a.other_read = a.last_read;
  a.last_read = clock.now;
  return race;
}

int Memory::note_write(const RaceClock& clock, int64_t element) {
  if (!accesses_.get()) accesses_.reset(static_cast<size_t>(count()));
  Accesses& a = accesses_.get()[element];
  const size_t shared = private_to.size();
  int race = clock.conflict(a.write, shared);
  if (race < 0) race = clock.conflict(a.last_read, shared);
  if (race < 0) race = clock.conflict(a.other_read, shared);
  a.write = clock.now;
  return race;
}

Race Memory::conflict_with_write(const LaunchClock& clock, const ThreadAccesses& a,
                                 uint32_t* other_thread) const {
  if (a.write_block < clock.first_block) return Race::none;
  if (a.write_block != clock.block) return is_of_blocks ? Race::none : Race::blocks;
  *other_thread = a.write_thread;
  const bool is_same_time = a.write_epoch == clock.epoch && a.write_fence != kByEngine;
  return is_same_time && a.write_thread != clock.thread ? Race::threads : Race::none;
}

Race Memory::note_read(const LaunchClock& clock, int64_t element, uint32_t* other_thread) {
  if (!thread_accesses_.get()) thread_accesses_.reset(static_cast<size_t>(count()));
  ThreadAccesses& a = thread_accesses_.get()[element];
  if (Race race = conflict_with_write(clock, a, other_thread); race != Race::none) return race;
  const bool is_first = a.read_block < clock.first_block;
  a.many_blocks = !is_first && (a.many_blocks || a.read_block != clock.block);
  const bool is_same_time = a.read_block == clock.block && a.read_epoch == clock.epoch;
  a.many_threads = is_same_time && (a.many_threads || a.read_thread != clock.thread);
  a.read_block = clock.block;
  a.read_epoch = clock.epoch;
  a.read_thread = clock.thread;
  return Race::none;
}

Race Memory::note_write(const LaunchClock& clock, int64_t element, uint32_t* other_thread) {
  if (!thread_accesses_.get()) thread_accesses_.reset(static_cast<size_t>(count()));
  ThreadAccesses& a = thread_accesses_.get()[element];
  if (Race race = conflict_with_write(clock, a, other_thread); race != Race::none) return race;
  if (a.read_block >= clock.first_block) {
    if (!is_of_blocks && (a.many_blocks || a.read_block != clock.block)) return Race::blocks;
    *other_thread = a.read_thread;
    if (a.read_epoch == clock.epoch && (a.many_threads || a.read_thread != clock.thread))
      return Race::threads;
  }
  a.write_block = clock.block;
  a.write_epoch = clock.epoch;
  a.write_thread = clock.thread;
  a.write_fence = clock.thread < clock.fences.size() ? clock.fences[clock.thread] : 0;
  return Race::none;
}

void Memory::note_arrival(int64_t element) {
  ThreadAccesses& a = thread_accesses_.get()[element];  // its beginning was noted
  a.write_fence = kByEngine;
}

bool Memory::is_written_since(const LaunchClock& clock, int64_t element, uint32_t epoch) const {
  if (!thread_accesses_.get()) return false;
  const ThreadAccesses& a = thread_accesses_.get()[element];
  return a.write_block == clock.block && a.write_epoch > epoch;
}

bool Memory::is_unfenced(const LaunchClock& clock, int64_t element, uint32_t* thread) const {
  if (!thread_accesses_.get()) return false;
  const ThreadAccesses& a = thread_accesses_.get()[element];
  *thread = a.write_thread;
  return a.write_block == clock.block && a.write_fence != kByEngine &&
         clock.fences[a.write_thread] <= a.write_fence;
}

}  // namespace mcc::tensor::interpreter
