#!/usr/bin/env python3
"""Models as a part of another project's build: find_package(mcc), mcc_add_model. add_model_test.py CMAKE"""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from folder_case import FolderCase, main  # noqa: E402

CMAKE = sys.argv.pop(1)
BUILD = pathlib.Path(os.environ.get("MCC_BUILD_DIR", "build")).resolve()

PROJECT = """
cmake_minimum_required(VERSION 3.16)
project(app LANGUAGES CXX)
find_package(mcc REQUIRED)
mcc_add_model(linked_part MODEL models/first.onnx TARGET cpu:x86-64-v2 TUNE_LOG models/log.json OPTIONS --dim N=2)
mcc_add_model(loaded SHARED MODEL models/second.onnx)
add_executable(app main.cpp)
target_compile_features(app PRIVATE cxx_std_17)
target_link_libraries(app PRIVATE linked_part)
add_dependencies(app loaded)
install(FILES $<TARGET_PROPERTY:loaded,MCC_MODEL_LIBRARY> DESTINATION share)
"""

PROGRAM = """
#include "linked_part.h"

#include <cstdio>

int main(int, char** arguments) {
  float x[8] = {1, 2, 3, 4, -1, -2, -3, -4};
  mcc_models::Linked_part first;
  first.set_x(x);
  first.run();
  mcc::runtime::Model model(arguments[1]);
  mcc::runtime::Session second(model);
  second.set_input(0, first.get_y(), {2, 3});
  second.run();
  for (int i = 0; i < 6; ++i) std::printf("%.9g\\n", second.output_data<float>(0)[i]);
}
"""


def save(path, nodes, shape, out_shape, weights):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, out_shape)],
                              [numpy_helper.from_array(v, k) for k, v in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


class AddModel(FolderCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.prefix = cls.folder / "installed"
        cls.run_ok(CMAKE, "--install", BUILD, "--prefix", cls.prefix)

    @classmethod
    def run_ok(cls, *words, code=0):
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, timeout=600)
        if (done.returncode == 0) != (code == 0):
            raise AssertionError(f"{words}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def project(self, name, text=PROJECT):
        source = self.folder / name
        (source / "models").mkdir(parents=True)
        (source / "CMakeLists.txt").write_text(text)
        (source / "main.cpp").write_text(PROGRAM)
        self.weights = np.random.default_rng(1).standard_normal((4, 3)).astype(np.float32)
        self.write_first(source)
        save(source / "models/second.onnx", [helper.make_node("Relu", ["x"], ["y"])], ["N", 3], ["N", 3], {})
        (source / "models/log.json").write_text("")
        return source

    def write_first(self, source):
        save(source / "models/first.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"])], ["N", 4], ["N", 3], {"w": self.weights})

    def configure(self, source, *words, code=0):
        return self.run_ok(CMAKE, "-S", source, "-B", source / "b", f"-DCMAKE_PREFIX_PATH={self.prefix}", *words, code=code)

    def result(self, source):
        out = self.run_ok(source / "b/app", source / "b/loaded.so")
        return np.array([float(line) for line in out.split()], np.float32).reshape(2, 3)

    def expected(self):
        x = np.array([[1, 2, 3, 4], [-1, -2, -3, -4]], np.float32)
        return np.maximum(x @ self.weights, 0)

    def test_linked_and_loaded(self):
        source = self.project("one")
        self.configure(source)
        out = self.run_ok(CMAKE, "--build", source / "b")
        self.assertIn("Compiling the model models/first.onnx", out)
        np.testing.assert_allclose(self.result(source), self.expected(), rtol=1e-5)
        header = (source / "b/linked_part.model/linked_part.h").read_text()
        self.assertIn("class Linked_part", header)
        # Nothing has changed; then a model has.
        self.assertNotIn("Compiling the model", self.run_ok(CMAKE, "--build", source / "b"))
        self.weights = self.weights + 1
        self.write_first(source)
        out = self.run_ok(CMAKE, "--build", source / "b")
        self.assertIn("first.onnx", out)
        self.assertNotIn("second.onnx", out)
        np.testing.assert_allclose(self.result(source), self.expected(), rtol=1e-5)
        self.run_ok(CMAKE, "--install", source / "b", "--prefix", source / "i")
        self.assertEqual((source / "i/share/loaded.so").read_bytes(), (source / "b/loaded.so").read_bytes())
        target = json.loads(self.run_ok(self.prefix / "bin/mcc", "inspect", source / "b/loaded.so", "--json"))
        self.assertEqual([i["name"] for i in target["inputs"]], ["x"])

    def test_a_locked_log_that_lacks_a_kernel_ends_the_build(self):
        source = self.project("two", PROJECT.replace("TUNE_LOG models/log.json", "TUNE_LOG models/log.json LOCKED"))
        self.configure(source)
        self.assertIn("log.json", self.run_ok(CMAKE, "--build", source / "b", code=1))

    def test_what_is_wrong_with_a_call(self):
        for number, (call, words) in enumerate([
                ("mcc_add_model(m)", "expected MODEL file.onnx"),
                ("mcc_add_model(m MODEL a.onnx LOCKED)", "LOCKED only with TUNE_LOG"),
                ("mcc_add_model(m MODEL a.onnx WITH x)", "got: MODEL;a.onnx;WITH;x"),
                ("mcc_add_model(m-1 MODEL a.onnx)", "letters, digits and underscores"),
                ("set(MCC_EXECUTABLE MCC_EXECUTABLE-NOTFOUND)\nmcc_add_model(m MODEL a.onnx)", "set MCC_EXECUTABLE"),
        ]):
            with self.subTest(call=call):
                source = self.project(f"wrong{number}", "cmake_minimum_required(VERSION 3.16)\nproject(p NONE)\nfind_package(mcc)\n" + call)
                out = " ".join(self.configure(source, code=1).split())
                self.assertIn(words, out)


if __name__ == "__main__":
    main(AddModel)
