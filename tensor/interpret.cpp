#include "tensor/interpret.h"

#include "tensor/interpret/compile.h"

namespace mcc::tensor {
namespace {

using namespace interpreter;

struct Allocated {
  Memory* memory;
  std::vector<Operand> shape;
};

Allocated declare(Compiler& compiler, const Buffer& buffer) {
  Allocated out{compiler.add_memory(buffer), {}};
  for (const Expr& extent : buffer.shape())
    out.shape.push_back(compiler.expr(extent));
  return out;
}

void run(const Func& f, std::span<std::byte* const> buffers, std::span<const int64_t> dims,
         const InterpretOptions& options) {
  Program program;
  program.limited = options.max_steps > 0;
  program.steps_left = options.max_steps;
  program.detect_races = options.detect_races;

  Compiler compiler(program);
  std::vector<int> dim_slots;
  for (const Var& dim : f.dims)
    dim_slots.push_back(compiler.bind(dim));
  std::vector<Allocated> params, allocs;
  for (const Buffer& b : f.params) {
    params.push_back(declare(compiler, b));
    params.back().memory->accessed = true;  // by the caller, outside of every loop
    params.back().memory->is_output = params.size() > static_cast<size_t>(f.num_inputs());
  }
  for (const Buffer& b : f.allocs) {
    allocs.push_back(declare(compiler, b));
    allocs.back().memory->is_unplaced = b.scope() == Scope::global;
    allocs.back().memory->is_of_threads = b.scope() == Scope::local || b.scope() == Scope::registers;
    allocs.back().memory->is_of_blocks = b.scope() == Scope::shared || b.scope() == Scope::warp;
  }
  const StmtCode* body = f.body ? compiler.stmt(f.body) : nullptr;

  Value* frame = program.frame.data();
  for (size_t k = 0; k < dims.size(); ++k)
    frame[dim_slots[k]] = int_value(dims[k]);
  for (size_t k = 0; k < params.size(); ++k) {
    Memory& memory = *params[k].memory;
    memory.use_caller_memory(buffers[k], shape_values(memory.buffer, params[k].shape, frame),
                             !memory.is_output);
    MCC_CHECK(buffers[k] || memory.count() == 0, f.name, ": no memory for ", memory.buffer.name());
  }
  for (const auto& [memory, shape] : allocs)
    memory->allocate(shape_values(memory->buffer, shape, frame));
  if (body) body->run(frame);
}

}  // namespace

Status interpret(const Func& f, std::span<std::byte* const> buffers, std::span<const int64_t> dims,
                 const InterpretOptions& options) {
  MCC_CHECK(buffers.size() == f.params.size(), f.name, " has ", f.params.size(), " parameters, got ",
            buffers.size());
  MCC_CHECK(dims.size() == f.dims.size(), f.name, " has ", f.dims.size(), " dimensions, got ", dims.size());
  try {
    run(f, buffers, dims, options);
  } catch (const Fault& fault) {
    return Diagnostic{ErrorKind::bad_input, f.name, fault.message, ""};
  } catch (const std::bad_alloc&) {
    return Diagnostic{ErrorKind::environment, f.name, "not enough memory for the intermediates", ""};
  }
  return done();
}

}  // namespace mcc::tensor
