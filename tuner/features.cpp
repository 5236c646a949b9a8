#include "tuner/features.h"

#include <algorithm>
#include <cmath>

namespace mcc::tuner {

using namespace tensor;

namespace {

float slog(double x) { return static_cast<float>(std::log2(std::max(x, 0.0) + 1)); }

const NestLoop& loop_at(const Nest& nest, const NestStore& s, size_t k) {
  return nest.loops[static_cast<size_t>(s.loops[k])];
}

double extent_at(const Nest& nest, const NestStore& s, size_t k) {
  return static_cast<double>(loop_at(nest, s, k).extent);
}

class Row {
 public:
  explicit Row(FeatureRow& row) : row_(row) {}
  void number(double x) { row_[at_++] = slog(x); }
  void one_hot(size_t place, size_t of) {
    for (size_t i = 0; i < of; ++i)
      row_[at_++] = i == place ? 1.0F : 0.0F;
  }
  void skip(size_t n) { at_ += n; }
  size_t at() const { return at_; }

 private:
  FeatureRow& row_;
  size_t at_ = 0;
};

void operations(Row& row, const NestStore& s) {
  const NestOps& o = s.ops;
  double n = s.iterations;
  for (double x : {o.fma, o.add, o.mul, o.div, o.compare, o.math, o.other})
    row.number(x * n);
  for (double x : {0.0, o.int_add, o.int_mul, o.int_div, o.int_compare, 0.0, o.int_other})
    row.number(x * n);
  row.number(o.logical * n);
  row.number(o.select * n);
}

// Place of loop k among those of its role.
size_t place_of(const NestStore& s, size_t k) {
  LoopRole role = s.roles[k];
  if (role == LoopRole::mixed || role == LoopRole::none) return 7;
  size_t before = 0, after = 0;
  for (size_t i = 0; i < s.roles.size(); ++i) {
    if (s.roles[i] == role && i != k) ++(i < k ? before : after);
  }
  size_t base = role == LoopRole::spatial ? 1 : 4;
  return after == 0 ? base : before == 0 ? base + 2 : base + 1;
}

void annotated(Row& row, const Nest& nest, const NestStore& s, LoopKind kind) {
  size_t count = 0, innermost = 0;
  double product = 1, length = 0;
  for (size_t k = 0; k < s.loops.size(); ++k) {
    if (loop_at(nest, s, k).kind != kind) continue;
    bool is_part = loop_at(nest, s, k).is_inner_part;
    count += is_part ? 0 : 1;
    product *= extent_at(nest, s, k);
    length = (is_part ? length : 1) * extent_at(nest, s, k);
    innermost = k;
  }
  row.number(static_cast<double>(count));
  row.number(count ? product : 0);
  row.number(length);
  row.one_hot(count ? place_of(s, innermost) : 0, 8);
}

void grid(Row& row, const Nest& nest, const NestStore& s) {
  std::array<double, 7> extents{};
  extents.fill(1);
  bool is_gpu = false;
  for (size_t k = 0; k < s.loops.size(); ++k) {
    const NestLoop& l = loop_at(nest, s, k);
    if (l.thread_axis < 0) continue;
    is_gpu = true;
    extents[static_cast<size_t>(l.thread_axis)] *= static_cast<double>(l.extent);
  }
  row.one_hot(is_gpu ? 0 : 1, 1);
  for (double e : extents)
    row.number(is_gpu ? e : 0);
}

enum class Reuse : uint8_t { loop, serial, none };

struct BufferFeatures {
  const NestAccess* access = nullptr;
  double bytes = 0, unique_bytes = 0, lines = 0, unique_lines = 0;
  Reuse reuse = Reuse::none;
  double distance_iterations = 0, distance_bytes = 0, count = 0;
  double stride = 0;
};

// All bytes that one run of the loops from depth on touches.
double touched_bytes(const NestStore& s, size_t depth) {
  double bytes = 0;
  for (const NestAccess& a : s.accesses)
    bytes += a.bytes(depth);
  return bytes;
}

// The innermost run of loops that lead to the same elements again: how far inside of them the reuse is, how often.
void loop_reuse(const Nest& nest, const NestStore& s, BufferFeatures& f) {
  double iterations = 1;
  size_t k = s.loops.size();
  while (k > 0 && f.access->moves[k - 1])
    iterations *= extent_at(nest, s, --k);
  double count = 1;
  size_t inner = k;
  while (k > 0 && !f.access->moves[k - 1])
    count *= extent_at(nest, s, --k);
  if (count <= 1) return;
  f.reuse = Reuse::loop;
  f.distance_iterations = iterations;
  f.distance_bytes = touched_bytes(s, inner);
  f.count = count;
}

// Another statement that touches the buffer under the same innermost loops.
void serial_reuse(const Nest& nest, size_t store, BufferFeatures& f) {
  const NestStore& s = nest.stores[store];
  size_t best = 0;
  const NestStore* other = nullptr;
  for (size_t o = 0; o < nest.stores.size(); ++o) {
    if (o == store) continue;
    const NestStore& t = nest.stores[o];
    bool touches = std::any_of(t.accesses.begin(), t.accesses.end(),
                               [&](const NestAccess& a) { return a.buffer == f.access->buffer; });
    if (!touches) continue;
    size_t common = 0;
    while (common < std::min(s.loops.size(), t.loops.size()) && s.loops[common] == t.loops[common])
      ++common;
    if (!other || common > best) best = common, other = &t;
  }
  if (!other) return;
  f.reuse = Reuse::serial;
  f.distance_iterations = 1;
  for (size_t k = best; k < s.loops.size(); ++k)
    f.distance_iterations *= extent_at(nest, s, k);
  f.distance_bytes = touched_bytes(s, best);
  f.count = 1;
  for (size_t k = best; k < s.loops.size(); ++k) {
    if (!f.access->moves[k]) f.count *= extent_at(nest, s, k);
  }
}

BufferFeatures buffer_features(const Nest& nest, size_t store, const NestAccess& a) {
  const NestStore& s = nest.stores[store];
  size_t n = s.loops.size();
  BufferFeatures f;
  f.access = &a;
  f.bytes = s.iterations * a.element_bytes;
  f.unique_bytes = a.bytes(0);
  f.unique_lines = a.lines[0];
  // Lines as the innermost moving loop walks them: one for each line of a run, one for each iteration around it.
  size_t k = n;
  while (k > 0 && !a.moves[k - 1])
    --k;
  if (k > 0) {
    f.stride = static_cast<double>(std::abs(a.strides[k - 1]));
    double inner = extent_at(nest, s, k - 1);
    f.lines = s.iterations / inner * std::max(1.0, inner * std::min(1.0, f.stride * a.element_bytes / 64));
  } else {
    f.lines = 1;
  }
  loop_reuse(nest, s, f);
  if (f.reuse == Reuse::none) serial_reuse(nest, store, f);
  return f;
}

void buffers(Row& row, const Nest& nest, size_t store) {
  std::vector<BufferFeatures> list;
  for (const NestAccess& a : nest.stores[store].accesses)
    list.push_back(buffer_features(nest, store, a));
  std::stable_sort(list.begin(), list.end(), [](const BufferFeatures& a, const BufferFeatures& b) {
    return std::tie(a.distance_bytes, a.unique_bytes) > std::tie(b.distance_bytes, b.unique_bytes);
  });
  for (size_t i = 0; i < kFeatureBuffers; ++i) {
    if (i >= list.size()) {
      row.skip(kBufferFeatures);
      continue;
    }
    const BufferFeatures& f = list[i];
    row.one_hot(f.access->is_read && f.access->is_write ? 2 : f.access->is_write ? 1 : 0, 3);
    for (double x : {f.bytes, f.unique_bytes, f.lines, f.unique_lines})
      row.number(x);
    row.one_hot(static_cast<size_t>(f.reuse), 3);
    for (double x : {f.distance_iterations, f.distance_bytes, f.count})
      row.number(x);
    double per = f.count > 0 ? 1 / f.count : 2;
    for (double x : {f.bytes, f.unique_bytes, f.lines, f.unique_lines})
      row.number(x * per);
    row.number(f.stride);
  }
}

void intensity(Row& row, const Nest& nest, const NestStore& s) {
  // Logarithm of flops and intensity at each depth, from the innermost out.
  size_t n = s.loops.size();
  std::vector<double> work, curve;
  double flops = std::max(s.ops.flops(), 1.0);
  for (size_t d = n + 1; d-- > 0;) {
    if (d < n) flops *= extent_at(nest, s, d);
    work.push_back(std::log2(flops + 1));
    curve.push_back(s.ops.flops() > 0 ? flops / std::max(touched_bytes(s, d), 1.0) : 0);
  }
  size_t at = 0;
  for (int i = 1; i <= 10; ++i) {
    double want = work.back() * i / 10;
    while (at + 1 < work.size() && work[at + 1] < want)
      ++at;
    double value = curve[at];
    if (at + 1 < work.size() && work[at + 1] > work[at]) {
      double part = std::clamp((want - work[at]) / (work[at + 1] - work[at]), 0.0, 1.0);
      value += part * (curve[at + 1] - curve[at]);
    }
    row.number(value);
  }
}

void allocation(Row& row, const Nest& nest, const NestStore& s) {
  double size = 1;
  for (const Expr& d : s.accesses.front().buffer->shape) {
    int64_t extent = 1;
    as_int(d, &extent);
    size *= static_cast<double>(extent);
  }
  size *= s.accesses.front().element_bytes;
  // The buffer lives inside of the loops that lead to the same elements again, from the outermost on.
  double outer = 1;
  size_t k = 0;
  bool is_private = s.accesses.front().buffer->scope != Scope::global;
  if (is_private) {
    while (k < s.loops.size() && s.roles[k] != LoopRole::reduce &&
           loop_at(nest, s, k).kind != LoopKind::unrolled &&
           loop_at(nest, s, k).kind != LoopKind::vectorized) {
      outer *= extent_at(nest, s, k++);
    }
    size = s.accesses.front().bytes(k);
  }
  row.number(size);
  row.number(size * outer);
  row.number(outer);
  row.number(s.iterations / outer);
}

void outside(Row& row, const Nest& nest, const NestStore& s) {
  double unrolled = 1, step = 0;
  for (size_t k = 0; k < s.loops.size(); ++k) {
    if (loop_at(nest, s, k).kind == LoopKind::unrolled) unrolled *= extent_at(nest, s, k);
    step = std::max(step, static_cast<double>(loop_at(nest, s, k).unroll_step));
  }
  row.number(s.iterations);
  row.number(static_cast<double>(s.loops.size()));
  row.number(std::max(step, unrolled > 1 ? unrolled : 0));
}

}  // namespace

std::vector<FeatureRow> features_of(const Nest& nest) {
  std::vector<FeatureRow> rows(nest.stores.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].fill(0);
    const NestStore& s = nest.stores[i];
    Row row(rows[i]);
    operations(row, s);
    annotated(row, nest, s, LoopKind::vectorized);
    annotated(row, nest, s, LoopKind::unrolled);
    annotated(row, nest, s, LoopKind::parallel);
    grid(row, nest, s);
    buffers(row, nest, i);
    intensity(row, nest, s);
    allocation(row, nest, s);
    outside(row, nest, s);
    MCC_CHECK(row.at() == kFeatures, "features of a store are ", row.at());
  }
  return rows;
}

}  // namespace mcc::tuner
