#include "graph/passes/plan_memory.h"

#include <algorithm>

#include "graph/elements.h"
#include "graph/op.h"
#include "graph/ops/control.h"
#include "graph/passes/aliases.h"
#include "graph/passes/regions.h"
#include "tensor/kernel_abi.h"

namespace mcc::graph {
namespace {

int64_t aligned(int64_t bytes) {
  constexpr int64_t to = tensor::kBufferAlignment;
  return (bytes + to - 1) / to * to;
}

// A piece of the arena, or a block, alive from the group `first` to the group `last`.
struct Storage {
  int64_t bytes = 0;
  int first = 0, last = 0;
  int64_t offset = 0;    // in the arena; of a block, its number
  bool is_block = false;
};

class PlanMemory {
 public:
  PlanMemory(const Graph& g, const std::vector<KernelGroup>& groups,
             const std::vector<std::vector<Expr>>& workspace_bytes)
      : g_(g), groups_(groups), workspace_bytes_(workspace_bytes), aliases_(g, groups), storage_of_(g.values.size(), -1), group_of_(g.nodes.size(), -1) {
    for (size_t i = 0; i < groups.size(); ++i)
      for (NodeId n : groups[i].nodes)
        group_of_[static_cast<size_t>(n)] = static_cast<int>(i);
  }

  MemoryPlan run() {
    plan_.places.resize(g_.values.size());
    plan_.workspaces.resize(groups_.size());
    place_ends();
    find_last_uses();
    for (size_t i = 0; i < groups_.size(); ++i)
      visit(static_cast<int>(i));
    assign_offsets();
    assign_blocks();
    count_live();
    finish();
    return std::move(plan_);
  }

 private:
  Place& place(ValueId v) { return plan_.places[static_cast<size_t>(v)]; }
  int& storage_of(ValueId v) { return storage_of_[static_cast<size_t>(v)]; }
  int64_t bytes_of(ValueId v) const {
    const TensorType& type = g_.value(v).type;
    const std::optional<int64_t> count = largest_count(g_, type.shape);
    MCC_CHECK(count, g_.value(v).name, ": no bound for ", to_text(type));
    return *count * byte_size(type.element);
  }

  void place_ends() {
    for (size_t i = 0; i < g_.inputs.size(); ++i) {
      place(g_.inputs[i]) = {Place::Kind::input, static_cast<int64_t>(i)};
    }
    for (size_t i = 0; i < g_.values.size(); ++i) {
      if (g_.values[i].constant) plan_.places[i] = {Place::Kind::constant, static_cast<int64_t>(i)};
    }
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      Place& p = place(g_.outputs[i]);
      // The runtime takes what lies in a block from there: how large it is is not known before the run.
      const bool is_of_data = g_.depends_on_data(g_.value(g_.outputs[i]).type.shape);
      if (p.kind == Place::Kind::none && !is_of_data) p = {Place::Kind::output, static_cast<int64_t>(i)};
    }
  }

  // The value whose memory this one lies in.
  ValueId owner(ValueId v) const { return aliases_.of(v).owner; }

  void find_last_uses() {
    last_use_.assign(g_.values.size(), -1);
    for (size_t i = 0; i < groups_.size(); ++i) {
      for (ValueId v : groups_[i].inputs) {
        int& last = last_use_[static_cast<size_t>(owner(v))];
        last = std::max(last, end_of_use(owner(v), static_cast<int>(i)));
      }
    }
    // The runtime takes results that lie in blocks from there.
    for (ValueId v : g_.outputs)
      last_use_[static_cast<size_t>(owner(v))] = static_cast<int>(groups_.size());
  }

  // What is made outside of a loop is there for all its iterations.
  int end_of_use(ValueId v, int user) const {
    int end = user;
    for (ControlRegion region = groups_[static_cast<size_t>(user)].region; region.control >= 0; region = around(region)) {
      const bool is_loop = g_.node(region.control).op->control == Control::loop_end;
      if (is_loop && !is_made_in(v, region)) end = group_of_[static_cast<size_t>(region.control)];
    }
    return end;
  }

  ControlRegion around(const ControlRegion& region) const {
    return groups_[static_cast<size_t>(group_of_[static_cast<size_t>(region.control)])].region;
  }

  bool is_made_in(ValueId v, const ControlRegion& region) const {
    const NodeId producer = g_.value(v).producer;
    if (producer < 0) return false;
    for (ControlRegion r = groups_[static_cast<size_t>(group_of_[static_cast<size_t>(producer)])].region; r.control >= 0; r = around(r))
      if (r == region) return true;
    return false;
  }

