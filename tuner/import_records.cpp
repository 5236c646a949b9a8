#include "tuner/import_records.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "support/text.h"
#include "tensor/sizes.h"
#include "tuner/analysis.h"
#include "tuner/replay.h"
#include "tuner/sketch.h"

namespace mcc::tuner {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxLine = size_t{4} << 20, kMaxRecords = 200'000;
constexpr int64_t kMaxExtent = int64_t{1} << 40;
constexpr int kMaxDepth = 32;
constexpr size_t kMaxTiles = 64;  // different ones that are tried for a task

struct LeftOut {
  std::string reason;
};

// ---- Reading JSON of which nothing is known ----

const Json& at(const Json& j, size_t i) {
  if (!j.is_array() || i >= j.size()) throw LeftOut{"not of the form of a record"};
  return j[i];
}
const Json& field(const Json& j, const char* key) {
  auto found = j.is_object() ? j.find(key) : j.end();
  if (!j.is_object() || found == j.end()) throw LeftOut{"not of the form of a record"};
  return *found;
}
int64_t integer(const Json& j) {
  if (!j.is_number_integer()) throw LeftOut{"not of the form of a record"};
  auto value = j.get<int64_t>();
  if (value < -1 || value > kMaxExtent) throw LeftOut{"impossible factors"};
  return value;
}
std::vector<int64_t> integers(const Json& j) {
  if (!j.is_array() || j.size() > 16) throw LeftOut{"not of the form of a record"};
  std::vector<int64_t> out;
  for (const Json& item : j)
    out.push_back(integer(item));
  return out;
}
std::string string(const Json& j) {
  if (!j.is_string()) throw LeftOut{"not of the form of a record"};
  return j.get<std::string>().substr(0, 100);
}
// In bounds, so that products cannot overflow unnoticed.
int64_t times(int64_t a, int64_t b) {
  if (a < 1 || b < 1 || a > kMaxExtent / b) throw LeftOut{"impossible factors"};
  return a * b;
}
double fastest(const Json& seconds) {
  double best = 0;
  if (!seconds.is_array()) throw LeftOut{"failed there"};
  for (const Json& item : seconds) {
    if (!item.is_number()) throw LeftOut{"not of the form of a record"};
    auto value = item.get<double>();
    // Failures are recorded as 1e9 or 1e10 seconds.
    if (std::isfinite(value) && value > 0 && value < 1e8) best = best == 0 ? value : std::min(best, value);
  }
  if (best == 0) throw LeftOut{"failed there"};
  return best * 1e6;
}

// Splits of one contraction: of each axis its extent and the size of its part in the innermost tile.
struct Splits {
  std::vector<std::pair<int64_t, int64_t>> spatial, reduce;
};

ForeignRecord record_of(const Splits& splits, std::string origin, double us) {
  if (splits.spatial.size() < 2 || splits.reduce.empty()) throw LeftOut{"neither a matmul nor a convolution"};
  ForeignRecord out;
  out.origin = std::move(origin);
  out.us = us;
  out.spatial = out.reduce = 1;
  for (size_t i = 0; i < splits.spatial.size(); ++i) {
    auto [extent, inner] = splits.spatial[i];
    out.spatial = times(out.spatial, extent);
    int64_t& tile = i + 1 == splits.spatial.size() ? out.columns : out.rows;
    tile = times(tile, inner);
  }
  for (auto [extent, inner] : splits.reduce) {
    out.reduce = times(out.reduce, extent);
    out.unroll = times(out.unroll, inner);
  }
  return out;
}

// ---- AutoTVM ----

// The last factor of a split, 1 if there is none of that name.
int64_t inner_of(const Json& entities, std::string_view name) {
  for (const Json& entity : entities) {
    if (string(at(entity, 0)) != name || string(at(entity, 1)) != "sp") continue;
    std::vector<int64_t> sizes = integers(at(entity, 2));
    return sizes.empty() || sizes.back() < 1 ? 1 : sizes.back();
  }
  return 1;
}

std::vector<int64_t> tensor_shape(const Json& argument) {
  if (!argument.is_array() || string(at(argument, 0)) != "TENSOR")
    throw LeftOut{"not of the form of a record"};
  return integers(at(argument, 1));
}

int64_t output_extent(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  int64_t out = stride < 1 ? 0 : (in + padding - dilation * (kernel - 1) - 1) / stride + 1;
  if (out < 1) throw LeftOut{"impossible factors"};
  return out;
}

ForeignRecord autotvm_record(const Json& line) {
  const Json& input = field(line, "input");
  const std::string task = string(at(input, 1));
  const Json& arguments = at(input, 2);
  const Json& entities = field(field(line, "config"), "entity");
  const Json& result = field(line, "result");
  if (integer(at(result, 1)) != 0) throw LeftOut{"failed there"};
  double us = fastest(at(result, 0));
  std::vector<int64_t> data = tensor_shape(at(arguments, 0)), weight = tensor_shape(at(arguments, 1));
  Splits splits;
  if (task.starts_with("dense") && data.size() == 2 && weight.size() == 2) {
    splits.spatial = {{data[0], inner_of(entities, "tile_y")}, {weight[0], inner_of(entities, "tile_x")}};
    splits.reduce = {{data[1], inner_of(entities, "tile_k")}};
  } else if (task.starts_with("conv2d_nchw") || task.starts_with("conv2d_NCHWc")) {
    if (data.size() != 4 || weight.size() != 4) throw LeftOut{"neither a matmul nor a convolution"};
    std::vector<int64_t> stride = integers(at(arguments, 2)), padding = integers(at(arguments, 3)),
                         dilation = integers(at(arguments, 4));
    if (padding.size() == 2) padding = {padding[0], padding[1], padding[0], padding[1]};
    if (stride.size() != 2 || padding.size() != 4 || dilation.size() != 2)
      throw LeftOut{"not of the form of a record"};
    int64_t h = output_extent(data[2], weight[2], stride[0], padding[0] + padding[2], dilation[0]);
    int64_t w = output_extent(data[3], weight[3], stride[1], padding[1] + padding[3], dilation[1]);
    splits.spatial = {{times(data[0], h), 1},
                      {w, inner_of(entities, "tile_ow")},
                      {weight[0], inner_of(entities, "tile_oc")}};
    splits.reduce = {{times(weight[1], times(weight[2], weight[3])), inner_of(entities, "tile_ic")}};
  } else {
    throw LeftOut{"an operator without a seed of ours"};
  }
  return record_of(splits, "autotvm " + task, us);
}

// ---- auto_scheduler ----

ForeignRecord auto_scheduler_record(const Json& line) {
  const Json& steps = at(at(field(line, "i"), 1), 1);
  const Json& result = field(line, "r");
  if (integer(at(result, 1)) != 0) throw LeftOut{"failed there"};
  double us = fastest(at(result, 0));
  if (!steps.is_array() || steps.size() > 4096) throw LeftOut{"not of the form of a record"};
  // The stage that is split as SSRSRS: spatial axes in 4, reduce axes in 2.
  std::map<int64_t, Splits> stages;
  for (const Json& step : steps) {
    if (string(at(step, 0)) != "SP") continue;
    int64_t stage = integer(at(step, 1)), extent = integer(at(step, 3));
    std::vector<int64_t> lengths = integers(at(step, 4));
    if (lengths.size() == 3) stages[stage].spatial.emplace_back(extent, times(lengths[1], lengths[2]));
    if (lengths.size() == 1) stages[stage].reduce.emplace_back(extent, std::max<int64_t>(1, lengths[0]));
  }
  for (const auto& [stage, splits] : stages) {
    if (splits.spatial.size() >= 2 && !splits.reduce.empty()) return record_of(splits, "auto_scheduler", us);
  }
  throw LeftOut{"neither a matmul nor a convolution"};
}

// ---- MetaSchedule ----

ForeignRecord meta_schedule_record(const Json& line) {
  if (line.size() == 2 && line[0].is_string()) throw LeftOut{"a workload, known by its records' extents"};
  const Json& record = at(line, 1);
  if (at(record, 1).is_null()) throw LeftOut{"failed there"};
  double us = fastest(at(record, 1));
  const Json& trace = at(record, 0);
  const Json& instructions = at(trace, 0);
  const Json& decisions = at(trace, 1);
  if (!decisions.is_array() || decisions.size() > 4096) throw LeftOut{"not of the form of a record"};
  Splits splits;
  for (const Json& decision : decisions) {
    int64_t index = integer(at(decision, 0));
    if (index < 0) throw LeftOut{"not of the form of a record"};
    if (string(at(at(instructions, static_cast<size_t>(index)), 0)) != "SamplePerfectTile") continue;
    std::vector<int64_t> factors = integers(at(decision, 1));
    int64_t extent = 1;
    for (int64_t f : factors)
      extent = times(extent, f);
    if (factors.size() == 4) splits.spatial.emplace_back(extent, times(factors[2], factors[3]));
    if (factors.size() == 2) splits.reduce.emplace_back(extent, factors[1]);
  }
  return record_of(splits, "meta_schedule", us);
}

// Answers what a record says, nearest to what is offered; else what is preferred.
class SeedDecider : public Decider {
 public:
  SeedDecider(const ForeignRecord& record, int64_t lanes) : record_(record), lanes_(lanes) {}
  Answer answer(const Choice& choice, const Answer& preferred) override {
    if (choice.kind != Choice::Kind::category) return preferred;
    int64_t wanted = 0;
    if (choice.name.ends_with(".rows")) wanted = record_.rows;
    if (choice.name.ends_with(".vectors")) wanted = std::max<int64_t>(1, record_.columns / lanes_);
    if (choice.name.ends_with(".unroll")) wanted = record_.unroll;
    if (wanted == 0) return preferred;
    return {*std::min_element(choice.options.begin(), choice.options.end(), [&](int64_t a, int64_t b) {
      return std::abs(a - wanted) < std::abs(b - wanted);
    })};
  }

