#include "tensor/schedule/tree.h"

#include <algorithm>

#include "tensor/schedule/regions.h"
#include "tensor/sizes.h"

namespace mcc::tensor {
namespace {

void collect_sites(const Stmt& s, std::vector<const For*>* loops, std::vector<BlockSite>* sites) {
  if (!s) return;
  if (const auto* loop = s.as<For>()) {
    loops->push_back(loop);
    collect_sites(loop->body, loops, sites);
    loops->pop_back();
  } else if (const auto* seq = s.as<Seq>()) {
    for (const Stmt& child : seq->stmts)
      collect_sites(child, loops, sites);
  } else if (const auto* block = s.as<Block>()) {
    sites->push_back({block, *loops});
  }
}

bool find_path(const Stmt& s, const StmtNode* node, std::vector<const For*>* loops) {
  if (s.get() == node) return true;
  if (const auto* loop = s.as<For>()) {
    loops->push_back(loop);
    if (find_path(loop->body, node, loops)) return true;
    loops->pop_back();
  } else if (const auto* seq = s.as<Seq>()) {
    for (const Stmt& child : seq->stmts) {
      if (find_path(child, node, loops)) return true;
    }
  }
  return false;
}

}  // namespace

// ---- Finding ----

std::vector<BlockSite> block_sites(const Stmt& body) {
  std::vector<BlockSite> sites;
  std::vector<const For*> loops;
  collect_sites(body, &loops, &sites);
  return sites;
}

std::vector<const For*> loops_around(const Stmt& body, const StmtNode* node) {
  std::vector<const For*> loops;
  if (body) find_path(body, node, &loops);
  return loops;
}

const BlockSite* find_site(const std::vector<BlockSite>& sites, const std::string& block) {
  for (const BlockSite& site : sites) {
    if (site.block->name == block) return &site;
  }
  return nullptr;
}

size_t common_loops(const BlockSite& a, const BlockSite& b) {
  size_t n = 0;
  while (n < a.loops.size() && n < b.loops.size() && a.loops[n] == b.loops[n])
    ++n;
  return n;
}

bool is_under(const BlockSite& site, const For* loop) {
  return std::find(site.loops.begin(), site.loops.end(), loop) != site.loops.end();
}

namespace {

void collect_loops(const Stmt& s, std::vector<const For*>* loops) {
  if (!s) return;
  if (const auto* loop = s.as<For>()) {
    loops->push_back(loop);
    collect_loops(loop->body, loops);
  } else if (const auto* seq = s.as<Seq>()) {
    for (const Stmt& child : seq->stmts)
      collect_loops(child, loops);
  }
}

}  // namespace

std::vector<const For*> loops_below(const Stmt& body) {
  std::vector<const For*> loops;
  collect_loops(body, &loops);
  return loops;
}

std::vector<const For*> chain_from(const For* loop) {
  std::vector<const For*> chain;
  for (; loop != nullptr; loop = loop->body.as<For>())
    chain.push_back(loop);
  return chain;
}

namespace {

bool mentions(const std::vector<Region>& regions, const Buffer& buffer) {
  return std::any_of(regions.begin(), regions.end(),
                     [&](const Region& r) { return r.buffer.same_as(buffer); });
}

}  // namespace

bool reads_buffer(const Block& block, const Buffer& buffer) { return mentions(block.reads, buffer); }
bool writes_buffer(const Block& block, const Buffer& buffer) { return mentions(block.writes, buffer); }

Buffer only_buffer_written(const Block& block) {
  Buffer buffer;
  for (const Region& r : block.writes) {
    if (buffer && !buffer.same_as(r.buffer)) return Buffer();
    buffer = r.buffer;
  }
  return buffer;
}

Buffer find_buffer(const Func& f, const std::string& name) {
  for (const Buffer& b : f.params) {
    if (b.name() == name) return b;
  }
  for (const Buffer& b : f.allocs) {
    if (b.name() == name) return b;
  }
  return Buffer();
}

bool is_intermediate(const Func& f, const Buffer& buffer) {
  return std::any_of(f.allocs.begin(), f.allocs.end(), [&](const Buffer& b) { return b.same_as(buffer); });
}

// ---- Editing ----

Stmt replace_stmt(const Stmt& s, const StmtNode* from, const Stmt& to) {
  if (s.get() == from) return to;
  if (const auto* loop = s.as<For>()) {
    Stmt body = replace_stmt(loop->body, from, to);
    if (body.same_as(loop->body)) return s;
    if (!body) return nullptr;
    return For::make(loop->var, loop->min, loop->extent, loop->loop, body, loop->annotations);
  }
  if (const auto* seq = s.as<Seq>()) {
    for (size_t i = 0; i < seq->stmts.size(); ++i) {
      Stmt child = replace_stmt(seq->stmts[i], from, to);
      if (child.same_as(seq->stmts[i])) continue;
      std::vector<Stmt> stmts = seq->stmts;
      stmts[i] = child;
      return Seq::make(std::move(stmts));
    }
  }
  return s;
}

Stmt insert_before(const Stmt& root, const Stmt& anchor, const Stmt& stmt) {
  return replace_stmt(root, anchor.get(), Seq::make({stmt, anchor}));
}

Stmt insert_after(const Stmt& root, const Stmt& anchor, const Stmt& stmt) {
  return replace_stmt(root, anchor.get(), Seq::make({anchor, stmt}));
}

Stmt map_blocks(const Stmt& s, const std::function<Stmt(const Block&, const Stmt&)>& f) {
  if (!s) return s;
  if (const auto* block = s.as<Block>()) return f(*block, s);
  if (const auto* loop = s.as<For>()) {
    Stmt body = map_blocks(loop->body, f);
    if (body.same_as(loop->body)) return s;
    if (!body) return nullptr;
    return For::make(loop->var, loop->min, loop->extent, loop->loop, body, loop->annotations);
  }
  if (const auto* seq = s.as<Seq>()) {
    bool changed = false;
    std::vector<Stmt> stmts;
    for (const Stmt& child : seq->stmts) {
      stmts.push_back(map_blocks(child, f));
      changed |= !stmts.back().same_as(child);
    }
    if (!changed) return s;
    std::erase_if(stmts, [](const Stmt& child) { return !child; });
    return stmts.empty() ? Stmt() : Seq::make(std::move(stmts));
  }
  return s;
}

Stmt make_block(Block* block) {
  block->reads.clear();
  block->writes.clear();
  return Block::make(block);
}

Stmt with_loop_kind(const Func& f, const For* loop, LoopKind kind) {
  return replace_stmt(f.body, loop,
                      For::make(loop->var, loop->min, loop->extent, kind, loop->body, loop->annotations));
}

Stmt make_nest(const std::vector<LoopSpec>& loops, Stmt body) {
  for (size_t i = loops.size(); i-- > 0;) {
    Annotations annotations;
    if (loops[i].kind == LoopKind::bound) annotations.emplace("thread", loops[i].thread);
    body = For::make(loops[i].var, 0, loops[i].extent, loops[i].kind, body, std::move(annotations));
  }
  return body;
}

// ---- Names ----

bool is_name(const std::string& name) {
  if (name.empty() || name.size() > 200) return false;
  auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  if (!is_letter(name[0])) return false;
  return std::all_of(name.begin(), name.end(),
                     [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '.'; });
}

Names::Names(const Func& f) {
  for (const Buffer& b : f.params)
    names_.insert(b.name());
  for (const Buffer& b : f.allocs)
    names_.insert(b.name());
  for (const Var& d : f.dims)
    names_.insert(d.name());
  if (!f.body) return;
  for_each_stmt(f.body, [this](const Stmt& s) {
    if (const auto* loop = s.as<For>()) names_.insert(loop->var.name());
    if (const auto* block = s.as<Block>()) names_.insert(block->name);
  });
}

std::string Names::unique(const std::string& base) {
  std::string name = base;
  for (int i = 1; taken(name); ++i)
    name = text(base, "_", i);
  names_.insert(name);
  return name;
}

std::string name_in_block(const std::string& loop, const std::string& block) {
  return loop.starts_with(block + ".") ? loop.substr(block.size() + 1) : loop;
}

// ---- Bindings ----

void set_recomputed(Block* block, bool recomputed) {
  block->annotations.erase(kRecomputed);
  if (recomputed) block->annotations[kRecomputed] = int64_t{1};
}

AxisKinds axes_bound_to(const Block& block, const Var& loop) {
  AxisKinds kinds;
  for (size_t i = 0; i < block.axes.size(); ++i) {
    if (!uses_var(block.values[i], loop)) continue;
    switch (block.axes[i].kind) {
      case AxisKind::spatial:
        kinds.spatial = true;
        break;
      case AxisKind::reduce:
        kinds.reduce = true;
        break;
      case AxisKind::scan:
        kinds.scan = true;
        break;
    }
  }
  return kinds;
}

AxisKinds axes_bound_below(const Stmt& body, const Var& loop) {
  AxisKinds all;
  for (const BlockSite& site : block_sites(body)) {
    AxisKinds kinds = axes_bound_to(*site.block, loop);
    all.spatial |= kinds.spatial;
    all.reduce |= kinds.reduce;
    all.scan |= kinds.scan;
  }
  return all;
}

bool uses_any(const Expr& e, const std::vector<const For*>& loops) {
  return std::any_of(loops.begin(), loops.end(), [&](const For* loop) { return uses_var(e, loop->var); });
}

namespace {

bool is_empty_without(const For& loop, const Var& dim) {
  return uses_var(loop.extent, dim) && is_int(simplify(substitute(loop.extent, {{dim.get(), Expr(0)}})), 0);
}

}  // namespace

Analyzer analyzer_at(const Func& f, const std::vector<const For*>& loops) {
  Analyzer analyzer;
  const std::optional<std::vector<SizeRange>> ranges = sizes_of(f);
  for (size_t i = 0; i < f.dims.size(); ++i) {
    // Where a statement runs at all, the loops over a dimension around it are not empty.
    const bool is_around = std::any_of(loops.begin(), loops.end(), [&](const For* loop) { return is_empty_without(*loop, f.dims[i]); });
    const int64_t least = std::max<int64_t>(ranges ? (*ranges)[i].min : 1, is_around ? 1 : 0);
    if (!ranges || (*ranges)[i].min >= 0) analyzer.assume(f.dims[i] >= least);
  }
  for (const For* loop : loops)
    analyzer.bind(loop->var, loop->min, loop->extent);
  return analyzer;
}

namespace {

Stmt rebind_block(const Stmt& s, const VarMap& map, const Expr& condition, const Analyzer& analyzer) {
  const Block* old = s.as<Block>();
  std::vector<Expr> values;
  bool changed = !is_true(condition);
  for (const Expr& v : old->values) {
    Expr value = substitute(v, map);
    if (!value.same_as(v)) {
      value = analyzer.simplify(value);
      changed = true;
    }
    values.push_back(std::move(value));
  }
  std::vector<Expr> conditions;
  for (const Expr& c : conjuncts(old->predicate)) {
    Expr replaced = substitute(c, map);
    if (!replaced.same_as(c)) {
      changed = true;
      if (analyzer.can_prove(replaced)) continue;
      replaced = analyzer.simplify(replaced);
    }
    conditions.push_back(std::move(replaced));
  }
  if (!changed) return s;
  if (!is_true(condition)) conditions.push_back(condition);
  Block* block = old->copy();
  block->values = std::move(values);
  block->predicate = conjunction(conditions);
  return Block::make(block);
}

}  // namespace

Stmt rebind(const Stmt& s, const VarMap& map, const Expr& condition, const Analyzer& analyzer) {
  if (s.as<Block>()) return rebind_block(s, map, condition, analyzer);
  if (const auto* loop = s.as<For>()) {
    Expr min = substitute(loop->min, map), extent = substitute(loop->extent, map);
    Analyzer inner = analyzer;
    inner.bind(loop->var, min, extent);
    Stmt body = rebind(loop->body, map, condition, inner);
    if (body.same_as(loop->body) && min.same_as(loop->min) && extent.same_as(loop->extent)) return s;
    return For::make(loop->var, min, extent, loop->loop, body, loop->annotations);
  }
  if (const auto* seq = s.as<Seq>()) {
    std::vector<Stmt> stmts;
    for (const Stmt& child : seq->stmts)
      stmts.push_back(rebind(child, map, condition, analyzer));
    return Seq::make(std::move(stmts));
  }
  return s;
}

namespace {

class SimplifyAccesses : public Mutator {
 public:
  explicit SimplifyAccesses(const Analyzer& analyzer) : analyzer_(analyzer) {}

