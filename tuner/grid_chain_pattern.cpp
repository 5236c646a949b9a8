// Which blocks are two products with rows between them, and what puts parts of their columns together.
#include <algorithm>
#include <utility>

#include "tensor/schedule/tree.h"
#include "tensor/visit.h"
#include "tuner/grid_chain.h"

namespace mcc::tuner {

using namespace tensor;

namespace {

bool is_in(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The one loop over steps that there is, with its blocks; empty where there are several, or blocks of another kind. rows: of axes
// about rows.
std::optional<Rolling> as_rolling(const Schedule& s, size_t rows) {
  Rolling r;
  std::vector<Buffer> made;
  Buffer elements;
  for (const std::string& name : s.block_names()) {
    const Block& block = *s.find_block(name);
    const std::vector<const For*> loops = s.loops_of(name);
    if (has_scan(block)) {
      const bool is_of_rows = block.axes.size() == 1 + rows, is_of_elements = block.axes.size() == 2 + rows;
      if (loops.size() != block.axes.size() || !analyze(s, name) || block.kind_of_steps() != AxisKind::scan ||
          !(is_of_rows || is_of_elements) || (!r.loop.empty() && r.loop != loops[0]->var.name()))
        return std::nullopt;
      r.loop = loops[0]->var.name();
      if (is_of_rows) {
        r.rows.push_back(name);
      } else if (!std::exchange(r.elements, name).empty()) {
        return std::nullopt;
      }
      made.push_back(only_buffer_written(block));
      if (is_of_elements) elements = made.back();
      continue;
    }
    if (std::none_of(made.begin(), made.end(), [&](const Buffer& b) { return reads_buffer(block, b); }))
      continue;
    std::string& last = reads_buffer(block, elements) ? r.last : r.last_of_rows;
    if (!std::exchange(last, name).empty()) return std::nullopt;
  }
  if (r.elements.empty() || r.last.empty()) return std::nullopt;
  const size_t blocks = block_sites(s.find_loop(r.loop)->body).size();
  return blocks == r.rows.size() + 1 ? std::optional(r) : std::nullopt;
}

// The product's axis that the recurrence's steps count, in what its block reads of the result.
std::optional<size_t> axis_of_steps(const Schedule& s, const std::string& product,
                                    const std::string& reader) {
  const auto* store = s.find_block(product)->body.as<Store>();
  const Block& block = *s.find_block(reader);
  std::optional<size_t> found;
  for_each_expr(block.body, [&](const Expr& e) {
    const auto* load = e.as<Load>();
    if (!load || !store || !load->buffer.same_as(store->buffer)) return;
    for (size_t d = 0; d < load->indices.size(); ++d)
      if (load->indices[d].same_as(block.axes[0].var)) found = d;
  });
  return found;
}

// Rows of several axes (heads that have keys in common, and their queries) of which the last one has whole tiles by itself: the others are
// batches, which read the same columns.
void separate_long_rows(Product& p, const BlockInfo& info) {
  constexpr int64_t kWholeTiles = 64;
  if (p.i.axes.size() < 2 || info.axes[p.i.axes.back()].extent % kWholeTiles != 0) return;
  while (p.i.axes.size() > 1) {
    const size_t axis = p.i.axes.front();
    p.i.axes.erase(p.i.axes.begin());
    p.g.axes.push_back(axis);
    p.i.extent /= info.axes[axis].extent;
    p.g.extent *= info.axes[axis].extent;
  }
  std::sort(p.g.axes.begin(), p.g.axes.end());
}

// Whether the block's results lie as its axes go: one dimension for each spatial one.
bool stores_at_axes(const Block& block) {
  const auto* store = block.body.as<Store>();
  size_t d = 0;
  for (const Axis& axis : block.axes) {
    if (axis.kind != AxisKind::spatial) continue;
    if (!store || d == store->indices.size() || !store->indices[d].same_as(axis.var)) return false;
    ++d;
  }
  return store && d == store->indices.size();
}

}  // namespace

bool Rolling::has(const std::string& block) const {
  return is_in(rows, block) || block == elements || block == last || block == last_of_rows;
}

std::optional<ProductChain> as_chain(const Schedule& s) {
  ProductChain c;
  std::vector<std::string> names = s.block_names(), products;
  const bool has_steps = std::any_of(names.begin(), names.end(),
                                     [&](const std::string& name) { return has_scan(*s.find_block(name)); });
  for (const std::string& name : names) {
    std::optional<Product> product = as_product(s, name, has_steps);
    if (product) products.push_back(name);
  }
  if (products.size() != 2) return std::nullopt;
  c.first = *as_product(s, products[0], has_steps);
  c.second = *as_product(s, products[1], has_steps);
  const BlockInfo first = *analyze(s, products[0]), second = *analyze(s, products[1]);
  // Parts of the columns that have rows of their own: an axis of the first product's right operand alone.
  for (size_t n : c.second.g.axes) {
    auto part = std::find(c.first.j.axes.begin(), c.first.j.axes.end(), n);
    if (part == c.first.j.axes.end()) continue;
    const int64_t parts = first.axes[n].extent;
    c.first.j.axes.erase(part);
    c.first.j.extent /= parts;
    c.first.g.axes.push_back(n);
    c.first.g.extent *= parts;
  }
  std::sort(c.first.g.axes.begin(), c.first.g.axes.end());
  const size_t shared = c.first.g.axes.size() + c.first.i.axes.size();
  if (has_steps) {
    c.rolling = as_rolling(s, shared - 1);
    const std::optional<size_t> p =
        c.rolling ? axis_of_steps(s, products[1], c.rolling->elements) : std::nullopt;
    if (!p || c.first.i.is_empty() || c.second.j.axes.size() != 1) return std::nullopt;
    for (Product* product : {&c.first, &c.second}) {
      const auto at = std::find(product->g.axes.begin(), product->g.axes.end(), *p);
      if (at == product->g.axes.end()) return std::nullopt;
      product->g.axes.erase(at);
      product->p = {"p", {*p}, (product == &c.first ? first : second).axes[*p].extent};
      product->g.extent /= product->p.extent;
    }
    separate_long_rows(c.first, first);
    separate_long_rows(c.second, second);
  }
  if (c.first.g.axes != c.second.g.axes || c.first.i.axes != c.second.i.axes || c.first.j.axes.size() != 1 ||
      c.second.k.axes.size() != 1 || c.first.j.extent != c.second.k.extent || c.first.g.extent > 65535)
    return std::nullopt;
  // The axes of rows lead, in both.
  for (size_t n = 0; n < shared; ++n) {
    if (first.axes[n].is_reduce || second.axes[n].is_reduce ||
        first.axes[n].extent != second.axes[n].extent || n == c.first.j.axes[0] || n == c.second.j.axes[0])
      return std::nullopt;
  }
  if (is_output(s.func(), first.store.buffer)) return std::nullopt;
  // What depends on the first product, up to the second: about its rows, element by element or as a whole. Behind the second
  // anything that reads its result, and of the rows what is about them as a whole.
  std::vector<Buffer> made{first.store.buffer}, elements{first.store.buffer}, behind;
  auto reads_any = [&](const BlockInfo& b, const std::vector<Buffer>& buffers) {
    return std::any_of(b.loads.begin(), b.loads.end(), [&](const Access& l) {
      return std::any_of(buffers.begin(), buffers.end(), [&](const Buffer& m) { return l.buffer.same_as(m); });
    });
  };
  const int64_t columns = c.first.j.extent;
  bool is_after = false;
  for (const std::string& name : names) {
    const bool is_rolled = c.rolling && c.rolling->has(name);
    if (name == products[0] || is_rolled) continue;
    std::optional<BlockInfo> info = analyze(s, name);
    if (!info) return std::nullopt;
    if (name == products[1] || reads_any(*info, behind)) {
      const bool is_epilogue = s.consumers(products[1]) == std::vector<std::string>{name} && info->is_injective &&
                               info->spatial == second.spatial;
      if (name != products[1] && !is_epilogue && reads_any(*info, elements)) return std::nullopt;
      is_after = true;
      behind.push_back(info->store.buffer);
      continue;
    }
    if (!reads_any(*info, made)) continue;
    made.push_back(info->store.buffer);
    if (is_output(s.func(), info->store.buffer) || info->is_nested || info->axes.size() < shared)
      return std::nullopt;
    for (size_t n = 0; n < shared; ++n) {
      if (info->axes[n].is_reduce || info->axes[n].extent != first.axes[n].extent) return std::nullopt;
    }
    RowBlock row{name, RowBlock::Kind::scalar, is_after};
    if (info->axes.size() == shared + 1 && info->axes[shared].extent == columns) {
      if (!info->is_reduction && !info->is_injective) return std::nullopt;
      if (info->is_reduction && (info->is_contraction || info->element_bits != 32)) return std::nullopt;
      row.kind = info->is_reduction ? RowBlock::Kind::reduction : RowBlock::Kind::map;
      if (!info->is_reduction) elements.push_back(info->store.buffer);
    } else if (info->axes.size() != shared || !info->is_injective) {
      return std::nullopt;
    }
    c.between.push_back(row);
  }
  // What is to be one axis in memory, too.
  if (c.first.i.axes.size() > 1) {
    std::vector<std::string> makers{products[0]};
    for (const RowBlock& b : c.between)
      makers.push_back(b.name);
    if (c.rolling) {
      makers.insert(makers.end(), c.rolling->rows.begin(), c.rolling->rows.end());
      makers.push_back(c.rolling->elements);
    }
    const bool is_plain = std::all_of(makers.begin(), makers.end(), [&](const std::string& name) {
      return stores_at_axes(*s.find_block(name));
    });
    const bool is_led_by_batches = c.first.g.is_empty() || c.first.g.axes.back() < c.first.i.axes.front();
    if (!is_plain || (c.rolling && !is_led_by_batches)) return std::nullopt;
  }
  const Buffer taken = c.second.a.buffer;
  const bool is_fed = std::any_of(c.between.begin(), c.between.end(), [&](const RowBlock& b) {
    return b.kind == RowBlock::Kind::map && analyze(s, b.name)->store.buffer.same_as(taken);
  });
  const bool is_independent = std::none_of(made.begin(), made.end(), [&](const Buffer& m) {
    return m.same_as(c.first.a.buffer) || m.same_as(c.first.b.buffer) || m.same_as(c.second.b.buffer);
  });
  return is_fed && is_independent ? std::optional(c) : std::nullopt;
}

}  // namespace mcc::tuner
