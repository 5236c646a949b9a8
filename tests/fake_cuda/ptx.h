// Runs PTX: the instructions that LLVM makes of our kernels, thread by thread, for the stand-in driver. Slow and strict: what it
// does not know is an error, and so is an address outside of the memory that a thread may touch.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace mcc::test {

struct PtxGrid {
  unsigned grid[3], block[3];
  unsigned dynamic_shared = 0;
};

struct PtxModule;

// What asynchronous copies and products of warpgroups ask of the memories.
struct PtxTraffic {
  uint64_t copies = 0;        // instructions of warps
  uint64_t copied_bytes = 0;  // of global memory
  uint64_t sectors = 0;       // different ones of 32 bytes, of each of those
  // Threads whose writes are as wide as all banks of shared memory together, and the passes that they take: as many without conflicts.
  uint64_t write_groups = 0, write_passes = 0;
  // The same of eight rows of 16 bytes each of an operand, which are read together.
  uint64_t operand_rows = 0, operand_passes = 0;
};

// Null, with the reason in *problem, when the text has something unknown.
std::shared_ptr<const PtxModule> parse_ptx(const std::string& text, std::string* problem);
// The number of the entry's arguments; -1 where there is no such entry.
int ptx_arguments(const PtxModule& module, const std::string& entry);
// Empty, or what went wrong. is_device: whether the bytes are of the device's memory. traffic: counted if it is not null.
std::string run_ptx(const PtxModule& module, const std::string& entry, const PtxGrid& grid,
                    const std::vector<uint64_t>& arguments,
                    const std::function<bool(uint64_t address, size_t bytes)>& is_device,
                    PtxTraffic* traffic = nullptr);

}  // namespace mcc::test
