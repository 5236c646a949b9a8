// Which producers disappear into their consumers.
#include <algorithm>

#include "tensor/schedule/tree.h"
#include "tensor/text.h"
#include "tensor/visit.h"
#include "tuner/rules.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

// Whether the consumer reads each element of the producer once at most, and nothing else: padding, a slice.
bool is_copy_of(const BlockInfo& producer, const BlockInfo& consumer) {
  if (!consumer.is_movement || consumer.loads.size() != 1) return false;
  for (size_t a = 0; a < consumer.axes.size(); ++a) {
    if (consumer.axes[a].extent > 1 && consumer.loads[0].strides[a] == 0) return false;
  }
  return consumer.loads[0].buffer.same_as(producer.store.buffer);
}

// Reading the producer through the consumer's own indices computes nothing twice, or next to nothing.
bool is_free_to_inline(const BlockInfo& producer, const std::vector<BlockInfo>& consumers) {
  bool is_cheap = producer.is_movement && producer.loads.size() <= 2;
  if (consumers.size() > 1 && !is_cheap) return false;
  for (const BlockInfo& consumer : consumers) {
    // A contraction reads each element many times, and in the order of its tiles: it gets it from memory.
    if (consumer.is_contraction) return false;
    if (consumer.is_reduction && !producer.is_movement && consumer.iterations() > producer.spatial) return false;
    const bool may_repeat = is_cheap || (is_copy_of(producer, consumer) && !producer.has_math_call);
    if (!consumer.is_reduction && !may_repeat && consumer.spatial > producer.spatial) return false;
  }
  return true;
}

// Selects (padding) inside a reduction over windows would be decided again for each window.
bool is_window(const BlockInfo& producer, const BlockInfo& consumer) {
  return consumer.is_reduction && consumer.iterations() > producer.spatial;
}

}  // namespace

namespace {

// Loads of the producer's result in its one consumer that each become a copy of its arithmetic; what is equal in one
// statement is computed once when code is generated.
constexpr size_t kMaxCopies = 6;

bool has_few_copies(const BlockInfo& producer, const BlockInfo& consumer) {
  auto reads = [&](const Access& l) { return l.buffer.same_as(producer.store.buffer); };
  auto copies = static_cast<size_t>(std::count_if(consumer.loads.begin(), consumer.loads.end(), reads));
  return copies <= 1 || producer.is_movement || (!producer.has_math_call && copies <= kMaxCopies);
}

// The different elements of a buffer that one instance of a block reads, and whether it chooses between values.
class ReadElements : public Visitor {
 public:
  explicit ReadElements(const Buffer& buffer) : buffer_(buffer) {}
  std::vector<const Load*> elements;
  bool selects = false;

 protected:
  using Visitor::on;
  void on(const Load& n) override {
    Visitor::on(n);
    if (!n.buffer.same_as(buffer_)) return;
    bool known = std::any_of(elements.begin(), elements.end(), [&](const Load* e) {
      return std::equal(e->indices.begin(), e->indices.end(), n.indices.begin(), n.indices.end(),
                        [](const Expr& a, const Expr& b) { return structurally_equal(a, b); });
    });
    if (!known) elements.push_back(&n);
  }
  void on(const Select& n) override {
    selects = true;
    Visitor::on(n);
  }

 private:
  const Buffer& buffer_;
};

// Neighbouring instances of a consumer that reads several elements at once (a stencil) share them: each would be computed
// again. Plain copies cost nothing.
bool is_shared_by_stencil(const Schedule& s, const BlockInfo& producer, const BlockInfo& consumer) {
  ReadElements own(producer.store.buffer);
  own.visit(s.find_block(producer.name)->body);
  if (producer.is_movement && !own.selects) return false;
  ReadElements reads(producer.store.buffer);
  reads.visit(s.find_block(consumer.name)->body);
  auto count = static_cast<int64_t>(reads.elements.size());
  return count > 1 && count * consumer.iterations() > producer.spatial;
}

}  // namespace

bool is_copy_of_steps(const Schedule& s, const BlockInfo& producer) {
  if (!producer.is_movement) return false;
  const std::vector<std::string> names = s.block_names(), consumers = s.consumers(producer.name);
  auto is_of_steps = [&](const Access& read) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      const Block& block = *s.find_block(name);
      return has_scan(block) && only_buffer_written(block).same_as(read.buffer);
    });
  };
  return std::any_of(producer.loads.begin(), producer.loads.end(), is_of_steps) &&
         std::any_of(consumers.begin(), consumers.end(), [&](const std::string& name) {
           ReadElements reads(producer.store.buffer);
           reads.visit(s.find_block(name)->body);
           return reads.elements.size() > 1;
         });
}

namespace {

// Whether any block was inlined.
bool inline_once(Draft& draft) {
  Schedule& s = draft.schedule;
  bool changed = false;
  for (const std::string& name : s.block_names()) {
    std::optional<BlockInfo> producer = analyze(s, name);
    if (!producer || !producer->is_injective || is_output(s.func(), producer->store.buffer)) continue;
    std::vector<BlockInfo> consumers;
    bool known = true;
    for (const std::string& consumer : s.consumers(name)) {
      std::optional<BlockInfo> info = analyze(s, consumer);
      known &= info.has_value();
      if (info) consumers.push_back(*info);
    }
    if (!known || consumers.empty() || !is_free_to_inline(*producer, consumers)) continue;
    if (is_copy_of_steps(s, *producer)) continue;
    if (std::any_of(consumers.begin(), consumers.end(), [&](const BlockInfo& c) { return is_window(*producer, c); })) continue;
    if (!has_few_copies(*producer, consumers[0])) continue;
    if (std::any_of(consumers.begin(), consumers.end(),
                    [&](const BlockInfo& c) { return is_shared_by_stencil(s, *producer, c); })) {
      continue;
    }
    changed |= try_step(draft, ComputeInline{name});
  }
  return changed;
}

}  // namespace

void inline_producers(Draft& draft) {
  // A producer with several consumers has a single one once these are inlined into each other.
  while (inline_once(draft)) {
  }
}

}  // namespace mcc::tuner
