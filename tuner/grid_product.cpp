#include "tuner/grid_product.h"

#include <algorithm>

#include "tensor/product_time.h"
#include "tensor/schedule/legality.h"
#include "tensor/schedule/tree.h"
#include "tensor/text.h"
#include "tensor/visit.h"
#include "tuner/groups.h"
#include "tuner/tile_parts.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

bool is_byte(ElementType type) { return type == ElementType::u8 || type == ElementType::i8; }

// The type of both factors below their conversions to the sum's type; of bytes summed in i32, that of the factor from buffer a.
ElementType factor_of(const Block& block, const Buffer& of_a) {
  const auto* store = block.body.as<Store>();
  const auto* sum = store ? store->value.as<Binary>() : nullptr;
  const auto* term = sum ? sum->b.as<Binary>() : nullptr;
  const auto* product = term && term->op == BinaryOp::mul ? term : sum ? sum->a.as<Binary>() : nullptr;
  const ElementType wide = store ? store->buffer.element() : ElementType::f32;
  if (!product || product->op != BinaryOp::mul) return wide;
  const auto *a = product->a.as<Cast>(), *b = product->b.as<Cast>();
  if (!a || !b) return wide;
  bool is_a = false;
  for_each_expr(Evaluate::make(a->value), [&](const Expr& e) {
    const auto* load = e.as<Load>();
    is_a |= load && load->buffer.same_as(of_a);
  });
  if (!is_a) std::swap(a, b);
  const ElementType left = a->value.element(), right = b->value.element();
  if (is_byte(left)) return wide == ElementType::i32 && right == ElementType::i8 ? left : wide;
  return left == right ? left : wide;
}

// Blocks whose results the block alone reads.
template <class Wanted>
std::vector<std::string> made_for(const Schedule& s, const BlockInfo& info, const Wanted& is_wanted) {
  std::vector<std::string> out;
  for (const std::string& name : s.block_names()) {
    const std::optional<BlockInfo> made = analyze(s, name);
    const bool is_read = made && std::any_of(info.loads.begin(), info.loads.end(), [&](const Access& l) {
                           return l.buffer.same_as(made->store.buffer);
                         });
    if (is_read && made->is_injective && is_wanted(*made) && !is_output(s.func(), made->store.buffer) &&
        s.consumers(name) == std::vector<std::string>{info.name})
      out.push_back(name);
  }
  return out;
}

// Those that only copy.
std::vector<std::string> copies_of(const Schedule& s, const BlockInfo& info) {
  return made_for(s, info, [](const BlockInfo& copy) {
    return copy.is_movement && copy.loads.size() == 1 && !fills_words(copy);
  });
}

}  // namespace

std::vector<std::string> unpacked_for(const Schedule& s, const BlockInfo& info) {
  return made_for(s, info, [&](const BlockInfo& made) {
    return !made.is_movement && is_made_of_weights(s.func(), made);
  });
}

const char* Product::factors_name() const {
  switch (factor) {
    case ElementType::f16:
      return "f16";
    case ElementType::bf16:
      return "bf16";
    case ElementType::tf32:
      return "tf32";
    case ElementType::i8:
      return "i8";
    case ElementType::u8:
      return "u8i8";
    default:
      return nullptr;
  }
}

bool fills_words(const BlockInfo& copy) {
  constexpr int64_t kWord = 4;
  auto has_words = [](const Buffer& b) {
    int64_t row = 0;
    return b.rank() > 0 && as_int(b.shape().back(), &row) && row % kWord == 0;
  };
  return copy.loads.size() == 1 && byte_size(copy.store.buffer.element()) == 1 && has_words(copy.store.buffer) &&
         !has_words(copy.loads[0].buffer);
}

namespace {

// What a tile takes to begin and to end is made good by so many products of a column of it, and of a multiprocessor: a result a thread
// or a warp is there at once where there is less to do.
bool is_worth_batches(const BlockInfo& info, const Repetition& groups, const Gpu& gpu) {
  constexpr int64_t kOfColumn = 32, kOfMultiprocessor = 1 << 14;
  return groups.width * info.reduce >= kOfColumn && info.iterations() >= kOfMultiprocessor * gpu.multiprocessors;
}

}  // namespace

