// How large a register tile is: the one with the least modelled time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/target.h"
#include "tuner/decider.h"

namespace mcc::tuner {

struct TileSize {
  int64_t rows = 1;     // rows of accumulators
  int64_t vectors = 1;  // vectors in each
  int64_t lines = 1;    // lines of rows that are whole in it
  double cycles = 0;    // modelled, of the whole block; of several lines, of each

  int64_t sums() const { return rows * vectors * lines; }
};

struct TileProblem {
  int64_t rows = 1, vectors = 1;  // in all
  int64_t lines = 1;              // so many times these rows, of which a tile may take several
  int64_t steps = 1;              // reduction steps
  int64_t row_stride = 0;         // of the scalar operand, in bytes; 0: there is none
  bool is_shared_scalar = true;   // the row operand is a scalar that is broadcast (else a vector of its own: depthwise)
  std::vector<int64_t> vector_choices;
  int64_t least_preferred = 1;  // vectors; analysis leaves narrower tiles to a search
  bool has_open_rows = false;   // there may be fewer or more of them: tiles are good for any number near this one
  bool widens_bytes =
      false;  // the vector operand is of bytes that first become numbers of 16 bits (tensor/instructions.h)
};

// What a step of the sum reads of each vector of the operand.
inline int64_t vector_bytes(bool widens_bytes, const tensor::Target& t) {
  return t.vector_bits / (widens_bytes ? 16 : 8);
}

// Of the tiles that fit the registers. Per step of the reduction the larger of FMA issue, load issue and FMA latency;
// plus the write-back; the last tile of the rows is lower, that of the vectors narrower. Asks "block.vectors" and "block.rows", and of several
// lines "block.lines".
TileSize choose_tile_size(const TileProblem& problem, const tensor::Target& target, const std::string& block,
                          Decider& decide);

}  // namespace mcc::tuner
