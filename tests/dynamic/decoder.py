#!/usr/bin/env python3
"""A decoder as onnxruntime's model builder writes it, with open sizes: one library for the prompt and for each step behind it, whose presents
are the pasts of the next, against onnxruntime. decoder.py [--gpu] [TEST...]"""

import os
import pathlib
import subprocess
import sys
import unittest

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).resolve().parents[1])]
from folder_case import FolderCase, main
from decoder_model import Hybrid, Maker, Sizes
from session import RunError, Session, use_stand_in_driver

MCC = os.path.abspath(os.environ.get("MCC", pathlib.Path(__file__).parents[2] / "build/bin/mcc"))
IS_GPU = "--gpu" in sys.argv


# Steps of a text: how many new words each sequence has. Those of a prompt that have fewer than others are filled up behind.
PROMPT_AND_STEPS = ([[7]], [[1]], [[1]], [[1]])
IN_PARTS = ([[6]], [[3]], [[1]], [[9]])
UNEQUAL = ([[5], [3]], [[1], [1]], [[1], [1]], [[1], [1]])
ALONE = ([[1]], [[1]])
LONGER = ([[40], [38], [40]], [[1], [1], [1]])


class Decoder(FolderCase):
    def compile(self, maker, *options):
        path = self.folder / "decoder.onnx"
        onnx.save(maker.model(), path)
        return self.compile_file(path.name, *options), onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def compile_file(self, name, *options):
        path, library = self.folder / name, self.folder / f"{name}.so"
        options += ("--target", "cuda:sm_80", "--no-cubin") if IS_GPU else ()
        done = subprocess.run([MCC, "compile", path, "-o", library, *options], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("plain schedule", done.stderr)
        return Session(library, 2)

    # room: of the first past, which is longer then than what it holds; in_place: past and present are one buffer.
    def check(self, maker, session, reference, text, room=0, in_place=False, rtol=1e-3, atol=5e-4):
        batch, random, sizes = len(text[0]), np.random.default_rng(5), maker.sizes
        outputs = ["logits", *sizes.presents()]
        wanted = [np.zeros((batch, sizes.shared, room, sizes.size), maker.dtype)] * len(sizes.presents())
        given, held, total = wanted, np.zeros(batch, np.int64), 0
        for step, counts in enumerate(text):
            counts = np.array(counts)[:, 0]
            rows = counts.max()
            total += rows
            held = held + counts
            with self.subTest(text=text, room=room, step=step):
                feeds = {"ids": random.integers(0, sizes.words, (batch, rows)), "mask": (np.arange(total) < held[:, None]).astype(np.int64)}
                want = reference.run(outputs, {**feeds, **dict(zip(sizes.pasts(), wanted))})
                places = dict(zip(sizes.presents(), sizes.pasts())) if in_place else {}
                got = session.run({**feeds, **dict(zip(sizes.pasts(), given))}, outputs, places, on_device=IS_GPU)
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
        for text in (PROMPT_AND_STEPS, IN_PARTS, UNEQUAL, ALONE):
            self.check(maker, session, reference, text, room=24, in_place=True, **tolerance)
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

    # Enough weights that they keep their bits.
    @unittest.skipUnless(IS_GPU, "of GPUs")
    def test_weights_of_few_bits_on_gpus(self):
        wide = {"width": 512, "inner": 544, "heads": 8, "shared": 2, "size": 64, "layers": 1}
        for element, tolerance in ((TensorProto.FLOAT, {}), (TensorProto.FLOAT16, {"rtol": 2e-2, "atol": 2e-2})):
            maker = Maker(element, Sizes(**wide))
            session, reference = self.compile(maker)
            for text in (PROMPT_AND_STEPS, UNEQUAL):
                self.check(maker, session, reference, text, **tolerance)
            session.close()

    # More weights than a second-level cache holds; and rows rounded to bytes, where one step of a number is another one's.
    @unittest.skipIf(IS_GPU, "of processors")
    def test_weights_of_few_bits(self):
        wide = {"width": 768, "inner": 1152, "heads": 12, "shared": 4, "size": 64, "layers": 1}
        self.check_all(Maker(sizes=Sizes(**wide)))
        self.check_all(Maker(sizes=Sizes(**wide, bits=8)))
        self.check_all(Maker(sizes=Sizes(**wide, level=4)), rtol=3e-2, atol=3e-2)

    # Sums over more keys than one kernel takes along, of few rows and of many.
    def test_long_past(self):
        maker = Maker(sizes=Sizes(most=1024, layers=1))
        session, reference = self.compile(maker)
        for text in (([[600]], [[1]], [[1]]), ([[5]], [[1]]), ([[520], [513]], [[1], [1]])):
            self.check(maker, session, reference, text)
        session.close()

    # One query's keys are dealt out to several blocks of threads, of heads that share them and of others.
    @unittest.skipUnless(IS_GPU, "of GPUs")
    def test_long_past_of_halves(self):
        for shared in (1, 4):
            maker = Maker(TensorProto.FLOAT16, Sizes(most=1024, layers=1, shared=shared))
            session, reference = self.compile(maker)
            for text in (([[600]], [[1]], [[1]]), ([[5]], [[1]]), ([[130], [120]], [[1], [1]])):
                self.check(maker, session, reference, text, rtol=2e-2, atol=2e-2)
            session.close()

    # Step after step in the same buffers; a step that is made again gives the same.
    def test_the_same_buffers_again(self):
        maker = Maker()
        session, reference = self.compile(maker)
        sizes, random, room = maker.sizes, np.random.default_rng(7), 12
        pasts = {name: np.zeros((1, sizes.shared, 0, sizes.size), maker.dtype) for name in sizes.pasts()}
        # A copy of what there is would leave zeros behind it.
        untouched = 7
        buffers = {name: np.full((1, sizes.shared, room, sizes.size), untouched, maker.dtype) for name in sizes.pasts()}
        places = {name: session.on_device(array) if IS_GPU else array.ctypes.data for name, array in buffers.items()}
        for past, present in zip(sizes.pasts(), sizes.presents()):
            session.set("input", past, session.tensor(places[past], buffers[past]))
            session.set("output", present, session.tensor(places[past], buffers[past]))
        held = 0
        for new in (3, 1, 1, 1, 2, 1):
            held += new
            feeds = {"ids": random.integers(0, sizes.words, (1, new)), "mask": np.ones((1, held), np.int64)}
            want, *presents = reference.run(["logits", *sizes.presents()], {**feeds, **pasts})
            for again in range(4):
                with self.subTest(held=held, again=again):
                    np.testing.assert_allclose(session.run(feeds, ["logits"])[0], want, rtol=1e-3, atol=5e-4)
                    for past, present in zip(sizes.pasts(), presents):
                        now = session.from_device(places[past], buffers[past]) if IS_GPU else buffers[past]
                        np.testing.assert_allclose(now[:, :, :held], present, rtol=1e-3, atol=5e-4)
                        self.assertTrue((now[:, :, held:] == untouched).all())
            pasts = dict(zip(sizes.pasts(), presents))
        session.close()

    # Memory of an input is for the output that the model updates there, of the same shape.
    def test_memory_of_inputs(self):
        maker = Maker()
        session, _ = self.compile(maker)
        feeds = {"ids": np.zeros((1, 1), np.int64), "mask": np.ones((1, 1), np.int64)}
        outputs = ["logits", *maker.sizes.presents()]

        def run(room, places):
            pasts = {name: np.zeros((1, maker.sizes.shared, room, maker.sizes.size), maker.dtype) for name in maker.sizes.pasts()}
            session.run({**feeds, **pasts}, outputs, places, on_device=IS_GPU)

        run(4, {"present.0.key": "past.0.key"})
        for name, places, room, words in (("another input's", {"present.0.key": "past.0.value"}, 4, "does not update there"),
                                          ("of a step that does not fit", {"present.0.key": "past.0.key"}, 1, "no room for what is added")):
            with self.subTest(name):
                feeds["mask"] = np.ones((1, 2 if room == 1 else 1), np.int64)
                self.assertRaisesRegex(RunError, words, run, room, places)
        session.close()

    # Rooms for what is remembered of a window: as many keys, and more, which are moved now and then.
    def test_states_and_windows(self):
        maker = Hybrid(sizes=Sizes(bits=0))
        session, reference = self.compile(maker)
        states = [state for i in range(maker.sizes.layers) for state in maker.states(i)]
        names = [name for name, _ in states]
        outputs = ["logits", *(f"present.{name}" for name in names)]
        for text in (PROMPT_AND_STEPS, IN_PARTS, ALONE, ([[40]], [[1]], [[1]], [[5]])):
            for room in (Hybrid.WINDOW, Hybrid.WINDOW + 3):
                random, total = np.random.default_rng(8), 0
                given = wanted = [np.zeros([{"B": 1, "C": room}.get(d, d) for d in shape], maker.dtype) for _, shape in states]
                for step, ((rows,),) in enumerate(text):
                    total += rows
                    with self.subTest(text=text, room=room, step=step):
                        feeds = {"ids": random.integers(0, maker.sizes.words, (1, rows)), "mask": np.ones((1, total), np.int64)}
                        want = reference.run(outputs, {**feeds, **{f"past.{n}": v for n, v in zip(names, wanted)}})
                        got = session.run({**feeds, **{f"past.{n}": v for n, v in zip(names, given)}}, outputs, {}, on_device=IS_GPU)
                        for name, a, b in zip(["logits", *names], got, want):
                            self.assertEqual(a.shape, b.shape)
                            # Behind the keys of a window there is anything.
                            kept = slice(min(total, Hybrid.WINDOW)) if name.endswith(("key", "value")) else slice(None)
                            np.testing.assert_allclose(a[:, :, kept], b[:, :, kept], rtol=1e-3, atol=5e-4)
                    wanted, given = want[1:], got[1:]
        session.close()

    # ONNX's own operator for it, of known sizes and of open ones.
    def test_tensor_scatter(self):
        batch, room, new, width = 2, 9, 2, 5
        for mode, sizes, element in (("linear", (batch, room, new), TensorProto.FLOAT), ("circular", ("B", "R", "S"), TensorProto.FLOAT16)):
            dtype = helper.tensor_dtype_to_np_dtype(element)
            cache = helper.make_tensor_value_info("past", element, [sizes[0], 3, sizes[1], width])
            update = helper.make_tensor_value_info("new", element, [sizes[0], 3, sizes[2], width])
            at = helper.make_tensor_value_info("at", TensorProto.INT64, [sizes[0]])
            nodes = [helper.make_node("TensorScatter", ["past", "new", "at"], ["present"], mode=mode),
                     helper.make_node("ReduceSum", ["present", "axis"], ["sum"], keepdims=0)]
            graph = helper.make_graph(nodes, "cache", [cache, update, at],
                                      [helper.make_tensor_value_info(name, element, None) for name in ("present", "sum")],
                                      [helper.make_tensor("axis", TensorProto.INT64, [1], [2])])
            onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11), self.folder / "cache.onnx")
            session = self.compile_file("cache.onnx")
            random = np.random.default_rng(1)
            past, update = (random.uniform(-1, 1, (batch, 3, n, width)).astype(dtype) for n in (room, new))
            starts = np.array([3, 7 if mode == "linear" else 8])
            want = past.copy()
            for b in range(batch):
                for s in range(new):
                    want[b, :, (starts[b] + s) % room] = update[b, :, s]
            for in_place in ({}, {"present": "past"}):
                with self.subTest(mode=mode, in_place=in_place):
                    got = session.run({"past": past, "new": update, "at": starts}, ["present", "sum"], in_place, on_device=IS_GPU)
                    np.testing.assert_array_equal(got[0], want)
                    np.testing.assert_allclose(got[1], want.astype(np.float64).sum(2), rtol=1e-2, atol=1e-2)
            session.close()

    # A library for the prompt, and one for a step of a known length.
    def test_fixed_sizes(self):
        for sizes, text, room in (({"B": 1, "S": 7, "P": 0, "T": 7}, ([[7]],), 0), ({"B": 2, "S": 5, "P": 24, "T": 5}, ([[5], [3]],), 24)):
            maker = Maker()
            session, reference = self.compile(maker, *(word for item in sizes.items() for word in ("--dim", f"{item[0]}={item[1]}")))
            self.check(maker, session, reference, text, room)
            if room:
                self.check(maker, session, reference, text, room, in_place=True)
            session.close()


if __name__ == "__main__":
    if IS_GPU:
        sys.argv.remove("--gpu")
        use_stand_in_driver()
    main(Decoder)
