// What index expressions range over while some loops run and others stand still: the analysis behind every step that moves
// computation to where its values are needed or made.
#pragma once

#include <optional>
#include <unordered_set>
#include <vector>

#include "tensor/schedule/tree.h"

namespace mcc::tensor {

// Values in [low, low + width], low in terms of what stands still. exact: each of them is attained.
struct Stretch {
  Expr low, width;
  bool exact = false;
};

// One stretch a dimension. exact: every combination is attained.
struct Box {
  std::vector<Stretch> dims;
  bool exact = false;
};

class RegionAnalysis {
 public:
  // The analyzer knows all loops, standing and running.
  explicit RegionAnalysis(Analyzer analyzer) : analyzer_(std::move(analyzer)) {}
  void stand(const Var& var) { standing_.insert(var.get()); }
  void stand(const Var& var, const Expr& min, const Expr& extent);  // for one the analyzer does not know
  void run(const Var& var, const Expr& min, const Expr& extent);

  const Analyzer& analyzer() const { return analyzer_; }
  // Whether the expression mentions a variable that does not run.
  bool mentions_standing(const Expr& e) const;
  // Empty when the expression cannot be bounded (it depends on data, or not monotonically on a loop).
  std::optional<Stretch> stretch(const Expr& e) const;
  // The box of an access; where a stretch is unknown or as wide as the dimension, the dimension as a whole.
  Box box(const std::vector<Expr>& indices, const std::vector<Expr>& shape) const;
  // Covers both; dimensions whose distance is not known become whole.
  Box unite(const Box& a, const Box& b, const std::vector<Expr>& shape) const;
  // Whether inner lies in outer, both cut to the shape. Only sound if outer is exact.
  bool covers(const Box& outer, const Box& inner, const std::vector<Expr>& shape) const;

 private:
  std::optional<Stretch> walk(const Expr& e) const;
  std::optional<Stretch> linear(const Expr& e) const;
  Stretch divided_by_size(const Stretch& a, const Binary& division) const;  // by what stands still and is 1 at least
  std::optional<Stretch> divided(const Stretch& a, int64_t divisor) const;
  std::optional<Stretch> remainder(const Stretch& a, int64_t divisor) const;
  bool runs(const Expr& e) const;
  bool is_known(const Expr& e) const;

  struct Running {
    Expr min, extent;
  };
  Analyzer analyzer_;
  std::unordered_set<const ExprNode*> standing_;
  std::unordered_map<const ExprNode*, Running> running_;
};

// The analysis at one place: the first `standing` loops of the site stand still, the others run.
RegionAnalysis regions_at(const Func& f, const BlockSite& site, size_t standing);

// The box of the buffer that the block reads (writes) while its loops behind the first `standing` ones run. Empty if
// it does not access the buffer.
std::optional<Box> box_read(const RegionAnalysis& regions, const Block& block, const Buffer& buffer);
std::optional<Box> box_written(const RegionAnalysis& regions, const Block& block, const Buffer& buffer);

// Whether the block's predicate only keeps its axes inside their domains, so that what it cuts off lies outside of a box of
// their values. For boxes of the elements at `indices` this holds for the axes that those determine; what the predicate says
// about other axes must then be up to the running loops.
bool predicate_is_domain(const RegionAnalysis& regions, const Block& block,
                         const std::vector<Expr>* indices = nullptr);

// Whether every element of the buffer has a value in the end, for sure: an input, or all of it stored by one block.
bool is_fully_written(const Func& f, const std::vector<BlockSite>& sites, const Buffer& buffer);

// Whether, in each iteration of the loops they share, the writers of every intermediate that the block reads have made what
// it needs. Trivial for writers that share no loop with it. A buffer may be excepted.
bool reads_are_covered(const Func& f, const std::vector<BlockSite>& sites, const BlockSite& reader,
                       const Buffer* except = nullptr);

// Makes the regions that a block reads and writes those of all iterations of the loops inside of it (a tile given to an
// instruction); they have no name outside.
void widen_regions(const Func& f, Block* block);

}  // namespace mcc::tensor
