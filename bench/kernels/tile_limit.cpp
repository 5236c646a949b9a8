// What register tiles of a matrix product reach when nothing but loads comes to their multiplications: the operands lie in
// the first- or second-level cache, nothing is stored. The next roof below the FMA peak, which loads nothing.
//   tile_limit [ROUNDS]      per tile, the best GFLOP/s of 10 ms runs (f32, AVX-512), interleaved with the FMA peak
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr long kProducts = 60'000'000;  // vectors multiplied and added in a run
constexpr long kRow = 1024;             // elements between the tile's rows
alignas(4096) float panel[1024 * 96];
alignas(4096) float rows[28 * kRow + 1024];

double gflops(long products, Clock::time_point start) {
  return 2e-9 * 16 * static_cast<double>(products) / std::chrono::duration<double>(Clock::now() - start).count();
}

// acc[i][j] += rows[i] * panel[j] for `depth` steps over the same operands, again and again.
template <int height, int width>
double tile(long depth) {
  __m512 acc[height][width];
  for (auto& row : acc)
    for (__m512& v : row)
      v = _mm512_setzero_ps();
  const long turns = kProducts / (height * width * depth);
  const Clock::time_point start = Clock::now();
  for (long turn = 0; turn < turns; ++turn) {
    const float* b = panel;
    const float* a = rows;
    for (long k = 0; k < depth; k += 4) {
#pragma GCC unroll 4
      for (int u = 0; u < 4; ++u, b += width * 16, ++a) {
        __m512 columns[width];
        for (int j = 0; j < width; ++j)
          columns[j] = _mm512_load_ps(b + j * 16);
#pragma GCC unroll 28
        for (int i = 0; i < height; ++i) {
          const __m512 value = _mm512_set1_ps(a[i * kRow]);
          for (int j = 0; j < width; ++j)
            acc[i][j] = _mm512_fmadd_ps(value, columns[j], acc[i][j]);
        }
      }
    }
  }
  const double result = gflops(turns * depth * height * width, start);
  for (auto& row : acc)
    for (__m512& v : row)
      asm volatile("" ::"v"(v));
  return result;
}

double peak() {
  __m512 x[12];
  for (__m512& v : x)
    v = _mm512_set1_ps(1);
  const __m512 half = _mm512_set1_ps(0.5f);
  const Clock::time_point start = Clock::now();
  for (long step = 0; step < kProducts / 12; ++step) {
#pragma GCC unroll 12
    for (int i = 0; i < 12; ++i)
      x[i] = _mm512_fmadd_ps(x[i], half, half);
  }
  const double result = gflops(kProducts, start);
  for (__m512& v : x)
    asm volatile("" ::"v"(v));
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 20;
  std::fill(std::begin(panel), std::end(panel), 0.5f);
  std::fill(std::begin(rows), std::end(rows), 0.5f);
  struct Entry {
    std::string name;
    std::function<double()> run;
    double best = 0;
  };
  std::vector<Entry> entries = {{"FMA peak", peak}};
  for (long depth : {128L, 1024L}) {
    const std::string suffix = ", " + std::to_string(depth) + " deep";
    entries.push_back({"8 x 3" + suffix, [depth] { return tile<8, 3>(depth); }});
    entries.push_back({"6 x 4" + suffix, [depth] { return tile<6, 4>(depth); }});
    entries.push_back({"12 x 2" + suffix, [depth] { return tile<12, 2>(depth); }});
    entries.push_back({"14 x 2" + suffix, [depth] { return tile<14, 2>(depth); }});
  }
  for (int round = 0; round < rounds; ++round) {
    for (Entry& entry : entries)
      entry.best = std::max(entry.best, entry.run());
  }
  for (const Entry& entry : entries)
    std::printf("%-18s %6.1f GFLOP/s %5.1f %%\n", entry.name.c_str(), entry.best, 100 * entry.best / entries[0].best);
  return 0;
}
