// What rules that compute a result tile by tile have in common.
#pragma once

#include <optional>
#include <vector>

#include "tuner/draft.h"
#include "tuner/register_tile_roles.h"

namespace mcc::tuner {

// Elements of such a width in a vector that is only moved: a whole register, or where that does not divide the extent a half, a quarter, down
// to as many as there are of 32 bits.
int64_t dividing_lanes(const tensor::Target& target, int bits, int64_t extent);

// The loops of a block below the tile's: the last in vectors, which are unrolled; the others where wanted.
void vectorize_below_tile(Draft& draft, const std::string& block, const std::string& tile_loop, int64_t lanes,
                          bool is_unrolled);

// The one injective consumer of the block's result of so many elements that can take it over tile by tile; empty: there is none.
std::string tile_consumer(const Draft& draft, const BlockInfo& info, int64_t elements);

// What becomes of a tile stands below the tile's loop: the consumer, or where there is none, or it does not fit, a copy. Its name; the
// tile's sums are in this scope from then on. Empty: neither is possible.
std::string place_consumer(Draft& draft, const BlockInfo& info, const std::string& consumer,
                           const std::string& tile_loop, const std::string& scope);

// The axes of a sum along one of them whose results are neighbours along another.
struct SumAxes {
  size_t column = 0, reduce = 0;
  std::vector<size_t> rows;  // the others, outermost first
};
std::optional<SumAxes> sum_axes(const BlockInfo& info);

// Whether a block computes its elements of weights, beside which it reads little else (scales, of which there is one for many).
bool is_made_of_weights(const tensor::Func& f, const BlockInfo& info);

// The loops of a tile, once they are in order.
struct TileLoops {
  std::string outer, tile;    // the outermost, and that over tiles
  bool rows_outside = false;  // further row axes outside of the panels
  int64_t pieces = 1;         // turns of the outer loop that read other parts of the input
  bool in_pieces = false;     // chunks of rows are meant to have copies of their own
};
// A padded copy of the input, of which each iteration of the outer loop reads a part of its own, is made there, where that stays in the
// cache; so is what else is computed of the input without mathematical functions.
void place_padding(Draft& draft, const BlockInfo& info, const TileRoles& roles, const TileLoops& loops);

}  // namespace mcc::tuner
