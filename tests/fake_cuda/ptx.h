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

// Null, with the reason in *problem, when the text has something unknown.
std::shared_ptr<const PtxModule> parse_ptx(const std::string& text, std::string* problem);
// The number of the entry's arguments; -1 where there is no such entry.
int ptx_arguments(const PtxModule& module, const std::string& entry);
// Empty, or what went wrong. is_device: whether the bytes are of the device's memory.
std::string run_ptx(const PtxModule& module, const std::string& entry, const PtxGrid& grid,
                    const std::vector<uint64_t>& arguments,
                    const std::function<bool(uint64_t address, size_t bytes)>& is_device);

}  // namespace mcc::test
