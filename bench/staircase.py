#!/usr/bin/env python3
"""What each step of scheduling buys: naive, by hand, by analysis, random search, guided search; for a matrix product of
128 and for a two-layer network. The comparison that courses on machine-learning compilation make, on this machine."""

import argparse
import datetime
import os
import pathlib
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from kernels import matmul
from machine import FmaPeak, cpu_count, cpu_facts, save, source_version
from report import number, table
from runtimes import Failure, Mcc, run_json, run_measured

HERE = pathlib.Path(__file__).resolve().parent

NAIVE = "kernel {kernel}\n"
# Lanes along the columns, the sum in one vector register: what a person writes first.
BY_HAND = """kernel matmul
split(loop="matmul.i1", factors=[0, 16], names=["matmul.column", "matmul.lane"])
reorder(loops=["matmul.i0", "matmul.column", "matmul.r0", "matmul.lane"])
decompose_reduction(block="matmul", loop="matmul.r0")
vectorize(loop="matmul.lane")
vectorize(loop="matmul.init.lane")
"""
# Published times, ms: matrix product of 128, one core of a CI runner (the course "Machine Learning Compilation").
PUBLISHED = {"naive": 4.91, "by hand": 1.97, "random search": 1.30, "guided search": 0.203}
PUBLISHED_NETWORK = {"naive": 0.2685, "guided search": 0.1039}


def network():
    """Two linear layers with a ReLU between, 784 -> 128 -> 10, batch 1."""
    rng = np.random.default_rng(0)
    constants = {"w0": rng.standard_normal((784, 128)), "b0": rng.standard_normal(128),
                 "w1": rng.standard_normal((128, 10)), "b1": rng.standard_normal(10)}
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w0", "b0"], ["h"], "linear0"), helper.make_node("Relu", ["h"], ["a"], "relu0"),
         helper.make_node("Gemm", ["a", "w1", "b1"], ["y"], "linear1")],
        "network", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 784])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in constants.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Ladder:
    """The libraries of one model, each compiled in another way, with one thread."""

    def __init__(self, options, name, model, folder):
        self.mcc, self.name, self.folder = options.mcc, name, folder
        self.model = folder / f"{name}.onnx"
        onnx.save(model, self.model)
        self.steps = []  # (title, library, seconds of searching, trials)

    def compile(self, title, *words, seconds=0.0, trials=0):
        library = self.folder / f"{self.name}.{len(self.steps)}.so"
        Mcc.compile(self.mcc, self.model, library, [], ["--threads", 1, *words])
        self.steps.append((title, library, seconds, trials))

    def with_schedules(self, title, text):
        file = self.folder / f"{self.name}.{len(self.steps)}.schedule"
        file.write_text(text)
        self.compile(title, "--schedule", file)

    def tuned(self, title, *words):
        log = self.folder / f"{self.name}.{len(self.steps)}.json"
        start = time.perf_counter()
        report = run_json([self.mcc, "tune", self.model, "--tune-log", log, "--threads", 1, "--no-check", "--json", *words],
                          timeout=7200)
        self.compile(title, "--tune-log", log, seconds=time.perf_counter() - start, trials=report["trials"])

    def kernels(self):
        return [task["name"] for task in run_json([self.mcc, "tasks", self.model, "--threads", 1, "--json"], 60)["tasks"]]

    def measure(self, seconds, rounds):
        """In turns: [(title, ms, seconds of searching, trials)]."""
        best = [float("inf")] * len(self.steps)
        for _ in range(rounds):
            for i, (_, library, _, _) in enumerate(self.steps):
                best[i] = min(best[i], Mcc(self.mcc, library, 1).slice(seconds / rounds)["min_ms"])
        return [(title, ms, spent, trials) for (title, _, spent, trials), ms in zip(self.steps, best)]


def rows_of(measured, flop, peak, published):
    rows = []
    for title, ms, spent, trials in measured:
        gflops = flop / ms / 1e6
        rows.append([title, number(ms), f"{gflops:.1f}", f"{gflops / peak * 100:.0f} %", number(measured[0][1] / ms),
                     str(trials) if trials else "-", number(spent) if spent else "-", number(published.get(title))])
    return table(["schedule", "ms", "GFLOP/s", "of peak", "against naive", "trials", "s of search", "published ms"], rows)


def main():
    parser = argparse.ArgumentParser(prog="bench/staircase.py", description=__doc__)
    parser.add_argument("--trials", type=int, default=64, help="of each search (default: 64)")
    parser.add_argument("--seconds", type=float, default=1.0, help="time per library (default: 1)")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "results", metavar="DIR")
    parser.add_argument("--mcc", default=HERE.parent / "build/bin/mcc", metavar="PATH", help="(default: build/bin/mcc)")
    options = parser.parse_args()
    if not os.access(options.mcc, os.X_OK):
        parser.error(f"there is no mcc at {options.mcc}: run scripts/build, or name it with --mcc")

    with tempfile.TemporaryDirectory(prefix="staircase-") as folder:
        folder = pathlib.Path(folder)
        peak = FmaPeak(FmaPeak.build(folder), 1)
        peak.slice(0.3)
        random = ("--tuner", "random", "--cost-model", "none", "--trials", options.trials)
        guided = ("--trials", options.trials)

        product = Ladder(options, "matmul_128", matmul(1, 128, 128, 128, "_ab"), folder)
        product.with_schedules("naive", NAIVE.format(kernel="matmul"))
        product.with_schedules("by hand", BY_HAND)
        product.compile("by analysis, no trials")
        product.tuned("random search", *random)
        product.tuned("guided search", *guided)

        layers = Ladder(options, "network", network(), folder)
        layers.with_schedules("naive", "".join(NAIVE.format(kernel=kernel) for kernel in layers.kernels()))
        layers.compile("by analysis, no trials")
        layers.tuned("first layer searched", *guided, "--tasks", "linear0")
        layers.tuned("guided search", *guided)

        measured = [ladder.measure(options.seconds, 5) for ladder in (product, layers)]
        peak.slice(0.3)

    cpu, date = cpu_facts(), datetime.date.today().isoformat()
    tables = [("Matrix product of 128, two variable operands", rows_of(measured[0], 2 * 128**3, peak.gflops, PUBLISHED)),
              ("Two layers, 784 -> 128 -> 10, batch 1",
               rows_of(measured[1], 2 * (784 * 128 + 128 * 10), peak.gflops, PUBLISHED_NETWORK))]
    text = [f"# What each step of scheduling buys, {date}, {cpu['name']}", "",
            f"One thread of {cpu_count()} CPUs; mcc {source_version()}; FMA peak {peak.gflops:.0f} GFLOP/s (f32). The best run of each, "
            "libraries in turns. Published: the course's, on another machine."]
    for title, lines in tables:
        text += ["", f"## {title}", "", *lines]
    result = {"date": date, "machine": cpu, "versions": {"mcc": source_version()}, "fma_peak_gflops": peak.gflops,
              "product": measured[0], "network": measured[1]}
    save(options.out, date, cpu["name"], "-staircase", result, "\n".join(text) + "\n")
    print("\n".join(text))


if __name__ == "__main__":
    main()
