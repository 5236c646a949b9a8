// tensorize(loop="mm.j.1", instruction="dot4_u8i8_i32x16")
//
//   for j.0: for k.0: for j.1 in 0..16: for k.1 in 0..4: mm: c[i, j.0*16 + j.1] += i32(a[i, k.0*4 + k.1]) * i32(b[...])
// becomes
//   for j.0: for k.0: mm (instruction "dot4_u8i8_i32x16"): for j.1, k.1: c[...] += ...
//
// The loops go into the block, whose axes are now bound to the first element of the tile; block and outermost inner loop carry
// the instruction's name. The body still says what is computed, so everything that does not know the instruction
// goes on working.
//
// 1. The instruction exists.
// 2. The loop and those below it are serial, directly nested around one block without an init, with the extents of
//    the instruction's loops, in order.
// 3. The block has no predicate on these loops; each axis is a sum of something free of the loops and something of the loops.
// 4. For an instruction of a warp, loops over thread.y of 8 and thread.x of 4 iterations stand around the tile, and its
//    block has no predicate on them; for one of a warpgroup also a loop over thread.z, of a multiple of 4.
// 5. Its body equals the instruction's update: the same operators and types, operands read and written with the same
//    strides along the loops. Shapes of the buffers are constant.
#include <algorithm>
#include <map>

#include "tensor/grid.h"
#include "tensor/instructions.h"
#include "tensor/intrinsics.h"
#include "tensor/schedule/regions.h"
#include "tensor/schedule/step.h"

namespace mcc::tensor {
namespace {

struct Tile {
  std::vector<const For*> loops;
  const Block* block = nullptr;
  std::vector<Var> vars;
  std::vector<Var> threads;  // around the tile, those that carry the instruction out together
  std::vector<Var> all() const {
    std::vector<Var> out = threads;
    out.insert(out.end(), vars.begin(), vars.end());
    return out;
  }
};

// The loops over the threads of a warp's grid of 8 x 4, and over the warps of warpgroups.
Outcome find_threads(const Func& f, const For* loop, const Instruction& instruction, Tile* tile) {
  if (!instruction.mma) return applied();
  for (const auto& [axis, extent] : {std::pair{GridAxis::thread_z, 4}, {GridAxis::thread_y, 8}, {GridAxis::thread_x, 4}}) {
    const bool is_warps = axis == GridAxis::thread_z;
    if (is_warps && !is_wgmma(*instruction.mma)) continue;
    std::vector<const For*> around = loops_around(f.body, loop);
    auto it = std::find_if(around.begin(), around.end(), [&](const For* l) { return grid_axis(*l) == axis; });
    int64_t got = 0;
    const bool fits = it != around.end() && as_int((*it)->extent, &got) && (is_warps ? got % 4 == 0 : got == extent);
    if (!fits) {
      return refuse(RefusalCode::no_match, text("expected a loop of ", is_warps ? "a multiple of " : "", extent,
                                                " iterations over ", info_of(axis).name,
                                                " around the tile of ", instruction.name));
    }
    if (uses_any(tile->block->predicate, {*it})) {
      return refuse(RefusalCode::no_match, text("expected no condition on the threads, got ",
                                                to_text(tile->block->predicate)));
    }
    tile->threads.push_back((*it)->var);
  }
  return applied();
}

Outcome find_tile(const For* loop, Tile* tile) {
  tile->loops = chain_from(loop);
  tile->block = tile->loops.back()->body.as<Block>();
  if (tile->block == nullptr) {
    return refuse(RefusalCode::not_perfect,
                  text("expected one block below loop ", loop->var.name(), ", got several"));
  }
  for (const For* l : tile->loops) {
    if (Outcome o = require_serial(l); !o) return o;
    tile->vars.push_back(l->var);
  }
  if (tile->block->init) {
    return refuse(RefusalCode::no_match,
                  text("expected block ", tile->block->name, " without an init, got one with"));
  }
  if (uses_any(tile->block->predicate, tile->loops)) {
    return refuse(RefusalCode::no_match, text("expected no condition on the loops of the tile, got ",
                                              to_text(tile->block->predicate)));
  }
  return applied();
}

// The update of a block with its axes replaced by what they are bound to.
std::optional<Update> bound_update(const Block& block) {
  std::optional<Update> update = as_update(block);
  if (!update) return std::nullopt;
  VarMap map;
  for (size_t i = 0; i < block.axes.size(); ++i)
    map[block.axes[i].var.get()] = block.values[i];
  for (Expr& e : update->indices)
    e = substitute(e, map);
  update->operand = substitute(update->operand, map);
  return update;
}

// One side of a comparison: loops to step along, and what is known about all loops around.
struct Side {
  std::vector<Var> loops;
  Analyzer analyzer;
};

// Elements by which an access moves along a loop: a number, or that many times what a dimension of symbolic length (and all behind
// it) has, which may be any number.
struct Stride {
  int64_t count = 0;
  const ExprNode* row = nullptr;
};

// Along each loop; empty if that is not constant. Dimensions of known length count together: an index may run over into the next.
std::optional<std::vector<Stride>> strides(const Buffer& buffer, const std::vector<Expr>& indices, const Side& side) {
  std::vector<Stride> out(side.loops.size());
  Stride unit{1, nullptr};
  Expr within = 0;
  auto add = [&] {
    std::optional<LinearForm> form = linear_form(side.analyzer.simplify(within), side.loops);
    if (!form) return false;
    for (size_t i = 0; i < side.loops.size(); ++i) {
      const int64_t by = form->coefficients[i];
      if (by == 0) continue;
      if (out[i].count != 0 && out[i].row != unit.row) return false;
      out[i] = {out[i].count + by, unit.row};
    }
    return true;
  };
  for (size_t d = indices.size(); d-- > 0;) {
    within = within + indices[d] * unit.count;
    int64_t extent = 0;
    if (as_int(buffer.shape()[d], &extent)) {
      unit.count *= extent;
    } else if (d > 0) {
      if (!add()) return std::nullopt;
      within = 0;
      unit = {1, buffer.shape()[d].get()};
    }
  }
  return add() ? std::optional(out) : std::nullopt;
}

// Compares expressions node by node, accesses by their strides, and pairs the buffers.
class Matcher {
 public:
  // is_on_grid: what a tile is read from is of one block of threads in the end, and has rows of constant length there.
  Matcher(Side pattern, Side tile, bool is_on_grid)
      : pattern_(std::move(pattern)), tile_(std::move(tile)), is_on_grid_(is_on_grid) {}

