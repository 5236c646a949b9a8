#!/usr/bin/env python3
"""Checks and measures mcc on the GPU here, from the folder that scripts/gpu_kit makes: kit_run.py RESULTS [--parts A,B] [--seconds N].

Parts, in the order in which they are named: zoo (outputs beside those of the same library for this CPU), networks, nodes (mcc verify),
profile (times of kernels), bench (beside torch.compile and onnxruntime where these are installed), decoder (a language model's prompt and
steps), tune (ResNet-50 and BERT: how soon, how far). Each writes RESULTS/PART.json when it ends or has had its time; what it says goes to stdout as well."""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import numpy as np
import onnx

HERE = pathlib.Path(__file__).resolve().parent
KIT = HERE.parent
PARTS = ("zoo", "networks", "nodes", "profile", "bench", "decoder", "tune")
TOLERANCE = {"fp32": 1e-4, "tf32": 5e-3, "fp16": 2e-2, "bf16": 1e-1}  # of an output's largest value


class Late(Exception):
    """A part has had its time."""


class Kit:
    def __init__(self, options):
        self.work, self.results, self.options = options.work, options.results, options
        self.deadline = 0
        for folder in (self.work / "bench-zoo", self.work / "networks", self.work / "nodes", self.results):
            folder.mkdir(parents=True, exist_ok=True)
        self.unpack("mcc", self.work)
        self.mcc = next(self.work.glob("mcc-*/bin/mcc"))

    def unpack(self, name, folder):
        archive = KIT / f"{name}.tar.xz"
        if archive.exists():
            subprocess.run(["tar", "-C", folder, "-xJf", archive], check=True)

    def run(self, *command, seconds=120):
        """(exit code, stdout, stderr), within what is left of the part's time."""
        left = self.deadline - time.monotonic()
        if left < 2:
            raise Late
        try:
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=min(seconds, left))
            return done.returncode, done.stdout, done.stderr
        except subprocess.TimeoutExpired as late:
            return 124, (late.stdout or b"").decode(errors="replace"), (late.stderr or b"").decode(errors="replace")


def draw_weights(skeleton, target):
    model, rng = onnx.load(skeleton), np.random.default_rng(0)
    for tensor in model.graph.initializer:
        if not tensor.doc_string.startswith("drawn "):
            continue
        drawn = json.loads(tensor.doc_string.removeprefix("drawn "))
        means, deviations = (np.array(drawn[key])[:, None] for key in ("means", "deviations"))
        values = rng.standard_normal((len(means), int(np.prod(tensor.dims)) // len(means)))
        # Exactly: biases that undo means (of folded normalisations) have been left as they are.
        values -= values.mean(axis=1, keepdims=True)
        values *= deviations / np.maximum(values.std(axis=1, keepdims=True), 1e-12)
        values = (np.abs(values + means) if drawn["is_positive"] else values + means).reshape(tuple(tensor.dims))
        tensor.raw_data = values.astype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)).tobytes()
        tensor.ClearField("doc_string")
    onnx.save(model, target)


def zoo_models(kit):
    """{name: path}; of models of the options alone, if these name any."""
    folder = kit.work / "bench-zoo"
    if not any(folder.iterdir()):
        kit.unpack("zoo", folder)
        for path in folder.glob("*.onnx"):
            draw_weights(path, path)
    wanted = kit.options.models
    return {path.stem: path for path in sorted(folder.glob("*.onnx")) if not wanted or path.stem in wanted}


def compare(kit, path, precision):
    """Largest error of an output, relative to its largest value; or what went wrong."""
    outputs = []
    for target in (("cuda", "--precision", precision), ("cpu",)):
        library, folder = kit.work / "checked.so", kit.work / f"outputs-{target[0]}"
        for command in (("compile", path, "--target", *target, "-o", library),
                        ("run", library, "--random", 1, "--output-dir", folder, "--threads", 0)):
            code, _, text = kit.run(kit.mcc, *command)
            if code != 0:
                return f"{command[0]} for {target[0]}: exit {code}: {text.strip()[-300:]}"
        outputs.append([np.load(file).astype("f8") for file in sorted(folder.glob("output_*.npy"))])
    return max(float(np.abs(a - b).max() / (np.abs(b).max() or 1)) for a, b in zip(*outputs))


def part_zoo(kit, report):
    for name, path in zoo_models(kit).items():
        for precision in kit.options.precision.split(","):
            error = compare(kit, path, precision)
            report[f"{name} {precision}"] = error if isinstance(error, str) or error <= TOLERANCE[precision] else f"differs: {error}"


def verify(kit, report, cases):
    """mcc verify in portions, so that what is done by the end counts."""
    for at in range(0, len(cases), 30):
        code, out, text = kit.run(kit.mcc, "verify", "--json", "--target", "cuda", "--jobs", 4, *cases[at:at + 30], seconds=200)
        try:
            for case in json.loads(out)["cases"]:
                report[case["name"]] = case["status"] if case["status"] in ("pass", "unsupported") else f"{case['status']}: {case['reason']}"
        except (json.JSONDecodeError, KeyError):
            report[f"cases from {at} on"] = f"exit {code}: {text[-300:]}"


