// Lowered functions of a GPU target -> PTX, and PTX -> machine code where NVIDIA's assembler is installed.
//
// A lowered function is a sequence of launches, some in serial loops, which the host carries out: each is one nest of loops bound to the grid ("block.x|y|z" outside,
// "thread.x|y|z" inside), with workspaces (global buffers) allocated around them.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "codegen/codegen.h"
#include "tensor/library_product.h"

namespace mcc::codegen {

// A matrix of which the copy engine copies boxes: rows of `width` elements, one behind the other.
struct TensorMap {
  int buffer = 0;  // a param, or a workspace, counted behind the params
  int64_t element_bytes = 0, width = 0, height = 0, box_width = 0, box_height = 0;
  int64_t swizzle = 0;  // bytes of a row of a box, whose units of 16 are exchanged
  bool operator==(const TensorMap&) const = default;
};

// One launch of a kernel of the GPU, or a call of a library. A kernel's arguments are the addresses of `buffers`, then the values of `dims`, the iteration, if it takes it, and `numbers` (64 bits), then
// what the driver makes of `maps` (cuTensorMapEncodeTiled, 128 bytes each).
struct DeviceLaunch {
  std::string entry;
  std::array<tensor::Expr, 3> grid,
      block;                 // x, y, z; over the function's dims. None where an extent of the grid is 0.
  int64_t shared_bytes = 0;  // of a block
  bool is_shared_dynamic = false;  // the launch must ask for them: more than any kernel may have
  std::vector<int> buffers;        // numbers of params; of workspaces, counted behind the params
  std::vector<int> dims;           // numbers of the function's dims
  bool takes_turn = false;         // the iteration of the loop around it
  std::vector<int64_t> numbers;    // where loops inside of that one are, which are written out
  // Where a loop begins: launches of its body, this one included, its first iteration and how many there are, over the function's dims.
  size_t loop_launches = 0;
  int64_t loop_first = 0;
  tensor::Expr loop_turns = 0;
  std::vector<TensorMap> maps;
  bool waits_itself = false;       // for the launches before it, ahead of all else: it may begin before they have ended
  // Of a call: no entry in the PTX, no grid; buffers are those of b, a, d, then the addend's and the bias's where it has them, and
  // the library's workspace.
  std::optional<tensor::LibraryProduct> product = {};
  int64_t library_bytes = 0;  // of that workspace
};

struct DeviceCode {
  std::string ptx;
  std::string llvm_ir;  // when asked for
  std::vector<DeviceLaunch> launches;  // in order; some have the same entry
  KernelMemory memory;  // workspaces; no scratch
};

// Buffers are aligned to 64 bytes, params too. Deterministic: same input, same text, on any thread. Errors: what a GPU of
// the target cannot run (loops outside of the grid, too many threads, too much shared or private memory), all of them.
Result<DeviceCode> emit_ptx(const tensor::Func& lowered, const std::string& symbol,
                            const tensor::Target& target, const EmitOptions& options = {});

// What the assembler says of one kernel.
struct EntryFigures {
  std::string entry;
  int registers = 0;                          // of a thread
  int64_t shared_bytes = 0;                   // of a block, without dynamic ones
  int64_t stack_bytes = 0;                    // of a thread
  int64_t spill_stores = 0, spill_loads = 0;  // bytes of a thread
};

struct Cubin {
  std::vector<char>
      bytes;  // empty where this assembler has dropped the architecture and a newer one stood in for it
  std::string arch;                   // that the figures are of
  std::vector<EntryFigures> entries;  // in the order of the assembler's report
  std::vector<std::string> losses;    // lines of its report that say what makes the code slow ("Potential Performance Loss: ...")
};

// The way out where the assembler cannot be had or fails: the hint of such an error.
inline constexpr const char* kWithoutCubin = "--no-cubin leaves the PTX to the driver";

// How long an assembler may take: to say its version, and for one kernel.
struct AssemblerLimits {
  double version_seconds = 20, kernel_seconds = 1800;
};

// ptxas or nvJitLink, found at run time.
class Assembler {
 public:
  // Looks first in these CUDA folders (such as $CUDA_HOME), then in the folders of programs, in the usual places, and where the loader
  // looks. Of a folder ptxas comes first: nvJitLink makes code to be linked, which takes half as many registers again for the same
  // PTX, while ptxas and the driver know a kernel to be all there is. Null when neither is there.
  static std::unique_ptr<Assembler> find(const std::vector<std::string>& cuda_folders,
                                         const std::vector<std::string>& program_folders, const AssemblerLimits& limits = {});
  // The same in these CUDA folders alone.
  static std::unique_ptr<Assembler> find_in(const std::vector<std::string>& cuda_folders, const AssemblerLimits& limits = {});
  // nvJitLink in this file; null where it is none.
  static std::unique_ptr<Assembler> open(const std::string& library);
  virtual ~Assembler() = default;
  // May be called from several threads at once.
  Result<Cubin> assemble(const std::string& ptx, const std::string& arch) const;
  const std::string& name() const { return name_; }  // "ptxas 13.0 (/usr/local/cuda/bin/ptxas)", for people
  // The file of an assembler that runs inside of this process; empty for a program.
  const std::string& library() const { return library_; }

 protected:
  // For this architecture and no other; *is_unknown: the assembler does not know it.
  virtual Result<Cubin> run(const std::string& ptx, const std::string& arch, bool* is_unknown) const = 0;
  std::string name_, library_;
};

// The figures in the log that ptxas -v and nvJitLink's -verbose write.
std::vector<EntryFigures> parse_assembler_log(const std::string& log);
// The lines of the log that say what makes the code slow.
std::vector<std::string> performance_losses(const std::string& log);

}  // namespace mcc::codegen
