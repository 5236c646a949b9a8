// Model libraries on disk: written, linked with the system's linker, opened, damaged.
#include <dlfcn.h>
#include <sys/stat.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>

#include "codegen/model_library.h"
#include "runtime/test_model.h"

namespace mcc::test {
namespace {

namespace fs = std::filesystem;
using codegen::ModelLibrary;

std::vector<char> read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_file(const fs::path& path, const char* data, size_t size) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(data, static_cast<std::streamsize>(size));
}

Status link_with_system(const std::vector<std::string>& objects, const std::string& output,
                        const std::string& soname) {
  std::string command = MCC_TEST_LINKER " -shared -nostdlib -Wl,-z,defs,--build-id=none,-soname," + soname;
  for (const std::string& object : objects)
    command += " '" + object + "'";
  const std::string messages = output + ".messages";
  command += " -o '" + output + "' 2>'" + messages + "'";
  if (std::system(command.c_str()) == 0) return done();
  const std::vector<char> said = read_file(messages);
  return Diagnostic{ErrorKind::environment, "", std::string(said.begin(), said.end()), ""};
}

// y = relu(x * w) + 1 over [n], with w = `scale` everywhere, by the kernels of kernels.c.
struct LibraryTest : testing::Test {
  LibraryTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder = fs::path(testing::TempDir()) / ("mcc_library_test_" + std::string(test->name()));
    fs::remove_all(folder);
    fs::create_directories(folder);
    kernels = read_file(MCC_TEST_KERNELS);
  }
  ~LibraryTest() override { fs::remove_all(folder); }

  ModelLibrary describe(int64_t n, float scale) {
    TestModel model;
    const uint32_t x = model.add_input("x", {n});
    const uint32_t y = model.add_output("y", {n});
    const uint32_t w = model.add_value({"w", MCC_DTYPE_f32, {n}, MCC_STORAGE_weights, 0, 64});
    const uint32_t t = model.add_value({"t", MCC_DTYPE_f32, {n}, MCC_STORAGE_arena, 0, 0});
    model.plan.arena_size = n * 4;
    model.plan.metadata = {{"mcc.version", "0.1.0"}, {"model.hash", "0123"}};
    model.add_kernel("scale_relu", nullptr, {x, w, t}, {n});
    model.add_kernel("add_one", nullptr, {t, y}, {n});
    weights.assign(static_cast<size_t>(n), scale);
    ModelLibrary library;
    library.plan = model.plan;
    library.kernels = {"scale_relu", "add_one"};
    library.objects = {kernels};
    library.weights = {{64, std::as_bytes(std::span(weights))}};
    library.weights_size = 64 + weights.size() * sizeof(float);
    return library;
  }

  std::string write(const ModelLibrary& library, const std::string& name) {
    const std::string path = (folder / name).string();
    const Status status = codegen::write_model_library(library, path, link_with_system);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : to_text(status.errors()));
    return path;
  }

  static std::string run(const std::string& path, int threads = 1) {
    return error_of([&] {
      const Model model(path);
      Session session(model, {.threads = threads});
      const std::vector<float> x = {1, -2, 3};
      session.set_input("x", x.data(), {3});
      session.run();
      EXPECT_EQ(floats(session.output("y")), (std::vector<float>{6, 1, 16}));
    });
  }

  fs::path folder;
  std::vector<char> kernels;
  std::vector<float> weights;
};

