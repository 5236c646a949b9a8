// The HTML page of a tuning log: one file with everything in it, plots drawn by Chart.js, which is part of the page.
#pragma once

#include <string>

#include "nlohmann/json_fwd.hpp"

namespace mcc::tools {

// `data` as report.js reads it:
//   version, target, device: text
//   caches: {L1|L2|L3: bytes}
//   models: [{model, tasks, count, pairwise, recall, peak1, peak5}]: means over the tasks
//   tasks: [{id, name, nodes: [text], count, flops, bytes, bound_us, default_us|null, best_us|null, roofline_share|null, space, trace,
//            trials: [{us|null, error, message, threads, sketch, point: {name: [int]}, footprint: {level: bytes}, predicted|null}],
//            quality: {count, pairwise, recall, peak1, peak5}|null}]
std::string report_page(const nlohmann::ordered_json& data);

}  // namespace mcc::tools
