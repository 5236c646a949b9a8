#include "tuner/groups.h"

#include <algorithm>

#include "support/text.h"
#include "tensor/schedule/legality.h"
#include "tensor/schedule/tree.h"
#include "tensor/text.h"
#include "tensor/visit.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

int64_t steps_in_place(const Load& load, const Axis& axis, int64_t extent) {
  for (int64_t at = 1; at < extent; ++at) {
    for (const Expr& index : load.indices) {
      const std::optional<int64_t> from = evaluate_at(index, axis.var.get(), 0),
                                   to = evaluate_at(index, axis.var.get(), at);
      if (!from || !to) return 0;
      if (*from != *to) return at;
    }
  }
  return 0;
}

}  // namespace

std::optional<Repetition> repeated_elements(const Block& block, const BlockInfo& info) {
  std::optional<Repetition> found;
  for_each_expr(block.body, [&](const Expr& e) {
    const auto* load = e.as<Load>();
    if (!load || load->buffer.same_as(info.store.buffer)) return;
    const auto access = std::find_if(info.loads.begin(), info.loads.end(),
                                     [&](const Access& a) { return a.buffer.same_as(load->buffer); });
    if (access == info.loads.end()) return;  // says where an operand lies
    for (size_t n = 0; n < info.axes.size() && !found; ++n) {
      const bool is_repeated =
          access->strides[n] == 0 && info.axes[n].extent > 1 &&
          std::any_of(load->indices.begin(), load->indices.end(),
                      [&](const Expr& index) { return uses_var(index, block.axes[n].var); });
      if (is_repeated) found = {n, steps_in_place(*load, block.axes[n], info.axes[n].extent)};
    }
  });
  return found;
}

bool separate_groups(Draft& draft, const std::string& name, const Repetition& groups) {
  Schedule& s = draft.schedule;
  const Block& block = *s.find_block(name);
  const auto* store = block.body.as<Store>();
  const Axis& repeated = block.axes[groups.axis];
  int64_t extent = 0;
  if (!store || groups.width <= 1 || !as_int(repeated.domain.extent, &extent) || extent % groups.width != 0)
    return false;
  // The dimension of the result that is to have one for groups beside it.
  const std::string axis = repeated.var.name(), group = "group";
  const auto place = std::find_if(store->indices.begin(), store->indices.end(),
                                  [&](const Expr& i) { return i.same_as(repeated.var); });
  if (place == store->indices.end()) return false;
  const auto d = static_cast<size_t>(place - store->indices.begin());
  // Where a result of the kernel stands in memory is not the rule's to say.
  if (is_output(s.func(), store->buffer))
    must_step(draft, CacheWrite{name, store->buffer.name(), "global", name + ".out"});
  must_step(draft, SplitAxis{name, axis, groups.width, group});
  if (!draft.refusal) return false;
  const Buffer result = only_buffer_written(*s.find_block(name));
  // Who reads the result along the axis gets both of them, too.
  for (const std::string& consumer : s.consumers(name)) {
    std::string along;
    for_each_expr(s.find_block(consumer)->body, [&](const Expr& e) {
      const auto* load = e.as<Load>();
      const auto* var = load && load->buffer.same_as(result) ? load->indices[d].as<VarNode>() : nullptr;
      if (var) along = var->name;
    });
    if (!along.empty()) try_step(draft, SplitAxis{consumer, along, groups.width, group});
  }
  std::vector<std::string> from, to;
  for (size_t n = 0; n < result.shape().size(); ++n) {
    from.push_back(text("i", n));
    to.push_back(from[n]);
  }
  to[d] = text(from[d], " // ", groups.width);
  to.insert(to.begin() + static_cast<std::ptrdiff_t>(d) + 1, text(from[d], " %% ", groups.width));
  must_step(draft,
            TransformLayout{result.name(), text("(", join(from, ", "), ") -> (", join(to, ", "), ")")});
  return static_cast<bool>(draft.refusal);
}

}  // namespace mcc::tuner
