// The tuning log as a file: round trips, interruptions, hostile content, size.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tuner/log_fixture.h"
#include "tuner/log_line.h"

namespace mcc::tuner {
namespace {

using namespace test;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string small_log(const TemporaryFolder& folder) {
  std::string path = folder.file("small.json");
  Task a = matmul_task(12, 16), b = matmul_task(24, 32);
  LogEntry failed = default_entry(a, 1);
  failed.trial.measurement = {};
  failed.trial.measurement.error = TrialError::crash;
  failed.trial.measurement.message = "signal 11 \"quoted\"\n\xc3\xa9";
  Result<LogWriter> writer = LogWriter::open(path);
  MCC_CHECK(writer.ok(), to_text(writer.errors()));
  std::vector<LogEntry> first{default_entry(a, 10), failed}, second{default_entry(b, 30)};
  MCC_CHECK(writer->append(log_task(a), first).ok(), "append");
  MCC_CHECK(writer->append(log_task(b), second).ok(), "append");
  std::vector<LogEntry> third{default_entry(a, 8)};
  MCC_CHECK(writer->append(log_task(a), third).ok(), "append");
  return path;
}

TEST(Log, KeepsEverything) {
  TemporaryFolder folder;
  std::string path = folder.file("log.json");
  Task task = matmul_task(48, 64);
  LogEntry entry = default_entry(task, 12.345);
  entry.trial.candidate.point = {{"matmul.rows", {6}}, {"matmul.tile", {2, 3, 8}}};
  Measurement& m = entry.trial.measurement;
  m.max_error = 0.25;
  m.noise = 0.015;
  m.build_seconds = 0.011;
  m.run_seconds = 0.2;
  m.is_censored = true;
  m.message = "slow";
  entry.threads = 3;
  entry.seed = UINT64_MAX;
  entry.source = "default";
  {
    Result<LogWriter> writer = LogWriter::open(path);
    ASSERT_TRUE(writer.ok()) << to_text(writer.errors());
    ASSERT_TRUE(writer->append(log_task(task), std::span(&entry, 1)).ok());
  }
  Result<LogContents> log = read_log(path);
  ASSERT_TRUE(log.ok()) << to_text(log.errors());
  EXPECT_THAT(log->complaints, IsEmpty());
  ASSERT_EQ(log->tasks.size(), 1u);
  EXPECT_EQ(log->tasks[0].text, task.text);
  EXPECT_EQ(log->tasks[0].flops, task.work.flops);
  ASSERT_EQ(log->entries.size(), 1u);
  const LogEntry& got = log->entries[0];
  EXPECT_EQ(entry_line(got), entry_line(entry));
  EXPECT_EQ(to_text(got.trial.candidate.trace), to_text(entry.trial.candidate.trace));
  EXPECT_EQ(got.trial.candidate.point, entry.trial.candidate.point);
  EXPECT_EQ(got.seed, UINT64_MAX);
  EXPECT_EQ(got.line, 2);
  EXPECT_EQ(got.trial.measurement.times_us, m.times_us);
}

TEST(Log, ATaskIsWrittenOnce) {
  TemporaryFolder folder;
  std::string path = small_log(folder);
  {
    Task a = matmul_task(12, 16);
    Result<LogWriter> writer = LogWriter::open(path);
    ASSERT_TRUE(writer.ok());
    std::vector<LogEntry> more{default_entry(a, 9)};
    ASSERT_TRUE(writer->append(log_task(a), more).ok());
  }
  std::string bytes = file_bytes(path);
  size_t count = 0;
  for (size_t at = bytes.find("\"kind\":\"task\""); at != std::string::npos; at = bytes.find("\"kind\":\"task\"", at + 1))
    ++count;
  EXPECT_EQ(count, 2u);
  LogContents log = *read_log(path);
  EXPECT_EQ(log.entries.size(), 5u);
  const LogCounts& counts = log.counts.at(key_of(log.entries[0]));
  EXPECT_EQ(counts.trials, 4);
  EXPECT_EQ(counts.errors[static_cast<size_t>(TrialError::crash)], 1);
  EXPECT_EQ(counts.best_us, 8);
}

TEST(Log, OneWriterAtATime) {
  TemporaryFolder folder;
  std::string path = small_log(folder);
  Result<LogWriter> first = LogWriter::open(path);
  ASSERT_TRUE(first.ok());
  Result<LogWriter> second = LogWriter::open(path);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.errors()[0].kind, ErrorKind::tuning_log);
  EXPECT_THAT(to_text(second.errors()), HasSubstr("another process writes to this tuning log"));
  EXPECT_TRUE(read_log(path).ok());  // reading goes on beside it
}

TEST(Log, WritesToNothingElse) {
  TemporaryFolder folder;
  std::string path = folder.file("model.onnx");
  write_bytes(path, "precious");
  Result<LogWriter> writer = LogWriter::open(path);
  ASSERT_FALSE(writer.ok());
  EXPECT_THAT(to_text(writer.errors()), HasSubstr("is not a tuning log"));
  EXPECT_EQ(file_bytes(path), "precious");
  EXPECT_FALSE(LogWriter::open(folder.path.string()).ok());
  EXPECT_FALSE(read_log(folder.path.string()).ok());
  EXPECT_FALSE(read_log(path).ok());
  Result<LogContents> absent = read_log(folder.file("absent"));
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(exit_code(absent.errors()[0].kind), 6);
}

// A crash may cut the file anywhere: every whole line before is kept, and writing goes on behind it.
TEST(Log, CutAtEveryByte) {
  TemporaryFolder folder;
  const std::string bytes = file_bytes(small_log(folder));
  const std::string path = folder.file("cut.json");
  Task task = matmul_task(12, 16);
  for (size_t size = 0; size <= bytes.size(); ++size) {
    write_bytes(path, bytes.substr(0, size));
    std::string_view kept = std::string_view(bytes).substr(0, size);
    auto whole_lines = static_cast<size_t>(std::count(kept.begin(), kept.end(), '\n'));
    if (size < bytes.size() && size > 0 && bytes[size] == '\n') ++whole_lines;  // only its end is missing
    Result<LogContents> before = read_log(path);
    // Of a file without a whole line there is nothing to tell it from any other file.
    EXPECT_EQ(before.ok() ? before->tasks.size() + before->entries.size() : 0, whole_lines) << size;
    {
      Result<LogWriter> writer = LogWriter::open(path);
      ASSERT_TRUE(writer.ok()) << size << to_text(writer.errors());
      std::vector<LogEntry> more{default_entry(task, 7)};
      ASSERT_TRUE(writer->append(log_task(task), more).ok());
    }
    Result<LogContents> after = read_log(path);
    ASSERT_TRUE(after.ok()) << size << to_text(after.errors());
    EXPECT_EQ(after->skipped, 0) << size << complaints_text(path, *after);
    EXPECT_EQ(after->tasks.size() + after->entries.size(), whole_lines + (whole_lines == 0 ? 2 : 1)) << size;
    EXPECT_EQ(after->entries.back().trial.measurement.best_us(), 7) << size;
  }
}

// A good trial with one field changed by `edit`.
std::string broken(const std::function<void(nlohmann::ordered_json&)>& edit) {
  nlohmann::ordered_json line = nlohmann::ordered_json::parse(entry_line(default_entry(matmul_task(12, 16), 5)));
  edit(line);
  return line.dump();
}

LogChoice choice_of(std::string problem, std::string algorithm, double us) {
  LogChoice choice;
  choice.problem = std::move(problem);
  choice.us = {{"direct", 20}, {algorithm, us}};
  choice.algorithm = std::move(algorithm);
  choice.device = {"x86 there", "a processor"};
  choice.threads = 2;
  choice.time = 1e9;
  return choice;
}

// The same of a good choice.
std::string broken_choice(const std::function<void(nlohmann::ordered_json&)>& edit) {
  nlohmann::ordered_json line = nlohmann::ordered_json::parse(choice_line(choice_of("3x3", "direct", 20)));
  edit(line);
  return line.dump();
}

struct Hostile {
  std::string line, complaint;
};

TEST(Log, SaysWhatIsWrongWithALine) {
  auto deep = [](const std::string& open, int n) {
    std::string s;
    for (int i = 0; i < n; ++i) s += open;
    return s;
  };
  const std::vector<Hostile> cases = {
      {"garbage", "no JSON at column 1"},
      {"{\"v\":1,", "no JSON"},
      {"[1,2]", "expected an object, got an array"},
      {"7", "expected an object, got a number"},
      {"{}", "expected an object"},
      {deep("[", 100000), "expected an object, got an array"},
      {"{\"v\":1,\"x\":" + deep("[", 100000), "expected at most 16 brackets"},
      {"{\"v\":1,\"x\":" + deep("{\"a\":", 100000), "expected at most 16 brackets"},
      {"{\"kind\":\"trial\",\"v\":1}", "expected \"v\", the version, as the first field"},
      {"{\"v\":0,\"kind\":\"trial\"}", "v: expected version 1, got 0"},
      {"{\"v\":\"1\"}", "v: expected an integer, got a string"},
      {"{\"v\":1}", "expected a field kind"},
      {"{\"v\":1,\"kind\":\"model\"}", "kind: expected task, trial or choice, got \"model\""},
      {"{\"v\":1,\"kind\":\"task\",\"id\":\"x\"}", "expected a field name"},
      {"{\"v\":1,\"kind\":\"task\",\"id\":\"x\",\"id\":\"y\"}", "expected id once"},
      {broken([](auto& l) { l.erase("trace"); }), "expected a field trace"},
      {broken([](auto& l) { l["times_us"] = {-1}; }), "times_us: expected more than 0 to 1e15, got -1"},
      {broken([](auto& l) { l["times_us"] = {0}; }), "times_us: expected more than 0"},
      {broken([](auto& l) { l["times_us"] = {1e300}; }), "times_us: expected more than 0 to 1e15"},
      {broken([](auto& l) { l["times_us"] = {nullptr}; }), "times_us: expected a list of numbers, got null"},
      {broken([](auto& l) { l["times_us"] = {"1"}; }), "times_us: expected a list of numbers, got a string"},
      {broken([](auto& l) { l["times_us"] = nlohmann::json::array(); }), "times_us: expected times"},
      {broken([](auto& l) { l["times_us"] = std::vector<int>(5000, 1); }), "times_us: expected at most 4096"},
      {broken([](auto& l) { l["times_us"] = 5; }), "times_us: expected a list of numbers, got a number"},
      {broken([](auto& l) { l["point"] = {1}; }), "point: expected lists of integers by name, got an array"},
      {broken([](auto& l) { l["point"] = {{"a", 1}}; }), "point a: expected lists of integers by name, got a number"},
      {broken([](auto& l) { l["point"] = {{"a", {1.5}}}; }), "point a: expected lists of integers"},
      {broken([](auto& l) { l["point"] = {{"a", {INT64_MAX}}}; }), "expected integers of at most 2^53"},
      {broken([](auto& l) { l["point"] = {{"a", std::vector<int>(99, 1)}}; }), "expected at most 16 integers"},
      {broken([](auto& l) { l["sizes"] = 5; }), "sizes: expected a list of integers, got a number"},
      {broken([](auto& l) { l["sizes"] = {-1}; }), "sizes: expected 0 to 9007199254740992, got -1"},
      {broken([](auto& l) { l["sizes"] = {1.5}; }), "sizes: expected a list of integers, got a number"},
      {broken([](auto& l) { l["sizes"] = {"4"}; }), "sizes: expected a list of integers, got a string"},
      {broken([](auto& l) { l["sizes"] = std::vector<int>(999, 1); }), "sizes: expected at most 256 integers"},
      {broken([](auto& l) { l["threads"] = 0; }), "threads: expected 1 to 4096, got 0"},
      {broken([](auto& l) { l["threads"] = 1e9; }), "threads: expected an integer, got a number"},
      {broken([](auto& l) { l["seed"] = -1; }), "seed: expected 0 to 2^64-1, got -1"},
      {broken([](auto& l) { l["error"] = "tired"; }), "error: expected the name of an error, got \"tired\""},
      {broken([](auto& l) { l["checked"] = 1; }), "checked: expected true or false, got a number"},
      {broken([](auto& l) { l["max_error"] = 7; }), "max_error: expected at most 1"},
      {broken([](auto& l) { l["source"] = "gossip"; }), "source: expected one of default, search, verify, import"},
      {broken([](auto& l) { l["task"] = "unknown"; }), "task: expected a task of a line before, got unknown"},
      {broken([](auto& l) { l["task"] = std::string(1000, 'x'); }), "task: expected 1 to 256 bytes, got 1000"},
      {broken([](auto& l) { l["trace"] = "split(loop=\"i\""; }), "trace, line 1, column 15: expected ','"},
      {broken([](auto& l) { l["trace"] = "system(\"rm\")"; }), "expected the name of a step, not 'system'"},
      {broken([](auto& l) { l["trace"] = "split(loop=\"i\", factors=[99999999999999999999])"; }), "expected an integer"},
      {broken_choice([](auto& l) { l.erase("problem"); }), "expected a field problem"},
      {broken_choice([](auto& l) { l["us"].erase("direct"); }), "us: expected a time of the algorithm that is chosen, direct"},
      {broken_choice([](auto& l) { l["us"] = 5; }), "us: expected times by algorithm, got a number"},
      {broken_choice([](auto& l) { l["us"]["direct"] = -1; }), "us direct: expected more than 0 to 1e15, got -1"},
      {broken_choice([](auto& l) { l["us"]["direct"] = "1"; }), "us direct: expected times by algorithm, got a string"},
      {broken_choice([](auto& l) { l["us"][std::string(1000, 'x')] = 1; }), "us: expected names of 1 to 256 bytes"},
      {broken_choice([](auto& l) { for (int i = 0; i < 99; ++i) l["us"][std::to_string(i)] = 1; }), "us: expected at most 16 algorithms"},
      {broken_choice([](auto& l) { l["algorithm"] = nullptr; }), "algorithm: expected a string, got null"},
      {broken_choice([](auto& l) { l["threads"] = 0; }), "threads: expected 1 to 4096, got 0"},
      {"{\"v\":1,\"kind\":\"trial\",\"noise\":NaN}", "no JSON"},
      {"{\"v\":1,\"kind\":\"trial\",\"noise\":1e999}", "no JSON"},
      {"{\"v\":1,\"kind\":\"trial\",\"message\":\"\xff\xfe\"}", "no JSON"},
      {std::string("{\"v\":1,\0}", 9), "no JSON"},
      {std::string(5 << 20, 'x'), "expected at most 4 MiB in a line, got more"},
  };
  TemporaryFolder folder;
  const std::string good = file_bytes(small_log(folder));
  const std::string path = folder.file("log.json");
  for (const Hostile& c : cases) {
    write_bytes(path, good + c.line + "\n" + entry_line(default_entry(matmul_task(12, 16), 3)) + "\n");
    Result<LogContents> log = read_log(path);
    ASSERT_TRUE(log.ok()) << to_text(log.errors());
    EXPECT_EQ(log->skipped, 1) << c.complaint;
    ASSERT_FALSE(log->complaints.empty()) << c.complaint;
    EXPECT_THAT(log->complaints[0], HasSubstr("log.json:7: "));
    EXPECT_THAT(log->complaints[0], HasSubstr(c.complaint));
    EXPECT_LT(log->complaints[0].size(), 400u);
    EXPECT_EQ(log->entries.size(), 5u);  // what is good around it is used
    EXPECT_EQ(log->entries.back().trial.measurement.best_us(), 3);
  }
}

TEST(Log, TheLatestChoiceCounts) {
  TemporaryFolder folder;
  const std::string path = folder.file("log.json");
  LogChoice elsewhere = choice_of("3x3", "winograd_2", 9);
  elsewhere.threads = 1;
  const std::vector<LogChoice> first{choice_of("3x3", "winograd_4", 12), choice_of("5x5", "direct", 7), elsewhere};
  {
    Result<LogWriter> writer = LogWriter::open(path);
    ASSERT_TRUE(writer.ok()) << to_text(writer.errors());
    ASSERT_TRUE(writer->append(first).ok());
    const std::vector<LogChoice> second{choice_of("3x3", "winograd_2", 11)};
    ASSERT_TRUE(writer->append(second).ok());
  }
  std::vector<std::string> seen;
  LogReadOptions options;
  options.on_choice = [&](const LogChoice& choice) { seen.push_back(choice.algorithm); };
  Result<LogContents> read = read_log(path, options);
  ASSERT_TRUE(read.ok()) << to_text(read.errors());
  const LogContents& log = *read;
  EXPECT_EQ(log.skipped, 0) << complaints_text(path, log);
  EXPECT_THAT(seen, ElementsAre("winograd_4", "direct", "winograd_2", "winograd_2"));
  ASSERT_EQ(log.choices.size(), 3U);
  const LogChoice* found = log.find_choice("3x3", "x86 there", 2);
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->algorithm, "winograd_2");
  EXPECT_EQ(found->us, (std::map<std::string, double>{{"direct", 20}, {"winograd_2", 11}}));
  EXPECT_EQ(found->device.description, "a processor");
  EXPECT_EQ(found->line, 4);
  EXPECT_EQ(found->time, 1e9);
  EXPECT_EQ(log.find_choice("3x3", "x86 there", 1)->algorithm, "winograd_2");
  EXPECT_EQ(log.find_choice("3x3", "x86 here", 2), nullptr);
  // What has been read is written again as it was.
  ASSERT_TRUE(write_log(path, log.tasks, log.entries, log.choices).ok());
  EXPECT_EQ(read_log(path)->find_choice("3x3", "x86 there", 2)->us, found->us);
}

