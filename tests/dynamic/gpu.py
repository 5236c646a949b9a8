#!/usr/bin/env python3
"""The same models (models.py) for GPUs, on the stand-in driver, which runs PTX and refuses races and what lies outside of buffers: one library
for all sizes, one session whose sizes grow and shrink, against onnxruntime. gpu.py [TEST...]"""

import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import models
from session import BUILD, RunError, Session

MCC = os.path.abspath(os.environ.get("MCC", pathlib.Path(__file__).parents[2] / "build/bin/mcc"))
DRIVER = BUILD / "tests/fake_cuda/libcuda.so.1"
os.environ.update({"FAKE_CUDA_RUN": "1", "FAKE_CUDA_SM": "90", "LD_LIBRARY_PATH": f"{DRIVER.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"})
ctypes.CDLL(str(DRIVER), mode=ctypes.RTLD_GLOBAL)  # the loader finds it by its name from now on


def mcc(*arguments):
    return subprocess.run([MCC, *map(str, arguments)], capture_output=True, text=True, timeout=600)


class Gpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def done(self, result, code=0):
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def save(self, model):
        path = self.folder / f"{model.name}.onnx"
        onnx.save(model.proto(), path)
        return path

    def compile(self, model, *options, target="cuda:sm_80"):
        path = self.save(model)
        library = path.with_suffix(".so")
        result = self.done(mcc("compile", path, "-o", library, "--target", target, "--no-cubin", *options))
        return library, result.stderr

    def check(self, model, library, sizes, rtol=1e-3, atol=5e-4):
        reference = onnxruntime.InferenceSession(str(self.folder / f"{model.name}.onnx"), providers=["CPUExecutionProvider"])
        session = Session(library)
        for of_run in sizes:
            with self.subTest(model=model.name, **of_run):
                feeds = model.feeds(of_run)
                for want, got in zip(reference.run(list(model.outputs), feeds), session.run(feeds, model.outputs)):
                    self.assertEqual(want.shape, got.shape)
                    np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)
        session.close()


def add_models():
    for make in models.ALL:
        def test(self, make=make):
            model = make()
            library, said = self.compile(model)
            self.assertIn("open (any size)", said)
            self.check(model, library, (*model.sizes, model.sizes[0]))

        setattr(Gpu, f"test_{make.__name__}", test)


add_models()

if __name__ == "__main__":
    result = unittest.main(exit=False, verbosity=1).result
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad if bad < result.testsRun else 0} passed, {bad} failed")
    sys.exit(bad != 0)
