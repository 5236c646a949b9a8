#!/usr/bin/env python3
"""`mcc tune`, `tasks` and `log` of models whose dimensions stay open: one schedule for all sizes, measured at some. What is compiled with such a
log is compared with onnxruntime at several sizes."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

MCC = os.path.abspath(os.environ.get("MCC", "build/bin/mcc"))
BUILD = pathlib.Path(os.environ.get("MCC_BUILD_DIR", "build")).resolve()
STAND_IN = {"FAKE_CUDA_RUN": "1", "FAKE_CUDA_SM": "80",
            "LD_LIBRARY_PATH": f"{BUILD / 'tests/fake_cuda'}:{os.environ.get('LD_LIBRARY_PATH', '')}"}


def make(nodes, inputs, outputs, weights):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
                              [info(n, TensorProto.FLOAT, s) for n, s in outputs.items()],
                              [numpy_helper.from_array(v, k) for k, v in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def layers(batch):
    """Two layers and a softmax of so many rows."""
    rng = np.random.default_rng(3)
    weights = {"w1": rng.standard_normal((48, 64), np.float32) / 7, "b1": rng.standard_normal(64, np.float32),
               "w2": rng.standard_normal((64, 24), np.float32) / 8}
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["h0"], "product"), helper.make_node("Add", ["h0", "b1"], ["h1"], "bias"),
             helper.make_node("Relu", ["h1"], ["h2"], "relu"), helper.make_node("MatMul", ["h2", "w2"], ["h3"], "second"),
             helper.make_node("Softmax", ["h3"], ["y"], "softmax", axis=-1)]
    return make(nodes, {"x": [batch, 48]}, {"y": [batch, 24]}, weights)


def pictures():
    """Two convolutions, one with a stride, and the mean of each channel, of pictures of any number and size."""
    rng = np.random.default_rng(4)
    weights = {"w1": rng.standard_normal((16, 3, 3, 3), np.float32) / 5, "w2": rng.standard_normal((24, 16, 3, 3), np.float32) / 12}
    nodes = [helper.make_node("Conv", ["x", "w1"], ["h0"], "first", pads=[1, 1, 1, 1], strides=[2, 2]),
             helper.make_node("Relu", ["h0"], ["h1"], "relu"),
             helper.make_node("Conv", ["h1", "w2"], ["h2"], "last", pads=[1, 1, 1, 1]),
             helper.make_node("GlobalAveragePool", ["h2"], ["y"], "mean")]
    return make(nodes, {"x": ["N", 3, "H", "W"]}, {"y": ["N", 24, 1, 1]}, weights)


def attention():
    nodes = [helper.make_node("MatMul", ["q", "k"], ["s"], "scores"), helper.make_node("Softmax", ["s"], ["p"], "softmax", axis=-1),
             helper.make_node("MatMul", ["p", "v"], ["y"], "values")]
    return make(nodes, {"q": ["N", 2, "T", 16], "k": ["N", 2, 16, "T"], "v": ["N", 2, "T", 16]}, {"y": ["N", 2, "T", 16]}, {})


class TuneOpen(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        models = {"layers": layers("N"), "fixed": layers(8), "pictures": pictures(), "attention": attention()}
        cls.sessions = {}
        for name, model in models.items():
            onnx.save(model, cls.folder / f"{name}.onnx")
            cls.sessions[name] = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def mcc(self, *words, **extra):
        return subprocess.run([MCC, *map(str, words)], capture_output=True, text=True, cwd=self.folder, timeout=600,
                              env={**os.environ, **extra})

    def done(self, *words, **extra):
        done = self.mcc(*words, **extra)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def json_of(self, *words, **extra):
        return json.loads(self.done(*words, "--json", **extra).stdout)

    def tune(self, model, log, *options, **extra):
        return self.json_of("tune", f"{model}.onnx", "--tune-log", log, "--no-check", *options, **extra)

    def trials(self, log):
        lines = (self.folder / log).read_bytes().split(b"\n")
        return [r for r in map(json.loads, lines[:-1]) if r["kind"] == "trial"]

    def compile(self, model, log, *options):
        library = f"{model}.{log}.so"
        report = self.json_of("compile", f"{model}.onnx", "-o", library, "--tune-log", log, *options)
        return library, report["schedules"]

    # The library at each of the shapes, against onnxruntime.
    def check(self, model, library, *shapes, **extra):
        session = self.sessions[model]
        for shape in shapes:
            rng = np.random.default_rng(7)
            feeds = {name: rng.standard_normal(s, np.float32) for name, s in shape.items()}
            words = []
            for name, value in feeds.items():
                np.save(self.folder / f"{name}.npy", value)
                words += ["--input", f"{name}={name}.npy"]
            np.save(self.folder / "want.npy", session.run(None, feeds)[0])
            with self.subTest(model=model, library=library, **shape):
                self.done("run", library, *words, "--expect", "y=want.npy", "--rtol", "1e-3", "--atol", "1e-4", **extra)

    def check_rows(self, library, *rows, **extra):
        self.check("layers", library, *({"x": (n, 48)} for n in rows), **extra)

    def test_layers(self):
        report = self.tune("layers", "a.json", "--trials", "40", "--seed", "1")
        self.assertEqual(report["sizes"], {"N": 4})
        for task in report["tasks"]:
            self.assertLessEqual(task["best_us"], task["default_us"])
        for trial in self.trials("a.json"):
            self.assertEqual(trial["sizes"], [4])
            self.assertNotIn(trial["error"], ("wrong", "crash", "refused"), trial["message"])
        library, schedules = self.compile("layers", "a.json", "--locked")
        self.assertEqual((schedules["exact"], schedules["nearest"], schedules["default"]), (len(report["tasks"]), 0, 0))
        self.check_rows(library, 1, 4, 7, 32, 131)
        first = (self.folder / library).read_bytes()
        self.compile("layers", "a.json")
        self.assertEqual(first, (self.folder / library).read_bytes())

    def test_pictures(self):
        report = self.tune("pictures", "b.json", "--trials", "36", "--tune-dim", "N=2", "--tune-dim", "H=30", "--tune-dim", "W=40")
        self.assertEqual(report["sizes"], {"N": 2, "H": 30, "W": 40})
        self.assertTrue(all(t["error"] not in ("wrong", "crash", "refused") for t in self.trials("b.json")))
        library, _ = self.compile("pictures", "b.json", "--locked")
        self.check("pictures", library, *({"x": s} for s in [(1, 3, 30, 40), (2, 3, 31, 17), (3, 3, 8, 8), (1, 3, 97, 64)]))

    def test_attention_in_ranges(self):
        ranges = ("--dim", "N=1..4", "--dim", "T=1..100")
        report = self.tune("attention", "c.json", "--trials", "30", *ranges)
        self.assertEqual(report["sizes"], {"N": 2, "T": 10})
        library, _ = self.compile("attention", "c.json", "--locked", *ranges)
        for n, t in [(1, 1), (2, 10), (4, 100), (3, 37)]:
            self.check("attention", library, {"q": (n, 2, t, 16), "k": (n, 2, 16, t), "v": (n, 2, t, 16)})
        # Without the ranges it is another function.
        self.assertEqual(self.mcc("compile", "attention.onnx", "-o", "c.so", "--tune-log", "c.json", "--locked").returncode, 6)

    def test_fixed_and_open_do_not_mix(self):
        self.tune("fixed", "d.json", "--trials", "12")
        _, schedules = self.compile("layers", "d.json")
        self.assertEqual(schedules["exact"], 0)
        self.assertEqual(self.mcc("compile", "layers.onnx", "-o", "d.so", "--tune-log", "d.json", "--locked").returncode, 6)
        self.assertNotIn("sizes", self.trials("d.json")[0])
        self.tune("layers", "d2.json", "--trials", "12")
        self.assertEqual(self.compile("fixed", "d2.json")[1]["exact"], 0)

    def test_the_first_candidate_is_the_default(self):
        # Also where the sizes that are measured are others than those that default schedules are made for.
        for name, model, sizes in [("e1", "layers", ["N=50"]), ("e2", "pictures", ["N=1", "H=20", "W=20"]), ("e3", "attention", ["N=1", "T=9"])]:
            words = [word for size in sizes for word in ("--tune-dim", size)]
            self.tune(model, f"{name}.json", "--trials", "1", "--tasks", "product|first|scores", *words)
            (trial,) = self.trials(f"{name}.json")
            self.assertEqual(trial["source"], "default")
            (self.folder / name).mkdir()
            self.compile(model, f"{name}.json", "--emit", f"asm={name}/logged")
            self.done("compile", f"{model}.onnx", "-o", "plain.so", "--emit", f"asm={name}/plain")
            for file in (self.folder / name / "plain").iterdir():
                self.assertEqual(file.read_text(), (self.folder / name / "logged" / file.name).read_text(), file.name)

    def test_the_same_seed_gives_the_same_candidates(self):
        # Of the first rounds; later ones go by times.
        self.tune("layers", "f1.json", "--trials", "8", "--seed", "5", "--tasks", "product", "--cost-model", "analyzer")
        self.tune("layers", "f2.json", "--trials", "8", "--seed", "5", "--tasks", "product", "--cost-model", "analyzer")
        one, two = ([t["trace"] for t in self.trials(log)[:4]] for log in ("f1.json", "f2.json"))
        self.assertEqual(one, two)

    def test_other_sizes_replace_those_before(self):
        self.tune("layers", "g.json", "--trials", "20", "--tune-dim", "N=64")
        again = self.tune("layers", "g.json", "--trials", "16", "--tune-dim", "N=3")
        self.assertEqual(again["known_trials"], 0)
        self.assertEqual({tuple(t["sizes"]) for t in self.trials("g.json")}, {(64,), (3,)})
        library, _ = self.compile("layers", "g.json", "--locked")
        self.assertIn(" us at 3;", self.done("explain", library, "product").stdout)
        self.check_rows(library, 1, 3, 64)
        shown = self.json_of("log", "show", "g.json")["tasks"]
        self.assertEqual({tuple(row["sizes"]) for row in shown}, {(64,), (3,)})
        self.done("log", "best", "g.json", "-o", "g_best.json")
        self.assertEqual({tuple(t["sizes"]) for t in self.trials("g_best.json")}, {(3,)})
        known = {(t["task"], t["trace"]) for t in self.trials("g.json") if t["sizes"] == [3]}
        self.assertEqual(self.tune("layers", "g.json", "--trials", "4", "--tune-dim", "N=3")["known_trials"], len(known))

    def test_killed_and_gone_on(self):
        process = subprocess.Popen([MCC, "tune", "layers.onnx", "--tune-log", "h.json", "--no-check"], cwd=self.folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        path = self.folder / "h.json"
        for _ in range(3000):
            if path.exists() and path.read_bytes().count(b'"kind":"trial"') >= 8:
                break
            self.assertIsNone(process.poll(), "ended by itself")
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait(60)
        before = len(self.trials("h.json"))
        report = self.tune("layers", "h.json", "--trials", "6")
        self.assertGreaterEqual(report["known_trials"], min(before, 8))
        self.check_rows(self.compile("layers", "h.json")[0], 5)

    def test_tasks(self):
        listed = self.json_of("tasks", "layers.onnx", "--tune-dim", "N=10")
        self.assertEqual(listed["sizes"], {"N": 10})
        flops = sum(t["flops"] for t in listed["tasks"])
        fixed = sum(t["flops"] for t in self.json_of("tasks", "fixed.onnx")["tasks"])
        self.assertEqual(flops * 8, fixed * 10)
        self.assertIn("N=10", self.done("tasks", "layers.onnx", "--tune-dim", "N=10").stdout)

    def test_sizes_that_there_are_not(self):
        for words, what in [(["--tune-dim", "M=3"], "it has N"), (["--tune-dim", "N"], "NAME=8"), (["--tune-dim", "N=0"], "NAME=8"),
                            (["--dim", "N=1..8", "--tune-dim", "N=9"], "from 1 to 8"), (["--dim", "N=8", "--tune-dim", "N=8"], "have a value")]:
            done = self.mcc("tasks", "layers.onnx", *words)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(what, done.stderr)

    def test_verify_log(self):
        self.tune("layers", "i.json", "--trials", "12", "--tune-dim", "N=9")
        self.tune("layers", "i.json", "--trials", "12", "--tune-dim", "N=6")
        report = self.json_of("log", "verify", "i.json", "layers.onnx")
        self.assertEqual(report["sizes"], {"N": 6})
        here = [row for row in report["trials"] if row["verdict"] != "elsewhere"]
        self.assertEqual((len(here), len(report["trials"])), (3, 6))
        self.assertTrue(all(row["checked"] and row["error"] == "none" for row in here))
        self.assertTrue(all("at sizes 9;" in row["message"] for row in report["trials"] if row["verdict"] == "elsewhere"))
        before = (self.folder / "i.json").read_bytes()
        # What is not of the model is not measured.
        (self.folder / "i2.json").write_bytes(before.replace(b'"sizes":[6]', b'"sizes":[0]'))
        done = self.mcc("log", "verify", "i2.json", "layers.onnx")
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertIn("N=0: the model takes sizes from 1", done.stderr)

    def test_report(self):
        self.tune("layers", "m.json", "--trials", "12")
        self.done("log", "report", "m.json", "-o", "m.html")
        self.assertGreater((self.folder / "m.html").stat().st_size, 1000)

    def test_whole_model(self):
        report = self.json_of("tune", "layers.onnx", "--tune-log", "j.json", "--trials", "8")
        self.assertGreater(report["model"][-1]["measured_us"], 0)

    def test_picked(self):
        for target in ("cpu", "cuda:sm_80"):
            log = f"k_{target[:4]}.json"
            report = self.json_of("tune", "layers.onnx", "--tune-log", log, "--no-measure", "--target", target)
            self.assertTrue(all(t["state"] == "picked" for t in report["tasks"]), report)
            _, schedules = self.compile("layers", log, "--locked", "--target", target)
            self.assertEqual(schedules["picked"], len(report["tasks"]))

    def test_stand_in(self):
        options = ("--target", "cuda:sm_80", "--timeout", "60s")
        self.tune("layers", "l.json", "--trials", "12", "--tune-dim", "N=5", *options, **STAND_IN)
        for trial in self.trials("l.json"):
            self.assertEqual((trial["error"], trial["sizes"]), ("none", [5]), trial["message"])
        library, _ = self.compile("layers", "l.json", "--locked", "--target", "cuda:sm_80")
        self.check_rows(library, 1, 5, 9, 33, **STAND_IN)


if __name__ == "__main__":
    program = unittest.main(exit=False, verbosity=0)
    failed = len(program.result.failures) + len(program.result.errors)
    print(f"{program.result.testsRun - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
