#include "tools/report_page.h"

#include "nlohmann/json.hpp"

extern "C" {
extern const char mcc_report_page_begin[], mcc_report_page_end[];
extern const char mcc_report_style_begin[], mcc_report_style_end[];
extern const char mcc_report_script_begin[], mcc_report_script_end[];
extern const char mcc_chart_js_begin[], mcc_chart_js_end[];
}

namespace mcc::tools {

namespace {

// JSON inside of a script element: no "</script>", no "<!--".
std::string json_text(const nlohmann::ordered_json& data) {
  std::string out;
  for (char c : data.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace)) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

void replace(std::string& page, const std::string& mark, const std::string& with) {
  page.replace(page.find(mark), mark.size(), with);
}

}  // namespace

std::string report_page(const nlohmann::ordered_json& data) {
  std::string page(mcc_report_page_begin, mcc_report_page_end);
  // From the end to the start, so that no mark is looked for in what was put in.
  replace(page, "@SCRIPT@", {mcc_report_script_begin, mcc_report_script_end});
  replace(page, "@DATA@", json_text(data));
  replace(page, "@LIBRARY@", {mcc_chart_js_begin, mcc_chart_js_end});
  replace(page, "@STYLE@", {mcc_report_style_begin, mcc_report_style_end});
  return page;
}

}  // namespace mcc::tools
