#include "tuner/analyzer_cpu.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace mcc::tuner {

using namespace tensor;

namespace {

// Fitted to measurements on Zen 5 (bench/golden): what a vector of each takes of an arithmetic port, and what loops cost.
struct Costs {
  double math = 16, div = 6, gather_lane = 1.5;
  double loads_per_cycle = 2, stores_per_cycle = 1, issue_per_cycle = 6;
  double iteration = 1;   // compare and branch of a serial loop
  double loop_exit = 12;  // mispredicted end of a loop that is too long for the predictor
  double short_exit = 2;
  double window = 400;    // operations that can be in flight
  double conflict = 0.6;  // fetch of a line that neighbours of the same cache set have pushed out
  double spill = 2;       // store and reload of a register too many
  double overlap = 0.3;   // share of the smaller of compute and transfers that is not hidden
};
constexpr Costs kCosts;

bool is_copied(LoopKind kind) { return kind == LoopKind::unrolled || kind == LoopKind::vectorized; }

// 1 well below the capacity, 0 well above it.
double fits(double bytes, double capacity) {
  constexpr double kLow = 0.7, kHigh = 1.3;
  return std::clamp((kHigh - bytes / std::max(capacity, 1.0)) / (kHigh - kLow), 0.0, 1.0);
}

struct Cycles {
  double arithmetic = 0, loads = 0, stores = 0, issue = 0, chain = 0;

  void add(const Cycles& c) {
    arithmetic += c.arithmetic, loads += c.loads, stores += c.stores, issue += c.issue;
    chain = std::max(chain, c.chain);
  }
  double bound() const { return std::max({arithmetic, loads, stores, issue, chain}); }
};

class Estimate {
 public:
  Estimate(const Nest& nest, const Target& target) : nest_(nest), t_(target) { read_buffers(); }

  CpuEstimate run() {
    CpuEstimate e;
    for (int root : nest_.roots) {
      Timed timed = time_of(root);
      e.compute_us += (timed.open.bound() + timed.closed) / (t_.ghz * 1e3);
    }
    e.fork_us = fork_us_;
    const Cache* levels[] = {&t_.l1, &t_.l2, &t_.l3};
    double bandwidths[] = {t_.l2.gb_per_s, t_.l3.gb_per_s, t_.dram_gb_per_s};
    double* times[] = {&e.l2_us, &e.l3_us, &e.dram_us};
    for (size_t l = 0; l < 3; ++l) {
      *times[l] = transfers(static_cast<double>(levels[l]->bytes)) / (bandwidths[l] * 1e3) / speedup_;
    }
    double transfer = e.l2_us + e.l3_us + e.dram_us;
    e.us = std::max(e.compute_us, transfer) + kCosts.overlap * std::min(e.compute_us, transfer) + e.fork_us;
    return e;
  }

 private:
  const NestLoop& loop(int index) const { return nest_.loops[static_cast<size_t>(index)]; }
  const NestStore& store(int child) const { return nest_.stores[static_cast<size_t>(-1 - child)]; }

  // The first of the copied loops that end the store's chain.
  size_t suffix_of(const NestStore& s) const {
    size_t k = s.loops.size();
    while (k > 0 && (is_copied(loop(s.loops[k - 1]).kind) || loop(s.loops[k - 1]).extent <= 1))
      --k;
    return k;
  }

  // ---- Time, all data near ----

  // A statement's time: what overlaps with its neighbours in the same iteration, and what does not.
  struct Timed {
    Cycles open;
    double closed = 0;
  };

  Timed time_of(int child) {
    if (child < 0) return {store_cycles(store(child)), 0};
    const NestLoop& l = loop(child);
    Timed body;
    for (int c : l.children) {
      Timed t = time_of(c);
      body.open.add(t.open);
      body.closed += t.closed;
    }
    if (is_copied(l.kind) || l.extent <= 1) {
      // Of stores, copies are counted with the store; what is closed runs once for each.
      body.closed *= static_cast<double>(l.extent);
      return body;
    }
    double issue_limit = body.open.issue > 4000 ? 1.5 : 1;  // too much for the cache of decoded instructions
    body.open.issue *= issue_limit;
    double one = body.open.bound() + body.closed + kCosts.iteration;
    auto trips = static_cast<double>(l.extent);
    double end = trips <= 32 ? kCosts.short_exit : kCosts.loop_exit;
    if (l.kind == LoopKind::parallel && !l.is_inner_part && t_.cores > 1) {
      double items = trips;
      for (const NestLoop* part = &l; part->children.size() == 1 && part->children[0] >= 0;) {
        part = &loop(part->children[0]);
        if (!part->is_inner_part) break;
        items *= static_cast<double>(part->extent);
      }
      double speedup = items / std::ceil(items / t_.cores);
      speedup_ = std::max(speedup_, speedup);
      fork_us_ += t_.fork_us;
      trips /= speedup;
    }
    return {{}, trips * one + end};
  }

