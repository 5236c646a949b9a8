#!/usr/bin/env python3
"""The same models (models.py) for GPUs, on the stand-in driver, which runs PTX and refuses races and what lies outside of buffers: one library
for all sizes, one session whose sizes grow and shrink, against onnxruntime. gpu.py [TEST...]"""

import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import models
import networks
from session import RunError, Session, use_stand_in_driver

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cuda"))
import stand_in

MCC = os.path.abspath(os.environ.get("MCC", pathlib.Path(__file__).parents[2] / "build/bin/mcc"))
use_stand_in_driver()


def mcc(*arguments):
    return subprocess.run([MCC, *map(str, arguments)], capture_output=True, text=True, timeout=600)


class Gpu(stand_in.Case):
    # What a test compares does not depend on the tests before it.
    def setUp(self):
        models.reseed()

    def save(self, model):
        path = self.folder / f"{model.name}.onnx"
        onnx.save(model.proto(), path)
        return path

    def compile(self, model, *options, target="cuda:sm_80"):
        path = self.save(model)
        library = path.with_suffix(".so")
        result = self.done(mcc("compile", path, "-o", library, "--target", target, "--no-cubin", *options))
        return library, result.stderr

    def check(self, model, library, sizes, rtol=1e-3, atol=5e-4):
        reference = onnxruntime.InferenceSession(str(self.folder / f"{model.name}.onnx"), providers=["CPUExecutionProvider"])
        session = Session(library)
        for of_run in sizes:
            with self.subTest(model=model.name, **of_run):
                feeds = model.feeds(of_run)
                for want, got in zip(reference.run(list(model.outputs), feeds), session.run(feeds, model.outputs)):
                    self.assertEqual(want.shape, got.shape)
                    np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)
        session.close()


    # Kernels have the schedules of analysis, not what is legal always.
    def check_network(self, model, *options, target="cuda:sm_80", rtol=1e-3, atol=5e-4):
        library, said = self.compile(model, *options, target=target)
        self.assertNotIn("plain schedule", said)
        self.check(model, library, model.sizes, rtol, atol)

    # One library for several architectures, whose schedules differ.
    def test_several_architectures(self):
        library, _ = self.compile(networks.half(networks.transformer()), target="cuda:sm_75,sm_80,sm_90a")
        self.check(networks.half(networks.transformer()), library, networks.transformer().sizes[:2], 2e-2, 2e-2)

    def test_commands(self):
        model = models.attention()
        library, said = self.compile(model, target="cuda:sm_80,sm_90a")
        self.assertIn("dimensions N, T stay open (any size)", said)
        self.assertIn("open dimensions: N=1 T=128;", self.done(mcc("run", library, "--random", "1")).stderr)
        self.assertIn("f32[2, 5, 32]", self.done(mcc("run", library, "--random", "1", "--dim", "N=2", "--dim", "T=5")).stdout)
        self.done(mcc("bench", library, "--seconds", "0.01", "--dim", "N=2", "--dim", "T=5"))
        self.done(mcc("bench", library, "--seconds", "0.01", "--dim", "N=2", "--dim", "T=5", "--device-resident"))
        self.assertIn("MatMul_16", self.done(mcc("bench", library, "--seconds", "0.01", "--dim", "N=1", "--dim", "T=5", "--profile")).stdout)
        inspected = self.done(mcc("inspect", library)).stdout
        self.assertIn("as much as the inputs' shapes take", inspected)
        self.assertIn("grid ?x1x1", inspected)
        self.assertIn("grid ?x1x1", self.done(mcc("explain", library, "MatMul_16")).stdout)
        self.done(mcc("verify", self.folder / "attention.onnx", "--target", "cuda:sm_80", "--dim", "T=1..40"))

    # As many steps as a run has, in a graph too.
    def test_steps_are_launches(self):
        for target in ("cuda:sm_80", "cuda:sm_90"):
            library, _ = self.compile(models.wide_recurrent(), target=target)
            inspected = self.done(mcc("inspect", library)).stdout
            self.assertEqual(inspected.count("? times grid"), 1 + 2 * 2, inspected)
            self.check(models.wide_recurrent(), library, models.wide_recurrent().sizes)

    # Scores, softmax and values of any batch and length.
    def test_attention_is_one_launch(self):
        for make in (networks.causal, networks.crossed):
            for options, launches in ((("--precision", "fp16"), 1), (("--precision", "fp16", "--strict"), 3)):
                library, _ = self.compile(make(), *options)
                kernels = {line.split()[1] for line in self.done(mcc("inspect", library)).stdout.splitlines() if line.startswith("launch")}
                # By the number of the kernel: some have launches for several sizes.
                of_attention = {k.split("_")[2] for k in kernels if any(part in k for part in ("scores", "maximum", "matmul", "product"))}
                rest = 2 if make is networks.causal else 0  # its projections
                self.assertEqual(len(of_attention) - rest, launches, kernels)

    # Queries, keys and values of one sequence of any length.
    def test_projections_are_one_product(self):
        for options in ((), ("--precision", "fp16")):
            library, _ = self.compile(networks.transformer(), *options)
            profile = self.done(mcc("bench", library, "--seconds", "0.01", "--dim", "N=1", "--dim", "T=5", "--profile")).stdout
            self.assertRegex(profile, "MatMul_14 MatMul_18 MatMul_22 Add_15 Add_19 Add_23")

    def test_ranges(self):
        model = models.mlp()
        library, said = self.compile(model, "--dim", "N=1..64")
        self.assertNotIn("plain schedule", said)
        self.check(model, library, model.sizes)
        result = self.done(mcc("run", library, "--random", "1", "--dim", "N=65"), 2)
        self.assertIn("takes sizes from 1 to 64", result.stderr)
        fixed, _ = self.compile(model, "--dim", "N=8")
        self.assertIn("f32[8, 40]", self.done(mcc("inspect", fixed)).stdout)

    def test_same_bytes(self):
        model = models.attention()
        first = self.compile(model)[0].read_bytes()
        self.assertEqual(first, self.compile(model)[0].read_bytes())

    # More memory than the GPU has is a sentence; smaller sizes go on.
    def test_out_of_memory(self):
        library, _ = self.compile(models.attention())
        session = Session(library)
        with self.assertRaisesRegex(RunError, "out of memory on the GPU: [0-9]+ bytes for"):
            session.run(models.attention().feeds({"N": 1, "T": 1 << 16}), ("y",))
        session.run(models.attention().feeds({"N": 1, "T": 3}), ("y",))
        session.close()
        result = mcc("run", library, "--random", "1", "--dim", f"T={1 << 16}")
        self.assertEqual(result.returncode, 5, result.stderr)
        self.assertIn("out of memory on the GPU", result.stderr)

    # Threads that fetch tiles of so few rows have copies that are never made.
    def test_products_of_few_rows(self):
        nodes = [("Transpose", ["k"], ["t"], {"perm": [0, 1, 3, 2]}), ("MatMul", ["q", "t"], ["s"], {}), ("Softmax", ["s"], ["p"], {"axis": -1}),
                 ("MatMul", ["p", "v"], ["y"], {})]
        model = models.Model("few_rows", nodes, {"q": ["N", 3, 3, 24], "k": ["N", 3, 30, 24], "v": ["N", 3, 30, 24]}, ("y",), {}, {}, ())
        for options in ((), ("--strict",)):
            library, _ = self.compile(model, *options)
            self.check(model, library, ({"N": 1}, {"N": 4}, {"N": 9}))

    # A dimension of an input beside one that data decides.
    def test_sizes_of_data(self):
        nodes = [("NonZero", ["x"], ["at"], {}), ("Squeeze", ["at", "first"], ["i"], {}), ("Gather", ["x", "i"], ["y"], {})]
        model = models.Model("nonzero", nodes, {"x": ["N"]}, ("at", "y"), {}, {"first": np.array([0])}, ())
        library, _ = self.compile(model)
        reference = onnxruntime.InferenceSession(str(self.folder / "nonzero.onnx"), providers=["CPUExecutionProvider"])
        session = Session(library)
        for n, share in ((5, 0.5), (1000, 0.1), (40, 0), (1, 1), (2000, 0.9)):
            feeds = {"x": np.random.default_rng(n).random(n).astype(np.float32) * (np.random.default_rng(n + 1).random(n) < share)}
            feeds["x"] = feeds["x"].astype(np.float32)
            for want, got in zip(reference.run(["at", "y"], feeds), session.run(feeds, ("at", "y"))):
                np.testing.assert_array_equal(got, want)
        session.close()


def add_models():
    for make in models.ALL:
        def test(self, make=make):
            model = make()
            library, said = self.compile(model)
            self.assertIn("open (any size)", said)
            self.check(model, library, (*model.sizes, model.sizes[0]))

        setattr(Gpu, f"test_{make.__name__}", test)
    for make in networks.ALL:
        def test_f32(self, make=make):
            self.check_network(make())

        def test_f16(self, make=make):
            self.check_network(networks.half(make()), rtol=2e-2, atol=2e-2)

        def test_precision(self, make=make):
            self.check_network(make(), "--precision", "fp16", rtol=2e-2, atol=2e-2)
            self.check_network(make(), "--precision", "bf16", target="cuda:sm_90a", rtol=1e-1, atol=1e-1)

        setattr(Gpu, f"test_network_{make.__name__}", test_f32)
        setattr(Gpu, f"test_network_{make.__name__}_f16", test_f16)
        setattr(Gpu, f"test_network_{make.__name__}_precision", test_precision)


add_models()

if __name__ == "__main__":
    stand_in.main(Gpu)
