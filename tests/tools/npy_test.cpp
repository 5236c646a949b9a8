#include "tools/npy.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace mcc::tools {
namespace {

using graph::Constant;
using ::testing::ElementsAre;

class NpyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "mcc_npy_XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& bytes) const {
    std::ofstream(file("x.npy"), std::ios::binary) << bytes;
    return file("x.npy");
  }
  static std::string npy(const std::string& header, const std::string& data, char version = 1) {
    const std::string length{static_cast<char>(header.size()), '\0'};
    return std::string("\x93NUMPY") + version + '\0' + length + (version == 1 ? "" : std::string(2, '\0')) +
           header + data;
  }
  std::string error_of(const std::string& bytes) const {
    Result<Constant> value = read_npy(write(bytes));
    return value.ok() ? "none" : value.errors().front().message;
  }

  std::filesystem::path folder_;
};

TEST_F(NpyTest, WhatIsWrittenReadsBack) {
  const std::vector<Constant> values = {
      Constant::of(ElementType::f32, {2, 3}, std::vector<float>{1, 2, 3, 4, 5, 6}),
      Constant::of(ElementType::i64, {3}, std::vector<int64_t>{-1, 0, 1}),
      Constant::of(ElementType::boolean, {2}, std::vector<uint8_t>{1, 0}),
      Constant::of(ElementType::f16, {2, 1}, std::vector<uint16_t>{0x3c00, 0xc000}),
      Constant::of(ElementType::f64, {}, std::vector<double>{0.1}),
      Constant::zeros(ElementType::u8, {0, 4}),
  };
  for (const Constant& value : values) {
    ASSERT_TRUE(write_npy(file("x.npy"), value).ok());
    EXPECT_EQ(std::filesystem::file_size(file("x.npy")) - value.bytes().size(), 128u);
    Result<Constant> read = read_npy(file("x.npy"));
    ASSERT_TRUE(read.ok()) << to_text(read.errors());
    EXPECT_EQ(read->element(), value.element());
    EXPECT_EQ(read->shape(), value.shape());
    EXPECT_TRUE(
        std::equal(read->bytes().begin(), read->bytes().end(), value.bytes().begin(), value.bytes().end()));
  }
}

TEST_F(NpyTest, TypesThatNumPyLacksAreWidened) {
  ASSERT_TRUE(
      write_npy(file("x.npy"), Constant::of(ElementType::bf16, {1}, std::vector<uint16_t>{0x3fc0})).ok());
  Result<Constant> read = read_npy(file("x.npy"));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->element(), ElementType::f32);
  EXPECT_EQ(read->number_at(0), 1.5);
  const Constant back = from_numpy_type(*read, ElementType::bf16);
  EXPECT_EQ(back.element(), ElementType::bf16);
  EXPECT_EQ(back.number_at(0), 1.5);
}

TEST_F(NpyTest, FortranOrderIsReordered) {
  Result<Constant> read =
      read_npy(write(npy("{'descr': '|i1', 'fortran_order': True, 'shape': (2, 3)}\n", "abcdef")));
  ASSERT_TRUE(read.ok()) << to_text(read.errors());
  EXPECT_THAT(read->to_ints(), ElementsAre('a', 'c', 'e', 'b', 'd', 'f'));
}

TEST_F(NpyTest, LaterVersionsHaveLongerLengths) {
  Result<Constant> read =
      read_npy(write(npy("{'descr': '|i1', 'fortran_order': False, 'shape': (1,), }\n", "x", 2)));
  ASSERT_TRUE(read.ok()) << to_text(read.errors());
  EXPECT_THAT(read->to_ints(), ElementsAre('x'));
}

TEST_F(NpyTest, Refusals) {
  const std::string rest = ", 'fortran_order': False, 'shape': (2,)}\n";
  EXPECT_EQ(error_of("hello hello hello"), "not a .npy file");
  EXPECT_EQ(error_of(npy("", "", 9)), "version 9 of the .npy format is not known");
  EXPECT_EQ(error_of(npy("{'descr': '<f4'" + rest, "").substr(0, 30)), "the file ends within its header");
  EXPECT_EQ(error_of(npy("{'descr': '<f4'" + rest, "1234567")),
            "has 7 bytes of data, which is not what shape [2] of '<f4' takes");
  EXPECT_EQ(error_of(npy("{'descr': '>f4'" + rest, "12345678")), "big-endian data ('>f4') is not supported");
  EXPECT_EQ(error_of(npy("{'descr': '<c8'" + rest, "12345678")), "element type '<c8' is not supported");
  EXPECT_EQ(error_of(npy("{'descr': '|O'" + rest, "12345678")), "element type '|O' is not supported");
  EXPECT_EQ(error_of(npy("{'descr': '<f4'}", "")), "the header is malformed");
  EXPECT_EQ(error_of(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", "")),
            "the header is malformed");
  EXPECT_EQ(error_of(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", "")),
            "has 0 bytes of data, which is not what shape [4611686018427387904, 4] of '<f4' takes");
  EXPECT_EQ(read_npy(file("none.npy")).errors().front().message, "cannot be opened");
  EXPECT_EQ(read_npy(folder_.string()).errors().front().message, "cannot be read: it is a folder");
}

}  // namespace
}  // namespace mcc::tools