bool separate_grid_groups(Draft& draft, const std::string& name) {
  const std::optional<BlockInfo> info = analyze(draft.schedule, name);
  if (!info || !info->is_contraction || info->is_nested) return false;
  const std::optional<Repetition> groups = repeated_elements(*draft.schedule.find_block(name), *info);
  return groups && is_worth_batches(*info, *groups, draft.target.gpu) &&
         separate_groups(draft, name, *groups);
}

std::optional<Product> as_product(const Schedule& s, const std::string& name, bool may_repeat_rows) {
  std::optional<BlockInfo> info = analyze(s, name);
  if (!info || !info->is_contraction || info->loads.size() != 2 || info->is_nested) return std::nullopt;
  const Buffer of[2] = {info->loads[0].buffer, info->loads[1].buffer};
  if (of[0].same_as(of[1]) || bit_width(info->store.buffer.element()) != 32) return std::nullopt;
  if (s.loops_of(name).size() != info->axes.size()) return std::nullopt;
  // By what the block itself reads: an operand's copy may repeat what it copies, and then has axes that this has not.
  const BlockInfo own = *info;
  if (repeated_elements(*s.find_block(name), own)) return std::nullopt;
  Product p;
  p.block = name;
  if (std::vector<std::string> copies = copies_of(s, *info); !copies.empty()) {
    Schedule seen = s;
    bool are_inlined = true;
    for (const std::string& copy : copies)
      are_inlined &= static_cast<bool>(seen.apply(ComputeInline{copy}));
    std::optional<BlockInfo> through = are_inlined ? analyze(seen, name) : std::nullopt;
    if (through && through->loads.size() == 2 && through->axes.size() == info->axes.size()) {
      info = through;
      p.copies = copies;
    }
  }
  const std::vector<std::string> unpacked = unpacked_for(s, *info);
  p.copies.insert(p.copies.end(), unpacked.begin(), unpacked.end());
  const Access &x = info->loads[0], &y = info->loads[1];
  Side of_x, of_y, of_none;
  for (size_t n = 0; n < info->axes.size(); ++n) {
    bool moves_x = own.loads[0].strides[n] != 0, moves_y = own.loads[1].strides[n] != 0;
    if ((!moves_x && !moves_y && !may_repeat_rows) || info->axes[n].extent < 1) return std::nullopt;
    if (info->axes[n].is_reduce && !(moves_x && moves_y)) return std::nullopt;
    Side& side = info->axes[n].is_reduce ? p.k
                 : moves_x && moves_y    ? p.g
                 : moves_x               ? of_x
                 : moves_y               ? of_y
                                         : of_none;
    side.axes.push_back(n);
    side.extent *= info->axes[n].extent;
  }
  if (!of_none.is_empty()) {
    if (of_x.is_empty() == of_y.is_empty()) return std::nullopt;
    (of_x.is_empty() ? of_x : of_y) = of_none;
  }
  if (of_x.is_empty() || of_y.is_empty() || p.k.is_empty() || p.g.extent > 65535) return std::nullopt;
  auto is_contiguous = [&](const Side& side) { return info->store.strides[side.axes.back()] == 1; };
  if (!is_contiguous(of_x) && !is_contiguous(of_y)) return std::nullopt;
  bool x_is_b = is_contiguous(of_x);
  auto operand = [&](const Access& access, const Side& side) {
    Operand o{&access == &x ? of[0] : of[1]};
    int64_t along_k = access.strides[p.k.axes.back()], along_side = access.strides[side.axes.back()];
    o.is_along_k = along_k == 1 && along_side != 1;
    o.is_computed = std::any_of(unpacked.begin(), unpacked.end(), [&](const std::string& block) {
      return only_buffer_written(*s.find_block(block)).same_as(o.buffer);
    });
    // The inner axes that are one stretch of memory: one axis, or several.
    const Side& along = o.is_along_k ? p.k : side;
    int64_t stretch = 1;
    std::vector<size_t> inner;
    for (size_t n = along.axes.size(); n-- > 0 && access.strides[along.axes[n]] == stretch;) {
      inner.push_back(along.axes[n]);
      stretch *= info->axes[along.axes[n]].extent;
    }
    auto fits = [&](int64_t lanes) {
      size_t steps = 0;
      bool is_aligned = stretch % lanes == 0;
      for (size_t n = 0; n < info->axes.size(); ++n) {
        // Every row of vectors begins at a multiple of their length; a window along it does not.
        const bool is_inside = std::find(inner.begin(), inner.end(), n) != inner.end();
        is_aligned &= is_inside || access.strides[n] % lanes == 0;
        steps += access.strides[n] == 1;
      }
      return is_aligned && steps == 1;
    };
    const int bits = bit_width(access.buffer.element());
    for (int64_t lanes = 128 / std::max(bits, 8); lanes >= 4 && bits <= 32 && o.vector == 1; lanes /= 2) {
      if (fits(lanes)) o.vector = lanes;
    }
    return o;
  };
  p.a = x_is_b ? operand(y, of_y) : operand(x, of_x);
  p.b = x_is_b ? operand(x, of_x) : operand(y, of_y);
  for (size_t n = 1; n < p.k.axes.size(); ++n)
    p.period *= info->axes[p.k.axes[n]].extent;
  p.i.axes = (x_is_b ? of_y : of_x).axes;
  p.i.extent = (x_is_b ? of_y : of_x).extent;
  p.j.axes = (x_is_b ? of_x : of_y).axes;
  p.j.extent = (x_is_b ? of_x : of_y).extent;
  p.is_in_rows = !p.g.is_empty() && info->store.strides[p.g.axes.back()] == p.j.extent && p.i.extent > 1;
  p.factor = factor_of(*s.find_block(name), of[x_is_b ? 1 : 0]);
  return p;
}

