// Counts what copies and products ask of the memories, as the hardware serves them.
#include <algorithm>
#include <set>

#include "fake_cuda/ptx_machine.h"

namespace mcc::test::ptx {

namespace {

constexpr uint64_t kWidth = 128;  // of all banks of shared memory
constexpr uint64_t kBank = 4;

// Passes in which shared memory serves these accesses together: as many as one bank has words of.
uint64_t passes(const std::vector<std::pair<uint64_t, size_t>>& accesses) {
  std::map<uint64_t, std::set<uint64_t>> words;  // of each bank
  for (const auto& [address, size] : accesses) {
    for (uint64_t at = address; at < address + size; at += kBank)
      words[at % kWidth / kBank].insert(at / kBank);
  }
  uint64_t most = 0;
  for (const auto& [bank, list] : words)
    most = std::max<uint64_t>(most, list.size());
  return most;
}

}  // namespace

void Traffic::copy(size_t step, size_t thread, uint64_t to, uint64_t from, size_t size, size_t used) {
  const size_t turn = turns_[{step, thread}]++;
  warps_[{step, thread / kWarp, turn}].push_back({to, from, size, used});
}

// Eight rows of 16 bytes, which the tensor cores take at once.
void Traffic::rows(const std::vector<uint64_t>& addresses) {
  std::vector<std::pair<uint64_t, size_t>> all;
  for (uint64_t a : addresses)
    all.emplace_back(a, 16);
  total_.operand_rows += 1;
  total_.operand_passes += passes(all);
}

PtxTraffic Traffic::finish() {
  for (const auto& [key, copies] : warps_) {
    std::set<uint64_t> sectors;
    uint64_t bytes = 0;
    for (const Copy& c : copies) {
      bytes += c.used;
      add_sectors(sectors, c.from, c.used);
    }
    total_.copies += 1;
    total_.copied_bytes += bytes;
    total_.sectors += sectors.size();
    // As many threads at a time as fill the width.
    const size_t group = kWidth / copies.front().size;
    for (size_t first = 0; first < copies.size(); first += group) {
      std::vector<std::pair<uint64_t, size_t>> part;
      for (size_t i = first; i < std::min(first + group, copies.size()); ++i)
        part.emplace_back(copies[i].to, copies[i].size);
      total_.write_groups += 1;
      total_.write_passes += passes(part);
    }
  }
  warps_.clear();
  turns_.clear();
  return total_;
}

}  // namespace mcc::test::ptx