def part_networks(kit, report):
    kit.unpack("networks", kit.work / "networks")
    verify(kit, report, sorted((kit.work / "networks").glob("*.onnx")))


def part_nodes(kit, report):
    kit.unpack("nodes", kit.work / "nodes")
    verify(kit, report, sorted(f for f in (kit.work / "nodes").iterdir() if f.is_dir()))


def part_profile(kit, report):
    for name, path in zoo_models(kit).items():
        for precision in kit.options.precision.split(","):
            library, said = kit.work / "profiled.so", ""
            for command in (("compile", path, "--target", "cuda", "--precision", precision, "-o", library),
                            ("bench", library, "--device-resident", "--seconds", 0.5, "--profile", "--json")):
                code, said, text = kit.run(kit.mcc, *command)
                if code != 0:
                    report[f"{name} {precision}"] = f"{command[0]}: exit {code}: {text.strip()[-300:]}"
                    break
            else:
                (kit.results / f"profile-{name}-{precision}.json").write_text(said)
                report[f"{name} {precision}"] = json.loads(said)["min_ms"]


def part_bench(kit, report):
    models = zoo_models(kit)
    os.environ["MCC_DEPS_DIR"] = str(kit.work)
    code, out, text = kit.run(sys.executable, HERE / "gpu.py", "--mcc", kit.mcc, "--models", ",".join(kit.options.models or models),
                              "--precision", kit.options.precision, "--seconds", 3, "--peers", kit.options.peers, "--out", kit.results,
                              "--together", "--peer-seconds", kit.options.seconds / 2,
                              seconds=kit.options.seconds)
    report["all"] = (out if code in (0, 1) else "") + (f"exit {code}: {text[-3000:]}" if code else "")


def part_decoder(kit, report):
    code, out, text = kit.run(sys.executable, HERE / "gpu_decoder.py", "--mcc", kit.mcc, seconds=kit.options.seconds)
    try:
        for kind, rows in json.loads(out).items():
            for name, row in rows.items():
                ok = "# " if row.pop("is right") else "differs: "
                report[f"{kind}, {name}"] = ok + ", ".join(f"{key} {value:.3g}" for key, value in row.items())
    except json.JSONDecodeError:
        report["all"] = f"exit {code}: {text[-3000:]}"


def part_tune(kit, report):
    models = zoo_models(kit)
    for name in [name for name in kit.options.models or ("resnet50", "bert_base") if name in models]:
        for precision in kit.options.precision.split(","):
            stem, start = f"{name}-{precision}", time.monotonic()
            code, out, text = kit.run(kit.mcc, "tune", models[name], "--target", "cuda", "--precision", precision, "--time", kit.options.tune,
                                      "--tune-log", kit.results / f"tuned-{stem}.json", "--json", seconds=600)
            (kit.results / f"tune-{stem}.json").write_text(out)
            (kit.results / f"tune-{stem}.txt").write_text(text)
            course = ", ".join(f"{l['measured_us']:.0f} us after {l['seconds']:.1f} s" for l in json.loads(out)["model"]) if code == 0 else text[-2000:]
            report[stem] = f"{'# ' if code == 0 else ''}exit {code}, {time.monotonic() - start:.0f} s: {course}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--parts", default=",".join(PARTS), help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=600, help="for each part at most (default: %(default)s)")
    parser.add_argument("--models", type=lambda text: text.split(","), help="of the zoo (default: all in the kit)")
    parser.add_argument("--precision", default="fp32,fp16", help="of all but networks and nodes (default: %(default)s)")
    parser.add_argument("--peers", default="torch_compile,onnxruntime_cuda", help="of bench (default: %(default)s)")
    parser.add_argument("--tune", default="120s", help="how long to tune a model (default: %(default)s)")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp/mcc-kit"), help="a folder to unpack to (default: %(default)s)")
    options = parser.parse_args()
    if unknown := set(options.parts.split(",")) - set(PARTS):
        parser.error(f"--parts: there are {', '.join(PARTS)}, not {', '.join(sorted(unknown))}")
    if not re.fullmatch(r"((fp32|tf32|fp16|bf16)(,|$))+", options.precision):
        parser.error(f"--precision: there are {', '.join(TOLERANCE)}")
    kit = Kit(options)
    kit.deadline = time.monotonic() + 120
    code, facts, text = kit.run(kit.mcc, "doctor", "--json")
    (options.results / "doctor.json").write_text(facts)
    if code != 0 or not json.loads(facts).get("gpu"):
        sys.exit(f"there is no GPU here that mcc can use: {text or json.loads(facts).get('gpu_problem')}")
    is_wrong = False
    for part in options.parts.split(","):
        report, begin = {}, time.monotonic()
        kit.deadline = begin + options.seconds
        try:
            globals()[f"part_{part}"](kit, report)
        except Late:
            report["late"] = f"{options.seconds:.0f} s were not enough"
        (options.results / f"{part}.json").write_text(json.dumps(report, indent=1) + "\n")
        print(f"{part}, {time.monotonic() - begin:.0f} s:")
        for name, value in report.items():
            is_bad = isinstance(value, str) and not value.startswith(("pass", "unsupported", "# "))
            is_wrong |= is_bad
            if is_bad or part != "nodes":
                print(f"  {name}: {value}")
        sys.stdout.flush()
    return 1 if is_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
