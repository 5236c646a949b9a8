// Two products with rows between them as one launch: what the rules for CUDA cores and for tensor cores share.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tuner/grid_product.h"

namespace mcc::tuner {

// A block between the products: about each element of a row, about a row as a whole, or a sum, maximum, .. of a row.
struct RowBlock {
  enum class Kind { map, scalar, reduction };
  std::string name;
  Kind kind = Kind::scalar;
  bool is_for_others = false;  // comes after the second product, which does not need it
};

// Parts of the columns that a recurrence puts together, one after the other: a loop over them around blocks about rows as a whole, and
// one about the elements of the second product's result.
struct Rolling {
  std::string loop;
  std::vector<std::string> rows;  // the blocks, in order
  std::string elements;
  std::string last;  // the block that reads what has been put together of elements
  std::string
      last_of_rows;  // the one that copies some numbers of each row that have been put together; empty where there is none
  bool has(const std::string& block) const;
};

// first[g, i, j] and second[g, i, j], whose k is the first one's j. Blocks behind the second may read its result, and what is about
// rows as a whole; they are not part of the chain.
struct ProductChain {
  Product first, second;
  std::vector<RowBlock> between;  // what depends on the first and not on the second, in order
  std::optional<Rolling> rolling = std::nullopt;  // then products have parts p: first[g, p, i, j]
};

// The schedule's blocks as such a chain; empty when they are something else.
std::optional<ProductChain> as_chain(const tensor::Schedule& schedule);

// Threads of a block: along thread.x the elements of a row, along the others rows. A thread reads `vector` neighbours of a row at
// a time.
struct ChainThreads {
  int64_t z = 1, y = 1, x = 1;
  int64_t vector = 1;
  // A warp, thread.y and thread.x, has 16 rows that follow each other, with rows y and y + 8 by its threads y; what is made of them
  // stays in registers.
  bool has_own_rows = false;
};

// A product of the chain.
class ChainProduct : private ProductAxes {
 public:
  ChainProduct(Draft& draft, const Product& product) : ProductAxes(draft, product) {}
  using ProductAxes::fuse_sides;
  using ProductAxes::has_batch;
  using ProductAxes::inline_copies;
  using ProductAxes::loop;
  using ProductAxes::separate_result;
  using ProductAxes::with_batch;
  // The same without parts.
  std::vector<std::string> with_rows(std::vector<std::string> axes) const {
    if (has_batch()) axes.insert(axes.begin(), "g");
    return axes;
  }
  std::vector<std::string> loops(std::vector<std::string> names) const {
    for (std::string& name : names)
      name = loop(name);
    return names;
  }
  const std::string& acc() const { return acc_; }    // the buffer of sums
  const std::string& last() const { return last_; }  // the block that takes them
};

// The steps, in the order in which a rule takes them.
class ChainSchedule {
 public:
  ChainSchedule(Draft& draft, const ProductChain& chain, int64_t tile_rows, const ChainThreads& threads)
      : d_(draft),
        s_(draft.schedule),
        c_(chain),
        first_(draft, c_.first),
        second_(draft, c_.second),
        tile_rows_(tile_rows),
        threads_(threads) {}
  ChainSchedule(const ChainSchedule&) = delete;

 protected:
  // Both products' axes become g, i, j, k; their sums go to buffers of their own.
  void prepare();
  // After the operands have become blocks of their own. Where threads have rows of their own, what the second product takes stays.
  void inline_maps();
  // After the second product is tiled, with loop host_ over its tiles of rows, or of parts of the columns inside of loop tiles_.
  void gather();
  // Tiles of the recurrence's rows go around its steps, which become host_, and batches around these; what reads the sums in the end
  // goes behind the steps. Before anything is put below them.
  void roll();
  // Loops of batches, of which a block of threads makes one, go ahead of those that its threads share, where rows of several axes come
  // first in the function.
  void lead_with_batches(const std::string& block);
  // After all that the recurrence reads is in place.
  void place_rolled(const std::function<void(const std::string&)>& spread);
  // place_map: spreads what is made for each element among the threads, where it has not been inlined.
  void place_between(const std::function<void(const std::string&)>& place_map = {});
  // The first dimensions of a buffer, with `inner` others behind them, as in an index map, with a comma behind.
  std::string batch_indices(const std::string& buffer, size_t inner) const;
  // at_once: of what a thread fetches, where it has no registers for all (0).
  void fetch(const std::string& copy, const std::string& outer, const std::string& inner, int64_t vector,
             int64_t at_once = 0);
  void unroll_partly(const std::string& loop, int64_t count);
  // `depth` elements of each row; a thread writes `vector` neighbours of a row at a time, where there are as many for each.
  void make_part(int64_t depth, int64_t vector);

  Draft& d_;
  tensor::Schedule& s_;
  ProductChain c_;
  ChainProduct first_, second_;
  const int64_t tile_rows_;
  const ChainThreads threads_;
  std::string host_, scores_;                                // the loop; the buffer of rows
  std::string tiles_, batches_;  // loops around a recurrence's steps; the second one empty where there is none
  std::vector<std::pair<std::string, std::string>> scopes_;  // of buffers, to be set when all is bound

 private:
  bool feeds_second(const RowBlock& b) const;
  // has_parts: the buffer has p where products have.
  void fuse_rows_in_memory(const std::string& buffer, bool has_parts = true);
  void name_rolled();
  void name_axes(const RowBlock& b);
  // Spreads a loop over rows, with the loops of `inner` inside; the loop over what one thread has of it.
  std::string bind_rows(const std::string& loop, const std::vector<std::string>& inner);
  void keep_with_rows(const std::string& block);
  void order_rows(const std::string& buffer);
  void name_result(const std::string& block, const std::string& maker);
  void place_rows(const std::string& block);
  void begin(const std::string& block, const std::vector<std::string>& straight);
  std::vector<std::string> below_host(const std::string& block) const;
  void reduce(const RowBlock& b);
};

// Whether a block's buffers, as lowering makes them, fit into shared memory: they hold more than an estimate knows of where
// threads reach beyond what there is. The rule gives up where they do not fit.
bool fits_shared_memory(Draft& draft);

// The same with tensor cores, where both products multiply types that these take, and the GPU has them.
bool schedule_grid_matrix_chain(Draft& draft, const ProductChain& chain);

}  // namespace mcc::tuner
