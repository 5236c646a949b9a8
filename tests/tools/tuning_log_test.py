#!/usr/bin/env python3
"""Compiling with a tuning log or one's own schedules, and the commands over logs, through the program."""

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


def small_model(columns=96):
    rng = np.random.default_rng(0)

    def constant(name, *shape):
        return numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)

    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="act"),
        helper.make_node("Softmax", ["r"], ["y"], name="soft"),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [48, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [48, columns])],
        [constant("a", 64, columns)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class TuningLog(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.model = cls.folder / "model.onnx"
        onnx.save(small_model(), cls.model)
        cls.tasks = cls.json_of("tasks", cls.model)
        # What analysis picks, in the form that schedule files have.
        cls.run_ok("compile", cls.model, "-o", cls.folder / "plain.so")
        cls.traces = {}
        for task in cls.tasks["tasks"]:
            (kernel,) = cls.json_of("explain", cls.folder / "plain.so", task["id"])["kernels"]
            cls.traces[task["id"]] = kernel["trace"]
        cls.log = cls.folder / "log.json"
        cls.log.write_text(cls.log_text())

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    @classmethod
    def mcc(cls, *words):
        return subprocess.run([MCC, *map(str, words)], capture_output=True, text=True, cwd=cls.folder, timeout=300)

    @classmethod
    def run_ok(cls, *words):
        done = cls.mcc(*words)
        assert done.returncode == 0, (words, done.stderr)
        return done

    @classmethod
    def json_of(cls, *words, code=0):
        done = cls.mcc(*words, "--json")
        assert done.returncode == code, (words, done.returncode, done.stderr)
        return json.loads(done.stdout)

    @classmethod
    def task_line(cls, task):
        return json.dumps({"v": 1, "kind": "task", **{k: task[k] for k in ("id", "name", "text", "flops", "bytes")}})

    @classmethod
    def trial(cls, task, us, **changes):
        line = {"v": 1, "kind": "trial", "task": task["id"], "target": cls.tasks["target"], "threads": cls.tasks["threads"],
                "times_us": [us, us * 1.25], "error": "none", "message": "", "checked": True, "max_error": 0.0,
                "censored": False, "noise": 0.01, "source": "search", "sketch": "rules", "point": {},
                "trace": cls.traces.get(task["id"], ""), "device": "a test", "seed": 1, "build_s": 0.01, "run_s": 0.02,
                "time": 1.7e9}
        line.update(changes)
        return json.dumps(line)

    @classmethod
    def log_text(cls, speed=1.0, only=None):
        lines = []
        for i, task in enumerate(cls.tasks["tasks"]):
            if only is not None and i not in only:
                continue
            lines += [cls.task_line(task), cls.trial(task, 20 * speed, source="default", trace=""),
                      cls.trial(task, 10 * speed), cls.trial(task, 15 * speed, trace="", seed=2),
                      cls.trial(task, 1, error="crash", times_us=[], message="signal 11")]
        return "\n".join(lines) + "\n"

    def file(self, name, content):
        path = self.folder / name
        path.write_text(content)
        return path

    def compile(self, *options, output="out.so", code=0):
        return self.json_of("compile", self.model, "-o", self.folder / output, *options, code=code)

    def outputs(self, library):
        self.run_ok("run", library, "--random", 3, "--output-dir", f"{library}.out")
        return np.load(self.folder / f"{library}.out" / "output_0.npy")

    def test_exact(self):
        report = self.compile("--tune-log", self.log, "--locked")["schedules"]
        count = len(self.tasks["tasks"])
        self.assertEqual((report["exact"], report["nearest"], report["default"]), (count, 0, 0))
        self.assertEqual(report["notes"], [])
        metadata = self.json_of("inspect", self.folder / "out.so")["metadata"]
        self.assertEqual(metadata["log.hash"], report["log_hash"])
        np.testing.assert_allclose(self.outputs("out.so"), self.outputs("plain.so"), rtol=1e-5)
        said = self.run_ok("compile", self.model, "-o", "out.so", "--tune-log", self.log).stderr
        self.assertIn(f"schedules: {count} exact and 0 nearest from {self.log}, 0 default", said)

    def test_the_log_decides(self):
        task = next(t for t in self.tasks["tasks"] if "first" in t["onnx_nodes"])
        lines = [self.task_line(task), self.trial(task, 30), self.trial(task, 5, trace="")]
        report = self.compile("--tune-log", self.file("slow.json", "\n".join(lines)))["schedules"]
        self.assertEqual(report["exact"], 1)
        (kernel,) = self.json_of("explain", "out.so", "first")["kernels"]
        self.assertEqual(kernel["trace"], "")
        self.assertIn("log exact, 5.000 us", kernel["schedule_from"])
        self.assertIn("runner-up 30.00 us", kernel["schedule_from"])
        np.testing.assert_allclose(self.outputs("out.so"), self.outputs("plain.so"), rtol=1e-4, atol=1e-6)

    def test_same_log_same_bytes(self):
        again = self.folder / "again"
        again.mkdir(exist_ok=True)
        for folder in (self.folder, again):
            self.run_ok("compile", self.model, "-o", folder / "same.so", "--tune-log", self.log)
        self.assertEqual((self.folder / "same.so").read_bytes(), (again / "same.so").read_bytes())

    def test_locked(self):
        part = self.file("part.json", self.log_text(only={0}))
        report = self.compile("--tune-log", part)["schedules"]
        self.assertEqual(report["exact"], 1)
        refused = self.compile("--tune-log", part, "--locked", code=6)
        self.assertEqual(len(refused["errors"]), len(self.tasks["tasks"]) - 1)
        for task in self.tasks["tasks"][1:]:
            self.assertIn(task["id"], json.dumps(refused))
        self.assertEqual(self.mcc("compile", self.model, "-o", "x.so", "--locked").returncode, 2)

    def test_bad_logs(self):
        for name, content, said in (
            ("text.json", "hello\n", "is not a tuning log"),
            ("newer.json", self.log_text() + '{"v":7,"kind":"trial"}\n', "the log is of version 7"),
        ):
            done = self.mcc("compile", self.model, "-o", "bad.so", "--tune-log", self.file(name, content))
            self.assertEqual(done.returncode, 6, done.stderr)
            self.assertIn(said, done.stderr)
            self.assertFalse((self.folder / "bad.so").exists())
        for path in ("absent.json", self.folder):
            done = self.mcc("compile", self.model, "-o", "bad.so", "--tune-log", path)
            self.assertEqual(done.returncode, 6, done.stderr)
        # Cut in the middle of a line: said, and the rest is used.
        text = self.log_text()
        done = self.run_ok("compile", self.model, "-o", "cut.so", "--tune-log", self.file("cut.json", text[:-100]))
        self.assertIn("expected a whole line, got a cut one", done.stderr)

    def test_schedules_that_do_not_apply(self):
        task = self.tasks["tasks"][0]
        lines = [self.task_line(task), self.trial(task, 1, trace='split(loop="i", factors=[0, 4])'),
                 self.trial(task, 2, trace='vectorize(loop="nowhere")')]
        log = self.file("refused.json", "\n".join(lines) + "\n")
        report = self.compile("--tune-log", log)["schedules"]
        self.assertEqual(report["exact"], 0)
        self.assertIn("line 2: the schedule does not apply: step 1, split", report["notes"][0])
        refused = self.compile("--tune-log", log, "--locked", code=6)
        self.assertIn("no trial of it in the tuning log applies", json.dumps(refused))

    def test_nearest(self):
        # Decisions for a matmul of other extents.
        other = self.folder / "other.onnx"
        onnx.save(small_model(columns=192), other)
        tasks = self.json_of("tasks", other)["tasks"]
        task = next(t for t in tasks if "first" in t["onnx_nodes"])
        block = task["name"].split("_")[0]
        lines = [self.task_line(task), self.trial(task, 5, trace="", point={f"{block}.rows": [4]})]
        report = self.compile("--tune-log", self.file("near.json", "\n".join(lines) + "\n"))["schedules"]
        self.assertEqual((report["exact"], report["nearest"]), (0, 1), report)
        (kernel,) = self.json_of("explain", "out.so", "first")["kernels"]
        self.assertIn(f"from task {task['id']}", kernel["schedule_from"])
        np.testing.assert_allclose(self.outputs("out.so"), self.outputs("plain.so"), rtol=1e-4, atol=1e-6)
        self.compile("--tune-log", self.folder / "near.json", "--locked", code=6)

    def test_own_schedule(self):
        task = next(t for t in self.tasks["tasks"] if "first" in t["onnx_nodes"])
        # What explain prints is a schedule file.
        printed = self.run_ok("explain", "plain.so", "first").stdout
        path = self.file("own.txt", "# mine\n" + printed[printed.index("task " + task["id"]):])
        report = self.compile("--schedule", path, output="own.so")["schedules"]
        self.assertEqual(report["file"], 1)
        (kernel,) = self.json_of("explain", "own.so", "first")["kernels"]
        self.assertEqual(kernel["schedule_from"], "a schedule file")
        self.assertEqual(kernel["trace"], self.traces[task["id"]])
        for content, said in (
            (f'task {task["id"]}\n\nvectorize(loop="nope")\n', 'own.txt:3: vectorize(loop="nope") is refused'),
            (f'kernel {task["name"]}\nfly(loop="i")\n', "own.txt:2: expected the name of a step, not 'fly'"),
            ("task 0123\n", "own.txt:1: the model has no task 0123"),
            ('unroll(loop="i")\n', "own.txt:1: expected `task ID` or `kernel NAME` before the first step"),
            ("", "got nothing"),
        ):
            done = self.mcc("compile", self.model, "-o", "x.so", "--schedule", self.file("own.txt", content))
            self.assertEqual(done.returncode, 3, done.stderr)
            self.assertIn(said, done.stderr)

    def test_explain(self):
        (kernel,) = self.json_of("explain", "plain.so", "act", "--profile", "--seconds", 0.05)["kernels"]
        self.assertIn("first", kernel["onnx_nodes"])
        self.assertEqual(kernel["schedule_from"], "default")
        self.assertGreater(kernel["share"], 0)
        text = self.run_ok("explain", "plain.so", "act").stdout
        self.assertIn("fused with  first", text)
        done = self.mcc("explain", "plain.so", "nothing")
        self.assertEqual(done.returncode, 2)
        self.assertIn("nodes with kernels: ", done.stderr)

    def test_show_and_inspect(self):
        report = self.json_of("log", "show", self.log)
        self.assertEqual([t["task"] for t in report["tasks"]], [t["id"] for t in self.tasks["tasks"]])
        row = report["tasks"][0]
        self.assertEqual((row["trials"], row["errors"], row["best_us"], row["default_us"], row["speedup"]),
                         (4, {"crash": 1}, 10, 20, 2))
        self.assertEqual(self.json_of("inspect", self.log), report)
        text = self.run_ok("log", "show", self.log).stdout
        self.assertIn("2.00x", text)
        self.assertIn("1 crash", text)

    def test_best_merge_diff_prune(self):
        self.run_ok("log", "best", self.log, "-o", "best.json")
        count = len(self.tasks["tasks"])
        lines = (self.folder / "best.json").read_text().splitlines()
        self.assertEqual(len(lines), 2 * count)
        self.assertEqual(self.compile("--tune-log", "best.json", "--locked")["schedules"]["exact"], count)

        fast = self.file("fast.json", self.log_text(speed=0.5, only={0}))
        merged = self.json_of("log", "merge", self.log, fast, self.log, "-o", "merged.json")
        self.assertEqual((merged["tasks"], merged["trials"], merged["duplicates"]), (count, 4 * count + 3, 4 * count + 1))
        self.assertEqual(self.json_of("log", "show", "merged.json")["tasks"][0]["best_us"], 5)

        rows = self.json_of("log", "diff", self.log, fast)["tasks"]
        verdicts = {row["task"]: row["verdict"] for row in rows}
        self.assertEqual(verdicts[self.tasks["tasks"][0]["id"]], "faster")
        self.assertEqual(set(verdicts.values()), {"faster", "only_a"} if count > 1 else {"faster"})

        pruned = self.json_of("log", "prune", "merged.json", "-k", 1)
        self.assertEqual(pruned["trials"], 2 * count)  # the best and the default
        self.assertEqual(self.json_of("log", "show", "merged.json")["tasks"][0]["best_us"], 5)

    def test_other_files_are_not_written_over(self):
        precious = self.file("precious.txt", "precious")
        done = self.mcc("log", "best", self.log, "-o", precious)
        self.assertEqual(done.returncode, 6)
        self.assertIn("is not a tuning log: it will not be written to", done.stderr)
        self.assertEqual(precious.read_text(), "precious")


if __name__ == "__main__":
    unittest.main(verbosity=1)