  bool match_access(const Buffer& p, const std::vector<Expr>& p_indices, const Buffer& b,
                    const std::vector<Expr>& indices) {
    if (p.element() != b.element()) return false;
    auto expected = strides(p, p_indices, pattern_), got = strides(b, indices, tile_);
    if (!expected || !got) return false;
    for (size_t i = 0; i < expected->size(); ++i) {
      const Stride &want = (*expected)[i], &have = (*got)[i];
      if (have.row != nullptr && !is_on_grid_) return false;
      if (want.row == nullptr) {
        if (have.row != nullptr || want.count != have.count) return false;
        continue;
      }
      if (have.count == 0 || have.count % want.count != 0) return false;
      const Stride row{have.count / want.count, have.row};
      auto [it, is_new] = rows_.emplace(want.row, row);
      if (!is_new && (it->second.count != row.count || it->second.row != row.row)) return false;
    }
    auto [it, is_new] = buffers_.emplace(p.get(), b);
    return is_new || it->second.same_as(b);
  }

  bool match(const Expr& p, const Expr& e) {
    if (p.kind() != e.kind() || !(p.type() == e.type())) return false;
    if (const auto* load = p.as<Load>()) {
      const auto* other = e.as<Load>();
      return !other->predicate.defined() &&
             match_access(load->buffer, load->indices, other->buffer, other->indices);
    }
    if (const auto* c = p.as<Cast>()) return match(c->value, e.as<Cast>()->value);
    if (const auto* b = p.as<Binary>()) {
      const auto* other = e.as<Binary>();
      if (b->op != other->op) return false;
      BufferMap before = buffers_;
      std::map<const ExprNode*, Stride> rows_before = rows_;
      if (match(b->a, other->a) && match(b->b, other->b)) return true;
      buffers_ = std::move(before);
      rows_ = std::move(rows_before);
      bool commutes = b->op == BinaryOp::add || b->op == BinaryOp::mul;
      return commutes && match(b->a, other->b) && match(b->b, other->a);
    }
    return structurally_equal(p, e);
  }