 private:
  const ForeignRecord& record_;
  int64_t lanes_;
};

// Iterations of the contraction with the most work.
std::pair<int64_t, int64_t> contraction_of(const tensor::Func& f) {
  tensor::Schedule schedule(f);
  std::pair<int64_t, int64_t> best{0, 0};
  int64_t work = 0;
  for (const std::string& name : schedule.block_names()) {
    std::optional<BlockInfo> info = analyze(schedule, name);
    if (!info || !info->is_contraction || info->iterations() <= work) continue;
    work = info->iterations();
    best = {info->spatial, info->reduce};
  }
  return best;
}

}  // namespace

void read_foreign_line(std::string_view line, ForeignRecords& out) {
  while (line.ends_with('\r'))
    line.remove_suffix(1);
  // Lines of auto_scheduler that begin with these are comments.
  if (line.empty() || line[0] == '#' || line[0] == ' ') return;
  ++out.lines;
  try {
    if (line.size() > kMaxLine) throw LeftOut{"too long a line"};
    if (out.records.size() == kMaxRecords) throw LeftOut{text("beyond ", kMaxRecords, " records")};
    auto callback = [](int depth, Json::parse_event_t, Json&) { return depth <= kMaxDepth; };
    Json json = Json::parse(line.begin(), line.end(), callback, /*allow_exceptions=*/false);
    if (json.is_discarded()) throw LeftOut{"no JSON"};
    if (json.is_object() && json.contains("input")) {
      out.records.push_back(autotvm_record(json));
    } else if (json.is_object() && json.contains("i")) {
      out.records.push_back(auto_scheduler_record(json));
    } else if (json.is_array()) {
      out.records.push_back(meta_schedule_record(json));
    } else {
      throw LeftOut{"not of the form of a record"};
    }
  } catch (const LeftOut& why) {
    ++out.left_out[why.reason];
  }
}

