// mcc runtime for C++17: owners over mcc/mcc.h. Failures are exceptions of type mcc::runtime::Error.
//
//     mcc::runtime::Model model("model.so");
//     mcc::runtime::Session session(model);
//     session.set_input("x", pixels.data(), {1, 3, 224, 224});
//     session.run();
//     mcc::runtime::Tensor scores = session.output(0);
#ifndef MCC_MCC_HPP
#define MCC_MCC_HPP

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "mcc/mcc.h"

namespace mcc::runtime {

class Error : public std::runtime_error {
 public:
  Error(mcc_status status, const std::string& message) : std::runtime_error(message), status_(status) {}
  explicit Error(const mcc_error& error) : Error(error.status, error.message) {}
  mcc_status status() const noexcept { return status_; }

 private:
  mcc_status status_;
};

// The element type of a C++ type; types without one (f16, bf16, ...) go in a Tensor.
template <class T>
struct ElementTypeOf;
#define MCC_ELEMENT_TYPE_OF(type, name)                  \
  template <>                                            \
  struct ElementTypeOf<type> {                           \
    static constexpr mcc_dtype value = MCC_DTYPE_##name; \
  };
MCC_ELEMENT_TYPE_OF(double, f64)
MCC_ELEMENT_TYPE_OF(float, f32)
MCC_ELEMENT_TYPE_OF(std::int8_t, i8)
MCC_ELEMENT_TYPE_OF(std::int16_t, i16)
MCC_ELEMENT_TYPE_OF(std::int32_t, i32)
MCC_ELEMENT_TYPE_OF(std::int64_t, i64)
MCC_ELEMENT_TYPE_OF(std::uint8_t, u8)
MCC_ELEMENT_TYPE_OF(std::uint16_t, u16)
MCC_ELEMENT_TYPE_OF(std::uint32_t, u32)
MCC_ELEMENT_TYPE_OF(std::uint64_t, u64)
MCC_ELEMENT_TYPE_OF(bool, bool)
MCC_ELEMENT_TYPE_OF(mcc_string, string)
#undef MCC_ELEMENT_TYPE_OF

// The sizes of a tensor's dimensions: {4, 3, 224, 224}, a vector, an array, or a pointer and the rank. Allocates nothing.
class Shape {
 public:
  Shape() = default;  // of a scalar
  Shape(const std::int64_t* dims, std::size_t rank) : rank_(rank) {
    if (rank > MCC_MAX_RANK)
      throw Error(MCC_INVALID_ARGUMENT, "expected a shape of at most " + std::to_string(MCC_MAX_RANK) +
                                            " dimensions, got " + std::to_string(rank));
    for (std::size_t i = 0; i < rank; ++i)
      dims_[i] = dims[i];
  }
  Shape(std::initializer_list<std::int64_t> dims) : Shape(dims.begin(), dims.size()) {}
  Shape(const std::vector<std::int64_t>& dims) : Shape(dims.data(), dims.size()) {}
  template <std::size_t rank>
  Shape(const std::array<std::int64_t, rank>& dims) : Shape(dims.data(), rank) {}

  std::size_t rank() const { return rank_; }
  const std::int64_t* data() const { return dims_; }
  const std::int64_t* begin() const { return dims_; }
  const std::int64_t* end() const { return dims_ + rank_; }
  std::int64_t operator[](std::size_t dim) const { return dims_[dim]; }
  std::size_t element_count() const {
    std::size_t count = 1;
    for (std::int64_t dim : *this)
      count *= static_cast<std::size_t>(dim);
    return count;
  }
  // Of a shape whose rank is known.
  template <std::size_t rank>
  std::array<std::int64_t, rank> array() const {
    if (rank_ != rank)
      throw Error(MCC_INVALID_ARGUMENT,
                  "expected rank " + std::to_string(rank) + ", got rank " + std::to_string(rank_));
    std::array<std::int64_t, rank> dims = {};
    for (std::size_t i = 0; i < rank; ++i)
      dims[i] = dims_[i];
    return dims;
  }

