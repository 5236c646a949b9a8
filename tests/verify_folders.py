"""A case as a test folder of ONNX, and what `mcc verify` says of such folders."""

import json
import os
import pathlib
import subprocess

from onnx import numpy_helper

BUILD = pathlib.Path(os.environ.get("MCC_BUILD_DIR", pathlib.Path(__file__).resolve().parents[1] / "build"))
MCC = os.environ.get("MCC", str(BUILD / "bin/mcc"))


def write(folder, model, inputs, outputs):
    """The model with one data set; inputs and outputs are arrays by name."""
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    for word, arrays in (("input", inputs), ("output", outputs)):
        for i, (name, array) in enumerate(arrays.items()):
            (data / f"{word}_{i}.pb").write_bytes(numpy_helper.from_array(array, name).SerializeToString())


def verify(folders, *options, **environment):
    """Prints what is wrong, and the line that counts; returns the exit status."""
    done = subprocess.run([MCC, "verify", "--json", *options, *map(str, folders)], stdout=subprocess.PIPE, text=True,
                          env=os.environ | environment)
    wrong = [case for case in json.loads(done.stdout)["cases"] if case["status"] != "pass"]
    for case in wrong:
        print(f"{case['status']} {case['name']}: {case['reason']}")
    print(f"{len(folders) - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong else 0
