#!/usr/bin/env python3
"""Default schedules of the small whole models (see README.md): no rule is refused, for any of several targets. schedules.py [NAME...]"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import onnx

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import networks

MCC = os.path.abspath(os.environ.get("MCC", pathlib.Path(__file__).parents[2] / "build/bin/mcc"))
TARGETS = (
    ("cpu:x86-64-v2",),
    ("cpu:x86-64-v3",),
    ("cpu:x86-64-v4",),
    ("cpu:znver4", "--precision", "bf16"),
    ("cpu:sapphirerapids", "--precision", "bf16"),
    ("cuda:sm_75,sm_80,sm_90a", "--no-cubin"),
    ("cuda:sm_80,sm_90,sm_90a", "--no-cubin", "--precision", "fp16"),
    ("cuda:sm_80,sm_90a", "--no-cubin", "--precision", "tf32"),
)


def refused(path, library, target):
    """What the rules were refused, a line each."""
    done = subprocess.run([MCC, "compile", path, "-o", library, "--json", "--target", *target], capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        return [f"mcc compile: exit {done.returncode}: {done.stderr.strip()[:400]}"]
    schedules = json.loads(done.stdout)["schedules"]
    lines = [f"{kernel['name']}, {' '.join(kernel['archs'])}: the rule for {rule['rule']}: {rule['step']}: {rule['reason']}"
             for kernel in schedules["refused"] for rule in kernel["rules"]]
    if schedules["plain"]:
        lines.append(f"{schedules['plain']} kernels have the plain schedule")
    return lines


def main():
    names = sys.argv[1:] or list(networks.MODELS)
    failed = 0
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            path, library = pathlib.Path(folder) / "model.onnx", pathlib.Path(folder) / "model.so"
            onnx.save(networks.build(name), path)
            lines = [f"  {' '.join(target)}: {line}" for target in TARGETS for line in refused(path, library, target)]
        failed += bool(lines)
        print("\n".join([("FAIL " if lines else "ok   ") + name] + lines), flush=True)
    print(f"{len(names) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
