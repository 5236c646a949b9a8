#!/usr/bin/env python3
"""A language model's decoder on the GPU here, its prompt and its steps through one library of open sizes: gpu_decoder.py --mcc PATH. The model is
drawn (decoder_model.py): a layer of a Llama of 8 billion weights, in f16, of numbers as they are and of 4 bits. What it remembers is in buffers
of the GPU's memory, which are inputs and outputs; beside that, in memory that each run copies. Results are compared with those of a library for
this processor. JSON on stdout: ms of a run, the least of some."""

import argparse
import ctypes
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
from onnx import TensorProto

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests/dynamic")]
from decoder_model import Maker, Sizes  # noqa: E402

SHAPE = {"words": 8192, "width": 4096, "inner": 14336, "heads": 32, "shared": 8, "size": 128, "layers": 1, "most": 8192}
SMALL = {"words": 90, "width": 64, "inner": 96, "heads": 4, "shared": 2, "size": 16, "layers": 2, "most": 128}
KINDS = {"f16": 0, "4 bits": 4}
# New words, and those before them.
CASES = {"step, 127 before": (1, 127), "step, 2047 before": (1, 2047), "step, 8000 before": (1, 8000), "prompt of 512": (512, 0)}
SMALL_CASES = {"step, 70 before": (1, 70), "prompt of 9": (9, 0)}
TOLERANCE = 3e-2  # of the largest logit


def feeds_of(sizes, new, before, room):
    random = np.random.default_rng(1)
    past = {name: (0.1 * random.standard_normal((1, sizes.shared, room, sizes.size))).astype(np.float16) for name in sizes.pasts()}
    return {"ids": random.integers(0, sizes.words, (1, new)), "mask": np.ones((1, before + new), np.int64), **past}


def least_ms(session, seconds):
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        session.check(session.lib.mcc_session_run(session.session, ctypes.byref(session.error)))
        best = min(best, time.perf_counter() - begin)
    return 1e3 * best


def on_device(session, sizes, feeds, places, is_in_place):
    """Sets what is remembered as inputs, and as outputs the same memory or other one."""
    for past, present in zip(sizes.pasts(), sizes.presents()):
        session.copy(ctypes.c_void_p(places[past]), ctypes.c_void_p(feeds[past].ctypes.data), feeds[past].nbytes)
        session.set("input", past, session.tensor(places[past], feeds[past]))
        session.set("output", present, session.tensor(places[past if is_in_place else present], feeds[past]))


def measure(options, session_of, folder, bits):
    sizes = Sizes(**(SMALL if options.small else SHAPE), bits=bits)
    model, libraries = folder / "decoder.onnx", {}
    onnx.save(Maker(TensorProto.FLOAT16, sizes).model(), model)
    for target in (options.target, "cpu"):
        libraries[target] = folder / f"{target.replace(':', '-')}.so"
        subprocess.run([options.mcc, "compile", model, "--target", target, "-o", libraries[target]], check=True, capture_output=True, timeout=600)
    session, cpu, rows = session_of(libraries[options.target]), session_of(libraries["cpu"]), {}
    places = {}
    for name, (new, before) in (SMALL_CASES if options.small else CASES).items():
        room = sizes.most
        feeds, row = feeds_of(sizes, new, before, room), {}
        places = places or {n: session.on_device(feeds[p]) for p, q in zip(sizes.pasts(), sizes.presents()) for n in (p, q)}
        want = cpu.run(feeds, ["logits"])[0].astype("f8")
        for way in ("in place", "copied"):
            on_device(session, sizes, feeds, places, way == "in place")
            got = session.run({k: feeds[k] for k in ("ids", "mask")}, ["logits"])[0]
            row["differs by"] = max(row.get("differs by", 0), float(np.abs(got - want).max() / np.abs(want).max()))
            row[way] = least_ms(session, options.seconds)
        row["is right"] = row["differs by"] < TOLERANCE
        rows[name] = row
    session.close()
    cpu.close()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mcc", type=pathlib.Path, default=HERE.parent / "build/bin/mcc", help="its folder has lib/ with the runtime (default: %(default)s)")
    parser.add_argument("--target", default="cuda", help="(default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each case (default: %(default)s)")
    parser.add_argument("--small", action="store_true", help="a model of a few thousand weights: whether it works")
    options = parser.parse_args()
    os.environ["MCC_BUILD_DIR"] = str(options.mcc.resolve().parents[1])
    from session import Session

    with tempfile.TemporaryDirectory() as folder:
        report = {kind: measure(options, lambda path: Session(path, 0), pathlib.Path(folder), bits) for kind, bits in KINDS.items()}
    print(json.dumps(report, indent=1))
    return 0 if all(row["is right"] for rows in report.values() for row in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
