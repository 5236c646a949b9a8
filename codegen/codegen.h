// Scheduled tensor IR -> x86-64 machine code. The only layer that includes LLVM headers (in its .cpp files).
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "support/result.h"
#include "tensor/passes/lower.h"
#include "tensor/stmt.h"
#include "tensor/target.h"

namespace mcc::codegen {

// Memory that a kernel needs beside its params. Its `buffers` argument holds the params in order, then one buffer for
// each workspace, then, when scratch_per_thread > 0, one buffer of that many bytes for each thread (worker w uses
// the w-th part). All of these are aligned to 64 bytes; params are aligned to their element only.
struct KernelMemory {
  std::vector<tensor::Expr> workspaces;  // bytes, over the function's dims and tensor::thread_count() (sizes.h); constants when shapes are static
  int64_t scratch_per_thread = 0;        // bytes, a multiple of 64
};
Result<KernelMemory> kernel_memory(const tensor::Func& lowered);

// A kernel's object code. The function has the name given to it and the signature of abi.h: pointers of params and
// of kernel_memory, dims, the executor (null: one thread).
struct ObjectCode {
  std::vector<char> bytes;        // ELF relocatable
  std::string llvm_ir, assembly;  // filled in only when asked for
};

struct EmitOptions {
  bool keep_llvm_ir = false;
  bool keep_assembly = false;
  bool strict = false;  // no FMA contraction across operations, no reassociation
  // Reassociation, reciprocals for quotients, no difference between the zeros: of the model's own arithmetic only.
  // Mathematical functions keep their error bounds, and NaN and infinities stay what they are.
  bool fast_math = false;
  int optimization = 2;  // -O0 .. -O3
};

// f is lowered. Deterministic: same input, same bytes, on any thread.
Result<ObjectCode> emit_object(const tensor::Func& lowered, const std::string& symbol,
                               const tensor::Target& target, const EmitOptions& options = {});

// Target descriptions ("cpu", "cpu:x86-64-v3", "cpu:znver4", "cuda:sm_80", ...). "cpu" looks at this machine; "cuda" means
// its GPU, sm_80 where it has none.
Result<tensor::Target> make_target(const std::string& text);
// A list by comma: one CPU, or one or more architectures of GPUs ("cuda:sm_80,sm_90", "cuda:sm_80,cuda:sm_90"), each once, in
// ascending order.
Result<std::vector<tensor::Target>> make_targets(const std::string& text);
// Whether code for the target can run on this machine.
bool runs_here(const tensor::Target& target);

// Code generation into this process; used by constant folding and by tuning.
class Jit {
 public:
  static Result<std::unique_ptr<Jit>> create(const tensor::Target& target);
  ~Jit();
  // Runs a scheduled or unscheduled function once, on the calling thread; keeps its code for the next time. Not to be
  // called from two threads at once.
  Status run(const tensor::Func& scheduled, std::span<void* const> buffers,
             std::span<const int64_t> dims = {});

  // A loaded kernel; unloaded when destroyed, which may be after the Jit. Many may be loaded under one name, from any
  // thread.
  using KernelFunction = int32_t (*)(void* const* buffers, const int64_t* dims, void* executor);
  class Kernel {
   public:
    ~Kernel();
    KernelFunction function = nullptr;

   private:
    friend class Jit;
    struct Resource;
    std::unique_ptr<Resource> resource_;
  };
  Result<std::shared_ptr<Kernel>> load(const ObjectCode& object, const std::string& symbol);

 private:
  Jit();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace mcc::codegen
