#include "tuner/analyzer_gpu.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr double kPartitions = 4, kWarp = 32;

bool is_block(const NestLoop& l) { return l.thread_axis >= 0 && l.thread_axis < 3; }
bool is_thread(const NestLoop& l) { return l.thread_axis >= 3 && l.thread_axis < 6; }
bool is_in_thread(const NestLoop& l) { return !is_block(l) && !is_thread(l); }

double extent_of(const NestLoop& l) { return static_cast<double>(l.extent); }

struct Loops {
  const Nest& nest;
  const NestStore& store;
  const NestLoop& operator[](size_t k) const { return nest.loops[static_cast<size_t>(store.loops[k])]; }
  size_t size() const { return store.loops.size(); }

  template <class F>
  double product(F is_counted) const {
    double p = 1;
    for (size_t k = 0; k < size(); ++k) {
      if (is_counted((*this)[k], k)) p *= extent_of((*this)[k]);
    }
    return p;
  }
  double blocks() const {
    return product([](const NestLoop& l, size_t) { return is_block(l); });
  }
  double threads() const {
    return product([](const NestLoop& l, size_t) { return is_thread(l); });
  }
};

double counted_flops(const NestOps& o) { return 2 * o.fma + o.add + std::max(o.mul, 0.0) + o.div; }

// The stores of one launch: those under one outermost loop, or the outermost one that is bound.
struct Launch {
  std::vector<const NestStore*> stores;
  double turns = 1;  // of the loops around it, which the host carries out
};

std::vector<Launch> launches_of(const Nest& nest) {
  std::vector<Launch> launches;
  std::map<int, size_t> of_root;
  for (const NestStore& s : nest.stores) {
    const Loops loops{nest, s};
    double turns = 1;
    size_t root = 0;
    while (root < loops.size() && is_in_thread(loops[root]))
      turns *= extent_of(loops[root++]);
    // A block of threads below a serial loop is one launch with all of its steps.
    if (root == loops.size() || !is_block(loops[root])) root = 0;
    auto [at, is_new] = of_root.try_emplace(s.loops.empty() ? -1 : s.loops[root], launches.size());
    if (is_new) launches.push_back({{}, root == 0 ? 1 : turns});
    launches[at->second].stores.push_back(&s);
  }
  return launches;
}

// The store whose loops make up the launch's shape: with the most arithmetic, else the largest.
const NestStore* main_store(const Launch& launch) {
  const NestStore* best = nullptr;
  auto weight = [](const NestStore& s) { return std::max(s.ops.flops(), 0.01) * s.iterations; };
  for (const NestStore* s : launch.stores) {
    if (!best || weight(*s) > weight(*best)) best = s;
  }
  return best;
}

// Registers for values of this size; some for addresses.
double registers_of(double values, double element_bytes) {
  return std::min(255.0, 1.15 * values * std::max(1.0, element_bytes / 4) + 24);
}

using Homes = std::unordered_map<const BufferNode*, size_t>;

double shared_bytes(const Nest& nest, const Launch& launch, const Homes& homes) {
  std::map<const BufferNode*, double> buffers;
  for (const NestStore* s : launch.stores) {
    Loops loops{nest, *s};
    for (const NestAccess& a : s->accesses) {
      if (a.buffer->scope != Scope::shared) continue;
      // All threads of a block have it in common.
      size_t home = std::min(homes.at(a.buffer), loops.size());
      double bytes = a.bytes(home) * loops.product([&](const NestLoop& l, size_t k) {
        return k < home && is_thread(l) && a.moves[k];
      });
      buffers[a.buffer] = std::max(buffers[a.buffer], bytes);
    }
  }
  double total = 0;
  for (const auto& [buffer, bytes] : buffers)
    total += bytes;
  return total;
}

}  // namespace

bool is_gpu(const Nest& nest) {
  return std::any_of(nest.loops.begin(), nest.loops.end(),
                     [](const NestLoop& l) { return l.thread_axis >= 0; });
}

// ---- As released ----

