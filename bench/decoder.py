#!/usr/bin/env python3
"""A language model's decoder, its prompt and its steps through one library of open sizes, beside onnxruntime: scripts/bench --decoder. The model is drawn (tests/dynamic/decoder_model.py): the shape of a Llama of 4 layers, 1024 wide, with weights of f32, of 4
bits, and of 4 bits with rows that may be rounded to bytes (accuracy_level = 4, what onnxruntime's model builder writes for processors)."""

import argparse
import ctypes
import datetime
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/dynamic"), str(ROOT / "bench")]
import machine  # noqa: E402
from decoder_model import Maker, Sizes  # noqa: E402
from race import race  # noqa: E402
from session import Session  # noqa: E402

MCC = os.environ.get("MCC", str(ROOT / "build/bin/mcc"))
SHAPE = {"words": 8000, "width": 1024, "inner": 2816, "heads": 16, "shared": 4, "size": 64, "layers": 4, "most": 4096}
KINDS = {"f32": {"bits": 0}, "4 bits": {}, "4 bits, level 4": {"level": 4}}
# New words, and those before them.
CASES = {"step, 127 before": (1, 127), "step, 1023 before": (1, 1023), "prompt of 128": (128, 0), "prompt of 512": (512, 0), "64 after 512": (64, 512)}
# The same with what is remembered in buffers for so many words, which are inputs and outputs.
BUFFER = 4096
IN_PLACE = {"step, 127 in buffers": (1, 127), "step, 1023 in buffers": (1, 1023)}


def feeds_of(sizes, new, before, random, room=0):
    # Small keys: where few have all of a row's weight, any rounding changes which ones.
    past = {name: 0.1 * random.standard_normal((1, sizes.shared, room or before, sizes.size), np.float32) for name in sizes.pasts()}
    return {"ids": random.integers(0, sizes.words, (1, new)), "mask": np.ones((1, before + new), np.int64), **past}


def bound(peer, sizes, feeds):
    """A run of onnxruntime's whose presents are in the memory of the pasts; the logits of the last one."""
    binding, pasts = peer.io_binding(), {name: onnxruntime.OrtValue.ortvalue_from_numpy(feeds[name]) for name in sizes.pasts()}
    for name in ("ids", "mask"):
        binding.bind_cpu_input(name, feeds[name])
    for past, present in zip(sizes.pasts(), sizes.presents()):
        binding.bind_ortvalue_input(past, pasts[past])
        binding.bind_ortvalue_output(present, pasts[past])
    binding.bind_output("logits")
    return lambda: peer.run_with_iobinding(binding), lambda: binding.get_outputs()[-1].numpy()


def measure(kind, threads, folder, seconds):
    sizes = Sizes(**SHAPE, **KINDS[kind])
    path, library = folder / f"{kind}.onnx", folder / f"{kind}.so"
    if not library.exists():
        onnx.save(Maker(sizes=sizes).model(), path)
        subprocess.run([MCC, "compile", path, "-o", library], check=True, capture_output=True)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    peer = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    session, outputs, rows = Session(library, threads), ["logits", *sizes.presents()], []
    for name, (new, before) in CASES.items():
        feeds = feeds_of(sizes, new, before, np.random.default_rng(1))
        want, got = peer.run(outputs, feeds), session.run(feeds, outputs)
        error = max(np.abs(a - b).max() / np.abs(a).max() for a, b in zip(want, got))
        if not error < (0.3 if "level" in KINDS[kind] else 1e-3):
            raise SystemExit(f"{kind}, {name}: results differ by {error:.2g} of the largest")
        # What is set stays set: nothing is copied.
        run = lambda: session.check(session.lib.mcc_session_run(session.session, ctypes.byref(session.error)))  # noqa: E731
        mine, theirs = race([run, lambda: peer.run(outputs, feeds)], seconds)
        rows.append((kind, threads, name, mine, theirs, error))
        print(f"{kind:16} {threads} {name:22} {mine:9.2f} {theirs:9.2f} {mine / theirs:6.2f} {error:.1e}", flush=True)
    in_place = dict(zip(sizes.presents(), sizes.pasts()))
    for name, (new, before) in IN_PLACE.items():
        feeds = feeds_of(sizes, new, before, np.random.default_rng(1), BUFFER)
        run_theirs, logits = bound(peer, sizes, feeds)
        got = session.run(feeds, ["logits"], in_place)[0]
        run_theirs()
        error = np.abs(got - logits()).max() / np.abs(got).max()
        if not error < (0.3 if "level" in KINDS[kind] else 1e-3):
            raise SystemExit(f"{kind}, {name}: results differ by {error:.2g} of the largest")
        run = lambda: session.check(session.lib.mcc_session_run(session.session, ctypes.byref(session.error)))  # noqa: E731
        mine, theirs = race([run, run_theirs], seconds)
        rows.append((kind, threads, name, mine, theirs, error))
        print(f"{kind:16} {threads} {name:22} {mine:9.2f} {theirs:9.2f} {mine / theirs:6.2f} {error:.1e}", flush=True)
    session.close()
    return rows, library.stat().st_size


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=4, help="for each case")
    parser.add_argument("--output", default=ROOT / "bench/results", help="the folder of the results")
    arguments = parser.parse_args()
    rows, bytes_of = [], {}
    with tempfile.TemporaryDirectory() as temporary:
        for kind in KINDS:
            for threads in map(int, arguments.threads.split(",")):
                measured, bytes_of[kind] = measure(kind, threads, pathlib.Path(temporary), arguments.seconds)
                rows += measured
    today, cpu = datetime.date.today(), machine.cpu_facts()
    lines = [f"# A decoder beside onnxruntime {onnxruntime.__version__}, {today}", "",
             f"{cpu['name']} ({cpu['family_model_stepping']}: {', '.join(cpu['features'])}), mcc {machine.source_version()}. `scripts/bench --decoder`: {', '.join(f'{k} {v}' for k, v in SHAPE.items())}; drawn weights; batch 1; one library "
             "for all sizes. In buffers: keys and values in memory for 4096 words, which is past and present at once. Least of the runs, which take turns, in ms.", "",
             "| weights | threads | case | mcc | onnxruntime | ratio | differ by |", "|---|---|---|---|---|---|---|"]
    lines += [f"| {k} | {t} | {c} | {a:.2f} | {b:.2f} | {a / b:.2f} | {e:.1e} |" for k, t, c, a, b, e in rows]
    lines += ["", "Libraries: " + ", ".join(f"{kind} {size / 1e6:.0f} MB" for kind, size in bytes_of.items()) + ". Differences are relative to an output's largest number; where rows "
              "are rounded to bytes both round them, and a number beside the border of two steps is another step's (onnxruntime itself moves by 0.14 when its rows are rounded)."]
    names = ("weights", "threads", "case", "mcc_ms", "onnxruntime_ms", "difference")
    result = {"cpu": cpu, "mcc": machine.source_version(), "onnxruntime": onnxruntime.__version__, "shape": SHAPE, "bytes": bytes_of,
              "cases": [dict(zip(names, (*row[:-1], float(row[-1])))) for row in rows]}
    print(machine.save(arguments.output, today, cpu["name"], "-decoder", result, "\n".join(lines) + "\n"))


if __name__ == "__main__":
    main()
