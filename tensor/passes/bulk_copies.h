// Copies of a launch that the copy engine can make.
#pragma once

#include <optional>
#include <vector>

#include "tensor/simplify.h"
#include "tensor/stmt.h"

namespace mcc::tensor {

// A loop over rows with this annotation, with one over their elements inside, is left as it is by the passes that split loops by
// conditions: one thread copies a box of a matrix into shared memory.
inline constexpr const char* kBulk = "bulk";
bool is_bulk(const For& loop);

// So is a loop over the elements of a vector with this one: an asynchronous copy fills with zeros what its condition excludes, where
// branches would keep the threads of a warp from copying together.
inline constexpr const char* kMasked = "masked";
bool keeps_conditions(const For& loop);

struct BulkCopies {
  Expr condition;  // of the one thread
  Stmt copies;     // of boxes, for a phase of `bar`
  int64_t bytes = 0;
};

// Statements with such loops alone as bulk_copy; empty where one of them copies something else than boxes of a matrix, with zeros
// where that ends. Requires flat buffers. known: all variables around. bar: as the intrinsics take it.
std::optional<BulkCopies> as_bulk_copies(const std::vector<Stmt>& copies, const Analyzer& known,
                                         const Expr& bar);

}  // namespace mcc::tensor
