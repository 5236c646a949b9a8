#include "fake_cuda/ptx_shadow.h"

#include <algorithm>

#include "fake_cuda/ptx_machine.h"

namespace mcc::test::ptx {

void Shadow::begin_block(const std::byte* shared, size_t shared_bytes, size_t threads) {
  block_began_ = ++now_;
  shared_ = reinterpret_cast<uint64_t>(shared);
  shared_bytes_ = shared_bytes;
  shared_units_.assign(shared_bytes / 4 + 1, {});
  is_coming_.assign(shared_bytes / 4 + 1, false);
  waited_.assign(threads, 0);
}

Shadow::Page& Shadow::page_of(uint64_t address) {
  const uint64_t number = address / kPage;
  Known& known = known_[number % known_.size()];
  if (known.page != nullptr && known.number == number) return *known.page;
  std::unique_ptr<Page>& page = pages_[number];
  if (page == nullptr) {
    page = std::make_unique<Page>();
    page->is_whole = is_device_(number * kPage, kPage);
  }
  known = {number, page.get()};
  return *page;
}

bool Shadow::is_global(uint64_t address, size_t bytes) {
  if (address / kPage == (address + bytes - 1) / kPage && page_of(address).is_whole) return true;
  return is_device_(address, bytes);
}

template <class F>
void Shadow::for_units(uint64_t address, size_t bytes, F f) {
  const uint64_t end = address + bytes;
  for (uint64_t at = address / 4 * 4; at < end; at += 4) {
    const uint64_t first = std::max(at, address) - at, last = std::min(at + 4, end) - at;
    const auto mask = static_cast<uint8_t>((1u << last) - (1u << first));
    if (is_shared(address)) {
      f(shared_units_[(at - shared_) / 4], mask, at);
    } else {
      f(page_of(at).units[at % kPage / 4], mask, at);
    }
  }
}

std::string Shadow::place(uint64_t address) const {
  return is_shared(address) ? "shared memory, at byte " + std::to_string(address - shared_) : "global memory";
}

void Shadow::race(uint64_t address, size_t thread, const char* does, uint16_t other, const char* did) const {
  const std::string who = other == kMany     ? "several threads have "
                          : other == kEngine ? "the copy engine has "
                                             : "thread " + std::to_string(other) + " has ";
  throw Bad("a race: thread " + std::to_string(thread) + ' ' + does + " what " + who + did +
            " since the last barrier, in " + place(address));
}

void Shadow::check_read(const Unit& u, uint8_t bytes, uint64_t address, size_t thread) const {
  if ((u.written_bytes & bytes) == 0 || u.written == 0) return;
  if (u.written < block_began_)
    throw Bad("thread " + std::to_string(thread) +
              " reads what another block of the same launch has written, in " + place(address));
  if (u.written != now_ || u.writer == thread || u.writer == kDifferentBytes) return;
  if (u.writer == kEngine && waited_[thread] == now_) return;
  race(address, thread, "reads", u.writer, "written");
}

// Of threads that read the same unit: one, several that read the same byte, or several that read different ones.
void Shadow::note_read(Unit& u, uint8_t bytes, uint16_t reader) const {
  if (u.read != now_) {
    if (u.read != 0 && u.read < block_began_) u.read_elsewhere |= u.read_bytes;
    u.read = now_;
    u.reader = reader;
    u.read_bytes = bytes;
    return;
  }
  if (u.reader != reader && u.reader != kMany)
    u.reader = u.reader != kDifferentBytes && (u.read_bytes & bytes) != 0 ? kMany : kDifferentBytes;
  u.read_bytes |= bytes;
}

void Shadow::load(uint64_t address, size_t bytes, size_t thread, Reads how) {
  for_units(address, bytes, [&](Unit& u, uint8_t mask, uint64_t at) {
    if (is_shared(at) && is_coming_[(at - shared_) / 4])
      throw Bad("thread " + std::to_string(thread) +
                " reads what a copy brings that nobody has waited for, in " + place(at));
    if (how == Reads::by_cache) {
      if (u.written != 0 && (u.written_bytes & mask) != 0)
        throw Bad("thread " + std::to_string(thread) +
                  " reads by way of the read-only cache (ld.global.nc) what the same launch has written");
      u.read_by_cache |= mask;
    }
    check_read(u, mask, at, thread);
    note_read(u, mask, static_cast<uint16_t>(thread));
  });
}

void Shadow::load_by_many(uint64_t address, size_t bytes, size_t first) {
  for_units(address, bytes, [&](Unit& u, uint8_t mask, uint64_t at) {
    if (is_coming_[(at - shared_) / 4])
      throw Bad("a product reads what a copy brings that nobody has waited for, in " + place(at));
    check_read(u, mask, at, first);
    note_read(u, mask, kMany);
  });
}

void Shadow::store(uint64_t address, size_t bytes, size_t thread) {
  for_units(address, bytes, [&](Unit& u, uint8_t mask, uint64_t at) {
    if (is_shared(at) && is_coming_[(at - shared_) / 4])
      throw Bad("thread " + std::to_string(thread) +
                " writes where a copy goes that nobody has waited for, in " + place(at));
    if ((u.read_by_cache & mask) != 0)
      throw Bad("thread " + std::to_string(thread) +
                " writes what the same launch has read by way of the read-only cache (ld.global.nc)");
    const bool is_read = u.read != 0 && (u.read_bytes & mask) != 0,
               is_written = u.written != 0 && (u.written_bytes & mask) != 0;
    if ((u.read_elsewhere & mask) != 0 || (is_read && u.read < block_began_))
      throw Bad("thread " + std::to_string(thread) +
                " writes what another block of the same launch has read, in " + place(at));
    if (is_read && u.read == now_ && u.reader != thread && u.reader != kDifferentBytes)
      race(at, thread, "writes", u.reader, "read");
    if (is_written && u.written < block_began_)
      throw Bad("thread " + std::to_string(thread) +
                " writes what another block of the same launch has written, in " + place(at));
    if (is_written && u.written == now_ && u.writer != thread && u.writer != kDifferentBytes)
      race(at, thread, "writes", u.writer, "written");
    if (u.written != now_) {
      // Bytes beside these that were written earlier in the block are there for all; of other blocks' that is not so.
      u.written_bytes = u.written != 0 && u.written < block_began_ ? u.written_bytes : 0;
      u.writer = u.written_bytes != 0 ? kDifferentBytes : static_cast<uint16_t>(thread);
      u.written = now_;
    } else if (u.writer != thread) {
      u.writer = kDifferentBytes;
    }
    u.written_bytes |= mask;
  });
}

void Shadow::begin_copy(uint64_t address, size_t bytes, size_t thread) {
  store(address, bytes, thread);
  for_units(address, bytes, [&](Unit&, uint8_t, uint64_t at) { is_coming_[(at - shared_) / 4] = true; });
}

void Shadow::end_copy(uint64_t address, size_t bytes, size_t thread) {
  for_units(address, bytes, [&](Unit& u, uint8_t mask, uint64_t at) {
    is_coming_[(at - shared_) / 4] = false;
    u.written = now_;
    u.writer = static_cast<uint16_t>(thread);
    u.written_bytes |= mask;
  });
}

void Shadow::end_engine_copy(uint64_t address, size_t bytes) { end_copy(address, bytes, kEngine); }

}  // namespace mcc::test::ptx