std::optional<Product> as_product(const Draft& draft, const std::string& name) {
  std::optional<Product> product = as_product(draft.schedule, name);
  if (product) product->is_open = !draft.open_loops.empty();
  return product;
}

namespace {

// Dimension d of x[.., k // c, k %% c, ..]: the name of k.
std::optional<std::string> split_axis(const Load& read, size_t d) {
  auto at = [&](size_t e, BinaryOp op, Expr* divisor) -> const VarNode* {
    const auto* n = e < read.indices.size() ? read.indices[e].as<Binary>() : nullptr;
    if (!n || n->op != op) return nullptr;
    *divisor = n->b;
    return n->a.as<VarNode>();
  };
  for (size_t first : {d, d - 1}) {
    Expr by, of;
    const VarNode *quotient = at(first, BinaryOp::floor_div, &by), *rest = at(first + 1, BinaryOp::floor_mod, &of);
    if (quotient && quotient == rest && structurally_equal(by, of) &&
        structurally_equal(of, read.buffer.shape()[first + 1]))
      return quotient->name;
  }
  return std::nullopt;
}

bool is_quotient(const Expr& e) { return e.as<Binary>() && e.as<Binary>()->op == BinaryOp::floor_div; }

}  // namespace

// An elementwise block that alone reads the result, and the axes of it that walk the block's axes. What else it reads has to be there
// before the result is.
void ProductAxes::find_consumer() {
  if (is_output(s_.func(), result_)) return;
  std::vector<std::string> consumers = s_.consumers(p_.block);
  std::optional<BlockInfo> info = consumers.size() == 1 ? analyze(s_, consumers[0]) : std::nullopt;
  if (!info || !info->is_injective || info->spatial != p_.g.extent * p_.p.extent * p_.i.extent * p_.j.extent)
    return;
  const std::vector<std::string> names = s_.block_names(), producers = s_.producers(consumers[0]);
  const bool waits = std::any_of(std::find(names.begin(), names.end(), p_.block) + 1, names.end(), [&](const std::string& later) {
    return std::find(producers.begin(), producers.end(), later) != producers.end();
  });
  if (waits) return;
  const Block& block = *s_.find_block(p_.block);
  const Block& consumer = *s_.find_block(consumers[0]);
  const Load* read = nullptr;
  for_each_expr(consumer.body, [&](const Expr& e) {
    const auto* l = e.as<Load>();
    if (l && l->buffer.same_as(result_)) read = l;
  });
  const auto* store = block.body.as<Store>();
  if (!read || !store) return;
  std::vector<std::string> axes(block.axes.size());
  std::vector<bool> is_known(block.axes.size());
  for (size_t d = 0; d < store->indices.size(); ++d) {
    if (store->indices[d].as<IntImm>()) continue;
    for (size_t n = 0; n < block.axes.size(); ++n) {
      if (!store->indices[d].same_as(block.axes[n].var)) continue;
      if (const auto* var = read->indices[d].as<VarNode>()) {
        axes[n] = var->name;
        is_known[n] = true;
      } else if (std::optional<std::string> var = split_axis(*read, d)) {
        // Of batches side by side and what is in them one axis is made: that of the columns.
        const bool is_batch = std::find(p_.g.axes.begin(), p_.g.axes.end(), n) != p_.g.axes.end();
        if (p_.g.axes.size() != 1 || p_.j.axes.size() != 1 || is_batch != is_quotient(read->indices[d])) return;
        if (!is_batch) axes[n] = *var;
        is_known[n] = true;
      }
    }
  }
  for (const Side* side : {&p_.g, &p_.p, &p_.i, &p_.j}) {
    for (size_t n : side->axes) {
      if (!is_known[n]) return;
    }
  }
  consumer_ = consumers[0];
  consumer_axes_ = axes;
}

