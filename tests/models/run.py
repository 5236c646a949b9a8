#!/usr/bin/env python3
"""Compiles small whole models and compares them with onnxruntime (see README.md). run.py [NAME...]"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import networks

MCC = os.path.abspath(os.environ.get("MCC", pathlib.Path(__file__).parents[2] / "build/bin/mcc"))
TARGETS = (("cpu",), ("cpu:x86-64-v3",))
BF16 = ("cpu", "--precision", "bf16")  # where this machine has instructions for it


class Failure(Exception):
    pass


def mcc(*arguments):
    done = subprocess.run([MCC, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise Failure(f"mcc {arguments[0]}: exit {done.returncode}: {done.stderr.strip()[:400]}")


def make_inputs(model, seed):
    rng = np.random.default_rng(seed)
    feeds = {}
    for i in model.graph.input:
        shape = [d.dim_value for d in i.type.tensor_type.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)
        if dtype == np.int64:
            feeds[i.name] = rng.integers(0, 2 if i.name == "mask" else 50, shape)
        else:
            feeds[i.name] = rng.standard_normal(shape).astype(dtype)
    return feeds


def reference(path, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, feeds)


def has_bf16():
    done = subprocess.run([MCC, "doctor", "--json"], capture_output=True, text=True, timeout=60)
    return "avx512bf16" in json.loads(done.stdout)["features"]


def compare(got, want, model_name, what, is_bf16):
    if got.shape != want.shape or got.dtype != want.dtype:
        raise Failure(f"{what}: {got.dtype}{list(got.shape)}, expected {want.dtype}{list(want.shape)}")
    # A rounding that falls on the other side moves a quantised value by a step of 0.05.
    is_quantized = model_name.startswith("quantized")
    rtol, atol = (1e-2, 1e-2) if model_name.startswith("half") else (1e-3, 0.051) if is_quantized else (1e-3, 1e-4)
    if is_bf16:  # 8 digits of each operand
        atol = max(atol, 0.05 * float(np.abs(want.astype(np.float64)).max(initial=0)))
    error = np.abs(got.astype(np.float64) - want.astype(np.float64))
    bad = ~(error <= atol + rtol * np.abs(want.astype(np.float64)))
    if bad.any():
        raise Failure(f"{what}: {int(bad.sum())} of {want.size} elements differ, by up to {error.max():.3g}")
    # Nor may many values be a step away.
    if is_quantized and not is_bf16 and (error > 1e-3).mean() > 0.01:
        raise Failure(f"{what}: {(error > 1e-3).mean():.1%} of the elements are a step off")


def check(name, folder, targets):
    model = networks.build(name)
    path = folder / "model.onnx"
    onnx.save(model, path)
    feeds = make_inputs(model, 7)
    arguments = []
    for i, (key, value) in enumerate(feeds.items()):
        np.save(folder / f"in_{i}.npy", value)
        arguments += ["--input", f"{key}={folder / f'in_{i}.npy'}"]
    wanted = reference(str(path), feeds)
    for target in targets:
        library = folder / "model.so"
        mcc("compile", path, "-o", library, "--target", *target)
        for threads in (1, 2):
            mcc("run", library, *arguments, "--threads", threads, "--output-dir", folder / "out")
            for i, want in enumerate(wanted):
                what = f"{' '.join(target)}, {threads} threads, output {i}"
                compare(np.load(folder / "out" / f"output_{i}.npy"), want, name, what, target == BF16)
    again = folder / "again.so"
    mcc("compile", path, "-o", again, "--target", *targets[-1], "--jobs", 1)
    if again.read_bytes() != library.read_bytes():
        raise Failure("two compilations differ")


def main():
    names = sys.argv[1:] or list(networks.MODELS)
    failed = 0
    targets = TARGETS + ((BF16,) if has_bf16() else ())
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            try:
                check(name, pathlib.Path(folder), targets)
                print(f"ok   {name}", flush=True)
            except Failure as failure:
                failed += 1
                print(f"FAIL {name}: {failure}", flush=True)
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
