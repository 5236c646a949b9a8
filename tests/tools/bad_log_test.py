#!/usr/bin/env python3
"""Tuning logs that are cut, foreign, impossible, endless or hostile: a sentence says so, the good records are used, nothing
of a log is run, and the exit code is right; through every command that reads one."""

import json
import os
import pathlib
import random
import subprocess
import unittest

import numpy as np

from tuning_log_test import MCC, LogCase, compact


def measured(command, folder, timeout=300):
    """Runs it: exit code, stdout, stderr, and the most memory that it had, in bytes."""
    with open(folder / "stdout", "w+b") as out, open(folder / "stderr", "w+b") as err:
        process = subprocess.Popen([MCC, *map(str, command)], stdout=out, stderr=err, cwd=folder)
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        process.returncode = os.waitstatus_to_exitcode(status)
        return (process.returncode, (folder / "stdout").read_text(), (folder / "stderr").read_text(),
                usage.ru_maxrss * 1024)


class BadLogs(LogCase):
    def setUp(self):
        self.task = next(t for t in self.tasks["tasks"] if "first" in t["onnx_nodes"])

    def log_with(self, lines, name="bad.json"):
        """A log of good records of all tasks, and these lines."""
        return self.file(name, self.log_text() + "".join(line + "\n" for line in lines))

    def commands(self, log):
        """Every command that reads a log, and what it must not have changed when it refuses."""
        return [("compile", self.model, "-o", "never.so", "--tune-log", log),
                ("log", "show", log), ("log", "best", log, "-o", "never.json"), ("log", "merge", log, "-o", "never.json"),
                ("log", "diff", log, log), ("log", "prune", log, "-o", "never.json"), ("log", "verify", log, self.model),
                ("log", "report", log, "-o", "never.html"), ("inspect", log),
                ("tune", self.model, "--tune-log", log, "--time", "0s", "--no-check")]

    def clear(self):
        for name in ("never.so", "never.json", "never.html"):
            (self.folder / name).unlink(missing_ok=True)

    def assert_refused(self, log, said, code=6, skip=()):
        content = pathlib.Path(log).read_bytes() if pathlib.Path(log).is_file() else None
        for command in self.commands(log):
            if command[0] in skip:
                continue
            self.clear()
            done = self.mcc(*command)
            self.assertEqual(done.returncode, code, (command, done.stderr))
            self.assertIn(said, done.stderr, command)
            for name in ("never.so", "never.html"):
                self.assertFalse((self.folder / name).exists(), command)
        if content is not None:
            self.assertEqual(pathlib.Path(log).read_bytes(), content)

    def assert_used(self, log, said, exact=None):
        """The good records count with every command."""
        for command in self.commands(log):
            self.clear()
            done = self.mcc(*command)
            self.assertEqual(done.returncode, 0, (command, done.stderr))
            if said is not None:
                self.assertIn(said, done.stderr, command)
        self.compile("--tune-log", log, "--locked", output="used.so")
        np.testing.assert_allclose(self.outputs("used.so"), self.outputs("plain.so"), rtol=1e-4, atol=1e-6)

    def test_cut_at_any_byte(self):
        whole = self.log_text(only={0}).encode()
        ends = [i for i, byte in enumerate(whole) if byte == 10]
        cuts = sorted({0, 1, 5, *ends, *(e + 1 for e in ends), *random.Random(4).sample(range(len(whole)), 40)})
        path = self.folder / "cut.json"
        for cut in cuts:
            path.write_bytes(whole[:cut])
            report = self.json_of("log", "show", path)
            lines = whole[:cut].count(b"\n") + (cut < len(whole) and whole[cut:cut + 1] == b"\n" and cut > 0)
            self.assertEqual(sum(t["trials"] for t in report["tasks"]), max(lines - 1, 0), cut)
            self.assertLessEqual(report["lines_left_out"], 1)
        for cut in cuts[::6]:
            path.write_bytes(whole[:cut])
            # A last line that only lacks its end counts.
            count = whole[:cut].count(b"\n") + (cut in ends)
            records = [json.loads(line) for line in whole.split(b"\n")[:count]]
            has_valid = any(r["kind"] == "trial" and r["error"] == "none" for r in records)
            done = self.mcc("compile", self.model, "-o", "cut.so", "--tune-log", path, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["schedules"]["exact"], int(has_valid), cut)
            # Going on takes the cut line off.
            done = self.mcc("tune", self.model, "--tune-log", path, "--trials", 1, "--no-check", "--tasks", self.task["id"])
            self.assertEqual(done.returncode, 0, done.stderr)
            for line in path.read_text().splitlines():
                json.loads(line)

    def test_empty(self):
        for name, content in (("empty.json", ""), ("blank.json", "\n\n")):
            report = self.compile("--tune-log", self.file(name, content))["schedules"]
            self.assertEqual((report["exact"], report["default"]), (0, len(self.tasks["tasks"])))
            self.assertIn("has no trials: the default schedules are used", report["notes"][0])
            self.compile("--tune-log", self.folder / name, "--locked", code=6)

    def test_another_machine(self):
        there = "x86_64-unknown-linux-gnu other 128 bits, features 0123456789abcdef"
        lines = []
        for task in self.tasks["tasks"]:
            lines += [self.task_line(task), self.trial(task, 3, target=there, point={"no.such": [1]}),
                      self.trial(task, 4, target=there)]
        log = self.file("there.json", "\n".join(lines) + "\n")
        report = self.compile("--tune-log", log)
        self.assertEqual(report["schedules"]["exact"], 0)
        self.assertIn(f"has trials of another machine only ({there}), this is {self.tasks['target']}", report["schedules"]["notes"][0])
        np.testing.assert_allclose(self.outputs("out.so"), self.outputs("plain.so"), rtol=1e-4, atol=1e-6)
        refused = self.compile("--tune-log", log, "--locked", code=6)
        self.assertIn(self.tasks["target"], json.dumps(refused))
        done = self.run_ok("tune", self.model, "--tune-log", log, "--trials", 4, "--no-check", "--tasks", self.task["id"], "--json")
        self.assertEqual(json.loads(done.stdout)["known_trials"], 0)
        self.assertIn(f"{2 * len(self.tasks['tasks'])} trials are from another machine ({there})", done.stderr)
        self.assertEqual(self.compile("--tune-log", log)["schedules"]["exact"], 1)
        # Other threads: their decisions are a near match, and said to be one.
        threads = self.tasks["threads"] + 1
        text = "\n".join([self.task_line(self.task), self.trial(self.task, 3, threads=threads)])
        self.compile("--tune-log", self.file("threads.json", text), "--locked", code=6)

    def test_another_version(self):
        self.assert_refused(self.file("later.json", '{"v":2,"kind":"anything"}\n'), "version")
        self.assert_used(self.log_with(['{"v":2,"kind":"trial","task":7}']), "the line is of version 2, this mcc reads version 1")
        old = self.log_text().replace('{"v":1,', '{"v":0,')
        self.assert_refused(self.file("old.json", old), "is not a tuning log")
        self.assertIn("v: expected version 1, got 0", self.mcc("log", "show", self.folder / "old.json").stderr)
        # Fields that a later mcc may add change nothing.
        more = self.log_text().replace('"kind":', '"added":{"a":[1,{"b":null}]},"kind":')
        self.assert_used(self.file("more.json", more), None)
        # Another mcc's tasks: other texts under the same ids.
        task = dict(self.task, text=self.task["text"].replace("64", "65"))
        log = self.file("texts.json", "\n".join([self.task_line(task), self.trial(task, 1)]) + "\n")
        self.assertEqual(self.compile("--tune-log", log)["schedules"]["exact"], 0)
        self.compile("--tune-log", log, "--locked", code=6)

    def test_impossible_factors(self):
        (block,) = [b for b in self.traces[self.task["id"]].split('"') if b.endswith(".i")][:1] or ["matmul.i"]
        bad = [f'split(loop="{block}", factors=[{factors}])' for factors in
               ("0, 4", "-4, 4", "4, -1", "4611686018427387904, 4", "4611686018427387904, 4611686018427387904",
                "9223372036854775807, -1", "99999999999999999999999, 2", "7, 5", "", "1.5, 2", "0x10, 3", "-1, -1")]
        bad += [f'unroll(loop="{block}", factor=0)', f'vectorize(loop="{block}")\nvectorize(loop="{block}")',
                f'annotate(loop="{block}", key="x", value=4611686018427387904)']
        # They are the fastest by far, and may not decide.
        lines = [self.trial(self.task, 1e-3 * (i + 1), trace=trace) for i, trace in enumerate(bad)]
        log = self.log_with(lines, "all.json")
        report = self.compile("--tune-log", log)["schedules"]
        self.assertGreaterEqual(report["exact"], len(self.tasks["tasks"]) - 1)
        self.assertTrue(report["notes"])
        np.testing.assert_allclose(self.outputs("out.so"), self.outputs("plain.so"), rtol=1e-4, atol=1e-6)
        # One at a time: left out or refused, and the good one is used.
        for line in lines:
            report = self.compile("--tune-log", self.log_with([line]), "--locked")["schedules"]
            self.assertEqual(report["exact"], len(self.tasks["tasks"]))
            self.assertEqual(report["log_lines_left_out"] + len([n for n in report["notes"] if "does not apply" in n]) > 0 or
                             "7, 5" in line, True, (line, report))
        done = self.mcc("log", "verify", log, self.model, "-k", 30)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("no longer apply", done.stderr)
        # Decisions of that kind, as near matches.
        for answer in ([0], [-4], [2**53], [0, 0, 0], []):
            point = {f"{self.task['name'].split('_')[0]}.rows": answer}
            lines = [self.task_line(self.task), self.trial(self.task, 1, threads=self.tasks["threads"] + 1, point=point)]
            report = self.compile("--tune-log", self.file("point.json", "\n".join(lines) + "\n"))["schedules"]
            self.assertEqual(report["exact"], 0)
            np.testing.assert_allclose(self.outputs("out.so"), self.outputs("plain.so"), rtol=1e-4, atol=1e-6)

    def test_hostile_lines(self):
        good = json.loads(self.trial(self.task, 1e-3))
        task = json.loads(self.task_line(self.task))
        changed = lambda **fields: compact({**good, **fields})
        hostile = {
            "nested arrays": '{"v":1,"kind":' + "[" * 100000,
            "nested objects": '{"v":1,"x":' + '{"a":' * 100000 + "1" + "}" * 100000 + "}",
            "nested point": changed(point=None).replace('"point":null', '"point":' + '{"a":' * 1000 + "1" + "}" * 1000),
            "a long line": changed(message="x" * (5 << 20)),
            "a long name": changed(target="t" * 100000),
            "a number for a name": changed(task=5),
            "a string for times": changed(times_us="1"),
            "strings in times": changed(times_us=["1"]),
            "no time": changed(times_us=[0]),
            "a negative time": changed(times_us=[-1]),
            "an infinite time": changed(times_us=[1]).replace("[1]", "[1e999]"),
            "not a number": changed(times_us=[1]).replace("[1]", "[NaN]"),
            "null": changed(threads=None),
            "no threads": changed(threads=0),
            "too many threads": changed(threads=2**62),
            "an unknown error": changed(error="none of these"),
            "a list for a line": compact([good]),
            "a key twice": changed().replace('"threads":', '"threads":1,"threads":'),
            "the version twice": changed().replace('"kind":', '"v":1,"kind":', 1),
            "a decision twice": changed(point={"a": [1]}).replace('"a":[1]', '"a":[1],"a":[2]'),
            "a NUL byte": changed(name="x").replace('"task"', '"ta\0sk"', 1),
            "NUL bytes": "\0" * 1000,
            "a task that is not there": changed(task="nowhere"),
            "a path for a task": changed(task="../../etc/passwd"),
            "another text under the same id": compact({**task, "text": "func f() -> () { }"}),
            "no text": compact({k: v for k, v in task.items() if k != "text"}),
            "half a line": changed()[:200],
        }
        for what, line in hostile.items():
            log = self.log_with([line], "hostile.json")
            report = self.json_of("log", "show", log)
            self.assertEqual(report["lines_left_out"], 1, what)
            self.assertEqual(report["tasks"], self.json_of("log", "show", self.log)["tasks"], what)
        self.assert_used(self.log_with(hostile.values(), "hostile.json"), f"{len(hostile)} lines ")
        # Nothing of what is said may steer a terminal.
        log = self.log_with([changed(error="\033[2J")], "escape.json")
        self.assertNotIn("\033", self.mcc("log", "show", log).stderr)

    def test_hostile_traces(self):
        deep = "(" * 50000
        traces = ["", "fly()", 'vectorize(loop="nowhere")', 'compute_inline(block="nothing")', 'split(loop="", factors=[2])',
                  'cache_read(block="first", buffer=99999, scope="register")', "split(" + deep, 'split(loop="' + "i" * 300000 + '")',
                  'tensorize(loop="i", instruction="rm -rf /")', "func f() -> () { }", "\0", "; ls", "$(touch pwned)",
                  'set_scope(buffer="/etc/passwd", scope="shared")', 'unroll(loop="matmul.i")\n' * 20000]
        lines = [self.trial(self.task, 1e-3 * (i + 1), trace=trace) for i, trace in enumerate(traces[1:])]
        lines.append(self.trial(self.task, 1e-3, sketch="no such sketch", point={"x" * 200: [1] * 16}, trace="fly"))
        for line in lines:
            report = self.compile("--tune-log", self.log_with([line]), "--locked")["schedules"]
            self.assertEqual(report["exact"], len(self.tasks["tasks"]))
            self.assertEqual(len(report["notes"]), 1, line[:300])
        log = self.log_with(lines)
        self.assert_used_or_refused_entries(log)
        self.assertFalse((self.folder / "pwned").exists())

    def assert_used_or_refused_entries(self, log):
        for command in self.commands(log):
            self.clear()
            done = self.mcc(*command)
            self.assertEqual(done.returncode, 0, (command, done.stderr[:2000]))

    def test_texts_of_tasks_are_not_run(self):
        # The report reads functions of a log to show them: those that it cannot read it leaves out.
        texts = ["func f(", "func f() -> () { }", "(" * 100000, self.task["text"].replace("64", "4611686018427387904"),
                 self.task["text"].replace("64", "0"), self.task["text"].replace("64", "-3")]
        lines = []
        for i, text in enumerate(texts):
            task = dict(self.task, id=f"{i:016x}", text=text)
            lines += [self.task_line(task), self.trial(task, 1)]
        log = self.log_with(lines)
        self.assert_used_or_refused_entries(log)
        data = self.json_of("log", "report", log)
        self.assertGreaterEqual(len(data["tasks"]), len(self.tasks["tasks"]))
        only = self.file("only.json", "\n".join(lines[:2]) + "\n")
        done = self.mcc("log", "report", only, "-o", "only.html")
        self.assertEqual(done.returncode, 6, done.stderr)
        self.assertIn("has no trial of a task that can be shown", done.stderr)

    def test_a_million_records(self):
        task = self.task
        short = lambda us, target, trace="": compact(
            {"v": 1, "kind": "trial", "task": task["id"], "target": target, "threads": self.tasks["threads"], "times_us": [us],
             "error": "none", "checked": True, "sketch": "", "point": {}, "trace": trace})
        path = self.folder / "long.json"
        with open(path, "w") as out:
            out.write(self.task_line(task) + "\n")
            far, here = short(17, "t"), short(17, self.tasks["target"])
            for i in range(1000):
                time = f"[{100 + i}"
                out.write((far.replace("[17", time) + "\n") * 930)
                out.write((here.replace("[17", time) + "\n") * 70)
            out.write(self.trial(task, 2) + "\n")
        self.assertLess(path.stat().st_size, 200e6)
        try:
            code, stdout, stderr, memory = measured(("log", "show", path, "--json"), self.folder)
            self.assertEqual(code, 0, stderr)
            self.assertEqual(sum(t["trials"] for t in json.loads(stdout)["tasks"]), 1_000_001)
            self.assertLess(memory, 300e6)
            code, stdout, stderr, memory = measured(
                ("compile", self.model, "-o", "long.so", "--tune-log", path, "--json"), self.folder)
            self.assertEqual(code, 0, stderr)
            self.assertEqual(json.loads(stdout)["schedules"]["exact"], 1)
            self.assertLess(memory, 800e6)
            (kernel,) = self.json_of("explain", "long.so", "first")["kernels"]
            self.assertEqual(kernel["trace"], self.traces[task["id"]])
            code, stdout, stderr, memory = measured(
                ("tune", self.model, "--tune-log", path, "--trials", 2, "--tasks", task["id"], "--no-check", "--json"), self.folder)
            self.assertEqual(code, 0, stderr)
            self.assertEqual(json.loads(stdout)["known_trials"], 2)  # schedules, each counts once
            self.assertIn("is long: of each task the 1000 fastest trials are remembered", stderr)
            self.assertLess(memory, 1.2e9)
            code, stdout, stderr, memory = measured(("log", "report", path, "-o", "long.html"), self.folder)
            self.assertEqual(code, 0, stderr)
            self.assertRegex(stderr, "the first 4000 of 10000[0-9]+ trials are shown")
            self.assertLess(memory, 1.2e9)
            code, stdout, stderr, memory = measured(("log", "prune", path, "-k", "2"), self.folder)
            self.assertEqual(code, 0, stderr)
            self.assertLess(path.stat().st_size, 100_000)
        finally:
            path.unlink()

    def test_not_files(self):
        os.mkfifo(self.folder / "pipe.json")
        for path in (self.folder, self.folder / "pipe.json", "/dev/zero"):
            self.assert_refused(path, "the tuning log", skip=("inspect",))
        for path in ("absent.json",):
            for command in self.commands(path):
                if command[0] in ("tune", "inspect"):
                    continue
                self.assertEqual(self.mcc(*command).returncode, 6, command)

    def test_foreign_records(self):
        """What mcc log import is given is believed as little."""
        ansor = ('{"i":[["[\\"matmul\\", 48, 96, 64]","llvm",[2,64,64,0,0,0,0,0],"",1,[]],[[],[["SP",2,0,48,[2,1,6],1],'
                 '["SP",2,4,96,[1,1,32],1],["SP",2,8,64,[2],1]]]],"r":[[3e-05],0,0.5,1.7e9],"v":"v0.6"}')
        bad = ["[" * 100000, '{"i":' + "[" * 100000, "\0\0\0", "{}", "[]", "null", '{"input":null}', '{"i":[[],[]],"r":[]}',
               ansor.replace("[2,1,6]", "[0,0,0]"), ansor.replace("[2,1,6]", "[-4,1,6]"),
               ansor.replace("[2,1,6]", "[4611686018427387904,4611686018427387904,6]"), ansor.replace(",48,", ",18446744073709551615,"),
               ansor.replace("[3e-05]", '["fast"]'), ansor.replace('"SP"', "7"), ansor[:100], "x" * (5 << 20), '[0,[[[["SamplePerfectTile",["l1"],[4,64],[]]],[[99,[1]]]],[1],null,null]]']
        path = self.file("foreign.log", "\n".join(bad) + "\n" + ansor)
        report = self.json_of("log", "import", path, "--model", self.model, "-o", "foreign.json")
        self.assertEqual((report["lines"], report["records"], report["tasks_with_seeds"]), (len(bad) + 1, 1, 1))
        self.assertEqual(sum(report["left_out"].values()), len(bad))
        # Far more rows than any register tile has: the nearest that there is.
        wild = ansor.replace("[2,1,6]", "[1,48,1]").replace("[1,1,32]", "[1,1,96]")
        self.json_of("log", "import", self.file("wild.log", wild), "--model", self.model, "-o", "wild.json")
        self.run_ok("log", "verify", "wild.json", self.model)


class NothingToTune(LogCase):
    def test_no_time(self):
        for time in ("0s", "0", "1ms"):
            log = f"none{time}.json"
            done = self.mcc("tune", self.model, "--tune-log", log, "--time", time, "--no-check")
            self.assertEqual(done.returncode, 0, done.stderr)
            if time != "1ms":
                count = len(self.tasks["tasks"])
                self.assertIn(f"nothing was measured for {count} of {count} tasks (the time is up); compile uses their default schedules",
                              done.stdout)
            self.compile("--tune-log", log)
        self.compile("--tune-log", "none0s.json", "--locked", code=6)
        for time in ("-1s", "soon", "1e99h"):
            self.assertEqual(self.mcc("tune", self.model, "--tune-log", "t.json", f"--time={time}").returncode, 2)


if __name__ == "__main__":
    unittest.main(verbosity=1)