  struct Touch {
    double copies = 1;  // different places among the unrolled copies
    double count = 1;   // vectors (or scalars that are broadcast) of them
    double apart = 0;   // lanes that have to be fetched one by one
    bool moves_with_inner = false;
  };

  Cycles store_cycles(const NestStore& s) const {
    Cycles c;
    size_t suffix = suffix_of(s);
    double lanes = std::max(1.0, t_.vector_bits / 8.0 / s.accesses.front().element_bytes);
    double vector = 1, copies = 1;
    for (size_t k = suffix; k < s.loops.size(); ++k) {
      const NestLoop& l = loop(s.loops[k]);
      (l.kind == LoopKind::vectorized ? vector : copies) *= static_cast<double>(l.extent);
    }
    double vectors = vector > 1 ? std::ceil(vector / lanes) : 1;
    const NestOps& o = s.ops;
    double work = o.fma + o.add + std::max(o.mul, 0.0) + o.compare + o.other + o.select + o.logical +
                  kCosts.math * o.math + kCosts.div * o.div + 0.5 * (o.int_compare + o.int_other);
    c.arithmetic = work * copies * vectors / t_.fma_ports;
    double loads = 0, stores = 0, lanes_apart = 0, live = 0, streams = 0, lines_lost = 0;
    const NestAccess* update = nullptr;
    Touch updated;
    for (const NestAccess& a : s.accesses) {
      Touch touch = touch_of(s, a, suffix, vector, vectors);
      if (a.is_read && a.is_write) update = &a, updated = touch;
      lines_lost += conflicts(s, a, suffix);
      if (a.is_register()) {
        live += touch.count;
        continue;
      }
      if (!touch.moves_with_inner && suffix > 0 && touch.count < t_.vector_registers) {
        live += touch.count;  // stays in registers while the innermost loop runs
        continue;
      }
      if (a.is_read) {
        loads += touch.count * a.times;
        if (!a.is_write) streams = std::max(streams, touch.copies);
      }
      if (a.is_write) stores += touch.count;
      lanes_apart += touch.apart * (a.is_write ? 2 : 1);
    }
    // One operand is kept while the other streams by.
    double over = live + std::min(streams, 2.0) + 1 - t_.vector_registers;
    if (over > 0) {
      loads += over * kCosts.spill;
      stores += over;
    }
    c.loads =
        loads / kCosts.loads_per_cycle + lanes_apart * kCosts.gather_lane + lines_lost * kCosts.conflict;
    c.stores = stores / kCosts.stores_per_cycle;
    c.issue = (work * copies * vectors + loads + stores + 4 * lanes_apart) / kCosts.issue_per_cycle;
    if (update) c.chain = chain_cycles(s, *update, updated, suffix, copies, c.issue * kCosts.issue_per_cycle);
    // Iterations that a predicate cuts off are split off by lowering.
    c.arithmetic *= s.share, c.loads *= s.share, c.stores *= s.share, c.issue *= s.share, c.chain *= s.share;
    return c;
  }

  // Updates of one accumulator wait for each other. What the next accumulators do meanwhile depends on how much of it is
  // in flight at once.
  double chain_cycles(const NestStore& s, const NestAccess& a, const Touch& touch, size_t suffix,
                      double copies, double operations) const {
    double updates = copies / std::max(touch.copies, 1.0);
    bool is_near = a.is_register() || (!touch.moves_with_inner && touch.count <= t_.vector_registers);
    double latency = t_.fma_latency + (is_near ? 0 : 6);
    if (touch.moves_with_inner && updates <= 1) return 0;
    for (size_t k = suffix; k > 0 && !a.moves[k - 1]; --k)
      operations *= static_cast<double>(loop(s.loops[k - 1]).extent);
    double in_flight = std::clamp(kCosts.window / std::max(operations, 1.0), 1.0, 8.0);
    return updates * latency / in_flight;
  }

  // Lines of one iteration's copies that fall into the same sets of the first-level cache, beyond its ways.
  double conflicts(const NestStore& s, const NestAccess& a, size_t suffix) const {
    double lines = 1;
    int64_t way = t_.l1.bytes / std::max(t_.l1.ways, 1);
    for (size_t k = suffix; k < s.loops.size(); ++k) {
      if (a.moves[k] && a.strides[k] * a.element_bytes % way == 0 && a.strides[k] != 0) {
        lines *= static_cast<double>(loop(s.loops[k]).extent);
      }
    }
    return std::max(0.0, lines - t_.l1.ways - 3);
  }

  Touch touch_of(const NestStore& s, const NestAccess& a, size_t suffix, double vector,
                 double vectors) const {
    Touch touch;
    bool is_vector = false, is_strided = false;
    for (size_t k = suffix; k < s.loops.size(); ++k) {
      if (!a.moves[k]) continue;
      const NestLoop& l = loop(s.loops[k]);
      if (l.kind == LoopKind::vectorized) {
        is_vector = true;
        is_strided |= std::abs(a.strides[k]) != 1;
      } else {
        touch.copies *= static_cast<double>(l.extent);
      }
    }
    touch.copies = std::min(touch.copies, a.elements[suffix]);
    touch.count = touch.copies * (is_vector ? vectors : 1);
    if (is_vector && is_strided) {
      touch.apart = touch.copies * vector;
      touch.count = 0;
    }
    touch.moves_with_inner = suffix > 0 && a.moves[suffix - 1];
    return touch;
  }