TEST(Log, IdsOfOtherTasksAreRefused) {
  TemporaryFolder folder;
  const std::string path = folder.file("log.json");
  LogTask task = log_task(matmul_task(12, 16)), other = log_task(matmul_task(24, 16));
  other.id = task.id;
  write_bytes(path, task_line(task) + "\n" + task_line(other) + "\n" + task_line(task) + "\n");
  LogContents log = *read_log(path);
  EXPECT_EQ(log.tasks.size(), 1u);
  EXPECT_THAT(log.complaints, ElementsAre(HasSubstr("log.json:2: id: expected an id of its own")));
}

TEST(Log, LinesOfNewerVersionsAreLeftOut) {
  TemporaryFolder folder;
  const std::string path = folder.file("log.json"), newer = "{\"v\":2,\"kind\":[{\"new\":0}]}\n";
  const std::string bytes = file_bytes(small_log(folder));
  write_bytes(path, bytes + newer);
  Result<LogContents> contents = read_log(path);
  ASSERT_TRUE(contents.ok());
  const LogContents& log = *contents;
  EXPECT_EQ(log.skipped, 1);
  EXPECT_THAT(log.complaints, ElementsAre(HasSubstr("log.json:7: the line is of version 2, this mcc reads version 1")));
  EXPECT_FALSE(log.entries.empty());
  // They stay in the file, whole or not.
  for (const std::string& end : {newer, newer.substr(0, newer.size() - 1), std::string("{\"v\":2,\"ki")}) {
    write_bytes(path, bytes + end);
    ASSERT_TRUE(LogWriter::open(path).ok());
    EXPECT_TRUE(file_bytes(path).starts_with(bytes + end));
  }
}