  // States of a loop, and what it collects, live as long as it does.
  void extend_to_loop(const KernelGroup& group, int* first, int* last) const {
    if (group.kind != KernelGroup::Kind::control) return;
    const Node& node = g_.node(group.nodes[0]);
    if (node.op->control == Control::loop_begin) *last = std::max(*last, group_of_[static_cast<size_t>(end_of_loop(g_, node))]);
    if (node.op->control == Control::loop_end) *first = group_of_[static_cast<size_t>(begin_of_loop(g_, node))];
  }

  void visit(int index) {
    const KernelGroup& group = groups_[static_cast<size_t>(index)];
    if (group.kind == KernelGroup::Kind::view || group.kind == KernelGroup::Kind::join) return;
    for (ValueId v : group.outputs) {
      const ValueId whole = owner(v);
      const bool is_block = g_.depends_on_data(g_.value(whole).type.shape);
      const Place::Kind kind = is_block ? Place::Kind::heap : Place::Kind::arena;
      if (place(whole).kind != Place::Kind::none && place(whole).kind != kind) continue;
      int& storage = storage_of(whole);
      if (storage < 0 && whole == v) storage = in_place_storage(group, index, v);
      if (storage < 0) storage = is_block ? new_block(index) : new_storage(bytes_of(whole), index);
      int& last = storages_[static_cast<size_t>(storage)].last;
      last = std::max({last, index, last_use_[static_cast<size_t>(whole)]});
      extend_to_loop(group, &storages_[static_cast<size_t>(storage)].first, &last);
      place(whole).kind = kind;
    }
    if (group.kind == KernelGroup::Kind::control) make_room_to_trade(index);
    for (const Expr& bytes : workspace_bytes_[static_cast<size_t>(index)]) {
      const std::optional<int64_t> most = g_.depends_on_data(bytes) ? std::nullopt : largest_count(g_, {bytes});
      const int storage = most ? new_storage(*most, index) : new_block(index);
      plan_.workspaces[static_cast<size_t>(index)].push_back({most ? Place::Kind::arena : Place::Kind::heap, storage});
    }
  }

  // For states of a loop that go where another one lies.
  void make_room_to_trade(int index) {
    const Node& node = g_.node(groups_[static_cast<size_t>(index)].nodes[0]);
    if (node.op->control != Control::loop_end) return;
    for (const StateCopy& copy : state_copies(g_, aliases_, node)) {
      if (!copy.is_traded) continue;
      const bool is_block = g_.depends_on_data(g_.value(copy.from).type.shape);
      const int storage = is_block ? new_block(index) : new_storage(bytes_of(copy.from), index);
      plan_.workspaces[static_cast<size_t>(index)].push_back({is_block ? Place::Kind::heap : Place::Kind::arena, storage});
    }
  }

  int new_storage(int64_t bytes, int group) {
    storages_.push_back({aligned(std::max<int64_t>(bytes, 1)), group, group, 0});
    return static_cast<int>(storages_.size()) - 1;
  }

  int new_block(int group) {
    storages_.push_back({0, group, group, 0, true});
    return static_cast<int>(storages_.size()) - 1;
  }

  // The storage of an input that the kernel may write over with output v, or -1.
  int in_place_storage(const KernelGroup& group, int index, ValueId v) {
    if (group.outputs.size() != 1 || group.kind != KernelGroup::Kind::kernel) return -1;
    for (ValueId input : group.inputs) {
      const ValueId whole = owner(input);
      const int storage = storage_of(whole);
      if (storage < 0 || last_use_[static_cast<size_t>(whole)] != index) continue;
      if (storages_[static_cast<size_t>(storage)].last != index || !are_of_equal_size(whole, v)) continue;
      const bool only_reader = std::count_if(group.inputs.begin(), group.inputs.end(),
                                             [&](ValueId other) { return owner(other) == whole; }) == 1;
      if (only_reader && is_pointwise(group, input, v)) return storage;
    }
    return -1;
  }

  bool are_of_equal_size(ValueId a, ValueId b) const {
    const TensorType &x = g_.value(a).type, &y = g_.value(b).type;
    const bool is_of_data = g_.depends_on_data(x.shape), is_other = g_.depends_on_data(y.shape);
    if (!is_of_data && !is_other) return bytes_of(a) == bytes_of(b);
    return same_shape(x.shape, y.shape) && byte_size(x.element) == byte_size(y.element);
  }

