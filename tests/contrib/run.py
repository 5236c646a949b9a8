#!/usr/bin/env python3
"""Operators that onnxruntime adds to ONNX, each in several forms, through `mcc verify`; numpy says what must come out."""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from onnx import numpy_helper

import attention
import fused
import layers
import quantized

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MCC_BUILD_DIR", ROOT / "build"))
MCC = os.environ.get("MCC", str(BUILD / "bin/mcc"))


def write(case, folder):
    model, inputs, outputs = case.model()
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "data.json").write_text(json.dumps({"rtol": case.rtol, "atol": case.atol}))
    for word, arrays in (("input", inputs), ("output", outputs)):
        for i, (name, array) in enumerate(arrays.items()):
            (data / f"{word}_{i}.pb").write_bytes(numpy_helper.from_array(array, name).SerializeToString())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", action="store_true", help="for a GPU, on a stand-in driver that runs the PTX")
    parser.add_argument("--filter", default="", metavar="RE")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR")
    arguments = parser.parse_args()

    cases = [case for module in (quantized, fused, layers, attention) for case in module.cases()]
    names = [case.name for case in cases]
    assert len(set(names)) == len(names), "two cases have one name"
    folder = arguments.keep or BUILD / "contrib"
    shutil.rmtree(folder, ignore_errors=True)
    chosen = [case for case in cases if re.search(arguments.filter, case.name)]
    for case in chosen:
        write(case, folder / case.name)

    command, environment = [MCC, "verify", "--json"], dict(os.environ)
    if arguments.gpu:
        command += ["--target", "cuda:sm_80"]
        environment |= {"LD_LIBRARY_PATH": str(BUILD / "tests/fake_cuda"), "FAKE_CUDA_RUN": "1"}
    done = subprocess.run(command + [str(folder / case.name) for case in chosen], stdout=subprocess.PIPE, text=True, env=environment)
    report = json.loads(done.stdout)
    wrong = [case for case in report["cases"] if case["status"] != "pass"]
    for case in wrong:
        print(f"{case['status']} {case['name']}: {case['reason']}")
    print(f"{len(chosen) - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
