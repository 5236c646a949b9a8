#include "random_trace.h"

#include "tensor/schedule/weight_order.h"

#include <functional>

#include "tensor/schedule/tree.h"

namespace mcc::tensor::test {

uint64_t Random::next() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

namespace {

// The names there are to choose from.
struct Pool {
  std::vector<std::string> blocks, loops, buffers, intermediates;
  int serial = 0;  // for new names

  explicit Pool(const Schedule& s) {
    const Func& f = s.func();
    for (const BlockSite& site : block_sites(f.body))
      blocks.push_back(site.block->name);
    for (const For* loop : loops_below(f.body))
      loops.push_back(loop->var.name());
    for (const Buffer& b : f.params) {
      buffers.push_back(b.name());
      if (is_weight(f, b)) intermediates.push_back(b.name());  // its order is free, too
    }
    for (const Buffer& b : f.allocs) {
      buffers.push_back(b.name());
      intermediates.push_back(b.name());
    }
    if (intermediates.empty()) intermediates.push_back("none");
    serial = static_cast<int>(s.trace().size());
  }
};

std::string random_scope(Random& r) {
  return r.pick(std::vector<std::string>{"global", "local", "local", "shared", "warp"});
}

const std::vector<std::string> kAxes = {"block.x", "block.x", "block.y", "thread.x", "thread.x", "thread.y"};

std::string loop_of(const Schedule& s, const std::string& block, Random& r) {
  std::vector<std::string> loops = s.loop_names_of(block);
  return loops.empty() ? "none" : r.pick(loops);
}

Step random_split(const Schedule& s, const Pool& pool, Random& r) {
  static const std::vector<int64_t> sizes = {1, 2, 3, 4, 4, 5, 8, 16};
  Split step{r.pick(pool.loops), {}, {}};
  const For* loop = s.find_loop(step.loop);
  int64_t extent = 0;
  int parts = r.below(4) == 0 ? 3 : 2;
  for (int i = 0; i < parts; ++i)
    step.factors.push_back(r.pick(sizes));
  if (as_int(loop->extent, &extent) && r.below(3) != 0) {
    while (parts > 1 && extent % step.factors.back() != 0)
      --step.factors.back();
  }
  step.factors[static_cast<size_t>(r.below(parts))] = 0;
  return step;
}

Step random_fuse(const Schedule& s, const Pool& pool, Random& r) {
  const For* loop = s.find_loop(r.pick(pool.loops));
  Fuse step{{loop->var.name()}, ""};
  for (int64_t n = 1 + r.below(2); n > 0; --n) {
    loop = loop->body.as<For>();
    if (loop == nullptr) break;
    step.loops.push_back(loop->var.name());
  }
  return step;
}

Step random_reorder(const Schedule& s, const Pool& pool, Random& r) {
  std::vector<const For*> chain = chain_from(s.find_loop(r.pick(pool.loops)));
  Reorder step;
  for (const For* loop : chain) {
    if (r.below(3) != 0) {
      size_t at = static_cast<size_t>(r.below(static_cast<int64_t>(step.loops.size()) + 1));
      step.loops.insert(step.loops.begin() + static_cast<std::ptrdiff_t>(at), loop->var.name());
    }
  }
  return step;
}

// A loop around one of the given blocks.
std::string loop_near(const Schedule& s, const std::vector<std::string>& blocks, const Pool& pool,
                      Random& r) {
  if (blocks.empty() || r.below(20) == 0) return r.pick(pool.loops);
  return loop_of(s, r.pick(blocks), r);
}

Step random_layout(const Schedule& s, const Pool& pool, Random& r) {
  Buffer buffer = find_buffer(s.func(), r.pick(pool.intermediates));
  if (!buffer) return Step(TransformLayout{"none", ""});
  std::vector<std::string> from, to;
  for (int d = 0; d < buffer.rank(); ++d)
    from.push_back(text("i", d));
  to = from;
  size_t d = static_cast<size_t>(r.below(buffer.rank()));
  int64_t c = 2 + r.below(3);
  switch (r.below(3)) {
    case 0:
      std::swap(to[0], to[d]);
      break;
    case 1:
      to[d] = text(from[d], " // ", c);
      to.push_back(text(from[d], " %% ", c));
      break;
    default:
      if (int64_t extent = 0; buffer.rank() > 1 && as_int(buffer.shape().back(), &extent)) {
        to[to.size() - 2] = text(from[from.size() - 2], " * ", extent, " + ", from.back());
        to.pop_back();
      }
  }
  return Step(TransformLayout{buffer.name(), text("(", join(from, ", "), ") -> (", join(to, ", "), ")")});
}

// Names of some axes of the block, in any order.
std::vector<std::string> random_axes(const Schedule& s, const std::string& block, Random& r, int64_t count) {
  std::vector<std::string> axes, out;
  for (const Axis& axis : s.find_block(block)->axes)
    axes.push_back(axis.var.name());
  while (!axes.empty() && static_cast<int64_t>(out.size()) < count) {
    auto at = axes.begin() + static_cast<std::ptrdiff_t>(r.below(static_cast<int64_t>(axes.size())));
    out.push_back(*at);
    axes.erase(at);
  }
  return out;
}

// Mostly of a buffer that the block uses, by the axes that this depends on.
Step random_reindex(const Schedule& s, const Pool& pool, Random& r, const std::string& block) {
  const Block& b = *s.find_block(block);
  bool is_write = r.below(2) == 0 || b.reads.empty();
  const Buffer buffer = is_write ? b.writes[0].buffer : r.pick(b.reads).buffer;
  Reindex step{block, buffer.name(), random_scope(r), text("index", pool.serial), {}};
  for (const Axis& axis : b.axes) {
    bool is_used = is_write && axis.kind == AxisKind::spatial;
    for (const Region& region : b.reads) {
      for (const Range& range : region.ranges)
        is_used |= !is_write && region.buffer.same_as(buffer) && uses_var(range.min, axis.var);
    }
    if (is_used || r.below(8) == 0) step.axes.push_back(axis.var.name());
  }
  if (step.axes.size() > 1 && r.below(2) == 0) std::swap(step.axes.front(), step.axes.back());
  return Step(step);
}

// The loops right inside of one, or almost all of them.
Step random_hoist(const Schedule& s, const Pool& p, Random& r) {
  Hoist step{{}, r.pick(p.loops), r.below(2) == 0 ? text("row", p.serial) : ""};
  const Stmt& body = s.find_loop(step.over)->body;
  const auto* seq = body.as<Seq>();
  for (const Stmt& inside : seq != nullptr ? seq->stmts : std::vector<Stmt>{body}) {
    const auto* loop = inside.as<For>();
    if (loop != nullptr && r.below(16) != 0) step.loops.push_back(loop->var.name());
  }
  return Step(step);
}

// Neighbours in the body of a loop, or of the function.
Step random_siblings(const Schedule& s, const Pool& p, Random& r) {
  FuseSiblings step{{}, r.below(2) == 0 ? text("both", p.serial) : ""};
  const Stmt& body = r.below(2) == 0 ? s.func().body : s.find_loop(r.pick(p.loops))->body;
  const auto* seq = body.as<Seq>();
  if (seq == nullptr) return Step(FuseSiblings{{r.pick(p.loops), r.pick(p.loops)}, ""});
  size_t at = static_cast<size_t>(r.below(static_cast<int64_t>(seq->stmts.size())));
  for (; at < seq->stmts.size(); ++at) {
    const auto* loop = seq->stmts[at].as<For>();
    if (loop == nullptr) break;
    step.loops.push_back(loop->var.name());
    if (step.loops.size() > 1 && r.below(2) == 0) break;
  }
  return Step(step);
}

}  // namespace

Step random_step(const Schedule& s, Random& r) {
  Pool p(s);
  if (p.loops.empty()) return Step(ComputeInline{r.pick(p.blocks)});
  std::string block = r.pick(p.blocks);
  const std::vector<std::pair<int, std::function<Step()>>> kinds = {
      {24, [&] { return random_split(s, p, r); }},
      {7, [&] { return random_fuse(s, p, r); }},
      {12, [&] { return random_reorder(s, p, r); }},
      {3, [&] { return random_hoist(s, p, r); }},
      {4, [&] { return random_siblings(s, p, r); }},
      {4, [&] { return Step(Parallel{r.pick(p.loops)}); }},
      {5, [&] { return Step(Vectorize{r.pick(p.loops)}); }},
      {3, [&] { return Step(Unroll{r.pick(p.loops)}); }},
      {8, [&] { return Step(Bind{r.pick(p.loops), r.pick(kAxes)}); }},
      {10, [&] { return Step(ComputeAt{block, loop_near(s, s.consumers(block), p, r)}); }},
      {10, [&] { return Step(ReverseComputeAt{block, loop_near(s, s.producers(block), p, r)}); }},
      {3, [&] { return Step(ComputeInline{block}); }},
      {3, [&] { return Step(ReverseComputeInline{block}); }},
      {4, [&] { return Step(CacheRead{block, r.pick(p.buffers), random_scope(r), text("read", p.serial)}); }},
      {5,
       [&] { return Step(CacheWrite{block, r.pick(p.buffers), random_scope(r), text("write", p.serial)}); }},
      {3, [&] { return random_reindex(s, p, r, block); }},
      {2,
       [&] {
         return Step(FuseAxes{block, random_axes(s, block, r, 1 + r.below(3)), text("axis", p.serial)});
       }},
      {2,
       [&] {
         const std::vector<std::string> axes = random_axes(s, block, r, 1);
         return Step(SplitAxis{block, axes.empty() ? "none" : axes[0], 1 + r.below(4), text("axis", p.serial)});
       }},
      {2, [&] { return Step(SetScope{r.pick(p.intermediates), random_scope(r)}); }},
      {1, [&] { return Step(StorageAlign{r.pick(p.intermediates), 8, r.below(8)}); }},
      {2, [&] { return Step(PadEinsum{block, random_axes(s, block, r, 1), {1 + r.below(8)}}); }},
      {5, [&] { return Step(Rfactor{block, loop_of(s, block, r), text("part", p.serial), r.below(3)}); }},
      {8, [&] { return Step(DecomposeReduction{block, loop_of(s, block, r)}); }},
      {4, [&] { return random_layout(s, p, r); }},
      {1, [&] { return Step(Annotate{"", r.pick(p.loops), "note", "1"}); }},
      {1, [&] { return Step(Tensorize{r.pick(p.loops), "dot4_u8i8_i32x16"}); }},
  };
  int total = 0;
  for (const auto& [weight, make] : kinds)
    total += weight;
  int64_t at = r.below(total);
  for (const auto& [weight, make] : kinds) {
    if (at < weight) return make();
    at -= weight;
  }
  return Step(std::monostate());
}

namespace {

// The number of block instances that the loops ask for; symbolic extents count as 16.
double work(const Func& f) {
  double sum = 0;
  for (const BlockSite& site : block_sites(f.body)) {
    double product = 1;
    for (const For* loop : site.loops) {
      int64_t extent = 16;
      as_int(loop->extent, &extent);
      product *= static_cast<double>(extent);
    }
    sum += product;
  }
  return sum;
}

}  // namespace

Trace random_trace(const Func& func, Random& random, int accepted) {
  Schedule schedule(func);
  // Splits into too many parts, and computing at inner loops, can multiply the work beyond what a test should interpret.
  double limit = 8 * work(func);
  for (int tries = 0; tries < 10 * accepted && static_cast<int>(schedule.trace().size()) < accepted;
       ++tries) {
    Schedule next = schedule;
    if (next.apply(random_step(schedule, random)) && work(next.func()) <= limit) schedule = std::move(next);
  }
  return schedule.trace();
}

}  // namespace mcc::tensor::test
