// What the rules ask about blocks: which axes an access walks and how far apart, what a reduction multiplies, how often
// things run. All of a static, unscheduled block (tensor/build.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tensor/schedule/schedule.h"

namespace mcc::tuner {

struct AxisInfo {
  std::string loop;   // the loop that the axis is bound to, before any step
  int64_t extent = 1;
  bool is_reduce = false;
};

// One load or store of the block's body.
struct Access {
  tensor::Buffer buffer;
  std::vector<int64_t> strides;  // elements between neighbouring values of each axis, at the origin
  std::vector<int64_t> runs;     // of each axis: how many values from 0 on are neighbours in memory; all of a plain array's
                                 // last dimension, the width of a packed panel; also of neighbours four apart
                                 // (packed bytes, tuner/dot_product.h); 1 where the stride is another
  bool is_indirect = false;      // along some axis data says where it lies: values of the axis may share a place
};

struct BlockInfo {
  std::string name;
  std::vector<AxisInfo> axes;
  Access store;
  // Without the accumulator of a reduction, nor what says where a contraction's operands lie.
  std::vector<Access> loads;
  bool is_reduction = false;
  bool is_injective = false;     // no reduce axes, one store, its indices are axes (or a split one's)
  bool is_contraction = false;   // sum of products, some operand of which serves several results
  bool has_math_call = false;    // exp, tanh, ...
  bool is_movement = false;      // no arithmetic on values: loads, casts, selects
  int64_t spatial = 1, reduce = 1;  // products of extents
  int element_bits = 32;            // of what is computed with
  bool is_nested = false;           // stands under loops of other blocks

  int64_t iterations() const { return spatial * reduce; }
};

// Empty when the block is not of the simple kind (one store, static extents, one axis a loop; a scatter is not). Of a block
// inside of scans, one step is described: scan axes are left out.
std::optional<BlockInfo> analyze(const tensor::Schedule& schedule, const std::string& block);

// The same of a block that compute_at has put under loops of another one: its axes run over what one iteration of those
// needs, each over one loop, which are the innermost. Strides are those of whole buffers.
std::optional<BlockInfo> analyze_nested(const tensor::Schedule& schedule, const std::string& block);

// The value of an integer expression for given values of variables (absent ones are 0).
std::optional<int64_t> evaluate_at(const tensor::Expr& e, const tensor::ExprNode* var, int64_t value);

// Elements of a buffer of static shape; 0 when symbolic.
int64_t count_of(const tensor::Buffer& buffer);

bool is_output(const tensor::Func& f, const tensor::Buffer& buffer);

// Whether the block is about the steps of a recurrence.
bool has_scan(const tensor::Block& block);

// Of non-negative numbers.
constexpr int64_t ceil_div64(int64_t n, int64_t divisor) { return (n + divisor - 1) / divisor; }
constexpr int64_t round_up64(int64_t n, int64_t multiple) { return ceil_div64(n, multiple) * multiple; }

}  // namespace mcc::tuner
