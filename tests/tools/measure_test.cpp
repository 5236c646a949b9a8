// The parts of measuring that need no other process: inputs, checking, racing, messages.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "codegen/codegen.h"
#include "nlohmann/json.hpp"
#include "tensor/text.h"
#include "tools/measure/check.h"
#include "tools/measure/inputs.h"
#include "tools/measure/measured_task.h"
#include "tools/measure/protocol.h"
#include "tools/measure/race.h"

namespace mcc::tools {
namespace {

using tensor::Func;

Func parsed(const char* source) {
  Result<Func> f = tensor::parse_func(source);
  EXPECT_TRUE(f.ok()) << to_text(f.errors());
  return *f;
}

constexpr const char* kMatmul = R"(func f(x: f32[64, 96], w: f32[96, 32]) -> (y: f32[64, 32]) {
  for i in 64 {
    for j in 32 {
      for k in 96 {
        block y(a = i: spatial 64, b = j: spatial 32, c = k: reduce 96)
            reads y[a, b], x[a, c], w[c, b]
            writes y[a, b] {
          init { y[a, b] = 0.0 }
          y[a, b] = y[a, b] + x[a, c] * w[c, b]
        }
      }
    }
  }
})";

constexpr const char* kGather = R"(func f(table: f32[50, 4], pick: i64[8], other: i32[8]) -> (y: f32[8, 4]) {
  alloc moved: i64[8] align 64
  for i in 8 {
    block moved(a = i: spatial 8)
        reads pick[a]
        writes moved[a] {
      moved[a] = pick[a]
    }
  }
  for i2 in 8 {
    for j in 4 {
      block y(a = i2: spatial 8, b = j: spatial 4)
          reads table[0 +: 50, b], moved[a], other[a]
          writes y[a, b] {
        y[a, b] = table[moved[a], b] + f32(other[a])
      }
    }
  }
})";

// ---- Inputs ----

TEST(MeasureInputs, IndicesAreFollowedThroughIntermediates) {
  EXPECT_EQ(index_limits(parsed(kGather)), (std::vector<int64_t>{0, 50, 0}));
  EXPECT_EQ(index_limits(parsed(kMatmul)), (std::vector<int64_t>{0, 0}));
}

TEST(MeasureInputs, AreReproducibleAndInRange) {
  std::vector<int64_t> a(1000), b(1000);
  InputOptions options;
  options.limit = 7;
  fill_random(ElementType::i64, 1000, options, reinterpret_cast<std::byte*>(a.data()));
  fill_random(ElementType::i64, 1000, options, reinterpret_cast<std::byte*>(b.data()));
  EXPECT_EQ(a, b);
  for (int64_t value : a)
    EXPECT_TRUE(value >= 0 && value < 7) << value;
  options.seed = 2;
  fill_random(ElementType::i64, 1000, options, reinterpret_cast<std::byte*>(b.data()));
  EXPECT_NE(a, b);
  std::vector<float> floats(1001);
  fill_random(ElementType::f32, 1001, options, reinterpret_cast<std::byte*>(floats.data()));
  double sum = 0;
  for (float x : floats) {
    EXPECT_TRUE(x >= -1 && x < 1) << x;
    sum += static_cast<double>(x);
  }
  EXPECT_NEAR(sum / 1001, 0, 0.1);
  std::vector<uint16_t> halves(100);
  options.is_positive = true;
  fill_random(ElementType::f16, 100, options, reinterpret_cast<std::byte*>(halves.data()));
  for (uint16_t bits : halves)
    EXPECT_TRUE(bits >= 0x3800 && bits < 0x4101) << bits;  // 0.5 .. 2.5
}

// ---- Checking ----

struct MeasureCheck : testing::Test {
  Func f = parsed(kMatmul);
  OutputTolerance tolerance = tolerance_of(f, f.params.back());
  std::vector<float> want = std::vector<float>(2048);
  std::vector<float> got;

  MeasureCheck() {
    fill_random(ElementType::f32, 2048, {}, reinterpret_cast<std::byte*>(want.data()));
    for (float& x : want)
      x *= 5;
    got = want;
  }
  OutputCheck check() {
    return check_output(ElementType::f32, std::as_bytes(std::span(got)), std::as_bytes(std::span(want)),
                        tolerance);
  }
};

TEST_F(MeasureCheck, EqualOutputsPass) {
  EXPECT_TRUE(check().ok);
  EXPECT_EQ(check().max_error, 0);
}

