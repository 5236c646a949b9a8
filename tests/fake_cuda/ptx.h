// Runs PTX: the instructions that LLVM makes of our kernels, thread by thread, for the stand-in driver. Slow and strict: what it
// does not know is an error, and so is an address outside of the memory that a thread may touch. So is what a GPU may do in another
// order (ptx_shadow.h): races between threads, reads of what a copy or a product of warpgroups has not brought yet, reads by way of
// the read-only cache of what the same launch writes, exchanges of warps that some threads have left. Memory and registers
// that nobody has written hold no numbers. Approximations are as far off as their descriptions allow, and tensor cores cut sums off.
#pragma once

#include <array>
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

// What cuTensorMapEncodeTiled writes here: a matrix, and boxes of it. 128 bytes, as NVIDIA's.
struct PtxTensorMap {
  static constexpr uint64_t kMagic = 0x70616d726f736e74;
  uint64_t magic = kMagic, address = 0, width = 0, height = 0,
           pitch = 0;  // pitch in bytes, the others in elements
  uint32_t element_bytes = 0, box_width = 0, box_height = 0, swizzle = 0;  // bytes of a row of a box; 0: none
  uint64_t rest[9] = {};
};
static_assert(sizeof(PtxTensorMap) == 128);
// False for what the copy engine cannot do. swizzle: the number of NVIDIA's enumerator.
bool make_map(uint64_t address, const uint64_t* extents, const uint64_t* strides, const uint32_t* box,
              int swizzle, uint32_t element_bytes, PtxTensorMap* map);

// 10 * version of PTX; 0 for machine code.
int ptx_version(const char* image);
// Whether a GPU of compute capability sm / 10 . sm % 10 runs PTX for this target: of the same or an earlier one, or its own (sm_90a).
bool ptx_suits(const char* text, int sm);

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
// Whether the entry waits for the launches before it (griddepcontrol.wait). It may read and write nothing before that, and nothing
// by way of the read-only cache: the assembler moves such reads up.
bool ptx_waits(const PtxModule& module, const std::string& entry);
// The number of the entry's arguments; -1 where there is no such entry.
int ptx_arguments(const PtxModule& module, const std::string& entry);
// Whether the entry may be launched with such blocks (.reqntid).
bool ptx_takes_block(const PtxModule& module, const std::string& entry, const std::array<unsigned, 3>& block);
// The bytes of one.
size_t ptx_argument_bytes(const PtxModule& module, const std::string& entry, int argument);
// Empty, or what went wrong. Of arguments of more than 8 bytes the addresses are given. is_device: whether the bytes are of the device's memory. traffic: counted if it is not null.
std::string run_ptx(const PtxModule& module, const std::string& entry, const PtxGrid& grid,
                    const std::vector<uint64_t>& arguments,
                    const std::function<bool(uint64_t address, size_t bytes)>& is_device,
                    PtxTraffic* traffic = nullptr);

}  // namespace mcc::test
