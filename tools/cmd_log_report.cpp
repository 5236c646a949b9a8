#include <CLI/CLI.hpp>

#include "nlohmann/json.hpp"
#include "tools/cmd_log.h"
#include "tools/console.h"
#include "tools/log_report.h"
#include "tools/report_page.h"

namespace mcc::tools {

namespace {

struct Arguments {
  LogReportOptions report;
  bool json = false;
};

int run(const Arguments& arguments) {
  if (arguments.report.output_path.empty() && !arguments.json) {
    return report_errors({{ErrorKind::usage, "mcc log report", "there is nothing to write: expected -o F.html or --json", ""}}, false);
  }
  Result<nlohmann::ordered_json> data = log_report(arguments.report);
  if (!data.ok()) return report_errors(data.errors(), arguments.json);
  if (!arguments.report.output_path.empty()) {
    Status written = write_page(Page::tuning, *data, arguments.report.output_path);
    if (!written.ok()) return report_errors(written.errors(), arguments.json);
  }
  if (arguments.json) {
    print_json(*data);
  } else {
    say(text(printable(arguments.report.output_path), ": ", (*data)["tasks"].size(), " tasks"));
    auto percent = [](const nlohmann::ordered_json& share) { return fixed(100 * share.get<double>(), 1); };
    for (const auto& model : (*data)["models"]) {
      say(text("cost model ", model["model"].get<std::string>(), ": ", percent(model["pairwise"]), " % of pairs in order, ",
               percent(model["recall"]), " % of the 10 best among its 10 first, its first ", percent(model["peak1"]),
               " % as fast as the best, of its first 5 ", percent(model["peak5"]), " %"));
    }
  }
  return 0;
}

}  // namespace

void add_log_report(CLI::App& log, int* exit_code) {
  auto arguments = std::make_shared<Arguments>();
  LogReportOptions& options = arguments->report;
  CLI::App* command = log.add_subcommand("report", "Write a page with plots of what was tried");
  command->add_option("log", options.log_path, "The tuning log")->required();
  command->add_option("-o,--output", options.output_path, "The page to write, F.html");
  command->add_option("--target", options.target, "Whose roofline to draw")->capture_default_str();
  command->add_option("--cost-model", options.cost_model, "Whose scores the plots show; all are rated")
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "What the page shows, on stdout as JSON");
  command->callback([arguments, exit_code] { *exit_code = run(*arguments); });
}

}  // namespace mcc::tools