 private:
  std::int64_t dims_[MCC_MAX_RANK] = {};
  std::size_t rank_ = 0;
};

struct TensorInfo {
  std::string name;
  mcc_dtype dtype;
  std::vector<std::int64_t> dims;      // -1 where it is not fixed,
  std::vector<std::string> dim_names;  // then its name here
};

// A tensor in memory that somebody else owns.
struct Tensor {
  void* data = nullptr;
  std::size_t size_bytes = 0;
  mcc_dtype dtype = MCC_DTYPE_f32;
  std::vector<std::int64_t> dims;

  std::size_t element_count() const {
    std::size_t count = 1;
    for (std::int64_t dim : dims)
      count *= static_cast<std::size_t>(dim);
    return count;
  }
  template <class T>
  const T* as() const {
    if (dtype != ElementTypeOf<T>::value) {
      throw Error(MCC_INVALID_ARGUMENT, std::string("the tensor's element type is ") + mcc_dtype_name(dtype));
    }
    return static_cast<const T*>(data);
  }
  // Copies of the elements of a tensor of strings.
  std::vector<std::string> strings() const {
    const mcc_string* const views = as<mcc_string>();
    std::vector<std::string> all;
    for (std::size_t i = 0; i < element_count(); ++i)
      all.emplace_back(views[i].size == 0 ? "" : views[i].data, views[i].size);
    return all;
  }
};

class Model {
 public:
  explicit Model(const std::string& path) {
    mcc_error error;
    mcc_model* model = nullptr;
    if (mcc_model_open(path.c_str(), &model, &error) != MCC_OK) throw Error(error);
    model_.reset(model, mcc_model_close);
  }
  // A model that is linked into the program.
  explicit Model(const mcc_model_v1& image) {
    mcc_error error;
    mcc_model* model = nullptr;
    if (mcc_model_from_image(&image, &model, &error) != MCC_OK) throw Error(error);
    model_.reset(model, mcc_model_close);
  }

  mcc_model* handle() const { return model_.get(); }
  std::size_t input_count() const { return mcc_model_input_count(handle()); }
  std::size_t output_count() const { return mcc_model_output_count(handle()); }
  TensorInfo input(std::size_t index) const { return describe(mcc_model_input, index); }
  TensorInfo output(std::size_t index) const { return describe(mcc_model_output, index); }
  std::size_t input_index(const std::string& name) const {
    return found(mcc_model_find_input(handle(), name.c_str()), "input", name);
  }
  std::size_t output_index(const std::string& name) const {
    return found(mcc_model_find_output(handle(), name.c_str()), "output", name);
  }
  // Empty when absent.
  std::string metadata(const std::string& key) const {
    const char* value = mcc_model_metadata(handle(), key.c_str());
    return value == nullptr ? std::string() : std::string(value);
  }
  mcc_model_sizes sizes() const {
    mcc_model_sizes sizes = {};
    sizes.struct_size = sizeof sizes;
    mcc_model_get_sizes(handle(), &sizes);
    return sizes;
  }

 private:
  template <class Describe>
  TensorInfo describe(Describe function, std::size_t index) const {
    mcc_tensor_info info = {};
    if (function(handle(), index, &info) != MCC_OK) {
      throw Error(MCC_INVALID_ARGUMENT, "no input or output has index " + std::to_string(index));
    }
    TensorInfo result{info.name, info.dtype, {}, {}};
    for (std::int32_t d = 0; d < info.rank; ++d) {
      result.dims.push_back(info.dims[d]);
      result.dim_names.emplace_back(info.dim_names[d] == nullptr ? "" : info.dim_names[d]);
    }
    return result;
  }
  static std::size_t found(std::ptrdiff_t index, const char* what, const std::string& name) {
    if (index < 0)
      throw Error(MCC_INVALID_ARGUMENT, std::string("the model has no ") + what + " \"" + name + "\"");
    return static_cast<std::size_t>(index);
  }

