// pad_einsum(block="mm", axes=["i", "j", "k"], multiples=[16, 8, 16])
//
//   for i in 20, k in 30: a: a[i, k] = x[i, k]
//   for k in 30, j in 5:  b: b[k, j] = w[k, j]
//   for i, j, k:          mm: c[i, j] += a[i, k] * b[k, j]
//   for i in 20, j in 5:  y[i, j] = c[i, j]
// becomes
//   for i in 32, k in 32: a: a[i, k] = select(i < 20 && k < 30, x[i, k], 0)
//   for k in 32, j in 8:  b: b[k, j] = select(k < 30 && j < 5, w[k, j], 0)
//   for i in 32, j in 8, k in 32: mm: c[i, j] += a[i, k] * b[k, j]
//   for i in 20, j in 5:  y[i, j] = c[i, j]
//
// and pad_einsum(block="conv", axes=["i"], multiples=[8])
//
//   for r in 22:       a: a[r] = x[r]
//   for i in 20, k in 3: conv: c[i] += a[i + k] * w[k]
//   for i in 20:       y[i] = c[i]
// becomes
//   for r in 26:       a: a[r] = select(r < 22, x[r], 0)
//   for i in 24, k in 3: conv: c[i] += a[i + k] * w[k]
//   for i in 20:       y[i] = c[i]
//
// 1. The block stands under loops of its own and is a sum of products of two operands, each a load (or a conversion of one). A reduce
//    axis that gets longer indexes both. An operand that an axis indexes which gets longer is an intermediate; that axis alone, and
//    whole, indexes one of its dimensions. Or it is a spatial axis of a known extent, and what indexes the dimension, of a known length, stays
//    within known bounds: the dimension gets as long as that takes.
// 2. Such an operand is made by one block, as one store at its own axes, and read by no other. That block stands under loops of
//    its own, too.
// 3. A result that an axis indexes which gets longer is an intermediate, indexed in the same way.
// 4. The axes are different spatial or reduce axes of the block; the multiples are 1 to 65536. An extent that only a run knows gets longer
//    unless it is known to be a multiple.
#include "tensor/schedule/legality.h"
#include "tensor/schedule/move.h"
#include "tensor/schedule/step.h"

namespace mcc::tensor {
namespace {

// The load that the operand is a conversion of; null for anything else.
const Load* load_of(const Expr& e) {
  const auto* cast = e.as<Cast>();
  const auto* load = cast ? cast->value.as<Load>() : e.as<Load>();
  return load && !load->predicate.defined() ? load : nullptr;
}

struct Padding {
  const Axis* axis = nullptr;
  Expr extent;  // then
};

class PadOperands {
 public:
  PadOperands(const Func& f, const BlockSite& site, std::vector<Padding> paddings)
      : f_(f), site_(site), paddings_(std::move(paddings)) {}

  Outcome check() {
    const Block& block = *site_.block;
    std::optional<Update> update = as_update(block);
    const auto* product = update ? update->operand.as<Binary>() : nullptr;
    bool is_sum = product && update->op == BinaryOp::add && product->op == BinaryOp::mul;
    for (const Expr& factor : is_sum ? std::vector<Expr>{product->a, product->b} : std::vector<Expr>()) {
      if (const Load* load = load_of(factor)) loads_.push_back(load);
    }
    if (loads_.size() != 2) {
      return refuse(RefusalCode::no_match, text("expected block ", block.name,
                                                " to sum products of two loads, got ", to_text(block.body)));
    }
    for (const Load* load : loads_) {
      if (!is_padded(load->indices)) continue;
      if (Outcome o = check_access(load->buffer, load->indices, true); !o) return o;
      if (Outcome o = check_producer(load->buffer); !o) return o;
    }
    if (loads_[0]->buffer.same_as(loads_[1]->buffer)) {
      return refuse(RefusalCode::no_match,
                    text("expected two operands, got ", loads_[0]->buffer.name(), " twice"));
    }
    for (const Padding& p : paddings_) {
      if (p.axis->kind != AxisKind::reduce) continue;
      for (const Load* load : loads_) {
        if (!is_index(load->indices, p.axis->var)) {
          return refuse(RefusalCode::no_match,
                        text("expected axis ", p.axis->var.name(), " to index both operands, got ",
                             to_text(product->a), " and ", to_text(product->b)));
        }
      }
    }
    result_ = update->buffer;
    result_indices_ = update->indices;
    return is_padded(result_indices_) ? check_access(result_, result_indices_, false) : applied();
  }

