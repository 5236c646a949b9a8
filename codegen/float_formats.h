// Conversion between f32 values in registers and the narrower floats of memory. Internal to codegen: includes LLVM.
//
// Inside a kernel, values of f16, bf16 and of floats in a byte are kept as f32 (which holds each of them exactly) and rounded after
// every operation; bits are integers of as many bits as the format takes in memory. All functions work on scalars and vectors.
#pragma once

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/ValueMap.h>

#include <utility>

#include "support/element_type.h"

namespace mcc::codegen {

struct FloatFormats {
  explicit FloatFormats(llvm::IRBuilder<>& builder) : b(builder) {}

  llvm::IRBuilder<>& b;
  bool has_f16c = false;
  bool has_bf16 = false;  // an instruction that converts f32 to bf16
  // Of what decode() gave: the format, and the bits, so that rounding and storing, or copying, encodes once or not at all.
  llvm::ValueMap<llvm::Value*, std::pair<ElementType, llvm::Value*>> decoded;

  static bool is_narrow(ElementType element);   // in memory: of 16 bits or fewer
  static bool is_inexact(ElementType element);  // as float: these and tf32

  llvm::Value* decode(ElementType element, llvm::Value* bits);   // integer -> float
  llvm::Value* encode(ElementType element, llvm::Value* value);  // float -> integer, to nearest even
  // The value rounded to the format, still as float.
  llvm::Value* round(ElementType element, llvm::Value* value);
  // One of two values, which needs no rounding.
  llvm::Value* select(llvm::Value* condition, llvm::Value* x, llvm::Value* y);
  // Of a conversion from f32, where to bf16 numbers below the smallest normal one may become 0: by the machine's instruction.
  llvm::Value* convert(ElementType element, llvm::Value* value);
  // double -> float by rounding to odd, so that rounding the result once more to a narrow format is exact.
  llvm::Value* narrow_to_odd(llvm::Value* value);

 private:
  llvm::Value* decode_bits(ElementType element, llvm::Value* bits);
  llvm::Value* encode_value(ElementType element, llvm::Value* value);
  // Of f8e8m0: the exponent of an f32.
  llvm::Value* decode_power(llvm::Value* bits);
  llvm::Value* encode_power(llvm::Value* value);
};

}  // namespace mcc::codegen