TEST_F(LibraryTest, RunsAndHidesAllButOneSymbol) {
  const std::string path = write(describe(3, 5), "model.so");
  EXPECT_EQ(run(path), "");
  EXPECT_EQ(run(path, 3), "");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto* image = static_cast<const mcc_model_v1*>(dlsym(library, MCC_MODEL_SYMBOL));
  ASSERT_NE(image, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(image->weights) % 4096, 0u);
  for (const char* hidden :
       {"scale_relu", "add_one", "mcc_model_plan", "mcc_model_weights", "mcc_model_kernels"}) {
    EXPECT_EQ(dlsym(library, hidden), nullptr) << hidden;
  }
  dlclose(library);
  // Nothing but the library is left.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

TEST_F(LibraryTest, IsTheSameEveryTime) {
  const ModelLibrary library = describe(3, 5);
  fs::create_directories(folder / "other");
  EXPECT_EQ(read_file(write(library, "model.so")), read_file(write(library, "other/model.so")));
}

TEST_F(LibraryTest, TwoModelsLiveInOneProcess) {
  const Model five(write(describe(3, 5), "five.so"));
  const Model two(write(describe(2, 2), "two.so"));
  Session first(five, {.threads = 1}), second(two, {.threads = 1});
  const std::vector<float> x = {1, -2, 3};
  first.set_input(0, x.data(), {3});
  second.set_input(0, x.data(), {2});
  first.run();
  second.run();
  EXPECT_EQ(floats(first.output(0)), (std::vector<float>{6, 1, 16}));
  EXPECT_EQ(floats(second.output(0)), (std::vector<float>{3, 1}));
}

TEST_F(LibraryTest, IsOpenedFromTheCurrentFolder) {
  write(describe(3, 5), "model.so");
  const fs::path before = fs::current_path();
  fs::current_path(folder);
  EXPECT_EQ(run("model.so"), "");
  fs::current_path(before);
}

TEST_F(LibraryTest, ReadsWeightsFromAFileBesideIt) {
  ModelLibrary library = describe(3, 5);
  library.has_weights_file = true;
  const std::string path = write(library, "model.so");
  EXPECT_EQ(run(path), "");
  fs::create_directories(folder / "moved");
  fs::rename(path, folder / "moved/model.so");
  EXPECT_NE(run(folder / "moved/model.so").find("cannot open the weights"), std::string::npos);
  fs::rename(path + ".weights", folder / "moved/model.so.weights");
  EXPECT_EQ(run(folder / "moved/model.so"), "");

  const std::string weights_path = (folder / "moved/model.so.weights").string();
  const std::vector<char> good = read_file(weights_path);
  write_file(weights_path, good.data(), good.size() - 1);
  EXPECT_EQ(run(folder / "moved/model.so"),
            weights_path + " is cut off: it has " + std::to_string(good.size() - 1) + " bytes");
  std::vector<char> bad = good;
  bad[16] ^= 1;
  write_file(weights_path, bad.data(), bad.size());
  EXPECT_EQ(run(folder / "moved/model.so"), weights_path + " holds the weights of another model");
  write_file(weights_path, "?", 1);
  EXPECT_EQ(run(folder / "moved/model.so"), weights_path + " is not a file of weights");
  fs::remove(weights_path);
  ASSERT_EQ(mkfifo(weights_path.c_str(), 0600), 0);
  EXPECT_EQ(run(folder / "moved/model.so"), weights_path + " is not a file of weights");
}

// Enough weights that they are copied to huge pages, where the system has them.
TEST_F(LibraryTest, LargeWeightsAreTheSameInsideAndBeside) {
  constexpr int64_t n = 1'300'000;
  ModelLibrary library = describe(n, 5);
  for (int64_t i = 0; i < n; ++i)
    weights[static_cast<size_t>(i)] = static_cast<float>(i % 1000);
  const std::vector<float> x(n, 2);
  std::vector<float> expected;
  for (float w : weights)
    expected.push_back(2 * w + 1);
  for (bool has_file : {false, true}) {
    library.has_weights_file = has_file;
    const std::string path = write(library, has_file ? "beside.so" : "inside.so");
    // The second shares the library with the first, and outlives it.
    auto first = std::make_unique<Model>(path);
    const Model second(path);
    for (const Model* model : std::array<const Model*, 2>{first.get(), &second}) {
      Session session(*model, {.threads = 2});
      session.set_input(0, x.data(), {n});
      session.run();
      EXPECT_EQ(floats(session.output(0)), expected) << "weights in a file: " << has_file;
      if (model == first.get()) continue;
      first.reset();
      session.run();
      EXPECT_EQ(floats(session.output(0)), expected);
    }
  }
}

TEST_F(LibraryTest, CutOffAnywhereIsAnError) {
  const std::string path = write(describe(3, 5), "model.so");
  const std::vector<char> good = read_file(path);
  const std::string cut = (folder / "cut.so").string();
  for (size_t size = 0; size < good.size(); size += 97) {
    fs::remove(cut);  // a mapped library must not change under the process
    write_file(cut, good.data(), size);
    mcc_model* model = nullptr;
    // The end of the file is not mapped (section headers): without it the model may still be whole.
    if (mcc_model_open(cut.c_str(), &model, nullptr) == MCC_OK) {
      EXPECT_GT(size, good.size() / 2);
      mcc_model_close(model);
    }
  }
}

TEST_F(LibraryTest, SaysWhatIsWrongWithFiles) {
  const std::string text_file = (folder / "model.onnx").string();
  write_file(text_file, "not a library", 13);
  EXPECT_EQ(run(text_file), text_file + " is not a shared library");
  EXPECT_EQ(run(folder.string()), folder.string() + " is not a file");
  const std::string pipe = (folder / "pipe").string();
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(run(pipe), pipe + " is not a file");
  EXPECT_EQ(run((folder / "none.so").string()),
            "cannot open " + (folder / "none.so").string() + ": No such file or directory");
  // Any other shared library.
  const std::string other = (folder / "other.so").string();
  ASSERT_TRUE(link_with_system({MCC_TEST_KERNELS}, other, "other.so").ok());
  EXPECT_EQ(run(other), other + " is not a model that mcc compiled");
}

TEST_F(LibraryTest, OfAnotherMachineOrAbiIsAnError) {
  const std::string path = write(describe(3, 5), "model.so");
  std::vector<char> bytes = read_file(path);
  bytes[18] = static_cast<char>(0xf3);  // e_machine: RISC-V
  write_file(folder / "riscv.so", bytes.data(), bytes.size());
  EXPECT_EQ(run(folder / "riscv.so"),
            (folder / "riscv.so").string() + " was compiled for another kind of machine");

  TestModel model;
  make_affine(model);
  mcc_model_v1 image = model.image();
  image.abi_version = 2;
  EXPECT_EQ(error_of([&] { Model opened(image); }),
            "the model was compiled for ABI version 2, this runtime has version 1");
}

TEST_F(LibraryTest, ThatCannotBeWrittenIsAnError) {
  const Status status =
      codegen::write_model_library(describe(3, 5), (folder / "no/such/model.so").string(), link_with_system);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(to_text(status.errors()),
            (folder / "no/such").string() + ": cannot write: No such file or directory");
  ModelLibrary library = describe(3, 5);
  library.kernels = {"scale_relu", "no_such_kernel"};
  const Status unlinked = codegen::write_model_library(library, (folder / "m.so").string(), link_with_system);
  ASSERT_FALSE(unlinked.ok());
  EXPECT_NE(to_text(unlinked.errors()).find("no_such_kernel"), std::string::npos);
  EXPECT_TRUE(fs::is_empty(folder));
}

// A section of 3 GiB costs a file with holes, and its last bytes arrive.
TEST_F(LibraryTest, HoldsMoreThanTwoGigabytes) {
  ModelLibrary library = describe(3, 5);
  constexpr uint64_t far = uint64_t{3} << 30;
  library.weights = {{far, std::as_bytes(std::span(weights))}};
  library.weights_size = far + weights.size() * sizeof(float);
  library.plan.values[2].offset = far;
  const std::string object = (folder / "big.o").string();
  bool is_linked = false;
  // Linking it would write 3 GiB; the object alone shows that the writer is not limited.
  const Status status = codegen::write_model_library(
      library, (folder / "big.so").string(), [&](const auto& objects, const auto& output, const auto&) {
        is_linked = true;
        EXPECT_GT(fs::file_size(objects[0]), far);
        write_file(output, "", 0);
        return done();
      });
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(is_linked);
}

}  // namespace
}  // namespace mcc::test
