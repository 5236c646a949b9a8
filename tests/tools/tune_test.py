#!/usr/bin/env python3
"""`mcc tune` as its users meet it: interrupted, killed, started again, and its log compiled with."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MCC = os.path.abspath(os.environ.get("MCC", "build/bin/mcc"))
KILLS = 50


def model():
    """Two layers and a softmax: a product, its bias and activation, a reduction along rows."""
    rng = np.random.default_rng(3)
    weights = {
        "w1": rng.standard_normal((48, 64), np.float32) / 7,
        "b1": rng.standard_normal((64,), np.float32),
        "w2": rng.standard_normal((64, 24), np.float32) / 8,
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h0"], "product"),
        helper.make_node("Add", ["h0", "b1"], ["h1"], "bias"),
        helper.make_node("Relu", ["h1"], ["h2"], "relu"),
        helper.make_node("MatMul", ["h2", "w2"], ["h3"], "second"),
        helper.make_node("Softmax", ["h3"], ["y"], "softmax", axis=-1),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [32, 48])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [32, 24])],
        [numpy_helper.from_array(v, k) for k, v in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Tune(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.model = cls.folder / "model.onnx"
        cls.model.write_bytes(model().SerializeToString())
        cls.x = np.random.default_rng(5).standard_normal((32, 48), np.float32)
        np.save(cls.folder / "x.npy", cls.x)
        cls.plain = cls.output("plain.so")

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def mcc(cls, *words):
        return subprocess.run([MCC, *map(str, words)], capture_output=True, text=True, cwd=cls.folder, timeout=600)

    @classmethod
    def output(cls, library, *options):
        done = cls.mcc("compile", cls.model, "-o", library, *options)
        assert done.returncode == 0, done.stderr
        done = cls.mcc("run", library, "--input", "x=x.npy", "--output-dir", cls.folder / "out")
        assert done.returncode == 0, done.stderr
        return np.load(cls.folder / "out" / "output_0.npy")

    def tune(self, log, *options):
        done = self.mcc("tune", self.model, "--tune-log", log, "--no-check", "--json", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def start(self, log, *options):
        return subprocess.Popen([MCC, "tune", self.model, "--tune-log", log, "--no-check", *options], cwd=self.folder,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def trials(self, log):
        """Of the whole lines; every line but the last must be one."""
        text = (self.folder / log).read_bytes()
        lines = text.split(b"\n")
        records = [json.loads(line) for line in lines[:-1]]
        return [r for r in records if r["kind"] == "trial"]

    def new_trials(self, log):
        """Without what was measured once more at the end."""
        trials, seen = [], set()
        for trial in self.trials(log):
            is_new = (trial["task"], trial["trace"]) not in seen
            seen.add((trial["task"], trial["trace"]))
            if is_new:
                trials.append(trial)
            else:
                self.assertIn(trial["source"], ("final", "default"))
        return trials

    def test_there_is_a_complete_model_before_the_first_trial(self):
        done = self.mcc("tune", self.model, "--tune-log", "whole.json", "--time", "60s", "--trials", "6", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        first, *_, last = json.loads(done.stdout)["model"]
        self.assertIsNone(first["estimate_us"])
        self.assertGreater(first["measured_us"], 0)
        self.assertLess(first["seconds"], last["seconds"])
        self.assertGreater(last["estimate_us"], 0)
        said = done.stderr.replace("\r", "\n")
        self.assertLess(said.index("the whole model takes"), said.index(" trials; model"))

    def test_finds_and_applies(self):
        report = self.tune("a.json", "--trials", "60", "--seed", "1")
        self.assertEqual(report["trials"], 60)
        self.assertEqual(len(self.new_trials("a.json")), 60)
        self.assertTrue(any("beats" in trial for trial in self.trials("a.json")))
        for task in report["tasks"]:
            self.assertIsNotNone(task["best_us"])
            self.assertLessEqual(task["best_us"], task["default_us"])
        np.testing.assert_allclose(self.output("a.so", "--tune-log", "a.json", "--locked"), self.plain, rtol=1e-4, atol=1e-6)
        first = (self.folder / "a.so").read_bytes()
        self.output("a2.so", "--tune-log", "a.json")
        self.assertEqual(first, (self.folder / "a2.so").read_bytes())

    def test_goes_on(self):
        self.tune("b.json", "--trials", "20")
        report = self.tune("b.json", "--trials", "20")
        self.assertEqual(report["known_trials"], 20)
        self.assertEqual(len(self.new_trials("b.json")), 40)

    def test_one_task(self):
        report = self.tune("c.json", "--trials", "8", "--tasks", "second")
        self.assertEqual(len(report["tasks"]), 1)
        self.assertIn("second", report["tasks"][0]["onnx_nodes"])

    def test_interrupt_keeps_the_best(self):
        process = self.start("d.json")
        self.wait_for_trials(process, "d.json", 5)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(120), 0)
        self.assertGreaterEqual(len(self.trials("d.json")), 5)
        np.testing.assert_allclose(self.output("d.so", "--tune-log", "d.json"), self.plain, rtol=1e-4, atol=1e-6)

    def wait_for_trials(self, process, log, count):
        path = self.folder / log
        for _ in range(3000):
            if path.exists() and path.read_bytes().count(b'"kind":"trial"') >= count:
                return
            self.assertIsNone(process.poll(), "ended by itself")
            time.sleep(0.02)
        self.fail("no trials")

    def test_two_tuners_on_one_log(self):
        process = self.start("e.json")
        try:
            self.wait_for_trials(process, "e.json", 1)
            done = self.mcc("tune", self.model, "--tune-log", "e.json", "--trials", "1")
            self.assertEqual(done.returncode, 6, done.stderr)
            self.assertIn("e.json", done.stderr)
        finally:
            process.kill()
            process.wait()

    def test_killed_at_any_time(self):
        rng = random.Random(11)
        known = 0
        for run in range(KILLS):
            process = self.start("k.json", "--seed", str(run))
            # Some while it starts, most in the middle of trials.
            if run % 3 != 0:
                self.wait_for_trials(process, "k.json", known + 1)
            time.sleep(rng.uniform(0, 0.4))
            process.kill()
            process.wait()
            if not (self.folder / "k.json").exists():
                continue
            count = (self.folder / "k.json").read_bytes().count(b'"kind":"trial"')
            self.assertGreaterEqual(count, known, "trials were lost")
            known = count
        self.assertGreater(known, KILLS // 2)
        # A last line that was cut belongs to no one; going on mends the file.
        report = self.tune("k.json", "--trials", "4")
        self.assertGreaterEqual(report["known_trials"], known - 1)
        self.trials("k.json")
        np.testing.assert_allclose(self.output("k.so", "--tune-log", "k.json"), self.plain, rtol=1e-4, atol=1e-6)

    def test_measures_on_another_machine(self):
        """The other machine is this one, as seen through a program that says it had another processor."""
        relay = self.folder / "relay.py"
        relay.write_text(f"""