  // ---- Transfers ----

  void read_buffers() {
    std::unordered_map<const BufferNode*, size_t> homes = buffer_homes(nest_);
    for (const NestStore& s : nest_.stores) {
      for (const NestAccess& a : s.accesses) {
        if (buffers_.try_emplace(a.buffer, buffers_.size()).second) home_.push_back(homes.at(a.buffer));
      }
    }
  }

  using Bytes = std::vector<double>;  // of each buffer

  void include(const NestStore& s, size_t depth, Bytes& bytes) const {
    for (const NestAccess& a : s.accesses) {
      if (a.is_register()) continue;
      size_t b = buffers_.at(a.buffer);
      // What is written is fetched first, and goes back.
      bytes[b] = std::max(
          bytes[b], 64 * (a.is_write ? 2 : 1) * a.lines[std::max(depth, std::min(home_[b], s.loops.size()))]);
    }
  }

  void include_all(int child, size_t depth, Bytes& bytes) const {
    if (child < 0) return include(store(child), depth, bytes);
    for (int c : loop(child).children)
      include_all(c, depth, bytes);
  }

  static double sum(const Bytes& bytes) {
    double total = 0;
    for (double b : bytes)
      total += b;
    return total;
  }

  // What one run of the child brings into a cache of this size, by buffer. depth: loops around the child.
  Bytes brought(int child, size_t depth, double capacity) const {
    Bytes bytes(buffers_.size(), 0);
    if (child < 0) {
      include(store(child), suffix_of(store(child)), bytes);
      return bytes;
    }
    const NestLoop& l = loop(child);
    Bytes one(buffers_.size(), 0), all(buffers_.size(), 0);
    include_all(child, depth + 1, one);
    include_all(child, depth, all);
    double fit = fits(sum(one), capacity);
    if (is_copied(l.kind)) fit = 1;
    if (fit == 1) return all;
    for (int c : l.children) {
      Bytes sub = brought(c, depth + 1, capacity);
      for (size_t b = 0; b < bytes.size(); ++b)
        bytes[b] += sub[b] * static_cast<double>(l.extent);
    }
    for (size_t b = 0; b < bytes.size(); ++b)
      bytes[b] = std::max(all[b], fit * all[b] + (1 - fit) * bytes[b]);
    return bytes;
  }

  double transfers(double capacity) const {
    Bytes everything(buffers_.size(), 0);
    double total = 0;
    for (int root : nest_.roots) {
      include_all(root, 0, everything);
      total += sum(brought(root, 0, capacity));
    }
    return total * (1 - fits(sum(everything), capacity));
  }

  const Nest& nest_;
  const Target& t_;
  std::unordered_map<const BufferNode*, size_t> buffers_;
  std::vector<size_t> home_;
  double speedup_ = 1, fork_us_ = 0;
};

// Whether one of the loads goes along a sum of a spatial and a reduce axis.
bool has_window(const NestStore& s) {
  for (const NestAccess& a : s.accesses) {
    if (a.is_write) continue;
    for (size_t k = 0; k < s.loops.size(); ++k) {
      for (size_t j = 0; j < s.loops.size(); ++j) {
        if (s.roles[k] == LoopRole::spatial && s.roles[j] == LoopRole::reduce && a.moves[k] && a.moves[j] &&
            a.strides[k] == a.strides[j]) {
          return true;
        }
      }
    }
  }
  return false;
}

}  // namespace

CpuEstimate estimate_cpu(const Nest& nest, const Target& target) { return Estimate(nest, target).run(); }

double lower_bound_us(const Func& f, const Target& target, double gflops) {
  constexpr double kBoost = 1.5;
  if (gflops <= 0) gflops = kBoost * target.peak_gflops();
  Nest nest = nest_of(f);
  double us = 0, cores = std::max(1, target.cores);
  for (const NestStore& s : nest.stores) {
    if (s.is_init || !is_float(s.accesses.front().buffer->element)) continue;
    double flops = s.ops.flops() * s.iterations / (has_window(s) ? 4 : 1);
    us += flops / (gflops * 4 / s.accesses.front().element_bytes * cores * 1e3);
  }
  double bytes = static_cast<double>(tensor::work_of(f).bytes);
  auto beyond = [&](const Cache& cache, double bandwidth) {
    return std::max(0.0, bytes - static_cast<double>(cache.bytes) * cores) / (bandwidth * cores * 1e3);
  };
  return std::max({us, beyond(target.l1, target.l2.gb_per_s), beyond(target.l2, target.l3.gb_per_s),
                   beyond(target.l3, target.dram_gb_per_s)});
}

}  // namespace mcc::tuner
