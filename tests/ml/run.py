#!/usr/bin/env python3
"""Operators of ai.onnx.ml, each in several forms, through `mcc verify`; onnxruntime says what must come out."""

import argparse
import json
import pathlib
import re
import shutil
import sys

import pipelines
import simple
import strings
import trees

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import verify_folders
from verify_folders import BUILD


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpu", action="store_true", help="for a GPU, on a stand-in driver that runs the PTX")
    parser.add_argument("--seed", type=int, default=5, help="of all numbers and trees")
    parser.add_argument("--filter", default="", metavar="RE")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR")
    arguments = parser.parse_args()

    cases = [case for module in (trees, simple, strings, pipelines) for case in module.cases(arguments.seed)]
    names = [case.name for case in cases]
    assert len(set(names)) == len(names), "two cases have one name"
    folder = arguments.keep or BUILD / "ml"
    shutil.rmtree(folder, ignore_errors=True)
    chosen = [case for case in cases if re.search(arguments.filter, case.name)]
    if arguments.gpu:  # strings are for CPUs
        chosen = [case for case in chosen if not case.has_strings()]
    for case in chosen:
        verify_folders.write(folder / case.name, case.model, case.inputs, case.outputs)
        (folder / case.name / "data.json").write_text(json.dumps({"rtol": case.rtol, "atol": case.atol}))

    folders = [folder / case.name for case in chosen]
    if not arguments.gpu:
        return verify_folders.verify(folders, "--open")
    return verify_folders.verify(folders, "--open", "--target", "cuda:sm_80", LD_LIBRARY_PATH=str(BUILD / "tests/fake_cuda"), FAKE_CUDA_RUN="1")


if __name__ == "__main__":
    sys.exit(main())