import json, subprocess, sys, threading
assert sys.argv[1:] == ["measure-worker"], sys.argv
worker = subprocess.Popen([{MCC!r}, "measure-worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def forward():
    for line in sys.stdin.buffer:
        worker.stdin.write(line)
        worker.stdin.flush()
    worker.stdin.close()
threading.Thread(target=forward, daemon=True).start()
for line in worker.stdout:
    message = json.loads(line)
    if message["event"] == "machine":
        target, = message["machine"]["targets"]
        target |= {{"cpu": "haswell", "features": "+avx,+avx2,+fma", "vector_bits": 256, "vector_registers": 16, "cores": 3}}
        line = json.dumps(message).encode() + b"\\n"
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
""")
        done = self.mcc("tune", self.model, "--tune-log", "w.json", "--json", "--trials", "8", "--worker", f"{sys.executable} '{relay}'")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual((report["trials"], report["machine"], report["threads"], report["model"]), (8, "haswell", 3, []))
        self.assertIn("another machine (haswell)", done.stderr)
        for trial in self.trials("w.json"):
            self.assertIn("haswell 256 bits", trial["target"])
            self.assertEqual((trial["device"], trial["error"]), ("haswell, 3 cores", "none"))
        # On this machine these are another one's.
        report = self.tune("w.json", "--trials", "2")
        self.assertEqual((report["known_trials"], report["machine"]), (0, None))

    def test_commands_that_start_no_worker(self):
        for command, words in [
                ("echo 'no such host' >&2; exit 255; :", ["ended with exit code 255", "no such host"]),
                ("echo hello; cat >", ["answers with what is no message: hello"]),
                (f"echo '{{\"id\": 1, \"event\": \"machine\", \"machine\": {{}}}}'; :", ["answers with what is no message"]),
                (f"echo '{{\"id\": 1, \"event\": \"done\"}}'; :", ["does not say on which machine it is"]),
                (f"'{MCC}' measure-worker | sed -u 's/\"version\":\"[^\"]*\"/\"version\":\"0.0.1\"/' #", ["is mcc 0.0.1, this one is"]),
        ]:
            with self.subTest(command=command):
                done = self.mcc("tune", self.model, "--tune-log", "n.json", "--worker", command)
                self.assertEqual(done.returncode, 5, done.stderr)
                for text in ["--worker", *words]:
                    self.assertIn(text, done.stderr)
                self.assertFalse((self.folder / "n.json").exists())

    def test_bad_options(self):
        for options, code, words in [
                (["--time", "soon"], 2, "soon"),
                (["--tuner", "magic"], 2, "magic"),
                (["--cost-model", "magic"], 2, "magic"),
                (["--tasks", "("], 2, "regular expression"),
                (["--tasks", "no_such_kernel"], 2, "no_such_kernel"),
                (["--target", "cpu:nothing"], 2, "nothing"),
                (["--worker", MCC, "--target", "cpu:nothing"], 2, "nothing"),
                (["--worker", MCC, "--no-measure"], 2, "--worker"),
        ]:
            done = self.mcc("tune", self.model, "--tune-log", "f.json", *options)
            self.assertEqual(done.returncode, code, (options, done.stderr))
            self.assertIn(words, done.stderr)
        done = self.mcc("tune", self.folder / "absent.onnx", "--tune-log", "f.json")
        self.assertEqual(done.returncode, 3, done.stderr)
        (self.folder / "g.json").write_text("this is no log\n" * 3)
        done = self.mcc("tune", self.model, "--tune-log", "g.json", "--trials", "1")
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertIn("g.json", done.stderr)
        self.assertEqual((self.folder / "g.json").read_text(), "this is no log\n" * 3)


if __name__ == "__main__":
    unittest.main()