Result<ForeignRecords> read_foreign_records(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  ForeignRecords out;
  if (in.peek() == std::ifstream::traits_type::eof() && !in.eof()) in.setstate(std::ios::badbit);
  // A line is kept up to one byte more than is looked at: files of one endless line take no more memory.
  std::vector<char> buffer(size_t{1} << 18);
  std::string line;
  auto add = [&](std::string_view part) { line.append(part.substr(0, kMaxLine + 1 - line.size())); };
  while (in && !in.eof()) {
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    std::string_view rest(buffer.data(), static_cast<size_t>(in.gcount()));
    for (size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      add(rest.substr(0, end));
      read_foreign_line(line, out);
      line.clear();
      rest.remove_prefix(end + 1);
    }
    add(rest);
  }
  if (!in.eof()) return Diagnostic{ErrorKind::tuning_log, path, "the records cannot be read", ""};
  read_foreign_line(line, out);
  return out;
}

std::vector<const ForeignRecord*> fitting_records(const Task& task, const ForeignRecords& foreign) {
  auto [spatial, reduce] = contraction_of(tensor::at_first_sample(task.func));
  std::vector<const ForeignRecord*> fitting;
  for (const ForeignRecord& record : foreign.records) {
    if (spatial > 0 && record.spatial == spatial && record.reduce == reduce) fitting.push_back(&record);
  }
  std::stable_sort(fitting.begin(), fitting.end(),
                   [](const ForeignRecord* a, const ForeignRecord* b) { return a->us < b->us; });
  return fitting;
}

std::vector<std::pair<Candidate, const ForeignRecord*>> seeds_for(const Task& task,
                                                                  const tensor::Target& target,
                                                                  const ForeignRecords& foreign,
                                                                  size_t limit) {
  std::vector<std::pair<Candidate, const ForeignRecord*>> seeds;
  std::set<std::string> known;
  std::set<std::array<int64_t, 3>> tiles;
  for (const ForeignRecord* record : fitting_records(task, foreign)) {
    if (!tiles.insert({record->rows, record->columns, record->unroll}).second) continue;
    if (tiles.size() > kMaxTiles) break;
    for (const Sketch& sketch : all_sketches()) {
      if (seeds.size() == limit) return seeds;
      SeedDecider decide(*record, target.lanes(32));
      Planned planned = plan_point(sketch, task.func, target, {}, decide);
      if (!planned.ok() || !excess_of(task.func, planned.func).empty()) continue;
      if (known.insert(to_text(planned.candidate.trace)).second)
        seeds.emplace_back(planned.candidate, record);
    }
  }
  return seeds;
}

}  // namespace mcc::tuner
