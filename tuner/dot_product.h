// Sums of products of bytes by dot products of four (vpdpbusd, or two vpmaddwd): which contractions have the form, and what
// analysis says of them when four bytes count as one element.
#pragma once

#include <optional>
#include <string>

#include "tensor/target.h"
#include "tuner/analysis.h"

namespace mcc::tuner {

struct DotProduct {
  std::string instruction;
  bool takes_bytes_apart = false;  // tensor/instructions.h
  // The block without its innermost reduction of four, over elements of four bytes.
  BlockInfo info;
};

// y[.., n] += u8 x[.., k, 4] * i8 w[.., k, n, 4], sums in i32 and the columns a multiple of the lanes, on a target that has the
// instruction for its vectors. Whether the axes fit in all else, the step tensorize says.
std::optional<DotProduct> dot_product(const BlockInfo& info, const tensor::Target& target);

}  // namespace mcc::tuner
