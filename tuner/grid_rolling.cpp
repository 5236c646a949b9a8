// Parts of the columns that a recurrence puts together (grid_chain.h): its rows in tiles, around its steps, which are the parts.
#include <algorithm>

#include "support/text.h"
#include "tensor/schedule/tree.h"
#include "tuner/grid_chain.h"

namespace mcc::tuner {

using namespace tensor;

void ChainSchedule::roll() {
  const Rolling& r = *c_.rolling;
  std::vector<std::string> blocks;
  for (const BlockSite& site : block_sites(s_.find_loop(r.loop)->body))
    blocks.push_back(site.block->name);
  auto behind_steps = [&](const std::string& block) {
    const std::vector<std::string> loops = s_.loop_names_of(block);
    return std::vector<std::string>(std::find(loops.begin(), loops.end(), r.loop) + 1, loops.end());
  };
  auto hoist = [&](const std::string& name) {
    std::vector<std::string> loops;
    for (const std::string& block : blocks)
      loops.push_back(behind_steps(block)[0]);
    must_step(d_, Hoist{loops, r.loop, name});
  };
  std::vector<std::string> batches;
  for (size_t n = 0; n < c_.first.g.axes.size() && d_.refusal; ++n) {
    batches.push_back(text(r.loop, ".g", n));
    hoist(batches.back());
  }
  if (batches.size() > 1) must_step(d_, Fuse{batches, r.loop + ".g"});
  if (!batches.empty()) batches_ = batches.size() == 1 ? batches[0] : r.loop + ".g";
  for (const std::string& block : blocks) {
    const std::vector<std::string> loops = behind_steps(block);
    must_step(d_, Split{loops[0], {0, tile_rows_}, {block + ".i.b", block + ".i"}});
  }
  tiles_ = r.loop + ".b";
  if (d_.refusal) hoist(tiles_);
  if (!batches_.empty()) must_step(d_, Bind{batches_, "block.y"});
  must_step(d_, Bind{tiles_, "block.x"});
  host_ = r.loop;
}

// Rows are one axis, i, of what is put together, and of what reads that in the end.
void ChainSchedule::name_rolled() {
  const Rolling& r = *c_.rolling;
  name_result(r.last, r.elements);
  if (!r.last_of_rows.empty()) name_result(r.last_of_rows, r.rows.front());
  const size_t first = 1 + c_.first.g.axes.size(), rows = c_.first.i.axes.size();
  if (rows == 1) return;
  std::vector<std::string> blocks = r.rows;
  blocks.push_back(r.elements);
  for (const std::string& name : blocks) {
    const Block& block = *s_.find_block(name);
    const std::string buffer = only_buffer_written(block).name();
    std::vector<std::string> axes;
    for (size_t n = first; n < first + rows; ++n)
      axes.push_back(block.axes[n].var.name());
    must_step(d_, FuseAxes{name, axes, "i"});
    fuse_rows_in_memory(buffer, false);
  }
}

// The axes of a block that reads what has been put together, or numbers of its rows, become g, i and j.
void ChainSchedule::name_result(const std::string& block, const std::string& maker) {
  const bool is_of_elements = maker == c_.rolling->elements;
  const Buffer rolled = only_buffer_written(*s_.find_block(maker));
  const std::string own = s_.find_block(block)->axes.back().var.name();
  std::vector<std::string> names;
  for_each_expr(s_.find_block(block)->body, [&](const Expr& e) {
    const auto* load = e.as<Load>();
    if (!load || load->buffer.shape().size() != rolled.shape().size() ||
        (is_of_elements && !load->buffer.same_as(rolled)))
      return;
    names.clear();
    for (const Expr& index : load->indices) {
      const auto* axis = index.as<VarNode>();
      names.push_back(axis ? axis->name : "");
    }
  });
  if (!is_of_elements) names.push_back(own);
  const size_t rows = c_.first.i.axes.size();
  if (names.size() < 1 + rows)
    return give_up(d_, RefusalCode::not_injective,
                   text("block ", block, " reads ", rolled.name(), " in another way"));
  const auto row = names.end() - 1 - static_cast<ptrdiff_t>(rows);
  const std::vector<std::string> batches(names.begin(), row);
  if (!batches.empty()) must_step(d_, FuseAxes{block, batches, "g"});
  must_step(d_, FuseAxes{block, {row, names.end() - 1}, "i"});
  must_step(d_, FuseAxes{block, {names.back()}, "j"});
}

// The threads that have a row write a number each.
void ChainSchedule::place_rows(const std::string& block) {
  const std::string i = block + ".i", j = block + ".j", thread = j + ".t", turn = j + ".n";
  must_step(d_, ReverseComputeAt{block, tiles_});
  lead_with_batches(block);
  must_step(d_, Split{j, {0, threads_.x}, {turn, thread}});
  try_step(d_, Unroll{bind_rows(i, {thread, turn})});
  must_step(d_, Bind{thread, "thread.x"});
}

void ChainSchedule::place_rolled(const std::function<void(const std::string&)>& spread) {
  const Rolling& r = *c_.rolling;
  must_step(d_, ReverseComputeAt{r.last, tiles_});
  spread(r.last);
  if (!r.last_of_rows.empty()) place_rows(r.last_of_rows);
  for (const std::string& block : r.rows) {
    const std::string rows = bind_rows(block + ".i", {}),
                      buffer = only_buffer_written(*s_.find_block(block)).name();
    try_step(d_, Unroll{rows});
    begin(block, {rows});
    order_rows(buffer);
    scopes_.emplace_back(buffer, "registers");
  }
  const std::string i = r.elements + ".i", j = r.elements + ".j";
  must_step(d_, Split{s_.loop_names_of(r.elements).back(), {1, 0}, {j + ".b", j}});
  spread(r.elements);
  begin(r.elements, {i + ".m", j + ".n", i + ".h"});
  scopes_.emplace_back(only_buffer_written(*s_.find_block(r.elements)).name(), "registers");
}

// Sums begin ahead of the steps; of the loops those are straight code that are here.
void ChainSchedule::begin(const std::string& block, const std::vector<std::string>& straight) {
  if (!s_.find_block(block)->init) return;
  must_step(d_, DecomposeReduction{block, host_});
  for (const std::string& loop : straight)
    try_step(d_, Unroll{block + ".init." + name_in_block(loop, block)});
}

}  // namespace mcc::tuner
