#!/usr/bin/env python3
"""The archive that scripts/bundle makes, unpacked and run in a root that has nothing else in it."""

import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(os.environ.get("MCC_BUILD_DIR", ROOT / "build"))
LIMIT = 60_000_000


def model(path):
    weights = numpy_helper.from_array(np.random.default_rng(1).standard_normal((16, 16)).astype(np.float32), "w")
    node = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])]
    graph = helper.make_graph(node, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 16])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 16])], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def main():
    passed, failed = 0, []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        archive = folder / "mcc.tar.xz"
        environment = {**os.environ, "MCC_BUILD_DIR": str(BUILD)}
        subprocess.run([ROOT / "scripts/bundle", archive], check=True, env=environment)
        bare = folder / "root"
        (bare / "tmp").mkdir(parents=True)
        (bare / "proc").mkdir()
        subprocess.run(["tar", "-xf", archive, "-C", bare], check=True)
        (unpacked,) = (p for p in bare.iterdir() if p.name.startswith("mcc-"))
        unpacked.rename(bare / "mcc here")
        model(bare / "model.onnx")

        # As root without a namespace; else in one of its own.
        enter = ["chroot"] if os.geteuid() == 0 else ["unshare", "-r", "chroot"]
        if subprocess.run([*enter, bare, "/mcc here/bin/mcc", "--version"], capture_output=True).returncode == 125:
            print("no other root can be entered here")
            print("0 passed, 0 failed, 1 skipped")
            return 0

        def check(what, is_good, more=""):
            nonlocal passed
            passed += is_good
            if not is_good:
                failed.append(what)
                print(f"FAIL {what}: {more}")

        def mcc(*arguments, code=0):
            done = subprocess.run([*enter, bare, "/mcc here/bin/mcc", *arguments], capture_output=True, text=True, env={"PATH": "/usr/sbin:/usr/bin"})
            check(" ".join(arguments), done.returncode == code, f"exit {done.returncode}: {done.stdout[-500:]}{done.stderr[-1500:]}")
            return done

        check("size", archive.stat().st_size <= LIMIT, f"{archive.stat().st_size} bytes")
        check("files", all((bare / "mcc here" / f).exists() for f in
                           ("include/mcc/mcc.h", "lib/libmcc_runtime.so", "lib/cmake/mcc/mccConfig.cmake")))
        mcc("--version")
        mcc("compile", "/model.onnx", "-o", "/model.so")
        mcc("run", "/model.so", "--random", "1")
        mcc("verify", "/model.onnx")
        mcc("tune", "/model.onnx", "--tune-log", "/best.json", "--trials", "4")
        mcc("compile", "/model.onnx", "-o", "/tuned.so", "--tune-log", "/best.json")
        mcc("compile", "/model.onnx", "-o", "/gpu.so", "--target", "cuda:sm_80,sm_90")
        check("PTX alone", "no machine code" in mcc("compile", "/model.onnx", "-o", "/gpu.so", "--target", "cuda:sm_80").stderr)
        mcc("run", "/gpu.so", "--random", "1", code=5)
        mcc("doctor")
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
