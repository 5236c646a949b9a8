#!/usr/bin/env python3
"""mcc, torch.compile (max-autotune, with CUDA graphs) and onnxruntime on the GPU here, in one interleaved run; inputs and outputs
stay on the GPU. A peer that cannot be had is named and left out. Without a GPU: a sentence, and exit code 5."""

import argparse
import concurrent.futures
import datetime
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import report
from machine import cpu_facts, save, source_version
from runtimes import Failure, Mcc, Peer, last_line, run_json, run_measured

HERE = pathlib.Path(__file__).resolve().parent
ZOO = ("resnet50", "mobilenet_v2", "efficientnet_b0", "convnext_tiny", "vit_b16", "bert_base", "gpt2", "lstm_tagger", "mlp",
       "matmul_4096", "matmul_4096_f16")
PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
PEERS = ("torch_compile", "onnxruntime_cuda")


def say(text):
    print(text, file=sys.stderr, flush=True)


class MccOnGpu(Mcc):
    """A slice is one `mcc bench --device-resident`."""

    def slice(self, seconds):
        report_ = run_json([self.mcc, "bench", self.library, "--seconds", seconds, "--device-resident", "--json"],
                           timeout=seconds + 120)
        return {key: report_[key] for key in ("min_ms", "median_ms", "runs")}


def parse_arguments():
    parser = argparse.ArgumentParser(prog="scripts/bench --gpu", description=__doc__)
    parser.add_argument("--models", metavar="A,B", help=f"models of the zoo or ONNX files (default: {','.join(ZOO)})")
    parser.add_argument("--seconds", type=float, default=3.0, help="time per model and runtime (default: 3)")
    parser.add_argument("--rounds", type=int, default=6, help="slices that this time is cut into (default: 6)")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N", help="a dynamic dimension's size (default: 1)")
    parser.add_argument("--precision", default="fp32", metavar="A,B", help=f"of {', '.join(PRECISIONS)} (default: fp32)")
    parser.add_argument("--tune", metavar="TIME", help="tune each model this long (60s, 10m), and compare that too")
    parser.add_argument("--peers", default=",".join(PEERS), help="(default: %(default)s)")
    parser.add_argument("--peer-seconds", type=float, default=600, help="how long a peer may take to load a model (default: 600)")
    parser.add_argument("--together", action="store_true", help="load all peers of all models at once, before anything is measured")
    parser.add_argument("--out", default=HERE / "results", metavar="DIR", help="where the results go (default: bench/results)")
    parser.add_argument("--mcc", default=HERE.parent / "build/bin/mcc", metavar="PATH", help="(default: build/bin/mcc)")
    parser.add_argument("--check", action="store_true", help="only whether there is a GPU")
    options = parser.parse_args()
    options.peers = [name for name in options.peers.split(",") if name]
    if set(options.peers) - set(PEERS):
        parser.error(f"--peers: there are {', '.join(PEERS)}")
    options.precisions = options.precision.split(",")
    if set(options.precisions) - set(PRECISIONS):
        parser.error(f"--precision: there are {', '.join(PRECISIONS)}")
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("--rounds and --seconds must be positive")
    return options


def find_gpu(mcc):
    """What `mcc doctor` says of the first GPU; ends the program where there is none."""
    if not os.access(mcc, os.X_OK):
        sys.exit(f"error: there is no mcc at {mcc}: run scripts/build, or name it with --mcc")
    facts = run_json([mcc, "doctor", "--json"], timeout=120)
    if not facts.get("gpu"):
        say("there is no GPU here, so nothing was measured: " + (facts.get("gpu_problem") or "mcc doctor finds none"))
        sys.exit(5)
    return {**facts["gpu"][0], "cuda": facts["cuda_driver"], **smi_facts()}


