// Conversions from f32 to 16-bit floats by the GPU's instructions for them. Internal to codegen: includes LLVM.
#pragma once

#include <llvm/IR/Module.h>

#include "tensor/gpu.h"

namespace mcc::codegen {

// Whether the GPU converts f32 to bf16, and two f32 to two 16-bit floats, by one instruction.
bool has_narrow_pairs(const tensor::Gpu& gpu);

// Neighbours are converted two at a time, which LLVM does one by one, and numbers to bf16 by the instruction. For modules that the
// optimizer is done with: it knows what a conversion back and forth comes to.
void narrow_in_pairs(llvm::Module& module);

}  // namespace mcc::codegen
