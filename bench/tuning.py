"""What tuning finds, and how soon: scripts/bench --tuning [--quick] ...

For each kernel (matrix products; the distinct convolutions of ResNet-50), one thread: the default schedule, what is found with 20 trials,
in a minute, and with all trials, each going on with the log of the one before; then each search and cost model at equal trials and at
equal seconds. All times are taken again at the end, in processes of their own, in turns, so that a drift of the machine meets all alike.
Writes Markdown and JSON into bench/results/.
"""
import argparse
import collections
import datetime
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "golden")]

import machine  # noqa: E402
from runtimes import run_json  # noqa: E402

# size, channels in and out, window, stride: ResNet-50's, without those that differ in nothing but the epilogue.
RESNET = [(56, 64, 64, 1, 1), (56, 64, 64, 3, 1), (56, 64, 256, 1, 1), (56, 256, 64, 1, 1), (56, 256, 128, 1, 1), (56, 128, 128, 3, 2),
          (28, 128, 512, 1, 1), (56, 256, 512, 1, 2), (28, 512, 128, 1, 1), (28, 128, 128, 3, 1), (28, 512, 256, 1, 1), (28, 256, 256, 3, 2),
          (14, 256, 1024, 1, 1), (28, 512, 1024, 1, 2), (14, 1024, 256, 1, 1), (14, 256, 256, 3, 1), (14, 1024, 512, 1, 1), (14, 512, 512, 3, 2),
          (7, 512, 2048, 1, 1), (14, 1024, 2048, 1, 2), (7, 2048, 512, 1, 1), (7, 512, 512, 3, 1), (224, 3, 64, 7, 2)]
CONTESTANTS = [("random", "none"), ("genetic", "none"), ("evolutionary", "auto"), ("draft", "analyzer"), ("draft", "auto"), ("auto", "none"),
               ("auto", "analyzer"), ("auto", "xgboost"), ("auto", "auto")]
QUICK = ("matmul_128", "conv_14_1024_256_1_1", "conv_14_256_256_3_1", "conv_56_128_128_3_2")


def write_models(folder):
    import tasks  # needs onnx, which --help does not

    folder.mkdir(parents=True)
    for n in (128, 512, 1024):
        tasks.matmul(folder, f"matmul_{n}", n, n, n)
    for size, cin, cout, kernel, stride in RESNET:
        tasks.conv(folder, f"conv_{size}_{cin}_{cout}_{kernel}_{stride}", size, cin, cout, kernel, stride=stride)


class Trials:
    """The trials of one run: (seconds since the start, microseconds or None, text of the schedule)."""

    def __init__(self, task, rows, default):
        self.task, self.rows, self.default = task, rows, default

    def best(self, seconds):
        """Of what a search had measured by then, not raced."""
        rows = [r for r in self.rows if r[1] is not None and r[0] <= seconds]
        return min(rows, key=lambda r: r[1])[2] if rows else self.default


