// Who has used which bytes of the memory that threads share, and when: finds accesses that nothing puts in order, and reads of what
// is not there yet. Internal to the stand-in.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace mcc::test::ptx {

// Of one launch. Time is counted in intervals: from one barrier of a block to the next, one block after the other. Memory is watched in
// units of four bytes; of different bytes of a unit that different threads use between two barriers no order is asked.
class Shadow {
 public:
  explicit Shadow(const std::function<bool(uint64_t, size_t)>& is_device) : is_device_(is_device) {}

  void begin_block(const std::byte* shared, size_t shared_bytes, size_t threads);
  void pass_barrier() { ++now_; }

  // Whether the bytes are of the device's memory.
  bool is_global(uint64_t address, size_t bytes);

  // Accesses of a thread by its place in the block, to shared or global memory. They throw Bad where they race.
  enum class Reads { plain, by_cache };  // by_cache: of what nobody writes in the same launch
  void load(uint64_t address, size_t bytes, size_t thread, Reads how = Reads::plain);
  void store(uint64_t address, size_t bytes, size_t thread);
  // Of all threads of a warpgroup, of which this is the first.
  void load_by_many(uint64_t address, size_t bytes, size_t first);

  // A copy into shared memory that a thread has begun, and that it has waited for; the copy engine's, which whoever waits for the
  // mbarrier sees.
  void begin_copy(uint64_t address, size_t bytes, size_t thread);
  void end_copy(uint64_t address, size_t bytes, size_t thread);
  void end_engine_copy(uint64_t address, size_t bytes);
  void wait_for_engine(size_t thread) { waited_[thread] = now_; }

 private:
  // Numbers of threads that are none.
  static constexpr uint16_t kEngine = 0xfffd, kMany = 0xfffe, kDifferentBytes = 0xffff;
  struct Unit {
    uint32_t written = 0, read = 0;  // the interval of the last; 0: never
    uint16_t writer = 0, reader = 0;
    uint8_t written_bytes = 0, read_bytes = 0;      // of the four, as bits
    uint8_t read_elsewhere = 0, read_by_cache = 0;  // bytes, by other blocks of the launch; in this launch
  };
  static_assert(sizeof(Unit) == 16);
  static constexpr uint64_t kPage = 4096;
  struct Page {
    std::array<Unit, kPage / 4> units{};
    bool is_whole = false;  // all of it is of the device's memory
  };

  Page& page_of(uint64_t address);
  bool is_shared(uint64_t address) const { return address - shared_ < shared_bytes_; }
  // Calls f with each unit and the bytes of it.
  template <class F>
  void for_units(uint64_t address, size_t bytes, F f);
  std::string place(uint64_t address) const;
  [[noreturn]] void race(uint64_t address, size_t thread, const char* does, uint16_t other,
                         const char* did) const;
  void check_read(const Unit& u, uint8_t bytes, uint64_t address, size_t thread) const;
  void note_read(Unit& u, uint8_t bytes, uint16_t reader) const;

  const std::function<bool(uint64_t, size_t)>& is_device_;
  uint32_t now_ = 0, block_began_ = 0;
  uint64_t shared_ = 0;
  size_t shared_bytes_ = 0;
  std::vector<Unit> shared_units_;
  std::vector<bool> is_coming_;   // of the units of shared memory: a copy is under way
  std::vector<uint32_t> waited_;  // by thread: the interval in which it last waited for the copy engine
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
  struct Known {
    uint64_t number = 0;
    Page* page = nullptr;
  };
  std::array<Known, 64> known_{};  // pages that were used last
};

}  // namespace mcc::test::ptx
