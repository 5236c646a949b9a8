#include "graph/ops/attention_dims.h"

#include <algorithm>

#include "graph/ops/common.h"
#include "graph/ops/operand_view.h"

namespace mcc::graph {
namespace {

using Ints = std::vector<int64_t>;

constexpr int64_t kOpenTile = 64;  // rows that an open number of them is filled up to

// At most an eighth more, or 16.
Expr whole_tiles(const Expr& rows) {
  int64_t m = 0;
  if (!as_int(rows, &m)) return tensor::ceil_div(rows, Expr(kOpenTile)) * Expr(kOpenTile);
  int64_t tile = 16;
  while (tile < 128 && round_up(m, 2 * tile) <= m + m / 8)
    tile *= 2;
  return round_up(m, tile);
}

Ints::iterator steps_of(Ints& view, size_t rank, size_t axis) {
  return view.begin() + static_cast<std::ptrdiff_t>((1 + axis) * rank);
}

void erase_axis(Ints& view, size_t rank, size_t axis) {
  const auto at = steps_of(view, rank, axis);
  view.erase(at, at + static_cast<std::ptrdiff_t>(rank));
}

bool stands_along(Ints view, size_t rank, size_t axis) {
  const auto at = steps_of(view, rank, axis);
  return std::all_of(at, at + static_cast<std::ptrdiff_t>(rank), [](int64_t step) { return step == 0; });
}

}  // namespace

int64_t round_up(int64_t extent, int64_t multiple) { return (extent + multiple - 1) / multiple * multiple; }

AttentionDims::AttentionDims(const Attributes& a, const std::function<const Shape&(int)>& shape_of)
    : rolling(a.integer("rolling", 0)) {
  const Ints outer = a.integers("batch"), extents = a.integers("extents");
  const Ints views[] = {a.integers("q_view"), a.integers("k_view"), a.integers("v_view")};
  // Row axes of q are queries, of k and v keys.
  auto extent = [&](int64_t given, size_t axis, std::initializer_list<int> of) {
    Expr found = given >= 0 ? Expr(given) : Expr();
    for (int i : of)
      if (!found.defined()) found = extent_along(views[i], shape_of(i), axis);
    MCC_CHECK(found.defined(), "no operand of mcc.Attention has its open axis ", axis);
    return found;
  };
  for (size_t axis = 0; axis < outer.size(); ++axis)
    all.push_back(extent(outer[axis], axis, {0, 1, 2}));
  m = queries = extent(extents[0], outer.size(), {0});
  const int64_t keys_from = a.integer("keys_from", 0);
  n = keys = keys_from != 0 ? shape_of(static_cast<int>(keys_from)).back()
                            : extent(extents[1], outer.size(), {1, 2});
  d = extents[2], e = extents[3];
  if (extents[0] == 1 && rolling != 0) splits = a.integer("splits", 1);
  auto stands = [&](int i) { return stands_along(views[i], shape_of(i).size(), all.size() - 1); };
  are_keys_shared = !all.empty() && stands(1) && stands(2);
  has_heads_as_rows_ = splits > 1 && are_keys_shared;
  if (has_heads_as_rows_) queries = all.back();
  for (size_t axis = 0; axis < all.size(); ++axis)
    if (is_kept(axis)) batch.push_back(all[axis]);
  if (splits > 1) batch.emplace_back(splits);
  rows = queries;
  int64_t count = 0, known = a.integer("parts", 1);
  is_open = !as_int(n, &count);
  if (rolling != 0) {
    const int64_t at_once = rolling * splits;
    known = (count + at_once - 1) / at_once;
    parts = is_open ? tensor::ceil_div(n, Expr(at_once)) : Expr(known);
    has_parts = is_open || splits > 1 || known > 1;
    is_ragged = is_open || count % at_once != 0;
    n = rolling;
    rows = whole_tiles(queries);
  } else if (known > 1) {
    parts = known;
    has_parts = true;
    n = count / known;
  }
  are_rows_whole = rows.same_as(queries) || same_shape({rows}, {queries});
}

AttentionDims::AttentionDims(const Graph& graph, const Node& node)
    : AttentionDims(node.attributes, [&](int i) -> const Shape& {
        return graph.value(node.inputs[static_cast<size_t>(i)]).type.shape;
      }) {}

bool AttentionDims::is_kept(size_t axis) const {
  int64_t count = 0;
  const bool are_rows = has_heads_as_rows_ && axis + 1 == all.size();
  return !are_rows && (rolling == 0 || !as_int(all[axis], &count) || count != 1);
}

Shape AttentionDims::rows_of_batch() const {
  Shape s = batch;
  s.push_back(rows);
  return s;
}

Shape AttentionDims::shape(std::initializer_list<Expr> inner) const {
  Shape s = batch;
  if (has_parts) s.push_back(parts);
  s.insert(s.end(), inner);
  return s;
}

std::vector<int64_t> AttentionDims::view(Ints steps, size_t rank, bool is_of_queries) const {
  // Of the one query, instead of the heads that are rows.
  if (has_heads_as_rows_) erase_axis(steps, rank, is_of_queries ? all.size() : all.size() - 1);
  const size_t axes = all.size() - (has_heads_as_rows_ ? 1 : 0);
  for (size_t axis = axes; axis-- > 0;)
    if (!is_kept(axis)) erase_axis(steps, rank, axis);
  return steps;
}

std::vector<Expr> AttentionDims::in_all(std::vector<Expr> index) const {
  if (splits > 1) index.erase(index.begin() + static_cast<std::ptrdiff_t>(viewed()));
  for (size_t axis = 0; axis < all.size(); ++axis) {
    const auto at = index.begin() + static_cast<std::ptrdiff_t>(axis);
    const bool are_rows = has_heads_as_rows_ && axis + 1 == all.size();
    // The heads are there already, the query comes behind them.
    if (!is_kept(axis)) index.insert(are_rows ? at + 1 : at, Expr(0));
  }
  return index;
}

std::vector<Expr> AttentionDims::in_batch(std::vector<Expr> index) const {
  if (has_heads_as_rows_) index.erase(index.begin() + static_cast<std::ptrdiff_t>(all.size()));
  const size_t axes = all.size() - (has_heads_as_rows_ ? 1 : 0);
  for (size_t axis = axes; axis-- > 0;)
    if (!is_kept(axis)) index.erase(index.begin() + static_cast<std::ptrdiff_t>(axis));
  return index;
}

}  // namespace mcc::graph
