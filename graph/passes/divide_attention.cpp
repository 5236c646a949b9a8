// Attention of a GPU with many keys, in parts:
//
//   y = mcc.Attention(q, k, v, ..)    becomes    y = mcc.Attention(q, k, v, ..) {parts = P}    or {rolling = keys of a part}
//
// A block of threads keeps the scores of a tile of rows in shared memory (tuner/rule_grid_chain.cpp), or, of 16-bit operands, in
// registers (tuner/rule_grid_matrix_chain.cpp). With fewer keys to a part it has room for more rows, which share what it fetches of
// keys and values; rows too long for the smallest tile get one at all; and where there are few rows, more blocks have work. What it
// takes: the parts' results go through memory, and a launch more. Rolling, a block makes all parts of its rows itself, one after the
// other, which needs neither, and no room for more than one part.
#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/ops/attention_dims.h"
#include "graph/ops/common.h"
#include "graph/ops/operand_view.h"
#include "graph/passes/divide_attention.h"
#include "graph/passes/passes.h"
#include "tensor/instructions.h"
#include "tensor/product_time.h"

namespace mcc::graph {
namespace {

using tensor::Gpu;

constexpr int64_t kMostParts = 16, kFewestKeys = 128;
constexpr int64_t kFewestRows = 16, kMostRows = 128;  // of a tile
constexpr int64_t kFewestRowsByCores = 4;
constexpr int64_t kFewestColumns = 8;        // of an instruction
constexpr int64_t kTypicalBatch = 4;         // of an open one
constexpr int64_t kMostKnownBatches = 4096;  // beside an open one: a schedule's instance has few blocks

struct AttentionSizes {
  int64_t batch = 1, m, n, d, e;
  int64_t bytes;    // of an element of an operand
  bool is_by_cores;  // CUDA cores multiply, not tensor cores
  bool is_open = false;  // the batch is a typical one
};

// What a tile of rows takes of shared memory: scores; queries; parts of keys, values and exponentials.
int64_t shared_bytes(const AttentionSizes& a, int64_t rows, int64_t keys) {
  constexpr int64_t row = 32;  // of the padding
  const int64_t scores = rows * 4 * (keys + row);
  return scores + rows * (a.d * a.bytes + row) + 96 * (std::max(a.d, a.e) * a.bytes + row) + rows * (64 * a.bytes + row);
}

// Whether a warp keeps the scores of so many keys in registers, whatever rows a tile has.
bool are_held(const AttentionSizes& a, int64_t keys) {
  return a.bytes == 2 && !a.is_by_cores && tensor::HeldScores{keys, a.e, false}.fits(false);
}

constexpr double kLanes = 128, kCacheBytes = 24;  // of a multiprocessor, in a cycle
// Of a score, by threads: maximum, two exponentials, their conversion; in registers one, and no memory.
constexpr double kShared = 24, kSharedWide = 32, kHeld = 14;

// Cycles until a block has gone through so many keys, where multiprocessors have so many blocks: each waits for what it fetches and for
// its own results, while a few others work.
double wait_of(int64_t keys, double blocks) {
  constexpr double kOfKey = 16, kResident = 2;
  return kOfKey * static_cast<double>(keys) * std::ceil(blocks / kResident);
}

constexpr int64_t kRollingKeys[] = {64, 32};

// Whether a warp makes parts of so many keys one after the other.
bool is_rolling(int64_t keys, int64_t d, int64_t e, const Gpu& gpu) {
  const int64_t shared = kFewestRows * (2 * d + 16) + 2 * keys * (2 * (d + e) + 96);
  // Rather two blocks than many keys.
  const int64_t most = keys == 64 ? gpu.shared_per_block_max / 2 : gpu.shared_per_block_max;
  return tensor::HeldScores{keys, e, true}.fits(false) && shared <= most;
}

// Microseconds with tiles of so many rows.
double time_of(const AttentionSizes& a, int64_t parts, int64_t rows, const Gpu& gpu) {
  const int64_t tiles = (a.m + rows - 1) / rows, blocks = a.batch * parts * tiles, keys = a.n / parts;
  // CUDA cores make the products, too.
  const double work = are_held(a, keys) ? kHeld
                                        : (a.bytes == 2 ? kShared : kSharedWide) +
                                              (a.is_by_cores ? static_cast<double>(a.d + a.e) : 0);
  const double rounds = std::ceil(static_cast<double>(blocks) / gpu.multiprocessors);
  const double issue = rounds * static_cast<double>(rows * keys) * work / kLanes;
  const double fetched = static_cast<double>(a.batch * tiles * a.n * (a.d + a.e) * a.bytes);
  const double of_parts = parts > 1 ? 2 * 4 * static_cast<double>(a.batch * parts * a.m * a.e) : 0;
  const double rate = kCacheBytes * gpu.multiprocessors;
  const double cycles = std::max({issue, wait_of(keys, rounds), fetched / rate}) + of_parts / rate;
  return cycles / (gpu.ghz * 1e3) + (parts > 1 ? 2 : 1) * gpu.launch_us;
}

// The same where a block makes parts of so many keys one after the other.
double rolling_time(const AttentionSizes& a, int64_t keys, int64_t rows, const Gpu& gpu) {
  const int64_t tiles = (a.m + rows - 1) / rows, blocks = a.batch * tiles, parts = (a.n + keys - 1) / keys;
  const double work = kHeld + 2 * static_cast<double>(a.e) /
                                  static_cast<double>(keys);  // what has been summed up takes the new maximum
  const double rounds = std::ceil(static_cast<double>(blocks) / gpu.multiprocessors);
  const double issue = rounds * static_cast<double>(rows * keys * parts) * work / kLanes;
  const double fetched = static_cast<double>(a.batch * tiles * a.n * (a.d + a.e) * a.bytes);
  return std::max({issue, wait_of(keys * parts, rounds), fetched / (kCacheBytes * gpu.multiprocessors)}) /
             (gpu.ghz * 1e3) +
         gpu.launch_us;
}

// The same of so many keys, where parts of them can be made one after the other.
int64_t rolling_keys(const AttentionSizes& a, const Gpu& gpu) {
  if (a.bytes != 2 || a.is_by_cores || a.m < kFewestRows || a.batch > 65535) return 0;
  for (int64_t keys : kRollingKeys)
    if (keys < a.n && is_rolling(keys, a.d, a.e, gpu)) return keys;
  return 0;
}

// The same of an open number of keys, on operands of 16 bits.
int64_t rolling_keys(int64_t depth, int64_t columns, const Gpu& gpu) {
  for (int64_t keys : kRollingKeys)
    if (is_rolling(keys, depth, columns, gpu)) return keys;
  return 0;
}

struct Division {
  int64_t parts = 1;
  double us = 0;        // with the best tiles
  int64_t rolling = 0;  // keys of parts one after the other
  std::string name() const { return rolling != 0 ? "rolling" : parts == 1 ? "whole" : text("parts_", parts); }
};

// Those that give rows that fit; none where no number of parts does, or tensor cores have no whole tile.
std::vector<Division> divisions(const AttentionSizes& a, const Gpu& gpu) {
  std::vector<Division> out;
  if (a.m < (a.is_by_cores ? kFewestRowsByCores : kFewestRows)) return out;
  for (int64_t parts = 1; parts <= kMostParts; ++parts) {
    if (a.n % parts != 0 || (parts > 1 && a.n / parts < kFewestKeys)) continue;
    Division division{parts, std::numeric_limits<double>::infinity()};
    for (int64_t rows = kFewestRows; rows <= kMostRows && rows < a.m + kFewestRows; rows *= 2) {
      if (shared_bytes(a, rows, a.n / parts) > gpu.shared_per_block_max) break;
      division.us = std::min(division.us, time_of(a, parts, rows, gpu));
    }
    if (std::isfinite(division.us)) out.push_back(division);
  }
  if (const int64_t keys = rolling_keys(a, gpu); keys != 0) {
    Division division{1, std::numeric_limits<double>::infinity(), keys};
    for (int64_t rows = kFewestRows; rows <= kMostRows && rows <= a.m; rows *= 2)
      division.us = std::min(division.us, rolling_time(a, keys, rows, gpu));
    out.push_back(division);
  }
  return out;
}

// The one that is expected to be fastest, or chosen: "whole", "parts_4", "rolling".
Division choose_division(const AttentionSizes& a, const Node& node, const Gpu& gpu,
                         const AlgorithmChoices& choices) {
  const std::vector<Division> all = divisions(a, gpu);
  if (all.empty()) return {};
  std::vector<Algorithm> named;
  size_t best = 0;
  for (const Division& division : all) {
    if (division.us < all[best].us) best = named.size();
    named.push_back({division.name(), division.us});
  }
  if (a.is_open) return all[best];  // times at other sizes would be none of this one's
  const std::string problem = text("attention of ", a.m, " queries to ", a.n, " keys, ", a.d, " and ", a.e, " numbers of ", 8 * a.bytes,
                                   " bits, ", a.batch, " times");
  return all[choose_algorithm(problem, node, named, best, choices)];
}

// Into how many stretches the parts of one query's keys are dealt out: so that there are a few blocks for each multiprocessor, as one of a
// single warp waits for most of its time. Each has two parts at least: a single one is no recurrence.
int64_t splits_of(const Graph& graph, const Node& node, int64_t keys_of_part, const Gpu& gpu) {
  constexpr int64_t kMostSplits = 32, kBlocks = 2;
  const AttentionDims dims(graph, node);
  std::vector<int64_t> batch = node.attributes.integers("batch");
  if (dims.are_keys_shared) batch.pop_back();  // rows
  int64_t batches = 1;
  for (int64_t extent : batch)
    if (extent != kOpenExtent) batches *= extent;
  const int64_t wanted = std::clamp<int64_t>(kBlocks * gpu.multiprocessors / batches, 2, kMostSplits);
  const std::optional<int64_t> keys = graph.facts().bounds(dims.keys).high;
  return keys ? std::min(wanted, *keys / (2 * keys_of_part)) : wanted;
}

}  // namespace

bool has_open_attention(const AttentionExtents& a, ElementType factor, const Gpu& gpu) {
  if (a.batches > kMostKnownBatches) return false;
  const bool is_by_cores = !tensor::multiplies_matrices(gpu, factor);
  if (a.queries != kOpenExtent && a.keys != kOpenExtent) {
    const AttentionSizes sizes{a.batches * kTypicalBatch, a.queries,   a.keys, a.depth, a.columns,
                               byte_size(factor),         is_by_cores, true};
    return !divisions(sizes, gpu).empty();
  }
  // Rows of several axes: those of an open number are filled up to whole tiles, known ones may not be.
  if (a.has_shared_keys && a.queries != kOpenExtent && a.queries != 1) return false;
  const int64_t keys = byte_size(factor) == 2 && !is_by_cores ? rolling_keys(a.depth, a.columns, gpu) : 0;
  return keys != 0 && a.columns >= kFewestColumns &&
         (a.queries == kOpenExtent || a.queries == 1 || a.queries >= kFewestRows) &&
         (a.keys == kOpenExtent || a.keys > keys);
}

void divide_attention(Graph& graph, const tensor::Target& target, const AlgorithmChoices& choices) {
  if (target.kind != tensor::TargetKind::cuda) return;
  const Gpu& gpu = target.gpu;
  for (Node& node : graph.nodes) {
    if (node.dead || node.op->name != "Attention" || node.op->domain != "mcc") continue;
    const std::vector<int64_t> extents = node.attributes.integers("extents");
    const int64_t queries = extents[0], keys = extents[1], depth = extents[2], columns = extents[3];
    const ElementType factor = graph.value(node.inputs[0]).type.element;
    const bool is_by_cores = !tensor::multiplies_matrices(gpu, factor);
    const bool is_open = queries == kOpenExtent || keys == kOpenExtent;
    const bool is_of_one =
        queries == 1 && byte_size(factor) == 2 && !is_by_cores && columns >= kFewestColumns;
    const int64_t of_part = is_open || is_of_one ? rolling_keys(depth, columns, gpu) : 0;
    // As fuse_attention has found.
    MCC_CHECK(!is_open || of_part != 0, "attention of open dimensions without a way to make it: ", node.name);
    const bool may_be_of_one = queries == kOpenExtent || queries == 1;
    const int64_t splits = of_part != 0 && may_be_of_one ? splits_of(graph, node, of_part, gpu) : 1;
    if (is_open || splits > 1) {
      node.attributes.set("rolling", of_part);
      if (splits > 1) node.attributes.set("splits", splits);
      continue;
    }
    AttentionSizes a{1, queries, keys, depth, columns, byte_size(factor), is_by_cores};
    for (int64_t extent : node.attributes.integers("batch")) {
      a.is_open |= extent == kOpenExtent;
      a.batch *= extent == kOpenExtent ? kTypicalBatch : extent;
    }
    const Division division = choose_division(a, node, gpu, choices);
    if (division.parts > 1) node.attributes.set("parts", division.parts);
    if (division.rolling != 0) node.attributes.set("rolling", division.rolling);
  }
}

}  // namespace mcc::graph
