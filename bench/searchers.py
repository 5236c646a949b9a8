"""mcc's tuner beside TVM's MetaSchedule: scripts/bench --searchers ...

Matrix products of f32, one thread: each searches as its users would have it, TVM with a fixed number of trials, mcc until it is
done; then the kernels that they found are timed in turns, each in a process of its own. TVM knows no constant weights here, so the
comparison is with mcc's product of two variables; what constant weights, packed beforehand, would make of it stands beside.
Writes Markdown and JSON into bench/results/.
"""
import argparse
import datetime
import importlib.metadata
import json
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "golden")]

import machine  # noqa: E402
from tuning import Bench  # noqa: E402


class Tvm:
    """TVM's search, and then its kernel, in a process of its own."""

    def __init__(self, n, trials):
        self.process = subprocess.Popen([sys.executable, HERE / "tvm_search.py", str(n), str(trials)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.search = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"TVM ended with status {self.process.wait()}")
        return json.loads(line)

    def us(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.answer()["us"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Mcc:
    """mcc's search for one model, and its kernels."""

    def __init__(self, bench, model, seconds):
        task = bench.main_task(model)
        log = bench.folder / f"{model.stem}.json"
        start = time.time()
        bench.tune(model, task, "auto", "auto", 100_000, seconds, log=log)
        took = time.time() - start
        found = bench.read(log, task, start)
        self.bench, self.text = bench, found.task
        self.traces = {"default": found.default, "tuned": bench.picked(log)}
        self.search = {"trials": len(found.rows), "seconds": took}

    def us(self):
        times = self.bench.again(self.text, list(self.traces.values()), 1)
        return {name: times[trace] for name, trace in self.traces.items()}


def write_models(folder, n):
    import tasks  # needs onnx, which --help does not

    folder.mkdir(exist_ok=True)
    tasks.model(folder, f"variables_{n}", [tasks.helper.make_node("MatMul", ["a", "b"], ["y"])], {"a": (n, n), "b": (n, n)}, {"y": (n, n)})
    tasks.matmul(folder, f"weights_{n}", n, n, n)


def compare(bench, n, options):
    write_models(bench.folder / "models", n)
    tvm = Tvm(n, options.trials)
    mcc = {kind: Mcc(bench, bench.folder / "models" / f"{kind}_{n}.onnx", options.seconds) for kind in ("variables", "weights")}
    row = {"n": n, "tvm": {**tvm.search, "us": float("inf")}}
    for kind, found in mcc.items():
        row[kind] = {**found.search, "default_us": float("inf"), "us": float("inf")}
    for _ in range(options.rounds):
        row["tvm"]["us"] = min(row["tvm"]["us"], tvm.us())
        for kind, found in mcc.items():
            times = found.us()
            row[kind]["us"] = min(row[kind]["us"], times["tuned"])
            row[kind]["default_us"] = min(row[kind]["default_us"], times["default"])
    tvm.close()
    return row


def markdown(result):
    cpu = result["machine"]
    lines = [f"# Searchers, {result['date']}", "",
             f"{cpu['name']}, {cpu['cpus']} CPUs, load {cpu['load_at_start']} at the start; one thread; mcc {result['version']}, TVM {result['tvm']}. "
             "GFLOP/s (times in turns, the least of each), trials and seconds of the search, everything included.", "",
             "| matmul | TVM | mcc, two variables: default | tuned | mcc, constant weights: default | tuned | TVM / mcc: run time | tuning time | ms a trial |",
             "|---|---|---|---|---|---|---|---|---|"]
    for r in result["rows"]:
        def gflops(us):
            return f"{2 * r['n'] ** 3 / us / 1e3:.0f}"

        def search(of):
            return f"{gflops(of['us'])} ({of['trials']} in {of['seconds']:.1f} s)"

        tvm, mine = r["tvm"], r["variables"]
        each = [1e3 * of["seconds"] / of["trials"] for of in (tvm, mine)]
        lines.append(f"| {r['n']}^3 | {search(tvm)} | {gflops(mine['default_us'])} | {search(mine)} | {gflops(r['weights']['default_us'])} | "
                     f"{search(r['weights'])} | {tvm['us'] / mine['us']:.2f} | {tvm['seconds'] / mine['seconds']:.1f} | {each[0]:.0f} / {each[1]:.0f} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench --searchers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mcc", default=str(HERE.parent / "build/bin/mcc"))
    parser.add_argument("--sizes", default="128,512,1024")
    parser.add_argument("--trials", type=int, default=64, help="of TVM, a product")
    parser.add_argument("--seconds", type=int, default=60, help="that mcc may search at most, a product")
    parser.add_argument("--rounds", type=int, default=4, help="turns of timing")
    parser.add_argument("--cap", type=float, default=1800, help="seconds that one run of mcc may take")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "results")
    options = parser.parse_args()
    result = {"date": datetime.date.today().isoformat(), "machine": machine.cpu_facts(), "version": machine.source_version(),
              "tvm": importlib.metadata.version("apache-tvm"), "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options.mcc, pathlib.Path(folder), options.cap)
        for n in map(int, options.sizes.split(",")):
            result["rows"].append(compare(bench, n, options))
            print(json.dumps(result["rows"][-1]), file=sys.stderr, flush=True)
    machine.save(options.out, result["date"], result["machine"]["name"], "-searchers", result, markdown(result))
    print(markdown(result))


if __name__ == "__main__":
    main()
