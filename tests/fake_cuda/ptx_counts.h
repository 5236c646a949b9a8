// What one block of a launch asks of a GPU, counted while it runs: enough to see a launch that a single thread computes, that
// fetches a sector for each element, or that has too few blocks. bench/launches.py makes estimates of it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "fake_cuda/ptx.h"

namespace mcc::test {

struct PtxCounts {
  // Instructions: of the warp that has most, and of all warps of the block. A warp has as many as the longest of its threads:
  // where they part ways, that is too few.
  uint64_t longest = 0, steps = 0;
  uint64_t loads = 0;  // from global memory, of the thread that has most
  // Of global memory: bytes that threads ask for, and different sectors of 32 bytes, of each instruction of a warp.
  uint64_t read_bytes = 0, read_sectors = 0, written_bytes = 0, written_sectors = 0;
  // What tensor cores multiply and add, as so many of 16 bits: half as many of tf32 take as long, or twice as many bytes.
  uint64_t matrix_fmas = 0;
  std::string problem;  // what ended the block before its end
};

// Runs the block in the middle of the grid, and no other: what the launch should have computed is not there afterwards.
// Positions that are read from it are then anything, so that an address may be out of reach: the block ends there.
PtxCounts count_ptx(const PtxModule& module, const std::string& entry, const PtxGrid& grid,
                    const std::vector<uint64_t>& arguments,
                    const std::function<bool(uint64_t address, size_t bytes)>& is_device);
// A line of JSON.
std::string counts_line(const std::string& entry, const PtxGrid& grid, const PtxCounts& counts);

namespace ptx {

constexpr uint64_t kSector = 32;  // bytes that global memory moves at once
constexpr size_t kWarp = 32;

// Of the bytes at an address.
inline void add_sectors(std::set<uint64_t>& sectors, uint64_t address, uint64_t bytes) {
  for (uint64_t at = address / kSector; bytes > 0 && at <= (address + bytes - 1) / kSector; ++at)
    sectors.insert(at);
}

// Accesses of a warp are what its threads do at one instruction for the same time.
class Counter {
 public:
  void access(size_t step, size_t thread, uint64_t address, uint64_t bytes, bool is_store);
  void multiply(uint64_t fmas) { total_.matrix_fmas += fmas; }
  // steps: of each thread.
  PtxCounts finish(const std::vector<uint64_t>& steps) const;

 private:
  struct Access {
    bool is_store = false;
    uint64_t bytes = 0;
    std::set<uint64_t> sectors;
  };
  std::map<std::pair<size_t, size_t>, size_t> turns_;
  std::map<std::tuple<size_t, size_t, size_t>, Access> warps_;
  std::map<size_t, uint64_t> loads_;
  PtxCounts total_;
};

}  // namespace ptx
}  // namespace mcc::test
