#!/usr/bin/env python3
"""What each launch of a model for GPUs asks of one, without a GPU: the stand-in driver of the tests (tests/fake_cuda) runs one block
of each, instruction by instruction, and counts. Printed are the launches by an estimate of their time, longest first.

For finding what is wrong by factors: a launch that one thread computes (longest = instr / 1 warp), that fetches a sector of 32 bytes
for each element (waste), or that has fewer blocks than the GPU has multiprocessors. It knows neither caches, nor latencies that
other warps hide, nor what overlaps with what: the times are no forecast."""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from runtimes import Failure, last_line

HERE = pathlib.Path(__file__).resolve().parent
# Figures of a GPU of the architecture: multiprocessors, GHz and products of 16 bits that one's tensor cores make in a cycle as tensor/gpu.cpp
# has them (from sm_90a on by warpgroups); GB/s of the second-level cache, which is where most launches find what the one before has written.
GPUS = {
    "sm_75": {"units": 40, "ghz": 1.59, "fmas": 512, "cache": 1200, "threads": 1024, "blocks": 16},
    "sm_80": {"units": 108, "ghz": 1.41, "fmas": 1024, "cache": 4000, "threads": 2048, "blocks": 32},
    "sm_86": {"units": 82, "ghz": 1.7, "fmas": 256, "cache": 2500, "threads": 1536, "blocks": 16},
    "sm_89": {"units": 128, "ghz": 2.52, "fmas": 256, "cache": 4500, "threads": 1536, "blocks": 24},
    "sm_90": {"units": 132, "ghz": 1.98, "fmas": 1280, "cache": 5500, "threads": 2048, "blocks": 32},
    "sm_90a": {"units": 132, "ghz": 1.98, "fmas": 2048, "cache": 5500, "threads": 2048, "blocks": 32},
}
ISSUES = 4  # warps' instructions that a multiprocessor begins in a cycle
STEP_CYCLES, FIRST_CYCLES = 2.0, 800  # of a warp's instruction when nothing else is there to run; of its first loads and last stores
LAUNCH_US = 1.0  # between two launches of a graph


def estimate(launch, gpu):
    """Microseconds, by what keeps a launch: instructions, its longest warp, tensor cores, sectors."""
    blocks, threads = (x * y * z for x, y, z in (launch["grid"], launch["block"]))
    busy = min(blocks, gpu["units"])
    resident = max(1, min(gpu["threads"] // threads, gpu["blocks"]))
    waves = -(-blocks // (gpu["units"] * resident))
    sectors = 32 * blocks * (launch["read_sectors"] + launch["written_sectors"])
    us = 1e-3 / gpu["ghz"]
    return {"issue": launch["steps"] * blocks / (busy * ISSUES) * us,
            "longest": (launch["longest"] * STEP_CYCLES + FIRST_CYCLES) * waves * us,
            "matrix": launch["matrix_fmas"] * blocks / (busy * gpu["fmas"]) * us,
            "memory": sectors / gpu["cache"] * 1e-3}


def waste(launch, kind):
    """Bytes of the sectors for each byte that is asked for."""
    return 32 * launch[f"{kind}_sectors"] / max(launch[f"{kind}_bytes"], 1)


def rows(launches, gpu):
    """The launches with their estimates, longest first."""
    found = []
    for launch in launches:
        parts = estimate(launch, gpu)
        by = max(parts, key=parts.get)
        found.append({**launch, "parts": parts, "by": by, "us": parts[by] + LAUNCH_US,
                      "waste": [waste(launch, kind) for kind in ("read", "written")]})
    return sorted(found, key=lambda row: -row["us"])


def line(row):
    sizes = [re.sub("(x1)+$", "", "x".join(map(str, row[k]))) if k == "block" else "x".join(map(str, row[k])) for k in ("grid", "block")]
    return (f"{row['us']:9.1f} {row['by']:8}{sizes[0]:>14}{sizes[1]:>9}{row['longest']:>9}{row['steps']:>10}{row['loads']:>7}"
            f"{row['waste'][0]:6.1f}{row['waste'][1]:6.1f}  {row['entry'].removeprefix('mcc_kernel_')}"
            + (f"  ({row['problem']})" if row.get("problem") else ""))


def count(mcc, driver, model, arch, words, folder):
    """Compiles and runs it; what the driver has counted, a launch each."""
    library, counts = folder / "model.so", folder / "counts.jsonl"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(driver), "FAKE_CUDA_RUN": "1", "FAKE_CUDA_COUNT": str(counts),
                   "FAKE_CUDA_SM": arch.removeprefix("sm_").removesuffix("a"), "FAKE_CUDA_MEMORY": str(64 << 30)}
    for command in (["compile", model, "--target", f"cuda:{arch}", "--no-cubin", *words, "-o", library], ["run", library, "--random", 1]):
        done = subprocess.run([str(mcc), *map(str, command)], capture_output=True, text=True, env=environment)
        if done.returncode != 0:
            raise Failure(f"mcc {command[0]}: exit {done.returncode}: {last_line(done.stderr or done.stdout)}")
    return [json.loads(text) for text in counts.read_text().splitlines()] if counts.exists() else []


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench/launches.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, help="an ONNX file; what follows -- goes to mcc compile (--precision fp16, --dim N=8)")
    parser.add_argument("--arch", default="sm_80", choices=list(GPUS), help="(default: sm_80)")
    parser.add_argument("--top", type=int, default=25, metavar="N", help="so many launches (default: 25)")
    parser.add_argument("--json", action="store_true", help="all of them, as JSON")
    parser.add_argument("--mcc", default=HERE.parent / "build/bin/mcc", metavar="PATH", help="(default: build/bin/mcc)")
    parser.add_argument("--driver", default=HERE.parent / "build/tests/fake_cuda", metavar="DIR",
                        help="where the stand-in driver was built (default: build/tests/fake_cuda)")
    arguments = sys.argv[1:]
    at = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:at])
    options.words = arguments[at + 1:]
    if not (pathlib.Path(options.driver) / "libcuda.so.1").is_file():
        parser.error(f"there is no stand-in driver in {options.driver}: build the target fake_cuda, or name its folder with --driver")
    return options


def main():
    options = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="launches-") as folder:
        try:
            launches = count(options.mcc, options.driver, options.model, options.arch, options.words, pathlib.Path(folder))
        except Failure as failure:
            sys.exit(f"error: {failure}")
    found = rows(launches, GPUS[options.arch])
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{'us':>9} {'by':8}{'grid':>14}{'block':>9}{'longest':>9}{'instr':>10}{'loads':>7}{'waste of reads, writes':>12}")
    for row in found[:options.top]:
        print(line(row))
    print(f"{sum(row['us'] for row in found):9.1f} in all, {len(found)} launches")


if __name__ == "__main__":
    main()
