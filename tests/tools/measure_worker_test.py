#!/usr/bin/env python3
"""mcc measure-worker on its own: garbage in, the end of its input, a parent that is killed."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

MCC = os.path.abspath(os.environ.get("MCC", "build/bin/mcc"))


def matmul(n):
    return f"""func f(x: f32[{n}, {n}], w: f32[{n}, {n}]) -> (y: f32[{n}, {n}]) {{
  for i in {n} {{ for j in {n} {{ for k in {n} {{
    block y(a = i: spatial {n}, b = j: spatial {n}, c = k: reduce {n})
        reads y[a, b], x[a, c], w[c, b]
        writes y[a, b] {{
      init {{ y[a, b] = 0.0 }}
      y[a, b] = y[a, b] + x[a, c] * w[c, b]
    }}
  }} }} }}
}}"""


def request(n=32, **changes):
    return json.dumps({"version": 1, "id": 5, "task": matmul(n), "target": "cpu",
                       "candidates": ["vectorize(loop=\"j\")"], **changes}) + "\n"


def talk(text, timeout=120):
    done = subprocess.run([MCC, "measure-worker"], input=text.encode(), capture_output=True, timeout=timeout)
    return done, [json.loads(line) for line in done.stdout.splitlines()]


# Rows of any number: y = x * 2.
def rows(annotation):
    return f"""func f<n>(x: f32[n, 8]) -> (y: f32[n, 8]) @{{sizes="1..~64"{annotation}}} {{
  for i in n {{ for j in 8 {{
    block y(a = i: spatial n, b = j: spatial 8) reads x[a, b] writes y[a, b] {{ y[a, b] = x[a, b] * 2.0 }}
  }} }}
}}"""


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class MeasureWorker(unittest.TestCase):
    def test_a_request_is_served_after_the_input_has_ended(self):
        done, messages = talk(request())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(messages[-1], {"id": 5, "event": "done"})
        results = [m["measurement"] for m in messages if m["event"] == "result"]
        self.assertEqual([r["error"] for r in results], ["none"])
        self.assertTrue(results[0]["is_checked"])
        # What comes after a run is in nobody's time.
        doing = [m["event"] for m in messages if m["event"] in ("run", "check")]
        self.assertEqual(doing[:2], ["run", "check"])

    def test_open_dimensions_are_measured_at_the_first_sample_and_compared_at_all(self):
        task = rows(', samples="64, 13"')
        _, messages = talk(request(task=task, candidates=['split(loop="i", factors=[0, 4])\nvectorize(loop="j")']))
        result = [m["measurement"] for m in messages if m["event"] == "result"][0]
        self.assertEqual((result["error"], result["is_checked"]), ("none", True), result["message"])
        doing = [m["event"] for m in messages if m["event"] in ("run", "check")]
        self.assertEqual(doing[:4], ["run", "check", "run", "check"])
        for annotation in ("", ', samples="64 2"', ', samples="64, x"', ', samples="99999999999"'):
            _, messages = talk(request(task=rows(annotation), candidates=[""]))
            self.assertEqual(messages[-1]["event"], "error")
            self.assertIn("symbolic dimensions without samples", messages[-1]["errors"][0]["message"])
        _, messages = talk(request(task=rows(', samples="64, 0"'), candidates=[""]))
        self.assertIn("expected sizes from 1 to 1000000000, got 0", messages[-1]["errors"][0]["message"])
        _, messages = talk(request(task=rows(', samples="64, 1000000000"'), candidates=[""]))
        self.assertIn("at sizes 1000000000 need more than", messages[-1]["errors"][0]["message"])

    def test_garbage_is_answered_and_the_next_request_served(self):
        garbage = ["{}", "[]", "\0\1\2", "x" * 100000, '{"version": 1, "task": 3}', "[" * 10000,
                   request(task="func f() -> () {").strip(),
                   request(task=matmul(32).replace("y[a, b] +", "y[a, b + 40] +")).strip(),
                   request(target="gpu:9").strip(), request(target="/etc/passwd").strip()]
        for line in garbage:
            done, messages = talk(line + "\n" + request())
            self.assertEqual(done.returncode, 0, (line[:60], done.stderr))
            errors = [m for m in messages if m["event"] == "error"]
            self.assertEqual(len(errors), 1, line[:60])
            self.assertTrue(errors[0]["errors"][0]["message"], line[:60])
            self.assertEqual(messages[-1], {"id": 5, "event": "done"}, line[:60])

    def test_traces_that_are_no_traces_are_refused(self):
        traces = ["", "nonsense", "split(loop=\"i\", factors=[0, 0])", "split(loop=\"i\", factors=[0, 99999999999999999999])",
                  "unroll(loop=\"" + "i" * 100000 + "\")", "vectorize(loop=\"j\")\n" * 5000]
        done, messages = talk(request(candidates=traces))
        self.assertEqual(done.returncode, 0, done.stderr)
        errors = {m["candidate"]: m["measurement"]["error"] for m in messages if m["event"] == "result"}
        self.assertEqual(errors, {0: "none", 1: "refused", 2: "refused", 3: "refused", 4: "refused", 5: "refused"})

    def test_a_line_that_is_too_long_ends_it(self):
        done, messages = talk("x" * (70 << 20) + "\n" + request())
        self.assertEqual(done.returncode, 3)
        self.assertIn("longer than", messages[-1]["errors"][0]["message"])

    def test_a_processor_does_one_thing_at_a_time(self):
        _, messages = talk(request() + request(id=6) + request(id=7, candidates=["nonsense"]))
        self.assertEqual([m["id"] for m in messages], sorted(m["id"] for m in messages))
        self.assertEqual([m["id"] for m in messages if m["event"] == "done"], [5, 6, 7])

    # The stand-in driver's kernel never ends; what comes next is built all the same.
    @unittest.skipIf(len(os.sched_getaffinity(0)) < 2, "one processor measures or builds")
    def test_a_gpu_measures_while_the_next_request_is_built(self):
        gpu = {"target": "cuda:sm_80", "task": rows("").replace("<n>", "").replace("f32[n, 8]", "f32[64, 8]").replace("n {", "64 {")
               .replace("spatial n", "spatial 64").replace('sizes="1..~64"', "")}
        threads = "split(loop=\"i\", factors=[0, {0}], names=[\"b\", \"t\"])\nbind(loop=\"b\", thread=\"block.x\")\nbind(loop=\"t\", thread=\"thread.x\")"
        environment = {**os.environ, "LD_LIBRARY_PATH": os.path.join(os.path.dirname(MCC), "../tests/fake_cuda"),
                       "FAKE_CUDA_RUN": "1", "FAKE_CUDA_LAUNCH": "x=hang"}
        with subprocess.Popen([MCC, "measure-worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as worker:
            for number, n in ((5, 32), (6, 64)):
                worker.stdin.write(request(id=number, candidates=[threads.replace("{0}", str(n))], **gpu).encode())
            worker.stdin.flush()
            events = []
            for line in worker.stdout:
                message = json.loads(line)
                events.append((message["id"], message["event"]))
                if {(5, "run"), (6, "built")} <= set(events) or message["event"] == "error":
                    break
            worker.kill()
        self.assertIn((6, "built"), events)
        self.assertNotIn((5, "result"), events)

    def test_it_dies_with_its_parent_whatever_it_does(self):
        # The parent starts a worker that will be busy for minutes, and is killed.
        code = ("import subprocess, sys, time\n"
                "p = subprocess.Popen([sys.argv[1], 'measure-worker'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
                "p.stdin.write(open(sys.argv[2], 'rb').read()); p.stdin.flush()\n"
                "while b'\"run\"' not in p.stdout.readline(): pass\n"
                "print(p.pid, flush=True)\n"
                "time.sleep(1000)\n")
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(request(1536, candidates=[""]))
            file.flush()
            parent = subprocess.Popen([sys.executable, "-c", code, MCC, file.name], stdout=subprocess.PIPE, text=True)
            worker = int(parent.stdout.readline())
            self.assertTrue(is_alive(worker))
            parent.send_signal(signal.SIGKILL)
            parent.wait()
            parent.stdout.close()
            end = time.monotonic() + 30
            begin = time.monotonic()
            while is_alive(worker) and time.monotonic() < end:
                time.sleep(0.01)
            self.assertFalse(is_alive(worker))
            # The run alone takes longer than that.
            self.assertLess(time.monotonic() - begin, 30)


if __name__ == "__main__":
    program = unittest.main(exit=False, verbosity=0)
    failed = len(program.result.failures) + len(program.result.errors)
    print(f"{program.result.testsRun - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)
