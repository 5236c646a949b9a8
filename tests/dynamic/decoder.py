#!/usr/bin/env python3
"""A decoder as onnxruntime's model builder writes it, with open sizes: one library for the prompt and for each step behind it, whose presents
are the pasts of the next, against onnxruntime. decoder.py [--gpu] [TEST...]"""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from session import Session, use_stand_in_driver

MCC = os.path.abspath(os.environ.get("MCC", pathlib.Path(__file__).parents[2] / "build/bin/mcc"))
IS_GPU = "--gpu" in sys.argv
WORDS, WIDTH, INNER, HEADS, SHARED, SIZE, LAYERS, BLOCK, MOST = 90, 64, 96, 4, 2, 16, 2, 32, 128


PRESENTS = [f"present.{i}.{part}" for i in range(LAYERS) for part in ("key", "value")]


class Maker:
    def __init__(self, element=TensorProto.FLOAT):
        self.random = np.random.default_rng(3)
        self.element, self.dtype = element, helper.tensor_dtype_to_np_dtype(element)
        self.nodes, self.weights = [], []

    def constant(self, name, value):
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, op, inputs, outputs, domain="", **attributes):
        outputs = [outputs] if isinstance(outputs, str) else outputs
        self.nodes.append(helper.make_node(op, inputs, outputs, name=f"{op}_{len(self.nodes)}", domain=domain, **attributes))
        return outputs[0]

    def contrib(self, op, inputs, outputs, **attributes):
        return self.node(op, inputs, outputs, "com.microsoft", **attributes)

    def real(self, name, *shape, low=-0.5, high=0.5):
        return self.constant(name, self.random.uniform(low, high, shape).astype(self.dtype))

    def product(self, x, name, columns, rows):
        """Of weights of 4 bits."""
        blocks = rows // BLOCK
        packed = self.constant(f"{name}.q", self.random.integers(0, 256, (columns, blocks, BLOCK // 2), dtype=np.uint8))
        scales = self.real(f"{name}.scales", columns, blocks, low=0.01, high=0.04)
        return self.contrib("MatMulNBits", [x, packed, scales], name, K=rows, N=columns, bits=4, block_size=BLOCK)

    def model(self):
        one = self.constant("one", np.array([1], np.int64))
        self.node("ReduceSum", ["mask", one], "counts", keepdims=1)
        self.node("Cast", [self.node("Sub", ["counts", one], "counts_1")], "lengths", to=TensorProto.INT32)
        self.node("Gather", [self.node("Shape", ["mask"], "mask_shape"), self.constant("at", np.int64(1))], "total_64", axis=0)
        self.node("Cast", ["total_64"], "total", to=TensorProto.INT32)
        angles = np.outer(np.arange(MOST), 100.0 ** (-np.arange(SIZE // 2) / (SIZE // 2)))
        tables = [self.constant("cos", np.cos(angles).astype(self.dtype)), self.constant("sin", np.sin(angles).astype(self.dtype))]
        x = self.node("Gather", [self.real("words", WORDS, WIDTH), "ids"], "embedded")
        normal = self.node("SimplifiedLayerNormalization", [x, self.real("norm", WIDTH, low=0.5, high=1.5)], "first_norm", axis=-1, epsilon=1e-5)
        for i in range(LAYERS):
            qkv = self.product(normal, f"{i}.qkv", (HEADS + 2 * SHARED) * SIZE, WIDTH)
            y = self.contrib("GroupQueryAttention", [qkv, "", "", f"past.{i}.key", f"past.{i}.value", "lengths", "total", *tables],
                             [f"{i}.attention", f"present.{i}.key", f"present.{i}.value"], num_heads=HEADS, kv_num_heads=SHARED, do_rotary=1)
            normal, x = self.added(self.product(y, f"{i}.o", WIDTH, HEADS * SIZE), x, f"{i}.behind_attention")
            gate, up = (self.product(normal, f"{i}.{name}", INNER, WIDTH) for name in ("gate", "up"))
            gate = self.node("Mul", [gate, self.node("Sigmoid", [gate], f"{i}.sigmoid")], f"{i}.silu")
            y = self.product(self.node("Mul", [gate, up], f"{i}.inner"), f"{i}.down", WIDTH, INNER)
            normal, x = self.added(y, x, f"{i}.behind")
        self.product(normal, "logits", WORDS, WIDTH)

        def info(name, element, shape):
            return helper.make_tensor_value_info(name, element, shape)

        pasts = [info(f"past.{i}.{part}", self.element, ["B", SHARED, "P", SIZE]) for i in range(LAYERS) for part in ("key", "value")]
        presents = [info(name, self.element, ["B", SHARED, "present_length", SIZE]) for name in PRESENTS]
        inputs = [info("ids", TensorProto.INT64, ["B", "S"]), info("mask", TensorProto.INT64, ["B", "T"]), *pasts]
        graph = helper.make_graph(self.nodes, "decoder", inputs, [info("logits", self.element, ["B", "S", WORDS]), *presents], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)], ir_version=10)

    def added(self, x, skip, name):
        """The sum normalised, and the sum."""
        outputs = [name, "", "", f"{name}.sum"]
        self.contrib("SkipSimplifiedLayerNormalization", [x, skip, self.real(f"{name}.norm", WIDTH, low=0.5, high=1.5)], outputs, epsilon=1e-5)
        return outputs[0], outputs[3]




# Steps of a text: how many new words each sequence has. Those of a prompt that have fewer than others are filled up behind.
PROMPT_AND_STEPS = ([[7]], [[1]], [[1]], [[1]])
IN_PARTS = ([[6]], [[3]], [[1]], [[9]])
UNEQUAL = ([[5], [3]], [[1], [1]], [[1], [1]], [[1], [1]])
ALONE = ([[1]], [[1]])
LONGER = ([[40], [38], [40]], [[1], [1], [1]])


class Decoder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def compile(self, maker, *options):
        path, library = self.folder / "decoder.onnx", self.folder / "decoder.so"
        onnx.save(maker.model(), path)
        options += ("--target", "cuda:sm_80", "--no-cubin") if IS_GPU else ()
        done = subprocess.run([MCC, "compile", path, "-o", library, *options], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("plain schedule", done.stderr)
        return Session(library, 2), onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    # room: of the first past, which is longer then than what it holds, as where past and present are one buffer.
    def check(self, maker, session, reference, text, room=0, rtol=1e-3, atol=5e-4):
        batch, random, outputs = len(text[0]), np.random.default_rng(5), ["logits", *PRESENTS]
        wanted = [np.zeros((batch, SHARED, room, SIZE), maker.dtype)] * len(PRESENTS)
        given, held, total = wanted, np.zeros(batch, np.int64), 0
        for step, counts in enumerate(text):
            counts = np.array(counts)[:, 0]
            rows = counts.max()
            total += rows
            held = held + counts
            with self.subTest(text=text, room=room, step=step):
                feeds = {"ids": random.integers(0, WORDS, (batch, rows)), "mask": (np.arange(total) < held[:, None]).astype(np.int64)}
                pasts = [name.replace("present", "past") for name in PRESENTS]
                want = reference.run(outputs, {**feeds, **dict(zip(pasts, wanted))})
                got = session.run({**feeds, **dict(zip(pasts, given))}, outputs)
                for b in range(batch):
                    np.testing.assert_allclose(got[0][b, : counts[b]], want[0][b, : counts[b]], rtol=rtol, atol=atol)
                for a, b in zip(got[1:], want[1:]):
                    self.assertEqual(a.shape, b.shape)
                    for i in range(batch):
                        np.testing.assert_allclose(a[i, :, : held[i]], b[i, :, : held[i]], rtol=rtol, atol=atol)
                wanted, given = want[1:], got[1:]

    def check_all(self, maker, *options, **tolerance):
        session, reference = self.compile(maker, *options)
        for text in (PROMPT_AND_STEPS, IN_PARTS, UNEQUAL, ALONE, LONGER, PROMPT_AND_STEPS):
            self.check(maker, session, reference, text, **tolerance)
        self.check(maker, session, reference, PROMPT_AND_STEPS, room=24, **tolerance)
        self.check(maker, session, reference, UNEQUAL, room=24, **tolerance)
        session.close()

    def test_one_library_for_all_steps(self):
        self.check_all(Maker())

    def test_ranges(self):
        self.check_all(Maker(), *(word for name in "BSPT" for word in ("--dim", f"{name}={'0' if name == 'P' else '1'}..{4 if name == 'B' else 64}")))

    def test_halves(self):
        self.check_all(Maker(TensorProto.FLOAT16), rtol=2e-2, atol=2e-2)

    @unittest.skipIf(IS_GPU, "of processors")
    def test_elsewhere(self):
        self.check_all(Maker(), "--target", "cpu:x86-64-v2")

    # A library for the prompt, and one for a step of a known length.
    def test_fixed_sizes(self):
        for sizes, text, room in (({"B": 1, "S": 7, "P": 0, "T": 7}, ([[7]],), 0), ({"B": 2, "S": 5, "P": 24, "T": 5}, ([[5], [3]],), 24)):
            maker = Maker()
            session, reference = self.compile(maker, *(word for item in sizes.items() for word in ("--dim", f"{item[0]}={item[1]}")))
            self.check(maker, session, reference, text, room)
            session.close()


if __name__ == "__main__":
    if IS_GPU:
        sys.argv.remove("--gpu")
        use_stand_in_driver()
    result = unittest.main(exit=False, verbosity=0).result
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad if bad < result.testsRun else 0} passed, {bad} failed")
    sys.exit(bad != 0)