void ProductAxes::fuse_side(const Side& side) {
  if (side.is_empty()) return;
  fuse(p_.block, axes_, side);
  if (!consumer_.empty() && side.name != "k") fuse(consumer_, consumer_axes_, side);
}
void ProductAxes::fuse(const std::string& block, const std::vector<std::string>& names, const Side& side) {
  std::vector<std::string> axes;
  for (size_t n : side.axes) {
    if (!names[n].empty()) axes.push_back(names[n]);
  }
  if (axes.empty()) return;
  // A single axis gets the name of its side, too: all loops have one name from then on.
  must_step(d_, FuseAxes{block, axes, side.name});
}

std::vector<std::string> ProductAxes::with_batch(std::vector<std::string> axes) const {
  if (!p_.p.is_empty()) axes.insert(axes.begin(), "p");
  if (has_batch()) axes.insert(axes.begin(), "g");
  return axes;
}

void ProductAxes::fuse_sides() {
  result_ = only_buffer_written(*s_.find_block(p_.block));
  for (const Axis& axis : s_.find_block(p_.block)->axes)
    axes_.push_back(axis.var.name());
  find_consumer();
  for (const Side* side : {&p_.g, &p_.p, &p_.i, &p_.j, &p_.k})
    fuse_side(*side);
}

void ProductAxes::inline_copies() {
  for (const std::string& copy : p_.copies)
    try_step(d_, ComputeInline{copy});
}

bool ProductAxes::only_copies(const std::string& block, ElementType type) const {
  const Block* copy = s_.find_block(block);
  const auto* store = copy ? copy->body.as<Store>() : nullptr;
  Expr value = store ? store->value : Expr();
  while (const auto* choice = value.defined() ? value.as<Select>() : nullptr)
    value = choice->on_true;
  return value.defined() && value.as<Load>() && value.element() == type;
}

int64_t ProductAxes::most_dealt() const {
  constexpr int64_t kBytes = 16, kMost = 4;
  return std::min(kBytes / byte_size(only_buffer_written(*s_.find_block(last_)).element()) / 2, kMost);
}

void ProductAxes::separate_result() {
  acc_ = p_.block + ".acc";
  must_step(d_, Reindex{p_.block, result_.name(), "global", acc_, with_batch({"i", "j"})});
  last_ = acc_;
  if (consumer_.empty()) return;
  must_step(d_, ComputeInline{acc_});
  last_ = consumer_;
}

