#!/usr/bin/env python3
"""Operators that onnxruntime adds to ONNX, each in several forms, through `mcc verify`; numpy says what must come out."""

import argparse
import json
import pathlib
import re
import shutil
import sys

import arrays
import attention
import experts
import fused
import grouped
import hybrid
import layers
import quantized
import recurrent

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import verify_folders
from verify_folders import BUILD


def write(case, folder):
    model, inputs, outputs = case.model()
    verify_folders.write(folder, model, inputs, outputs)
    for number, run in enumerate(case.more, 1):
        verify_folders.write(folder, model, *case.by_name(*run), number=number)
    (folder / "data.json").write_text(json.dumps({"rtol": case.rtol, "atol": case.atol}))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", action="store_true", help="for a GPU, on a stand-in driver that runs the PTX")
    parser.add_argument("--filter", default="", metavar="RE")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR")
    arguments = parser.parse_args()

    cases = [case for module in (quantized, fused, layers, attention, grouped, hybrid, experts, recurrent, arrays) for case in module.cases()]
    names = [case.name for case in cases]
    assert len(set(names)) == len(names), "two cases have one name"
    folder = arguments.keep or BUILD / "contrib"
    shutil.rmtree(folder, ignore_errors=True)
    chosen = [case for case in cases if re.search(arguments.filter, case.name)]
    for case in chosen:
        write(case, folder / case.name)

    folders = [folder / case.name for case in chosen]
    if not arguments.gpu:
        return verify_folders.verify(folders)
    return verify_folders.verify(folders, "--target", "cuda:sm_80", LD_LIBRARY_PATH=str(BUILD / "tests/fake_cuda"), FAKE_CUDA_RUN="1")


if __name__ == "__main__":
    sys.exit(main())
