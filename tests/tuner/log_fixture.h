// A small task and trials of it for tests of the log.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "tensor/text.h"
#include "tuner/default_schedule.h"
#include "tuner/log.h"

namespace mcc::tuner::test {

// C[n, 64] = A[n, k] * B[k, 64], its text as the driver makes it.
inline std::string matmul_text(int64_t n, int64_t k, int64_t m = 64) {
  std::ostringstream s;
  s << "func kernel(a: f32[" << n << ", " << k << "], b: f32[" << k << ", " << m << "]) -> (matmul: f32[" << n << ", "
    << m << "]) {\n  for matmul.i in " << n << " {\n    for matmul.j in " << m << " {\n      for matmul.k in " << k
    << " {\n        block matmul(i = matmul.i: spatial " << n << ", j = matmul.j: spatial " << m
    << ", k = matmul.k: reduce " << k
    << ")\n            reads a[i, k], b[k, j]\n            writes matmul[i, j] {\n"
       "          init { matmul[i, j] = 0.0 }\n"
       "          matmul[i, j] = matmul[i, j] + a[i, k] * b[k, j]\n        }\n      }\n    }\n  }\n}\n";
  return s.str();
}

inline Task matmul_task(int64_t n, int64_t k, int64_t m = 64) {
  Task task;
  Result<tensor::Func> f = tensor::parse_func(matmul_text(n, k, m));
  MCC_CHECK(f.ok(), to_text(f.errors()));
  task.func = *f;
  task.text = to_text(*f);
  task.id = text("id", n, "x", k, "x", m);
  task.name = "matmul";
  task.work = tensor::work_of(*f);
  return task;
}

inline tensor::Target test_target() {
  tensor::Target target;
  target.name = "cpu:test";
  target.cpu = "test";
  target.features = "+avx512f,+fma";
  target.cores = 2;
  return target;
}

// A valid trial of the default schedule.
inline LogEntry default_entry(const Task& task, double us, const tensor::Target& target = test_target()) {
  LogEntry entry;
  entry.task = task.id;
  entry.device = {target.fingerprint(), "a test"};
  entry.threads = target.cores;
  entry.trial.candidate.sketch = "rules";
  entry.trial.candidate.trace = default_schedule(task.func, target).trace();
  entry.trial.measurement.times_us = {us * 1.5, us};
  entry.trial.measurement.is_checked = true;
  entry.time = 1.75e9;
  return entry;
}

struct TemporaryFolder {
  std::filesystem::path path;
  TemporaryFolder() {
    // In memory where there is such a place: thousands of small files are made durable here.
    bool has_memory = std::filesystem::is_directory("/dev/shm");
    std::filesystem::path parent = has_memory ? "/dev/shm" : std::filesystem::temp_directory_path();
    std::string name = (parent / "mcc_log_XXXXXX").string();
    MCC_CHECK(mkdtemp(name.data()) != nullptr, "no temporary folder");
    path = name;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  std::string file(const std::string& name) const { return (path / name).string(); }
};

inline std::string file_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}
inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace mcc::tuner::test
