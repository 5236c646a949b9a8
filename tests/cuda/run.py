#!/usr/bin/env python3
"""Models for GPUs through the program, on a stand-in driver that runs their PTX (tests/fake_cuda). run.py [TEST...]

Whole models against the same models on the CPU, for several architectures; images, figures and bytes of the libraries; the
errors that a machine without the right GPU must end in.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import stand_in
from stand_in import Case, mcc

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "models"))
import networks

# Small enough to be run an instruction at a time, and of different kinds.
NETWORKS = list(networks.MODELS)
# Several layers of halves, which GPUs round between operators, and CPUs, which compute in f32, do not: as far apart as from the
# reference (tests/models/run.py).
ROUNDED = ("half_decoder", "half_step")


def has_driver():
    try:
        import ctypes
        ctypes.CDLL("libcuda.so.1")
        return True
    except OSError:
        return False


class Cuda(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rng = np.random.default_rng(1)
        nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Softmax", ["m"], ["y"], axis=-1)]
        cls.model = cls.folder / "small.onnx"
        stand_in.save(cls.model, nodes, {"x": [4, 8]}, [4, 16], {"w": rng.standard_normal((8, 16)).astype(np.float32)})
        cls.library = cls.folder / "small.so"
        cls.done(mcc("compile", cls.model, "-o", cls.library, "--target", "cuda:sm_80,sm_90", "--no-cubin"))

    def fails(self, result, message):
        self.done(result, 5)
        self.assertIn(message, result.stderr)

    # ---- Whole models ----

    def test_models(self):
        for k, name in enumerate(NETWORKS):
            with self.subTest(name), tempfile.TemporaryDirectory() as temporary:
                folder = pathlib.Path(temporary)
                onnx.save(networks.build(name), folder / "model.onnx")
                rtol, atol = ("1e-2", "1e-2") if name in ROUNDED else ("1e-3", "1e-4")
                self.compare(folder, f"cuda:{('sm_70', 'sm_80', 'sm_90a')[k % 3]}", "--rtol", rtol, "--atol", atol)

    # Runs folder/model.onnx for the GPU, and expects what it gives on the CPU.
    def compare(self, folder, target, *tolerance):
        on_cpu, on_gpu = folder / "cpu.so", folder / "gpu.so"
        self.done(mcc("compile", folder / "model.onnx", "-o", on_cpu, "--target", "cpu:x86-64-v3"))
        self.done(mcc("compile", folder / "model.onnx", "-o", on_gpu, "--target", target, "--emit", f"ptx={folder / 'ptx'}"))
        self.done(mcc("run", on_cpu, "--random", "5", "--output-dir", folder / "out"))
        expect = []
        for i, output in enumerate(json.loads(self.done(mcc("inspect", on_gpu, "--json")).stdout)["outputs"]):
            expect += ["--expect", f"{output['name']}={folder / 'out' / f'output_{i}.npy'}"]
        self.done(mcc("run", on_gpu, "--random", "5", *tolerance, *expect, FAKE_CUDA_SM=90))
        return "".join(file.read_text() for file in (folder / "ptx").iterdir())

    # What has no elements is computed by nobody; a sum over nothing is 0.
    def test_empty(self):
        n = networks.Net(3)
        rows, columns, wide = n.input("rows", [0, 64]), n.input("columns", [64, 0]), n.input("wide", [2, 0, 300])
        image, square = n.input("image", [0, 8, 16, 16]), n.input("square", [64, 64])
        by_rows, states = n.op("CumSum", columns, n.constant(np.int64(0))), n.input("x", [5, 0, 8])
        values = [n.op("MatMul", square, columns), n.op("MatMul", rows, square), n.op("Gemm", columns, rows, n.constant(np.ones(64, np.float32))), by_rows,
                  n.op("Softmax", wide), n.op("ReduceMean", wide, axes=[-1]), n.op("ReduceSum", wide, n.constant(np.array([1]))),
                  n.op("Conv", image, n.constant(np.ones((8, 8, 3, 3), np.float32)), pads=[1] * 4), n.op("GlobalAveragePool", image),
                  n.op("GRU", states, *(n.constant(np.ones((1, 24, 8), np.float32)) for _ in range(2)), hidden_size=8)]
        onnx.save(n.model(*values), self.folder / "empty.onnx")
        for target in ("cpu:x86-64-v3", "cuda:sm_70", "cuda:sm_80", "cuda:sm_90a"):
            with self.subTest(target):
                self.done(mcc("verify", self.folder / "empty.onnx", "--target", target, FAKE_CUDA_SM=90))

    # Sums of bytes are exact, whatever instruction makes them.
    def test_integers(self):
        n = networks.Net(3)

        def weights(*shape):
            return n.constant(n.rng.integers(-128, 128, shape).astype(np.int8))

        a, image = n.input("a", [19, 38], TensorProto.UINT8), n.input("image", [1, 3, 11, 9], TensorProto.INT8)
        product = n.op("MatMulInteger", a, weights(38, 21), n.constant(np.uint8(7)))
        convolution = n.op("ConvInteger", image, weights(20, 3, 3, 3), n.constant(np.int8(-5)), pads=[1] * 4, strides=[2, 1])
        few_rows = n.op("MatMulInteger", n.input("few", [3, 192], TensorProto.UINT8), weights(192, 20))
        model = n.model(*(n.op("Cast", x, to=TensorProto.FLOAT) for x in (product, convolution, few_rows)))
        for arch, instruction in (("sm_70", "dp4a.u32.s32"), ("sm_75", "m8n8k16.row.col.s32.u8.s8.s32"), ("sm_80", "m16n8k32.row.col.s32.u8.s8.s32"), ("sm_90", "row.col.s32.s8.s8.s32")):
            with self.subTest(arch), tempfile.TemporaryDirectory() as temporary:
                onnx.save(model, pathlib.Path(temporary) / "model.onnx")
                ptx = self.compare(pathlib.Path(temporary), f"cuda:{arch}", "--rtol", "0", "--atol", "0")
                self.assertIn(instruction, ptx)

    # From sm_90 on LLVM takes the larger of two integers of 16 bits at a time, which quantised bytes are on the way.
    def test_pooled_bytes(self):
        rng = np.random.default_rng(3)
        weights = {"w": rng.integers(-127, 128, (8, 1, 3, 3)).astype(np.int8), "v": rng.integers(-127, 128, (200, 10)).astype(np.int8),
                   "scale": np.float32(0.02)}
        for zero, instruction in ((np.uint8(3), "max.u16x2"), (np.int8(-3), "max.s16x2")):
            nodes = [helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"]), helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
                     helper.make_node("DequantizeLinear", ["w", "scale"], ["f"]), helper.make_node("Conv", ["d", "f"], ["c"]),
                     helper.make_node("QuantizeLinear", ["c", "scale", "zero"], ["r"]), helper.make_node("DequantizeLinear", ["r", "scale", "zero"], ["e"]),
                     helper.make_node("MaxPool", ["e"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
                     helper.make_node("QuantizeLinear", ["p", "scale", "zero"], ["s"]), helper.make_node("DequantizeLinear", ["s", "scale", "zero"], ["t"]),
                     helper.make_node("Flatten", ["t"], ["u"]), helper.make_node("DequantizeLinear", ["v", "scale"], ["g"]),
                     helper.make_node("MatMul", ["u", "g"], ["y"])]
            with self.subTest(instruction), tempfile.TemporaryDirectory() as temporary:
                model, ptx = pathlib.Path(temporary) / "model.onnx", pathlib.Path(temporary) / "ptx"
                stand_in.save(model, nodes, {"x": [257, 1, 12, 12]}, [257, 10], weights | {"zero": zero})
                options = ("--target", "cuda:sm_90a", "--precision", "fp16")
                self.done(mcc("verify", model, *options, "--atol", "0.4", FAKE_CUDA_SM=90))
                self.done(mcc("compile", model, "-o", model.with_suffix(".so"), *options, "--emit", f"ptx={ptx}"))
                self.assertIn(instruction, "".join(file.read_text() for file in ptx.iterdir()))

    # Convolutions in f32 go by Winograd's algorithm where that pays, those of tensor cores and strict ones never.
    def test_winograd(self):
        model, library = self.folder / "winograd.onnx", self.folder / "winograd.so"
        onnx.save(networks.build("wide_cnn"), model)
        for options, used in (((), True), (("--precision", "tf32"), False), (("--strict",), False)):
            with self.subTest(options):
                self.done(mcc("compile", model, "-o", library, "--target", "cuda:sm_80", "--no-cubin", *options))
                launches = self.launches(library)
                self.assertEqual(any("_tiles_product_" in launch["kernel"] for launch in launches), used)

    # ---- Libraries ----

    def test_same_bytes(self):
        for name, jobs in (("a.so", 1), ("b.so", 2)):
            self.done(mcc("compile", self.model, "-o", self.folder / name, "--target", "cuda:sm_80,sm_90", "--no-cubin",
                          "--jobs", jobs, driver=False))
        self.assertEqual((self.folder / "a.so").read_bytes(), self.library.read_bytes())
        self.assertEqual((self.folder / "b.so").read_bytes(), self.library.read_bytes())

    def test_inspect(self):
        library = self.folder / "machine_code.so"
        report = json.loads(self.done(mcc("compile", self.model, "-o", library, "--target", "cuda:sm_80,sm_90", "--json")).stdout)
        device = json.loads(self.done(mcc("inspect", library, "--json")).stdout)["device"]
        images = [(i["kind"], i["arch"]) for i in device["images"]]
        self.assertEqual(images[0], ("ptx", "sm_80"))
        self.assertEqual(report["device"]["launches"], len(device["launches"]))
        for launch in device["launches"]:
            self.assertTrue(all(e > 0 for e in launch["grid"] + launch["block"]))
        if not report["device"]["assembler"]:
            self.skipTest("neither nvJitLink nor ptxas is here")
        self.assertEqual(images[1:], [("cubin", "sm_80"), ("cubin", "sm_90")])
        for launch in device["launches"]:
            self.assertEqual([f["arch"] for f in launch["figures"]], ["sm_80", "sm_90"])
            self.assertTrue(all(f["registers"] > 0 and f["spill_stores"] == 0 for f in launch["figures"]))
        self.assertIn("image   cubin sm_90", mcc("inspect", library).stdout)

    def test_emit(self):
        self.done(mcc("compile", self.model, "-o", self.folder / "e.so", "--target", "cuda:sm_75", "--emit", f"ptx={self.folder / 'ptx'}"))
        for file in (self.folder / "ptx").iterdir():
            self.assertIn(".target sm_75", file.read_text())

    def test_linked_in(self):
        self.done(mcc("compile", self.model, "-o", self.folder / "m.a", "--header", self.folder / "m.h", "--target", "cuda:sm_80"))

    def test_what_has_no_kernel_for_gpus_is_named_at_once(self):
        own = self.folder / "own.txt"
        tasks = json.loads(self.done(mcc("tasks", self.model, "--target", "cuda:sm_80", "--json")).stdout)["tasks"]
        own.write_text("".join(f"task {t['id']}\n" for t in tasks))
        result = self.done(mcc("compile", self.model, "-o", self.folder / "no.so", "--target", "cuda:sm_80", "--schedule", own), 4)
        self.assertIn("node 'm': kernel part 'matmul' is not bound to the grid", result.stderr)
        self.assertIn("node 'y': kernel part 'maximum' is not bound to the grid", result.stderr)
        self.assertFalse((self.folder / "no.so").exists())

    # ---- Running ----

    def test_bench(self):
        for more in ((), ("--device-resident",)):
            report = json.loads(self.done(mcc("bench", self.library, "--seconds", "0.1", "--profile", "--json", *more)).stdout)
            self.assertGreater(report["runs"], 0)
            self.assertEqual({r["kind"] for r in report["profile"]}, {"device"})

    # Products on tensor cores, against the reference, within what the rounding of operands makes of them.
    def test_precision(self):
        for name, sm, precision, matrices in (("encoder", 80, "fp16", "m16n8k16.row.col.f32.f16.f16.f32"),
                                              ("attention_forms", 80, "bf16", "m16n8k16.row.col.f32.bf16.bf16.f32"),
                                              ("convnext_block", 80, "tf32", "m16n8k8.row.col.f32.tf32.tf32.f32"),
                                              ("attention_forms", 75, "fp16", "m16n8k8.row.col.f32.f16.f16.f32"),
                                              ("residual_cnn", 75, "fp16", "m16n8k8.row.col.f32.f16.f16.f32")):
            with self.subTest(name, sm=sm), tempfile.TemporaryDirectory() as temporary:
                folder = pathlib.Path(temporary)
                onnx.save(networks.build(name), folder / "model.onnx")
                options = ("--target", f"cuda:sm_{sm}", "--precision", precision)
                self.done(mcc("verify", folder / "model.onnx", *options, FAKE_CUDA_SM=75 if sm == 75 else 90))
                self.done(mcc("compile", folder / "model.onnx", "-o", folder / "model.so", *options, "--emit", f"ptx={folder / 'ptx'}"))
                ptx = "".join(file.read_text() for file in (folder / "ptx").iterdir())
                self.assertIn(f"mma.sync.aligned.{matrices}", ptx)
                self.launches_without_spills(folder / "model.so")

    # Convolutions for tensor cores have their channels last, and what stands between them follows.
    def test_channels_last(self):
        for name, follower, options in (("residual_cnn", "_max_pool", ("--target", "cuda:sm_90a", "--precision", "bf16")),
                                        ("split_and_joined", "_place", ("--target", "cuda:sm_90a", "--precision", "fp16")),
                                        ("diffusion_decoder", "squares_moments", ("--target", "cuda:sm_90a", "--precision", "fp16")),
                                        ("grouped_bottlenecks", "pad_conv", ("--target", "cuda:sm_80", "--precision", "fp16")),
                                        ("mobile_cnn", "_depthwise", ("--target", "cuda:sm_80", "--precision", "fp16"))):
            with self.subTest(name):
                kernels = self.verified_kernels(name, options)
                self.assertTrue([kernel for kernel in kernels if follower in kernel])
                self.assertFalse([kernel for kernel in kernels if "transpose" in kernel])

    # So do those of volumes. Places that a transposed convolution makes of one are brought beside each other, one output is plain.
    def test_volumes(self):
        kernels = self.verified_kernels("volumes", ("--target", "cuda:sm_80", "--precision", "fp16"))
        for follower in ("_max_pool", "pool_mean_cast", "squares_moments", "inverse_deviation_statistics", "_depthwise", "resized", "_place"):
            self.assertTrue([kernel for kernel in kernels if follower in kernel], follower)
        self.assertEqual([kernel for kernel in kernels if "transpose" in kernel], ["transpose_reshape_place", "transpose"])

    def launches(self, library):
        return json.loads(self.done(mcc("inspect", library, "--json")).stdout)["device"]["launches"]

    # All that they need is in registers, as far as there is an assembler to say so.
    def launches_without_spills(self, library):
        launches = self.launches(library)
        for launch in launches:
            self.assertTrue(all(f["spill_stores"] == f["stack_bytes"] == 0 for f in launch["figures"]), launch)
        return launches

    def needs_assembler(self):
        compiled = self.done(mcc("compile", self.model, "-o", self.folder / "assembled.so", "--target", "cuda:sm_80", "--json"))
        if not json.loads(compiled.stdout)["device"]["assembler"]:
            self.skipTest("neither nvJitLink nor ptxas is here")

    # Names of the kernels of a model, which gives what the reference does, and whose launches have all they need in registers.
    def verified_kernels(self, name, options):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            onnx.save(networks.build(name), folder / "model.onnx")
            self.done(mcc("verify", folder / "model.onnx", *options, FAKE_CUDA_SM=90))
            self.done(mcc("compile", folder / "model.onnx", "-o", folder / "model.so", *options))
            return [launch["kernel"] for launch in self.launches_without_spills(folder / "model.so")]

    # Places of single elements in windows share the registers with the sums.
    def test_windows_do_not_spill(self):
        self.needs_assembler()
        rng = np.random.default_rng(2)
        cases = ((8, 256, 80, (17, 17, 7), (3, 3, 3), 1), (8, 144, 24, (17, 17, 17), (5, 5, 5), 2), (1, 3, 64, (16, 112, 112), (3, 7, 7), 2),
                 (33, 8, 24, (17, 17, 17), (3, 3, 3), 2), (2, 96, 192, (15, 20, 20), (4, 4, 4), 2),
                 (8, 100, 512, (56, 112), (7, 7), 1), (33, 128, 160, (28, 31), (5, 5), 1), (8, 24, 512, (31, 17), (1, 1), 1))
        for k, (batch, channels, results, places, window, step) in enumerate(cases):
            model = self.folder / "window.onnx"
            out = [(p + (w - 1) // 2 * 2 - w) // step + 1 for p, w in zip(places, window)]
            node = helper.make_node("Conv", ["x", "w"], ["y"], strides=[step] * len(window), pads=[(w - 1) // 2 for w in window] * 2)
            stand_in.save(model, [node], {"x": [batch, channels, *places]}, [batch, results, *out],
                          {"w": rng.standard_normal((results, channels, *window)).astype(np.float32)})
            for precision, target in (("fp32", "cuda:sm_75,sm_80"), ("tf32", "cuda:sm_80,sm_90a"), ("bf16", "cuda:sm_80,sm_86"),
                                      ("fp16", "cuda:sm_75")):
                with self.subTest(case=k, precision=precision):
                    self.done(mcc("compile", model, "-o", self.folder / "window.so", "--target", target, "--precision", precision))
                    self.launches_without_spills(self.folder / "window.so")

    # Nor do places of images of any size.
    def test_open_windows_do_not_spill(self):
        self.needs_assembler()
        model = self.folder / "open.onnx"
        nodes = [helper.make_node("MaxPool", ["x"], ["p"], kernel_shape=[3, 3], strides=[4, 4], pads=[1, 1, 1, 1]),
                 helper.make_node("Conv", ["p", "w"], ["c"]), helper.make_node("HardSwish", ["c"], ["y"])]
        weights = np.random.default_rng(3).standard_normal((64, 32, 1, 1)).astype(np.float32)
        stand_in.save(model, nodes, {"x": ["n", 32, "h", "w"]}, ["n", 64, "y", "x"], {"w": weights})
        self.done(mcc("compile", model, "-o", self.folder / "open.so", "--target", "cuda:sm_80,sm_90a"))
        self.launches_without_spills(self.folder / "open.so")

    # Several channels' windows at a time would take more places than a thread has registers.
    def test_open_stems_do_not_spill(self):
        self.needs_assembler()
        for kernel, channels, precision in ((3, 16, "fp32"), (3, 32, "fp32"), (5, 16, "fp32"), (7, 64, "fp32"), (5, 32, "tf32"), (5, 32, "fp16")):
            with self.subTest(f"{kernel} x {kernel} to {channels}, {precision}"):
                model = self.folder / f"stem{kernel}_{channels}.onnx"
                pads = [kernel // 2] * 4
                nodes = [helper.make_node("Conv", ["x", "w"], ["c"], strides=[2, 2], pads=pads), helper.make_node("HardSwish", ["c"], ["y"])]
                weights = np.random.default_rng(3).standard_normal((channels, 3, kernel, kernel)).astype(np.float32)
                stand_in.save(model, nodes, {"x": ["n", 3, "h", "w"]}, ["n", channels, "y", "x"], {"w": weights})
                library = self.folder / f"stem{kernel}_{channels}.so"
                self.done(mcc("compile", model, "-o", library, "--target", "cuda:sm_80,sm_90a", "--precision", precision))
                self.launches_without_spills(library)

    # Results have places that take divisions, and so has what is fetched: for many at a time there are no registers.
    def test_open_convolutions_do_not_spill(self):
        self.needs_assembler()
        rng = np.random.default_rng(3)
        for kernel, channels, results, is_residual, precision in ((1, 16, 72, False, "fp32"), (1, 64, 64, True, "tf32"), (1, 96, 576, False, "tf32"),
                                                                  (3, 32, 32, False, "tf32"), (1, 512, 2048, True, "fp16"), (3, 64, 64, False, "fp16")):
            with self.subTest(f"{kernel} x {kernel}, {channels} to {results}, {precision}"):
                model, library = self.folder / "places.onnx", self.folder / "places.so"
                nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[kernel // 2] * 4)]
                inputs = {"x": ["n", channels, "h", "w"]}
                if is_residual:
                    nodes.append(helper.make_node("Add", ["c", "z"], ["s"]))
                    inputs["z"] = ["n", results, "h", "w"]
                nodes.append(helper.make_node("HardSwish", nodes[-1].output, ["y"]))
                stand_in.save(model, nodes, inputs, ["n", results, "h", "w"], {"w": rng.standard_normal((results, channels, kernel, kernel)).astype(np.float32),
                                                                              "b": rng.standard_normal(results).astype(np.float32)})
                self.done(mcc("compile", model, "-o", library, "--target", "cuda:sm_80,sm_90a", "--precision", precision))
                self.launches_without_spills(library)

    # Halves that are fetched one by one, as an architecture without instructions for them in the list leaves channels where they are.
    def test_open_convolutions_of_halves_do_not_spill(self):
        self.needs_assembler()
        rng = np.random.default_rng(3)
        for kernel, channels, results, step, places in ((5, 64, 64, 2, ["h", "w"]), (3, 128, 128, 1, [45, 31]), (5, 64, 128, 2, [45, 31])):
            with self.subTest(f"{kernel} x {kernel}, {channels} to {results}"):
                model, library = self.folder / "halves.onnx", self.folder / "halves.so"
                nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[kernel // 2] * 4, strides=[step] * 2), helper.make_node("Relu", ["c"], ["y"])]
                weights = {"w": rng.standard_normal((results, channels, kernel, kernel)).astype(np.float16), "b": rng.standard_normal(results).astype(np.float16)}
                stand_in.save(model, nodes, {"x": ["n", channels, *places]}, ["n", results, "y", "x"], weights, TensorProto.FLOAT16)
                self.done(mcc("compile", model, "-o", library, "--target", "cuda:sm_70,sm_80,sm_90a"))
                self.launches_without_spills(library)

    # Attention over few tokens gives a thread one row and many columns: no reason to spill.
    def test_short_attention(self):
        for tokens in (8, 16, 24):
            with self.subTest(tokens), tempfile.TemporaryDirectory() as temporary:
                folder = pathlib.Path(temporary)
                n = networks.Net(3)
                onnx.save(n.model(n.attention(n.input("x", [1, tokens, 128]), tokens, 128, 2)), folder / "model.onnx")
                options = ("--target", "cuda:sm_75,sm_80,sm_90a")
                self.done(mcc("compile", folder / "model.onnx", "-o", folder / "model.so", *options))
                launches = self.launches_without_spills(folder / "model.so")
                self.assertTrue([launch for launch in launches if "scores" in launch["kernel"]])

    # Parts of the keys one after the other: their scores and two sums share the registers.
    def test_long_attention(self):
        for rows, keys, depth in ((1024, 1024, 64), (577, 577, 80), (777, 999, 160), (1000, 1200, 176)):
            with self.subTest(rows=rows, depth=depth):
                model, library = self.folder / "attention.onnx", self.folder / "attention.so"
                stand_in.save(model, [helper.make_node("MatMul", ["q", "k"], ["s"]), helper.make_node("Softmax", ["s"], ["p"], axis=-1),
                                      helper.make_node("MatMul", ["p", "v"], ["y"])],
                              {"q": [12, rows, depth], "k": [12, depth, keys], "v": [12, keys, depth]}, [12, rows, depth])
                for arch in ("sm_75", "sm_80", "sm_86", "sm_90a"):
                    self.done(mcc("compile", model, "-o", library, "--target", f"cuda:{arch}", "--precision", "fp16"))
                    launches = self.launches_without_spills(library)
                    self.assertEqual(len([launch for launch in launches if "scores" in launch["kernel"]]), 1)

    # Keys that lie along an open length are fetched one by one: a thread has no registers for many beside scores and sums.
    def test_keys_along_an_open_length(self):
        for heads, depth, arch in ((1, 64, "sm_80"), (4, 80, "sm_75"), (12, 80, "sm_90a"), (2, 160, "sm_80"), (3, 128, "sm_75")):
            with self.subTest(depth=depth, arch=arch):
                model, library = self.folder / "open_keys.onnx", self.folder / "open_keys.so"
                stand_in.save(model, [helper.make_node("MatMul", ["q", "k"], ["s"]), helper.make_node("Mul", ["s", "c"], ["t"]),
                                      helper.make_node("Softmax", ["t"], ["p"], axis=-1), helper.make_node("MatMul", ["p", "v"], ["y"])],
                              {"q": [1, heads, "m", depth], "k": [1, heads, depth, "n"], "v": [1, heads, "n", depth]}, [1, heads, "m", depth],
                              {"c": np.array(depth**-0.5, np.float16)}, TensorProto.FLOAT16)
                self.done(mcc("verify", model, "--target", f"cuda:{arch}", FAKE_CUDA_SM=75 if arch == "sm_75" else 90))
                self.done(mcc("compile", model, "-o", library, "--target", f"cuda:{arch}"))
                self.launches_without_spills(library)
                # A single query's keys are dealt out to several blocks, whose sums a second launch puts together.
                (kernel,) = json.loads(self.done(mcc("explain", library, "y", "--json")).stdout)["kernels"]
                self.assertEqual({s["where"]: len(s["launches"]) for s in kernel["schedules"]}, {"": 1, "m == 1": 2})

    # Heads that have keys in common are rows of one product: a tile may be of two heads. One launch, whatever the number of rows.
    def test_common_keys(self):
        for rows, keys, arch, precision in ((64, 64, "sm_80", "fp16"), (64, 64, "sm_86", "bf16"), (50, 50, "sm_89", "fp16"),
                                            (65, 40, "sm_80", "tf32"), (1024, 1024, "sm_80", "fp16")):
            with self.subTest(rows=rows, precision=precision):
                model, library = self.folder / "common.onnx", self.folder / "common.so"
                stand_in.save(model, [helper.make_node("MatMul", ["q", "k"], ["s"]), helper.make_node("Mul", ["s", "c"], ["t"]),
                                      helper.make_node("Softmax", ["t"], ["p"], axis=-1), helper.make_node("MatMul", ["p", "v"], ["y"])],
                              {"q": [1, 8, rows, 32], "k": [1, 1, 32, keys], "v": [1, 1, keys, 32]}, [1, 8, rows, 32], {"c": np.array(0.2, np.float32)})
                options = ("--target", f"cuda:{arch}", "--precision", precision)
                self.done(mcc("compile", model, "-o", library, *options, "--no-cubin"))
                launches = self.launches(library)
                self.assertEqual(len([launch for launch in launches if "scores" in launch["kernel"]]), 1)
                if rows < 100:
                    self.done(mcc("verify", model, *options, FAKE_CUDA_SM=90))

    # Code for sm_90a alone multiplies by warpgroups: halves as they are, what is converted on the way, and tf32 of weights, which
    # stand along the sum.
    def test_warpgroups(self):
        half, single = TensorProto.FLOAT16, TensorProto.FLOAT
        weights = onnx.numpy_helper.from_array(np.random.default_rng(1).standard_normal((256, 512)).astype(np.float32), "w")
        for name, kind, shapes, constants, options in (
                ("plain", half, ([256, 1024], [1024, 256]), (), ()),
                ("converted", single, ([256, 1024], [1024, 256]), (), ("--precision", "bf16")),
                ("tf32", single, ([1024, 256], [256, 512]), (weights,), ("--precision", "tf32"))):
            with self.subTest(name), tempfile.TemporaryDirectory() as temporary:
                folder = pathlib.Path(temporary)
                names = "x" if constants else "xw"
                inputs = [helper.make_tensor_value_info(n, kind, s) for n, s in zip(names, shapes)]
                output = helper.make_tensor_value_info("y", kind, [*shapes[0][:-1], shapes[1][-1]])
                graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", inputs, [output], constants)
                onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "model.onnx")
                options = ("--target", "cuda:sm_90a", *options)
                self.done(mcc("verify", folder / "model.onnx", *options, FAKE_CUDA_SM=90))
                self.done(mcc("compile", folder / "model.onnx", "-o", folder / "model.so", *options, "--emit", f"ptx={folder / 'ptx'}"))
                ptx = "".join(file.read_text() for file in (folder / "ptx").iterdir())
                self.assertIn("wgmma.mma_async.sync.aligned", ptx)
                # Their operands come by the copy engine, whose maps the driver makes.
                self.assertIn("cp.async.bulk.tensor.2d", ptx)
                if name == "plain":
                    self.fails(mcc("run", folder / "model.so", "--random", "1", FAKE_CUDA_SM=90, FAKE_CUDA_FAIL="cuTensorMapEncodeTiled:801"),
                               "the driver makes no map of a matrix: another error (CUDA_ERROR_OTHER, 801)")
                self.launches_without_spills(folder / "model.so")

    # Bytes, too, with what comes before and behind their product in its kernel; of types that differ, by newer PTX.
    def test_warpgroups_of_bytes(self):
        kinds = {"s8": (TensorProto.INT8, np.int8, "8.0"), "u8": (TensorProto.UINT8, np.uint8, "8.4")}
        for name, (kind, dtype, version) in kinds.items():
            with self.subTest(name), tempfile.TemporaryDirectory() as temporary:
                folder = pathlib.Path(temporary)
                weights = np.random.default_rng(1).integers(-127, 128, (1024, 256)).astype(np.int8)
                constants = {"s": np.float32(0.02), "z": dtype(3), "w": weights, "ws": np.float32(0.01), "wz": np.int8(0),
                             "ys": np.float32(0.4), "yz": dtype(5)}
                node = helper.make_node("QLinearMatMul", ["x", "s", "z", "w", "ws", "wz", "ys", "yz"], ["y"])
                graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", kind, [256, 1024])],
                                          [helper.make_tensor_value_info("y", kind, [256, 256])],
                                          [onnx.numpy_helper.from_array(value, key) for key, value in constants.items()])
                onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "model.onnx")
                options = ("--target", "cuda:sm_90a")
                self.done(mcc("verify", folder / "model.onnx", *options, FAKE_CUDA_SM=90))
                self.done(mcc("compile", folder / "model.onnx", "-o", folder / "model.so", *options, "--emit", f"ptx={folder / 'ptx'}"))
                (ptx,) = (file.read_text() for file in (folder / "ptx").iterdir())
                self.assertRegex(ptx, rf"wgmma\.mma_async\.sync\.aligned\.m64n\d+k32\.s32\.{name}\.s8 ")
                self.assertIn(f".version {version}\n", ptx)
                self.assertIn("cp.async.bulk.tensor.2d", ptx)
                self.launches_without_spills(folder / "model.so")

    # A target's own types stay where nobody asks for others.
    def test_precision_is_asked_for(self):
        self.done(mcc("compile", self.model, "-o", self.folder / "p.so", "--target", "cuda:sm_80", "--emit", f"ptx={self.folder / 'plain'}"))
        for file in (self.folder / "plain").iterdir():
            self.assertNotIn("mma.sync", file.read_text())

    def test_verify(self):
        self.done(mcc("verify", self.model, "--target", "cuda:sm_80"))

    def test_doctor(self):
        report = json.loads(self.done(mcc("doctor", "--json", FAKE_CUDA_SM=86)).stdout)
        self.assertEqual(report["gpu"][0]["arch"], "sm_86")
        self.assertEqual(report["cuda_driver"], "12.4")

    def test_the_gpu_here(self):
        library = self.folder / "here.so"
        self.done(mcc("compile", self.model, "-o", library, "--target", "cuda", "--no-cubin", FAKE_CUDA_SM=120))
        self.assertIn("(sm_90)", json.loads(mcc("inspect", library, "--json").stdout)["metadata"]["target"])
        self.done(mcc("run", library, "--random", "1", FAKE_CUDA_SM=120))
        # It has tensor cores, as those before it have.
        onnx.save(networks.build("encoder"), self.folder / "encoder.onnx")
        self.done(mcc("compile", self.folder / "encoder.onnx", "-o", library, "--target", "cuda", "--precision", "fp16", "--no-cubin",
                      "--emit", f"ptx={self.folder / 'newer'}", FAKE_CUDA_SM=120))
        self.assertTrue([file for file in (self.folder / "newer").iterdir() if "mma.sync" in file.read_text()])
        # What is for the GPU here may use what no other has.
        self.done(mcc("compile", self.model, "-o", library, "--target", "cuda", "--no-cubin", FAKE_CUDA_SM=90))
        self.assertIn("(sm_90a)", json.loads(mcc("inspect", library, "--json").stdout)["metadata"]["target"])
        self.done(mcc("run", library, "--random", "1", FAKE_CUDA_SM=90))

    def test_explain(self):
        self.assertIn("  launch      grid ", self.done(mcc("explain", self.library, "y")).stdout)
        report = json.loads(self.done(mcc("explain", self.library, "y", "--json")).stdout)
        self.assertEqual(report["kernels"][0]["kind"], "device")
        self.assertGreater(len(report["kernels"][0]["launches"]), 0)

    # Each architecture's schedule; what is the same is there once.
    def test_explain_of_several_architectures(self):
        graph = helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Sigmoid", ["v"], ["z"])], "g",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT16, s) for n, s in (("x", [256, 512]), ("w", [512, 256]), ("v", [64]))],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT16, s) for n, s in (("y", [256, 256]), ("z", [64]))])
        model, library = self.folder / "several.onnx", self.folder / "several.so"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
        report = json.loads(self.done(mcc("compile", model, "-o", library, "--target", "cuda:sm_70,sm_80,sm_86,sm_90a", "--json")).stdout)
        self.assertEqual((report["schedules"]["plain"], report["schedules"]["refused"], report["schedules"]["notes"]), (0, [], []))

        def explain(node, *options):
            (kernel,) = json.loads(self.done(mcc("explain", library, node, "--json", *options)).stdout)["kernels"]
            return kernel

        different, alike = explain("y"), explain("z")
        self.assertEqual([s["archs"] for s in alike["schedules"]], [["sm_70", "sm_80", "sm_86", "sm_90a"]])
        archs = [arch for s in different["schedules"] for arch in s["archs"]]
        self.assertEqual(sorted(archs), ["sm_70", "sm_80", "sm_86", "sm_90a"])
        by_arch = {arch: s for s in different["schedules"] for arch in s["archs"]}
        for arch, step in (("sm_80", "mma_m16n8k16"), ("sm_90a", "wgmma_m64")):
            self.assertIn(step, by_arch[arch]["trace"])
            self.assertNotIn(step, by_arch["sm_70"]["trace"])
        self.assertEqual(different["trace"], by_arch["sm_70"]["trace"], "that of the lowest")
        self.assertIn(".columns ", by_arch["sm_80"]["chosen"])
        # All launches are some schedule's; figures are of the architectures that it is for.
        self.assertEqual([launch["entry"] for s in different["schedules"] for launch in s["launches"]],
                         [launch["entry"] for launch in different["launches"]])
        for schedule in different["schedules"]:
            for launch in schedule["launches"]:
                self.assertLessEqual({f["arch"] for f in launch["figures"]}, set(schedule["archs"]))
        for arch in archs:
            chosen = explain("y", "--arch", arch)
            self.assertEqual([s["archs"] for s in chosen["schedules"]], [[arch]])
            self.assertEqual(chosen["trace"], by_arch[arch]["trace"])
            self.assertEqual([launch["entry"] for launch in chosen["launches"]], [launch["entry"] for launch in by_arch[arch]["launches"]])

        text = self.done(mcc("explain", library, "y")).stdout
        self.assertRegex(text, r"  for sm_90a\n    schedule    default\n    chosen      .*\n    launch      grid ")
        self.assertRegex(text, r"task [0-9a-f]{16}  # for sm_90a\n")
        self.assertIn("  schedule    default, for sm_70, sm_80, sm_86, sm_90a alike\n", self.done(mcc("explain", library, "z")).stdout)
        # What is printed for one is a schedule file for it.
        text, own = self.done(mcc("explain", library, "y", "--arch", "sm_80")).stdout, self.folder / "own_80.txt"
        own.write_text(text[text.index("\ntask "):])
        self.done(mcc("compile", model, "-o", self.folder / "own.so", "--target", "cuda:sm_80", "--schedule", own))
        self.assertIn("no schedule is for sm_75: the library is for cuda:sm_70,sm_80,sm_86,sm_90a",
                      self.done(mcc("explain", library, "y", "--arch", "sm_75"), 2).stderr)
        self.assertIn(", for sm_80\n", self.done(mcc("explain", self.folder / "own.so", "y", "--arch", "sm_80")).stdout)

    # A rule that was refused, and what there is instead.
    # One schedule for each number of rows; what is printed of the others is a comment of a schedule file, which is for all.
    def test_explain_of_open_rows(self):
        x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 256]) for n in "xy")
        weights = numpy_helper.from_array(np.random.default_rng(1).uniform(-1, 1, (256, 512)).astype(np.float32), "w")
        y.type.tensor_type.shape.dim[1].dim_value = 512
        graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [weights])
        model, library, steps = (self.folder / f"rows.{end}" for end in ("onnx", "so", "txt"))
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)

        def explained(*options):
            self.done(mcc("compile", model, "-o", library, "--target", "cuda:sm_80,sm_90", "--no-cubin", *options))
            (kernel,) = json.loads(self.done(mcc("explain", library, "y", "--json")).stdout)["kernels"]
            self.assertEqual([launch["entry"] for s in kernel["schedules"] for launch in s["launches"]],
                             [launch["entry"] for launch in kernel["launches"]])
            return kernel["schedules"]

        schedules = explained()
        for arch in ("sm_80", "sm_90"):
            conditions = [s["where"] for s in schedules if arch in s["archs"]]
            self.assertEqual(conditions.count(""), 1, conditions)
            self.assertIn("N >= 257", conditions)
        text = self.done(mcc("explain", library, "y", "--arch", "sm_90")).stdout
        self.assertRegex(text, r"  for sm_90 where N >= 257\n    schedule    default\n    chosen      .*\n    launch      grid ")
        self.assertRegex(text, r"\n# task [0-9a-f]{16}  # for sm_90 where N >= 257\n# [a-z_]+\(")
        steps.write_text(text[text.index("\ntask "):])
        for sizes in ([], ["--dim", "N=1..8"], ["--dim", "N=300..400"]):
            self.assertEqual({s["where"] for s in explained(*sizes, *(["--schedule", str(steps)] if not sizes else []))}, {""})

    def test_explain_says_what_was_refused(self):
        ints, floats = TensorProto.INT64, TensorProto.FLOAT
        graph = helper.make_graph([helper.make_node("MaxUnpool", ["x", "i"], ["y"], kernel_shape=[2, 2], strides=[2, 2])], "g",
                                  [helper.make_tensor_value_info("x", floats, [1, 1, 2, 2]), helper.make_tensor_value_info("i", ints, [1, 1, 2, 2])],
                                  [helper.make_tensor_value_info("y", floats, [1, 1, 4, 4])])
        model, library = self.folder / "unpool.onnx", self.folder / "unpool.so"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
        report = json.loads(self.done(mcc("compile", model, "-o", library, "--target", "cuda:sm_80", "--json")).stdout)["schedules"]
        (kernel,) = report["refused"]
        (explained,) = json.loads(self.done(mcc("explain", library, "y", "--json")).stdout)["kernels"]
        self.assertEqual(kernel["rules"], explained["refused"])
        (rule,) = explained["refused"]
        self.assertEqual((rule["rule"], rule["block"], rule["instead"]), ("results by the threads of a block", "place", "all results by each thread"))
        self.assertTrue(rule["step"].startswith("bind(") and rule["reason"].startswith("expected each element of "), rule)
        self.assertIn(f"  refused     the rule for {rule['rule']} (block place) was refused: {rule['step']}: {rule['reason']}; {rule['instead']} instead\n",
                      self.done(mcc("explain", library, "y")).stdout)
        self.assertEqual((report["plain"], report["notes"]), (0, []), "the others of its rules stand")

    def test_single_kernels(self):
        result = self.done(mcc("verify", self.model, "--kernels", "--target", "cuda:sm_80"), 4)
        self.assertIn("single kernels of GPUs are not compared", result.stderr)

    # ---- What may be missing ----

    def test_no_driver(self):
        if has_driver():
            self.skipTest("there is a driver")
        self.fails(mcc("run", self.library, "--random", "1", driver=False), "there is no driver: libcuda.so.1 cannot be loaded")
        self.assertIsNone(json.loads(self.done(mcc("doctor", "--json", driver=False)).stdout)["gpu"])
        # Nothing was compared, so that no comparison failed.
        result = self.done(mcc("verify", self.model, "--target", "cuda:sm_80", "--json", driver=False), 5)
        (case,) = json.loads(result.stdout)["cases"]
        self.assertEqual(case["status"], "fail")
        self.assertIn("there is no driver", case["reason"])
        self.done(mcc("verify", self.model, "--target", "cuda:sm_80", FAKE_CUDA_SM=75), 5)

    def test_no_gpu(self):
        self.fails(mcc("run", self.library, "--random", "1", FAKE_CUDA_DEVICES=0), "the driver finds none")

    def test_one_schedule_for_each_architecture(self):
        # So many results are 128 a block on the 80 multiprocessors of sm_70, 64 on more.
        graph = helper.make_graph([helper.make_node("Sigmoid", ["x"], ["y"])], "g",
                                  [helper.make_tensor_value_info("x", TensorProto.FLOAT, [12800])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, [12800])])
        model, log, library = self.folder / "plain.onnx", self.folder / "plain.json", self.folder / "plain.so"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), model)
        self.done(mcc("compile", model, "-o", library))
        self.done(mcc("run", library, "--random", "5", "--output-dir", self.folder / "plain_out"))
        expect = f"y={self.folder / 'plain_out' / 'output_0.npy'}"
        found = {}
        for target in ("cuda:sm_70", "cuda:sm_80", "cuda:sm_80,sm_90", "cuda:sm_70,sm_80,sm_90"):
            self.done(mcc("compile", model, "-o", library, "--target", target, "--no-cubin"))
            device = json.loads(self.done(mcc("inspect", library, "--json")).stdout)["device"]
            found[target] = [launch["block"][0] for launch in device["launches"]], [i["arch"] for i in device["images"]]
        self.assertEqual(found["cuda:sm_70"], ([128], ["sm_70"]))
        self.assertEqual(found["cuda:sm_80"], ([64], ["sm_80"]))
        self.assertEqual(found["cuda:sm_80,sm_90"], ([64], ["sm_80"]), "one schedule is there once")
        self.assertEqual(found["cuda:sm_70,sm_80,sm_90"], ([128, 64], ["sm_70", "sm_80"]))
        for sm in (70, 80, 90):
            self.done(mcc("run", library, "--random", "5", "--rtol", "1e-5", "--atol", "1e-6", "--expect", expect, FAKE_CUDA_SM=sm))
        # With a log, each gets its own record.
        both = ("--target", "cuda:sm_70,sm_80", "--tune-log", log, "--locked")
        self.done(mcc("tune", model, "--target", "cuda:sm_70", "--tune-log", log, "--no-measure"))
        self.assertIn("sm_80", self.done(mcc("compile", model, "-o", library, *both), 6).stderr)
        self.done(mcc("tune", model, "--target", "cuda:sm_80", "--tune-log", log, "--no-measure"))
        self.done(mcc("compile", model, "-o", library, *both))

    # A library has its weights once: where the schedules of two GPUs would have them in different orders, those of one are for both.
    def test_weights_of_several_architectures(self):
        rng, threads, differ = np.random.default_rng(1), {}, 0
        for hidden in range(72, 92, 4):
            model, library, log = (self.folder / f"weights.{kind}" for kind in ("onnx", "so", "json"))
            weights = {"w": (1, 4 * hidden, 4), "r": (1, 4 * hidden, hidden)}
            stand_in.save(model, [helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=hidden)], {"x": [3, 1, 4]}, [3, 1, 1, hidden],
                          {name: (rng.standard_normal(shape) / 8).astype(np.float32) for name, shape in weights.items()})
            for arch in ("sm_80", "sm_90"):
                self.done(mcc("compile", model, "-o", library, "--target", f"cuda:{arch}", "--no-cubin"))
                threads[arch] = [launch["block"] for launch in self.launches(library)]
            if threads["sm_80"] == threads["sm_90"]:
                continue
            differ += 1
            self.done(mcc("compile", model, "-o", library))
            self.done(mcc("run", library, "--random", "5", "--output-dir", self.folder / "weights_out"))
            expect = f"y={self.folder / 'weights_out' / 'output_0.npy'}"
            log.unlink(missing_ok=True)
            self.done(mcc("tune", model, "--target", "cuda:sm_90", "--tune-log", log, "--no-measure"))
            for options in ((), ("--tune-log", log)):
                self.done(mcc("compile", model, "-o", library, "--target", "cuda:sm_80,sm_90", "--no-cubin", *options))
                for sm in (80, 90):
                    self.done(mcc("run", library, "--random", "5", "--rtol", "1e-4", "--atol", "1e-5", "--expect", expect, FAKE_CUDA_SM=sm))
        self.assertGreater(differ, 0, "these are sizes for which the GPUs have different schedules")

    def test_benchmark(self):
        """scripts/bench --gpu: a sentence where there is no GPU, mcc alone where there are no peers."""
        program = [sys.executable, stand_in.ROOT / "bench/gpu.py", "--mcc", stand_in.MCC, "--models", self.model, "--peers", "", "--seconds", "0.1",
                   "--rounds", "1", "--out", self.folder / "results"]
        run = lambda **extra: subprocess.run([*map(str, program)], capture_output=True, text=True, timeout=300,
                                             env=os.environ | {"MCC_DEPS_DIR": str(self.folder / "deps")} | extra)
        if not has_driver():
            self.fails(run(), "there is no GPU here, so nothing was measured: no NVIDIA driver")
        done = self.done(run(LD_LIBRARY_PATH=str(stand_in.DRIVER), FAKE_CUDA_RUN="1"))
        self.assertIn("# Stand-in GPU (sm_80)", done.stdout)
        self.assertRegex(done.stdout, r"\| small \| [0-9.]+ \|")

    def test_benchmark_of_a_decoder(self):
        """bench/gpu_decoder.py: logits are right, in buffers and with copies."""
        program = [sys.executable, stand_in.ROOT / "bench/gpu_decoder.py", "--mcc", stand_in.MCC, "--small", "--target", "cuda:sm_80", "--seconds", "0.01"]
        done = self.done(subprocess.run([*map(str, program)], capture_output=True, text=True, timeout=300,
                                        env=os.environ | {"LD_LIBRARY_PATH": str(stand_in.DRIVER), "FAKE_CUDA_RUN": "1"}))
        for kind, rows in json.loads(done.stdout).items():
            for name, row in rows.items():
                with self.subTest(kind=kind, case=name):
                    self.assertTrue(row["is right"], row)
                    self.assertGreater(min(row["in place"], row["copied"]), 0)

    def test_gpu_too_old(self):
        self.fails(mcc("run", self.library, "--random", "1", FAKE_CUDA_SM=75), "the model has no code for this GPU (Stand-in GPU, sm_75)")

    def test_driver_too_old(self):
        self.fails(mcc("run", self.library, "--random", "1", FAKE_CUDA_PTX=65), "is too old for the model's PTX")

    def test_out_of_memory(self):
        self.fails(mcc("run", self.library, "--random", "1", FAKE_CUDA_MEMORY=100), "out of memory on the GPU")

    def test_illegal_address(self):
        result = mcc("run", self.library, "--random", "1", FAKE_CUDA_FAIL="cuMemcpyDtoHAsync_v2:700")
        self.fails(result, "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS, 700)")


if __name__ == "__main__":
    stand_in.main(Cuda)
