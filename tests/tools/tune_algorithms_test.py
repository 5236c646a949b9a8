#!/usr/bin/env python3
"""`mcc tune` on convolutions that several algorithms compute: what it measures, what the log says, what compile makes of it."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MCC = os.path.abspath(os.environ.get("MCC", "build/bin/mcc"))
PROBLEM = "3x3 of 32 channels to 32, 20x20"


def model():
    """Two convolutions of one problem with different kernels behind them, and one with a stride, which has no choice."""
    rng = np.random.default_rng(3)
    weights = {f"w{i}": rng.standard_normal((32, 32, 3, 3), np.float32) / 17 for i in range(3)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["h0"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h0"], ["h1"], "relu"),
        helper.make_node("Conv", ["h1", "w1"], ["h2"], "second", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["h2", "h1"], ["h3"], "residual"),
        helper.make_node("Conv", ["h3", "w2"], ["y"], "strided", strides=[2, 2]),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 32, 20, 20])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 32, 9, 9])],
        [numpy_helper.from_array(v, k) for k, v in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def is_winograd(task):
    return "tiles_product" in task["name"]  # the transform of the input, the product


class TuneAlgorithms(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.model = cls.folder / "model.onnx"
        onnx.save(model(), cls.model)
        np.save(cls.folder / "x.npy", np.random.default_rng(5).standard_normal((1, 32, 20, 20), np.float32))
        cls.plain = cls.output("plain.so", "--strict")
        cls.log = cls.folder / "log.json"
        cls.report = cls.json("tune", cls.model, "--tune-log", cls.log, "--no-check", "--trials", "24", "--threads", "1")
        cls.choice = next(line for line in cls.lines(cls.log) if line["kind"] == "choice")

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def mcc(cls, *words):
        return subprocess.run([MCC, *map(str, words)], capture_output=True, text=True, cwd=cls.folder, timeout=600)

    @classmethod
    def json(cls, *words):
        done = cls.mcc(*words, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    @classmethod
    def output(cls, library, *options):
        done = cls.mcc("compile", cls.model, "-o", library, *options)
        assert done.returncode == 0, done.stderr
        done = cls.mcc("run", library, "--input", "x=x.npy", "--output-dir", cls.folder / "out")
        assert done.returncode == 0, done.stderr
        return np.load(cls.folder / "out" / "output_0.npy")

    @staticmethod
    def lines(log):
        return [json.loads(line) for line in log.read_text().splitlines()]

    def algorithms(self, log):
        """What the convolutions are in the kernels that this log leads to."""
        out = {}
        for task in self.json("tasks", self.model, "--threads", "1", "--tune-log", log)["tasks"]:
            for node in set(task["onnx_nodes"]) & {"first", "second", "strided"}:
                out[node] = "winograd" if is_winograd(task) else "direct"
        return out

    def log_with(self, name, **fields):
        log = self.folder / name
        log.write_text(json.dumps({**self.choice, **fields}, separators=(",", ":")) + "\n")
        return log

    def choosing(self, algorithm, **fields):
        return self.log_with(f"{algorithm}.json", algorithm=algorithm, us={**self.choice["us"], algorithm: 1.0}, **fields)

    def test_measures_what_there_is(self):
        self.assertEqual([c["problem"] for c in self.report["choices"]], [PROBLEM])
        us = self.report["choices"][0]["us"]
        self.assertGreater(len(us), 1)
        self.assertLessEqual(set(us), {"direct", "winograd_2", "winograd_4"})
        self.assertTrue(all(time > 0 for time in us.values()))
        # The one that counts is at most a little slower than the fastest: others have to be clearly faster.
        self.assertLessEqual(us[self.choice["algorithm"]], min(us.values()) / 0.97 * 1.0001)

    def test_trials_of_all_algorithms_are_in_the_log(self):
        tasks = [line for line in self.lines(self.log) if line["kind"] == "task"]
        # Of each algorithm two kernels, one for each convolution; beside them the one with a stride, and the layouts' changes.
        self.assertEqual(sum("conv" in task["name"] for task in tasks), 2 * len(self.choice["us"]) + 1)
        # A race of the best is no trial of its own. A search may end before all are used, with little left to gain.
        trials = {(line["task"], str(line["trace"])) for line in self.lines(self.log) if line["kind"] == "trial"}
        self.assertEqual(self.report["trials"], len(trials))
        self.assertLessEqual(self.report["trials"], 24)

    def test_the_log_decides(self):
        for algorithm, kind in ("direct", "direct"), ("winograd_2", "winograd"), ("winograd_4", "winograd"):
            log = self.choosing(algorithm)
            self.assertEqual(self.algorithms(log), {"first": kind, "second": kind, "strided": "direct"})
            np.testing.assert_allclose(self.output("chosen.so", "--tune-log", log, "--threads", "1"), self.plain, atol=2e-3)

    def test_what_was_tuned_is_what_is_compiled(self):
        done = self.mcc("compile", self.model, "-o", "locked.so", "--tune-log", self.log, "--locked", "--threads", "1")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_choices_of_others_do_not_count(self):
        (self.folder / "empty.json").write_text("")
        by_cost = self.algorithms(self.folder / "empty.json")
        other = "direct" if by_cost["first"] == "winograd" else "winograd_4"
        for fields in {"target": "another machine"}, {"threads": 7}, {"problem": "3x3 of 32 channels to 32, 21x21"}:
            self.assertEqual(self.algorithms(self.choosing(other, **fields)), by_cost)
        self.assertEqual(self.algorithms(self.choosing("of_tomorrow")), by_cost)
        # With --strict there is nothing to choose.
        output = self.output("strict.so", "--strict", "--threads", "1", "--tune-log", self.choosing("winograd_4"))
        np.testing.assert_array_equal(output, self.output("strict2.so", "--strict", "--threads", "1"))

    def test_what_is_decided_is_not_measured_again(self):
        log = self.choosing("winograd_2")
        report = self.json("tune", self.model, "--tune-log", log, "--no-check", "--trials", "24", "--threads", "1")
        self.assertEqual(report["choices"], [])
        self.assertTrue(any(is_winograd(line) for line in self.lines(log) if line["kind"] == "task"))

    def test_a_kernel_of_several_problems_counts_for_each_as_often_as_it_runs_for_it(self):
        # Channels that fill the same blocks: one kernel, whatever the algorithm. Points around them: what brings the input into blocks, and the
        # output out of them, runs for these.
        rng = np.random.default_rng(4)
        layers = [("in", 16, 30, 1), ("0", 30, 30, 3), ("1", 30, 32, 3), ("2", 32, 32, 3), ("3", 32, 32, 3), ("out", 32, 16, 1)]
        weights = {f"w{name}": rng.standard_normal((k, c, taps, taps), np.float32) / 17 for name, c, k, taps in layers}
        nodes, last = [], "x"
        for name, _, _, taps in layers:
            nodes += [helper.make_node("Conv", [last, f"w{name}"], [f"h{name}"], f"conv{name}", pads=[taps // 2] * 4),
                      helper.make_node("Relu", [f"h{name}"], [f"r{name}"], f"relu{name}")]
            last = f"r{name}"
        nodes.append(helper.make_node("Identity", [last], ["y"]))
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 20, 20])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 16, 20, 20])],
                                  [numpy_helper.from_array(v, k) for k, v in weights.items()])
        path, log = self.folder / "shared.onnx", self.folder / "shared.json"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
        report = self.json("tune", path, "--target", "cpu:x86-64-v3", "--tune-log", log, "--no-check", "--trials", "12", "--threads", "1")
        us = {choice["problem"]: choice["us"] for choice in report["choices"]}
        once, twice = us["3x3 of 30 channels to 30, 20x20"], us["3x3 of 32 channels to 32, 20x20"]
        self.assertEqual(us["3x3 of 30 channels to 32, 20x20"], once)
        for algorithm, time in once.items():
            self.assertAlmostEqual(twice[algorithm], 2 * time, delta=1e-6 * time)

    def test_of_some_tasks_nothing_is_decided(self):
        log = self.folder / "some.json"
        report = self.json("tune", self.model, "--tune-log", log, "--no-check", "--trials", "24", "--threads", "1", "--tasks", "strided")
        self.assertEqual(report["choices"], [])

    def test_log_commands_keep_it(self):
        show = self.json("log", "show", self.log)
        self.assertEqual([c["algorithm"] for c in show["choices"]], [self.choice["algorithm"]])
        self.assertIn(PROBLEM + ": " + self.choice["algorithm"], self.mcc("log", "show", self.log).stdout)
        best, merged = self.folder / "best.json", self.folder / "merged.json"
        self.json("log", "best", self.log, "-o", best)
        self.json("log", "merge", best, self.log, "-o", merged)
        self.json("log", "prune", merged)
        for log in best, merged:
            self.assertEqual([line for line in self.lines(log) if line["kind"] == "choice"], [self.choice])
        done = self.mcc("log", "verify", best, self.model)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
