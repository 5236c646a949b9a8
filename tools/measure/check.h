// Whether a kernel computed what it should.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "tensor/stmt.h"

namespace mcc::tools {

// How far an output may be from its reference.
//
// Floats: |got - want| <= relative * (the largest finite value of the reference). A sum of K products in another order
// moves by some eps * sqrt(K) of that, a Winograd convolution by up to 1e-4 of it; a wrong index, a tile left out or a bound
// off by one moves elements by the order of the values themselves. NaN equals NaN, infinities equal themselves.
// Others must be equal; where they are made from floats, one in a hundred may be off by one (a value that stands on the
// edge between two integers may fall to either side).
struct OutputTolerance {
  double relative = 0;
  bool is_rounded = false;  // an integer output of a function that computes with floats
};
OutputTolerance tolerance_of(const tensor::Func& unscheduled, const tensor::Buffer& output);

struct OutputCheck {
  bool ok = false;
  double max_error = 0;  // over what is tolerated
  std::string message;   // of the first wrong element; empty when ok
};
// Memory of the same number of elements. `only`, when not empty, marks the elements to look at.
OutputCheck check_output(ElementType element, std::span<const std::byte> got, std::span<const std::byte> want,
                         const OutputTolerance& tolerance, std::span<const char> only = {});

// The part of the elements that are NaN or infinite.
double share_not_finite(ElementType element, std::span<const std::byte> values);

}  // namespace mcc::tools
