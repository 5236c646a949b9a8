// Where a kernel's schedules are from: what the plan keeps of it as text, in front of the steps, and what reports say.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json_fwd.hpp"
#include "tuner/refused_rule.h"

namespace mcc::tools {

// One schedule of a kernel. A library for several GPUs may have different ones.
struct KernelSchedule {
  std::vector<std::string> archs;  // it is for; empty where the library is for one target
  std::string where;  // for runs in which this holds of the model's dimensions; empty: for all others
  std::string origin;              // "default", "log exact, ...", "log nearest, ...", "a schedule file"
  std::string chosen;              // what analysis took of what the rules left open, "conv.rows 4, conv.depth 16"
  std::vector<tuner::RefusedRule> refused;
  std::string trace;               // its steps, as text
  size_t first_launch = 0, launches = 0;  // among those of the kernel; of a library for several GPUs
};

inline constexpr const char* kDefaultOrigin = "default";
// Of a kernel whose default schedule was given up as a whole.
inline constexpr const char* kPlainOrigin = "default, the plain one";
bool is_default(const KernelSchedule& schedule);
bool is_plain(const KernelSchedule& schedule);
// "for sm_80 has the plain schedule: the rule for ..., a result per thread instead"; empty unless one is plain.
std::string plain_text(const std::vector<KernelSchedule>& schedules);

// As mcc_plan_node::schedule has it:
//
//   # task 612fdf72d01ead1e
//   # for sm_80 sm_90, launches 0 2           (of a library for several GPUs: before each schedule)
//   # where rows <= 8                         (for those runs; absent for all others)
//   # from default
//   # chosen conv.rows 4, conv.depth 16
//   # refused products on tensor cores        (and so on, for each rule)
//   # in block conv
//   # at set_scope(...)                       (absent where no step was refused)
//   # because scope, expected ..., got ...
//   # instead products in register tiles
//   split(...)                                (the steps)
std::string provenance_text(const std::string& task, const std::vector<KernelSchedule>& schedules);
// The same back; of any text something.
struct KernelProvenance {
  std::string task;
  std::vector<KernelSchedule> schedules;  // one at least
};
KernelProvenance parse_provenance(std::string_view text);

nlohmann::ordered_json refused_json(const std::vector<tuner::RefusedRule>& refused);

}  // namespace mcc::tools
