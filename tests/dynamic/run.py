#!/usr/bin/env python3
"""Models with open dimensions (models.py): compiled once for ranges of sizes, and without any bound, run at several, against onnxruntime.
run.py [TEST...]"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import models
from session import RunError, Session

MCC = os.path.abspath(os.environ.get("MCC", pathlib.Path(__file__).parents[2] / "build/bin/mcc"))


def mcc(*arguments):
    return subprocess.run([MCC, *map(str, arguments)], capture_output=True, text=True, timeout=300)


def dims(model):
    return [word for name, (least, most) in model.ranges.items() for word in ("--dim", f"{name}={least}..{most}")]


class Dynamic(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.models = {}
        for make in models.ALL:
            model = make()
            cls.models[model.name] = model
            onnx.save(model.proto(), cls.folder / f"{model.name}.onnx")

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def done(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def compile(self, model, *options):
        library = self.folder / f"{model.name}.so"
        self.done(mcc("compile", self.folder / f"{model.name}.onnx", "-o", library, *dims(model), *options))
        return library

    # At each size what onnxruntime gives, from one library.
    def check(self, model, *options):
        library = self.compile(model, *options)
        session = onnxruntime.InferenceSession(str(self.folder / f"{model.name}.onnx"), providers=["CPUExecutionProvider"])
        for sizes in model.sizes:
            with self.subTest(model=model.name, options=options, **sizes):
                feeds = model.feeds(sizes)
                words = []
                for name, value in feeds.items():
                    np.save(self.folder / f"{name}.npy", value)
                    words += ["--input", f"{name}={self.folder / name}.npy"]
                for name, value in zip(model.outputs, session.run(list(model.outputs), feeds)):
                    np.save(self.folder / f"want_{name}.npy", value)
                    words += ["--expect", f"{name}={self.folder / 'want_'}{name}.npy"]
                self.done(mcc("run", library, *words, "--rtol", "1e-3", "--atol", "2e-4"))


    # Without a bound, in one session whose sizes grow and shrink.
    def check_unbounded(self, model, *options, threads=0):
        library = self.folder / f"{model.name}.open.so"
        result = self.done(mcc("compile", self.folder / f"{model.name}.onnx", "-o", library, *options))
        self.assertIn("open (any size)", result.stderr)
        self.assertNotIn("plain schedule", result.stderr)
        reference = onnxruntime.InferenceSession(str(self.folder / f"{model.name}.onnx"), providers=["CPUExecutionProvider"])
        session = Session(library, threads)
        self.assertEqual(session.arena_bytes(), -1)
        larger = {name: 3 * most + 1 for name, (least, most) in model.ranges.items()}
        for sizes in (*model.sizes, larger, model.sizes[0], *reversed(model.sizes)):
            with self.subTest(model=model.name, options=options, **sizes):
                feeds = model.feeds(sizes)
                for want, got in zip(reference.run(list(model.outputs), feeds), session.run(feeds, model.outputs)):
                    self.assertEqual(want.shape, got.shape)
                    np.testing.assert_allclose(got, want, rtol=1e-3, atol=5e-4)
        session.close()

    # The caller's arena: a run that needs more than it has says how much.
    def test_arena_of_the_caller(self):
        model = self.models["attention"]
        library = self.folder / "caller.so"
        self.done(mcc("compile", self.folder / "attention.onnx", "-o", library))
        memory = np.zeros((1 << 20) + 64, dtype=np.uint8)
        start = -memory.ctypes.data % 64
        session = Session(library, 1, memory[start:start + (1 << 20)])
        session.run(model.feeds({"N": 1, "T": 8}), model.outputs)
        with self.assertRaisesRegex(RunError, "the arena needs [0-9]+ bytes with these shapes, got 1048576"):
            session.run(model.feeds({"N": 8, "T": 128}), model.outputs)
        session.run(model.feeds({"N": 1, "T": 9}), model.outputs)
        session.close()

    # A window that does not fit into the input is said by its node; the session goes on.
    def test_too_small(self):
        library = self.folder / "spectra_small.so"
        self.done(mcc("compile", self.folder / "spectra.onnx", "-o", library))
        model, session = self.models["spectra"], Session(library, 1)
        with self.assertRaisesRegex(RunError, r"node 'STFT_0' \(STFT\): dimension 1 of its output, .*, would be negative: an input is too small for it"):
            session.run(model.feeds({"N": 1, "T": 25}), model.outputs)
        session.run(model.feeds({"N": 1, "T": 48}), model.outputs)
        session.close()

    # Exporters write "?" and -1 for sizes that they do not know, which need not be equal.
    def test_placeholders_are_no_names(self):
        model = models.Model("placeholders", [("Add", ["x", "z"], ["y"], {})], {"x": ["?", "?", "-1"], "z": ["-1"]}, ("y",), {}, {}, ())
        proto = model.proto()
        proto.graph.input[1].type.tensor_type.shape.dim[0].dim_value = -1
        del proto.graph.value_info[:]
        onnx.save(proto, self.folder / "placeholders.onnx")
        library = self.folder / "placeholders.so"
        self.done(mcc("compile", self.folder / "placeholders.onnx", "-o", library))
        x, z = np.ones((2, 3, 4), np.float32), np.arange(4, dtype=np.float32)
        session = Session(library, 1)
        np.testing.assert_array_equal(session.run({"x": x, "z": z}, ("y",))[0], x + z)
        session.close()
        self.done(mcc("compile", self.folder / "placeholders.onnx", "-o", library, "--input-shape", "x=2x3x4", "--input-shape", "z=4"))

    # A long window leaves a signal of a usual length no steps, or few: the default schedule is one for a longer signal.
    def test_typical_lengths(self):
        library = self.folder / "long.so"
        model = models.Model("long", [("Conv", ["x", "w"], ["y"], {"strides": [160]})], {"x": ["N", 1, "T"]}, ("y",), {},
                             {"w": models.weights(64, 1, 400)}, ())
        onnx.save(model.proto(), self.folder / "long.onnx")
        self.assertNotIn("plain schedule", self.done(mcc("compile", self.folder / "long.onnx", "-o", library)).stderr)
        self.assertIn("registers", self.done(mcc("explain", library, "Conv_0")).stdout)

    # More memory than there is is an error, not the end of the program.
    def test_too_large(self):
        model = models.Model("large", [("Shape", ["x"], ["n"], {}), ("Concat", ["n", "n", "n"], ["s"], {"axis": 0}), ("Expand", ["c", "s"], ["e"], {}),
                                       ("Softmax", ["e"], ["p"], {"axis": 1}), ("CumSum", ["p", "axis"], ["q"], {}), ("Softmax", ["q"], ["y"], {"axis": 0})],
                             {"x": ["N"]}, ("y",), {}, {"c": np.ones((1, 1, 1), np.float32), "axis": np.int64(0)}, ())
        onnx.save(model.proto(), self.folder / "large.onnx")
        library = self.folder / "large.so"
        self.done(mcc("compile", self.folder / "large.onnx", "-o", library))
        session = Session(library, 1)
        session.run({"x": np.zeros(3, np.float32)}, ("y",))
        for n in (1 << 14, 1 << 21, 1 << 22):
            with self.assertRaisesRegex(RunError, "memory|too large|overflow"):
                session.run({"x": np.zeros(n, np.float32)}, ("y",))
        session.run({"x": np.zeros(5, np.float32)}, ("y",))
        session.close()

    def test_sizes_are_chosen(self):
        library = self.folder / "chosen.so"
        self.done(mcc("compile", self.folder / "attention.onnx", "-o", library))
        self.assertIn("open dimensions: N=1 T=128; others by --dim NAME=8", self.done(mcc("run", library, "--random", "1")).stderr)
        self.assertIn("open dimensions: T=128;", self.done(mcc("bench", library, "--seconds", "0.01", "--dim", "N=2")).stderr)
        self.assertIn("as much as the inputs' shapes take", self.done(mcc("inspect", library)).stdout)

    def test_verifies_without_sizes(self):
        self.done(mcc("verify", self.folder / "shapes.onnx"))

    # Some with a value, some with a range, one from a least size on.
    def test_mixed(self):
        library = self.folder / "mixed.so"
        model = self.folder / "convolutions.onnx"
        self.done(mcc("compile", model, "-o", library, "--dim", "N=2", "--dim", "H=8..64"))
        self.done(mcc("run", library, "--random", "1", "--dim", "H=33", "--dim", "W=300"))
        self.assertIn("takes sizes from 8 to 64", mcc("run", library, "--random", "1", "--dim", "H=65").stderr)
        self.done(mcc("compile", model, "-o", library, "--dim", "N=2..", "--dim", "H=16"))
        result = mcc("run", library, "--random", "1", "--dim", "N=1")
        self.assertEqual(result.returncode, 2)
        self.done(mcc("run", library, "--random", "1"))

    def test_is_refused_at_other_sizes(self):
        library = self.compile(self.models["mlp"])
        np.save(self.folder / "large.npy", np.zeros((65, 40), dtype=np.float32))
        result = mcc("run", library, "--input", f"x={self.folder / 'large.npy'}")
        self.assertEqual(result.returncode, 3)
        self.assertIn('dimension 0 ("N") must be between 1 and 64, got 65', result.stderr)
        result = mcc("bench", library)
        self.assertEqual(result.returncode, 2)
        self.assertIn("no size for dimension 'N'", result.stderr)
        self.assertIn("--dim N=1 (1 to 64)", result.stderr)
        result = mcc("bench", library, "--dim", "N=65")
        self.assertEqual(result.returncode, 2)
        self.assertIn("the model takes sizes from 1 to 64", result.stderr)
        self.assertEqual(mcc("bench", library, "--dim", "M=5").returncode, 2)
        self.done(mcc("bench", library, "--dim", "N=5", "--seconds", "0.01"))

    def test_constants_say_sizes(self):
        model = models.Model("said", [("Einsum", ["a", "b", "c"], ["y"], {"equation": "ab,ac,abcd->ad"})], {"a": ["A", 1], "b": ["A", 1]}, ("y",), {"A": (1, 9)},
                             {"c": models.weights(3, 1, 1, 4)}, ({"A": 3},))
        onnx.save(model.proto(), self.folder / "said.onnx")
        self.check(model)

    # Kernels have the schedules of analysis, not what is legal always.
    def test_has_schedules(self):
        for name in ("mlp", "attention", "batches"):
            model = self.models[name]
            self.assertNotIn("plain schedule", self.done(mcc("compile", self.folder / f"{name}.onnx", "-o", self.folder / "s.so", *dims(model))).stderr)

    def test_same_bytes(self):
        first = self.compile(self.models["attention"]).read_bytes()
        self.assertEqual(first, self.compile(self.models["attention"]).read_bytes())

    # By input and position, of a dimension that has no name.
    def test_ranges_of_inputs(self):
        model = self.models["mlp"].proto()
        model.graph.input[0].type.tensor_type.shape.dim[0].Clear()
        onnx.save(model, self.folder / "nameless.onnx")
        library = self.folder / "nameless.so"
        self.done(mcc("compile", self.folder / "nameless.onnx", "-o", library, "--input-shape", "x=1..9x40"))
        self.assertIn("f32[x.0, 40]", self.done(mcc("inspect", library)).stdout)
        self.done(mcc("run", library, "--random", "1", "--dim", "x.0=9"))

    def test_is_verified_at_several_sizes(self):
        self.done(mcc("verify", self.folder / "shapes.onnx", *dims(self.models["shapes"])))

    # Kernels of every kind of open axis are tasks, with and without ranges.
    def test_has_tasks(self):
        for name, model in self.models.items():
            for options in ((), dims(model)):
                with self.subTest(model=name, options=options):
                    self.done(mcc("tasks", self.folder / f"{name}.onnx", *options))


def add_models():
    for make in models.ALL:
        def test(self, name=make.__name__):
            self.check(self.models[name])

        def test_elsewhere(self, name=make.__name__):
            self.check(self.models[name], "--target", "cpu:x86-64-v2", "--threads", "1")

        def test_unbounded(self, name=make.__name__):
            self.check_unbounded(self.models[name])
            self.check_unbounded(self.models[name], "--target", "cpu:x86-64-v3", threads=2)

        setattr(Dynamic, f"test_{make.__name__}", test)
        setattr(Dynamic, f"test_{make.__name__}_unbounded", test_unbounded)
        setattr(Dynamic, f"test_{make.__name__}_on_sse", test_elsewhere)


add_models()

if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=0).result
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad if bad < result.testsRun else 0} passed, {bad} failed")
    sys.exit(bad != 0)
