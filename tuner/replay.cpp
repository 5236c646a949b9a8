#include "tuner/replay.h"

#include <algorithm>
#include <cmath>

#include "support/text.h"
#include "tensor/sizes.h"
#include "tensor/verify.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

constexpr double kMaxCopies = 1 << 14;      // of statements, vectors of 16 lanes count as one
constexpr double kMaxIterations = 64;       // times those of the unscheduled function
constexpr double kFreeIterations = 1e6;
constexpr double kMaxBytes = 8;             // times those of the unscheduled function
constexpr double kFreeBytes = 64 << 20;

struct Size {
  double copies = 0, iterations = 0, bytes = 0;
};

double extent_of(const Expr& e) {
  int64_t value = 1;
  return as_int(e, &value) ? static_cast<double>(value) : 1.0;
}

double bytes_of(const Buffer& b) {
  double bytes = static_cast<double>(byte_size(b.element()));
  for (const Expr& e : b.shape()) bytes *= extent_of(e);
  return bytes;
}

Size size_of(const Func& f) {
  Size size;
  Schedule schedule(f);
  for (const std::string& block : schedule.block_names()) {
    double copies = 1, iterations = 1;
    for (const For* loop : schedule.loops_of(block)) {
      double extent = extent_of(loop->extent);
      iterations *= extent;
      if (loop->loop == LoopKind::unrolled) copies *= extent;
      if (loop->loop == LoopKind::vectorized) copies *= std::ceil(extent / 16);
    }
    size.copies += copies;
    size.iterations += iterations;
  }
  for (const Buffer& b : f.params) size.bytes += bytes_of(b);
  for (const Buffer& b : f.allocs) size.bytes += bytes_of(b);
  return size;
}

}  // namespace

std::string excess_of(const Func& unscheduled, const Func& scheduled) {
  std::vector<std::string> violations = verify(scheduled, Stage::blocks);
  if (!violations.empty()) return text("the scheduled function breaks a rule of the IR: ", violations[0]);
  // Of symbolic dimensions at usual sizes: padded by a tile of thousands of rows, a short one would be out of proportion.
  Size before = size_of(at_first_sample(unscheduled)), after = size_of(at_first_sample(scheduled));
  if (after.copies > kMaxCopies) {
    return text("expected at most ", static_cast<int64_t>(kMaxCopies), " unrolled copies, got ", after.copies);
  }
  double most = kMaxIterations * before.iterations + kFreeIterations;
  if (after.iterations > most) {
    return text("expected at most ", most, " iterations of all blocks, got ", after.iterations);
  }
  most = kMaxBytes * before.bytes + kFreeBytes;
  if (after.bytes > most) return text("expected at most ", most, " bytes of buffers, got ", after.bytes);
  return "";
}

Result<Schedule> replay(const Func& f, const Trace& trace) {
  Schedule schedule(f);
  Outcome outcome = schedule.replay(trace);
  if (!outcome) return Diagnostic{ErrorKind::tuning_log, "", text("the schedule does not apply: ", outcome.detail), ""};
  std::string excess = excess_of(f, schedule.func());
  if (!excess.empty()) return Diagnostic{ErrorKind::tuning_log, "", excess, ""};
  return schedule;
}

}  // namespace mcc::tuner
