// Tensors that other frameworks hand over, and get.
#include "mcc/dlpack.hpp"

#include "runtime/test_model.h"

namespace mcc::test {
namespace {

using runtime::dlpack_type;
using runtime::from_dlpack;
using runtime::to_dlpack;
using runtime::type_from_dlpack;

// A dense f32 tensor of the host over somebody's numbers.
struct Given {
  std::vector<float> numbers = {9, 9, 1, -1, 2, -2, 3, -3};
  std::vector<int64_t> shape = {2, 3}, strides;
  DLTensor tensor = {};

  DLTensor& view() {
    tensor.data = numbers.data();
    tensor.byte_offset = 2 * sizeof(float);
    tensor.device = {kDLCPU, 0};
    tensor.dtype = {kDLFloat, 32, 1};
    tensor.ndim = static_cast<int32_t>(shape.size());
    tensor.shape = shape.data();
    tensor.strides = strides.empty() ? nullptr : strides.data();
    return tensor;
  }
};

TEST(Dlpack, InputsAndOutputsWithoutCopies) {
  TestModel description;
  make_affine(description);
  const Model model(description.image());
  auto session = std::make_shared<Session>(model, SessionOptions{.threads = 1});
  Given given;
  session->set_input(0, from_dlpack(given.view()));
  session->run();
  DLManagedTensor* shared = to_dlpack(session->output(0), {kDLCPU, 0}, session);
  const DLTensor& y = shared->dl_tensor;
  EXPECT_EQ(y.data, session->output(0).data);
  EXPECT_EQ(std::vector<int64_t>(y.shape, y.shape + y.ndim), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(y.dtype.code, kDLFloat);
  EXPECT_EQ(y.dtype.bits, 32);
  EXPECT_EQ(y.dtype.lanes, 1);
  EXPECT_EQ(y.strides, nullptr);
  EXPECT_EQ(y.byte_offset, 0u);
  // What one model gives is another one's input; and the session lives as long as its output does.
  std::weak_ptr<Session> is_alive = session;
  session.reset();
  EXPECT_FALSE(is_alive.expired());
  EXPECT_EQ(floats(from_dlpack(y)), (std::vector<float>{2, -1, 7, -7, 16, -17}));
  shared->deleter(shared);
  EXPECT_TRUE(is_alive.expired());
}

TEST(Dlpack, StridesOfDenseTensors) {
  Given given;
  const Tensor plain = from_dlpack(given.view());
  EXPECT_EQ(plain.data, given.numbers.data() + 2);
  EXPECT_EQ(plain.size_bytes, 24u);
  given.strides = {3, 1};
  EXPECT_EQ(from_dlpack(given.view()).data, plain.data);
  // Where nobody goes strides say nothing.
  given.shape = {1, 2, 1, 3};
  given.strides = {77, 3, 0, 1};
  EXPECT_EQ(from_dlpack(given.view()).dims, given.shape);
  given.shape = {2, 0, 3};
  given.strides = {5, 9, 9};
  EXPECT_EQ(from_dlpack(given.view()).size_bytes, 0u);
  given.shape.clear();
  given.strides.clear();
  EXPECT_EQ(from_dlpack(given.view()).size_bytes, 4u);  // a scalar
}

TEST(Dlpack, RefusesWhatIsNotDense) {
  Given given;
  given.strides = {1, 2};
  EXPECT_EQ(error_of([&] { from_dlpack(given.view()); }),
            "DLPack: expected a dense tensor of shape [2, 3], got strides of [1, 2] elements");
  given.strides = {4, 1};
  EXPECT_EQ(error_of([&] { from_dlpack(given.view()); }),
            "DLPack: expected a dense tensor of shape [2, 3], got strides of [4, 1] elements");
}

TEST(Dlpack, RefusesForeignMemoryAndTypes) {
  Given given;
  given.view().device = {kDLVulkan, 0};
  EXPECT_EQ(error_of([&] { from_dlpack(given.tensor); }),
            "DLPack: expected memory of a CPU or of CUDA, got a device of type 7");
  given.view().dtype.lanes = 4;
  EXPECT_EQ(error_of([&] { from_dlpack(given.tensor); }),
            "DLPack: expected one number of a known type an element, got type code 2 of 32 bits, 4 lanes");
  given.view().dtype = {kDLOpaqueHandle, 64, 1};
  EXPECT_NE(error_of([&] { from_dlpack(given.tensor); }).find("type code 3"), std::string::npos);
  given.view().ndim = MCC_MAX_RANK + 1;
  EXPECT_NE(error_of([&] { from_dlpack(given.tensor); }).find("dimensions"), std::string::npos);
  EXPECT_EQ(error_of([&] { to_dlpack({nullptr, 0, MCC_DTYPE_string, {0}}, {kDLCPU, 0}, nullptr); }),
            "DLPack: expected a type that DLPack has, got string");
}

TEST(Dlpack, TypesThereAndBack) {
  int there = 0;
#define EXPECT_THE_SAME(name, value, bytes)                \
  try {                                                    \
    const DLDataType type = dlpack_type(MCC_DTYPE_##name); \
    EXPECT_EQ(type_from_dlpack(type), MCC_DTYPE_##name);   \
    EXPECT_EQ(type.bits, 8 * (bytes));                     \
    ++there;                                               \
  } catch (const runtime::Error&) {                        \
  }
  MCC_DTYPES(EXPECT_THE_SAME)
#undef EXPECT_THE_SAME
  EXPECT_EQ(there, 20);  // all but strings and what has less than 8 bits
}

}  // namespace
}  // namespace mcc::test
