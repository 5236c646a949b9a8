#!/usr/bin/env python3
"""Models as object files and static libraries: two in one C++ program, by their generated headers."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MCC = os.path.abspath(os.environ.get("MCC", "build/bin/mcc"))
BUILD = pathlib.Path(os.environ.get("MCC_BUILD_DIR", "build")).resolve()
SOURCE = pathlib.Path(__file__).resolve().parents[2]
COMPILER = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or "c++"

PROGRAM = """
#include "other-model.h"
#include "model.h"

#include <cstdio>

int main() {
  mcc_models::Model first;
  mcc_models::Other_model second;
  float x[mcc_models::Model::x_size];
  for (std::size_t i = 0; i < mcc_models::Model::x_size; ++i) x[i] = 0.25f * static_cast<float>(i % 7) - 0.5f;
  std::int64_t rows[mcc_models::Other_model::in_1_size] = {2, 0};
  first.set_x(x);
  second.set_x_0(x);
  second.set_in_1(rows);
  first.run();
  second.run();
  for (std::size_t i = 0; i < mcc_models::Model::y_size; ++i) std::printf("%.9g\\n", first.get_y()[i]);
  for (std::size_t i = 0; i < mcc_models::Other_model::y_size; ++i) std::printf("%.9g\\n", second.get_y()[i]);
}
"""


def product(columns, seed, gather=False):
    weights = numpy_helper.from_array(np.random.default_rng(seed).standard_normal((6, columns)).astype(np.float32), "w")
    x = "x:0" if gather else "x"
    nodes = [helper.make_node("MatMul", [x, "w"], ["h"]), helper.make_node("Relu", ["h"], ["r" if gather else "y"])]
    inputs = [helper.make_tensor_value_info(x, TensorProto.FLOAT, [4, 6])]
    rows = 4
    if gather:
        nodes.append(helper.make_node("Gather", ["r", "in-1"], ["y"]))
        inputs.append(helper.make_tensor_value_info("in-1", TensorProto.INT64, [2]))
        rows = 2
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, columns])], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), numpy_helper.to_array(weights)


class LinkedModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.weights = []
        for name, columns, seed, gather in (("first", 5, 0, False), ("second", 3, 1, True)):
            model, weights = product(columns, seed, gather)
            onnx.save(model, cls.folder / f"{name}.onnx")
            cls.weights.append(weights)
        cls.run_ok(MCC, "compile", "first.onnx", "-o", "model.o", "--header", "model.h")
        cls.run_ok(MCC, "compile", "second.onnx", "-o", "other-model.a", "--header", "other-model.h")

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def run_ok(cls, *words):
        done = subprocess.run([str(w) for w in words], capture_output=True, text=True, cwd=cls.folder, timeout=300)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def test_two_models_in_one_program(self):
        (self.folder / "main.cpp").write_text(PROGRAM)
        self.run_ok(COMPILER, "-std=c++17", "-Wall", "-Wextra", "-Werror", "main.cpp", "model.o", "other-model.a", "-o", "main",
                    f"-I{SOURCE}/runtime/include", f"-L{BUILD}/lib", "-lmcc_runtime", f"-Wl,-rpath,{BUILD}/lib")
        values = np.array([float(line) for line in self.run_ok("./main").split()])
        x = (0.25 * (np.arange(24) % 7) - 0.5).reshape(4, 6)
        first, second = (np.maximum(x @ w, 0) for w in self.weights)
        np.testing.assert_allclose(values, np.concatenate([first.ravel(), second[[2, 0]].ravel()]), rtol=1e-5, atol=1e-6)

    def test_shows_one_symbol(self):
        for file, symbol in (("model.o", "mcc_model_model"), ("other-model.a", "mcc_model_other_model")):
            lines = self.run_ok("nm", "--extern-only", file).split("\n")
            self.assertEqual([line.split()[-1] for line in lines if line and not line.endswith(":")], [symbol])

    def test_same_bytes(self):
        there = self.folder / "there"
        there.mkdir()
        for source, output in (("first", "model.o"), ("second", "other-model.a")):
            self.run_ok(MCC, "compile", f"{source}.onnx", "-o", there / output, "--header", there / "header.h", "-j", 1)
            self.assertEqual((there / output).read_bytes(), (self.folder / output).read_bytes())
            self.assertEqual((there / "header.h").read_text(), (self.folder / output).with_suffix(".h").read_text())
            self.assertNotIn(str(self.folder).encode(), (there / output).read_bytes())
        self.assertEqual(sorted(p.name for p in there.iterdir()), ["header.h", "model.o", "other-model.a"])


if __name__ == "__main__":
    unittest.main()