std::vector<GpuStatement> gpu_statements(const Nest& nest) {
  std::vector<GpuStatement> list;
  auto homes = buffer_homes(nest);
  for (const NestStore& s : nest.stores) {
    Loops loops{nest, s};
    GpuStatement g;
    g.blocks = loops.blocks();
    g.threads = loops.threads();
    double per_thread = loops.product([](const NestLoop& l, size_t) { return is_in_thread(l); });
    g.flops = counted_flops(s.ops) * per_thread;
    const NestAccess& out = s.accesses.front();
    for (const NestAccess& a : s.accesses) {
      g.registers += loops.product(
          [&](const NestLoop& l, size_t k) { return is_in_thread(l) && a.moves[k] && out.moves[k]; });
      g.touched += loops.product([&](const NestLoop& l, size_t k) { return is_in_thread(l) && a.moves[k]; });
    }
    if (g.flops == 0) {
      if (out.buffer->scope == Scope::shared) {
        // Loops around the buffer's life are left out: a stage counts once.
        size_t home = homes.at(out.buffer);
        double in_buffer = loops.product(
            [&](const NestLoop& l, size_t k) { return k >= home && is_in_thread(l) && out.moves[k]; });
        g.dram_elements = in_buffer * g.threads * g.blocks;
      } else {
        g.dram_elements = per_thread * g.threads * g.blocks;
      }
    }
    list.push_back(g);
  }
  return list;
}

PsaFactors psa_factors(const GpuStatement& s, const GpuDevice& device) {
  constexpr double kRegisterCap = 128;
  PsaFactors p;
  double warps = s.threads / kWarp, whole = std::ceil(warps);
  p.warp = warps / whole;
  double reuse = s.flops > 0 && s.touched > 0 ? 1 + s.flops / s.touched : 1;
  p.reuse = 1 + 1 / reuse;
  p.registers = s.registers < kRegisterCap ? 1 : s.registers / kRegisterCap;
  double sms = device.multiprocessors, units = s.blocks, at_once = sms;
  if (s.blocks < sms) {
    units = s.blocks * std::min(whole, kPartitions);
    at_once = kPartitions * sms;
  }
  p.wave = units / (std::ceil(units / at_once) * at_once);
  return p;
}

double psa_ms(const GpuStatement& s, const GpuDevice& device) {
  PsaFactors p = psa_factors(s, device);
  double work = s.flops * s.threads * s.blocks;
  double compute = work * p.reuse / (device.gflops * p.wave * p.warp / p.registers) / 1e6;
  double memory = s.dram_elements / device.gb_per_s * 1000 / (1 << 30);
  return std::max(compute, memory);
}

double psa_ms(std::span<const GpuStatement> statements, const GpuDevice& device) {
  double ms = 0;
  for (const GpuStatement& s : statements)
    ms += psa_ms(s, device);
  return ms;
}

// ---- The default ----