 protected:
  using Mutator::on;
  Expr on(const Load& n, const Expr& self) override {
    Expr e = Mutator::on(n, self);
    const auto* load = e.as<Load>();
    bool changed = false;
    std::vector<Expr> indices = simplified(load->indices, &changed);
    return changed ? Load::make(load->buffer, std::move(indices), load->predicate) : e;
  }
  Expr on(const Select& n, const Expr& self) override {
    Expr condition = is_index_arithmetic(n.condition) ? analyzer_.simplify(n.condition) : mutate(n.condition);
    Expr a = mutate(n.on_true), b = mutate(n.on_false);
    if (condition.same_as(n.condition) && a.same_as(n.on_true) && b.same_as(n.on_false)) return self;
    return select(condition, a, b);
  }
  Stmt on(const Store& n, const Stmt& self) override {
    Stmt s = Mutator::on(n, self);
    const auto* store = s.as<Store>();
    bool changed = false;
    std::vector<Expr> indices = simplified(store->indices, &changed);
    return changed ? Store::make(store->buffer, std::move(indices), store->value, store->predicate) : s;
  }

 private:
  std::vector<Expr> simplified(const std::vector<Expr>& list, bool* changed) {
    std::vector<Expr> out;
    for (const Expr& e : list) {
      bool trivial = e.as<VarNode>() != nullptr || e.as<IntImm>() != nullptr;
      out.push_back(trivial ? e : analyzer_.simplify(e));
      *changed |= !out.back().same_as(e);
    }
    return out;
  }
  // Comparisons of indices, not of data.
  static bool is_index_arithmetic(const Expr& e) {
    bool plain = true;
    for_each_expr(Evaluate::make(e),
                  [&](const Expr& x) { plain &= x.as<Load>() == nullptr && !is_float(x.element()); });
    return plain;
  }
  const Analyzer& analyzer_;
};

}  // namespace

Stmt simplify_accesses(const Func& f, const Block& old) {
  Analyzer analyzer = analyzer_at(f, {});
  for (const Axis& axis : old.axes)
    analyzer.bind(axis.var, axis.domain.min, axis.domain.extent);
  SimplifyAccesses pass(analyzer);
  Block* block = old.copy();
  block->init = pass.mutate(old.init);
  block->body = pass.mutate(old.body);
  Stmt made = make_block(block);
  widen_regions(f, block);
  return made;
}

}  // namespace mcc::tensor
