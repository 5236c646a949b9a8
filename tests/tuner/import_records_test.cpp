// Records of other tuners, in the forms that their documentation and sources give.
#include <gmock/gmock.h>

#include "tuner/import_records.h"
#include "tuner/log_fixture.h"

namespace mcc::tuner {
namespace {

using namespace test;

constexpr const char* kDense =
    R"({"input": ["llvm -mcpu=skylake-avx512", "dense_pack.x86", [["TENSOR", [48, 64], "float32"], ["TENSOR", [96, 64], "float32"], null, "float32"], {}], "config": {"index": 7, "code_hash": null, "entity": [["tile_y", "sp", [-1, 4, 6]], ["tile_x", "sp", [-1, 3, 32]], ["tile_k", "sp", [-1, 4]], ["tile_inner", "sp", [-1, 1]]]}, "result": [[2.1e-05, 2.0e-05], 0, 1.2, 1700000000.0], "version": 0.2, "tvm_version": "0.8"})";
constexpr const char* kConv =
    R"({"input": ["llvm", "conv2d_NCHWc.x86", [["TENSOR", [1, 64, 56, 56], "float32"], ["TENSOR", [128, 64, 3, 3], "float32"], [2, 2], [1, 1, 1, 1], [1, 1], "NCHW", "NCHW", "float32"], {}], "config": {"index": 0, "code_hash": null, "entity": [["tile_ic", "sp", [-1, 16]], ["tile_oc", "sp", [-1, 32]], ["tile_ow", "sp", [-1, 14]], ["unroll_kw", "ot", true]]}, "result": [[0.001], 0, 1.2, 1.7e9], "version": 0.2, "tvm_version": "0.8"})";
constexpr const char* kAnsor =
    R"({"i": [["[\"matmul\", 48, 96, 64]", "llvm", [8, 64, 64, 0, 0, 0, 0, 0], "", 1, []], [[], [["CHW", 2, "local"], ["SP", 2, 0, 48, [2, 3, 2], 1], ["SP", 2, 4, 96, [1, 2, 16], 1], ["SP", 2, 8, 64, [4], 1], ["RE", 2, [0, 4, 1]], ["AN", 2, 9, 2]]]], "r": [[3e-05], 0, 0.5, 1700000000], "v": "v0.6"})";
constexpr const char* kMeta =
    R"([0, [[[["GetBlock", [], ["C", "main"], ["b0"]], ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]], ["SamplePerfectTile", ["l1"], [4, 64], ["v4", "v5", "v6", "v7"]], ["SamplePerfectTile", ["l2"], [4, 64], ["v8", "v9", "v10", "v11"]], ["SamplePerfectTile", ["l3"], [2, 64], ["v12", "v13"]], ["SampleCategorical", [], [[0, 16], [0.5, 0.5]], ["v14"]]], [[2, [2, 4, 3, 2]], [3, [3, 1, 1, 32]], [4, [16, 4]], [5, 1]]], [1.5e-05], null, null]])";

TEST(ImportRecords, EachForm) {
  ForeignRecords out;
  for (const char* line : {kDense, kConv, kAnsor, kMeta}) read_foreign_line(line, out);
  ASSERT_EQ(out.records.size(), 4u) << (out.left_out.empty() ? "" : out.left_out.begin()->first);
  const ForeignRecord& dense = out.records[0];
  EXPECT_EQ(dense.origin, "autotvm dense_pack.x86");
  EXPECT_EQ((std::array{dense.spatial, dense.reduce, dense.rows, dense.columns, dense.unroll}),
            (std::array<int64_t, 5>{48 * 96, 64, 6, 32, 4}));
  EXPECT_NEAR(dense.us, 20, 1e-9);
  const ForeignRecord& conv = out.records[1];
  EXPECT_EQ((std::array{conv.spatial, conv.reduce, conv.rows, conv.columns}),
            (std::array<int64_t, 4>{128 * 28 * 28, 64 * 9, 14, 32}));
  const ForeignRecord& ansor = out.records[2];
  EXPECT_EQ((std::array{ansor.spatial, ansor.reduce, ansor.rows, ansor.columns, ansor.unroll}),
            (std::array<int64_t, 5>{48 * 96, 64, 6, 32, 4}));
  const ForeignRecord& meta = out.records[3];
  EXPECT_EQ((std::array{meta.spatial, meta.reduce, meta.rows, meta.columns, meta.unroll}),
            (std::array<int64_t, 5>{48 * 96, 64, 6, 32, 4}));
}

TEST(ImportRecords, BecomePointsOfOurSketches) {
  Task task = matmul_task(48, 64, 96), other = matmul_task(48, 32, 96);
  ForeignRecords out;
  for (const char* line : {kDense, kMeta, kConv}) read_foreign_line(line, out);
  auto seeds = seeds_for(task, test_target(), out, 8);
  ASSERT_FALSE(seeds.empty());
  EXPECT_EQ(seeds[0].second->origin, "meta_schedule");  // the fastest
  EXPECT_EQ(seeds[0].first.sketch, "rules");
  EXPECT_EQ(seeds[0].first.point.at("matmul.rows"), Answer{6});
  EXPECT_EQ(seeds[0].first.point.at("matmul.vectors"), Answer{2});
  EXPECT_TRUE(seeds_for(other, test_target(), out, 8).empty());
}

TEST(ImportRecords, WhatDoesNotMapIsCounted) {
  ForeignRecords out;
  auto changed = [](std::string line, const std::string& from, const std::string& to) {
    return line.replace(line.find(from), from.size(), to);
  };
  read_foreign_line("# a comment", out);
  read_foreign_line("", out);
  const std::string deep(100000, '[');
  for (const std::string& line : {
           std::string("garbage"), std::string("{}"), std::string("[]"), std::string("17"), deep, "{\"input\":" + deep,
           std::string("[\"hash\", \"YmFzZTY0\"]"),
           changed(kDense, "], 0, 1.2", "], 4, 1.2"),
           changed(kDense, "[2.1e-05, 2.0e-05]", "[1000000000.0]"),
           changed(kDense, "dense_pack.x86", "winograd.cuda"),
           changed(kDense, "[96, 64]", "[-5, 64]"),
           changed(kDense, "[48, 64]", "[99999999999999999, 64]"),
           changed(kConv, "[2, 2]", "[0, 0]"),
           changed(kAnsor, "[2, 3, 2]", "[1099511627776, 1099511627776, 1099511627776]"),
           changed(kMeta, "[2, [2, 4, 3, 2]]", "[99, [2, 4, 3, 2]]"),
           changed(kMeta, "[1.5e-05]", "null"),
       }) {
    read_foreign_line(line, out);
  }
  EXPECT_EQ(out.records.size(), 0u);
  int64_t left_out = 0;
  for (const auto& [reason, count] : out.left_out) left_out += count;
  EXPECT_EQ(out.lines, 16);
  EXPECT_EQ(left_out, 16);
  EXPECT_EQ(out.left_out["failed there"], 3);
}

TEST(ImportRecords, Files) {
  TemporaryFolder folder;
  EXPECT_FALSE(read_foreign_records(folder.file("absent")).ok());
  write_bytes(folder.file("empty"), "");
  EXPECT_EQ(read_foreign_records(folder.file("empty"))->lines, 0);
  write_bytes(folder.file("log"), std::string(kDense) + "\r\n" + kAnsor);
  EXPECT_EQ(read_foreign_records(folder.file("log"))->records.size(), 2u);
}

}  // namespace
}  // namespace mcc::tuner
