// Schedules that leave a matrix product to a library (tensor/library_product.h). No rule and no search proposes them: who tunes
// where the library is measures them beside what was generated, and a log that says so has them compiled.
#pragma once

#include "tuner/trial.h"

namespace mcc::tuner {

// The sketch that such candidates name; not one of all_sketches().
inline constexpr const char* kLibrarySketch = "library";

bool calls_library(const tensor::Trace& trace);

// For a function of one matrix product the library's first algorithms, of which there may be fewer; what stands around the
// product is the library's where it computes all of it, and beside that a launch of ours. Empty for other functions,
// and where dimensions are symbolic.
std::vector<Candidate> library_candidates(const tensor::Func& f, const tensor::Target& target);

}  // namespace mcc::tuner