TEST(Log, NewerLogsAreAnError) {
  TemporaryFolder folder;
  const std::string path = folder.file("log.json");
  write_bytes(path, "{\"v\":2,\"kind\":[{\"new\":0}]}\n");
  Result<LogContents> log = read_log(path);
  ASSERT_FALSE(log.ok());
  EXPECT_EQ(log.errors()[0].kind, ErrorKind::tuning_log);
  EXPECT_THAT(to_text(log.errors()), HasSubstr("log.json: the log is of version 2; this mcc reads version 1"));
  Result<LogWriter> writer = LogWriter::open(path);
  ASSERT_FALSE(writer.ok());
  EXPECT_THAT(to_text(writer.errors()), HasSubstr("of a newer version than 1"));
}

TEST(Log, UnknownFieldsAreLeftAlone) {
  TemporaryFolder folder;
  const std::string path = folder.file("log.json");
  std::string more = broken([](auto& l) { l["extra"] = {{"a", {1, {{"b", nullptr}}}}, {"c", true}}; });
  write_bytes(path, task_line(log_task(matmul_task(12, 16))) + "\r\n\n  \n" + more + "\r\n");
  LogContents log = *read_log(path);
  EXPECT_EQ(log.skipped, 0) << complaints_text(path, log);
  EXPECT_EQ(log.entries.size(), 1u);
}

