#include <algorithm>

#include "support/text.h"
#include "tensor/passes/lower.h"
#include "tensor/schedule/tree.h"
#include "tensor/verify.h"
#include "tensor/visit.h"
#include "tuner/grid_chain.h"

namespace mcc::tuner {

using namespace tensor;

void ChainSchedule::prepare() {
  // The block that takes the scores over; all of its kind are not inlined.
  std::vector<std::string> consumers = s_.consumers(c_.first.block);
  auto is_consumer = [&](const RowBlock& b) {
    return b.kind == RowBlock::Kind::map && consumers == std::vector<std::string>{b.name} && !feeds_second(b);
  };
  first_.fuse_sides();
  second_.fuse_sides();
  for (const RowBlock& b : c_.between) {
    if (is_consumer(b)) continue;
    name_axes(b);
  }
  first_.separate_result();
  second_.separate_result();
  std::erase_if(c_.between, is_consumer);
  scores_ = only_buffer_written(*s_.find_block(first_.last())).name();
  fuse_rows_in_memory(scores_);
  for (const RowBlock& b : c_.between)
    fuse_rows_in_memory(only_buffer_written(*s_.find_block(b.name)).name());
  c_.second.a.buffer = find_buffer(s_.func(), c_.second.a.buffer.name());
  if (c_.rolling) name_rolled();
}

// Rows of several axes (heads that have keys in common, and their rows) are one axis of what lies between the products, too: a tile of
// them may be of two heads, and is one stretch all the same. Axes of batches lead.
void ChainSchedule::fuse_rows_in_memory(const std::string& name, bool has_parts) {
  if (c_.first.i.axes.size() <= 1) return;
  const Buffer buffer = find_buffer(s_.func(), name);
  const std::vector<size_t>& parts = c_.first.p.axes;
  auto dimension = [&](size_t axis) {
    return has_parts || parts.empty() || axis < parts[0] ? axis : axis - 1;
  };
  std::vector<std::string> from, to, digits;
  for (size_t n = 0; n < buffer.shape().size(); ++n)
    from.push_back(text("d", n));
  for (size_t n : c_.first.g.axes)
    to.push_back(from[dimension(n)]);
  if (has_parts && !parts.empty()) to.push_back(from[parts[0]]);
  int64_t stride = c_.first.i.extent;
  for (size_t n : c_.first.i.axes) {
    int64_t extent = 1;
    as_int(buffer.shape()[dimension(n)], &extent);
    stride /= extent;
    digits.push_back(text(from[dimension(n)], " * ", stride));
  }
  to.push_back(join(digits, " + "));
  to.insert(to.end(), from.begin() + static_cast<ptrdiff_t>(to.size() - 1 + digits.size()), from.end());
  must_step(d_, TransformLayout{name, text("(", join(from, ", "), ") -> (", join(to, ", "), ")")});
}

bool ChainSchedule::feeds_second(const RowBlock& b) const {
  return only_buffer_written(*s_.find_block(b.name)).same_as(c_.second.a.buffer);
}

// The axes of rows become g and i, as they are in the first product; the axis along the row k or j.
void ChainSchedule::name_axes(const RowBlock& b) {
  std::vector<std::string> names;
  for (const Axis& axis : s_.find_block(b.name)->axes)
    names.push_back(axis.var.name());
  for (const Side* side : {&c_.first.g, &c_.first.p, &c_.first.i}) {
    std::vector<std::string> axes;
    for (size_t n : side->axes)
      axes.push_back(names[n]);
    if (!axes.empty()) must_step(d_, FuseAxes{b.name, axes, side->name});
  }
  if (b.kind == RowBlock::Kind::scalar) return;
  must_step(d_, FuseAxes{b.name, {names.back()}, b.kind == RowBlock::Kind::reduction ? "k" : "j"});
}

// What is made for each element of a row is computed where it is needed.
void ChainSchedule::inline_maps() {
  auto is_inlined = [&](const RowBlock& b) {
    return b.kind == RowBlock::Kind::map && !(threads_.has_own_rows && feeds_second(b));
  };
  std::vector<RowBlock> left;
  for (const RowBlock& b : c_.between) {
    if (is_inlined(b)) {
      must_step(d_, ComputeInline{b.name});
    } else {
      left.push_back(b);
    }
  }
  c_.between = left;
}

// Everything up to the second product goes below the loop over tiles of rows.
void ChainSchedule::gather() {
  for (size_t n = c_.between.size(); n-- > 0;) {
    if (c_.rolling || !c_.between[n].is_for_others) must_step(d_, ComputeAt{c_.between[n].name, host_});
  }
  must_step(d_, ComputeAt{first_.last(), host_});
  must_step(d_, ComputeAt{c_.first.block, host_});
  must_step(d_, ComputeAt{first_.loop("a"), c_.rolling ? tiles_ : host_});
  for (const RowBlock& b : c_.between) {
    if (!c_.rolling && b.is_for_others) must_step(d_, ReverseComputeAt{b.name, host_});
  }
  for (const RowBlock& b : c_.between)
    lead_with_batches(b.name);
  lead_with_batches(first_.last());
  lead_with_batches(c_.first.block);
}

void ChainSchedule::lead_with_batches(const std::string& name) {
  auto is_behind = [&](size_t axis) { return axis > c_.first.i.axes.front(); };
  const bool is_led = std::none_of(c_.first.g.axes.begin(), c_.first.g.axes.end(), is_behind) &&
                      std::none_of(c_.first.p.axes.begin(), c_.first.p.axes.end(), is_behind);
  if (is_led || !d_.refusal) return;
  const Block& block = *s_.find_block(name);
  std::vector<std::string> loops = s_.loop_names_of(name);
  // What has nothing else inside.
  std::erase_if(loops, [&](const std::string& loop) { return block_sites(s_.find_loop(loop)->body).size() > 1; });
  // No other axis uses them: of a single batch there is nothing to count.
  auto is_of_batches = [&](const std::string& loop) {
    for (size_t n = 0; n < block.axes.size(); ++n) {
      const std::string& axis = block.axes[n].var.name();
      if (axis != "g" && axis != "p" && uses_var(block.values[n], s_.find_loop(loop)->var)) return false;
    }
    return true;
  };
  std::vector<std::string> order = loops;
  std::stable_partition(order.begin(), order.end(), is_of_batches);
  if (order != loops) must_step(d_, Reorder{order});
}

std::string ChainSchedule::bind_rows(const std::string& loop, const std::vector<std::string>& inner) {
  const std::string turn = loop + ".n";
  std::vector<int64_t> factors{0};
  std::vector<std::string> names{turn}, order{turn}, axes;
  for (const auto& [extent, axis] : {std::pair{threads_.z, "thread.z"}, {threads_.y, "thread.y"}}) {
    if (extent == 1) continue;
    factors.push_back(extent);
    names.push_back(text(loop, ".", axis));
    axes.emplace_back(axis);
  }
  if (threads_.has_own_rows && threads_.z > 1) {
    std::swap(factors[0], factors[1]);
    must_step(d_, Split{loop, factors, {names[1], names[0], names[2]}});
  } else {
    must_step(d_, Split{loop, factors, names});
  }
  order.insert(order.end(), names.begin() + 1, names.end());
  order.insert(order.end(), inner.begin(), inner.end());
  if (order.size() > 1) must_step(d_, Reorder{order});
  for (size_t n = 0; n < axes.size(); ++n)
    must_step(d_, Bind{names[n + 1], axes[n]});
  return turn;
}

std::vector<std::string> ChainSchedule::below_host(const std::string& block) const {
  std::vector<std::string> loops = s_.loop_names_of(block);
  auto at = std::find(loops.begin(), loops.end(), host_);
  return at == loops.end() ? std::vector<std::string>() : std::vector<std::string>(at + 1, loops.end());
}

// Each thread reduces every n-th element of some rows; then the threads of a row combine what they have.
void ChainSchedule::reduce(const RowBlock& b) {
  const std::string& name = b.name;
  const std::string k = name + ".k", part = name + ".part", lane = k + ".v";
  std::vector<int64_t> factors{0, threads_.x};
  std::vector<std::string> names{k + ".n", k + ".t"};
  if (threads_.vector > 1) {
    factors.push_back(threads_.vector);
    names.push_back(lane);
  }
  must_step(d_, Split{k, factors, names});
  must_step(d_, Rfactor{name, k + ".t", part, 0});
  // Nobody below needs the sum of the parts: it was put behind the whole.
  if (b.is_for_others && !c_.rolling) must_step(d_, ReverseComputeAt{name, host_});
  if (!d_.refusal) return;
  for (const std::string& block : {part, name}) {
    lead_with_batches(block);
    std::string row, thread, turn;
    for (const std::string& loop : below_host(block)) {
      const AxisKinds kinds = axes_bound_to(*s_.find_block(block), s_.find_loop(loop)->var);
      if (block == part ? loop == k + ".n" : kinds.reduce) {
        (block == part ? turn : thread) = loop;
      } else if (loop == lane) {
        continue;
      } else if (kinds.spatial) {
        (loop == k + ".t" ? thread : row) = loop;
      }
    }
    std::vector<std::string> inner{thread};
    if (!turn.empty()) inner.push_back(turn);
    const bool has_lanes = block == part && s_.find_loop(lane) != nullptr;
    if (has_lanes) inner.push_back(lane);
    const std::string rows = bind_rows(row, inner);
    if (!d_.refusal) return;
    if (block == part) {
      if (s_.find_block(part)->init) must_step(d_, DecomposeReduction{part, turn.empty() ? lane : turn});
      must_step(d_, Bind{thread, "thread.x"});
      if (has_lanes) must_step(d_, Unroll{lane});
    } else {
      must_step(d_, DecomposeReduction{name, rows});
      must_step(d_, Bind{thread, "thread.x"});
      keep_with_rows(name);
    }
    try_step(d_, Unroll{rows});
  }
  if (threads_.has_own_rows) {
    order_rows(part);
  } else if (threads_.z * threads_.y < tile_rows_) {
    // So that an element's indices say which thread has it.
    const int64_t rows = threads_.z * threads_.y;
    const std::string batch = batch_indices(part, 1);
    const std::string warp = threads_.z > 1 ? text("i %% ", rows, " // ", threads_.y, ", ") : "";
    must_step(d_, TransformLayout{part, text("(", batch, "i) -> (", batch, "i // ", rows, ", ", warp, "i %% ",
                                             threads_.y, ")")});
  }
  must_step(d_, SetScope{part, "local"});
}

void ChainSchedule::place_between(const std::function<void(const std::string&)>& place_map) {
  for (const RowBlock& b : c_.between) {
    if (b.kind == RowBlock::Kind::reduction) {
      reduce(b);
    } else if (b.kind == RowBlock::Kind::map) {
      place_map(b.name);
    } else {
      const std::string rows = bind_rows(b.name + ".i", {});
      keep_with_rows(b.name);
      if (threads_.has_own_rows) try_step(d_, Unroll{rows});
    }
  }
}

// What the block makes of each row goes where its threads find it.
void ChainSchedule::keep_with_rows(const std::string& block) {
  const std::string buffer = only_buffer_written(*s_.find_block(block)).name();
  // What another launch reads, too, goes through memory in the end.
  const std::vector<std::string> readers = s_.consumers(block);
  const bool is_own = threads_.has_own_rows &&
                      std::all_of(readers.begin(), readers.end(),
                                  [&](const std::string& reader) { return !below_host(reader).empty(); });
  if (!is_own) return must_step(d_, SetScope{buffer, "shared"});
  order_rows(buffer);
  scopes_.emplace_back(buffer, "registers");
  // Registers have constant places, from the beginning on.
  for (const std::string& loop : s_.loop_names_of(block + ".init")) {
    if (loop.ends_with(".n")) try_step(d_, Unroll{loop});
  }
}

// A row's indices say which threads have it: those of the last dimension.
void ChainSchedule::order_rows(const std::string& buffer) {
  const std::string outer = batch_indices(buffer, 1),
                    tile = threads_.z == 1 ? "i // 16"
                                           : text("i // ", tile_rows_, ", i %% ", tile_rows_, " // 16");
  must_step(d_, TransformLayout{buffer, text("(", outer, "i) -> (", outer, tile, ", i %% 16 // 8, i %% 8)")});
}

std::string ChainSchedule::batch_indices(const std::string& buffer, size_t inner) const {
  std::string out;
  const Buffer b = find_buffer(s_.func(), buffer);
  for (size_t n = 0; b && n + inner < b.shape().size(); ++n)
    out += text("g", n, ", ");
  return out;
}

// All threads fetch what the copy holds, neighbours in memory by neighbouring threads: rows as one stretch where threads and rows
// come out even, else row by row.
void ChainSchedule::fetch(const std::string& copy, const std::string& outer, const std::string& inner,
                          int64_t vector, int64_t at_once) {
  const std::string lane = copy + ".v", x = copy + ".thread.x";
  std::string across = copy + "." + outer, along = copy + "." + inner;
  const bool is_row = s_.find_loop(across) == nullptr;
  int64_t width = 0;
  if (s_.find_loop(along) == nullptr || !as_int(s_.find_loop(along)->extent, &width)) {
    if (is_row) return must_step(d_, Vectorize{along});  // a single element
    std::swap(across, along);
  }
  const int64_t turn = threads_.z * threads_.y * threads_.x * vector;
  const bool is_even = width > 0 && (turn % width == 0 || width % turn == 0);
  std::vector<int64_t> factors{0};
  std::vector<std::string> names{copy + ".n"}, bound, turns{copy + ".n"};
  for (const auto& [extent, axis] : {std::pair{threads_.z, "thread.z"}, {threads_.y, "thread.y"}}) {
    if (extent == 1) continue;
    factors.push_back(extent);
    names.push_back(text(copy, ".", axis));
    bound.push_back(names.back());
  }
  bound.push_back(x);
  auto split_along = [&](const std::string& loop) {
    factors.push_back(threads_.x);
    names.push_back(x);
    if (vector > 1) {
      factors.push_back(vector);
      names.push_back(lane);
    }
    must_step(d_, Split{loop, factors, names});
  };
  if (is_row || width == 0) {
    split_along(is_row ? along : across);
  } else if (is_even) {
    must_step(d_, Reorder{{across, along}});
    must_step(d_, Fuse{{across, along}, copy + ".all"});
    split_along(copy + ".all");
  } else {
    must_step(d_, Reorder{{across, along}});
    must_step(d_, Split{across, factors, names});
    factors = {0};
    names = {copy + ".m"};
    turns.push_back(copy + ".m");
    split_along(along);
  }
  std::vector<std::string> order = bound;
  order.insert(order.end(), turns.begin(), turns.end());
  must_step(d_, Reorder{order});
  for (const std::string& loop : bound)
    must_step(d_, Bind{loop, loop.substr(copy.size() + 1)});
  if (vector > 1) try_step(d_, Vectorize{lane});
  if (at_once > 0) return unroll_partly(turns.back(), at_once);
  for (const std::string& loop : turns)
    try_step(d_, Unroll{loop});
}

// So many iterations of a loop at a time, where that leaves none over.
void ChainSchedule::unroll_partly(const std::string& loop, int64_t count) {
  int64_t extent = 0;
  const For* n = s_.find_loop(loop);
  if (n == nullptr || !as_int(n->extent, &extent) || extent % count != 0) return;
  must_step(d_, Split{loop, {0, count}, {loop + ".o", loop + ".i"}});
  must_step(d_, Unroll{loop + ".i"});
}

// A part of what the second product takes of the rows, by all threads; where there are more of them than rows, several go along
// a row.
void ChainSchedule::make_part(int64_t depth, int64_t vector) {
  const std::string copy = second_.loop("a"), i = copy + ".i", k = copy + ".k", z = copy + ".z";
  const int64_t z_i = std::min(threads_.z, tile_rows_ / threads_.y), z_k = threads_.z / z_i;
  const bool is_wide = vector > 1 && z_k * threads_.x * vector <= depth;
  must_step(d_, ComputeAt{copy, second_.loop("k.o")});
  must_step(d_, Split{i, {0, z_i, threads_.y}, {i + ".n", i + ".z", i + ".y"}});
  std::vector<int64_t> factors{0, z_k, threads_.x};
  std::vector<std::string> names{k + ".n", k + ".z", k + ".x"},
      order{i + ".z", k + ".z", i + ".y", k + ".x", i + ".n", k + ".n"};
  if (is_wide) {
    factors.push_back(vector);
    names.push_back(k + ".v");
    order.push_back(k + ".v");
  }
  must_step(d_, Split{k, factors, names});
  must_step(d_, Reorder{order});
  must_step(d_, Fuse{{i + ".z", k + ".z"}, z});
  if (threads_.z > 1) must_step(d_, Bind{z, "thread.z"});
  must_step(d_, Bind{i + ".y", "thread.y"});
  must_step(d_, Bind{k + ".x", "thread.x"});
  if (is_wide) try_step(d_, Vectorize{k + ".v"});
  try_step(d_, Unroll{k + ".n"});
  try_step(d_, Unroll{i + ".n"});
}

bool fits_shared_memory(Draft& draft) {
  PreferredDecider decide;
  Draft whole{draft.schedule, decide, draft.target};
  bind_rest(whole);  // what comes behind the chain
  std::vector<std::string> excess;
  if (whole.refusal) {
    excess = verify_launches(lower(whole.schedule.func(), draft.target), draft.target.gpu);
  } else {
    excess.push_back(whole.refusal.detail);
  }
  if (!excess.empty()) give_up(draft, RefusalCode::unsupported_target, excess[0]);
  return excess.empty();
}

}  // namespace mcc::tuner
