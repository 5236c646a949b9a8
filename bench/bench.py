#!/usr/bin/env python3
"""mcc, onnxruntime and openvino side by side, in one interleaved run."""

import argparse
import datetime
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

import report
from machine import FmaPeak, cpu_count, cpu_facts, save, source_version
from runtimes import Failure, Mcc, Peer, last_line, run_json, run_measured

HERE = pathlib.Path(__file__).resolve().parent
ZOO = ("resnet50", "mobilenet_v2", "efficientnet_b0", "convnext_tiny", "vit_b16", "bert_base", "gpt2", "lstm_tagger", "mlp")
PEERS = ("onnxruntime", "openvino")
PEAK_SLICE_S = 0.1


def say(text):
    print(text, file=sys.stderr, flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--models", metavar="A,B", help=f"models of the zoo or ONNX files (default: {','.join(ZOO)})")
    parser.add_argument("--kernels", nargs="?", const="", metavar="PATTERN",
                        help="matrix products in place of models: those whose names the regular expression is found in, or all")
    parser.add_argument("--seconds", type=float, default=3.0, help="time per model, runtime and thread count (default: 3)")
    parser.add_argument("--rounds", type=int, default=6, help="slices that this time is cut into (default: 6)")
    parser.add_argument("--threads", metavar="N,M", help="thread counts (default: 1 and all)")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N", help="a dynamic dimension's size (default: 1)")
    parser.add_argument("--tolerance", type=float, metavar="SHARE",
                        help="of an output's largest value, by which it may differ from onnxruntime's: for quantised models (default: rounding of floats alone; with bf16 0.15)")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32",
                        help="of mcc's and openvino's products; onnxruntime stays with fp32 (default: %(default)s)")
    parser.add_argument("--tune", metavar="TIME", help="tune each model this long (60s, 10m) for each thread count, and compare that too")
    parser.add_argument("--tune-logs", type=pathlib.Path, metavar="DIR", help="where the logs are kept; a search goes on from what is there (default: new ones)")
    parser.add_argument("--peers", default=",".join(PEERS), help="(default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="0.4 s in 2 rounds: a look, not a measurement")
    parser.add_argument("--json", action="store_true", help="print JSON, not Markdown")
    parser.add_argument("--out", default=HERE / "results", metavar="DIR", help="where the results go (default: bench/results)")
    parser.add_argument("--mcc", default=HERE.parent / "build/bin/mcc", metavar="PATH", help="(default: build/bin/mcc)")
    options = parser.parse_args()
    if options.tolerance is None:
        options.tolerance = 0.15 if options.precision == "bf16" else 0  # a deep network of random weights is up to 0.1 off in bf16
    if options.quick:
        options.seconds, options.rounds = 0.4, 2
    options.threads = sorted({int(n) for n in options.threads.split(",")} if options.threads else {1, cpu_count()})
    options.peers = [name for name in options.peers.split(",") if name]
    if set(options.peers) - set(PEERS):
        parser.error(f"--peers: there are {', '.join(PEERS)}")
    if options.rounds < 1 or options.seconds <= 0 or options.threads[0] < 1:
        parser.error("--rounds, --seconds and --threads must be positive")
    if options.kernels is not None and options.models:
        parser.error("--kernels and --models exclude each other")
    return options


def export_zoo(names, folder):
    """Writes those zoo models that are not there yet; fetches what the exporter needs first."""
    missing = [name for name in names if not (folder / f"{name}.onnx").exists()]
    if not missing:
        return
    say(f"exporting {', '.join(missing)} (the first time this fetches PyTorch, several GB)")
    for command in ([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", HERE / "requirements-zoo.txt",
                     "-c", HERE.parent / "scripts/constraints.txt"],
                    [sys.executable, HERE / "export_zoo.py", folder, *missing]):
        code, text, _, _ = run_measured(command, timeout=3600)
        if code != 0:
            sys.exit(f"error: {' '.join(map(str, command[1:4]))} failed: {last_line(text)}")


def find_models(options, deps):
    """[(name, path, floating-point operations or None)]"""
    if options.kernels is not None:
        listed = run_json([sys.executable, HERE / "kernels.py", deps / "bench-kernels", options.kernels], timeout=60)
        return [(name, pathlib.Path(k["path"]), k["flop"]) for name, k in listed.items()]
    wanted = options.models.split(",") if options.models else list(ZOO)
    for name in wanted:
        if name not in ZOO and not os.path.isfile(name):
            sys.exit(f"error: {name} is neither a file nor in the zoo ({', '.join(ZOO)})")
    zoo = deps / "bench-zoo"
    export_zoo([name for name in wanted if name in ZOO], zoo)
    return [(n, zoo / f"{n}.onnx", None) if n in ZOO else (pathlib.Path(n).stem, pathlib.Path(n), None) for n in wanted]


def check_outputs(options, model, library, inputs, folder):
    """Speed of a wrong answer is no speed: runs once on the inputs that all share and compares with onnxruntime."""
    outputs = folder / "outputs"
    given = [argument for i in inputs for argument in ("--input", f"{i['name']}={i['file']}")]
    code, text, _, _ = run_measured([options.mcc, "run", library, *given, "--output-dir", outputs], timeout=300)
    if code != 0:
        raise Failure(f"run: exit {code}: {last_line(text)}")
    check = run_json([sys.executable, HERE / "check.py", model, outputs, options.tolerance, *options.dim], timeout=300)
    if not check["ok"]:
        raise Failure(f"wrong answer: {check['reason']}, largest error {check['max_error']:.3g}", check)
    return check


def start_contestants(options, model, libraries, threads, errors, versions):
    """`libraries` is ours: {name: path}."""
    contestants = [Mcc(options.mcc, library, threads, name) for name, library in libraries.items()]
    for name in options.peers:
        try:
            peer = Peer(name, model, threads, options.dim, options.precision)
            versions[name] = peer.version
            contestants.append(peer)
        except Failure as failure:
            errors.append(f"{name}, {report.plural(threads, 'thread')}: {failure}")
    return contestants


def race(options, contestants, peak, errors):
    """Round robin in short slices, starting with another one each round, so that a busy moment hits all alike."""
    slices = {c.name: [] for c in contestants}
    running = list(contestants)
    for turn in range(options.rounds):
        peak.slice(PEAK_SLICE_S)
        shift = turn % len(running) if running else 0
        for contestant in running[shift:] + running[:shift]:
            time.sleep(0.02)  # the last one's worker threads stop spinning
            try:
                slices[contestant.name].append(contestant.slice(options.seconds / options.rounds))
            except Failure as failure:
                errors.append(f"{contestant.name}, {report.plural(peak.threads, 'thread')}: {failure}")
                running = [c for c in running if c is not contestant]
    return {c.name: report.summarise(slices[c.name]) for c in contestants if c in running}


def tune_model(options, name, path, inputs, threads, folder):
    """The library compiled with a log made here, checked as the plain one is; what the search did. Raises Failure."""
    logs = options.tune_logs or folder
    logs.mkdir(parents=True, exist_ok=True)
    log, library = logs / f"{name}.{threads}.json", folder / f"{name}.{threads}.so"
    precision = ["--precision", options.precision]
    tuning = Mcc.tune(options.mcc, path, log, inputs, threads, options.tune, precision)
    Mcc.compile(options.mcc, path, library, inputs, ["--threads", threads, "--tune-log", log, *precision])
    check_outputs(options, path, library, inputs, folder / name)
    return library, tuning


def measure_model(options, name, path, flop, peak_program, versions, folder):
    result = {"name": name, "onnx_mb": path.stat().st_size / 2**20, "flop": flop, "compile": None, "check": None,
              "threads": [], "errors": []}
    errors, library = result["errors"], folder / f"{name}.so"
    try:
        inputs = run_json([sys.executable, HERE / "inputs.py", path, folder / name, *options.dim], timeout=300)["inputs"]
        result["compile"] = Mcc.compile(options.mcc, path, library, inputs, ["--precision", options.precision])
        result["check"] = check_outputs(options, path, library, inputs, folder / name)
    except Failure as failure:
        errors.append(f"mcc: {failure.args[0]}")
        if len(failure.args) > 1:
            result["check"] = failure.args[1]
        library = None
    for threads in options.threads:
        libraries, tuning = {"mcc": library} if library else {}, None
        if library and options.tune:
            try:
                libraries["mcc tuned"], tuning = tune_model(options, name, path, inputs, threads, folder)
            except Failure as failure:
                errors.append(f"mcc tuned, {report.plural(threads, 'thread')}: {failure}")
        peak = FmaPeak(peak_program, threads)
        contestants = start_contestants(options, path, libraries, threads, errors, versions)
        try:
            runtimes = race(options, contestants, peak, errors)
        finally:
            for contestant in contestants:
                contestant.close()
        result["threads"].append({"threads": threads, "runtimes": runtimes, "ratio": report.ratios(runtimes),
                                  "ratio_tuned": report.ratios(runtimes, "mcc tuned"), "tuning": tuning,
                                  "fma_peak_gflops": peak.gflops})
        say(f"{name}, {report.plural(threads, 'thread')}: "
            + ", ".join(f"{n} {report.number(r['min_ms'])} ms" for n, r in runtimes.items()))
    for error in errors:
        say(f"{name}: {error}")
    return result


def save_result(options, result):
    suffix = "-kernels" if options.kernels is not None else ""
    suffix += "-tuned" if options.tune else ""
    suffix += "-quick" if options.quick else ""
    suffix += "-part" if options.models else ""
    text = report.markdown(result)
    stem = save(options.out, result["date"], result["machine"]["name"], suffix, result, text)
    print(json.dumps(result, indent=1) if options.json else text)
    say(f"written: {stem}.md and .json")


def main():
    options = parse_arguments()
    if not os.access(options.mcc, os.X_OK):
        sys.exit(f"error: there is no mcc at {options.mcc}: run scripts/build, or name it with --mcc")
    deps = pathlib.Path(os.environ.get("MCC_DEPS_DIR", HERE.parent / ".deps")).resolve()
    models = find_models(options, deps)
    versions = {"mcc": source_version()}
    result = {
        "date": datetime.date.today().isoformat(),
        "machine": cpu_facts(),
        "versions": versions,
        "options": {"seconds": options.seconds, "rounds": options.rounds, "threads": options.threads, "precision": options.precision, "dims": options.dim,
                    "tolerance": options.tolerance, "tune": options.tune},
        "runtimes": ["mcc", *(["mcc tuned"] if options.tune else []), *options.peers],
        "models": [],
    }
    deps.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=deps) as folder:
        folder = pathlib.Path(folder)
        try:
            peak_program = FmaPeak.build(folder)
        except Failure as failure:
            sys.exit(f"error: {failure}")
        for name, path, flop in models:
            work = folder / name
            work.mkdir()
            result["models"].append(measure_model(options, name, path, flop, peak_program, versions, work))
            shutil.rmtree(work)
    result["summary"] = report.summary(result["models"], options.threads)
    if options.tune:
        result["summary_tuned"] = report.summary(result["models"], options.threads, "ratio_tuned")
    save_result(options, result)
    return 1 if any(model["errors"] for model in result["models"]) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