TEST_F(MeasureCheck, RoundingPasses) {
  for (float& x : got)
    x *= 1 + 1e-6f;
  EXPECT_TRUE(check().ok) << check().message;
  EXPECT_GT(check().max_error, 0);
}

TEST_F(MeasureCheck, OneWrongElementOfManyFails) {
  got[777] += 0.01f;
  OutputCheck result = check();
  EXPECT_FALSE(result.ok);
  EXPECT_GT(result.max_error, 1);
  EXPECT_NE(result.message.find("first at 777"), std::string::npos) << result.message;
}

TEST_F(MeasureCheck, AnElementThatIsNotWrittenFails) {
  std::memset(&got[5], 0xff, sizeof(float));
  EXPECT_FALSE(check().ok);
}

TEST_F(MeasureCheck, NotFiniteValuesEqualThemselves) {
  want[3] = got[3] = std::numeric_limits<float>::infinity();
  want[4] = got[4] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(check().ok) << check().message;
  got[3] = -got[3];
  EXPECT_FALSE(check().ok);
}

TEST(MeasureChecks, IntegersAreEqualUnlessTheyWereRounded) {
  std::vector<int8_t> want(1000, 3), got = want;
  const auto check = [&](bool is_rounded) {
    return check_output(ElementType::i8, std::as_bytes(std::span(got)), std::as_bytes(std::span(want)),
                        {0, is_rounded})
        .ok;
  };
  EXPECT_TRUE(check(false));
  got[1] = 4;
  EXPECT_FALSE(check(false));
  EXPECT_TRUE(check(true));
  got[1] = 5;
  EXPECT_FALSE(check(true));
  for (size_t i = 0; i < 100; ++i)
    got[i] = 2;
  EXPECT_FALSE(check(true));
}

TEST(MeasureChecks, ToleranceGrowsWithTheSumAndTheFormat) {
  const auto of = [](const char* source) {
    const Func f = parsed(source);
    return tolerance_of(f, f.params.back()).relative;
  };
  std::string half = kMatmul;
  for (size_t at; (at = half.find("f32")) != std::string::npos;)
    half.replace(at, 3, "f16");
  for (size_t at; (at = half.find("= 0.0 ")) != std::string::npos;)
    half.replace(at, 6, "= 0.0:f16 ");
  EXPECT_GE(of(kMatmul), 1e-4);
  EXPECT_LT(of(kMatmul), 1e-3);
  EXPECT_GT(of(half.c_str()), 10 * of(kMatmul));
}

// Interpreted, compiled, and row by row: all the same.
TEST(MeasuredTasks, RowsOfAFunctionAgreeWithTheWhole) {
  const Func f = parsed(kMatmul);
  std::optional<Func> rows = rows_of(f, 64 * 96 * 32 / 16);
  ASSERT_TRUE(rows);
  Result<tensor::Target> target = codegen::make_target("cpu");
  Result<std::unique_ptr<codegen::Jit>> jit = codegen::Jit::create(*target);
  ASSERT_TRUE(jit.ok());
  std::vector<float> x(64 * 96), w(96 * 32), all(64 * 32), some(64 * 32, -77.0f);
  fill_random(ElementType::f32, 64 * 96, {}, reinterpret_cast<std::byte*>(x.data()));
  fill_random(ElementType::f32, 96 * 32, {}, reinterpret_cast<std::byte*>(w.data()));
  void* for_all[] = {x.data(), w.data(), all.data()};
  void* for_some[] = {x.data(), w.data(), some.data()};
  ASSERT_TRUE((*jit)->run(f, for_all).ok());
  ASSERT_TRUE((*jit)->run(*rows, for_some).ok());
  int same = 0, untouched = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    same += some[i] == all[i] ? 1 : 0;
    untouched += some[i] == -77.0f ? 1 : 0;
  }
  EXPECT_EQ(same, 4 * 32);
  EXPECT_EQ(untouched, 60 * 32);
  EXPECT_NE(some[63 * 32], -77.0f);  // the last row is one of them
}

