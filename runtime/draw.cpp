// Which random numbers a run gives. Kernels make the numbers.
#include <errno.h>
#include <sys/random.h>

#include <algorithm>

#include "runtime/session.h"

namespace mcc::runtime {

namespace {

bool fill_from_system(uint64_t* seed) {
  ssize_t bytes = 0;
  do {
    bytes = getrandom(seed, sizeof *seed, 0);
  } while (bytes < 0 && errno == EINTR);
  return bytes == sizeof *seed;
}

}  // namespace

mcc_status set_up_draws(mcc_session* session, const mcc_session_options& options, mcc_error* error) {
  const Plan& plan = *session->plan;
  const bool has_draws = std::any_of(plan.nodes, plan.nodes + plan.nodes_count,
                                     [](const mcc_plan_node& node) { return node.kind == MCC_NODE_draw; });
  session->seed = options.seed;
  if (!has_draws) return MCC_OK;
  if (options.has_seed == 0 && !fill_from_system(&session->seed))
    return fail(error, MCC_NOT_HERE,
                "the system gives no seed for random numbers; give the session one (mcc_session_options)");
  return session->draws.allocate(plan.nodes_count) ? MCC_OK : fail(error, MCC_OUT_OF_MEMORY, "out of memory");
}

DrawnWords draw(mcc_session* session, uint64_t node) {
  const Plan& plan = *session->plan;
  mcc_plan_draw draw = {};
  std::memcpy(&draw, plan.bytes + plan.nodes[node].attributes.begin, sizeof draw);
  const uint64_t execution = session->draws[node]++ & ((uint64_t{1} << MCC_DRAW_EXECUTION_BITS) - 1);
  return {draw.has_seed != 0 ? draw.seed : session->seed,
          uint64_t{draw.stream} << MCC_DRAW_EXECUTION_BITS | execution};
}

}  // namespace mcc::runtime
