// Two models with open dimensions, by their generated headers (linked_open_test.py compiles and runs it): reads lines "N height width", runs
// both, writes shapes and values. With the argument "misuse": sentences instead.
#include "detector.h"
#include "pairs.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace {

// What the runtime allocates, counted at malloc itself.
bool is_counting = false;
volatile int allocations = 0;
void count() {
  if (is_counting) allocations = allocations + 1;
}

}  // namespace

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t size) {
  count();
  return __libc_malloc(size);
}
void* calloc(std::size_t number, std::size_t size) {
  count();
  return __libc_calloc(number, size);
}
void* realloc(void* memory, std::size_t size) {
  count();
  return __libc_realloc(memory, size);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  count();
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
}

namespace {

using mcc_models::Detector;
using mcc_models::Pairs;

template <std::size_t rank>
std::size_t count_of(const std::array<std::int64_t, rank>& shape) {
  std::size_t count = 1;
  for (std::int64_t dim : shape)
    count *= static_cast<std::size_t>(dim);
  return count;
}

template <std::size_t rank, class T>
void print(const char* name, const std::array<std::int64_t, rank>& shape, const T* data) {
  std::printf("%s", name);
  for (std::int64_t dim : shape)
    std::printf(" %lld", static_cast<long long>(dim));
  std::printf(" :");
  for (std::size_t i = 0; i < count_of(shape); ++i)
    std::printf(" %.9g", static_cast<double>(data[i]));
  std::printf("\n");
}

std::vector<float> numbers(std::size_t count) {
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; ++i)
    out[i] = 0.25f * static_cast<float>(i * 7 % 11) - 1;
  return out;
}

// By a shape and by sizes in turn; to the session's memory and to the program's.
void run_all() {
  Detector detector(mcc::runtime::SessionOptions{1});
  Pairs pairs;
  std::vector<float> image, features, products(256);
  long long n = 0, height = 0, width = 0;
  for (int turn = 0; std::scanf("%lld %lld %lld", &n, &height, &width) == 3; ++turn) {
    image = numbers(static_cast<std::size_t>(n * 3 * height * width));
    Detector::Sizes sizes;
    sizes.N = n;
    sizes.height = height;
    sizes.class_ = width;
    // The second time with no more than the first one needed.
    for (int again = 0; again < 2; ++again) {
      is_counting = again == 1;
      if (turn % 2 == 0) {
        detector.set_image(image.data(), {n, 3, height, width});
      } else {
        detector.set_image(image.data(), sizes);
      }
      const std::array<std::int64_t, 4> shape = detector.features_shape();
      is_counting = false;
      features.assign(count_of(shape), -1);
      is_counting = again == 1;
      detector.set_features(turn % 3 == 0 ? features.data() : nullptr, features.size());
      detector.run();
      detector.get_features();
      detector.places_shape();
      is_counting = false;
    }
    std::printf("allocations %d\n", allocations);
    print("features", detector.features_shape(), turn % 3 == 0 ? features.data() : detector.get_features());
    print("places", detector.places_shape(), detector.get_places());
    std::uint16_t halves[6] = {};
    std::memcpy(halves, detector.get_half(), sizeof halves);
    print("half", std::array<std::int64_t, 1>{6}, halves);

    const std::vector<float> left = numbers(static_cast<std::size_t>(n * 4)),
                             right = numbers(static_cast<std::size_t>(n * 2));
    Pairs::Sizes of_pairs;
    of_pairs.M = n;
    pairs.set_left(left.data(), std::vector<std::int64_t>{n, 4});
    pairs.set_right(right.data(), of_pairs);
    pairs.set_product(products.data(), products.size());
    const std::array<std::int64_t, 2> product_shape = pairs.product_shape();
    pairs.run();
    print("product", product_shape, products.data());
    print("fixed", Pairs::fixed_shape(), pairs.get_fixed());
    static_assert(Pairs::fixed_size == 4 && Pairs::fixed_shape()[1] == 4,
                  "known when the program is compiled");
  }
}

template <class Function>
void say(const Function& function) {
  try {
    function();
    std::printf("no error\n");
  } catch (const mcc::runtime::Error& error) {
    std::printf("%s: %s\n", mcc_status_name(error.status()), error.what());
  }
}

void misuse() {
  Detector detector;
  const std::vector<float> image(3 * 64 * 64);
  std::vector<float> features(3);
  Detector::Sizes sizes;
  say([&] { detector.features_shape(); });
  say([&] { detector.set_image(image.data(), {1, 3, 8}); });
  say([&] { detector.set_image(image.data(), {1, 4, 8, 8}); });
  say([&] { detector.set_image(image.data(), {9, 3, 8, 8}); });
  say([&] { detector.set_image(image.data(), {1, 3, 0, 8}); });
  say([&] { detector.set_image(image.data(), sizes); });
  say([&] { detector.set_image(nullptr, {1, 3, 8, 8}); });
  const std::vector<std::int64_t> long_shape(17, 1);
  say([&] { detector.set_image(image.data(), long_shape); });
  say([&] { detector.run(); });
  detector.set_image(image.data(), {1, 3, 8, 8});
  say([&] { detector.places_shape(); });
  say([&] { detector.get_features(); });
  say([&] {
    detector.set_features(features.data(), features.size());
    detector.run();
  });
  say([&] {
    detector.set_features(features.data(), 0);
    detector.run();
  });
  say([&] {
    detector.set_features(nullptr, 0);
    detector.run();
  });
  Pairs pairs;
  pairs.set_left(image.data(), {2, 4});
  say([&] { pairs.product_shape(); });
  pairs.set_right(image.data(), {3, 2});
  say([&] { pairs.run(); });
  say([&] { pairs.set_fixed(features.data(), 3); });
  say([&] { pairs.set_fixed(features.data(), 0); });
}

}  // namespace

int main(int count, char**) {
  if (count > 1) {
    misuse();
  } else {
    run_all();
  }
}
