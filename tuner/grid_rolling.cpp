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
  name_result(r.last);
}

// The axes of a block that reads what has been put together become g, i and j.
void ChainSchedule::name_result(const std::string& block) {
  const Buffer rolled = only_buffer_written(*s_.find_block(c_.rolling->elements));
  std::vector<std::string> names;
  for_each_expr(s_.find_block(block)->body, [&](const Expr& e) {
    const auto* load = e.as<Load>();
    if (!load || !load->buffer.same_as(rolled)) return;
    names.clear();
    for (const Expr& index : load->indices) {
      const auto* axis = index.as<VarNode>();
      names.push_back(axis ? axis->name : "");
    }
  });
  if (names.size() < 2)
    return give_up(d_, RefusalCode::not_injective,
                   text("block ", block, " reads ", rolled.name(), " in another way"));
  const std::vector<std::string> batches(names.begin(), names.end() - 2);
  if (!batches.empty()) must_step(d_, FuseAxes{block, batches, "g"});
  must_step(d_, FuseAxes{block, {names[names.size() - 2]}, "i"});
  must_step(d_, FuseAxes{block, {names.back()}, "j"});
}

void ChainSchedule::place_rolled(const std::function<void(const std::string&)>& spread) {
  const Rolling& r = *c_.rolling;
  must_step(d_, ReverseComputeAt{r.last, tiles_});
  spread(r.last);
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
