// The text form of the tensor IR: what to_text prints, parse_func reads back to an equal function.
//
//   func NAME<dim, ...>(input: f32[128, n], ...) -> (output: f32[n, 4], ...) @{key="fact"} {
//     alloc tmp: f32[16, 4] local align 32            # one of Func::allocs
//     parallel for i in 8 @{note=1} {                 # also vectorized, unrolled, bound
//       for j in n from 2 {                           # j = 2 .. 2 + n
//         block B(x = i*4 + j: spatial 32, k = 0: reduce 1)
//           where i*4 + j < 30
//           reads input[x, k]
//           writes tmp[x +: 4, k] {                   # min +: extent
//           init { tmp[x, k] = 0.0 }
//           tmp[x, k] = tmp[x, k] + input[x, k]
//         }
//       }
//     }
//     alloc t: f32[4] registers {                     # the Allocate statement has a body
//       let v = exp(input[0, 0])                      # holds to the end of the braces around it
//       if v < 1.0 { t[0] = v } else { t[0] = 2.0 }
//       output[ramp(0, 1, 4), 0; mask] = broadcast(v, 4)   # lanes under a predicate
//       evaluate prefetch(input[0, 3], 0)
//     }
//   }
//
// Literals: 5 is i64, 5:i32 another type, 1.5 (also inf, nan) is f32, 1.5:f16 another type, true, false. A bare integer
// beside an operand of another type takes that type. Casts are calls of the type: f32x4(x). Beside the intrinsics there are
// min, max, select(c, a, b), ramp(base, stride, lanes), broadcast(x, lanes), shuffle(a, b; 0, 2, ...), reduce_add(v) (and the other
// operators of VectorReduce). A call whose type does not follow from its arguments names it: bit_cast<f32>(x).
// Names hold letters, digits, _ and dots; any other name stands in back quotes. # starts a comment.
#pragma once

#include "support/result.h"
#include "tensor/stmt.h"

namespace mcc::tensor {

std::string to_text(const Expr& e);
std::string to_text(const Stmt& s);
// Names of variables and buffers are made unique by a suffix where two of the same name are in sight.
std::string to_text(const Func& f);
// The same with every variable and buffer numbered, and without the function's name: equal for equal functions.
std::string canonical_text(const Func& f);

// Errors name line and column. file is only for messages.
Result<Func> parse_func(std::string_view source, std::string_view file = "<text>");
// An expression over the given variables and buffers, which it names by their names.
Result<Expr> parse_expr(std::string_view source, const std::vector<Var>& vars,
                        const std::vector<Buffer>& buffers = {});

// Equal expressions over the same variables and buffers.
bool structurally_equal(const Expr& a, const Expr& b);
// Equal up to the function's name, and the identity and names of variables and buffers (all are bound inside).
bool structurally_equal(const Func& a, const Func& b);
// Equal functions hash equal; independent of addresses, names of variables, and the run.
uint64_t structural_hash(const Func& f);

// A total preorder of expressions that depends on their text only: negative, 0 or positive. Expressions that compare 0
// and are not equal differ only in variables or buffers of the same name.
int compare(const Expr& a, const Expr& b);

}  // namespace mcc::tensor
