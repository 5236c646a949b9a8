#include "tensor/passes/lower.h"

#include "tensor/grid.h"
#include "tensor/passes/flatten_buffers.h"
#include "tensor/passes/form_launches.h"
#include "tensor/passes/group_loads.h"
#include "tensor/passes/hoist_conditions.h"
#include "tensor/passes/keep_tiles.h"
#include "tensor/passes/limit_grids.h"
#include "tensor/passes/limit_loops.h"
#include "tensor/passes/lower_blocks.h"
#include "tensor/passes/lower_math.h"
#include "tensor/passes/overlap_tiles.h"
#include "tensor/passes/pair_fragments.h"
#include "tensor/passes/partition_loops.h"
#include "tensor/passes/pipeline_copies.h"
#include "tensor/passes/place_allocations.h"
#include "tensor/passes/place_prefetches.h"
#include "tensor/passes/relax_guards.h"
#include "tensor/passes/transpose_tiles.h"
#include "tensor/passes/unbind_loops.h"
#include "tensor/passes/unroll_loops.h"
#include "tensor/passes/use_instructions.h"
#include "tensor/passes/vectorize_loops.h"
#include "tensor/simplify.h"

namespace mcc::tensor {

Func lower(const Func& f, const Target& target, const PassObserver& observer) {
  Func g = f;
  auto run = [&](const char* name, auto pass) {
    g = simplify(pass(g));
    if (observer) observer(name, g);
  };
  const bool is_grid = target.kind == TargetKind::cuda;
  run("lower_blocks", lower_blocks);
  if (is_grid) {
    run("form_launches", form_launches);
  } else if (g.body && has_bound_loop(g.body)) {
    run("unbind_loops", unbind_loops);
  }
  run("place_allocations", place_allocations);
  run("hoist_conditions", hoist_conditions);
  run("partition_loops", partition_loops);
  run("limit_loops", limit_loops);
  run("relax_guards", relax_guards);
  if (!is_grid) run("place_prefetches", [&](const Func& h) { return place_prefetches(h, target); });
  run("flatten_buffers", flatten_buffers);
  run("use_instructions", [&](const Func& h) { return use_instructions(h, target); });
  run("vectorize_loops", vectorize_loops);
  if (is_grid) run("pipeline_copies", [&](const Func& h) { return pipeline_copies(h, target); });
  if (!is_grid) run("transpose_tiles", transpose_tiles);
  run("unroll_loops", unroll_loops);
  if (is_grid) run("pair_fragments", pair_fragments);
  if (is_grid) run("group_loads", group_loads);
  if (!is_grid) run("keep_tiles", keep_tiles);
  if (!is_grid) run("overlap_tiles", overlap_tiles);
  run("lower_math", [&](const Func& h) { return lower_math(h, target); });
  if (is_grid && !g.dims.empty()) run("limit_grids", limit_grids);
  return g;
}

}  // namespace mcc::tensor
