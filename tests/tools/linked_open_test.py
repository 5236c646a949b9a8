#!/usr/bin/env python3
"""Models with open dimensions in C++ programs, by their generated headers: against onnxruntime at several sizes, on CPUs and on the stand-in
driver for GPUs; what misuse says; names; strings."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cuda"))
import stand_in

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = stand_in.BUILD.resolve()
COMPILER = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or "c++"

SIZES = [(2, 9, 14), (1, 5, 6), (8, 9, 8), (3, 4, 11), (2, 9, 14)]

MISUSE = """\
invalid argument: input "image" is not set
invalid argument: input "image": expected rank 4 (Nx3xheightxclass), got rank 3
invalid argument: input "image": expected shape Nx3xheightxclass, got 1x4x8x8
invalid argument: input "image": dimension 0 ("N") must be between 1 and 8, got 9
invalid argument: input "image": dimension 2 ("height") must be between 1 and 1000000000, got 0
invalid argument: input "image": expected shape Nx3xheightxclass, got ?x3x?x?
invalid argument: input "image": data is null
invalid argument: expected a shape of at most 16 dimensions, got 17
invalid argument: input "image" is not set
invalid argument: the session has not run since it was changed
invalid argument: the session has not run since it was changed
invalid argument: output "features": needs 384 bytes, got memory of 12 bytes
invalid argument: output "features": needs 384 bytes, got memory of 0 bytes
no error
invalid argument: input "right" is not set
invalid argument: input "right": dimension 0 is 3, but "M" is 2 in an input before it
invalid argument: output "fixed": expected at least 16 bytes, got 12
invalid argument: output "fixed": expected at least 16 bytes, got 0
"""


def value(name, shape, element=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, element, shape)


def save(path, nodes, inputs, outputs, weights=()):
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(v, k) for k, v in dict(weights).items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


# Open in three dimensions; one output whose size follows, one whose size data decides, and one of a type that C++ has not.
def save_detector(path):
    weights = {"w": np.random.default_rng(0).standard_normal((6, 3, 3, 3)).astype(np.float32), "limit": np.float32(1.5)}
    nodes = [helper.make_node("Conv", ["image", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]), helper.make_node("Relu", ["c"], ["features"]),
             helper.make_node("Greater", ["c", "limit"], ["is_large"]), helper.make_node("NonZero", ["is_large"], ["places"]),
             helper.make_node("GlobalAveragePool", ["c"], ["means"]), helper.make_node("Cast", ["means"], ["half"], to=TensorProto.FLOAT16)]
    save(path, nodes, [value("image", ["N", 3, "height", "class"])],
         [value("features", ["N", 6, None, None]), value("places", [4, None], TensorProto.INT64), value("half", ["N", 6, 1, 1], TensorProto.FLOAT16)],
         weights)


# Two inputs of one open dimension.
def save_pairs(path):
    nodes = [helper.make_node("Concat", ["left", "right"], ["all"], axis=1), helper.make_node("Mul", ["all", "all"], ["product"]),
             helper.make_node("ReduceSum", ["left", "axis"], ["fixed"], keepdims=1)]
    save(path, nodes, [value("left", ["M", 4]), value("right", ["M", 2])], [value("product", ["M", 6]), value("fixed", [1, 4])],
         {"axis": np.array([0], np.int64)})


def numbers(*shape):
    count = int(np.prod(shape))
    return (0.25 * (np.arange(count) * 7 % 11) - 1).astype(np.float32).reshape(shape)


class LinkedOpen(stand_in.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        save_detector(cls.folder / "detector.onnx")
        save_pairs(cls.folder / "pairs.onnx")
        cls.reference = {name: onnxruntime.InferenceSession(str(cls.folder / f"{name}.onnx")) for name in ("detector", "pairs")}

    def compile(self, name, output, *options):
        self.done(stand_in.mcc("compile", self.folder / f"{name}.onnx", "-o", self.folder / output, "--header", self.folder / f"{name}.h", *options))
        return output

    def link(self, source, objects, program="main"):
        self.done(subprocess.run([COMPILER, "-std=c++17", "-Wall", "-Wextra", "-Werror", source, *objects, "-o", program, f"-I{self.folder}",
                                  f"-I{SOURCE}/runtime/include", f"-L{BUILD}/lib", "-lmcc_runtime", f"-Wl,-rpath,{BUILD}/lib"],
                                 capture_output=True, text=True, cwd=self.folder, timeout=300))

    def run_program(self, *words, text="", driver=False):
        more = {"LD_LIBRARY_PATH": str(stand_in.DRIVER), "FAKE_CUDA_RUN": "1", "FAKE_CUDA_SM": "80"} if driver else {}
        return self.done(subprocess.run([self.folder / "main", *words], input=text, capture_output=True, text=True, timeout=600,
                                        env=os.environ | more)).stdout

    def expect(self, line, name, expected, tolerance):
        shape, _, values = line.partition(":")
        self.assertEqual(shape.split(), [name, *map(str, expected.shape)])
        np.testing.assert_allclose(np.array(values.split(), np.float64), expected.ravel().astype(np.float64), rtol=tolerance, atol=tolerance)

    def check_runs(self, driver=False, tolerance=1e-5):
        lines = iter(self.run_program(text="".join(f"{n} {h} {w}\n" for n, h, w in SIZES), driver=driver).splitlines())
        for n, height, width in SIZES:
            with self.subTest(n=n, height=height, width=width):
                features, places, half = self.reference["detector"].run(None, {"image": numbers(n, 3, height, width)})
                # Allocations of the stand-in driver count, too.
                self.assertRegex(next(lines), r"^allocations \d+$" if driver else "^allocations 0$")
                self.expect(next(lines), "features", features, tolerance)
                line = next(lines)
                self.expect(line, "places", places, 0)
                bits = np.array(next(lines).split(":")[1].split(), np.float64).astype(np.uint16)
                np.testing.assert_allclose(bits.view(np.float16).astype(np.float32), half.ravel()[:6].astype(np.float32), rtol=2e-3, atol=2e-3)
                left, right = numbers(n, 4), numbers(n, 2)
                product, fixed = self.reference["pairs"].run(None, {"left": left, "right": right})
                self.expect(next(lines), "product", product, tolerance)
                self.expect(next(lines), "fixed", fixed, tolerance)

    def build_program(self, *options):
        objects = [self.compile("detector", "detector.a", "--dim", "N=1..8", *options), self.compile("pairs", "pairs.o", *options)]
        self.link(SOURCE / "tests/linked_open/program.cpp", objects)

    def test_two_models_at_several_sizes(self):
        self.build_program()
        self.check_runs()

    def test_misuse_is_said(self):
        self.build_program()
        self.assertEqual(self.run_program("misuse"), MISUSE)

    def test_on_gpus(self):
        self.build_program("--target", "cuda:sm_80", "--no-cubin")
        self.check_runs(driver=True, tolerance=1e-3)
        self.assertEqual(self.run_program("misuse", driver=True), MISUSE)

    # Names that are none in C++, and those which would become the same one; an output whose name is another one's with more.
    def test_names(self):
        dims = ["a b", "a-b", "int", "2x", "Sizes", "linux", "tab\t\\", None]
        save(self.folder / "names.onnx", [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Shape", ["x"], ["y_shape"])],
             [value("x", dims)], [value("y", dims), value("y_shape", [8], TensorProto.INT64)])
        self.compile("names", "names.o")
        header = (self.folder / "names.h").read_text()
        members = re.findall(r"std::int64_t (\w+) = -1;", header)
        self.assertEqual(members, ["a_b", "a_b_2", "int_", "_2x", "Sizes_2", "linux_", "tab__", "x_7"])
        (self.folder / "names.cpp").write_text("""
