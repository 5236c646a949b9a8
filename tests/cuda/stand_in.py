"""What the tests of models for GPUs share: the program with the stand-ins for NVIDIA's driver (tests/fake_cuda) and for cuBLASLt
(tests/fake_cublaslt), and small models."""

import os
import pathlib
import subprocess
import sys
import tempfile

import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from folder_case import FolderCase, main  # noqa: E402, F401

ROOT = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(os.environ.get("MCC_BUILD_DIR", ROOT / "build"))
MCC = os.path.abspath(os.environ.get("MCC", BUILD / "bin/mcc"))
DRIVER, LIBRARY = BUILD / "tests/fake_cuda", BUILD / "tests/fake_cublaslt"
PATIENT = ("--timeout", "20s")  # for mcc tune: a machine that does other things, too, keeps no second
NO_LIBRARY = tempfile.TemporaryDirectory()  # where a loader that looks for cuBLASLt finds what is none
for version in (11, 12, 13):
    (pathlib.Path(NO_LIBRARY.name) / f"libcublasLt.so.{version}").write_text("not a library")


# The program; with the stand-in driver, and the stand-in cuBLASLt or none.
def mcc(*arguments, driver=True, library=False, **extra):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("FAKE_CUDA", "FAKE_CUBLASLT"))}
    if driver:
        environment |= {"LD_LIBRARY_PATH": f"{DRIVER}:{LIBRARY if library else NO_LIBRARY.name}", "FAKE_CUDA_RUN": "1"}
    environment |= {k: str(v) for k, v in extra.items()}
    return subprocess.run([MCC, *map(str, arguments)], capture_output=True, text=True, timeout=600, env=environment)


# A model of inputs {name: shape} with the output y.
def save(path, nodes, inputs, output, weights=None, element=TensorProto.FLOAT):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(k, element, v) for k, v in inputs.items()],
                              [helper.make_tensor_value_info("y", element, output)],
                              [numpy_helper.from_array(v, k) for k, v in (weights or {}).items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


class Case(FolderCase):
    @staticmethod
    def done(result, code=0):
        if result.returncode != code:
            raise AssertionError(f"exit {result.returncode}, expected {code}: {result.stdout[-2000:]}{result.stderr[-2000:]}")
        return result