TEST(MeasuredTasks, TellWrongResults) {
  Result<tensor::Target> target = codegen::make_target("cpu");
  Result<std::unique_ptr<codegen::Jit>> jit = codegen::Jit::create(*target);
  ASSERT_TRUE(jit.ok());
  Result<std::unique_ptr<MeasuredTask>> task = MeasuredTask::create(kMatmul, 1, 1 << 30);
  ASSERT_TRUE(task.ok()) << to_text(task.errors());
  const codegen::EmitOptions emit;
  const BuildContext context{(*task)->func(), *target, emit, **jit};
  ASSERT_TRUE((*task)->compute_reference(context).ok());
  BuiltKernel right = build_candidate(context, "vectorize(loop=\"j\")");
  ASSERT_EQ(right.error, tuner::TrialError::none) << right.message;
  std::string other = kMatmul;  // reads one step of the sum less
  other.replace(other.find("for k in 96"), 11, "for k in 95");
  const Func wrong_func = parsed(other.c_str());
  BuiltKernel wrong = build_function(context, wrong_func);
  ASSERT_EQ(wrong.error, tuner::TrialError::none) << wrong.message;
  const auto run = [&](BuiltKernel& kernel) {
    (*task)->poison_outputs();
    kernel.kernel->function(*(*task)->arguments(kernel.memory, 1), nullptr, nullptr);
    return (*task)->check_outputs();
  };
  EXPECT_TRUE(run(right).ok);
  EXPECT_FALSE(run(wrong).ok);
  (*task)->poison_outputs();
  EXPECT_FALSE((*task)->check_outputs().ok);
}

TEST(MeasuredTasks, RefuseWhatCannotBeMeasured) {
  EXPECT_FALSE(MeasuredTask::create("func", 1, 1 << 30).ok());
  EXPECT_FALSE(MeasuredTask::create(kMatmul, 1, 1000).ok());
  EXPECT_FALSE(MeasuredTask::create("func f<n>(x: f32[n]) -> (y: f32[n]) { }", 1, 1 << 30).ok());
}

// ---- Racing ----

