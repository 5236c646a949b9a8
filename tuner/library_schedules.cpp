#include "tuner/library_schedules.h"

#include <algorithm>

#include "tensor/library_product.h"
#include "tensor/passes/lower.h"
#include "tensor/verify.h"
#include "tuner/grid_rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

// Libraries put what they take for the fastest first; further ones rarely win.
constexpr int64_t kOffered = 3;

// The only contraction; empty where there is none, or several.
std::string only_contraction(const Schedule& s) {
  std::string found;
  for (const std::string& name : s.block_names()) {
    std::optional<BlockInfo> info = analyze(s, name);
    if (!info || !info->is_contraction) continue;
    if (!found.empty()) return "";
    found = name;
  }
  return found;
}

// Inside of the loops of the product: the block that takes its results one by one.
bool take_in_consumer(Draft& draft, const std::string& block) {
  const std::vector<std::string> consumers = draft.schedule.consumers(block);
  std::optional<BlockInfo> info = analyze(draft.schedule, block);
  if (consumers.size() != 1 || !info) return false;
  std::string innermost;
  for (const AxisInfo& axis : info->axes)
    if (!axis.is_reduce) innermost = axis.loop;
  return try_step(draft, ReverseComputeAt{consumers[0], innermost});
}

// Empty where the library does not compute what is asked of it.
std::optional<Trace> scheduled(const Func& f, const Target& target, bool with_consumer, bool with_producers,
                               int64_t algorithm) {
  PreferredDecider decide;
  Draft draft{Schedule(f), decide, target};
  Schedule& s = draft.schedule;
  inline_producers(draft);
  if (with_producers) inline_for_grid(draft);
  const std::string block = only_contraction(s);
  if (block.empty() || (with_consumer && !take_in_consumer(draft, block))) return std::nullopt;
  must_step(draft, Annotate{"", s.loop_names_of(block)[0], kLibrary, library_text(algorithm)});
  schedule_grid_rest(draft);
  if (!draft.refusal || !verify_launches(lower(s.func(), target), target.gpu).empty()) return std::nullopt;
  return s.trace();
}

}  // namespace

bool calls_library(const Trace& trace) {
  return std::any_of(trace.begin(), trace.end(), [](const Step& step) {
    const auto* annotate = std::get_if<Annotate>(&step);
    return annotate != nullptr && annotate->key == kLibrary;
  });
}

std::vector<Candidate> library_candidates(const Func& f, const Target& target) {
  std::vector<Candidate> out;
  // What the library is told of a product are numbers.
  if (target.kind != TargetKind::cuda || !f.dims.empty()) return out;
  for (const bool with_consumer : {true, false}) {
    // What the library adds to the sum itself it may not do for every type: one candidate where it does nothing but the sum.
    const int64_t most = out.empty() ? kOffered : 1;
    for (const bool with_producers : {true, false}) {
      const size_t before = out.size();
      for (int64_t algorithm = 0; algorithm < most; ++algorithm) {
        std::optional<Trace> trace = scheduled(f, target, with_consumer, with_producers, algorithm);
        if (!trace) break;
        out.push_back({kLibrarySketch, {}, std::move(*trace)});
      }
      if (out.size() > before) break;
    }
  }
  return out;
}

}  // namespace mcc::tuner