  std::shared_ptr<mcc_model> model_;
};

struct SessionOptions {
  int threads = 0;  // 0 = all CPUs
  mcc_executor* executor = nullptr;
  void* arena = nullptr;
  std::size_t arena_size = 0;
  bool profile = false;
  // Of a model for GPUs; mcc_session_options has the meaning.
  int cuda_device = 0;
  void* cuda_stream = nullptr;
  // Of random numbers that the model draws; without it every session has other ones.
  std::optional<std::uint64_t> seed = {};
};

struct NodeProfile {
  std::string name;
  std::string kind;
  std::vector<std::string> sources;  // ONNX nodes
  mcc_node_profile times;
};

class Session {
 public:
  explicit Session(const Model& model, const SessionOptions& options = {}) : model_(model) {
    mcc_session_options all = {};
    all.struct_size = sizeof all;
    all.threads = options.threads;
    all.executor = options.executor;
    all.arena = options.arena;
    all.arena_size = options.arena_size;
    all.profile = options.profile ? 1 : 0;
    all.cuda_device = options.cuda_device;
    all.cuda_stream = options.cuda_stream;
    all.has_seed = options.seed.has_value() ? 1 : 0;
    all.seed = options.seed.value_or(0);
    mcc_error error;
    mcc_session* session = nullptr;
    if (mcc_session_create(model.handle(), &all, &session, &error) != MCC_OK) throw Error(error);
    session_.reset(session);
  }

  mcc_session* handle() const { return session_.get(); }
  int threads() const { return mcc_session_threads(handle()); }

  // The data is used in place, and must live until the runs with it are over.
  void set_input(std::size_t index, const Tensor& tensor) { give_input(index, to_c(tensor)); }
  template <class T>
  void set_input(std::size_t index, const T* data, const Shape& shape) {
    set_input(index, data, ElementTypeOf<T>::value, shape);
  }
  template <class T>
  void set_input(const std::string& name, const T* data, const Shape& shape) {
    set_input(model_.input_index(name), data, shape);
  }
  // Of any type, also of those that C++ has none for. Kernels do not write to inputs.
  void set_input(std::size_t index, const void* data, mcc_dtype dtype, const Shape& shape) {
    give_input(index, view(const_cast<void*>(data), 0, dtype, shape));
  }

  // A tensor of strings: these are used in place, too.
  void set_input(std::size_t index, const std::vector<std::string>& strings, const Shape& shape) {
    if (shape.element_count() != strings.size())
      throw Error(MCC_INVALID_ARGUMENT, "the shape of the strings needs " +
                                            std::to_string(shape.element_count()) + ", got " +
                                            std::to_string(strings.size()));
    if (strings_.size() <= index) strings_.resize(index + 1);
    std::vector<mcc_string>& views = strings_[index];
    views.clear();
    for (const std::string& string : strings)
      views.push_back({string.data(), string.size()});
    set_input(index, static_cast<const mcc_string*>(views.data()), shape);
  }
  void set_input(const std::string& name, const std::vector<std::string>& strings, const Shape& shape) {
    set_input(model_.input_index(name), strings, shape);
  }

  // Lets the model write an output to the caller's memory.
  void set_output(std::size_t index, const Tensor& tensor) { give_output(index, to_c(tensor)); }
  template <class T>
  void set_output(std::size_t index, T* data, const Shape& shape) {
    give_output(index, view(data, 0, ElementTypeOf<T>::value, shape));
  }
  // The same for whatever shape the output has, as long as the bytes are enough. Null: back to the session's own memory.
  void set_output_memory(std::size_t index, void* data, std::size_t size_bytes) {
    mcc_error error;
    mcc_tensor_info info = {};
    if (mcc_model_output(model_.handle(), index, &info) != MCC_OK)
      throw Error(MCC_INVALID_ARGUMENT, "no output has index " + std::to_string(index));
    mcc_tensor memory = {data, size_bytes, info.dtype, 0, nullptr};
    bool is_fixed = true;
    for (std::int32_t d = 0; d < info.rank; ++d)
      is_fixed = is_fixed && info.dims[d] >= 0;
    if (is_fixed) {
      memory.rank = info.rank;
      memory.dims = info.dims;
      // Of a fixed shape 0 bytes would mean as many as it needs.
      const std::size_t count = Shape(info.dims, static_cast<std::size_t>(info.rank)).element_count();
      if (data != nullptr && size_bytes == 0 && count != 0)
        throw Error(MCC_INVALID_ARGUMENT, std::string("output \"") + info.name + "\": expected at least " +
                                              std::to_string(count * mcc_dtype_bytes(info.dtype)) +
                                              " bytes, got 0");
    }
    if (mcc_session_set_output(handle(), index, data == nullptr ? nullptr : &memory, &error) != MCC_OK)
      throw Error(error);
  }