def smi_facts():
    """What nvidia-smi says of the first GPU's driver and clocks; {} without it."""
    names = ("driver_version", "clocks.max.sm", "clocks.max.mem", "power.limit")
    try:
        done = subprocess.run(["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader", "-i", "0"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    values = done.stdout.strip().split(", ")
    return dict(zip(names, values)) if done.returncode == 0 and len(values) == len(names) else {}


def find_models(options, deps):
    """[(name, path)]; zoo models have to be there or to be exported, which needs torch."""
    found = []
    for name in options.models.split(",") if options.models else ZOO:
        path = deps / "bench-zoo" / f"{name}.onnx" if name in ZOO else pathlib.Path(name)
        if name in ZOO and not path.exists():
            code, text, _, _ = run_measured([sys.executable, HERE / "export_zoo.py", path.parent, name], timeout=3600)
            if code != 0:
                say(f"{name}: cannot be exported, left out: {last_line(text)}")
                continue
        if not path.is_file():
            sys.exit(f"error: {name} is neither a file nor in the zoo ({', '.join(ZOO)})")
        found.append((path.stem, path))
    return found


def race(options, contestants, errors):
    """In turns, each round begun by another one."""
    slices, running = {c.name: [] for c in contestants}, list(contestants)
    for turn in range(options.rounds):
        shift = turn % len(running) if running else 0
        for contestant in running[shift:] + running[:shift]:
            try:
                slices[contestant.name].append(contestant.slice(options.seconds / options.rounds))
            except Failure as failure:
                errors.append(f"{contestant.name}: {failure}")
                running = [c for c in running if c is not contestant]
    return {c.name: report.summarise(slices[c.name]) for c in contestants if c in running}


def load_peers(options, path, precision):
    """[Peer, or the Failure of one], all at once."""
    def load(name):
        try:
            return Peer(name, path, 1, options.dim, precision, options.peer_seconds)
        except Failure as failure:
            return Failure(f"{name} cannot be had: {failure}")

    with concurrent.futures.ThreadPoolExecutor(len(PEERS)) as pool:
        return list(pool.map(load, options.peers))


def measure_model(options, name, path, precision, folder, versions, peers):
    errors, contestants = [], []
    target = ["--target", "cuda", "--precision", precision]
    try:
        inputs = run_json([sys.executable, HERE / "inputs.py", path, folder, *options.dim], timeout=300)["inputs"]
        library = folder / "model.so"
        Mcc.compile(options.mcc, path, library, inputs, target)
        contestants.append(MccOnGpu(options.mcc, library, 1))
        if options.tune:
            log, library = folder / "log.json", folder / "tuned.so"
            run_json([options.mcc, "tune", path, *target, "--tune-log", log, "--time", options.tune, "--no-check", "--json",
                      *Mcc.shapes(inputs)], timeout=7200)
            Mcc.compile(options.mcc, path, library, inputs, [*target, "--tune-log", log])
            contestants.append(MccOnGpu(options.mcc, library, 1, "mcc tuned"))
    except Failure as failure:
        errors.append(f"mcc: {failure}")
    for peer in peers:
        if isinstance(peer, Failure):
            errors.append(str(peer))
            continue
        contestants.append(peer)
        versions[peer.name] = peer.version
    try:
        runtimes = race(options, contestants, errors)
    finally:
        for contestant in contestants:
            contestant.close()
    for peer in set(contestants) & set(peers):
        runtimes.get(peer.name, {})["load_s"] = round(peer.load_s, 1)
    name = name if precision == "fp32" else f"{name} {precision}"
    say(f"{name}: " + ", ".join(f"{n} {report.number(r['min_ms'])} ms" for n, r in runtimes.items()))
    for error in errors:
        say(f"{name}: {error}")
    return {"name": name, "runtimes": runtimes, "errors": errors, "ratio": report.ratios(runtimes),
            "ratio_tuned": report.ratios(runtimes, "mcc tuned")}


def markdown(result):
    names = ["mcc", "mcc tuned", *PEERS]
    gpu = result["gpu"]
    clocks = "".join(f", {key.replace('.', ' ').replace('_', ' ')} {gpu[key]}" for key in ("driver_version", "clocks.max.sm", "clocks.max.mem") if key in gpu)
    lines = [f"# {gpu['name']} ({gpu['arch']}), CUDA {gpu['cuda']}{clocks}, {result['date']}", "",
             "Batch 1, inputs and outputs on the GPU, f32 without TF32 where no precision is named; best of all slices in ms.", "",
             "| model | " + " | ".join(names) + " | ratio | tuned |", "|" + "---|" * (len(names) + 3)]
    for model in result["models"]:
        cells = [report.number(model["runtimes"].get(n, {}).get("min_ms")) for n in names]
        cells += [report.number(model[key].get("min")) if model[key] else "-" for key in ("ratio", "ratio_tuned")]
        lines.append(f"| {model['name']} | " + " | ".join(cells) + " |")
    lines += [""] + [f"- {m['name']}: {e}" for m in result["models"] for e in m["errors"]]
    lines.append("- versions: " + ", ".join(f"{k} {v}" for k, v in result["versions"].items()))
    return "\n".join(lines) + "\n"


def main():
    options = parse_arguments()
    gpu = find_gpu(options.mcc)
    if options.check:
        return 0
    deps = pathlib.Path(os.environ.get("MCC_DEPS_DIR", HERE.parent / ".deps")).resolve()
    deps.mkdir(parents=True, exist_ok=True)
    versions = {"mcc": source_version()}
    result = {"date": datetime.date.today().isoformat(), "gpu": gpu, "machine": cpu_facts(), "versions": versions,
              "options": {"seconds": options.seconds, "rounds": options.rounds, "tune": options.tune, "precision": options.precisions}, "models": []}
    with tempfile.TemporaryDirectory(prefix="bench-gpu-", dir=deps) as folder:
        cases = [(name, path, precision) for name, path in find_models(options, deps) for precision in options.precisions]
        with concurrent.futures.ThreadPoolExecutor(len(cases) if options.together else 1) as pool:
            peers = {case: pool.submit(load_peers, options, *case[1:]) for case in cases if options.together}
            concurrent.futures.wait(peers.values())
            for case in cases:
                name, path, precision = case
                loaded = (peers.get(case) or pool.submit(load_peers, options, path, precision)).result()
                work = pathlib.Path(folder) / f"{name}-{precision}"
                work.mkdir()
                result["models"].append(measure_model(options, name, path, precision, work, versions, loaded))
                shutil.rmtree(work)
                # After each, for a run that is cut short.
                stem = save(options.out, result["date"], gpu["name"], f"-gpu{'-tuned' if options.tune else ''}", result, markdown(result))
    print(markdown(result))
    say(f"written: {stem}.md and .json")
    return 1 if any("mcc" in e for m in result["models"] for e in m["errors"]) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
