#include "graph/passes/plan_memory.h"

#include <algorithm>
#include <map>
#include <set>

#include "graph/elements.h"
#include "graph/op.h"
#include "graph/ops/control.h"
#include "graph/passes/aliases.h"
#include "graph/passes/regions.h"
#include "tensor/kernel_abi.h"
#include "tensor/sizes.h"
#include "tensor/text.h"
#include "tensor/visit.h"

namespace mcc::graph {
namespace {

int64_t aligned(int64_t bytes) {
  constexpr int64_t to = tensor::kBufferAlignment;
  return (bytes + to - 1) / to * to;
}

// A piece of the arena, or a block, alive from the group `first` to the group `last`.
struct Storage {
  int64_t bytes = 0;  // without a bound: typically
  int first = 0, last = 0;
  int64_t offset = 0;  // where there is no bound: in a plan for typical sizes; of a block, its number
  Expr size = {};      // in bytes; what has a bound has none
  tensor::Var start = {};
  bool is_block = false;

  bool has_bound() const { return !size.defined(); }
  bool lives_with(const Storage& other) const { return first <= other.last && other.first <= last; }
};

class PlanMemory {
 public:
  PlanMemory(const Graph& g, const std::vector<KernelGroup>& groups,
             const std::vector<std::vector<Expr>>& workspace_bytes, int typical_threads)
      : g_(g), groups_(groups), workspace_bytes_(workspace_bytes), aliases_(g, groups), facts_(g.facts()), storage_of_(g.values.size(), -1), group_of_(g.nodes.size(), -1) {
    for (size_t i = 0; i < groups.size(); ++i)
      for (NodeId n : groups[i].nodes)
        group_of_[static_cast<size_t>(n)] = static_cast<int>(i);
    for (size_t i = 0; i < g.dims.size(); ++i)
      typical_[g.dims[i].get()] = typical_size(g.dim_ranges[i]);
    const auto is_taken = [&](const tensor::Var& d) { return d.name().starts_with(prefix_); };
    while (std::any_of(g.dims.begin(), g.dims.end(), is_taken))
      prefix_ += '@';
    typical_threads_ = typical_threads;
  }

  MemoryPlan run() {
    plan_.places.resize(g_.values.size());
    plan_.workspaces.resize(groups_.size());
    place_ends();
    find_last_uses();
    for (size_t i = 0; i < groups_.size(); ++i)
      visit(static_cast<int>(i));
    assign_offsets(true);
    plan_.arena_size = plan_.arena_bytes;
    bounded_bytes_ = std::exchange(plan_.arena_bytes, 0);
    assign_offsets(false);
    plan_.arena_bytes += bounded_bytes_;
    compute_offsets();
    assign_blocks();
    count_live();
    finish();
    return std::move(plan_);
  }

 private:
  Place& place(ValueId v) { return plan_.places[static_cast<size_t>(v)]; }
  int& storage_of(ValueId v) { return storage_of_[static_cast<size_t>(v)]; }
  Expr bytes_of(ValueId v) const { return planned_bytes(g_, v); }

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
      // Also where another dimension is 0, and its bytes are known for that.
      const bool is_block = g_.depends_on_data(g_.value(whole).type.shape);
      const Place::Kind kind = is_block ? Place::Kind::heap : Place::Kind::arena;
      if (place(whole).kind != Place::Kind::none && place(whole).kind != kind) continue;
      int& storage = storage_of(whole);
      if (storage < 0 && whole == v) storage = in_place_storage(group, index, v);
      if (storage < 0) storage = new_storage(bytes_of(whole), index, is_block);
      int& last = storages_[static_cast<size_t>(storage)].last;
      last = std::max({last, index, last_use_[static_cast<size_t>(whole)]});
      extend_to_loop(group, &storages_[static_cast<size_t>(storage)].first, &last);
      place(whole).kind = kind;
    }
    if (group.kind == KernelGroup::Kind::control) make_room_to_trade(index);
    for (const Expr& asked : workspace_bytes_[static_cast<size_t>(index)])
      add_workspace(with_own_threads(asked), index);
  }

  void add_workspace(const Expr& bytes, int group) {
    const int storage = new_storage(bytes, group, g_.depends_on_data(bytes));
    const Place::Kind kind = storages_[static_cast<size_t>(storage)].is_block ? Place::Kind::heap : Place::Kind::arena;
    plan_.workspaces[static_cast<size_t>(group)].push_back({{kind, storage}, bytes});
  }

  // For states of a loop that go where another one lies.
  void make_room_to_trade(int index) {
    const Node& node = g_.node(groups_[static_cast<size_t>(index)].nodes[0]);
    if (node.op->control != Control::loop_end) return;
    for (const StateCopy& copy : state_copies(g_, aliases_, node))
      if (copy.is_traded) add_workspace(bytes_of(copy.from), index);
  }

  // The number of threads by a name that no dimension has.
  Expr with_own_threads(const Expr& bytes) {
    int64_t known = 0;
    if (tensor::as_int(bytes, &known)) return bytes;
    tensor::VarMap one{{tensor::thread_count().get(), Expr(typical_threads_)}};
    if (tensor::structurally_equal(tensor::substitute(bytes, one), bytes)) return bytes;
    const tensor::Var threads = named(tensor::thread_count());
    typical_[threads.get()] = typical_threads_;
    return tensor::substitute(bytes, {{tensor::thread_count().get(), threads}});
  }

