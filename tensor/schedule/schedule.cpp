#include "tensor/schedule/schedule.h"

#include <algorithm>

#include "tensor/schedule/tree.h"

namespace mcc::tensor {

std::string_view to_text(RefusalCode code) {
  switch (code) {
    case RefusalCode::none:
      return "none";
    case RefusalCode::no_such_block:
      return "no_such_block";
    case RefusalCode::no_such_loop:
      return "no_such_loop";
    case RefusalCode::bad_argument:
      return "bad_argument";
    case RefusalCode::not_nested:
      return "not_nested";
    case RefusalCode::not_perfect:
      return "not_perfect";
    case RefusalCode::dependence:
      return "dependence";
    case RefusalCode::not_a_reduction:
      return "not_a_reduction";
    case RefusalCode::not_injective:
      return "not_injective";
    case RefusalCode::not_affine:
      return "not_affine";
    case RefusalCode::region_not_covered:
      return "region_not_covered";
    case RefusalCode::is_output:
      return "is_output";
    case RefusalCode::scope:
      return "scope";
    case RefusalCode::no_match:
      return "no_match";
    case RefusalCode::unsupported_target:
      return "unsupported_target";
  }
  MCC_UNREACHABLE("unknown refusal");
}

Schedule::Schedule(Func func) : func_(std::move(func)) {}

Schedule::Schedule(Func func, Func for_all_sizes)
    : func_(std::move(func)), for_all_sizes_{Schedule(std::move(for_all_sizes))} {}

Outcome Schedule::apply(const Step& step) {
  if (for_all_sizes_.empty()) return apply_alone(step);
  Schedule general = for_all_sizes_[0];
  const Outcome of_all = general.apply_alone(step);
  if (!of_all && !std::holds_alternative<Unroll>(step)) return of_all;
  Outcome outcome = apply_alone(step);
  if (outcome && of_all) for_all_sizes_[0] = std::move(general);
  return outcome;
}

Outcome Schedule::apply_alone(const Step& step) {
  Outcome outcome = std::visit(
      [this](const auto& s) {
        if constexpr (std::is_same_v<decltype(s), const std::monostate&>) {
          return refuse(RefusalCode::bad_argument, "expected a step, got an empty one");
        } else {
          return apply_step(s, *this);
        }
      },
      step);
  if (outcome) trace_.push_back(step);
  return outcome;
}

Outcome Schedule::replay(const Trace& trace) {
  for (size_t i = 0; i < trace.size(); ++i) {
    Outcome outcome = apply(trace[i]);
    if (!outcome)
      return refuse(outcome.code, text("step ", i + 1, ", ", to_text(trace[i]), ": ", outcome.detail));
  }
  return applied();
}

std::vector<std::string> Schedule::block_names() const {
  std::vector<std::string> names;
  for (const BlockSite& site : block_sites(func_.body))
    names.push_back(site.block->name);
  return names;
}

namespace {

// Rules ask for blocks by their names again and again: nothing is allocated for those that are passed on the way.
const Block* find_block_in(const Stmt& s, const std::string& name, std::vector<const For*>* loops) {
  if (const auto* block = s.as<Block>()) return block->name == name ? block : nullptr;
  if (const auto* loop = s.as<For>()) {
    loops->push_back(loop);
    const Block* found = find_block_in(loop->body, name, loops);
    if (found == nullptr) loops->pop_back();
    return found;
  }
  if (const auto* seq = s.as<Seq>()) {
    for (const Stmt& child : seq->stmts) {
      if (const Block* found = find_block_in(child, name, loops)) return found;
    }
  }
  return nullptr;
}

}  // namespace

const Block* Schedule::find_block(const std::string& name) const {
  std::vector<const For*> loops;
  return func_.body ? find_block_in(func_.body, name, &loops) : nullptr;
}

namespace {

const For* find_loop_in(const Stmt& s, const std::string& name) {
  if (!s) return nullptr;
  if (const auto* loop = s.as<For>()) {
    return loop->var.name() == name ? loop : find_loop_in(loop->body, name);
  }
  if (const auto* seq = s.as<Seq>()) {
    for (const Stmt& child : seq->stmts) {
      if (const For* loop = find_loop_in(child, name)) return loop;
    }
  }
  return nullptr;
}

}  // namespace

const For* Schedule::find_loop(const std::string& name) const { return find_loop_in(func_.body, name); }

std::vector<const For*> Schedule::loops_of(const std::string& block) const {
  std::vector<const For*> loops;
  if (func_.body) find_block_in(func_.body, block, &loops);
  return loops;
}

std::vector<std::string> Schedule::loop_names_of(const std::string& block) const {
  std::vector<std::string> names;
  for (const For* loop : loops_of(block))
    names.push_back(loop->var.name());
  return names;
}

std::vector<std::string> Schedule::consumers(const std::string& block) const {
  std::vector<std::string> names;
  const Block* producer = find_block(block);
  if (producer == nullptr) return names;
  for (const BlockSite& site : block_sites(func_.body)) {
    if (site.block == producer) continue;
    bool reads = std::any_of(producer->writes.begin(), producer->writes.end(),
                             [&](const Region& w) { return reads_buffer(*site.block, w.buffer); });
    if (reads) names.push_back(site.block->name);
  }
  return names;
}

std::vector<std::string> Schedule::producers(const std::string& block) const {
  std::vector<std::string> names;
  const Block* consumer = find_block(block);
  if (consumer == nullptr) return names;
  for (const BlockSite& site : block_sites(func_.body)) {
    if (site.block == consumer) continue;
    bool writes = std::any_of(consumer->reads.begin(), consumer->reads.end(),
                              [&](const Region& r) { return writes_buffer(*site.block, r.buffer); });
    if (writes) names.push_back(site.block->name);
  }
  return names;
}

}  // namespace mcc::tensor
