// Pages with plots: each one file with everything in it, drawn by Chart.js, which is part of the page.
#pragma once

#include <string>

#include "nlohmann/json_fwd.hpp"
#include "support/result.h"

namespace mcc::tools {

// tuning: of a log. `data` as tuning.js reads it:
//   version, target, device: text
//   caches: {L1|L2|L3: bytes}
//   models: [{model, tasks, count, pairwise, recall, peak1, peak5}]: means over the tasks
//   tasks: [{id, name, nodes: [text], count, flops, bytes, bound_us, default_us|null, best_us|null, roofline_share|null, space, trace,
//            trials: [{us|null, error, message, threads, sketch, point: {name: [int]}, footprint: {level: bytes}, predicted|null}],
//            quality: {count, pairwise, recall, peak1, peak5}|null}]
// compile: of a model that was compiled. `data` as compile.js reads it:
//   version, model, target: text
//   weight_bytes, arena_bytes, file_bytes
//   kernels: [{id, name, nodes: [text], count, flops, bytes, bound_us|null, source, origin, trace,
//              launches: [{entry, times, grid: [int|text], block: [int], shared_bytes, figures: [{arch, registers, spilled_bytes}]}]}]
//   steps: [{name, live_bytes}]: what the plan runs, and how much of the arena is in use meanwhile
//   notes: [text]
enum class Page { tuning, compile };
std::string page_text(Page page, const nlohmann::ordered_json& data);
Status write_page(Page page, const nlohmann::ordered_json& data, const std::string& path);

}  // namespace mcc::tools
