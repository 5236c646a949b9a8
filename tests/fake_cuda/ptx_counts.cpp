#include "fake_cuda/ptx_counts.h"

#include <algorithm>
#include <sstream>

namespace mcc::test {
namespace ptx {

void Counter::access(size_t step, size_t thread, uint64_t address, uint64_t bytes, bool is_store) {
  Access& access = warps_[{step, thread / kWarp, turns_[{step, thread}]++}];
  access.is_store = is_store;
  access.bytes += bytes;
  add_sectors(access.sectors, address, bytes);
  if (!is_store) ++loads_[thread];
}

PtxCounts Counter::finish(const std::vector<uint64_t>& steps) const {
  PtxCounts counts = total_;
  for (size_t first = 0; first < steps.size(); first += kWarp) {
    const auto begin = steps.begin() + static_cast<ptrdiff_t>(first);
    const auto end = begin + static_cast<ptrdiff_t>(std::min(kWarp, steps.size() - first));
    const uint64_t warp = *std::max_element(begin, end);
    counts.longest = std::max(counts.longest, warp);
    counts.steps += warp;
  }
  for (const auto& [thread, loads] : loads_)
    counts.loads = std::max(counts.loads, loads);
  for (const auto& [key, access] : warps_) {
    (access.is_store ? counts.written_bytes : counts.read_bytes) += access.bytes;
    (access.is_store ? counts.written_sectors : counts.read_sectors) += access.sectors.size();
  }
  return counts;
}

}  // namespace ptx

std::string counts_line(const std::string& entry, const PtxGrid& grid, const PtxCounts& counts) {
  std::ostringstream out;
  auto sizes = [&](const char* name, const unsigned* n) {
    out << ", \"" << name << "\": [" << n[0] << ", " << n[1] << ", " << n[2] << ']';
  };
  out << "{\"entry\": \"" << entry << '"';
  sizes("grid", grid.grid);
  sizes("block", grid.block);
  const std::pair<const char*, uint64_t> numbers[] = {{"longest", counts.longest},
                                                      {"steps", counts.steps},
                                                      {"loads", counts.loads},
                                                      {"read_bytes", counts.read_bytes},
                                                      {"read_sectors", counts.read_sectors},
                                                      {"written_bytes", counts.written_bytes},
                                                      {"written_sectors", counts.written_sectors},
                                                      {"matrix_fmas", counts.matrix_fmas}};
  for (const auto& [name, value] : numbers)
    out << ", \"" << name << "\": " << value;
  if (!counts.problem.empty()) out << ", \"problem\": \"" << counts.problem << '"';
  out << "}\n";
  return out.str();
}

}  // namespace mcc::test
