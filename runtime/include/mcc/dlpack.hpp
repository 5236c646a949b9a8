// Tensors shared with other frameworks by DLPack, without copies: what PyTorch, JAX, CuPy or NumPy hand over becomes an input, an
// output becomes a tensor of theirs.
//
//     session.set_input(0, mcc::runtime::from_dlpack(managed->dl_tensor));
//     session.run();
//     DLManagedTensor* scores = mcc::runtime::to_dlpack(session->output(0), {kDLCPU, 0}, session);    // of a std::shared_ptr
//
// Needs dlpack/dlpack.h, of any version from 0.6 on, which is the program's; where it has another name, include that first.
#ifndef MCC_DLPACK_HPP
#define MCC_DLPACK_HPP

#if !defined(DLPACK_VERSION) && !defined(DLPACK_MAJOR_VERSION)
#include <dlpack/dlpack.h>
#endif

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "mcc/mcc.hpp"

namespace mcc::runtime {

namespace detail {

// Codes and bits of DLPack, whose names for some of them are younger than their numbers. What has less than 8 bits is packed there and
// one to a byte here; strings have no type there.
struct DlpackType {
  mcc_dtype dtype;
  std::uint8_t code, bits;
};
inline constexpr DlpackType kDlpackTypes[] = {
    {MCC_DTYPE_i8, 0, 8},          {MCC_DTYPE_i16, 0, 16},        {MCC_DTYPE_i32, 0, 32},
    {MCC_DTYPE_i64, 0, 64},        {MCC_DTYPE_u8, 1, 8},          {MCC_DTYPE_u16, 1, 16},
    {MCC_DTYPE_u32, 1, 32},        {MCC_DTYPE_u64, 1, 64},        {MCC_DTYPE_f16, 2, 16},
    {MCC_DTYPE_f32, 2, 32},        {MCC_DTYPE_f64, 2, 64},        {MCC_DTYPE_bf16, 4, 16},
    {MCC_DTYPE_c64, 5, 64},        {MCC_DTYPE_c128, 5, 128},      {MCC_DTYPE_bool, 6, 8},
    {MCC_DTYPE_f8e4m3, 10, 8},     {MCC_DTYPE_f8e4m3fnuz, 11, 8}, {MCC_DTYPE_f8e5m2, 12, 8},
    {MCC_DTYPE_f8e5m2fnuz, 13, 8}, {MCC_DTYPE_f8e8m0, 14, 8},
};

[[noreturn]] inline void refuse_dlpack(const std::string& expected, const std::string& got) {
  throw Error(MCC_INVALID_ARGUMENT, "DLPack: expected " + expected + ", got " + got);
}

inline std::string numbers_text(const std::int64_t* numbers, std::int32_t count) {
  std::string all = "[";
  for (std::int32_t i = 0; i < count; ++i)
    all += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  return all + "]";
}

// Of a tensor that is handed over: everything that its receiver looks at, until it calls the deleter.
struct SharedTensor {
  DLManagedTensor managed = {};
  Tensor tensor;
  std::shared_ptr<const void> owner;
};

}  // namespace detail

// An Error where DLPack has no such type.
inline DLDataType dlpack_type(mcc_dtype dtype) {
  for (const detail::DlpackType& type : detail::kDlpackTypes)
    if (type.dtype == dtype) return {type.code, type.bits, 1};
  detail::refuse_dlpack("a type that DLPack has", mcc_dtype_name(dtype));
}

inline mcc_dtype type_from_dlpack(const DLDataType& given) {
  for (const detail::DlpackType& type : detail::kDlpackTypes)
    if (type.code == given.code && type.bits == given.bits && given.lanes == 1) return type.dtype;
  detail::refuse_dlpack("one number of a known type an element",
                        "type code " + std::to_string(given.code) + " of " + std::to_string(given.bits) +
                            " bits, " + std::to_string(given.lanes) + " lanes");
}

// The same memory: of the host, or (with a model for GPUs) of the GPU or reachable by it. It must be dense, its last dimension
// running fastest; an Error otherwise. Who has the DLManagedTensor calls its deleter, when no run uses it any more. What GPUs have
// under way in other streams is the caller's to wait for.
inline Tensor from_dlpack(const DLTensor& given) {
  const int device = static_cast<int>(given.device.device_type);
  if (device != kDLCPU && device != kDLCUDA && device != kDLCUDAHost && device != kDLCUDAManaged)
    detail::refuse_dlpack("memory of a CPU or of CUDA", "a device of type " + std::to_string(device));
  if (given.ndim < 0 || given.ndim > static_cast<std::int32_t>(MCC_MAX_RANK))
    detail::refuse_dlpack("at most " + std::to_string(MCC_MAX_RANK) + " dimensions",
                          std::to_string(given.ndim));
  Tensor tensor;
  tensor.dtype = type_from_dlpack(given.dtype);
  if (given.ndim > 0) tensor.dims.assign(given.shape, given.shape + given.ndim);
  std::int64_t expected = 1;
  for (std::int32_t d = given.ndim - 1; d >= 0 && given.strides != nullptr; --d) {
    const std::int64_t size = given.shape[d];
    if (size == 0) break;  // nothing is at any place
    // Along a dimension of one element nobody goes.
    if (size != 1 && given.strides[d] != expected && tensor.element_count() != 0)
      detail::refuse_dlpack("a dense tensor of shape " + detail::numbers_text(given.shape, given.ndim),
                            "strides of " + detail::numbers_text(given.strides, given.ndim) + " elements");
    expected *= size;
  }
  tensor.data = static_cast<char*>(given.data) + given.byte_offset;
  tensor.size_bytes = tensor.element_count() * mcc_dtype_bytes(tensor.dtype);
  return tensor;
}

// For another framework, which calls the deleter when it needs it no longer; until then `owner` is kept (a session whose output it
// is, or what the memory given to set_output belongs to). An output of a session is valid until its next run.
inline DLManagedTensor* to_dlpack(const Tensor& tensor, DLDevice device, std::shared_ptr<const void> owner) {
  auto shared = std::make_unique<detail::SharedTensor>();
  shared->tensor = tensor;
  shared->owner = std::move(owner);
  DLTensor& view = shared->managed.dl_tensor;
  view.data = tensor.data;
  view.device = device;
  view.ndim = static_cast<std::int32_t>(tensor.dims.size());
  view.dtype = dlpack_type(tensor.dtype);
  view.shape = shared->tensor.dims.data();
  view.strides = nullptr;  // dense
  view.byte_offset = 0;
  shared->managed.manager_ctx = shared.get();
  shared->managed.deleter = [](DLManagedTensor* self) {
    delete static_cast<detail::SharedTensor*>(self->manager_ctx);
  };
  return &shared.release()->managed;
}

}  // namespace mcc::runtime

#endif
