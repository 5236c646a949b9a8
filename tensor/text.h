// The text form of the tensor IR: what to_text prints, parse_func reads back to an equal function.
#pragma once

#include "support/result.h"
#include "tensor/stmt.h"

namespace mcc::tensor {

std::string to_text(const Expr& e);
std::string to_text(const Stmt& s);
// Names of variables and buffers are made unique by a suffix where two of the same name are in sight.
std::string to_text(const Func& f);

// Errors name line and column. file is only for messages.
Result<Func> parse_func(std::string_view source, std::string_view file = "<text>");

// Equal up to the identity and names of variables and buffers bound inside; free ones must be the same.
bool structurally_equal(const Expr& a, const Expr& b);
bool structurally_equal(const Func& a, const Func& b);
// Equal functions hash equal; independent of addresses, names of variables, and the run.
uint64_t structural_hash(const Func& f);

}  // namespace mcc::tensor
