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

}  // namespace mcc::tensor::interpreter