TEST(Log, ComplaintsAreLimitedAndAllCounted) {
  TemporaryFolder folder;
  const std::string path = folder.file("log.json");
  std::string bytes = file_bytes(small_log(folder));
  for (int i = 0; i < 1000; ++i) bytes += "garbage\n";
  write_bytes(path, bytes);
  LogContents log = *read_log(path);
  EXPECT_EQ(log.skipped, 1000);
  EXPECT_LT(log.complaints.size(), 50u);
  EXPECT_THAT(complaints_text("log.json", log), HasSubstr("log.json: 1000 lines of 1006 left out\n"));
  EXPECT_THAT(complaints_text("log.json", log), HasSubstr("and 980 more"));
}

TEST(Log, RandomlyChangedBytesNeverDoMoreThanLoseLines) {
  TemporaryFolder folder;
  const std::string good = file_bytes(small_log(folder));
  const std::string path = folder.file("log.json");
  std::mt19937_64 random(7);
  const std::string pieces[] = {"\"", "{", "}", "[", "]", ",", ":", "\n", "-", "1e308", "null", "\\u0000", "\xff"};
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = good;
    for (int changes = 1 + static_cast<int>(random() % 4); changes > 0; --changes) {
      size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0: bytes[at] = static_cast<char>(random()); break;
        case 1: bytes.erase(at, random() % 40); break;
        case 2: bytes.insert(at, pieces[random() % std::size(pieces)]); break;
        default: bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 80)); break;
      }
    }
    write_bytes(path, bytes);
    Result<LogContents> log = read_log(path);
    if (!log.ok()) continue;
    for (const LogEntry& entry : log->entries) {
      ASSERT_NE(log->find_task(entry.task), nullptr);
      ASSERT_GE(entry.trial.measurement.best_us(), 0);
      ASSERT_EQ(to_text(entry.trial.candidate.trace).empty(), entry.trial.candidate.trace.empty());
    }
  }
}