  // Every reader of the input is an elementwise node after the anchor, of the shape and width of the output: each
  // element is read in the iteration that writes it.
  bool is_pointwise(const KernelGroup& group, ValueId input, ValueId output) const {
    const TensorType& in = g_.value(input).type;
    const TensorType& out = g_.value(output).type;
    if (!same_shape(in.shape, out.shape) || byte_size(in.element) != byte_size(out.element)) return false;
    for (NodeId id : group.nodes) {
      const Node& node = g_.node(id);
      bool reads = std::find(node.inputs.begin(), node.inputs.end(), input) != node.inputs.end();
      bool is_plain = node.op->fusion == FusionClass::elementwise && node.outputs.size() == 1 &&
                      same_shape(g_.value(node.outputs[0]).type.shape, out.shape);
      if (reads && (!is_plain || id <= group.anchor)) return false;
      // Without an anchor, no node may move elements at all.
      if (group.anchor < 0 && !is_plain) return false;
    }
    return true;
  }

  // Largest first, each at the lowest offset that is free over its whole life.
  void assign_offsets() {
    std::vector<int> order(storages_.size());
    for (size_t i = 0; i < order.size(); ++i)
      order[i] = static_cast<int>(i);
    std::erase_if(order, [&](int index) { return storages_[static_cast<size_t>(index)].is_block; });
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return storages_[static_cast<size_t>(a)].bytes > storages_[static_cast<size_t>(b)].bytes;
    });
    std::vector<const Storage*> placed;  // by offset
    for (int index : order) {
      Storage& s = storages_[static_cast<size_t>(index)];
      int64_t offset = 0;
      for (const Storage* other : placed) {
        if (other->last < s.first || s.last < other->first) continue;
        if (offset + s.bytes <= other->offset) break;
        offset = std::max(offset, other->offset + other->bytes);
      }
      s.offset = offset;
      auto at = std::upper_bound(placed.begin(), placed.end(), &s,
                                 [](const Storage* a, const Storage* b) { return a->offset < b->offset; });
      placed.insert(at, &s);
      plan_.arena_bytes = std::max(plan_.arena_bytes, offset + s.bytes);
    }
  }

  // In the order in which their lives begin, each in the first block that is free by then.
  void assign_blocks() {
    std::vector<int> last;  // of each block
    std::vector<Storage*> order;
    for (Storage& s : storages_)
      if (s.is_block) order.push_back(&s);
    std::stable_sort(order.begin(), order.end(), [](const Storage* a, const Storage* b) { return a->first < b->first; });
    for (Storage* storage : order) {
      Storage& s = *storage;
      const auto block = std::find_if(last.begin(), last.end(), [&](int end) { return end < s.first; });
      s.offset = block - last.begin();
      if (block == last.end()) last.push_back(0);
      last[static_cast<size_t>(s.offset)] = s.last;
    }
    plan_.blocks = static_cast<int64_t>(last.size());
  }

  void count_live() {
    plan_.live_bytes.assign(groups_.size(), 0);
    for (const Storage& s : storages_) {
      for (int group = s.first; group <= s.last; ++group)
        plan_.live_bytes[static_cast<size_t>(group)] += s.bytes;
    }
  }

  void finish() {
    for (size_t i = 0; i < g_.values.size(); ++i) {
      if (storage_of_[i] >= 0) plan_.places[i].index = storages_[static_cast<size_t>(storage_of_[i])].offset;
    }
    for (auto& list : plan_.workspaces) {
      for (Place& p : list)
        p.index = storages_[static_cast<size_t>(p.index)].offset;
    }
    for (size_t i = 0; i < g_.values.size(); ++i) {
      const Aliases::Alias alias = aliases_.of(static_cast<ValueId>(i));
      if (alias.owner == static_cast<ValueId>(i)) continue;
      Place& p = plan_.places[i] = place(alias.owner);
      (p.kind == Place::Kind::arena ? p.index : p.offset) += alias.offset;
    }
  }

  const Graph& g_;
  const std::vector<KernelGroup>& groups_;
  const std::vector<std::vector<Expr>>& workspace_bytes_;
  const Aliases aliases_;
  std::vector<int> storage_of_;
  std::vector<int> group_of_;  // of each node
  std::vector<int> last_use_;
  std::vector<Storage> storages_;
  MemoryPlan plan_;
};

}  // namespace

MemoryPlan plan_memory(const Graph& graph, const std::vector<KernelGroup>& groups,
                       const std::vector<std::vector<Expr>>& workspace_bytes) {
  return PlanMemory(graph, groups, workspace_bytes).run();
}

}  // namespace mcc::graph