namespace {

struct Occupancy {
  double blocks = 1;  // on one processor
  double warps = 1;   // of a block
};

Occupancy occupancy_of(double threads, double registers, double shared, const GpuDevice& d) {
  Occupancy o;
  o.warps = std::ceil(threads / kWarp);
  double per_thread = std::ceil(registers / 8) * 8;
  o.blocks = std::min({static_cast<double>(d.threads_per_multiprocessor) / (kWarp * o.warps),
                       d.registers_per_multiprocessor / (kWarp * o.warps * per_thread),
                       static_cast<double>(d.shared_per_multiprocessor) / (shared + 1024),
                       static_cast<double>(d.blocks_per_multiprocessor)});
  o.blocks = std::max(0.0, std::floor(o.blocks));
  return o;
}

double dram_us(const Nest& nest, const Launch& launch, const Occupancy& occupancy, const GpuDevice& d) {
  double us = 0;
  for (const NestStore* s : launch.stores) {
    if (s->is_init) continue;
    Loops loops{nest, *s};
    for (const NestAccess& a : s->accesses) {
      if (a.buffer->scope != Scope::global) continue;
      double compulsory = a.bytes(0);
      // What does not move with a thread's loop stays in its registers.
      double asked = a.element_bytes *
                     loops.product([&](const NestLoop& l, size_t k) { return a.moves[k] || is_block(l); });
      double together = std::max(1.0, std::min(loops.blocks(), occupancy.blocks * d.multiprocessors)),
             sharing = 1;
      for (size_t k = 0; k < loops.size(); ++k) {
        if (is_block(loops[k]) && !a.moves[k]) sharing *= extent_of(loops[k]);
      }
      bool is_kept = compulsory <= 0.6 * d.l2_bytes || together >= loops.blocks();
      double bytes =
          is_kept ? compulsory
                  : std::max(compulsory, asked / std::max(1.0, std::min(sharing, std::sqrt(together))));
      // Lanes next to each other fetch a run of elements: at least 32 bytes.
      double run = a.element_bytes;
      for (size_t k = loops.size(); k-- > 0;) {
        if (a.moves[k] && std::abs(a.strides[k]) * a.element_bytes == static_cast<int64_t>(run) &&
            !is_block(loops[k])) {
          run *= extent_of(loops[k]);
        }
      }
      us += bytes * (std::ceil(run / 32) * 32 / run) / (d.gb_per_s * 1e3);
    }
  }
  return us;
}

// What blocks fetch anew in each turn of a loop (a recurrence its weights), as it is more than the nearest cache keeps: by
// multiprocessors that have blocks, each as fast as the next cache answers.
double refetch_us(const Nest& nest, const Launch& launch, const GpuDevice& d) {
  constexpr double kKept = 128 << 10, kBytesACycle = 64;
  double us = 0;
  for (const NestStore* s : launch.stores) {
    Loops loops{nest, *s};
    for (const NestAccess& a : s->accesses) {
      if (a.buffer->scope != Scope::global) continue;
      double turns = 1, bytes = a.element_bytes;  // of one block
      for (size_t k = 0; k < loops.size(); ++k) {
        if (is_block(loops[k])) continue;
        if (a.moves[k]) {
          bytes *= extent_of(loops[k]);
        } else if (bytes == a.element_bytes && is_in_thread(loops[k])) {
          turns *= extent_of(loops[k]);
        }
      }
      if (bytes <= kKept || turns <= 1) continue;
      const double busy = std::min(loops.blocks(), static_cast<double>(d.multiprocessors));
      us += bytes * turns * loops.blocks() / (busy * kBytesACycle * d.ghz * 1e3);
    }
  }
  return us;
}

// Bytes that warps move to and from shared memory.
double shared_traffic(const Nest& nest, const Launch& launch) {
  double bytes = 0;
  for (const NestStore* s : launch.stores) {
    Loops loops{nest, *s};
    // Lanes of a warp: the innermost threads.
    std::vector<double> lanes(loops.size(), 1);
    double left = kWarp;
    for (int axis = 3; axis < 6; ++axis) {
      for (size_t k = loops.size(); k-- > 0;) {
        if (loops[k].thread_axis != axis) continue;
        lanes[k] = std::min(left, extent_of(loops[k]));
        left = std::max(1.0, left / lanes[k]);
      }
    }
    double warps = std::ceil(loops.threads() / kWarp) * loops.blocks();
    for (const NestAccess& a : s->accesses) {
      if (a.buffer->scope != Scope::shared) continue;
      double of_warp = a.element_bytes;
      for (size_t k = 0; k < loops.size(); ++k) {
        if (is_in_thread(loops[k])) {
          if (a.moves[k]) of_warp *= extent_of(loops[k]);
        } else if (a.moves[k]) {
          of_warp *= lanes[k];
        }
      }
      bytes += warps * of_warp;
    }
  }
  return bytes;
}

// The share of the memory's bandwidth that the requests under way can use: those of all resident threads, each with what it
// reads in a row, up to four vectors, against what the memory moves during its latency (Little's law).
double bandwidth_share(const Nest& nest, const Launch& launch, const Occupancy& occupancy,
                       const GpuDevice& d) {
  constexpr double kLatencyUs = 0.6, kMostBytes = 64;
  double under_way = 0;
  for (const NestStore* s : launch.stores) {
    Loops loops{nest, *s};
    double bytes = 0;
    for (const NestAccess& a : s->accesses) {
      if (a.buffer->scope != Scope::global) continue;
      bytes += a.element_bytes *
               loops.product([&](const NestLoop& l, size_t k) { return is_in_thread(l) && a.moves[k]; });
    }
    double resident = std::min(loops.blocks(), occupancy.blocks * d.multiprocessors);
    under_way = std::max(under_way, std::min(bytes, kMostBytes) * loops.threads() * resident);
  }
  return std::clamp(under_way / (d.gb_per_s * 1e3 * kLatencyUs), 1e-6, 1.0);
}

// How much faster than f32 multiply-adds a GPU's tensor cores multiply such operands by mma.sync. 16-bit ones with sums in f32:
// data sheets; of sm_90 two thirds of the peak, which only wgmma reaches.
double matrix_rate(double operand_bytes, bool is_warpgroup, const GpuDevice& d) {
  const int sm = d.sm();
  if (is_warpgroup) return 32 / operand_bytes;
  const double narrow = sm == 86 || sm == 89 ? 2 : sm >= 90 ? 10 : sm >= 80 ? 16 : 8;
  return operand_bytes > 2 ? narrow / 2 : operand_bytes < 2 ? narrow * 2 : narrow;
}

double launch_us(const Nest& nest, const Launch& launch, const Homes& homes, const LaunchFigures* figures,
                 const GpuDevice& d) {
  const NestStore* main = main_store(launch);
  Loops loops{nest, *main};
  double blocks = loops.blocks(), threads = loops.threads(),
         element_bytes = main->accesses.front().element_bytes;
  const NestAccess& out = main->accesses.front();
  double values = 0, tile = 1, touched = 0;
  for (const NestAccess& a : main->accesses) {
    double of_thread = loops.product(
        [&](const NestLoop& l, size_t k) { return is_in_thread(l) && a.moves[k] && out.moves[k]; });
    if (&a == &out) tile = of_thread;
    values += of_thread;
    touched += loops.product([&](const NestLoop& l, size_t k) { return is_in_thread(l) && a.moves[k]; });
  }
  double registers = registers_of(values, element_bytes), shared = shared_bytes(nest, launch, homes);
  if (figures) {
    registers = figures->registers;
    shared = std::max(shared, figures->shared_bytes);
  }
  Occupancy occupancy = occupancy_of(threads, registers, shared, d);
  if (occupancy.blocks < 1 || threads > d.threads_per_block) return kHopelessUs;

  GpuStatement shape{.threads = threads, .blocks = blocks};
  double wave_units = blocks, at_once = occupancy.blocks * d.multiprocessors;
  if (blocks < at_once) {
    // Part of a wave: processors that have blocks at all work at the rate of their filled partitions.
    double busy = std::min(blocks, static_cast<double>(d.multiprocessors));
    double warps_on_one = std::max(1.0, blocks / d.multiprocessors) * occupancy.warps;
    wave_units = busy * std::min(warps_on_one, kPartitions);
    at_once = kPartitions * d.multiprocessors;
  }
  double wave = wave_units / (std::ceil(wave_units / at_once) * at_once);
  double warp = psa_factors(shape, d).warp;
  double resident = std::min(occupancy.blocks, std::max(1.0, blocks / d.multiprocessors));
  // Of one partition that has warps at all; that others have none is part of `wave`.
  constexpr double kLatency = 30;  // cycles
  double hide = std::min(1.0, std::max(1.0, resident * occupancy.warps / kPartitions) * tile / kLatency);
  double flops = 0;
  for (const NestStore* s : launch.stores)
    flops += s->ops.flops() * s->iterations;
  double per_thread =
      counted_flops(main->ops) * loops.product([](const NestLoop& l, size_t) { return is_in_thread(l); });
  double reuse = touched > 0 ? 1 + per_thread / touched : 1;
  double spill = figures ? 1 + figures->spilled_bytes / 64 : values > 200 ? values / 200 : 1;
  double peak = d.gflops * 1e3, operands = 1 + 1 / reuse;
  const bool is_matrix = std::any_of(main->loops.begin(), main->loops.end(),
                                     [&](int l) { return nest.loops[static_cast<size_t>(l)].is_matrix; });
  if (is_matrix) {
    // Operands are fetched a matrix at a time.
    const bool is_warpgroup = std::any_of(main->loops.begin(), main->loops.end(), [&](int l) {
      return nest.loops[static_cast<size_t>(l)].is_warpgroup;
    });
    peak *= matrix_rate(main->accesses.back().element_bytes, is_warpgroup, d);
    operands = 1;
  }
  double compute = flops * operands * spill / (peak * wave * warp * hide);
  double fetches = shared_traffic(nest, launch) / (128 * d.multiprocessors * d.ghz * 1e3 * wave);
  double memory = dram_us(nest, launch, occupancy, d) / bandwidth_share(nest, launch, occupancy, d);
  return d.launch_us + std::max({compute, fetches, memory, refetch_us(nest, launch, d)});
}

}  // namespace

double estimate_gpu_us(const Nest& nest, const GpuDevice& d, std::span<const LaunchFigures> figures) {
  const std::vector<Launch> launches = launches_of(nest);
  const Homes homes = buffer_homes(nest);
  const bool has_figures = figures.size() == launches.size();
  double us = launches.empty() ? d.launch_us : 0;
  for (size_t i = 0; i < launches.size(); ++i)
    us += launches[i].turns * launch_us(nest, launches[i], homes, has_figures ? &figures[i] : nullptr, d);
  return us;
}

}  // namespace mcc::tuner