TEST(Log, AMillionRecordsInBoundedMemory) {
  TemporaryFolder folder;
  const std::string path = folder.file("large.json");
  Task task = matmul_task(12, 16);
  {
    std::ofstream out(path, std::ios::binary);
    out << task_line(log_task(task)) << '\n';
    // No more than a line needs: the file stays small.
    const std::string start = text("{\"v\":1,\"kind\":\"trial\",\"task\":\"", task.id, "\",\"target\":\"t\",\"threads\":1,\"times_us\":[");
    const std::string end = "],\"error\":\"none\",\"checked\":true,\"sketch\":\"\",\"point\":{},\"trace\":\"\"}";
    for (int i = 0; i < 1'000'000; ++i) out << start << 10 + (int64_t{i} * 7919 % 1'000'003) << end << '\n';
  }
  LogReadOptions options;
  options.keep = 3;
  Result<LogContents> log = read_log(path, options);
  ASSERT_TRUE(log.ok());
  EXPECT_EQ(log->skipped, 0);
  ASSERT_EQ(log->entries.size(), 3u);
  const LogCounts& counts = log->counts.begin()->second;
  EXPECT_EQ(counts.trials, 1'000'000);
  EXPECT_EQ(counts.best_us, 10);
}

TEST(Log, KeepsAsMuchAsItMay) {
  TemporaryFolder folder;
  const std::string path = small_log(folder);
  const size_t all = read_log(path)->entries.size();
  for (int keep : {0, 1}) {
    LogReadOptions options;
    options.keep = keep;
    options.most_bytes = 0;
    Result<LogContents> none = read_log(path, options);
    ASSERT_TRUE(none.ok());
    EXPECT_TRUE(none->entries.empty());
    EXPECT_GT(none->beyond, 0);
    EXPECT_EQ(none->skipped, 0);
    EXPECT_THAT(complaints_text("log.json", *none), HasSubstr("is so long that"));
    EXPECT_EQ(none->counts, read_log(path)->counts);
  }
  LogReadOptions options;
  options.wants = [&](const LogEntry& entry) { return entry.line % 2 == 0; };
  Result<LogContents> half = read_log(path, options);
  ASSERT_TRUE(half.ok());
  EXPECT_LT(half->entries.size(), all);
  EXPECT_EQ(half->beyond, 0);
  for (const LogEntry& entry : half->entries) EXPECT_EQ(entry.line % 2, 0);
}