class Bench:
    def __init__(self, mcc, folder, cap):
        self.mcc, self.folder, self.cap = mcc, folder, cap

    def main_task(self, model):
        listing = run_json([self.mcc, "tasks", model, "--threads", 1, "--json"], self.cap)
        return max(listing["tasks"], key=lambda t: t["flops"])["id"]

    def tune(self, model, task, search, cost_model, trials, seconds=None, seed=0, log=None):
        log = log or self.folder / "tune.json"
        command = [self.mcc, "tune", model, "--tasks", task, "--threads", "1", "--tune-log", log, "--no-check", "--trials", str(trials),
                   "--tuner", search, "--cost-model", cost_model, "--seed", str(seed)]
        if seconds:
            command += ["--time", f"{seconds}s"]
        start = time.time()
        subprocess.run(command, capture_output=True, check=True, timeout=self.cap)
        return start

    def read(self, log, task, start):
        rows, default, text = [], None, ""
        for line in log.read_text().splitlines():
            record = json.loads(line)
            if record["kind"] == "task":
                text = record["text"] if record["id"] == task else text
                continue
            if record["source"] == "final" or (record["source"] == "default" and default is not None):
                continue  # measured once more
            usable = record["error"] == "none" and record["times_us"] and not record["censored"]
            rows.append((record["time"] - start, min(record["times_us"]) if usable else None, record["trace"]))
            if record["source"] == "default":
                default = record["trace"]
        return Trials(text, rows, default)

    def fresh(self, model, task, search, cost_model, trials, seed):
        log = self.folder / "fresh.json"
        log.unlink(missing_ok=True)
        start = self.tune(model, task, search, cost_model, trials, seed=seed, log=log)
        took = time.time() - start  # a log's own times are whole seconds
        return self.read(log, task, start), self.picked(log), took

    def picked(self, log):
        """The schedule that a log stands for."""
        best = self.folder / "best.json"
        subprocess.run([self.mcc, "log", "best", log, "-o", best], capture_output=True, check=True, timeout=self.cap)
        return json.loads(best.read_text().splitlines()[-1])["trace"]

    def long(self, model, task, trials, seconds):
        """20 trials, then what is left of the time, then on beyond plateaus with other seeds until there are so many trials."""
        log = self.folder / "long.json"
        log.unlink(missing_ok=True)
        picks = {}
        start = self.tune(model, task, "auto", "auto", 20, log=log)
        picks["20"] = self.picked(log)
        seed, count = 1, 0
        while time.time() - start < seconds - 1 and seed < 32:
            self.tune(model, task, "auto", "auto", trials, max(1, round(seconds - (time.time() - start))), seed=seed, log=log)
            found = self.read(log, task, start)
            if len(found.rows) == count:
                break
            seed, count = seed + 1, len(found.rows)
        picks["time"] = self.picked(log)
        while count < trials and seed < 64:
            self.tune(model, task, "auto", "auto", trials - count, seed=seed, log=log)
            found = self.read(log, task, start)
            if len(found.rows) == count:
                break
            seed, count = seed + 1, len(found.rows)
        picks["all"] = self.picked(log)
        picks["default"] = found.default
        found.took = time.time() - start
        return found, picks

    def again(self, text, traces, rounds):
        """The least time of each schedule, in microseconds."""
        unique = list(dict.fromkeys(traces))
        best, bound = collections.defaultdict(lambda: math.inf), {}
        patient = {"threads": 1, "is_fresh": True, "patience": 8, "precision": 0}
        request = json.dumps({"version": 1, "id": 1, "task": text, "target": "cpu", "candidates": unique, "options": patient})
        for _ in range(rounds):
            done = subprocess.run([self.mcc, "measure-worker"], input=request + "\n", capture_output=True, text=True, timeout=self.cap)
            for line in done.stdout.splitlines():
                message = json.loads(line)
                if message.get("event") == "result" and message["measurement"]["times_us"]:
                    trace, found = unique[message["candidate"]], message["measurement"]
                    times = bound if found["is_censored"] else best
                    times[trace] = min(times.get(trace, math.inf), *found["times_us"])
        return {**bound, **best}


def geometric_mean(values):
    values = [v for v in values if v > 0]
    return math.exp(sum(map(math.log, values)) / len(values)) if values else 0


def run_kernel(bench, model, options):
    task = bench.main_task(model)
    found, picks = bench.long(model, task, options.trials, options.seconds)
    runs = {}
    for search, cost_model in options.contestants:
        for seed in range(1, options.seeds + 1):
            trials, picked, took = bench.fresh(model, task, search, cost_model, options.equal_trials, seed)
            at_seconds = picked if took <= options.equal_seconds else trials.best(seconds=options.equal_seconds)
            runs[search, cost_model, seed] = (picked, at_seconds, took / max(len(trials.rows), 1))
    traces = list(picks.values()) + [t for run in runs.values() for t in run[:2]]
    us = bench.again(found.task, [t for t in traces if t], options.rounds)
    best = min(us.values())
    row = {"kernel": model.stem, "best_us": best, "trials": len(found.rows), "seconds": found.took}
    row["share"] = {name: best / us[trace] for name, trace in picks.items() if trace}
    row["searches"] = {}
    for search, cost_model in options.contestants:
        mine = [runs[search, cost_model, seed] for seed in range(1, options.seeds + 1)]
        row["searches"][f"{search}, {cost_model}"] = {
            "trials": geometric_mean([best / us[m[0]] for m in mine]), "seconds": geometric_mean([best / us[m[1]] for m in mine]),
            "seconds_per_trial": sum(m[2] for m in mine) / len(mine)}
    return row


