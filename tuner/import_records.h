// Records of other tuners, as far as they say something about our kernels: how large the register tiles of a matmul or
// a convolution were. Their times were measured with other code, so they are seeds for a search and nothing more.
//
// Read are AutoTVM's log version 0.2 ({"input", "config", "result", "version"}), auto_scheduler's version 0.6 ({"i", "r",
// "v"}) and the tuning records of a MetaSchedule JSON database ([workload, [trace, times, target, arguments]]).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/target.h"
#include "tuner/trial.h"

namespace mcc::tuner {

// What their schedule of one contraction was.
struct ForeignRecord {
  std::string origin;               // "autotvm dense_pack.x86", for people
  int64_t spatial = 0, reduce = 0;  // iterations: what it is recognised by
  int64_t rows = 1;                 // of its innermost tile: along all spatial axes but the last
  int64_t columns = 1;              // along the last
  int64_t unroll = 1;               // reduction steps in it
  double us = 0;                    // as measured there
};

struct ForeignRecords {
  std::vector<ForeignRecord> records;
  int64_t lines = 0;
  std::map<std::string, int64_t> left_out;  // reason -> lines
};

// One line is added to what has been read. Lines of other forms, failed trials and other operators are counted.
void read_foreign_line(std::string_view line, ForeignRecords& out);
// A whole file, line by line. Errors: it cannot be read.
Result<ForeignRecords> read_foreign_records(const std::string& path);

// The records of contractions with the task's numbers of iterations, the fastest first.
std::vector<const ForeignRecord*> fitting_records(const Task& task, const ForeignRecords& foreign);

// Points of our sketches that come nearest to the records that fit the task, the fastest records first, each once and at
// most `limit`.
std::vector<std::pair<Candidate, const ForeignRecord*>> seeds_for(const Task& task,
                                                                  const tensor::Target& target,
                                                                  const ForeignRecords& foreign,
                                                                  size_t limit);

}  // namespace mcc::tuner