TEST(Log, KeepsTheFastestValidOnes) {
  TemporaryFolder folder;
  const std::string path = folder.file("log.json");
  Task task = matmul_task(12, 16);
  std::vector<LogEntry> entries;
  for (double us : {9, 5, 7, 3, 4, 1, 2}) entries.push_back(default_entry(task, us));
  entries[5].trial.measurement.is_checked = false;
  entries[6].trial.measurement.is_censored = true;
  LogTask line = log_task(task);
  ASSERT_TRUE(write_log(path, std::span(&line, 1), entries).ok());
  LogReadOptions options;
  options.keep = 2;
  LogContents log = *read_log(path, options);
  ASSERT_EQ(log.entries.size(), 2u);
  EXPECT_EQ(log.entries[0].trial.measurement.best_us(), 3);
  EXPECT_EQ(log.entries[1].trial.measurement.best_us(), 4);
  EXPECT_EQ(log.counts.begin()->second.unchecked, 1);
  EXPECT_EQ(log.counts.begin()->second.censored, 1);
}

// What lost a race no longer counts with what was measured of it before, however fast; what is measured later does.
TEST(Log, WhatIsBeatenNoLongerCounts) {
  TemporaryFolder folder;
  const std::string path = folder.file("log.json");
  Task task = matmul_task(12, 16);
  LogTask line = log_task(task);
  auto entry = [&](const char* trace, double us) {
    LogEntry out = default_entry(task, us);
    out.trial.candidate.trace = *tensor::parse_trace(trace);
    return out;
  };
  const char* lucky = "parallel(loop=\"i\")";
  const char* steady = "vectorize(loop=\"j\")";
  const char* other = "unroll(loop=\"j\")";
  std::vector<LogEntry> entries{entry(lucky, 5), entry(steady, 6), entry(other, 7), entry(lucky, 9), entry(steady, 8)};
  entries.back().beats = {trace_key(to_text(entries[0].trial.candidate.trace))};
  entries.back().source = "final";
  auto best = [&](int keep) {
    LogReadOptions options;
    options.keep = keep;
    LogContents log = *read_log(path, options);
    EXPECT_EQ(log.skipped, 0) << complaints_text(path, log);
    auto fastest = std::min_element(log.entries.begin(), log.entries.end(), [](const LogEntry& a, const LogEntry& b) {
      return is_valid(a) != is_valid(b) ? is_valid(a) : is_faster(a, b);
    });
    EXPECT_EQ(log.counts.begin()->second.best_us, keep == 1 ? log.counts.begin()->second.best_us : fastest->trial.measurement.best_us());
    return to_text(fastest->trial.candidate.trace);
  };
  ASSERT_TRUE(write_log(path, std::span(&line, 1), entries).ok());
  for (int keep : {0, 1, 2, 5}) EXPECT_EQ(best(keep), to_text(entries[1].trial.candidate.trace)) << keep;
  EXPECT_EQ(read_log(path)->counts.begin()->second.best_us, 6);
  EXPECT_EQ(read_log(path)->counts.begin()->second.trials, 5);

  entries.push_back(entry(lucky, 5.5));
  ASSERT_TRUE(write_log(path, std::span(&line, 1), entries).ok());
  for (int keep : {0, 1, 2, 5}) EXPECT_EQ(best(keep), to_text(entries[0].trial.candidate.trace)) << keep;

  // A loser alone, which did not run: its race says nothing of it.
  entries.back().beats = {trace_key(to_text(entries[1].trial.candidate.trace))};
  entries.back().trial.measurement.is_checked = false;
  ASSERT_TRUE(write_log(path, std::span(&line, 1), entries).ok());
  for (int keep : {0, 1, 2, 5}) EXPECT_EQ(best(keep), to_text(entries[1].trial.candidate.trace)) << keep;

  entries.back().beats.assign(kMaxBeats + 1, "0");
  ASSERT_TRUE(write_log(path, std::span(&line, 1), entries).ok());
  EXPECT_THAT(read_log(path)->complaints, ElementsAre(HasSubstr("beats: expected at most 16 schedules")));
}

}  // namespace
}  // namespace mcc::tuner
