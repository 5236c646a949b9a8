"""The contestants. Each answers `slice(seconds)` with {"min_ms", "median_ms", "runs"}, or raises Failure."""

import json
import os
import pathlib
import select
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent


class Failure(Exception):
    """A runtime that cannot compile, load or run this model; the text is what the report shows."""


def last_line(text):
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def run_json(command, timeout):
    """The JSON document that a command prints on stdout."""
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Failure(f"no answer in {timeout:.0f} s") from None
    if done.returncode != 0:
        raise Failure(f"exit {done.returncode}: {last_line(done.stderr or done.stdout)}")
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError:
        raise Failure(f"not JSON: {last_line(done.stdout)!r}") from None


def run_measured(command, timeout):
    """Runs a command; returns (exit code, what it wrote, seconds, peak memory in MB).

    The kernel counts the parent's own memory at the time of the fork as the child's floor, which is why nothing large
    is imported in this process.
    """
    with tempfile.TemporaryFile() as log:
        start = time.perf_counter()
        process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=subprocess.STDOUT)
        deadline = start + timeout
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.perf_counter() > deadline:
                process.kill()
                os.wait4(process.pid, 0)
                process.returncode = -9
                raise Failure(f"no answer in {timeout:.0f} s")
            time.sleep(0.002)
        seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        log.seek(0)
        return process.returncode, log.read().decode(errors="replace"), seconds, usage.ru_maxrss / 1024


class Mcc:
    """mcc, driven through its command line only. A slice is one `mcc bench`."""

    def __init__(self, mcc, library, threads, name="mcc"):
        self.mcc, self.library, self.threads, self.name = mcc, library, threads, name

    @staticmethod
    def shapes(inputs):
        return [f"--input-shape={i['name']}={'x'.join(map(str, i['shape']))}" for i in inputs if i["dynamic"]]

    @staticmethod
    def compile(mcc, model, library, inputs, options=(), timeout=1800):
        """{"seconds", "peak_mb", "library_mb"}; raises Failure."""
        command = [mcc, "compile", model, "-o", library, *Mcc.shapes(inputs), *options]
        code, text, seconds, peak_mb = run_measured(command, timeout)
        if code != 0:
            raise Failure(f"compile: exit {code}: {last_line(text)}")
        return {"seconds": seconds, "peak_mb": peak_mb, "library_mb": os.path.getsize(library) / 2**20}

    @staticmethod
    def tune(mcc, model, log, inputs, threads, budget, options=(), timeout=7200):
        """Searches on, with what the log has: {"seconds", "trials", "known_trials", "kernels"}; raises Failure."""
        start = time.perf_counter()
        report = run_json([mcc, "tune", model, "--tune-log", log, "--time", budget, "--threads", threads, "--no-check",
                           "--json", *Mcc.shapes(inputs), *options], timeout)
        return {"seconds": time.perf_counter() - start, "trials": report["trials"], "known_trials": report["known_trials"],
                "kernels": len(report["tasks"])}

    def slice(self, seconds):
        report = run_json([self.mcc, "bench", self.library, "--seconds", seconds, "--threads", self.threads, "--json"],
                          timeout=seconds + 120)
        return {key: report[key] for key in ("min_ms", "median_ms", "runs")}

    def close(self):
        pass


class Peer:
    """Another runtime, in a worker process that keeps the model loaded."""

    def __init__(self, name, model, threads, dims, precision="fp32", patience=600):
        """Waits for the model to be loaded, `patience` seconds at most."""
        self.name = name
        self.process = subprocess.Popen([sys.executable, HERE / "worker.py", name, model, str(threads), precision, *dims],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            ready = self._answer(timeout=patience)
        except Failure:
            self.close()
            raise
        self.version, self.load_s = ready["version"], ready["load_s"]

    def _answer(self, timeout):
        # One line is one answer and there is never a second one under way: waiting for its start is enough.
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            raise Failure(f"no answer in {timeout:.0f} s")
        line = self.process.stdout.readline()
        if not line:
            raise Failure(f"worker ended, exit {self.process.wait()}")
        answer = json.loads(line)
        if "error" in answer:
            raise Failure(answer["error"])
        return answer

    def slice(self, seconds):
        self.process.stdin.write((json.dumps({"seconds": seconds}) + "\n").encode())
        self.process.stdin.flush()
        return self._answer(timeout=seconds + 120)

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
