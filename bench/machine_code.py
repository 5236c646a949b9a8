#!/usr/bin/env python3
"""What the assembler makes of a model's kernels for GPUs: for each the instructions, registers and spills, its loops by kinds of
instructions, and the order of what touches memory. Without a GPU; with ptxas, and NVIDIA's disassembler (Python package
nvidia-cuda-nvdisasm, or $NVDISASM).

For what PTX does not show: loads that wait behind stores one by one, divisions that branch, loops of more addresses than products."""

import argparse
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from runtimes import Failure, last_line

HERE = pathlib.Path(__file__).resolve().parent
INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,5}\*/\s+(@!?U?P[0-9T]+ )?([A-Z0-9_.]+)(.*?);")
LABEL = re.compile(r"^\.(L_x_\d+):")
BRANCH = re.compile(r"\(\.(L_x_\d+)\)")
SHORT = 8  # instructions of a loop that only waits
# What the order is shown of: memory, barriers, matrix products, and ways out.
SHOWN = ("LDG", "STG", "LDS", "STS", "LDSM", "LDGSTS", "UTMALDG", "LDL", "STL", "ATOM", "RED", "BAR", "SYNCS", "WARPGROUP", "HMMA", "IMMA",
         "HGMMA", "IGMMA", "BRA", "CALL", "EXIT")


def read_code(listing):
    """Instructions as (name, whether under a condition, where it jumps), and where labels stand."""
    code, labels = [], {}
    for line in listing.splitlines():
        if found := INSTRUCTION.match(line):
            to = BRANCH.search(found[3]) if found[2].startswith("BRA") else None
            code.append((found[2], found[1] is not None, to and to[1]))
        elif found := LABEL.match(line):
            labels[found[1]] = len(code)
    return code, labels


def loops_of(code, labels):
    """The bodies of the loops, as lists of instructions' names, but for those that only wait."""
    return [[name for name, _, _ in code[labels[to]:at + 1]]
            for at, (_, _, to) in enumerate(code) if to is not None and at - labels.get(to, at) >= SHORT]


def order_of(code):
    """Names without their variants, neighbours together: LDG*4 ?STG. With a question mark: under a condition."""
    runs = []
    for name, is_conditional, _ in code:
        kind = name.split(".")[0]
        if kind not in SHOWN:
            continue
        shown = "?" * is_conditional + kind
        if runs and runs[-1][0] == shown:
            runs[-1][1] += 1
        else:
            runs.append([shown, 1])
    return " ".join(shown + (f"*{count}" if count > 1 else "") for shown, count in runs)


def disassembler():
    found = os.environ.get("NVDISASM") or shutil.which("nvdisasm")
    for folder in [] if found else sys.path:
        found = next((str(p) for p in pathlib.Path(folder).glob("nvidia/**/bin/nvdisasm")), None)
        if found:
            break
    if not found:
        raise Failure("there is no nvdisasm in PATH, nor in the Python package nvidia-cuda-nvdisasm; NVDISASM may name it")
    return found


def run(command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise Failure(f"{command[0]}: {last_line(done.stderr or done.stdout)}")
    return done


def show(ptx, arch, nvdisasm, folder):
    cubin = folder / "kernel.cubin"
    said = run(["ptxas", "-v", f"-arch={arch}", ptx, "-o", cubin]).stderr
    registers = max(map(int, re.findall(r"Used (\d+) registers", said)), default=0)
    spills = sum(map(int, re.findall(r"(\d+) bytes spill", said)))
    code, labels = read_code(run([nvdisasm, "-c", cubin]).stdout)
    print(f"{ptx.stem}: {len(code)} instructions, {registers} registers, {f'{spills} bytes of spills' if spills else 'no spills'}")
    for body in loops_of(code, labels):
        kinds = collections.Counter(name.split(".")[0] for name in body)
        print(f"  loop of {len(body)}: " + ", ".join(f"{kind} {count}" for kind, count in kinds.most_common(10)))
    print(f"  {order_of(code)}")


def parse_arguments():
    parser = argparse.ArgumentParser(prog="bench/machine_code.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path, help="an ONNX file; what follows -- goes to mcc compile (--precision fp16, --dim N=8)")
    parser.add_argument("--arch", default="sm_90a", help="sm_75 to sm_90a (default: sm_90a)")
    parser.add_argument("--kernels", default="", metavar="PATTERN", help="those in whose names the regular expression is found")
    parser.add_argument("--mcc", default=HERE.parent / "build/bin/mcc", metavar="PATH", help="(default: build/bin/mcc)")
    arguments = sys.argv[1:]
    at = arguments.index("--") if "--" in arguments else len(arguments)
    options = parser.parse_args(arguments[:at])
    options.words = arguments[at + 1:]
    return options


def main():
    options = parse_arguments()
    with tempfile.TemporaryDirectory(prefix="machine_code-") as scratch:
        folder = pathlib.Path(scratch)
        try:
            nvdisasm = disassembler()
            run([options.mcc, "compile", options.model, "--target", f"cuda:{options.arch}", "--no-cubin", "-o", folder / "model.so",
                 "--emit", f"ptx={folder / 'ptx'}", *options.words])
            for ptx in sorted((folder / "ptx").glob("*.ptx")):
                if re.search(options.kernels, ptx.stem):
                    show(ptx, options.arch, nvdisasm, folder)
        except (Failure, OSError) as failure:
            sys.exit(f"error: {failure}")


if __name__ == "__main__":
    main()
