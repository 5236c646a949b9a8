#include "tools/provenance.h"

#include <algorithm>
#include <charconv>

#include "nlohmann/json.hpp"
#include "support/text.h"

namespace mcc::tools {

namespace {

using tensor::RefusalCode;

std::string line(const char* what, std::string value) {
  std::replace(value.begin(), value.end(), '\n', ' ');
  return text("# ", what, " ", value, "\n");
}

// What stands behind the word, where the line begins with it.
bool take(std::string_view line, std::string_view word, std::string& value) {
  if (!line.starts_with("# ") || !line.substr(2).starts_with(word) || line.substr(2 + word.size(), 1) != " ") return false;
  value = line.substr(3 + word.size());
  return true;
}

RefusalCode code_of(std::string_view name) {
  for (int n = 0; n <= static_cast<int>(RefusalCode::unsupported_target); ++n) {
    if (to_text(static_cast<RefusalCode>(n)) == name) return static_cast<RefusalCode>(n);
  }
  return RefusalCode::none;
}

size_t take_number(std::string_view& s) {
  s.remove_prefix(std::min(s.find_first_not_of(' '), s.size()));
  size_t number = 0;
  const auto end = std::from_chars(s.data(), s.data() + s.size(), number).ptr;
  s.remove_prefix(static_cast<size_t>(end - s.data()));
  return number;
}

// "sm_80 sm_90, launches 0 2"
KernelSchedule parse_head(std::string_view head) {
  KernelSchedule out;
  constexpr std::string_view kLaunches = ", launches";
  const size_t comma = std::min(head.find(kLaunches), head.size());
  std::string_view numbers = head.substr(std::min(comma + kLaunches.size(), head.size()));
  out.first_launch = take_number(numbers);
  out.launches = take_number(numbers);
  head = head.substr(0, comma);
  while (!head.empty()) {
    const size_t space = std::min(head.find(' '), head.size());
    out.archs.emplace_back(head.substr(0, space));
    head.remove_prefix(std::min(space + 1, head.size()));
  }
  return out;
}

void parse_because(std::string_view because, tuner::RefusedRule& refused) {
  const size_t comma = std::min(because.find(", "), because.size());
  refused.code = code_of(because.substr(0, comma));
  refused.reason = because.substr(std::min(comma + 2, because.size()));
}

}  // namespace

bool is_default(const KernelSchedule& schedule) { return schedule.origin == kDefaultOrigin || is_plain(schedule); }
bool is_plain(const KernelSchedule& schedule) { return schedule.origin == kPlainOrigin; }

std::string plain_text(const std::vector<KernelSchedule>& schedules) {
  const auto plain = std::find_if(schedules.begin(), schedules.end(), is_plain);
  if (plain == schedules.end()) return "";
  return text(plain->archs.empty() ? "" : text("for ", join(plain->archs, ", "), " "), "has the plain schedule",
              plain->refused.empty() ? "" : text(": ", to_text(plain->refused.front())));
}

std::string provenance_text(const std::string& task, const std::vector<KernelSchedule>& schedules) {
  std::string out = line("task", task);
  for (const KernelSchedule& s : schedules) {
    if (!s.archs.empty()) out += line("for", text(join(s.archs, " "), ", launches ", s.first_launch, " ", s.launches));
    if (!s.where.empty()) out += line("where", s.where);
    out += line("from", s.origin);
    if (!s.chosen.empty()) out += line("chosen", s.chosen);
    for (const tuner::RefusedRule& r : s.refused) {
      out += line("refused", r.rule) + line("in block", r.block);
      if (!r.step.empty()) out += line("at", r.step);
      out += line("because", text(to_text(r.code), ", ", r.reason)) + line("instead", r.instead);
    }
    out += s.trace;
    if (!s.trace.empty() && s.trace.back() != '\n') out += '\n';
  }
  return out;
}

KernelProvenance parse_provenance(std::string_view source) {
  KernelProvenance out;
  auto current = [&]() -> KernelSchedule& {
    if (out.schedules.empty()) out.schedules.emplace_back();
    return out.schedules.back();
  };
  tuner::RefusedRule ignored;
  auto refused = [&]() -> tuner::RefusedRule& { return current().refused.empty() ? ignored : current().refused.back(); };
  while (!source.empty()) {
    const size_t end = std::min(source.find('\n'), source.size());
    const std::string_view line = source.substr(0, end);
    source.remove_prefix(std::min(end + 1, source.size()));
    std::string value;
    if (!line.starts_with('#')) {
      current().trace += text(line, "\n");
    } else if (take(line, "task", out.task)) {
      continue;
    } else if (take(line, "for", value)) {
      out.schedules.push_back(parse_head(value));
    } else if (take(line, "where", value)) {
      current().where = value;
    } else if (take(line, "from", value)) {
      current().origin = value;
    } else if (take(line, "chosen", value)) {
      current().chosen = value;
    } else if (take(line, "refused", value)) {
      current().refused.emplace_back().rule = value;
    } else if (take(line, "in block", value)) {
      refused().block = value;
    } else if (take(line, "at", value)) {
      refused().step = value;
    } else if (take(line, "because", value)) {
      parse_because(value, refused());
    } else if (take(line, "instead", value)) {
      refused().instead = value;
    }
  }
  current();
  return out;
}

nlohmann::ordered_json refused_json(const std::vector<tuner::RefusedRule>& refused) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const tuner::RefusedRule& r : refused) {
    list.push_back({{"rule", r.rule},
                    {"block", r.block},
                    {"step", r.step},
                    {"code", to_text(r.code)},
                    {"reason", r.reason},
                    {"instead", r.instead}});
  }
  return list;
}

}  // namespace mcc::tools
