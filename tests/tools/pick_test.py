#!/usr/bin/env python3
"""`mcc tune --no-measure`: schedules picked by analysis, their log, and what compile and `mcc log` make of it."""

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


def model():
    rng = np.random.default_rng(3)
    weights = {"w1": rng.standard_normal((48, 64), np.float32), "w2": rng.standard_normal((64, 24), np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h0"], "product"),
        helper.make_node("Relu", ["h0"], ["h1"], "relu"),
        helper.make_node("MatMul", ["h1", "w2"], ["h2"], "second"),
        helper.make_node("Softmax", ["h2"], ["y"], "softmax", axis=-1),
    ]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [32, 48])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [32, 24])],
                              [numpy_helper.from_array(v, k) for k, v in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def has_driver():
    try:
        import ctypes
        ctypes.CDLL("libcuda.so.1")
        return True
    except OSError:
        return False


class Pick(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.model = cls.folder / "model.onnx"
        cls.model.write_bytes(model().SerializeToString())

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def mcc(self, *words, code=0):
        done = subprocess.run([MCC, *map(str, words)], capture_output=True, text=True, cwd=self.folder, timeout=600)
        self.assertEqual(done.returncode, code, (words, done.stdout[-2000:], done.stderr[-2000:]))
        return done

    def pick(self, log, target, *options):
        return json.loads(self.mcc("tune", self.model, "--tune-log", log, "--target", target, "--no-measure", "--json", *options).stdout)

    def trials(self, log):
        lines = [json.loads(line) for line in (self.folder / log).read_text().splitlines()]
        return [line for line in lines if line["kind"] == "trial"]

    # What there was no time for comes first when the same line is given again.
    def test_goes_on(self):
        whole = self.pick("whole.json", "cuda:sm_80")
        lines = (self.folder / "whole.json").read_text().splitlines(keepends=True)
        first = json.loads(lines[1])
        (self.folder / "part.json").write_text("".join(lines[:2]))
        # Time to begin with one.
        self.pick("part.json", "cuda:sm_80", "--time", "0.05s", "--jobs", 1)
        added = [trial["task"] for trial in self.trials("part.json")[1:]]
        self.assertGreaterEqual(len(added), 1)
        self.assertNotIn(first["task"], added)
        self.pick("part.json", "cuda:sm_80")
        self.assertEqual(sorted(t["task"] for t in self.trials("part.json")), sorted(t["id"] for t in whole["tasks"]))

    def test_records_claim_no_time(self):
        for target in ("cpu:x86-64-v3", "cuda:sm_80", "cuda:sm_90"):
            log = f"{target.replace(':', '_')}.json"
            report = self.pick(log, target)
            self.assertIs(report["measured"], False)
            self.assertEqual({t["state"] for t in report["tasks"]}, {"picked"})
            trials = self.trials(log)
            self.assertEqual(len(trials), len(report["tasks"]))
            for trial, task in zip(trials, report["tasks"]):
                self.assertEqual((trial["source"], trial["times_us"], trial["checked"]), ("picked", [], False))
                self.assertEqual(trial["estimate_us"], task["estimate_us"])
                self.assertGreater(trial["estimate_us"], 0)
                self.assertLessEqual(task["estimate_us"], task["default_estimate_us"])
                if target.startswith("cuda") and report["assembler"]:
                    self.assertGreater(task["built"], 0)
                    self.assertTrue(all(f["spilled_bytes"] == 0 for f in task["launches"]))
            compiled = json.loads(self.mcc("compile", self.model, "-o", "m.so", "--target", target, "--tune-log", log, "--locked",
                                           "--json").stdout)["schedules"]
            self.assertEqual((compiled["picked"], compiled["exact"], compiled["default"]), (len(trials), 0, 0))
            self.assertIn("picked by analysis, not measured", self.mcc("inspect", "m.so").stdout)
            self.assertIn("nobody has measured it", self.mcc("log", "show", log).stdout)
            shown = json.loads(self.mcc("log", "show", log, "--json").stdout)["tasks"]
            self.assertTrue(all(t["best_us"] is None and t["picked"] == 1 and t["trials"] == 0 for t in shown))
            self.mcc("log", "best", log, "-o", "best.json")
            self.assertEqual(len(self.trials("best.json")), len(trials))
            self.assertIn("nothing in it was measured", self.mcc("log", "report", log, "-o", "r.html", code=6).stderr)

    def test_the_same_again(self):
        for jobs in (1, 2):
            self.pick(f"jobs{jobs}.json", "cuda:sm_80", "--jobs", jobs, "--seed", "7")
        key = [(t["task"], t["trace"], t["estimate_us"]) for t in self.trials("jobs1.json")]
        self.assertEqual(key, [(t["task"], t["trace"], t["estimate_us"]) for t in self.trials("jobs2.json")])
        before = (self.folder / "jobs1.json").read_bytes()
        self.pick("jobs1.json", "cuda:sm_80", "--seed", "7")
        self.assertEqual(before, (self.folder / "jobs1.json").read_bytes())

    def test_measured_goes_before_picked(self):
        options = ("--target", "cpu", "--threads", "1")
        self.pick("both.json", "cpu", "--threads", "1")
        self.mcc("tune", self.model, "--tune-log", "both.json", "--trials", "6", "--no-check", "--tasks", "second", *options)
        compiled = json.loads(self.mcc("compile", self.model, "-o", "both.so", "--tune-log", "both.json", "--json", *options).stdout)
        tasks = len(self.pick("both.json", "cpu", "--threads", "1")["tasks"])
        self.assertEqual((compiled["schedules"]["exact"], compiled["schedules"]["picked"]), (1, tasks - 1))
        report = self.pick("both.json", "cpu", "--threads", "1")
        self.assertEqual(sorted(t["state"] for t in report["tasks"]), sorted(["measured before"] + ["picked"] * (tasks - 1)))
        self.mcc("log", "best", "both.json", "-o", "best_of_both.json")
        sources = sorted(t["source"] == "picked" for t in self.trials("best_of_both.json"))
        self.assertEqual(sources, [False] + [True] * (tasks - 1))

    def test_no_time_and_one_task(self):
        report = self.pick("none.json", "cuda:sm_80", "--time", "0s")
        self.assertEqual({t["state"] for t in report["tasks"]}, {"left out"})
        self.assertEqual(len(self.pick("one.json", "cuda:sm_80", "--tasks", "second")["tasks"]), 1)

    def test_options_of_measuring_are_refused(self):
        for options in (["--trials", "5"], ["--tuner", "grid"], ["--cost-model", "xgboost"], ["--cold"]):
            done = self.mcc("tune", self.model, "--tune-log", "x.json", "--no-measure", *options, code=2)
            self.assertIn("--no-measure", done.stderr)

    def test_without_a_gpu(self):
        if has_driver():
            self.skipTest("there is a driver")
        for target in ("cuda", "cuda:sm_90"):
            done = self.mcc("tune", self.model, "--tune-log", "y.json", "--target", target, code=5)
            self.assertIn("there is no GPU to measure on", done.stderr)
            self.assertIn("--no-measure", done.stderr)


if __name__ == "__main__":
    unittest.main()