  int new_storage(const Expr& bytes, int group, bool is_block) {
    if (is_block) {
      storages_.push_back({0, group, group});
      storages_.back().is_block = true;
      return static_cast<int>(storages_.size()) - 1;
    }
    int64_t known = 0;
    Expr size;
    if (!tensor::as_int(bytes, &known)) {
      size = facts_.simplify(tensor::floor_div(bytes + Expr(tensor::kBufferAlignment - 1), tensor::kBufferAlignment) * Expr(tensor::kBufferAlignment));
      MCC_CHECK(tensor::as_int(tensor::simplify(tensor::substitute(bytes, typical_)), &known), "a size of more than dimensions: ",
                tensor::to_text(bytes));
    }
    storages_.push_back({aligned(std::max<int64_t>(known, 1)), group, group, 0, size});
    return static_cast<int>(storages_.size()) - 1;
  }

  // The storage of an input that the kernel may write over with output v, or -1.
  int in_place_storage(const KernelGroup& group, int index, ValueId v) {
    if (group.outputs.size() != 1 || group.kind != KernelGroup::Kind::kernel) return -1;
    for (ValueId input : group.inputs) {
      const ValueId whole = owner(input);
      const int storage = storage_of(whole);
      if (storage < 0 || last_use_[static_cast<size_t>(whole)] != index) continue;
      if (storages_[static_cast<size_t>(storage)].is_block != g_.depends_on_data(g_.value(v).type.shape)) continue;
      if (storages_[static_cast<size_t>(storage)].last != index || !tensor::structurally_equal(bytes_of(whole), bytes_of(v))) continue;
      const bool only_reader = std::count_if(group.inputs.begin(), group.inputs.end(),
                                             [&](ValueId other) { return owner(other) == whole; }) == 1;
      if (only_reader && is_pointwise(group, input, v)) return storage;
    }
    return -1;
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

  // Of those with a bound, or of the others: largest first, each at the lowest offset that is free over its whole life.
  void assign_offsets(bool have_bounds) {
    std::vector<int> order;
    for (size_t i = 0; i < storages_.size(); ++i)
      if (!storages_[i].is_block && storages_[i].has_bound() == have_bounds) order.push_back(static_cast<int>(i));
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

  // An expression by a name, the same for equal ones.
  tensor::Var named(const Expr& value) {
    auto [known, is_new] = names_.try_emplace(tensor::to_text(value));
    if (is_new) {
      known->second = tensor::Var(text(prefix_, plan_.computed.size()));
      plan_.computed.push_back({known->second, value});
    }
    return known->second;
  }

  Expr named_largest(const std::vector<Expr>& values) {
    Expr most = values.at(0);
    for (size_t i = 1; i < values.size(); ++i)
      most = named(tensor::max(most, values[i]));
    return most;
  }

  // From the lowest one up: each begins where what lies below it ends. Of what lies below, that counts which has nothing else of it
  // above; the arena ends where the topmost ones do.
  void compute_offsets() {
    std::vector<Storage*> order;
    for (Storage& s : storages_)
      if (!s.has_bound()) order.push_back(&s);
    std::stable_sort(order.begin(), order.end(), [](const Storage* a, const Storage* b) { return a->offset < b->offset; });
    std::map<const Storage*, Expr> ends;
    const auto ends_of = [&](const std::vector<const Storage*>& below) {
      std::vector<Expr> tops;
      std::set<std::string> seen;
      for (size_t i = 0; i < below.size(); ++i) {
        const bool is_covered = std::any_of(below.begin() + static_cast<std::ptrdiff_t>(i) + 1, below.end(),
                                            [&](const Storage* other) { return other->lives_with(*below[i]); });
        const Expr& end = ends.at(below[i]);
        if (!is_covered && seen.insert(tensor::to_text(end)).second) tops.push_back(end);
      }
      return tops;
    };
    std::vector<const Storage*> placed;
    for (Storage* s : order) {
      std::vector<const Storage*> below;
      std::copy_if(placed.begin(), placed.end(), std::back_inserter(below), [&](const Storage* other) { return other->lives_with(*s); });
      s->start = named(below.empty() ? Expr(bounded_bytes_) : named_largest(ends_of(below)));
      ends[s] = named(s->start + Expr(named(s->size)));
      placed.push_back(s);
    }
    if (!placed.empty()) plan_.arena_size = named_largest(ends_of(placed));
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
      // Results of the model are alive behind the last one, too.
      for (int group = s.first; group <= s.last && group < static_cast<int>(groups_.size()); ++group)
        plan_.live_bytes[static_cast<size_t>(group)] += s.bytes;
    }
  }

  void lay(Place& p, int64_t storage) const {
    const Storage& s = storages_[static_cast<size_t>(storage)];
    p.index = s.has_bound() ? s.offset : 0;
    p.start = s.start;
  }

  void finish() {
    for (size_t i = 0; i < g_.values.size(); ++i) {
      if (storage_of_[i] >= 0) lay(plan_.places[i], storage_of_[i]);
    }
    for (auto& list : plan_.workspaces) {
      for (Workspace& w : list)
        lay(w.place, w.place.index);
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
  tensor::Analyzer facts_;
  tensor::VarMap typical_;
  std::map<std::string, tensor::Var> names_;
  std::string prefix_ = "@";  // of their names
  int typical_threads_ = 1;
  int64_t bounded_bytes_ = 0;
  std::vector<int> storage_of_;
  std::vector<int> group_of_;  // of each node
  std::vector<int> last_use_;
  std::vector<Storage> storages_;
  MemoryPlan plan_;
};

}  // namespace

MemoryPlan plan_memory(const Graph& graph, const std::vector<KernelGroup>& groups,
                       const std::vector<std::vector<Expr>>& workspace_bytes, int typical_threads) {
  return PlanMemory(graph, groups, workspace_bytes, typical_threads).run();
}

}  // namespace mcc::graph
