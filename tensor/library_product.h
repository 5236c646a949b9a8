// Matrix products that a library of the GPU's maker computes instead of code of ours.
//
// A schedule says so by the annotation "library" = "cublasLt:N" of an outermost loop that is not bound. The loops stay as they
// are: they say what the call computes, the interpreter runs them, and the call is read off them. So there is one meaning,
// and a nest that the library does not compute is refused.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "support/result.h"
#include "tensor/stmt.h"

namespace mcc::tensor {

inline constexpr const char* kLibrary = "library";

// Libraries rank their algorithms for a product; N is the place in that list.
inline constexpr int64_t kMaxLibraryAlgorithms = 16;
std::string library_text(int64_t algorithm);  // "cublasLt:0"

bool is_library_nest(const Stmt& s);
bool has_library_nest(const Func& f);

// An operand: elements from its buffer's first on. Distances are in elements; one of row and column is 1.
struct LibraryMatrix {
  Buffer buffer;
  int64_t row = 0, column = 0;  // between neighbours of the same column, of the same row
  int64_t batch = 0;            // between matrices; 0: the same for all
};

// For each of `batches`:  d = scale * a * b + bias? + addend?,  a of [rows, depth], b of [depth, columns], d of
// [rows, columns] with d.column = 1; the sum in f32. a and b are both f32, tf32 (f32 in memory), f16 or bf16; d is f32, or as the
// operands.
struct LibraryProduct {
  int64_t algorithm = 0;
  int64_t batches = 1, rows = 1, columns = 1, depth = 1;
  LibraryMatrix a, b, d;
  double scale = 1;
  std::optional<Buffer> bias;           // [columns], of d's type
  std::optional<LibraryMatrix> addend;  // laid out like d, of d's type
};

// Of a nest in a lowered function. Errors (kind unsupported): what is not as the library computes it.
Result<LibraryProduct> library_product(const For& nest);

}  // namespace mcc::tensor
