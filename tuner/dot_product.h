// Sums of products by dot products of words: of four bytes (vpdpbusd, or two vpmaddwd), of two numbers of 16 bits with bytes (vpmaddwd), or of
// two bf16 (vdpbf16ps). Which contractions have the form, and what analysis says of them when a word counts as one element.
#pragma once

#include <optional>
#include <string>

#include "tensor/target.h"
#include "tuner/analysis.h"

namespace mcc::tuner {

struct DotProduct {
  std::string instruction;
  ElementType left = ElementType::u8;  // of a word's elements
  // The block without its innermost reduction, over words.
  BlockInfo info;

  // Whether bytes meet numbers of 16 bits.
  bool widens_bytes() const { return left == ElementType::i16; }
};

// y[.., n] += u8 x[.., k, 4] * i8 w[.., k, n, 4], sums in i32 (on CPUs also with the types exchanged), i16 x[.., k, 2] * i8 w[.., k, n, 2], or bf16 x[.., k, 2] * w[.., k, n, 2], sums in f32; and the columns a multiple of the lanes, on a target that has the
// instruction for its vectors. Whether the axes fit in all else, the step tensorize says.
std::optional<DotProduct> dot_product(const BlockInfo& info, const tensor::Target& target);

}  // namespace mcc::tuner
