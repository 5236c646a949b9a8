#include <llvm/ExecutionEngine/Orc/LLJIT.h>

#include <atomic>
#include <cstring>
#include <map>
#include <new>

#include "codegen/codegen.h"
#include "codegen/machine.h"
#include "codegen/memory_plan.h"
#include "tensor/text.h"

namespace mcc::codegen {

struct Jit::Impl {
  tensor::Target target;
  std::shared_ptr<llvm::orc::LLJIT> jit;
  std::atomic<uint64_t> libraries = 0;
  struct Loaded {
    std::shared_ptr<Kernel> kernel;
    KernelMemory memory;
    std::vector<tensor::Var> dims;  // that sizes in memory are given over
  };
  std::map<std::string, Loaded> cache;  // by the function's text
  uint64_t next = 0;
};

// Each kernel is in a library of its own, so that many may have the same name; the engine stays as long as any is loaded.
struct Jit::Kernel::Resource {
  std::shared_ptr<llvm::orc::LLJIT> jit;
  llvm::orc::JITDylib* library = nullptr;
  ~Resource() { llvm::cantFail(jit->getExecutionSession().removeJITDylib(*library)); }
};

Jit::Kernel::~Kernel() = default;

Result<std::unique_ptr<Jit>> Jit::create(const tensor::Target& target) {
  if (target.kind == tensor::TargetKind::cuda) {
    return Diagnostic{ErrorKind::unsupported, target.name,
                      "single kernels of GPUs are not compared with the interpreter",
                      "mcc verify MODEL --target runs a whole model, mcc bench OUT.so --profile times its kernels"};
  }
  if (!runs_here(target)) {
    return Diagnostic{ErrorKind::environment, target.name, "this machine cannot run code for the target", ""};
  }
  initialize_llvm();
  auto jit = llvm::orc::LLJITBuilder().create();
  if (!jit) {
    return Diagnostic{ErrorKind::environment, "",
                      text("no just-in-time compiler: ", llvm::toString(jit.takeError())), ""};
  }
  auto result = std::unique_ptr<Jit>(new Jit);
  result->impl_ = std::make_unique<Impl>();
  result->impl_->target = target;
  result->impl_->jit = std::move(*jit);
  return result;
}

Jit::Jit() = default;
Jit::~Jit() = default;

Result<std::shared_ptr<Jit::Kernel>> Jit::load(const ObjectCode& object, const std::string& symbol) {
  llvm::orc::LLJIT& jit = *impl_->jit;
  auto kernel = std::make_shared<Kernel>();
  std::string name = text("kernel", impl_->libraries++);
  llvm::orc::JITDylib& library = jit.getExecutionSession().createBareJITDylib(name);
  kernel->resource_.reset(new Kernel::Resource{impl_->jit, &library});
  auto buffer =
      llvm::MemoryBuffer::getMemBufferCopy(llvm::StringRef(object.bytes.data(), object.bytes.size()), symbol);
  auto failed = [](llvm::Error error) {
    return Diagnostic{ErrorKind::environment, "",
                      text("code cannot be loaded: ", llvm::toString(std::move(error))), ""};
  };
  if (llvm::Error error = jit.addObjectFile(library, std::move(buffer))) return failed(std::move(error));
  auto address = jit.lookup(library, symbol);
  if (!address) return failed(address.takeError());
  kernel->function = address->toPtr<KernelFunction>();
  return kernel;
}

Status Jit::run(const tensor::Func& scheduled, std::span<void* const> buffers,
                std::span<const int64_t> dims) {
  std::string key = to_text(scheduled);
  auto it = impl_->cache.find(key);
  if (it == impl_->cache.end()) {
    tensor::Func lowered = tensor::lower(scheduled, impl_->target);
    Result<KernelMemory> memory = kernel_memory(lowered);
    if (!memory.ok()) return memory.errors();
    std::string symbol = text("jit_", impl_->next++);
    Result<ObjectCode> object = emit_object(lowered, symbol, impl_->target);
    if (!object.ok()) return object.errors();
    Result<std::shared_ptr<Kernel>> kernel = load(*object, symbol);
    if (!kernel.ok()) return kernel.errors();
    it = impl_->cache.emplace(key, Impl::Loaded{*kernel, *memory, scheduled.dims}).first;
  }
  const Impl::Loaded& loaded = it->second;
  std::vector<void*> arguments(buffers.begin(), buffers.end());
  std::vector<std::unique_ptr<std::byte, void (*)(std::byte*)>> memory;
  auto add_memory = [&](int64_t bytes) {
    auto size = static_cast<size_t>(std::max<int64_t>(bytes, 64));
    auto release = [](std::byte* p) { ::operator delete(p, std::align_val_t{64}); };
    memory.emplace_back(static_cast<std::byte*>(::operator new(size, std::align_val_t{64})), release);
    arguments.push_back(memory.back().get());
  };
  for (const tensor::Expr& bytes : loaded.memory.workspaces) {
    add_memory(evaluate_bytes(bytes, loaded.dims, dims));
  }
  if (loaded.memory.scratch_per_thread > 0) add_memory(loaded.memory.scratch_per_thread);
  int32_t status = loaded.kernel->function(arguments.data(), dims.data(), nullptr);
  MCC_CHECK(status == 0, "kernel returned ", status);
  return done();
}

}  // namespace mcc::codegen
