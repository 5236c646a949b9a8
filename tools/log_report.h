// What `mcc log report` shows of a tuning log: convergence, speed against decisions and footprints, share of the roofline,
// and how good the cost model was.
#pragma once

#include <string>

#include "nlohmann/json_fwd.hpp"
#include "support/result.h"
#include "tensor/target.h"

namespace mcc::tools {

struct LogReportOptions {
  std::string log_path, output_path;  // the latter: *.html
  std::string target = "cpu";         // rooflines are drawn for it
  std::string cost_model = "auto";    // that is rated
  size_t max_trials = 4000;           // of a task: later ones are left out
};

// The data of the page (see report_page.h), which is also what --json prints.
Result<nlohmann::ordered_json> log_report(const LogReportOptions& options);

}  // namespace mcc::tools
