#include "tools/report_page.h"

#include "nlohmann/json.hpp"
#include "tools/write_file.h"

extern "C" {
extern const char mcc_tuning_page_begin[], mcc_tuning_page_end[];
extern const char mcc_tuning_script_begin[], mcc_tuning_script_end[];
extern const char mcc_compile_page_begin[], mcc_compile_page_end[];
extern const char mcc_compile_script_begin[], mcc_compile_script_end[];
extern const char mcc_report_frame_begin[], mcc_report_frame_end[];
extern const char mcc_report_style_begin[], mcc_report_style_end[];
extern const char mcc_report_common_begin[], mcc_report_common_end[];
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

std::string page_text(Page kind, const nlohmann::ordered_json& data) {
  const bool is_tuning = kind == Page::tuning;
  const std::string body = is_tuning ? std::string(mcc_tuning_page_begin, mcc_tuning_page_end)
                                     : std::string(mcc_compile_page_begin, mcc_compile_page_end);
  const std::string script = is_tuning ? std::string(mcc_tuning_script_begin, mcc_tuning_script_end)
                                       : std::string(mcc_compile_script_begin, mcc_compile_script_end);
  std::string page(mcc_report_frame_begin, mcc_report_frame_end);
  // From the end to the start, so that no mark is looked for in what was put in.
  replace(page, "@SCRIPT@", std::string(mcc_report_common_begin, mcc_report_common_end) + script);
  replace(page, "@DATA@", json_text(data));
  replace(page, "@LIBRARY@", {mcc_chart_js_begin, mcc_chart_js_end});
  replace(page, "@BODY@", body);
  replace(page, "@STYLE@", {mcc_report_style_begin, mcc_report_style_end});
  replace(page, "@TITLE@", is_tuning ? "mcc tuning report" : "mcc compile report");
  return page;
}

Status write_page(Page page, const nlohmann::ordered_json& data, const std::string& path) {
  return write_file(path, {page_text(page, data)});
}

}  // namespace mcc::tools
