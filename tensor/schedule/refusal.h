// A schedule step that may not be applied: an ordinary cheap value, never an exception.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace mcc::tensor {

enum class RefusalCode : uint8_t {
  none,
  no_such_block,
  no_such_loop,
  bad_argument,  // factors, names, positions
  not_nested,    // loops are not directly nested / blocks not under one loop
  not_perfect,   // something stands between the loops
  dependence,    // would change the result
  not_a_reduction,
  not_injective,
  not_affine,
  region_not_covered,
  is_output,
  scope,
  no_match,  // tensorize: semantics differ
  unsupported_target,
};

// Converts to true when the step was carried out.
struct [[nodiscard]] Outcome {
  RefusalCode code = RefusalCode::none;
  std::string detail;  // "expected ..., got ..."
  explicit operator bool() const { return code == RefusalCode::none; }
};

inline Outcome applied() { return {}; }
inline Outcome refuse(RefusalCode code, std::string detail) { return {code, std::move(detail)}; }

std::string_view to_text(RefusalCode code);

}  // namespace mcc::tensor