  Func apply() {
    Func out = f_;
    for (const Load* load : loads_) {
      if (is_padded(load->indices)) resize(load->buffer, load->indices);
    }
    if (is_padded(result_indices_)) resize(result_, result_indices_);
    for (Buffer& b : out.allocs) {
      if (auto it = resized_.find(b.get()); it != resized_.end()) b = it->second;
    }
    for (const BlockSite* producer : producers_)
      out.body = replace_stmt(out.body, producer->loops[0], padded_producer(*producer));
    Block* padded = site_.block->copy();
    std::vector<LoopSpec> loops;
    for (size_t n = 0; n < padded->axes.size(); ++n) {
      Axis& axis = padded->axes[n];
      axis.domain.extent = extent_of(axis.var, axis.domain.extent);
      loops.push_back({site_.loops[n]->var, axis.domain.extent});
    }
    out.body = replace_stmt(out.body, site_.loops[0], make_nest(loops, make_block(padded)));
    out.body = replace_buffers(out.body, resized_);
    return out;
  }

 private:
  static bool is_index(const std::vector<Expr>& indices, const Var& axis) {
    return std::any_of(indices.begin(), indices.end(), [&](const Expr& i) { return i.same_as(axis); });
  }
  Expr extent_of(const Expr& axis, const Expr& old) const {
    for (const Padding& p : paddings_) {
      if (p.axis->var.same_as(axis)) return p.extent;
    }
    return old;
  }

  bool is_padding(const Axis& axis) const {
    return std::any_of(paddings_.begin(), paddings_.end(), [&](const Padding& p) { return p.axis == &axis; });
  }
  bool is_padded(const Expr& index) const {
    return std::any_of(paddings_.begin(), paddings_.end(),
                       [&](const Padding& p) { return uses_var(index, p.axis->var); });
  }
  bool is_padded(const std::vector<Expr>& indices) const {
    return std::any_of(indices.begin(), indices.end(), [&](const Expr& i) { return is_padded(i); });
  }

  // The axis that alone, and whole, is the index of a dimension so long.
  bool is_whole_axis(const Expr& index, const Expr& length) const {
    return std::any_of(site_.block->axes.begin(), site_.block->axes.end(), [&](const Axis& a) {
      return a.var.same_as(index) && structurally_equal(a.domain.extent, length);
    });
  }

  // How long a dimension must be that spatial axes index which get longer, with others; empty: it is not known.
  std::optional<int64_t> window_length(const Expr& index, const Expr& length) const {
    int64_t known = 0;
    if (!as_int(length, &known)) return std::nullopt;
    Analyzer facts;
    for (const Axis& a : site_.block->axes) {
      const bool is_sum = a.kind != AxisKind::spatial && is_padding(a);
      if (is_sum && uses_var(index, a.var)) return std::nullopt;
      facts.bind(a.var, a.domain.min, extent_of(a.var, a.domain.extent));
    }
    const Interval bounds = facts.bounds(index);
    if (!bounds.low || *bounds.low < 0 || !bounds.high) return std::nullopt;
    return std::max(known, *bounds.high + 1);
  }

  Outcome check_access(const Buffer& buffer, const std::vector<Expr>& indices, bool may_have_windows) const {
    bool is_possible = is_intermediate(f_, buffer);
    for (size_t d = 0; d < indices.size(); ++d) {
      const Expr& length = buffer.shape()[d];
      is_possible &= !is_padded(indices[d]) || is_whole_axis(indices[d], length) ||
                     (may_have_windows && window_length(indices[d], length));
    }
    if (is_possible) return applied();
    return refuse(RefusalCode::no_match,
                  text("expected ", buffer.name(), " to be an intermediate indexed by whole axes of block ",
                       site_.block->name,
                       may_have_windows ? ", or by windows along spatial ones, of known sizes" : ""));
  }