  void run() {
    mcc_error error;
    if (mcc_session_run(handle(), &error) != MCC_OK) throw Error(error);
  }

  // Valid until the next run or change of the session.
  Tensor output(std::size_t index) const {
    const mcc_tensor c = c_output(index);
    return {c.data, c.size_bytes, static_cast<mcc_dtype>(c.dtype), {c.dims, c.dims + c.rank}};
  }
  Tensor output(const std::string& name) const { return output(model_.output_index(name)); }
  // The same without its shape, and without allocation.
  const void* output_data(std::size_t index) const { return c_output(index).data; }
  template <class T>
  const T* output_data(std::size_t index) const {
    const mcc_tensor c = c_output(index);
    return Tensor{c.data, c.size_bytes, static_cast<mcc_dtype>(c.dtype), {}}.as<T>();
  }
  // Its shape after the last run.
  Shape output_shape(std::size_t index) const {
    const mcc_tensor c = c_output(index);
    return Shape(c.dims, static_cast<std::size_t>(c.rank));
  }
  // The shape that it will have with the inputs that are set now; -1 where data decides.
  Shape next_output_shape(std::size_t index) {
    mcc_error error;
    std::int64_t dims[MCC_MAX_RANK];
    std::int32_t rank = 0;
    if (mcc_session_next_output_shape(handle(), index, dims, &rank, &error) != MCC_OK) throw Error(error);
    return Shape(dims, static_cast<std::size_t>(rank));
  }

  void set_profiling(bool on) { mcc_session_set_profiling(handle(), on ? 1 : 0); }
  void reset_profile() { mcc_session_reset_profile(handle()); }
  std::vector<NodeProfile> profile() const {
    std::vector<NodeProfile> nodes;
    for (std::size_t n = 0; n < model_.sizes().node_count; ++n) {
      mcc_node_info info = {};
      info.struct_size = sizeof info;
      mcc_model_node(model_.handle(), n, &info);
      NodeProfile node{info.name, info.kind, {}, {}};
      for (std::size_t s = 0; s < info.source_count; ++s) {
        node.sources.emplace_back(mcc_model_node_source(model_.handle(), n, s));
      }
      node.times.struct_size = sizeof node.times;
      mcc_session_node_profile(handle(), n, &node.times);
      nodes.push_back(std::move(node));
    }
    return nodes;
  }

 private:
  struct Destroy {
    void operator()(mcc_session* session) const { mcc_session_destroy(session); }
  };
  void give_input(std::size_t index, const mcc_tensor& tensor) {
    mcc_error error;
    if (mcc_session_set_input(handle(), index, &tensor, &error) != MCC_OK) throw Error(error);
  }
  void give_output(std::size_t index, const mcc_tensor& tensor) {
    mcc_error error;
    if (mcc_session_set_output(handle(), index, &tensor, &error) != MCC_OK) throw Error(error);
  }
  mcc_tensor c_output(std::size_t index) const {
    mcc_error error;
    mcc_tensor c = {};
    if (mcc_session_output(handle(), index, &c, &error) != MCC_OK) throw Error(error);
    return c;
  }
  static mcc_tensor view(void* data, std::size_t size_bytes, mcc_dtype dtype, const Shape& shape) {
    return {data, size_bytes, dtype, static_cast<std::int32_t>(shape.rank()),
            shape.rank() == 0 ? nullptr : shape.data()};
  }
  static mcc_tensor to_c(const Tensor& tensor) {
    return {tensor.data, tensor.size_bytes, tensor.dtype, static_cast<std::int32_t>(tensor.dims.size()),
            tensor.dims.data()};
  }

  Model model_;
  std::unique_ptr<mcc_session, Destroy> session_;
  std::vector<std::vector<mcc_string>> strings_;  // of each input that is a tensor of strings
};

}  // namespace mcc::runtime

#endif