#include "names.h"
int main() {
  mcc_models::Names names;
  float x[6] = {1, 2, 3, 4, 5, 6};
  names.set_x(x, {1, 1, 1, 2, 1, 1, 3, 1});
  names.run();
  const std::array<std::int64_t, 8> shape = names.y_shape();
  for (std::size_t i = 0; i < 8; ++i)
    if (names.get_y_shape()[i] != shape[i]) return 1;
  return shape[6] == 3 && names.get_y()[5] == -6 ? 0 : 2;
}
""")
        self.link("names.cpp", ["names.o"])
        self.run_program()

    def test_strings(self):
        save(self.folder / "texts.onnx", [helper.make_node("StringConcat", ["first", "second"], ["both"])],
             [value("first", ["N"], TensorProto.STRING), value("second", ["N"], TensorProto.STRING)], [value("both", ["N"], TensorProto.STRING)])
        model = onnx.load(self.folder / "texts.onnx")
        model.opset_import[0].version = 20
        onnx.save(model, self.folder / "texts.onnx")
        self.compile("texts", "texts.a")
        (self.folder / "texts.cpp").write_text("""
#include "texts.h"
int main() {
  mcc_models::Texts texts;
  for (std::size_t count : {2u, 3u, 1u}) {
    const std::vector<std::string> first(count, "left "), second(count, std::string(40, 'r'));
    const mcc_string views[] = {{"a", 1}, {"b", 1}, {"c", 1}};
    texts.set_first(first, {static_cast<std::int64_t>(count)});
    if (count == 3) texts.set_first(views, {3});
    texts.set_second(second, {static_cast<std::int64_t>(count)});
    texts.run();
    const std::vector<std::string> both = texts.session().output(0).strings();
    if (texts.both_shape()[0] != static_cast<std::int64_t>(count) || both.size() != count) return 1;
    if (both[count - 1] != (count == 3 ? "c" : "left ") + second[0] || texts.get_both()[0].size != both[0].size()) return 2;
  }
}
""")
        self.link("texts.cpp", ["texts.a"])
        self.run_program()

    def test_same_bytes(self):
        self.compile("detector", "detector.a")
        first = [(self.folder / name).read_bytes() for name in ("detector.a", "detector.h")]
        self.compile("detector", "detector.a", "-j", 1)
        self.assertEqual(first, [(self.folder / name).read_bytes() for name in ("detector.a", "detector.h")])


if __name__ == "__main__":
    stand_in.main(LinkedOpen)
