#!/usr/bin/env python3
"""One folder with what a GPU machine needs that has nothing of mcc's: scripts/gpu_kit OUT [--models A,B].

The bundle, the zoo's models without the numbers of their weights (kit_run.py draws others), the tests' small networks, every fourth of
ONNX's node tests (if the tests have written them), and programs of this folder. There: python3 OUT/bench/kit_run.py RESULTS."""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import onnx
from onnx import numpy_helper

from machine import source_version

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
PROGRAMS = ("kit_run.py", "gpu.py", "gpu_decoder.py", "worker.py", "export_zoo.py", "inputs.py", "machine.py", "report.py", "runtimes.py", "fma_peak.cpp")
FEW = 1024  # numbers of a weight that stays


def without_weights(path, target):
    """Weights of floats leave the means and deviations of their rows (one row, if they are no filters), and whether none is negative."""
    model = onnx.load(path)
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.size <= FEW or array.dtype.kind != "f":
            continue
        rows = array.astype("f8").reshape(array.shape[0] if array.ndim > 2 else 1, -1)
        tensor.doc_string = "drawn " + json.dumps({"means": [float(f"{row.mean():.6g}") for row in rows], "is_positive": bool(array.min() >= 0),
                                                   "deviations": [float(f"{row.std():.6g}") for row in rows]})
        for field in ("raw_data", "float_data", "int32_data", "double_data"):
            tensor.ClearField(field)
    onnx.save(model, target)


def pack(folder, names, archive):
    subprocess.run(["tar", "-C", folder, "-cJf", archive, *sorted(names)], check=True)


def pack_zoo(models, archive):
    deps = pathlib.Path(os.environ.get("MCC_DEPS_DIR", ROOT / ".deps"))
    with tempfile.TemporaryDirectory() as folder:
        paths = [p for p in (deps / "bench-zoo").glob("*.onnx") if not models or p.stem in models]
        for path in paths:
            without_weights(path, pathlib.Path(folder) / path.name)
        if paths:
            pack(folder, [path.name for path in paths], archive)
    return len(paths)


def pack_networks(archive):
    sys.path.insert(0, str(ROOT / "tests/models"))
    import networks

    with tempfile.TemporaryDirectory() as folder:
        for name in networks.MODELS:
            onnx.save(networks.build(name), pathlib.Path(folder) / f"{name}.onnx")
        pack(folder, [f"{name}.onnx" for name in networks.MODELS], archive)
    return len(networks.MODELS)


def pack_nodes(archive):
    folder = pathlib.Path(os.environ.get("MCC_BUILD_DIR", ROOT / "build")) / "conformance"
    sys.path.insert(0, str(ROOT / "tests"))
    from conformance.run import DRAWN

    names = sorted(f.name for f in folder.iterdir() if f.is_dir()) if folder.is_dir() else []
    cases = [name for name in names[::4] if not DRAWN.match(name)]
    if cases:
        pack(folder, cases, archive)
    return len(cases)


def main():
    parser = argparse.ArgumentParser(prog="scripts/gpu_kit", description=__doc__)
    parser.add_argument("bundle", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--models", type=lambda text: text.split(","), help="of the zoo (default: all that have been exported)")
    options = parser.parse_args()
    shutil.rmtree(options.out, ignore_errors=True)
    (options.out / "bench").mkdir(parents=True)
    shutil.copyfile(options.bundle, options.out / "mcc.tar.xz")
    for program in PROGRAMS:
        shutil.copy(HERE / program, options.out / "bench")
    for program in ("session.py", "decoder_model.py"):
        shutil.copy(ROOT / "tests/dynamic" / program, options.out / "bench")
    (options.out / "bench/VERSION").write_text(source_version() + "\n")
    counts = (pack_zoo(options.models, options.out / "zoo.tar.xz"), pack_networks(options.out / "networks.tar.xz"),
              pack_nodes(options.out / "nodes.tar.xz"))
    size = sum(path.stat().st_size for path in options.out.rglob("*") if path.is_file())
    print(f"{options.out}: {counts[0]} models of the zoo, {counts[1]} networks, {counts[2]} node tests, {size / 1e6:.0f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()