 private:
  const Side pattern_, tile_;
  const bool is_on_grid_;
  BufferMap buffers_;
  std::map<const ExprNode*, Stride> rows_;  // lengths; looked up only
};

// Of the loop over warps, the first of the side's, the instruction is of four: which four they are is fixed.
void four_at_a_time(const std::vector<const For*>& around, Side* side, Update* update) {
  const Var all = side->loops[0], warp("warp"), group("group");
  auto it = std::find_if(around.begin(), around.end(), [&](const For* l) { return l->var.same_as(all); });
  side->loops[0] = warp;
  side->analyzer.bind(warp, 0, 4);
  side->analyzer.bind(group, 0, floor_div((*it)->extent, 4));
  const VarMap map = {{all.get(), Expr(group) * 4 + warp}};
  for (Expr& e : update->indices)
    e = substitute(e, map);
  update->operand = substitute(update->operand, map);
}

Outcome check_match(const Func& f, const Instruction& instruction, const Tile& tile) {
  std::vector<BlockSite> sites = block_sites(instruction.semantics.body);
  const BlockSite& pattern = sites[0];
  std::vector<Var> loops;
  std::vector<std::string> expected, got;
  for (const For* l : pattern.loops) {
    loops.push_back(l->var);
    if (loops.size() > tile.threads.size()) expected.push_back(to_text(l->extent));
  }
  for (const For* l : tile.loops)
    got.push_back(to_text(l->extent));
  if (expected != got) {
    return refuse(RefusalCode::no_match, text("expected loops of extents ", list_text(expected), " for ",
                                              instruction.name, ", got ", list_text(got)));
  }
  std::optional<Update> want = bound_update(*pattern.block), have = bound_update(*tile.block);
  std::vector<const For*> around = loops_around(f.body, tile.block);
  Side side{tile.all(), analyzer_at(f, around)};
  if (have && instruction.mma && is_wgmma(*instruction.mma)) four_at_a_time(around, &side, &*have);
  Matcher matcher({loops, analyzer_at(instruction.semantics, pattern.loops)}, std::move(side),
                  instruction.mma.has_value());
  bool same = have && want->op == have->op &&
              matcher.match_access(want->buffer, want->indices, have->buffer, have->indices) &&
              matcher.match(want->operand, have->operand);
  if (!same) {
    return refuse(RefusalCode::no_match,
                  text("expected the update of ", instruction.name, ", got ", to_text(tile.block->body)));
  }
  return applied();
}

// The block with the tile's loops inside; each axis is bound to its value in the tile's first iteration.
Stmt blockize(const Func& f, const Tile& tile, const std::string& instruction, Outcome* outcome) {
  Block* block = tile.block->copy();
  Stmt owner = handle(block);
  VarMap first, inner, axes;
  for (const For* l : tile.loops) {
    first[l->var.get()] = l->min;
    inner[l->var.get()] = Var(l->var.name());
  }
  for (size_t i = 0; i < block->axes.size(); ++i) {
    std::optional<LinearForm> form = linear_form(simplify(block->values[i]), tile.vars);
    if (!form) {
      *outcome = refuse(RefusalCode::not_affine,
                        text("expected axis ", block->axes[i].var.name(), " linear in the tile's loops, got ",
                             to_text(block->values[i])));
      return nullptr;
    }
    Expr offset = 0;
    for (size_t l = 0; l < tile.vars.size(); ++l) {
      offset = offset + inner[tile.vars[l].get()] * form->coefficients[l];
    }
    axes[block->axes[i].var.get()] = block->axes[i].var + offset;
    block->values[i] = form->rest;
  }
  Stmt body = substitute(block->body, axes);
  for (size_t i = tile.loops.size(); i-- > 0;) {
    const For* l = tile.loops[i];
    Annotations annotations = l->annotations;
    if (i == 0) annotations["instruction"] = instruction;
    body = For::make(Var(inner[l->var.get()].as<VarNode>()), l->min, l->extent, l->loop, body, annotations);
  }
  block->body = body;
  block->annotations["instruction"] = instruction;
  Stmt made = make_block(block);
  widen_regions(f, block);
  return made;
}

}  // namespace

Outcome apply_step(const Tensorize& step, Schedule& schedule) {
  const Func& f = schedule.func();
  const For* loop = schedule.find_loop(step.loop);
  if (loop == nullptr) return refuse_loop(step.loop);
  const Instruction* instruction = find_instruction(step.instruction);
  if (instruction == nullptr) {
    return refuse(RefusalCode::bad_argument,
                  text("expected the name of an instruction, got \"", step.instruction, "\""));
  }
  Tile tile;
  if (Outcome o = find_tile(loop, &tile); !o) return o;
  if (Outcome o = find_threads(f, loop, *instruction, &tile); !o) return o;
  if (Outcome o = check_match(f, *instruction, tile); !o) return o;
  Outcome outcome = applied();
  Stmt block = blockize(f, tile, step.instruction, &outcome);
  if (!outcome) return outcome;
  Func result = f;
  result.body = replace_stmt(f.body, loop, block);
  return commit(schedule, std::move(result));
}

}  // namespace mcc::tensor