// 16 timers, the best ahead by 2 %; every block is slowed by something, some by much, and the machine drifts.
bool finds_the_best(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  std::vector<double> truth(16);
  for (double& us : truth)
    us = 102 * (1 + 2 * uniform(random) * uniform(random));
  const auto best = static_cast<size_t>(random() % 16);
  truth[best] = 100;
  double now = 0;
  const auto time = [&](size_t i, int64_t runs) {
    RunBlock block;
    double noise = 0.03 * -std::log(1 - uniform(random)) / std::sqrt(static_cast<double>(runs));
    if (uniform(random) < 0.05) noise += 2 * uniform(random);
    block.is_disturbed = noise > 0.5 && uniform(random) < 0.7;
    const double drift = 0.01 * (1 + std::sin(now / 20'000));
    block.us = truth[i] * (1 + noise + drift);
    block.wall_us = block.us * static_cast<double>(runs);
    now += block.wall_us;
    return block;
  };
  size_t fastest = 16;
  double fastest_us = 1e9;
  size_t reports = 0;
  Race race({}, time, [&](const Lane& lane) {
    ++reports;
    if (lane.is_censored || lane.best_us >= fastest_us) return;
    fastest = lane.candidate;
    fastest_us = lane.best_us;
  });
  for (size_t i = 0; i < truth.size(); ++i)
    race.enter(i, time(i, 1).us);
  race.finish();
  EXPECT_EQ(reports, truth.size());
  return fastest == best;
}

TEST(MeasureRace, FindsTheBestOfSixteenNoisyTimers) {
  size_t found = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed)
    found += finds_the_best(seed) ? 1 : 0;
  EXPECT_GE(found, 990u);
}

TEST(MeasureRace, SpendsLittleOnTheSlowAndCensorsTheHopeless) {
  const std::vector<double> truth{100, 120, 250, 5000, 90'000};
  std::vector<double> spent(truth.size());
  const auto time = [&](size_t i, int64_t runs) {
    const double wall = truth[i] * static_cast<double>(runs);
    spent[i] += wall;
    return RunBlock{truth[i], wall, false};
  };
  std::vector<bool> censored(truth.size());
  std::vector<size_t> order;
  Race race({}, time, [&](const Lane& lane) {
    censored[lane.candidate] = lane.is_censored;
    order.push_back(lane.candidate);
  });
  for (size_t i = 0; i < truth.size(); ++i)
    race.enter(i, truth[i]);
  race.finish();
  EXPECT_EQ(censored, (std::vector<bool>{false, false, false, true, true}));
  EXPECT_EQ(order.back(), 0u);
  EXPECT_LT(spent[2], 2500);
  EXPECT_EQ(spent[4], 0);  // its warm-up said enough
  EXPECT_GT(spent[0], spent[2]);
}

// Two single runs of a short kernel, with its code on the way to the caches, are not enough to give it up.
TEST(MeasureRace, ShortKernelsMayBeginSlowly) {
  const std::vector<double> truth{1.1, 1};
  std::vector<int> single(truth.size());
  const auto time = [&](size_t i, int64_t runs) {
    const double us = runs == 1 && ++single[i] <= 2 ? 5 * truth[i] : truth[i];
    return RunBlock{us, us * static_cast<double>(runs), false};
  };
  std::vector<bool> censored(truth.size());
  size_t winner = 2;
  Race race({}, time, [&](const Lane& lane) {
    censored[lane.candidate] = lane.is_censored;
    if (lane.is_winner) winner = lane.candidate;
  });
  for (size_t i = 0; i < truth.size(); ++i)
    race.enter(i, truth[i]);
  race.finish();
  EXPECT_EQ(censored, (std::vector<bool>{false, false}));
  EXPECT_EQ(winner, 1u);
}

TEST(MeasureRace, StopsEarlyWhenAllAreBehindTheIncumbent) {
  double spent = 0;
  RaceOptions options;
  options.incumbent_us = 50;
  Race race(
      options,
      [&](size_t, int64_t runs) {
        spent += 100.0 * static_cast<double>(runs);
        return RunBlock{100, 100.0 * static_cast<double>(runs), false};
      },
      [&](const Lane& lane) { EXPECT_FALSE(lane.is_winner); });
  for (size_t i = 0; i < 4; ++i)
    race.enter(i, 100);
  race.finish();
  EXPECT_LT(spent, 4 * 2600.0);
}

// Runs of a kernel that takes longer than any stage.
TEST(MeasureRace, APatientRaceRunsSlowKernelsOften) {
  const auto runs_with = [](double patience) {
    int64_t all = 0;
    RaceOptions options;
    options.precision = 0;
    options.patience = patience;
    Race race(
        options,
        [&](size_t, int64_t runs) {
          all += runs;
          const double noise_us = static_cast<double>(all % 7);  // so that no stage ends early
          return RunBlock{50'000 + noise_us, 50'000.0 * static_cast<double>(runs), false};
        },
        [](const Lane&) {});
    race.enter(0, 50'000);
    race.finish();
    return all;
  };
  EXPECT_EQ(runs_with(1), 3);
  EXPECT_GE(runs_with(8), 8 * (1 + 2 + 4));
  EXPECT_LE(runs_with(8), 8 * (1 + 2 + 4) + 3) << "one more a stage, by the noise";
}

TEST(MeasureRace, DisturbedBlocksAreRepeatedButNotForever) {
  int blocks = 0;
  Race race(
      {},
      [&](size_t, int64_t runs) {
        ++blocks;
        return RunBlock{100, 100.0 * static_cast<double>(runs), true};
      },
      [](const Lane& lane) { EXPECT_FALSE(lane.times_us.empty()); });
  race.enter(0, 100);
  race.finish();
  EXPECT_LT(blocks, 400);
}

// ---- Messages ----

TEST(MeasureProtocol, MessagesSurviveTheWay) {
  WorkerRequest request;
  request.id = 9;
  request.task = kMatmul;
  request.target = "cpu";
  request.candidates = {"split(loop=\"i\", factors=[0, 2])\n", ""};
  request.options.threads = 2;
  request.options.incumbent_us = 12.5;
  request.options.is_cold = true;
  request.options.seed = 77;
  request.options.is_fresh = true;
  request.options.patience = 8;
  request.emit.optimization = 3;
  request.emit.fast_math = true;
  request.is_serial = true;
  Result<WorkerRequest> read = decode_request(encode(request));
  ASSERT_TRUE(read.ok()) << to_text(read.errors());
  EXPECT_EQ(encode(*read), encode(request));
  EXPECT_EQ(read->options.patience, 8);
  EXPECT_EQ(encode(request).find('\n'), std::string::npos);

  WorkerMessage message;
  message.id = 9;
  message.event = WorkerEvent::result;
  message.candidate = 1;
  message.measurement.error = tuner::TrialError::wrong;
  message.measurement.message = "7 elements differ\n\"so\"";
  message.measurement.times_us = {1.25, 3};
  message.measurement.max_error = std::numeric_limits<double>::infinity();
  std::optional<WorkerMessage> back = decode_message(encode(message));
  ASSERT_TRUE(back);
  EXPECT_EQ(encode(*back), encode(message));
  EXPECT_EQ(back->measurement.times_us, message.measurement.times_us);
}

TEST(MeasureProtocol, RefusesWhatIsNoRequest) {
  const nlohmann::json good =
      nlohmann::json::parse(encode(WorkerRequest{1, "func", "cpu", {"a"}, {}, {}, false}));
  ASSERT_TRUE(decode_request(good.dump()).ok());
  const auto with = [&](const char* pointer, const nlohmann::json& value) {
    nlohmann::json changed = good;
    changed[nlohmann::json::json_pointer(pointer)] = value;
    return decode_request(changed.dump()).ok();
  };
  EXPECT_FALSE(decode_request("").ok());
  EXPECT_FALSE(decode_request("[1, 2").ok());
  EXPECT_FALSE(decode_request("[]").ok());
  EXPECT_FALSE(with("/version", 2));
  EXPECT_FALSE(with("/task", 5));
  EXPECT_FALSE(with("/task", ""));
  EXPECT_FALSE(with("/candidates", "x"));
  EXPECT_FALSE(with("/candidates/0", nullptr));
  EXPECT_FALSE(with("/candidates", std::vector<std::string>(kMaxCandidates + 1)));
  EXPECT_FALSE(with("/options", 3));
  EXPECT_FALSE(with("/options/threads", 0));
  EXPECT_FALSE(with("/options/threads", 1.5));
  EXPECT_FALSE(with("/options/threads", 1e30));
  EXPECT_FALSE(with("/options/seed", UINT64_MAX));
  EXPECT_FALSE(with("/options/optimization", 9));
  EXPECT_FALSE(with("/options/is_cold", "yes"));
  EXPECT_FALSE(decode_message("{\"event\": \"fire\"}"));
  EXPECT_FALSE(decode_message("{\"event\": \"result\", \"candidate\": 0}"));
  EXPECT_FALSE(decode_message("garbage"));
}

// A processor and a GPU of some machine.
Machine described_machine() {
  Machine machine;
  machine.version = "1.2.3";
  for (const char* name : {"cpu:haswell", "cuda:sm_90a"}) {
    Result<tensor::Target> target = codegen::make_target(name);
    EXPECT_TRUE(target.ok());
    machine.targets.push_back(*target);
  }
  machine.measured = 1;
  machine.gpu = "GPU \"x\"";
  machine.cublaslt = "13.1.0";
  machine.peak_gflops = 100.5;
  return machine;
}

TEST(MeasureProtocol, MachineThereAndBack) {
  const nlohmann::json document = to_json(described_machine());
  std::optional<Machine> back = parse_machine(document);
  ASSERT_TRUE(back);
  EXPECT_EQ(to_json(*back), document);
  EXPECT_EQ(back->target().fingerprint(), described_machine().target().fingerprint());
  EXPECT_EQ(back->targets[0].l2.bytes, described_machine().targets[0].l2.bytes);
}

TEST(MeasureProtocol, RefusesWhatIsNoMachine) {
  const nlohmann::json good = to_json(described_machine());
  const auto refused_with = [&](const std::string& pointer, const nlohmann::json& value) {
    nlohmann::json changed = good;
    changed[nlohmann::json::json_pointer(pointer)] = value;
    return !parse_machine(changed);
  };
  for (const nlohmann::json& value :
       {nlohmann::json(), nlohmann::json(-1), nlohmann::json(2), nlohmann::json("1")})
    EXPECT_TRUE(refused_with("/measured", value)) << value;
  EXPECT_TRUE(refused_with("/targets", nlohmann::json::array()));
  EXPECT_TRUE(refused_with("/targets/0/vector_bits", 100));
  EXPECT_TRUE(refused_with("/targets/0/vector_bits", 4096));
  EXPECT_TRUE(refused_with("/targets/0/l1", 5));
  EXPECT_TRUE(refused_with("/targets/1/gpu/arch", 90));
  // What formulas divide by, whatever it is called; and everything has to be there.
  size_t fields = 0;
  const nlohmann::json flat = good["targets"].flatten();
  for (const auto& [pointer, value] : flat.items()) {
    nlohmann::json without = flat;
    without.erase(pointer);
    nlohmann::json changed = good;
    changed["targets"] = without.unflatten();
    EXPECT_TRUE(!parse_machine(changed) || pointer.ends_with("is_gpu")) << pointer;
    EXPECT_TRUE(!value.is_number() || pointer.ends_with("_fmas") || refused_with("/targets" + pointer, 0))
        << pointer;
    EXPECT_TRUE(!value.is_number() || refused_with("/targets" + pointer, -1)) << pointer;
    ++fields;
  }
  EXPECT_GT(fields, 60u);
}

}  // namespace
}  // namespace mcc::tools