def markdown(result, options):
    rows = result["kernels"]
    cpu = result["machine"]
    lines = [f"# Tuning, {result['date']}", "", f"{cpu['name']}, {cpu['cpus']} CPUs, load {cpu['load_at_start']} at the start; one thread; mcc {result['version']}. "
             "Share of the best that any run here found.", "",
             f"| kernel | best, us | default | 20 trials | {options.seconds} s | all trials | trials, s |", "|---|---|---|---|---|---|---|"]
    for r in rows:
        s = r["share"]
        lines.append(f"| {r['kernel']} | {r['best_us']:.1f} | " + " | ".join(f"{s.get(k, 0):.1%}" for k in ("default", "20", "time", "all"))
                     + f" | {r['trials']}, {r['seconds']:.0f} |")
    lines.append("| geometric mean | | " + " | ".join(f"{geometric_mean([r['share'].get(k, 0) for r in rows]):.1%}" for k in ("default", "20", "time", "all")) + " | |")
    if not rows[0]["searches"]:
        return "\n".join(lines) + "\n"
    lines += ["", f"| search, model | {options.equal_trials} trials | {options.equal_seconds} s | ms a trial |", "|---|---|---|---|"]
    for name in rows[0]["searches"]:
        mine = [r["searches"][name] for r in rows]
        lines.append(f"| {name} | {geometric_mean([m['trials'] for m in mine]):.1%} | {geometric_mean([m['seconds'] for m in mine]):.1%} | "
                     f"{sum(m['seconds_per_trial'] for m in mine) / len(mine) * 1e3:.0f} |")
    return "\n".join(lines) + "\n"


def parse_arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench --tuning", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mcc", default=str(HERE.parent / "build/bin/mcc"))
    parser.add_argument("--quick", action="store_true", help="four kernels, few trials: some minutes")
    parser.add_argument("--kernels", help="only those whose name contains one of these, by comma")
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--equal-trials", type=int, default=100)
    parser.add_argument("--equal-seconds", type=float, default=5)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-searches", action="store_true", help="only what the tuner finds, not what each search and cost model does")
    parser.add_argument("--cap", type=float, default=1800, help="seconds that one run of mcc may take")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "results")
    options = parser.parse_args()
    options.contestants = [] if options.no_searches else CONTESTANTS
    if options.quick:
        options.trials, options.seconds, options.equal_trials, options.equal_seconds, options.seeds = 128, 10, 48, 2, 1
        options.kernels = options.kernels or ",".join(QUICK)
        options.contestants = options.contestants and [("random", "none"), ("draft", "auto"), ("auto", "analyzer"), ("auto", "auto")]
    return options


def write(result, options):
    machine.save(options.out, result["date"], result["machine"]["name"], "-tuning", result, markdown(result, options))


def main():
    options = parse_arguments()
    date = datetime.date.today().isoformat()
    result = {"date": date, "machine": machine.cpu_facts(), "version": machine.source_version(), "kernels": []}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        write_models(folder / "models")
        bench = Bench(options.mcc, folder, options.cap)
        for model in sorted((folder / "models").glob("*.onnx"), key=lambda m: m.stem):
            if options.kernels and not any(part in model.stem for part in options.kernels.split(",")):
                continue
            result["kernels"].append(run_kernel(bench, model, options))
            print(json.dumps(result["kernels"][-1]), file=sys.stderr, flush=True)
            write(result, options)  # a run of hours may be cut short
    if not result["kernels"]:
        sys.exit("no kernel has such a name")
    print(markdown(result, options))


if __name__ == "__main__":
    main()
