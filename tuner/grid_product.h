// Sums of products on a GPU, whatever stands where in memory: C[g, i, j] += A[g, i, k] * B[g, k, j], where each of g, i, j, k is
// one axis or several that become one. What their rules share.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>

#include "support/text.h"
#include "tuner/grid_rules.h"

namespace mcc::tuner {

// One of g, p, i, j, k: axes of the block, which become the one of that name.
struct Side {
  std::string name;
  std::vector<size_t> axes;
  int64_t extent = 1;
  bool is_empty() const { return axes.empty(); }
};

struct Operand {
  tensor::Buffer buffer;
  bool is_along_k = false;  // neighbours in memory follow each other along k
  int64_t vector = 1;       // neighbours that one instruction can fetch
  bool is_computed =
      false;  // as it is fetched, of weights (numbers of few bits): nothing copies it by itself
};

struct Product {
  std::string block;
  Side g{"g", {}, 1}, i{"i", {}, 1}, j{"j", {}, 1}, k{"k", {}, 1};
  // Batches of which one block of threads makes all, one after the other (tuner/grid_chain.h).
  Side p{"p", {}, 1};
  Operand a, b;  // that moves along i; along j
  // Elements after which the inner axes of k (a window's) begin anew: a whole number of them at a time, so that their indices are
  // the same in each step.
  int64_t period = 1;
  bool has_windows() const { return k.axes.size() > 1; }
  bool is_open = false;  // of some sizes that are known in a run only
  bool is_turned = false;  // the transposed product: its columns are rows
  // What is fetched element by element out of a window has its place, and whether it is inside, by each of the window's axes: so many in
  // volumes, or of so little that is constant where sizes are open, that of no two elements one place says the other.
  bool has_scattered_windows() const { return k.axes.size() > 3 || (is_open && has_windows()); }
  // Columns that are places of a batch, of which sizes are open: where a column's result is takes divisions, and says nothing of the next
  // one's.
  bool has_scattered_columns() const { return is_open && j.axes.size() > 1; }
  // The results of batches stand side by side in rows (groups of a convolution): then tiles end with them.
  bool is_in_rows = false;
  bool takes_columns(int64_t of_tile) const { return !is_in_rows || j.extent % of_tile == 0; }
  // Blocks that only copy what the product then reads: operands are looked at, and fetched, as if these were inlined.
  std::vector<std::string> copies;
  // What is multiplied, where it is of a narrower type than the sum on both sides; else the sum's. Of bytes, A's type; B's is i8.
  ElementType factor = ElementType::f32;
  bool is_of_bytes() const { return byte_size(factor) == 1; }
  ElementType sum() const { return is_of_bytes() ? ElementType::i32 : ElementType::f32; }  // on tensor cores
  // The name of what is multiplied in those of the instructions of tensor cores; null where these do not take it.
  const char* factors_name() const;
};

// Whether a copy brings rows of bytes (three channels of an image) to whole words, which a product then fetches at once: it stays a
// kernel of its own.
bool fills_words(const BlockInfo& copy);

// Blocks that compute elements of weights alone, and whose results the block alone reads: numbers of few bits are unpacked as they are
// fetched, for each tile anew.
std::vector<std::string> unpacked_for(const tensor::Schedule& schedule, const BlockInfo& block);

// The block as such a product; empty when it is something else. j is the side along which C is contiguous.
// may_repeat_rows: a single row may stand for several (those that fill up a tile), where one operand has none.
std::optional<Product> as_product(const tensor::Schedule& schedule, const std::string& name,
                                  bool may_repeat_rows = false);
// The same, and whether the draft is for open sizes.
std::optional<Product> as_product(const Draft& draft, const std::string& name);

// Groups of a convolution are batches (tuner/groups.h). False, and nothing changed, where there are none, or too little to do for tiles.
bool separate_grid_groups(Draft& draft, const std::string& block);

// An estimate of a product's time with the best tile: cycles of a multiprocessor, times 128.
using ProductTime = std::function<double(const Product&)>;
double grid_matrices_time(const Product& p, const tensor::Gpu& gpu);  // by a warp's instructions; infinite where there are none
// Divides the sum into parts, each of which has blocks of its own, where a result has few tiles and long sums. The block that
// sums one part for each, in place of the block, which adds up the parts; or the block itself. own_launch: of what adds them up.
std::string divide_sum(Draft& draft, const Product& p, const ProductTime& time_of, bool own_launch = true);

// A warp's threads as the fragments of the matrix instructions have them.
inline constexpr int64_t kWarpRows = 8, kWarpColumns = 4;

// How columns are dealt out to the tiles of 8 columns of matrix instructions, of which a thread has two each: in pairs that are
// neighbours, the next pair to the next of so many tiles, so that what a thread has of these is side by side, and stored at once.
struct Dealt {
  int64_t tiles = 1;
  // Of one tile whose first pair is all columns that there are: neighbours to neighbouring threads, so that a column says whose it is.
  bool by_threads = false;
  int64_t pairs() const { return 2 * tiles; }               // columns of a thread that are neighbours
  int64_t group() const { return kWarpColumns * pairs(); }  // columns of all threads in a row
  // Of column j, as texts for index maps: its tile, as one index or two, and its thread there.
  std::string tile() const { return tiles == 1 ? "j // 8" : text("j // ", group(), ", j %% ", pairs(), " // 2"); }
  std::string thread() const { return by_threads ? "j %% 4" : text("j %% ", group(), " // ", pairs()); }
  std::string in_pair() const { return by_threads ? "j %% 8 // 4" : "j %% 2"; }
  // Its place among the columns of the tiles.
  std::string place() const {
    if (by_threads) return "j // 8 * 8 + j %% 4 * 2 + j %% 8 // 4";
    return text("j // ", group(), " * ", group(), " + j %% ", pairs(), " // 2 * 8 + ", thread(), " * 2 + j %% 2");
  }
};

// Brings the tile of the least score to the front.
template <class Tile, class Score>
void bring_best_first(std::vector<Tile>& tiles, const Score& score) {
  auto best = std::min_element(tiles.begin(), tiles.end(),
                               [&](const Tile& a, const Tile& b) { return score(a) < score(b); });
  if (best != tiles.end()) std::iter_swap(tiles.begin(), best);
}

// One question for each size of a tile, each with the values that the answers before leave. tiles: the preferred one first.
template <class Tile, class Score>
Tile ask_sizes(Draft& draft, const std::string& block, std::vector<Tile> tiles,
               std::initializer_list<std::pair<const char*, int64_t Tile::*>> sizes, const Score& score) {
  for (const auto& [name, size] : sizes) {
    std::vector<int64_t> options;
    for (const Tile& t : tiles)
      options.push_back(t.*size);
    std::sort(options.begin(), options.end());
    options.erase(std::unique(options.begin(), options.end()), options.end());
    const int64_t preferred = tiles.front().*size;
    const int64_t chosen =
        options.size() == 1 ? preferred : draft.decide.choose(text(block, ".", name), options, preferred);
    std::erase_if(tiles, [&, size = size](const Tile& t) { return t.*size != chosen; });
    if (chosen == preferred) continue;
    bring_best_first(tiles, score);  // of what is left: what analysis prefers is gone
  }
  return tiles.front();
}

// The block with its axes made g, i, j and k, and the elementwise block, if there is one, that alone reads the result.
class ProductAxes {
 public:
  ProductAxes(Draft& draft, const Product& product) : d_(draft), s_(draft.schedule), p_(product) {}