  Outcome check_producer(const Buffer& buffer) {
    const BlockSite* producer = nullptr;
    int writers = 0;
    for (const BlockSite& other : sites_) {
      if (writes_buffer(*other.block, buffer)) {
        producer = &other;
        ++writers;
      }
      if (reads_buffer(*other.block, buffer) && other.block != site_.block) {
        return refuse(RefusalCode::dependence, text("expected block ", site_.block->name, " alone to read ",
                                                    buffer.name(), ", got ", other.block->name));
      }
    }
    const auto* store = writers == 1 ? producer->block->body.as<Store>() : nullptr;
    bool is_plain = store && !store->predicate.defined() && !producer->block->init &&
                    store->indices.size() == producer->block->axes.size();
    for (size_t d = 0; is_plain && d < store->indices.size(); ++d) {
      const Axis& axis = producer->block->axes[d];
      is_plain =
          store->indices[d].same_as(axis.var) && structurally_equal(axis.domain.extent, buffer.shape()[d]);
    }
    if (!is_plain) {
      return refuse(RefusalCode::not_injective, text("expected one block that stores ", buffer.name(),
                                                     " element by element at its own axes"));
    }
    if (Outcome o = require_own_loops(*producer); !o) return o;
    producers_.push_back(producer);
    return applied();
  }

  void resize(const Buffer& buffer, const std::vector<Expr>& indices) {
    std::vector<Expr> shape = buffer.shape();
    for (size_t d = 0; d < shape.size(); ++d) {
      if (!is_padded(indices[d])) continue;
      shape[d] = is_whole_axis(indices[d], shape[d]) ? extent_of(indices[d], shape[d])
                                                     : Expr(*window_length(indices[d], shape[d]));
    }
    resized_.emplace(buffer.get(),
                     Buffer(buffer.name(), buffer.element(), shape, buffer.scope(), buffer->alignment));
  }

  Stmt padded_producer(const BlockSite& site) const {
    const auto& store = *site.block->body.as<Store>();
    const Buffer& to = resized_.at(store.buffer.get());
    Block* padded = site.block->copy();
    std::vector<Expr> inside;
    std::vector<LoopSpec> loops;
    for (size_t d = 0; d < padded->axes.size(); ++d) {
      Axis& axis = padded->axes[d];
      if (!structurally_equal(axis.domain.extent, to.shape()[d]))
        inside.push_back(axis.var < axis.domain.extent);
      axis.domain.extent = to.shape()[d];
      loops.push_back({site.loops[d]->var, axis.domain.extent});
    }
    padded->body = Store::make(store.buffer, store.indices,
                               select(conjunction(inside), store.value, constant(store.value.type(), 0)));
    return make_nest(loops, make_block(padded));
  }

  const Func& f_;
  const BlockSite& site_;
  const std::vector<Padding> paddings_;
  const std::vector<BlockSite> sites_ = block_sites(f_.body);
  std::vector<const Load*> loads_;
  std::vector<const BlockSite*> producers_;
  Buffer result_;
  std::vector<Expr> result_indices_;
  BufferMap resized_;
};

}  // namespace

Outcome apply_step(const PadEinsum& step, Schedule& schedule) {
  const Func& f = schedule.func();
  std::vector<BlockSite> sites = block_sites(f.body);
  const BlockSite* site = find_site(sites, step.block);
  if (site == nullptr) return refuse_block(step.block);
  if (Outcome o = require_own_loops(*site); !o) return o;
  if (step.axes.size() != step.multiples.size()) {
    return refuse(RefusalCode::bad_argument, text("expected a multiple for each of ", step.axes.size(),
                                                  " axes, got ", step.multiples.size()));
  }
  constexpr int64_t kMost = 65536;
  const Analyzer facts = analyzer_at(f, {});
  std::vector<Padding> paddings;
  std::set<std::string> seen;
  for (size_t n = 0; n < step.axes.size(); ++n) {
    const std::vector<Axis>& axes = site->block->axes;
    auto axis =
        std::find_if(axes.begin(), axes.end(), [&](const Axis& a) { return a.var.name() == step.axes[n]; });
    int64_t known = 0;
    const int64_t multiple = step.multiples[n];
    if (axis == axes.end() || axis->kind == AxisKind::scan || !seen.insert(step.axes[n]).second ||
        multiple < 1 || multiple > kMost ||
        (as_int(axis->domain.extent, &known) && known > INT64_MAX - kMost)) {
      return refuse(RefusalCode::bad_argument,
                    text("expected different axes of block ", step.block, " and multiples of 1 to ", kMost,
                         ", got \"", step.axes[n], "\" and ", multiple));
    }
    const Expr& extent = axis->domain.extent;
    if (!facts.can_prove(floor_mod(extent, multiple) == Expr(0)))
      paddings.push_back({&*axis, facts.simplify(floor_div(extent + (multiple - 1), multiple) * multiple)});
  }
  PadOperands pad(f, *site, paddings);
  if (Outcome o = pad.check(); !o) return o;
  return commit(schedule, pad.apply());
}

}  // namespace mcc::tensor
