// Hardware instructions as data: what each computes, in tensor IR, and what the machine must have. tensorize matches a loop
// nest against the semantics; code generation knows the name.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/stmt.h"
#include "tensor/target.h"

namespace mcc::tensor {

struct Instruction {
  std::string name;
  std::string feature;  // LLVM's name of what the target must have at least; "sm_80": a GPU of that generation or a later one
  // One block under constant loops, outermost first: an update of the last parameter from the others. Addresses count, not
  // shapes: an operand of the matched nest has the same strides along the loops, and any base. Where a dimension of an operand has a
  // symbolic length (Func::dims), any stride of the one before it that is the same along all loops will do.
  Func semantics;
  // The instruction is carried out by a warp together, and the outermost two loops are its threads: thread.y of 8, thread.x of 4;
  // that of a warpgroup (is_wgmma) by each four warps that follow each other along thread.z, its outermost loop.
  // Each thread has sums of its own, of which the semantics speaks; the instruction computes those of all threads.
  std::optional<Intrinsic> mma = std::nullopt;
  // Of a warp's: the left operand lies in the threads' registers as the sums of another product do, thread (y, x) has a[.., y, x, ..]
  // (scope warp): the loop over k is three.
  bool is_held = false;
  // Of a warpgroup's: columns are dealt out in pairs to four tiles of 8 columns (or to two), so that a thread's are neighbours: where they stand in
  // memory, the loop over tiles is two.
  bool is_dealt = false;
  // The instruction is one of vectors, a CPU's or a thread's: lanes, then the elements of a word for each.
  std::optional<Intrinsic> dot = std::nullopt;
  // The instruction is one of a thread's tiles, which loops then hold in registers (tensor/passes/keep_tiles.h): rows, 16 columns, steps
  // of a word, its elements.
  std::optional<Intrinsic> tile = std::nullopt;
};

// Whether the target's feature list names this one ("+avx512f").
bool has_feature(const Target& target, std::string_view feature);
// Whether code for the target may use the instruction.
bool has_instruction(const Target& target, const Instruction& instruction);
// The first generation of GPUs (80: sm_80) whose warps multiply matrices of that type (u8: by i8); 0 if none does.
int first_matrix_sm(ElementType factor);
// Whether the GPU's tensor cores multiply them.
bool multiplies_matrices(const Gpu& gpu, ElementType factor);
// The dot product of words whose lanes are the target's vectors of i32 or f32, and whose left side is of that type; null where the
// target has none.
const Instruction* dot_instruction(const Target& target, ElementType left = ElementType::u8);
// The product of tiles with so many rows and words along the sum, whose left side is of that type; null where the target has none.
const Instruction* tile_instruction(const Target& target, int64_t rows, int64_t k, ElementType left = ElementType::u8);
// Of the sizes that divide the extent, of rows or words along a sum, and that tiles may have, the largest.
int64_t largest_tile(int64_t extent);
// Whether a dot product of bytes is no instruction of a CPU's own (vpdpbusd) but two products of pairs of 16-bit numbers, the even
// bytes and the odd ones of each group of four (vpmaddwd of AVX2, which is exact; vpmaddubsw would saturate).
bool takes_bytes_apart(const Target& target);
// As what the left side of products of bytes suits the target best: bytes, or numbers of 16 bits where those would be taken apart.
ElementType left_of_bytes(const Target& target);
// Whether a CPU finds a vector of bytes in a table of 256 that registers hold (vpermi2b of AVX512-VBMI).
bool looks_up_bytes(const Target& target);
// Whether it finds a vector of f32 in a table of 16, by the lowest four bits of each of as many integers.
bool looks_up_numbers(const Target& target);

// In a fixed order.
const std::vector<Instruction>& all_instructions();
const Instruction* find_instruction(const std::string& name);

}  // namespace mcc::tensor