namespace {

// Parts of a sum, each of which has blocks of its own. length: steps of the axis that is divided, of which the last part may have fewer.
struct Parts {
  int64_t count = 1, length = 0;
};

// Into how many parts the sum is divided: where a result has few tiles and long sums. longest: the extent of the axis that is divided.
Parts choose_parts(Draft& draft, const Product& p, int64_t longest, const ProductTime& time_of, bool own_launch) {
  const Gpu& gpu = draft.target.gpu;
  std::vector<Parts> all{{1, longest}};
  Parts best = all.front();
  double best_time = time_of(p);
  // True where there may be more parts.
  auto add = [&](const Parts& parts, double worthwhile) {
    Product divided = p;
    divided.g.extent *= parts.count;
    divided.k.extent = p.k.extent / longest * parts.length;
    if (divided.g.extent > 65535) return false;
    const double time = time_of(divided) + parts_time(divided.g.extent * p.i.extent * p.j.extent, gpu, own_launch);
    all.push_back(parts);
    if (time >= worthwhile * best_time) return true;
    best = parts;
    best_time = time;
    return true;
  };
  constexpr int64_t kMost = 32;
  constexpr double kWorthwhile = 0.95;  // parts take memory, and their sum is another one
  int64_t n = 2;
  while (n <= kMost && longest % n == 0 && p.k.extent / n >= gpu.warp && add({n, longest / n}, kWorthwhile))
    n *= 2;
  // Of a depth that these do not divide (an odd one): as many warps' steps each, the last part filled up with zeros. Copies of bytes
  // that do so would stay kernels of their own (fills_words).
  constexpr double kWorthwhileFilledUp = 0.8;  // each element that is fetched has a condition
  const bool has_bytes = byte_size(p.a.buffer.element()) == 1 || byte_size(p.b.buffer.element()) == 1;
  const bool can_fill_up = p.k.axes.size() == 1 && p.copies.empty() && !has_bytes && longest % n != 0;
  for (; can_fill_up && n <= kMost && longest / n >= gpu.warp; n *= 2) {
    const int64_t length = round_up64(ceil_div64(longest, n), gpu.warp), count = ceil_div64(longest, length);
    if (count <= all.back().count) continue;
    if (!add({count, length}, kWorthwhileFilledUp)) break;
  }
  if (all.size() == 1) return best;
  std::vector<int64_t> options;
  for (const Parts& parts : all)
    options.push_back(parts.count);
  const int64_t chosen = draft.decide.choose(p.block + ".parts", options, best.count);
  return *std::find_if(all.begin(), all.end(), [&](const Parts& parts) { return parts.count == chosen; });
}

// Zeros behind the sum's elements, up to a multiple of so many: copies of the operands have them, which whoever multiplies inlines.
void fill_up_sum(Draft& draft, const Product& p, int64_t multiple) {
  Schedule& s = draft.schedule;
  std::vector<std::string> names;
  for (const Axis& axis : s.find_block(p.block)->axes)
    names.push_back(axis.var.name());
  for (const auto& [operand, side, suffix] : {std::tuple{&p.a, &p.i, ".a"}, {&p.b, &p.j, ".b"}}) {
    std::vector<std::string> axes;
    for (const Side* of : {&p.g, side, &p.k}) {
      for (size_t n : of->axes)
        axes.push_back(names[n]);
    }
    must_step(draft, Reindex{p.block, operand->buffer.name(), "global", p.block + suffix, axes});
  }
  must_step(draft, PadEinsum{p.block, {names[p.k.axes[0]]}, {multiple}});
}

}  // namespace

std::string divide_sum(Draft& draft, const Product& p, const ProductTime& time_of, bool own_launch) {
  const BlockInfo info = *analyze(draft.schedule, p.block);
  // Windows are short: the channels, whether these come first or last.
  const size_t longest = *std::max_element(p.k.axes.begin(), p.k.axes.end(), [&](size_t a, size_t b) {
    return info.axes[a].extent < info.axes[b].extent;
  });
  const std::string loop = info.axes[longest].loop;
  int64_t extent = 0;
  if (!as_int(draft.schedule.find_loop(loop)->extent, &extent)) return p.block;
  const Parts parts = choose_parts(draft, p, extent, time_of, own_launch);
  const std::string part = p.block + ".part";
  // Where each step is a part, the loop itself goes outside: one of a single step would be left that no axis stands for.
  const bool is_whole = parts.count == extent, is_filled_up = parts.count * parts.length != extent;
  const std::string outer = is_whole ? loop : loop + ".part";
  std::vector<std::string> order = {outer};  // outside of the sum
  for (size_t n : p.k.axes) {
    if (n < longest) order.push_back(info.axes[n].loop);
  }
  const bool is_divided = parts.count > 1 && try_all(draft, {"sums in parts", p.block, "the sum as a whole"}, [&] {
                            if (is_filled_up) fill_up_sum(draft, p, parts.length);
                            // Of open sizes as many as there are steps for: each has its length.
                            const std::vector<int64_t> factors = is_filled_up
                                                                     ? std::vector<int64_t>{0, parts.length}
                                                                     : std::vector{parts.count, int64_t{0}};
                            if (!is_whole) must_step(draft, Split{loop, factors, {outer, loop}});
                            if (order.size() > 1) must_step(draft, Reorder{order});
                            must_step(draft, Rfactor{p.block, outer, part, 0});
                            if (!draft.refusal) return false;
                            const std::optional<Product> divided = as_product(draft.schedule, part);
                            return divided && (!is_filled_up || divided->copies.size() == 2);
                          });
  return is_divided ? part : p.block;
}

}  // namespace mcc::tuner
