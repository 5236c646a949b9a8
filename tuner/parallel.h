// Work on many points at once: planning one takes up to some milliseconds.
#pragma once

#include <oneapi/tbb/parallel_for.h>

#include <cstddef>
#include <vector>

namespace mcc::tuner {

// make(0), make(1), ..., made by all processors, in this order.
template <class T, class Make>
std::vector<T> parallel_map(size_t count, const Make& make) {
  std::vector<T> out(count);
  oneapi::tbb::parallel_for(size_t{0}, count, [&](size_t i) { out[i] = make(i); });
  return out;
}

}  // namespace mcc::tuner