 protected:
  // Fuses the axes, of both blocks.
  void fuse_sides();
  // After the operands have become blocks of their own.
  void inline_copies();
  // Whether the operand's block copies elements of this type as they are, or zeros.
  bool only_copies(const std::string& block, ElementType type) const;
  // The result goes to a buffer of its own first, block.acc, from which the consumer, or a copy, takes it.
  void separate_result();
  // Then: to how many tiles columns are dealt out at most (Dealt). A thread stores 16 bytes at a time: of more, neighbours among threads
  // would not be neighbours in memory.
  int64_t most_dealt() const;

  std::string loop(const std::string& name) const { return p_.block + "." + name; }
  bool has_batch() const { return !p_.g.is_empty(); }
  // The axes behind those of batches, g and p.
  std::vector<std::string> with_batch(std::vector<std::string> axes) const;

  Draft& d_;
  tensor::Schedule& s_;
  const Product& p_;
  tensor::Buffer result_;
  std::string acc_, last_;  // buffer of sums; the block that takes them

 private:
  void find_consumer();
  void fuse_side(const Side& side);
  void fuse(const std::string& block, const std::vector<std::string>& names, const Side& side);

  std::string consumer_;
  std::vector<std::string> axes_, consumer_axes_;  // names, by the block's axes
};

}  // namespace mcc::tuner
