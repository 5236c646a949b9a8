"""A case as a test folder of ONNX, and what `mcc verify` says of such folders."""

import json
import os
import pathlib
import subprocess

import numpy as np
from onnx import numpy_helper

BUILD = pathlib.Path(os.environ.get("MCC_BUILD_DIR", pathlib.Path(__file__).resolve().parents[1] / "build"))
MCC = os.environ.get("MCC", str(BUILD / "bin/mcc"))


def to_bytes(value, info):
    """A value as the message that ONNX's test data format has for its type."""
    if hasattr(value, "SerializeToString"):
        return value.SerializeToString()
    kind = info.type.WhichOneof("value")
    if kind == "sequence_type" and info.type.sequence_type.elem_type.HasField("tensor_type"):  # of a sequence of maps there is the tensor of scores
        return numpy_helper.from_list(list(value), info.name).SerializeToString()
    if kind == "optional_type":
        return numpy_helper.from_optional(value, info.name).SerializeToString()
    return numpy_helper.from_array(np.asarray(value), info.name).SerializeToString()


def write(folder, model, inputs, outputs, number=0):
    """The model with a data set; inputs and outputs are by name: arrays, lists of arrays, None."""
    data = folder / f"test_data_set_{number}"
    data.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    for word, values, declared in (("input", inputs, model.graph.input), ("output", outputs, model.graph.output)):
        infos = {info.name: info for info in declared}
        for i, (name, value) in enumerate(values.items()):
            (data / f"{word}_{i}.pb").write_bytes(to_bytes(value, infos[name]))


def open_dimensions(model):
    """Dimensions of the inputs that have several elements become open ones, equal ones by the same name; what follows from them is not said."""
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim if value.type.HasField("tensor_type") else ():
            if dim.dim_value > 1:
                dim.dim_param = f"D{dim.dim_value}"
    for value in model.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]


def verify(folders, *options, **environment):
    """Prints what is wrong, and the line that counts; returns the exit status."""
    done = subprocess.run([MCC, "verify", "--json", *options, *map(str, folders)], stdout=subprocess.PIPE, text=True,
                          env=os.environ | environment)
    wrong = [case for case in json.loads(done.stdout)["cases"] if case["status"] != "pass"]
    for case in wrong:
        print(f"{case['status']} {case['name']}: {case['reason']}")
    print(f"{len(folders) - len(wrong)} passed, {len(wrong)} failed")
    return 1 if wrong else 0
