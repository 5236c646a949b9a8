#!/usr/bin/env python3
"""Compiling with a tuning log or one's own schedules, and the commands over logs, through the program."""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MCC = os.path.abspath(os.environ.get("MCC", "build/bin/mcc"))


def small_model(columns=96, depth=64):
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
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [48, depth])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [48, columns])],
        [constant("a", depth, columns)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def fnv(words):
    """What a log calls a schedule."""
    key = 0xcbf29ce484222325
    for byte in words.encode():
        key = (key ^ byte) * 0x100000001b3 % 2**64
    return f"{key:016x}"


def compact(record):
    """A line of a log, as mcc writes it."""
    return json.dumps(record, separators=(",", ":"))


class LogCase(unittest.TestCase):
    """A small model, the schedules that analysis picks for it, and a log with trials of all its tasks."""

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
        return compact({"v": 1, "kind": "task", **{k: task[k] for k in ("id", "name", "text", "flops", "bytes")}})

    @classmethod
    def trial(cls, task, us, **changes):
        line = {"v": 1, "kind": "trial", "task": task["id"], "target": cls.tasks["target"], "threads": cls.tasks["threads"],
                "times_us": [us, us * 1.25], "error": "none", "message": "", "checked": True, "max_error": 0.0,
                "censored": False, "noise": 0.01, "source": "search", "sketch": "rules", "point": {},
                "trace": cls.traces.get(task["id"], ""), "device": "a test", "seed": 1, "build_s": 0.01, "run_s": 0.02,
                "time": 1.7e9}
        line.update(changes)
        return compact(line)

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

    def compile(self, *options, output="out.so", code=0, model=None):
        return self.json_of("compile", model or self.model, "-o", self.folder / output, *options, code=code)

    def outputs(self, library):
        self.run_ok("run", library, "--random", 3, "--output-dir", f"{library}.out")
        return np.load(self.folder / f"{library}.out" / "output_0.npy")


class TuningLog(LogCase):
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

    def test_provenance(self):
        """A library says what its schedules are from, and nothing of when and where it was made."""
        other = dict(self.tasks["tasks"][0])
        log = self.file("only.json", self.log_text(only={0}))
        self.run_ok("compile", self.model, "-o", "from.so", "--tune-log", log)
        report = self.json_of("inspect", "from.so")
        digest = "sha256:" + hashlib.sha256(log.read_bytes()).hexdigest()
        self.assertEqual(report["metadata"]["log.hash"], digest)
        schedules = report["schedules"]
        count = len(self.tasks["tasks"])
        self.assertEqual((schedules["log_hash"], schedules["exact"], schedules["nearest"], schedules["default"]),
                         (digest, 1, 0, count - 1))
        kernel = next(k for k in schedules["kernels"] if k["task"] == other["id"])
        self.assertEqual(kernel["source"], "exact")
        self.assertIn("log exact, 10.00 us; default 20.00 us", kernel["from"])
        self.assertIn("; line 3", kernel["from"])
        self.assertEqual({k["source"] for k in schedules["kernels"] if k["task"] != other["id"]} - {"default"}, set())
        text = self.run_ok("inspect", "from.so").stdout
        self.assertIn(f"1 exact and 0 nearest from a tuning log, {count - 1} default", text)
        self.assertIn(digest, text)
        plain = self.json_of("inspect", "plain.so")["schedules"]
        self.assertEqual((plain["log_hash"], plain["default"]), (None, count))

        # Made elsewhere, later, by another path: the same bytes, in which neither is to be found.
        elsewhere = self.folder / "quite another place"
        elsewhere.mkdir()
        shutil.copy(self.model, elsewhere / "model.onnx")
        shutil.copy(log, elsewhere / "renamed.log")
        os.utime(elsewhere / "renamed.log", (1, 1))
        done = subprocess.run([MCC, "compile", "model.onnx", "-o", "x.so", "--tune-log", "renamed.log", "-j", "1"], cwd=elsewhere,
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        library = (self.folder / "from.so").read_bytes()
        self.assertEqual((elsewhere / "x.so").read_bytes(), library)
        for word in (str(self.folder), "only.json", "from.so", os.path.dirname(MCC)):
            self.assertNotIn(word.encode(), library)

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
            ("newer.json", '{"v":7,"kind":"trial"}\n', "the log is of version 7"),
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

    def test_own_order_of_weights(self):
        task = next(t for t in self.tasks["tasks"] if "first" in t["onnx_nodes"])
        for order in ("(i0, i1, i2) -> (i1, i0, i2)", "(i0, i1, i2) -> (i0, i2 // 8, i1 // 2, i1 %% 2, i2 %% 8)"):
            step = f'transform_layout(buffer="x1", map="{order}")'
            path = self.file("order.txt", f'task {task["id"]}\n{step}\n')
            self.assertEqual(self.compile("--schedule", path, output="order.so")["schedules"]["file"], 1)
            (kernel,) = self.json_of("explain", "order.so", "first")["kernels"]
            self.assertEqual(kernel["trace"].strip(), step)
            np.testing.assert_allclose(self.outputs("order.so"), self.outputs("plain.so"), rtol=1e-4, atol=1e-6)
        # The order of an input is the caller's.
        path = self.file("order.txt", f'task {task["id"]}\ntransform_layout(buffer="x0", map="(i, k) -> (k, i)")\n')
        done = self.mcc("compile", self.model, "-o", "x.so", "--schedule", path)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("expected an intermediate or a weight, got parameter x0", done.stderr)

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
        # Nothing is left behind where there is nothing to merge.
        self.assertEqual(self.mcc("log", "merge", self.log, "missing.json", "-o", "empty.json").returncode, 6)
        self.assertFalse((self.folder / "empty.json").exists())
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

    def test_races(self):
        """The winner of a race is what counts: for compiling, for the best, and in what is left of a pruned log."""
        task = self.tasks["tasks"][0]
        first, second = self.trial(task, 5), json.loads(self.trial(task, 6))
        second["trace"] = ""
        final = dict(second, times_us=[8.0], source="final", beats=[fnv(json.loads(first)["trace"])])
        lines = [self.task_line(task), first, compact(second), compact(final)]
        log = self.file("race.json", "\n".join(lines) + "\n")
        self.assertEqual(self.json_of("log", "show", log)["tasks"][0]["best_us"], 6)
        self.run_ok("log", "best", log, "-o", "best.json")
        self.assertEqual(json.loads((self.folder / "best.json").read_text().splitlines()[1])["times_us"], [8.0])
        self.compile("--tune-log", log, output="race.so")
        (kernel,) = self.json_of("explain", "race.so", task["id"])["kernels"]
        self.assertEqual(kernel["trace"], "")
        self.json_of("log", "prune", log, "-k", 3)
        self.assertEqual(self.json_of("log", "show", log)["tasks"][0]["best_us"], 6)

    def test_the_default_in_a_race(self):
        """What it takes in the conditions in which the winner was measured, stopped early or not, is what the winner is compared with."""
        task = self.tasks["tasks"][0]
        default = dict(json.loads(self.trial(task, 5)), source="default")
        winner = dict(default, trace="", times_us=[6.0], source="search")
        final = dict(winner, source="final", beats=[fnv(default["trace"])])
        lines = [self.task_line(task), *map(compact, (default, winner, dict(default, times_us=[24.0], censored=True), final))]
        log = self.file("race.json", "\n".join(lines) + "\n")
        for step in ("as written", "pruned"):
            with self.subTest(step):
                (row,) = self.json_of("log", "show", log)["tasks"]
                self.assertEqual((row["best_us"], row["default_us"]), (6, 24))
                (row,) = self.json_of("log", "report", log)["tasks"]
                self.assertEqual((row["best_us"], row["default_us"]), (6, 24))
            self.json_of("log", "prune", log, "-k", 1)

    def test_verify(self):
        task, other = self.tasks["tasks"][0], json.loads(json.dumps(self.tasks["tasks"][0]))
        other["id"], other["text"] = "0123456789abcdef", other["text"].replace("96", "160").replace("48", "52")
        lines = [self.task_line(task), self.trial(task, 1e-3),  # nothing is as fast as this
                 self.trial(task, 1e9, threads=1),  # nor as slow as this
                 self.trial(task, 5, threads=4000),
                 self.trial(task, 5, target="another machine", trace='split(loop="i", factors=[0, 4])'),
                 self.task_line(other), self.trial(other, 3)]
        log = self.file("verify.json", "\n".join(lines) + "\n")
        report = self.json_of("log", "verify", log, self.model)
        rows = {row["line"]: row for row in report["trials"]}
        self.assertEqual({line: row["verdict"] for line, row in rows.items()},
                         {2: "slower", 3: "faster", 4: "elsewhere", 5: "unfit"})
        # A GPU's schedule is not measured on this processor, nor noted as one of its own.
        of_gpu = [lines[0], self.trial(task, 5, target="nvptx64-nvidia-cuda sm_90")]
        foreign = self.file("foreign.json", "\n".join(of_gpu) + "\n")
        (row,) = self.json_of("log", "verify", foreign, self.model, "--append")["trials"]
        self.assertEqual((row["verdict"], row["here_us"]), ("elsewhere", None))
        self.assertIn("is for nvptx64-nvidia-cuda sm_90; what is measured here is for x86_64", row["message"])
        self.assertEqual(foreign.read_text().splitlines(), of_gpu)
        self.assertEqual((rows[2]["error"], rows[2]["checked"]), ("none", True))
        self.assertAlmostEqual(rows[2]["ratio"], rows[2]["here_us"] / 1e-3, delta=1)
        self.assertIn("split", rows[5]["message"])
        self.assertEqual(report["tasks_not_in_the_model"], [other["id"]])
        self.assertEqual(report["tasks_without_trials"], len(self.tasks["tasks"]) - 1)
        done = self.run_ok("log", "verify", log, self.model, "--append")
        self.assertIn("slower", done.stdout)
        self.assertIn("1 no longer apply", done.stderr)
        # What was measured here is what counts from now on.
        text = log.read_text().splitlines()
        self.assertEqual([json.loads(line)["source"] for line in text[len(lines):]], ["verify"] * 3)
        self.assertEqual(self.mcc("log", "verify", "absent.json", self.model).returncode, 6)
        self.assertEqual(self.mcc("log", "verify", log, "absent.onnx").returncode, 3)
        self.assertEqual(self.mcc("log", "verify", log).returncode, 2)

    def test_verify_checks_results(self):
        report = self.json_of("log", "verify", self.log, self.model, "-k", 3)
        for row in report["trials"]:
            self.assertIn(row["verdict"], ("holds", "slower", "faster"))
            self.assertTrue(row["checked"])

    def test_import(self):
        # A product of 48x96 over 8, as three tuners record it, and lines that say nothing of it. So short a sum leaves something to gain
        # on any machine, and the search does not end before its trials do.
        model = self.folder / "short.onnx"
        onnx.save(small_model(depth=8), model)
        records = {
            "autotvm.log": [
                {"input": ["llvm -mcpu=core-avx2", "dense_pack.x86",
                           [["TENSOR", [48, 8], "float32"], ["TENSOR", [96, 8], "float32"], None, "float32"], {}],
                 "config": {"index": 7, "code_hash": None,
                            "entity": [["tile_y", "sp", [-1, 4, 4]], ["tile_x", "sp", [-1, 3, 16]],
                                       ["tile_k", "sp", [-1, 1]], ["tile_inner", "sp", [-1, 1]]]},
                 "result": [[2.1e-05], 0, 1.2, 1.7e9], "version": 0.2, "tvm_version": "0.13.0"},
                {"input": ["llvm", "conv2d_NCHWc.x86",
                           [["TENSOR", [1, 64, 56, 56], "float32"], ["TENSOR", [64, 64, 3, 3], "float32"], [1, 1],
                            [1, 1, 1, 1], [1, 1], "NCHW", "NCHW", "float32"], {}],
                 "config": {"index": 0, "code_hash": None,
                            "entity": [["tile_ic", "sp", [-1, 16]], ["tile_oc", "sp", [-1, 32]],
                                       ["tile_ow", "sp", [-1, 14]], ["unroll_kw", "ot", True]]},
                 "result": [[0.001], 0, 1.2, 1.7e9], "version": 0.2, "tvm_version": "0.13.0"}],
            "ansor.json": [
                {"i": [['["matmul", 48, 96, 8]', "llvm", [2, 64, 64, 0, 0, 0, 0, 0], "", 1, []],
                       [[], [["SP", 2, 0, 48, [2, 1, 6], 1], ["SP", 2, 4, 96, [1, 1, 32], 1], ["SP", 2, 8, 8, [2], 1],
                             ["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]], ["AN", 2, 9, 2]]]],
                 "r": [[3e-05], 0, 0.5, 1700000000], "v": "v0.6"},
                {"i": [['["matmul", 48, 96, 8]', "llvm", [2, 64, 64, 0, 0, 0, 0, 0], "", 1, []], [[], []]],
                 "r": [[1e10], 2, 0.5, 1700000000], "v": "v0.6"}],
            "database_tuning_record.json": [
                [0, [[[["GetBlock", [], ["C", "main"], ["b0"]], ["GetLoops", ["b0"], [], ["l1", "l2", "l3"]],
                       ["SamplePerfectTile", ["l1"], [4, 64], ["v4", "v5", "v6", "v7"]],
                       ["SamplePerfectTile", ["l2"], [4, 64], ["v8", "v9", "v10", "v11"]],
                       ["SamplePerfectTile", ["l3"], [2, 64], ["v12", "v13"]]],
                      [[2, [2, 3, 2, 4]], [3, [3, 2, 1, 16]], [4, [2, 4]]]], [1.5e-05], None, None]]],
            "database_workload.json": [["7713462213", "eyJyb290IjogMX0="]],
        }
        for name, lines in records.items():
            self.file(name, "".join(json.dumps(line) + "\n" for line in lines))
        log = self.folder / "imported.json"
        report = self.json_of("log", "import", *records, "--model", model, "-o", log, "--limit", 8)
        self.assertEqual((report["lines"], report["records"], report["tasks_with_seeds"]), (6, 4, 1))
        self.assertGreaterEqual(report["seeds"], 3)
        self.assertEqual(report["left_out"], {"a workload, known by its records' extents": 1, "failed there": 1,
                                              "of a size that no kernel of the model has": 1})
        said = self.run_ok("log", "import", *records, "--model", model, "-o", self.folder / "again.json").stderr
        self.assertIn("1 lines left out: failed there", said)
        self.assertIn("from 3 of 6 records", said)
        # Seeds decide nothing until they are measured, which verify does, and a search does before anything else.
        self.assertEqual(self.compile("--tune-log", log, model=model)["schedules"]["exact"], 0)
        traces = [json.loads(line)["trace"] for line in log.read_text().splitlines()[1:]]
        self.assertEqual(self.json_of("log", "show", log)["tasks"][0]["seeds"], len(traces))
        tuned = self.json_of("tune", model, "--tune-log", log, "--trials", 4 + len(traces), "--tasks", "first",
                             "--no-check", "--seed", 5)
        self.assertEqual(tuned["known_trials"], 0)
        measured = [json.loads(line) for line in log.read_text().splitlines()[1 + len(traces):]]
        # Each once: what the first round has measured is not measured again, and the search takes its place.
        left = [t for t in traces if t not in [m["trace"] for m in measured[:4]]]
        self.assertEqual([line["trace"] for line in measured[4:]][:len(left)], left)
        self.assertEqual(len({line["trace"] for line in measured}), 4 + len(traces))
        again = self.folder / "again.json"
        self.run_ok("log", "verify", again, model, "--append", "-k", 3)
        self.assertEqual(self.compile("--tune-log", again, model=model)["schedules"]["exact"], 1)
        for words, code in ((("absent.log",), 6), ((self.folder,), 6)):
            done = self.mcc("log", "import", *words, "--model", model, "-o", "none.json")
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertFalse((self.folder / "none.json").exists())
        done = self.mcc("log", "import", "autotvm.log", "--model", model, "-o", self.file("kept.txt", "mine"))
        self.assertEqual(done.returncode, 6)
        self.assertEqual((self.folder / "kept.txt").read_text(), "mine")

    def test_other_files_are_not_written_over(self):
        precious = self.file("precious.txt", "precious")
        done = self.mcc("log", "best", self.log, "-o", precious)
        self.assertEqual(done.returncode, 6)
        self.assertIn("is not a tuning log: it will not be written to", done.stderr)
        self.assertEqual(precious.read_text(), "precious")


if __name__ == "__main__":
    unittest.main(verbosity=1)
