#include "tensor/schedule/proven.h"

#include <algorithm>

#include "tensor/grid.h"

namespace mcc::tensor {

namespace {

// Beyond so many all are forgotten: what an early step asked is rarely asked again.
constexpr int kMostFacts = 512;

size_t mixed(size_t hash, size_t value) { return (hash ^ value) * 0x9e3779b97f4a7c15 + (hash >> 29); }

}  // namespace

void Proven::Question::add(int64_t number) {
  numbers_.push_back(number);
  hash_ = mixed(hash_, static_cast<size_t>(number));
}

void Proven::Question::add(const RefCounted* node) {
  nodes_.emplace_back(node);
  hash_ = mixed(hash_, reinterpret_cast<size_t>(node));
}

void Proven::Question::add(const BlockSite& site) {
  add(site.block);
  add(static_cast<int64_t>(site.loops.size()));
  for (const For* loop : site.loops) {
    add(loop->var.get());
    add(loop->min.get());
    add(loop->extent.get());
    add(static_cast<int64_t>(loop->loop));
    const std::optional<GridAxis> axis = grid_axis(*loop);
    add(axis ? static_cast<int64_t>(*axis) : int64_t{-1});
  }
}

bool Proven::Question::operator==(const Question& other) const {
  auto is_same = [](const Ref<const RefCounted>& a, const Ref<const RefCounted>& b) { return a.same_as(b); };
  return hash_ == other.hash_ && numbers_ == other.numbers_ &&
         std::equal(nodes_.begin(), nodes_.end(), other.nodes_.begin(), other.nodes_.end(), is_same);
}

bool Proven::holds(const Question& question) const {
  for (const Fact* fact = last_.get(); fact != nullptr; fact = fact->before.get())
    if (fact->question == question) return true;
  return false;
}

void Proven::add(Question question) {
  if (last_ && last_->count >= kMostFacts) last_.reset();
  const int count = last_ ? last_->count + 1 : 1;
  last_ = std::make_shared<const Fact>(std::move(question), last_, count);
}

}  // namespace mcc::tensor
